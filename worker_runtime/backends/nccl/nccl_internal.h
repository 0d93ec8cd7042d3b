/* What the files of the nccl backend share: the state of one communicator, its errors and its
 * waits.
 *
 * One thread at a time calls a group, so one thread at a time uses its communicator. */
#ifndef BACKENDS_NCCL_INTERNAL_H
#define BACKENDS_NCCL_INTERNAL_H

#include "worker_runtime/backends/backend.h"
#include "worker_runtime/backends/nccl/nccl_api.h"

#include <stdbool.h>
#include <stdint.h>

#define STORE_LOOK_EVERY_MS INT64_C(100) /* for failures of other ranks, while waiting */

struct nccl_state {
    const struct nccl_api *api;
    ncclComm_t comm; /* NULL once it has been aborted or destroyed */
    cudaStream_t stream;
    bool owns_stream;
    cudaEvent_t done; /* event behind the blocking operation that runs */
    void *scratch;    /* one int32 on the device, for the barrier */
    int device, rank, size;
    bool is_blocking;
    int aborts_before; /* number of aborts in this process when the state was made */
    bool is_wedged;    /* an abort has not returned, so CUDA calls may not return either */
    struct nccl_state *wedged_before;
    /* next in the list of live states, which nccl_abort() ends together */
    struct nccl_state *next_live;
    char name[64]; /* the group's name; NCCL keeps a pointer to it */
    struct backend_store store;
};

/* ---- nccl_wait.c: errors and waits ---- */

/* Returns `code`, and sets err to "<what>: CUDA error 100 (…)". */
int fail_cuda(const struct nccl_api *api, cudaError_t e, int code, struct cr_error *err,
              const char *what);

/* Returns the negative errno for NCCL's result, and sets err to `what` and NCCL's own message. */
int fail_nccl(const struct nccl_api *api, ncclResult_t r, struct cr_error *err, const char *what);

/* A wait: its caller checks a condition repeatedly until the condition holds, the deadline has
 * passed, or another rank reports a failure in the store. */
struct wait {
    const struct backend_store *store;
    int64_t started_ns, deadline_ms, next_look_ms;
};

struct wait wait_begin(const struct backend_store *store, int64_t timeout_ms);
struct wait wait_until(const struct backend_store *store, int64_t deadline_ms);

/* Pauses between two checks of a condition. Returns 0 if the caller shall check it again, or the
 * error with which the wait ends. */
int wait_turn(struct wait *w, const char *phase, int64_t timeout_ms, struct cr_error *err);

/* Waits until the communicator's pending call is over. */
int wait_for_comm(struct nccl_state *s, const char *phase, int64_t timeout_ms,
                  struct cr_error *err);

/* Waits until the communicator's pending call is over, in a wait that has already begun. timeout_ms
 * is used only in the text of a timeout. */
int wait_for_comm_with(struct nccl_state *s, struct wait *w, const char *phase, int64_t timeout_ms,
                       struct cr_error *err);

/* Waits until the communicator's pending call is over. Checks for failures of other ranks in
 * `store`, which may be another group's. */
int wait_for_comm_of(struct nccl_state *s, const struct backend_store *store, const char *phase,
                     int64_t timeout_ms, struct cr_error *err);

/* Checks whether the operations before the event are done. Returns 0 if so, -EINPROGRESS if not, or
 * their failure. After an abort it always fails, because the kernels have ended without their data.
 */
int look_at_event(struct nccl_state *s, cudaEvent_t event, struct cr_error *err);

/* Waits for the event until the deadline. timeout_ms is used only in the text of a timeout. */
int wait_for_event(struct nccl_state *s, cudaEvent_t event, int64_t deadline_ms,
                   int64_t timeout_ms, struct cr_error *err);

/* ---- nccl_state.c: making and ending a state ---- */

/* Makes a state with the group's values and without a communicator. Returns NULL if there is no
 * memory. */
struct nccl_state *state_new(const struct backend_group *group, struct cr_error *err);

/* Chooses the device, and makes the stream, the event and the scratch memory. */
int prepare_device(struct nccl_state *s, struct cr_error *err);

ncclConfig_t config_of(const struct nccl_state *s);

/* Some releases of NCCL leave the thread inside a group call when a call fails early, so that every
 * later call would only be queued. This calls ncclGroupEnd() until the thread is in no group call.
 */
void repair_group_depth(const struct nccl_api *api);

/* Returns whether the abort of a communicator of this process has not returned. */
bool has_wedged_comm(void);

/* Call this when the communicator is connected. It adds the state to the live states: when one live
 * communicator of this process is aborted, all of them are. */
void join_live(struct nccl_state *s);

/* nccl_abort() aborts the communicators of all live states in one NCCL group, if the state is live.
 * This is needed because the end of one communicator waits for all kernels of the device, and the
 * kernels of the other communicators may wait for the same dead peer. If the state is not live,
 * only its own communicator is aborted. */
void nccl_abort(void *arg);
void nccl_close(void *arg);

/* ---- what the backend's table points to ---- */

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
