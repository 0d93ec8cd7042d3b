/* Functions for the programs of this folder: a group of all ranks on the nccl backend, device
 * memory, and KEPT(), which checks a promise of the backend.
 *
 * tests/integration/test_host_nccl_findings.py runs each program with the number of ranks and the
 * environment that findings.txt gives. If all promises are kept, a program prints "kept" and ends
 * with status 0. Otherwise it prints a line that begins with BROKEN and ends with status 1. */
#ifndef FINDINGS_FINDING_H
#define FINDINGS_FINDING_H

#include <crunrt.h>

#include <cuda_runtime.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* A function that only the host NCCL has; see tests/host_nccl/cuda_calls.c. */
cudaError_t host_cuda_fill(cudaStream_t stream, float *at, size_t count, float value, int ms);

static crunrt *rt;
static crunrt_group *world;
static int rank, size;

/* Reports in the store that this rank is done. A rank that waits in stand_by() goes on when enough
 * other ranks have reported this. */
static inline void say_done(void) {
    int64_t n = 0;
    if (rt != NULL) (void) crunrt_store_add(crunrt_job_store(rt), "done", 100, &n);
}

#define KEPT(condition, ...)                                                                       \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            printf("BROKEN at line %d: %s: ", __LINE__, #condition);                               \
            printf(__VA_ARGS__);                                                                   \
            printf(" [%s]\n", crunrt_last_error());                                                \
            say_done();                                                                            \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

static inline int64_t now_ms(void) {
    struct timespec ts;
    (void) clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t) ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static inline crunrt_group *make_group(int64_t timeout_ms, const int *ranks, size_t count) {
    crunrt_group_options o = CRUNRT_GROUP_OPTIONS_INIT;
    crunrt_group *g = NULL;
    o.backend = "nccl";
    o.timeout_ms = timeout_ms;
    o.ranks = ranks;
    o.rank_count = count;
    KEPT(crunrt_group_new(rt, &o, &g) == 0, "make a group");
    return g;
}

static inline void open_job(void) {
    (void) setvbuf(stdout, NULL, _IOLBF, 0);
    KEPT(crunrt_init(NULL, &rt) == 0, "init");
    rank = crunrt_rank(rt);
    size = crunrt_world_size(rt);
    KEPT(cudaSetDevice(rank) == cudaSuccess, "device");
}

static inline void open_world(int64_t timeout_ms) {
    open_job();
    world = make_group(timeout_ms, NULL, 0);
}

/* Returns new device memory with `count` floats, all set to `value`. The memory is set when this
 * function returns. */
static inline float *floats(size_t count, float value) {
    float *device = NULL, *host = malloc(count * sizeof(float));
    KEPT(host != NULL, "memory");
    for (size_t i = 0; i < count; i++) host[i] = value;
    KEPT(cudaMalloc((void **) &device, count * sizeof(float)) == cudaSuccess, "cudaMalloc");
    (void) cudaMemcpy(device, host, count * sizeof(float), cudaMemcpyHostToDevice);
    (void) cudaDeviceSynchronize();
    free(host);
    return device;
}

static inline float first_of(const float *device) {
    float value = -1;
    (void) cudaMemcpy(&value, device, sizeof(value), cudaMemcpyDeviceToHost);
    return value;
}

static inline crunrt_op sum_of(float *x) {
    crunrt_op op = CRUNRT_OP_INIT;
    op.kind = CRUNRT_OP_ALL_REDUCE;
    op.send = op.recv = x;
    op.count = 16;
    op.dtype = CRUNRT_FLOAT32;
    return op;
}

/* Runs an all-reduce, which connects the ranks, so that later operations do not block in NCCL while
 * they connect. */
static inline void first_sum(crunrt_group *g) {
    float *x = floats(16, 1);
    crunrt_op op = sum_of(x);
    KEPT(crunrt_group_run(g, &op) == 0, "the first sum");
}

/* Keeps this rank alive and idle until `count` other ranks have called say_done(). Each such call
 * adds 100 to the counter "done" in the store. */
static inline void stand_by(int count) {
    int64_t n = 0;
    while (crunrt_store_add(crunrt_job_store(rt), "done", 0, &n) == 0 && n < 100 * count)
        (void) usleep(20000);
}

/* Reports that the promise is kept, and ends the process. Does not destroy the groups, because that
 * would wait for operations that hang. */
static inline void kept(void) {
    printf("kept\n");
    (void) fflush(stdout);
    exit(0);
}

#endif
