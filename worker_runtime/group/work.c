/* Work that goes on meanwhile: the backend runs it, this file keeps its name and its outcome, and
 * tells the group, once, when it failed. */
#include "worker_runtime/group/group.h"

#include "base/clock.h"

#include <errno.h>
#include <stdlib.h>

struct crunrt_work {
    struct crunrt_group *group;
    struct group_call call;
    void *state; /* of the backend; NULL: there was nothing to do */
    int over;
    struct cr_error outcome; /* code 0: went well */
};

int crunrt_group_start(crunrt_group *group, const crunrt_op *op, crunrt_work **out) {
    struct cr_error *err = rt_last_error();
    if (out == NULL) return rt_fail_null("start an operation", "out");
    struct crunrt_work *w = calloc(1, sizeof(*w));
    if (w == NULL) return cr_fail(err, -ENOMEM, "start an operation: out of memory");
    int rc = group_call_prepare(group, op, &w->call);
    if (rc == 0 && group->unfinished >= CRUNRT_WORKS_MAX) {
        rc = cr_fail(err, -EAGAIN, "start %s: %d works are unfinished; wait for some first",
                     w->call.what, CRUNRT_WORKS_MAX);
    } else if (rc == 0) {
        w->group = group;
        w->over = group_call_is_empty(&w->call);
        rc = group_call_begin(group, &w->call, err);
        if (rc == 0 && !w->over)
            rc = group->backend->start(group->state, &w->call.backend, &w->state, err);
        if (rc < 0 || w->over) rc = group_outcome(group, &w->call, rc, err);
    }
    if (rc < 0) {
        free(w);
        return rc;
    }
    group_call_count(group, &w->call);
    group->unfinished += !w->over;
    *out = w;
    return 0;
}

static int work_poll(struct crunrt_work *w, int64_t timeout_ms) {
    if (w->over) {
        if (w->outcome.code != 0) *rt_last_error() = w->outcome;
        return w->outcome.code;
    }
    struct cr_error *err = rt_last_error();
    int rc = w->group->backend->wait(w->state, timeout_ms, err);
    if (rc == -EINPROGRESS) return rc;
    w->over = 1;
    w->group->unfinished--;
    rc = group_outcome(w->group, &w->call, rc, err);
    if (rc < 0) w->outcome = *err;
    w->outcome.code = rc;
    return rc;
}

int crunrt_work_test(crunrt_work *work, int *done) {
    if (work == NULL) return rt_fail_null("test a work", "the work");
    if (done == NULL) return rt_fail_null("test a work", "done");
    int rc = work_poll(work, 0);
    *done = rc != -EINPROGRESS;
    return *done ? rc : 0;
}

int crunrt_work_wait(crunrt_work *work, int64_t timeout_ms) {
    if (work == NULL) return rt_fail_null("wait for a work", "the work");
    int rc = work_poll(work, rt_timeout(timeout_ms, CR_FOREVER));
    if (rc != -EINPROGRESS) return rc;
    return cr_fail(rt_last_error(), -EAGAIN, "wait for %s in group '%s': not over after %lld ms",
                   work->call.what, work->group->name, (long long) timeout_ms);
}

void crunrt_work_free(crunrt_work *work) {
    if (work == NULL) return;
    (void) work_poll(work, CR_FOREVER);
    if (work->state != NULL) work->group->backend->release(work->state);
    free(work);
}

static int start_message(crunrt_group *group, crunrt_op_kind kind, const void *send, void *recv,
                         size_t count, crunrt_dtype dtype, int peer, uint32_t tag,
                         crunrt_work **out) {
    crunrt_op op = CRUNRT_OP_INIT;
    op.kind = kind;
    op.send = send;
    op.recv = recv;
    op.count = count;
    op.dtype = dtype;
    op.root = peer;
    op.tag = tag;
    return crunrt_group_start(group, &op, out);
}

int crunrt_group_isend(crunrt_group *group, const void *buffer, size_t count, crunrt_dtype dtype,
                       int peer, uint32_t tag, crunrt_work **out) {
    return start_message(group, CRUNRT_OP_SEND, buffer, NULL, count, dtype, peer, tag, out);
}

int crunrt_group_irecv(crunrt_group *group, void *buffer, size_t count, crunrt_dtype dtype,
                       int peer, uint32_t tag, crunrt_work **out) {
    return start_message(group, CRUNRT_OP_RECV, NULL, buffer, count, dtype, peer, tag, out);
}
