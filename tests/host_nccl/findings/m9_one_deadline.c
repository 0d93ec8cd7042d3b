/* M9: the limit of an operation holds for all of it, and the text names the limit. Connecting takes
 * 800 ms and the kernel never ends, as ordered. */
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
