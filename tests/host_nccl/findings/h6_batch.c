/* Finding H6: a started batch runs without any further call. One work stands for all messages of
 * the batch, and a stream can wait for it. A refused batch leaves the group usable. */
#include "tests/host_nccl/findings/finding.h"

static crunrt_op message(crunrt_op_kind kind, float *at, int peer, cudaStream_t stream) {
    crunrt_op op = CRUNRT_OP_INIT;
    op.kind = kind;
    op.dtype = CRUNRT_FLOAT32;
    op.count = 16;
    op.root = peer;
    op.send = kind == CRUNRT_OP_SEND ? at : NULL;
    op.recv = kind == CRUNRT_OP_RECV ? at : NULL;
    op.stream = stream;
    return op;
}

int main(void) {
    open_world(5000);
    cudaStream_t s;
    (void) cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
    float *in = floats(16, -1), *out = floats(16, 0);
    int left = (rank + size - 1) % size, right = (rank + 1) % size, done = 0;
    crunrt_work *work = NULL;
    (void) host_cuda_fill(s, out, 16, (float) rank, 50);
    crunrt_op ops[2] = {message(CRUNRT_OP_RECV, in, left, s),
                        message(CRUNRT_OP_SEND, out, right, s)};
    KEPT(crunrt_group_start_batch(world, ops, 2, &work) == 0, "start");
    KEPT(crunrt_work_wait_stream(work, s) == 0, "wait by the stream");
    (void) cudaStreamSynchronize(s);
    KEPT(first_of(in) == (float) left, "received %g", (double) first_of(in));
    KEPT(crunrt_work_test(work, &done) == 0 && done, "test");
    crunrt_work_free(work);
    ops[1] = sum_of(out);
    KEPT(crunrt_group_start_batch(world, ops, 2, &work) == -EINVAL, "a sum in a batch");
    KEPT(crunrt_group_start_batch(world, ops, 0, &work) == -EINVAL, "an empty batch");
    ops[1] = message(CRUNRT_OP_SEND, out, right, s);
    ops[1].count = ops[0].count = 0;
    KEPT(crunrt_group_start_batch(world, ops, 2, &work) == 0, "a batch without elements");
    KEPT(crunrt_work_wait(work, CRUNRT_FOREVER) == 0, "wait");
    crunrt_work_free(work);
    first_sum(world);
    kept();
}
