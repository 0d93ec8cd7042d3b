/* The functions that make one kind of operation, such as crunrt_group_all_reduce(). Each fills in a
 * crunrt_op, and calls crunrt_group_run() or crunrt_group_start(). */
#include "worker_runtime/group/group.h"

#include "base/memory.h"

#include <errno.h>
#include <stdlib.h>

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

/* ---- gathers and scatters with a count for each rank, made of other operations ---- */

static int check_group(const crunrt_group *group, int root, const char *what) {
    if (group == NULL) return rt_fail_null(what, "the group");
    if (root >= 0 && root < group->size) return 0;
    return cr_fail(rt_last_error(), -EINVAL,
                   "%s in group '%s': root %d is no rank; ranks are 0 to %d", what, group->name,
                   root, group->size - 1);
}

/* Runs an all-to-all in which only `root` receives, or only `root` sends. On the root, `whole` has
 * the counts of all ranks; on other ranks, it is not used. `own` is the count of this rank. */
static int run_one_sided(crunrt_group *group, const char *what, bool root_receives, int root,
                         const size_t *whole, size_t own, crunrt_op op) {
    int rc = check_group(group, root, what);
    if (rc < 0) return rc;
    bool is_root = group->rank == root;
    if (is_root && whole == NULL) return rt_fail_null(what, "the counts");
    CR_AUTO_FREE size_t *counts = calloc(2 * (size_t) group->size, sizeof(*counts));
    if (counts == NULL) return cr_fail(rt_last_error(), -ENOMEM, "%s: out of memory", what);
    size_t *to_root = counts, *at_root = counts + group->size;
    to_root[root] = own;
    for (int r = 0; is_root && r < group->size; r++) at_root[r] = whole[r];
    op.send_counts = root_receives ? to_root : at_root;
    op.recv_counts = root_receives ? at_root : to_root;
    return crunrt_group_run(group, &op);
}

int crunrt_group_gather_counts(crunrt_group *group, const void *send, size_t send_count, void *recv,
                               const size_t *recv_counts, crunrt_dtype dtype, int root) {
    return run_one_sided(group, "gather_counts", true, root, recv_counts, send_count,
                         make_op(CRUNRT_OP_ALL_TO_ALL_COUNTS, send, recv, 0, dtype));
}

int crunrt_group_scatter_counts(crunrt_group *group, const void *send, const size_t *send_counts,
                                void *recv, size_t recv_count, crunrt_dtype dtype, int root) {
    return run_one_sided(group, "scatter_counts", false, root, send_counts, recv_count,
                         make_op(CRUNRT_OP_ALL_TO_ALL_COUNTS, send, recv, 0, dtype));
}

int crunrt_group_all_gather_counts(crunrt_group *group, void *buffer, const size_t *counts,
                                   crunrt_dtype dtype) {
    int rc = check_group(group, 0, "all_gather_counts");
    if (rc == 0 && counts == NULL) rc = rt_fail_null("all_gather_counts", "the counts");
    char *part = buffer;
    for (int r = 0; rc == 0 && r < group->size; r++) {
        rc = crunrt_group_broadcast(group, part, counts[r], dtype, r);
        if (part != NULL) part += counts[r] * crunrt_dtype_size(dtype);
    }
    return rc;
}

int crunrt_group_reduce_scatter_counts(crunrt_group *group, const void *send, void *recv,
                                       const size_t *counts, crunrt_dtype dtype,
                                       crunrt_reduce_op reduce) {
    int rc = check_group(group, 0, "reduce_scatter_counts");
    if (rc == 0 && counts == NULL) rc = rt_fail_null("reduce_scatter_counts", "the counts");
    const char *part = send;
    for (int r = 0; rc == 0 && r < group->size; r++) {
        rc = crunrt_group_reduce(group, part, recv, counts[r], dtype, reduce, r);
        if (part != NULL) part += counts[r] * crunrt_dtype_size(dtype);
    }
    return rc;
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
