/* What the files of libcrunmpi share: communicators, and the checks of arguments. */
#ifndef MPI_CRUNMPI_INTERNAL_H
#define MPI_CRUNMPI_INTERNAL_H

#pragma GCC visibility push(default)
#include "worker_runtime/mpi/mpi.h"
#pragma GCC visibility pop

#include <crunrt.h>

#include <stddef.h>

struct crunmpi_comm {
    crunrt_group *group; /* the group of this communicator; NULL if this process is its only rank */
    int rank, size;
};

/* Writes one line to stderr and an error file, and ends the process, as MPI's default error handler
 * does. The launcher then ends the other processes of the job. */
_Noreturn void fail(const char *call, const char *why);

/* Calls fail() with the text of crunrt_last_error() if rc, a result of libcrunrt, is an error. */
void must(int rc, const char *call);

/* These functions return the library's value for one of MPI, or call fail(). */
crunrt_dtype dtype_of(MPI_Datatype type, const char *call);
crunrt_reduce_op reduce_of(MPI_Op op, const char *call);
size_t elements(int count, const char *call);
void check_root(MPI_Comm comm, int root, const char *call);
/* Returns `comm`, if MPI has been initialised and not finalized and `comm` is not null. */
MPI_Comm checked(MPI_Comm comm, const char *call);

/* Type, number of elements and length in bytes of one rank's part of a collective. With
 * MPI_IN_PLACE the arguments for the send buffer are not valid, so the three values come from the
 * arguments for the receive buffer. */
struct block {
    crunrt_dtype dtype;
    size_t count, bytes;
};

struct block block_of(int count, MPI_Datatype type, const char *call);

/* Reduces pairs of a double and an int with MPI_MINLOC or MPI_MAXLOC, to `root`, or to all ranks if
 * root is -1. */
int reduce_located(const void *sendbuf, void *recvbuf, int count, MPI_Op op, int root,
                   MPI_Comm comm);

#endif
