/* mpi.h: a small part of MPI, implemented with libcrunrt, for programs such as nccl-tests and llm.c
 * that use MPI only to start their processes and for a few exchanges, and for micro-benchmarks. It
 * has no derived types, windows, topologies or wildcards such as MPI_ANY_SOURCE.
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
    MPI_DOUBLE,
    MPI_UNSIGNED_CHAR,
    MPI_UNSIGNED,
    MPI_UNSIGNED_LONG,
    MPI_INT8_T,
    MPI_UINT8_T,
    MPI_INT32_T,
    MPI_UINT32_T,
    MPI_DOUBLE_INT /* struct { double value; int index; }, for MPI_MINLOC and MPI_MAXLOC */
} MPI_Datatype;

typedef enum crunmpi_op {
    MPI_OP_NULL = 0,
    MPI_SUM,
    MPI_MIN,
    MPI_MAX,
    MPI_PROD,
    MPI_BAND,
    MPI_BOR,
    MPI_BXOR,
    /* Only MPI_Reduce and MPI_Allreduce accept these two operations, and only with the type
     * MPI_DOUBLE_INT. */
    MPI_MINLOC,
    MPI_MAXLOC
} MPI_Op;

typedef struct crunmpi_request *MPI_Request;
#define MPI_REQUEST_NULL ((MPI_Request) 0)

typedef struct MPI_Status {
    int MPI_SOURCE, MPI_TAG, MPI_ERROR;
    int crunmpi_bytes; /* for MPI_Get_count() */
} MPI_Status;
#define MPI_STATUS_IGNORE   ((MPI_Status *) 0)
#define MPI_STATUSES_IGNORE ((MPI_Status *) 0)

typedef int MPI_Info;
#define MPI_INFO_NULL        0
#define MPI_COMM_TYPE_SHARED 1

enum { MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED, MPI_THREAD_MULTIPLE };

#define MPI_IN_PLACE ((void *) -1)

/* Joins the job that the environment variables of crun, torchrun, Open MPI, MPICH or Slurm
 * describe. If no launcher has set such variables, MPI_COMM_WORLD contains only this process, and
 * the call writes a line to stderr that says so. The arguments are ignored and may be NULL. */
int MPI_Init(int *argc, char ***argv);
/* Does the same as MPI_Init(). Sets *provided to MPI_THREAD_FUNNELED at most: only the thread that
 * has made this call may call MPI. */
int MPI_Init_thread(int *argc, char ***argv, int required, int *provided);
int MPI_Initialized(int *flag);
int MPI_Finalize(void); /* waits until all ranks have called it */

int MPI_Comm_size(MPI_Comm comm, int *size);
int MPI_Comm_rank(MPI_Comm comm, int *rank);

/* Makes a new communicator for each value of `color` that ranks of `comm` pass. Sets *newcomm to
 * the communicator for this rank's color, or to MPI_COMM_NULL if this rank passes MPI_UNDEFINED. In
 * the new communicator, ranks are ordered by `key`; ranks with equal keys, by their rank in `comm`.
 * `comm` must be MPI_COMM_WORLD. */
int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm *newcomm);
/* As MPI_Comm_split(), with another color for each host. split_type must be
 * MPI_COMM_TYPE_SHARED. */
int MPI_Comm_split_type(MPI_Comm comm, int split_type, int key, MPI_Info info, MPI_Comm *newcomm);
int MPI_Comm_free(MPI_Comm *comm);

/* Writes an error file, and ends this process with the status `errorcode`. The launcher then ends
 * the other processes of the job. */
int MPI_Abort(MPI_Comm comm, int errorcode);

double MPI_Wtime(void); /* seconds on the monotonic clock */
int MPI_Get_processor_name(char *name, int *length);
#define MPI_MAX_PROCESSOR_NAME 256

/* Messages. A send may block until the receive is called. A rank cannot send to itself. The sender
 * and the receiver must pass the same count. */
int MPI_Send(const void *buffer, int count, MPI_Datatype datatype, int dest, int tag,
             MPI_Comm comm);
int MPI_Recv(void *buffer, int count, MPI_Datatype datatype, int source, int tag, MPI_Comm comm,
             MPI_Status *status);
int MPI_Sendrecv(const void *sendbuf, int sendcount, MPI_Datatype sendtype, int dest, int sendtag,
                 void *recvbuf, int recvcount, MPI_Datatype recvtype, int source, int recvtag,
                 MPI_Comm comm, MPI_Status *status);
int MPI_Isend(const void *buffer, int count, MPI_Datatype datatype, int dest, int tag,
              MPI_Comm comm, MPI_Request *request);
int MPI_Irecv(void *buffer, int count, MPI_Datatype datatype, int source, int tag, MPI_Comm comm,
              MPI_Request *request);
int MPI_Wait(MPI_Request *request, MPI_Status *status);
int MPI_Waitall(int count, MPI_Request *requests, MPI_Status *statuses);
int MPI_Test(MPI_Request *request, int *flag, MPI_Status *status);
int MPI_Get_count(const MPI_Status *status, MPI_Datatype datatype, int *count);

int MPI_Barrier(MPI_Comm comm);
int MPI_Bcast(void *buffer, int count, MPI_Datatype datatype, int root, MPI_Comm comm);
/* If sendbuf is MPI_IN_PLACE, this rank's part must already be at its place in recvbuf. */
int MPI_Allgather(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                  int recvcount, MPI_Datatype recvtype, MPI_Comm comm);
int MPI_Gather(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
               int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm);
int MPI_Scatter(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm);
int MPI_Alltoall(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                 int recvcount, MPI_Datatype recvtype, MPI_Comm comm);

/* As MPI_Allgather(), with a count for each rank. The parts in recvbuf must follow each other in
 * rank order and without gaps; other displacements are refused. */
int MPI_Allgatherv(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                   const int *recvcounts, const int *displs, MPI_Datatype recvtype, MPI_Comm comm);
int MPI_Gatherv(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                const int *recvcounts, const int *displs, MPI_Datatype recvtype, int root,
                MPI_Comm comm);
int MPI_Scatterv(const void *sendbuf, const int *sendcounts, const int *displs,
                 MPI_Datatype sendtype, void *recvbuf, int recvcount, MPI_Datatype recvtype,
                 int root, MPI_Comm comm);
int MPI_Alltoallv(const void *sendbuf, const int *sendcounts, const int *sdispls,
                  MPI_Datatype sendtype, void *recvbuf, const int *recvcounts, const int *rdispls,
                  MPI_Datatype recvtype, MPI_Comm comm);

int MPI_Reduce(const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype, MPI_Op op,
               int root, MPI_Comm comm);
int MPI_Reduce_scatter(const void *sendbuf, void *recvbuf, const int *recvcounts,
                       MPI_Datatype datatype, MPI_Op op, MPI_Comm comm);
int MPI_Allreduce(const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype, MPI_Op op,
                  MPI_Comm comm);

/* Non-blocking collectives. All ranks of a communicator start them in the same order. The request
 * is for MPI_Wait(), MPI_Waitall() and MPI_Test(). In collectives with a count for each rank, the
 * parts may lie at any displacements. Displacements are in elements; only those of
 * MPI_Ialltoallw() and MPI_Alltoallw() are in bytes. */
int MPI_Ibarrier(MPI_Comm comm, MPI_Request *request);
int MPI_Ibcast(void *buffer, int count, MPI_Datatype datatype, int root, MPI_Comm comm,
               MPI_Request *request);
int MPI_Iallgather(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                   int recvcount, MPI_Datatype recvtype, MPI_Comm comm, MPI_Request *request);
int MPI_Ialltoall(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                  int recvcount, MPI_Datatype recvtype, MPI_Comm comm, MPI_Request *request);
int MPI_Igather(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm,
                MPI_Request *request);
int MPI_Iscatter(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                 int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm,
                 MPI_Request *request);
int MPI_Iallreduce(const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype, MPI_Op op,
                   MPI_Comm comm, MPI_Request *request);
int MPI_Ireduce(const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype, MPI_Op op,
                int root, MPI_Comm comm, MPI_Request *request);
int MPI_Iallgatherv(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                    const int *recvcounts, const int *displs, MPI_Datatype recvtype, MPI_Comm comm,
                    MPI_Request *request);
int MPI_Igatherv(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                 const int *recvcounts, const int *displs, MPI_Datatype recvtype, int root,
                 MPI_Comm comm, MPI_Request *request);
int MPI_Iscatterv(const void *sendbuf, const int *sendcounts, const int *displs,
                  MPI_Datatype sendtype, void *recvbuf, int recvcount, MPI_Datatype recvtype,
                  int root, MPI_Comm comm, MPI_Request *request);
int MPI_Ialltoallv(const void *sendbuf, const int *sendcounts, const int *sdispls,
                   MPI_Datatype sendtype, void *recvbuf, const int *recvcounts, const int *rdispls,
                   MPI_Datatype recvtype, MPI_Comm comm, MPI_Request *request);
int MPI_Ialltoallw(const void *sendbuf, const int *sendcounts, const int *sdispls,
                   const MPI_Datatype *sendtypes, void *recvbuf, const int *recvcounts,
                   const int *rdispls, const MPI_Datatype *recvtypes, MPI_Comm comm,
                   MPI_Request *request);
int MPI_Alltoallw(const void *sendbuf, const int *sendcounts, const int *sdispls,
                  const MPI_Datatype *sendtypes, void *recvbuf, const int *recvcounts,
                  const int *rdispls, const MPI_Datatype *recvtypes, MPI_Comm comm);

/* Writes the text of an error code to `string`, a buffer of at least MPI_MAX_ERROR_STRING bytes. */
int MPI_Error_string(int errorcode, char *string, int *resultlen);

#ifdef __cplusplus
}
#endif

#endif
