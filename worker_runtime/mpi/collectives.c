/* Implements the collectives of mpi.h that micro-benchmarks and NCCL's examples call. */
#include "worker_runtime/mpi/crunmpi_internal.h"

#include <stdlib.h>
#include <string.h>

/* Copies `bytes` bytes from `from` to `to`, which may overlap. In a communicator of one rank, most
 * collectives are only such a copy. */
static int copy(void *to, const void *from, size_t bytes) {
    if (bytes > 0) memmove(to, from, bytes);
    return MPI_SUCCESS;
}

/* ---- equal parts ---- */

int MPI_Scatter(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm) {
    static const char call[] = "MPI_Scatter";
    void *to;
    struct block part = scatter_part(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype,
                                     root, comm, call, &to);
    if (comm->group == NULL) return copy(to, sendbuf, part.bytes);
    must(crunrt_group_scatter(comm->group, sendbuf, to, part.count, part.dtype, root), call);
    return MPI_SUCCESS;
}

int MPI_Alltoall(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                 int recvcount, MPI_Datatype recvtype, MPI_Comm comm) {
    static const char call[] = "MPI_Alltoall";
    struct block part = block_of(recvcount, recvtype, call);
    refuse_in_place(sendbuf, call);
    check_equal(part, block_of(sendcount, sendtype, call), call);
    if (checked(comm, call)->group == NULL) return copy(recvbuf, sendbuf, part.bytes);
    must(crunrt_group_all_to_all(comm->group, sendbuf, recvbuf, part.count, part.dtype), call);
    return MPI_SUCCESS;
}

/* ---- parts of different lengths ---- */

/* Returns a copy of counts[size] as size_t, which the caller frees. If `displs` is not NULL, it
 * gives the places of the parts; the function calls fail() if the parts do not follow each other
 * without gaps. */
static size_t *read_counts(const int *counts, const int *displs, int size, const char *call) {
    size_t *out = calloc((size_t) size, sizeof(*out)), at = 0;
    if (out == NULL) fail(call, "out of memory");
    for (int r = 0; r < size; r++) {
        out[r] = elements(counts[r], call);
        if (displs != NULL && counts[r] > 0 && displs[r] != (int) at)
            fail(call, "the parts do not follow each other in rank order without gaps");
        at += out[r];
    }
    return out;
}

static size_t before(const size_t *counts, int rank) {
    size_t sum = 0;
    for (int r = 0; r < rank; r++) sum += counts[r];
    return sum;
}

int MPI_Allgatherv(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                   const int *recvcounts, const int *displs, MPI_Datatype recvtype,
                   MPI_Comm comm) {
    static const char call[] = "MPI_Allgatherv";
    size_t *counts = read_counts(recvcounts, displs, checked(comm, call)->size, call);
    struct block own = block_of(recvcounts[comm->rank], recvtype, call);
    char *at = (char *) recvbuf + before(counts, comm->rank) * crunrt_dtype_size(own.dtype);
    if (sendbuf != MPI_IN_PLACE) {
        check_equal(own, block_of(sendcount, sendtype, call), call);
        (void) copy(at, sendbuf, own.bytes);
    }
    if (comm->group != NULL)
        must(crunrt_group_all_gather_counts(comm->group, recvbuf, counts, own.dtype), call);
    free(counts);
    return MPI_SUCCESS;
}

int MPI_Gatherv(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                const int *recvcounts, const int *displs, MPI_Datatype recvtype, int root,
                MPI_Comm comm) {
    static const char call[] = "MPI_Gatherv";
    check_root(checked(comm, call), root, call);
    int is_root = comm->rank == root;
    size_t *counts = is_root ? read_counts(recvcounts, displs, comm->size, call) : NULL;
    (void) recvtype;
    refuse_in_place(sendbuf, call);
    struct block own = block_of(sendcount, sendtype, call);
    if (comm->group == NULL)
        (void) copy(recvbuf, sendbuf, own.bytes);
    else
        must(crunrt_group_gather_counts(comm->group, sendbuf, own.count, is_root ? recvbuf : NULL,
                                        counts, own.dtype, root),
             call);
    free(counts);
    return MPI_SUCCESS;
}

int MPI_Scatterv(const void *sendbuf, const int *sendcounts, const int *displs,
                 MPI_Datatype sendtype, void *recvbuf, int recvcount, MPI_Datatype recvtype,
                 int root, MPI_Comm comm) {
    static const char call[] = "MPI_Scatterv";
    check_root(checked(comm, call), root, call);
    int is_root = comm->rank == root;
    size_t *counts = is_root ? read_counts(sendcounts, displs, comm->size, call) : NULL;
    (void) sendtype;
    refuse_in_place(recvbuf, call);
    struct block own = block_of(recvcount, recvtype, call);
    if (comm->group == NULL)
        (void) copy(recvbuf, sendbuf, own.bytes);
    else
        must(crunrt_group_scatter_counts(comm->group, is_root ? sendbuf : NULL, counts, recvbuf,
                                         own.count, own.dtype, root),
             call);
    free(counts);
    return MPI_SUCCESS;
}

int MPI_Alltoallv(const void *sendbuf, const int *sendcounts, const int *sdispls,
                  MPI_Datatype sendtype, void *recvbuf, const int *recvcounts, const int *rdispls,
                  MPI_Datatype recvtype, MPI_Comm comm) {
    static const char call[] = "MPI_Alltoallv";
    refuse_in_place(sendbuf, call);
    size_t *out = read_counts(sendcounts, sdispls, checked(comm, call)->size, call);
    size_t *in = read_counts(recvcounts, rdispls, comm->size, call);
    crunrt_dtype dtype = dtype_of(recvtype, call);
    if (crunrt_dtype_size(dtype) != crunrt_dtype_size(dtype_of(sendtype, call)))
        fail(call, "the elements sent and received differ in length");
    if (comm->group == NULL)
        (void) copy(recvbuf, sendbuf, out[0] * crunrt_dtype_size(dtype));
    else
        must(crunrt_group_all_to_all_counts(comm->group, sendbuf, out, recvbuf, in, dtype), call);
    free(out);
    free(in);
    return MPI_SUCCESS;
}

/* ---- reductions ---- */

struct located { /* MPI_DOUBLE_INT */
    double value;
    int index;
};

/* Replaces *best by *other if `other` is better, or as good and has a lower index. */
static void take_better(struct located *best, const struct located *other, MPI_Op op) {
    int is_better = op == MPI_MINLOC ? other->value < best->value : other->value > best->value;
    int is_equal = !(other->value < best->value) && !(other->value > best->value);
    if (is_better || (is_equal && other->index < best->index)) *best = *other;
}

int reduce_located(const void *sendbuf, void *recvbuf, int count, MPI_Op op, int root,
                   MPI_Comm comm) {
    static const char call[] = "MPI_Reduce";
    size_t n = elements(count, call), bytes = n * sizeof(struct located);
    if (op != MPI_MINLOC && op != MPI_MAXLOC)
        fail(call, "MPI_DOUBLE_INT is only for MPI_MINLOC and MPI_MAXLOC");
    const void *send = sendbuf == MPI_IN_PLACE ? recvbuf : sendbuf;
    if (checked(comm, call)->group == NULL) return copy(recvbuf, send, bytes);
    struct located *all = malloc(bytes * (size_t) comm->size + 1);
    if (all == NULL) fail(call, "out of memory");
    must(crunrt_group_all_gather(comm->group, send, all, bytes, CRUNRT_UINT8), call);
    for (int r = 1; r < comm->size; r++)
        for (size_t i = 0; i < n; i++) take_better(&all[i], &all[(size_t) r * n + i], op);
    if (root == -1 || root == comm->rank) (void) copy(recvbuf, all, bytes);
    free(all);
    return MPI_SUCCESS;
}

int MPI_Reduce(const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype, MPI_Op op,
               int root, MPI_Comm comm) {
    static const char call[] = "MPI_Reduce";
    check_root(checked(comm, call), root, call);
    if (datatype == MPI_DOUBLE_INT) return reduce_located(sendbuf, recvbuf, count, op, root, comm);
    struct block all = block_of(count, datatype, call);
    crunrt_reduce_op reduce = reduce_of(op, call);
    int is_root = comm->rank == root;
    check_in_place(sendbuf, root, comm, call);
    const void *send = sendbuf == MPI_IN_PLACE ? recvbuf : sendbuf;
    if (comm->group == NULL) return copy(recvbuf, send, all.bytes);
    must(crunrt_group_reduce(comm->group, send, is_root ? recvbuf : NULL, all.count, all.dtype,
                             reduce, root),
         call);
    return MPI_SUCCESS;
}

int MPI_Reduce_scatter(const void *sendbuf, void *recvbuf, const int *recvcounts,
                       MPI_Datatype datatype, MPI_Op op, MPI_Comm comm) {
    static const char call[] = "MPI_Reduce_scatter";
    refuse_in_place(sendbuf, call);
    size_t *counts = read_counts(recvcounts, NULL, checked(comm, call)->size, call);
    crunrt_dtype dtype = dtype_of(datatype, call);
    crunrt_reduce_op reduce = reduce_of(op, call);
    if (comm->group == NULL)
        (void) copy(recvbuf, sendbuf, counts[0] * crunrt_dtype_size(dtype));
    else
        must(crunrt_group_reduce_scatter_counts(comm->group, sendbuf, recvbuf, counts, dtype,
                                                reduce),
             call);
    free(counts);
    return MPI_SUCCESS;
}
