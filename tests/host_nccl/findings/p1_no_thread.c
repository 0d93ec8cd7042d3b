/* Finding P1: for an operation on the nccl backend, NCCL makes no thread. */
#include "tests/host_nccl/findings/finding.h"

uint64_t host_nccl_counter(const char *name); /* a function that only the host NCCL has */

int main(void) {
    open_world(5000);
    first_sum(world);
    float *x = floats(16, 1);
    uint64_t threads = host_nccl_counter("threads");
    for (int i = 0; i < 10; i++) {
        crunrt_op op = sum_of(x);
        crunrt_work *work = NULL;
        KEPT(crunrt_group_start(world, &op, &work) == 0, "start");
        KEPT(crunrt_work_wait(work, CRUNRT_TIMEOUT_DEFAULT) == 0, "wait");
        crunrt_work_free(work);
    }
    threads = host_nccl_counter("threads") - threads;
    KEPT(threads == 0, "%d threads for 10 operations", (int) threads);
    kept();
}
