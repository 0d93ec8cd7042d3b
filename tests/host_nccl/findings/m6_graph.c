/* Finding M6: operations on a stream that is captured become part of the graph; so do sends and
 * receives that are started one by one. Each launch of the graph computes the right result. An
 * operation that is not captured runs correctly between two launches. */
#include "tests/host_nccl/findings/finding.h"

int main(void) {
    open_world(5000);
    first_sum(world);
    cudaStream_t s;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    crunrt_work *works[2] = {NULL, NULL};
    float *x = floats(16, 0), *in = floats(16, -1);
    int left = (rank + size - 1) % size, right = (rank + 1) % size;
    (void) cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
    (void) cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal);
    (void) host_cuda_fill(s, x, 16, (float) (rank + 1), 5);
    crunrt_op op = sum_of(x), get = CRUNRT_OP_INIT, put;
    op.stream = s;
    KEPT(crunrt_group_enqueue(world, &op) == 0, "enqueue");
    get.kind = CRUNRT_OP_RECV;
    get.dtype = CRUNRT_FLOAT32;
    get.stream = s;
    get.count = 16;
    get.root = left;
    get.recv = in;
    put = get;
    put.kind = CRUNRT_OP_SEND;
    put.root = right;
    put.recv = NULL;
    put.send = x;
    KEPT(crunrt_group_start(world, &get, &works[0]) == 0, "start a receive");
    KEPT(crunrt_group_start(world, &put, &works[1]) == 0, "start a send");
    for (int i = 0; i < 2; i++) {
        KEPT(crunrt_work_wait_stream(works[i], s) == 0, "join the stream");
        KEPT(crunrt_work_wait(works[i], CRUNRT_FOREVER) == 0, "a captured work has no end");
        crunrt_work_free(works[i]);
    }
    KEPT(cudaStreamEndCapture(s, &graph) == cudaSuccess, "the capture failed");
    KEPT(cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess, "instantiate");
    for (int i = 0; i < 3; i++) {
        (void) cudaGraphLaunch(exec, s);
        (void) cudaStreamSynchronize(s);
        KEPT(first_of(x) == (float) (size * (size + 1)) / 2, "sum %g", (double) first_of(x));
        KEPT(first_of(in) == first_of(x), "received %g", (double) first_of(in));
        first_sum(world);
    }
    KEPT(crunrt_group_wait(world, 0) == 0, "wait");
    (void) cudaGraphExecDestroy(exec);
    (void) cudaGraphDestroy(graph);
    crunrt_group_destroy(world);
    kept();
}
