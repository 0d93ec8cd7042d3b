/* Communicators from their unique id to their end: initialisation, state, finalize, destroy, abort.
 *
 * Modelled on init.cc of NCCL 2.28.9 and 2.30.7:
 * - ncclCommInitRankDev: an init that fails before it makes its job leaves a group open on the
 *   calling thread.
 * - ncclCommEnsureReady: a call while another call is in progress fails with ncclInvalidArgument.
 * - ncclCommFinalize and commDestroySync wait for the communicator's kernels, and as long as a CUDA
 *   graph contains operations of the communicator.
 * - commFree does not wait for other ranks, but it frees device memory, which waits for the device.
 * - ncclCommAbort sets the abort flag, and after that frees the communicator as a destroy does.
 * - ncclCommDestroy blocks until the communicator is freed, even if it is a non-blocking one.
 * - initTransportsRank: two ranks on one GPU are an error. */
#include "tests/host_nccl/comm.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct ncclComm *comms; /* list of all communicators, including freed ones */
static __thread char last_error[256];

/* The nccl backend refuses a library that exports this symbol, unless CRUNRT_ALLOW_FAKE_NCCL=1. */
HOST_API extern const char fake_nccl[];
const char fake_nccl[] = "host";

/* ---- errors and state ---- */

ncclResult_t nccl_fail(ncclResult_t result, const char *format, ...) {
    va_list args;
    va_start(args, format);
    (void) vsnprintf(last_error, sizeof(last_error), format, args);
    va_end(args);
    if (getenv("HOST_NCCL_VERBOSE") != NULL) host_say("%s", last_error);
    return result;
}

ncclResult_t comm_check(ncclComm_t comm, const char *call) {
    if (comm == NULL) return nccl_fail(ncclInvalidArgument, "%s : comm argument is NULL", call);
    if (comm->magic != COMM_ALIVE) host_misuse("%s of a communicator that was freed", call);
    return ncclSuccess;
}

void comm_set_async(ncclComm_t comm, ncclResult_t result) {
    atomic_store(&comm->async, (int) result);
}

bool comm_aborted(void *comm) {
    return atomic_load(&((struct ncclComm *) comm)->abort_flag) != 0 ||
           host_poisoned() != cudaSuccess;
}

static ncclResult_t state_of(ncclComm_t comm) {
    ncclResult_t state = (ncclResult_t) atomic_load(&comm->async);
    if (state == ncclSuccess && comm->group_job != NULL) group_join(comm);
    return state;
}

/* Returns the result of a call on a non-blocking communicator; `end` is what group_end() returned
 * for the call. If the call's thread has already succeeded, this function returns ncclInProgress
 * nevertheless, so that tests get the same result every time; NCCL may return ncclSuccess in this
 * case. */
ncclResult_t comm_outcome(ncclComm_t comm, ncclResult_t end) {
    if (end == ncclInProgress && atomic_load(&comm->async) == ncclSuccess) return ncclInProgress;
    return state_of(comm);
}

ncclResult_t comm_ready(ncclComm_t comm) {
    if (atomic_load(&comm->abort_flag) != 0) {
        group_join(comm);
        return ncclSuccess;
    }
    ncclResult_t state = state_of(comm);
    if (state != ncclInProgress) return state;
    return nccl_fail(ncclInvalidArgument, "Attempt to use communicator before the previous "
                                          "operation returned ncclSuccess");
}

/* ---- initialisation ---- */

static struct ncclComm *comm_new(int size, int rank, int device) {
    struct ncclComm *c = calloc(1, sizeof(*c));
    if (c == NULL) abort();
    c->magic = COMM_ALIVE;
    c->rank = rank;
    c->size = size;
    c->device = device;
    c->blocking = true;
    c->sends_to = calloc((size_t) size, sizeof(bool));
    c->receives_from = calloc((size_t) size, sizeof(bool));
    if (c->sends_to == NULL || c->receives_from == NULL) abort();
    (void) pthread_mutex_init(&c->running, NULL);
    host_lock();
    c->next = comms;
    comms = c;
    host_unlock();
    return c;
}

ncclResult_t comm_configure(ncclComm_t comm, const ncclConfig_t *config) {
    const char *blocking = getenv("NCCL_COMM_BLOCKING");
    if (config != NULL) {
        if (config->magic != 0xcafebeef)
            return nccl_fail(ncclInvalidArgument, "ncclConfig_t argument not initialized via "
                                                  "NCCL_CONFIG_INITIALIZER");
        if (config->blocking != NCCL_CONFIG_UNDEF_INT) {
            if (config->blocking != 0 && config->blocking != 1)
                return nccl_fail(ncclInvalidArgument, "Invalid config blocking attribute value %d",
                                 config->blocking);
            comm->blocking = config->blocking != 0;
        }
        comm->config = *config;
        if (config->size > sizeof(*config)) {
            size_t more = config->size - sizeof(*config);
            if (more > sizeof(comm->later_fields)) more = sizeof(comm->later_fields);
            memcpy(comm->later_fields, config + 1, more);
        }
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 18, 0)
        comm->split_share = config->splitShare == 1;
#endif
    }
    if (blocking != NULL && *blocking != '\0') comm->blocking = strcmp(blocking, "0") != 0;
    return ncclSuccess;
}

struct ncclComm *comm_child(ncclComm_t parent) {
    struct ncclComm *c = comm_new(parent->size, parent->rank, parent->device);
    c->blocking = parent->blocking;
    c->split_share = parent->split_share;
    return c;
}

struct ncclComm *comm_grown(ncclComm_t old, int size, int rank) {
    return old != NULL ? comm_new(size, old->rank, old->device)
                       : comm_new(size, rank, host_device());
}

static uint64_t this_host(void) {
    const char *id = getenv("NCCL_HOSTID");
    uint64_t hash = 1469598103934665603U;
    for (; id != NULL && *id != '\0'; id++) hash = (hash ^ (uint64_t) *id) * 1099511628211U;
    return hash;
}

static bool is_duplicate(const struct ncclComm *c) {
    const struct peers_rank *all = c->peers->ranks;
    const char *allowed = getenv("NCCL_MULTI_RANK_GPU_ENABLE");
    if (allowed != NULL && strcmp(allowed, "1") == 0) return false;
    for (int r = 0; r < c->size; r++) {
        if (r == c->rank || all[r].device != c->device || all[r].host != this_host()) continue;
        (void) nccl_fail(ncclInvalidUsage,
                         "Duplicate GPU detected : rank %d and rank %d both on CUDA device %d",
                         c->rank, r, c->device);
        return true;
    }
    return false;
}

ncclResult_t comm_connect(ncclComm_t c, const struct peers_address *address) {
    int rc = peers_attach(address, c->rank, c->size, &c->peers);
    if (rc == -ECONNREFUSED)
        return nccl_fail(ncclRemoteError, "socket: connection refused: the root is gone");
    if (rc < 0)
        return nccl_fail(ncclInvalidUsage,
                         "Bootstrap Root: mismatch in rank count, or rank %d of "
                         "%d ranks has already checked in",
                         c->rank, c->size);
    c->peers->ranks[c->rank].device = c->device;
    c->peers->ranks[c->rank].host = this_host();
    if (!PEERS_BARRIER(c->peers, phase, NULL, comm_aborted, c)) return ncclInternalError;
    if (is_duplicate(c)) return ncclInvalidUsage;
    if (!PEERS_BARRIER(c->peers, phase, NULL, comm_aborted, c)) return ncclInternalError;
    c->initialised = true;
    return ncclSuccess;
}

static ncclResult_t run_init(struct job *job) {
    struct host_fault f = host_call("init");
    if (f.kind == HOST_FAULT_NCCL) return nccl_fail((ncclResult_t) f.code, "init: as ordered");
    ncclResult_t r = comm_connect(job->comm, &job->address);
    if (r == ncclSuccess && job->comm->rank == 0) peers_forget(&job->address);
    return r;
}

ncclResult_t comm_begin(struct ncclComm *c, struct job plan, const ncclUniqueId *id,
                        const ncclConfig_t *config, ncclComm_t *out) {
    struct job *job = calloc(1, sizeof(*job));
    if (job == NULL) abort();
    *job = plan;
    job->comm = c;
    if (id != NULL) memcpy(&job->address, id->internal, sizeof(job->address));
    ncclResult_t r = comm_configure(c, config);
    if (r == ncclSuccess) r = group_add_job(job);
    if (r != ncclSuccess) {
        free(job);
        return r;
    }
    comm_set_async(c, c->blocking ? ncclSuccess : ncclInProgress);
    *out = c;
    return ncclSuccess;
}

/* Call this between group_start() and group_end(). Makes a communicator and adds its init job to
 * the group. */
static ncclResult_t begin_init(ncclComm_t *out, int size, const ncclUniqueId *id, int rank,
                               const ncclConfig_t *config) {
    if (out == NULL) return nccl_fail(ncclInvalidArgument, "comm argument is NULL");
    if (size < 1 || rank < 0 || rank >= size)
        return nccl_fail(ncclInvalidArgument, "Invalid rank requested : %d/%d", rank, size);
    struct job plan = {.run = run_init};
    return comm_begin(comm_new(size, rank, host_device()), plan, id, config, out);
}

static ncclResult_t init_rank(const char *call, ncclComm_t *out, int size, const ncclUniqueId *id,
                              int rank, const ncclConfig_t *config) {
    struct host_fault f = host_call(call);
    group_start();
    if (f.kind == HOST_FAULT_CUDA || host_poisoned() != cudaSuccess)
        /* leaves the group open, as NCCL does */
        return nccl_fail(ncclUnhandledCudaError, "%s: CUDA failure", call);
    ncclResult_t r =
        f.kind == HOST_FAULT_NCCL ? (ncclResult_t) f.code : begin_init(out, size, id, rank, config);
    (void) group_error(r);
    ncclResult_t end = group_end();
    if (r != ncclSuccess) return r;
    if (end != ncclSuccess && end != ncclInProgress) return end;
    if (f.kind == HOST_FAULT_ASYNC) comm_set_async(*out, (ncclResult_t) f.code);
    return (*out)->blocking || group_depth() > 0 ? ncclSuccess : comm_outcome(*out, end);
}

/* ---- finalize, destroy, abort ---- */

static ncclResult_t wait_for_kernels(ncclComm_t c) {
    host_lock();
    struct host_op *last = c->last;
    host_op_ref(last);
    host_unlock();
    if (last != NULL) host_op_wait(last);
    host_lock();
    host_op_unref(last);
    while (atomic_load(&c->graphs) > 0)
        /* waits until no CUDA graph contains operations of the communicator, as NCCL's
         * commDestroySync() does with its counter localPersistentRefs */
        host_wait_change();
    host_unlock();
    return ncclSuccess;
}

static ncclResult_t run_finalize(struct job *job) {
    return job->comm->initialised ? wait_for_kernels(job->comm) : ncclSuccess;
}

static ncclResult_t run_reclaim(struct job *job) {
    ncclComm_t c = job->comm;
    if (c->initialised && !c->finalized) (void) wait_for_kernels(c);
    /* NCCL's commFree() calls cudaFree(), which waits for all operations on the device */
    host_device_wait(c->device, "the end of a communicator");
    host_lock();
    host_op_unref(c->last);
    c->last = NULL;
    c->magic = 0;
    host_unlock();
    peers_detach(c->peers);
    c->peers = NULL;
    free(c->own_ops);
    free(c->sends_to);
    free(c->receives_from);
    return ncclSuccess;
}

ncclResult_t comm_end(ncclComm_t comm, ncclResult_t (*run)(struct job *job)) {
    struct job *job = calloc(1, sizeof(*job));
    if (job == NULL) abort();
    job->comm = comm;
    job->run = run;
    ncclResult_t r = group_add_job(job);
    if (r != ncclSuccess) free(job);
    return r;
}

void comm_set_abort(ncclComm_t comm, int value) {
    host_lock();
    if (comm->child != NULL) atomic_store(&comm->child->abort_flag, value);
    atomic_store(&comm->abort_flag, value);
    host_unlock();
}

#pragma GCC visibility push(default)

const ncclConfig_t *host_nccl_config(ncclComm_t comm);
/* For tests: returns the configuration with which the program has made the communicator. */
const ncclConfig_t *host_nccl_config(ncclComm_t comm) { return &comm->config; }

const int *host_nccl_later_fields(ncclComm_t comm);
/* For tests: returns the fields that the program has passed behind those of this library's
 * ncclConfig_t. They are fields of a later version of NCCL. */
const int *host_nccl_later_fields(ncclComm_t comm) { return comm->later_fields; }

ncclResult_t ncclGetVersion(int *version) {
    struct host_fault f = host_call("ncclGetVersion");
    const char *other = getenv("HOST_NCCL_VERSION");
    *version = other != NULL ? atoi(other) : NCCL_VERSION_CODE;
    return f.kind == HOST_FAULT_NCCL ? (ncclResult_t) f.code : ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result) {
    static const char *const texts[] = {
        "no error",
        "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
        "unhandled system error (run with NCCL_DEBUG=INFO for details)",
        "internal error - please report this issue to the NCCL developers",
        "invalid argument",
        "invalid usage (run with NCCL_DEBUG=WARN for details)",
        "remote process exited or there was a network error",
        "NCCL operation in progress"};
    return (size_t) result < sizeof(texts) / sizeof(texts[0]) ? texts[result]
                                                              : "unknown result code";
}

const char *ncclGetLastError(ncclComm_t comm) {
    (void) comm;
    return last_error;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    struct host_fault f = host_call("ncclGetUniqueId");
    struct peers_address address;
    if (f.kind == HOST_FAULT_NCCL) return (ncclResult_t) f.code;
    if (peers_make(&address) < 0) return nccl_fail(ncclSystemError, "no memory for the root");
    memset(id, 0, sizeof(*id));
    memcpy(id->internal, &address, sizeof(address));
    return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int size, ncclUniqueId id, int rank) {
    return init_rank("ncclCommInitRank", comm, size, &id, rank, NULL);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t *config) {
    return init_rank("ncclCommInitRankConfig", comm, size, &id, rank, config);
}

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 23, 0)
ncclResult_t ncclCommInitRankScalable(ncclComm_t *comm, int size, int rank, int ids,
                                      ncclUniqueId *list, ncclConfig_t *config) {
    if (ids < 1 || ids > size || list == NULL)
        return nccl_fail(ncclInvalidArgument, "Invalid number of ids: %d", ids);
    return init_rank("ncclCommInitRankScalable", comm, size, &list[0], rank, config);
}
#endif

ncclResult_t ncclCommInitAll(ncclComm_t *list, int count, const int *devices) {
    ncclUniqueId id;
    int before = host_device();
    ncclResult_t r = ncclGetUniqueId(&id);
    group_start();
    for (int i = 0; i < count && r == ncclSuccess; i++) {
        host_set_device(devices != NULL ? devices[i] : i);
        r = init_rank("ncclCommInitAll", &list[i], count, &id, i, NULL);
    }
    ncclResult_t end = group_end();
    host_set_device(before);
    return r != ncclSuccess ? r : end;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state) {
    struct host_fault f = host_call("ncclCommGetAsyncError");
    ncclResult_t r = comm_check(comm, "ncclCommGetAsyncError");
    if (r != ncclSuccess) return r;
    if (f.kind == HOST_FAULT_NCCL) return (ncclResult_t) f.code;
    if (f.kind == HOST_FAULT_ASYNC) comm_set_async(comm, (ncclResult_t) f.code);
    *state = state_of(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
    struct host_fault f = host_call("ncclCommFinalize");
    if (comm == NULL) return ncclSuccess;
    ncclResult_t r = comm_check(comm, "ncclCommFinalize");
    if (r != ncclSuccess) return r;
    group_start();
    r = f.kind == HOST_FAULT_NCCL ? (ncclResult_t) f.code : comm_ready(comm);
    if (r == ncclSuccess && comm->finalized)
        r = nccl_fail(ncclInvalidArgument, "ncclCommFinalize was called before");
    if (r == ncclSuccess) {
        comm->finalized = true;
        r = comm_end(comm, run_finalize);
    } else if (!comm->blocking) {
        comm_set_async(comm, r);
    }
    (void) group_error(r);
    ncclResult_t end = group_end();
    if (end != ncclSuccess && end != ncclInProgress) return end;
    return comm->blocking ? r : comm_outcome(comm, end);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    struct host_fault f = host_call("ncclCommDestroy");
    if (comm == NULL) return ncclSuccess;
    ncclResult_t r = comm_check(comm, "ncclCommDestroy");
    if (r != ncclSuccess) return r;
    if (f.kind == HOST_FAULT_NCCL) return (ncclResult_t) f.code;
    group_start();
    comm->destroying = true;
    r = comm_ready(comm);
    if (r != ncclSuccess) return r; /* leaves the group open, as NCCL does */
    group_join(comm);
    (void) group_error(comm_end(comm, run_reclaim));
    return group_end();
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
    struct host_fault f = host_call("ncclCommAbort");
    if (comm == NULL) return ncclSuccess;
    ncclResult_t r = comm_check(comm, "ncclCommAbort");
    if (r != ncclSuccess) return r;
    if (f.kind == HOST_FAULT_NCCL) return (ncclResult_t) f.code;
    group_start();
    comm_set_abort(comm, 1);
    comm->destroying = true;
    (void) comm_ready(comm);
    (void) group_error(comm_end(comm, run_reclaim));
    return group_end();
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int *count) {
    ncclResult_t r = comm_check(comm, "ncclCommCount");
    if (r == ncclSuccess) r = comm_ready(comm);
    if (r == ncclSuccess) *count = comm->size;
    return r;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device) {
    ncclResult_t r = comm_check(comm, "ncclCommCuDevice");
    if (r == ncclSuccess) r = comm_ready(comm);
    if (r == ncclSuccess) *device = comm->device;
    return r;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank) {
    ncclResult_t r = comm_check(comm, "ncclCommUserRank");
    if (r == ncclSuccess) r = comm_ready(comm);
    if (r == ncclSuccess) *rank = comm->rank;
    return r;
}

#pragma GCC visibility pop
