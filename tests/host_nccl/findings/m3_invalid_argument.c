/* Finding M3: if NCCL returns ncclInvalidArgument, the group must either stay usable or be broken
 * on all ranks. The error must not say that the group is usable while every later call fails.
 * HOST_NCCL_FAULT orders this error for rank 0. */
#include "tests/host_nccl/findings/finding.h"

int main(void) {
    open_world(4000);
    first_sum(world);
    crunrt_op op = sum_of(floats(16, 1));
    int64_t since = now_ms();
    int rc = crunrt_group_run(world, &op);
    if (rank == 0 && (rc == -EINVAL || rc == -ENOTSUP)) rc = crunrt_group_run(world, &op);
    KEPT(rank != 0 || rc == 0 || crunrt_group_barrier(world) == -EPIPE, "%d", rc);
    KEPT(now_ms() - since < 2500, "heard of it after %lld ms", (long long) (now_ms() - since));
    kept();
}
