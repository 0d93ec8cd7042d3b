/* Finding M4: a timeout ends every call, also a call that blocks inside NCCL, as with blocking
 * communicators. Here rank 0's first operation blocks until the other ranks connect, which they do
 * not. */
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
