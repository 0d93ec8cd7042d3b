/* Finding H1: a work that was unfinished when its group broke must not be reported as successful.
 * After an abort the kernels end and their events are complete, but the results are wrong. */
#include "tests/host_nccl/findings/finding.h"

int main(void) {
    open_world(1000);
    first_sum(world);
    if (rank != 0) {
        stand_by(1);
        kept();
    }
    crunrt_work *works[3];
    float *x = floats(3 * 16, 1);
    for (int i = 0; i < 3; i++) {
        crunrt_op op = sum_of(x + (ptrdiff_t) i * 16);
        KEPT(crunrt_group_start(world, &op, &works[i]) == 0, "start");
    }
    for (int i = 0; i < 3; i++) {
        int rc = crunrt_work_wait(works[i], CRUNRT_TIMEOUT_DEFAULT);
        if (i == 2) say_done();
        KEPT(rc < 0, "work %d ended with %d without its peer", i, rc);
    }
    kept();
}
