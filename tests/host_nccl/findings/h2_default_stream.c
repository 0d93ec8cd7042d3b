/* Finding H2: a collective runs after everything that the caller has put on the collective's stream
 * before. Here this stream is the legacy default stream. On it are a kernel, and a copy whose data
 * has not arrived when cudaMemcpy() returns. If the collective is not ordered after the two, the
 * host NCCL reports a race and ends the program with status 97. */
#include "tests/host_nccl/findings/finding.h"

int main(void) {
    static float host[1 << 16];
    open_world(5000);
    first_sum(world);
    float *x = floats(1 << 16, 1);
    for (int i = 0; i < 1 << 16; i++) host[i] = 2;
    (void) host_cuda_fill(cudaStreamLegacy, x, 16, 3, 50);
    (void) cudaMemcpy(x + 16, host, sizeof(host) - 64, cudaMemcpyHostToDevice);
    crunrt_op op = sum_of(x);
    op.count = 1 << 16;
    KEPT(crunrt_group_run(world, &op) == 0, "sum");
    KEPT(first_of(x) == 3 * (float) size && first_of(x + 16) == 2 * (float) size, "sum");
    kept();
}
