/* Declarations that the files of the nccl backend share: the state of one communicator, and the
 * functions for errors, launches, the overseer, and the end of communicators.
 *
 * Threads. A group is used by one thread at a time. Two more threads use the group's state: the
 * overseer (nccl_overseer.c), and a thread that aborts or closes communicators (nccl_end.c). One
 * lock per process, nccl_lock(), guards what these threads share. */
#ifndef BACKENDS_NCCL_INTERNAL_H
#define BACKENDS_NCCL_INTERNAL_H

#include "worker_runtime/backends/backend.h"
#include "worker_runtime/backends/nccl/nccl_api.h"

#include "base/time/clock.h"

#include <stdbool.h>
#include <stdint.h>

/* time in ms between two checks of the store for failures that other ranks have reported */
#define STORE_LOOK_EVERY_MS INT64_C(100)

struct nccl_state {
    const struct nccl_api *api;
    void *context; /* the device's primary context, which the CUDA runtime also uses */
    int ordinal;   /* the driver's number of the device */
    int device, rank, size;
    /* The stream that the program gave for this group. The backend runs no operation on this
     * stream: operations run on `own` and wait for what the program has put on this stream before.
     */
    cudaStream_t caller_stream;
    int64_t timeout_ms;    /* timeout in ms of calls of NCCL that are no operations */
    cudaStream_t own;      /* the stream on which operations run */
    cudaStream_t captured; /* the stream on which operations are captured into a CUDA graph */
    cudaEvent_t ready;     /* recorded on a caller's stream, so that `own` can wait for that
                            * stream */
    cuda_pointer scratch;  /* one int32 in device memory: a barrier is an all-reduce of it */
    bool is_blocking;
    bool reads_host_memory; /* true if the GPU shares the CPU's address space */
    int aborts_before;      /* the value of abort_count() when this state was made */
    char *name;             /* the communicator's name; NCCL keeps this pointer */
    struct nccl_config_layout config; /* what the program has configured; NCCL keeps the pointers
                                       * in it */
    char *net_name;         /* copy of the configured name of the network plugin; NULL if none */
    bool may_rejoin;        /* true if the process may rejoin and the group has all ranks, so that
                             * the communicator is kept after a failure; see nccl_reform.c */
    bool is_kept;           /* true if the communicator was kept for the next round: NCCL still
                             * uses `name` and net_name, so state_free() does not free them */
    uint64_t tag;           /* number that all ranks of the communicator have in common; 0 if the
                             * group does not have all ranks */
    struct backend_store store;
    struct launch *pending; /* started sends and receives that are not on the stream yet; NULL if
                             * there are none */

    /* All fields below are guarded by nccl_lock(). */
    ncclComm_t comm;    /* NULL before the communicator is initialised, and after its abort or
                         * destroy */
    bool is_connected;  /* true if an abort of any connected communicator also aborts this one */
    bool is_aborting;   /* true while an abort of the communicator is under way */
    bool is_wedged;     /* true if an abort of the communicator exceeded its time limit; calls of
                         * CUDA may hang, too */
    bool is_waited_for; /* true if a thread is in wait_for_launch() for an operation of this
                         * state */
    bool has_graphs;    /* true if operations of the communicator have become part of CUDA graphs */
    int inside;         /* number of threads that are in a call of NCCL with this communicator */
    bool is_inspected;  /* true while the overseer asks NCCL for the communicator's error; until it
                         * is false, no other thread begins a call with the communicator */
    int pins;           /* greater than 0: the overseer uses the state, even without nccl_lock() */
    /* The call of NCCL that the group's thread is in: what the call does (for error texts; NULL if
     * the thread is in no call), when it began, its timeout and its deadline, all three in ms. */
    const char *phase;
    int64_t call_began_ms, call_timeout_ms, call_deadline_ms;
    struct cr_error failure; /* why the overseer has aborted the communicator; its code is 0 if the
                              * overseer has not aborted it */
    /* list of the launches that are not known to be complete, the oldest first */
    struct launch *oldest, *newest;
    struct launch *spare;             /* list of launches that can be used again */
    struct nccl_state *next;          /* next state in the list of all that the overseer watches */
    struct nccl_state *next_in_job;   /* next state in the list of those that one job aborts */
    struct nccl_state *wedged_before; /* next state in the list of wedged states */
};

/* ---- nccl_wait.c: errors and waits ---- */

/* Sets err to the text "<what>: CUDA error <e> (…)". Returns `code`; or -ENOTRECOVERABLE if `e` is
 * an error after which this process can use no GPU any more. */
int fail_cuda(const struct nccl_api *api, int e, int code, struct cr_error *err, const char *what);

/* Sets err to `what` and NCCL's text for the error `r`. Returns -ENOTRECOVERABLE if the CUDA
 * context is lost, -ECONNRESET for ncclRemoteError, and -EIO for any other error. `s` may be NULL;
 * in this case a lost CUDA context is not noticed. */
int fail_nccl(const struct nccl_api *api, struct nccl_state *s, ncclResult_t r,
              struct cr_error *err, const char *what);

/* Returns 0 if this process can use the GPU. Otherwise returns -ENOTRECOVERABLE and sets err: the
 * CUDA context is lost, or the abort of a communicator has not returned in time. */
int nccl_recoverable(struct cr_error *err);

/* The state of a wait, which checks a condition again and again. The wait ends when the condition
 * holds, when the deadline has passed, or when another rank has reported a failure in the store. */
struct wait {
    const struct backend_store *store;
    int64_t started_ns, deadline_ms, next_look_ms;
};

struct wait wait_until(const struct backend_store *store, int64_t deadline_ms);

/* Call this if the condition does not hold. Pauses for up to 1 ms. Returns 0 if the caller must
 * check the condition again. Otherwise sets err and returns a negative errno: -ETIMEDOUT if the
 * deadline has passed (the text names `phase` and timeout_ms); or what store->failed() returns,
 * usually -ECONNRESET, if another rank has reported a failure. */
int wait_turn(struct wait *w, const char *phase, int64_t timeout_ms, struct cr_error *err);

/* Waits until the call of NCCL that is in progress on the communicator is over. Returns 0 when it
 * is over. Returns a negative errno and sets err if the call failed, if the deadline has passed
 * (the text names `phase` and timeout_ms), or if another rank has reported a failure in `store`. */
int wait_for_comm(struct nccl_state *s, const struct backend_store *store, const char *phase,
                  int64_t timeout_ms, int64_t deadline_ms, struct cr_error *err);

/* Checks the communicator. Returns 0 if it is usable, and -EINPROGRESS if a call of NCCL on it is
 * in progress. Otherwise sets err and returns a negative errno: the error that NCCL reports for
 * the communicator, also one of an earlier operation; or, if the communicator was aborted, the
 * reason of the abort. Only the group's thread calls this. */
int look_at_comm(struct nccl_state *s, const char *phase, struct cr_error *err);

/* The overseer calls this in place of look_at_comm(). Returns 0 at once if there is no
 * communicator, if it is being aborted, or if the group's thread is in a call of NCCL with it,
 * because NCCL allows only one thread at a time to use a communicator. Otherwise does what
 * look_at_comm() does. */
int inspect_comm(struct nccl_state *s, const char *phase, struct cr_error *err);

/* ---- nccl_launch.c: operations on the stream ---- */

/* The context and the capture mode that a thread had before visit_begin(). visit_end() restores
 * them. */
struct visit {
    void *context;
    int mode;
};

/* Makes the state's device the current one of this thread, until visit_end(). Between the two
 * calls, CUDA calls of this thread do not invalidate captures of other threads. Returns 0; or a
 * negative errno, and sets err. */
int visit_begin(struct nccl_state *s, struct visit *v, struct cr_error *err);
void visit_end(struct nccl_state *s, const struct visit *v);

/* Returns 0 if the launch is complete, and -EINPROGRESS if it is not. Otherwise sets err and
 * returns the error with which it failed. If the communicator was aborted before the launch was
 * seen to be complete, this is an error even if the launch's event is complete. */
int look_at_launch(struct launch *l, struct cr_error *err);

/* Call this with nccl_lock() held. Checks the oldest launch of the state. Returns -ENOENT if there
 * is no launch or no communicator. If the launch is complete, removes it from the list and returns
 * 0. If it is not complete, stores its limits in *timeout_ms and *deadline_ms and returns
 * -EINPROGRESS. If the launch's event reports an error, sets err and returns a negative errno. */
int look_at_oldest(struct nccl_state *s, int64_t *timeout_ms, int64_t *deadline_ms,
                   struct cr_error *err);

/* Frees all launches of a state that is being closed. */
void free_launches(struct nccl_state *s);

/* ---- nccl_ops.c: operations as calls of NCCL ---- */

/* Checks that NCCL has the operation and that the GPU can reach its buffers. Returns 0; or -EINVAL
 * or -ENOTSUP, and sets err. */
int check_call(const struct nccl_state *s, const struct backend_call *call, struct cr_error *err);

/* Puts an operation on the stream. Call this only for an operation that check_call() has accepted.
 */
ncclResult_t enqueue(const struct nccl_state *s, ncclComm_t comm, const struct backend_call *call,
                     cudaStream_t stream);

/* ---- nccl_overseer.c: deadlines of calls, and of operations for which nobody waits ---- */

void nccl_lock(void);
void nccl_unlock(void);
/* Wakes all threads in nccl_wait_change(). Call this with nccl_lock() held. */
void nccl_changed(void);

/* Call this with nccl_lock() held. Waits for the next nccl_changed(), but not beyond the deadline.
 * Returns false if the deadline has passed. */
bool nccl_wait_change(int64_t deadline_ms);

/* Adds a state to those that the overseer watches. The first call starts the overseer's thread.
 * Returns 0; or a negative errno, and sets err, if no thread can be started. */
int overseer_add(struct nccl_state *s, struct cr_error *err);
/* Removes a state from those that the overseer watches. Returns when the overseer no longer uses
 * the state. */
void overseer_remove(struct nccl_state *s);

/* Call this with nccl_lock() held. Calls func(s, arg) for each state that the overseer watches. */
void overseer_each(void (*func)(struct nccl_state *s, void *arg), void *arg);

/* Call this after a call of NCCL has begun, or after an operation or a CUDA graph has been added to
 * a state, because the overseer must watch them. Wakes the overseer if it is asleep. */
void overseer_wake(void);

/* Begins a use of the communicator: it is not freed until comm_give() is called. Call this before a
 * call of NCCL that returns at once. Returns 0, and stores the communicator in *comm if `comm` is
 * not NULL. If the communicator has been aborted, returns a negative errno and sets err to the
 * reason of the abort. */
int comm_take(struct nccl_state *s, ncclComm_t *comm, struct cr_error *err);

/* Ends the use that comm_take() has begun. Call this after the call of NCCL, if comm_take() has
 * returned 0. Returns 0. If the communicator has been aborted since comm_take(), returns a negative
 * errno and sets err to the reason of the abort. */
int comm_give(struct nccl_state *s, struct cr_error *err);

/* The overseer's thread calls these in place of comm_take() and comm_give(). inspect_begin()
 * returns false if there is no communicator, if it is being aborted, or if another thread is in a
 * call with it. If inspect_begin() returns true, other threads wait in comm_take() and call_begin()
 * until inspect_end() is called. inspect_end() returns what comm_give() returns. */
bool inspect_begin(struct nccl_state *s, ncclComm_t *comm);
int inspect_end(struct nccl_state *s, struct cr_error *err);

/* For a call of NCCL that may wait for other ranks, use call_begin() and call_end() instead of
 * comm_take() and comm_give(); they return the same values. If the call of NCCL is not over at the
 * deadline, or if another rank has failed, the overseer aborts the communicator, so that the call
 * of NCCL returns. */
int call_begin(struct nccl_state *s, ncclComm_t *comm, const char *phase, int64_t timeout_ms,
               int64_t deadline_ms, struct cr_error *err);
int call_end(struct nccl_state *s, struct cr_error *err);

/* Call this with nccl_lock() held. Sets err to the reason for which the communicator was aborted,
 * and returns the reason's error code. */
int fail_gone(const struct nccl_state *s, struct cr_error *err);

/* ---- nccl_state.c ---- */

/* Makes a state. nccl_close() frees it, even if nothing more has been made in it. Returns NULL, and
 * sets err, if memory is short. */
struct nccl_state *state_new(const struct backend_group *group, struct cr_error *err);

/* Makes what the state needs on its device: streams, an event and scratch memory; and gives the
 * state to the overseer. Returns 0; or a negative errno, and sets err. */
int prepare_device(struct nccl_state *s, struct cr_error *err);
void release_device(struct nccl_state *s);
void state_free(struct nccl_state *s);

/* Copies the program's configuration to s->config. Returns 0; -ENOTSUP, and sets err, if the loaded
 * NCCL lacks a field that is set; or -ENOMEM. */
int read_config(struct nccl_state *s, const crunrt_nccl_config *given, struct cr_error *err);

/* Returns the configuration with which NCCL makes the communicator of `s`. */
union nccl_config config_of(const struct nccl_state *s);

/* Ends all ncclGroupStart() of this thread that have no ncclGroupEnd() yet. Some releases of NCCL
 * leave such a group open when a call fails early; in an open group, later calls are only queued.
 */
void repair_group_depth(const struct nccl_api *api);

/* ---- nccl_end.c ---- */

/* Returns true after the communicator of `s` is made, until it is aborted or ended. */
bool has_comm(struct nccl_state *s);

/* Call this when the communicator of `s` is connected. After this call, an abort of any connected
 * communicator aborts this one, too. */
void set_connected(struct nccl_state *s);

/* Returns how many aborts this process has begun, including those that have ended. One abort may be
 * of several communicators. */
int abort_count(void);

/* Returns true if the abort or close of any communicator of this process could not start, or
 * exceeded its time limit and has not returned yet. */
bool has_wedged_comm(void);

/* Aborts the communicator of `arg`, a struct nccl_state. If it is connected, all connected
 * communicators of this process are aborted together. The reason: an abort waits for all kernels of
 * the device, and kernels of other communicators may wait for the same dead peer. */
void nccl_abort(void *arg);

/* Does what nccl_abort() does. If `reason` is not NULL, later operations on `s` fail with this
 * error. */
void abort_because(struct nccl_state *s, const struct cr_error *reason);

/* Ends the communicator of `arg`, a struct nccl_state, and frees the state. If the end of the
 * communicator exceeds its time limit, the function returns without freeing the state. */
void nccl_close(void *arg);

/* ---- nccl_memory.c ---- */

int nccl_memory_new(void *arg, size_t size, void **out, struct cr_error *err);
void nccl_memory_free(void *arg, void *memory);
int nccl_register(void *arg, void *buffer, size_t size, crunrt_register_kind kind, void **out,
                  struct cr_error *err);
void nccl_deregister(void *arg, crunrt_register_kind kind, void *handle);

/* ---- nccl_reform.c ---- */

/* Returns true if the loaded NCCL has the functions to re-form communicators, and the environment
 * does not forbid it. */
bool reform_is_possible(const struct nccl_state *s);

/* Call this with nccl_lock() held. Returns true if the communicator of `s`, which has failed, is to
 * be revoked and kept instead of aborted. */
bool reform_wants(const struct nccl_state *s);

/* Keeps a revoked communicator until the next call of reform_comm(). */
void reform_keep(struct nccl_state *s, ncclComm_t comm);

/* Makes the communicator of `s` out of the one that was kept, if the ranks of the group agree on
 * that. Every rank of a group of all ranks calls this. Returns 1 if the communicator is made, and 0
 * if the ranks must make it from nothing. Otherwise returns a negative errno and sets err. */
int reform_comm(struct nccl_state *s, const struct backend_group *g, struct cr_error *err);

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
