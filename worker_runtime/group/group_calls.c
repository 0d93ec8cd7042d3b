/* The short forms of crunrt_group_run() and crunrt_group_start(), such as
 * crunrt_group_all_reduce(). Each fills in a crunrt_op and runs or starts it. */
#include <crunrt.h>

static crunrt_op make_op(crunrt_op_kind kind, const void *send, void *recv, size_t count,
                          crunrt_dtype dtype) {
    crunrt_op op = CRUNRT_OP_INIT;
    op.kind = kind;
    op.send = send;
    op.recv = recv;
    op.count = count;
    op.dtype = dtype;
    return op;
}

static int run_reduction(crunrt_group *group, crunrt_op op, crunrt_reduce_op reduce, int root) {
    op.reduce = reduce;
    op.root = root;
    return crunrt_group_run(group, &op);
}

static int run_rooted(crunrt_group *group, crunrt_op op, int root, uint32_t tag) {
    op.root = root;
    op.tag = tag;
    return crunrt_group_run(group, &op);
}

int crunrt_group_all_reduce(crunrt_group *group, const void *send, void *recv, size_t count,
                            crunrt_dtype dtype, crunrt_reduce_op reduce) {
    return run_reduction(group, make_op(CRUNRT_OP_ALL_REDUCE, send, recv, count, dtype), reduce,
                         0);
}

int crunrt_group_reduce(crunrt_group *group, const void *send, void *recv, size_t count,
                        crunrt_dtype dtype, crunrt_reduce_op reduce, int root) {
    return run_reduction(group, make_op(CRUNRT_OP_REDUCE, send, recv, count, dtype), reduce, root);
}

int crunrt_group_reduce_scatter(crunrt_group *group, const void *send, void *recv, size_t count,
                                crunrt_dtype dtype, crunrt_reduce_op reduce) {
    return run_reduction(group, make_op(CRUNRT_OP_REDUCE_SCATTER, send, recv, count, dtype),
                         reduce, 0);
}

int crunrt_group_broadcast(crunrt_group *group, void *buffer, size_t count, crunrt_dtype dtype,
                           int root) {
    return run_rooted(group, make_op(CRUNRT_OP_BROADCAST, NULL, buffer, count, dtype), root, 0);
}

int crunrt_group_all_gather(crunrt_group *group, const void *send, void *recv, size_t count,
                            crunrt_dtype dtype) {
    return run_rooted(group, make_op(CRUNRT_OP_ALL_GATHER, send, recv, count, dtype), 0, 0);
}

int crunrt_group_gather(crunrt_group *group, const void *send, void *recv, size_t count,
                        crunrt_dtype dtype, int root) {
    return run_rooted(group, make_op(CRUNRT_OP_GATHER, send, recv, count, dtype), root, 0);
}

int crunrt_group_scatter(crunrt_group *group, const void *send, void *recv, size_t count,
                         crunrt_dtype dtype, int root) {
    return run_rooted(group, make_op(CRUNRT_OP_SCATTER, send, recv, count, dtype), root, 0);
}

int crunrt_group_all_to_all(crunrt_group *group, const void *send, void *recv, size_t count,
                            crunrt_dtype dtype) {
    return run_rooted(group, make_op(CRUNRT_OP_ALL_TO_ALL, send, recv, count, dtype), 0, 0);
}

int crunrt_group_all_to_all_counts(crunrt_group *group, const void *send, const size_t *send_counts,
                                   void *recv, const size_t *recv_counts, crunrt_dtype dtype) {
    crunrt_op op = make_op(CRUNRT_OP_ALL_TO_ALL_COUNTS, send, recv, 0, dtype);
    op.send_counts = send_counts;
    op.recv_counts = recv_counts;
    return crunrt_group_run(group, &op);
}

int crunrt_group_barrier(crunrt_group *group) {
    return run_rooted(group, make_op(CRUNRT_OP_BARRIER, NULL, NULL, 0, CRUNRT_UINT8), 0, 0);
}

int crunrt_group_send(crunrt_group *group, const void *buffer, size_t count, crunrt_dtype dtype,
                      int peer, uint32_t tag) {
    return run_rooted(group, make_op(CRUNRT_OP_SEND, buffer, NULL, count, dtype), peer, tag);
}

int crunrt_group_recv(crunrt_group *group, void *buffer, size_t count, crunrt_dtype dtype, int peer,
                      uint32_t tag) {
    return run_rooted(group, make_op(CRUNRT_OP_RECV, NULL, buffer, count, dtype), peer, tag);
}

static int start_p2p(crunrt_group *group, crunrt_op op, int peer, uint32_t tag, crunrt_work **out) {
    op.root = peer;
    op.tag = tag;
    return crunrt_group_start(group, &op, out);
}

int crunrt_group_isend(crunrt_group *group, const void *buffer, size_t count, crunrt_dtype dtype,
                       int peer, uint32_t tag, crunrt_work **out) {
    return start_p2p(group, make_op(CRUNRT_OP_SEND, buffer, NULL, count, dtype), peer, tag, out);
}

int crunrt_group_irecv(crunrt_group *group, void *buffer, size_t count, crunrt_dtype dtype,
                       int peer, uint32_t tag, crunrt_work **out) {
    return start_p2p(group, make_op(CRUNRT_OP_RECV, NULL, buffer, count, dtype), peer, tag, out);
}
