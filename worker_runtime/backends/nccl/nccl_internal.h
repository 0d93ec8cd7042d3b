/* Declarations that the files of the nccl backend share: the state of one communicator, and
 * functions for errors, launches, the overseer over communicators, and their end.
 *
 * Threads. At most one thread at a time makes a call on a group. Besides it, two threads use a
 * state: the overseer (nccl_overseer.c), and the thread that aborts or closes communicators
 * (nccl_end.c). One lock per process, nccl_lock(), guards what they share. */
#ifndef BACKENDS_NCCL_INTERNAL_H
#define BACKENDS_NCCL_INTERNAL_H

#include "worker_runtime/backends/backend.h"
#include "worker_runtime/backends/nccl/nccl_api.h"

#include "base/clock.h"

#include <stdbool.h>
#include <stdint.h>

/* time between two checks whether another rank has reported a failure in the store */
#define STORE_LOOK_EVERY_MS INT64_C(100)

struct nccl_state {
    const struct nccl_api *api;
    void *context; /* the primary context of the device, which the CUDA runtime uses, too */
    int ordinal;   /* the driver's number of the device */
    int device, rank, size;
    /* The stream of the group's caller, on which nothing is run: operations wait for what is on it,
     * and it can be made to wait for operations. */
    cudaStream_t caller_stream;
    cudaStream_t own;      /* the stream on which operations run */
    cudaStream_t captured; /* the stream for operations that become part of a CUDA graph */
    cudaEvent_t ready;     /* recorded on a caller's stream, so that `own` can wait for it */
    cuda_pointer scratch;  /* one int32 on the device, which a barrier reduces */
    bool is_blocking;
    bool reads_host_memory; /* true: the GPU shares the CPU's address space */
    int aborts_before; /* number of aborts that this process had begun when the state was made */
    char name[64]; /* name of the communicator; NCCL keeps a pointer to this array */
    struct backend_store store;
    struct launch *pending; /* sends and receives that are not on the stream yet; or NULL */

    /* All following members are guarded by nccl_lock(). */
    ncclComm_t comm;    /* NULL before it is initialised, and once it is aborted or destroyed */
    bool is_connected;  /* true: an abort of any connected communicator also aborts this one */
    bool is_aborting;   /* true: the communicator's abort has begun and is not over */
    bool is_wedged;     /* true: the communicator's abort has not returned, so CUDA calls may not
                         * return either */
    bool is_waited_for; /* true: a thread is in wait_for_launch() for an operation of this state */
    bool has_graphs;    /* true: operations of the communicator have become part of CUDA graphs */
    int inside;         /* number of threads that are in a call of NCCL with this communicator */
    int pins;           /* > 0: the overseer uses the state without holding the lock */
    /* The call of NCCL that the group's thread is in: what it does, when it began, its limits. */
    const char *phase;
    int64_t call_began_ms, call_timeout_ms, call_deadline_ms;
    struct cr_error failure;    /* why the overseer has aborted it; code 0: it has not */
    /* launches that are not known to be complete: a list from the oldest to the newest */
    struct launch *oldest, *newest;
    struct launch *spare;       /* launches that can be used again */
    struct nccl_state *next;    /* the list of all states that the overseer looks at */
    struct nccl_state *next_in_job;   /* the states that are aborted together */
    struct nccl_state *wedged_before; /* the list of wedged states */
};

/* ---- nccl_wait.c: errors and waits ---- */

/* Sets err to `code` and the text "<what>: CUDA error 100 (…)". Returns `code`; or
 * -ENOTRECOVERABLE if after this error the process can use no GPU any more. */
int fail_cuda(const struct nccl_api *api, int e, int code, struct cr_error *err, const char *what);

/* Sets err to a text that contains NCCL's description of the error `r`. Returns -ECONNRESET for a
 * remote error, -ENOTRECOVERABLE if the CUDA context is lost, else -EIO. `s` may be NULL. */
int fail_nccl(const struct nccl_api *api, struct nccl_state *s, ncclResult_t r,
              struct cr_error *err, const char *what);

/* Returns 0; or -ENOTRECOVERABLE if this process can use no GPU any more, because the CUDA context
 * is lost or an abort has not returned. */
int nccl_recoverable(struct cr_error *err);

/* The state of a wait. A wait checks a condition repeatedly, until the condition holds, the
 * deadline has passed, or another rank has reported a failure in the store. */
struct wait {
    const struct backend_store *store;
    int64_t started_ns, deadline_ms, next_look_ms;
};

struct wait wait_until(const struct backend_store *store, int64_t deadline_ms);

/* Call this when the condition does not hold yet. It sleeps for up to 1 ms. Returns 0 if the caller
 * shall check the condition again; -ETIMEDOUT if the deadline has passed, with a text that names
 * `phase` and timeout_ms; or the failure that another rank has reported. */
int wait_turn(struct wait *w, const char *phase, int64_t timeout_ms, struct cr_error *err);

/* Waits until the pending NCCL call on the communicator is over, or the deadline has passed.
 * `store` is checked for failures that other ranks have reported. Returns 0 or a negative errno,
 * and sets err to a text that names `phase`. */
int wait_for_comm(struct nccl_state *s, const struct backend_store *store, const char *phase,
                  int64_t timeout_ms, int64_t deadline_ms, struct cr_error *err);

/* Returns 0; -EINPROGRESS if a call of NCCL on the communicator is in progress; the error of the
 * communicator, also one that came asynchronously; or why the communicator was aborted. */
int look_at_comm(struct nccl_state *s, const char *phase, struct cr_error *err);

/* ---- nccl_launch.c: operations on the stream ---- */

/* What this thread had before a visit: its context and its capture mode. */
struct visit {
    void *context;
    int mode;
};

/* Makes the device of the state the current one of this thread, until visit_end(). In between, the
 * thread's calls do not invalidate captures of other threads. Returns 0; or sets err. */
int visit_begin(struct nccl_state *s, struct visit *v, struct cr_error *err);
void visit_end(struct nccl_state *s, const struct visit *v);

/* Returns 0 if the launch is complete, -EINPROGRESS if it is not, or the error with which it
 * failed. After an abort of the communicator it returns an error, even if the event of the launch
 * is complete. */
int look_at_launch(struct launch *l, struct cr_error *err);

/* Call this with the lock held. Returns 0 if the oldest launch of the state is complete (it leaves
 * the list); -EINPROGRESS, and stores its limits, if it is not; or the error of its event. If there
 * is no launch, it returns -ENOENT. */
int look_at_oldest(struct nccl_state *s, int64_t *timeout_ms, int64_t *deadline_ms,
                   struct cr_error *err);

/* Frees all launches of a state that is being closed. */
void free_launches(struct nccl_state *s);

/* ---- nccl_ops.c: operations as calls of NCCL ---- */

/* Refuses an operation that NCCL does not have, or a buffer that the GPU cannot reach. Returns 0,
 * -EINVAL or -ENOTSUP. */
int check_call(const struct nccl_state *s, const struct backend_call *call, struct cr_error *err);

/* Puts an operation that check_call() has accepted on the stream. */
ncclResult_t enqueue(const struct nccl_state *s, ncclComm_t comm, const struct backend_call *call,
                     cudaStream_t stream);

/* ---- nccl_overseer.c: deadlines of calls, and of operations for which nobody waits ---- */

void nccl_lock(void);
void nccl_unlock(void);
void nccl_changed(void); /* wakes all threads in nccl_wait_change(); hold the lock */

/* Waits for nccl_changed(), but not beyond the deadline. Hold the lock. Returns false if the
 * deadline has passed. */
bool nccl_wait_change(int64_t deadline_ms);

/* overseer_add() adds a state to those that the overseer looks at. The first call starts the thread
 * of the overseer. Returns 0, or -EAGAIN and sets err. */
int overseer_add(struct nccl_state *s, struct cr_error *err);
void overseer_remove(struct nccl_state *s); /* waits until the overseer does not use the state */

/* Calls func(s, arg) for each state of the overseer. Hold the lock. */
void overseer_each(void (*func)(struct nccl_state *s, void *arg), void *arg);

/* Wakes the overseer if it sleeps without a limit. Call it when a state has got something to watch.
 */
void overseer_wake(void);

/* Call this before a call of NCCL that returns at once. Until comm_give(), the communicator is not
 * freed. Returns 0, and stores the communicator in *comm unless comm is NULL; or, if the
 * communicator has been aborted, the reason of the abort. */
int comm_take(struct nccl_state *s, ncclComm_t *comm, struct cr_error *err);

/* Call this after that call of NCCL. Returns 0; or, if the communicator has been aborted, the
 * reason of the abort, and sets err. */
int comm_give(struct nccl_state *s, struct cr_error *err);

/* call_begin() and call_end() do what comm_take() and comm_give() do, for calls of NCCL that may
 * wait for other ranks. If the call is not over at the deadline, or if another rank has failed, the
 * overseer aborts the communicator, so that the call of NCCL returns. */
int call_begin(struct nccl_state *s, ncclComm_t *comm, const char *phase, int64_t timeout_ms,
               int64_t deadline_ms, struct cr_error *err);
int call_end(struct nccl_state *s, struct cr_error *err);

/* Sets err to why the communicator is gone, and returns the code. Hold the lock. */
int fail_gone(const struct nccl_state *s, struct cr_error *err);

/* ---- nccl_state.c ---- */

/* Makes a state that nccl_close() can free. Its member `api` stays NULL. Returns NULL, and sets
 * err, if memory is short. */
struct nccl_state *state_new(const struct backend_group *group, struct cr_error *err);

/* Makes what the state needs on its device: event, scratch memory and streams. Returns 0, or
 * -ENODEV and sets err. */
int prepare_device(struct nccl_state *s, struct cr_error *err);
void release_device(struct nccl_state *s);

ncclConfig_t config_of(const struct nccl_state *s);

/* Ends all open group calls (ncclGroupStart()) of this thread. Some releases of NCCL leave a group
 * call open when a call in it fails early, and every later call would only be queued. */
void repair_group_depth(const struct nccl_api *api);

/* ---- nccl_end.c ---- */

/* Call this when the communicator of `s` is connected: from now on it is aborted together with all
 * other connected communicators. */
void set_connected(struct nccl_state *s);

/* Returns how many communicators of this process have been aborted so far. */
int abort_count(void);

/* Returns whether an abort or close of any communicator of this process has not returned. */
bool has_wedged_comm(void);

/* Aborts the communicator of the state `arg`. If it is connected, all connected communicators of
 * this process are aborted together: an abort waits for all kernels of the device, and kernels of
 * the other communicators may wait for the same dead peer. */
void nccl_abort(void *arg);

/* Does what nccl_abort() does. From now on, operations on `s` return `reason`, unless it is NULL.
 */
void abort_because(struct nccl_state *s, const struct cr_error *reason);

/* Ends the communicator of the state `arg` and frees the state. Waits until that is done, but not
 * longer than its time limit. */
void nccl_close(void *arg);

/* ---- functions in the backend's table ---- */

int nccl_probe(const struct backend_group *group, struct cr_error *err);
int nccl_open(const struct backend_group *group, void **out, struct cr_error *err);
int nccl_can_split(void *arg, const struct backend_group *g);
int nccl_split(void *arg, const struct backend_group *g, void **out, struct cr_error *err);
int nccl_run(void *arg, const struct backend_call *call, struct cr_error *err);
int nccl_batch(void *arg, const struct backend_call *calls, size_t count, struct cr_error *err);
int nccl_start(void *arg, const struct backend_call *call, void **out, struct cr_error *err);
int nccl_start_batch(void *arg, const struct backend_call *calls, size_t count, void **out,
                     struct cr_error *err);
int nccl_wait(void *arg, int64_t timeout_ms, struct cr_error *err);
int nccl_wait_stream(void *arg, void *stream, struct cr_error *err);
void nccl_release(void *arg);
int nccl_flush(struct nccl_state *s, struct cr_error *err);

#endif
