/* One rank of the tests in tests/gpu/check_gpu.py that are about streams and time, on a real GPU.
 * Usage: gpu_streams MODE. It prints "ok …" or an error text. MODE selects the test:
 *
 *   types     all-reduce, broadcast and all-gather in every data type, and every reduction
 *   order     a copy, an operation and a copy on one stream, for each kind of stream
 *   stuck     a host function blocks the stream: the operation behind it must time out
 *   graph     operations in a CUDA graph, which is launched several times
 *   newer     calls of newer releases of NCCL: a sum of products, gathers, scatters and all-to-all
 *             with counts, memory of NCCL's allocator, its registration, a configured group
 *   cycles    200 groups that are made, used and destroyed; every tenth is aborted
 *   cost      host time of an asynchronous operation, compared with direct calls of CUDA and NCCL
 */
#include "tests/gpu/gpu_test.h"

#include <cuda_runtime.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { N = 1024 };

static crunrt_group *world;

/* Returns new device memory that contains zeros. cudaMemset() returns before it is done, and the
 * tests' streams do not wait for the default stream, so this function waits for the device. */
static void *zeros(size_t bytes) {
    void *p = NULL;
    require(cudaMalloc(&p, bytes) == cudaSuccess, "cudaMalloc");
    require(cudaMemset(p, 0, bytes) == cudaSuccess, "cudaMemset");
    require(cudaDeviceSynchronize() == cudaSuccess, "cudaDeviceSynchronize");
    return p;
}

static crunrt_op sum_of(float *x, cudaStream_t stream) {
    crunrt_op op = CRUNRT_OP_INIT;
    op.kind = CRUNRT_OP_ALL_REDUCE;
    op.dtype = CRUNRT_FLOAT32;
    op.send = op.recv = x;
    op.count = N;
    op.stream = stream;
    return op;
}

static void types(void) {
    static const crunrt_op_kind kinds[] = {CRUNRT_OP_ALL_REDUCE, CRUNRT_OP_REDUCE,
                                           CRUNRT_OP_BROADCAST,  CRUNRT_OP_ALL_GATHER,
                                           CRUNRT_OP_GATHER,     CRUNRT_OP_SCATTER,
                                           CRUNRT_OP_ALL_TO_ALL, CRUNRT_OP_REDUCE_SCATTER};
    int done = 0, refused = 0;
    void *a = zeros((size_t) size * N * 8), *b = zeros((size_t) size * N * 8);
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        for (int t = CRUNRT_INT8; t <= CRUNRT_FLOAT8_E5M2; t++) {
            for (int r = CRUNRT_SUM; r <= CRUNRT_AVG; r++) {
                crunrt_op op = CRUNRT_OP_INIT;
                op.kind = kinds[k];
                op.dtype = (crunrt_dtype) t;
                op.reduce = (crunrt_reduce_op) r;
                op.send = a;
                op.recv = b;
                op.count = N;
                int rc = crunrt_group_run(world, &op);
                require(rc == 0 || (rc == -ENOTSUP && t >= CRUNRT_FLOAT8_E4M3), "an operation");
                done += rc == 0;
                refused += rc != 0;
            }
        }
    }
    printf("ok types: %d operations, %d refused\n", done, refused);
}

static void order_on(cudaStream_t s, const char *name) {
    static float in[N], out[N];
    float *x = zeros(sizeof(in));
    crunrt_op op = sum_of(x, s);
    for (int i = 0; i < N; i++) in[i] = (float) (i + rank);
    require(cudaMemcpyAsync(x, in, sizeof(in), cudaMemcpyHostToDevice, s) == cudaSuccess, name);
    for (int i = 0; i < 3; i++) require(crunrt_group_enqueue(world, &op) == 0, name);
    require(cudaMemcpyAsync(out, x, sizeof(out), cudaMemcpyDeviceToHost, s) == cudaSuccess, name);
    require(cudaStreamSynchronize(s) == cudaSuccess, name);
    require(crunrt_group_wait(world, CRUNRT_FOREVER) == 0, name);
    for (int i = 0; i < N; i++) {
        float want = (float) (size * i + size * (size - 1) / 2) * (float) size * (float) size;
        require(out[i] == want, name);
    }
    (void) cudaFree(x);
}

static void order(void) {
    cudaStream_t s = NULL;
    order_on(NULL, "the default stream");
    order_on(cudaStreamLegacy, "cudaStreamLegacy");
    order_on(cudaStreamPerThread, "cudaStreamPerThread");
    require(cudaStreamCreate(&s) == cudaSuccess, "stream");
    order_on(s, "a blocking stream");
    require(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking) == cudaSuccess, "stream");
    order_on(s, "a non-blocking stream");
    printf("ok order on 5 kinds of streams\n");
}

static atomic_int released;

static void block(void *arg) {
    (void) arg;
    while (!released) (void) usleep(1000);
}

static int64_t now_ns(void) {
    struct timespec ts;
    (void) clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t) ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* Blocks a stream twice with a host function, and starts an operation behind it. The first time,
 * the stream is released before the operation's timeout, and the operation must succeed. The second
 * time, the stream is released after the timeout, and the operation must fail. The stream must be
 * released even then, because the abort waits for the device. */
static void stuck(void) {
    cudaStream_t s = NULL;
    float *x = zeros(N * sizeof(float));
    require(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking) == cudaSuccess, "stream");
    require(cudaLaunchHostFunc(s, block, NULL) == cudaSuccess, "host function");
    crunrt_op op = sum_of(x, s);
    crunrt_work *work = NULL;
    op.timeout_ms = 1000;
    int64_t since = now_ns();
    require(crunrt_group_start(world, &op, &work) == 0, "start");
    require(crunrt_work_wait(work, 500) == -EAGAIN, "the operation cannot be over");
    released = 1;
    require(crunrt_work_wait(work, CRUNRT_FOREVER) == 0, "the operation after the release");
    crunrt_work_free(work);
    released = 0;
    require(cudaLaunchHostFunc(s, block, NULL) == cudaSuccess, "host function");
    require(crunrt_group_start(world, &op, &work) == 0, "start");
    int rc = crunrt_work_wait(work, CRUNRT_FOREVER);
    int64_t took_ms = (now_ns() - since) / 1000000;
    released = 1;
    require(rc == -ETIMEDOUT || rc == -ECONNRESET, "a stuck stream");
    crunrt_work_free(work);
    crunrt_group_destroy(world);
    (void) sleep(1);
    world = open_group(60000);
    require(crunrt_group_barrier(world) == 0, "a new group after it");
    printf("ok stuck: timed out after %d ms, then a new group\n", (int) took_ms);
}

static void graph(void) {
    cudaStream_t s = NULL;
    cudaGraph_t g = NULL;
    cudaGraphExec_t exec = NULL;
    float *x = zeros(N * sizeof(float)), one = 1;
    require(crunrt_group_barrier(world) == 0, "connect");
    require(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking) == cudaSuccess, "stream");
    crunrt_op op = sum_of(x, s);
    require(crunrt_group_run(world, &op) == 0, "connect");
    require(cudaMemcpy(x, &one, sizeof(one), cudaMemcpyHostToDevice) == cudaSuccess, "copy");
    require(cudaDeviceSynchronize() == cudaSuccess, "cudaDeviceSynchronize");
    require(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal) == cudaSuccess, "begin");
    for (int i = 0; i < 2; i++) require(crunrt_group_enqueue(world, &op) == 0, "capture");
    require(cudaStreamEndCapture(s, &g) == cudaSuccess, "end of the capture");
    require(cudaGraphInstantiate(&exec, g, 0) == cudaSuccess, "instantiate");
    float want = 1;
    crunrt_op barrier = CRUNRT_OP_INIT;
    /* the barrier runs on the graph's stream, so it comes after the graph on all ranks */
    barrier.stream = s;
    for (int i = 0; i < 5; i++) {
        require(cudaGraphLaunch(exec, s) == cudaSuccess, "launch");
        want *= (float) size * (float) size;
        require(crunrt_group_run(world, &barrier) == 0, "an operation between two launches");
    }
    require(cudaStreamSynchronize(s) == cudaSuccess, "wait");
    require(cudaMemcpy(&one, x, sizeof(one), cudaMemcpyDeviceToHost) == cudaSuccess, "copy");
    require(one == want, "the result of the graph");
    (void) cudaGraphExecDestroy(exec);
    (void) cudaGraphDestroy(g);
    printf("ok graph: 5 launches of 2 operations\n");
}

/* Returns 1 if `rc` is 0, and 0 if this NCCL lacks the call. Any other result ends the program. */
static int has(int rc, const char *what) {
    require(rc == 0 || rc == -ENOTSUP, what);
    return rc == 0;
}

static float first_of(const float *device) {
    float value = -1;
    require(cudaMemcpy(&value, device, sizeof(value), cudaMemcpyDeviceToHost) == cudaSuccess,
            "copy");
    return value;
}

static float *filled(size_t count, float value) {
    float *device = zeros(count * sizeof(float)), *host = calloc(count, sizeof(float));
    for (size_t i = 0; host != NULL && i < count; i++) host[i] = value;
    require(host != NULL && cudaMemcpy(device, host, count * sizeof(float),
                                       cudaMemcpyHostToDevice) == cudaSuccess, "copy");
    require(cudaDeviceSynchronize() == cudaSuccess, "cudaDeviceSynchronize");
    free(host);
    return device;
}

/* Checks CRUNRT_PREMUL_SUM: each rank r gives the value 3 and the factor r + 1, so the result is
 * the sum of 3 * (r + 1) over all ranks. Returns 0 if NCCL lacks this operation, else 1. */
static int try_products(void) {
    float factor = (float) (rank + 1), *x = filled(N, 3);
    crunrt_op op = sum_of(x, NULL);
    op.reduce = CRUNRT_PREMUL_SUM;
    op.factor = &factor;
    int made = has(crunrt_group_run(world, &op), "a sum of products");
    require(!made || first_of(x) == 1.5F * (float) (size * (size + 1)), "the sum of products");
    (void) cudaFree(x);
    return made;
}

/* Checks the four operations with counts, with a part of r + 1 elements for each rank r: gathers
 * the parts on the last rank, scatters them from there, gathers parts on all ranks, and reduces
 * each part to its rank. */
static void try_counts(void) {
    size_t counts[64], all = 0, own = (size_t) rank + 1;
    require(size <= 64, "at most 64 ranks");
    for (int r = 0; r < size; r++) all += counts[r] = (size_t) r + 1;
    float *mine = filled(own, (float) own), *whole = zeros(all * sizeof(float));
    float *back = zeros(own * sizeof(float));
    require(crunrt_group_gather_counts(world, mine, own, whole, counts, CRUNRT_FLOAT32,
                                       size - 1) == 0, "gather_counts");
    require(crunrt_group_scatter_counts(world, whole, counts, back, own, CRUNRT_FLOAT32,
                                        size - 1) == 0, "scatter_counts");
    require(first_of(back) == (float) own, "gathered and scattered");
    float *ones = filled(all, 1);
    require(crunrt_group_all_gather_counts(world, ones, counts, CRUNRT_FLOAT32) == 0,
            "all_gather_counts");
    require(crunrt_group_reduce_scatter_counts(world, ones, back, counts, CRUNRT_FLOAT32,
                                               CRUNRT_SUM) == 0, "reduce_scatter_counts");
    require(first_of(back) == (float) size, "gathered and reduced");
    (void) cudaFree(mine);
    (void) cudaFree(whole);
    (void) cudaFree(back);
    (void) cudaFree(ones);
}

static int try_registration(crunrt_register_kind kind, const char *what) {
    crunrt_registration *made = NULL;
    void *memory = NULL;
    if (!has(crunrt_group_memory_new(world, 1 << 21, &memory), "memory")) return 0;
    require(cudaMemset(memory, 0, 1 << 21) == cudaSuccess, "cudaMemset");
    require(cudaDeviceSynchronize() == cudaSuccess, "cudaDeviceSynchronize");
    int is_made = has(crunrt_group_register(world, memory, 1 << 21, kind, &made), what);
    crunrt_op op = sum_of(memory, NULL);
    require(crunrt_group_run(world, &op) == 0, "a sum in registered memory");
    crunrt_registration_free(made);
    crunrt_group_memory_free(world, memory);
    return is_made;
}

static void newer(void) {
    crunrt_group_options o = CRUNRT_GROUP_OPTIONS_INIT;
    crunrt_nccl_config c = CRUNRT_NCCL_CONFIG_INIT;
    crunrt_group *g = NULL;
    int products = try_products();
    try_counts();
    int local = try_registration(CRUNRT_REGISTER_LOCAL, "a registration");
    int window = try_registration(CRUNRT_REGISTER_SYMMETRIC, "a window");
    o.backend = "nccl";
    o.nccl = &c;
    c.max_ctas = 2;
    int configured = has(crunrt_group_new(rt, &o, &g), "a configured group");
    require(!configured || crunrt_group_barrier(g) == 0, "a barrier of the configured group");
    crunrt_group_destroy(g);
    printf("ok newer: products %d, counts 1, registered %d, window %d, configured %d\n", products,
           local, window, configured);
}

static void cycles(void) {
    float *x = zeros(N * sizeof(float));
    int aborted = 0;
    for (int i = 0; i < 200; i++) {
        crunrt_group *g = open_group(60000);
        crunrt_op op = sum_of(x, NULL);
        crunrt_work *work = NULL;
        require(crunrt_group_run(g, &op) == 0, "sum");
        /* every tenth group is destroyed with a work that is unfinished or has just ended */
        if (i % 10 == 9) {
            require(crunrt_group_start(g, &op, &work) == 0, "start");
            aborted++;
        }
        crunrt_group_destroy(g);
        if (work != NULL) crunrt_work_free(work);
    }
    printf("ok cycles: 200 groups, %d of them with an operation at their end\n", aborted);
}

static void cost(void) {
    enum { ROUNDS = 1000 };
    cudaStream_t s = NULL;
    float *x = zeros(N * sizeof(float));
    require(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking) == cudaSuccess, "stream");
    crunrt_op op = sum_of(x, s);
    require(crunrt_group_run(world, &op) == 0, "connect");
    int64_t since = now_ns();
    for (int i = 0; i < ROUNDS; i++) require(crunrt_group_enqueue(world, &op) == 0, "enqueue");
    double host_us = (double) (now_ns() - since) / 1000 / ROUNDS;
    require(cudaStreamSynchronize(s) == cudaSuccess, "wait");
    require(crunrt_group_wait(world, CRUNRT_FOREVER) == 0, "wait");
    since = now_ns();
    for (int i = 0; i < ROUNDS; i++) require(crunrt_group_run(world, &op) == 0, "run");
    printf("ok cost: enqueue %.1f us of host time, run %.1f us\n", host_us,
           (double) (now_ns() - since) / 1000 / ROUNDS);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(void);
    } modes[] = {{"types", types}, {"order", order},   {"stuck", stuck},
                 {"graph", graph}, {"cycles", cycles}, {"cost", cost},
                 {"newer", newer}};
    (void) setvbuf(stdout, NULL, _IOLBF, 0);
    require(argc == 2 && crunrt_init(NULL, &rt) == 0, "init");
    rank = crunrt_rank(rt);
    size = crunrt_world_size(rt);
    require(cudaSetDevice(crunrt_local_rank(rt)) == cudaSuccess, "cudaSetDevice");
    world = open_group(60000);
    size_t mode = 0, count = sizeof(modes) / sizeof(modes[0]);
    while (mode < count && strcmp(argv[1], modes[mode].name) != 0) mode++;
    require(mode < count, "a known mode");
    modes[mode].run();
    crunrt_group_destroy(world);
    crunrt_destroy(rt);
    return 0;
}
