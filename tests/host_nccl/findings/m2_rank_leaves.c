/* Finding M2: when a rank destroys its group, "a rank that still waits for this rank gets
 * -ECONNRESET" (crunrt.h, crunrt_group_destroy()). The waiting rank must get this error long before
 * its timeout. */
#include "tests/host_nccl/findings/finding.h"

int main(void) {
    open_world(4000);
    first_sum(world);
    if (rank == 1) {
        crunrt_group_destroy(world);
        crunrt_destroy(rt);
        kept();
    }
    crunrt_op op = sum_of(floats(16, 1));
    int64_t since = now_ms();
    int rc = crunrt_group_run(world, &op);
    KEPT(rc == -ECONNRESET, "%d", rc);
    KEPT(now_ms() - since < 2000, "after %lld ms", (long long) (now_ms() - since));
    kept();
}
