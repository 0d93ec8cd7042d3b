/* What one asynchronous operation costs in the nccl backend beyond the calls of NCCL and CUDA that
 * it makes, on the host NCCL (tests/host_nccl). `make bench-nccl` runs it under crun with one rank.
 *
 * A first kernel blocks the stream, so that nothing runs on it while the calls are timed. Each time
 * is per operation, and the smallest of several batches. The program also counts threads and waits
 * per operation. The times of the host NCCL's own calls mean nothing for a GPU; what counts is the
 * difference from these, which is the time of this project's code. */
#include <crunrt.h>

#include <cuda_runtime.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BATCH = 64, BATCHES = 100, BLOCKED_MS = 20 };

/* Functions that only the host NCCL has. */
cudaError_t host_cuda_fill(cudaStream_t stream, float *at, size_t count, float value, int ms);
uint64_t host_nccl_counter(const char *name);

/* Functions of the CUDA driver; cuda.h is not needed to build this program. */
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuCtxGetCurrent(void **context);
int cuCtxSetCurrent(void *context);
int cuThreadExchangeStreamCaptureMode(int *mode);
int cuStreamIsCapturing(cudaStream_t stream, int *status);
int cuPointerGetAttribute(void *value, int attribute, unsigned long long p);

static void *primary;
static crunrt_group *world;
static cudaStream_t program, own;
static cudaEvent_t before, after[BATCH];
static float *x;

static void must(int ok, const char *what) {
    if (ok) return;
    fprintf(stderr, "nccl_layer: %s: %s\n", what, crunrt_last_error());
    exit(1);
}

static int64_t now_ns(void) {
    struct timespec ts;
    (void) clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t) ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* The calls that any library must make for an all-reduce that runs after what is on the caller's
 * stream and before what is put there later. torch's ProcessGroupNCCL makes these calls. */
static void by_hand(int i) {
    (void) cudaEventRecord(before, program);
    (void) cudaStreamWaitEvent(own, before, 0);
    (void) ncclAllReduce(x, x, 16, ncclFloat32, ncclSum, crunrt_nccl_comm(world), own);
    (void) cudaEventRecord(after[i], own);
    (void) cudaStreamWaitEvent(program, after[i], 0);
}

/* The calls of the CUDA driver that the library makes in addition to those of by_hand(). With them
 * it leaves the thread's device and captures as they were, and refuses host memory. On the host
 * NCCL each of them takes a lock and reads an environment variable; on a real driver each takes
 * tens of nanoseconds. */
static void extra_calls(int i) {
    void *context = NULL;
    unsigned type = 0;
    int mode = 2, status = 0;
    (void) i;
    (void) cuCtxGetCurrent(&context);
    (void) cuCtxSetCurrent(primary);
    (void) cuThreadExchangeStreamCaptureMode(&mode);
    (void) cuPointerGetAttribute(&type, 2, (unsigned long long) (uintptr_t) x);
    (void) cuStreamIsCapturing(program, &status);
    (void) cuThreadExchangeStreamCaptureMode(&mode);
    (void) cuCtxSetCurrent(context);
}

static void by_library(int i) {
    (void) i;
    crunrt_op op = CRUNRT_OP_INIT;
    op.kind = CRUNRT_OP_ALL_REDUCE;
    op.dtype = CRUNRT_FLOAT32;
    op.send = op.recv = x;
    op.count = 16;
    op.stream = program;
    must(crunrt_group_enqueue(world, &op) == 0, "enqueue");
}

static double per_operation_us(void (*run)(int i)) {
    double best = 1e9;
    for (int b = 0; b < BATCHES; b++) {
        (void) host_cuda_fill(program, x, 16, 1, BLOCKED_MS);
        int64_t since = now_ns();
        for (int i = 0; i < BATCH; i++) run(i);
        double us = (double) (now_ns() - since) / 1000 / BATCH;
        if (us < best) best = us;
        (void) cudaStreamSynchronize(program);
        must(crunrt_group_wait(world, CRUNRT_FOREVER) == 0, "wait");
    }
    return best;
}

int main(void) {
    crunrt *rt = NULL;
    crunrt_group_options o = CRUNRT_GROUP_OPTIONS_INIT;
    o.backend = "nccl";
    must(crunrt_init(NULL, &rt) == 0 && crunrt_group_new(rt, &o, &world) == 0, "begin");
    must(cudaMalloc((void **) &x, 64) == cudaSuccess, "memory");
    (void) cuDevicePrimaryCtxRetain(&primary, 0);
    (void) cudaStreamCreateWithFlags(&program, cudaStreamNonBlocking);
    (void) cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking);
    (void) cudaEventCreateWithFlags(&before, cudaEventDisableTiming);
    for (int i = 0; i < BATCH; i++)
        (void) cudaEventCreateWithFlags(&after[i], cudaEventDisableTiming);
    by_library(0);
    (void) cudaStreamSynchronize(program);
    uint64_t threads = host_nccl_counter("threads"), waits = host_nccl_counter("device_waits");
    double library = per_operation_us(by_library), hand = per_operation_us(by_hand);
    double extra = per_operation_us(extra_calls);
    threads = host_nccl_counter("threads") - threads;
    waits = host_nccl_counter("device_waits") - waits;
    printf("per operation: by the library %.2f us, by hand %.2f us, difference %.2f us, of which "
           "%.2f us are 7 more calls of the host NCCL's driver; "
           "%d threads, %d device waits in %d operations\n",
           library, hand, library - hand, extra, (int) threads, (int) waits, BATCH * BATCHES);
    crunrt_group_destroy(world);
    crunrt_destroy(rt);
    return library - hand - extra < 2 && threads == 0 ? 0 : 1;
}
