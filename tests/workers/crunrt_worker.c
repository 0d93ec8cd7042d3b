/* A worker for the tests of libcrunrt: crunrt_worker MODE [argument]. Each mode proves one thing
 * and prints what it saw; a broken promise ends it with status 1 and a line that names it. */
#include <crunrt.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static crunrt *rt;
static crunrt_group *world;
static int rank, size;

#define REQUIRE(condition, ...)                                                                    \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            printf("FAILED at line %d: %s: ", __LINE__, #condition);                               \
            printf(__VA_ARGS__);                                                                   \
            printf(" [%s]\n", crunrt_last_error());                                                \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static int64_t now_ms(void) {
    struct timespec ts;
    (void) clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t) ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static void open_runtime(void) {
    crunrt_init_options o = CRUNRT_INIT_OPTIONS_INIT;
    o.method = getenv("TEST_INIT_METHOD");
    REQUIRE(crunrt_init(&o, &rt) == 0, "init");
    rank = crunrt_rank(rt);
    size = crunrt_world_size(rt);
}

static void open_world(int64_t timeout_ms) {
    crunrt_group_options o = CRUNRT_GROUP_OPTIONS_INIT;
    o.timeout_ms = timeout_ms;
    open_runtime();
    REQUIRE(crunrt_group_new(rt, &o, &world) == 0, "world");
}

static void close_world(void) {
    REQUIRE(crunrt_group_barrier(world) == 0, "last barrier");
    crunrt_group_destroy(world);
    crunrt_destroy(rt);
}

/* "error -110 after 512 ms: text": what the scripts look at. */
static void print_error(int rc, int64_t since_ms) {
    printf("error %d after %lld ms: %s\n", rc, (long long) (now_ms() - since_ms),
           crunrt_last_error());
    (void) fflush(stdout);
}

/* ---- collectives: every operation, type and reduction against numbers computed here ---- */

static uint32_t bits_of(float f) {
    uint32_t b;
    memcpy(&b, &f, sizeof(b));
    return b;
}

/* Whole numbers below 2,048 and their fractions that every type holds exactly. */
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

    /* reduce_scatter: element i of part p is global element p * n + i */
    struct buffers all = buffers_new(n * (size_t) size, dtype);
    b = buffers_new(n, dtype);
    for (size_t i = 0; i < n * (size_t) size; i++) put(all.send, i, dtype, value_at(rank, i, op));
    for (size_t i = 0; i < n; i++) put(b.want, i, dtype, reduced((size_t) rank * n + i, op));
    REQUIRE(crunrt_group_reduce_scatter(world, all.send, b.recv, n, dtype, op) == 0,
            "reduce_scatter");
    buffers_done(&b, "reduce_scatter", dtype, (int) op, 1);
    buffers_done(&all, "reduce_scatter input", dtype, (int) op, 0);
}

/* What rank `from` has for rank `to`, element i. */
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

/* Rank r sends r + p + 1 elements to rank p (none at all from 0 to the last). */
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

/* A token goes round the ring, and two messages with tags overtake nothing. */
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

/* NCCL has no bitwise reductions; it averages integers, rounding towards 0. */
static int on_nccl(void) { return strcmp(crunrt_group_backend(world), "nccl") == 0; }

static void refuse_bitwise(crunrt_dtype dtype, crunrt_reduce_op op) {
    int64_t x = 0;
    REQUIRE(crunrt_group_all_reduce(world, &x, &x, 1, dtype, op) == -ENOTSUP, "bitwise");
}

static void mode_collectives(void) {
    static const size_t counts[] = {1, 3, 1000, 70001};
    open_world(60000);
    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
        for (int t = 0; t <= CRUNRT_BFLOAT16; t++) {
            if (counts[c] > 1000 && t != CRUNRT_FLOAT32 && t != CRUNRT_INT8) continue; /* time */
            crunrt_dtype dtype = (crunrt_dtype) t;
            for (int op = CRUNRT_SUM; op <= CRUNRT_BXOR; op++) {
                if (op == CRUNRT_AVG && (!is_floating(dtype) || (size & (size - 1)) != 0)) continue;
                if (op >= CRUNRT_BAND && is_floating(dtype)) continue;
                if (op >= CRUNRT_BAND && on_nccl()) {
                    refuse_bitwise(dtype, (crunrt_reduce_op) op);
                    continue;
                }
                test_reductions(counts[c], dtype, (crunrt_reduce_op) op);
            }
            test_movements(counts[c], dtype);
            test_counts(dtype);
        }
    }
    test_messages();
    REQUIRE(crunrt_group_all_reduce(world, NULL, NULL, 0, CRUNRT_INT8, CRUNRT_SUM) == 0,
            "zero count");
    printf("collectives right on rank %d of %d\n", rank, size);
    close_world();
}

/* ---- work that goes on meanwhile ---- */

/* Everybody sends to everybody with blocking semantics that would deadlock one by one. */
static void test_batch(void) {
    int64_t out[64], in[64];
    crunrt_op ops[128];
    size_t n = 0;
    for (int p = 0; p < size; p++) {
        if (p == rank) continue;
        out[p] = rank * 100 + p;
        in[p] = -1;
        crunrt_op send = CRUNRT_OP_INIT, recv = CRUNRT_OP_INIT;
        send.kind = CRUNRT_OP_SEND;
        send.send = &out[p];
        recv.kind = CRUNRT_OP_RECV;
        recv.recv = &in[p];
        send.root = recv.root = p;
        send.count = recv.count = 1;
        send.dtype = recv.dtype = CRUNRT_INT64;
        ops[n++] = send;
        ops[n++] = recv;
    }
    REQUIRE(crunrt_group_batch(world, ops, n) == 0, "batch");
    for (int p = 0; p < size; p++) {
        REQUIRE(p == rank || in[p] == p * 100 + rank, "from %d: %lld", p, (long long) in[p]);
    }
    ops[0] = (crunrt_op) CRUNRT_OP_INIT;
    REQUIRE(n == 0 || crunrt_group_batch(world, ops, 1) == -EINVAL, "a barrier is no message");
}

/* Receives are started first and finish in another order than they were started. */
static void test_messages_meanwhile(void) {
    if (size < 2) return;
    int64_t in[2] = {0, 0}, out[2] = {7, 8};
    crunrt_work *w[2] = {NULL, NULL};
    int done = 1, left = (rank + size - 1) % size, right = (rank + 1) % size;
    for (int i = 0; i < 2; i++) {
        REQUIRE(crunrt_group_irecv(world, &in[i], 1, CRUNRT_INT64, left, (uint32_t) i, &w[i]) == 0,
                "irecv");
    }
    REQUIRE(crunrt_work_test(w[0], &done) == 0 && !done, "nothing was sent yet");
    REQUIRE(crunrt_work_wait(w[0], 20) == -EAGAIN, "and the wait says so");
    REQUIRE(crunrt_group_barrier(world) == 0, "collectives go on meanwhile");
    REQUIRE(crunrt_group_send(world, &out[1], 1, CRUNRT_INT64, right, 1) == 0, "tag 1");
    REQUIRE(crunrt_work_wait(w[1], CRUNRT_TIMEOUT_DEFAULT) == 0 && in[1] == 8, "tag 1 arrived");
    REQUIRE(crunrt_work_test(w[1], &done) == 0 && done, "it stays over");
    crunrt_work *sent = NULL;
    REQUIRE(crunrt_group_isend(world, &out[0], 1, CRUNRT_INT64, right, 0, &sent) == 0, "isend");
    REQUIRE(crunrt_work_wait(w[0], CRUNRT_FOREVER) == 0 && in[0] == 7, "tag 0 arrived");
    crunrt_work_free(sent); /* waits */
    crunrt_work_free(w[0]);
    crunrt_work_free(w[1]);
}

static void mode_works(void) {
    enum { COUNT = 16, N = 5000 };
    open_world(30000);
    crunrt_work *works[COUNT];
    float *data[COUNT];
    for (int k = 0; k < COUNT; k++) { /* many collectives under way at once */
        data[k] = malloc(N * sizeof(float));
        for (int i = 0; i < N; i++) data[k][i] = (float) (rank + k + i % 3);
        crunrt_op op = CRUNRT_OP_INIT;
        op.kind = CRUNRT_OP_ALL_REDUCE;
        op.send = op.recv = data[k];
        op.count = N;
        op.dtype = CRUNRT_FLOAT32;
        REQUIRE(crunrt_group_start(world, &op, &works[k]) == 0, "start");
    }
    for (int k = COUNT - 1; k >= 0; k--) {
        REQUIRE(crunrt_work_wait(works[k], CRUNRT_TIMEOUT_DEFAULT) == 0, "wait");
        for (int i = 0; i < N; i++) {
            float want = (float) (size * (k + i % 3)) + (float) (size * (size - 1)) / 2;
            REQUIRE(data[k][i] == want, "work %d element %d", k, i);
        }
        crunrt_work_free(works[k]);
        free(data[k]);
    }
    test_batch();
    crunrt_work *nothing = NULL;
    crunrt_op op = CRUNRT_OP_INIT;
    op.kind = CRUNRT_OP_ALL_REDUCE;
    REQUIRE(crunrt_group_start(world, &op, &nothing) == 0, "no elements");
    REQUIRE(crunrt_work_wait(nothing, 0) == 0, "at once");
    crunrt_work_free(nothing);
    op.root = 99;
    op.kind = CRUNRT_OP_SEND;
    REQUIRE(crunrt_group_start(world, &op, &nothing) == -EINVAL, "nonsense");
    printf("works right on rank %d\n", rank);
    close_world();
}

static void mode_messages_meanwhile(void) {
    open_world(30000);
    test_messages_meanwhile();
    printf("messages right on rank %d\n", rank);
    close_world();
}

/* A peer dies while works are under way: each ends with an error, and so does the group. */
static void mode_lose_works(void) {
    enum { COUNT = 4 };
    open_world(5000);
    const char *go = "go";
    int64_t ready = 0;
    if (rank == size - 1) { /* once the others have begun */
        REQUIRE(crunrt_store_wait(crunrt_job_store(rt), &go, 1, 30000) == 0, "go");
        (void) raise(SIGKILL);
    }
    crunrt_work *works[COUNT];
    float x[COUNT] = {0};
    int64_t since = now_ms(), in = 0;
    REQUIRE(crunrt_group_irecv(world, &in, 1, CRUNRT_INT64, size - 1, 5, &works[0]) == 0, "irecv");
    int started = 1;
    for (; started < COUNT; started++) {
        crunrt_op op = CRUNRT_OP_INIT;
        op.kind = CRUNRT_OP_ALL_REDUCE;
        op.send = op.recv = &x[started];
        op.count = 1;
        op.dtype = CRUNRT_FLOAT32;
        REQUIRE(crunrt_group_start(world, &op, &works[started]) == 0, "start");
    }
    REQUIRE(crunrt_store_add(crunrt_job_store(rt), "ready", 1, &ready) == 0, "ready");
    if (ready == size - 1) {
        REQUIRE(crunrt_store_set(crunrt_job_store(rt), go, "", 0) == 0, "go");
    }
    for (int k = 0; k < started; k++) {
        int rc = crunrt_work_wait(works[k], CRUNRT_TIMEOUT_DEFAULT);
        REQUIRE(rc < 0, "work %d ended well without its peer", k);
        if (k == 0) print_error(rc, since);
        int done = 0;
        REQUIRE(crunrt_work_test(works[k], &done) == rc && done, "the outcome stays");
        crunrt_work_free(works[k]);
    }
    REQUIRE(crunrt_group_barrier(world) == -EPIPE, "broken");
    crunrt_group_destroy(world);
    crunrt_destroy(rt);
    exit(3);
}

static void await_stopped(pid_t pid) {
    char path[64], text[512], state = 0;
    (void) snprintf(path, sizeof(path), "/proc/%d/stat", (int) pid);
    while (state != 'T') {
        FILE *f = fopen(path, "r");
        REQUIRE(f != NULL, "read %s", path);
        size_t n = fread(text, 1, sizeof(text) - 1, f);
        (void) fclose(f);
        text[n] = '\0';
        const char *end = strrchr(text, ')');
        if (end != NULL) (void) sscanf(end, ") %c", &state);
        (void) usleep(1000);
    }
}

/* A peer dies in the middle of a message, which is far larger than what sockets hold: rank 1 stops
 * once rank 0 is bound to be in it, and rank 0 then kills it. `how` is what rank 0 does. */
static void mode_lose_message(const char *how) {
    enum { BYTES = 64 << 20 };
    open_world(60000);
    int sends = strcmp(how, "send") == 0;
    char *message = calloc(1, BYTES);
    REQUIRE(message != NULL, "memory");
    if (!sends && rank == 1) memset(message, 1, BYTES);
    crunrt_work *work = NULL;
    int64_t pid = getpid();
    if (rank == 1) {
        REQUIRE(!sends || crunrt_group_irecv(world, message, BYTES, CRUNRT_INT8, 0, 1, &work) == 0,
                "irecv");
        REQUIRE(crunrt_group_send(world, &pid, 1, CRUNRT_INT64, 0, 2) == 0, "say who");
        REQUIRE(sends || crunrt_group_isend(world, message, BYTES, CRUNRT_INT8, 0, 1, &work) == 0,
                "isend");
        (void) raise(SIGSTOP);
    }
    REQUIRE(sends || crunrt_group_irecv(world, message, BYTES, CRUNRT_INT8, 1, 1, &work) == 0,
            "irecv");
    REQUIRE(crunrt_group_recv(world, &pid, 1, CRUNRT_INT64, 1, 2) == 0, "who");
    await_stopped((pid_t) pid);
    REQUIRE(!sends || crunrt_group_isend(world, message, BYTES, CRUNRT_INT8, 1, 1, &work) == 0,
            "isend");
    while (!sends && *(volatile char *) message == 0) (void) usleep(1000); /* it has begun */
    REQUIRE(message[BYTES - 1] == 0, "the message is whole: too short for this test");
    int64_t since = now_ms();
    (void) kill((pid_t) pid, SIGKILL);
    int rc = crunrt_work_wait(work, CRUNRT_TIMEOUT_DEFAULT);
    REQUIRE(rc < 0, "the message arrived nowhere, well");
    print_error(rc, since);
    crunrt_work_free(work);
    crunrt_group_destroy(world);
    crunrt_destroy(rt);
    free(message);
    exit(3);
}

/* ---- arguments: nonsense is refused, and the group goes on ---- */

#define REFUSED(call, text)                                                                        \
    REQUIRE((call) == -EINVAL && strstr(crunrt_last_error(), (text)) != NULL, "refused")

static int returns_zero(int r, void *arg) {
    (void) r;
    (void) arg;
    return 0;
}

static void refuse_null_runtime(void) {
    crunrt_op op = CRUNRT_OP_INIT;
    crunrt_work *w = NULL;
    REFUSED(crunrt_init(NULL, NULL), "initialise: out is NULL");
    REFUSED(crunrt_group_new(NULL, NULL, &world), "the runtime is NULL");
    REFUSED(crunrt_group_new(rt, NULL, NULL), "make a group: out is NULL");
    REFUSED(crunrt_step(NULL, NULL), "the runtime is NULL");
    REFUSED(crunrt_answer_changes(NULL, CRUNRT_NOW, 0), "the runtime is NULL");
    REFUSED(crunrt_change_done(NULL), "the runtime is NULL");
    REFUSED(crunrt_watch_steps(NULL, 1), "the runtime is NULL");
    REFUSED(crunrt_can_rejoin(NULL, 1), "the runtime is NULL");
    REFUSED(crunrt_rejoin(NULL, NULL), "the runtime is NULL");
    REFUSED(crunrt_spawn(NULL, 1, NULL), "start workers: the function is NULL");
    REFUSED(crunrt_spawn(returns_zero, 0, NULL), "start 0 workers");
    REFUSED(crunrt_group_monitored_barrier(NULL, 0), "the group is NULL");
    REFUSED(crunrt_group_batch(NULL, NULL, 0), "the group is NULL");
    REFUSED(crunrt_group_start(world, &op, NULL), "start an operation: out is NULL");
    REFUSED(crunrt_group_start(NULL, &op, &w), "the group is NULL");
    REFUSED(crunrt_work_test(NULL, NULL), "the work is NULL");
    REFUSED(crunrt_work_wait(NULL, 0), "the work is NULL");
    REQUIRE(crunrt_rank(NULL) == -1 && crunrt_world_size(NULL) == -1 &&
                crunrt_local_rank(NULL) == -1 && crunrt_local_world_size(NULL) == -1 &&
                crunrt_restart_count(NULL) == -1 && crunrt_group_rank(NULL) == -1 &&
                crunrt_group_size(NULL) == -1,
            "numbers of nothing");
    REQUIRE(crunrt_job_store(NULL) == NULL && crunrt_group_backend(NULL) == NULL &&
                crunrt_nccl_comm(NULL) == NULL,
            "parts of nothing");
}

static void refuse_null_store(void) {
    crunrt_store *s = crunrt_job_store(rt);
    const char *keys[1] = {"absent"};
    const void *nothing[1] = {NULL};
    size_t three = 3;
    void *value = NULL;
    REFUSED(crunrt_store_open("127.0.0.1", 1, 0, NULL), "open a store: out is NULL");
    REFUSED(crunrt_store_prefix(NULL, "p", &s), "the store is NULL");
    REFUSED(crunrt_store_prefix(s, "p", NULL), "prefix a store: out is NULL");
    REFUSED(crunrt_store_prefix(s, NULL, &s), "the prefix is empty");
    REFUSED(crunrt_store_set(NULL, "k", "", 0), "the store is NULL");
    REFUSED(crunrt_store_set(s, NULL, "", 0), "the key is NULL");
    REFUSED(crunrt_store_set(s, "k", NULL, 5), "set 'k': the value is NULL, its length 5");
    REFUSED(crunrt_store_append(s, "k", NULL, 5), "the value is NULL");
    REFUSED(crunrt_store_queue_push(s, "q", NULL, 5), "the value is NULL");
    REFUSED(crunrt_store_compare_set(s, "k", NULL, 5, "", 0, NULL, NULL), "the value is NULL");
    REFUSED(crunrt_store_compare_set(s, "k", "", 0, NULL, 5, NULL, NULL), "the value is NULL");
    REFUSED(crunrt_store_multi_set(s, keys, nothing, &three, 1), "the value is NULL");
    REFUSED(crunrt_store_multi_set(s, keys, NULL, &three, 1), "values is NULL");
    REFUSED(crunrt_store_multi_set(s, keys, nothing, NULL, 1), "lens is NULL");
    REFUSED(crunrt_store_get(s, "k", 0, NULL, NULL), "value is NULL");
    REFUSED(crunrt_store_multi_get(s, keys, 1, 0, NULL, NULL), "values is NULL");
    REFUSED(crunrt_store_multi_get(s, NULL, 1, 0, &value, NULL), "the list of keys is NULL");
    REFUSED(crunrt_store_wait(s, NULL, 1, 0), "the list of keys is NULL");
    REFUSED(crunrt_store_check(s, keys, 1, NULL), "present is NULL");
    REFUSED(crunrt_store_num_keys(s, NULL), "count is NULL");
    REFUSED(crunrt_store_list_keys(s, NULL, NULL), "keys is NULL");
    REFUSED(crunrt_store_queue_pop(s, "q", 0, NULL, NULL), "value is NULL");
    REFUSED(crunrt_store_queue_len(s, "q", NULL), "count is NULL");
    REQUIRE(crunrt_store_get(s, "absent", 0, &value, NULL) == -ETIMEDOUT, "the store goes on");
}

static void refuse_counts(crunrt_group *g) {
    int32_t in[8] = {0}, out[8] = {0};
    size_t two[64] = {0}, three[64] = {0}, huge[64] = {0};
    int self = crunrt_group_rank(g);
    two[self] = 2;
    three[self] = 3;
    huge[self] = SIZE_MAX / 3;
    REFUSED(crunrt_group_all_to_all_counts(g, in, three, out, two, CRUNRT_INT32),
            "sends itself 3 elements and receives 2");
    REQUIRE(strchr(crunrt_last_error(), '\n') == NULL, "one line");
    REFUSED(crunrt_group_all_to_all_counts(g, NULL, two, out, two, CRUNRT_INT32), "buffer is NULL");
    REFUSED(crunrt_group_all_to_all_counts(g, in, two, NULL, two, CRUNRT_INT32), "buffer is NULL");
    REFUSED(crunrt_group_all_to_all_counts(g, in, huge, out, huge, CRUNRT_INT32), "is too large");
    REFUSED(crunrt_group_all_to_all_counts(g, in, NULL, out, two, CRUNRT_INT32), "send_counts");
    REQUIRE(out[0] == 0 && out[2] == 0, "nothing was written");
}

static void refuse_counts_alone(void) {
    crunrt_group_options o = CRUNRT_GROUP_OPTIONS_INIT;
    o.name = "two\nlines";
    for (int r = 0; r < size; r++) {
        crunrt_group *alone = NULL;
        o.ranks = &r;
        o.rank_count = 1;
        REQUIRE(crunrt_group_new(rt, &o, &alone) == 0, "a group of one");
        if (alone != NULL) refuse_counts(alone);
        crunrt_group_destroy(alone);
    }
}

static void mode_arguments(void) {
    open_world(20000);
    int x = 1, y = 0;
    REQUIRE(crunrt_group_all_reduce(world, &x, &y, 1, (crunrt_dtype) 99, CRUNRT_SUM) == -EINVAL,
            "type");
    REQUIRE(strstr(crunrt_last_error(), "data type 99") != NULL, "text");
    REQUIRE(crunrt_group_all_reduce(world, &x, &y, 1, CRUNRT_INT32, (crunrt_reduce_op) 77) ==
                -EINVAL,
            "op");
    REQUIRE(crunrt_group_all_reduce(world, &x, NULL, 1, CRUNRT_INT32, CRUNRT_SUM) == -EINVAL,
            "recv NULL");
    REQUIRE(crunrt_group_all_reduce(world, NULL, &y, 1, CRUNRT_INT32, CRUNRT_SUM) == -EINVAL,
            "send NULL");
    REQUIRE(crunrt_group_all_reduce(world, &x, &y, SIZE_MAX, CRUNRT_INT32, CRUNRT_SUM) == -EINVAL,
            "count");
    REQUIRE(crunrt_group_all_reduce(world, &x, &y, 1, CRUNRT_FLOAT32, CRUNRT_BOR) == -EINVAL,
            "bitwise");
    REQUIRE(crunrt_group_all_reduce(world, &x, &y, 1, CRUNRT_INT32, CRUNRT_AVG) ==
                (on_nccl() ? 0 : -ENOTSUP),
            "average");
    REQUIRE(crunrt_group_broadcast(world, &x, 1, CRUNRT_INT32, size) == -EINVAL, "root");
    REQUIRE(crunrt_group_broadcast(world, &x, 1, CRUNRT_INT32, -1) == -EINVAL, "root");
    REQUIRE(crunrt_group_send(world, &x, 1, CRUNRT_INT32, rank, 0) == -EINVAL, "self");
    REQUIRE(crunrt_group_barrier(NULL) == -EINVAL, "no group");
    crunrt_op bad = CRUNRT_OP_INIT;
    bad.kind = (crunrt_op_kind) 55;
    REQUIRE(crunrt_group_run(world, &bad) == -EINVAL, "kind");
    crunrt_group *g = NULL;
    int twice[2] = {0, 0}, none[1] = {size};
    crunrt_group_options o = CRUNRT_GROUP_OPTIONS_INIT;
    o.ranks = twice;
    o.rank_count = 2;
    REQUIRE(crunrt_group_new(rt, &o, &g) == -EINVAL && strstr(crunrt_last_error(), "twice"),
            "twice");
    o.ranks = none;
    o.rank_count = 1;
    REQUIRE(crunrt_group_new(rt, &o, &g) == -EINVAL, "no rank of the job");
    refuse_null_runtime();
    refuse_null_store();
    refuse_counts(world);
    refuse_counts_alone();
    REQUIRE(crunrt_group_all_reduce(world, &x, &y, 1, CRUNRT_INT32, CRUNRT_SUM) == 0 && y == size,
            "the group goes on");
    printf("arguments checked on rank %d\n", rank);
    close_world();
}

/* ---- sub-groups: evens and odds at once, in reverse order ---- */

static void mode_subgroups(void) {
    open_world(20000);
    int lists[2][64], counts[2] = {0, 0};
    for (int r = size - 1; r >= 0; r--) lists[r % 2][counts[r % 2]++] = r;
    for (int parity = 0; parity < 2; parity++) {
        if (counts[parity] == 0) continue;
        crunrt_group_options o = CRUNRT_GROUP_OPTIONS_INIT;
        o.ranks = lists[parity];
        o.rank_count = (size_t) counts[parity];
        o.name = parity ? "odds" : "evens";
        crunrt_group *g = NULL;
        REQUIRE(crunrt_group_new(rt, &o, &g) == 0, "sub-group");
        REQUIRE((g != NULL) == (rank % 2 == parity), "membership");
        if (g == NULL) continue;
        REQUIRE(crunrt_group_size(g) == counts[parity], "size");
        REQUIRE(lists[parity][crunrt_group_rank(g)] == rank, "rank order");
        int sum = rank, want = 0;
        for (int r = parity; r < size; r += 2) want += r;
        REQUIRE(crunrt_group_all_reduce(g, &sum, &sum, 1, CRUNRT_INT32, CRUNRT_SUM) == 0, "sum");
        REQUIRE(sum == want, "sum %d, wanted %d", sum, want);
        REQUIRE(crunrt_group_barrier(g) == 0, "barrier");
        crunrt_group_destroy(g);
    }
    printf("sub-groups right on rank %d\n", rank);
    close_world();
}

/* ---- failures ---- */

/* The store's server hangs, and so does rank 1: rank 0 must not wait for an answer of the store. */
static void mode_lose_store(const char *server) {
    open_world(20000);
    crunrt_op op = CRUNRT_OP_INIT;
    op.timeout_ms = 1000;
    REQUIRE(crunrt_group_barrier(world) == 0, "barrier");
    if (rank == 1) (void) raise(SIGSTOP);
    REQUIRE(kill((pid_t) atoi(server), SIGSTOP) == 0, "stop the server");
    int64_t since = now_ms();
    int rc = crunrt_group_run(world, &op);
    print_error(rc, since);
    exit(rc == -ETIMEDOUT ? 3 : 1);
}

/* The store's server is gone: each call says that the connection is lost, and that alone. */
static void mode_dead_store(const char *server) {
    open_world(20000);
    crunrt_store *s = crunrt_job_store(rt);
    crunrt_group *g = NULL;
    char **keys = NULL;
    size_t n = 0;
    void *value = NULL;
    REQUIRE(kill((pid_t) atoi(server), SIGKILL) == 0, "kill the server");
    int rc = 0;
    while (rc == 0) rc = crunrt_store_num_keys(s, &(int64_t){0});
    REQUIRE(rc == -ECONNRESET || rc == -EPIPE, "num_keys: %d", rc);
    REQUIRE(crunrt_store_get(s, "k", 1000, &value, NULL) == rc, "get");
    REQUIRE(crunrt_store_list_keys(s, &keys, &n) == rc, "list_keys");
    REQUIRE(crunrt_store_queue_pop(s, "q", 0, &value, NULL) == rc, "queue_pop");
    REQUIRE(crunrt_store_barrier(s, "b", 1, 1000) == rc, "barrier");
    REQUIRE(strstr(crunrt_last_error(), "the connection was lost before") != NULL, "text");
    REQUIRE(crunrt_group_new(rt, NULL, &g) == -ECONNRESET, "a group");
    REQUIRE(crunrt_group_monitored_barrier(world, 1000) == -ECONNRESET, "monitored barrier");
    REQUIRE(crunrt_rejoin(rt, NULL) == -ECONNRESET, "rejoin");
    REQUIRE(crunrt_group_barrier(world) == -EPIPE, "a broken group");
    crunrt_group_destroy(world);
    crunrt_destroy(rt);
    exit(3);
}

/* Rank 1 stops while the two connect (tests/fake/stop_in_gloo.c): in crunrt_group_new() of rank 0, or
 * right after it, depending on who of them connects and who accepts. */
static void mode_lose_connecting(void) {
    crunrt_group_options o = CRUNRT_GROUP_OPTIONS_INIT;
    o.timeout_ms = 2000;
    open_runtime();
    int64_t since = now_ms(), one = 1;
    int rc = crunrt_group_new(rt, &o, &world);
    if (rc == 0) {
        since = now_ms();
        rc = crunrt_group_all_reduce(world, &one, &one, 1, CRUNRT_INT64, CRUNRT_SUM);
    }
    REQUIRE(rc < 0, "alone?");
    print_error(rc, since);
    exit(3);
}

/* All reduce for ever; `victim` does `how` to itself in the tenth. The others print what they
 * get. A death is told by the broken connection, far below the limits, one that stopped by the limit
 * of that operation. */
static void mode_lose(const char *how, int victim) {
    open_world(60000);
    float x[256] = {0};
    crunrt_op op = CRUNRT_OP_INIT;
    op.kind = CRUNRT_OP_ALL_REDUCE;
    op.send = op.recv = x;
    op.count = 256;
    op.dtype = CRUNRT_FLOAT32;
    op.reduce = CRUNRT_SUM;
    for (int i = 0;; i++) {
        if (i == 10 && rank == victim) {
            if (strcmp(how, "kill") == 0) (void) raise(SIGKILL);
            if (strcmp(how, "stop") == 0) (void) raise(SIGSTOP);
            if (strcmp(how, "exit") == 0) exit(0);
        }
        if (i == 10 && strcmp(how, "stop") == 0) op.timeout_ms = 2000;
        int64_t since = now_ms();
        int rc = crunrt_group_run(world, &op);
        if (rc == 0) continue;
        print_error(rc, since);
        since = now_ms();
        REQUIRE(crunrt_group_barrier(world) == -EPIPE, "a broken group stays broken");
        REQUIRE(strstr(crunrt_last_error(), "is broken since") != NULL, "text");
        REQUIRE(now_ms() - since < 30000, "a broken group answers at once, not after 60,000 ms");
        crunrt_group_destroy(world);
        crunrt_destroy(rt);
        exit(3);
    }
}

/* Monitored barriers: some that pass, then one that the last rank comes to too late. */
static void mode_monitored(void) {
    open_world(20000);
    for (int i = 0; i < 6; i++) {
        REQUIRE(crunrt_group_monitored_barrier(world, CRUNRT_TIMEOUT_DEFAULT) == 0, "pass");
    }
    REQUIRE((crunrt_nccl_comm(world) != NULL) == on_nccl(), "gloo has no NCCL communicator");
    int late = rank == size - 1;
    const char *key = "gave up";
    if (late) REQUIRE(crunrt_store_wait(crunrt_job_store(rt), &key, 1, 30000) == 0, "wait");
    int64_t since = now_ms();
    int rc = crunrt_group_monitored_barrier(world, late ? 20000 : 2000);
    REQUIRE(rc < 0, "rank %d passed", rank);
    print_error(rc, since);
    const char *verdict = "crunrt/0/0/pg/0/barrier6/ready"; /* who comes last would say "ok" there */
    int decided = 0;
    REQUIRE(crunrt_store_check(crunrt_job_store(rt), &verdict, 1, &decided) == 0 && decided,
            "nobody has said that the time was up: the last rank might pass");
    REQUIRE(crunrt_store_set(crunrt_job_store(rt), key, "", 0) == 0, "set");
    REQUIRE(crunrt_group_barrier(world) == -EPIPE, "broken");
    exit(3);
}

/* ---- spawn: these processes are started by this one ---- */

static int spawned_sum(int r, void *arg) {
    open_world(20000);
    int64_t sum = *(int64_t *) arg + r;
    REQUIRE(rank == r, "rank %d", rank);
    REQUIRE(crunrt_group_all_reduce(world, &sum, &sum, 1, CRUNRT_INT64, CRUNRT_SUM) == 0, "sum");
    printf("spawned rank %d of %d: %lld\n", rank, size, (long long) sum);
    close_world();
    return 0;
}

static int spawned_failure(int r, void *arg) {
    (void) arg;
    if (r == 1) return 7;
    if (r == 2) (void) signal(SIGTERM, SIG_DFL);
    for (;;) (void) pause();
}

static int spawned_crash(int r, void *arg) {
    (void) arg;
    if (r == 0) (void) raise(SIGKILL);
    return 0;
}

static int spawned_256(int r, void *arg) {
    (void) r;
    (void) arg;
    return 256;
}

static void mode_spawn(void) {
    (void) signal(SIGCHLD, SIG_IGN);
    REQUIRE(crunrt_spawn(spawned_256, 1, NULL) == -EINVAL &&
                strstr(crunrt_last_error(), "ignores SIGCHLD") != NULL,
            "nobody would learn how they end");
    (void) signal(SIGCHLD, SIG_DFL);
    REQUIRE(crunrt_spawn(spawned_256, 2, NULL) == -ECHILD, "256 is no success");
    int64_t base = 100;
    REQUIRE(crunrt_spawn(spawned_sum, 4, &base) == 0, "spawn");
    REQUIRE(crunrt_spawn(spawned_sum, 1, &base) == 0, "again");
    REQUIRE(crunrt_spawn(spawned_failure, 3, NULL) == -ECHILD, "failure");
    REQUIRE(strcmp(crunrt_last_error(), "worker 1 returned 7") == 0, "text");
    REQUIRE(crunrt_spawn(spawned_crash, 1, NULL) == -ECHILD, "crash");
    REQUIRE(strstr(crunrt_last_error(), "signal 9 (SIGKILL)") != NULL, "text");
    REQUIRE(crunrt_spawn(NULL, 2, NULL) == -EINVAL && crunrt_spawn(spawned_sum, 0, NULL) == -EINVAL,
            "nonsense");
    printf("spawn right\n");
}

/* All reduce; the victim dies in the tenth, the others go on in place, and with whoever comes
 * instead. `min` is what the survivors are content with. A second start of the victim's rank does
 * not die. */
static void mode_rejoin(int min, int victim) {
    open_world(60000);
    int64_t sum = 0, since = 0;
    int anew = getenv("TEST_ANEW") != NULL, rc = 0;
    for (int i = 0; rc == 0 && i < 100 && !anew; i++) {
        if (i == 10 && rank == victim) (void) raise(SIGKILL);
        since = now_ms();
        sum = 1;
        rc = crunrt_group_all_reduce(world, &sum, &sum, 1, CRUNRT_INT64, CRUNRT_SUM);
    }
    if (!anew) {
        REQUIRE(rc < 0, "nobody died");
        crunrt_group_destroy(world);
        crunrt_rejoin_options o = CRUNRT_REJOIN_OPTIONS_INIT;
        o.size = 1;
        REQUIRE(crunrt_rejoin(rt, &o) == -EINVAL, "the size of the options");
        o.size = sizeof(o);
        o.min_size = min;
        if (min < size) o.timeout_ms = CRUNRT_FOREVER;
        REQUIRE(crunrt_rejoin(rt, &o) == 0, "rejoin");
        REQUIRE(crunrt_group_new(rt, NULL, &world) == 0, "a new world");
    }
    int first = rank;
    rank = crunrt_rank(rt);
    size = crunrt_world_size(rt);
    sum = 1;
    REQUIRE(crunrt_group_all_reduce(world, &sum, &sum, 1, CRUNRT_INT64, CRUNRT_SUM) == 0, "go on");
    REQUIRE(sum == size && size >= min, "the sum is %lld of %d", (long long) sum, size);
    printf("rank %d goes on as %d of %d after %lld ms\n", first, rank, size,
           (long long) (anew ? 0 : now_ms() - since));
    close_world();
}

/* ---- steps under an agent: counts until told otherwise, and then does `how` ---- */

static void say_place(const char *what) {
    rank = crunrt_rank(rt);
    size = crunrt_world_size(rt);
    printf("%s rank %d of %d local %d of %d restart %d\n", what, rank, size, crunrt_local_rank(rt),
           crunrt_local_world_size(rt), crunrt_restart_count(rt));
}

/* All ranks of the round, started anew or not, make one group: they name its keys alike. */
static void meet(void) {
    int64_t one = 1;
    if (getenv("TEST_NO_GROUP") != NULL) return;
    REQUIRE(crunrt_group_new(rt, NULL, &world) == 0, "world");
    REQUIRE(crunrt_group_all_reduce(world, &one, &one, 1, CRUNRT_INT64, CRUNRT_SUM) == 0, "meet");
    REQUIRE(one == size, "%lld of %d", (long long) one, size);
    crunrt_group_destroy(world);
    printf("met %d\n", size);
}

static void go_on_in_place(int64_t timeout_ms) {
    crunrt_rejoin_options o = CRUNRT_REJOIN_OPTIONS_INIT;
    o.timeout_ms = timeout_ms;
    int64_t since = now_ms();
    int rc = crunrt_rejoin(rt, &o);
    if (rc < 0) {
        print_error(rc, since);
        exit(3);
    }
    say_place("rejoined");
    meet();
}

static void mode_steps(const char *how, int64_t limit) {
    open_runtime();
    say_place("began");
    meet();
    REQUIRE(crunrt_can_rejoin(rt, strcmp(how, "rejoin") == 0) == 0, "can rejoin");
    if (strcmp(how, "needs") == 0)
        REQUIRE(crunrt_answer_changes(rt, CRUNRT_NEEDS, 4321) == 0, "needs");
    if (strcmp(how, "now") == 0) REQUIRE(crunrt_answer_changes(rt, CRUNRT_NOW, 0) == 0, "now");
    if (strcmp(how, "watch") == 0) REQUIRE(crunrt_watch_steps(rt, 777) == 0, "watch");
    crunrt_change change = CRUNRT_CHANGE_INIT;
    for (int64_t steps = 1; steps <= limit; steps++) {
        const struct timespec pace = {.tv_nsec = 1000000};
        int rc = crunrt_step(rt, &change);
        if (rc == 0) {
            (void) nanosleep(&pace, NULL);
            continue;
        }
        if (rc < 0) {
            REQUIRE(rc == -ECONNRESET && strstr(crunrt_last_error(), "over") != NULL, "%d", rc);
            printf("over after %lld\n", (long long) steps);
        } else {
            printf("change %d after %lld (%llu) left %d: %s\n", (int) change.kind,
                   (long long) steps, (unsigned long long) change.step, change.left_ms > 0,
                   change.reason);
        }
        if (strcmp(how, "exit") == 0) break;
        if (strcmp(how, "rejoin") == 0) {
            go_on_in_place(20000);
            steps = 0;
        } else {
            REQUIRE(crunrt_step(rt, &change) == CRUNRT_CHANGE, "it stays so");
            REQUIRE(crunrt_change_done(rt) == 0, "done");
            for (;;) (void) pause();
        }
    }
    if (getenv("TEST_DUMP") != NULL) REQUIRE(crunrt_flight_dump(NULL) == 0, "flight record");
    crunrt_destroy(rt);
    printf("ended\n");
}

/* Under crun: rank 1 dies while the others wait for it in crunrt_group_new(). */
static void mode_lose_opening(void) {
    open_runtime();
    REQUIRE(crunrt_can_rejoin(rt, 1) == 0, "can rejoin");
    if (crunrt_restart_count(rt) == 0) {
        int64_t ready = 0;
        const char *all = "all can rejoin";
        REQUIRE(crunrt_store_add(crunrt_job_store(rt), "ready", 1, &ready) == 0, "ready");
        if (ready == size) REQUIRE(crunrt_store_set(crunrt_job_store(rt), all, "", 0) == 0, "all");
        REQUIRE(crunrt_store_wait(crunrt_job_store(rt), &all, 1, 60000) == 0, "all");
        if (rank == 1) (void) raise(SIGKILL);
        int64_t since = now_ms();
        int rc = crunrt_group_new(rt, NULL, &world);
        REQUIRE(rc == -ECONNRESET, "%d", rc);
        print_error(rc, since);
        go_on_in_place(60000);
    } else {
        meet();
    }
    printf("pid %d ends as rank %d\n", (int) getpid(), crunrt_rank(rt));
    crunrt_destroy(rt);
}

/* With CRUNRT_DEBUG=1: two calls that agree, then rank 1 makes another. */
static void mode_mismatch(const char *how) {
    open_world(10000);
    float x[64] = {0};
    for (int i = 0; i < 5; i++) {
        REQUIRE(crunrt_group_all_reduce(world, x, x, 64, CRUNRT_FLOAT32, CRUNRT_SUM) == 0, "agree");
        REQUIRE(crunrt_group_barrier(world) == 0, "agree");
    }
    int64_t since = now_ms(), keys = 0;
    REQUIRE(crunrt_store_num_keys(crunrt_job_store(rt), &keys) == 0, "keys");
    printf("keys %lld\n", (long long) keys);
    int rc = 0, other = rank == 1;
    if (strcmp(how, "kind") == 0 && other) {
        rc = crunrt_group_broadcast(world, x, 64, CRUNRT_FLOAT32, 0);
    } else if (strcmp(how, "counts") == 0) {
        size_t sent[3] = {1, 2, 3}, awaited[3] = {0};
        float y[64];
        for (int r = 0; r < 3; r++) awaited[r] = (size_t) rank + 1;
        REQUIRE(crunrt_group_all_to_all_counts(world, x, sent, y, awaited, CRUNRT_FLOAT32) == 0,
                "counts agree");
        awaited[2] += (size_t) other;
        rc = crunrt_group_all_to_all_counts(world, x, sent, y, awaited, CRUNRT_FLOAT32);
    } else if (strcmp(how, "alone") == 0) { /* rank 2 never comes, and rank 1 does not wait long */
        crunrt_op op = CRUNRT_OP_INIT;
        op.timeout_ms = other ? 300 : 60000;
        if (rank < 2) rc = crunrt_group_run(world, &op);
        if (rank < 2) print_error(rc, since);
        exit(3);
    } else {
        size_t count = strcmp(how, "count") == 0 && other ? 32 : 64;
        rc = crunrt_group_all_reduce(world, x, x, count, CRUNRT_FLOAT32, CRUNRT_SUM);
    }
    REQUIRE(rc == -EPROTO, "the mismatch was not seen: %d", rc);
    print_error(rc, since);
    exit(3);
}

/* Without CRUNRT_DEBUG: ranks that make different calls all get a failure, none a wrong result and none
 * is ended by the backend. */
static void mode_differ(const char *how) {
    open_world(20000);
    static float x[64], y[3 * 64];
    size_t three[64] = {0}, other = rank == 1;
    crunrt_op op = CRUNRT_OP_INIT;
    op.send = x;
    op.recv = y;
    op.count = other ? 32 : 64;
    op.dtype = CRUNRT_FLOAT32;
    op.timeout_ms = 1000;
    op.root = 1;
    if (strcmp(how, "reduce") == 0) op.kind = CRUNRT_OP_ALL_REDUCE;
    if (strcmp(how, "short") == 0) op.kind = CRUNRT_OP_BROADCAST; /* 32 come, 64 are awaited */
    if (strcmp(how, "message") == 0) op.kind = other ? CRUNRT_OP_RECV : CRUNRT_OP_SEND;
    if (strcmp(how, "message") == 0 && other) op.root = 0;
    if (strcmp(how, "counts") == 0) op.kind = CRUNRT_OP_ALL_TO_ALL_COUNTS;
    for (int r = 0; r < size; r++) three[r] = r == rank ? 0 : rank == 1 ? 2 : 3;
    op.send_counts = op.recv_counts = three;
    int64_t since = now_ms();
    int rc = strcmp(how, "message") == 0 && rank > 1 ? 0 : crunrt_group_run(world, &op);
    if (rc == 0) rc = crunrt_group_barrier(world);
    REQUIRE(rc == -ETIMEDOUT || rc == -ECONNRESET, "rank %d got %d", rank, rc);
    print_error(rc, since);
    exit(3);
}

/* The last rank does not take part in the group's first operation. */
static void mode_late(void) {
    open_world(60000);
    if (rank == size - 1) {
        const char *key = "done";
        (void) crunrt_store_wait(crunrt_job_store(rt), &key, 1, 60000);
        exit(0);
    }
    crunrt_op op = CRUNRT_OP_INIT;
    op.kind = CRUNRT_OP_BARRIER;
    op.timeout_ms = 700;
    int64_t since = now_ms();
    int rc = crunrt_group_run(world, &op);
    REQUIRE(rc < 0, "the barrier ended without all ranks");
    print_error(rc, since);
    REQUIRE(crunrt_store_set(crunrt_job_store(rt), "done", "", 0) == 0, "done");
    exit(3);
}

/* One rank never comes; the others begin together, so that none of them is absent, too. */
static void mode_absent(void) {
    crunrt_group_options o = CRUNRT_GROUP_OPTIONS_INIT;
    o.timeout_ms = 2000;
    open_runtime();
    REQUIRE(crunrt_store_barrier(crunrt_job_store(rt), "here", size - 1, 60000) == 0, "barrier");
    int64_t since = now_ms();
    int rc = crunrt_group_new(rt, &o, &world);
    REQUIRE(rc < 0, "the group was made without all ranks");
    print_error(rc, since);
    exit(3);
}

static void mode_init(void) {
    int64_t since = now_ms();
    crunrt_init_options o = CRUNRT_INIT_OPTIONS_INIT;
    o.method = getenv("TEST_INIT_METHOD");
    const char *timeout = getenv("TEST_TIMEOUT_MS");
    o.timeout_ms = timeout != NULL ? atoi(timeout) : 60000;
    int rc = crunrt_init(&o, &rt);
    if (rc < 0)
        print_error(rc, since);
    else
        printf("rank %d of %d\n", crunrt_rank(rt), crunrt_world_size(rt));
    if (rc == 0) crunrt_destroy(rt);
    exit(rc < 0 ? 3 : 0);
}

static void mode_backend(const char *name) {
    crunrt_group_options o = CRUNRT_GROUP_OPTIONS_INIT;
    o.backend = name;
    o.timeout_ms = 20000;
    open_runtime();
    int64_t since = now_ms();
    int rc = crunrt_group_new(rt, &o, &world);
    if (rc < 0)
        print_error(rc, since);
    else
        printf("backend %s\n", crunrt_group_backend(world));
    exit(rc < 0 ? 3 : 0);
}

/* Two groups one after the other on the nccl backend (a fake or a real one with host-visible
 * memory), an operation on each; prints the first error. */
static void mode_nccl(void) {
    crunrt_group_options o = CRUNRT_GROUP_OPTIONS_INIT;
    o.backend = "nccl";
    const char *timeout = getenv("TEST_TIMEOUT_MS");
    o.timeout_ms = timeout != NULL ? atoi(timeout) : 60000;
    open_runtime();
    for (int i = 0; i < 2; i++) {
        float x = 1;
        int64_t since = now_ms();
        int rc = crunrt_group_new(rt, &o, &world);
        if (rc == 0 && i == 0) {
            int bits = 1;
            REQUIRE(crunrt_group_all_reduce(world, &bits, &bits, 1, CRUNRT_INT32, CRUNRT_BOR) ==
                        -ENOTSUP,
                    "nccl has no bitwise reduction");
        }
        if (rc == 0) rc = crunrt_group_all_reduce(world, &x, &x, 1, CRUNRT_FLOAT32, CRUNRT_SUM);
        if (rc == 0) rc = crunrt_group_barrier(world);
        if (rc < 0) print_error(rc, since);
        crunrt_group_destroy(world);
        world = NULL;
        if (rc < 0) exit(3);
        printf("group %d done\n", i);
    }
    crunrt_destroy(rt);
}

/* Sums until one fails; then the group is broken. */
static void mode_broken(void) {
    const char *timeout = getenv("TEST_TIMEOUT_MS");
    open_world(timeout != NULL ? atoi(timeout) : 60000);
    int rc = 0;
    int64_t since = now_ms();
    for (int i = 0; rc == 0 && i < 20; i++) {
        float x = 1;
        rc = crunrt_group_all_reduce(world, &x, &x, 1, CRUNRT_FLOAT32, CRUNRT_SUM);
    }
    REQUIRE(rc < 0, "all went well");
    print_error(rc, since);
    REQUIRE(crunrt_group_barrier(world) == -EPIPE, "broken");
    printf("%s\n", crunrt_last_error());
    crunrt_group_destroy(world);
    crunrt_destroy(rt);
    exit(3);
}

static float nccl_sum(crunrt_group *g) {
    float x = 1;
    REQUIRE(crunrt_group_all_reduce(g, &x, &x, 1, CRUNRT_FLOAT32, CRUNRT_SUM) == 0, "sum");
    return x;
}

/* A world, then groups of it: the even ranks, the odd ones, all in reverse. `absent`: rank 0, which
 * is in the first one, makes them alone with the other even ones; TEST_DESTROYED: rank 1 has no
 * world any more. */
static void mode_nccl_split(int absent) {
    crunrt_group_options o = CRUNRT_GROUP_OPTIONS_INIT;
    int lists[3][16], counts[3] = {0, 0, 0};
    o.backend = "nccl";
    const char *timeout = getenv("TEST_TIMEOUT_MS");
    o.timeout_ms = timeout != NULL ? atoi(timeout) : 60000;
    open_runtime();
    REQUIRE(crunrt_group_new(rt, &o, &world) == 0, "world");
    (void) nccl_sum(world);
    for (int r = 0; r < size; r++) {
        lists[r % 2][counts[r % 2]++] = r;
        lists[2][counts[2]++] = size - 1 - r;
    }
    if (getenv("TEST_DESTROYED") != NULL && rank == 1) {
        crunrt_group_destroy(world);
        world = NULL;
    }
    for (int i = 0; i < (absent ? 1 : 3); i++) {
        if (absent && rank % 2 != 0) break;
        crunrt_group *g = NULL;
        o.ranks = lists[i];
        o.rank_count = (size_t) counts[i];
        int64_t since = now_ms();
        int rc = crunrt_group_new(rt, &o, &g);
        if (rc < 0) {
            print_error(rc, since);
            if (world != NULL) printf("world %d\n", crunrt_group_barrier(world));
            crunrt_group_destroy(world);
            exit(3);
        }
        if (g != NULL) {
            (void) nccl_sum(g);
            REQUIRE(crunrt_nccl_comm(g) != crunrt_nccl_comm(world), "a communicator of its own");
            printf("group %d: rank %d of %d\n", i, crunrt_group_rank(g), crunrt_group_size(g));
        }
        crunrt_group_destroy(g);
    }
    crunrt_group_destroy(world);
    crunrt_destroy(rt);
    printf("split done\n");
}

/* The first operation fails as FAKE_NCCL says; then the same processes rejoin, and make a new world
 * and a part of it in the next generation. */
static void mode_nccl_rejoin(void) {
    crunrt_group_options o = CRUNRT_GROUP_OPTIONS_INIT;
    float x = 1;
    crunrt_op op = CRUNRT_OP_INIT;
    o.backend = "nccl";
    o.timeout_ms = 60000;
    op.kind = CRUNRT_OP_ALL_REDUCE;
    op.dtype = CRUNRT_FLOAT32;
    op.send = op.recv = &x;
    op.count = 1;
    op.timeout_ms = 1000;
    open_runtime();
    crunrt_group *other = NULL;
    REQUIRE(crunrt_group_new(rt, &o, &world) == 0, "world");
    REQUIRE(crunrt_group_new(rt, &o, &other) == 0, "another of all ranks, whole when that breaks");
    int64_t since = now_ms();
    int rc = crunrt_group_run(world, &op);
    REQUIRE(rc < 0, "the operation passed");
    print_error(rc, since);
    REQUIRE(crunrt_group_barrier(world) == -EPIPE, "broken");
    crunrt_group_destroy(world);
    crunrt_group_destroy(other);
    (void) setenv("FAKE_NCCL", "", 1);
    crunrt_rejoin_options r = CRUNRT_REJOIN_OPTIONS_INIT;
    REQUIRE(crunrt_rejoin(rt, &r) == 0, "rejoin");
    since = now_ms();
    rc = crunrt_group_new(rt, &o, &world);
    if (rc < 0) {
        print_error(rc, since);
        exit(4);
    }
    (void) nccl_sum(world);
    const int part[1] = {0};
    crunrt_group *g = NULL;
    o.ranks = part;
    o.rank_count = 1;
    REQUIRE(crunrt_group_new(rt, &o, &g) == 0 && (g != NULL) == (rank == 0), "a part");
    crunrt_group_destroy(g);
    crunrt_group_destroy(world);
    printf("rank %d went on as %d of %d\n", rank, crunrt_rank(rt), crunrt_world_size(rt));
    crunrt_destroy(rt);
}

/* ---- store ---- */

/* What current torch's stores have besides: append, several keys at once, queues, lists,
 * barriers. */
static void use_more_of_the_store(crunrt_store *s) {
    char mine[2][16];
    const char *keys[2] = {mine[0], mine[1]};
    const void *values[2] = {"one", "two\0s"};
    const size_t lens[2] = {3, 5};
    void *got[2] = {NULL, NULL}, *value = NULL;
    size_t got_lens[2], len = 0, count = 0;
    int64_t n = -1;
    char **names = NULL;
    crunrt_store *view;
    REQUIRE(crunrt_store_prefix(s, "more", &view) == 0, "prefix");
    for (int i = 0; i < 2; i++) (void) snprintf(mine[i], sizeof(mine[i]), "m%d/%d", i, rank);
    REQUIRE(crunrt_store_multi_set(view, keys, values, lens, 2) == 0, "multi_set");
    REQUIRE(crunrt_store_append(view, "log", "x", 1) == 0, "append");
    REQUIRE(crunrt_store_queue_push(view, "jobs", "job", 3) == 0, "push");
    REQUIRE(crunrt_store_barrier(view, "set", size, 20000) == 0, "barrier");

    for (int i = 0; i < 2; i++)
        (void) snprintf(mine[i], sizeof(mine[i]), "m%d/%d", i, (rank + 1) % size);
    REQUIRE(crunrt_store_multi_get(view, keys, 2, 20000, got, got_lens) == 0, "multi_get");
    for (int i = 0; i < 2; i++) {
        REQUIRE(got_lens[i] == lens[i] && memcmp(got[i], values[i], lens[i]) == 0, "value %d", i);
        crunrt_free(got[i]);
    }
    REQUIRE(crunrt_store_get(view, "log", 0, &value, &len) == 0 && len == (size_t) size, "log");
    crunrt_free(value);
    REQUIRE(crunrt_store_queue_pop(view, "jobs", 20000, &value, &len) == 0 && len == 3, "pop");
    crunrt_free(value);
    REQUIRE(crunrt_store_barrier(view, "popped", size, 20000) == 0, "barrier");
    REQUIRE(crunrt_store_queue_len(view, "jobs", &n) == 0 && n == 0, "one job each");
    REQUIRE(crunrt_store_queue_pop(view, "jobs", 0, &value, &len) == -ENOENT, "empty");
    REQUIRE(crunrt_store_list_keys(view, &names, &count) == 0, "list_keys");
    size_t own = 0;
    for (size_t i = 0; i < count; i++) own += strcmp(names[i], mine[0]) == 0;
    REQUIRE(own == 1 && names[count] == NULL && count >= 2 * (size_t) size + 1, "%zu keys", count);
    crunrt_free(names);
    REQUIRE(crunrt_store_barrier(view, "alone", size + 1, 100) == -ETIMEDOUT, "nobody else comes");
    REQUIRE(crunrt_store_barrier(view, "alone", 0, 100) == -EINVAL, "no world");
    crunrt_store_close(view);
}

static void mode_store(void) {
    open_runtime();
    crunrt_store *s = crunrt_job_store(rt), *view, *inner, *other;
    char key[32];
    (void) snprintf(key, sizeof(key), "k%d", rank);
    const char bytes[] = {0, (char) 0xff, '\n', 'x'};
    void *value = NULL;
    size_t len = 0;
    int64_t n = 0;
    int flag = -1;
    const char *const both[2] = {key, "missing"};

    REQUIRE(crunrt_store_set(s, key, bytes, sizeof(bytes)) == 0, "set");
    REQUIRE(crunrt_store_get(s, key, CRUNRT_TIMEOUT_DEFAULT, &value, &len) == 0, "get");
    REQUIRE(len == sizeof(bytes) && memcmp(value, bytes, len) == 0, "any bytes come back");
    REQUIRE(((char *) value)[len] == '\0', "a NUL behind");
    crunrt_free(value);
    REQUIRE(crunrt_store_check(s, both, 1, &flag) == 0 && flag == 1, "check one");
    REQUIRE(crunrt_store_check(s, both, 2, &flag) == 0 && flag == 0, "check both");

    int64_t since = now_ms();
    REQUIRE(crunrt_store_wait(s, both, 2, 300) == -ETIMEDOUT, "wait");
    REQUIRE(strstr(crunrt_last_error(), "missing") != NULL, "the text names the key");
    REQUIRE(now_ms() - since >= 250, "not before the time is up");
    REQUIRE(crunrt_store_get(s, "missing", 100, &value, &len) == -ETIMEDOUT, "get");
    REQUIRE(crunrt_store_get(s, key, 0, &value, NULL) == 0, "usable after timeouts, and at once");
    crunrt_free(value);

    REQUIRE(crunrt_store_add(s, "sum", rank + 1, NULL) == 0, "add");
    REQUIRE(crunrt_store_add(s, "here", 1, &n) == 0, "add");
    if (n == size) REQUIRE(crunrt_store_set(s, "all", "", 0) == 0, "set");
    const char *all = "all";
    REQUIRE(crunrt_store_wait(s, &all, 1, 20000) == 0, "wait for all");
    REQUIRE(crunrt_store_add(s, "sum", 0, &n) == 0 && n == size * (size + 1) / 2, "sum %lld",
            (long long) n);

    char mine[16];
    (void) snprintf(mine, sizeof(mine), "rank%d", rank);
    REQUIRE(crunrt_store_compare_set(s, "winner", NULL, 0, mine, strlen(mine), &value, &len) == 0,
            "cas");
    int won = len == strlen(mine) && memcmp(value, mine, len) == 0;
    printf("winner %.*s %s\n", (int) len, (char *) value, won ? "mine" : "other");
    crunrt_free(value);
    REQUIRE(crunrt_store_compare_set(s, "winner", "nobody", 6, "x", 1, &value, &len) == 0,
            "mismatch");
    REQUIRE(len >= 5 && memcmp(value, "rank", 4) == 0, "a mismatch leaves the value");
    crunrt_free(value);

    REQUIRE(crunrt_store_prefix(s, "outer", &view) == 0, "prefix");
    REQUIRE(crunrt_store_prefix(view, "inner", &inner) == 0, "nested");
    REQUIRE(crunrt_store_set(inner, key, "v", 1) == 0, "set below");
    (void) snprintf(key, sizeof(key), "outer/inner/k%d", rank);
    REQUIRE(crunrt_store_get(s, key, 0, &value, NULL) == 0 && strcmp(value, "v") == 0,
            "prefix form");
    crunrt_free(value);
    REQUIRE(crunrt_store_delete(s, key, &flag) == 0 && flag == 1, "delete");
    REQUIRE(crunrt_store_delete(s, key, &flag) == 0 && flag == 0, "delete again");
    crunrt_store_close(inner);
    crunrt_store_close(view);
    use_more_of_the_store(s);

    int port = atoi(getenv("MASTER_PORT"));
    REQUIRE(crunrt_store_open(getenv("MASTER_ADDR"), port, 5000, &other) == 0, "second connection");
    REQUIRE(crunrt_store_num_keys(other, &n) == 0 && n > 0, "num_keys");
    crunrt_store_close(other);
    crunrt_destroy(rt);
    printf("store right on rank %d\n", rank);
}

/* ---- the error file ---- */

/* ---- the flight record, written by two threads at once and read meanwhile ---- */

#define FLIGHT_DUMPS 100

static void *dump_again_and_again(void *arg) {
    for (int i = 0; i < FLIGHT_DUMPS && *(int *) arg == 0; i++) *(int *) arg = crunrt_flight_dump(NULL);
    return NULL;
}

/* Whole: from the first brace to the last. */
static int is_whole(const char *path) {
    static char text[1 << 20];
    FILE *f = fopen(path, "r");
    if (f == NULL) return 0;
    size_t n = fread(text, 1, sizeof(text), f);
    (void) fclose(f);
    return n > 4 && n < sizeof(text) && text[0] == '{' && memcmp(text + n - 3, "]}\n", 3) == 0 &&
           memchr(text, '\0', n) == NULL;
}

static void mode_flight(const char *path) {
    REQUIRE(crunrt_flight_dump(NULL) == -ENOENT && strstr(crunrt_last_error(), "crunrt_init()"),
            "before it is known where");
    open_world(20000);
    for (int i = 0; i < 2500; i++) REQUIRE(crunrt_group_barrier(world) == 0, "barrier");
    crunrt_op ops[2] = {CRUNRT_OP_INIT, CRUNRT_OP_INIT};
    ops[0].kind = CRUNRT_OP_SEND;
    REFUSED(crunrt_group_batch(world, ops, 2), "operation 0: send in group 'world': the peer is");
    ops[0].kind = CRUNRT_OP_BARRIER;
    REFUSED(crunrt_group_batch(world, ops, 2), "operation 0: barrier is no send");
    REQUIRE(crunrt_flight_dump(NULL) == 0, "dump");
    pthread_t threads[2];
    int codes[2] = {0, 0};
    for (int t = 0; t < 2; t++)
        REQUIRE(pthread_create(&threads[t], NULL, dump_again_and_again, &codes[t]) == 0, "thread");
    for (int i = 0; i < FLIGHT_DUMPS; i++) REQUIRE(is_whole(path), "half a record");
    for (int t = 0; t < 2; t++) (void) pthread_join(threads[t], NULL);
    REQUIRE(codes[0] == 0 && codes[1] == 0 && is_whole(path), "dumps");
    close_world();
}

static void mode_report(const char *what) {
    if (strcmp(what, "text") == 0) {
        int rc = crunrt_report_error("ValueError: \"bad\" \\ \x01 \xff \xc3\xa9", "line 1\nline 2");
        if (rc < 0) print_error(rc, now_ms());
        exit(rc < 0 ? 3 : 1);
    }
    if (strcmp(what, "last") == 0) {
        crunrt_store *nowhere = NULL;
        REQUIRE(crunrt_store_open("", 1, 1, &nowhere) == -EINVAL, "an error to report");
        exit(crunrt_report_error(NULL, NULL) == 0 ? 1 : 3);
    }
    REQUIRE(crunrt_report_fatal_signals() == 0, "handler");
    if (strcmp(what, "segv") == 0) {
        int *volatile nowhere = (int *) (uintptr_t) 0x10;
        *nowhere = 1;
    }
    abort();
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "", *argument = argc > 2 ? argv[2] : "";
    (void) setvbuf(stdout, NULL, _IOLBF, 0);
    if (strcmp(mode, "collectives") == 0)
        mode_collectives();
    else if (strcmp(mode, "works") == 0)
        mode_works();
    else if (strcmp(mode, "messages-meanwhile") == 0)
        mode_messages_meanwhile();
    else if (strcmp(mode, "lose-works") == 0)
        mode_lose_works();
    else if (strcmp(mode, "lose-store") == 0)
        mode_lose_store(argument);
    else if (strcmp(mode, "dead-store") == 0)
        mode_dead_store(argument);
    else if (strcmp(mode, "lose-connecting") == 0)
        mode_lose_connecting();
    else if (strcmp(mode, "lose-message") == 0)
        mode_lose_message(argument);
    else if (strcmp(mode, "arguments") == 0)
        mode_arguments();
    else if (strcmp(mode, "subgroups") == 0)
        mode_subgroups();
    else if (strcmp(mode, "lose") == 0)
        mode_lose(argument, argc > 3 ? atoi(argv[3]) : 1);
    else if (strcmp(mode, "rejoin") == 0)
        mode_rejoin(atoi(argument), argc > 3 ? atoi(argv[3]) : 1);
    else if (strcmp(mode, "steps") == 0)
        mode_steps(argument, argc > 3 ? atoll(argv[3]) : INT64_MAX);
    else if (strcmp(mode, "lose-opening") == 0)
        mode_lose_opening();
    else if (strcmp(mode, "mismatch") == 0)
        mode_mismatch(argument);
    else if (strcmp(mode, "differ") == 0)
        mode_differ(argument);
    else if (strcmp(mode, "monitored") == 0)
        mode_monitored();
    else if (strcmp(mode, "spawn") == 0)
        mode_spawn();
    else if (strcmp(mode, "late") == 0)
        mode_late();
    else if (strcmp(mode, "absent") == 0)
        mode_absent();
    else if (strcmp(mode, "init") == 0)
        mode_init();
    else if (strcmp(mode, "backend") == 0)
        mode_backend(argument);
    else if (strcmp(mode, "broken") == 0)
        mode_broken();
    else if (strcmp(mode, "nccl") == 0)
        mode_nccl();
    else if (strcmp(mode, "nccl-split") == 0)
        mode_nccl_split(strcmp(argument, "absent") == 0);
    else if (strcmp(mode, "nccl-rejoin") == 0)
        mode_nccl_rejoin();
    else if (strcmp(mode, "store") == 0)
        mode_store();
    else if (strcmp(mode, "flight") == 0)
        mode_flight(argument);
    else if (strcmp(mode, "report") == 0)
        mode_report(argument);
    else
        return fprintf(stderr, "crunrt_worker: no mode '%s'\n", mode), 2;
    return 0;
}
