/* Tests of the coordinator's rules on a virtual clock: when it forms a round and of which nodes,
 * which ranks stay the same, which failures cost a restart, and which messages it sends to which
 * node at the end. */
#include "base/time/clock.h"
#include "rendezvous/coordinator/coordinator.h"
#include "rendezvous/coordinator/seat_table_internal.h"
#include "rendezvous/rendezvous.h"
#include "rendezvous/rules/budget_internal.h"
#include "tests/lib/coordinator_clock.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One node of a test: how many messages of each kind the coordinator has sent to it, and the last
 * message of each kind. */
struct peer {
    struct coordinator_seat *seat;
    int rounds, stops, ends, refused, hung_up;
    struct rdzv_round round;
    struct rdzv_accepted accepted;
    uint32_t outcome;
    char why[RDZV_TEXT_MAX], differs[RDZV_TEXT_MAX];
    int changes, sets, notices, dumps, inspections, findings;
    uint64_t inquiry; /* the last ASK_PROGRESS */
    int rank_asks;
    struct rdzv_change change;
    struct rdzv_change_at at;
    struct rdzv_ask_notice notice;
    int waitings;
    struct rdzv_waiting waiting; /* the last one; its text is in `why` */
    int64_t stop_limit; /* limit_ms of the last STOP */
    uint32_t unawaited; /* is_unawaited of the last STOP */
};

static struct coordinator *c;
static struct rdzv_join defaults;
static int stores_opened, store_error;
static uint64_t incarnations; /* how many were drawn */
static int64_t now;
static char last_warning[RDZV_TEXT_MAX], phases[RDZV_TEXT_MAX];

static void on_send(void *arg, void *peer, const struct rdzv_message *m) {
    struct peer *p = peer;
    (void) arg;
    const char *why = NULL;
    if (m->type == RDZV_ACCEPTED) {
        p->accepted = m->accepted;
        (void) snprintf(p->differs, sizeof(p->differs), "%s", m->accepted.differs);
    }
    if (m->type == RDZV_ROUND) p->rounds++, p->round = m->round;
    if (m->type == RDZV_STOP) {
        p->stops++;
        why = m->stop.why;
        p->stop_limit = m->stop.limit_ms;
        p->unawaited = m->stop.is_unawaited;
    }
    if (m->type == RDZV_END) p->ends++, p->outcome = m->end.outcome, why = m->end.why;
    if (m->type == RDZV_REFUSED) p->refused++, why = m->refused.why;
    if (m->type == RDZV_CHANGE) p->changes++, p->change = m->change, why = m->change.why;
    if (m->type == RDZV_CHANGE_AT) p->sets++, p->at = m->change_at;
    if (m->type == RDZV_ASK_NOTICE) p->notices++, p->notice = m->ask_notice;
    if (m->type == RDZV_ASK_DUMP) p->dumps++;
    if (m->type == RDZV_ASK_PROGRESS) p->inquiry = m->ask_progress.inquiry;
    if (m->type == RDZV_ASK_RANKS) p->rank_asks++;
    if (m->type == RDZV_BEHIND) p->findings++, why = m->behind.what;
    if (m->type == RDZV_ASK_INSPECT) p->inspections += (int) m->ask_inspect.id;
    if (m->type == RDZV_WAITING) p->waitings++, p->waiting = m->waiting, why = m->waiting.what;
    if (why != NULL) (void) snprintf(p->why, sizeof(p->why), "%s", why);
}

static void on_hang_up(void *arg, void *peer) {
    (void) arg;
    ((struct peer *) peer)->hung_up++;
    ((struct peer *) peer)->seat = NULL;
}

static int on_open_store(void *arg, uint64_t round, struct coordinator_store *out,
                         struct cr_error *err) {
    (void) arg;
    (void) round;
    if (store_error != 0) return cr_fail(err, store_error, "no store today");
    (void) snprintf(out->addr, sizeof(out->addr), "10.0.0.1");
    out->port = (uint16_t) (7000 + ++stores_opened);
    return 0;
}

static void on_log(void *arg, enum cr_log_level level, const char *text) {
    (void) arg;
    char from[16], to[16];
    size_t len = strlen(phases);
    if (level == CR_LOG_WARN) (void) snprintf(last_warning, sizeof(last_warning), "%s", text);
    if (sscanf(text, "job 'job': %15s -> %15s", from, to) == 2) {
        (void) snprintf(phases + len, sizeof(phases) - len, "%s -> %s ", from, to);
    }
}

static uint64_t on_draw(void *arg) {
    (void) arg;
    return ++incarnations;
}

static const struct coordinator_actions actions = {
    .send = on_send, .hang_up = on_hang_up, .open_store = on_open_store, .draw = on_draw,
    .log = on_log};

static void setup(uint32_t min, uint32_t max, uint32_t restarts) {
    now = 1000;
    stores_opened = store_error = 0;
    phases[0] = last_warning[0] = '\0';
    incarnations = 100;
    defaults = (struct rdzv_join){.host = "?", .addr = "?", .role = "default", .node_rank = -1,
                                  .local_world_size = 2, .last_rank = -1, .min_nodes = min,
                                  .max_nodes = max, .max_restarts = restarts,
                                  .join_timeout_ms = 600000, .last_call_timeout_ms = 30000,
                                  .close_timeout_ms = 30000, .keep_alive_interval_ms = 5000,
                                  .keep_alive_max_attempt = 3};
    c = coordinator_new("job", &actions, NULL);
}

static void join_as(struct peer *p, const struct rdzv_join *j) {
    p->seat = coordinator_join(c, now, p, 0, j);
}

static void join(struct peer *p, const char *host) {
    static uint64_t instances;
    struct rdzv_join j = defaults;
    j.host = j.addr = host;
    j.instance = ++instances;
    join_as(p, &j);
}

static void say(struct peer *p, enum rdzv_message_type type, uint64_t round) {
    struct rdzv_message m = {.type = type};
    if (type == RDZV_JOIN) m.join = defaults;
    if (type == RDZV_FAILED)
        m.failed = (struct rdzv_failed){.round = round, .what = "rank 3 on b: exit code 7"};
    if (type == RDZV_SUCCEEDED) m.succeeded.round = round;
    if (type == RDZV_LEAVE) m.leave.why = "signal 15";
    ck_assert_int_eq(coordinator_receive(c, now, p->seat, &m, NULL), 0);
}

static void lose(struct peer *p) {
    coordinator_lost(c, now, p->seat, "connection closed");
    p->seat = NULL;
}

static void pass(int64_t ms) {
    coordinator_run_until(c, &now, now + ms);
}

static void beat(struct peer *p) { say(p, RDZV_BEAT, 0); }

static void pass_with_beats(int64_t ms, struct peer *p, struct peer *q) {
    for (; ms > 0; ms -= 1000) {
        pass(ms < 1000 ? ms : 1000);
        if (p->seat != NULL) beat(p);
        if (q->seat != NULL) beat(q);
    }
}

static void answer(struct peer *p, int64_t step, int64_t needs_ms) {
    struct rdzv_message m = {.type = RDZV_CHANGE_ANSWER};
    m.change_answer =
        (struct rdzv_change_answer){.id = p->change.id, .step = step, .needs_ms = needs_ms};
    ck_assert_int_eq(coordinator_receive(c, now, p->seat, &m, NULL), 0);
}

static void ready(struct peer *p) {
    struct rdzv_message m = {.type = RDZV_CHANGE_READY};
    m.change_ready.id = p->change.id;
    ck_assert_int_eq(coordinator_receive(c, now, p->seat, &m, NULL), 0);
}

static void give_notice(struct peer *p, uint32_t kind, int64_t left_ms) {
    struct rdzv_message m = {.type = RDZV_NOTICE};
    m.notice = (struct rdzv_notice){.kind = kind, .left_ms = left_ms, .why = "spot"};
    ck_assert_int_eq(coordinator_receive(c, now, p->seat, &m, NULL), 0);
}

static enum coordinator_phase phase(void) {
    struct coordinator_view v;
    coordinator_look(c, &v);
    return v.phase;
}

START_TEST(min_equal_max_starts_at_the_last_join) {
    struct peer a = {0}, b = {0};
    setup(2, 2, 0);
    join(&a, "n10");
    pass(5000);
    ck_assert_int_eq(a.rounds, 0);
    join(&b, "n2");
    ck_assert_int_eq(a.rounds + b.rounds, 2);
    /* numbers in host names compare as numbers: n2 comes before n10 */
    ck_assert_uint_eq(b.round.group_rank, 0);
    ck_assert_uint_eq(a.round.group_rank, 1);
    ck_assert_uint_eq(a.round.first_rank, 2);
    ck_assert_uint_eq(a.round.world_size, 4);
    ck_assert_uint_eq(a.round.group_world_size, 2);
    ck_assert_uint_eq(a.round.master_port, 7001);
    ck_assert_uint_eq(b.round.master_port, 7001);
}
END_TEST

START_TEST(last_call_runs_from_the_minimum) {
    struct peer a = {0}, b = {0}, d = {0};
    setup(2, 4, 0);
    join(&a, "a");
    pass(10000);
    join(&b, "b");
    beat(&a);
    pass(14000); beat(&a); beat(&b);
    join(&d, "d");
    pass(14000); beat(&a); beat(&b); beat(&d);
    pass(1999);
    ck_assert_int_eq(a.rounds, 0);
    pass(1);
    ck_assert_int_eq(a.rounds + b.rounds + d.rounds, 3);
    ck_assert_uint_eq(d.round.group_world_size, 3);
}
END_TEST

/* Makes the node join again with `kept` in its JOIN. */
static void join_keeping(struct peer *p, uint32_t kept) {
    defaults.kept = kept;
    say(p, RDZV_JOIN, 0);
}

START_TEST(a_round_says_how_many_workers_are_kept) {
    struct peer a = {0}, b = {0}, d = {0};
    setup(2, 2, 9);
    defaults.skips_last_call = 1;
    defaults.kept = 1; /* a new node keeps no worker */
    join(&a, "a"), join(&b, "b");
    ck_assert_uint_eq(a.round.kept, 1);
    say(&b, RDZV_FAILED, 0); /* one of the two workers of b is dead, and those of a are kept */
    join_keeping(&a, 1 + 2), join_keeping(&b, 1 + 1);
    ck_assert_int_eq(a.rounds, 2);
    ck_assert(a.round.kept == 1 + 3 && b.round.kept == 1 + 3);
    lose(&b);
    join_keeping(&a, 1 + 2);
    defaults.kept = 1;
    join(&d, "d");
    ck_assert_int_eq(a.rounds, 3);
    ck_assert(a.round.kept == 1 + 2 && d.round.kept == 1 + 2);
}
END_TEST

START_TEST(the_number_of_kept_workers_is_unknown_if_a_node_says_none_or_too_many) {
    for (uint32_t kept = 0; kept <= 4; kept += 4) {
        struct peer a = {0}, b = {0};
        setup(2, 2, 9);
        defaults.kept = 1;
        join(&a, "a"), join(&b, "b");
        say(&b, RDZV_FAILED, 0);
        join_keeping(&a, kept), join_keeping(&b, 1 + 1); /* a has two workers */
        ck_assert(a.rounds == 2 && a.round.kept == 0 && b.round.kept == 0);
        coordinator_free(c);
    }
    setup(1, 1, 0); /* the teardown frees it */
}
END_TEST

START_TEST(roles_and_sizes_may_differ) {
    struct peer a = {0}, b = {0}, d = {0};
    setup(3, 3, 0);
    struct rdzv_join j = defaults;
    j.host = "a", j.role = "A", j.local_world_size = 2, j.instance = 901;
    join_as(&a, &j);
    j.host = "b", j.role = "B", j.local_world_size = 3, j.instance = 902;
    join_as(&b, &j);
    j.host = "d", j.role = "A", j.local_world_size = 1, j.instance = 903;
    join_as(&d, &j);
    ck_assert_uint_eq(b.round.first_rank, 2);
    ck_assert_uint_eq(b.round.first_role_rank, 0);
    ck_assert_uint_eq(b.round.role_world_size, 3);
    ck_assert_uint_eq(d.round.first_rank, 5);
    ck_assert_uint_eq(d.round.first_role_rank, 2);
    ck_assert_uint_eq(d.round.role_world_size, 3);
    ck_assert_uint_eq(d.round.world_size, 6);
}
END_TEST

START_TEST(a_failure_stops_the_others_and_costs_one_restart) {
    struct peer a = {0}, b = {0};
    setup(2, 2, 1);
    join(&a, "a");
    join(&b, "b");
    say(&b, RDZV_FAILED, 0);
    ck_assert_int_eq(a.stops, 1);
    ck_assert_str_eq(a.why, "rank 3 on b: exit code 7");
    ck_assert_int_eq(b.stops, 0); /* b gets no STOP, because it has sent FAILED and so stops its
                                   * workers by itself */
    say(&a, RDZV_FAILED, 0); /* costs no restart, because round 0 has been charged for b's FAILED */
    say(&b, RDZV_JOIN, 0);
    ck_assert_int_eq(b.rounds, 1);
    say(&a, RDZV_JOIN, 0);
    ck_assert_int_eq(a.rounds + b.rounds, 4);
    ck_assert_uint_eq(a.round.restart_count, 1);
    ck_assert_uint_eq(b.round.restart_count, 1);
    ck_assert_uint_eq(b.round.round, 1);
    ck_assert_uint_eq(a.round.master_port, 7002); /* each round's store has a different port */
    say(&a, RDZV_FAILED, 0); /* round 0 is over, so this FAILED costs no restart */
    ck_assert_int_eq(phase(), COORDINATOR_RUNNING);
    say(&a, RDZV_FAILED, 1);
    /* No restart is left. b gets STOP, but the job does not end before b's next message: if b
     * stayed silent, b would be lost, and its loss would excuse the failure. */
    ck_assert_int_eq(b.stops, 1);
    ck_assert_int_eq(a.ends + b.ends, 0);
    beat(&b);
    ck_assert_int_eq(phase(), COORDINATOR_ENDED);
    ck_assert_int_eq(a.ends + b.ends, 2);
    ck_assert_uint_eq(b.outcome, RENDEZVOUS_FAILED);
    ck_assert_str_eq(b.why, "rank 3 on b: exit code 7");
}
END_TEST

/* Sends FAILED for a worker with --on-failure=end. Such a failure ends the job although a restart
 * is left, even if another failure, which costs only a restart, was reported before it. */
static void say_final(struct peer *p, uint64_t round) {
    struct rdzv_message m = {.type = RDZV_FAILED};
    m.failed = (struct rdzv_failed){
        .round = round, .what = "rank 0: exit code 1", .blame = RENDEZVOUS_FINAL};
    ck_assert_int_eq(coordinator_receive(c, now, p->seat, &m, NULL), 0);
}

START_TEST(test_a_final_failure_ends_the_job) {
    struct peer a = {0};
    setup(1, 1, 3);
    join(&a, "a");
    say_final(&a, 0);
    ck_assert_int_eq(a.ends, 1);
    ck_assert_uint_eq(a.outcome, RENDEZVOUS_FAILED);
}
END_TEST

START_TEST(test_a_final_failure_counts_after_another_failure) {
    struct peer a = {0}, b = {0};
    setup(2, 2, 3);
    join(&a, "a");
    join(&b, "b");
    say(&a, RDZV_FAILED, 0);
    say_final(&b, 0);
    say(&a, RDZV_JOIN, 0);
    say(&b, RDZV_JOIN, 0);
    ck_assert_int_eq(phase(), COORDINATOR_ENDED);
    ck_assert_uint_eq(a.outcome, RENDEZVOUS_FAILED);
}
END_TEST

/* Two nodes send FAILED for the same round. The first FAILED ends the round, so the second one must
 * not be charged, although the budget would allow it. */
START_TEST(two_failures_in_one_round_cost_one_restart) {
    struct peer a = {0}, b = {0}, d = {0};
    setup(3, 3, 5);
    join(&a, "a");
    join(&b, "b");
    join(&d, "d");
    say(&a, RDZV_FAILED, 0);
    say(&b, RDZV_FAILED, 0);
    say(&d, RDZV_FAILED, 0);
    say(&a, RDZV_JOIN, 0);
    say(&b, RDZV_JOIN, 0);
    say(&d, RDZV_JOIN, 0);
    ck_assert_int_eq(a.rounds, 2);
    ck_assert_uint_eq(a.round.restart_count, 1);
    ck_assert_uint_eq(b.round.restart_count, 1);
    ck_assert_uint_eq(d.round.restart_count, 1);
}
END_TEST

START_TEST(the_budget_counts_restarts_until_it_is_spent) {
    struct budget b = {.max_restarts = 2};
    for (uint32_t round = 0; round < 2; round++) {
        ck_assert(budget_is_left(&b));
        budget_charge(&b);
        ck_assert_uint_eq(b.restart_count, round + 1);
    }
    ck_assert(!budget_is_left(&b));
    budget_remember(&b, 1);
    ck_assert_uint_eq(b.restart_count, 2);
}
END_TEST

/* Node d dies. A worker of b fails because d's workers do not answer, and b's FAILED arrives before
 * the coordinator has noticed d's loss. This failure must cost no restart. */
START_TEST(a_failure_before_the_loss_that_caused_it_costs_nothing) {
    struct peer a = {0}, b = {0}, d = {0};
    setup(2, 3, 1);
    defaults.last_call_timeout_ms = 100;
    join(&a, "a"), join(&b, "b"), join(&d, "d");
    say(&b, RDZV_FAILED, a.round.round);
    ck_assert_int_eq(a.stops, 1);
    say(&a, RDZV_JOIN, 0), say(&b, RDZV_JOIN, 0);
    lose(&d);
    pass(100);
    ck_assert_uint_eq(a.round.group_world_size, 2);
    ck_assert_uint_eq(a.round.restart_count, 0);
    /* the next failure is charged, because no node is gone */
    say(&b, RDZV_FAILED, a.round.round);
    say(&a, RDZV_JOIN, 0), say(&b, RDZV_JOIN, 0);
    ck_assert_uint_eq(a.round.restart_count, 1);
}
END_TEST

START_TEST(a_failure_before_the_leave_that_caused_it_costs_nothing) {
    struct peer a = {0}, b = {0}, d = {0};
    setup(2, 3, 0);
    defaults.last_call_timeout_ms = 100;
    join(&a, "a"), join(&b, "b"), join(&d, "d");
    say(&b, RDZV_FAILED, a.round.round);
    beat(&a);
    ck_assert_int_eq(phase(), COORDINATOR_FORMING);
    say(&d, RDZV_LEAVE, 0);
    say(&a, RDZV_JOIN, 0), say(&b, RDZV_JOIN, 0);
    lose(&d);
    pass(100);
    ck_assert_int_eq(phase(), COORDINATOR_RUNNING);
    ck_assert_uint_eq(a.round.restart_count, 0);
}
END_TEST

/* No restart is left, and d is silent when b fails. The job must not end before d's lease is over:
 * if d turns out to be lost, d's loss was the cause of b's failure, which then costs nothing. */
START_TEST(a_spent_budget_waits_for_a_silent_node) {
    struct peer a = {0}, b = {0}, d = {0};
    setup(2, 3, 0);
    defaults.last_call_timeout_ms = 100;
    join(&a, "a"), join(&b, "b"), join(&d, "d");
    pass(5000), beat(&a), beat(&b), beat(&d);
    pass(4000), beat(&a), beat(&b);
    say(&b, RDZV_FAILED, a.round.round);
    say(&a, RDZV_JOIN, 0), say(&b, RDZV_JOIN, 0);
    for (int i = 0; i < 12; i++) pass(1000), beat(&a), beat(&b);
    ck_assert_int_eq(a.ends + d.hung_up, 0);
    for (int i = 0; i < 2; i++) pass(1000), beat(&a), beat(&b);
    ck_assert_int_eq(d.hung_up, 1);
    pass(100);
    ck_assert_int_eq(phase(), COORDINATOR_RUNNING);
    ck_assert_uint_eq(a.round.group_world_size, 2);
    ck_assert_uint_eq(a.round.restart_count, 0);
}
END_TEST

/* The first round waits for its last call. After a loss, the nodes that are left get the next round
 * as soon as all of them have joined again. */
START_TEST(after_the_first_round_there_is_no_last_call) {
    struct peer a = {0}, b = {0}, d = {0};
    setup(1, 4, 0);
    defaults.last_call_timeout_ms = 1000;
    defaults.skips_last_call = 1;
    join(&a, "a"), join(&b, "b"), join(&d, "d");
    pass(999);
    ck_assert_int_eq(a.rounds, 0);
    pass(1);
    ck_assert_int_eq(a.rounds, 1);
    lose(&d);
    ck_assert_int_eq(a.stops + b.stops, 2);
    say(&a, RDZV_JOIN, 0);
    ck_assert_int_eq(a.rounds, 1); /* b still stops its workers */
    say(&b, RDZV_JOIN, 0);
    ck_assert_int_eq(a.rounds, 2);
    ck_assert_uint_eq(a.round.group_world_size, 2);
}
END_TEST

START_TEST(a_spent_budget_ends_the_job_when_all_nodes_are_heard) {
    struct peer a = {0}, b = {0}, d = {0};
    setup(2, 3, 0);
    defaults.last_call_timeout_ms = 100;
    join(&a, "a"), join(&b, "b"), join(&d, "d");
    say(&b, RDZV_FAILED, a.round.round);
    beat(&a), beat(&a), beat(&b);
    ck_assert_int_eq(a.ends, 0);
    say(&d, RDZV_FAILED, a.round.round); /* d fails too; the job's reason is the first failure */
    ck_assert_int_eq(a.ends + b.ends + d.ends, 3);
    ck_assert_uint_eq(a.outcome, RENDEZVOUS_FAILED);
    ck_assert_str_eq(d.why, "rank 3 on b: exit code 7");
}
END_TEST

static void beat_of(struct peer *p, uint64_t rounds_over) {
    struct rdzv_message m = {.type = RDZV_BEAT};
    m.beat.rounds_over = rounds_over;
    ck_assert_int_eq(coordinator_receive(c, now, p->seat, &m, NULL), 0);
}

/* Only a beat that d sends after it has received STOP shows that d is there. A beat from before
 * STOP does not, because d can be gone by now. */
START_TEST(a_beat_from_before_the_stop_is_no_sign_of_life) {
    struct peer a = {0}, b = {0}, d = {0};
    setup(2, 3, 0);
    defaults.last_call_timeout_ms = 100;
    join(&a, "a"), join(&b, "b"), join(&d, "d");
    say(&b, RDZV_FAILED, 0);
    beat_of(&a, 2);
    beat_of(&d, 1); /* 1 = d knows of no round that is over */
    ck_assert_int_eq(phase(), COORDINATOR_FORMING);
    beat_of(&d, 2); /* 2 = d knows that round 0 is over */
    ck_assert_int_eq(phase(), COORDINATOR_ENDED);
}
END_TEST

/* Brings b to this state: its worker has failed in the first round, and its connection was reset
 * before the ROUND of the second round arrived. */
static void miss_second_round(struct peer *a, struct peer *b, struct rdzv_join *j) {
    setup(2, 2, 2);
    join(a, "a");
    *j = defaults;
    j->host = j->addr = "b", j->instance = 4711, j->connection = 1;
    join_as(b, j);
    say(b, RDZV_FAILED, 0);
    say(b, RDZV_JOIN, 0);
    say(a, RDZV_JOIN, 0);
    ck_assert_int_eq(b->rounds, 2);
    coordinator_suspend(c, now, b->seat, "connection reset");
    j->connection = 2, j->rounds_seen = 1, j->last_rank = 1, j->last_group_size = 2;
    j->incarnation = b->round.incarnation;
}

static void resume_failed(struct peer *b, const struct rdzv_join *j) {
    struct rdzv_resume r = {.part = RDZV_PART_FAILED, .what = "exit code 7", .world_size = 2};
    rdzv_resume_of_join(j, &r);
    b->seat = coordinator_resume(c, now, b, &r);
    ck_assert_ptr_nonnull(b->seat);
}

/* When b reports the failure of the first round, the second round has failed as well. Node b is not
 * lost, so it does not excuse the failure of the second round, which is charged. */
START_TEST(a_failed_node_that_misses_a_failed_round_excuses_nothing) {
    struct peer a = {0}, b = {0};
    struct rdzv_join j;
    miss_second_round(&a, &b, &j);
    say(&a, RDZV_FAILED, 1);
    say(&a, RDZV_JOIN, 0);
    resume_failed(&b, &j);
    say(&b, RDZV_JOIN, 0);
    ck_assert_int_eq(b.rounds, 3);
    ck_assert_uint_eq(b.round.restart_count, 2);
}
END_TEST

/* b knows of the first round only, in which its worker failed, and says so by RESUME; its JOIN
 * follows. */
START_TEST(a_failed_node_that_misses_the_next_round_gets_it_again) {
    struct peer a = {0}, b = {0};
    struct rdzv_join j;
    miss_second_round(&a, &b, &j);
    resume_failed(&b, &j);
    ck_assert_int_eq(b.rounds, 2);
    say(&b, RDZV_JOIN, 0);
    ck_assert_int_eq(b.rounds, 3);
    ck_assert_uint_eq(b.round.round, 1);
    ck_assert_int_eq(a.stops, 1); /* the stop of the first round */
    ck_assert_int_eq(phase(), COORDINATOR_RUNNING);
}
END_TEST

static void say_signalled(struct peer *p, uint64_t round, enum rendezvous_blame blame) {
    struct rdzv_message m = {.type = RDZV_FAILED};
    m.failed = (struct rdzv_failed){.round = round, .what = "rank 5: signal 15", .blame = blame};
    ck_assert_int_eq(coordinator_receive(c, now, p->seat, &m, NULL), 0);
}

static void say_killed(struct peer *p, uint64_t round) {
    say_signalled(p, round, RENDEZVOUS_KILLED);
}

/* A worker of node b, with --on-failure=end, is killed by a signal. Node b may be about to end, so
 * the coordinator waits for it. Node b leaves, so the failure does not end the job. */
/* With thousands of nodes, beats for which nobody waits would delay STOP on its way to others. */
START_TEST(stop_asks_for_a_beat_only_if_the_failure_may_end_the_job) {
    struct peer a = {0}, b = {0}, d = {0};
    struct rdzv_message final = {
        .type = RDZV_FAILED,
        .failed = {.round = 1, .what = "rank 0 on a: bad data", .blame = RENDEZVOUS_FINAL}};
    setup(3, 3, 1);
    join(&a, "a"), join(&b, "b"), join(&d, "d");
    say(&b, RDZV_FAILED, 0);
    ck_assert(a.stops == 1 && a.unawaited == 1);
    say(&a, RDZV_JOIN, 0), say(&b, RDZV_JOIN, 0), say(&d, RDZV_JOIN, 0);
    say(&b, RDZV_FAILED, 1); /* no restart is left */
    ck_assert(a.stops == 2 && a.unawaited == 0 && d.stops == 2);
    coordinator_free(c);
    a = b = d = (struct peer){0};
    setup(3, 3, 5);
    final.failed.round = 0;
    join(&a, "a"), join(&b, "b"), join(&d, "d");
    say(&b, RDZV_FAILED, 0);
    ck_assert(d.stops == 1 && d.unawaited == 1);
    ck_assert_int_eq(coordinator_receive(c, now, a.seat, &final, NULL), 0);
    ck_assert(d.stops == 2 && d.unawaited == 0); /* d is asked again; b and a have spoken */
    ck_assert(a.stops == 1 && b.stops == 0);
}
END_TEST

START_TEST(a_final_failure_waits_for_the_node_of_a_killed_worker) {
    struct peer a = {0}, b = {0};
    setup(1, 2, 3);
    defaults.last_call_timeout_ms = 100;
    join(&a, "a"), join(&b, "b");
    say_signalled(&b, 0, RENDEZVOUS_FINAL_KILLED);
    say(&a, RDZV_JOIN, 0), say(&b, RDZV_JOIN, 0);
    pass(150);
    ck_assert_int_eq(a.ends, 0);
    say(&b, RDZV_LEAVE, 0);
    lose(&b);
    pass(100);
    ck_assert_uint_eq(a.round.round, 1);
    ck_assert_uint_eq(a.round.restart_count, 0);
}
END_TEST

START_TEST(a_final_failure_ends_the_job_if_the_node_stays) {
    struct peer a = {0}, b = {0};
    setup(1, 2, 3);
    join(&a, "a"), join(&b, "b");
    say_signalled(&b, 0, RENDEZVOUS_FINAL_KILLED);
    say(&a, RDZV_JOIN, 0), say(&b, RDZV_JOIN, 0);
    pass(200);
    ck_assert_int_eq(a.ends, 1);
    ck_assert_uint_eq(a.outcome, RENDEZVOUS_FAILED);
}
END_TEST

/* All processes of node b get SIGTERM. The worker ends first, so b reports a killed worker; node b
 * itself leaves 150 ms later. */
START_TEST(a_killed_worker_whose_node_leaves_soon_ends_no_job) {
    struct peer a = {0}, b = {0};
    setup(1, 2, 0);
    defaults.last_call_timeout_ms = 100;
    join(&a, "a"), join(&b, "b");
    say_killed(&b, 0);
    ck_assert_int_eq(a.stops, 1);
    say(&a, RDZV_JOIN, 0);
    pass(150);
    ck_assert_int_eq(a.ends, 0);
    say(&b, RDZV_LEAVE, 0);
    lose(&b);
    pass(100);
    ck_assert_uint_eq(a.round.round, 1);
    ck_assert_uint_eq(a.round.group_world_size, 1);
    ck_assert_uint_eq(a.round.restart_count, 0);
}
END_TEST

START_TEST(a_killed_worker_whose_node_stays_ends_the_job_soon) {
    struct peer a = {0}, b = {0};
    setup(1, 2, 0);
    join(&a, "a"), join(&b, "b");
    say_killed(&b, 0);
    say(&a, RDZV_JOIN, 0), say(&b, RDZV_JOIN, 0);
    pass(199);
    ck_assert_int_eq(a.ends, 0);
    pass(1);
    ck_assert_int_eq(a.ends, 1);
    ck_assert_uint_eq(a.outcome, RENDEZVOUS_FAILED);
    ck_assert_str_eq(b.why, "rank 5: signal 15");
}
END_TEST

/* The coordinator was stopped (SIGSTOP) for 5 s. After SIGCONT its timer runs before b's LEAVE is
 * read, so the coordinator must wait once more before it ends the job. */
START_TEST(a_coordinator_that_was_stopped_waits_again_for_a_killed_node) {
    struct peer a = {0}, b = {0};
    setup(1, 2, 0);
    join(&a, "a"), join(&b, "b");
    say_killed(&b, 0);
    say(&a, RDZV_JOIN, 0), say(&b, RDZV_JOIN, 0);
    now += 5000;
    coordinator_tick(c, now);
    ck_assert_int_eq(a.ends, 0);
    pass(200);
    ck_assert_int_eq(a.ends, 1);
}
END_TEST

/* A worker of b is killed by a signal, and a restart is left. So the next round forms at once, and
 * a restart is charged. When b leaves later, this restart goes back to the budget, but
 * restart_count must not become smaller from one round to the next. */
START_TEST(a_restart_is_refunded_when_the_killed_node_leaves) {
    struct peer a = {0}, b = {0};
    setup(1, 2, 1);
    defaults.last_call_timeout_ms = 100;
    join(&a, "a"), join(&b, "b");
    struct coordinator_view v;
    say_killed(&b, 0);
    say(&a, RDZV_JOIN, 0), say(&b, RDZV_JOIN, 0);
    ck_assert_uint_eq(a.round.restart_count, 1);
    pass(150);
    say(&b, RDZV_LEAVE, 0), lose(&b);
    say(&a, RDZV_JOIN, 0);
    pass(100);
    coordinator_look(c, &v);
    ck_assert_uint_eq(v.spent, 0);
    ck_assert_uint_eq(a.round.restart_count, 1);
    say(&a, RDZV_FAILED, a.round.round); /* the refunded restart can be used */
    say(&a, RDZV_JOIN, 0);
    ck_assert_uint_eq(a.round.round, 3);
    ck_assert_uint_eq(a.round.restart_count, 1);
    say(&a, RDZV_FAILED, a.round.round);
    ck_assert_int_eq(phase(), COORDINATOR_ENDED);
}
END_TEST

START_TEST(a_restart_is_not_refunded_for_a_node_that_leaves_later) {
    struct peer a = {0}, b = {0};
    struct coordinator_view v;
    setup(1, 2, 1);
    join(&a, "a"), join(&b, "b");
    say_killed(&b, 0);
    say(&a, RDZV_JOIN, 0), say(&b, RDZV_JOIN, 0);
    pass(201);
    say(&b, RDZV_LEAVE, 0), lose(&b);
    coordinator_look(c, &v);
    ck_assert_uint_eq(v.spent, 1);
}
END_TEST

START_TEST(a_restart_is_not_refunded_for_a_node_whose_workers_were_not_killed) {
    struct peer a = {0}, b = {0};
    struct coordinator_view v;
    setup(1, 2, 1);
    join(&a, "a"), join(&b, "b");
    say_killed(&b, 0);
    say(&a, RDZV_JOIN, 0), say(&b, RDZV_JOIN, 0);
    pass(100);
    say(&a, RDZV_LEAVE, 0), lose(&a);
    coordinator_look(c, &v);
    ck_assert_uint_eq(v.spent, 1);
}
END_TEST

/* Node d is lost more than one lease after b's failure. So d's loss has not caused the failure, and
 * the failure costs a restart. */
START_TEST(a_node_that_leaves_a_lease_after_the_failure_excuses_nothing) {
    struct peer a = {0}, b = {0}, d = {0};
    setup(2, 3, 5);
    defaults.last_call_timeout_ms = 100;
    join(&a, "a"), join(&b, "b"), join(&d, "d");
    say(&b, RDZV_FAILED, a.round.round);
    say(&a, RDZV_JOIN, 0), say(&b, RDZV_JOIN, 0);
    for (int i = 0; i < 16; i++) pass(1000), beat(&a), beat(&b), beat(&d);
    lose(&d);
    pass(100);
    ck_assert_uint_eq(a.round.group_world_size, 2);
    ck_assert_uint_eq(a.round.restart_count, 1);
}
END_TEST

/* Node d leaves before it has heard of b's failure. The coordinator's process has stood still, so
 * it reads d's LEAVE more than one lease after b's FAILED. No message of d has shown that d knows
 * of the failure, so d's end may have caused it. So the failure costs no restart. */
START_TEST(a_leave_that_is_read_late_excuses_a_failure_that_its_node_has_not_heard_of) {
    struct peer a = {0}, b = {0}, d = {0};
    setup(2, 3, 5);
    defaults.last_call_timeout_ms = 100;
    join(&a, "a"), join(&b, "b"), join(&d, "d");
    say(&b, RDZV_FAILED, a.round.round);
    say(&a, RDZV_JOIN, 0), say(&b, RDZV_JOIN, 0);
    now += 16000;
    say(&d, RDZV_LEAVE, 0), lose(&d);
    beat(&a), beat(&b);
    pass(100);
    ck_assert_uint_eq(a.round.group_world_size, 2);
    ck_assert_uint_eq(a.round.restart_count, 0);
}
END_TEST

/* The only other node is in the coordinator's own process and has no lease that could end, so the
 * job ends at once. */
START_TEST(a_spent_budget_ends_the_job_at_once_if_only_local_nodes_are_left) {
    struct peer a = {0}, b = {0};
    setup(2, 2, 0);
    struct rdzv_join j = defaults;
    j.host = "a", j.instance = 971;
    a.seat = coordinator_join(c, now, &a, true, &j);
    join(&b, "b");
    say(&b, RDZV_FAILED, 0);
    ck_assert_int_eq(a.ends + b.ends, 2);
    ck_assert_int_eq(a.stops, 0);
}
END_TEST

/* If the coordinator did not send STOP to the node that succeeded, this node would wait for the end
 * of the job while the other nodes go on to the next round. */
START_TEST(a_node_that_succeeded_is_stopped_with_the_others) {
    struct peer a = {0}, b = {0};
    setup(2, 2, 1);
    join(&a, "a");
    join(&b, "b");
    say(&a, RDZV_SUCCEEDED, 0);
    say(&b, RDZV_FAILED, 0);
    ck_assert_int_eq(a.stops, 1);
    ck_assert_int_eq(b.stops, 0);
    say(&a, RDZV_JOIN, 0);
    say(&b, RDZV_JOIN, 0);
    ck_assert_int_eq(a.rounds + b.rounds, 4);
}
END_TEST

/* A node reports success in an older round. crun's own nodes never do this, because messages arrive
 * in order. A node that sends a wrong number must not end the job of the others. */
START_TEST(success_in_an_older_round_does_not_count) {
    struct peer a = {0}, b = {0};
    setup(2, 2, 1);
    join(&a, "a");
    join(&b, "b");
    say(&a, RDZV_FAILED, 0);
    say(&a, RDZV_JOIN, 0);
    say(&b, RDZV_JOIN, 0);
    say(&a, RDZV_SUCCEEDED, 0);
    say(&b, RDZV_SUCCEEDED, 0);
    ck_assert_int_eq(a.ends + b.ends, 0);
    say(&a, RDZV_SUCCEEDED, 1);
    say(&b, RDZV_SUCCEEDED, 1);
    ck_assert_int_eq(a.ends + b.ends, 2);
}
END_TEST

START_TEST(losses_and_leaving_cost_no_restart) {
    struct peer a = {0}, b = {0}, spare = {0}, late = {0};
    setup(2, 2, 0); /* no restart is allowed, so a failure that is charged would end the job */
    join(&a, "a");
    join(&b, "b");
    join(&spare, "s");
    lose(&b);
    say(&a, RDZV_JOIN, 0);
    ck_assert_int_eq(spare.rounds, 1);
    ck_assert_uint_eq(spare.round.restart_count, 0);
    join(&late, "l");
    say(&spare, RDZV_LEAVE, 0);
    lose(&spare);
    say(&a, RDZV_JOIN, 0);
    ck_assert_int_eq(late.rounds, 1);
    ck_assert_uint_eq(late.round.restart_count, 0);
    ck_assert_int_eq(phase(), COORDINATOR_RUNNING);
}
END_TEST

START_TEST(each_change_of_phase_is_one_log_line) {
    struct peer a = {0};
    setup(1, 1, 1);
    join(&a, "a");
    ck_assert_str_eq(phases, "EMPTY -> FORMING FORMING -> RUNNING ");
    say(&a, RDZV_FAILED, 0);
    say(&a, RDZV_JOIN, 0);
    say(&a, RDZV_FAILED, 1);
    ck_assert_str_eq(phases,
                     "EMPTY -> FORMING FORMING -> RUNNING RUNNING -> FORMING FORMING -> RUNNING "
                     "RUNNING -> ENDED ");
}
END_TEST

START_TEST(after_a_failure_an_elastic_group_does_not_wait_for_more) {
    struct peer a = {0}, b = {0};
    setup(1, 4, 3);
    join(&a, "a");
    join(&b, "b");
    pass(14000); beat(&a); beat(&b); pass(14000); beat(&a); beat(&b);
    pass(2000);
    ck_assert_int_eq(a.rounds, 1);
    say(&a, RDZV_FAILED, 0);
    say(&a, RDZV_JOIN, 0);
    say(&b, RDZV_JOIN, 0);
    ck_assert_int_eq(a.rounds, 2);
}
END_TEST

START_TEST(a_late_node_causes_a_round_and_costs_no_restart) {
    struct peer a = {0}, b = {0};
    setup(1, 2, 0);
    join(&a, "b");
    pass(14000); beat(&a); pass(14000); beat(&a); pass(2000);
    ck_assert_int_eq(a.rounds, 1);
    join(&b, "a");
    ck_assert_int_eq(a.stops, 1);
    say(&a, RDZV_JOIN, 0);
    ck_assert_int_eq(a.rounds, 2);
    /* The node of peer a keeps its group rank 0, although its host is named "b" and that of the
     * other node "a". */
    ck_assert_uint_eq(a.round.group_rank, 0);
    ck_assert_uint_eq(b.round.group_rank, 1);
    ck_assert_uint_eq(a.round.restart_count, 0);
}
END_TEST

/* Lets time pass second by second, with beats of all nodes. */
static void wait_with_beats(int64_t ms, struct peer *const *peers) {
    for (int64_t end = now + ms; now < end;) {
        pass(1000);
        for (struct peer *const *p = peers; *p != NULL; p++) beat(*p);
    }
}

START_TEST(waiting_nodes_are_told_why_at_growing_intervals) {
    struct peer a = {0}, b = {0};
    struct peer *const all[] = {&a, &b, NULL}, *const first[] = {&a, NULL};
    setup(3, 3, 0);
    join(&a, "a");
    wait_with_beats(4000, first);
    join(&b, "b");
    ck_assert_int_eq(a.waitings, 0);
    wait_with_beats(1000, all);
    ck_assert_int_eq(a.waitings, 1);
    ck_assert_int_eq(b.waitings, 0);
    ck_assert_int_eq(a.waiting.waited_ms, 5000);
    ck_assert_int_eq(a.waiting.left_ms, 595000);
    ck_assert_str_eq(a.why, "for more nodes: 2 of 3 are here: a, b; "
                            "start the others with the same endpoint and --rdzv-id");
    wait_with_beats(4000, all);
    ck_assert_int_eq(b.waitings, 1);
    wait_with_beats(126000, all); /* a has waited 135 s: 5, 15, 35, 75, 135 */
    ck_assert_int_eq(a.waitings, 5);
    wait_with_beats(59000, all);
    ck_assert_int_eq(a.waitings, 5);
    wait_with_beats(1000, all);
    ck_assert_int_eq(a.waitings, 6);
}
END_TEST

START_TEST(the_store_is_on_the_node_of_rank_0_if_it_offers_one) {
    struct peer a = {0}, b = {0};
    setup(2, 2, 1);
    defaults.store_port = 5001;
    join(&b, "b");
    defaults.store_port = 5000;
    join(&a, "a"); /* the names of the hosts decide: a gets rank 0 */
    ck_assert_uint_eq(a.round.group_rank, 0);
    ck_assert_uint_eq(a.round.master_port, 5000);
    ck_assert_uint_eq(b.round.master_port, 5000);
    ck_assert_int_eq(stores_opened, 0);
    say(&b, RDZV_FAILED, 0);
    say(&b, RDZV_JOIN, 0);
    defaults.store_port = 0; /* a offers no store, so the coordinator's host serves the store */
    say(&a, RDZV_JOIN, 0);
    ck_assert_uint_eq(a.round.master_port, 7001);
    ck_assert_int_eq(stores_opened, 1);
}
END_TEST

START_TEST(a_store_at_an_impossible_port_is_refused) {
    struct peer a = {0};
    setup(1, 1, 0);
    defaults.store_port = 65536;
    join(&a, "a");
    ck_assert_int_eq(a.refused, 1);
    ck_assert_str_eq(a.why, "cannot join with a store at port 65536");
}
END_TEST

START_TEST(missing_node_ranks_are_named) {
    struct peer a = {0};
    struct peer *const all[] = {&a, NULL};
    setup(20, 20, 0);
    defaults.fixed_ranks = 1;
    defaults.node_rank = 2;
    join(&a, "a");
    wait_with_beats(5000, all);
    ck_assert_str_eq(a.why, "for more nodes: 1 of 20 are here: a (node rank 2); "
                            "missing: node rank 0, 1, 3, 4, 5, 6, 7, 8, …; "
                            "start the others with the same endpoint and --rdzv-id");
}
END_TEST

START_TEST(a_spare_is_told_once) {
    struct peer a = {0}, spare = {0};
    struct peer *const all[] = {&a, &spare, NULL}, *const rest[] = {&spare, NULL};
    setup(1, 1, 0);
    join(&a, "a");
    join(&spare, "s");
    wait_with_beats(300000, all);
    ck_assert_int_eq(a.waitings, 0);
    ck_assert_int_eq(spare.waitings, 1);
    ck_assert_ptr_nonnull(strstr(spare.why, "as a spare"));
    ck_assert_int_eq(spare.waiting.left_ms, -1);
    lose(&a);
    wait_with_beats(1000, rest);
    ck_assert_int_eq(spare.rounds, 1);
    ck_assert_int_eq(spare.waitings, 1);
}
END_TEST

START_TEST(a_spare_steps_in_without_moving_ranks) {
    struct peer p[3] = {{0}}, spare = {0};
    setup(2, 3, 0);
    join(&p[0], "a");
    join(&p[1], "b");
    join(&p[2], "d");
    join(&spare, "0"); /* this host name would sort first if ranks were assigned anew */
    ck_assert_int_eq(spare.rounds + p[0].stops, 0);
    for (int i = 0; i < 100; i++) { /* 1000 s: a spare waits without a limit */
        pass(10000);
        for (int k = 0; k < 3; k++) beat(&p[k]);
        beat(&spare);
    }
    ck_assert_int_eq(spare.ends, 0);
    lose(&p[1]);
    ck_assert_int_eq(p[0].stops, 1);
    ck_assert_ptr_nonnull(strstr(p[0].why, "node 'b' (b, process 0) was lost"));
    say(&p[0], RDZV_JOIN, 0);
    say(&p[2], RDZV_JOIN, 0);
    ck_assert_int_eq(spare.rounds, 1);
    ck_assert_uint_eq(p[0].round.group_rank, 0);
    ck_assert_uint_eq(spare.round.group_rank, 1);
    ck_assert_uint_eq(p[2].round.group_rank, 2);
    ck_assert_uint_eq(p[2].round.restart_count, 0);
}
END_TEST

/* After the failure both nodes of the round join again. They are taken before the spares, although
 * the spares have joined earlier. */
START_TEST(after_a_failure_the_spare_stays_the_spare) {
    struct peer a = {0}, b = {0}, spare = {0}, second_spare = {0};
    setup(2, 2, 1);
    join(&a, "a");
    join(&b, "b");
    join(&spare, "0");
    pass(10);
    join(&second_spare, "00");
    say(&b, RDZV_FAILED, 0);
    say(&a, RDZV_JOIN, 0);
    /* No new round yet: b still has its seat, so the coordinator waits for b's JOIN. */
    ck_assert_int_eq(a.rounds + spare.rounds, 1);
    say(&b, RDZV_JOIN, 0);
    ck_assert_int_eq(a.rounds + b.rounds, 4);
    ck_assert_int_eq(spare.rounds + second_spare.rounds, 0);
    ck_assert_uint_eq(b.round.group_rank, 1);
    ck_assert_uint_eq(b.round.restart_count, 1);
    lose(&b); /* the first spare takes b's place */
    say(&a, RDZV_JOIN, 0);
    ck_assert_int_eq(spare.rounds, 1);
    ck_assert_int_eq(second_spare.rounds, 0);
}
END_TEST

START_TEST(a_node_that_returns_gets_its_rank_back) {
    struct peer a = {0}, b = {0}, d = {0};
    setup(2, 3, 0);
    join(&a, "a");
    join(&b, "b");
    join(&d, "d");
    lose(&a);
    say(&b, RDZV_JOIN, 0);
    say(&d, RDZV_JOIN, 0);
    pass(14000); beat(&b); beat(&d); pass(14000); beat(&b); beat(&d); pass(2000);
    ck_assert_uint_eq(b.round.group_world_size, 2);
    ck_assert_uint_eq(b.round.group_rank, 1);
    /* In a round of two nodes the group ranks are 0 and 1. Node b keeps 1. Node d had 2, so it
     * gets 0. */
    ck_assert_uint_eq(d.round.group_rank, 0);
    join(&a, "a");
    say(&b, RDZV_JOIN, 0);
    say(&d, RDZV_JOIN, 0);
    ck_assert_uint_eq(b.round.group_rank, 1);
    ck_assert_uint_eq(d.round.group_rank, 0);
    ck_assert_uint_eq(a.round.group_rank, 2);
}
END_TEST

START_TEST(success_needs_all_nodes_and_is_sent_to_spares) {
    struct peer a = {0}, b = {0}, spare = {0}, late = {0};
    setup(2, 2, 0);
    join(&a, "a");
    join(&b, "b");
    join(&spare, "s");
    say(&a, RDZV_SUCCEEDED, 0);
    ck_assert_int_eq(a.ends, 0);
    lose(&a); /* a's workers have ended well, so its loss ends no round */
    ck_assert_int_eq(b.stops, 0);
    say(&b, RDZV_SUCCEEDED, 0);
    ck_assert_uint_eq(b.outcome, RENDEZVOUS_SUCCEEDED);
    ck_assert_int_eq(b.ends + spare.ends, 2);
    ck_assert_uint_eq(spare.outcome, RENDEZVOUS_SUCCEEDED);
    join(&late, "z");
    ck_assert_ptr_null(late.seat);
    ck_assert_uint_eq(late.outcome, RENDEZVOUS_LOST);
    ck_assert_ptr_nonnull(strstr(late.why, "has ended and takes no more nodes"));
    ck_assert_ptr_nonnull(strstr(late.why, "start it 30 s (close_timeout) after that end"));
    ck_assert_ptr_nonnull(strstr(last_warning, "is refused, because the job has ended"));
    ck_assert(coordinator_deadline(c) == CR_FOREVER);
}
END_TEST

START_TEST(a_late_node_waits_while_the_job_ends_well) {
    struct peer a = {0}, b = {0}, late = {0};
    setup(2, 3, 0);
    join(&a, "a");
    join(&b, "b");
    pass(14000); beat(&a); beat(&b); pass(14000); beat(&a); beat(&b); pass(2000);
    ck_assert_int_eq(a.rounds, 1);
    say(&a, RDZV_SUCCEEDED, 0);
    join(&late, "z");
    ck_assert_int_eq(b.stops, 0);
    say(&b, RDZV_SUCCEEDED, 0);
    ck_assert_uint_eq(late.outcome, RENDEZVOUS_SUCCEEDED);
    ck_assert_int_eq(late.ends, 1);
}
END_TEST

START_TEST(a_timeout_names_the_nodes_that_came) {
    struct peer a = {0};
    setup(2, 2, 0);
    defaults.join_timeout_ms = 3000;
    join(&a, "alpha");
    pass(2999);
    ck_assert_int_eq(a.ends, 0);
    pass(1);
    ck_assert_int_eq(a.ends, 1);
    ck_assert_uint_eq(a.outcome, RENDEZVOUS_LOST);
    ck_assert_ptr_nonnull(strstr(a.why, "timed out after 3 s: 1 of at least 2 nodes came: alpha"));
    ck_assert_int_eq(a.hung_up, 1);
}
END_TEST

START_TEST(a_timeout_counts_the_nodes_that_gave_up_before) {
    struct peer a = {0}, b = {0};
    setup(3, 3, 0);
    defaults.join_timeout_ms = 3000;
    join(&a, "alpha");
    pass(2);
    join(&b, "beta");
    pass(2998);
    ck_assert_ptr_nonnull(strstr(a.why, "2 of at least 3 nodes came: alpha, beta; "));
    pass(2);
    ck_assert_ptr_nonnull(
        strstr(b.why, "2 of at least 3 nodes came: beta, and 1 that gave up before; "));
}
END_TEST

START_TEST(a_slow_stop_does_not_time_the_others_out) {
    struct peer a = {0}, b = {0};
    setup(2, 2, 1);
    defaults.join_timeout_ms = 3000;
    join(&a, "a");
    join(&b, "b");
    say(&b, RDZV_FAILED, 0);
    say(&a, RDZV_JOIN, 0);
    for (int i = 0; i < 3; i++) pass(10000), beat(&a), beat(&b);
    ck_assert_int_eq(a.ends, 0);
    say(&b, RDZV_JOIN, 0);
    ck_assert_int_eq(a.rounds, 2);
}
END_TEST

START_TEST(a_node_that_cannot_stop_its_workers_is_sent_away) {
    struct peer a = {0}, b = {0};
    setup(1, 2, 1);
    defaults.join_timeout_ms = 3000;
    defaults.last_call_timeout_ms = 0;
    join(&a, "a");
    pass(1);
    join(&b, "b");
    say(&a, RDZV_JOIN, 0);
    ck_assert_int_eq(b.rounds, 1);
    say(&b, RDZV_FAILED, a.round.round);
    say(&a, RDZV_JOIN, 0);
    for (int i = 0; i < 23; i++) pass(5000), beat(&a), beat(&b);
    ck_assert_int_eq(b.ends + a.ends, 0);
    pass(5000); /* 120 s have passed since STOP: the limit for stopping workers */
    ck_assert_int_eq(b.ends, 1);
    ck_assert_uint_eq(b.outcome, RENDEZVOUS_LOST);
    ck_assert_str_eq(b.why, "its workers could not be stopped for 120 s");
    ck_assert_int_eq(b.hung_up, 1);
    ck_assert_uint_eq(a.round.group_world_size, 1); /* node a goes on alone */
    ck_assert_uint_eq(a.round.restart_count, 1);
}
END_TEST

/* Each node has its own time limit to stop: the grace of a is longer than that of b, and b cannot
 * kill its workers. */
START_TEST(a_node_has_its_own_limit_for_stopping_its_workers) {
    struct peer a = {0}, b = {0}, spare = {0};
    setup(2, 2, 1);
    defaults.stop_limit_ms = 60000;
    join(&a, "a");
    defaults.stop_limit_ms = 20000;
    join(&b, "b"), join(&spare, "s");
    say(&b, RDZV_FAILED, 0);
    for (int i = 0; i < 4; i++) pass(4900), beat(&a), beat(&b), beat(&spare);
    ck_assert_int_eq(b.ends, 0);
    pass(400);
    ck_assert_int_eq(b.hung_up, 1);
    ck_assert_str_eq(b.why, "its workers could not be stopped for 20 s");
    ck_assert_ptr_nonnull(strstr(last_warning, "node 'b' (process 0) is left out: its workers"));
    ck_assert_int_eq(a.hung_up, 0);
    say(&a, RDZV_JOIN, 0);
    ck_assert_int_eq(spare.rounds, 1);
    ck_assert_uint_eq(a.round.restart_count, 1);
}
END_TEST

START_TEST(a_silent_node_is_lost_after_the_lease_and_a_second_look) {
    struct peer a = {0}, b = {0};
    setup(1, 2, 0);
    join(&a, "a");
    join(&b, "b");
    pass(10000);
    beat(&a);
    pass(4999);
    ck_assert_int_eq(b.hung_up, 0);
    /* b's lease is over: b is suspected, and counts as lost if it stays silent for 2 s more */
    pass(1);
    ck_assert_int_eq(b.hung_up, 0);
    beat(&a);
    pass(2000);
    ck_assert_int_eq(b.hung_up, 1);
    ck_assert_int_eq(a.stops, 1);
    ck_assert_ptr_nonnull(strstr(a.why, "nothing heard from it"));
}
END_TEST

START_TEST(a_coordinator_that_was_stopped_gives_up_no_node) {
    struct peer a = {0}, b = {0};
    setup(1, 2, 0);
    join(&a, "a");
    join(&b, "b");
    now += 3600000;
    /* as after a SIGSTOP: the timer runs before the waiting messages are read */
    coordinator_tick(c, now);
    beat(&a);
    beat(&b);
    pass(14000);
    ck_assert_int_eq(a.hung_up + b.hung_up + a.stops + b.stops, 0);
    now += 1000; /* the leases of both nodes are over: both are suspected */
    coordinator_tick(c, now);
    now += 3600000; /* the coordinator's process is stopped again between the two ticks */
    coordinator_tick(c, now);
    ck_assert_int_eq(a.hung_up + b.hung_up, 0);
}
END_TEST

/* b leaves, and a waits for the next round with a spare. Then a and b lose power. The round must
 * not form when b's lease ends, because a's lease ends at the same time. */
START_TEST(no_round_forms_with_a_node_whose_lease_is_over) {
    struct peer a = {0}, b = {0}, spare = {0};
    setup(2, 2, 0);
    join(&a, "a");
    join(&b, "b");
    join(&spare, "s");
    say(&b, RDZV_LEAVE, 0);
    say(&a, RDZV_JOIN, 0);
    pass_with_beats(20000, &spare, &spare);
    ck_assert_int_eq(a.hung_up + b.hung_up, 2);
    ck_assert_int_eq(spare.rounds, 0);
}
END_TEST

START_TEST(a_leaving_node_is_waited_for_until_it_hangs_up) {
    struct peer a = {0}, b = {0}, spare = {0};
    setup(2, 2, 0);
    join(&a, "a");
    join(&b, "b");
    join(&spare, "s");
    say(&b, RDZV_LEAVE, 0);
    ck_assert_ptr_nonnull(strstr(a.why, "node 'b' (b, process 0) leaves: signal 15"));
    say(&a, RDZV_JOIN, 0);
    /* LEAVE does not say that b's workers have ended. The next round waits until b is gone. */
    ck_assert_int_eq(spare.rounds, 0);
    lose(&b);
    ck_assert_int_eq(spare.rounds, 1);
    ck_assert_int_eq(a.rounds, 2);
}
END_TEST

/* A third node joins and leaves again and again. It has no workers that would have to be stopped,
 * so the other nodes must not wait longer for it than join_timeout. */
START_TEST(a_node_that_comes_and_goes_does_not_prolong_the_wait_of_others) {
    struct peer a = {0}, b = {0}, x = {0};
    setup(4, 4, 0);
    join(&a, "a");
    join(&b, "b");
    for (int i = 0; i < 6; i++) {
        join(&x, "x");
        pass_with_beats(50000, &a, &b);
        if (x.seat != NULL) say(&x, RDZV_LEAVE, 0);
        pass_with_beats(5000, &a, &b);
        if (x.seat != NULL) lose(&x);
        pass_with_beats(44000, &a, &b);
    }
    ck_assert_int_eq(a.ends + b.ends, 0); /* 594 s have passed */
    pass_with_beats(6000, &a, &b);
    ck_assert_int_eq(a.ends + b.ends, 2);
}
END_TEST

/* A waiting node that leaves has no workers, so the round need not wait until it is gone. */
START_TEST(a_round_does_not_wait_for_a_leaving_node_without_workers) {
    struct peer a = {0}, b = {0}, x = {0};
    setup(2, 2, 0);
    join(&x, "x");
    say(&x, RDZV_LEAVE, 0);
    join(&a, "a");
    join(&b, "b");
    ck_assert_int_eq(a.rounds + b.rounds, 2);
    ck_assert_int_eq(x.rounds, 0);
    lose(&x);
    ck_assert_int_eq(a.stops + b.stops, 0);
}
END_TEST

START_TEST(leaving_twice_gives_no_more_time) {
    struct peer a = {0}, b = {0};
    setup(2, 2, 0);
    join(&a, "a");
    join(&b, "b");
    say(&b, RDZV_LEAVE, 0);
    for (int i = 0; i < 59; i++) {
        pass(10000);
        beat(&a);
        say(&b, RDZV_LEAVE, 0);
    }
    ck_assert_int_eq(b.hung_up, 0);
    pass(10000);
    ck_assert_int_eq(b.hung_up, 1);
}
END_TEST

START_TEST(fixed_ranks_are_node_ranks_and_unique) {
    struct peer a = {0}, b = {0}, again = {0}, far = {0};
    setup(2, 2, 0);
    struct rdzv_join j = defaults;
    j.fixed_ranks = 1, j.host = "z", j.node_rank = 0, j.instance = 801;
    join_as(&a, &j);
    j.host = "y", j.instance = 802;
    join_as(&again, &j);
    ck_assert_int_eq(again.refused, 1);
    ck_assert_ptr_nonnull(strstr(again.why, "node rank 0: 'z'"));
    j.node_rank = 2, j.instance = 803;
    join_as(&far, &j);
    ck_assert_ptr_nonnull(strstr(far.why, "node ranks 0 to 1"));
    j.host = "a", j.node_rank = 1, j.instance = 804;
    join_as(&b, &j);
    ck_assert_uint_eq(a.round.group_rank, 0);
    ck_assert_uint_eq(b.round.group_rank, 1);
}
END_TEST

/* The machine of the node with node rank 1 has lost power. The node joins again before the lease of
 * its old seat is over. */
START_TEST(a_node_that_is_back_before_its_lease_is_over_waits_for_its_rank) {
    struct peer a = {0}, b = {0}, again = {0}, third = {0};
    setup(2, 2, 0);
    struct rdzv_join j = defaults;
    j.fixed_ranks = 1, j.host = "a", j.node_rank = 0, j.instance = 861;
    join_as(&a, &j);
    j.host = "b", j.node_rank = 1, j.instance = 862;
    join_as(&b, &j);
    pass(6000), beat(&a);
    j.instance = 863;
    join_as(&again, &j);
    ck_assert_int_eq(again.refused, 0);
    j.instance = 864;
    join_as(&third, &j); /* only one can wait */
    ck_assert_int_eq(third.refused, 1);
    for (int i = 0; i < 6; i++) pass(2000), beat(&a), beat(&again);
    ck_assert_int_eq(b.hung_up, 1);
    say(&a, RDZV_JOIN, 0);
    ck_assert_int_eq(again.rounds, 1);
    ck_assert_uint_eq(again.round.group_rank, 1);
    ck_assert_uint_eq(a.round.restart_count, 0);
}
END_TEST

START_TEST(a_second_node_with_a_rank_is_refused_when_the_first_one_is_heard) {
    struct peer a = {0}, b = {0}, mistake = {0}, again = {0};
    setup(2, 2, 0);
    struct rdzv_join j = defaults;
    j.fixed_ranks = 1, j.host = "a", j.node_rank = 0, j.instance = 871;
    join_as(&a, &j);
    j.instance = 872;
    join_as(&mistake, &j);
    ck_assert_int_eq(mistake.refused, 0);
    beat(&a);
    ck_assert_int_eq(mistake.refused, 1);
    ck_assert_int_eq(mistake.hung_up, 1);
    ck_assert_ptr_nonnull(strstr(mistake.why, "node rank 0: 'a' (process 0) has it"));
    j.instance = 873;
    join_as(&again, &j);
    lose(&again); /* it gives up while it waits */
    beat(&a);
    j.host = "b", j.node_rank = 1, j.instance = 874;
    join_as(&b, &j);
    ck_assert_int_eq(a.rounds + b.rounds, 2);
}
END_TEST

START_TEST(fixed_ranks_do_not_depend_on_the_order_of_joining) {
    static const int64_t order[] = {2, 0, 3, 1};
    static const char *const hosts[] = {"d", "b", "a", "c"};
    struct peer p[4] = {0}, again = {0};
    setup(4, 4, 0);
    struct rdzv_join j = defaults;
    j.fixed_ranks = 1;
    for (int i = 0; i < 4; i++) {
        j.host = hosts[i], j.node_rank = order[i], j.instance = 820 + (uint64_t) i;
        join_as(&p[i], &j);
    }
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(p[i].round.group_rank, order[i]);
        ck_assert_int_eq(p[i].round.first_rank, 2 * order[i]);
        ck_assert_uint_eq(p[i].round.world_size, 8);
    }
    lose(&p[2]);
    for (int i = 0; i < 4; i++) {
        if (i != 2) say(&p[i], RDZV_JOIN, 0);
    }
    j.host = "e", j.node_rank = 3, j.instance = 830;
    join_as(&again, &j);
    ck_assert_uint_eq(again.round.group_rank, 3);
    ck_assert_uint_eq(p[0].round.round, 1);
    ck_assert_uint_eq(p[0].round.group_rank, 2);
}
END_TEST

/* With fixed ranks, a node's group rank is the node rank that it asks for, and in every round each
 * node rank must occur once. This needs a fixed number of nodes: in a round of one node, the group
 * rank must be 0, but with 1 to 65536 nodes that node could have asked for 65535. */
START_TEST(fixed_ranks_need_one_number_of_nodes) {
    struct peer a = {0}, b = {0};
    setup(1, 65536, 0);
    struct rdzv_join j = defaults;
    j.fixed_ranks = 1, j.node_rank = 65535, j.last_call_timeout_ms = 0, j.instance = 841;
    join_as(&a, &j);
    ck_assert_int_eq(a.refused, 1);
    ck_assert_ptr_null(a.seat);
    ck_assert_str_eq(a.why, "cannot join with fixed ranks and 1:65536 nodes: fixed ranks need one "
                            "number of nodes");
    j.min_nodes = j.max_nodes = 1;
    join_as(&a, &j);
    ck_assert_str_eq(a.why, "cannot join as node rank 65535: the job has node ranks 0 to 0");
    /* the settings of a refused node do not become the job's */
    ck_assert_int_eq(phase(), COORDINATOR_EMPTY);
    j.node_rank = 0;
    join_as(&b, &j);
    ck_assert_int_eq(b.rounds, 1);
}
END_TEST

START_TEST(a_timeout_names_the_node_ranks_that_came) {
    struct peer a = {0}, b = {0};
    setup(3, 3, 0);
    defaults.join_timeout_ms = 3000;
    defaults.fixed_ranks = 1;
    struct rdzv_join j = defaults;
    j.host = "x", j.node_rank = 0, j.instance = 811;
    join_as(&a, &j);
    j.host = "y", j.node_rank = 2, j.instance = 812;
    join_as(&b, &j);
    pass(3000);
    ck_assert_ptr_nonnull(
        strstr(b.why, "2 of at least 3 nodes came: x (node rank 0), y (node rank 2); "));
}
END_TEST

static void count_seat(void *arg, const struct seat_view *seat) {
    ck_assert_ptr_nonnull(strchr("ab", seat->host[0]));
    ck_assert_uint_eq(seat->local_world_size, 2);
    ck_assert_int_eq(seat->group_rank, seat->host[0] - 'a');
    ck_assert_uint_eq(seat->first_rank, (uint32_t) (seat->host[0] - 'a') * 2);
    ++*(int *) arg;
}

START_TEST(the_view_shows_phase_seats_and_counts) {
    struct peer a = {0}, b = {0};
    struct coordinator_view v;
    int seats = 0;
    setup(2, 2, 3);
    join(&a, "a");
    coordinator_look(c, &v);
    ck_assert_uint_eq(v.awaited, 1);
    defaults.min_nodes = 1, defaults.max_nodes = 9, defaults.max_restarts = 7;
    join(&b, "b"); /* the job keeps the settings of its first node, not b's */
    coordinator_look(c, &v);
    ck_assert_uint_eq(v.min_nodes, 2);
    ck_assert_uint_eq(v.max_nodes, 2);
    ck_assert_uint_eq(v.max_restarts, 3);
    ck_assert_str_eq(last_warning,
                     "job 'job': node 'b' (process 0) differs from the job's first node, whose "
                     "settings count: --nnodes=1:9 (the job: 2:2), --max-restarts=7 (the job: 3)");
    ck_assert_str_eq(b.differs, "--nnodes=1:9 (the job: 2:2), --max-restarts=7 (the job: 3)");
    ck_assert_str_eq(a.differs, "");
    ck_assert_uint_eq(v.world_size, 4);
    ck_assert_uint_eq(v.awaited, 0);
    coordinator_visit(c, count_seat, &seats);
    ck_assert_int_eq(seats, 2);
    say(&a, RDZV_FAILED, 0);
    say(&b, RDZV_JOIN, 0);
    coordinator_look(c, &v);
    /* Node a is still stopping its workers, so the coordinator waits for a's JOIN. */
    ck_assert_uint_eq(v.awaited, 1);
}
END_TEST

START_TEST(other_settings_and_programs_are_named) {
    struct peer a = {0}, b = {0}, d = {0}, many = {0};
    setup(3, 4, 0);
    defaults.digest = 7, defaults.keep_alive_max_attempt = 4;
    join(&a, "a");
    defaults.digest = 8;
    join(&b, "b");
    ck_assert_str_eq(b.differs, "another program, or other arguments");
    defaults.role = "other"; /* another role may have another program */
    defaults.join_timeout_ms = 5500, defaults.keep_alive_max_attempt = 3;
    defaults.last_call_timeout_ms = 1000, defaults.change_notice_ms = 7000;
    join(&d, "d");
    ck_assert_str_eq(d.differs,
                     "join_timeout=5.5 (the job: 600), last_call_timeout=1 (the job: 30), lease=15 "
                     "(the job: 20), change_notice=7 (the job: 0)");
    ck_assert_str_eq(a.differs, "");
    for (int i = 0; i < 18; i++) join(&many, "m"), lose(&many);
    ck_assert_ptr_nonnull(strstr(last_warning, "; no more nodes are compared"));
    last_warning[0] = '\0';
    join(&many, "m");
    ck_assert_str_eq(last_warning, ""); /* no log line, but the node is sent the differences */
    ck_assert_ptr_nonnull(strstr(many.differs, "join_timeout"));
}
END_TEST

START_TEST(an_older_connection_never_ends_a_newer_one) {
    struct peer first = {0}, second = {0}, stale = {0};
    setup(2, 2, 0);
    struct rdzv_join j = defaults;
    j.host = "a", j.instance = 5, j.connection = 1;
    join_as(&first, &j);
    j.connection = 3;
    join_as(&second, &j);
    ck_assert_int_eq(first.hung_up, 1);
    j.connection = 2;
    join_as(&stale, &j);
    ck_assert_ptr_null(stale.seat);
    ck_assert_int_eq(second.hung_up, 0);
}
END_TEST

START_TEST(a_new_coordinator_goes_on_where_the_nodes_were) {
    struct peer a = {0}, b = {0};
    setup(2, 2, 5);
    struct rdzv_join j = defaults;
    j.host = "a", j.instance = 1, j.rounds_seen = 7, j.restarts_seen = 2, j.last_rank = 1;
    join_as(&a, &j);
    j.host = "b", j.instance = 2, j.rounds_seen = 6, j.restarts_seen = 1, j.last_rank = 0;
    join_as(&b, &j);
    /* no round yet: other nodes of round 6 can have running workers until the leases of those nodes
     * are over */
    ck_assert_int_eq(a.rounds, 0);
    pass_with_beats(17000, &a, &b);
    ck_assert_uint_eq(a.round.round, 7);
    ck_assert_uint_eq(a.round.restart_count, 2);
    ck_assert_uint_eq(a.round.group_rank, 1);
    ck_assert_uint_eq(b.round.group_rank, 0);
}
END_TEST

/* Returns the JOIN of a node that was in a round of the run `incarnation`, and has seen as many
 * rounds and restarts of that run as the arguments say. */
static struct rdzv_join remember(const char *host, uint64_t instance, uint64_t incarnation,
                                 uint64_t rounds, uint32_t restarts) {
    struct rdzv_join j = defaults;
    j.host = j.addr = host;
    j.instance = instance;
    j.incarnation = incarnation;
    j.rounds_seen = rounds;
    j.restarts_seen = restarts;
    j.last_rank = 0;
    return j;
}

START_TEST(every_run_has_an_incarnation_that_its_nodes_learn) {
    struct peer a = {0}, late = {0};
    setup(1, 1, 0);
    join(&a, "a");
    ck_assert_uint_eq(a.accepted.incarnation, 0); /* another one may still be taken over */
    ck_assert_uint_eq(a.round.incarnation, 101);
    join(&late, "b");
    ck_assert_uint_eq(late.accepted.incarnation, 101);
}
END_TEST

START_TEST(a_node_of_another_run_is_refused) {
    struct peer a = {0}, old = {0};
    struct coordinator_view v;
    setup(1, 2, 5);
    defaults.last_call_timeout_ms = 0;
    join(&a, "a");
    struct rdzv_join j = remember("yesterday", 77, 9, 30, 3);
    join_as(&old, &j);
    ck_assert_ptr_null(old.seat);
    ck_assert_str_eq(old.why, "this node was started for an earlier run of job 'job', and another "
                              "run has begun since; start this node again if it shall be part of "
                              "the new run");
    ck_assert_str_eq(last_warning, "job 'job': node 'yesterday' (process 0) is refused: it was "
                                   "started for an earlier run of this job");
    coordinator_look(c, &v);
    ck_assert_uint_eq(v.restart_count, 0);
    ck_assert_uint_eq(v.next_round, 1);
    ck_assert_int_eq(a.stops, 0);
}
END_TEST

START_TEST(a_new_coordinator_takes_over_the_run_of_its_nodes) {
    struct peer fresh = {0}, a = {0}, again = {0};
    setup(2, 2, 5);
    /* the coordinator draws incarnation 101, which incarnation 9 of node a replaces below */
    join(&fresh, "new");
    struct rdzv_join j = remember("a", 77, 9, 30, 3);
    join_as(&a, &j);
    pass_with_beats(17000, &a, &fresh);
    ck_assert_uint_eq(a.round.incarnation, 9);
    ck_assert_uint_eq(fresh.round.incarnation, 9);
    ck_assert_uint_eq(a.round.round, 30);
    ck_assert_uint_eq(a.round.restart_count, 3);
    j = remember("new", 78, 9, 31, 3);
    lose(&fresh);
    join_as(&again, &j);
    ck_assert_ptr_nonnull(again.seat);
}
END_TEST

/* Nodes of different runs (incarnations 8, 9 and 7) join at a new coordinator. The run with the
 * largest incarnation, the latest, goes on; nodes of the other runs are sent away. */
START_TEST(the_latest_run_is_taken_over) {
    struct peer old = {0}, a = {0}, b = {0}, older = {0};
    setup(2, 2, 5);
    struct rdzv_join j = remember("old", 70, 8, 40, 4);
    join_as(&old, &j);
    j = remember("a", 71, 9, 3, 1);
    join_as(&a, &j);
    ck_assert_int_eq(old.hung_up, 1);
    ck_assert_uint_eq(old.outcome, RENDEZVOUS_LOST);
    j = remember("older", 72, 7, 50, 5);
    join_as(&older, &j);
    ck_assert_ptr_null(older.seat);
    j = remember("b", 73, 9, 3, 1);
    join_as(&b, &j);
    pass_with_beats(17000, &a, &b);
    ck_assert_uint_eq(a.round.round, 3);
    ck_assert_uint_eq(b.round.restart_count, 1);
    ck_assert_uint_eq(b.round.incarnation, 9);
}
END_TEST

/* A node whose JOIN has no incarnation (0) has not shown that it was in a run of this job. So the
 * rounds and restarts that its JOIN contains are ignored. */
START_TEST(memories_without_a_run_do_not_count_later) {
    struct peer a = {0}, spare = {0};
    struct coordinator_view v;
    setup(1, 1, 3);
    join(&a, "a");
    struct rdzv_join j = remember("stranger", 77, 0, 1000, 3);
    join_as(&spare, &j);
    coordinator_look(c, &v);
    ck_assert_uint_eq(v.restart_count, 0);
    ck_assert_uint_eq(v.next_round, 1);
}
END_TEST

START_TEST(when_the_last_node_is_gone_the_next_run_starts_clean) {
    struct peer a = {0}, b = {0}, d = {0};
    setup(1, 1, 1);
    join(&a, "a");
    say(&a, RDZV_FAILED, 0), say(&a, RDZV_JOIN, 0);
    ck_assert_uint_eq(a.round.restart_count, 1);
    lose(&a);
    ck_assert_int_eq(phase(), COORDINATOR_EMPTY);
    ck_assert(coordinator_deadline(c) == CR_FOREVER);
    defaults.min_nodes = defaults.max_nodes = 2;
    join(&b, "b"), join(&d, "a");
    ck_assert_uint_eq(b.round.group_world_size, 2);
    ck_assert_uint_eq(b.round.round, 0);
    ck_assert_uint_eq(b.round.restart_count, 0);
    ck_assert_uint_eq(b.round.incarnation, 102);
    say(&b, RDZV_FAILED, 0);
    say(&b, RDZV_JOIN, 0), say(&d, RDZV_JOIN, 0);
    ck_assert_uint_eq(b.round.restart_count, 1);
}
END_TEST

/* A spare learns the incarnation of the run, but no round. When all nodes are gone and the spare
 * comes back, the run goes on, and each of its rounds still has a number of its own. */
START_TEST(the_rounds_of_a_run_that_was_discarded_keep_their_numbers) {
    struct peer a = {0}, spare = {0}, again = {0}, fresh = {0}, late = {0};
    setup(1, 1, 3);
    join(&a, "a"), join(&spare, "b");
    ck_assert_uint_eq(a.round.round, 0);
    ck_assert_uint_eq(spare.accepted.incarnation, 101);
    ck_assert_int_eq(spare.rounds, 0);
    lose(&spare), lose(&a);
    ck_assert_int_eq(phase(), COORDINATOR_EMPTY);
    struct rdzv_join j = defaults;
    j.host = j.addr = "b", j.instance = 900, j.incarnation = 101;
    join_as(&again, &j);
    ck_assert_uint_eq(again.round.incarnation, 101);
    ck_assert_uint_eq(again.round.round, 1);
    lose(&again);
    join(&fresh, "d"); /* a node of no run begins a run, and its rounds begin at 0 */
    ck_assert_uint_eq(fresh.round.incarnation, 102);
    ck_assert_uint_eq(fresh.round.round, 0);
    lose(&fresh);
    j.instance = 901;
    join_as(&late, &j); /* a node of the earlier run comes after that */
    ck_assert_uint_eq(late.round.incarnation, 101);
    ck_assert_uint_eq(late.round.round, 2);
}
END_TEST

START_TEST(memories_of_no_possible_job_are_refused) {
    struct peer a = {0}, b = {0}, far = {0};
    setup(1, 1, 5);
    struct rdzv_join j = defaults;
    j.host = "a", j.instance = 1, j.rounds_seen = UINT64_MAX;
    join_as(&a, &j);
    ck_assert_str_eq(a.why, "cannot join after 18446744073709551615 rounds: no job has more than "
                            "4294967296");
    j.rounds_seen = 0, j.restarts_seen = 6;
    join_as(&a, &j);
    ck_assert_str_eq(a.why, "cannot join after 6 restarts: the job has at most 5; give every node "
                            "the same --max-restarts");
    ck_assert_int_eq(phase(), COORDINATOR_EMPTY);
    j.rounds_seen = UINT64_C(1) << 32, j.restarts_seen = 5;
    join_as(&b, &j);
    pass_with_beats(17000, &b, &b);
    ck_assert_uint_eq(b.round.round, UINT64_C(1) << 32);
    ck_assert_uint_eq(b.round.restart_count, 5);
    /* the job has a limit of 5 restarts; this node's limit of 9 has no effect */
    j.instance = 2, j.max_restarts = 9, j.restarts_seen = 9;
    join_as(&far, &j);
    ck_assert_int_eq(far.refused, 1);
    j.instance = 1, j.connection = 1, j.restarts_seen = 5, j.rounds_seen = b.round.round + 1;
    join_as(&a, &j); /* accepted: 5 restarts are not more than the job's limit */
    ck_assert_uint_eq(a.round.round, (UINT64_C(1) << 32) + 1);
}
END_TEST

/* A node of a later run makes the coordinator send the only node of an earlier run away. The later
 * run begins with this node, so the limits of the run are those of this node's JOIN. */
START_TEST(memories_are_checked_against_the_settings_that_count) {
    struct peer a = {0}, later = {0};
    setup(2, 2, 5);
    struct rdzv_join j = defaults;
    j.host = "a", j.instance = 1, j.incarnation = 101, j.max_restarts = 5;
    join_as(&a, &j);
    j.host = "b", j.instance = 2, j.incarnation = 102, j.max_restarts = 1;
    j.rounds_seen = j.restarts_seen = 5;
    join_as(&later, &j);
    ck_assert_str_eq(later.why, "cannot join after 5 restarts: the job has at most 1; give every "
                                "node the same --max-restarts");
    ck_assert_int_eq(phase(), COORDINATOR_EMPTY);
}
END_TEST

START_TEST(bad_joins_and_messages_are_refused) {
    struct peer a = {0};
    struct cr_error err = {0};
    setup(1, 1, 0);
    struct rdzv_join j = defaults;
    j.min_nodes = 2;
    join_as(&a, &j);
    ck_assert_ptr_null(a.seat);
    j = defaults, j.local_world_size = 0;
    join_as(&a, &j);
    j = defaults, j.keep_alive_interval_ms = INT64_MAX;
    join_as(&a, &j);
    j = defaults, j.join_timeout_ms = -1;
    join_as(&a, &j);
    ck_assert_int_eq(a.refused, 4);
    ck_assert_int_eq(phase(), COORDINATOR_EMPTY);
    join(&a, "a");
    struct rdzv_message m = {.type = RDZV_JOIN};
    m.join = defaults;
    ck_assert_int_eq(coordinator_receive(c, now, a.seat, &m, &err), -EPROTO);
    ck_assert_str_eq(err.text, "a JOIN message came from a node that is RUNNING");
    m.type = RDZV_STOP;
    m.stop.why = "";
    ck_assert_int_eq(coordinator_receive(c, now, a.seat, &m, &err), -EPROTO);
}
END_TEST

START_TEST(opening_a_store_is_tried_again) {
    struct peer a = {0};
    setup(1, 1, 0);
    store_error = -EMFILE;
    join(&a, "a");
    ck_assert_ptr_nonnull(strstr(last_warning, "trying again for 60 s: no store today"));
    pass(99);
    store_error = 0;
    beat(&a); /* no other event makes a try come sooner */
    ck_assert_int_eq(a.rounds, 0);
    pass(1);
    ck_assert_int_eq(a.rounds, 1);
    store_error = -EMFILE; /* the next failure has its own minute */
    say(&a, RDZV_LEAVE, 0), lose(&a);
}
END_TEST

START_TEST(a_store_that_cannot_open_ends_the_job) {
    struct peer a = {0};
    setup(1, 1, 0);
    store_error = -EMFILE;
    join(&a, "a");
    for (int i = 0; i < 59; i++) pass(1000), beat(&a);
    ck_assert_int_eq(a.ends, 0);
    for (int i = 0; i < 5; i++) pass(1000), beat(&a);
    ck_assert_uint_eq(a.outcome, RENDEZVOUS_LOST);
    ck_assert_ptr_nonnull(strstr(a.why, "no store today"));
}
END_TEST

/* Brings the coordinator to this state: nodes a and b run in a job of two or three nodes. If a
 * third node joins, running workers get 10 s (change_notice_ms) before the next round begins. */
static void run_two(struct peer *a, struct peer *b) {
    setup(2, 3, 0);
    defaults.change_notice_ms = 10000;
    defaults.last_call_timeout_ms = 1000;
    join(a, "a");
    join(b, "b");
    pass(1000);
    ck_assert_int_eq(a->rounds + b->rounds, 2);
}

START_TEST(a_joining_node_is_announced_and_all_stop_after_the_agreed_step) {
    struct peer a = {0}, b = {0}, d = {0};
    run_two(&a, &b);
    join(&d, "d");
    ck_assert_int_eq(a.changes + b.changes, 2);
    ck_assert_int_eq(d.changes, 0);
    ck_assert_uint_eq(a.change.kind, RENDEZVOUS_CHANGE_JOIN);
    ck_assert_uint_eq(a.change.id, 1);
    ck_assert_uint_eq(a.change.round, 0);
    ck_assert_int_eq(a.change.left_ms, 10000);
    ck_assert_str_eq(a.why, "1 more node(s) joined");
    answer(&a, 41, 0);
    ck_assert_int_eq(a.sets, 0); /* no agreed step yet: b may have made more steps than a */
    pass(100);
    answer(&b, 42, 0);
    ck_assert_int_eq(a.sets + b.sets, 2);
    ck_assert_uint_eq(a.at.step, 43);
    ck_assert_uint_eq(b.at.step, 43);
    ck_assert_int_eq(b.at.left_ms, 9900);
    ready(&a);
    ready(&a);
    ck_assert_int_eq(a.stops, 0);
    ready(&b);
    ck_assert_int_eq(a.stops + b.stops, 2);
    say(&a, RDZV_JOIN, 0);
    say(&b, RDZV_JOIN, 0);
    ck_assert_int_eq(d.rounds, 1);
    ck_assert_uint_eq(d.round.group_world_size, 3);
    ck_assert_uint_eq(d.round.restart_count, 0);
}
END_TEST

START_TEST(without_counted_steps_a_change_takes_place_at_once) {
    struct peer a = {0}, b = {0}, d = {0};
    run_two(&a, &b);
    join(&d, "d");
    answer(&a, -1, 0);
    ck_assert_int_eq(a.stops, 0);
    answer(&b, -1, 0);
    ck_assert_int_eq(a.sets + b.sets, 0);
    ck_assert_int_eq(a.stops + b.stops, 2);
}
END_TEST

START_TEST(a_node_without_counted_steps_is_not_waited_for) {
    struct peer a = {0}, b = {0}, d = {0};
    run_two(&a, &b);
    join(&d, "d");
    answer(&a, -1, 0);
    answer(&b, 7, 0);
    ck_assert_uint_eq(a.at.step, 8); /* a lets workers go that hold at their first step */
    ck_assert_uint_eq(b.at.step, 8);
    ready(&b);
    ck_assert_int_eq(a.stops + b.stops, 2);
}
END_TEST

/* The agreed step is the first one in the first run of this test, then the second one. */
START_TEST(all_nodes_are_waited_for_in_an_early_change) {
    struct peer a = {0}, b = {0}, d = {0};
    run_two(&a, &b);
    join(&d, "d");
    answer(&a, -1, 0); /* no worker of a has made a step, or none has connected yet */
    answer(&b, _i, 0);
    ck_assert_int_eq(a.sets + b.sets, 2);
    ck_assert_uint_eq(a.at.step, (uint64_t) _i + 1);
    ready(&b);
    ck_assert_int_eq(a.stops, 0);
    ready(&a);
    ck_assert_int_eq(a.stops + b.stops, 2);
}
END_TEST

START_TEST(a_change_is_over_when_its_time_is_up) {
    struct peer a = {0}, b = {0}, d = {0};
    run_two(&a, &b);
    join(&d, "d");
    answer(&a, 5, 0); /* b never answers */
    pass(9999);
    ck_assert_int_eq(a.stops, 0);
    pass(1);
    ck_assert_int_eq(a.stops + b.stops, 2);
    ck_assert_int_eq(a.sets + b.sets, 0);
}
END_TEST

START_TEST(a_node_that_never_gets_ready_is_stopped_with_the_others) {
    struct peer a = {0}, b = {0}, d = {0};
    run_two(&a, &b);
    join(&d, "d");
    answer(&a, 5, 0);
    answer(&b, 5, 0);
    ready(&a);
    pass(9999);
    ck_assert_int_eq(a.stops, 0);
    pass(1);
    ck_assert_int_eq(a.stops + b.stops, 2);
}
END_TEST

START_TEST(needed_time_extends_only_the_change_for_a_joining_node) {
    struct peer a = {0}, b = {0}, d = {0};
    run_two(&a, &b);
    join(&d, "d");
    answer(&a, 5, 12000);
    answer(&b, 5, 0);
    ck_assert_int_eq(a.at.left_ms, 12000);
    pass(11999);
    ck_assert_int_eq(a.stops, 0);
    pass(1);
    ck_assert_int_eq(a.stops, 1);
}
END_TEST

START_TEST(a_late_answer_does_not_extend_an_extension) {
    struct peer a = {0}, b = {0}, d = {0};
    run_two(&a, &b);
    join(&d, "d");
    answer(&a, 5, 12000);
    pass(11000), beat(&a), beat(&b);
    answer(&b, 5, 12000);
    ck_assert_int_eq(a.at.left_ms, 1000);
    pass(1000);
    ck_assert_int_eq(a.stops, 1);
}
END_TEST

START_TEST(needs_are_bounded_by_the_join_timeout) {
    struct peer a = {0}, b = {0}, d = {0};
    run_two(&a, &b);
    join(&d, "d");
    answer(&a, INT64_MAX, INT64_MAX);
    answer(&b, INT64_MIN, INT64_MIN);
    ck_assert_int_eq(a.at.left_ms, defaults.join_timeout_ms);
    ready(&a);
    ck_assert_int_eq(a.stops, 1);
}
END_TEST

START_TEST(a_node_with_notice_costs_no_restart) {
    struct peer a = {0}, b = {0}, d = {0};
    setup(2, 3, 0);
    join(&a, "a");
    join(&b, "b");
    join(&d, "d");
    give_notice(&d, RENDEZVOUS_CHANGE_PREEMPTION, 5000);
    ck_assert_int_eq(a.changes + b.changes + d.changes, 3);
    ck_assert_uint_eq(a.change.kind, RENDEZVOUS_CHANGE_PREEMPTION);
    ck_assert_int_eq(a.change.left_ms, 5000);
    ck_assert_ptr_nonnull(strstr(a.why, "node 'd' (d, process 0) leaves: spot"));
    answer(&a, 3, 60000); /* a needs 60 s, but nothing extends the time of a node that leaves */
    answer(&b, 3, 0);
    answer(&d, 4, 0);
    ck_assert_int_eq(d.at.left_ms, 5000);
    ck_assert_uint_eq(a.at.step, 5);
    ready(&a), ready(&b), ready(&d);
    ck_assert_int_eq(a.stops + b.stops + d.stops, 3);
    say(&a, RDZV_JOIN, 0);
    say(&b, RDZV_JOIN, 0);
    say(&d, RDZV_LEAVE, 0);
    lose(&d);
    pass(14000), beat(&a), beat(&b), pass(14000), beat(&a), beat(&b), pass(2000);
    ck_assert_int_eq(a.rounds, 2);
    ck_assert_uint_eq(a.round.group_world_size, 2);
    ck_assert_uint_eq(a.round.restart_count, 0);
}
END_TEST

START_TEST(a_node_of_a_one_node_job_may_give_notice) {
    struct peer a = {0};
    setup(1, 1, 0);
    join(&a, "a");
    give_notice(&a, RENDEZVOUS_CHANGE_MAINTENANCE, 5000);
    answer(&a, 9, 0);
    ck_assert_uint_eq(a.at.step, 10);
    ready(&a);
    ck_assert_int_eq(a.stops, 1);
}
END_TEST

START_TEST(a_notice_only_shortens_the_change_for_a_joining_node) {
    struct peer a = {0}, b = {0}, d = {0};
    run_two(&a, &b);
    join(&d, "d");
    answer(&a, 5, 0);
    give_notice(&b, RENDEZVOUS_CHANGE_LEAVE, 2000);
    ck_assert_int_eq(a.changes, 1);
    answer(&b, 5, 30000); /* b needs 30 s, but the notice leaves only 2 s */
    ck_assert_int_eq(a.at.left_ms, 2000);
    pass(1999);
    ck_assert_int_eq(a.stops, 0);
    pass(1);
    ck_assert_int_eq(a.stops, 1);
}
END_TEST

START_TEST(a_failure_or_a_loss_takes_precedence) {
    struct peer a = {0}, b = {0}, d = {0};
    setup(2, 3, 1);
    defaults.change_notice_ms = 10000;
    defaults.last_call_timeout_ms = 1000;
    join(&a, "a"), join(&b, "b");
    pass(1000);
    join(&d, "d");
    answer(&a, 5, 0), answer(&b, 5, 0);
    say(&b, RDZV_FAILED, 0);
    ck_assert_int_eq(a.stops, 1);
    ck_assert_str_eq(a.why, "rank 3 on b: exit code 7");
    ready(&a); /* READY for a change that has ended already is ignored */
    say(&a, RDZV_JOIN, 0), say(&b, RDZV_JOIN, 0);
    ck_assert_uint_eq(a.round.restart_count, 1);
    ck_assert_uint_eq(a.round.group_world_size, 3);
    ck_assert_int_eq(a.changes, 1);
    give_notice(&d, RENDEZVOUS_CHANGE_LEAVE, 5000);
    ck_assert_uint_eq(a.change.id, 2);
    answer(&a, 1, 0);
    lose(&b);
    ck_assert_int_eq(a.stops, 2);
    ck_assert_int_eq(a.sets, 1);
}
END_TEST

START_TEST(a_joining_node_that_goes_again_does_not_leave_the_change_open) {
    struct peer a = {0}, b = {0}, d = {0};
    run_two(&a, &b);
    join(&d, "d");
    answer(&a, 5, 0), answer(&b, 5, 0);
    lose(&d);
    ready(&a), ready(&b);
    say(&a, RDZV_JOIN, 0), say(&b, RDZV_JOIN, 0);
    ck_assert_int_eq(a.rounds, 2); /* the round forms at once, because no other node is expected */
    ck_assert_uint_eq(a.round.group_world_size, 2);
}
END_TEST

START_TEST(two_joining_nodes_are_one_change) {
    struct peer a = {0}, b = {0}, d = {0}, e = {0};
    setup(2, 4, 0);
    defaults.change_notice_ms = 10000;
    defaults.last_call_timeout_ms = 1000;
    join(&a, "a"), join(&b, "b");
    pass(1000);
    join(&d, "d");
    answer(&a, 5, 0);
    join(&e, "e");
    ck_assert_int_eq(a.changes, 1);
    answer(&b, 5, 0);
    ready(&a), ready(&b);
    say(&a, RDZV_JOIN, 0), say(&b, RDZV_JOIN, 0);
    ck_assert_uint_eq(e.round.group_world_size, 4);
}
END_TEST

START_TEST(answers_to_another_change_do_not_count) {
    struct peer a = {0}, b = {0}, d = {0};
    run_two(&a, &b);
    a.change.id = 7;
    answer(&a, 5, 0), ready(&a);
    ck_assert_int_eq(phase(), COORDINATOR_RUNNING);
    join(&d, "d");
    b.change.id = 7;
    answer(&a, -1, 0), answer(&b, -1, 0);
    ck_assert_int_eq(a.stops, 0);
    b.change.id = 1;
    answer(&d, 99, 0); /* ignored: d is not in the round */
    answer(&b, -1, 0);
    ck_assert_int_eq(a.stops, 1);
}
END_TEST

START_TEST(notices_from_outside_the_round_change_nothing) {
    struct peer a = {0}, b = {0};
    setup(2, 2, 0);
    defaults.change_notice_ms = 10000;
    struct peer d = {0};
    join(&a, "a"), join(&b, "b"), join(&d, "d");
    /* d is a spare, so its notice makes no change */
    give_notice(&d, RENDEZVOUS_CHANGE_LEAVE, 5000);
    say(&b, RDZV_SUCCEEDED, 0);
    /* b's workers have ended, so b's notice makes no change */
    give_notice(&b, RENDEZVOUS_CHANGE_LEAVE, 5000);
    ck_assert_int_eq(a.changes + b.changes + d.changes, 0);
    say(&a, RDZV_SUCCEEDED, 0);
    ck_assert_uint_eq(b.outcome, RENDEZVOUS_SUCCEEDED);
}
END_TEST

START_TEST(a_node_that_succeeds_meanwhile_is_not_waited_for) {
    struct peer a = {0}, b = {0}, d = {0};
    run_two(&a, &b);
    join(&d, "d");
    answer(&a, 5, 0);
    say(&b, RDZV_SUCCEEDED, 0); /* sent before b has received CHANGE */
    ck_assert_uint_eq(a.at.step, 6);
    ck_assert_int_eq(b.sets, 0);
    say(&a, RDZV_SUCCEEDED, 0); /* a's workers end with success before the agreed step */
    ck_assert_int_eq(phase(), COORDINATOR_ENDED);
    ck_assert_uint_eq(d.outcome, RENDEZVOUS_SUCCEEDED);
}
END_TEST

/* ---- the right to form rounds ---- */

static bool is_held(void) {
    struct coordinator_view v;
    coordinator_look(c, &v);
    return v.is_held;
}

START_TEST(without_the_right_a_round_goes_on_and_none_begins) {
    struct peer a = {0}, b = {0};
    setup(2, 2, 1);
    join(&a, "a");
    join(&b, "b");
    ck_assert_int_eq(a.rounds, 1);
    coordinator_may_form(c, now, 0);
    for (int i = 0; i < 20; i++) {
        pass(5000);
        beat(&a);
        beat(&b);
    }
    ck_assert_int_eq(a.stops + b.stops, 0);
    say(&a, RDZV_FAILED, 0);
    ck_assert_int_eq(b.stops, 1);
    say(&a, RDZV_JOIN, 0);
    ck_assert(!is_held());
    say(&b, RDZV_JOIN, 0);
    ck_assert(is_held());
    pass(1000);
    ck_assert_int_eq(a.rounds, 1);
    coordinator_may_form(c, now, CR_FOREVER);
    ck_assert(!is_held());
    ck_assert_int_eq(a.rounds + b.rounds, 4);
    ck_assert_uint_eq(a.round.restart_count, 1);
}
END_TEST

/* The process of the coordinator stands still until its right to form rounds has ended, so another
 * coordinator may be elected meanwhile. The first event after the standstill is a JOIN, which comes
 * before the election notices that the right has ended. */
START_TEST(after_a_standstill_no_round_forms_by_a_right_that_has_ended) {
    struct peer a = {0}, b = {0};
    setup(2, 2, 1);
    coordinator_may_form(c, now, now + 1000);
    join(&a, "a");
    now += 1000;
    join(&b, "b");
    ck_assert(is_held());
    ck_assert_int_eq(a.rounds + b.rounds, 0);
    coordinator_may_form(c, now, now + 1000);
    ck_assert_int_eq(a.rounds + b.rounds, 2);
}
END_TEST

/* The process of the coordinator stands still until its right to form rounds has ended. The first
 * event after that is the loss of a node. Another coordinator may be elected by then, so STOP
 * must give the workers at most one lease. */
START_TEST(after_a_standstill_workers_get_one_lease_to_stop) {
    struct peer a = {0}, b = {0};
    setup(2, 2, 1);
    coordinator_may_form(c, now, now + 1000);
    join(&a, "a");
    join(&b, "b");
    now += 1000;
    lose(&a);
    ck_assert_int_eq(b.stops, 1);
    ck_assert_int_eq(b.stop_limit, 15000);
}
END_TEST

/* The coordinator has lost its right to form rounds, so another coordinator can be elected. A new
 * coordinator waits for one lease before it forms a round, so STOP must give the workers of the old
 * round at most one lease. */
START_TEST(without_the_right_workers_get_one_lease_to_stop) {
    struct peer a = {0}, b = {0};
    setup(2, 2, 2);
    join(&a, "a");
    join(&b, "b");
    say(&a, RDZV_FAILED, 0);
    ck_assert_int_eq(b.stop_limit, 0);
    say(&a, RDZV_JOIN, 0);
    say(&b, RDZV_JOIN, 0);
    coordinator_may_form(c, now, 0);
    say(&a, RDZV_FAILED, 1);
    ck_assert_int_eq(b.stops, 2);
    ck_assert_int_eq(b.stop_limit, 15000);
    ck_assert_int_eq(a.stop_limit, 15000); /* also the node whose worker has failed */
    coordinator_may_form(c, now, CR_FOREVER);
    say(&a, RDZV_JOIN, 0);
    say(&b, RDZV_JOIN, 0);
    coordinator_may_form(c, now, 0);
    a.stop_limit = b.stop_limit = 0;
    say(&a, RDZV_LEAVE, 0);
    ck_assert_int_eq(b.stop_limit, 15000);
    ck_assert_int_eq(a.stop_limit, 15000); /* also the node that leaves */
}
END_TEST

START_TEST(who_follows_another_waits_for_its_round) {
    struct peer a = {0}, b = {0};
    setup(2, 2, 2);
    coordinator_follows_another(c);
    join(&a, "a");
    join(&b, "b");
    for (int i = 0; i < 6; i++) {
        pass(5500);
        beat(&a);
        beat(&b);
    }
    ck_assert_int_eq(a.rounds, 0);
    /* 34 s have passed: more than two leases of 15 s each, on clocks that differ by up to 1/8 */
    pass(1000);
    ck_assert_int_eq(a.rounds, 1);
    say(&a, RDZV_FAILED, 0); /* the coordinator waits before its first round only */
    say(&a, RDZV_JOIN, 0);
    say(&b, RDZV_JOIN, 0);
    ck_assert_int_eq(a.rounds, 2);
}
END_TEST

START_TEST(without_the_right_no_node_is_let_in) {
    struct peer a = {0}, b = {0};
    setup(1, 2, 0);
    defaults.last_call_timeout_ms = 1;
    join(&a, "a");
    pass(1);
    ck_assert_int_eq(a.rounds, 1);
    coordinator_may_form(c, now, 0);
    join(&b, "b");
    pass(4000);
    ck_assert_int_eq(a.stops, 0);
    coordinator_may_form(c, now, CR_FOREVER);
    ck_assert_int_eq(a.stops, 1);
}
END_TEST

/* A coordinator that stands by closes all connections, so its nodes are lost. The loss of these
 * nodes must not excuse a failure that was reported before it. */
START_TEST(who_stands_by_remembers_the_restart) {
    struct peer a = {0}, b = {0};
    setup(2, 2, 2);
    join(&a, "a");
    join(&b, "b");
    coordinator_may_form(c, now, 0);
    say(&a, RDZV_FAILED, 0);
    say(&a, RDZV_JOIN, 0);
    say(&b, RDZV_JOIN, 0);
    ck_assert(is_held());
    coordinator_stand_by(c);
    lose(&a);
    lose(&b);
    pass(60000);
    coordinator_may_form(c, now, CR_FOREVER);
    join(&a, "a");
    join(&b, "b");
    ck_assert_int_eq(a.rounds, 2);
    ck_assert_uint_eq(a.round.restart_count, 1);
}
END_TEST

START_TEST(an_order_reaches_the_nodes_of_its_host) {
    struct peer a = {0}, b = {0};
    run_two(&a, &b);
    struct rdzv_operate o = {.run_id = "job", .host = "b", .kind = RENDEZVOUS_CHANGE_MAINTENANCE,
                             .left_ms = 7000, .why = "fans"};
    ck_assert_uint_eq(coordinator_operate(c, now, &o), 1);
    ck_assert_int_eq(a.notices, 0);
    ck_assert_int_eq(b.notices, 1);
    ck_assert_int_eq(b.notice.left_ms, 7000);
    ck_assert_uint_eq(b.notice.kind, RENDEZVOUS_CHANGE_MAINTENANCE);
    ck_assert_int_eq(b.changes, 0); /* no change yet: b itself must give the notice */
    o = (struct rdzv_operate){.run_id = "job", .host = "", .why = "slow"};
    ck_assert_uint_eq(coordinator_operate(c, now, &o), 2);
    ck_assert_int_eq(a.dumps + b.dumps, 2);
    o.host = "c";
    ck_assert_uint_eq(coordinator_operate(c, now, &o), 0);
    ck_assert_uint_eq(coordinator_inspect(c, "", 5, "hangs"), 2);
    ck_assert_uint_eq(coordinator_inspect(c, "b", 7, "hangs"), 1);
    ck_assert_int_eq(a.inspections, 5);
    ck_assert_int_eq(b.inspections, 12);
}
END_TEST

static void tell(struct peer *p, uint32_t rank, uint32_t state, uint32_t begun, uint32_t is_last) {
    struct rdzv_message m = {.type = RDZV_PROGRESS};
    m.progress = (struct rdzv_progress){
        .inquiry = p->inquiry, .is_last = is_last, .rank = rank, .name = "world", .op = "barrier",
        .place = rank, .size = 4, .state = state, .begun = begun, .seq = begun - 1,
        .since_ms = 2000};
    ck_assert_int_eq(coordinator_receive(c, now, p->seat, &m, NULL), 0);
}

START_TEST(an_inquiry_names_the_rank_that_is_behind) {
    struct peer a = {0}, b = {0};
    run_two(&a, &b);
    struct rdzv_message m = {.type = RDZV_INQUIRE};
    m.inquire.round = a.round.round;
    ck_assert_int_eq(coordinator_receive(c, now, a.seat, &m, NULL), 0);
    ck_assert_uint_ne(a.inquiry, 0);
    ck_assert_uint_eq(a.inquiry, b.inquiry);
    tell(&a, 0, RENDEZVOUS_WAITS_COLLECTIVE, 17, 0);
    tell(&a, 1, RENDEZVOUS_WAITS_COLLECTIVE, 17, 0);
    tell(&a, 0, 0, 0, 1);
    ck_assert_int_eq(a.findings, 0); /* b has not answered */
    tell(&b, 2, RENDEZVOUS_WAITS_COLLECTIVE, 17, 0);
    tell(&b, 3, RENDEZVOUS_IDLE, 16, 0);
    tell(&b, 0, 0, 0, 1);
    ck_assert_int_eq(a.findings, 1);
    ck_assert_int_eq(b.findings, 1);
    ck_assert_str_eq(b.why, "rank 3 has not entered barrier #16 of group 'world', in which 3 ranks "
                            "wait, rank 0 for 2.0 s");
    tell(&b, 3, RENDEZVOUS_IDLE, 16, 1); /* too late: no inquiry is open */
    ck_assert_int_eq(b.findings, 1);
}
END_TEST

/* The node of `p`, whose first rank is `first`, says how many steps its two workers have made. */
static void tell_steps(struct peer *p, uint32_t first, uint64_t one, uint64_t two) {
    struct rdzv_message m = {.type = RDZV_RANK};
    for (uint32_t i = 0; i < 2; i++) {
        m.rank = (struct rdzv_rank){.round = p->round.round, .rank = first + i, .local_rank = i,
                                    .state = "running", .kernel_state = "S", .last_line = "",
                                    .steps = i == 0 ? one : two};
        ck_assert_int_eq(coordinator_receive(c, now, p->seat, &m, NULL), 0);
    }
}

/* Starts a round of two nodes with four ranks, in a job that has the rule about slow ranks, with
 * windows of 10 s. After each window the nodes say how many steps their workers have made, and 1 s
 * later the coordinator has compared these numbers. */
static void run_with_rule(struct peer *a, struct peer *b, uint32_t min_nodes, int64_t notice_ms) {
    setup(min_nodes, 2, 0);
    defaults.last_call_timeout_ms = 1000;
    defaults.slow_percent = 50;
    defaults.slow_ms = 10000;
    defaults.slow_notice_ms = notice_ms;
    join(a, "a");
    join(b, "b");
    ck_assert_int_eq(a->rounds + b->rounds, 2);
}

static void window(struct peer *a, struct peer *b, uint64_t a_steps, uint64_t b0, uint64_t b1) {
    struct peer *const all[] = {a, b, NULL};
    int asked = a->rank_asks;
    while (a->rank_asks == asked) wait_with_beats(1000, all);
    tell_steps(a, 0, a_steps, a_steps);
    tell_steps(b, 2, b0, b1);
    wait_with_beats(1000, all);
}

START_TEST(a_slow_rank_is_named_and_its_node_gets_notice) {
    struct peer a = {0}, b = {0};
    struct coordinator_view v;
    run_with_rule(&a, &b, 1, 30000);
    window(&a, &b, 100, 10, 100); /* the first window only notes the steps, whatever they are */
    coordinator_look(c, &v);
    ck_assert_str_eq(v.slow, "");
    window(&a, &b, 200, 59, 200); /* 49 steps, the others 100 */
    coordinator_look(c, &v);
    ck_assert_str_eq(v.slow, "rank 2 on b (4.90): less than 50 % of the steps a second of the "
                             "median rank (10.00)");
    ck_assert_ptr_nonnull(strstr(last_warning, "slow: rank 2 on b (4.90)"));
    ck_assert_int_eq(a.notices, 0);
    ck_assert_int_eq(b.notices, 1);
    ck_assert_int_eq(b.notice.left_ms, 30000);
    window(&a, &b, 300, 109, 300); /* 50 steps are enough */
    coordinator_look(c, &v);
    ck_assert_str_eq(v.slow, "");
}
END_TEST

START_TEST(without_a_notice_a_slow_rank_is_only_named) {
    struct peer a = {0}, b = {0};
    struct coordinator_view v;
    run_with_rule(&a, &b, 1, 0);
    window(&a, &b, 100, 100, 0); /* rank 3 counts no steps, so it is not compared */
    window(&a, &b, 200, 101, 0);
    coordinator_look(c, &v);
    ck_assert_ptr_nonnull(strstr(v.slow, "rank 2 on b (0.10)"));
    ck_assert_ptr_null(strstr(v.slow, "rank 3"));
    ck_assert_int_eq(a.notices + b.notices, 0);
}
END_TEST

START_TEST(a_slow_node_that_the_job_needs_gets_no_notice) {
    struct peer a = {0}, b = {0};
    run_with_rule(&a, &b, 2, 30000);
    window(&a, &b, 100, 100, 100);
    window(&a, &b, 200, 101, 200);
    ck_assert_ptr_nonnull(strstr(last_warning, "slow: rank 2 on b"));
    ck_assert_int_eq(a.notices + b.notices, 0);
}
END_TEST

static int ranks_seen;
static void count_rank(void *arg, const struct rank_view *r) {
    (void) arg;
    if (strcmp(r->host, "b") == 0 && r->rank.rank == 3 && r->rank.steps == 7) ranks_seen++;
}

START_TEST(nodes_are_asked_while_somebody_looks) {
    struct peer a = {0}, b = {0};
    struct peer *const all[] = {&a, &b, NULL};
    run_two(&a, &b);
    wait_with_beats(60000, all);
    ck_assert_int_eq(a.rank_asks, 0);
    coordinator_watch_ranks(c, now);
    wait_with_beats(1000, all);
    ck_assert_int_ge(b.rank_asks, 1);
    tell_steps(&b, 2, 6, 7);
    tell_steps(&b, 5, 7, 7); /* these ranks are not b's */
    ranks_seen = 0;
    coordinator_visit_ranks(c, now, count_rank, NULL);
    ck_assert_int_eq(ranks_seen, 1);
    wait_with_beats(20000, all); /* b has not answered for so long that it is not shown */
    coordinator_visit_ranks(c, now, count_rank, NULL);
    ck_assert_int_eq(ranks_seen, 1);
    wait_with_beats(50000, all); /* nobody has looked for a minute */
    int asked = b.rank_asks;
    wait_with_beats(60000, all);
    ck_assert_int_eq(b.rank_asks, asked);
}
END_TEST

START_TEST(an_inquiry_does_not_wait_for_a_node_that_is_silent) {
    struct peer a = {0}, b = {0};
    run_two(&a, &b);
    struct rdzv_operate o = {.run_id = "job", .host = "", .why = "slow"};
    ck_assert_uint_eq(coordinator_operate(c, now, &o), 2);
    tell(&a, 0, RENDEZVOUS_WAITS_COLLECTIVE, 17, 0);
    tell(&a, 1, RENDEZVOUS_IDLE, 16, 0);
    tell(&a, 0, 0, 0, 1);
    ck_assert_int_eq(a.findings, 0);
    now += 1000;
    coordinator_tick(c, now);
    ck_assert_int_eq(a.findings, 1);
    ck_assert_ptr_nonnull(strstr(a.why, "rank"));
    ck_assert_ptr_nonnull(strstr(a.why, "(1 node did not answer)"));
}
END_TEST

/* Adds seats to the table and removes seats from it at random, and compares the table with an
 * array. It uses few keys, so that several seats have equal keys and their slots in the table are
 * neighbours. */
START_TEST(the_table_finds_a_seat_whatever_was_removed) {
    enum { SEATS = 400, KEYS = 64 };
    struct seat_table table = {0};
    char seats[SEATS]; /* only the addresses count */
    bool added[SEATS] = {false};
    uint32_t random = 1, of_key[KEYS] = {0};
    for (int step = 0; step < 20000; step++) {
        random = random * 1664525 + 1013904223;
        uint32_t i = random >> 16 & 0x1ff, key = i % KEYS;
        struct coordinator_seat *seat = (struct coordinator_seat *) (void *) &seats[i % SEATS];
        if (i >= SEATS) continue;
        if (added[i]) seat_table_remove(&table, key, seat);
        else ck_assert_int_eq(seat_table_add(&table, key, seat), 0);
        of_key[key] += added[i] ? UINT32_MAX : 1;
        added[i] = !added[i];
        struct coordinator_seat *found = seat_table_find(&table, key);
        ck_assert_int_eq(found != NULL, of_key[key] > 0);
        if (found == NULL) continue;
        uint32_t which = (uint32_t) ((char *) found - seats);
        ck_assert(which % KEYS == key && added[which]);
    }
    seat_table_done(&table);
}
END_TEST

/* All nodes but the first one are spares. They share one struct peer, which takes what is sent to
 * any of them. */
START_TEST(a_job_has_so_many_seats_and_no_more) {
    struct peer a = {0}, spares = {0}, more = {0};
    struct coordinator_view v;
    setup(1, 1, 0);
    join(&a, "a");
    ck_assert_int_eq(a.rounds, 1);
    for (uint32_t i = 1; i < RDZV_NODES_MAX; i++) {
        join(&spares, "spare");
        ck_assert_ptr_nonnull(spares.seat);
    }
    join(&more, "more");
    ck_assert_ptr_null(more.seat);
    ck_assert_int_eq(more.refused, 1);
    ck_assert_str_eq(more.why, "cannot join: the job has 262144 nodes already");
    lose(&spares); /* the last one */
    join(&more, "more");
    ck_assert_ptr_nonnull(more.seat);
    coordinator_look(c, &v);
    ck_assert_uint_eq(v.seats, RDZV_NODES_MAX);
}
END_TEST

static void join_with_gateway(struct peer *p, uint64_t instance, bool has_gateway) {
    struct rdzv_join j = defaults;
    j.host = j.addr = "n1";
    j.instance = instance;
    j.store_gateway = has_gateway;
    join_as(p, &j);
}

START_TEST(all_nodes_have_gateways_or_none) {
    static const char *const why[] = {
        "cannot join with --store-gateway, because the job was started without it: give it to all "
        "nodes, or to none",
        "cannot join without --store-gateway, because the job was started with it: give it to all "
        "nodes, or to none"};
    struct peer first = {0}, other = {0}, second = {0};
    bool job_has_it = _i == 1;
    setup(2, 2, 0);
    join_with_gateway(&first, 851, job_has_it);
    join_with_gateway(&other, 852, !job_has_it);
    ck_assert_int_eq(other.refused, 1);
    ck_assert_str_eq(other.why, why[_i]);
    ck_assert_ptr_nonnull(strstr(last_warning, "node 'n1'"));
    ck_assert_int_eq(first.rounds, 0);
    join_with_gateway(&second, 853, job_has_it);
    ck_assert_int_eq(first.rounds, 1);
    ck_assert_int_eq(second.rounds, 1);
}
END_TEST

static void teardown(void) {
    coordinator_free(c);
    c = NULL;
}

/* Makes `p` join. If `why` is "", the node's health check has passed; otherwise the check has
 * failed for the reason `why`. */
static void join_unfit(struct peer *p, const char *host, const char *why) {
    static uint64_t instances = 5000;
    struct rdzv_join j = defaults;
    j.host = j.addr = host;
    j.instance = ++instances;
    j.unfit = why;
    join_as(p, &j);
}

static void join_again(struct peer *p, const char *why) {
    struct rdzv_message m = {.type = RDZV_JOIN, .join = defaults};
    m.join.unfit = why;
    ck_assert_int_eq(coordinator_receive(c, now, p->seat, &m, NULL), 0);
}

START_TEST(a_node_that_is_not_fit_gets_no_place_and_a_spare_does) {
    struct peer sick = {0}, b = {0}, spare = {0};
    setup(2, 2, 3);
    join_unfit(&sick, "n1", "GPU 3 is gone");
    ck_assert_ptr_nonnull(strstr(last_warning, "n1"));
    ck_assert_ptr_nonnull(strstr(last_warning, "GPU 3 is gone"));
    join(&b, "n2");
    ck_assert_int_eq(b.rounds, 0);
    join(&spare, "n3");
    ck_assert_int_eq(b.rounds, 1);
    ck_assert_int_eq(spare.rounds, 1);
    ck_assert_int_eq(sick.rounds, 0);
    join_again(&sick, ""); /* now it is a spare; the round is full */
    ck_assert_int_eq(sick.rounds, 0);
    ck_assert_int_eq(b.stops, 0);
}
END_TEST

START_TEST(a_node_of_the_round_that_gets_sick_is_replaced_in_the_next_one) {
    struct peer a = {0}, b = {0}, spare = {0};
    setup(2, 2, 3);
    join(&a, "n1");
    join(&b, "n2");
    join(&spare, "n3");
    ck_assert_int_eq(a.rounds + b.rounds, 2);
    say(&a, RDZV_FAILED, 0);
    join_again(&a, "its disk is full");
    say(&b, RDZV_JOIN, 0);
    ck_assert_int_eq(b.rounds, 2);
    ck_assert_int_eq(spare.rounds, 1);
    ck_assert_int_eq(a.rounds, 1);
}
END_TEST

START_TEST(a_node_that_gets_fit_completes_the_round) {
    struct peer a = {0}, b = {0};
    setup(2, 2, 3);
    join(&a, "n1");
    join_unfit(&b, "n2", "its clock is wrong");
    join_again(&b, "its clock is still wrong");
    ck_assert_int_eq(a.rounds, 0);
    join_again(&b, "");
    ck_assert_int_eq(a.rounds, 1);
    ck_assert_int_eq(b.rounds, 1);
}
END_TEST

START_TEST(a_node_that_stays_sick_is_sent_away_with_its_reason) {
    struct peer a = {0};
    setup(2, 2, 3);
    join_unfit(&a, "n1", "GPU 3 is gone");
    for (int i = 0; i < 200 && a.ends == 0; i++) {
        now += 5000;
        struct rdzv_message beat = {.type = RDZV_BEAT};
        if (a.seat != NULL) (void) coordinator_receive(c, now, a.seat, &beat, NULL);
        coordinator_tick(c, now);
    }
    ck_assert_int_eq(a.ends, 1);
    ck_assert_ptr_nonnull(strstr(a.why, "not fit"));
    ck_assert_ptr_nonnull(strstr(a.why, "GPU 3 is gone"));
}
END_TEST

int main(void) {
    Suite *s = suite_create("coordinator");
    TCase *t = tcase_create("rules");
    tcase_set_timeout(t, 30);
    tcase_add_checked_fixture(t, NULL, teardown);
    tcase_add_test(t, a_node_that_is_not_fit_gets_no_place_and_a_spare_does);
    tcase_add_test(t, a_node_of_the_round_that_gets_sick_is_replaced_in_the_next_one);
    tcase_add_test(t, a_node_that_gets_fit_completes_the_round);
    tcase_add_test(t, a_node_that_stays_sick_is_sent_away_with_its_reason);
    tcase_add_test(t, min_equal_max_starts_at_the_last_join);
    tcase_add_test(t, test_a_final_failure_ends_the_job);
    tcase_add_test(t, test_a_final_failure_counts_after_another_failure);
    tcase_add_test(t, last_call_runs_from_the_minimum);
    tcase_add_test(t, a_round_says_how_many_workers_are_kept);
    tcase_add_test(t, the_number_of_kept_workers_is_unknown_if_a_node_says_none_or_too_many);
    tcase_add_test(t, roles_and_sizes_may_differ);
    tcase_add_test(t, a_failure_stops_the_others_and_costs_one_restart);
    tcase_add_test(t, two_failures_in_one_round_cost_one_restart);
    tcase_add_test(t, the_budget_counts_restarts_until_it_is_spent);
    tcase_add_test(t, a_failure_before_the_loss_that_caused_it_costs_nothing);
    tcase_add_test(t, a_failure_before_the_leave_that_caused_it_costs_nothing);
    tcase_add_test(t, a_spent_budget_waits_for_a_silent_node);
    tcase_add_test(t, after_the_first_round_there_is_no_last_call);
    tcase_add_test(t, a_failed_node_that_misses_a_failed_round_excuses_nothing);
    tcase_add_test(t, a_failed_node_that_misses_the_next_round_gets_it_again);
    tcase_add_test(t, a_spent_budget_ends_the_job_when_all_nodes_are_heard);
    tcase_add_test(t, a_beat_from_before_the_stop_is_no_sign_of_life);
    tcase_add_test(t, a_killed_worker_whose_node_leaves_soon_ends_no_job);
    tcase_add_test(t, stop_asks_for_a_beat_only_if_the_failure_may_end_the_job);
    tcase_add_test(t, a_final_failure_waits_for_the_node_of_a_killed_worker);
    tcase_add_test(t, a_final_failure_ends_the_job_if_the_node_stays);
    tcase_add_test(t, a_killed_worker_whose_node_stays_ends_the_job_soon);
    tcase_add_test(t, a_coordinator_that_was_stopped_waits_again_for_a_killed_node);
    tcase_add_test(t, a_restart_is_refunded_when_the_killed_node_leaves);
    tcase_add_test(t, a_restart_is_not_refunded_for_a_node_that_leaves_later);
    tcase_add_test(t, a_restart_is_not_refunded_for_a_node_whose_workers_were_not_killed);
    tcase_add_test(t, a_node_that_leaves_a_lease_after_the_failure_excuses_nothing);
    tcase_add_test(t, a_leave_that_is_read_late_excuses_a_failure_that_its_node_has_not_heard_of);
    tcase_add_test(t, a_spent_budget_ends_the_job_at_once_if_only_local_nodes_are_left);
    tcase_add_test(t, a_node_that_succeeded_is_stopped_with_the_others);
    tcase_add_test(t, success_in_an_older_round_does_not_count);
    tcase_add_test(t, losses_and_leaving_cost_no_restart);
    tcase_add_test(t, each_change_of_phase_is_one_log_line);
    tcase_add_test(t, after_a_failure_an_elastic_group_does_not_wait_for_more);
    tcase_add_test(t, a_late_node_causes_a_round_and_costs_no_restart);
    tcase_add_test(t, a_spare_steps_in_without_moving_ranks);
    tcase_add_test(t, after_a_failure_the_spare_stays_the_spare);
    tcase_add_test(t, a_node_that_returns_gets_its_rank_back);
    tcase_add_test(t, success_needs_all_nodes_and_is_sent_to_spares);
    tcase_add_test(t, a_late_node_waits_while_the_job_ends_well);
    tcase_add_test(t, a_timeout_names_the_nodes_that_came);
    tcase_add_test(t, a_timeout_counts_the_nodes_that_gave_up_before);
    tcase_add_test(t, a_slow_stop_does_not_time_the_others_out);
    tcase_add_test(t, a_node_that_cannot_stop_its_workers_is_sent_away);
    tcase_add_test(t, a_node_has_its_own_limit_for_stopping_its_workers);
    tcase_add_test(t, a_silent_node_is_lost_after_the_lease_and_a_second_look);
    tcase_add_test(t, a_coordinator_that_was_stopped_gives_up_no_node);
    tcase_add_test(t, no_round_forms_with_a_node_whose_lease_is_over);
    tcase_add_test(t, a_leaving_node_is_waited_for_until_it_hangs_up);
    tcase_add_test(t, a_node_that_comes_and_goes_does_not_prolong_the_wait_of_others);
    tcase_add_test(t, a_round_does_not_wait_for_a_leaving_node_without_workers);
    tcase_add_test(t, leaving_twice_gives_no_more_time);
    tcase_add_test(t, fixed_ranks_are_node_ranks_and_unique);
    tcase_add_test(t, a_node_that_is_back_before_its_lease_is_over_waits_for_its_rank);
    tcase_add_test(t, a_second_node_with_a_rank_is_refused_when_the_first_one_is_heard);
    tcase_add_test(t, fixed_ranks_do_not_depend_on_the_order_of_joining);
    tcase_add_test(t, fixed_ranks_need_one_number_of_nodes);
    tcase_add_loop_test(t, all_nodes_have_gateways_or_none, 0, 2);
    tcase_add_test(t, a_timeout_names_the_node_ranks_that_came);
    tcase_add_test(t, the_view_shows_phase_seats_and_counts);
    tcase_add_test(t, other_settings_and_programs_are_named);
    tcase_add_test(t, an_older_connection_never_ends_a_newer_one);
    tcase_add_test(t, a_new_coordinator_goes_on_where_the_nodes_were);
    tcase_add_test(t, every_run_has_an_incarnation_that_its_nodes_learn);
    tcase_add_test(t, a_node_of_another_run_is_refused);
    tcase_add_test(t, a_new_coordinator_takes_over_the_run_of_its_nodes);
    tcase_add_test(t, the_latest_run_is_taken_over);
    tcase_add_test(t, memories_without_a_run_do_not_count_later);
    tcase_add_test(t, when_the_last_node_is_gone_the_next_run_starts_clean);
    tcase_add_test(t, the_rounds_of_a_run_that_was_discarded_keep_their_numbers);
    tcase_add_test(t, memories_of_no_possible_job_are_refused);
    tcase_add_test(t, memories_are_checked_against_the_settings_that_count);
    tcase_add_test(t, bad_joins_and_messages_are_refused);
    tcase_add_test(t, opening_a_store_is_tried_again);
    tcase_add_test(t, a_store_that_cannot_open_ends_the_job);
    tcase_add_test(t, a_joining_node_is_announced_and_all_stop_after_the_agreed_step);
    tcase_add_test(t, without_counted_steps_a_change_takes_place_at_once);
    tcase_add_test(t, a_node_without_counted_steps_is_not_waited_for);
    tcase_add_loop_test(t, all_nodes_are_waited_for_in_an_early_change, 0, 2);
    tcase_add_test(t, a_change_is_over_when_its_time_is_up);
    tcase_add_test(t, a_node_that_never_gets_ready_is_stopped_with_the_others);
    tcase_add_test(t, needed_time_extends_only_the_change_for_a_joining_node);
    tcase_add_test(t, a_late_answer_does_not_extend_an_extension);
    tcase_add_test(t, needs_are_bounded_by_the_join_timeout);
    tcase_add_test(t, a_node_with_notice_costs_no_restart);
    tcase_add_test(t, a_node_of_a_one_node_job_may_give_notice);
    tcase_add_test(t, a_notice_only_shortens_the_change_for_a_joining_node);
    tcase_add_test(t, a_failure_or_a_loss_takes_precedence);
    tcase_add_test(t, a_joining_node_that_goes_again_does_not_leave_the_change_open);
    tcase_add_test(t, two_joining_nodes_are_one_change);
    tcase_add_test(t, answers_to_another_change_do_not_count);
    tcase_add_test(t, without_the_right_a_round_goes_on_and_none_begins);
    tcase_add_test(t, without_the_right_no_node_is_let_in);
    tcase_add_test(t, after_a_standstill_no_round_forms_by_a_right_that_has_ended);
    tcase_add_test(t, after_a_standstill_workers_get_one_lease_to_stop);
    tcase_add_test(t, without_the_right_workers_get_one_lease_to_stop);
    tcase_add_test(t, who_follows_another_waits_for_its_round);
    tcase_add_test(t, who_stands_by_remembers_the_restart);
    tcase_add_test(t, an_order_reaches_the_nodes_of_its_host);
    tcase_add_test(t, an_inquiry_names_the_rank_that_is_behind);
    tcase_add_test(t, a_slow_rank_is_named_and_its_node_gets_notice);
    tcase_add_test(t, without_a_notice_a_slow_rank_is_only_named);
    tcase_add_test(t, a_slow_node_that_the_job_needs_gets_no_notice);
    tcase_add_test(t, nodes_are_asked_while_somebody_looks);
    tcase_add_test(t, an_inquiry_does_not_wait_for_a_node_that_is_silent);
    tcase_add_test(t, waiting_nodes_are_told_why_at_growing_intervals);
    tcase_add_test(t, missing_node_ranks_are_named);
    tcase_add_test(t, the_store_is_on_the_node_of_rank_0_if_it_offers_one);
    tcase_add_test(t, a_store_at_an_impossible_port_is_refused);
    tcase_add_test(t, a_spare_is_told_once);
    tcase_add_test(t, notices_from_outside_the_round_change_nothing);
    tcase_add_test(t, a_node_that_succeeds_meanwhile_is_not_waited_for);
    tcase_add_test(t, the_table_finds_a_seat_whatever_was_removed);
    tcase_add_test(t, a_job_has_so_many_seats_and_no_more);
    suite_add_tcase(s, t);
    return run_suite(s);
}
