/* All-reduce on GPUs with NCCL: every rank fills a buffer on its GPU, and gets the sum over all
 * ranks.
 *
 *     crun --standalone --nproc-per-node=gpu build/examples/all_reduce_gpu
 *
 * The program requests the backend nccl by name, so on a machine without a GPU it fails with the
 * error of CUDA, and does not use CPUs instead. */
#include <crunrt.h>

#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>

enum { COUNT = 1 << 20, ROUNDS = 20 };

static void fail(const char *what, const char *why) {
    char text[1200];
    (void) snprintf(text, sizeof(text), "%s: %s", what, why);
    fprintf(stderr, "all_reduce_gpu: %s\n", text);
    (void) crunrt_report_error(text, NULL);
    exit(1);
}

static void must(int rc, const char *what) {
    if (rc < 0) fail(what, crunrt_last_error());
}

static void must_cuda(cudaError_t e, const char *what) {
    if (e != cudaSuccess) fail(what, cudaGetErrorString(e));
}

/* Fills the buffer with this rank + 1, all-reduces it, and checks every element of the sum. */
static void check_sum(crunrt_group *world, float *device, float *host, int rank, int size) {
    for (int i = 0; i < COUNT; i++) host[i] = (float) (rank + 1);
    must_cuda(cudaMemcpy(device, host, COUNT * sizeof(float), cudaMemcpyHostToDevice),
              "copy to the GPU");
    must(crunrt_group_all_reduce(world, device, device, COUNT, CRUNRT_FLOAT32, CRUNRT_SUM),
         "all-reduce");
    must_cuda(cudaMemcpy(host, device, COUNT * sizeof(float), cudaMemcpyDeviceToHost),
              "copy from the GPU");
    float want = (float) size * (float) (size + 1) / 2;
    for (int i = 0; i < COUNT; i++) {
        if (host[i] != want) fail("check the sum", "an element is wrong");
    }
}

/* Starts many all-reduces before it waits for them. The program also puts work on its own stream,
 * here CUDA's default stream. That work and the all-reduces run in the order of the calls. */
static void overlap(crunrt_group *world, float *device) {
    crunrt_op op = CRUNRT_OP_INIT;
    op.kind = CRUNRT_OP_ALL_REDUCE;
    op.send = op.recv = device;
    op.count = COUNT;
    op.dtype = CRUNRT_FLOAT32;
    op.reduce = CRUNRT_MAX;
    for (int i = 0; i < ROUNDS; i++) must(crunrt_group_enqueue(world, &op), "enqueue");
    must_cuda(cudaStreamSynchronize(NULL), "wait for the stream");
    must(crunrt_group_wait(world, CRUNRT_FOREVER), "are the results valid");
}

int main(void) {
    crunrt *rt;
    crunrt_group *world;
    crunrt_group_options o = CRUNRT_GROUP_OPTIONS_INIT;
    o.backend = "nccl";
    must(crunrt_init(NULL, &rt), "start");
    /* the number of this rank's GPU, on a node with one rank per GPU */
    o.device = crunrt_local_rank(rt) >= 0 ? crunrt_local_rank(rt) : 0;
    must(crunrt_group_new(rt, &o, &world), "meet the other ranks");
    must_cuda(cudaSetDevice(o.device), "use the GPU");
    int rank = crunrt_rank(rt), size = crunrt_world_size(rt);

    float *device = NULL, *host = malloc(COUNT * sizeof(float));
    must_cuda(cudaMalloc((void **) &device, COUNT * sizeof(float)), "allocate on the GPU");
    check_sum(world, device, host, rank, size);
    overlap(world, device);
    printf("rank %d of %d: %d sums right on GPU %d\n", rank, size, COUNT, crunrt_local_rank(rt));

    must(crunrt_group_barrier(world), "end together");
    must_cuda(cudaFree(device), "free");
    free(host);
    crunrt_group_destroy(world);
    crunrt_destroy(rt);
    return 0;
}
