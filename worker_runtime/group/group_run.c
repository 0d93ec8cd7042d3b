/* Runs one operation, or a batch of sends and receives: checks the arguments, gives the call its
 * number, lets the backend run it, and breaks the group if the call fails. */
#include "worker_runtime/group/group.h"
#include "worker_runtime/group/op_check.h"

#include "base/memory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the stages of a call ---- */

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
    (void) cr_fail(rt_last_error(), -EPIPE, "%s in group '%s': the group is already broken: %s",
                   op_kind_name(op->kind), g->name, g->broken.text);
    return -EPIPE;
}

/* Writes "<kind> #<seq>" to `out`. Does not use snprintf(), which takes ten times as long, because
 * each operation calls this function. */
static void name_call(char out[48], const char *kind, uint32_t seq) {
    char digits[10];
    size_t i = sizeof(digits);
    do {
        digits[--i] = (char) ('0' + seq % 10);
        seq /= 10;
    } while (seq > 0);
    out = stpcpy(out, kind);
    out = stpcpy(out, " #");
    out = mempcpy(out, digits + i, sizeof(digits) - i);
    *out = '\0';
}

int group_call_prepare(struct crunrt_group *g, const crunrt_op *given, struct group_call *out) {
    struct cr_error *err = rt_last_error();
    int rc =
        g == NULL ? rt_fail_null("run an operation", "the group") : read_op(given, &out->op);
    if (rc < 0) return rc;
    if (g->broken.code != 0) return fail_broken(g, &out->op);
    rc = op_check(&out->op, g->rank, g->size, err);
    if (rc < 0) return cr_wrap(err, "%s in group '%s'", op_kind_name(out->op.kind), g->name);
    out->op.timeout_ms = rt_timeout(out->op.timeout_ms, g->timeout_ms);
    if (out->op.stream == NULL) out->op.stream = g->stream;
    uint32_t seq = op_is_p2p(out->op.kind) ? g->p2p_seq : g->collective_seq;
    name_call(out->what, op_kind_name(out->op.kind), seq);
    out->backend = (struct backend_call){.op = &out->op,
                                         .seq = seq,
                                         .signature = op_signature(&out->op),
                                         .element_size = crunrt_dtype_size(out->op.dtype)};
    return 0;
}

void group_call_count(struct crunrt_group *g, const struct group_call *call) {
    if (op_is_p2p(call->op.kind)) {
        g->p2p_seq++;
    } else {
        g->collective_seq++;
    }
}

void group_call_announce(struct crunrt_group *g, const struct group_call *call) {
    bool is_p2p = op_is_p2p(call->op.kind);
    atomic_store_explicit(&g->peer, is_p2p ? call->op.root : -1, memory_order_relaxed);
    atomic_store_explicit(&g->peer_left_ms, 0, memory_order_relaxed);
    if (!is_p2p) atomic_store_explicit(&g->begun, call->backend.seq + 1, memory_order_relaxed);
    group_progress_enter(g, call, flight_started_ns(call->flight));
}

int group_call_begin(struct crunrt_group *g, struct group_call *call, struct cr_error *err) {
    call->flight = flight_begin(g->name, call->backend.seq, &call->op);
    group_call_announce(g, call);
    return group_check_call(g, call, err);
}

/* Writes the full description of a call, for example "all_reduce(float32 x 1000, sum) #17". */
static void describe_call(const struct group_call *call, char out[OP_TEXT_MAX + 32]) {
    char text[OP_TEXT_MAX];
    op_describe(&call->op, text);
    (void) snprintf(out, OP_TEXT_MAX + 32, "%s #%u", text, call->backend.seq);
}

int group_outcome(struct crunrt_group *g, const struct group_call *call, int rc,
                  struct cr_error *err) {
    flight_end(call->flight, rc == 0);
    bool is_refused = rc == -EINVAL || rc == -ENOTSUP || rc == -EAGAIN;
    if (rc == 0 || is_refused) group_progress_leave(g, g->unfinished > 0);
    if (rc == 0) return 0;
    if (is_refused) {
        return cr_wrap(err, "%s in group '%s'", op_kind_name(call->op.kind), g->name);
    }
    /* if an earlier operation has broken the group, this one fails with the same error text */
    if (g->broken.code != 0) {
        *err = g->broken;
        return rc;
    }
    char doing[OP_TEXT_MAX + 32];
    describe_call(call, doing);
    return group_break(g, call->what, doing, err);
}

/* ---- crunrt_group_run() ---- */

int crunrt_group_run(crunrt_group *group, const crunrt_op *given) {
    struct cr_error *err = rt_last_error();
    struct group_call call;
    int rc = group_call_prepare(group, given, &call);
    if (rc < 0) return rc;
    rc = group_call_begin(group, &call, err);
    if (rc == 0 && !op_is_empty(&call.op)) {
        rc = group->backend->run(group->state, &call.backend, err);
    }
    if (rc == 0) group_call_count(group, &call);
    return group_outcome(group, &call, rc, err);
}

/* ---- crunrt_group_batch() ---- */

int group_prepare_batch(struct crunrt_group *g, const crunrt_op *ops, size_t count,
                         struct group_call *calls, struct backend_call *list, size_t *used) {
    for (size_t i = 0; i < count; i++) {
        int rc = group_call_prepare(g, &ops[i], &calls[i]);
        if (rc < 0) return cr_wrap(rt_last_error(), "run a batch: operation %zu", i);
        if (!op_is_p2p(calls[i].op.kind)) {
            return cr_fail(rt_last_error(), -EINVAL,
                           "run a batch: operation %zu: %s is neither a send nor a receive", i,
                           op_kind_name(calls[i].op.kind));
        }
        calls[i].backend.seq += (uint32_t) i;
        if (!op_is_empty(&calls[i].op)) list[(*used)++] = calls[i].backend;
    }
    return 0;
}

static int run_batch(struct crunrt_group *g, struct group_call *calls, size_t count,
                     const struct backend_call *list, size_t used) {
    struct cr_error *err = rt_last_error();
    for (size_t i = 0; i < count; i++) {
        calls[i].flight = flight_begin(g->name, calls[i].backend.seq, &calls[i].op);
        group_call_announce(g, &calls[i]);
    }
    int rc = used == 0 ? 0 : g->backend->batch(g->state, list, used, err);
    for (size_t i = 0; i < count; i++) {
        flight_end(calls[i].flight, rc == 0);
        if (rc == 0) group_call_count(g, &calls[i]);
    }
    (void) snprintf(calls[0].what, sizeof(calls[0].what), "batch of %zu messages", count);
    return group_outcome(g, &calls[0], rc, err);
}

int crunrt_group_batch(crunrt_group *group, const crunrt_op *ops, size_t count) {
    struct cr_error *err = rt_last_error();
    size_t used = 0;
    if (group == NULL) return rt_fail_null("run a batch", "the group");
    if (count == 0) return 0;
    if (ops == NULL || count > CRUNRT_WORKS_MAX) {
        return cr_fail(err, -EINVAL, "run a batch: no operations, or more than %d",
                       CRUNRT_WORKS_MAX);
    }
    CR_AUTO_FREE struct group_call *calls = calloc(count, sizeof(*calls));
    CR_AUTO_FREE struct backend_call *list = calloc(count, sizeof(*list));
    if (calls == NULL || list == NULL) return cr_fail(err, -ENOMEM, "run a batch: out of memory");
    int rc = group_prepare_batch(group, ops, count, calls, list, &used);
    return rc < 0 ? rc : run_batch(group, calls, count, list, used);
}
