/* The end of communicators.
 *
 * A communicator that has failed is aborted. It is not finalized or destroyed, because both wait
 * for the other ranks. Abort, finalize, destroy and cudaFree() wait for all kernels of the device,
 * so each of these calls may hang. Therefore a separate thread makes them, and the caller waits for
 * that thread only for a limited time. */
#include "worker_runtime/backends/nccl/nccl_internal.h"

#include "base/text/parse.h"
#include "base/time/clock.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

#define ABORT_TIMEOUT_MS    INT64_C(30000) /* default; CRUNRT_NCCL_ABORT_TIMEOUT_MS replaces it */
#define FINALIZE_TIMEOUT_MS INT64_C(60000)

static atomic_int wedged_comms; /* number of communicators whose abort or close could not start, or
                                 * exceeded its time limit and has not returned yet */
static atomic_int aborts;       /* number of aborts that this process has begun; one abort may be of
                                 * several communicators */

bool has_wedged_comm(void) { return atomic_load(&wedged_comms) > 0; }
int abort_count(void) { return atomic_load(&aborts); }

static int64_t abort_timeout_ms(void) {
    int64_t ms = ABORT_TIMEOUT_MS;
    const char *text = getenv("CRUNRT_NCCL_ABORT_TIMEOUT_MS");
    if (text != NULL && cr_parse_i64(text, 1, INT_MAX, &ms) < 0) ms = ABORT_TIMEOUT_MS;
    return ms;
}

bool has_comm(struct nccl_state *s) {
    nccl_lock();
    bool has = s->comm != NULL;
    nccl_unlock();
    return has;
}

void set_connected(struct nccl_state *s) {
    nccl_lock();
    s->is_connected = true;
    nccl_unlock();
}

/* ---- jobs ---- */

/* A task for a separate thread. The thread and the caller that waits for it both use the job. If
 * the caller gives up waiting, the thread frees the job, else the caller does. */
struct job {
    void (*run)(struct job *j);
    /* If the caller has given up waiting, the thread calls run_late() after run(), with nccl_lock()
     * held. */
    void (*run_late)(struct job *j);
    struct nccl_state *states; /* a list, linked by next_in_job */
    ncclComm_t *comms;         /* the communicators of a job that aborts; NULL in a job that closes
                                * one */
    int count;                 /* how many communicators the job aborts, keeps or closes */
    struct nccl_state *keeper; /* the state whose communicator, kept_comm, is not aborted but
                                * revoked and kept; NULL if the job keeps none */
    ncclComm_t kept_comm;
    bool is_done, is_abandoned; /* is_abandoned: true if the caller has given up waiting; both
                                 * are guarded by nccl_lock() */
};

static void job_free(struct job *j) {
    free(j->comms);
    free(j);
}

static void *run_job(void *arg) {
    struct job *j = arg;
    const struct nccl_api *api = j->states->api;
    int mode = CUDA_CAPTURE_RELAXED;
    (void) api->cuThreadExchangeStreamCaptureMode(&mode);
    (void) api->cuCtxSetCurrent(j->states->context);
    j->run(j);
    nccl_lock();
    j->is_done = true;
    bool is_abandoned = j->is_abandoned;
    if (is_abandoned) {
        /* The task has ended, although only after its time limit, so its communicators are no
         * longer counted as wedged. */
        (void) atomic_fetch_sub(&wedged_comms, j->count);
        j->run_late(j);
    }
    nccl_changed();
    nccl_unlock();
    if (is_abandoned) job_free(j);
    return NULL;
}

/* Starts a thread with all signals blocked, so that the program's signals are not delivered to it.
 */
static int start_thread(struct job *j) {
    sigset_t all, before;
    pthread_t thread;
    (void) sigfillset(&all);
    (void) pthread_sigmask(SIG_BLOCK, &all, &before);
    int rc = pthread_create(&thread, NULL, run_job, j);
    (void) pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc == 0) (void) pthread_detach(thread);
    return rc;
}

/* Runs the job in a separate thread, and waits for it at most timeout_ms. Returns true if the job
 * is done and has been freed. Returns false if the job is not done; its thread frees it when it
 * ends. If no thread can be started, frees the job without running it and returns false. */
static bool run_with_limit(struct job *j, int64_t timeout_ms) {
    if (start_thread(j) != 0) {
        (void) atomic_fetch_add(&wedged_comms, j->count);
        job_free(j);
        return false;
    }
    int64_t deadline_ms = cr_deadline_ms(timeout_ms);
    nccl_lock();
    while (!j->is_done && nccl_wait_change(deadline_ms)) {
    }
    bool is_done = j->is_done;
    j->is_abandoned = !is_done;
    if (!is_done) (void) atomic_fetch_add(&wedged_comms, j->count);
    nccl_unlock();
    if (is_done) job_free(j);
    return is_done;
}

/* ---- aborts ---- */

/* Waits until no thread is in a call of NCCL with one of the communicators. */
static void wait_for_calls(const struct job *j) {
    nccl_lock();
    for (const struct nccl_state *s = j->states; s != NULL; s = s->next_in_job)
        while (s->inside > 0) (void) nccl_wait_change(INT64_MAX);
    nccl_unlock();
}

/* Call this after the ncclGroupEnd() of run_abort(). `r` is the result of the revocation. Keeps the
 * communicator that was revoked; or aborts it if the revocation has failed. Does nothing if the job
 * keeps no communicator. */
static void keep_or_abort(struct job *j, ncclResult_t r) {
    if (j->keeper == NULL) return;
    if (r == ncclSuccess)
        reform_keep(j->keeper, j->kept_comm);
    else
        (void) j->states->api->ncclCommAbort(j->kept_comm);
}

/* Aborts the communicators of the job, except the one that is kept, which is revoked. With NCCL
 * 2.22 and later all aborts are between one ncclGroupStart() and ncclGroupEnd(). In such a group,
 * ncclCommAbort() only marks a communicator as aborted, so that its kernels and calls end, and
 * ncclGroupEnd() frees the communicators. So before ncclGroupEnd() this function waits until no
 * thread is in a call with one of the communicators. */
static void run_abort(struct job *j) {
    const struct nccl_api *api = j->states->api;
    bool is_grouped = api->nccl_version >= NCCL_GROUPED_ABORT;
    if (is_grouped) (void) api->ncclGroupStart();
    ncclResult_t revoked = j->keeper != NULL ? api->ncclCommRevoke(j->kept_comm, 0) : ncclSuccess;
    for (int i = 0; i < j->count; i++)
        if (j->keeper == NULL || j->comms[i] != j->kept_comm)
            (void) api->ncclCommAbort(j->comms[i]);
    if (!is_grouped) return;
    wait_for_calls(j);
    ncclResult_t end = api->ncclGroupEnd();
    keep_or_abort(j, revoked != ncclSuccess ? revoked : end);
}

/* The run_late() of an abort. Does nothing: the states are not freed, because their groups may
 * still use them. */
static void late_abort(struct job *j) { (void) j; }

struct collection {
    struct nccl_state *states, **end;
    int count;
};

/* Adds the state to those whose communicators are aborted together. Does nothing if the state has
 * no communicator or its abort has already begun. */
static void add_to(struct collection *c, struct nccl_state *s) {
    if (s->comm == NULL || s->is_aborting) return;
    s->is_aborting = true;
    s->next_in_job = NULL;
    *c->end = s;
    c->end = &s->next_in_job;
    c->count++;
}

static void add_connected(struct nccl_state *s, void *collection) {
    if (s->is_connected) add_to(collection, s);
}

/* Makes a job that aborts the communicators of the collected states. Returns NULL if memory is
 * short. */
static struct job *abort_job_new(const struct collection *c) {
    struct job *j = calloc(1, sizeof(*j));
    ncclComm_t *comms = calloc((size_t) c->count, sizeof(*comms));
    if (j == NULL || comms == NULL) {
        free(j);
        free(comms);
        return NULL;
    }
    *j = (struct job){.run = run_abort, .run_late = late_abort, .states = c->states,
                      .comms = comms};
    for (struct nccl_state *s = c->states; s != NULL; s = s->next_in_job) {
        comms[j->count++] = s->comm;
        if (j->keeper != NULL || !s->is_connected || !reform_wants(s)) continue;
        j->keeper = s;
        j->kept_comm = s->comm;
    }
    return j;
}

/* The list of all states whose abort exceeded its time limit or could not start. Neither these
 * states nor their CUDA objects are freed, because cudaFree() would wait for the kernel for which
 * the abort waits. The list exists so that a debugger and a leak checker find the states. */
static struct nccl_state *last_wedged;

static void finish_abort(struct nccl_state *states, bool is_done) {
    nccl_lock();
    for (struct nccl_state *s = states; s != NULL; s = s->next_in_job) {
        s->is_aborting = false;
        if (is_done) continue;
        s->is_wedged = true;
        s->wedged_before = last_wedged;
        last_wedged = s;
    }
    nccl_changed();
    nccl_unlock();
}

void abort_because(struct nccl_state *s, const struct cr_error *reason) {
    struct collection c = {.end = &c.states};
    nccl_lock();
    while (s->is_aborting) (void) nccl_wait_change(INT64_MAX);
    if (s->is_connected && s->comm != NULL) overseer_each(add_connected, &c);
    if (!s->is_connected) add_to(&c, s);
    struct job *j = c.count > 0 ? abort_job_new(&c) : NULL;
    if (c.count > 0 && reason != NULL) s->failure = *reason;
    for (struct nccl_state *at = c.states; at != NULL; at = at->next_in_job) at->comm = NULL;
    nccl_unlock();
    if (c.count == 0) return;
    (void) atomic_fetch_add(&aborts, 1);
    if (j == NULL) (void) atomic_fetch_add(&wedged_comms, c.count);
    finish_abort(c.states, j != NULL && run_with_limit(j, abort_timeout_ms()));
}

void nccl_abort(void *arg) { abort_because(arg, NULL); }

/* ---- closing ---- */

static int no_failure(void *arg, struct cr_error *err) {
    (void) arg;
    (void) err;
    return 0;
}

static bool never_over(void *arg) {
    (void) arg;
    return false;
}

static void no_report(void *arg, const char *text) {
    (void) arg;
    (void) text;
}

/* Finalizes and destroys a communicator. Returns false if this fails; the caller must then abort
 * the communicator. */
static bool finalize(struct nccl_state *s) {
    struct cr_error ignored;
    ncclComm_t comm = NULL;
    int64_t deadline_ms = cr_deadline_ms(FINALIZE_TIMEOUT_MS);
    if (call_begin(s, &comm, "finalize", FINALIZE_TIMEOUT_MS, deadline_ms, &ignored) < 0)
        return false;
    ncclResult_t r = s->api->ncclCommFinalize(comm);
    if (call_end(s, &ignored) < 0 || (r != ncclSuccess && r != ncclInProgress)) return false;
    if (wait_for_comm(s, &s->store, "finalize", FINALIZE_TIMEOUT_MS, deadline_ms, &ignored) < 0)
        return false;
    nccl_lock();
    comm = s->comm;
    s->comm = NULL;
    nccl_unlock();
    if (comm != NULL) (void) s->api->ncclCommDestroy(comm);
    return true;
}

/* Ends the communicator, if an abort has not ended it before, and frees what the state has on the
 * device. The communicator is normally finalized. It is aborted if finalize fails, or if a
 * communicator of this process has been aborted since this state was made: in that case a peer may
 * be gone, and finalize would wait for the peer. */
static void run_close(struct job *j) {
    struct nccl_state *s = j->states;
    if (has_comm(s) && (abort_count() != s->aborts_before || !finalize(s))) nccl_abort(s);
    overseer_remove(s);
    if (!s->is_wedged) release_device(s);
    free_launches(s);
}

static void late_close(struct job *j) {
    if (!j->states->is_wedged) state_free(j->states);
}

/* If the process may rejoin, and another rank has reported a failure or the round is over, aborts
 * the communicator; the abort keeps the communicator for the next round if reform_wants() allows
 * that. Without the abort, nccl_close() would finalize the communicator, and wait for ranks that
 * have aborted theirs. */
static void abort_if_round_is_over(struct nccl_state *s) {
    struct cr_error ignored;
    if (!s->may_rejoin || !s->is_connected || !has_comm(s)) return;
    if (s->store.peek(s->store.arg, &ignored) < 0) nccl_abort(s);
}

void nccl_close(void *arg) {
    struct nccl_state *s = arg;
    if (s->api == NULL || s->context == NULL) {
        state_free(s);
        return;
    }
    abort_if_round_is_over(s);
    nccl_lock();
    /* Waits until neither an abort nor the overseer uses the state. After that, an abort of other
     * communicators does not include this one, and no thread uses the group's store for this
     * communicator. So the caller may free the group. */
    while (s->is_aborting || s->pins > 0) (void) nccl_wait_change(INT64_MAX);
    s->is_connected = false;
    s->store.failed = no_failure;
    s->store.peek = no_failure;
    s->store.report = no_report;
    s->store.is_over = never_over;
    nccl_unlock();
    if (s->is_wedged) {
        overseer_remove(s);
        return;
    }
    struct job *j = calloc(1, sizeof(*j));
    /* if memory is short, the communicator stays open until the process ends */
    if (j == NULL) return;
    *j = (struct job){.run = run_close, .run_late = late_close, .states = s, .count = 1};
    s->next_in_job = NULL;
    if (run_with_limit(j, FINALIZE_TIMEOUT_MS + abort_timeout_ms()) && !s->is_wedged) state_free(s);
}
