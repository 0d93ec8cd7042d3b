/* Implements the non-blocking collectives of mpi.h. A collective with equal parts is one work of
 * libcrunrt. A collective with a count for each rank is a list of batches of sends and receives, so
 * its parts may lie at any displacements. */
#include "worker_runtime/mpi/crunmpi_internal.h"

#include <stdlib.h>
#include <string.h>

/* tag of the messages of this file; it is larger than every tag of MPI_Isend(), which is an int */
#define PARTS_TAG   UINT32_MAX
#define BATCH_PEERS (CRUNRT_WORKS_MAX / 2) /* a batch has a send and a receive for each peer */

static MPI_Request start(MPI_Comm comm, crunrt_op op, const char *call) {
    MPI_Request r = request_new(comm->rank, 0, 0, call);
    must(crunrt_group_start(comm->group, &op, &r->work), call);
    return r;
}

/* Copies the part that this rank sends to itself; `to` and `from` may be equal. Returns a request
 * that is over. */
static MPI_Request copied(void *to, const void *from, size_t bytes, const char *call) {
    if (bytes > 0 && to != from) memmove(to, from, bytes);
    return request_new(0, 0, 0, call);
}

int MPI_Ibarrier(MPI_Comm comm, MPI_Request *request) {
    static const char call[] = "MPI_Ibarrier";
    crunrt_op op = CRUNRT_OP_INIT;
    bool is_alone = checked(comm, call)->group == NULL;
    *request = is_alone ? copied(NULL, NULL, 0, call) : start(comm, op, call);
    return MPI_SUCCESS;
}

int MPI_Ibcast(void *buffer, int count, MPI_Datatype datatype, int root, MPI_Comm comm,
               MPI_Request *request) {
    static const char call[] = "MPI_Ibcast";
    struct block all = block_of(count, datatype, call);
    crunrt_op op = CRUNRT_OP_INIT;
    check_root(checked(comm, call), root, call);
    op.kind = CRUNRT_OP_BROADCAST;
    op.send = op.recv = buffer;
    op.count = all.count;
    op.dtype = all.dtype;
    op.root = root;
    *request = comm->group == NULL ? copied(NULL, NULL, 0, call) : start(comm, op, call);
    return MPI_SUCCESS;
}

/* ---- equal parts ---- */

/* Starts an operation in which the send buffer or the receive buffer has one part for each rank. */
static MPI_Request start_parts(MPI_Comm comm, crunrt_op_kind kind, const void *send, void *recv,
                               struct block part, int root, const char *call) {
    if (comm->group == NULL) return copied(recv, send, part.bytes, call);
    crunrt_op op = CRUNRT_OP_INIT;
    op.kind = kind;
    op.send = send;
    op.recv = recv;
    op.count = part.count;
    op.dtype = part.dtype;
    op.root = root;
    return start(comm, op, call);
}

int MPI_Iallgather(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                   int recvcount, MPI_Datatype recvtype, MPI_Comm comm, MPI_Request *request) {
    static const char call[] = "MPI_Iallgather";
    struct block part = block_of(recvcount, recvtype, call);
    char *own = (char *) recvbuf + part.bytes * (size_t) checked(comm, call)->rank;
    bool in_place = sendbuf == MPI_IN_PLACE;
    if (!in_place) check_equal(part, block_of(sendcount, sendtype, call), call);
    *request = start_parts(comm, CRUNRT_OP_ALL_GATHER, in_place ? own : sendbuf, recvbuf, part, 0,
                           call);
    return MPI_SUCCESS;
}

int MPI_Ialltoall(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                  int recvcount, MPI_Datatype recvtype, MPI_Comm comm, MPI_Request *request) {
    static const char call[] = "MPI_Ialltoall";
    struct block part = block_of(recvcount, recvtype, call);
    refuse_in_place(sendbuf, call);
    check_equal(part, block_of(sendcount, sendtype, call), call);
    *request = start_parts(checked(comm, call), CRUNRT_OP_ALL_TO_ALL, sendbuf, recvbuf, part, 0,
                           call);
    return MPI_SUCCESS;
}

int MPI_Igather(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm,
                MPI_Request *request) {
    static const char call[] = "MPI_Igather";
    const void *from;
    struct block part = gather_part(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype,
                                    root, comm, call, &from);
    *request = start_parts(comm, CRUNRT_OP_GATHER, from, recvbuf, part, root, call);
    return MPI_SUCCESS;
}

int MPI_Iscatter(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                 int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm,
                 MPI_Request *request) {
    static const char call[] = "MPI_Iscatter";
    void *to;
    struct block part = scatter_part(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype,
                                     root, comm, call, &to);
    *request = start_parts(comm, CRUNRT_OP_SCATTER, sendbuf, to, part, root, call);
    return MPI_SUCCESS;
}

/* ---- reductions ---- */

static MPI_Request start_reduction(MPI_Comm comm, crunrt_op_kind kind, const void *send, void *recv,
                                   struct block all, MPI_Op reduce, int root, const char *call) {
    if (comm->group == NULL) return copied(recv, send, all.bytes, call);
    crunrt_op op = CRUNRT_OP_INIT;
    op.kind = kind;
    op.reduce = reduce_of(reduce, call);
    op.send = send;
    op.recv = recv;
    op.count = all.count;
    op.dtype = all.dtype;
    op.root = root;
    return start(comm, op, call);
}

int MPI_Iallreduce(const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype, MPI_Op op,
                   MPI_Comm comm, MPI_Request *request) {
    static const char call[] = "MPI_Iallreduce";
    struct block all = block_of(count, datatype, call);
    const void *send = sendbuf == MPI_IN_PLACE ? recvbuf : sendbuf;
    *request = start_reduction(checked(comm, call), CRUNRT_OP_ALL_REDUCE, send, recvbuf, all, op, 0,
                               call);
    return MPI_SUCCESS;
}

int MPI_Ireduce(const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype, MPI_Op op,
                int root, MPI_Comm comm, MPI_Request *request) {
    static const char call[] = "MPI_Ireduce";
    check_root(checked(comm, call), root, call);
    struct block all = block_of(count, datatype, call);
    bool at_root = comm->rank == root, in_place = sendbuf == MPI_IN_PLACE;
    check_in_place(sendbuf, root, comm, call);
    *request = start_reduction(comm, CRUNRT_OP_REDUCE, in_place ? recvbuf : sendbuf,
                               at_root ? recvbuf : NULL, all, op, root, call);
    return MPI_SUCCESS;
}

/* ---- parts of different lengths ---- */

/* The part for, or from, one rank: `bytes` bytes at `at`. */
struct part {
    char *at;
    size_t bytes;
};

/* Returns the part with `count` elements of `type`, `displacement` bytes behind `buffer`. */
static struct part part_at(const void *buffer, size_t displacement, int count, MPI_Datatype type,
                           const char *call) {
    char *at = (char *) (uintptr_t) buffer + displacement;
    return (struct part){at, block_of(count, type, call).bytes};
}

static struct part *new_parts(MPI_Comm comm, const char *call) {
    struct part *parts = calloc((size_t) comm->size, sizeof(*parts));
    if (parts == NULL) fail(call, "out of memory");
    return parts;
}

/* Returns the parts of a buffer with counts and displacements in elements of one type. */
static struct part *parts_of(MPI_Comm comm, const void *buffer, const int *counts,
                             const int *displs, MPI_Datatype type, const char *call) {
    struct part *parts = new_parts(comm, call);
    size_t size = crunrt_dtype_size(dtype_of(type, call));
    for (int r = 0; r < comm->size; r++)
        parts[r] = part_at(buffer, (size_t) displs[r] * size, counts[r], type, call);
    return parts;
}

static size_t put_message(crunrt_op *op, crunrt_op_kind kind, int peer, struct part part) {
    *op = (crunrt_op) CRUNRT_OP_INIT;
    op->kind = kind;
    op->root = peer;
    op->tag = PARTS_TAG;
    op->count = part.bytes;
    if (kind == CRUNRT_OP_SEND)
        op->send = part.at;
    else
        op->recv = part.at;
    return part.bytes > 0 ? 1 : 0;
}

/* Sends out[r] to each rank r, and receives into in[r] from each rank r, as batches of messages.
 * Batch 0 has the peers at the distances 1 to BATCH_PEERS from this rank, and each further batch
 * has the peers at the next BATCH_PEERS distances. So each message is in the same batch at its
 * sender and at its receiver. Frees `out` and `in`. */
static MPI_Request exchange(MPI_Comm comm, struct part *out, struct part *in, const char *call) {
    int size = comm->size, self = comm->rank;
    if (out[self].bytes != in[self].bytes)
        fail(call, "the part that this rank sends to itself and the one it receives differ");
    MPI_Request r = copied(in[self].at, out[self].at, in[self].bytes, call);
    for (int first = 1; first < size; first += BATCH_PEERS) {
        crunrt_op ops[CRUNRT_WORKS_MAX];
        size_t n = 0;
        for (int d = first; d < size && d < first + BATCH_PEERS; d++) {
            int to = (self + d) % size, from = (self + size - d) % size;
            n += put_message(&ops[n], CRUNRT_OP_SEND, to, out[to]);
            n += put_message(&ops[n], CRUNRT_OP_RECV, from, in[from]);
        }
        if (n == 0) continue;
        crunrt_work *work = NULL;
        must(crunrt_group_start_batch(comm->group, ops, n, &work), call);
        request_add(r, work, call);
    }
    free(out);
    free(in);
    return r;
}

int MPI_Iallgatherv(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                    const int *recvcounts, const int *displs, MPI_Datatype recvtype, MPI_Comm comm,
                    MPI_Request *request) {
    static const char call[] = "MPI_Iallgatherv";
    struct part *in = parts_of(checked(comm, call), recvbuf, recvcounts, displs, recvtype, call);
    struct part *out = new_parts(comm, call);
    for (int r = 0; r < comm->size; r++)
        out[r] = sendbuf == MPI_IN_PLACE ? in[comm->rank]
                                         : part_at(sendbuf, 0, sendcount, sendtype, call);
    *request = exchange(comm, out, in, call);
    return MPI_SUCCESS;
}

int MPI_Igatherv(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                 const int *recvcounts, const int *displs, MPI_Datatype recvtype, int root,
                 MPI_Comm comm, MPI_Request *request) {
    static const char call[] = "MPI_Igatherv";
    check_root(checked(comm, call), root, call);
    struct part *in = comm->rank == root
                          ? parts_of(comm, recvbuf, recvcounts, displs, recvtype, call)
                          : new_parts(comm, call);
    struct part *out = new_parts(comm, call);
    check_in_place(sendbuf, root, comm, call);
    out[root] = sendbuf == MPI_IN_PLACE ? in[root]
                                        : part_at(sendbuf, 0, sendcount, sendtype, call);
    *request = exchange(comm, out, in, call);
    return MPI_SUCCESS;
}

int MPI_Iscatterv(const void *sendbuf, const int *sendcounts, const int *displs,
                  MPI_Datatype sendtype, void *recvbuf, int recvcount, MPI_Datatype recvtype,
                  int root, MPI_Comm comm, MPI_Request *request) {
    static const char call[] = "MPI_Iscatterv";
    check_root(checked(comm, call), root, call);
    struct part *out = comm->rank == root
                           ? parts_of(comm, sendbuf, sendcounts, displs, sendtype, call)
                           : new_parts(comm, call);
    struct part *in = new_parts(comm, call);
    check_in_place(recvbuf, root, comm, call);
    in[root] = recvbuf == MPI_IN_PLACE ? out[root]
                                       : part_at(recvbuf, 0, recvcount, recvtype, call);
    *request = exchange(comm, out, in, call);
    return MPI_SUCCESS;
}

int MPI_Ialltoallv(const void *sendbuf, const int *sendcounts, const int *sdispls,
                   MPI_Datatype sendtype, void *recvbuf, const int *recvcounts, const int *rdispls,
                   MPI_Datatype recvtype, MPI_Comm comm, MPI_Request *request) {
    static const char call[] = "MPI_Ialltoallv";
    refuse_in_place(sendbuf, call);
    struct part *out = parts_of(checked(comm, call), sendbuf, sendcounts, sdispls, sendtype, call);
    struct part *in = parts_of(comm, recvbuf, recvcounts, rdispls, recvtype, call);
    *request = exchange(comm, out, in, call);
    return MPI_SUCCESS;
}

int MPI_Ialltoallw(const void *sendbuf, const int *sendcounts, const int *sdispls,
                   const MPI_Datatype *sendtypes, void *recvbuf, const int *recvcounts,
                   const int *rdispls, const MPI_Datatype *recvtypes, MPI_Comm comm,
                   MPI_Request *request) {
    static const char call[] = "MPI_Ialltoallw";
    refuse_in_place(sendbuf, call);
    struct part *out = new_parts(checked(comm, call), call), *in = new_parts(comm, call);
    for (int r = 0; r < comm->size; r++) {
        out[r] = part_at(sendbuf, (size_t) sdispls[r], sendcounts[r], sendtypes[r], call);
        in[r] = part_at(recvbuf, (size_t) rdispls[r], recvcounts[r], recvtypes[r], call);
    }
    *request = exchange(comm, out, in, call);
    return MPI_SUCCESS;
}

int MPI_Alltoallw(const void *sendbuf, const int *sendcounts, const int *sdispls,
                  const MPI_Datatype *sendtypes, void *recvbuf, const int *recvcounts,
                  const int *rdispls, const MPI_Datatype *recvtypes, MPI_Comm comm) {
    MPI_Request request;
    (void) MPI_Ialltoallw(sendbuf, sendcounts, sdispls, sendtypes, recvbuf, recvcounts, rdispls,
                          recvtypes, comm, &request);
    return MPI_Wait(&request, MPI_STATUS_IGNORE);
}
