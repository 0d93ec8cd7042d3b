/* One rank of the tests in tests/gpu/check_gpu.py, on a real GPU. Usage: gpu_worker MODE. It prints
 * "ok …" or an error text. MODE selects the test:
 *
 *   operations   every operation; with one process, the operations that one rank can check
 *   rounds       many groups in sequence; the numbers of threads and of descriptors must not grow
 *   broken       an operation that cannot end in time, then a new group in the same process
 *   split        uses groups split from the world's communicator, then the world again
 *   rejoin       as "broken", then crunrt_rejoin(), and a world and a split in the next round */
#include "tests/gpu/gpu_test.h"

#include <cuda_runtime.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 4096 };

static float *on_gpu(const float *host, size_t count) {
    float *d = NULL;
    require(cudaMalloc((void **) &d, count * sizeof(float)) == cudaSuccess, "cudaMalloc");
    require(cudaMemcpy(d, host, count * sizeof(float), cudaMemcpyHostToDevice) == cudaSuccess,
            "copy");
    return d;
}

static void expect(const float *device, size_t count, float first, float step, const char *what) {
    static float host[64 * N];
    require(cudaMemcpy(host, device, count * sizeof(float), cudaMemcpyDeviceToHost) == cudaSuccess,
            what);
    for (size_t i = 0; i < count; i++) require(host[i] == first + step * (float) (i % N), what);
}

static void operations(void) {
    static float host[N];
    crunrt_group *g = open_group(60000);
    require(crunrt_nccl_comm(g) != NULL, "ncclComm_t");
    for (int i = 0; i < N; i++) host[i] = (float) i;
    float *a = on_gpu(host, N), *all = NULL;
    require(cudaMalloc((void **) &all, (size_t) size * N * sizeof(float)) == cudaSuccess,
            "cudaMalloc");
    float n = (float) size;
    require(crunrt_group_all_reduce(g, a, a, N, CRUNRT_FLOAT32, CRUNRT_AVG) == 0, "average");
    expect(a, N, 0, 1, "average");
    require(crunrt_group_broadcast(g, a, N, CRUNRT_FLOAT32, size - 1) == 0, "broadcast");
    require(crunrt_group_all_gather(g, a, all, N, CRUNRT_FLOAT32) == 0, "all_gather");
    expect(all, (size_t) size * N, 0, 1, "all_gather");
    require(crunrt_group_reduce_scatter(g, all, a, N, CRUNRT_FLOAT32, CRUNRT_MAX) == 0,
            "reduce_scatter");
    expect(a, N, 0, 1, "reduce_scatter");
    float *other = on_gpu(host, N);
    require(crunrt_group_gather(g, a, all, N, CRUNRT_FLOAT32, 0) == 0, "gather");
    require(crunrt_group_scatter(g, all, a, N, CRUNRT_FLOAT32, 0) == 0, "scatter");
    expect(a, N, 0, 1, "gather and scatter");
    require(crunrt_group_all_reduce(g, a, other, N, CRUNRT_FLOAT32, CRUNRT_SUM) == 0, "sum");
    expect(other, N, 0, n, "sum");
    require(crunrt_group_all_reduce(g, a, a, N, CRUNRT_INT32, CRUNRT_BOR) == -ENOTSUP,
            "no bitwise");
    crunrt_op op = CRUNRT_OP_INIT;
    crunrt_work *w = NULL;
    op.kind = CRUNRT_OP_ALL_REDUCE;
    op.send = op.recv = a;
    op.count = N;
    op.dtype = CRUNRT_FLOAT32;
    op.reduce = CRUNRT_MIN;
    require(crunrt_group_start(g, &op, &w) == 0 && crunrt_work_wait(w, CRUNRT_FOREVER) == 0,
            "work");
    crunrt_work_free(w);
    require(crunrt_group_barrier(g) == 0, "barrier");
    crunrt_group_destroy(g);
    printf("ok operations\n");
}

static int entries(const char *folder) {
    int n = 0;
    DIR *d = opendir(folder);
    while (d != NULL && readdir(d) != NULL) n++;
    if (d != NULL) (void) closedir(d);
    return n;
}

static void rounds(void) {
    int threads = 0, files = 0;
    for (int i = 0; i < 20; i++) {
        crunrt_group *g = open_group(60000);
        require(crunrt_group_barrier(g) == 0, "barrier");
        crunrt_group_destroy(g);
        if (i == 4) {
            threads = entries("/proc/self/task");
            files = entries("/proc/self/fd");
        }
    }
    int more_threads = entries("/proc/self/task") - threads,
        more_files = entries("/proc/self/fd") - files;
    printf("%s rounds: after 15 more groups %d more threads, %d more descriptors\n",
           more_threads > 2 || more_files > 4 ? "FAILED" : "ok", more_threads, more_files);
}

/* Requires that group number `number` was made by a split. The groups that a process makes in one
 * round are numbered from 0. */
static void require_split(int number) {
    char key[64], *word = NULL;
    void *value = NULL;
    size_t len = 0;
    (void) snprintf(key, sizeof(key), "crunrt/%d/0/pg/%d/split/decision", crunrt_restart_count(rt),
                    number);
    require(crunrt_store_get(crunrt_job_store(rt), key, 0, &value, &len) == 0, "the decision");
    word = value;
    require(len == 5 && memcmp(word, "split", 5) == 0, "the group was made afresh");
    crunrt_free(value);
}

/* Makes a group of the ranks members[count], and checks an all-reduce (sum) in which each rank
 * gives 1. */
static void use_part(const int *members, int count) {
    crunrt_group *g = NULL;
    crunrt_group_options o = CRUNRT_GROUP_OPTIONS_INIT;
    float host[1] = {1}, *a = on_gpu(host, 1);
    o.backend = "nccl";
    o.timeout_ms = 60000;
    o.ranks = members;
    o.rank_count = (size_t) count;
    require(crunrt_group_new(rt, &o, &g) == 0, "make a part");
    if (g != NULL) {
        require(crunrt_group_all_reduce(g, a, a, 1, CRUNRT_FLOAT32, CRUNRT_SUM) == 0, "sum");
        expect(a, 1, (float) count, 0, "sum of a part");
    }
    crunrt_group_destroy(g);
    (void) cudaFree(a);
}

static void split(void) {
    int all[64], last[1] = {size - 1};
    crunrt_group *g = open_group(60000);
    require(size <= 64 && crunrt_group_barrier(g) == 0, "barrier");
    for (int r = 0; r < size; r++) all[r] = size - 1 - r;
    for (int i = 0; i < 10; i++) {
        use_part(all, size);
        use_part(last, 1);
    }
    require_split(1);
    require_split(20);
    require(crunrt_group_barrier(g) == 0, "the world after 20 splits");
    crunrt_group_destroy(g);
    printf("ok split: 20 groups from the world of %d\n", size);
}

/* Runs an operation with a timeout so short that it normally expires. Returns -ETIMEDOUT; or 0 if
 * the operation was done before its timeout. */
static int run_without_time(crunrt_group *g, float *a) {
    crunrt_op op = CRUNRT_OP_INIT;
    op.kind = CRUNRT_OP_ALL_REDUCE;
    op.send = op.recv = a;
    op.count = 1;
    op.dtype = CRUNRT_FLOAT32;
    op.timeout_ms = 0;
    int rc = crunrt_group_run(g, &op);
    require(rc == 0 || rc == -ETIMEDOUT, "an operation without time");
    return rc;
}

static void rejoin(void) {
    /* The rank that gives up first ends the round. The other ranks have to live on until they call
     * crunrt_rejoin(), too. */
    require(crunrt_can_rejoin(rt, 1) == 0, "can rejoin");
    crunrt_group *g = open_group(60000);
    float host[1] = {1}, *a = on_gpu(host, 1);
    int rc = run_without_time(g, a);
    crunrt_group_destroy(g);
    require(crunrt_rejoin(rt, NULL) == 0, "rejoin");
    g = open_group(60000);
    const int first[1] = {0};
    use_part(first, 1);
    require_split(1);
    require(crunrt_group_barrier(g) == 0, "the new world");
    crunrt_group_destroy(g);
    printf("ok rejoin (%s before it), a new world and a split in the next round\n",
           rc == 0 ? "in time" : "aborted");
}

static void broken(void) {
    crunrt_group *g = open_group(60000);
    float host[1] = {1}, *a = on_gpu(host, 1);
    int rc = run_without_time(g, a);
    if (rc < 0) require(crunrt_group_barrier(g) == -EPIPE, "a broken group");
    crunrt_group_destroy(g);
    g = open_group(60000);
    require(crunrt_group_all_reduce(g, a, a, 1, CRUNRT_FLOAT32, CRUNRT_SUM) == 0,
            "a new group after it");
    crunrt_group_destroy(g);
    printf("ok broken (%s), then a new group in the same process\n",
           rc == 0 ? "in time" : "aborted");
}

int main(int argc, char **argv) {
    (void) setvbuf(stdout, NULL, _IOLBF, 0);
    require(argc == 2 && crunrt_init(NULL, &rt) == 0, "init");
    rank = crunrt_rank(rt);
    size = crunrt_world_size(rt);
    require(cudaSetDevice(crunrt_local_rank(rt)) == cudaSuccess, "cudaSetDevice");
    if (strcmp(argv[1], "operations") == 0)
        operations();
    else if (strcmp(argv[1], "rounds") == 0)
        rounds();
    else if (strcmp(argv[1], "broken") == 0)
        broken();
    else if (strcmp(argv[1], "split") == 0)
        split();
    else if (strcmp(argv[1], "rejoin") == 0)
        rejoin();
    else
        return 2;
    crunrt_destroy(rt);
    return 0;
}
