/* Finding H2: an operation on cudaStreamPerThread either works or is refused with an error. The
 * difficulty: this handle means a different stream in each thread, and NCCL launches the kernels of
 * a non-blocking communicator from a thread of its own. */
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
