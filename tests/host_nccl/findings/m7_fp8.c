/* Finding M7: the 8-bit floating types of NCCL 2.24 work. This program also checks a finding of low
 * severity: repeated all-reduces of the same data give the same bits with the host NCCL. (With
 * NVSwitch they may differ, as crunrt.h says.) */
#include "tests/host_nccl/findings/finding.h"

static void sum_bytes(crunrt_dtype type, uint8_t one, uint8_t two) {
    uint8_t host[16], *device = NULL;
    memset(host, one, sizeof(host));
    KEPT(cudaMalloc((void **) &device, sizeof(host)) == cudaSuccess, "memory");
    (void) cudaMemcpy(device, host, sizeof(host), cudaMemcpyHostToDevice);
    KEPT(crunrt_group_all_reduce(world, device, device, 16, type, CRUNRT_SUM) == 0, "sum");
    (void) cudaMemcpy(host, device, sizeof(host), cudaMemcpyDeviceToHost);
    for (int i = 0; i < 16; i++) KEPT(host[i] == two, "byte %d is %02x", i, host[i]);
}

int main(void) {
    open_world(5000);
    for (int i = 0; i < 5; i++) {
        sum_bytes(CRUNRT_FLOAT8_E4M3, 0x38, 0x40); /* 1 + 1 = 2 */
        sum_bytes(CRUNRT_FLOAT8_E5M2, 0x3c, 0x40);
    }
    float *x = floats(16, 1);
    crunrt_op op = sum_of(x);
    op.reduce = CRUNRT_BAND;
    op.dtype = CRUNRT_INT32;
    KEPT(crunrt_group_run(world, &op) == -ENOTSUP, "bitwise");
    op.dtype = CRUNRT_FLOAT8_E5M2;
    KEPT(crunrt_group_run(world, &op) == -EINVAL, "bitwise on a floating type");
    kept();
}
