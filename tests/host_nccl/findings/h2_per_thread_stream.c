/* H2: cudaStreamPerThread names another stream in every thread, and a non-blocking communicator
 * launches from a thread of NCCL's own: refused with the reason, or made to work. */
#include "tests/host_nccl/findings/finding.h"

int main(void) {
    open_world(5000);
    first_sum(world);
    float *x = floats(16, 1);
    (void) host_cuda_fill(cudaStreamPerThread, x, 16, 2, 50);
    crunrt_op op = sum_of(x);
    op.stream = cudaStreamPerThread;
    int rc = crunrt_group_run(world, &op);
    if (rc == 0) KEPT(first_of(x) == 2 * (float) size, "sum %g", (double) first_of(x));
    KEPT(rc == 0 || rc == -EINVAL || rc == -ENOTSUP, "%d", rc);
    kept();
}
