/* H4: rank 0's communicator reports an error (HOST_NCCL_FAULT orders it) while all ranks live. No
 * error text calls a rank silent, although the others learn of the failure only when they look into
 * the store. */
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
