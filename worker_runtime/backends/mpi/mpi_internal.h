/* Declarations that the files of the mpi backend share.
 *
 * All calls of MPI are made between mpi_enter() and mpi_leave(), which hold a lock. So the MPI
 * library needs to support only MPI_THREAD_SERIALIZED. */
#ifndef BACKENDS_MPI_INTERNAL_H
#define BACKENDS_MPI_INTERNAL_H

#include "worker_runtime/backends/backend.h"

#include <mpi.h>

#include <stdbool.h>
#include <stdint.h>

#ifdef OPEN_MPI
#define MPI_FLAVOUR "Open MPI"
#else
#define MPI_FLAVOUR "MPICH"
#endif

struct mpi_state {
    MPI_Comm comm;
    int rank, size, tag_max;
    bool is_aborted;
    struct backend_store store;
};

/* ---- mpi_wait.c: the lock, errors, waits ---- */

void mpi_enter(void);
void mpi_leave(void);

/* Records that an operation was left unfinished. MPI_Finalize() might then wait forever, so the
 * backend does not call it when the process ends. */
void mpi_note_unfinished(void);
bool mpi_has_unfinished(void);

bool is_initialised(void);
bool is_finalised(void);

/* Returns the negative errno for MPI's error code, and sets err to `what` and MPI's own message. */
int fail_mpi(int code, struct cr_error *err, const char *what);

/* Waits until the request is done. Returns 0; -EINPROGRESS if it is not done at until_ms (monotonic
 * clock); MPI's failure; or -ECONNRESET if another rank has reported in the store that it
 * failed. */
int test_until(const struct backend_store *store, MPI_Request *request, MPI_Status *status,
               int64_t until_ms, struct cr_error *err);

/* Cancels a receive, so that MPI no longer writes to its buffer. MPI cannot cancel other
 * operations. */
void cancel_receive(MPI_Request *request);

/* ---- mpi_connect.c ---- */

/* Finds out which process of MPI_COMM_WORLD is which rank of the group, and makes the group's
 * communicator. */
int mpi_connect(struct mpi_state *s, const struct backend_group *g, struct cr_error *err);

/* ---- mpi_types.c ---- */

/* Makes, once per process, the reductions that MPI lacks: those on half-width floats. They exist
 * until MPI_Finalize(). */
int make_ops(struct cr_error *err);

/* Returns MPI's reduction. For CRUNRT_AVG it returns the sum; reduce_finish() divides it. */
MPI_Op operation_of(crunrt_dtype dtype, crunrt_reduce_op reduce);
MPI_Datatype type_of(crunrt_dtype dtype);

/* ---- mpi_ops.c: functions in the backend's table ---- */

int mpi_run(void *arg, const struct backend_call *call, struct cr_error *err);
int mpi_batch(void *arg, const struct backend_call *calls, size_t count, struct cr_error *err);
int mpi_start(void *arg, const struct backend_call *call, void **out, struct cr_error *err);
int mpi_wait(void *arg, int64_t timeout_ms, struct cr_error *err);
void mpi_release(void *arg);

#endif
