/* The waits of the nccl backend, and errors of CUDA and NCCL as texts.
 *
 * NCCL has no descriptor on which a wait could sleep. So a wait repeatedly checks the CUDA event or
 * the communicator's asynchronous error, and its deadline. Every 100 ms it also checks the store,
 * where another rank may have reported a failure that this rank cannot see: when a peer that is
 * connected by NVLink dies, the kernel on this GPU does not end. */
#include "worker_runtime/backends/nccl/nccl_internal.h"

#include "base/clock.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <time.h>

/* ---- errors ---- */

int fail_cuda(const struct nccl_api *api, cudaError_t e, int code, struct cr_error *err,
                     const char *what) {
    return cr_fail(err, code, "%s: CUDA error %d (%s: %s)", what, (int) e, api->cudaGetErrorName(e),
                   api->cudaGetErrorString(e));
}

/* Returns whether the CUDA context is lost after this error, so that no CUDA call of this process
 * will succeed again. */
static bool is_sticky(cudaError_t e) {
    return (e >= 700 && e <= 720 && e != 708 && e != 709 && e != 713) || e == 214 || e == 220;
}

static const char *sticky_note(const struct nccl_api *api) {
    return is_sticky(api->cudaGetLastError())
               ? "; the CUDA context is lost, only a new process helps"
               : "";
}

/* NCCL's own "invalid argument" becomes -EIO, not -EINVAL: a non-blocking communicator keeps it as
 * its state (NCCL 2.28.9 and 2.30.7, enqueue.cc, ncclEnqueueCheck), so no later call succeeds and
 * the group must be broken. -EINVAL is reserved for arguments that this library has refused. */
int fail_nccl(const struct nccl_api *api, ncclResult_t r, struct cr_error *err, const char *what) {
    int code = r == ncclRemoteError ? -ECONNRESET : -EIO;
    const char *detail = api->ncclGetLastError(NULL);
    return cr_fail(err, code, "%s: NCCL error %d (%s)%s%s%s", what, (int) r,
                   api->ncclGetErrorString(r), detail != NULL && detail[0] != '\0' ? ": " : "",
                   detail != NULL ? detail : "", sticky_note(api));
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

struct wait wait_begin(const struct backend_store *store, int64_t timeout_ms) {
    return wait_until(store, cr_deadline_ms(timeout_ms));
}

struct wait wait_until(const struct backend_store *store, int64_t deadline_ms) {
    return (struct wait){store, cr_monotonic_ns(), deadline_ms,
                         cr_monotonic_ms() + STORE_LOOK_EVERY_MS};
}

int wait_turn(struct wait *w, const char *phase, int64_t timeout_ms, struct cr_error *err) {
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

int wait_for_comm_with(struct nccl_state *s, struct wait *w, const char *phase, int64_t timeout_ms,
                       struct cr_error *err) {
    for (;;) {
        ncclResult_t state = ncclInternalError;
        ncclResult_t r = s->api->ncclCommGetAsyncError(s->comm, &state);
        if (r != ncclSuccess) return fail_nccl(s->api, r, err, phase);
        if (state == ncclSuccess) return 0;
        if (state != ncclInProgress) return fail_nccl(s->api, state, err, phase);
        int rc = wait_turn(w, phase, timeout_ms, err);
        if (rc < 0) return rc;
    }
}

int wait_for_comm_of(struct nccl_state *s, const struct backend_store *store, const char *phase,
                     int64_t timeout_ms, struct cr_error *err) {
    struct wait w = wait_begin(store, timeout_ms);
    return wait_for_comm_with(s, &w, phase, timeout_ms, err);
}

int wait_for_comm(struct nccl_state *s, const char *phase, int64_t timeout_ms,
                  struct cr_error *err) {
    return wait_for_comm_of(s, &s->store, phase, timeout_ms, err);
}

int look_at_event(struct nccl_state *s, cudaEvent_t event, struct cr_error *err) {
    /* This check comes first, because an abort ends the kernels, so their events complete although
     * the data is invalid. */
    if (s->comm == NULL) return cr_fail(err, -ECONNRESET, "the communicator was aborted");
    cudaError_t e = s->api->cudaEventQuery(event);
    if (e == cudaSuccess) return 0;
    if (e != cudaErrorNotReady) {
        return cr_fail(err, -EIO, "the operation failed on the GPU: CUDA error %d (%s)%s", (int) e,
                       s->api->cudaGetErrorName(e),
                       is_sticky(e) ? "; the CUDA context is lost, only a new process helps" : "");
    }
    ncclResult_t state = ncclSuccess;
    ncclResult_t r = s->api->ncclCommGetAsyncError(s->comm, &state);
    if (r == ncclSuccess && state != ncclInProgress) r = state;
    return r == ncclSuccess ? -EINPROGRESS : fail_nccl(s->api, r, err, "the operation failed");
}

int wait_for_event(struct nccl_state *s, cudaEvent_t event, int64_t deadline_ms,
                   int64_t timeout_ms, struct cr_error *err) {
    struct wait w = wait_until(&s->store, deadline_ms);
    for (;;) {
        int rc = look_at_event(s, event, err);
        if (rc != -EINPROGRESS) return rc;
        rc = wait_turn(&w, "the operation", timeout_ms, err);
        if (rc < 0) return rc;
    }
}
