/* Launches: one operation, or several sends and receives, that are put on a stream together.
 *
 * A launch runs on the communicator's own stream, after what is on the caller's stream: an event is
 * recorded on the caller's stream, and the own stream waits for this event. A second event is
 * recorded after the launch; it is complete when the launch is complete, and a caller's stream can
 * be made to wait for it. The functions that put a launch on a stream do not wait for the GPU.
 *
 * NCCL runs the operations of one communicator one after the other. So if two ranks each started a
 * receive from the other and after it a send, the receives would block the sends, and both ranks
 * would wait for ever. Therefore started sends and receives are only collected (`pending`). The
 * next call that does not start a send or receive puts them on the stream, as one group of NCCL. */
#include "worker_runtime/backends/nccl/nccl_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct launch {
    struct nccl_state *s;
    struct launch *next; /* next launch in the state's list of incomplete launches, or in its list
                          * of spare launches */
    cudaEvent_t done;    /* event that is recorded after the launch; complete when the launch is
                          * complete */
    int refs;            /* number of references: of works, and of the state's list; guarded by
                          * nccl_lock() */
    bool is_captured;    /* true if the launch is part of a CUDA graph; no work can wait for its
                          * end */
    bool is_listed;      /* true if the launch is in the state's list of incomplete launches;
                          * guarded by nccl_lock() */
    bool is_complete;    /* guarded by nccl_lock() */
    /* timeout and deadline in ms of the operation of this launch that has the earliest deadline */
    int64_t timeout_ms, deadline_ms;
    /* In a pending launch, `calls` and `ops` are copies of its `count` operations. Both arrays have
     * memory for `room` operations. */
    size_t count, room;
    struct backend_call *calls;
    crunrt_op *ops;
};

struct nccl_work {
    struct launch *launch;
    int64_t timeout_ms, deadline_ms;
};

/* ---- the device of this thread ---- */

/* Makes the state's context the current one of this thread, until leave_context(s, *before). Stores
 * the thread's context in *before. Returns 0; or a negative errno, and sets err. */
static int enter_context(struct nccl_state *s, void **before, struct cr_error *err) {
    const struct nccl_api *api = s->api;
    int e = api->cuCtxGetCurrent(before);
    if (e == 0 && *before != s->context) e = api->cuCtxSetCurrent(s->context);
    return e == 0 ? 0 : fail_cuda(api, e, -EIO, err, "use the GPU");
}

static void leave_context(struct nccl_state *s, void *before) {
    if (before != s->context) (void) s->api->cuCtxSetCurrent(before);
}

int visit_begin(struct nccl_state *s, struct visit *v, struct cr_error *err) {
    v->mode = CUDA_CAPTURE_RELAXED;
    int rc = enter_context(s, &v->context, err);
    if (rc < 0) return rc;
    int e = s->api->cuThreadExchangeStreamCaptureMode(&v->mode);
    return e == 0 ? 0 : fail_cuda(s->api, e, -EIO, err, "use the GPU");
}

void visit_end(struct nccl_state *s, const struct visit *v) {
    int mode = v->mode;
    (void) s->api->cuThreadExchangeStreamCaptureMode(&mode);
    leave_context(s, v->context);
}

/* ---- making and freeing launches ---- */

static struct launch *launch_new(struct nccl_state *s, struct cr_error *err) {
    nccl_lock();
    struct launch *l = s->spare;
    if (l != NULL) s->spare = l->next;
    nccl_unlock();
    if (l == NULL) {
        l = calloc(1, sizeof(*l));
        int e = l != NULL ? s->api->cuEventCreate(&l->done, CUDA_EVENT_NO_TIMING) : 0;
        if (l == NULL || e != 0) {
            (void) (l == NULL ? cr_fail(err, -ENOMEM, "start an operation: out of memory")
                              : fail_cuda(s->api, e, -EIO, err, "make an event"));
            free(l);
            return NULL;
        }
    }
    l->s = s;
    l->next = NULL;
    l->refs = 1;
    l->is_captured = l->is_complete = l->is_listed = false;
    l->deadline_ms = INT64_MAX;
    l->count = 0;
    return l;
}

/* Call this with nccl_lock() held. */
static void launch_unref(struct launch *l) {
    if (--l->refs > 0) return;
    l->next = l->s->spare;
    l->s->spare = l;
}

static void drop(struct launch *l) {
    nccl_lock();
    launch_unref(l);
    nccl_unlock();
}

static void free_list(struct nccl_state *s, struct launch *l) {
    for (struct launch *next; l != NULL; l = next) {
        next = l->next;
        if (!s->is_wedged) (void) s->api->cuEventDestroy(l->done);
        free(l->calls);
        free(l->ops);
        free(l);
    }
}

void free_launches(struct nccl_state *s) {
    if (s->pending != NULL) free_list(s, s->pending);
    free_list(s, s->oldest);
    free_list(s, s->spare);
    s->pending = s->oldest = s->spare = NULL;
}

static void limit(struct launch *l, const crunrt_op *op) {
    int64_t deadline_ms = cr_deadline_ms(op->timeout_ms);
    if (deadline_ms >= l->deadline_ms && l->deadline_ms != INT64_MAX) return;
    l->timeout_ms = op->timeout_ms;
    l->deadline_ms = deadline_ms;
}

/* ---- the order of the streams ---- */

static cudaStream_t callers_stream(const struct nccl_state *s, const crunrt_op *op) {
    cudaStream_t stream = op->stream != NULL ? op->stream : s->caller_stream;
    return stream != NULL ? stream : CUDA_STREAM_LEGACY;
}

/* Sets *captured to whether the stream is being captured. Returns 0; -EINVAL for a handle that is
 * no stream, and for the default stream during a capture of a stream that waits for the default
 * stream; -EIO or -ENOTRECOVERABLE for any other error of CUDA. */
static int look_at_stream(struct nccl_state *s, cudaStream_t stream, bool *captured,
                          struct cr_error *err) {
    int status = CUDA_CAPTURE_NONE;
    int e = s->api->cuStreamIsCapturing(stream, &status);
    *captured = e == 0 && status != CUDA_CAPTURE_NONE;
    if (e == 0) return 0;
    if (e == CUDA_INVALID_HANDLE || e == CUDA_INVALID_VALUE)
        return cr_fail(err, -EINVAL, "the stream %p is not a stream", (void *) stream);
    if (e == CUDA_CAPTURE_IMPLICIT) {
        return cr_fail(err, -EINVAL,
                       "CUDA's default stream cannot be used while a stream that waits for it is "
                       "captured; name another stream");
    }
    return fail_cuda(s->api, e, -EIO, err, "look at the stream");
}

/* Makes all later operations on the stream `later` run after what is on the stream `earlier` now.
 * For this, `event` is recorded on `earlier`. */
static int order(struct nccl_state *s, cudaStream_t later, cudaEvent_t event, cudaStream_t earlier,
                 struct cr_error *err) {
    int e = s->api->cuEventRecord(event, earlier);
    if (e == 0) e = s->api->cuStreamWaitEvent(later, event, 0);
    if (CUDA_IS_CAPTURE_ERROR(e))
        return fail_cuda(s->api, e, -EINVAL, err, "take part in the capture of the stream");
    return e == 0 ? 0 : fail_cuda(s->api, e, -EIO, err, "order the streams");
}

static cudaStream_t stream_of(const struct launch *l) {
    return l->is_captured ? l->s->captured : l->s->own;
}

/* ---- putting a launch on the stream ---- */

static void append(struct nccl_state *s, struct launch *l) {
    nccl_lock();
    l->next = NULL;
    l->refs++;
    l->is_listed = true;
    if (s->oldest == NULL)
        s->oldest = l;
    else
        s->newest->next = l;
    s->newest = l;
    nccl_unlock();
    overseer_wake();
}

static bool is_good(ncclResult_t r) { return r == ncclSuccess || r == ncclInProgress; }

/* Makes the calls of NCCL for the launch. If there are several calls, all of them sends and
 * receives, they are made in one group of NCCL, so that they run together. */
static ncclResult_t call_nccl(struct launch *l, ncclComm_t comm, const struct backend_call *calls,
                              size_t count) {
    struct nccl_state *s = l->s;
    ncclResult_t r = count > 1 ? s->api->ncclGroupStart() : ncclSuccess;
    for (size_t i = 0; i < count && is_good(r); i++)
        r = enqueue(s, comm, &calls[i], stream_of(l));
    if (count > 1) {
        ncclResult_t end = s->api->ncclGroupEnd();
        if (is_good(r)) r = end;
    }
    return r;
}

/* Call this after a launch that is captured. Makes the caller's stream of each call wait for the
 * launch. The reason: the launch's own stream has become part of the capture, and CUDA requires
 * that the captured stream waits for every such stream before the capture ends. */
static int join_captured(struct launch *l, const struct backend_call *calls, size_t count,
                         struct cr_error *err) {
    const struct nccl_api *api = l->s->api;
    for (size_t i = 0; i < count; i++) {
        int e = api->cuStreamWaitEvent(callers_stream(l->s, calls[i].op), l->done, 0);
        if (e != 0) return fail_cuda(api, e, -EIO, err, "join the captured stream");
    }
    nccl_lock();
    l->s->has_graphs = l->is_complete = true;
    nccl_unlock();
    overseer_wake();
    return 0;
}

static int put(struct launch *l, const struct backend_call *calls, size_t count,
               struct cr_error *err) {
    struct nccl_state *s = l->s;
    ncclComm_t comm = NULL;
    int rc = call_begin(s, &comm, "enqueue", l->timeout_ms, l->deadline_ms, err);
    if (rc < 0) return rc;
    ncclResult_t r = call_nccl(l, comm, calls, count);
    rc = call_end(s, err);
    if (rc < 0) return rc;
    if (!is_good(r)) return fail_nccl(s->api, s, r, err, "enqueue");
    if (r == ncclInProgress)
        rc = wait_for_comm(s, &s->store, "enqueue", l->timeout_ms, l->deadline_ms, err);
    if (rc < 0) return rc;
    int e = s->api->cuEventRecord(l->done, stream_of(l));
    if (e != 0) return fail_cuda(s->api, e, -EIO, err, "record the end of the operation");
    if (l->is_captured) return join_captured(l, calls, count, err);
    append(s, l);
    return 0;
}

/* Puts the pending sends and receives on the stream. Returns 0, also if there are none. On error it
 * returns a negative errno and sets err. */
static int flush(struct nccl_state *s, struct cr_error *err) {
    struct launch *l = s->pending;
    if (l == NULL) return 0;
    s->pending = NULL;
    int rc = put(l, l->calls, l->count, err);
    drop(l);
    return rc;
}

int nccl_flush(struct nccl_state *s, struct cr_error *err) {
    struct visit v;
    if (s->pending == NULL) return 0;
    int rc = visit_begin(s, &v, err);
    if (rc < 0) return rc;
    rc = flush(s, err);
    visit_end(s, &v);
    return rc;
}

/* Checks the calls, makes a launch for them, and makes the launch's stream wait for what is on the
 * callers' streams now. */
static int prepare(struct nccl_state *s, const struct backend_call *calls, size_t count,
                   struct launch **out, struct cr_error *err) {
    int rc = 0;
    bool captured = false, other = false;
    for (size_t i = 0; i < count && rc == 0; i++) {
        rc = check_call(s, &calls[i], err);
        if (rc == 0)
            rc = look_at_stream(s, callers_stream(s, calls[i].op), i == 0 ? &captured : &other,
                                err);
        if (rc == 0 && i > 0 && other != captured)
            rc = cr_fail(err, -EINVAL, "some streams of the batch are captured and some are not");
    }
    if (rc < 0) return rc;
    struct launch *l = launch_new(s, err);
    if (l == NULL) return err->code;
    l->is_captured = captured;
    for (size_t i = 0; i < count && rc == 0; i++) {
        limit(l, calls[i].op);
        rc = order(s, stream_of(l), s->ready, callers_stream(s, calls[i].op), err);
    }
    if (rc < 0) {
        drop(l);
        return rc;
    }
    *out = l;
    return 0;
}

static int launch_now(struct nccl_state *s, const struct backend_call *calls, size_t count,
                      struct launch **out, struct cr_error *err) {
    int rc = flush(s, err);
    if (rc == 0) rc = prepare(s, calls, count, out, err);
    if (rc < 0) return rc;
    rc = put(*out, calls, count, err);
    if (rc < 0) drop(*out);
    return rc;
}

/* ---- sends and receives that wait for others ---- */

static bool grow(struct launch *l) {
    size_t room = l->room == 0 ? 8 : 2 * l->room;
    struct backend_call *calls = realloc(l->calls, room * sizeof(*calls));
    if (calls != NULL) l->calls = calls;
    crunrt_op *ops = calls != NULL ? realloc(l->ops, room * sizeof(*ops)) : NULL;
    if (ops == NULL) return false;
    l->ops = ops;
    l->room = room;
    for (size_t i = 0; i < l->count; i++) l->calls[i].op = &ops[i];
    return true;
}

/* Adds a send or receive to the pending launch, and stores that launch in *out. The caller gets a
 * reference to it. */
static int collect(struct nccl_state *s, const struct backend_call *call, struct launch **out,
                   struct cr_error *err) {
    struct launch *l = NULL;
    int rc = prepare(s, call, 1, &l, err);
    if (rc == 0 && s->pending != NULL && s->pending->is_captured != l->is_captured)
        rc = flush(s, err);
    if (rc < 0) {
        if (l != NULL) drop(l);
        return rc;
    }
    if (s->pending == NULL) {
        s->pending = l;
    } else {
        /* The call is added to the launch that is already pending, so the new launch `l` is not
         * needed. The own stream still waits for the caller's stream, as prepare() has arranged. */
        drop(l);
        l = s->pending;
        limit(l, call->op);
    }
    if (l->count == l->room && !grow(l))
        return cr_fail(err, -ENOMEM, "start an operation: out of memory");
    l->ops[l->count] = *call->op;
    l->calls[l->count] = *call;
    l->calls[l->count].op = &l->ops[l->count];
    l->count++;
    nccl_lock();
    l->refs++;
    nccl_unlock();
    *out = l;
    return 0;
}

/* ---- the end of a launch ---- */

/* Call this with nccl_lock() held. Marks the launch and all older launches in the list as complete,
 * and removes them from the list. The older launches are complete, too, because they are in front
 * of this one on the same stream. */
static void complete(struct launch *l) {
    struct nccl_state *s = l->s;
    l->is_complete = true;
    while (l->is_listed) {
        struct launch *first = s->oldest;
        s->oldest = first->next;
        first->is_listed = false;
        first->is_complete = true;
        launch_unref(first);
    }
}

int look_at_launch(struct launch *l, struct cr_error *err) {
    struct nccl_state *s = l->s;
    nccl_lock();
    bool is_complete = l->is_complete;
    int rc = is_complete ? 0 : s->comm == NULL ? fail_gone(s, err) : -EINPROGRESS;
    nccl_unlock();
    if (rc != -EINPROGRESS) return rc;
    int e = s->api->cuEventQuery(l->done);
    if (e == CUDA_NOT_READY) {
        rc = look_at_comm(s, "the operation failed", err);
        return rc == 0 ? -EINPROGRESS : rc;
    }
    if (e != 0) return fail_cuda(s->api, e, -EIO, err, "the operation failed on the GPU");
    nccl_lock();
    /* An abort ends the kernels of a communicator, and their events are complete although the data
     * is invalid. So the launch is complete only if the communicator has not been aborted. */
    rc = s->comm == NULL ? fail_gone(s, err) : 0;
    if (rc == 0) complete(l);
    nccl_unlock();
    return rc;
}

int look_at_oldest(struct nccl_state *s, int64_t *timeout_ms, int64_t *deadline_ms,
                   struct cr_error *err) {
    struct launch *l = s->oldest;
    if (l == NULL || s->comm == NULL) return -ENOENT;
    int e = s->api->cuEventQuery(l->done);
    *timeout_ms = l->timeout_ms;
    *deadline_ms = l->deadline_ms;
    if (e == CUDA_NOT_READY) return -EINPROGRESS;
    if (e != 0) return fail_cuda(s->api, e, -EIO, err, "an operation failed on the GPU");
    complete(l);
    return 0;
}

static void set_waited_for(struct nccl_state *s, bool value) {
    nccl_lock();
    s->is_waited_for = value;
    nccl_unlock();
}

static int wait_for_launch(struct launch *l, int64_t deadline_ms, int64_t timeout_ms,
                           struct cr_error *err) {
    struct wait w = wait_until(&l->s->store, deadline_ms);
    int rc = look_at_launch(l, err);
    if (rc != -EINPROGRESS) return rc;
    set_waited_for(l->s, true);
    while (rc == -EINPROGRESS) {
        rc = wait_turn(&w, "the operation", timeout_ms, err);
        if (rc == 0) rc = look_at_launch(l, err);
    }
    set_waited_for(l->s, false);
    return rc;
}

/* ---- functions in the backend's table ---- */

static int visit_and_run(struct nccl_state *s, const struct backend_call *calls, size_t count,
                         struct cr_error *err) {
    struct launch *l = NULL;
    struct visit v;
    int rc = visit_begin(s, &v, err);
    if (rc < 0) return rc;
    rc = launch_now(s, calls, count, &l, err);
    if (rc == 0) {
        rc = wait_for_launch(l, l->deadline_ms, l->timeout_ms, err);
        drop(l);
    }
    visit_end(s, &v);
    return rc;
}

int nccl_batch(void *arg, const struct backend_call *calls, size_t count, struct cr_error *err) {
    return visit_and_run(arg, calls, count, err);
}

int nccl_run(void *arg, const struct backend_call *call, struct cr_error *err) {
    return visit_and_run(arg, call, 1, err);
}

/* Makes a work for the launch. The work takes over the caller's reference to the launch; if memory
 * is short, this function drops the reference. */
static int work_new(struct launch *l, const crunrt_op *op, void **out, struct cr_error *err) {
    struct nccl_work *w = calloc(1, sizeof(*w));
    if (w == NULL) {
        drop(l);
        return cr_fail(err, -ENOMEM, "start an operation: out of memory");
    }
    *w = (struct nccl_work){l, op->timeout_ms, cr_deadline_ms(op->timeout_ms)};
    *out = w;
    return 0;
}

int nccl_start_batch(void *arg, const struct backend_call *calls, size_t count, void **out,
                     struct cr_error *err) {
    struct nccl_state *s = arg;
    struct launch *l = NULL;
    struct visit v;
    int rc = visit_begin(s, &v, err);
    if (rc < 0) return rc;
    rc = launch_now(s, calls, count, &l, err);
    if (rc == 0) rc = work_new(l, calls[0].op, out, err);
    visit_end(s, &v);
    return rc;
}

int nccl_start(void *arg, const struct backend_call *call, void **out, struct cr_error *err) {
    struct nccl_state *s = arg;
    struct launch *l = NULL;
    struct visit v;
    bool waits = call->op->kind == CRUNRT_OP_SEND || call->op->kind == CRUNRT_OP_RECV;
    int rc = visit_begin(s, &v, err);
    if (rc < 0) return rc;
    rc = waits ? collect(s, call, &l, err) : launch_now(s, call, 1, &l, err);
    if (rc == 0) rc = work_new(l, call->op, out, err);
    visit_end(s, &v);
    return rc;
}

int nccl_wait(void *arg, int64_t timeout_ms, struct cr_error *err) {
    struct nccl_work *w = arg;
    struct nccl_state *s = w->launch->s;
    struct visit v;
    int rc = visit_begin(s, &v, err);
    if (rc < 0) return rc;
    rc = w->launch == s->pending ? flush(s, err) : 0;
    if (rc == 0) rc = look_at_launch(w->launch, err);
    if (rc == -EINPROGRESS && (timeout_ms != 0 || cr_monotonic_ms() >= w->deadline_ms)) {
        int64_t until_ms = cr_deadline_ms(timeout_ms);
        if (until_ms > w->deadline_ms) until_ms = w->deadline_ms;
        rc = wait_for_launch(w->launch, until_ms, w->timeout_ms, err);
        if (rc == -ETIMEDOUT && cr_monotonic_ms() < w->deadline_ms) rc = -EINPROGRESS;
    }
    visit_end(s, &v);
    return rc;
}

/* Makes `stream` wait for the launch of the work `arg`. This function need not change the thread's
 * capture mode with visit_begin(), because CUDA allows cuStreamWaitEvent() in every mode. */
int nccl_wait_stream(void *arg, void *stream, struct cr_error *err) {
    struct nccl_work *w = arg;
    struct nccl_state *s = w->launch->s;
    void *before = NULL;
    int rc = w->launch == s->pending ? nccl_flush(s, err) : 0;
    if (rc == 0) rc = enter_context(s, &before, err);
    if (rc < 0) return rc;
    nccl_lock();
    if (rc == 0 && s->comm == NULL) rc = fail_gone(s, err);
    nccl_unlock();
    cudaStream_t later = stream != NULL ? stream : CUDA_STREAM_LEGACY;
    /* for a captured launch there is nothing to do: when it was put on its stream, the callers'
     * streams were made to wait for it */
    int e = rc == 0 && !w->launch->is_captured
                ? s->api->cuStreamWaitEvent(later, w->launch->done, 0)
                : 0;
    if (e == CUDA_INVALID_HANDLE || e == CUDA_INVALID_VALUE)
        rc = cr_fail(err, -EINVAL, "the stream %p is not a stream", stream);
    else if (e != 0)
        rc = fail_cuda(s->api, e, -EIO, err, "make the stream wait");
    leave_context(s, before);
    return rc;
}

void nccl_release(void *arg) {
    struct nccl_work *w = arg;
    drop(w->launch);
    free(w);
}
