/* Checks that a communicator is re-formed: after a failure the ranks make the communicator of the
 * next round out of that of the last round, by ncclCommShrink() or ncclCommSplit(), and by
 * ncclCommGrow(). If this is not possible, they make it from nothing. This program must be started
 * by crun.
 *
 * REFORM_LOSES is the number of the rank that ends in the first round; or "none": rank 0 makes no
 * call, so that the other ranks time out; or "node": the test kills the other node. REFORM_COUNTS
 * lists four numbers, separated by blanks: how often a process that has lived since the first round
 * must have called ncclCommInitRankConfig, ncclCommShrink, ncclCommSplit and ncclCommGrow; -1 means
 * any number. */
#include "tests/host_nccl/findings/finding.h"

#include <unistd.h>

uint64_t host_nccl_counter(const char *name);

static bool is_first_round = true;

/* Makes a group, and a smaller group, and runs an all-reduce in both. */
static int sum_up(void) {
    static const int first[] = {0};
    const char *given = getenv("REFORM_TIMEOUT_MS");
    int64_t timeout_ms = is_first_round ? 2000 : given != NULL ? atoi(given) : 10000;
    crunrt_group_options o = CRUNRT_GROUP_OPTIONS_INIT;
    crunrt_group *small = NULL;
    o.backend = "nccl";
    o.timeout_ms = timeout_ms;
    int rc = crunrt_group_new(rt, &o, &world);
    if (rc < 0) return rc;
    float *x = floats(16, 1);
    crunrt_op op = sum_of(x);
    rc = crunrt_group_run(world, &op);
    if (rc == 0) KEPT(first_of(x) == (float) crunrt_world_size(rt), "sum %g", first_of(x));
    o.ranks = first;
    o.rank_count = 1;
    if (rc == 0 && getenv("REFORM_SUBGROUP") != NULL) rc = crunrt_group_new(rt, &o, &small);
    if (rc == 0 && small != NULL) rc = crunrt_group_barrier(small);
    if (rc == 0) rc = crunrt_group_barrier(world);
    crunrt_group_destroy(small);
    return rc;
}

static void fail(void) {
    const char *loses = getenv("REFORM_LOSES");
    float *x = floats(16, 1);
    crunrt_op op = sum_of(x);
    if (strcmp(loses, "none") == 0) {
        /* the operation of the other ranks fails, because rank 0 takes no part in it; rank 0 waits
         * until its agent ends the round for this failure */
        int rc = rank == 0 ? crunrt_wait_for_round_end(rt, 10000) : crunrt_group_run(world, &op);
        KEPT(rank == 0 ? rc == 1 : rc < 0, "%d", rc);
        return;
    }
    if (strcmp(loses, "node") == 0) {
        printf("running\n");
        while (crunrt_group_run(world, &op) == 0) {
        }
        return;
    }
    /* the rank that is to be lost ends only when all other ranks have called say_done() */
    if (rank == atoi(loses)) {
        stand_by(size - 1);
        _exit(3);
    }
    say_done();
    KEPT(crunrt_group_run(world, &op) < 0, "an all-reduce without rank %s", loses);
}

static void check_counts(void) {
    static const char *const calls[] = {"ncclCommInitRankConfig", "ncclCommShrink",
                                        "ncclCommSplit", "ncclCommGrow"};
    int expected[4];
    KEPT(sscanf(getenv("REFORM_COUNTS"), "%d %d %d %d", &expected[0], &expected[1], &expected[2],
                &expected[3]) == 4, "REFORM_COUNTS");
    for (size_t i = 0; i < 4; i++) {
        int made = (int) host_nccl_counter(calls[i]);
        KEPT(expected[i] < 0 || made == expected[i], "%s was called %d times, not %d", calls[i],
             made, expected[i]);
    }
}

int main(void) {
    open_job();
    bool is_first_life = crunrt_restart_count(rt) == 0;
    is_first_round = is_first_life;
    (void) crunrt_can_rejoin(rt, 1);
    KEPT(sum_up() == 0, "the first group");
    if (is_first_life) {
        int64_t since = now_ms();
        fail();
        crunrt_group_destroy(world);
        KEPT(crunrt_rejoin(rt, NULL) == 0, "rejoin");
        rank = crunrt_rank(rt);
        is_first_round = false;
        KEPT(sum_up() == 0, "the group of the second round");
        check_counts();
        printf("in the next round of %d ranks after %d ms\n", crunrt_world_size(rt),
               (int) (now_ms() - since));
    }
    crunrt_group_destroy(world);
    kept();
}
