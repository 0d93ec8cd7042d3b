/* Finding M8: a program may destroy a group while a work on the group is unfinished, for example
 * when it returns early after an error. The work must fail, and the program can free the work. */
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
    /* ends the program if crunrt_group_destroy() waits for the work for ever */
    (void) alarm(6);
    crunrt_group_destroy(world);
    /* overwrites memory that was just freed, so that a later use of that memory is more likely to
     * fail */
    free(malloc(200));
    int rc = crunrt_work_wait(work, CRUNRT_TIMEOUT_DEFAULT);
    say_done();
    KEPT(rc < 0, "%d", rc);
    crunrt_work_free(work);
    kept();
}
