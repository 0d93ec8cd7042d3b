/* The state of one communicator: its device, and its end.
 *
 * A communicator that has failed is aborted, not finalized or destroyed, because these wait for
 * peers. An abort may hang too, so it has a deadline. */
#include "worker_runtime/backends/nccl/nccl_internal.h"

#include "base/clock.h"
#include "base/parse.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ABORT_TIMEOUT_MS    INT64_C(30000) /* default; CRUNRT_NCCL_ABORT_TIMEOUT_MS replaces it */
#define FINALIZE_TIMEOUT_MS INT64_C(60000)
#define GROUP_DEPTH_REPAIRS 8

static atomic_int wedged_comms; /* communicators of this process whose abort did not return */
static atomic_int aborts;       /* how often nccl_abort() has begun an abort */

/* ---- making a state ---- */

struct nccl_state *state_new(const struct backend_group *group, struct cr_error *err) {
    struct nccl_state *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        (void) cr_fail(err, -ENOMEM, "open a communicator: out of memory");
        return NULL;
    }
    const char *blocking = getenv("CRUNRT_NCCL_BLOCKING");
    s->is_blocking = blocking != NULL && strcmp(blocking, "1") == 0;
    s->aborts_before = atomic_load(&aborts);
    s->rank = group->rank;
    s->size = group->size;
    s->device = group->device;
    s->stream = group->stream;
    s->store = group->store;
    (void) snprintf(s->name, sizeof(s->name), "%s", group->name);
    return s;
}

int prepare_device(struct nccl_state *s, struct cr_error *err) {
    const struct nccl_api *api = s->api;
    cudaError_t e = api->cudaSetDevice(s->device);
    if (e == cudaSuccess)
        /* creates the CUDA context, so that a fault appears here and not inside NCCL */
        e = api->cudaFree(NULL);
    if (e == cudaSuccess && s->stream == NULL) {
        e = api->cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking);
        s->owns_stream = e == cudaSuccess;
    }
    if (e == cudaSuccess) e = api->cudaEventCreateWithFlags(&s->done, cudaEventDisableTiming);
    if (e == cudaSuccess) e = api->cudaMalloc(&s->scratch, sizeof(int32_t));
    int shared = 0;
    if (e == cudaSuccess && api->cudaDeviceGetAttribute != NULL)
        e = api->cudaDeviceGetAttribute(&shared, cudaDevAttrPageableMemoryAccess, s->device);
    s->reads_host_memory = shared != 0;
    return e == cudaSuccess ? 0 : fail_cuda(api, e, -ENODEV, err, "prepare the GPU");
}

ncclConfig_t config_of(const struct nccl_state *s) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = s->is_blocking;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
    config.commName = s->name;
#endif
    return config;
}

void repair_group_depth(const struct nccl_api *api) {
    for (int i = 0; i < GROUP_DEPTH_REPAIRS && api->ncclGroupEnd() == ncclSuccess; i++) {
    }
}

bool has_wedged_comm(void) { return atomic_load(&wedged_comms) > 0; }

/* ---- the list of connected states ---- */

static pthread_mutex_t live_lock = PTHREAD_MUTEX_INITIALIZER;
static struct nccl_state *live; /* parents before their children */

void join_live(struct nccl_state *s) {
    (void) pthread_mutex_lock(&live_lock);
    struct nccl_state **end = &live;
    while (*end != NULL) end = &(*end)->next_live;
    *end = s;
    (void) pthread_mutex_unlock(&live_lock);
}

static void leave_live(struct nccl_state *s) {
    (void) pthread_mutex_lock(&live_lock);
    struct nccl_state **at = &live;
    while (*at != NULL && *at != s) at = &(*at)->next_live;
    if (*at != NULL) *at = s->next_live;
    (void) pthread_mutex_unlock(&live_lock);
    s->next_live = NULL;
}

/* Removes from the live states, and returns as a list, the states that must be aborted with s: all
 * live states if s is live, else s alone. */
static struct nccl_state *take_with(struct nccl_state *s) {
    (void) pthread_mutex_lock(&live_lock);
    struct nccl_state *at = live, *taken = s;
    while (at != NULL && at != s) at = at->next_live;
    if (at != NULL) {
        taken = live;
        live = NULL;
    }
    (void) pthread_mutex_unlock(&live_lock);
    return taken;
}

/* ---- aborting and closing states ---- */

/* A job that aborts some communicators. It runs in a separate thread, because ncclCommAbort() may
 * never return. The side that finishes last, thread or caller, frees the job. */
struct abort_job {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    const struct nccl_api *api;
    ncclComm_t *comms;
    int count, device;
    bool is_done, is_abandoned;
};

static void abort_job_free(struct abort_job *j) {
    (void) pthread_mutex_destroy(&j->lock);
    (void) pthread_cond_destroy(&j->changed);
    free(j->comms);
    free(j);
}

/* Aborts the communicators, with NCCL 2.22 and later in one group, so that all of them are marked
 * as aborted before the first abort waits. */
static void abort_comms(const struct abort_job *j) {
    bool grouped = j->count > 1 && j->api->nccl_version >= 22200;
    (void) j->api->cudaSetDevice(j->device);
    if (grouped) (void) j->api->ncclGroupStart();
    for (int i = 0; i < j->count; i++) (void) j->api->ncclCommAbort(j->comms[i]);
    if (grouped) (void) j->api->ncclGroupEnd();
}

static void *run_abort(void *arg) {
    struct abort_job *j = arg;
    abort_comms(j);
    (void) pthread_mutex_lock(&j->lock);
    j->is_done = true;
    bool is_abandoned = j->is_abandoned;
    (void) pthread_cond_signal(&j->changed);
    (void) pthread_mutex_unlock(&j->lock);
    if (!is_abandoned) return NULL;
    /* the abort has returned late, so the device is usable again */
    (void) atomic_fetch_sub(&wedged_comms, j->count);
    abort_job_free(j);
    return NULL;
}

/* Makes the job. It copies the communicators from the states. */
static struct abort_job *abort_job_new(struct nccl_state *states) {
    struct abort_job *j = calloc(1, sizeof(*j));
    int count = 0;
    if (j == NULL) return NULL;
    for (const struct nccl_state *s = states; s != NULL; s = s->next_live) count++;
    j->comms = calloc((size_t) count, sizeof(*j->comms));
    if (j->comms == NULL) {
        free(j);
        return NULL;
    }
    for (struct nccl_state *s = states; s != NULL; s = s->next_live)
        if (s->comm != NULL) j->comms[j->count++] = s->comm;
    pthread_condattr_t attr;
    (void) pthread_condattr_init(&attr);
    (void) pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void) pthread_cond_init(&j->changed, &attr);
    (void) pthread_condattr_destroy(&attr);
    (void) pthread_mutex_init(&j->lock, NULL);
    j->api = states->api;
    j->device = states->device;
    return j;
}

static int64_t abort_timeout_ms(void) {
    int64_t ms = ABORT_TIMEOUT_MS;
    const char *text = getenv("CRUNRT_NCCL_ABORT_TIMEOUT_MS");
    if (text != NULL && cr_parse_i64(text, 1, INT_MAX, &ms) < 0) ms = ABORT_TIMEOUT_MS;
    return ms;
}

/* Starts a thread with all signals blocked, so that the program's signals are not delivered to it.
 */
static int start_without_signals(pthread_t *thread, void *(*run)(void *), void *arg) {
    sigset_t all, before;
    (void) sigfillset(&all);
    (void) pthread_sigmask(SIG_BLOCK, &all, &before);
    int rc = pthread_create(thread, NULL, run, arg);
    (void) pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

/* The states whose abort has not returned. They are never freed, and their CUDA objects neither,
 * because cudaFree() would wait for the kernel for which the abort waits. The list keeps them
 * reachable for a debugger and a leak checker. */
static _Atomic(struct nccl_state *) last_wedged;

static void give_up_on(struct nccl_state *states) {
    for (struct nccl_state *s = states; s != NULL; s = s->next_live) {
        s->is_wedged = true;
        s->wedged_before = atomic_exchange(&last_wedged, s);
    }
}

/* Waits until the job is done or the timeout of aborts has passed. Returns whether it is done; a
 * job that is not done frees itself later. */
static bool await_abort(struct abort_job *j, pthread_t thread) {
    int64_t until = cr_monotonic_ns() + abort_timeout_ms() * CR_NS_PER_MS;
    struct timespec ts = {until / CR_NS_PER_S, until % CR_NS_PER_S};
    int rc = 0;
    (void) pthread_mutex_lock(&j->lock);
    while (!j->is_done && rc == 0) rc = pthread_cond_timedwait(&j->changed, &j->lock, &ts);
    bool is_done = j->is_done;
    j->is_abandoned = !is_done;
    if (!is_done) (void) atomic_fetch_add(&wedged_comms, j->count);
    (void) pthread_mutex_unlock(&j->lock);
    if (!is_done) {
        (void) pthread_detach(thread);
        return false;
    }
    (void) pthread_join(thread, NULL);
    abort_job_free(j);
    return true;
}

static void forget_comms(struct nccl_state *states) {
    for (struct nccl_state *s = states; s != NULL; s = s->next_live) s->comm = NULL;
}

void nccl_abort(void *arg) {
    struct nccl_state *s = arg;
    if (s->comm == NULL) return;
    struct nccl_state *states = take_with(s);
    struct abort_job *j = abort_job_new(states);
    pthread_t thread;
    forget_comms(states);
    (void) atomic_fetch_add(&aborts, 1);
    if (j == NULL || start_without_signals(&thread, run_abort, j) != 0) {
        if (j != NULL) abort_job_free(j);
        (void) atomic_fetch_add(&wedged_comms, 1);
        give_up_on(states);
    } else if (!await_abort(j, thread)) {
        give_up_on(states);
    }
    for (struct nccl_state *next; states != NULL; states = next) {
        next = states->next_live;
        states->next_live = NULL;
    }
}

/* Ends a communicator that has not failed: finalizes it, with a deadline, and destroys it. If
 * finalize does not succeed, the communicator is aborted. It is also aborted if any communicator of
 * this process has been aborted since this one was made, because in that case a peer may be gone
 * and finalize would wait for it. */
static void end_comm(struct nccl_state *s) {
    if (atomic_load(&aborts) != s->aborts_before) {
        nccl_abort(s);
        return;
    }
    ncclResult_t r = s->api->ncclCommFinalize(s->comm);
    struct cr_error ignored;
    if ((r != ncclSuccess && r != ncclInProgress) ||
        wait_for_comm(s, "finalize", FINALIZE_TIMEOUT_MS, &ignored) < 0) {
        nccl_abort(s);
        return;
    }
    (void) s->api->ncclCommDestroy(s->comm);
    s->comm = NULL;
}

void nccl_close(void *arg) {
    struct nccl_state *s = arg;
    if (s->api == NULL) {
        free(s);
        return;
    }
    /* nccl_abort() aborts all states of the list `live` if the given state is in the list, and only
     * the given state if it is not. end_comm() may call nccl_abort() for this state, and the other
     * communicators shall survive that. So the state leaves the list first. */
    leave_live(s);
    if (s->comm != NULL) end_comm(s);
    if (s->is_wedged) return;
    if (s->scratch != NULL) (void) s->api->cudaFree(s->scratch);
    if (s->done != NULL) (void) s->api->cudaEventDestroy(s->done);
    if (s->owns_stream) (void) s->api->cudaStreamDestroy(s->stream);
    free(s);
}
