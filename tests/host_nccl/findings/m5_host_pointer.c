/* Finding M5: an operation on a pointer to host memory is refused before a kernel uses the pointer:
 * the kernel would fail and poison the CUDA context. */
#include "tests/host_nccl/findings/finding.h"

int main(void) {
    open_world(2000);
    first_sum(world);
    float loss[16] = {0};
    crunrt_op op = sum_of(loss);
    int rc = crunrt_group_run(world, &op);
    KEPT(rc == -EINVAL, "%d", rc);
    first_sum(world);
    kept();
}
