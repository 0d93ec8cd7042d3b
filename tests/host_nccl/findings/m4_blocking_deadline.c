/* M4: a deadline ends every call in blocking mode, too. The first use of a communicator connects,
 * which blocks inside NCCL until the peers come. */
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
