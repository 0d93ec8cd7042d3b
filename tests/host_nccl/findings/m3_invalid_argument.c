/* M3: after NCCL's own "invalid argument" (ordered for rank 0) the group either goes on or is
 * broken for all; it is not called fine while every later call fails. */
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
