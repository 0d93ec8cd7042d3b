/* M8: a group may be destroyed while a work is under way, as a program's early return does it: the
 * work ends with an error and can be freed. */
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
    (void) alarm(6); /* the end of the group may wait for the work for ever */
    crunrt_group_destroy(world);
    free(malloc(200)); /* what was freed is used again */
    int rc = crunrt_work_wait(work, CRUNRT_TIMEOUT_DEFAULT);
    say_done();
    KEPT(rc < 0, "%d", rc);
    crunrt_work_free(work);
    kept();
}
