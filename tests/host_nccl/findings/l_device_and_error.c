/* Findings of low severity: an operation changes neither the caller's current device nor its last
 * CUDA error. */
#include "tests/host_nccl/findings/finding.h"

int main(void) {
    open_world(2000);
    (void) cudaSetDevice(7);
    int device = -1;
    float *x = NULL;
    (void) cudaSetDevice(rank);
    x = floats(16, 1);
    (void) cudaSetDevice(7);
    (void) cudaGetLastError();
    (void) cudaSetDevice(99); /* the program's own error */
    crunrt_op op = sum_of(x);
    KEPT(crunrt_group_run(world, &op) == 0, "sum");
    (void) cudaGetDevice(&device);
    KEPT(device == 7, "the device is %d", device);
    KEPT(cudaGetLastError() == cudaErrorInvalidDevice, "the program's error is gone");
    kept();
}
