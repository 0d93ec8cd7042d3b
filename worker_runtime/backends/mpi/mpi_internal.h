/* Declarations that the files of the mpi backend share.
 *
 * Between mpi_enter() and mpi_leave() a thread holds the backend's lock. All calls of MPI are made
 * between these two, so that only one thread calls MPI at a time and MPI_THREAD_SERIALIZED is
 * enough. */
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

/* Call this when an operation of this process has been given up unfinished. After this call the
 * backend does not call MPI_Finalize() at the end of the process, because MPI_Finalize() could wait
 * for the operation forever. */
void mpi_note_unfinished(void);
bool mpi_has_unfinished(void);

bool is_initialised(void);
bool is_finalised(void);

/* Sets err to `what` and MPI's text for the error `code`. Returns the negative errno that fits the
 * error's class. */
int fail_mpi(int code, struct cr_error *err, const char *what);

/* Waits until the request is done, at most until until_ms (monotonic clock, in ms). Returns 0 if
 * the request is done, and -EINPROGRESS if it is not done in time. Otherwise sets err and returns
 * MPI's failure; or what store->failed() returns, usually -ECONNRESET, if another rank has failed.
 */
int test_until(const struct backend_store *store, MPI_Request *request, MPI_Status *status,
               int64_t until_ms, struct cr_error *err);

/* Cancels a receive, so that MPI does not write to the receive's buffer after this call. MPI can
 * cancel no other kind of operation. */
void cancel_receive(MPI_Request *request);

/* ---- mpi_connect.c ---- */

/* Finds out which process of MPI_COMM_WORLD is which rank of the group, and makes the group's
 * communicator. Returns 0; or a negative errno, and sets err. */
int mpi_connect(struct mpi_state *s, const struct backend_group *g, struct cr_error *err);

/* ---- mpi_types.c ---- */

/* Makes MPI operators for half-width floats (float16 and bfloat16), which MPI lacks. Only the first
 * call in a process makes them; they exist until MPI_Finalize(). */
int make_ops(struct cr_error *err);

/* Returns MPI's operator for a reduction. For CRUNRT_AVG this is the sum: after the reduction the
 * caller must divide by the number of ranks with reduce_finish(). */
MPI_Op operation_of(crunrt_dtype dtype, crunrt_reduce_op reduce);
MPI_Datatype type_of(crunrt_dtype dtype);

/* ---- mpi_ops.c: functions in the backend's table ---- */

int mpi_run(void *arg, const struct backend_call *call, struct cr_error *err);
int mpi_batch(void *arg, const struct backend_call *calls, size_t count, struct cr_error *err);
int mpi_start(void *arg, const struct backend_call *call, void **out, struct cr_error *err);
int mpi_wait(void *arg, int64_t timeout_ms, struct cr_error *err);
void mpi_release(void *arg);

#endif
