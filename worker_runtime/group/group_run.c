/* One operation: its arguments are checked, it gets its number, the backend runs it, and a failure
 * breaks the group. All short forms end in crunrt_group_run(). */
#include "worker_runtime/report/report.h"
#include "worker_runtime/group/group.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

size_t crunrt_dtype_size(crunrt_dtype dtype) {
    static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
    return (size_t) dtype < CR_ARRAY_LEN(sizes) ? sizes[dtype] : 0;
}

/* ---- arguments ---- */

static int is_p2p(crunrt_op_kind k) { return k == CRUNRT_OP_SEND || k == CRUNRT_OP_RECV; }

static int has_root(crunrt_op_kind k) {
    return k == CRUNRT_OP_REDUCE || k == CRUNRT_OP_BROADCAST || k == CRUNRT_OP_GATHER ||
           k == CRUNRT_OP_SCATTER || is_p2p(k);
}

static int reduces(crunrt_op_kind k) {
    return k == CRUNRT_OP_ALL_REDUCE || k == CRUNRT_OP_REDUCE || k == CRUNRT_OP_REDUCE_SCATTER;
}

static int is_floating(crunrt_dtype t) {
    return t == CRUNRT_FLOAT16 || t == CRUNRT_FLOAT32 || t == CRUNRT_FLOAT64 ||
           t == CRUNRT_BFLOAT16;
}

static int needs_send(const struct crunrt_group *g, const crunrt_op *op) {
    if (op->kind == CRUNRT_OP_SCATTER) return g->rank == op->root;
    return op->kind != CRUNRT_OP_RECV && op->kind != CRUNRT_OP_BROADCAST &&
           op->kind != CRUNRT_OP_BARRIER;
}

static int needs_recv(const struct crunrt_group *g, const crunrt_op *op) {
    if (op->kind == CRUNRT_OP_REDUCE || op->kind == CRUNRT_OP_GATHER) return g->rank == op->root;
    return op->kind != CRUNRT_OP_SEND && op->kind != CRUNRT_OP_BARRIER;
}

static int check_types(const crunrt_op *op, struct cr_error *err) {
    if (crunrt_dtype_size(op->dtype) == 0)
        return cr_fail(err, -EINVAL, "no data type %d", (int) op->dtype);
    if (!reduces(op->kind)) return 0;
    if ((unsigned) op->reduce > CRUNRT_BXOR) {
        return cr_fail(err, -EINVAL, "no reduce operation %d", (int) op->reduce);
    }
    if (op->reduce >= CRUNRT_BAND && is_floating(op->dtype)) {
        return cr_fail(err, -EINVAL, "bitwise reductions need an integer type");
    }
    return 0;
}

static int check_ranks(const struct crunrt_group *g, const crunrt_op *op, struct cr_error *err) {
    if (!has_root(op->kind)) return 0;
    const char *role = is_p2p(op->kind) ? "peer" : "root";
    if (op->root < 0 || op->root >= g->size) {
        return cr_fail(err, -EINVAL, "%s %d is not a rank of the group; ranks are 0 to %d", role,
                       op->root, g->size - 1);
    }
    if (is_p2p(op->kind) && op->root == g->rank) {
        return cr_fail(err, -EINVAL, "the peer is this rank itself; copy instead");
    }
    return 0;
}

#define COUNT_MAX (SIZE_MAX / 32) /* elements of a buffer: its bytes fit in an int64_t */

/* *total = the elements of one buffer. */
static int sum_counts(const size_t *counts, int size, const char *name, size_t *total,
                      struct cr_error *err) {
    if (counts == NULL) return cr_fail(err, -EINVAL, "%s is NULL", name);
    *total = 0;
    for (int r = 0; r < size; r++) {
        if (counts[r] > COUNT_MAX - *total) {
            return cr_fail(err, -EINVAL, "%s[%d] = %zu is too large", name, r, counts[r]);
        }
        *total += counts[r];
    }
    return 0;
}

static int check_counts(const struct crunrt_group *g, const crunrt_op *op, struct cr_error *err) {
    size_t sent = 0, received = 0;
    int rc = sum_counts(op->send_counts, g->size, "send_counts", &sent, err);
    if (rc == 0) rc = sum_counts(op->recv_counts, g->size, "recv_counts", &received, err);
    if (rc < 0) return rc;
    if (op->send_counts[g->rank] != op->recv_counts[g->rank]) {
        return cr_fail(err, -EINVAL, "this rank sends itself %zu elements and receives %zu of them",
                       op->send_counts[g->rank], op->recv_counts[g->rank]);
    }
    if (sent > 0 && op->send == NULL) return cr_fail(err, -EINVAL, "the send buffer is NULL");
    if (received > 0 && op->recv == NULL)
        return cr_fail(err, -EINVAL, "the receive buffer is NULL");
    return 0;
}

static int check_buffers(const struct crunrt_group *g, const crunrt_op *op, struct cr_error *err) {
    if (op->kind == CRUNRT_OP_ALL_TO_ALL_COUNTS) return check_counts(g, op, err);
    if (op->count > COUNT_MAX / (size_t) g->size)
        return cr_fail(err, -EINVAL, "count = %zu is too large", op->count);
    if (op->count == 0) return 0;
    if (needs_send(g, op) && op->send == NULL)
        return cr_fail(err, -EINVAL, "the send buffer is NULL");
    if (needs_recv(g, op) && op->recv == NULL)
        return cr_fail(err, -EINVAL, "the receive buffer is NULL");
    return 0;
}

static int check_op(const struct crunrt_group *g, const crunrt_op *op, struct cr_error *err) {
    if ((unsigned) op->kind > CRUNRT_OP_RECV) {
        return cr_fail(err, -EINVAL, "no operation %d", (int) op->kind);
    }
    int rc = check_types(op, err);
    if (rc == 0) rc = check_ranks(g, op, err);
    if (rc == 0) rc = check_buffers(g, op, err);
    return rc;
}

/* ---- running ---- */

static int read_op(const crunrt_op *given, crunrt_op *out) {
    *out = (crunrt_op) CRUNRT_OP_INIT;
    if (given == NULL || given->size < offsetof(crunrt_op, dtype)) {
        return cr_fail(
            rt_last_error(), -EINVAL,
            "run an operation: no operation, or its size is wrong; start from CRUNRT_OP_INIT");
    }
    memcpy(out, given, given->size < sizeof(*out) ? given->size : sizeof(*out));
    return 0;
}

static int fail_broken(const struct crunrt_group *g, const crunrt_op *op) {
    (void) cr_fail(rt_last_error(), -EPIPE, "%s in group '%s': the group is broken since: %s",
                   op_kind_name(op->kind), g->name, g->broken.text);
    return -EPIPE;
}

int group_call_is_empty(const struct group_call *call) {
    const crunrt_op *op = &call->op;
    return op->count == 0 && op->kind != CRUNRT_OP_BARRIER &&
           op->kind != CRUNRT_OP_ALL_TO_ALL_COUNTS;
}

static uint64_t mix(uint64_t hash, uint64_t value) {
    hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

/* Of a message only the length must agree, of a collective all that is not each rank's own. */
static uint32_t op_signature(const crunrt_op *op, size_t element_size) {
    if (is_p2p(op->kind)) return (uint32_t) (mix(1, op->count * element_size) >> 32);
    uint64_t hash = mix(mix(mix(2, (uint64_t) op->kind), (uint64_t) op->dtype), op->count);
    if (reduces(op->kind)) hash = mix(hash, (uint64_t) op->reduce);
    if (has_root(op->kind)) hash = mix(hash, (uint64_t) op->root);
    return (uint32_t) (hash >> 32);
}

int group_call_prepare(struct crunrt_group *g, const crunrt_op *given, struct group_call *out) {
    struct cr_error *err = rt_last_error();
    int rc =
        g == NULL ? rt_fail_null("run an operation", "the group") : read_op(given, &out->op);
    if (rc < 0) return rc;
    if (g->broken.code != 0) return fail_broken(g, &out->op);
    rc = check_op(g, &out->op, err);
    if (rc < 0) return cr_wrap(err, "%s in group '%s'", op_kind_name(out->op.kind), g->name);
    out->op.timeout_ms = rt_timeout(out->op.timeout_ms, g->timeout_ms);
    if (out->op.stream == NULL) out->op.stream = g->stream;
    uint32_t seq = is_p2p(out->op.kind) ? g->p2p_seq : g->collective_seq;
    (void) snprintf(out->what, sizeof(out->what), "%s #%u", op_kind_name(out->op.kind), seq);
    size_t element = crunrt_dtype_size(out->op.dtype);
    out->backend = (struct backend_call){&out->op, seq, op_signature(&out->op, element), element};
    return 0;
}

void group_call_count(struct crunrt_group *g, const struct group_call *call) {
    if (is_p2p(call->op.kind))
        g->p2p_seq++;
    else
        g->collective_seq++;
}

int group_call_begin(struct crunrt_group *g, struct group_call *call, struct cr_error *err) {
    call->flight = flight_begin(g->name, call->backend.seq, &call->op);
    return group_check_call(g, call, err);
}

/* "all_reduce(float32 x 1000, sum) #17". */
static void describe_call(const struct group_call *call, char out[OP_TEXT_MAX + 32]) {
    char text[OP_TEXT_MAX];
    op_describe(&call->op, text);
    (void) snprintf(out, OP_TEXT_MAX + 32, "%s #%u", text, call->backend.seq);
}

int group_outcome(struct crunrt_group *g, const struct group_call *call, int rc,
                  struct cr_error *err) {
    flight_end(call->flight, rc == 0);
    if (rc == 0) return 0;
    if (rc == -EINVAL || rc == -ENOTSUP || rc == -EAGAIN) {
        return cr_wrap(err, "%s in group '%s'", op_kind_name(call->op.kind), g->name);
    }
    if (g->broken.code != 0) { /* by another operation: this one fell with it */
        *err = g->broken;
        return rc;
    }
    char doing[OP_TEXT_MAX + 32];
    describe_call(call, doing);
    return group_break(g, call->what, doing, err);
}

int crunrt_group_run(crunrt_group *group, const crunrt_op *given) {
    struct cr_error *err = rt_last_error();
    struct group_call call;
    int rc = group_call_prepare(group, given, &call);
    if (rc < 0) return rc;
    rc = group_call_begin(group, &call, err);
    if (rc == 0 && !group_call_is_empty(&call)) {
        rc = group->backend->run(group->state, &call.backend, err);
    }
    if (rc == 0) group_call_count(group, &call);
    return group_outcome(group, &call, rc, err);
}

/* ---- many messages at once ---- */

int crunrt_group_batch(crunrt_group *group, const crunrt_op *ops, size_t count) {
    struct cr_error *err = rt_last_error();
    if (group == NULL) return rt_fail_null("run a batch", "the group");
    if (count == 0) return 0;
    if (ops == NULL || count > CRUNRT_WORKS_MAX) {
        return cr_fail(err, -EINVAL, "run a batch: no operations, or more than %d",
                       CRUNRT_WORKS_MAX);
    }
    CR_AUTO_FREE struct group_call *calls = calloc(count, sizeof(*calls));
    CR_AUTO_FREE struct backend_call *list = calloc(count, sizeof(*list));
    if (calls == NULL || list == NULL) return cr_fail(err, -ENOMEM, "run a batch: out of memory");
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        int rc = group_call_prepare(group, &ops[i], &calls[i]);
        if (rc < 0) return cr_wrap(err, "run a batch: operation %zu", i);
        if (!is_p2p(calls[i].op.kind)) {
            return cr_fail(err, -EINVAL, "run a batch: operation %zu: %s is no send and no receive",
                           i, op_kind_name(calls[i].op.kind));
        }
        calls[i].backend.seq += (uint32_t) i;
        if (!group_call_is_empty(&calls[i])) list[used++] = calls[i].backend;
    }
    for (size_t i = 0; i < count; i++)
        calls[i].flight = flight_begin(group->name, calls[i].backend.seq, &calls[i].op);
    int rc = used == 0 ? 0 : group->backend->batch(group->state, list, used, err);
    for (size_t i = 0; i < count; i++) {
        flight_end(calls[i].flight, rc == 0);
        if (rc == 0) group_call_count(group, &calls[i]);
    }
    (void) snprintf(calls[0].what, sizeof(calls[0].what), "batch of %zu messages", count);
    return group_outcome(group, &calls[0], rc, err);
}

/* ---- short forms ---- */

static crunrt_op describe(crunrt_op_kind kind, const void *send, void *recv, size_t count,
                          crunrt_dtype dtype) {
    crunrt_op op = CRUNRT_OP_INIT;
    op.kind = kind;
    op.send = send;
    op.recv = recv;
    op.count = count;
    op.dtype = dtype;
    return op;
}

static int run_reduction(crunrt_group *group, crunrt_op op, crunrt_reduce_op reduce, int root) {
    op.reduce = reduce;
    op.root = root;
    return crunrt_group_run(group, &op);
}

static int run_rooted(crunrt_group *group, crunrt_op op, int root, uint32_t tag) {
    op.root = root;
    op.tag = tag;
    return crunrt_group_run(group, &op);
}

int crunrt_group_all_reduce(crunrt_group *group, const void *send, void *recv, size_t count,
                            crunrt_dtype dtype, crunrt_reduce_op reduce) {
    return run_reduction(group, describe(CRUNRT_OP_ALL_REDUCE, send, recv, count, dtype), reduce,
                         0);
}

int crunrt_group_reduce(crunrt_group *group, const void *send, void *recv, size_t count,
                        crunrt_dtype dtype, crunrt_reduce_op reduce, int root) {
    return run_reduction(group, describe(CRUNRT_OP_REDUCE, send, recv, count, dtype), reduce, root);
}

int crunrt_group_reduce_scatter(crunrt_group *group, const void *send, void *recv, size_t count,
                                crunrt_dtype dtype, crunrt_reduce_op reduce) {
    return run_reduction(group, describe(CRUNRT_OP_REDUCE_SCATTER, send, recv, count, dtype),
                         reduce, 0);
}

int crunrt_group_broadcast(crunrt_group *group, void *buffer, size_t count, crunrt_dtype dtype,
                           int root) {
    return run_rooted(group, describe(CRUNRT_OP_BROADCAST, NULL, buffer, count, dtype), root, 0);
}

int crunrt_group_all_gather(crunrt_group *group, const void *send, void *recv, size_t count,
                            crunrt_dtype dtype) {
    return run_rooted(group, describe(CRUNRT_OP_ALL_GATHER, send, recv, count, dtype), 0, 0);
}

int crunrt_group_gather(crunrt_group *group, const void *send, void *recv, size_t count,
                        crunrt_dtype dtype, int root) {
    return run_rooted(group, describe(CRUNRT_OP_GATHER, send, recv, count, dtype), root, 0);
}

int crunrt_group_scatter(crunrt_group *group, const void *send, void *recv, size_t count,
                         crunrt_dtype dtype, int root) {
    return run_rooted(group, describe(CRUNRT_OP_SCATTER, send, recv, count, dtype), root, 0);
}

int crunrt_group_all_to_all(crunrt_group *group, const void *send, void *recv, size_t count,
                            crunrt_dtype dtype) {
    return run_rooted(group, describe(CRUNRT_OP_ALL_TO_ALL, send, recv, count, dtype), 0, 0);
}

int crunrt_group_all_to_all_counts(crunrt_group *group, const void *send, const size_t *send_counts,
                                   void *recv, const size_t *recv_counts, crunrt_dtype dtype) {
    crunrt_op op = describe(CRUNRT_OP_ALL_TO_ALL_COUNTS, send, recv, 0, dtype);
    op.send_counts = send_counts;
    op.recv_counts = recv_counts;
    return crunrt_group_run(group, &op);
}

int crunrt_group_barrier(crunrt_group *group) {
    return run_rooted(group, describe(CRUNRT_OP_BARRIER, NULL, NULL, 0, CRUNRT_UINT8), 0, 0);
}

int crunrt_group_send(crunrt_group *group, const void *buffer, size_t count, crunrt_dtype dtype,
                      int peer, uint32_t tag) {
    return run_rooted(group, describe(CRUNRT_OP_SEND, buffer, NULL, count, dtype), peer, tag);
}

int crunrt_group_recv(crunrt_group *group, void *buffer, size_t count, crunrt_dtype dtype, int peer,
                      uint32_t tag) {
    return run_rooted(group, describe(CRUNRT_OP_RECV, NULL, buffer, count, dtype), peer, tag);
}
