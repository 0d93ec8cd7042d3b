/* Declarations that the files of the nccl backend share: the state of one communicator, and
 * functions for errors, waits and aborts.
 *
 * At most one thread at a time makes a call on a group, so at most one thread at a time uses the
 * group's communicator. */
#ifndef BACKENDS_NCCL_INTERNAL_H
#define BACKENDS_NCCL_INTERNAL_H

#include "worker_runtime/backends/backend.h"
#include "worker_runtime/backends/nccl/nccl_api.h"

#include <stdbool.h>
#include <stdint.h>

/* time between two checks of a wait whether another rank has reported a failure in the store */
#define STORE_LOOK_EVERY_MS INT64_C(100)

struct nccl_state {
    const struct nccl_api *api;
    ncclComm_t comm; /* NULL once it has been aborted or destroyed */
    cudaStream_t stream;
    bool owns_stream;
    cudaEvent_t done; /* recorded behind the operation that runs; complete when it is done */
    void *scratch;    /* one int32 on the device, which a barrier reduces */
    int device, rank, size;
    bool is_blocking;
    bool reads_host_memory; /* the GPU shares the CPU's address space */
    int aborts_before; /* how many aborts this process had made when the state was made */
    /* the abort of this communicator did not return, so CUDA calls may not return either */
    bool is_wedged;
    struct nccl_state *wedged_before; /* next element of the list of wedged states */
    struct nccl_state *next_live;     /* next element of the list of connected states */
    char name[64]; /* name of the communicator; NCCL keeps a pointer to this array */
    struct backend_store store;
};

/* ---- nccl_wait.c: errors and waits ---- */

/* Sets err to `code` and the text "<what>: CUDA error 100 (…)". Returns `code`. */
int fail_cuda(const struct nccl_api *api, cudaError_t e, int code, struct cr_error *err,
              const char *what);

/* Sets err to a text that contains NCCL's description of the error `r`. Returns -ECONNRESET for a
 * remote error, else -EIO. */
int fail_nccl(const struct nccl_api *api, ncclResult_t r, struct cr_error *err, const char *what);

/* The state of a wait. A wait checks a condition repeatedly, until the condition holds, the
 * deadline has passed, or another rank has reported a failure in the store. */
struct wait {
    const struct backend_store *store;
    int64_t started_ns, deadline_ms, next_look_ms;
};

struct wait wait_begin(const struct backend_store *store, int64_t timeout_ms);
struct wait wait_until(const struct backend_store *store, int64_t deadline_ms);

/* Call this when the condition does not hold yet. It sleeps for up to 1 ms. Returns 0 if the caller
 * shall check the condition again; -ETIMEDOUT if the deadline has passed, with a text that names
 * `phase` and timeout_ms; or the failure that another rank has reported. */
int wait_turn(struct wait *w, const char *phase, int64_t timeout_ms, struct cr_error *err);

/* Waits until the pending NCCL call on the communicator is over, for at most timeout_ms. Returns 0
 * or a negative errno, and sets err to a text that names `phase`. */
int wait_for_comm(struct nccl_state *s, const char *phase, int64_t timeout_ms,
                  struct cr_error *err);

/* Does what wait_for_comm() does, but continues the wait `w`, so its deadline is the limit.
 * timeout_ms only appears in the text of a timeout. */
int wait_for_comm_with(struct nccl_state *s, struct wait *w, const char *phase, int64_t timeout_ms,
                       struct cr_error *err);

/* Does what wait_for_comm() does, but checks `store`, which belongs to another group, for failures
 * that other ranks have reported. */
int wait_for_comm_of(struct nccl_state *s, const struct backend_store *store, const char *phase,
                     int64_t timeout_ms, struct cr_error *err);

/* Returns 0 if the operations in front of the event in its stream are done, -EINPROGRESS if they
 * are not done yet, or the error with which they failed. After an abort of the communicator it
 * returns -ECONNRESET, even if the event is complete. */
int look_at_event(struct nccl_state *s, cudaEvent_t event, struct cr_error *err);

/* Waits until look_at_event() returns 0 or an error, but not beyond the deadline. timeout_ms only
 * appears in the text of a timeout. */
int wait_for_event(struct nccl_state *s, cudaEvent_t event, int64_t deadline_ms,
                   int64_t timeout_ms, struct cr_error *err);

/* ---- nccl_state.c: making and ending a state ---- */

/* Makes a state with the settings of the group and without a communicator. Returns NULL, and sets
 * err, if memory is short. */
struct nccl_state *state_new(const struct backend_group *group, struct cr_error *err);

/* Selects the device, and makes the event, the scratch memory and, if the caller of the group gave
 * none, the stream. Returns 0, or -ENODEV and sets err. */
int prepare_device(struct nccl_state *s, struct cr_error *err);

ncclConfig_t config_of(const struct nccl_state *s);

/* Ends all open group calls (ncclGroupStart()) of this thread. Some releases of NCCL leave a group
 * call open when a call in it fails early, and every later call would only be queued. */
void repair_group_depth(const struct nccl_api *api);

/* Returns whether the abort of any communicator of this process has not returned. */
bool has_wedged_comm(void);

/* Call this when the communicator of `s` is connected. It adds `s` to the list of connected states,
 * so from now on an abort of any state in the list also aborts `s`. */
void join_live(struct nccl_state *s);

/* Aborts the communicator of the state `arg`. If the state is in the list of connected states, all
 * communicators of the list are aborted together: an abort waits for all kernels of the device, and
 * kernels of the other communicators may wait for the same dead peer. */
void nccl_abort(void *arg);
/* Ends the communicator of the state `arg` and frees the state. A wedged state is not freed. */
void nccl_close(void *arg);

/* ---- functions in the backend's table ---- */

int nccl_probe(const struct backend_group *group, struct cr_error *err);
int nccl_open(const struct backend_group *group, void **out, struct cr_error *err);
int nccl_can_split(void *arg, const struct backend_group *g);
int nccl_split(void *arg, const struct backend_group *g, void **out, struct cr_error *err);
int nccl_run(void *arg, const struct backend_call *call, struct cr_error *err);
int nccl_batch(void *arg, const struct backend_call *calls, size_t count, struct cr_error *err);
int nccl_start(void *arg, const struct backend_call *call, void **out, struct cr_error *err);
int nccl_wait(void *arg, int64_t timeout_ms, struct cr_error *err);
void nccl_release(void *arg);

#endif
