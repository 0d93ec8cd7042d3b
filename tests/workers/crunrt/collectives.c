/* Tests every operation with every type and reduction. The results are compared with numbers that
 * this file computes. */
#include "tests/workers/crunrt/worker.h"

#include <errno.h>
#include <stdlib.h>
#include <stdbool.h>
#include <string.h>

static uint32_t bits_of(float f) {
    uint32_t b;
    memcpy(&b, &f, sizeof(b));
    return b;
}

/* Sets element i of the buffer to `value`, which every type in this test must represent exactly. */
static void put(void *buffer, size_t i, crunrt_dtype dtype, double value) {
    float f = (float) value;
    switch (dtype) {
    case CRUNRT_INT8: ((int8_t *) buffer)[i] = (int8_t) (int64_t) value; return;
    case CRUNRT_UINT8: ((uint8_t *) buffer)[i] = (uint8_t) (int64_t) value; return;
    case CRUNRT_INT32: ((int32_t *) buffer)[i] = (int32_t) value; return;
    case CRUNRT_UINT32: ((uint32_t *) buffer)[i] = (uint32_t) value; return;
    case CRUNRT_INT64: ((int64_t *) buffer)[i] = (int64_t) value; return;
    case CRUNRT_UINT64: ((uint64_t *) buffer)[i] = (uint64_t) value; return;
    case CRUNRT_FLOAT32: ((float *) buffer)[i] = f; return;
    case CRUNRT_FLOAT64: ((double *) buffer)[i] = value; return;
    case CRUNRT_BFLOAT16: ((uint16_t *) buffer)[i] = (uint16_t) (bits_of(f) >> 16); return;
    case CRUNRT_FLOAT8_E4M3:
        ((uint8_t *) buffer)[i] =
            value == 0 ? 0
                       : (uint8_t) (((bits_of(f) >> 23) - 120) << 3 | (bits_of(f) >> 20 & 7));
        return;
    case CRUNRT_FLOAT8_E5M2:
        ((uint8_t *) buffer)[i] =
            value == 0 ? 0
                       : (uint8_t) (((bits_of(f) >> 23) - 112) << 2 | (bits_of(f) >> 21 & 3));
        return;
    case CRUNRT_FLOAT16:
        ((uint16_t *) buffer)[i] =
            value == 0 ? 0
                       : (uint16_t) (((bits_of(f) >> 23) - 112) << 10 | (bits_of(f) >> 13 & 0x3ff));
        return;
    }
}

static double value_at(int r, size_t i, crunrt_reduce_op op) {
    if (op == CRUNRT_PRODUCT) return (double) (1 + (i + (size_t) r) % 2);
    return (double) (1 + (i * 7 + (size_t) r * 3) % 5);
}

static double reduced(size_t i, crunrt_reduce_op op) {
    double acc = value_at(0, i, op);
    for (int r = 1; r < size; r++) {
        double v = value_at(r, i, op);
        if (op == CRUNRT_SUM || op == CRUNRT_AVG)
            acc += v;
        else if (op == CRUNRT_PRODUCT)
            acc *= v;
        else if (op == CRUNRT_MAX)
            acc = v > acc ? v : acc;
        else if (op == CRUNRT_MIN)
            acc = v < acc ? v : acc;
        else if (op == CRUNRT_BAND)
            acc = (double) ((int) acc & (int) v);
        else if (op == CRUNRT_BOR)
            acc = (double) ((int) acc | (int) v);
        else
            acc = (double) ((int) acc ^ (int) v);
    }
    return op == CRUNRT_AVG ? acc / size : acc;
}

static int is_floating(crunrt_dtype t) {
    return t == CRUNRT_FLOAT16 || t == CRUNRT_FLOAT32 || t == CRUNRT_FLOAT64 ||
           t == CRUNRT_BFLOAT16;
}

struct buffers {
    char *send, *recv, *want;
    size_t bytes;
};

static struct buffers buffers_new(size_t count, crunrt_dtype dtype) {
    struct buffers b = {.bytes = count * crunrt_dtype_size(dtype)};
    b.send = malloc(b.bytes + 1);
    b.recv = malloc(b.bytes + 1);
    b.want = malloc(b.bytes + 1);
    memset(b.recv, 0x5a, b.bytes + 1);
    return b;
}

static void buffers_done(struct buffers *b, const char *what, crunrt_dtype dtype, int op,
                         int compare) {
    if (compare) {
        REQUIRE(memcmp(b->recv, b->want, b->bytes) == 0, "%s type %d op %d, %zu bytes", what,
                (int) dtype, op, b->bytes);
    }
    REQUIRE(b->recv[b->bytes] == 0x5a, "%s wrote behind the buffer", what);
    free(b->send);
    free(b->recv);
    free(b->want);
}

static void test_reductions(size_t n, crunrt_dtype dtype, crunrt_reduce_op op) {
    struct buffers b = buffers_new(n, dtype);
    for (size_t i = 0; i < n; i++) {
        put(b.send, i, dtype, value_at(rank, i, op));
        put(b.want, i, dtype, reduced(i, op));
    }
    REQUIRE(crunrt_group_all_reduce(world, b.send, b.recv, n, dtype, op) == 0, "all_reduce");
    REQUIRE(memcmp(b.recv, b.want, b.bytes) == 0, "all_reduce type %d op %d n %zu", (int) dtype,
            (int) op, n);
    memcpy(b.recv, b.send, b.bytes);
    REQUIRE(crunrt_group_all_reduce(world, b.recv, b.recv, n, dtype, op) == 0, "in place");
    buffers_done(&b, "all_reduce in place", dtype, (int) op, 1);

    int root = (int) (n % (size_t) size);
    b = buffers_new(n, dtype);
    for (size_t i = 0; i < n; i++) {
        put(b.send, i, dtype, value_at(rank, i, op));
        put(b.want, i, dtype, reduced(i, op));
    }
    REQUIRE(crunrt_group_reduce(world, b.send, rank == root ? b.recv : NULL, n, dtype, op, root) ==
                0,
            "reduce");
    buffers_done(&b, "reduce", dtype, (int) op, rank == root);

    /* reduce_scatter: element i of rank r's result is element r * n + i of the reduced buffer */
    struct buffers all = buffers_new(n * (size_t) size, dtype);
    b = buffers_new(n, dtype);
    for (size_t i = 0; i < n * (size_t) size; i++) put(all.send, i, dtype, value_at(rank, i, op));
    for (size_t i = 0; i < n; i++) put(b.want, i, dtype, reduced((size_t) rank * n + i, op));
    REQUIRE(crunrt_group_reduce_scatter(world, all.send, b.recv, n, dtype, op) == 0,
            "reduce_scatter");
    buffers_done(&b, "reduce_scatter", dtype, (int) op, 1);
    buffers_done(&all, "reduce_scatter input", dtype, (int) op, 0);
}

/* Returns the value that element i must have in the data that rank `from` sends to rank `to`. */
static double message(int from, int to, size_t i) {
    return (double) ((size_t) from * 31 % 61 + (size_t) to * 7 % 13 + i % 11);
}

static void test_movements(size_t n, crunrt_dtype dtype) {
    int root = size - 1;
    size_t all_n = n * (size_t) size;
    struct buffers b = buffers_new(n, dtype);
    for (size_t i = 0; i < n; i++) {
        put(b.want, i, dtype, message(root, 0, i));
        if (rank == root) put(b.recv, i, dtype, message(root, 0, i));
    }
    REQUIRE(crunrt_group_broadcast(world, b.recv, n, dtype, root) == 0, "broadcast");
    buffers_done(&b, "broadcast", dtype, -1, 1);

    b = buffers_new(all_n, dtype);
    for (size_t i = 0; i < n; i++) put(b.send, i, dtype, message(rank, 0, i));
    for (size_t i = 0; i < all_n; i++) put(b.want, i, dtype, message((int) (i / n), 0, i % n));
    REQUIRE(crunrt_group_all_gather(world, b.send, b.recv, n, dtype) == 0, "all_gather");
    REQUIRE(memcmp(b.recv, b.want, b.bytes) == 0, "all_gather type %d", (int) dtype);
    memset(b.recv, 0, b.bytes);
    char *own = b.recv + (size_t) rank * n * crunrt_dtype_size(dtype);
    memcpy(own, b.send, n * crunrt_dtype_size(dtype));
    REQUIRE(crunrt_group_all_gather(world, own, b.recv, n, dtype) == 0, "all_gather in place");
    REQUIRE(memcmp(b.recv, b.want, b.bytes) == 0, "all_gather in place type %d", (int) dtype);
    memset(b.recv, 0x5a, b.bytes);
    REQUIRE(crunrt_group_gather(world, b.send, rank == root ? b.recv : NULL, n, dtype, root) == 0,
            "gather");
    buffers_done(&b, "gather", dtype, -1, rank == root);

    b = buffers_new(n, dtype);
    char *parts = malloc(all_n * crunrt_dtype_size(dtype));
    for (size_t i = 0; i < all_n; i++) put(parts, i, dtype, message(root, (int) (i / n), i % n));
    for (size_t i = 0; i < n; i++) put(b.want, i, dtype, message(root, rank, i));
    REQUIRE(crunrt_group_scatter(world, rank == root ? parts : NULL, b.recv, n, dtype, root) == 0,
            "scatter");
    buffers_done(&b, "scatter", dtype, -1, 1);
    free(parts);

    b = buffers_new(all_n, dtype);
    for (size_t i = 0; i < all_n; i++) {
        put(b.send, i, dtype, message(rank, (int) (i / n), i % n));
        put(b.want, i, dtype, message((int) (i / n), rank, i % n));
    }
    REQUIRE(crunrt_group_all_to_all(world, b.send, b.recv, n, dtype) == 0, "all_to_all");
    buffers_done(&b, "all_to_all", dtype, -1, 1);
}

/* Returns how many elements rank `from` sends to rank `to`: from + to + 1, but rank 0 sends none to
 * the last rank. */
static size_t count_between(int from, int to) {
    return from == 0 && to == size - 1 ? 0 : (size_t) (from + to + 1);
}

static void test_counts(crunrt_dtype dtype) {
    size_t send_counts[64] = {0}, recv_counts[64] = {0}, sent = 0, received = 0;
    for (int p = 0; p < size; p++) {
        sent += send_counts[p] = count_between(rank, p);
        received += recv_counts[p] = count_between(p, rank);
    }
    struct buffers out = buffers_new(sent, dtype), in = buffers_new(received, dtype);
    for (size_t p = 0, k = 0; p < (size_t) size; p++) {
        for (size_t i = 0; i < send_counts[p]; i++)
            put(out.send, k++, dtype, message(rank, (int) p, i));
    }
    for (size_t p = 0, k = 0; p < (size_t) size; p++) {
        for (size_t i = 0; i < recv_counts[p]; i++)
            put(in.want, k++, dtype, message((int) p, rank, i));
    }
    REQUIRE(crunrt_group_all_to_all_counts(world, out.send, send_counts, in.recv, recv_counts,
                                           dtype) == 0,
            "all_to_all_counts");
    buffers_done(&in, "all_to_all_counts", dtype, -1, 1);
    buffers_done(&out, "all_to_all_counts input", dtype, -1, 0);
}

/* Gathers and scatters parts of different lengths: part r has r + 1 elements. */
static void test_uneven_parts(crunrt_dtype dtype, int root) {
    size_t counts[64] = {0}, all = 0, before = 0, own = (size_t) rank + 1;
    bool is_root = rank == root;
    for (int p = 0; p < size; p++) all += counts[p] = (size_t) p + 1;
    for (int p = 0; p < rank; p++) before += counts[p];
    struct buffers whole = buffers_new(all, dtype), part = buffers_new(own, dtype);
    for (size_t p = 0, k = 0; p < (size_t) size; p++)
        for (size_t i = 0; i <= p; i++, k++) {
            put(whole.want, k, dtype, message((int) p, 0, i));
            put(whole.send, k, dtype, message((int) p, 0, i));
        }
    for (size_t i = 0; i < own; i++) {
        put(part.send, i, dtype, message(rank, 0, i));
        put(part.want, i, dtype, message(rank, 0, i));
    }
    REQUIRE(crunrt_group_gather_counts(world, part.send, own, is_root ? whole.recv : NULL,
                                       is_root ? counts : NULL, dtype, root) == 0,
            "gather_counts");
    if (is_root) REQUIRE(memcmp(whole.recv, whole.want, whole.bytes) == 0, "gather_counts");
    REQUIRE(crunrt_group_scatter_counts(world, is_root ? whole.send : NULL,
                                        is_root ? counts : NULL, part.recv, own, dtype,
                                        root) == 0,
            "scatter_counts");
    REQUIRE(memcmp(part.recv, part.want, part.bytes) == 0, "scatter_counts");
    memset(whole.recv, 0, whole.bytes);
    size_t element = crunrt_dtype_size(dtype);
    memcpy(whole.recv + before * element, part.send, own * element);
    REQUIRE(crunrt_group_all_gather_counts(world, whole.recv, counts, dtype) == 0,
            "all_gather_counts");
    REQUIRE(memcmp(whole.recv, whole.want, whole.bytes) == 0, "all_gather_counts");
    memset(part.recv, 0, part.bytes);
    REQUIRE(crunrt_group_reduce_scatter_counts(world, whole.send, part.recv, counts, dtype,
                                               CRUNRT_MAX) == 0,
            "reduce_scatter_counts");
    buffers_done(&part, "reduce_scatter_counts", dtype, -1, 1);
    buffers_done(&whole, "all_gather_counts", dtype, -1, 1);
}

static void test_own_memory(void) {
    crunrt_registration *registration = NULL;
    void *memory = NULL;
    REQUIRE(crunrt_group_memory_new(world, 100, &memory) == 0, "memory");
    int rc = crunrt_group_register(world, memory, 100, CRUNRT_REGISTER_LOCAL, &registration);
    REQUIRE(rc == 0 && registration != NULL, "register %d", rc);
    crunrt_registration_free(registration);
    crunrt_registration_free(NULL);
    crunrt_group_memory_free(world, memory);
    crunrt_group_memory_free(world, NULL);
}

/* Passes a number from each rank to the next, once through all ranks. Then sends two messages with
 * different tags; each must arrive at the receive with its tag. */
static void test_messages(void) {
    if (size == 1) return;
    int left = (rank + size - 1) % size, right = (rank + 1) % size;
    int64_t token = 0, tagged[2] = {100 + rank, 200 + rank}, got[2] = {0, 0};
    if (rank == 0) {
        token = 1;
        REQUIRE(crunrt_group_send(world, &token, 1, CRUNRT_INT64, right, 7) == 0, "send");
    }
    REQUIRE(crunrt_group_recv(world, &token, 1, CRUNRT_INT64, left, 7) == 0, "recv");
    if (rank != 0) {
        token++;
        REQUIRE(crunrt_group_send(world, &token, 1, CRUNRT_INT64, right, 7) == 0, "pass on");
    }
    REQUIRE(token == (rank == 0 ? size : rank + 1), "token %lld", (long long) token);
    if (rank / 2 * 2 + 1 >= size) return;
    int peer = rank ^ 1;
    if (rank % 2 == 0) {
        REQUIRE(crunrt_group_send(world, &tagged[0], 1, CRUNRT_INT64, peer, 1) == 0, "tag 1");
        REQUIRE(crunrt_group_send(world, &tagged[1], 1, CRUNRT_INT64, peer, 2) == 0, "tag 2");
    } else {
        REQUIRE(crunrt_group_recv(world, &got[0], 1, CRUNRT_INT64, peer, 1) == 0, "tag 1");
        REQUIRE(crunrt_group_recv(world, &got[1], 1, CRUNRT_INT64, peer, 2) == 0, "tag 2");
        REQUIRE(got[0] == 100 + peer && got[1] == 200 + peer, "tags mixed up");
    }
}

static void refuse_bitwise(crunrt_dtype dtype, crunrt_reduce_op op) {
    int64_t x = 0;
    REQUIRE(crunrt_group_all_reduce(world, &x, &x, 1, dtype, op) == -ENOTSUP, "bitwise");
}

void mode_collectives(void) {
    static const size_t counts[] = {1, 3, 1000, 70001};
    open_world(60000);
    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
        for (int t = 0; t <= CRUNRT_BFLOAT16; t++) {
            if (counts[c] > 1000 && t != CRUNRT_FLOAT32 && t != CRUNRT_INT8) continue;
            crunrt_dtype dtype = (crunrt_dtype) t;
            for (int op = CRUNRT_SUM; op <= CRUNRT_BXOR; op++) {
                if (op == CRUNRT_AVG && (!is_floating(dtype) || (size & (size - 1)) != 0)) continue;
                if (op >= CRUNRT_BAND && is_floating(dtype)) continue;
                if (op >= CRUNRT_BAND && on_nccl())
                    refuse_bitwise(dtype, (crunrt_reduce_op) op);
                else
                    test_reductions(counts[c], dtype, (crunrt_reduce_op) op);
            }
            test_movements(counts[c], dtype);
            test_counts(dtype);
            if (counts[c] == 3) test_uneven_parts(dtype, t % size);
        }
    }
    test_own_memory();
    test_messages();
    REQUIRE(crunrt_group_all_reduce(world, NULL, NULL, 0, CRUNRT_INT8, CRUNRT_SUM) == 0,
            "zero count");
    printf("collectives right on rank %d of %d\n", rank, size);
    close_world();
}
