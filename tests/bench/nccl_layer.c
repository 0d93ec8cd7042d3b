/* Measures what the nccl backend adds to the time of one asynchronous operation, on the host NCCL
 * (tests/host_nccl). `make bench-nccl` runs this program under crun with one rank, so that the rank
 * also writes into its page which operation it is in.
 *
 * Some batches of operations are made by the library, others by hand: with just the five calls of
 * NCCL and CUDA that any program needs. A first kernel blocks the stream, so that no operation runs
 * while its calls are timed. The time of each kind is that of its fastest batch, per operation. The
 * difference of the two is the time of this project's code and of the further calls of the driver
 * that it makes: for the thread's context, captures, and the kind of memory. The program fails if
 * the difference is 2 us or more. The times themselves say nothing about a GPU. */
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

/* Functions of the CUDA driver; cuda.h is not needed to build this program. The library calls
 * these functions, not those of the CUDA runtime, so by_hand() calls them, too. */
int cuEventRecord(cudaEvent_t event, cudaStream_t stream);
int cuStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);

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
    (void) cuEventRecord(before, program);
    (void) cuStreamWaitEvent(own, before, 0);
    (void) ncclAllReduce(x, x, 16, ncclFloat32, ncclSum, crunrt_nccl_comm(world), own);
    (void) cuEventRecord(after[i], own);
    (void) cuStreamWaitEvent(program, after[i], 0);
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

/* Returns the time in us of one operation, as the average of one batch. */
static double batch_us(void (*run)(int i)) {
    (void) host_cuda_fill(program, x, 16, 1, BLOCKED_MS);
    int64_t since = now_ns();
    for (int i = 0; i < BATCH; i++) run(i);
    double us = (double) (now_ns() - since) / 1000 / BATCH;
    (void) cudaStreamSynchronize(program);
    must(crunrt_group_wait(world, CRUNRT_FOREVER) == 0, "wait");
    return us;
}

int main(void) {
    crunrt *rt = NULL;
    crunrt_group_options o = CRUNRT_GROUP_OPTIONS_INIT;
    o.backend = "nccl";
    must(crunrt_init(NULL, &rt) == 0 && crunrt_group_new(rt, &o, &world) == 0, "begin");
    must(cudaMalloc((void **) &x, 64) == cudaSuccess, "memory");
    (void) cudaStreamCreateWithFlags(&program, cudaStreamNonBlocking);
    (void) cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking);
    (void) cudaEventCreateWithFlags(&before, cudaEventDisableTiming);
    for (int i = 0; i < BATCH; i++)
        (void) cudaEventCreateWithFlags(&after[i], cudaEventDisableTiming);
    by_library(0);
    (void) cudaStreamSynchronize(program);
    uint64_t threads = host_nccl_counter("threads"), waits = host_nccl_counter("device_waits");
    double library = 1e9, hand = 1e9;
    for (int b = 0; b < BATCHES; b++) {
        double us = batch_us(by_library);
        if (us < library) library = us;
        us = batch_us(by_hand);
        if (us < hand) hand = us;
    }
    threads = host_nccl_counter("threads") - threads;
    waits = host_nccl_counter("device_waits") - waits;
    printf("per operation: by the library %.2f us, by hand %.2f us, difference %.2f us (limit 2); "
           "%d threads, %d device waits in %d operations\n",
           library, hand, library - hand, (int) threads, (int) waits, BATCH * BATCHES);
    crunrt_group_destroy(world);
    crunrt_destroy(rt);
    return library - hand < 2 && threads == 0 && waits == 0 ? 0 : 1;
}
