/* M8: a program may destroy a group while a work on it is unfinished, for example when it returns
 * early after an error. The work must fail, and the program can free it. */
#include "tests/host_nccl/findings/finding.h"

int main(void) {
    open_world(3000);
    first_sum(world);
    if (rank != 0) {
        stand_by(1);
        kept();
    }
    crunrt_work *work = NULL;
    crunrt_op op = sum_of(floats(16, 1));
    KEPT(crunrt_group_start(world, &op, &work) == 0, "start");
    (void) alarm(6); /* in case crunrt_group_destroy() waits for the work for ever */
    crunrt_group_destroy(world);
    free(malloc(200)); /* overwrites freed memory, so that a use of it is more likely to fail */
    int rc = crunrt_work_wait(work, CRUNRT_TIMEOUT_DEFAULT);
    say_done();
    KEPT(rc < 0, "%d", rc);
    crunrt_work_free(work);
    kept();
}
