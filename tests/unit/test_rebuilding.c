/* Tests of a new coordinator that rebuilds the running round of an earlier one: the round goes on
 * if all its nodes resume and it is the newest round, and is ended in all other cases. */
#include "base/time/clock.h"
#include "rendezvous/coordinator/coordinator.h"
#include "tests/lib/coordinator_actions.h"
#include "tests/lib/coordinator_clock.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <stdio.h>

#define LEASE_MS 15000

/* One node of a test: how many messages of each kind the coordinator has sent to it. */
struct peer {
    struct coordinator_seat *seat;
    int rounds, stops, refused;
    uint64_t stopped_round; /* the round that the last STOP names */
};

static struct coordinator *c;
static int64_t now;

static void on_send(void *arg, void *peer, const struct rdzv_message *m) {
    struct peer *p = peer;
    (void) arg;
    if (m->type == RDZV_ROUND) p->rounds++;
    if (m->type == RDZV_STOP) p->stops++, p->stopped_round = m->stop.round;
    if (m->type == RDZV_REFUSED) p->refused++;
}

static void on_hang_up(void *arg, void *peer) {
    (void) arg;
    ((struct peer *) peer)->seat = NULL;
}

static const struct coordinator_actions actions = {
    .send = on_send, .hang_up = on_hang_up, .open_store = open_any_store, .log = ignore_log};

static void setup(void) {
    now = 1000;
    c = coordinator_new("job", &actions, NULL);
    coordinator_identify(c, 99);
}

static void teardown(void) {
    coordinator_free(c);
    c = NULL;
}

/* Returns the JOIN of a node whose last round has the number `round` and `size` nodes, and was
 * formed by the coordinator with the id formed_by. */
static struct rdzv_join join_of(uint64_t instance, uint64_t round, uint64_t formed_by,
                                uint32_t size, int64_t rank) {
    static char names[8][8];
    char *name = names[instance % 8];
    (void) snprintf(name, sizeof(names[0]), "n%d", (int) (instance % 8));
    return (struct rdzv_join){.host = name, .addr = name, .role = "default", .instance = instance,
                              .connection = 2, .node_rank = -1, .local_world_size = 2,
                              .min_nodes = 1, .max_nodes = 4, .max_restarts = 3,
                              .join_timeout_ms = 600000, .last_call_timeout_ms = 30000,
                              .close_timeout_ms = 30000, .keep_alive_interval_ms = LEASE_MS / 3,
                              .keep_alive_max_attempt = 3, .incarnation = 7,
                              .rounds_seen = round + 1, .formed_by = formed_by,
                              .last_coordinator = formed_by, .last_group_size = size,
                              .last_rank = rank};
}

static void resume(struct peer *p, const struct rdzv_join *j) {
    struct rdzv_resume r = {.part = RDZV_PART_RUNS, .what = "", .first_rank = 2 *
                            (uint32_t) j->last_rank, .world_size = 2 * j->last_group_size};
    rdzv_resume_of_join(j, &r);
    p->seat = coordinator_resume(c, now, p, &r);
    ck_assert_ptr_nonnull(p->seat);
}

static void join(struct peer *p, const struct rdzv_join *j) {
    p->seat = coordinator_join(c, now, p, false, j);
    ck_assert_ptr_nonnull(p->seat);
}

static struct coordinator_view look(void) {
    struct coordinator_view v;
    coordinator_look(c, &v);
    return v;
}

START_TEST(a_round_goes_on_when_all_its_nodes_have_resumed) {
    struct peer a = {0}, b = {0};
    struct rdzv_join j = join_of(1, 5, 42, 2, 0);
    resume(&a, &j);
    ck_assert_int_eq(look().phase, COORDINATOR_REBUILDING);
    j = join_of(2, 5, 42, 2, 1);
    resume(&b, &j);
    ck_assert_int_eq(look().phase, COORDINATOR_RUNNING);
    ck_assert_uint_eq(look().group_world_size, 2);
    ck_assert_uint_eq(look().next_round, 6);
    ck_assert_int_eq(a.stops + b.stops + a.rounds + b.rounds, 0);
}
END_TEST

START_TEST(a_round_ends_when_one_of_its_nodes_does_not_come_back) {
    struct peer a = {0};
    struct rdzv_join j = join_of(1, 5, 42, 2, 0);
    struct rdzv_message beat = {.type = RDZV_BEAT};
    resume(&a, &j);
    for (int i = 0; i < 5; i++) {
        coordinator_run_until(c, &now, now + LEASE_MS / 4);
        ck_assert_int_eq(coordinator_receive(c, now, a.seat, &beat, NULL), 0);
    }
    ck_assert_int_eq(look().phase, COORDINATOR_FORMING);
    ck_assert_int_eq(a.stops, 1);
    ck_assert_uint_eq(a.stopped_round, 5);
}
END_TEST

/* Nodes of round 5 resume; then a node that was in round 6 resumes, too. */
START_TEST(nodes_of_an_older_round_are_stopped) {
    struct peer a = {0}, b = {0};
    struct rdzv_join j = join_of(1, 5, 42, 3, 0);
    resume(&a, &j);
    j = join_of(2, 6, 42, 2, 0);
    resume(&b, &j);
    ck_assert_int_eq(a.stops, 1);
    ck_assert_uint_eq(a.stopped_round, 5);
    ck_assert_int_eq(look().phase, COORDINATOR_FORMING);
}
END_TEST

/* A node of round 5, which had four nodes, has resumed. A node joins that was in round 6, which had
 * one node. One node has resumed, and the newest round had one node; but the node that has resumed
 * was not in that round, so no round may go on. */
START_TEST(a_join_of_a_later_round_ends_the_round_that_is_rebuilt) {
    struct peer a = {0}, late = {0};
    struct rdzv_join j = join_of(1, 5, 42, 4, 2);
    resume(&a, &j);
    j = join_of(2, 6, 41, 1, 0);
    join(&late, &j);
    ck_assert_int_eq(look().phase, COORDINATOR_FORMING);
    ck_assert_uint_eq(look().group_world_size, 0);
    ck_assert_int_eq(a.stops, 1);
    ck_assert_uint_eq(a.stopped_round, 5);
    ck_assert_int_eq(late.stops, 0);
    ck_assert_uint_eq(look().next_round, 7);
}
END_TEST

/* Two coordinators have formed a round 5 each. A node of one of them has resumed, so a node of the
 * other one is not counted. */
START_TEST(nodes_of_two_rounds_of_one_number_are_not_one_round) {
    struct peer a = {0}, b = {0};
    struct rdzv_join j = join_of(1, 5, 42, 2, 0);
    resume(&a, &j);
    j = join_of(2, 5, 41, 2, 1);
    resume(&b, &j);
    ck_assert_int_ne(look().phase, COORDINATOR_RUNNING);
    ck_assert_int_eq(b.stops, 1);
}
END_TEST

int main(void) {
    Suite *s = suite_create("rebuilding");
    TCase *t = tcase_create("rules");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_round_goes_on_when_all_its_nodes_have_resumed);
    tcase_add_test(t, a_round_ends_when_one_of_its_nodes_does_not_come_back);
    tcase_add_test(t, nodes_of_an_older_round_are_stopped);
    tcase_add_test(t, a_join_of_a_later_round_ends_the_round_that_is_rebuilt);
    tcase_add_test(t, nodes_of_two_rounds_of_one_number_are_not_one_round);
    suite_add_tcase(s, t);
    return run_suite(s);
}
