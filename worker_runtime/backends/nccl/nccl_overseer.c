/* The overseer: one thread per process that ends calls and operations at their deadline when no
 * other thread can.
 *
 * A call of NCCL with a blocking communicator can wait for other ranks for ever: a call that
 * initialises, splits or finalizes a communicator, or the first operation of a kind, which connects
 * the ranks. An operation on a stream can run for ever, too, while the program waits for its stream
 * and not for the operation. In both cases the overseer aborts the communicators, so that the call
 * returns and the kernel ends.
 *
 * While there is a call of NCCL, an incomplete operation or a CUDA graph with operations, the
 * overseer checks all states every 100 ms. Otherwise it sleeps until overseer_wake(). To wake it
 * costs a system call, but while it is awake, the start of an operation makes none. */
#include "worker_runtime/backends/nccl/nccl_internal.h"

#include "base/time/clock.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define NEVER INT64_MAX

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed; /* uses the monotonic clock */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct nccl_state *watched; /* list of all states that the overseer watches; a parent
                                    * comes before its children */
static bool has_thread;
static atomic_bool is_asleep; /* true while the overseer waits for overseer_wake() */
/* true if overseer_wake() was called since the overseer last began to check the states */
static atomic_bool has_news;

/* ---- the lock ---- */

static void init_once(void) {
    pthread_condattr_t attr;
    (void) pthread_condattr_init(&attr);
    (void) pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void) pthread_cond_init(&changed, &attr);
    (void) pthread_condattr_destroy(&attr);
}

void nccl_lock(void) { (void) pthread_mutex_lock(&lock); }
void nccl_unlock(void) { (void) pthread_mutex_unlock(&lock); }
void nccl_changed(void) { (void) pthread_cond_broadcast(&changed); }

bool nccl_wait_change(int64_t deadline_ms) {
    struct timespec ts = {deadline_ms / 1000, deadline_ms % 1000 * CR_NS_PER_MS};
    if (deadline_ms != NEVER) return pthread_cond_timedwait(&changed, &lock, &ts) == 0;
    (void) pthread_cond_wait(&changed, &lock);
    return true;
}

/* ---- calls of NCCL ---- */

int fail_gone(const struct nccl_state *s, struct cr_error *err) {
    if (s->failure.code == 0)
        return cr_fail(err, -ECONNRESET, "the communicator was aborted when another group failed");
    if (err != NULL) *err = s->failure;
    return s->failure.code;
}

/* Call this with nccl_lock() held. */
static int enter(struct nccl_state *s, ncclComm_t *comm, struct cr_error *err) {
    while (s->is_inspected) (void) nccl_wait_change(NEVER);
    if (s->is_aborting || s->failure.code != 0 || (comm != NULL && s->comm == NULL))
        return fail_gone(s, err);
    s->inside++;
    if (comm != NULL) *comm = s->comm;
    return 0;
}

/* Call this with nccl_lock() held. */
static int leave(struct nccl_state *s, struct cr_error *err) {
    if (--s->inside == 0 && s->is_aborting) nccl_changed();
    return s->failure.code != 0 || s->is_aborting ? fail_gone(s, err) : 0;
}

int comm_take(struct nccl_state *s, ncclComm_t *comm, struct cr_error *err) {
    nccl_lock();
    int rc = enter(s, comm, err);
    nccl_unlock();
    return rc;
}

int comm_give(struct nccl_state *s, struct cr_error *err) {
    nccl_lock();
    int rc = leave(s, err);
    nccl_unlock();
    return rc;
}

bool inspect_begin(struct nccl_state *s, ncclComm_t *comm) {
    struct cr_error ignored;
    nccl_lock();
    s->is_inspected = s->inside == 0 && enter(s, comm, &ignored) == 0;
    bool begins = s->is_inspected;
    nccl_unlock();
    return begins;
}

int inspect_end(struct nccl_state *s, struct cr_error *err) {
    nccl_lock();
    s->is_inspected = false;
    int rc = leave(s, err);
    nccl_changed();
    nccl_unlock();
    return rc;
}

int call_begin(struct nccl_state *s, ncclComm_t *comm, const char *phase, int64_t timeout_ms,
               int64_t deadline_ms, struct cr_error *err) {
    int64_t now = cr_monotonic_ms();
    nccl_lock();
    int rc = enter(s, comm, err);
    if (rc == 0) {
        s->phase = phase;
        s->call_began_ms = now;
        s->call_timeout_ms = timeout_ms;
        s->call_deadline_ms = deadline_ms;
    }
    nccl_unlock();
    if (rc == 0) overseer_wake();
    return rc;
}

int call_end(struct nccl_state *s, struct cr_error *err) {
    nccl_lock();
    s->phase = NULL;
    int rc = leave(s, err);
    nccl_unlock();
    return rc;
}

/* ---- what the overseer sees ---- */

/* Returns true, and sets *cause, if the state's call of NCCL is past its deadline, if an operation
 * has failed, or if an operation for which no thread waits is past its deadline. */
static bool has_failed(struct nccl_state *s, int64_t now, struct cr_error *cause) {
    int64_t timeout_ms = 0, deadline_ms = NEVER;
    if (s->phase != NULL && now >= s->call_deadline_ms) {
        return cr_fail(cause, -ETIMEDOUT, "%s timed out after %lld ms", s->phase,
                       (long long) s->call_timeout_ms) < 0;
    }
    int rc = 0;
    while (rc == 0) rc = look_at_oldest(s, &timeout_ms, &deadline_ms, cause);
    if (rc != -EINPROGRESS) return rc != -ENOENT;
    if (s->is_waited_for || now < deadline_ms) return false;
    return cr_fail(cause, -ETIMEDOUT, "an operation on the stream timed out after %lld ms",
                   (long long) timeout_ms) < 0;
}

static bool is_busy(const struct nccl_state *s) {
    return s->phase != NULL || (s->comm != NULL && (s->oldest != NULL || s->has_graphs));
}

/* Returns true if the overseer must check whether other ranks have failed. The group's thread makes
 * this check itself while it waits for an operation. It makes no check while it is in a call of
 * NCCL, or while operations run and the thread does not wait for them. */
static bool must_look(const struct nccl_state *s, int64_t now) {
    if (s->phase != NULL) return now - s->call_began_ms >= STORE_LOOK_EVERY_MS;
    return is_busy(s) && !s->is_waited_for;
}

/* Returns true, and sets *cause, if another rank has reported a failure in the store or NCCL
 * reports an error of the communicator. Call this without nccl_lock(), but with s->pins > 0. */
static bool sees_failure(struct nccl_state *s, bool is_in_call, struct cr_error *cause) {
    int rc = s->store.peek(s->store.arg, cause);
    if (rc == 0 && !is_in_call) rc = inspect_comm(s, "an operation on the stream failed", cause);
    return rc < 0 && rc != -EINPROGRESS;
}

static void fail_state(struct nccl_state *s, const struct cr_error *cause) {
    s->store.report(s->store.arg, cause->text); /* before the abort, which may take long */
    abort_because(s, cause);
}

/* Call this with nccl_lock() held. Checks one state, and aborts its communicator after a failure.
 * The lock is not held during requests to the store and calls of NCCL. */
static void check(struct nccl_state *s, int64_t now) {
    struct cr_error cause = {0};
    bool is_in_call = s->phase != NULL, looks = must_look(s, now);
    if (s->is_aborting || s->failure.code != 0) return;
    bool failed = has_failed(s, now, &cause);
    if (!failed && !looks) return;
    s->pins++;
    nccl_unlock();
    if (!failed) failed = sees_failure(s, is_in_call, &cause);
    if (failed) fail_state(s, &cause);
    nccl_lock();
    s->pins--;
    nccl_changed();
}

/* ---- the thread ---- */

static bool check_all(void) {
    bool busy = false;
    int64_t now = cr_monotonic_ms();
    for (struct nccl_state *s = watched; s != NULL; s = s->next) {
        s->pins++; /* keeps the state in the list while check() has released the lock */
        check(s, now);
        busy |= is_busy(s);
        s->pins--;
    }
    nccl_changed();
    return busy;
}

static void *watch(void *arg) {
    const struct nccl_api *api = arg;
    int mode = CUDA_CAPTURE_RELAXED; /* in this mode, this thread's queries of events do not
                                      * invalidate captures */
    (void) api->cuThreadExchangeStreamCaptureMode(&mode);
    nccl_lock();
    for (;;) {
        atomic_store(&has_news, false);
        bool busy = check_all();
        /* This thread sets is_asleep and then reads has_news; overseer_wake() sets has_news and
         * then reads is_asleep. So at least one of the two sees what the other has set. */
        atomic_store(&is_asleep, !busy);
        if (!busy && atomic_load(&has_news)) continue;
        int64_t until = busy ? cr_monotonic_ms() + STORE_LOOK_EVERY_MS : NEVER;
        while (nccl_wait_change(until) && (busy || atomic_load(&is_asleep))) {
        }
    }
    return NULL;
}

void overseer_wake(void) {
    atomic_store(&has_news, true);
    if (!atomic_load(&is_asleep) || !atomic_exchange(&is_asleep, false)) return;
    nccl_lock();
    nccl_changed();
    nccl_unlock();
}

/* Starts a thread with all signals blocked, so that the program's signals are not delivered to it.
 */
static int start_thread(const struct nccl_api *api) {
    sigset_t all, before;
    pthread_t thread;
    (void) sigfillset(&all);
    (void) pthread_sigmask(SIG_BLOCK, &all, &before);
    int rc = pthread_create(&thread, NULL, watch, (void *) (uintptr_t) api);
    (void) pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc == 0) (void) pthread_detach(thread);
    return rc;
}

int overseer_add(struct nccl_state *s, struct cr_error *err) {
    (void) pthread_once(&once, init_once);
    nccl_lock();
    int rc = has_thread ? 0 : start_thread(s->api);
    has_thread = has_thread || rc == 0;
    struct nccl_state **end = &watched;
    while (*end != NULL) end = &(*end)->next;
    if (rc == 0) *end = s;
    nccl_unlock();
    if (rc == 0) return 0;
    return cr_fail(err, -rc, "start the thread that keeps deadlines: %s", strerror(rc));
}

void overseer_remove(struct nccl_state *s) {
    nccl_lock();
    while (s->pins > 0) (void) nccl_wait_change(NEVER);
    struct nccl_state **at = &watched;
    while (*at != NULL && *at != s) at = &(*at)->next;
    if (*at != NULL) *at = s->next;
    nccl_unlock();
}

void overseer_each(void (*func)(struct nccl_state *s, void *arg), void *arg) {
    for (struct nccl_state *s = watched; s != NULL; s = s->next) func(s, arg);
}
