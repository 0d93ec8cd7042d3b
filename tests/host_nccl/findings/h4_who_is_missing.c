/* Finding H4: the last rank does not take part in an operation. The error texts must name that rank
 * and no other. HOST_NCCL_FAULT makes rank 0's abort take longer than the other ranks wait for rank
 * 0's report in the store. */
#include "tests/host_nccl/findings/finding.h"

int main(void) {
    open_world(1000);
    first_sum(world);
    if (rank == size - 1) {
        stand_by(size - 1);
        kept();
    }
    crunrt_op op = sum_of(floats(16, 1));
    KEPT(crunrt_group_run(world, &op) < 0, "the sum ended without rank %d", size - 1);
    char text[1024], want[64];
    (void) snprintf(text, sizeof(text), "%s", crunrt_last_error());
    say_done();
    (void) snprintf(want, sizeof(want), "no sign of rank %d", size - 1);
    const char *named = strstr(text, want);
    KEPT(named != NULL && named[strlen(want)] != ',', "'%s' does not name rank %d alone", text,
         size - 1);
    kept();
}
