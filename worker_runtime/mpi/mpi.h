/* mpi.h: a small part of MPI, implemented with libcrunrt, for programs such as nccl-tests and llm.c
 * that use MPI only to start their processes. It has no requests, statuses or derived types.
 *
 *     make MPI=1 MPI_HOME=<prefix>/lib/crunmpi      builds such a program unmodified
 *     crun --nproc-per-node=8 ./all_reduce_perf     starts it
 *
 * Every call returns MPI_SUCCESS or does not return: as with MPI's default error handler, a call
 * that fails ends the process, after it has written one line to stderr and an error file for the
 * launcher's report. Counts are numbers of elements. Source: MPI 4.0, the chapters on collectives,
 * groups and environment. */
#ifndef CRUNMPI_MPI_H
#define CRUNMPI_MPI_H

#ifdef __cplusplus
extern "C" {
#endif

#define CRUNMPI_VERSION      1
#define MPI_SUCCESS          0
#define MPI_MAX_ERROR_STRING 1024
#define MPI_UNDEFINED        (-32766)

typedef struct crunmpi_comm *MPI_Comm; /* a communicator; MPI_COMM_NULL is the null pointer */
extern struct crunmpi_comm crunmpi_world;
#define MPI_COMM_WORLD (&crunmpi_world)
#define MPI_COMM_NULL  ((MPI_Comm) 0)

typedef enum crunmpi_datatype {
    MPI_DATATYPE_NULL = 0,
    MPI_BYTE,
    MPI_CHAR,
    MPI_INT,
    MPI_LONG,
    MPI_LONG_LONG,
    MPI_INT64_T,
    MPI_UINT64_T,
    MPI_FLOAT,
    MPI_DOUBLE
} MPI_Datatype;

typedef enum crunmpi_op { MPI_OP_NULL = 0, MPI_SUM, MPI_MIN, MPI_MAX } MPI_Op;

#define MPI_IN_PLACE ((void *) -1)

/* Joins the job that the environment variables of crun, torchrun, Open MPI, MPICH or Slurm
 * describe. If no launcher has set such variables, MPI_COMM_WORLD contains only this process, and
 * the call writes a line about it to stderr. The arguments are ignored and may be NULL. */
int MPI_Init(int *argc, char ***argv);
int MPI_Finalize(void); /* waits until all ranks have called it */

int MPI_Comm_size(MPI_Comm comm, int *size);
int MPI_Comm_rank(MPI_Comm comm, int *rank);

/* Makes one new communicator for each value of `color` that the ranks of `comm` pass, and sets
 * *newcomm to the one for this rank's value. In it, ranks are ordered by `key`, then by rank in
 * `comm`. With `color` MPI_UNDEFINED, *newcomm is MPI_COMM_NULL. `comm` must be MPI_COMM_WORLD. */
int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm *newcomm);
int MPI_Comm_free(MPI_Comm *comm);

int MPI_Barrier(MPI_Comm comm);
int MPI_Bcast(void *buffer, int count, MPI_Datatype datatype, int root, MPI_Comm comm);
/* If sendbuf is MPI_IN_PLACE, this rank's part must already be at its place in recvbuf. */
int MPI_Allgather(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                  int recvcount, MPI_Datatype recvtype, MPI_Comm comm);
int MPI_Gather(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
               int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm);
int MPI_Allreduce(const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype, MPI_Op op,
                  MPI_Comm comm);

/* Writes the text of an error code to `string`, which must have room for MPI_MAX_ERROR_STRING
 * bytes. */
int MPI_Error_string(int errorcode, char *string, int *resultlen);

#ifdef __cplusplus
}
#endif

#endif
