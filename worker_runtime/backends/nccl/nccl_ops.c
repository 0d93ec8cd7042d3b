/* Operations as calls of NCCL: types, reductions, buffers, and which function of NCCL does what. */
#include "worker_runtime/backends/nccl/nccl_internal.h"

#include "base/memory.h"

#include <errno.h>

static int type_of(const struct nccl_state *s, crunrt_dtype dtype, ncclDataType_t *out) {
    static const ncclDataType_t types[] = {
        [CRUNRT_INT8] = ncclInt8,       [CRUNRT_UINT8] = ncclUint8,
        [CRUNRT_INT32] = ncclInt32,     [CRUNRT_UINT32] = ncclUint32,
        [CRUNRT_INT64] = ncclInt64,     [CRUNRT_UINT64] = ncclUint64,
        [CRUNRT_FLOAT16] = ncclFloat16, [CRUNRT_FLOAT32] = ncclFloat32,
        [CRUNRT_FLOAT64] = ncclFloat64, [CRUNRT_BFLOAT16] = NCCL_BFLOAT16,
        [CRUNRT_FLOAT8_E4M3] = NCCL_FLOAT8_E4M3, [CRUNRT_FLOAT8_E5M2] = NCCL_FLOAT8_E5M2,
    };
    if ((size_t) dtype >= CR_ARRAY_LEN(types)) return -ENOTSUP;
    if (dtype >= CRUNRT_FLOAT8_E4M3 && s->api->nccl_version < NCCL_FIRST_FP8) return -ENOTSUP;
    *out = types[dtype];
    return 0;
}

static int reduction_of(crunrt_reduce_op op, ncclRedOp_t *out) {
    static const ncclRedOp_t ops[] = {
        [CRUNRT_SUM] = ncclSum, [CRUNRT_PRODUCT] = ncclProd, [CRUNRT_MAX] = ncclMax,
        [CRUNRT_MIN] = ncclMin, [CRUNRT_AVG] = ncclAvg,
    };
    *out = ncclSum; /* for CRUNRT_PREMUL_SUM: enqueue_multiplied() replaces this operator */
    if (op == CRUNRT_PREMUL_SUM) return 0;
    if ((size_t) op >= CR_ARRAY_LEN(ops)) return -ENOTSUP;
    *out = ops[op];
    return 0;
}

struct call {
    const struct nccl_state *s;
    ncclComm_t comm;
    const crunrt_op *op;
    ncclDataType_t type;
    ncclRedOp_t reduction;
    size_t element; /* size of one element in bytes */
    cudaStream_t stream;
};

static const char *send_at(const struct call *c, size_t element) {
    return (const char *) c->op->send + element * c->element;
}

static char *recv_at(const struct call *c, size_t element) {
    return (char *) c->op->recv + element * c->element;
}

static ncclResult_t send_to(const struct call *c, size_t at, size_t count, int peer) {
    if (count == 0) return ncclSuccess;
    return c->s->api->ncclSend(send_at(c, at), count, c->type, peer, c->comm, c->stream);
}

static ncclResult_t recv_from(const struct call *c, size_t at, size_t count, int peer) {
    if (count == 0) return ncclSuccess;
    return c->s->api->ncclRecv(recv_at(c, at), count, c->type, peer, c->comm, c->stream);
}

/* Runs a gather, scatter or all-to-all as one group of sends and receives, because NCCL before 2.28
 * lacks these operations. */
static ncclResult_t exchange(const struct call *c) {
    const crunrt_op *op = c->op;
    int root = op->root, rank = c->s->rank;
    size_t sent = 0, received = 0;
    ncclResult_t r = c->s->api->ncclGroupStart();
    for (int peer = 0; peer < c->s->size && (r == ncclSuccess || r == ncclInProgress); peer++) {
        size_t p = (size_t) peer, out = op->count, in = op->count;
        if (op->kind == CRUNRT_OP_ALL_TO_ALL_COUNTS) {
            out = op->send_counts[p];
            in = op->recv_counts[p];
        }
        bool sends = op->kind == CRUNRT_OP_GATHER    ? peer == root
                    : op->kind == CRUNRT_OP_SCATTER ? rank == root
                                                    : 1;
        bool receives = op->kind == CRUNRT_OP_GATHER    ? rank == root
                       : op->kind == CRUNRT_OP_SCATTER ? peer == root
                                                       : 1;
        if (sends) r = send_to(c, op->kind == CRUNRT_OP_GATHER ? 0 : sent, out, peer);
        if (receives && (r == ncclSuccess || r == ncclInProgress)) {
            r = recv_from(c, op->kind == CRUNRT_OP_SCATTER ? 0 : received, in, peer);
        }
        sent += out;
        received += in;
    }
    ncclResult_t end = c->s->api->ncclGroupEnd();
    return r == ncclSuccess || r == ncclInProgress ? end : r;
}

static ncclResult_t enqueue_call(const struct call *c) {
    const struct nccl_api *api = c->s->api;
    const crunrt_op *op = c->op;
    ncclComm_t comm = c->comm;
    void *scratch = (void *) (uintptr_t) c->s->scratch;
    switch (op->kind) {
    case CRUNRT_OP_ALL_REDUCE:
        return api->ncclAllReduce(op->send, op->recv, op->count, c->type, c->reduction, comm,
                                  c->stream);
    case CRUNRT_OP_REDUCE:
        return api->ncclReduce(op->send, op->recv, op->count, c->type, c->reduction, op->root, comm,
                               c->stream);
    case CRUNRT_OP_BROADCAST:
        return api->ncclBroadcast(op->recv, op->recv, op->count, c->type, op->root, comm,
                                  c->stream);
    case CRUNRT_OP_ALL_GATHER:
        return api->ncclAllGather(op->send, op->recv, op->count, c->type, comm, c->stream);
    case CRUNRT_OP_REDUCE_SCATTER:
        return api->ncclReduceScatter(op->send, op->recv, op->count, c->type, c->reduction, comm,
                                      c->stream);
    case CRUNRT_OP_GATHER:
    case CRUNRT_OP_SCATTER:
    case CRUNRT_OP_ALL_TO_ALL:
    case CRUNRT_OP_ALL_TO_ALL_COUNTS: return exchange(c);
    case CRUNRT_OP_BARRIER:
        return api->ncclAllReduce(scratch, scratch, 1, ncclInt32, ncclSum, comm,
                                  c->stream);
    case CRUNRT_OP_SEND: return send_to(c, 0, op->count, op->root);
    case CRUNRT_OP_RECV: return recv_from(c, 0, op->count, op->root);
    }
    return ncclInvalidArgument;
}

/* Returns true if the GPU's driver knows the memory, false if it is ordinary host memory. */
static bool is_gpu_memory(const struct nccl_state *s, const void *p) {
    unsigned type = 0;
    return s->api->cuPointerGetAttribute(&type, CUDA_MEMORY_TYPE, (cuda_pointer) (uintptr_t) p) ==
           0;
}

static bool multiplies(const crunrt_op *op) {
    return op->reduce == CRUNRT_PREMUL_SUM &&
           (op->kind == CRUNRT_OP_ALL_REDUCE || op->kind == CRUNRT_OP_REDUCE ||
            op->kind == CRUNRT_OP_REDUCE_SCATTER);
}

/* Enqueues an operation with CRUNRT_PREMUL_SUM. Makes an operator of NCCL for this one operation,
 * and destroys it after the operation is enqueued; NCCL allows this. */
static ncclResult_t enqueue_multiplied(struct call *c) {
    const struct nccl_api *api = c->s->api;
    void *factor = (void *) (uintptr_t) c->op->factor;
    ncclScalarResidence_t where =
        is_gpu_memory(c->s, factor) ? ncclScalarDevice : ncclScalarHostImmediate;
    ncclResult_t r =
        api->ncclRedOpCreatePreMulSum(&c->reduction, factor, c->type, where, c->comm);
    if (r != ncclSuccess) return r;
    r = enqueue_call(c);
    (void) api->ncclRedOpDestroy(c->reduction, c->comm);
    return r;
}

static bool uses_send(const struct nccl_state *s, const crunrt_op *op) {
    if (op->kind == CRUNRT_OP_SCATTER) return s->rank == op->root;
    return op->kind != CRUNRT_OP_BROADCAST && op->kind != CRUNRT_OP_RECV &&
           op->kind != CRUNRT_OP_BARRIER;
}

static bool uses_recv(const struct nccl_state *s, const crunrt_op *op) {
    if (op->kind == CRUNRT_OP_REDUCE || op->kind == CRUNRT_OP_GATHER) return s->rank == op->root;
    return op->kind != CRUNRT_OP_SEND && op->kind != CRUNRT_OP_BARRIER;
}

/* Returns -EINVAL if a buffer is in host memory that the GPU cannot reach, else 0. A kernel that
 * accesses such memory fails, and after that this process cannot use CUDA. CUDA_INVALID_VALUE means
 * that CUDA does not know the memory. */
static int refuse_host_memory(const struct nccl_state *s, const char *which, const void *p,
                              struct cr_error *err) {
    unsigned type = 0;
    if (p == NULL || s->reads_host_memory) return 0;
    if (s->api->cuPointerGetAttribute(&type, CUDA_MEMORY_TYPE, (cuda_pointer) (uintptr_t) p) !=
        CUDA_INVALID_VALUE)
        return 0;
    return cr_fail(err, -EINVAL,
                   "the %s buffer is host memory, which this GPU cannot reach; copy it to the "
                   "device, or allocate it with " HOST_ALLOCATORS,
                   which);
}

static int describe(const struct nccl_state *s, const struct backend_call *call, struct call *c,
                    struct cr_error *err) {
    const crunrt_op *op = call->op;
    *c = (struct call){.s = s, .op = op, .element = call->element_size};
    if (type_of(s, op->dtype, &c->type) < 0) {
        return cr_fail(err, -ENOTSUP, "NCCL %d has no data type %d", s->api->nccl_version,
                       (int) op->dtype);
    }
    if (multiplies(op) &&
        (s->api->ncclRedOpCreatePreMulSum == NULL || s->api->ncclRedOpDestroy == NULL))
        return cr_fail(err, -ENOTSUP, "this NCCL has no sums of products with a factor");
    if (reduction_of(op->reduce, &c->reduction) < 0) {
        return cr_fail(err, -ENOTSUP, "nccl has no reduce operation %d (bitwise)",
                       (int) op->reduce);
    }
    return 0;
}

int check_call(const struct nccl_state *s, const struct backend_call *call, struct cr_error *err) {
    struct call c;
    int rc = describe(s, call, &c, err);
    if (rc == 0 && uses_send(s, c.op)) rc = refuse_host_memory(s, "send", c.op->send, err);
    bool is_checked = uses_send(s, call->op) && call->op->send == call->op->recv;
    if (rc == 0 && !is_checked && uses_recv(s, c.op))
        rc = refuse_host_memory(s, "receive", c.op->recv, err);
    return rc;
}

ncclResult_t enqueue(const struct nccl_state *s, ncclComm_t comm, const struct backend_call *call,
                     cudaStream_t stream) {
    struct call c;
    if (describe(s, call, &c, NULL) < 0) return ncclInvalidArgument;
    c.comm = comm;
    c.stream = stream;
    return multiplies(c.op) ? enqueue_multiplied(&c) : enqueue_call(&c);
}
