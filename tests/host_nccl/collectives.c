/* The calls of NCCL that put collectives and messages on streams, and those that define reduction
 * operators and allocate or register memory.
 *
 * Modelled on NCCL 2.28.9 and 2.30.7:
 * - enqueue.cc, ncclEnqueueCheck: a call on a non-blocking communicator returns the state of the
 *   communicator, which usually is ncclInProgress. If the call fails, even because of invalid
 *   arguments, its error becomes that state, so that every later call fails, too.
 * - argcheck.cc, ArgsCheck: pointers are checked only with NCCL_CHECK_POINTERS=1.
 * - collectives.cc, and taskAppend in enqueue.cc: gather, scatter and all-to-all are sends and
 *   receives in one group; an operation with a count of 0 is ignored. */
#include "tests/host_nccl/comm.h"

#include <stdlib.h>
#include <string.h>

struct call {
    const char *name;
    const void *send;
    void *recv;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t op;
    int root;
    ncclComm_t comm;
    cudaStream_t stream;
};

static struct arithmetic own_op(ncclComm_t comm, ncclRedOp_t op) {
    struct arithmetic none = {.kind = ARITHMETIC_SUM};
    size_t i = (size_t) op - (size_t) ncclNumOps;
    return (size_t) op >= (size_t) ncclNumOps && i < comm->own_op_count ? comm->own_ops[i] : none;
}

static ncclResult_t check_pointer(const struct call *c, const void *p) {
    int device = -1;
    enum host_memory_kind kind = host_memory_kind_of(p, &device);
    if (kind == HOST_PAGEABLE || (kind == HOST_DEVICE && device != c->comm->device))
        return nccl_fail(ncclInvalidArgument, "%s : %p is not a valid pointer", c->name, p);
    return ncclSuccess;
}

static ncclResult_t check_arguments(const struct call *c) {
    const char *pointers = getenv("NCCL_CHECK_POINTERS");
    if (c->root < 0 || c->root >= c->comm->size)
        return nccl_fail(ncclInvalidArgument,
                         "%s : invalid root %d (root should be in the 0..%d range)", c->name,
                         c->root, c->comm->size);
    if (arithmetic_size(c->type) == 0)
        return nccl_fail(ncclInvalidArgument, "%s : invalid type %d", c->name, (int) c->type);
    if ((int) c->op < 0 ||
        ((size_t) c->op >= (size_t) ncclNumOps && own_op(c->comm, c->op).ranks == 0))
        return nccl_fail(ncclInvalidArgument, "%s : invalid reduction operation %d", c->name,
                         (int) c->op);
    if (pointers == NULL || strcmp(pointers, "1") != 0 || c->count == 0) return ncclSuccess;
    ncclResult_t r = c->send != NULL ? check_pointer(c, c->send) : ncclSuccess;
    return r == ncclSuccess && c->recv != NULL ? check_pointer(c, c->recv) : r;
}

static ncclResult_t add(const struct call *c, enum part_kind kind, const void *send, void *recv,
                        int root) {
    if (c->count == 0) return ncclSuccess;
    struct part *p = calloc(1, sizeof(*p));
    if (p == NULL) abort();
    *p = (struct part){.kind = kind,
                       .name = c->name,
                       .send = send,
                       .recv = recv,
                       .root = root,
                       .count = c->count,
                       .type = c->type,
                       .op = c->op};
    if (!arithmetic_of(c->op, c->type, c->comm->size, &p->how)) p->how = own_op(c->comm, c->op);
    ncclResult_t r = group_add_part(c->comm, p, c->stream);
    if (r != ncclSuccess) free(p);
    return r;
}

static char *piece(const struct call *c, const void *buffer, int rank) {
    return (char *) (uintptr_t) buffer + (size_t) rank * c->count * arithmetic_size(c->type);
}

/* Adds one call of this rank to the group, as sends and receives. In a gather every rank sends one
 * piece to the root; in a scatter the root sends one piece to every rank; in an all-to-all
 * (`gathers` and `scatters` both false) every rank sends one piece to every rank. */
static ncclResult_t add_exchange(const struct call *c, bool gathers, bool scatters) {
    ncclResult_t r = ncclSuccess;
    int own = c->comm->rank;
    for (int peer = 0; peer < c->comm->size && r == ncclSuccess; peer++) {
        bool sends = gathers ? peer == c->root : !scatters || own == c->root;
        bool receives = gathers ? own == c->root : !scatters || peer == c->root;
        if (sends) r = add(c, PART_SEND, gathers ? c->send : piece(c, c->send, peer), NULL, peer);
        if (receives && r == ncclSuccess)
            r = add(c, PART_RECV, NULL, scatters ? c->recv : piece(c, c->recv, peer), peer);
    }
    return r;
}

enum kind { ONE_PART, GATHER, SCATTER, ALL_TO_ALL };

static ncclResult_t append(const struct call *c, enum kind kind, enum part_kind part) {
    if (kind != ONE_PART) return add_exchange(c, kind == GATHER, kind == SCATTER);
    return add(c, part, c->send, c->recv, c->root);
}

/* Does what NCCL's ncclEnqueueCheck() does: checks one call of the program, and adds it to the
 * group. */
static ncclResult_t enqueue(const struct call *c, enum kind kind, enum part_kind part) {
    struct host_fault f = host_call(c->name);
    ncclResult_t r = comm_check(c->comm, c->name);
    if (r != ncclSuccess) return group_error(r);
    if (c->comm->revoked)
        return group_error(nccl_fail(ncclInvalidUsage, "%s: communicator was revoked", c->name));
    group_start();
    r = comm_ready(c->comm);
    if (r == ncclSuccess && f.kind == HOST_FAULT_NCCL)
        r = nccl_fail((ncclResult_t) f.code, "%s: as ordered", c->name);
    if (r == ncclSuccess) r = check_arguments(c);
    if (r == ncclSuccess) r = append(c, kind, part);
    if (r != ncclSuccess && !c->comm->blocking) comm_set_async(c->comm, r);
    (void) group_error(r);
    ncclResult_t end = group_end();
    if (f.kind == HOST_FAULT_ASYNC) comm_set_async(c->comm, (ncclResult_t) f.code);
    if (end != ncclSuccess && end != ncclInProgress) return end;
    return c->comm->blocking ? r : comm_outcome(c->comm, end);
}

#pragma GCC visibility push(default)

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    struct call c = {"ncclAllReduce", send, recv, count, type, op, 0, comm, stream};
    return enqueue(&c, ONE_PART, PART_ALL_REDUCE);
}

ncclResult_t ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
    struct call c = {"ncclReduce", send, recv, count, type, op, root, comm, stream};
    return enqueue(&c, ONE_PART, PART_REDUCE);
}

ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
    struct call c = {"ncclBroadcast", send, recv, count, type, ncclSum, root, comm, stream};
    return enqueue(&c, ONE_PART, PART_BROADCAST);
}

ncclResult_t ncclBcast(void *buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                       cudaStream_t stream) {
    return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}

ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
    struct call c = {"ncclAllGather", send, recv, count, type, ncclSum, 0, comm, stream};
    return enqueue(&c, ONE_PART, PART_ALL_GATHER);
}

ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    struct call c = {"ncclReduceScatter", send, recv, count, type, op, 0, comm, stream};
    return enqueue(&c, ONE_PART, PART_REDUCE_SCATTER);
}

ncclResult_t ncclSend(const void *buffer, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
    struct call c = {"ncclSend", buffer, NULL, count, type, ncclSum, peer, comm, stream};
    return enqueue(&c, ONE_PART, PART_SEND);
}

ncclResult_t ncclRecv(void *buffer, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    struct call c = {"ncclRecv", NULL, buffer, count, type, ncclSum, peer, comm, stream};
    return enqueue(&c, ONE_PART, PART_RECV);
}

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
ncclResult_t ncclAlltoAll(const void *send, void *recv, size_t count, ncclDataType_t type,
                          ncclComm_t comm, cudaStream_t stream) {
    struct call c = {"ncclAlltoAll", send, recv, count, type, ncclSum, 0, comm, stream};
    return enqueue(&c, ALL_TO_ALL, PART_SEND);
}

ncclResult_t ncclGather(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                        ncclComm_t comm, cudaStream_t stream) {
    struct call c = {"ncclGather", send, recv, count, type, ncclSum, root, comm, stream};
    return enqueue(&c, GATHER, PART_SEND);
}

ncclResult_t ncclScatter(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                         ncclComm_t comm, cudaStream_t stream) {
    struct call c = {"ncclScatter", send, recv, count, type, ncclSum, root, comm, stream};
    return enqueue(&c, SCATTER, PART_SEND);
}
#endif

/* ---- user-defined reduction operators, allocated and registered memory ---- */

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t type,
                                      ncclScalarResidence_t residence, ncclComm_t comm) {
    (void) host_call("ncclRedOpCreatePreMulSum");
    ncclResult_t r = comm_check(comm, "ncclRedOpCreatePreMulSum");
    if (r == ncclSuccess) r = comm_ready(comm);
    if (r != ncclSuccess) return r;
    const void *at = residence == ncclScalarHostImmediate
                         ? scalar
                         : host_memory_view(scalar, arithmetic_size(type));
    if (at == NULL) return nccl_fail(ncclInvalidArgument, "the scalar is no memory of the device");
    comm->own_ops = realloc(comm->own_ops, (comm->own_op_count + 1) * sizeof(*comm->own_ops));
    if (comm->own_ops == NULL) abort();
    comm->own_ops[comm->own_op_count] =
        (struct arithmetic){ARITHMETIC_PRE_MUL_SUM, type, arithmetic_get(type, at), comm->size};
    *op = (ncclRedOp_t) ((size_t) ncclNumOps + comm->own_op_count++);
    return ncclSuccess;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
    (void) host_call("ncclRedOpDestroy");
    ncclResult_t r = comm_check(comm, "ncclRedOpDestroy");
    size_t i = (size_t) op - (size_t) ncclNumOps;
    if (r != ncclSuccess) return r;
    if ((size_t) op < (size_t) ncclNumOps || i >= comm->own_op_count)
        return nccl_fail(ncclInvalidArgument, "ncclRedOpDestroy : operation is not of this comm");
    /* 0 marks the operator as destroyed. It stays in the list, so that no later operator gets its
     * number. */
    comm->own_ops[i].ranks = 0;
    return ncclSuccess;
}

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)
ncclResult_t ncclMemAlloc(void **out, size_t size) {
    (void) host_call("ncclMemAlloc");
    return cudaMalloc(out, size) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclMemFree(void *p) {
    (void) host_call("ncclMemFree");
    return cudaFree(p) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buffer, size_t size, void **handle) {
    (void) host_call("ncclCommRegister");
    ncclResult_t r = comm_check(comm, "ncclCommRegister");
    if (r != ncclSuccess) return r;
    if (host_memory_view(buffer, size) == NULL)
        return nccl_fail(ncclInvalidArgument, "ncclCommRegister: no memory of the device");
    *handle = buffer;
    return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle) {
    (void) host_call("ncclCommDeregister");
    (void) handle;
    return comm_check(comm, "ncclCommDeregister");
}
#endif

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *buffer, size_t size,
                                    ncclWindow_t *window, int flags) {
    struct host_fault f = host_call("ncclCommWindowRegister");
    ncclResult_t r = comm_check(comm, "ncclCommWindowRegister");
    if (r == ncclSuccess) r = comm_ready(comm);
    if (r != ncclSuccess) return r;
    if (f.kind == HOST_FAULT_NCCL) return (ncclResult_t) f.code;
    if (host_memory_view(buffer, size) == NULL || (flags & ~NCCL_WIN_COLL_SYMMETRIC) != 0)
        return nccl_fail(ncclInvalidArgument, "ncclCommWindowRegister: no memory of the device");
    /* as in NCCL, all ranks register a window together */
    if (!PEERS_BARRIER(comm->peers, phase, NULL, comm_aborted, comm)) return ncclInternalError;
    *window = buffer;
    return ncclSuccess;
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
    (void) host_call("ncclCommWindowDeregister");
    (void) window;
    return comm_check(comm, "ncclCommWindowDeregister");
}
#endif

#pragma GCC visibility pop
