/* H5: a process whose CUDA context is lost (a sticky error, ordered for rank 1) cannot go on:
 * crunrt_rejoin() says so instead of coming back for ever. */
#include "tests/host_nccl/findings/finding.h"

int main(void) {
    open_world(1500);
    first_sum(world);
    crunrt_op op = sum_of(floats(16, 1));
    KEPT(crunrt_group_run(world, &op) < 0, "the sum went well");
    crunrt_group_destroy(world);
    crunrt_rejoin_options o = CRUNRT_REJOIN_OPTIONS_INIT;
    o.timeout_ms = 3000;
    int rc = crunrt_rejoin(rt, &o);
    if (rank == 1) KEPT(rc == -ENOTRECOVERABLE, "rejoin returned %d", rc);
    kept();
}
