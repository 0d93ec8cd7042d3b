/* Works: operations that run while the program continues. The backend runs them; this file keeps
 * the result of each work, and breaks the group if a work fails. */
#include "worker_runtime/group/group.h"
#include "worker_runtime/group/op_check.h"

#include "base/clock.h"

#include <errno.h>
#include <stdlib.h>

struct crunrt_work {
    struct crunrt_group *group;
    struct group_call call;
    void *state; /* the backend's handle of the operation; NULL if the operation has no elements */
    bool is_over;
    struct cr_error outcome; /* result of the work once it is over; code 0 means success */
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
        w->is_over = op_is_empty(&w->call.op);
        rc = group_call_begin(group, &w->call, err);
        if (rc == 0 && !w->is_over)
            rc = group->backend->start(group->state, &w->call.backend, &w->state, err);
        if (rc < 0 || w->is_over) rc = group_outcome(group, &w->call, rc, err);
    }
    if (rc < 0) {
        free(w);
        return rc;
    }
    group_call_count(group, &w->call);
    group->unfinished += !w->is_over;
    *out = w;
    return 0;
}

static int work_poll(struct crunrt_work *w, int64_t timeout_ms) {
    if (w->is_over) {
        if (w->outcome.code != 0) *rt_last_error() = w->outcome;
        return w->outcome.code;
    }
    struct cr_error *err = rt_last_error();
    int rc = w->group->backend->wait(w->state, timeout_ms, err);
    if (rc == -EINPROGRESS) return rc;
    w->is_over = true;
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
