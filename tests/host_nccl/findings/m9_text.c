/* Finding M9: when a work times out, the error text contains the work's whole timeout. It must not
 * contain only the time that was left when the program began to wait for the work. */
#include "tests/host_nccl/findings/finding.h"

int main(void) {
    open_world(60000);
    first_sum(world);
    crunrt_op op = sum_of(floats(16, 1));
    crunrt_work *work = NULL;
    op.timeout_ms = 1000;
    if (rank != 0) {
        stand_by(1);
        kept();
    }
    KEPT(crunrt_group_start(world, &op, &work) == 0, "start");
    (void) usleep(1200000);
    KEPT(crunrt_work_wait(work, CRUNRT_TIMEOUT_DEFAULT) < 0, "it went well");
    say_done();
    KEPT(strstr(crunrt_last_error(), "1000 ms") != NULL, "text");
    kept();
}
