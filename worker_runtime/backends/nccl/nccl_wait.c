/* Errors of CUDA and NCCL as texts, and waits.
 *
 * NCCL has no descriptor on which a wait could sleep. So a wait checks the CUDA event or the
 * communicator's asynchronous error again and again, until the deadline. Each time it also checks
 * whether the agent has ended the round, which needs no request. Every 100 ms it also checks the
 * store for failures that other ranks have reported. This rank may not notice such a failure
 * itself: when a peer that is connected by NVLink dies, the kernel on this GPU does not end. */
#include "worker_runtime/backends/nccl/nccl_internal.h"

#include "base/time/clock.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

/* ---- errors ---- */

/* the first CUDA error of this process after which every call of CUDA fails; 0 if there was none */
static atomic_int lost_by;

/* Returns true for an error of which the CUDA manual says that the process must be ended: ECC and
 * NVLink errors, faults of kernels, a destroyed context. */
static bool is_sticky(int e) {
    return e == 214 || e == 220 || e == 226 || e == 700 || e == 702 || e == 709 || e == 710 ||
           (e >= 714 && e <= 719) || e == 721;
}

static const char sticky_note[] = "; the CUDA context is lost, only a new process helps";

static bool note_sticky(int e) {
    int none = 0;
    if (!is_sticky(e)) return false;
    (void) atomic_compare_exchange_strong(&lost_by, &none, e);
    return true;
}

int fail_cuda(const struct nccl_api *api, int e, int code, struct cr_error *err, const char *what) {
    const char *name = "?", *text = "?";
    (void) api->cuGetErrorName(e, &name);
    (void) api->cuGetErrorString(e, &text);
    bool is_lost = note_sticky(e);
    return cr_fail(err, is_lost ? -ENOTRECOVERABLE : code, "%s: CUDA error %d (%s: %s)%s", what, e,
                   name, text, is_lost ? sticky_note : "");
}

/* ncclInvalidArgument becomes -EIO, not -EINVAL, because -EINVAL means that this library has
 * refused a call and the group is usable. After ncclInvalidArgument the group is not usable: NCCL's
 * manual says that the communicator is, but a non-blocking communicator keeps this error as its
 * state (NCCL 2.28.9 and 2.30.7, enqueue.cc, ncclEnqueueCheck). */
int fail_nccl(const struct nccl_api *api, struct nccl_state *s, ncclResult_t r,
              struct cr_error *err, const char *what) {
    int code = r == ncclRemoteError ? -ECONNRESET : -EIO;
    const char *detail = api->ncclGetLastError(NULL);
    /* if the CUDA context is lost, a query of any event returns the error that has caused the loss
     */
    int e = s != NULL && s->ready != NULL ? api->cuEventQuery(s->ready) : 0;
    bool is_lost = note_sticky(e);
    return cr_fail(err, is_lost ? -ENOTRECOVERABLE : code, "%s: NCCL error %d (%s)%s%s%s", what,
                   (int) r, api->ncclGetErrorString(r),
                   detail != NULL && detail[0] != '\0' ? ": " : "", detail != NULL ? detail : "",
                   is_lost ? sticky_note : "");
}

int nccl_recoverable(struct cr_error *err) {
    if (atomic_load(&lost_by) != 0) {
        return cr_fail(err, -ENOTRECOVERABLE,
                       "use the GPU: this process has lost its CUDA context by CUDA error %d; end "
                       "the process",
                       atomic_load(&lost_by));
    }
    if (!has_wedged_comm()) return 0;
    return cr_fail(err, -ENOTRECOVERABLE,
                   "use NCCL: a communicator of this process could not be aborted and holds the "
                   "GPU; end the process");
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
    if (now >= w->next_look_ms || w->store->is_over(w->store->arg)) {
        w->next_look_ms = now + STORE_LOOK_EVERY_MS;
        int rc = w->store->failed(w->store->arg, err);
        if (rc < 0) return rc;
    }
    pause_between_looks(w->started_ns);
    return 0;
}

static ncclResult_t get_error(const struct nccl_state *s, ncclComm_t comm) {
    ncclResult_t state = ncclSuccess;
    ncclResult_t r = s->api->ncclCommGetAsyncError(comm, &state);
    return r == ncclSuccess ? state : r;
}

static int judge(struct nccl_state *s, ncclResult_t r, const char *phase, struct cr_error *err) {
    if (r == ncclInProgress) return -EINPROGRESS;
    return r == ncclSuccess ? 0 : fail_nccl(s->api, s, r, err, phase);
}

int look_at_comm(struct nccl_state *s, const char *phase, struct cr_error *err) {
    ncclComm_t comm = NULL;
    int rc = comm_take(s, &comm, err);
    if (rc < 0) return rc;
    ncclResult_t r = get_error(s, comm);
    rc = comm_give(s, err);
    return rc < 0 ? rc : judge(s, r, phase, err);
}

int inspect_comm(struct nccl_state *s, const char *phase, struct cr_error *err) {
    ncclComm_t comm = NULL;
    if (!inspect_begin(s, &comm)) return 0;
    ncclResult_t r = get_error(s, comm);
    int rc = inspect_end(s, err);
    return rc < 0 ? rc : judge(s, r, phase, err);
}

int wait_for_comm(struct nccl_state *s, const struct backend_store *store, const char *phase,
                  int64_t timeout_ms, int64_t deadline_ms, struct cr_error *err) {
    struct wait w = wait_until(store, deadline_ms);
    for (;;) {
        int rc = look_at_comm(s, phase, err);
        if (rc != -EINPROGRESS) return rc;
        rc = wait_turn(&w, phase, timeout_ms, err);
        if (rc < 0) return rc;
    }
}
