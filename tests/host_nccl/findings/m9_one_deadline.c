/* Finding M9: one timeout limits the whole operation, that is, to connect the ranks and to run the
 * kernel. HOST_NCCL_FAULT makes connecting take 800 ms and makes the kernel hang. */
#include "tests/host_nccl/findings/finding.h"

int main(void) {
    open_world(60000);
    crunrt_op op = sum_of(floats(16, 1));
    op.timeout_ms = 1000;
    int64_t since = now_ms();
    int rc = crunrt_group_run(world, &op);
    KEPT(rc == -ETIMEDOUT || rc == -ECONNRESET, "%d", rc);
    KEPT(now_ms() - since < 1600, "after %lld ms", (long long) (now_ms() - since));
    kept();
}
