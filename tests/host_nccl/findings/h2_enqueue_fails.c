/* Finding H2: an operation fails at its timeout even if only a stream waits for it, and no thread.
 * The failure ends the program's cudaStreamSynchronize(), and the next calls on the group return
 * it. */
#include "tests/host_nccl/findings/finding.h"

int main(void) {
    open_world(1000);
    first_sum(world);
    if (rank != 0) {
        stand_by(1);
        kept();
    }
    cudaStream_t s;
    (void) cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
    crunrt_op op = sum_of(floats(16, 1));
    op.stream = s;
    int64_t since = now_ms();
    KEPT(crunrt_group_enqueue(world, &op) == 0, "enqueue");
    (void) cudaStreamSynchronize(s);
    KEPT(now_ms() - since < 2000, "the stream was over after %d ms", (int) (now_ms() - since));
    int rc = crunrt_group_wait(world, CRUNRT_FOREVER);
    say_done();
    KEPT(rc == -ETIMEDOUT, "%d", rc);
    KEPT(strstr(crunrt_last_error(), "1000 ms") != NULL, "text");
    KEPT(crunrt_group_barrier(world) == -EPIPE, "the group is not broken");
    kept();
}
