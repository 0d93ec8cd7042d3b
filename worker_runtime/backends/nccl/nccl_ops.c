/* Operations on a communicator: each is put on the stream with an event behind it, and is done when
 * the event is. */
#include "worker_runtime/backends/nccl/nccl_internal.h"

#include "base/clock.h"
#include "base/memory.h"

#include <errno.h>
#include <stdlib.h>

static int type_of(crunrt_dtype dtype, ncclDataType_t *out) {
    static const ncclDataType_t types[] = {
        [CRUNRT_INT8] = ncclInt8,       [CRUNRT_UINT8] = ncclUint8,
        [CRUNRT_INT32] = ncclInt32,     [CRUNRT_UINT32] = ncclUint32,
        [CRUNRT_INT64] = ncclInt64,     [CRUNRT_UINT64] = ncclUint64,
        [CRUNRT_FLOAT16] = ncclFloat16, [CRUNRT_FLOAT32] = ncclFloat32,
        [CRUNRT_FLOAT64] = ncclFloat64, [CRUNRT_BFLOAT16] = NCCL_BFLOAT16,
    };
    if ((size_t) dtype >= CR_ARRAY_LEN(types)) return -ENOTSUP;
    *out = types[dtype];
    return 0;
}

static int reduction_of(crunrt_reduce_op op, ncclRedOp_t *out) {
    static const ncclRedOp_t ops[] = {
        [CRUNRT_SUM] = ncclSum, [CRUNRT_PRODUCT] = ncclProd, [CRUNRT_MAX] = ncclMax,
        [CRUNRT_MIN] = ncclMin, [CRUNRT_AVG] = ncclAvg,
    };
    if ((size_t) op >= CR_ARRAY_LEN(ops)) return -ENOTSUP;
    *out = ops[op];
    return 0;
}

struct call {
    struct nccl_state *s;
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
    return c->s->api->ncclSend(send_at(c, at), count, c->type, peer, c->s->comm, c->stream);
}

static ncclResult_t recv_from(const struct call *c, size_t at, size_t count, int peer) {
    if (count == 0) return ncclSuccess;
    return c->s->api->ncclRecv(recv_at(c, at), count, c->type, peer, c->s->comm, c->stream);
}

/* Gather, scatter and all-to-all, which NCCL before 2.28 does not have: one group of sends and
 * receives. */
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

static ncclResult_t enqueue(const struct call *c) {
    const struct nccl_api *api = c->s->api;
    const crunrt_op *op = c->op;
    ncclComm_t comm = c->s->comm;
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
        return api->ncclAllReduce(c->s->scratch, c->s->scratch, 1, ncclInt32, ncclSum, comm,
                                  c->stream);
    case CRUNRT_OP_SEND: return send_to(c, 0, op->count, op->root);
    case CRUNRT_OP_RECV: return recv_from(c, 0, op->count, op->root);
    }
    return ncclInvalidArgument;
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

/* Refuses a buffer in host memory that this GPU cannot reach, because a kernel that accesses such
 * memory fails and makes the CUDA context of this process unusable until the process ends. */
static int refuse_host_memory(const struct nccl_state *s, const char *which, const void *p,
                              struct cr_error *err) {
    struct cudaPointerAttributes attributes;
    if (p == NULL || s->reads_host_memory || s->api->cudaPointerGetAttributes == NULL) return 0;
    if (s->api->cudaPointerGetAttributes(&attributes, p) != cudaSuccess) return 0;
    if (attributes.type != cudaMemoryTypeUnregistered) return 0;
    return cr_fail(err, -EINVAL,
                   "the %s buffer is host memory, which this GPU cannot reach; copy it to the "
                   "device, or allocate it with cudaMallocHost or cudaMallocManaged",
                   which);
}

static int describe(struct nccl_state *s, const struct backend_call *call, struct call *c,
                    struct cr_error *err) {
    const crunrt_op *op = call->op;
    *c = (struct call){.s = s, .op = op, .element = call->element_size, .stream = s->stream};
    if (op->stream != NULL) c->stream = op->stream;
    if (type_of(op->dtype, &c->type) < 0) {
        return cr_fail(err, -ENOTSUP, "nccl has no data type %d", (int) op->dtype);
    }
    if (reduction_of(op->reduce, &c->reduction) < 0) {
        return cr_fail(err, -ENOTSUP, "nccl has no reduce operation %d (bitwise)",
                       (int) op->reduce);
    }
    return 0;
}

/* Puts the operations on the stream, and after them the event, by the deadline. Several operations
 * are sends and receives, which NCCL runs together as one group. */
static int put_on_stream(struct nccl_state *s, const struct backend_call *calls, size_t count,
                         cudaEvent_t event, int64_t deadline_ms, struct cr_error *err) {
    struct call c;
    if (s->comm == NULL)
        return cr_fail(err, -ECONNRESET, "the communicator was aborted when another group failed");
    cudaError_t e = s->api->cudaSetDevice(s->device);
    if (e != cudaSuccess) return fail_cuda(s->api, e, -EIO, err, "use the GPU");
    for (size_t i = 0; i < count; i++) { /* refuse before anything is started */
        const crunrt_op *op = calls[i].op;
        int rc = describe(s, &calls[i], &c, err);
        if (rc == 0 && uses_send(s, op)) rc = refuse_host_memory(s, "send", op->send, err);
        if (rc == 0 && uses_recv(s, op)) rc = refuse_host_memory(s, "receive", op->recv, err);
        if (rc < 0) return rc;
    }
    ncclResult_t r = count > 1 ? s->api->ncclGroupStart() : ncclSuccess;
    for (size_t i = 0; i < count && (r == ncclSuccess || r == ncclInProgress); i++) {
        (void) describe(s, &calls[i], &c, err);
        r = enqueue(&c);
    }
    if (count > 1) {
        ncclResult_t end = s->api->ncclGroupEnd();
        if (r == ncclSuccess || r == ncclInProgress) r = end;
    }
    if (r != ncclSuccess && r != ncclInProgress) return fail_nccl(s->api, r, err, "enqueue");
    if (r == ncclInProgress) {
        struct wait w = wait_until(&s->store, deadline_ms);
        int rc = wait_for_comm_with(s, &w, "enqueue", calls[0].op->timeout_ms, err);
        if (rc < 0) return rc;
    }
    e = s->api->cudaEventRecord(event, c.stream);
    if (e == cudaSuccess) return 0;
    return fail_cuda(s->api, e, -EIO, err, "record the end of the operation");
}

int nccl_batch(void *arg, const struct backend_call *calls, size_t count, struct cr_error *err) {
    struct nccl_state *s = arg;
    int64_t timeout_ms = calls[0].op->timeout_ms, deadline_ms = cr_deadline_ms(timeout_ms);
    int rc = put_on_stream(s, calls, count, s->done, deadline_ms, err);
    return rc < 0 ? rc : wait_for_event(s, s->done, deadline_ms, timeout_ms, err);
}

int nccl_run(void *arg, const struct backend_call *call, struct cr_error *err) {
    return nccl_batch(arg, call, 1, err);
}

/* ---- works: each is on the stream, with an event of its own ---- */

struct nccl_work {
    struct nccl_state *s;
    cudaEvent_t event;
    int64_t timeout_ms, deadline_ms;
};

int nccl_start(void *arg, const struct backend_call *call, void **out,
                      struct cr_error *err) {
    struct nccl_state *s = arg;
    struct nccl_work *w = calloc(1, sizeof(*w));
    if (w == NULL) return cr_fail(err, -ENOMEM, "start an operation: out of memory");
    w->s = s;
    w->timeout_ms = call->op->timeout_ms;
    w->deadline_ms = cr_deadline_ms(w->timeout_ms);
    int rc = 0;
    cudaError_t e = s->api->cudaSetDevice(s->device);
    if (e == cudaSuccess) e = s->api->cudaEventCreateWithFlags(&w->event, cudaEventDisableTiming);
    if (e != cudaSuccess) rc = fail_cuda(s->api, e, -EIO, err, "make an event");
    if (rc == 0) rc = put_on_stream(s, call, 1, w->event, w->deadline_ms, err);
    if (rc < 0) {
        if (w->event != NULL) (void) s->api->cudaEventDestroy(w->event);
        free(w);
        return rc;
    }
    *out = w;
    return 0;
}

int nccl_wait(void *arg, int64_t timeout_ms, struct cr_error *err) {
    struct nccl_work *w = arg;
    int rc = look_at_event(w->s, w->event, err);
    if (rc != -EINPROGRESS) return rc;
    if (timeout_ms == 0 && cr_monotonic_ms() < w->deadline_ms) return -EINPROGRESS;
    int64_t until_ms = cr_deadline_ms(timeout_ms);
    if (until_ms > w->deadline_ms) until_ms = w->deadline_ms;
    rc = wait_for_event(w->s, w->event, until_ms, w->timeout_ms, err);
    return rc == -ETIMEDOUT && cr_monotonic_ms() < w->deadline_ms ? -EINPROGRESS : rc;
}

void nccl_release(void *arg) {
    struct nccl_work *w = arg;
    if (!w->s->is_wedged) (void) w->s->api->cudaEventDestroy(w->event);
    free(w);
}
