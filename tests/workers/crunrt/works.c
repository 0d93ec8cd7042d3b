/* Tests of asynchronous operations, batches and messages; in some of them another rank dies. */
#include "tests/workers/crunrt/worker.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Each rank sends to all ranks and receives from all ranks in one batch. With separate blocking
 * calls the ranks would deadlock. */
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

/* Starts receives before the sends. The receives finish in another order than they were started
 * in. */
static void test_async_messages(void) {
    if (size < 2) return;
    int64_t in[2] = {0, 0}, out[2] = {7, 8};
    crunrt_work *w[2] = {NULL, NULL};
    int done = 1, left = (rank + size - 1) % size, right = (rank + 1) % size;
    for (int i = 0; i < 2; i++) {
        REQUIRE(crunrt_group_irecv(world, &in[i], 1, CRUNRT_INT64, left, (uint32_t) i, &w[i]) == 0,
                "irecv");
    }
    REQUIRE(crunrt_work_test(w[0], &done) == 0 && !done, "nothing was sent yet");
    REQUIRE(crunrt_work_wait(w[0], 20) == -EAGAIN, "and the wait times out");
    REQUIRE(crunrt_group_barrier(world) == 0, "collectives go on at the same time");
    REQUIRE(crunrt_group_send(world, &out[1], 1, CRUNRT_INT64, right, 1) == 0, "tag 1");
    REQUIRE(crunrt_work_wait(w[1], CRUNRT_TIMEOUT_DEFAULT) == 0 && in[1] == 8, "tag 1 arrived");
    REQUIRE(crunrt_work_test(w[1], &done) == 0 && done, "it stays over");
    crunrt_work *sent = NULL;
    REQUIRE(crunrt_group_isend(world, &out[0], 1, CRUNRT_INT64, right, 0, &sent) == 0, "isend");
    REQUIRE(crunrt_work_wait(w[0], CRUNRT_FOREVER) == 0 && in[0] == 7, "tag 0 arrived");
    crunrt_work_free(sent); /* waits until the send is over */
    crunrt_work_free(w[0]);
    crunrt_work_free(w[1]);
}

void mode_works(void) {
    enum { COUNT = 16, N = 5000 };
    open_world(30000);
    crunrt_work *works[COUNT];
    float *data[COUNT];
    for (int k = 0; k < COUNT; k++) { /* start many collectives before waiting for the first */
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
    REQUIRE(crunrt_group_start(world, &op, &nothing) == -EINVAL, "a wrong root");
    printf("works right on rank %d\n", rank);
    close_world();
}

void mode_messages(void) {
    open_world(30000);
    test_async_messages();
    printf("messages right on rank %d\n", rank);
    close_world();
}

/* A rank dies while works are unfinished. Each work must fail, and the group must be broken. */
void mode_lose_works(void) {
    enum { COUNT = 4 };
    open_world(5000);
    const char *go = "go";
    int64_t ready = 0, from[8] = {0}, to[8] = {0};
    float warm = 0;
    /* These two operations succeed before a rank dies. NCCL connects the ranks during their first
     * operations. While it does so, it waits on the host until all ranks take part. */
    REQUIRE(size <= 8 && crunrt_group_all_to_all(world, from, to, 1, CRUNRT_INT64) == 0 &&
                crunrt_group_all_reduce(world, &warm, &warm, 1, CRUNRT_FLOAT32, CRUNRT_SUM) == 0,
            "connect");
    if (rank == size - 1) { /* this rank dies once the other ranks have started their works */
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
        REQUIRE(rc < 0, "work %d succeeded without its peer", k);
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

/* Rank 1 dies in the middle of a message, which is far larger than the socket buffers: rank 1 stops
 * itself (SIGSTOP) before it has sent or received the whole message, and rank 0 then kills rank 1.
 * The argument selects whether rank 0 sends or receives the message. */
void mode_lose_message(void) {
    enum { BYTES = 64 << 20 };
    open_world(60000);
    int sends = strcmp(argument[0], "send") == 0;
    char *message = calloc(1, BYTES);
    REQUIRE(message != NULL, "memory");
    if (!sends && rank == 1) memset(message, 1, BYTES);
    crunrt_work *work = NULL;
    int64_t pid = getpid();
    if (rank == 1) {
        REQUIRE(!sends || crunrt_group_irecv(world, message, BYTES, CRUNRT_INT8, 0, 1, &work) == 0,
                "irecv");
        REQUIRE(crunrt_group_send(world, &pid, 1, CRUNRT_INT64, 0, 2) == 0, "send the pid");
        REQUIRE(sends || crunrt_group_isend(world, message, BYTES, CRUNRT_INT8, 0, 1, &work) == 0,
                "isend");
        (void) raise(SIGSTOP);
    }
    REQUIRE(sends || crunrt_group_irecv(world, message, BYTES, CRUNRT_INT8, 1, 1, &work) == 0,
            "irecv");
    REQUIRE(crunrt_group_recv(world, &pid, 1, CRUNRT_INT64, 1, 2) == 0, "receive the pid");
    await_stopped((pid_t) pid);
    REQUIRE(!sends || crunrt_group_isend(world, message, BYTES, CRUNRT_INT8, 1, 1, &work) == 0,
            "isend");
    /* wait until the first byte has arrived */
    while (!sends && *(volatile char *) message == 0) (void) usleep(1000);
    REQUIRE(message[BYTES - 1] == 0, "the message is complete: it is too short for this test");
    int64_t since = now_ms();
    (void) kill((pid_t) pid, SIGKILL);
    int rc = crunrt_work_wait(work, CRUNRT_TIMEOUT_DEFAULT);
    REQUIRE(rc < 0, "the message succeeded without a peer");
    print_error(rc, since);
    crunrt_work_free(work);
    crunrt_group_destroy(world);
    crunrt_destroy(rt);
    free(message);
    exit(3);
}
