/* The NCCL backend: collectives on GPU memory.
 *
 * Making a communicator, each phase with the group's deadline:
 *   probe      libraries, driver, device: a machine without a GPU says so before anybody waits
 *   arrival    in the store, done by the group: ids are made only once every rank is there, since
 *   an
 *              id that nobody uses leaves a thread and a socket behind
 *   id         the roots make 128 bytes and set "nccl/<root>"; the others get them
 *   init       nonblocking; polled until done, failed, or late
 *
 * A group that is split from another skips the ids: ncclCommSplit on the parent, which must come
 * out of "in progress" before the child's handle is there, then the child's init, polled likewise.
 *
 * A communicator that failed is aborted, never destroyed, and the abort itself has a deadline.
 * Waits look at four things: the event, NCCL's asynchronous error, the deadline, and the store,
 * where another rank may have reported a failure that this one cannot see: a peer that died behind
 * NVLink is silent, its kernel here just spins.
 *
 * One thread at a time calls into a group, so one thread at a time is inside NCCL on a
 * communicator. */
#include "worker_runtime/backends/backend.h"
#include "worker_runtime/backends/nccl_api.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/parse.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define RANKS_PER_ROOT      128            /* torch's rule */
#define ABORT_TIMEOUT_MS    INT64_C(30000) /* CRUNRT_NCCL_ABORT_TIMEOUT_MS says otherwise */
#define FINALIZE_TIMEOUT_MS INT64_C(60000)
#define STORE_LOOK_EVERY_MS INT64_C(100)
#define GROUP_DEPTH_REPAIRS 8

/* Communicators of this process whose abort did not come back. */
static atomic_int wedged_comms;
/* Aborts so far: a communicator made before the last of them may have lost the same peer. */
static atomic_int aborts;

struct nccl_state {
    const struct nccl_api *api;
    ncclComm_t comm; /* NULL once aborted or destroyed */
    cudaStream_t stream;
    int owns_stream;
    cudaEvent_t done;
    void *scratch; /* one int32 on the device, for the barrier */
    int device, rank, size;
    int blocking;
    int aborts_before; /* when it was made */
    int wedged;        /* an abort did not come back: CUDA calls may hang, too */
    struct nccl_state *wedged_before;
    char name[64];     /* NCCL keeps a pointer to it */
    struct backend_store store;
};

/* ---- errors ---- */

static int fail_cuda(const struct nccl_api *api, cudaError_t e, int code, struct cr_error *err,
                     const char *what) {
    return cr_fail(err, code, "%s: CUDA error %d (%s: %s)", what, (int) e, api->cudaGetErrorName(e),
                   api->cudaGetErrorString(e));
}

/* Errors that poison the CUDA context: nothing in this process will work again. */
static int is_sticky(cudaError_t e) {
    return (e >= 700 && e <= 720 && e != 708 && e != 709 && e != 713) || e == 214 || e == 220;
}

static const char *sticky_note(const struct nccl_api *api) {
    return is_sticky(api->cudaGetLastError())
               ? "; the CUDA context is lost, only a new process helps"
               : "";
}

static int fail_nccl(const struct nccl_api *api, ncclResult_t r, struct cr_error *err,
                     const char *what) {
    int code = r == ncclRemoteError ? -ECONNRESET : r == ncclInvalidArgument ? -EINVAL : -EIO;
    const char *detail = api->ncclGetLastError(NULL);
    return cr_fail(err, code, "%s: NCCL error %d (%s)%s%s%s", what, (int) r,
                   api->ncclGetErrorString(r), detail != NULL && detail[0] != '\0' ? ": " : "",
                   detail != NULL ? detail : "", sticky_note(api));
}

/* ---- probing ---- */

static int probe_device(const struct nccl_api *api, int device, struct cr_error *err) {
    int driver = 0, count = 0;
    (void) api->cudaDriverGetVersion(&driver); /* 0: none; the count says why */
    cudaError_t e = api->cudaGetDeviceCount(&count);
    if (e == 35 || e == 34 || e == 100) {
        char what[96];
        (void) snprintf(what, sizeof(what),
                        "find a GPU: none is usable here (CUDA driver version %d)", driver);
        return fail_cuda(api, e, -ENODEV, err, what);
    }
    if (e != cudaSuccess)
        return fail_cuda(api, e, -ENODEV, err, "find a GPU: the driver or device is at fault");
    if (device < 0) {
        return cr_fail(err, -ENODEV,
                       "choose a GPU: no device was given and LOCAL_RANK is not known");
    }
    if (device >= count) {
        return cr_fail(err, -ENODEV,
                       "choose GPU %d: only %d visible; start fewer workers on this node, or "
                       "check CUDA_VISIBLE_DEVICES",
                       device, count);
    }
    return 0;
}

static int nccl_probe(const struct backend_group *group, struct cr_error *err) {
    const struct nccl_api *api = NULL;
    if (atomic_load(&wedged_comms) > 0) {
        return cr_fail(err, -EIO,
                       "use NCCL: a communicator of this process could not be aborted and holds "
                       "the GPU; end the process");
    }
    int rc = nccl_api_load(&api, err);
    if (rc == 0) rc = probe_device(api, group->device, err);
    if (rc < 0) return rc;
    const char *fixed = getenv("NCCL_COMM_ID");
    if (fixed != NULL && fixed[0] != '\0') {
        return cr_fail(err, -EINVAL,
                       "use NCCL: NCCL_COMM_ID='%s' fixes one address for every communicator, "
                       "which no restart survives; unset it",
                       fixed);
    }
    return 0;
}

/* ---- waiting ---- */

static void pause_between_looks(int64_t started_ns) {
    int64_t waited = cr_monotonic_ns() - started_ns;
    if (waited < 200000) {
        (void) sched_yield();
        return;
    }
    struct timespec ts = {0, waited < 20 * CR_NS_PER_MS ? 20000 : 1000000};
    (void) nanosleep(&ts, NULL);
}

struct wait {
    const struct backend_store *store;
    int64_t started_ns, deadline_ms, next_look_ms;
};

static struct wait wait_begin(const struct backend_store *store, int64_t timeout_ms) {
    return (struct wait){store, cr_monotonic_ns(), cr_deadline_ms(timeout_ms),
                         cr_monotonic_ms() + STORE_LOOK_EVERY_MS};
}

/* One turn of a wait: 0 = look again, or the reason to give up. */
static int wait_turn(struct wait *w, const char *phase, int64_t timeout_ms, struct cr_error *err) {
    int64_t now = cr_monotonic_ms();
    if (now >= w->deadline_ms) {
        return cr_fail(err, -ETIMEDOUT, "%s timed out after %lld ms", phase,
                       (long long) timeout_ms);
    }
    if (now >= w->next_look_ms) {
        w->next_look_ms = now + STORE_LOOK_EVERY_MS;
        int rc = w->store->failed(w->store->arg, err);
        if (rc < 0) return rc;
    }
    pause_between_looks(w->started_ns);
    return 0;
}

/* Until the communicator's pending call is over. */
static int wait_for_comm_of(struct nccl_state *s, const struct backend_store *store,
                            const char *phase, int64_t timeout_ms, struct cr_error *err) {
    struct wait w = wait_begin(store, timeout_ms);
    for (;;) {
        ncclResult_t state = ncclInternalError;
        ncclResult_t r = s->api->ncclCommGetAsyncError(s->comm, &state);
        if (r != ncclSuccess) return fail_nccl(s->api, r, err, phase);
        if (state == ncclSuccess) return 0;
        if (state != ncclInProgress) return fail_nccl(s->api, state, err, phase);
        int rc = wait_turn(&w, phase, timeout_ms, err);
        if (rc < 0) return rc;
    }
}

static int wait_for_comm(struct nccl_state *s, const char *phase, int64_t timeout_ms,
                         struct cr_error *err) {
    return wait_for_comm_of(s, &s->store, phase, timeout_ms, err);
}

/* 0: the work before the event is done; -EINPROGRESS: not yet; else its failure. */
static int look_at_event(struct nccl_state *s, cudaEvent_t event, struct cr_error *err) {
    cudaError_t e = s->api->cudaEventQuery(event);
    if (e == cudaSuccess) return 0;
    if (e != cudaErrorNotReady) {
        return cr_fail(err, -EIO, "the operation failed on the GPU: CUDA error %d (%s)%s", (int) e,
                       s->api->cudaGetErrorName(e),
                       is_sticky(e) ? "; the CUDA context is lost, only a new process helps" : "");
    }
    if (s->comm == NULL) return cr_fail(err, -ECONNRESET, "the communicator was aborted");
    ncclResult_t state = ncclSuccess;
    ncclResult_t r = s->api->ncclCommGetAsyncError(s->comm, &state);
    if (r == ncclSuccess && state != ncclInProgress) r = state;
    return r == ncclSuccess ? -EINPROGRESS : fail_nccl(s->api, r, err, "the operation failed");
}

static int wait_for_event(struct nccl_state *s, cudaEvent_t event, int64_t timeout_ms,
                          struct cr_error *err) {
    struct wait w = wait_begin(&s->store, timeout_ms);
    for (;;) {
        int rc = look_at_event(s, event, err);
        if (rc != -EINPROGRESS) return rc;
        rc = wait_turn(&w, "the operation", timeout_ms, err);
        if (rc < 0) return rc;
    }
}

/* ---- ids ---- */

static int ranks_per_root(void) {
    int64_t n = RANKS_PER_ROOT;
    const char *text = getenv("CRUNRT_NCCL_RANKS_PER_ROOT");
    if (text != NULL && cr_parse_i64(text, 1, INT_MAX, &n) < 0) n = RANKS_PER_ROOT;
    return (int) n;
}

static int root_count(const struct nccl_api *api, int size) {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 23, 0)
    if (api->ncclCommInitRankScalable == NULL) return 1;
    int per_root = ranks_per_root();
    return size > per_root ? (size + per_root - 1) / per_root : 1;
#else
    (void) api;
    (void) size;
    (void) ranks_per_root;
    return 1;
#endif
}

/* NCCL's own block rule: the first size % roots blocks have one rank more; each block's first rank
 * is its root. */
static int rank_of_root(int root, int roots, int size) {
    int q = size / roots, m = size % roots;
    return root < m ? root * (q + 1) : m * (q + 1) + (root - m) * q;
}

static int exchange_id(const struct backend_group *g, const struct nccl_api *api, int root,
                       int roots, ncclUniqueId *id, struct cr_error *err) {
    char key[32];
    (void) snprintf(key, sizeof(key), "nccl/%d", root);
    if (g->rank == rank_of_root(root, roots, g->size)) {
        ncclResult_t r = api->ncclGetUniqueId(id);
        if (r != ncclSuccess) return fail_nccl(api, r, err, "make the unique id");
        return g->store.set(g->store.arg, key, id, sizeof(*id), err);
    }
    CR_AUTO_FREE void *value = NULL;
    size_t len = 0;
    int rc = g->store.get(g->store.arg, key, g->timeout_ms, &value, &len, err);
    if (rc < 0) return cr_wrap(err, "get the unique id of root %d", root);
    if (len != sizeof(*id)) {
        return cr_fail(err, -EPROTO, "get the unique id of root %d: %zu bytes instead of %zu", root,
                       len, sizeof(*id));
    }
    memcpy(id, value, sizeof(*id));
    return 0;
}

/* ---- init ---- */

/* Some releases leave the thread inside a group when an init call fails early; every later call
 * would then only be queued. Ends groups until there is none. */
static void repair_group_depth(const struct nccl_api *api) {
    for (int i = 0; i < GROUP_DEPTH_REPAIRS && api->ncclGroupEnd() == ncclSuccess; i++) {
    }
}

static ncclConfig_t config_of(const struct nccl_state *s) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = s->blocking;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
    config.commName = s->name;
#endif
    return config;
}

static ncclResult_t init_comm(struct nccl_state *s, ncclUniqueId *ids, int roots) {
    ncclConfig_t config = config_of(s);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 23, 0)
    if (roots > 1) {
        return s->api->ncclCommInitRankScalable(&s->comm, s->size, s->rank, roots, ids, &config);
    }
#endif
    (void) roots;
    return s->api->ncclCommInitRankConfig(&s->comm, s->size, ids[0], s->rank, &config);
}

static void nccl_abort(void *arg);

/* The last rank through init removes the ids: nobody needs them any more, and the store stays
 * small. */
static void forget_ids(const struct backend_group *g, int roots) {
    int64_t through = 0;
    if (g->store.add(g->store.arg, "nccl/through", 1, &through, NULL) < 0 || through < g->size)
        return;
    for (int root = 0; root < roots; root++) {
        char key[32];
        (void) snprintf(key, sizeof(key), "nccl/%d", root);
        (void) g->store.remove(g->store.arg, key, NULL);
    }
}

static int connect_comm(struct nccl_state *s, const struct backend_group *g, struct cr_error *err) {
    int roots = root_count(s->api, s->size);
    CR_AUTO_FREE ncclUniqueId *ids = calloc((size_t) roots, sizeof(*ids));
    if (ids == NULL) return cr_fail(err, -ENOMEM, "exchange ids: out of memory");
    for (int root = 0; root < roots; root++) {
        int rc = exchange_id(g, s->api, root, roots, &ids[root], err);
        if (rc < 0) return rc;
    }
    ncclResult_t r = init_comm(s, ids, roots);
    if (r != ncclSuccess && r != ncclInProgress) {
        int rc = fail_nccl(s->api, r, err, "initialise the communicator");
        s->comm = NULL; /* not reliable after a failure */
        repair_group_depth(s->api);
        return rc;
    }
    int rc = wait_for_comm(s, "initialise the communicator", g->timeout_ms, err);
    if (rc < 0) return rc;
    forget_ids(g, roots);
    return 0;
}

static int prepare_device(struct nccl_state *s, struct cr_error *err) {
    const struct nccl_api *api = s->api;
    cudaError_t e = api->cudaSetDevice(s->device);
    if (e == cudaSuccess)
        e = api->cudaFree(NULL); /* makes the context: faults show here, not in NCCL */
    if (e == cudaSuccess && s->stream == NULL) {
        e = api->cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking);
        s->owns_stream = e == cudaSuccess;
    }
    if (e == cudaSuccess) e = api->cudaEventCreateWithFlags(&s->done, cudaEventDisableTiming);
    if (e == cudaSuccess) e = api->cudaMalloc(&s->scratch, sizeof(int32_t));
    return e == cudaSuccess ? 0 : fail_cuda(api, e, -ENODEV, err, "prepare the GPU");
}

static void nccl_close(void *arg);

static struct nccl_state *state_new(const struct backend_group *group, struct cr_error *err) {
    struct nccl_state *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        (void) cr_fail(err, -ENOMEM, "open a communicator: out of memory");
        return NULL;
    }
    const char *blocking = getenv("CRUNRT_NCCL_BLOCKING");
    s->blocking = blocking != NULL && strcmp(blocking, "1") == 0;
    s->aborts_before = atomic_load(&aborts);
    s->rank = group->rank;
    s->size = group->size;
    s->device = group->device;
    s->stream = group->stream;
    s->store = group->store;
    (void) snprintf(s->name, sizeof(s->name), "%s", group->name);
    return s;
}

static int nccl_open(const struct backend_group *group, void **out, struct cr_error *err) {
    struct nccl_state *s = state_new(group, err);
    if (s == NULL) return -ENOMEM;
    int rc = nccl_api_load(&s->api, err);
    if (rc == 0) rc = prepare_device(s, err);
    if (rc == 0) rc = connect_comm(s, group, err);
    if (rc < 0) {
        if (s->api != NULL) nccl_abort(s);
        nccl_close(s);
        return rc;
    }
    *out = s;
    return 0;
}

/* ---- ending ---- */

/* ncclCommAbort blocks, and can hang: it runs on a thread that may be left behind. A state whose
 * abort hangs is never freed, and CUDA is not asked to free what belongs to it: that would wait
 * for the kernel that the abort waits for. */
struct abort_job {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    const struct nccl_api *api;
    ncclComm_t comm;
    int device, done, abandoned;
};

static void abort_job_free(struct abort_job *j) {
    (void) pthread_mutex_destroy(&j->lock);
    (void) pthread_cond_destroy(&j->changed);
    free(j);
}

static void *run_abort(void *arg) {
    struct abort_job *j = arg;
    (void) j->api->cudaSetDevice(j->device);
    (void) j->api->ncclCommAbort(j->comm);
    (void) pthread_mutex_lock(&j->lock);
    j->done = 1;
    int abandoned = j->abandoned;
    (void) pthread_cond_signal(&j->changed);
    (void) pthread_mutex_unlock(&j->lock);
    if (abandoned) abort_job_free(j);
    return NULL;
}

static struct abort_job *abort_job_new(struct nccl_state *s) {
    struct abort_job *j = calloc(1, sizeof(*j));
    if (j == NULL) return NULL;
    pthread_condattr_t attr;
    (void) pthread_condattr_init(&attr);
    (void) pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void) pthread_cond_init(&j->changed, &attr);
    (void) pthread_condattr_destroy(&attr);
    (void) pthread_mutex_init(&j->lock, NULL);
    j->api = s->api;
    j->comm = s->comm;
    j->device = s->device;
    return j;
}

static int64_t abort_timeout_ms(void) {
    int64_t ms = ABORT_TIMEOUT_MS;
    const char *text = getenv("CRUNRT_NCCL_ABORT_TIMEOUT_MS");
    if (text != NULL && cr_parse_i64(text, 1, INT_MAX, &ms) < 0) ms = ABORT_TIMEOUT_MS;
    return ms;
}

/* Signals are for the program's own threads. */
static int start_without_signals(pthread_t *thread, void *(*run)(void *), void *arg) {
    sigset_t all, before;
    (void) sigfillset(&all);
    (void) pthread_sigmask(SIG_BLOCK, &all, &before);
    int rc = pthread_create(thread, NULL, run, arg);
    (void) pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

/* Never freed, but not lost either: a debugger, and a leak checker, finds it here. */
static _Atomic(struct nccl_state *) last_wedged;

static void give_up_on_comm(struct nccl_state *s) {
    s->wedged = 1;
    s->wedged_before = atomic_exchange(&last_wedged, s);
    (void) atomic_fetch_add(&wedged_comms, 1);
}

static void nccl_abort(void *arg) {
    struct nccl_state *s = arg;
    if (s->comm == NULL) return;
    struct abort_job *j = abort_job_new(s);
    pthread_t thread;
    s->comm = NULL; /* whatever happens, nobody touches it again */
    (void) atomic_fetch_add(&aborts, 1);
    if (j == NULL || start_without_signals(&thread, run_abort, j) != 0) {
        if (j != NULL) abort_job_free(j);
        give_up_on_comm(s);
        return;
    }
    int64_t until = cr_monotonic_ns() + abort_timeout_ms() * CR_NS_PER_MS;
    struct timespec ts = {until / CR_NS_PER_S, until % CR_NS_PER_S};
    int rc = 0;
    (void) pthread_mutex_lock(&j->lock);
    while (!j->done && rc == 0) rc = pthread_cond_timedwait(&j->changed, &j->lock, &ts);
    int done = j->done;
    j->abandoned = !done;
    (void) pthread_mutex_unlock(&j->lock);
    if (!done) {
        (void) pthread_detach(thread);
        give_up_on_comm(s);
        return;
    }
    (void) pthread_join(thread, NULL);
    abort_job_free(j);
}

/* The orderly end: finalize with a deadline, then destroy; abort if finalize does not come back, or
 * at once where another communicator of this process had to be: finalizing may wait for a peer that
 * is gone. */
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

static void nccl_close(void *arg) {
    struct nccl_state *s = arg;
    if (s->api == NULL) {
        free(s);
        return;
    }
    if (s->comm != NULL) end_comm(s);
    if (s->wedged) return;
    if (s->scratch != NULL) (void) s->api->cudaFree(s->scratch);
    if (s->done != NULL) (void) s->api->cudaEventDestroy(s->done);
    if (s->owns_stream) (void) s->api->cudaStreamDestroy(s->stream);
    free(s);
}

/* ---- splitting ---- */

static int nccl_can_split(void *arg, const struct backend_group *g) {
    const struct nccl_state *parent = arg;
    const char *wanted = getenv("CRUNRT_NCCL_SPLIT");
    if (wanted != NULL && strcmp(wanted, "0") == 0) return 0;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 18, 0)
    if (parent->comm == NULL || parent->api->ncclCommSplit == NULL) return 0;
    return g->rank < 0 || g->device == parent->device;
#else
    (void) parent;
    (void) g;
    return 0;
#endif
}

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 18, 0)

/* NCCL writes the child's handle from a thread of its own, and in releases to date a moment after
 * the parent has left "in progress". */
static int wait_for_child(struct nccl_state *s, ncclComm_t *child, int64_t timeout_ms,
                          struct cr_error *err) {
    struct wait w = wait_begin(&s->store, timeout_ms);
    while (__atomic_load_n(child, __ATOMIC_ACQUIRE) == NULL) {
        int rc = wait_turn(&w, "split: wait for the new communicator", timeout_ms, err);
        if (rc < 0) return rc;
    }
    s->comm = *child;
    return wait_for_comm(s, "initialise the communicator", timeout_ms, err);
}

/* Every rank of the parent gets here, as agreed; `s` of a rank that is no member is its store
 * alone. */
static int split_off(struct nccl_state *parent, struct nccl_state *s, const struct backend_group *g,
                     ncclComm_t *child, struct cr_error *err) {
    const struct nccl_api *api = parent->api;
    int member = g->rank >= 0;
    cudaError_t e = api->cudaSetDevice(parent->device);
    if (e != cudaSuccess) return fail_cuda(api, e, -EIO, err, "use the GPU");
    int rc = member ? prepare_device(s, err) : 0;
    if (rc < 0) return rc;
    ncclConfig_t config = config_of(s);
    ncclResult_t r = api->ncclCommSplit(parent->comm, member ? 0 : NCCL_SPLIT_NOCOLOR,
                                        member ? g->rank : 0, child, &config);
    if (r != ncclSuccess && r != ncclInProgress) {
        rc = fail_nccl(api, r, err, "split the communicator");
        repair_group_depth(api);
        return rc;
    }
    rc = wait_for_comm_of(parent, &s->store, "split the communicator", g->timeout_ms, err);
    return rc < 0 || !member ? rc : wait_for_child(s, child, g->timeout_ms, err);
}

/* The parent first: its abort ends the init of the child that may still be under way, and after it
 * nobody writes the handle any more. */
static void break_off_split(struct nccl_state *parent, struct nccl_state *s, ncclComm_t *child) {
    nccl_abort(parent);
    if (parent->wedged) {
        s->wedged = 1; /* nothing of it can be freed safely */
        return;
    }
    s->comm = *child;
    nccl_abort(s);
    free(child);
}

static int nccl_split(void *arg, const struct backend_group *g, void **out, struct cr_error *err) {
    struct nccl_state *parent = arg;
    *out = NULL;
    /* Of its own, since NCCL may write to it when this function has given up. */
    ncclComm_t *child = calloc(1, sizeof(ncclComm_t));
    struct nccl_state *s = child == NULL ? NULL : state_new(g, err);
    if (s == NULL) {
        free(child);
        nccl_abort(parent);
        return cr_fail(err, -ENOMEM, "split the communicator: out of memory");
    }
    s->api = parent->api;
    s->blocking = parent->blocking;
    int rc = split_off(parent, s, g, child, err);
    if (rc < 0) {
        break_off_split(parent, s, child);
        nccl_close(s);
        return rc;
    }
    free(child);
    if (g->rank < 0)
        nccl_close(s);
    else
        *out = s;
    return 0;
}

#else

static int nccl_split(void *parent, const struct backend_group *g, void **out,
                      struct cr_error *err) {
    (void) parent;
    (void) g;
    *out = NULL;
    return cr_fail(err, -ENOTSUP, "split the communicator: built without ncclCommSplit");
}

#endif

/* ---- operations ---- */

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
    size_t element; /* bytes */
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

/* What NCCL before 2.28 has no call for is a loop of sends and receives in one group. */
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
        int sends = op->kind == CRUNRT_OP_GATHER    ? peer == root
                    : op->kind == CRUNRT_OP_SCATTER ? rank == root
                                                    : 1;
        int receives = op->kind == CRUNRT_OP_GATHER    ? rank == root
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

/* Puts the operations on the stream, and the event behind them. More than one: sends and receives,
 * fused in one group. */
static int put_on_stream(struct nccl_state *s, const struct backend_call *calls, size_t count,
                         cudaEvent_t event, struct cr_error *err) {
    struct call c;
    cudaError_t e = s->api->cudaSetDevice(s->device);
    if (e != cudaSuccess) return fail_cuda(s->api, e, -EIO, err, "use the GPU");
    for (size_t i = 0; i < count; i++) { /* refusals before anything is begun */
        int rc = describe(s, &calls[i], &c, err);
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
        int rc = wait_for_comm(s, "enqueue", calls[0].op->timeout_ms, err);
        if (rc < 0) return rc;
    }
    e = s->api->cudaEventRecord(event, c.stream);
    return e == cudaSuccess ? 0 : fail_cuda(s->api, e, -EIO, err, "note the end of the operation");
}

static int nccl_batch(void *arg, const struct backend_call *calls, size_t count,
                      struct cr_error *err) {
    struct nccl_state *s = arg;
    int rc = put_on_stream(s, calls, count, s->done, err);
    return rc < 0 ? rc : wait_for_event(s, s->done, calls[0].op->timeout_ms, err);
}

static int nccl_run(void *arg, const struct backend_call *call, struct cr_error *err) {
    return nccl_batch(arg, call, 1, err);
}

/* ---- work that goes on meanwhile: it is on the stream, with an event of its own ---- */

struct nccl_work {
    struct nccl_state *s;
    cudaEvent_t event;
    int64_t deadline_ms;
};

static int nccl_start(void *arg, const struct backend_call *call, void **out,
                      struct cr_error *err) {
    struct nccl_state *s = arg;
    struct nccl_work *w = calloc(1, sizeof(*w));
    if (w == NULL) return cr_fail(err, -ENOMEM, "start an operation: out of memory");
    w->s = s;
    w->deadline_ms = cr_deadline_ms(call->op->timeout_ms);
    int rc = 0;
    cudaError_t e = s->api->cudaSetDevice(s->device);
    if (e == cudaSuccess) e = s->api->cudaEventCreateWithFlags(&w->event, cudaEventDisableTiming);
    if (e != cudaSuccess) rc = fail_cuda(s->api, e, -EIO, err, "make an event");
    if (rc == 0) rc = put_on_stream(s, call, 1, w->event, err);
    if (rc < 0) {
        if (w->event != NULL) (void) s->api->cudaEventDestroy(w->event);
        free(w);
        return rc;
    }
    *out = w;
    return 0;
}

static int nccl_wait(void *arg, int64_t timeout_ms, struct cr_error *err) {
    struct nccl_work *w = arg;
    int rc = look_at_event(w->s, w->event, err);
    if (rc != -EINPROGRESS) return rc;
    int64_t left = w->deadline_ms - cr_monotonic_ms(); /* CR_FOREVER stays far away */
    if (left > 0 && timeout_ms == 0) return -EINPROGRESS;
    rc = wait_for_event(w->s, w->event, timeout_ms < left ? timeout_ms : left < 0 ? 0 : left, err);
    return rc == -ETIMEDOUT && cr_monotonic_ms() < w->deadline_ms ? -EINPROGRESS : rc;
}

static void nccl_release(void *arg) {
    struct nccl_work *w = arg;
    if (!w->s->wedged) (void) w->s->api->cudaEventDestroy(w->event);
    free(w);
}

static void *nccl_native(void *arg) { return ((struct nccl_state *) arg)->comm; }

__attribute__((visibility("default"))) const struct crunrt_backend crunrt_backend;
const struct crunrt_backend crunrt_backend = {
    .abi = CRUNRT_BACKEND_ABI,
    .name = "nccl",
    .probe = nccl_probe,
    .open = nccl_open,
    .run = nccl_run,
    .batch = nccl_batch,
    .start = nccl_start,
    .wait = nccl_wait,
    .release = nccl_release,
    .abort = nccl_abort,
    .close = nccl_close,
    .native = nccl_native,
    .can_split = nccl_can_split,
    .split = nccl_split,
};
