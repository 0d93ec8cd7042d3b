/* A CUDA context is lost only by those errors of which CUDA's manual says that the process must be
 * ended. HOST_NCCL_FAULT causes an error on rank 0. With EXPECT=lost it is such an error, and rank
 * 0 can make no new group. With EXPECT=kept it is another error, and all ranks make a new group. */
#include "tests/host_nccl/findings/finding.h"

int main(void) {
    const char *expect = getenv("EXPECT");
    bool is_lost = expect != NULL && strcmp(expect, "lost") == 0;
    open_world(5000);
    crunrt_op op = sum_of(floats(16, 1));
    int rc = 0;
    for (int i = 0; i < 4 && rc == 0; i++) rc = crunrt_group_run(world, &op);
    KEPT(rc < 0, "the error of CUDA");
    if (rank == 0) KEPT(rc == (is_lost ? -ENOTRECOVERABLE : -EIO), "%d", rc);
    crunrt_group_destroy(world);
    if (!is_lost) {
        first_sum(make_group(5000, NULL, 0));
    } else if (rank == 0) {
        crunrt_group_options o = CRUNRT_GROUP_OPTIONS_INIT;
        o.backend = "nccl";
        KEPT(crunrt_group_new(rt, &o, &world) == -ENOTRECOVERABLE, "a lost context");
    }
    kept();
}
