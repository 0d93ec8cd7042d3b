/* Tests the host NCCL itself, without crun: what NCCL and CUDA promise, and what happens to
 * programs that use them wrongly.
 *
 *     model MODE [HOW]
 *
 * The environment variables RANK and WORLD_SIZE give the rank and the number of ranks. Rank 0
 * passes the unique id to the other ranks in a file whose path begins with MODEL_ID. If the test
 * MODE succeeds, it prints "MODE right"; otherwise it prints a line that begins with FAILED. */
#include <cuda_runtime.h>
#include <nccl.h>

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Functions that only the host NCCL has. */
uint64_t host_nccl_counter(const char *name);
cudaError_t host_cuda_fill(cudaStream_t stream, float *at, size_t count, float value, int ms);
void host_cuda_touch(const void *at, size_t size, int writes);
/* nccl.h declares these functions without prototypes. */
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

static int rank, size;

#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            printf("FAILED at line %d: %s [%s]\n", __LINE__, #condition, ncclGetLastError(NULL));  \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
#define CUDA(call) REQUIRE((call) == cudaSuccess)
#define NCCL(call) REQUIRE((call) == ncclSuccess)

/* ---- communicators, streams and device memory for the tests ---- */

static ncclUniqueId shared_id(int number) {
    ncclUniqueId id;
    char path[512], draft[520];
    (void) snprintf(path, sizeof(path), "%s.%d", getenv("MODEL_ID"), number);
    (void) snprintf(draft, sizeof(draft), "%s.draft", path);
    if (rank == 0) {
        NCCL(ncclGetUniqueId(&id));
        FILE *out = fopen(draft, "w");
        REQUIRE(out != NULL && fwrite(&id, sizeof(id), 1, out) == 1 && fclose(out) == 0);
        REQUIRE(rename(draft, path) == 0);
        return id;
    }
    FILE *in = NULL;
    while ((in = fopen(path, "r")) == NULL) (void) usleep(1000);
    REQUIRE(fread(&id, sizeof(id), 1, in) == 1);
    (void) fclose(in);
    return id;
}

static ncclResult_t settled(ncclComm_t comm) {
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) {
        NCCL(ncclCommGetAsyncError(comm, &state));
        (void) usleep(100);
    }
    return state;
}

static ncclComm_t connect_ranks(int number, int blocking) {
    ncclComm_t comm = NULL;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = blocking;
    CUDA(cudaSetDevice(rank));
    ncclUniqueId id = shared_id(number);
    ncclResult_t r = ncclCommInitRankConfig(&comm, size, id, rank, &config);
    REQUIRE(r == (blocking ? ncclSuccess : ncclInProgress));
    REQUIRE(settled(comm) == ncclSuccess);
    return comm;
}

static cudaStream_t stream_new(void) {
    cudaStream_t s;
    CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    return s;
}

static float *floats(size_t count, float value) {
    float *device, *host = malloc(count * sizeof(float));
    REQUIRE(host != NULL);
    for (size_t i = 0; i < count; i++) host[i] = value;
    CUDA(cudaMalloc((void **) &device, count * sizeof(float)));
    CUDA(cudaMemcpy(device, host, count * sizeof(float), cudaMemcpyHostToDevice));
    CUDA(cudaDeviceSynchronize());
    free(host);
    return device;
}

static float first_of(const float *device) {
    float value;
    CUDA(cudaMemcpy(&value, device, sizeof(value), cudaMemcpyDeviceToHost));
    return value;
}

/* ---- tests that need only one process ---- */

static void mode_fp8(void) {
    static const struct {
        int type;
        double values[3];
        int codes[3];
    } cases[] = {{10, {0.5, 448, 0.001953125}, {0x30, 0x7e, 0x01}},
                 {11, {0.5, 57344, 1.52587890625e-05}, {0x38, 0x7b, 0x01}}};
    ncclComm_t comm = connect_ranks(0, 1);
    cudaStream_t s = stream_new();
    unsigned char *device, codes[3];
    CUDA(cudaMalloc((void **) &device, sizeof(codes)));
    for (size_t c = 0; c < 2; c++) {
        for (int i = 0; i < 3; i++) codes[i] = (unsigned char) cases[c].codes[i];
        CUDA(cudaMemcpy(device, codes, sizeof(codes), cudaMemcpyHostToDevice));
        CUDA(cudaDeviceSynchronize());
        NCCL(ncclAllReduce(device, device, 3, (ncclDataType_t) cases[c].type, ncclSum, comm, s));
        CUDA(cudaStreamSynchronize(s));
        CUDA(cudaMemcpy(codes, device, sizeof(codes), cudaMemcpyDeviceToHost));
        for (int i = 0; i < 3; i++) {
            /* With two ranks the sum is twice the value. Twice the largest value (i == 1) is too
             * large, so the sum is the largest value. The other values are powers of two, so the
             * type can represent twice each of them exactly. */
            int want = cases[c].codes[i];
            int step = cases[c].type == 10 ? 8 : 4;
            if (size == 2) want = i == 0 ? want + step : i == 1 ? want : 2;
            REQUIRE(codes[i] == want);
        }
    }
    CUDA(cudaFree(device));
    NCCL(ncclCommDestroy(comm));
}

/* Runs two operations on the same memory. If `how` is "event", "host" or "same", they are ordered
 * by an event, by a wait of the host, or because they are on the same stream. Otherwise nothing
 * orders them, and the host NCCL must report a race. */
static void mode_race(const char *how) {
    ncclComm_t comm = connect_ranks(0, 1);
    cudaStream_t a = stream_new(), b = stream_new();
    cudaEvent_t event;
    float *x = floats(1000, 1);
    CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    /* if `how` is "copy": cudaMemcpy() returns before the data has arrived */
    if (strcmp(how, "copy") == 0) {
        static float host[1000];
        CUDA(cudaMemcpy(x, host, sizeof(host), cudaMemcpyHostToDevice));
    } else {
        CUDA(host_cuda_fill(a, x, 1000, 2, 30));
    }
    if (strcmp(how, "event") == 0) {
        CUDA(cudaEventRecord(event, a));
        CUDA(cudaStreamWaitEvent(b, event, 0));
    }
    if (strcmp(how, "host") == 0) CUDA(cudaStreamSynchronize(a));
    if (strcmp(how, "same") == 0) b = a;
    NCCL(ncclAllReduce(x, x, 1000, ncclFloat32, ncclSum, comm, b));
    if (strcmp(how, "after") == 0) CUDA(host_cuda_fill(a, x, 1000, 3, 0));
    CUDA(cudaStreamSynchronize(b));
    REQUIRE(first_of(x) == 2.0F * (float) size);
    CUDA(cudaFree(x));
    NCCL(ncclCommDestroy(comm));
}

static void mode_illegal(void) {
    ncclComm_t comm = connect_ranks(0, 1);
    cudaStream_t s = stream_new();
    float host[4] = {0};
    int *x;
    NCCL(ncclAllReduce(host, host, 4, ncclFloat32, ncclSum, comm, s));
    REQUIRE(cudaStreamSynchronize(s) == cudaErrorIllegalAddress);
    REQUIRE(cudaMalloc((void **) &x, 4) == cudaErrorIllegalAddress);
    REQUIRE(cudaGetLastError() == cudaErrorIllegalAddress);
    REQUIRE(cudaGetLastError() == cudaErrorIllegalAddress);
    ncclUniqueId id;
    NCCL(ncclGetUniqueId(&id));
    ncclComm_t other = NULL;
    REQUIRE(ncclCommInitRank(&other, 1, id, 0) == ncclUnhandledCudaError);
}

static void mode_capture(void) {
    ncclComm_t comm = connect_ranks(0, 1);
    cudaStream_t s = stream_new(), t = stream_new();
    cudaEvent_t event;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    float *x = floats(10, 1);
    CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    CUDA(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    NCCL(ncclAllReduce(x, x, 10, ncclFloat32, ncclSum, comm, s));
    CUDA(cudaEventRecord(event, s));
    CUDA(cudaStreamWaitEvent(t, event, 0));
    NCCL(ncclAllReduce(x, x, 10, ncclFloat32, ncclSum, comm, t));
    CUDA(cudaStreamEndCapture(s, &graph));
#if CUDART_VERSION >= 12000
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
#else
    CUDA(cudaGraphInstantiate(&exec, graph, NULL, NULL, 0));
#endif
    float want = 1;
    for (int i = 0; i < 3; i++) {
        CUDA(cudaGraphLaunch(exec, s));
        want *= (float) (size * size);
    }
    CUDA(cudaStreamSynchronize(s));
    REQUIRE(first_of(x) == want);
    CUDA(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    CUDA(cudaEventRecord(event, s));
    REQUIRE(cudaEventQuery(event) == cudaErrorStreamCaptureUnsupported);
    cudaGraph_t broken = NULL;
    REQUIRE(cudaStreamEndCapture(s, &broken) == cudaErrorStreamCaptureInvalidated);
    /* the graph is destroyed, because ncclCommDestroy() would wait for ever while it exists */
    CUDA(cudaGraphExecDestroy(exec));
    CUDA(cudaGraphDestroy(graph));
    CUDA(cudaFree(x));
    NCCL(ncclCommDestroy(comm));
}

/* ---- tests that need several processes ---- */

/* Checks non-blocking communicators. NCCL makes one thread for each call on such a communicator,
 * and so does the host NCCL; this test counts the threads. A call with an invalid argument sets
 * the communicator's state to ncclInvalidArgument, and after that every call fails. */
static void mode_nonblocking(void) {
    ncclComm_t comm = connect_ranks(0, 0);
    cudaStream_t s = stream_new();
    float *x = floats(10, 1);
    uint64_t threads = host_nccl_counter("threads");
    for (int i = 0; i < 5; i++) {
        REQUIRE(ncclAllReduce(x, x, 10, ncclFloat32, ncclSum, comm, s) == ncclInProgress);
        REQUIRE(settled(comm) == ncclSuccess);
    }
    REQUIRE(host_nccl_counter("threads") == threads + 5);
    CUDA(cudaStreamSynchronize(s));
    REQUIRE(first_of(x) == powf((float) size, 5));
    REQUIRE(ncclAllReduce(x, x, 10, ncclFloat32, (ncclRedOp_t) 99, comm, s) == ncclInvalidArgument);
    REQUIRE(settled(comm) == ncclInvalidArgument);
    REQUIRE(ncclAllReduce(x, x, 10, ncclFloat32, ncclSum, comm, s) == ncclInvalidArgument);
    NCCL(ncclCommAbort(comm));
    CUDA(cudaFree(x));
}

static void mode_blocking(void) {
    ncclComm_t comm = connect_ranks(0, 1);
    cudaStream_t s = stream_new();
    float *x = floats(10, 1);
    uint64_t threads = host_nccl_counter("threads");
    for (int i = 0; i < 5; i++) NCCL(ncclAllReduce(x, x, 10, ncclFloat32, ncclAvg, comm, s));
    REQUIRE(host_nccl_counter("threads") == threads);
    CUDA(cudaStreamSynchronize(s));
    REQUIRE(first_of(x) == 1);
    CUDA(cudaFree(x));
    NCCL(ncclCommFinalize(comm));
    NCCL(ncclCommDestroy(comm));
}

/* Checks the abort of a kernel: rank 0's second kernel waits for the other ranks, which never come,
 * until the abort ends the kernel. Two communicators are aborted in one group, because an abort of
 * `other` alone would wait for the kernel of `comm` for ever. */
static void mode_abort(void) {
    ncclComm_t comm = connect_ranks(0, 1), other = connect_ranks(1, 1);
    cudaStream_t s = stream_new();
    cudaEvent_t event;
    float *x = floats(10, 1);
    CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    NCCL(ncclAllReduce(x, x, 10, ncclFloat32, ncclSum, comm, s));
    CUDA(cudaStreamSynchronize(s));
    if (rank == 0) {
        NCCL(ncclAllReduce(x, x, 10, ncclFloat32, ncclSum, comm, s));
        CUDA(cudaEventRecord(event, s));
        (void) usleep(100000);
        REQUIRE(cudaEventQuery(event) == cudaErrorNotReady);
        uint64_t waits = host_nccl_counter("device_waits");
        /* in a group the two calls only set the abort flags; ncclGroupEnd() runs both aborts */
        NCCL(ncclGroupStart());
        NCCL(ncclCommAbort(other));
        NCCL(ncclCommAbort(comm));
        NCCL(ncclGroupEnd());
        REQUIRE(host_nccl_counter("device_waits") >= waits);
        /* The query succeeds, because an event does not show that its operation was aborted. */
        CUDA(cudaEventQuery(event));
    } else {
        NCCL(ncclCommAbort(comm));
        NCCL(ncclCommAbort(other));
    }
    CUDA(cudaFree(x));
}

static void mode_split(void) {
    ncclComm_t comm = connect_ranks(0, 0), child = NULL, none = NULL;
    cudaStream_t s = stream_new();
    float *x = floats(10, (float) rank);
    int n = 0, r = 0;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    REQUIRE(ncclCommSplit(comm, rank % 2, -rank, &child, &config) == ncclInProgress);
    REQUIRE(settled(comm) == ncclSuccess && child != NULL && settled(child) == ncclSuccess);
    NCCL(ncclCommCount(child, &n));
    NCCL(ncclCommUserRank(child, &r));
    REQUIRE(n == (size + 1 - rank % 2) / 2 && r == n - 1 - rank / 2);
    (void) ncclAllReduce(x, x, 10, ncclFloat32, ncclMax, child, s);
    REQUIRE(settled(child) == ncclSuccess);
    CUDA(cudaStreamSynchronize(s));
    REQUIRE(first_of(x) == (float) (rank % 2 + 2 * (n - 1)));
    int color = rank == 0 ? 0 : NCCL_SPLIT_NOCOLOR;
    REQUIRE(ncclCommSplit(comm, color, 0, &none, &config) == ncclInProgress);
    REQUIRE(settled(comm) == ncclSuccess && (none != NULL) == (rank == 0));
    if (none != NULL) NCCL(ncclCommDestroy(none));
    CUDA(cudaFree(x));
    NCCL(ncclCommDestroy(child));
    NCCL(ncclCommDestroy(comm));
}

/* Checks ncclCommShrink(). The process of the highest rank ends, and the other ranks make a smaller
 * communicator without that rank. `how` selects whether they revoke the communicator and shrink it,
 * or shrink it with NCCL_SHRINK_ABORT. */
static void mode_shrink(const char *how) {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 7)
    ncclComm_t comm = connect_ranks(0, 0), smaller = NULL;
    cudaStream_t s = stream_new();
    float *x = floats(10, 1);
    int last = size - 1;
    (void) ncclAllReduce(x, x, 10, ncclFloat32, ncclSum, comm, s);
    REQUIRE(settled(comm) == ncclSuccess);
    CUDA(cudaStreamSynchronize(s));
    if (rank == last) _exit(0);
    (void) ncclAllReduce(x, x, 10, ncclFloat32, ncclSum, comm, s);
    REQUIRE(settled(comm) == ncclSuccess);
    if (strcmp(how, "revoke") == 0) {
        (void) ncclCommRevoke(comm, 0);
        REQUIRE(settled(comm) == ncclSuccess);
        REQUIRE(ncclAllReduce(x, x, 10, ncclFloat32, ncclSum, comm, s) == ncclInvalidUsage);
        REQUIRE(settled(comm) == ncclSuccess);
    }
    int flags = strcmp(how, "revoke") == 0 ? NCCL_SHRINK_DEFAULT : NCCL_SHRINK_ABORT;
    ncclResult_t r = ncclCommShrink(comm, &last, 1, &smaller, NULL, flags);
    REQUIRE(r == ncclInProgress && settled(comm) == ncclSuccess && settled(smaller) == ncclSuccess);
    float *y = floats(10, 1);
    (void) ncclAllReduce(y, y, 10, ncclFloat32, ncclSum, smaller, s);
    REQUIRE(settled(smaller) == ncclSuccess);
    CUDA(cudaStreamSynchronize(s));
    REQUIRE(first_of(y) == (float) (size - 1));
    NCCL(ncclCommAbort(comm));
    NCCL(ncclCommDestroy(smaller));
#else
    (void) how;
#endif
}

/* Checks messages: each rank sends to its right neighbour and receives from its left neighbour, in
 * one group. Rank 1 comes late. Rank 0's call that sends to rank 1 must block until rank 1
 * connects. */
static void mode_messages(void) {
    enum { N = 100000 };
    ncclComm_t comm = connect_ranks(0, 1);
    cudaStream_t s = stream_new();
    float *out = floats(N, (float) rank), *in = floats(N, -1);
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    char late[512];
    (void) snprintf(late, sizeof(late), "%s.late", getenv("MODEL_ID"));
    if (rank == 1) {
        (void) usleep(200000);
        FILE *mark = fopen(late, "w");
        REQUIRE(mark != NULL && fclose(mark) == 0);
    }
    NCCL(ncclGroupStart());
    NCCL(ncclSend(out, N, ncclFloat32, right, comm, s));
    NCCL(ncclRecv(in, N, ncclFloat32, left, comm, s));
    NCCL(ncclGroupEnd());
    /* rank 1 made the file `late` before it connected, so the file exists if rank 0 has waited for
     * rank 1 to connect */
    if (rank == 0) REQUIRE(access(late, F_OK) == 0);
    CUDA(cudaStreamSynchronize(s));
    REQUIRE(first_of(in) == (float) left && first_of(in + N - 1) == (float) left);
    CUDA(cudaFree(in));
    CUDA(cudaFree(out));
    NCCL(ncclCommDestroy(comm));
}

/* Checks the death of a rank with HOST_NCCL_NET=socket: the communicator's state becomes
 * ncclRemoteError, but the kernel goes on spinning. */
static void mode_remote(void) {
    ncclComm_t comm = connect_ranks(0, 1);
    cudaStream_t s = stream_new();
    float *x = floats(10, 1);
    NCCL(ncclAllReduce(x, x, 10, ncclFloat32, ncclSum, comm, s));
    CUDA(cudaStreamSynchronize(s));
    if (rank == size - 1) _exit(0);
    NCCL(ncclAllReduce(x, x, 10, ncclFloat32, ncclSum, comm, s));
    ncclResult_t state = ncclSuccess;
    while (state == ncclSuccess) NCCL(ncclCommGetAsyncError(comm, &state));
    REQUIRE(state == ncclRemoteError && cudaStreamQuery(s) == cudaErrorNotReady);
    NCCL(ncclCommAbort(comm));
}

static void mode_ops(void) {
    ncclComm_t comm = connect_ranks(0, 1);
    cudaStream_t s = stream_new();
    float *x = floats(10, 2), scalar = 3;
    ncclRedOp_t op;
    NCCL(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat32, ncclScalarHostImmediate, comm));
    NCCL(ncclAllReduce(x, x, 10, ncclFloat32, op, comm, s));
    NCCL(ncclRedOpDestroy(op, comm));
    REQUIRE(ncclAllReduce(x, x, 10, ncclFloat32, op, comm, s) == ncclInvalidArgument);
    CUDA(cudaStreamSynchronize(s));
    REQUIRE(first_of(x) == 6.0F * (float) size);
    CUDA(cudaFree(x));
    NCCL(ncclCommDestroy(comm));
}

static void mode_fault(void) {
    ncclComm_t comm = connect_ranks(0, 1);
    cudaStream_t s = stream_new();
    float *x = floats(10, 1);
    NCCL(ncclAllReduce(x, x, 10, ncclFloat32, ncclSum, comm, s));
    REQUIRE(ncclAllReduce(x, x, 10, ncclFloat32, ncclSum, comm, s) == ncclSystemError);
    NCCL(ncclCommAbort(comm));
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "", *how = argc > 2 ? argv[2] : "";
    (void) setvbuf(stdout, NULL, _IOLBF, 0);
    rank = getenv("RANK") != NULL ? atoi(getenv("RANK")) : 0;
    size = getenv("WORLD_SIZE") != NULL ? atoi(getenv("WORLD_SIZE")) : 1;
    if (strcmp(mode, "fp8") == 0)
        mode_fp8();
    else if (strcmp(mode, "race") == 0)
        mode_race(how);
    else if (strcmp(mode, "illegal") == 0)
        mode_illegal();
    else if (strcmp(mode, "capture") == 0)
        mode_capture();
    else if (strcmp(mode, "nonblocking") == 0)
        mode_nonblocking();
    else if (strcmp(mode, "blocking") == 0)
        mode_blocking();
    else if (strcmp(mode, "abort") == 0)
        mode_abort();
    else if (strcmp(mode, "split") == 0)
        mode_split();
    else if (strcmp(mode, "shrink") == 0)
        mode_shrink(how);
    else if (strcmp(mode, "messages") == 0)
        mode_messages();
    else if (strcmp(mode, "remote") == 0)
        mode_remote();
    else if (strcmp(mode, "ops") == 0)
        mode_ops();
    else if (strcmp(mode, "fault") == 0)
        mode_fault();
    else
        return fprintf(stderr, "model: no mode '%s'\n", mode), 2;
    printf("%s right\n", mode);
    return 0;
}
