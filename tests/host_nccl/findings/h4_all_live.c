/* Finding H4: all ranks live, but the communicator of rank 0 reports an error, which
 * HOST_NCCL_FAULT orders. The error text on every rank must name rank 0 as the rank that noticed
 * the error. No text may say that there is "no sign of" a rank. */
#include "tests/host_nccl/findings/finding.h"

int main(void) {
    open_world(5000);
    first_sum(world);
    crunrt_op op = sum_of(floats(16, 1));
    int rc = 0;
    for (int i = 0; i < 20 && rc == 0; i++) rc = crunrt_group_run(world, &op);
    KEPT(rc < 0, "no error");
    KEPT(strstr(crunrt_last_error(), "no sign of") == NULL, "a living rank is accused");
    KEPT(strstr(crunrt_last_error(), "rank 0") != NULL, "who noticed is not said");
    kept();
}
