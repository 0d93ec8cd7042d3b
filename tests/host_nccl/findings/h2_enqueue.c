/* Finding H2: crunrt_group_enqueue() returns at once. What the program has put on its stream before
 * the call runs before the operation, and what it puts there after the call runs after the
 * operation. The library makes no call that blocks the host. */
#include "tests/host_nccl/findings/finding.h"

uint64_t host_nccl_counter(const char *name); /* a function that only the host NCCL has */

enum { ROUNDS = 100, COUNT = 256 };

int main(void) {
    open_world(5000);
    first_sum(world);
    cudaStream_t s;
    (void) cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
    float *x = floats(COUNT, 0);
    crunrt_op op = sum_of(x);
    op.count = COUNT;
    op.stream = s;
    uint64_t waits = host_nccl_counter("host_waits"), threads = host_nccl_counter("threads");
    int64_t since = now_ms();
    (void) host_cuda_fill(s, x, COUNT, 1, 1500);
    for (int i = 0; i < ROUNDS; i++) {
        if (i > 0) (void) host_cuda_fill(s, x, COUNT, (float) i, 0);
        KEPT(crunrt_group_enqueue(world, &op) == 0, "enqueue");
    }
    KEPT(now_ms() - since < 1200, "%d calls took %d ms", ROUNDS, (int) (now_ms() - since));
    waits = host_nccl_counter("host_waits") - waits;
    threads = host_nccl_counter("threads") - threads;
    KEPT(waits == 0 && threads == 0, "%d waits, %d threads", (int) waits, (int) threads);
    KEPT(crunrt_group_wait(world, 0) == -EAGAIN, "the operations cannot be over yet");
    (void) cudaStreamSynchronize(s);
    KEPT(crunrt_group_wait(world, 0) == 0, "wait");
    KEPT(first_of(x) == (float) ((ROUNDS - 1) * size), "sum %g", (double) first_of(x));
    kept();
}
