/* M4: a timeout ends every call, also with blocking communicators. Here rank 0's first operation
 * blocks inside NCCL, where it waits for the other ranks to connect. */
#include "tests/host_nccl/findings/finding.h"

int main(void) {
    open_world(1000);
    if (rank != 0) {
        stand_by(1);
        kept();
    }
    (void) alarm(4);
    crunrt_op op = sum_of(floats(16, 1));
    int rc = crunrt_group_run(world, &op);
    say_done();
    KEPT(rc == -ETIMEDOUT, "%d", rc);
    kept();
}
