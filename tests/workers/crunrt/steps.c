/* Tests of steps, announced changes and rejoin, in workers that have an agent. */
#include "tests/workers/crunrt/worker.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void print_place(const char *what) {
    rank = crunrt_rank(rt);
    size = crunrt_world_size(rt);
    printf("%s rank %d of %d local %d of %d restart %d\n", what, rank, size, crunrt_local_rank(rt),
           crunrt_local_world_size(rt), crunrt_restart_count(rt));
}

/* Makes a group of all ranks of the round. Ranks that rejoined and ranks that were newly started
 * must use the same store keys for it. */
static void meet(void) {
    int64_t one = 1;
    if (getenv("TEST_NO_GROUP") != NULL) return;
    REQUIRE(crunrt_group_new(rt, NULL, &world) == 0, "world");
    REQUIRE(crunrt_group_all_reduce(world, &one, &one, 1, CRUNRT_INT64, CRUNRT_SUM) == 0, "meet");
    REQUIRE(one == size, "%lld of %d", (long long) one, size);
    crunrt_group_destroy(world);
    printf("met %d\n", size);
}

static void rejoin(int64_t timeout_ms) {
    crunrt_rejoin_options o = CRUNRT_REJOIN_OPTIONS_INIT;
    o.timeout_ms = timeout_ms;
    int64_t since = now_ms();
    int rc = crunrt_rejoin(rt, &o);
    if (rc < 0) {
        print_error(rc, since);
        exit(3);
    }
    print_place("rejoined");
    meet();
}

/* Makes steps until a change or the end of the round. The first argument says what the worker does
 * after that: it exits, rejoins, or calls crunrt_change_done(). The second argument is the largest
 * number of steps. */
void mode_steps(void) {
    const char *how = argument[0];
    int64_t limit = argument[1][0] != '\0' ? atoll(argument[1]) : INT64_MAX;
    open_runtime();
    print_place("began");
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
            rejoin(20000);
            steps = 0;
        } else {
            REQUIRE(crunrt_step(rt, &change) == CRUNRT_CHANGE, "it stays announced");
            REQUIRE(crunrt_change_done(rt) == 0, "done");
            for (;;) (void) pause();
        }
    }
    if (getenv("TEST_DUMP") != NULL) REQUIRE(crunrt_flight_dump(NULL) == 0, "flight record");
    crunrt_destroy(rt);
    printf("ended\n");
}

/* Rank 1 dies while the other ranks wait for it in crunrt_group_new(). This mode needs an agent, so
 * crun must start it. */
void mode_lose_opening(void) {
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
        rejoin(60000);
    } else {
        meet();
    }
    printf("pid %d ends as rank %d\n", (int) getpid(), crunrt_rank(rt));
    crunrt_destroy(rt);
}

/* Makes three steps, each with a barrier. The rank argument[0] enters no further operation. The
 * other ranks enter a fourth barrier; but with TEST_MESSAGE=1, rank 0 enters a receive from the
 * rank argument[0], and the others enter nothing. argument[1] is the timeout of this operation in
 * ms. */
void mode_behind(void) {
    int late = atoi(argument[0]);
    crunrt_op op = CRUNRT_OP_INIT;
    char byte = 0;
    open_world(60000);
    for (int i = 0; i < 3; i++) {
        REQUIRE(crunrt_step(rt, NULL) == 0, "step");
        REQUIRE(crunrt_group_barrier(world) == 0, "barrier %d", i);
    }
    bool sends = getenv("TEST_MESSAGE") != NULL;
    if (rank == late || (sends && rank != 0)) {
        printf("away\n");
        while (true) (void) pause();
    }
    op.kind = sends ? CRUNRT_OP_RECV : CRUNRT_OP_BARRIER;
    op.dtype = CRUNRT_UINT8;
    op.timeout_ms = atoll(argument[1]);
    if (sends) {
        op.root = late;
        op.recv = &byte;
        op.count = 1;
    }
    printf("enters\n");
    int64_t since = now_ms();
    print_error(crunrt_group_run(world, &op), since);
    exit(3);
}
