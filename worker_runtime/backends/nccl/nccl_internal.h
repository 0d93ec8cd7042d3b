/* Between the files of the nccl backend: one communicator, its errors and its waits.
 *
 * One thread at a time calls into a group, so one thread at a time is inside NCCL with a
 * communicator. */
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
    cudaEvent_t done; /* of the operation that runs */
    void *scratch;    /* one int32 on the device, for the barrier */
    int device, rank, size;
    bool is_blocking;
    bool reads_host_memory; /* the GPU shares the CPU's address space */
    int aborts_before; /* aborts in this process when the state was made */
    bool is_wedged;    /* an abort did not return: CUDA calls may not return either */
    struct nccl_state *wedged_before;
    struct nccl_state *next_live; /* of the states that nccl_abort() ends together */
    char name[64]; /* NCCL keeps a pointer to it */
    struct backend_store store;
};

/* ---- nccl_wait.c: errors and waits ---- */

/* Fails with `code` and "<what>: CUDA error 100 (…)". */
int fail_cuda(const struct nccl_api *api, cudaError_t e, int code, struct cr_error *err,
              const char *what);

/* Fails with the errno that stands for NCCL's result, and a text with NCCL's own words. */
int fail_nccl(const struct nccl_api *api, ncclResult_t r, struct cr_error *err, const char *what);

/* A wait looks at a condition again and again, until it holds, time is up, or another rank reports
 * a failure in the store. */
struct wait {
    const struct backend_store *store;
    int64_t started_ns, deadline_ms, next_look_ms;
};

struct wait wait_begin(const struct backend_store *store, int64_t timeout_ms);
struct wait wait_until(const struct backend_store *store, int64_t deadline_ms);

/* Pauses a little. 0: look at the condition again; or the reason to give up. */
int wait_turn(struct wait *w, const char *phase, int64_t timeout_ms, struct cr_error *err);

/* Waits until the communicator's pending call is over. */
int wait_for_comm(struct nccl_state *s, const char *phase, int64_t timeout_ms,
                  struct cr_error *err);

/* The same with a wait that has begun; the text of a timeout names timeout_ms. */
int wait_for_comm_with(struct nccl_state *s, struct wait *w, const char *phase, int64_t timeout_ms,
                       struct cr_error *err);

/* The same; failures of other ranks are looked for in `store`, which is another group's. */
int wait_for_comm_of(struct nccl_state *s, const struct backend_store *store, const char *phase,
                     int64_t timeout_ms, struct cr_error *err);

/* 0: the operations before the event are done; -EINPROGRESS: not yet; else their failure. After an
 * abort nothing is done any more, whatever the event says. */
int look_at_event(struct nccl_state *s, cudaEvent_t event, struct cr_error *err);

/* Waits for it until the deadline; the text of a timeout names timeout_ms. */
int wait_for_event(struct nccl_state *s, cudaEvent_t event, int64_t deadline_ms,
                   int64_t timeout_ms, struct cr_error *err);

/* ---- nccl_state.c: making and ending a state ---- */

/* A state with the group's values, without a communicator. NULL without memory. */
struct nccl_state *state_new(const struct backend_group *group, struct cr_error *err);

/* Chooses the device, and makes the stream, the event and the scratch memory. */
int prepare_device(struct nccl_state *s, struct cr_error *err);

ncclConfig_t config_of(const struct nccl_state *s);

/* Some releases leave the thread inside a group call when a call of NCCL fails early; every later
 * call would then only be queued. Ends groups until there is none. */
void repair_group_depth(const struct nccl_api *api);

/* Whether a communicator of this process could not be aborted. */
bool has_wedged_comm(void);

/* The communicator is connected: from now on it is aborted whenever another one of this process
 * is. */
void join_live(struct nccl_state *s);

/* Aborts the communicator of a live state, and with it those of all live states, in one group: the
 * end of a communicator waits for all kernels of the device, and those of the others may wait for
 * the same dead peer. Aborts that of another state alone. */
void nccl_abort(void *arg);
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
