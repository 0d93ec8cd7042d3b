/* Finding H2: an operation on a stream that cannot be used is refused with -EINVAL. A refusal
 * starts nothing: after it the group is usable, and a capture of the stream is still valid. */
#include "tests/host_nccl/findings/finding.h"

static cudaStream_t capture_begin(unsigned flags) {
    cudaStream_t s = NULL;
    KEPT(cudaStreamCreateWithFlags(&s, flags) == cudaSuccess, "stream");
    KEPT(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed) == cudaSuccess, "begin");
    return s;
}

static void capture_end(cudaStream_t s) {
    cudaGraph_t graph = NULL;
    cudaError_t e = cudaStreamEndCapture(s, &graph);
    KEPT(e == cudaSuccess, "the capture ended with %d", (int) e);
    (void) cudaGraphDestroy(graph);
}

static void refuse_unknown_streams(float *x) {
    crunrt_op op = sum_of(x);
    crunrt_work *work = NULL;
    op.stream = &op; /* not a stream */
    KEPT(crunrt_group_run(world, &op) == -EINVAL, "run");
    KEPT(crunrt_group_enqueue(world, &op) == -EINVAL, "enqueue");
    KEPT(crunrt_group_start(world, &op, &work) == -EINVAL, "start");
    op.stream = NULL;
    KEPT(crunrt_group_start(world, &op, &work) == 0, "start");
    KEPT(crunrt_work_wait_stream(work, &op) == -EINVAL, "wait by no stream");
    KEPT(crunrt_work_wait_stream(work, NULL) == 0, "wait by the default stream");
    KEPT(crunrt_work_wait(work, CRUNRT_FOREVER) == 0, "wait");
    KEPT(crunrt_work_wait_stream(work, NULL) == 0, "wait for what is over");
    crunrt_work_free(work);
}

/* Checks that the default stream is refused while a blocking stream is captured, because CUDA
 * forbids the use of the default stream then. */
static void refuse_default_stream(float *x) {
    crunrt_op op = sum_of(x);
    cudaStream_t s = capture_begin(cudaStreamDefault);
    KEPT(crunrt_group_run(world, &op) == -EINVAL, "the default stream");
    KEPT(strstr(crunrt_last_error(), "default stream") != NULL, "text");
    capture_end(s);
}

static void refuse_mixed_batch(float *x) {
    cudaStream_t s = capture_begin(cudaStreamNonBlocking);
    crunrt_op ops[2] = {CRUNRT_OP_INIT, CRUNRT_OP_INIT};
    for (int i = 0; i < 2; i++) {
        ops[i].kind = i == 0 ? CRUNRT_OP_SEND : CRUNRT_OP_RECV;
        ops[i].dtype = CRUNRT_FLOAT32;
        ops[i].send = ops[i].recv = x + (ptrdiff_t) i * 8;
        ops[i].count = 8;
        ops[i].root = 1 - rank;
    }
    ops[1].stream = s;
    KEPT(crunrt_group_batch(world, ops, 2) == -EINVAL, "a batch that is captured in part");
    capture_end(s);
}

/* Checks the refusal of a group's second capture: a group can take part in one capture at a time.
 */
static void refuse_second_capture(float *x) {
    crunrt_op op = sum_of(x);
    cudaStream_t a = capture_begin(cudaStreamNonBlocking), b = capture_begin(cudaStreamNonBlocking);
    op.stream = a;
    KEPT(crunrt_group_enqueue(world, &op) == 0, "the first capture");
    op.stream = b;
    KEPT(crunrt_group_enqueue(world, &op) == -EINVAL, "the second capture");
    capture_end(b);
    capture_end(a);
}

/* Sends and receives that are started one by one are first only collected. Checks that the
 * collected ones run when the program requests the communicator with crunrt_nccl_comm(). After
 * that, collects so many that the memory of a launch must grow, and frees their works. */
static void begin_messages(float *x) {
    crunrt_work *works[2] = {NULL, NULL};
    int done = 0, peer = 1 - rank;
    KEPT(crunrt_group_irecv(world, x, 8, CRUNRT_FLOAT32, peer, 0, &works[0]) == 0, "irecv");
    KEPT(crunrt_group_isend(world, x + 8, 8, CRUNRT_FLOAT32, peer, 0, &works[1]) == 0, "isend");
    KEPT(crunrt_nccl_comm(world) != NULL, "comm");
    for (int i = 0; i < 2; i++) {
        while (crunrt_work_test(works[i], &done) == 0 && !done) (void) usleep(1000);
        KEPT(crunrt_work_wait(works[i], 0) == 0, "message %d", i);
        crunrt_work_free(works[i]);
    }
    for (int i = 0; i < 20; i++) { /* more than the first room of a launch */
        crunrt_work *many[20];
        for (int k = 0; k < 20; k++) {
            int rc = k % 2 == 0
                         ? crunrt_group_irecv(world, x, 1, CRUNRT_FLOAT32, peer, 0, &many[k])
                         : crunrt_group_isend(world, x + 8, 1, CRUNRT_FLOAT32, peer, 0, &many[k]);
            KEPT(rc == 0, "message %d", k);
        }
        for (int k = 0; k < 20; k++) crunrt_work_free(many[k]);
    }
}

int main(void) {
    open_world(5000);
    first_sum(world);
    float *x = floats(16, 1);
    refuse_unknown_streams(x);
    refuse_default_stream(x);
    refuse_mixed_batch(x);
    refuse_second_capture(x);
    begin_messages(x);
    first_sum(world);
    crunrt_group_destroy(world);
    kept();
}
