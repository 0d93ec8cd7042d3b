/* Checks the description of an operation before data is sent, and computes its signature, which
 * must be equal on all ranks. */
#include "worker_runtime/group/op_check.h"

#include "base/memory.h"

#include <errno.h>

size_t crunrt_dtype_size(crunrt_dtype dtype) {
    static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return (size_t) dtype < CR_ARRAY_LEN(sizes) ? sizes[dtype] : 0;
}

bool op_is_p2p(crunrt_op_kind k) { return k == CRUNRT_OP_SEND || k == CRUNRT_OP_RECV; }

bool op_is_empty(const crunrt_op *op) {
    return op->count == 0 && op->kind != CRUNRT_OP_BARRIER &&
           op->kind != CRUNRT_OP_ALL_TO_ALL_COUNTS;
}

static bool has_root(crunrt_op_kind k) {
    return k == CRUNRT_OP_REDUCE || k == CRUNRT_OP_BROADCAST || k == CRUNRT_OP_GATHER ||
           k == CRUNRT_OP_SCATTER || op_is_p2p(k);
}

static bool reduces(crunrt_op_kind k) {
    return k == CRUNRT_OP_ALL_REDUCE || k == CRUNRT_OP_REDUCE || k == CRUNRT_OP_REDUCE_SCATTER;
}

static bool is_floating(crunrt_dtype t) {
    return t == CRUNRT_FLOAT16 || t == CRUNRT_FLOAT32 || t == CRUNRT_FLOAT64 ||
           t == CRUNRT_BFLOAT16 || t == CRUNRT_FLOAT8_E4M3 || t == CRUNRT_FLOAT8_E5M2;
}

static bool needs_send(const crunrt_op *op, int rank) {
    if (op->kind == CRUNRT_OP_SCATTER) return rank == op->root;
    return op->kind != CRUNRT_OP_RECV && op->kind != CRUNRT_OP_BROADCAST &&
           op->kind != CRUNRT_OP_BARRIER;
}

static bool needs_recv(const crunrt_op *op, int rank) {
    if (op->kind == CRUNRT_OP_REDUCE || op->kind == CRUNRT_OP_GATHER) return rank == op->root;
    return op->kind != CRUNRT_OP_SEND && op->kind != CRUNRT_OP_BARRIER;
}

static int check_factor(const crunrt_op *op, struct cr_error *err) {
    if (!is_floating(op->dtype))
        return cr_fail(err, -EINVAL, "a sum of products with a factor needs a floating type");
    if (op->factor == NULL)
        return cr_fail(err, -EINVAL, "a sum of products with a factor: the factor is NULL");
    return 0;
}

static int check_types(const crunrt_op *op, struct cr_error *err) {
    if (crunrt_dtype_size(op->dtype) == 0)
        return cr_fail(err, -EINVAL, "no data type %d", (int) op->dtype);
    if (!reduces(op->kind)) return 0;
    if ((unsigned) op->reduce > CRUNRT_PREMUL_SUM) {
        return cr_fail(err, -EINVAL, "no reduce operation %d", (int) op->reduce);
    }
    if (op->reduce == CRUNRT_PREMUL_SUM) return check_factor(op, err);
    if (op->reduce >= CRUNRT_BAND && is_floating(op->dtype)) {
        return cr_fail(err, -EINVAL, "bitwise reductions need an integer type");
    }
    return 0;
}

static int check_ranks(const crunrt_op *op, int rank, int size, struct cr_error *err) {
    if (!has_root(op->kind)) return 0;
    const char *role = op_is_p2p(op->kind) ? "peer" : "root";
    if (op->root < 0 || op->root >= size) {
        return cr_fail(err, -EINVAL, "%s %d is not a rank of the group; ranks are 0 to %d", role,
                       op->root, size - 1);
    }
    if (op_is_p2p(op->kind) && op->root == rank) {
        return cr_fail(err, -EINVAL, "the peer is this rank itself; copy instead");
    }
    return 0;
}

/* largest number of elements of a buffer, so that the buffer's size in bytes fits into an
 * int64_t */
#define COUNT_MAX (SIZE_MAX / 32)

/* Sets *total to the number of elements in one buffer of an all-to-all, the sum of counts[size].
 * `name` is the buffer's name for error texts. Returns 0 or -EINVAL. */
static int sum_counts(const size_t *counts, int size, const char *name, size_t *total,
                      struct cr_error *err) {
    if (counts == NULL) return cr_fail(err, -EINVAL, "%s is NULL", name);
    *total = 0;
    for (int r = 0; r < size; r++) {
        if (counts[r] > COUNT_MAX - *total) {
            return cr_fail(err, -EINVAL, "%s[%d] = %zu is too large", name, r, counts[r]);
        }
        *total += counts[r];
    }
    return 0;
}

static int check_counts(const crunrt_op *op, int rank, int size, struct cr_error *err) {
    size_t sent = 0, received = 0;
    int rc = sum_counts(op->send_counts, size, "send_counts", &sent, err);
    if (rc == 0) rc = sum_counts(op->recv_counts, size, "recv_counts", &received, err);
    if (rc < 0) return rc;
    if (op->send_counts[rank] != op->recv_counts[rank]) {
        return cr_fail(err, -EINVAL, "this rank sends itself %zu elements and receives %zu of them",
                       op->send_counts[rank], op->recv_counts[rank]);
    }
    if (sent > 0 && op->send == NULL) return cr_fail(err, -EINVAL, "the send buffer is NULL");
    if (received > 0 && op->recv == NULL)
        return cr_fail(err, -EINVAL, "the receive buffer is NULL");
    return 0;
}

static int check_buffers(const crunrt_op *op, int rank, int size, struct cr_error *err) {
    if (op->kind == CRUNRT_OP_ALL_TO_ALL_COUNTS) return check_counts(op, rank, size, err);
    if (op->count > COUNT_MAX / (size_t) size)
        return cr_fail(err, -EINVAL, "count = %zu is too large", op->count);
    if (op->count == 0) return 0;
    if (needs_send(op, rank) && op->send == NULL)
        return cr_fail(err, -EINVAL, "the send buffer is NULL");
    if (needs_recv(op, rank) && op->recv == NULL)
        return cr_fail(err, -EINVAL, "the receive buffer is NULL");
    return 0;
}

int op_check(const crunrt_op *op, int rank, int size, struct cr_error *err) {
    if ((unsigned) op->kind > CRUNRT_OP_RECV) {
        return cr_fail(err, -EINVAL, "no operation %d", (int) op->kind);
    }
    int rc = check_types(op, err);
    if (rc == 0) rc = check_ranks(op, rank, size, err);
    if (rc == 0) rc = check_buffers(op, rank, size, err);
    return rc;
}

/* ---- op_signature() ---- */

static uint64_t mix(uint64_t hash, uint64_t value) {
    hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

uint32_t op_signature(const crunrt_op *op) {
    if (op_is_p2p(op->kind)) {
        return (uint32_t) (mix(1, op->count * crunrt_dtype_size(op->dtype)) >> 32);
    }
    uint64_t hash = mix(mix(mix(2, (uint64_t) op->kind), (uint64_t) op->dtype), op->count);
    if (reduces(op->kind)) hash = mix(hash, (uint64_t) op->reduce);
    if (has_root(op->kind)) hash = mix(hash, (uint64_t) op->root);
    return (uint32_t) (hash >> 32);
}
