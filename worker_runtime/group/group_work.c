/* Works: operations that run while the program continues. The backend runs them. This file keeps
 * the result of each work, and breaks the group when a work has failed.
 *
 * If a stream waits for the end of a work, the program may free the work before it is over;
 * crunrt_group_enqueue() does not even return the work. Such a work is handed over to the group: it
 * is put into the list `handed`, and a later call on the group finds out how it ended. */
#include "worker_runtime/group/group.h"
#include "worker_runtime/group/op_check.h"

#include "base/memory.h"
#include "base/time/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Each time when the number of unfinished works is a multiple of this, crunrt_group_enqueue() frees
 * those works that were handed over and have ended. */
#define HANDED_LOOK_EVERY 8

struct crunrt_work {
    struct crunrt_group *group;         /* NULL once the group is destroyed */
    struct crunrt_work *next, *before;  /* the group's list of works */
    struct crunrt_work *next_handed;
    struct group_call call;   /* the operation, or the first of a batch */
    void *state;              /* the backend's handle; NULL if there is none */
    bool is_over;
    bool is_handed;           /* true if a stream waits for the work, so that the program may free
                               * the work before it is over */
    int result;               /* result of the work once it is over: 0, or a negative errno */
    struct cr_error *failure; /* describes a negative result; NULL if the result is not negative, or
                               * if memory was short */
    /* If the work is a batch, `more` is the number of operations after the first one. For each of
     * them, a work_part has its number in the flight recorder and, if the backend starts operations
     * one by one, its handle. */
    size_t more;
    struct work_part {
        uint64_t flight;
        void *state;
    } parts[];
};

/* ---- making and freeing works ---- */

static struct crunrt_work *work_new(size_t more, struct cr_error *err) {
    struct crunrt_work *w = calloc(1, sizeof(*w) + more * sizeof(w->parts[0]));
    if (w == NULL) (void) cr_fail(err, -ENOMEM, "start an operation: out of memory");
    return w;
}

static void join_group(struct crunrt_work *w, struct crunrt_group *g) {
    w->group = g;
    w->next = g->works;
    if (g->works != NULL) g->works->before = w;
    g->works = w;
    g->unfinished += !w->is_over;
}

static void release(struct crunrt_work *w) {
    if (w->state != NULL) w->group->backend->release(w->state);
    w->state = NULL;
    for (size_t i = 0; i < w->more; i++) {
        if (w->parts[i].state != NULL) w->group->backend->release(w->parts[i].state);
        w->parts[i].state = NULL;
    }
}

static void free_work(struct crunrt_work *w) {
    struct crunrt_group *g = w->group;
    if (g != NULL) {
        release(w);
        if (w->before != NULL)
            w->before->next = w->next;
        else
            g->works = w->next;
        if (w->next != NULL) w->next->before = w->before;
    }
    free(w->failure);
    free(w);
}

/* Sets the work's result to the error. The error gets memory of its own, so that a work that
 * succeeds, as most do, needs no room for it. */
static void set_failure(struct crunrt_work *w, const struct cr_error *err) {
    w->result = err->code;
    w->failure = malloc(sizeof(*w->failure));
    if (w->failure != NULL) *w->failure = *err;
}

static int result_of(const struct crunrt_work *w, struct cr_error *err) {
    if (w->failure != NULL) *err = *w->failure;
    else if (w->result != 0) (void) cr_fail(err, w->result, "%s failed", w->call.what);
    return w->result;
}

static void hand_over(struct crunrt_work *w) {
    struct crunrt_group *g = w->group;
    if (g->handed == NULL)
        g->handed = w;
    else
        g->handed_last->next_handed = w;
    g->handed_last = w;
}

/* ---- the end of works ---- */

/* Waits until all handles of the work are over. Returns 0; the first error, without waiting for
 * further handles; or -EINPROGRESS if a handle is not over after timeout_ms. */
static int wait_for_parts(struct crunrt_work *w, int64_t timeout_ms, struct cr_error *err) {
    const struct crunrt_backend *b = w->group->backend;
    int rc = w->state != NULL ? b->wait(w->state, timeout_ms, err) : 0;
    for (size_t i = 0; i < w->more && rc == 0; i++)
        if (w->parts[i].state != NULL) rc = b->wait(w->parts[i].state, timeout_ms, err);
    return rc;
}

static int work_poll(struct crunrt_work *w, int64_t timeout_ms) {
    struct cr_error *err = rt_last_error();
    if (w->is_over) return result_of(w, err);
    if (timeout_ms != 0) group_progress_enter(w->group, &w->call, cr_monotonic_ns());
    int rc = wait_for_parts(w, timeout_ms, err);
    if (rc == -EINPROGRESS && timeout_ms != 0) group_progress_leave(w->group, true);
    if (rc == -EINPROGRESS) return rc;
    w->is_over = true;
    w->group->unfinished--;
    for (size_t i = 0; i < w->more; i++) flight_end(w->parts[i].flight, rc == 0);
    rc = group_outcome(w->group, &w->call, rc, err);
    if (rc == 0) return 0;
    err->code = rc;
    set_failure(w, err);
    return rc;
}

/* Waits until the oldest work that was handed over has ended, frees it and returns its result.
 * Returns -EINPROGRESS if it has not ended after timeout_ms. */
static int end_oldest_handed(struct crunrt_group *g, int64_t timeout_ms) {
    struct crunrt_work *w = g->handed;
    int rc = work_poll(w, timeout_ms);
    if (rc == -EINPROGRESS) return rc;
    g->handed = w->next_handed;
    free_work(w);
    return rc;
}

static int end_all_handed(struct crunrt_group *g, int64_t timeout_ms) {
    int64_t deadline_ms = cr_deadline_ms(timeout_ms);
    int first = 0;
    struct cr_error failure = {0};
    while (g->handed != NULL) {
        int rc = end_oldest_handed(g, cr_time_left_ms(deadline_ms));
        if (rc == -EINPROGRESS) return first < 0 ? first : rc;
        if (rc < 0 && first == 0) {
            first = rc;
            failure = *rt_last_error();
        }
    }
    if (first < 0) *rt_last_error() = failure;
    return first;
}

void group_end_works(struct crunrt_group *g) {
    for (struct crunrt_work *w = g->works; w != NULL; w = w->next) (void) work_poll(w, 0);
    if (g->unfinished > 0 && g->broken.code == 0) {
        char words[128], first[8];
        (void) snprintf(words, sizeof(words),
                        "rank %d destroyed the group while %u of its operations were unfinished",
                        g->rank, g->unfinished);
        group_limit_store(g, 0);
        group_report_failure(g, words, first, sizeof(first));
        g->backend->abort(g->state);
    }
    for (struct crunrt_work *w = g->works, *next; w != NULL; w = next) {
        next = w->next;
        release(w);
        w->group = NULL;
        if (w->is_over) continue;
        w->is_over = true;
        struct cr_error err;
        (void) cr_fail(&err, -ECONNRESET,
                       "%s in group '%s': the group was destroyed before the operation was over",
                       w->call.what, g->name);
        set_failure(w, &err);
    }
    for (struct crunrt_work *w = g->handed, *next; w != NULL; w = next) {
        next = w->next_handed;
        free(w->failure);
        free(w);
    }
}

/* ---- starting works ---- */

static int check_room(const struct crunrt_group *g, const char *what, size_t count,
                      struct cr_error *err) {
    if (g->unfinished + count <= CRUNRT_WORKS_MAX) return 0;
    return cr_fail(err, -EAGAIN, "start %s: %d works are unfinished; wait for some first", what,
                   CRUNRT_WORKS_MAX);
}

static int start(struct crunrt_group *g, const crunrt_op *op, struct crunrt_work *w,
                 struct cr_error *err) {
    int rc = group_call_prepare(g, op, &w->call);
    if (rc == 0) rc = check_room(g, w->call.what, 1, err);
    if (rc < 0) return rc;
    w->is_over = op_is_empty(&w->call.op);
    rc = group_call_begin(g, &w->call, err);
    if (rc == 0 && !w->is_over) rc = g->backend->start(g->state, &w->call.backend, &w->state, err);
    if (rc < 0 || w->is_over) rc = group_outcome(g, &w->call, rc, err);
    else group_progress_leave(g, true);
    if (rc == 0) group_call_count(g, &w->call);
    return rc;
}

int crunrt_group_start(crunrt_group *group, const crunrt_op *op, crunrt_work **out) {
    if (out == NULL) return rt_fail_null("start an operation", "out");
    struct crunrt_work *w = work_new(0, rt_last_error());
    if (w == NULL) return -ENOMEM;
    int rc = start(group, op, w, rt_last_error());
    if (rc < 0) {
        free(w);
        return rc;
    }
    join_group(w, group);
    *out = w;
    return 0;
}

/* Starts the operations of a batch one by one, for a backend that cannot start them as one work.
 * Normally a refusal (-EINVAL, -ENOTSUP) leaves the group intact. But if an operation after the
 * first one is refused, others already run, so the refusal becomes -EIO, which breaks the group. */
static int start_each(struct crunrt_group *g, struct crunrt_work *w,
                      const struct backend_call *list, size_t used, struct cr_error *err) {
    for (size_t i = 0; i < used; i++) {
        int rc = g->backend->start(g->state, &list[i], i == 0 ? &w->state : &w->parts[i - 1].state,
                                   err);
        if (rc < 0 && i > 0 && (rc == -EINVAL || rc == -ENOTSUP)) err->code = rc = -EIO;
        if (rc < 0) return rc;
    }
    return 0;
}

static int start_batch(struct crunrt_group *g, struct crunrt_work *w, struct group_call *calls,
                       size_t count, const struct backend_call *list, size_t used) {
    struct cr_error *err = rt_last_error();
    w->group = g;
    for (size_t i = 0; i < count; i++) {
        calls[i].flight = flight_begin(g->name, calls[i].backend.seq, &calls[i].op);
        group_call_announce(g, &calls[i]);
        if (i > 0) w->parts[i - 1].flight = calls[i].flight;
    }
    int rc = 0;
    if (used > 0 && g->backend->start_batch != NULL)
        rc = g->backend->start_batch(g->state, list, used, &w->state, err);
    else if (used > 0)
        rc = start_each(g, w, list, used, err);
    w->call = calls[0];
    (void) snprintf(w->call.what, sizeof(w->call.what), "batch of %zu messages", count);
    w->is_over = used == 0;
    for (size_t i = 0; i < count; i++) {
        if (rc == 0) group_call_count(g, &calls[i]);
        if (i > 0 && (rc < 0 || w->is_over)) flight_end(calls[i].flight, rc == 0);
    }
    if (rc < 0 || w->is_over) rc = group_outcome(g, &w->call, rc, err);
    else group_progress_leave(g, true);
    if (rc < 0) release(w);
    return rc;
}

int crunrt_group_start_batch(crunrt_group *group, const crunrt_op *ops, size_t count,
                             crunrt_work **out) {
    struct cr_error *err = rt_last_error();
    size_t used = 0;
    if (group == NULL) return rt_fail_null("start a batch", "the group");
    if (out == NULL) return rt_fail_null("start a batch", "out");
    if (ops == NULL || count == 0 || count > CRUNRT_WORKS_MAX) {
        return cr_fail(err, -EINVAL, "start a batch: no operations, or more than %d",
                       CRUNRT_WORKS_MAX);
    }
    CR_AUTO_FREE struct group_call *calls = calloc(count, sizeof(*calls));
    CR_AUTO_FREE struct backend_call *list = calloc(count, sizeof(*list));
    struct crunrt_work *w = work_new(count - 1, err);
    if (calls == NULL || list == NULL || w == NULL) {
        free(w);
        return cr_fail(err, -ENOMEM, "start a batch: out of memory");
    }
    w->more = count - 1;
    int rc = group_prepare_batch(group, ops, count, calls, list, &used);
    if (rc == 0) rc = check_room(group, "a batch", 1, err);
    if (rc == 0) rc = start_batch(group, w, calls, count, list, used);
    if (rc < 0) {
        free(w);
        return rc;
    }
    join_group(w, group);
    *out = w;
    return 0;
}

/* ---- tests and waits ---- */

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

int crunrt_work_wait_stream(crunrt_work *work, void *stream) {
    if (work == NULL) return rt_fail_null("make a stream wait for a work", "the work");
    struct cr_error *err = rt_last_error();
    if (work->is_over || work->group->backend->wait_stream == NULL)
        return work_poll(work, CR_FOREVER);
    if (stream == NULL) stream = work->group->stream;
    int rc = work->group->backend->wait_stream(work->state, stream, err);
    if (rc == 0) {
        work->is_handed = true;
        return 0;
    }
    if (rc == -EINVAL) return cr_wrap(err, "make a stream wait for %s", work->call.what);
    work->is_over = true;
    work->group->unfinished--;
    rc = group_outcome(work->group, &work->call, rc, err);
    err->code = rc;
    set_failure(work, err);
    return rc;
}

void crunrt_work_free(crunrt_work *work) {
    if (work == NULL) return;
    if (work->is_handed && !work->is_over) {
        hand_over(work);
        return;
    }
    (void) work_poll(work, CR_FOREVER);
    free_work(work);
}

/* ---- operations that only streams wait for ---- */

/* Call this before another operation is enqueued. If CRUNRT_WORKS_MAX works are unfinished, it
 * waits until the oldest work that was handed over has ended. At times (see HANDED_LOOK_EVERY), it
 * frees all works that were handed over and have ended. */
static void tidy_handed(struct crunrt_group *g) {
    if (g->unfinished >= CRUNRT_WORKS_MAX && g->handed != NULL)
        (void) end_oldest_handed(g, CR_FOREVER);
    if (g->unfinished % HANDED_LOOK_EVERY == 0 && g->handed != NULL) (void) end_all_handed(g, 0);
}

int crunrt_group_enqueue(crunrt_group *group, const crunrt_op *op) {
    if (group != NULL && group->backend->wait_stream == NULL) return crunrt_group_run(group, op);
    crunrt_work *w = NULL;
    if (group != NULL) tidy_handed(group);
    int rc = crunrt_group_start(group, op, &w);
    if (rc < 0) return rc;
    rc = crunrt_work_wait_stream(w, w->call.op.stream);
    crunrt_work_free(w);
    return rc;
}

int crunrt_group_wait(crunrt_group *group, int64_t timeout_ms) {
    if (group == NULL) return rt_fail_null("wait for a group", "the group");
    struct cr_error *err = rt_last_error();
    int rc = end_all_handed(group, rt_timeout(timeout_ms, CR_FOREVER));
    if (rc == -EINPROGRESS) {
        return cr_fail(err, -EAGAIN, "wait for group '%s': operations are not over after %lld ms",
                       group->name, (long long) timeout_ms);
    }
    if (rc == 0 && group->broken.code != 0) {
        *err = group->broken;
        rc = -EPIPE;
    }
    return rc;
}
