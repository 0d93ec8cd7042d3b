/* Tests of crunrt_init(), of groups of some ranks, of several runtimes in one process, and of
 * crunrt_spawn(). */
#include "tests/workers/crunrt/worker.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Makes a group of the even ranks and a group of the odd ranks, both in reverse order, and uses
 * both at the same time. */
void mode_subgroups(void) {
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

/* One process makes several runtimes, one after the other. Each has the same rank, and none finds
 * keys of an earlier runtime. Without an agent crunrt_rejoin() fails. */
void mode_again(void) {
    for (int i = 0; i < 3; i++) {
        int64_t sum = 1;
        open_world(60000);
        REQUIRE(crunrt_group_all_reduce(world, &sum, &sum, 1, CRUNRT_INT64, CRUNRT_SUM) == 0,
                "sum");
        REQUIRE(sum == size, "the sum is %lld of %d", (long long) sum, size);
        crunrt_rejoin_options o = CRUNRT_REJOIN_OPTIONS_INIT;
        o.size = 1;
        REQUIRE(crunrt_rejoin(rt, &o) == -EINVAL, "the size of the options");
        REQUIRE(crunrt_rejoin(rt, NULL) == -ENOTCONN, "there is no agent");
        REQUIRE(strstr(crunrt_last_error(), "CRUN_AGENT is not set") != NULL, "the text says so");
        close_world();
    }
    printf("again right\n");
}

/* Calls only crunrt_init(), with the method and the timeout that the environment variables
 * TEST_INIT_METHOD and TEST_TIMEOUT_MS contain. */
void mode_init(void) {
    int64_t since = now_ms();
    crunrt_init_options o = CRUNRT_INIT_OPTIONS_INIT;
    o.method = getenv("TEST_INIT_METHOD");
    const char *timeout = getenv("TEST_TIMEOUT_MS");
    o.timeout_ms = timeout != NULL ? atoi(timeout) : 60000;
    int rc = crunrt_init(&o, &rt);
    if (rc < 0) {
        print_error(rc, since);
    } else {
        printf("rank %d of %d\n", crunrt_rank(rt), crunrt_world_size(rt));
    }
    if (rc == 0) crunrt_destroy(rt);
    exit(rc < 0 ? 3 : 0);
}

/* Makes a group on the backend whose name is the first argument. */
void mode_backend(void) {
    crunrt_group_options o = CRUNRT_GROUP_OPTIONS_INIT;
    o.backend = argument[0];
    o.timeout_ms = 20000;
    open_runtime();
    int64_t since = now_ms();
    int rc = crunrt_group_new(rt, &o, &world);
    if (rc < 0) {
        print_error(rc, since);
    } else {
        printf("backend %s\n", crunrt_group_backend(world));
    }
    exit(rc < 0 ? 3 : 0);
}

/* ---- functions that run in the processes which mode_spawn() starts ---- */

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

static int spawned_error(int r, void *arg) {
    (void) r;
    (void) arg;
    return crunrt_spawn(NULL, 1, NULL) < 0 ? 3 : 0;
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

void mode_spawn(void) {
    (void) signal(SIGCHLD, SIG_IGN);
    REQUIRE(crunrt_spawn(spawned_256, 1, NULL) == -EINVAL &&
                strstr(crunrt_last_error(), "ignores SIGCHLD") != NULL,
            "the exit statuses would be lost");
    (void) signal(SIGCHLD, SIG_DFL);
    REQUIRE(crunrt_spawn(spawned_256, 2, NULL) == -ECHILD, "256 must not become 0");
    int64_t base = 100;
    REQUIRE(crunrt_spawn(spawned_sum, 4, &base) == 0, "spawn");
    REQUIRE(crunrt_spawn(spawned_sum, 1, &base) == 0, "again");
    REQUIRE(crunrt_spawn(spawned_failure, 3, NULL) == -ECHILD, "failure");
    REQUIRE(strcmp(crunrt_last_error(), "worker 1 returned 7") == 0, "text");
    REQUIRE(crunrt_spawn(spawned_error, 1, NULL) == -ECHILD, "failure with a text");
    const char *quoted = "worker 0 returned 3; its last error: start workers";
    REQUIRE(strncmp(crunrt_last_error(), quoted, strlen(quoted)) == 0, "the text is quoted");
    REQUIRE(crunrt_spawn(spawned_crash, 1, NULL) == -ECHILD, "crash");
    REQUIRE(strstr(crunrt_last_error(), "signal 9 (SIGKILL)") != NULL, "text");
    REQUIRE(crunrt_spawn(NULL, 2, NULL) == -EINVAL && crunrt_spawn(spawned_sum, 0, NULL) == -EINVAL,
            "nonsense");
    printf("spawn right\n");
}
