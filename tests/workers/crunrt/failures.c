/* Tests of failing ranks, stores and calls: which error each rank gets, and after what time. */
#include "tests/workers/crunrt/worker.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Stops (SIGSTOP) rank 1 and the store's server, whose pid is the argument. Rank 0's operation must
 * time out although the store does not answer. */
void mode_lose_store(void) {
    open_world(20000);
    crunrt_op op = CRUNRT_OP_INIT;
    op.timeout_ms = 1000;
    REQUIRE(crunrt_group_barrier(world) == 0, "barrier");
    if (rank == 1) (void) raise(SIGSTOP);
    REQUIRE(kill((pid_t) atoi(argument[0]), SIGSTOP) == 0, "stop the server");
    int64_t since = now_ms();
    int rc = crunrt_group_run(world, &op);
    print_error(rc, since);
    exit(rc == -ETIMEDOUT ? 3 : 1);
}

/* Kills the store's server, whose pid is the argument. Each call must fail because the connection
 * is lost. */
void mode_dead_store(void) {
    open_world(20000);
    crunrt_store *s = crunrt_job_store(rt);
    crunrt_group *g = NULL;
    char **keys = NULL;
    size_t n = 0;
    void *value = NULL;
    REQUIRE(kill((pid_t) atoi(argument[0]), SIGKILL) == 0, "kill the server");
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
    REQUIRE(crunrt_rejoin(rt, NULL) == -ENOTCONN, "rejoin");
    REQUIRE(crunrt_group_barrier(world) == -EPIPE, "a broken group");
    crunrt_group_destroy(world);
    crunrt_destroy(rt);
    exit(3);
}

/* tests/fake/stop_in_gloo.c stops rank 1 while ranks 0 and 1 connect. Rank 0 must fail, either in
 * crunrt_group_new() or in the first operation: this depends on which of the two ranks connects and
 * which accepts. */
void mode_lose_connecting(void) {
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

/* Makes all-reduces in a loop. After ten, one rank (second argument, default 1) kills, stops or
 * ends itself, as the first argument says. The other ranks print their errors. They must notice a
 * dead rank at once, by the broken connection, and a stopped rank by the operation's timeout. */
void mode_lose(void) {
    open_world(60000);
    float x[256] = {0};
    crunrt_op op = CRUNRT_OP_INIT;
    op.kind = CRUNRT_OP_ALL_REDUCE;
    op.send = op.recv = x;
    op.count = 256;
    op.dtype = CRUNRT_FLOAT32;
    op.reduce = CRUNRT_SUM;
    const char *how = argument[0];
    int victim = argument[1][0] != '\0' ? atoi(argument[1]) : 1;
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
        REQUIRE(strstr(crunrt_last_error(), "is already broken") != NULL, "text");
        REQUIRE(now_ms() - since < 30000, "a broken group answers at once, not after 60,000 ms");
        crunrt_group_destroy(world);
        crunrt_destroy(rt);
        exit(3);
    }
}

/* The last rank makes the group but does not call its first operation. */
void mode_late(void) {
    open_world(60000);
    if (rank == size - 1) {
        const char *key = "done";
        (void) crunrt_store_wait(crunrt_job_store(rt), &key, 1, 60000);
        exit(0);
    }
    crunrt_op op = CRUNRT_OP_INIT;
    op.kind = CRUNRT_OP_BARRIER;
    op.timeout_ms = 3000; /* so that a rank that is slow is not named as well */
    int64_t since = now_ms();
    int rc = crunrt_group_run(world, &op);
    REQUIRE(rc < 0, "the barrier ended without all ranks");
    print_error(rc, since);
    REQUIRE(crunrt_store_set(crunrt_job_store(rt), "done", "", 0) == 0, "done");
    exit(3);
}

/* One rank does not call crunrt_group_new(). With an argument N, only the first N ranks call it. A
 * barrier makes these ranks call it at the same time, so that the error text names only the absent
 * ranks. */
void mode_absent(void) {
    crunrt_group_options o = CRUNRT_GROUP_OPTIONS_INIT;
    o.timeout_ms = 5000;
    open_runtime();
    int here = argument[0][0] != '\0' ? atoi(argument[0]) : size - 1;
    REQUIRE(crunrt_store_barrier(crunrt_job_store(rt), "here", here, 60000) == 0, "barrier");
    int64_t since = now_ms();
    int rc = crunrt_group_new(rt, &o, &world);
    REQUIRE(rc < 0, "the group was made without all ranks");
    print_error(rc, since);
    exit(3);
}

/* Several monitored barriers succeed. To the next barrier the last rank comes too late, so that
 * barrier must fail on all ranks. */
void mode_monitored(void) {
    open_world(20000);
    for (int i = 0; i < 6; i++) {
        REQUIRE(crunrt_group_monitored_barrier(world, CRUNRT_TIMEOUT_DEFAULT) == 0, "pass");
    }
    REQUIRE((crunrt_nccl_comm(world) != NULL) == on_nccl(), "a communicator of NCCL");
    int late = rank == size - 1;
    const char *key = "gave up";
    if (late) REQUIRE(crunrt_store_wait(crunrt_job_store(rt), &key, 1, 30000) == 0, "wait");
    int64_t since = now_ms();
    int rc = crunrt_group_monitored_barrier(world, late ? 20000 : 2000);
    REQUIRE(rc < 0, "rank %d passed", rank);
    print_error(rc, since);
    /* The ranks that timed out must have set this key. If they had not, the late rank would set it
     * to "ok", and its barrier would succeed. */
    const char *verdict = "crunrt/0/0/pg/0/barrier6/ready";
    int decided = 0;
    REQUIRE(crunrt_store_check(crunrt_job_store(rt), &verdict, 1, &decided) == 0 && decided,
            "no rank has set the decision: the last rank might pass");
    REQUIRE(crunrt_store_set(crunrt_job_store(rt), key, "", 0) == 0, "set");
    REQUIRE(crunrt_group_barrier(world) == -EPIPE, "broken");
    exit(3);
}

/* Started with CRUNRT_DEBUG=1. First all ranks make equal calls. After these calls rank 1 makes a
 * call that differs from that of the other ranks, as the argument selects, and all ranks print
 * their errors. */
void mode_mismatch(void) {
    const char *how = argument[0];
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
        size_t sent[3] = {1, 2, 3}, expected[3] = {0};
        float y[64];
        for (int r = 0; r < 3; r++) expected[r] = (size_t) rank + 1;
        REQUIRE(crunrt_group_all_to_all_counts(world, x, sent, y, expected, CRUNRT_FLOAT32) == 0,
                "counts agree");
        expected[2] += (size_t) other;
        rc = crunrt_group_all_to_all_counts(world, x, sent, y, expected, CRUNRT_FLOAT32);
    /* "alone": rank 2 makes no call, and rank 1's call has a short timeout */
    } else if (strcmp(how, "alone") == 0) {
        crunrt_op op = CRUNRT_OP_INIT;
        op.timeout_ms = other ? 300 : 60000;
        if (rank < 2) rc = crunrt_group_run(world, &op);
        if (rank < 2) print_error(rc, since);
        _exit(3); /* without a word, as if it crashed */
    } else {
        size_t count = strcmp(how, "count") == 0 && other ? 32 : 64;
        rc = crunrt_group_all_reduce(world, x, x, count, CRUNRT_FLOAT32, CRUNRT_SUM);
    }
    REQUIRE(rc == -EPROTO, "the mismatch was not seen: %d", rc);
    print_error(rc, since);
    exit(3);
}

/* Started without CRUNRT_DEBUG=1. The ranks make different calls, which the argument selects. All
 * ranks must get an error: no rank must get a wrong result, and the backend must not end the
 * process. */
void mode_differ(void) {
    const char *how = argument[0];
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
    /* "short": rank 1, the root of the broadcast, sends 32 elements; the other ranks expect 64 */
    if (strcmp(how, "short") == 0) op.kind = CRUNRT_OP_BROADCAST;
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

/* Makes all-reduces until one fails. After that every call must report that the group is broken. */
void mode_broken(void) {
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

/* The last rank ends with status 0 while the others make a group, or enter a monitored barrier or a
 * collective (argument[0]); it destroys nothing. */
void mode_gone(void) {
    const char *when = argument[0];
    crunrt_group_options o = CRUNRT_GROUP_OPTIONS_INIT;
    o.timeout_ms = 60000;
    open_runtime();
    bool leaves = rank == size - 1;
    if (leaves && strcmp(when, "group") == 0) exit(0);
    int64_t since = now_ms();
    int rc = crunrt_group_new(rt, &o, &world);
    if (rc == 0) rc = crunrt_group_barrier(world);
    if (leaves) exit(0);
    if (strcmp(when, "group") != 0) {
        REQUIRE(rc == 0, "the group");
        since = now_ms();
        rc = strcmp(when, "monitored") == 0 ? crunrt_group_monitored_barrier(world, -1)
                                            : crunrt_group_barrier(world);
    }
    print_error(rc, since);
    exit(3);
}
