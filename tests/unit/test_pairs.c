/* Tests rendezvous/rules/pairs.c, which pairs nodes and judges them, for every set of bad nodes of
 * small jobs; and rendezvous/coordinator/pairs.c, on a virtual clock. */
#include "rendezvous/coordinator/coordinator.h"
#include "rendezvous/rendezvous.h"
#include "rendezvous/rules/rules.h"
#include "tests/lib/coordinator_actions.h"
#include "tests/lib/run_suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the rule ---- */

#define NODES_MAX 9

static struct pairs_node nodes[NODES_MAX];
static struct pairs_node *in[NODES_MAX];
static bool used[NODES_MAX];
static struct pairs_pair pairs[NODES_MAX / 2];

static void reset(size_t n) {
    memset(nodes, 0, sizeof(nodes));
    for (size_t i = 0; i < n; i++) nodes[i].id = i + 1, in[i] = &nodes[i];
}

START_TEST(untested_nodes_are_paired_and_an_odd_one_comes_second) {
    reset(5);
    ck_assert_uint_eq(pairs_plan(in, 5, used, pairs), 2);
    ck_assert(!used[4]);
    for (int i = 0; i < 2; i++) pairs_note(in[pairs[i].a], in[pairs[i].b], true);
    ck_assert_uint_eq(pairs_plan(in, 5, used, pairs), 1);
    ck_assert_uint_eq(pairs[0].a, 4);
    pairs_note(in[4], in[pairs[0].b], true);
    ck_assert_uint_eq(pairs_plan(in, 5, used, pairs), 0);
    pairs_forget(in[2]);
    ck_assert_uint_eq(pairs_plan(in, 5, used, pairs), 1);
    ck_assert_uint_eq(pairs[0].a, 2);
}
END_TEST

START_TEST(a_single_node_is_fit_without_a_test) {
    reset(1);
    ck_assert_uint_eq(pairs_plan(in, 1, used, pairs), 0);
    ck_assert_int_eq(pairs_judge(in, 1, 0), PAIRS_FIT);
}
END_TEST

START_TEST(two_suspects_without_a_third_node_are_both_unclear) {
    reset(2);
    pairs_note(in[0], in[1], false);
    ck_assert_uint_eq(pairs_plan(in, 2, used, pairs), 0);
    for (size_t i = 0; i < 2; i++) ck_assert_int_eq(pairs_judge(in, 2, i), PAIRS_UNCLEAR);
}
END_TEST

START_TEST(a_node_that_has_passed_is_believed_against_a_new_one) {
    reset(2);
    nodes[0].state = PAIRS_PASSED;
    pairs_note(in[0], in[1], false);
    ck_assert_int_eq(pairs_judge(in, 2, 0), PAIRS_FIT);
    ck_assert_int_eq(pairs_judge(in, 2, 1), PAIRS_AT_FAULT);
}
END_TEST

/* Plays the tests of n nodes of which those in the mask `bad` are bad: a test with one of them
 * fails. Removes nodes from `in` as the coordinator does. Returns the mask of the nodes left, and
 * stores the number of waves of tests in *waves. */
static unsigned play(size_t n, unsigned bad, int *waves) {
    unsigned left = 0;
    reset(n);
    for (*waves = 0; *waves < 100;) {
        enum pairs_verdict verdicts[NODES_MAX];
        size_t kept = 0;
        for (size_t i = 0; i < n; i++) verdicts[i] = pairs_judge(in, n, i);
        for (size_t i = 0; i < n; i++) {
            if (verdicts[i] == PAIRS_FIT) in[kept++] = in[i];
        }
        if (kept < n) {
            n = kept;
            continue;
        }
        size_t count = pairs_plan(in, n, used, pairs);
        if (count == 0) break;
        for (size_t i = 0; i < count; i++) {
            struct pairs_node *a = in[pairs[i].a], *b = in[pairs[i].b];
            ck_assert(a != b);
            pairs_note(a, b, ((bad >> (a->id - 1)) & 1) == 0 && ((bad >> (b->id - 1)) & 1) == 0);
        }
        ++*waves;
    }
    for (size_t i = 0; i < n; i++) left |= 1u << (in[i]->id - 1);
    return left;
}

/* One or two bad nodes are always found, and no good one is refused, if three good ones are there.
 * With more bad nodes, none of them is ever let in beside a good one. */
START_TEST(the_bad_nodes_are_found_whatever_their_places) {
    for (size_t n = 2; n <= NODES_MAX; n++) {
        for (unsigned bad = 0; bad < 1u << n; bad++) {
            int waves, count = __builtin_popcount(bad);
            unsigned all = (1u << n) - 1, left = play(n, bad, &waves);
            ck_assert_int_lt(waves, 12);
            if (n > 1 && (left & bad) != 0) {
                /* a bad node that is left alone has no partner, so no test can find it */
                ck_assert_msg(left == (left & bad) && __builtin_popcount(left) == 1,
                              "n %zu bad %x left %x", n, bad, left);
            }
            if (count > 2 || (int) n - count < 3) continue;
            ck_assert_msg(left == (all & ~bad), "n %zu bad %x left %x", n, bad, left);
            ck_assert_int_le(waves, 6);
        }
    }
}
END_TEST

/* ---- the coordinator ---- */

#define NODES 4

struct peer {
    struct coordinator_seat *seat;
    uint64_t instance;
    int rounds, pair_count, answered; /* answered: pair_count at the last answer_all() */
    struct rdzv_pair pair;
    char partner[16], waits[RDZV_TEXT_MAX];
};

static struct coordinator *c;
static struct peer peers[NODES + 2];
static int64_t now;

static void on_send(void *arg, void *peer, const struct rdzv_message *m) {
    struct peer *p = peer;
    (void) arg;
    if (m->type == RDZV_ROUND) p->rounds++;
    if (m->type == RDZV_WAITING) {
        (void) snprintf(p->waits, sizeof(p->waits), "%s", m->waiting.what);
    }
    if (m->type != RDZV_PAIR) return;
    p->pair_count++;
    p->pair = m->pair;
    (void) snprintf(p->partner, sizeof(p->partner), "%s", m->pair.host);
}

static void on_hang_up(void *arg, void *peer) {
    (void) arg;
    ((struct peer *) peer)->seat = NULL;
}

static const struct coordinator_actions actions = {
    .send = on_send, .hang_up = on_hang_up, .open_store = open_any_store, .log = ignore_log};

static void join(int i, uint32_t wanted, uint32_t port) {
    static uint64_t instances;
    char host[16];
    struct rdzv_join j = {.role = "default", .node_rank = -1, .local_world_size = 1,
                          .last_rank = -1, .min_nodes = wanted, .max_nodes = wanted,
                          .max_restarts = 3, .join_timeout_ms = 600000,
                          .last_call_timeout_ms = 30000, .close_timeout_ms = 30000,
                          .keep_alive_interval_ms = 5000000, .keep_alive_max_attempt = 3,
                          .unfit = "", .pair_port = port, .pair_timeout_ms = 2000,
                          .instance = ++instances};
    (void) snprintf(host, sizeof(host), "n%d", i);
    j.host = j.addr = host;
    peers[i].instance = j.instance;
    peers[i].seat = coordinator_join(c, now, &peers[i], false, &j);
    ck_assert_ptr_nonnull(peers[i].seat);
}

static void begin(int count, uint32_t wanted) {
    memset(peers, 0, sizeof(peers));
    now = 1000;
    if (c != NULL) coordinator_free(c);
    c = coordinator_new("job", &actions, NULL);
    for (int i = 0; i < count; i++) join(i, wanted, 5000 + (uint32_t) i);
}

static void answer(int i, const char *why) {
    struct rdzv_message m = {.type = RDZV_PAIRED};
    m.paired = (struct rdzv_paired){.id = peers[i].pair.id, .why = why};
    ck_assert_int_eq(coordinator_receive(c, now, peers[i].seat, &m, NULL), 0);
}

/* Answers the tests of all nodes until no further one begins. Node `bad` fails with each other. */
static void answer_all(int bad) {
    char name[16];
    (void) snprintf(name, sizeof(name), "n%d", bad);
    for (bool any = true; any;) {
        any = false;
        for (int i = 0; i < NODES + 2; i++) {
            struct peer *p = &peers[i];
            if (p->seat == NULL || p->answered == p->pair_count) continue;
            bool fails = i == bad || strcmp(p->partner, name) == 0;
            p->answered = p->pair_count;
            any = true;
            answer(i, fails ? "no route" : "");
        }
    }
}

static int rounds(void) {
    int n = 0;
    for (int i = 0; i < NODES + 2; i++) n += peers[i].rounds;
    return n;
}

static char unfit[300];

static void note_unfit(void *arg, const struct seat_view *v) {
    if (strcmp(v->host, arg) != 0) return;
    (void) snprintf(unfit, sizeof(unfit), "%s", v->state == SEAT_UNFIT ? v->unfit : "");
}

static const char *unfit_of(int i) {
    char host[16];
    (void) snprintf(host, sizeof(host), "n%d", i);
    coordinator_visit(c, note_unfit, host);
    return unfit;
}

START_TEST(the_round_forms_after_the_tests) {
    begin(4, 4);
    for (int i = 0; i < 4; i++) ck_assert_int_eq(peers[i].pair_count, 1);
    ck_assert_uint_eq(peers[0].pair.rank + peers[1].pair.rank, 1);
    ck_assert_uint_eq(peers[0].pair.port, peers[1].pair.port);
    ck_assert_str_eq(peers[0].partner, "n1");
    ck_assert_str_eq(peers[1].partner, "n0");
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(rounds(), 0);
        answer(i, "");
    }
    ck_assert_int_eq(rounds(), 4);
}
END_TEST

START_TEST(nodes_without_the_option_are_not_tested) {
    begin(0, 3);
    for (int i = 0; i < 3; i++) join(i, 3, i == 0 ? 5000 : 0);
    ck_assert_int_eq(rounds(), 3);
    ck_assert_int_eq(peers[0].pair_count, 0);
}
END_TEST

START_TEST(a_bad_node_is_not_fit_and_a_spare_takes_its_place) {
    for (int bad = 0; bad < 4; bad++) {
        begin(4, 4);
        answer_all(bad);
        ck_assert_int_eq(rounds(), 0);
        for (int i = 0; i < 4; i++) {
            ck_assert_msg((strstr(unfit_of(i), "no route") != NULL) == (i == bad), "%d %d: %s", bad,
                          i, unfit_of(i));
        }
        join(4, 4, 5004);
        answer_all(bad);
        ck_assert_int_eq(rounds(), 4);
        ck_assert_int_eq(peers[bad].rounds, 0);
    }
}
END_TEST

START_TEST(a_node_that_does_not_answer_has_failed) {
    begin(3, 2);
    answer(0, "");
    now += 6999; /* the time limit of the test is 2 s, and the answer has 5 s more */
    coordinator_tick(c, now);
    ck_assert_int_eq(peers[0].pair_count, 1);
    now += 1;
    coordinator_tick(c, now);
    ck_assert_int_eq(peers[0].pair_count, 2);
    ck_assert_str_eq(peers[0].partner, "n2");
}
END_TEST

START_TEST(two_suspects_are_not_fit_and_tested_again_after_a_while) {
    begin(2, 2);
    answer_all(1);
    for (int i = 0; i < 2; i++) {
        ck_assert_ptr_nonnull(strstr(unfit_of(i), "no third node is there"));
    }
    coordinator_tick(c, now);
    ck_assert_ptr_nonnull(strstr(peers[0].waits, "this node is not fit"));
    now += 9999;
    coordinator_tick(c, now);
    ck_assert_int_eq(peers[0].pair_count, 1);
    now += 1;
    coordinator_tick(c, now);
    ck_assert_int_eq(peers[0].pair_count, 2);
    answer_all(-1);
    ck_assert_int_eq(rounds(), 2);
}
END_TEST

START_TEST(a_third_node_shows_at_once_which_suspect_is_at_fault) {
    begin(2, 2);
    answer_all(1);
    join(2, 2, 5002);
    answer_all(1);
    ck_assert_int_eq(peers[1].rounds, 0);
    ck_assert_int_eq(rounds(), 2);
}
END_TEST

START_TEST(a_lost_partner_is_no_failure) {
    begin(3, 3);
    answer(0, "connection reset");
    coordinator_lost(c, now, peers[1].seat, "reset");
    peers[1].seat = NULL;
    ck_assert_int_eq(rounds(), 0);
    join(3, 3, 5003);
    answer_all(-1);
    ck_assert_int_eq(rounds(), 3);
    ck_assert_str_eq(unfit_of(0), "");
}
END_TEST

START_TEST(answers_of_an_old_test_and_second_answers_do_not_count) {
    begin(4, 4);
    struct rdzv_message m = {.type = RDZV_PAIRED};
    m.paired = (struct rdzv_paired){.id = peers[0].pair.id + 1, .why = "old"};
    ck_assert_int_eq(coordinator_receive(c, now, peers[0].seat, &m, NULL), 0);
    answer(0, "");
    answer(0, "again");
    for (int i = 1; i < 4; i++) answer(i, "");
    ck_assert_int_eq(rounds(), 4);
    answer(0, "late");
    ck_assert_str_eq(unfit_of(0), "");
}
END_TEST

static void join_again(int i) {
    struct rdzv_message again = {.type = RDZV_JOIN};
    again.join = (struct rdzv_join){.host = "", .addr = "", .role = "", .unfit = ""};
    ck_assert_int_eq(coordinator_receive(c, now, peers[i].seat, &again, NULL), 0);
}

/* A worker of node `failed` fails, and the nodes first to last stop and join again. */
static void restart_after(int failed, int first, int last) {
    struct rdzv_message m = {.type = RDZV_FAILED};
    m.failed = (struct rdzv_failed){.round = 0, .what = "exit 1"};
    ck_assert_int_eq(coordinator_receive(c, now, peers[failed].seat, &m, NULL), 0);
    for (int i = first; i <= last; i++) join_again(i);
}

/* The answer may be lost with the connection. That is nobody's fault. */
START_TEST(a_test_ends_when_its_node_resumes) {
    begin(4, 4);
    answer_all(-1);
    restart_after(0, 0, 3);
    ck_assert_int_eq(peers[0].pair_count, 2);
    struct rdzv_resume r = {
        .part = RDZV_PART_FAILED, .what = "exit 1", .world_size = 4, .host = "n0", .addr = "n0",
        .role = "default", .node_rank = -1, .local_world_size = 1, .rounds_seen = 1,
        .last_group_size = 4, .min_nodes = 4, .max_nodes = 4, .max_restarts = 3,
        .join_timeout_ms = 600000, .last_call_timeout_ms = 30000, .close_timeout_ms = 30000,
        .keep_alive_interval_ms = 5000000, .keep_alive_max_attempt = 3, .unfit = "",
        .instance = peers[0].instance, .connection = 1};
    peers[0].seat = coordinator_resume(c, now, &peers[0], &r);
    ck_assert_ptr_nonnull(peers[0].seat);
    join_again(0);
    ck_assert_int_eq(peers[0].pair_count, 3);
    answer_all(-1);
    ck_assert_int_eq(rounds(), 8);
}
END_TEST

/* The time of a node that is not fit has passed, but it is not needed. */
START_TEST(an_answer_has_a_time_limit_while_another_node_is_not_fit) {
    begin(4, 4);
    answer_all(0);
    join(4, 4, 5004);
    answer_all(0);
    ck_assert_int_eq(rounds(), 4);
    now += 20000;
    coordinator_tick(c, now);
    restart_after(1, 1, 4);
    ck_assert_int_eq(peers[1].pair_count, peers[1].answered + 1);
    coordinator_tick(c, coordinator_deadline(c));
    while (coordinator_deadline(c) < now + 7000) coordinator_tick(c, coordinator_deadline(c));
    ck_assert_int_eq(coordinator_deadline(c), now + 7000);
}
END_TEST

/* Nodes that all fail with each other are tested again after 10 s, not at once. */
START_TEST(nodes_that_were_not_fit_are_no_third_node) {
    begin(3, 3);
    for (int i = 0; i < 100; i++) {
        if (i == 50) coordinator_tick(c, now += 10000);
        for (int k = 0; k < 3; k++) {
            if (peers[k].answered == peers[k].pair_count) continue;
            peers[k].answered = peers[k].pair_count;
            answer(k, "no route");
        }
    }
    /* n0 with n1, n0 with n2; after n0 has come back: n1 with n2 */
    for (int k = 0; k < 3; k++) ck_assert_int_eq(peers[k].pair_count, 2);
}
END_TEST

/* All nodes stop and join again after a failure of node 0. */
START_TEST(after_a_failure_only_the_node_that_failed_is_tested_again) {
    begin(4, 4);
    answer_all(-1);
    restart_after(0, 0, 3);
    ck_assert_int_eq(peers[0].pair_count, 2);
    ck_assert_int_eq(peers[1].pair_count + peers[2].pair_count + peers[3].pair_count, 4);
    answer_all(-1);
    ck_assert_int_eq(rounds(), 8);
}
END_TEST

int main(void) {
    Suite *s = suite_create("pairs");
    TCase *rule = tcase_create("rule"), *t = tcase_create("coordinator");
    tcase_add_test(rule, untested_nodes_are_paired_and_an_odd_one_comes_second);
    tcase_add_test(rule, a_single_node_is_fit_without_a_test);
    tcase_add_test(rule, two_suspects_without_a_third_node_are_both_unclear);
    tcase_add_test(rule, a_node_that_has_passed_is_believed_against_a_new_one);
    tcase_add_test(rule, the_bad_nodes_are_found_whatever_their_places);
    tcase_add_test(t, the_round_forms_after_the_tests);
    tcase_add_test(t, nodes_without_the_option_are_not_tested);
    tcase_add_test(t, a_bad_node_is_not_fit_and_a_spare_takes_its_place);
    tcase_add_test(t, a_node_that_does_not_answer_has_failed);
    tcase_add_test(t, two_suspects_are_not_fit_and_tested_again_after_a_while);
    tcase_add_test(t, a_third_node_shows_at_once_which_suspect_is_at_fault);
    tcase_add_test(t, a_lost_partner_is_no_failure);
    tcase_add_test(t, answers_of_an_old_test_and_second_answers_do_not_count);
    tcase_add_test(t, an_answer_has_a_time_limit_while_another_node_is_not_fit);
    tcase_add_test(t, nodes_that_were_not_fit_are_no_third_node);
    tcase_add_test(t, a_test_ends_when_its_node_resumes);
    tcase_add_test(t, after_a_failure_only_the_node_that_failed_is_tested_again);
    suite_add_tcase(s, rule);
    suite_add_tcase(s, t);
    int failed = run_suite(s);
    if (c != NULL) coordinator_free(c);
    return failed;
}
