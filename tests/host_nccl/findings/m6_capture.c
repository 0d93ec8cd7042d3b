/* Finding M6: an operation on a stream that is being captured either works, or is refused. After a
 * refusal the capture is still valid and the group usable. */
#include "tests/host_nccl/findings/finding.h"

int main(void) {
    open_world(2000);
    first_sum(world);
    cudaStream_t s;
    cudaGraph_t graph = NULL;
    float *x = floats(16, 1);
    (void) cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
    (void) cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed);
    crunrt_op op = sum_of(x);
    op.stream = s;
    int rc = crunrt_group_run(world, &op);
    cudaError_t e = cudaStreamEndCapture(s, &graph);
    KEPT(rc == 0 || rc == -ENOTSUP || rc == -EINVAL, "%d", rc);
    KEPT(e == cudaSuccess, "the capture ended with %d", (int) e);
    first_sum(world);
    kept();
}
