/* Tests rendezvous/coordinator/hang.c on a virtual clock: when a job of several nodes hangs, which
 * rank is named, and what it costs. */
#include "base/time/clock.h"
#include "rendezvous/coordinator/coordinator.h"
#include "rendezvous/rendezvous.h"
#include "tests/lib/coordinator_actions.h"
#include "tests/lib/run_suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NODES 3
#define IDLE  RENDEZVOUS_HANG_IDLE
#define RULE  (UINT64_C(1) << 1)

/* A node of the job, with one worker, and what the coordinator has sent to it. */
struct peer {
    struct coordinator_seat *seat;
    struct rdzv_round round;
    uint64_t instance, connections;
    uint64_t inspection; /* id of the last ASK_INSPECT */
    int inspections, hung, decides, stops, ends;
    struct rdzv_hung last; /* the last HUNG; its texts are in the next two fields */
    char what[RDZV_TEXT_MAX], lines[40000];
};

static struct coordinator *c;
static struct peer peers[NODES];
static int64_t now;

static void on_send(void *arg, void *peer, const struct rdzv_message *m) {
    struct peer *p = peer;
    (void) arg;
    if (m->type == RDZV_ROUND) p->round = m->round;
    if (m->type == RDZV_STOP) p->stops++;
    if (m->type == RDZV_END) p->ends++;
    if (m->type == RDZV_ASK_INSPECT) p->inspections++, p->inspection = m->ask_inspect.id;
    if (m->type != RDZV_HUNG) return;
    if (p->hung == 0) p->lines[0] = '\0';
    strcat(p->lines, m->hung.lines);
    p->last = m->hung;
    (void) snprintf(p->what, sizeof(p->what), "%s", m->hung.what);
    if (m->hung.is_last) p->hung++, p->decides += m->hung.decides != 0;
}

static void on_hang_up(void *arg, void *peer) {
    (void) arg;
    ((struct peer *) peer)->seat = NULL;
}

static const struct coordinator_actions actions = {
    .send = on_send, .hang_up = on_hang_up, .open_store = open_any_store, .log = ignore_log};

/* Forms a round of the nodes n0, n1 and n2. Node i watches for the reasons watches[i]. */
static void begin(const uint64_t watches[NODES]) {
    static uint64_t instances;
    char host[8];
    memset(peers, 0, sizeof(peers));
    now = 1000;
    if (c != NULL) coordinator_free(c);
    c = coordinator_new("job", &actions, NULL);
    for (int i = 0; i < NODES; i++) {
        struct rdzv_join j = {.role = "default", .node_rank = i, .local_world_size = 1,
                              .last_rank = -1, .min_nodes = NODES, .max_nodes = NODES,
                              .max_restarts = 3, .fixed_ranks = 1, .join_timeout_ms = 600000,
                              .last_call_timeout_ms = 30000, .close_timeout_ms = 30000,
                              .keep_alive_interval_ms = 5000, .keep_alive_max_attempt = 3,
                              .aside_after = 1, .aside_ms = 1000000,
                              .watches = watches[i], .instance = ++instances};
        peers[i].instance = j.instance;
        (void) snprintf(host, sizeof(host), "n%d", i);
        j.host = j.addr = host;
        peers[i].seat = coordinator_join(c, now, &peers[i], false, &j);
    }
    for (uint32_t i = 0; i < NODES; i++) ck_assert_uint_eq(peers[i].round.first_rank, i);
}

static void begin_all(uint64_t watches) {
    begin((const uint64_t[NODES]){watches, watches, watches});
}

static void receive(int node, const struct rdzv_message *m) {
    ck_assert_int_eq(coordinator_receive(c, now, peers[node].seat, m, NULL), 0);
}

static void quiet(int node, uint64_t silent, uint64_t broken, int64_t quiet_ms) {
    char what[40];
    struct rdzv_message m = {.type = RDZV_QUIET};
    (void) snprintf(what, sizeof(what), broken != 0 ? "as n%d says" : "", node);
    m.quiet = (struct rdzv_quiet){.round = peers[node].round.round, .silent = silent,
                                  .broken = broken, .quiet_ms = quiet_ms, .what = what};
    receive(node, &m);
}

/* The node answers ASK_INSPECT: its worker is in `stack`. */
static void answer(int node, const char *stack) {
    char rank[8];
    struct rdzv_message m = {.type = RDZV_ROW};
    (void) snprintf(rank, sizeof(rank), "%d", node);
    m.row = (struct rdzv_row){.id = peers[node].inspection, .ranks = rank, .pid = 100,
                              .host = peers[node].round.group_rank == 0 ? "n0"
                                      : node == 1 ? "n1" : "n2",
                              .state = "S", .program = "p", .kernel = "", .operation = "",
                              .python = "", .native = stack, .note = ""};
    receive(node, &m);
    m.type = RDZV_INSPECTED;
    m.inspected = (struct rdzv_inspected){.id = peers[node].inspection, .rows = 1};
    receive(node, &m);
}

static void say(int node, enum rdzv_message_type type) {
    struct rdzv_message m = {.type = type};
    if (type == RDZV_FAILED) m.failed.what = "it hangs";
    if (type == RDZV_FAILED) m.failed.round = peers[node].round.round;
    if (type == RDZV_SUCCEEDED) m.succeeded.round = peers[node].round.round;
    receive(node, &m);
}

static void lose_connection(int node) {
    coordinator_suspend(c, now, peers[node].seat, "reset");
    peers[node].seat = NULL;
}

static void resume(int node) {
    char host[8];
    struct rdzv_join j = {.role = "default", .node_rank = node, .local_world_size = 1,
                          .last_rank = node, .last_group_size = NODES, .rounds_seen = 1,
                          .min_nodes = NODES, .max_nodes = NODES, .max_restarts = 3,
                          .fixed_ranks = 1, .join_timeout_ms = 600000,
                          .last_call_timeout_ms = 30000, .close_timeout_ms = 30000,
                          .keep_alive_interval_ms = 5000, .keep_alive_max_attempt = 3,
                          .instance = peers[node].instance,
                          .connection = ++peers[node].connections};
    struct rdzv_resume r = {.part = RDZV_PART_RUNS, .what = "", .world_size = NODES,
                            .first_rank = (uint32_t) node};
    (void) snprintf(host, sizeof(host), "n%d", node);
    j.host = j.addr = host;
    rdzv_resume_of_join(&j, &r);
    peers[node].seat = coordinator_resume(c, now, &peers[node], &r);
    ck_assert_ptr_nonnull(peers[node].seat);
}

static int inspections(void) {
    return peers[0].inspections + peers[1].inspections + peers[2].inspections;
}

START_TEST(a_job_hangs_when_all_its_nodes_do) {
    begin_all(IDLE);
    quiet(0, IDLE, IDLE, 5000);
    quiet(2, IDLE, IDLE, 5000);
    ck_assert_int_eq(inspections(), 0);
    quiet(0, 0, 0, 0); /* n0 is active again */
    quiet(1, IDLE, IDLE, 5000);
    ck_assert_int_eq(inspections(), 0);
    quiet(0, IDLE, IDLE, 5000);
    ck_assert_int_eq(inspections(), 3);
    ck_assert_uint_ne(peers[0].inspection & RDZV_INSPECTION_OF_HANG, 0);
    answer(0, "read < wait < main");
    answer(1, "sleep < load < main");
    ck_assert_int_eq(peers[0].hung, 0);
    answer(2, "read < wait < main");
    for (int i = 0; i < NODES; i++) {
        ck_assert_int_eq(peers[i].hung, 1);
        ck_assert_int_eq(peers[i].decides, i == 1); /* the node of the odd rank reports it */
        ck_assert_uint_eq(peers[i].last.rank, 1);
        ck_assert_uint_eq(peers[i].last.pid, 100);
        ck_assert_int_eq(peers[i].last.quiet_ms, 5000);
        ck_assert_str_eq(peers[i].what, "the workers of 3 nodes hang (as n0 says): rank 1 on n1, "
                                        "pid 100 differs from the other 2 ranks: it is in load, "
                                        "there in sleep");
        ck_assert_ptr_eq(strstr(peers[i].lines, "  rank 1 on n1"), peers[i].lines);
        ck_assert_ptr_nonnull(strstr(peers[i].lines, "  ranks 0, 2 (2 ranks)"));
    }
}
END_TEST

START_TEST(the_round_ends_once_and_is_charged_once) {
    struct coordinator_view v;
    begin_all(IDLE);
    for (int i = 0; i < NODES; i++) quiet(i, IDLE, IDLE, 5000);
    for (int i = 0; i < NODES; i++) answer(i, i == 2 ? "sleep < load < main" : "read < main");
    quiet(0, IDLE, IDLE, 6000); /* only the time has changed, so no new inspection */
    ck_assert_int_eq(inspections(), 3);
    ck_assert_int_eq(peers[2].decides, 1);
    say(2, RDZV_FAILED);
    ck_assert_int_eq(peers[0].stops + peers[1].stops, 2);
    coordinator_look(c, &v);
    ck_assert_int_eq(v.phase, COORDINATOR_FORMING);
    ck_assert_str_eq(v.why, "it hangs");
}
END_TEST

START_TEST(workers_that_go_on_cancel_the_inspection) {
    begin_all(IDLE);
    for (int i = 0; i < NODES; i++) quiet(i, IDLE, IDLE, 5000);
    answer(0, "a < main");
    quiet(1, 0, 0, 0);
    answer(1, "b < main");
    answer(2, "a < main");
    now += 20000;
    coordinator_tick(c, now);
    ck_assert_int_eq(peers[0].hung + peers[1].hung + peers[2].hung, 0);
    quiet(1, IDLE, IDLE, 5000); /* the job hangs again */
    ck_assert_int_eq(inspections(), 6);
    for (int i = 0; i < NODES; i++) answer(i, "a < main");
    ck_assert_int_eq(peers[2].hung, 1);
}
END_TEST

START_TEST(a_node_that_does_not_answer_is_counted) {
    begin_all(IDLE);
    for (int i = 0; i < NODES; i++) quiet(i, IDLE, IDLE, 5000);
    answer(0, "a < main");
    answer(1, "a < main");
    now += 7999;
    coordinator_tick(c, now);
    ck_assert_int_eq(peers[0].hung, 0);
    now += 1;
    ck_assert_int_le(coordinator_deadline(c), now);
    coordinator_tick(c, now);
    ck_assert_int_eq(peers[0].hung, 1);
    ck_assert_ptr_nonnull(strstr(peers[0].what, "(1 node did not answer)"));
    ck_assert_int_eq(peers[0].decides + peers[1].decides, 1);
}
END_TEST

START_TEST(old_nodes_and_nodes_without_the_option_do_not_count) {
    begin((const uint64_t[NODES]){IDLE, 0, IDLE});
    quiet(0, IDLE, IDLE, 5000);
    quiet(2, IDLE, IDLE, 5000);
    ck_assert_int_eq(inspections(), 3); /* each node is inspected */
    answer(0, "read < main");
    answer(1, "sleep < load < main");
    answer(2, "read < main");
    ck_assert_int_eq(peers[1].hung, 0); /* n1 may be too old for HUNG */
    ck_assert_int_eq(peers[0].decides + peers[2].decides, 1);
    ck_assert_ptr_nonnull(strstr(peers[0].what, "rank 1 on n1, pid 100 differs"));
}
END_TEST

START_TEST(a_rule_is_broken_if_the_line_stays_out_on_all_nodes) {
    begin_all(IDLE | RULE);
    quiet(1, 0, 0, 0); /* the line has come on n1 */
    quiet(0, RULE, RULE, 9000);
    quiet(2, RULE, RULE, 9000);
    ck_assert_int_eq(inspections(), 0);
    quiet(1, RULE, RULE, 3000); /* the line has not come again on n1 */
    ck_assert_int_eq(inspections(), 3);
    for (int i = 0; i < NODES; i++) answer(i, "a < main");
    ck_assert_ptr_nonnull(strstr(peers[0].what, "(as n1 says)")); /* n1 saw the line last */
}
END_TEST

START_TEST(a_silent_node_need_not_have_waited_long) {
    begin_all(RULE);
    quiet(1, 0, 0, 0);
    quiet(1, RULE, RULE, 3000); /* the others have never seen the line, and have no FIRST */
    ck_assert_int_eq(inspections(), 3);
}
END_TEST

START_TEST(a_node_that_has_ended_well_is_not_idle) {
    begin_all(IDLE);
    quiet(0, IDLE, IDLE, 5000);
    quiet(1, IDLE, IDLE, 5000);
    ck_assert_int_eq(inspections(), 0);
    say(2, RDZV_SUCCEEDED); /* the others do not wait for n2 any more */
    ck_assert_int_eq(inspections(), 2);
}
END_TEST

START_TEST(a_node_that_has_ended_well_may_have_written_the_lines) {
    begin_all(RULE);
    quiet(2, 0, 0, 0);
    say(2, RDZV_SUCCEEDED);
    quiet(0, RULE, RULE, 5000);
    quiet(1, RULE, RULE, 5000);
    ck_assert_int_eq(inspections(), 0);
}
END_TEST

START_TEST(reports_of_an_old_round_and_of_a_suspended_node_do_not_count) {
    begin_all(IDLE);
    quiet(0, IDLE, IDLE, 5000);
    quiet(1, IDLE, IDLE, 5000);
    peers[2].round.round = 7;
    quiet(2, IDLE, IDLE, 5000);
    ck_assert_int_eq(inspections(), 0);
    peers[2].round.round = 0;
    coordinator_suspend(c, now, peers[1].seat, "reset");
    quiet(2, IDLE, IDLE, 5000);
    ck_assert_int_eq(inspections(), 0);
}
END_TEST

/* HUNG was lost with the connection of the node that has to report the hang. */
START_TEST(a_hang_is_declared_again_to_a_node_that_resumes) {
    begin_all(IDLE);
    for (int i = 0; i < NODES; i++) quiet(i, IDLE, IDLE, 5000);
    answer(0, "a < main");
    answer(1, "a < main");
    answer(2, "b < main");
    ck_assert_int_eq(peers[2].decides, 1);
    lose_connection(2);
    resume(2);
    quiet(2, IDLE, IDLE, 6000);
    ck_assert_int_eq(inspections(), 6);
    answer(0, "a < main");
    answer(1, "a < main");
    answer(2, "b < main");
    ck_assert_int_eq(peers[2].decides, 2);
}
END_TEST

/* A new connection can come before the loss of the old one is known. A node that has made no report
 * in this round repeats none. */
START_TEST(a_hang_is_declared_again_on_a_new_connection) {
    begin_all(RULE);
    quiet(1, RULE, RULE, 5000);
    ck_assert_int_eq(inspections(), 3);
    resume(2);
    ck_assert_int_eq(inspections(), 6);
    for (int i = 0; i < NODES; i++) answer(i, i == 2 ? "b < main" : "a < main");
    ck_assert_int_eq(peers[2].decides, 1);
}
END_TEST

START_TEST(no_hang_is_declared_while_a_node_has_no_connection) {
    begin_all(IDLE);
    for (int i = 0; i < NODES; i++) quiet(i, IDLE, IDLE, 5000);
    answer(0, "a < main");
    lose_connection(2);
    answer(1, "a < main");
    now += 8000;
    coordinator_tick(c, now);
    ck_assert_int_eq(peers[0].hung + peers[1].hung, 0);
    resume(2);
    quiet(2, 0, 0, 0); /* its workers have gone on meanwhile */
    for (int i = 0; i < NODES; i++) answer(i, "a < main");
    ck_assert_int_eq(peers[0].hung + peers[1].hung, 0);
    quiet(2, IDLE, IDLE, 5000);
    for (int i = 0; i < NODES; i++) answer(i, "a < main");
    ck_assert_int_eq(peers[0].hung, 1);
}
END_TEST

/* While a node that has ended well has no connection, nothing is decided. */
START_TEST(a_hang_is_declared_when_a_node_that_has_ended_well_is_gone) {
    begin_all(IDLE);
    quiet(0, IDLE, IDLE, 5000);
    say(2, RDZV_SUCCEEDED);
    struct coordinator_seat *seat = peers[2].seat;
    lose_connection(2);
    quiet(1, IDLE, IDLE, 5000);
    ck_assert_int_eq(inspections(), 0);
    coordinator_lost(c, now, seat, "its lease is over");
    ck_assert_int_eq(inspections(), 2);
    answer(0, "a < main");
    answer(1, "a < main");
    ck_assert_int_eq(peers[0].decides + peers[1].decides, 1);
}
END_TEST

/* A node that does not watch for the reason cannot tell whether its workers have gone on, so
 * another one reports the hang. */
START_TEST(a_hang_is_reported_by_a_node_that_watches_for_it) {
    begin((const uint64_t[NODES]){IDLE, IDLE, RULE});
    quiet(2, 0, 0, 0);
    quiet(0, IDLE, IDLE, 5000);
    quiet(1, IDLE, IDLE, 5000);
    answer(0, "a < main");
    answer(1, "a < main");
    answer(2, "b < main");
    ck_assert_uint_eq(peers[0].last.rank, 2);
    ck_assert_int_eq(peers[2].decides, 0);
    ck_assert_int_eq(peers[0].decides + peers[1].decides, 1);
}
END_TEST

/* Its workers have ended while HUNG was on its way, so it ignores HUNG. */
START_TEST(a_hang_is_declared_again_if_the_node_that_has_to_report_it_ends_well) {
    begin_all(IDLE);
    for (int i = 0; i < NODES; i++) quiet(i, IDLE, IDLE, 5000);
    for (int i = 0; i < NODES; i++) answer(i, i == 2 ? "b < main" : "a < main");
    ck_assert_int_eq(peers[2].decides, 1);
    say(2, RDZV_SUCCEEDED);
    answer(0, "a < main");
    answer(1, "a < main");
    ck_assert_int_eq(peers[0].decides + peers[1].decides, 1);
}
END_TEST

/* The node that has to report the hang has gone on for its reason, but the others hang for another
 * one, too. */
START_TEST(a_hang_is_declared_again_for_a_reason_that_is_left) {
    begin((const uint64_t[NODES]){IDLE | RULE, IDLE | RULE, RULE});
    for (int i = 0; i < NODES; i++) {
        uint64_t all = i == 2 ? RULE : IDLE | RULE;
        quiet(i, all, all, 5000);
    }
    answer(0, "a < main");
    answer(1, "a < main");
    answer(2, "b < main");
    ck_assert_int_eq(peers[2].decides, 1);
    ck_assert_int_eq(inspections(), 3);
    quiet(2, 0, 0, 0);
    ck_assert_int_eq(inspections(), 6);
    for (int i = 0; i < NODES; i++) answer(i, i == 2 ? "b < main" : "a < main");
    ck_assert_uint_eq(peers[0].last.reasons, IDLE);
    ck_assert_int_eq(peers[0].decides + peers[1].decides, 1);
}
END_TEST

/* The reason for which the inspection began is gone, but the job hangs for another one. */
START_TEST(a_hang_for_another_reason_is_inspected_anew) {
    begin_all(IDLE | RULE);
    for (int i = 0; i < NODES; i++) quiet(i, RULE, RULE, 5000);
    ck_assert_int_eq(inspections(), 3);
    quiet(0, IDLE | RULE, IDLE | RULE, 5000);
    quiet(1, IDLE | RULE, IDLE | RULE, 5000);
    quiet(2, IDLE | RULE, IDLE | RULE, 5000);
    ck_assert_int_eq(inspections(), 3);
    quiet(1, IDLE, IDLE, 5000); /* the line has come */
    ck_assert_int_eq(inspections(), 6);
    for (int i = 0; i < NODES; i++) answer(i, "a < main");
    ck_assert_uint_eq(peers[0].last.reasons, IDLE);
}
END_TEST

/* aside_after is 1: a failure that counts for a host sets the host aside. */
static uint32_t count_aside(int decider) {
    struct coordinator_view v;
    say(decider, RDZV_FAILED);
    for (int i = 0; i < NODES; i++) {
        struct rdzv_message m = {.type = RDZV_JOIN};
        m.join = (struct rdzv_join){.host = "", .addr = "", .role = "default", .node_rank = i,
                                    .local_world_size = 1, .last_rank = i, .rounds_seen = 1,
                                    .min_nodes = NODES, .max_nodes = NODES, .max_restarts = 3,
                                    .fixed_ranks = 1, .join_timeout_ms = 600000,
                                    .last_call_timeout_ms = 30000, .close_timeout_ms = 30000,
                                    .keep_alive_interval_ms = 5000, .keep_alive_max_attempt = 3};
        receive(i, &m);
    }
    coordinator_look(c, &v);
    ck_assert_uint_eq(v.spent, 1);
    return v.next_round == 2 ? 0 : v.in_state[SEAT_ASIDE];
}

static uint32_t failures;
static void visit(void *arg, const struct host_view *h) {
    (void) arg;
    failures += h->failures;
}

/* A hang in which no rank differs is nobody's fault. */
START_TEST(without_an_odd_rank_no_host_is_blamed) {
    for (int has_odd = 0; has_odd < 2; has_odd++) {
        begin_all(IDLE);
        for (int i = 0; i < NODES; i++) quiet(i, IDLE, IDLE, 5000);
        for (int i = 0; i < NODES; i++) answer(i, has_odd && i == 1 ? "b < main" : "a < main");
        ck_assert_int_eq(peers[has_odd].decides, 1);
        (void) count_aside(has_odd);
        failures = 0;
        coordinator_visit_hosts(c, now, visit, NULL);
        ck_assert_uint_eq(failures, (uint32_t) has_odd);
    }
}
END_TEST

/* Rows of ranks that are not the node's, or too many rows, are left out. */
START_TEST(a_node_cannot_speak_for_others) {
    struct rdzv_message m = {.type = RDZV_ROW};
    begin_all(IDLE);
    for (int i = 0; i < NODES; i++) quiet(i, IDLE, IDLE, 5000);
    const char *const ranks[] = {"0-2", "1", "x", "", "99999999999999999999", "0", "0"};
    for (size_t i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i++) {
        m.row = (struct rdzv_row){.id = peers[0].inspection, .ranks = ranks[i], .host = "\x1b",
                                  .state = "", .program = "", .kernel = "", .operation = "",
                                  .python = "", .native = "evil", .note = ""};
        receive(0, &m);
    }
    m.row.ranks = "1";
    m.row.native = "a < main";
    receive(1, &m);
    m.type = RDZV_INSPECTED;
    m.inspected = (struct rdzv_inspected){.id = peers[0].inspection};
    for (int i = 0; i < NODES; i++) receive(i, &m);
    ck_assert_int_eq(peers[0].hung, 1);
    ck_assert_msg(strstr(peers[0].what, "the 2 ranks are at 2 places") != NULL, "%s",
                  peers[0].what);
}
END_TEST

int main(void) {
    Suite *s = suite_create("coordinator_hang");
    TCase *t = tcase_create("hang");
    tcase_add_test(t, a_job_hangs_when_all_its_nodes_do);
    tcase_add_test(t, the_round_ends_once_and_is_charged_once);
    tcase_add_test(t, workers_that_go_on_cancel_the_inspection);
    tcase_add_test(t, a_node_that_does_not_answer_is_counted);
    tcase_add_test(t, old_nodes_and_nodes_without_the_option_do_not_count);
    tcase_add_test(t, a_rule_is_broken_if_the_line_stays_out_on_all_nodes);
    tcase_add_test(t, a_silent_node_need_not_have_waited_long);
    tcase_add_test(t, a_node_that_has_ended_well_is_not_idle);
    tcase_add_test(t, a_node_that_has_ended_well_may_have_written_the_lines);
    tcase_add_test(t, reports_of_an_old_round_and_of_a_suspended_node_do_not_count);
    tcase_add_test(t, a_hang_is_declared_again_to_a_node_that_resumes);
    tcase_add_test(t, a_hang_is_declared_again_on_a_new_connection);
    tcase_add_test(t, no_hang_is_declared_while_a_node_has_no_connection);
    tcase_add_test(t, a_hang_is_declared_when_a_node_that_has_ended_well_is_gone);
    tcase_add_test(t, a_hang_is_declared_again_if_the_node_that_has_to_report_it_ends_well);
    tcase_add_test(t, a_hang_for_another_reason_is_inspected_anew);
    tcase_add_test(t, a_hang_is_reported_by_a_node_that_watches_for_it);
    tcase_add_test(t, a_hang_is_declared_again_for_a_reason_that_is_left);
    tcase_add_test(t, without_an_odd_rank_no_host_is_blamed);
    tcase_add_test(t, a_node_cannot_speak_for_others);
    suite_add_tcase(s, t);
    int failed = run_suite(s);
    if (c != NULL) coordinator_free(c);
    return failed;
}
