/* Finding H6: every rank starts a receive from its left neighbour, and after it a send to its right
 * neighbour. Both must complete, as with gloo and mpi. If the backend put them on NCCL's
 * communicator one by one, they would deadlock: the send's kernel would wait for the receive's. */
#include "tests/host_nccl/findings/finding.h"

int main(void) {
    open_world(2000);
    float *in = floats(16, -1), *out = floats(16, (float) rank);
    int left = (rank + size - 1) % size, right = (rank + 1) % size;
    crunrt_work *works[2] = {NULL, NULL};
    KEPT(crunrt_group_irecv(world, in, 16, CRUNRT_FLOAT32, left, 0, &works[0]) == 0, "irecv");
    KEPT(crunrt_group_isend(world, out, 16, CRUNRT_FLOAT32, right, 0, &works[1]) == 0, "isend");
    for (int i = 0; i < 2; i++)
        KEPT(crunrt_work_wait(works[i], CRUNRT_TIMEOUT_DEFAULT) == 0, "work %d", i);
    KEPT(first_of(in) == (float) left, "received %g", (double) first_of(in));
    kept();
}
