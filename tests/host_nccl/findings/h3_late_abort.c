/* Findings H3 and H5: while an abort does not return, the process can make no group, and the error
 * text says so. When the abort returns later, the process can make groups again. HOST_NCCL_FAULT
 * makes the abort of rank 0 take 2.5 s; CRUNRT_NCCL_ABORT_TIMEOUT_MS makes rank 0 give up on it
 * after 500 ms. */
#include "tests/host_nccl/findings/finding.h"

int main(void) {
    open_world(1000);
    first_sum(world);
    if (rank != 0) {
        stand_by(1);
        kept();
    }
    crunrt_op op = sum_of(floats(16, 1));
    int rc = crunrt_group_run(world, &op);
    KEPT(rc == -ETIMEDOUT, "%d", rc);
    KEPT(strstr(crunrt_last_error(), "could not be aborted") != NULL, "text");
    crunrt_group_destroy(world);
    const int alone = 0;
    crunrt_group_options o = CRUNRT_GROUP_OPTIONS_INIT;
    crunrt_group *g = NULL;
    o.backend = "nccl";
    o.ranks = &alone;
    o.rank_count = 1;
    KEPT(crunrt_group_new(rt, &o, &g) == -ENOTRECOVERABLE, "a group beside a wedged abort");
    say_done();
    (void) sleep(3);
    crunrt_group_destroy(make_group(5000, &alone, 1));
    kept();
}
