/* One rank of tests/gpu/check_gpu.py, on a real GPU: gpu_worker MODE. Prints "ok …" or what went
 * wrong.
 *
 *   operations   every operation, and in one process the ones that one rank can check
 *   rounds       many groups one after the other; threads and descriptors must not grow
 *   broken       an operation that cannot end in time, then a new group in the same process */
#include <crunrt.h>

#include <cuda_runtime.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 4096 };

static crunrt *rt;
static int rank, size;

static void require(int ok, const char *what) {
    if (ok) return;
    printf("FAILED %s: %s\n", what, crunrt_last_error());
    exit(1);
}

static crunrt_group *open_group(int64_t timeout_ms) {
    crunrt_group *g = NULL;
    crunrt_group_options o = CRUNRT_GROUP_OPTIONS_INIT;
    o.backend = "nccl";
    o.timeout_ms = timeout_ms;
    require(crunrt_group_new(rt, &o, &g) == 0, "make a group");
    return g;
}

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

static void broken(void) {
    crunrt_group *g = open_group(60000);
    float host[1] = {1}, *a = on_gpu(host, 1);
    crunrt_op op = CRUNRT_OP_INIT;
    op.kind = CRUNRT_OP_ALL_REDUCE;
    op.send = op.recv = a;
    op.count = 1;
    op.dtype = CRUNRT_FLOAT32;
    op.timeout_ms = 0; /* over before it begins, unless the GPU is that quick */
    int rc = crunrt_group_run(g, &op);
    require(rc == 0 || rc == -ETIMEDOUT, "an operation without time");
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
    if (strcmp(argv[1], "operations") == 0)
        operations();
    else if (strcmp(argv[1], "rounds") == 0)
        rounds();
    else if (strcmp(argv[1], "broken") == 0)
        broken();
    else
        return 2;
    crunrt_destroy(rt);
    return 0;
}
