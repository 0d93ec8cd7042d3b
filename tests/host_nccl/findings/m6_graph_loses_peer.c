/* Finding M6: a launched graph waits for a rank that has failed. That rank reports its failure in
 * the store, and the overseer of this rank then aborts the communicator, which ends the graph,
 * although the program waits for its stream and calls nothing of the library. */
#include "tests/host_nccl/findings/finding.h"

int main(void) {
    open_world(1000);
    first_sum(world);
    cudaStream_t s;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    (void) cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
    crunrt_op op = sum_of(floats(16, 1));
    (void) cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal);
    op.stream = s;
    KEPT(crunrt_group_run(world, &op) == 0, "capture");
    KEPT(cudaStreamEndCapture(s, &graph) == cudaSuccess, "the capture failed");
    KEPT(cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess, "instantiate");
    /* rank 1 fails because no other rank takes part in its operation */
    if (rank == 1) {
        crunrt_op lonely = sum_of(floats(16, 1));
        lonely.count = 5;
        KEPT(crunrt_group_run(world, &lonely) < 0, "a sum without its peer");
        kept();
    }
    int64_t since = now_ms();
    (void) cudaGraphLaunch(exec, s);
    (void) cudaStreamSynchronize(s);
    KEPT(now_ms() - since < 4000, "the graph ended after %d ms", (int) (now_ms() - since));
    int rc = crunrt_group_barrier(world);
    KEPT(rc == -ECONNRESET, "%d", rc);
    kept();
}
