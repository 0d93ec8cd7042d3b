/* Finding M6: while another thread captures a stream in global mode, operations of the library
 * succeed and do not invalidate the capture. */
#include "tests/host_nccl/findings/finding.h"

#include <pthread.h>

/* 1 while the other thread captures; 2 when the main thread has ordered it to end the capture */
static _Atomic int state;
static cudaError_t outcome;

static void *capture(void *arg) {
    cudaStream_t s = arg;
    cudaGraph_t graph = NULL;
    (void) cudaSetDevice(rank);
    (void) cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal);
    state = 1;
    while (state != 2) (void) usleep(1000);
    outcome = cudaStreamEndCapture(s, &graph);
    if (outcome == cudaSuccess) (void) cudaGraphDestroy(graph);
    return NULL;
}

int main(void) {
    open_world(2000);
    first_sum(world);
    crunrt_op op = sum_of(floats(16, 1));
    cudaStream_t s;
    pthread_t thread;
    (void) cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
    KEPT(pthread_create(&thread, NULL, capture, s) == 0, "thread");
    while (state != 1) (void) usleep(1000);
    int rc = crunrt_group_run(world, &op);
    state = 2;
    (void) pthread_join(thread, NULL);
    KEPT(rc == 0, "%d", rc);
    KEPT(outcome == cudaSuccess, "the capture ended with %d", (int) outcome);
    kept();
}
