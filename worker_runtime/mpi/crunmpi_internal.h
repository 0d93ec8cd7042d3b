/* Declares what the files of libcrunmpi share: communicators, and functions that check
 * arguments. */
#ifndef MPI_CRUNMPI_INTERNAL_H
#define MPI_CRUNMPI_INTERNAL_H

#pragma GCC visibility push(default)
#include "worker_runtime/mpi/mpi.h"
#pragma GCC visibility pop

#include <crunrt.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct crunmpi_comm {
    crunrt_group *group; /* the communicator's group; NULL if this process is its only rank */
    int rank, size;
};

struct crunmpi_request {
    crunrt_work *work;  /* NULL if the request is over, or if its works are in `more` */
    crunrt_work **more; /* works of request_add(); the request owns this list */
    int more_count;
    MPI_Status status; /* what MPI_Wait() reports */
};

/* Returns a new request without works, which counts as over. MPI_Wait() reports `source`, `tag` and
 * `bytes`. */
MPI_Request request_new(int source, int tag, size_t bytes, const char *call);
/* Adds a work to a request, which owns the work from now on. */
void request_add(MPI_Request request, crunrt_work *work, const char *call);

/* Writes a line to stderr and an error file, and ends the process, as MPI's default error handler
 * does. The launcher then ends the other processes of the job. */
_Noreturn void fail(const char *call, const char *why);

/* If `rc`, the result of a function of libcrunrt, is an error, calls fail() with the text of
 * crunrt_last_error(). */
void must(int rc, const char *call);

/* Each of these functions converts a value of MPI to the library's value. It calls fail() if the
 * library has no such value. */
crunrt_dtype dtype_of(MPI_Datatype type, const char *call);
crunrt_reduce_op reduce_of(MPI_Op op, const char *call);
size_t elements(int count, const char *call);
void check_root(MPI_Comm comm, int root, const char *call);
/* Returns `comm`. Calls fail() if MPI is not initialised or already finalized, or if `comm` is
 * null. */
MPI_Comm checked(MPI_Comm comm, const char *call);

/* Type, number of elements and length in bytes of one rank's part of a collective. With
 * MPI_IN_PLACE the arguments for the send buffer are not valid, so the three values come from the
 * arguments for the receive buffer. */
struct block {
    crunrt_dtype dtype;
    size_t count, bytes;
};

struct block block_of(int count, MPI_Datatype type, const char *call);

/* Calls fail() if the two parts, what one rank sends and another receives, differ in length. */
void check_equal(struct block a, struct block b, const char *call);

/* Calls fail() if `buffer`, a parameter of a call that does not support it, is MPI_IN_PLACE. */
void refuse_in_place(const void *buffer, const char *call);
/* Calls fail() if `buffer` is MPI_IN_PLACE and this rank is not `root`. */
void check_in_place(const void *buffer, int root, MPI_Comm comm, const char *call);

/* Each of these functions checks the arguments of a gather or a scatter with equal parts, and
 * returns the part of one rank. gather_part() sets *from to the address from which this rank's part
 * is sent: `sendbuf`, or, with MPI_IN_PLACE at the root, its place in `recvbuf`. scatter_part()
 * sets *to in the same way to the address at which this rank's part is stored. */
struct block gather_part(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                         int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm,
                         const char *call, const void **from);
struct block scatter_part(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                          int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm,
                          const char *call, void **to);

/* Reduces pairs of a double and an int with MPI_MINLOC or MPI_MAXLOC. Only rank `root` gets the
 * result, or all ranks if root is -1. */
int reduce_located(const void *sendbuf, void *recvbuf, int count, MPI_Op op, int root,
                   MPI_Comm comm);

#endif
