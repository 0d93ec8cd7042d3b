/* Tests of what failures and losses cost: the budgets by kind, back-off and refill, and the hosts
 * that a coordinator slows, refuses or sets aside. */
#include "base/time/clock.h"
#include "rendezvous/coordinator/coordinator.h"
#include "rendezvous/rules/rules.h"
#include "tests/lib/coordinator_clock.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

/* One node of a test, and what the coordinator has sent to it. */
struct peer {
    struct coordinator_seat *seat;
    const char *host;
    int rounds, stops, ends, refused;
    struct rdzv_round round;
    char why[RDZV_TEXT_MAX];
};

static struct coordinator *c;
static struct rdzv_join defaults;
static int64_t now;
static char warning[RDZV_TEXT_MAX];

static void on_send(void *arg, void *to, const struct rdzv_message *m) {
    struct peer *p = to;
    const char *why = NULL;
    (void) arg;
    if (m->type == RDZV_ROUND) p->rounds++, p->round = m->round;
    if (m->type == RDZV_STOP) p->stops++;
    if (m->type == RDZV_END) p->ends++, why = m->end.why;
    if (m->type == RDZV_REFUSED) p->refused++, why = m->refused.why;
    if (m->type == RDZV_WAITING) why = m->waiting.what;
    if (why != NULL) (void) snprintf(p->why, sizeof(p->why), "%s", why);
}

static void on_hang_up(void *arg, void *to) {
    (void) arg;
    ((struct peer *) to)->seat = NULL;
}

static int on_open_store(void *arg, uint64_t round, struct coordinator_store *out,
                         struct cr_error *err) {
    (void) arg, (void) err;
    *out = (struct coordinator_store){.addr = "10.0.0.1", .port = (uint16_t) (7000 + round)};
    return 0;
}

static void on_log(void *arg, enum cr_log_level level, const char *text) {
    (void) arg;
    if (level == CR_LOG_WARN) (void) snprintf(warning, sizeof(warning), "%s", text);
}

static const struct coordinator_actions actions = {
    .send = on_send, .hang_up = on_hang_up, .open_store = on_open_store, .log = on_log};

static void setup(uint32_t min, uint32_t max, uint32_t restarts) {
    now = 1000;
    warning[0] = '\0';
    defaults = (struct rdzv_join){
        .role = "default", .node_rank = -1, .local_world_size = 1, .last_rank = -1,
        .min_nodes = min, .max_nodes = max, .max_restarts = restarts, .join_timeout_ms = 600000,
        .last_call_timeout_ms = 1000, .close_timeout_ms = 30000, .skips_last_call = 1,
        .keep_alive_interval_ms = 1000000, .keep_alive_max_attempt = 1, .flap_limit = 3,
        .flap_window_ms = 60000, .flap_refusal_ms = 300000, .aside_after = 3, .aside_ms = 600000};
    c = coordinator_new("job", &actions, NULL);
}

static void join(struct peer *p, const char *host) {
    static uint64_t instances;
    struct rdzv_join j = defaults;
    j.host = j.addr = p->host = host;
    j.instance = ++instances;
    p->seat = coordinator_join(c, now, p, false, &j);
}

static void say(struct peer *p, enum rdzv_message_type type) {
    struct rdzv_message m = {.type = type};
    char what[100];
    (void) snprintf(what, sizeof(what), "rank 0 on %s: exit code 7", p->host);
    if (type == RDZV_JOIN) m.join = defaults;
    if (type == RDZV_FAILED) m.failed = (struct rdzv_failed){.round = p->round.round, .what = what};
    if (type == RDZV_NOTICE) m.notice = (struct rdzv_notice){.kind = 1, .why = "spot"};
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

static struct coordinator_view view(void) {
    struct coordinator_view v;
    coordinator_look(c, &v);
    return v;
}

/* Reports a failed worker of `p`; then the nodes `others` join the next round, and after them
 * `p`. */
static void fail_and_return(struct peer *p, struct peer *others[], int count) {
    say(p, RDZV_FAILED);
    for (int i = 0; i < count; i++) say(others[i], RDZV_JOIN);
    say(p, RDZV_JOIN);
}

/* Makes a node of `host` join: it gets into a new round together with `a`, and is lost `life_ms`
 * later. */
static void live_shortly(struct peer *a, const char *host, int64_t life_ms) {
    struct peer b = {0};
    join(&b, host);
    ck_assert_ptr_nonnull(b.seat);
    say(a, RDZV_JOIN);
    ck_assert_int_eq(b.rounds, 1);
    pass(life_ms);
    lose(&b);
    say(a, RDZV_JOIN);
}

/* ---- the budgets, without a coordinator ---- */

START_TEST(a_refill_gives_restarts_back_and_the_count_goes_on) {
    struct budget b = {.max_restarts = 2, .refill_ms = 1000};
    budget_charge(&b);
    budget_progress(&b, 999);
    budget_charge(&b);
    ck_assert(!budget_is_left(&b));
    budget_progress(&b, 1000);
    ck_assert(budget_is_left(&b));
    budget_charge(&b);
    ck_assert_uint_eq(b.spent, 1);
    ck_assert_uint_eq(b.restart_count, 3);
}
END_TEST

/* A refund does not make restart_count smaller. So the charge after a refund must not make
 * restart_count larger, even if a refill came before the refund. */
START_TEST(a_refund_after_a_refill_is_used_first) {
    struct budget b = {.max_restarts = 2, .refill_ms = 1000};
    budget_charge(&b);
    budget_progress(&b, 1000);
    budget_charge(&b);
    budget_refund(&b);
    budget_charge(&b);
    ck_assert_uint_eq(b.restart_count, 2);
}
END_TEST

/* A node of an earlier coordinator's round may remember more restarts than --max-restarts, because
 * that coordinator had refilled the budget. */
START_TEST(a_new_coordinator_takes_over_a_refilled_count) {
    struct budget b = {.max_restarts = 2, .refill_ms = 1000};
    budget_remember(&b, 5);
    ck_assert_uint_eq(b.restart_count, 5);
    ck_assert(!budget_is_left(&b));
    budget_progress(&b, 1000);
    budget_charge(&b);
    ck_assert_uint_eq(b.restart_count, 6);
}
END_TEST

START_TEST(back_off_doubles_up_to_five_minutes) {
    struct budget b = {.max_restarts = 100, .backoff_ms = 1000};
    int64_t want_ms = 1000;
    for (int i = 0; i < 20; i++) {
        ck_assert_int_eq(budget_backoff(&b), want_ms);
        want_ms = 2 * want_ms < 300000 ? 2 * want_ms : 300000;
        budget_charge(&b);
    }
    budget_progress(&b, BUDGET_CALM_MS - 1);
    ck_assert_int_eq(budget_backoff(&b), 300000);
    budget_progress(&b, BUDGET_CALM_MS);
    ck_assert_int_eq(budget_backoff(&b), 1000);
    b.backoff_ms = 0;
    ck_assert_int_eq(budget_backoff(&b), 0);
}
END_TEST

START_TEST(a_round_is_one_loss_at_most) {
    struct budget b = {.limits_losses = true, .max_losses = 1};
    budget_lost(&b, 0);
    budget_lost(&b, 0);
    ck_assert(!budget_is_out_of_losses(&b));
    budget_lost(&b, 1);
    ck_assert(budget_is_out_of_losses(&b));
    b.limits_losses = false;
    ck_assert(!budget_is_out_of_losses(&b));
}
END_TEST

/* ---- the records of hosts, without a coordinator ---- */

static struct standings records(void) {
    return (struct standings){.rules = {.flap_limit = 2, .flap_window_ms = 1000,
                                        .flap_refusal_ms = 60000, .aside_after = 2,
                                        .aside_ms = 5000}};
}

START_TEST(a_host_is_slowed_and_then_refused) {
    struct standings t = records();
    ck_assert_int_eq(standings_lost(&t, 100, "b", 0, 10), STANDING_SAME);
    ck_assert_int_eq(standings_lost(&t, 200, "b", 1, 10), STANDING_SLOWED);
    ck_assert_int_eq(standings_find(&t, "b")->slowed_until_ms, 5200);
    ck_assert_int_eq(standings_lost(&t, 300, "b", 2, 10), STANDING_SLOWED);
    ck_assert_int_eq(standings_find(&t, "b")->slowed_until_ms, 10300);
    ck_assert_int_eq(standings_lost(&t, 400, "b", 3, 1000), STANDING_REFUSED);
    ck_assert_int_eq(standings_find(&t, "b")->refused_until_ms, 60400);
    ck_assert_ptr_null(standings_find(&t, "a"));
    ck_assert(standings_admit(&t, "b"));
    ck_assert(!standings_admit(&t, "b"));
    standings_forget(&t);
}
END_TEST

START_TEST(a_long_life_ends_the_row) {
    struct standings t = records();
    (void) standings_lost(&t, 100, "b", 0, 10);
    ck_assert_int_eq(standings_lost(&t, 200, "b", 1, 1001), STANDING_SAME);
    ck_assert_int_eq(standings_lost(&t, 300, "b", 2, 10), STANDING_SAME);
    ck_assert_int_eq(standings_lost(&t, 300, "b", 3, 10), STANDING_SLOWED);
    standings_forget(&t);
}
END_TEST

START_TEST(nodes_of_one_host_lost_in_one_round_count_once) {
    struct standings t = records();
    for (int i = 0; i < 8; i++) {
        ck_assert_int_eq(standings_lost(&t, 100, "b", 0, 10), STANDING_SAME);
    }
    ck_assert_uint_eq(standings_find(&t, "b")->short_lives, 1);
    standings_forget(&t);
}
END_TEST

START_TEST(failures_far_apart_are_no_row) {
    struct standings t = records();
    ck_assert_int_eq(standings_failed(&t, 100, "b"), STANDING_SAME);
    ck_assert_int_eq(standings_failed(&t, 5101, "b"), STANDING_SAME);
    ck_assert_int_eq(standings_failed(&t, 5102, "b"), STANDING_ASIDE);
    ck_assert_int_eq(standings_find(&t, "b")->aside_until_ms, 10102);
    standings_excused(&t, "b");
    ck_assert_int_eq(standings_find(&t, "b")->aside_until_ms, 0);
    standings_forget(&t);
}
END_TEST

START_TEST(the_oldest_host_gives_way_to_a_new_one) {
    struct standings t = records();
    char host[20];
    for (int i = 0; i <= STANDINGS_MAX; i++) {
        (void) snprintf(host, sizeof(host), "h%d", i);
        (void) standings_failed(&t, i, host);
    }
    ck_assert_uint_eq(t.count, STANDINGS_MAX);
    ck_assert_ptr_null(standings_find(&t, "h0"));
    ck_assert_ptr_nonnull(standings_find(&t, "h1"));
    ck_assert_ptr_nonnull(standings_find(&t, host));
    standings_forget(&t);
}
END_TEST

/* ---- the coordinator ---- */

START_TEST(a_job_ends_when_it_has_lost_nodes_too_often) {
    struct peer a = {0}, b = {0};
    setup(1, 2, 0);
    defaults.loss_limit = 2; /* one loss is allowed */
    join(&a, "a");
    join(&b, "b");
    lose(&b);
    say(&a, RDZV_JOIN);
    ck_assert_int_eq(a.rounds, 2);
    ck_assert_uint_eq(view().losses, 1);
    join(&b, "d");
    say(&a, RDZV_JOIN);
    ck_assert_int_eq(a.rounds, 3);
    lose(&b);
    ck_assert_int_eq(view().phase, COORDINATOR_ENDED);
    ck_assert_ptr_nonnull(strstr(a.why, "nodes were lost in 2 rounds, and --rdzv-conf=max_losses "
                                        "allows 1; the last one: node 'd'"));
    coordinator_free(c);
}
END_TEST

START_TEST(without_a_limit_losses_end_no_job) {
    struct peer a = {0};
    setup(1, 2, 0);
    defaults.flap_limit = 0;
    join(&a, "a");
    pass(1000);
    for (int i = 0; i < 50; i++) live_shortly(&a, "b", 10);
    ck_assert_int_eq(view().phase, COORDINATOR_RUNNING);
    ck_assert_uint_eq(view().losses, 50);
    ck_assert_int_eq(view().max_losses, -1);
    coordinator_free(c);
}
END_TEST

START_TEST(the_next_round_waits_after_a_failure) {
    struct peer a = {0}, b = {0};
    setup(2, 2, 9);
    defaults.restart_backoff_ms = 2000;
    join(&a, "a");
    join(&b, "b");
    for (int64_t wait_ms = 2000; wait_ms <= 8000; wait_ms *= 2) {
        int rounds = a.rounds;
        fail_and_return(&b, (struct peer *[]){&a}, 1);
        ck_assert_int_eq(view().backoff_until_ms, now + wait_ms);
        pass(wait_ms - 1);
        ck_assert_int_eq(a.rounds, rounds);
        pass(1);
        ck_assert_int_eq(a.rounds, rounds + 1);
    }
    coordinator_free(c);
}
END_TEST

/* While the coordinator lets nodes wait (here for a back-off), join_timeout must not end their
 * wait. */
START_TEST(a_long_back_off_times_nobody_out) {
    struct peer a = {0}, b = {0};
    setup(2, 2, 9);
    defaults.join_timeout_ms = 5000;
    defaults.restart_backoff_ms = 60000;
    join(&a, "a");
    join(&b, "b");
    fail_and_return(&b, (struct peer *[]){&a}, 1);
    pass(60000);
    ck_assert_int_eq(a.ends + b.ends, 0);
    ck_assert_int_eq(a.rounds, 2);
    coordinator_free(c);
}
END_TEST

START_TEST(a_lost_node_is_no_reason_to_back_off) {
    struct peer a = {0}, b = {0};
    setup(1, 2, 9);
    defaults.restart_backoff_ms = 2000;
    join(&a, "a");
    join(&b, "b");
    say(&a, RDZV_FAILED);
    lose(&b);
    say(&a, RDZV_JOIN);
    ck_assert_int_eq(a.rounds, 2);
    ck_assert_uint_eq(view().spent, 0);
    ck_assert_uint_eq(view().losses, 1);
    coordinator_free(c);
}
END_TEST

START_TEST(a_long_round_refills_the_budget) {
    struct peer a = {0}, b = {0};
    setup(2, 2, 1);
    defaults.restart_refill_ms = 10000;
    join(&a, "a");
    join(&b, "b");
    for (uint32_t i = 1; i <= 4; i++) {
        fail_and_return(i % 2 ? &a : &b, (struct peer *[]){i % 2 ? &b : &a}, 1);
        ck_assert_uint_eq(a.round.restart_count, i);
        ck_assert_uint_eq(view().spent, 1);
        pass(10000);
    }
    say(&a, RDZV_FAILED);
    say(&b, RDZV_JOIN);
    say(&a, RDZV_JOIN);
    pass(9999);
    say(&a, RDZV_FAILED);
    say(&b, RDZV_JOIN);
    ck_assert_int_eq(view().phase, COORDINATOR_ENDED);
    coordinator_free(c);
}
END_TEST

/* Host b flaps: three times in a row, a node of b joins and is lost soon. */
START_TEST(a_node_that_flaps_is_slowed_and_then_refused) {
    struct peer a = {0}, b = {0};
    setup(1, 2, 0);
    join(&a, "a");
    pass(1000);
    for (int i = 0; i < 3; i++) live_shortly(&a, "b", 500);
    ck_assert_ptr_nonnull(strstr(warning, "host 'b' were lost 3 times in a row within 60 s of "
                                          "joining: its next node waits 5 s"));
    join(&b, "b");
    ck_assert_uint_eq(view().in_state[SEAT_ASIDE], 1);
    pass(4999);
    ck_assert_ptr_nonnull(strstr(b.why, "because nodes of this host were lost 3 times in a row"));
    /* two for each short life on b: one when the node joined, one when it was lost */
    ck_assert_int_eq(a.stops, 6);
    pass(1);
    say(&a, RDZV_JOIN);
    ck_assert_int_eq(b.rounds, 1);
    lose(&b);
    say(&a, RDZV_JOIN);
    for (int i = 0; i < 2; i++) {
        pass(20000);
        live_shortly(&a, "b", 500);
    }
    join(&b, "b");
    ck_assert_ptr_null(b.seat);
    ck_assert_int_eq(b.refused, 1);
    ck_assert_ptr_nonnull(strstr(b.why, "lost 6 times in a row within 60 s of joining, so they "
                                        "are refused for another 300 s"));
    pass(300000);
    join(&b, "b");
    ck_assert_ptr_nonnull(b.seat);
    coordinator_free(c);
}
END_TEST

/* With fixed ranks, the next node of a host that flaps may join while the seat of the host's last
 * node is still there. */
START_TEST(a_node_that_queued_behind_a_short_life_is_slowed) {
    struct peer a = {0}, b = {0}, next = {0};
    setup(2, 2, 0);
    defaults.flap_limit = 1;
    defaults.fixed_ranks = 1;
    defaults.node_rank = 0;
    join(&a, "a");
    defaults.node_rank = 1;
    join(&b, "b");
    ck_assert_int_eq(b.rounds, 1);
    pass(500);
    join(&next, "b");
    ck_assert_uint_eq(view().in_state[SEAT_QUEUED], 1);
    lose(&b);
    ck_assert_uint_eq(view().in_state[SEAT_ASIDE], 1);
    defaults.node_rank = 0;
    say(&a, RDZV_JOIN);
    ck_assert_int_eq(next.rounds, 0);
    pass(5000);
    ck_assert_int_eq(next.rounds, 1);
    coordinator_free(c);
}
END_TEST

/* Several launchers may share a host; the others must not wait because one of them flaps. */
START_TEST(other_nodes_of_a_slowed_host_are_not_slowed) {
    struct peer a = {0};
    setup(1, 2, 0);
    join(&a, "b");
    pass(1000);
    for (int i = 0; i < 3; i++) live_shortly(&a, "b", 500);
    ck_assert_ptr_nonnull(strstr(warning, "its next node waits 5 s"));
    ck_assert_int_eq(a.rounds, 7);
    ck_assert_int_eq(view().phase, COORDINATOR_RUNNING);
    coordinator_free(c);
}
END_TEST

START_TEST(an_operator_admits_a_host) {
    struct peer a = {0}, b = {0};
    setup(1, 2, 0);
    join(&a, "a");
    pass(1000);
    for (int i = 0; i < 3; i++) live_shortly(&a, "b", 500);
    join(&b, "b");
    ck_assert_uint_eq(coordinator_admit(c, now, "x"), 0);
    ck_assert_uint_eq(coordinator_admit(c, now, "b"), 1);
    say(&a, RDZV_JOIN);
    ck_assert_int_eq(b.rounds, 1);
    coordinator_free(c);
}
END_TEST

START_TEST(a_node_that_leaves_with_notice_does_not_flap) {
    struct peer a = {0};
    setup(1, 2, 0);
    join(&a, "a");
    pass(1000);
    for (int i = 0; i < 10; i++) {
        struct peer b = {0};
        join(&b, "b");
        say(&a, RDZV_JOIN);
        say(&b, RDZV_NOTICE);
        pass(10);
        say(&b, RDZV_LEAVE);
        lose(&b);
        say(&a, RDZV_JOIN);
    }
    ck_assert_str_eq(warning, "");
    coordinator_free(c);
}
END_TEST

/* Resets the connection of `p`, a node that waits for a round, and makes the node join again. */
static void join_anew(struct peer *p) {
    coordinator_suspend(c, now, p->seat, "connection reset");
    join(p, p->host);
}

START_TEST(a_waiting_node_that_loses_its_connection_does_not_flap) {
    struct peer a = {0}, b = {0};
    setup(2, 2, 9);
    defaults.aside_after = 0;
    join(&a, "a");
    join(&b, "b");
    for (int i = 0; i < 9; i++) {
        say(&a, RDZV_FAILED);
        say(&b, RDZV_JOIN);
        join_anew(&b);
        say(&a, RDZV_JOIN);
        ck_assert_int_eq(b.rounds, i + 2);
    }
    ck_assert_str_eq(warning, "");
    coordinator_free(c);
}
END_TEST

START_TEST(a_spare_that_loses_its_connection_does_not_flap) {
    struct peer a = {0}, b = {0};
    setup(1, 1, 9);
    join(&a, "a");
    join(&b, "b");
    for (int i = 0; i < 9; i++) join_anew(&b);
    ck_assert_uint_eq(view().in_state[SEAT_JOINED], 1);
    lose(&a);
    ck_assert_int_eq(b.rounds, 1);
    ck_assert_str_eq(warning, "");
    coordinator_free(c);
}
END_TEST

START_TEST(a_spare_takes_the_place_of_a_host_where_failures_begin) {
    struct peer a = {0}, b = {0}, d = {0};
    setup(2, 2, 9);
    join(&a, "a");
    join(&b, "b");
    join(&d, "d");
    for (int i = 0; i < 2; i++) fail_and_return(&b, (struct peer *[]){&a}, 1);
    ck_assert_int_eq(b.rounds, 3);
    ck_assert_int_eq(d.rounds, 0);
    fail_and_return(&b, (struct peer *[]){&a}, 1);
    ck_assert_int_eq(b.rounds, 3);
    ck_assert_int_eq(d.rounds, 1);
    ck_assert_ptr_nonnull(strstr(warning, "host 'b' is set aside for 600 s, because 3 failures "
                                          "began there"));
    pass(600000);
    ck_assert_uint_eq(view().in_state[SEAT_ASIDE], 0);
    ck_assert_uint_eq(view().in_state[SEAT_JOINED], 1); /* it is a spare now */
    coordinator_free(c);
}
END_TEST

START_TEST(a_host_set_aside_takes_part_if_it_is_needed) {
    struct peer a = {0}, b = {0};
    setup(2, 2, 9);
    join(&a, "a");
    join(&b, "b");
    for (int i = 0; i < 5; i++) fail_and_return(&b, (struct peer *[]){&a}, 1);
    ck_assert_int_eq(b.rounds, 6);
    coordinator_free(c);
}
END_TEST

/* A second node of a host that is set aside waits. When the first one is lost soon after it has
 * joined, the host is slowed as well, so the second one waits although the job needs it. */
START_TEST(a_host_set_aside_that_is_slowed_waits_although_it_is_needed) {
    struct peer a = {0}, next = {0};
    setup(1, 1, 9);
    defaults.flap_limit = defaults.aside_after = 1;
    join(&a, "b");
    fail_and_return(&a, NULL, 0);
    ck_assert_int_eq(a.rounds, 2);
    join(&next, "b");
    ck_assert_uint_eq(view().in_state[SEAT_ASIDE], 1);
    lose(&a);
    ck_assert_int_eq(next.rounds, 0);
    pass(5000);
    ck_assert_int_eq(next.rounds, 1);
    coordinator_free(c);
}
END_TEST

START_TEST(an_elastic_job_goes_on_without_a_host_set_aside) {
    struct peer a = {0}, b = {0}, d = {0};
    setup(2, 3, 9);
    join(&a, "a");
    join(&b, "b");
    join(&d, "d");
    for (int i = 0; i < 3; i++) fail_and_return(&b, (struct peer *[]){&a, &d}, 2);
    ck_assert_int_eq(b.rounds, 3);
    ck_assert_int_eq(a.rounds, 4);
    ck_assert_uint_eq(a.round.group_world_size, 2);
    /* node d is lost, so the job needs the host that is set aside */
    lose(&d);
    say(&a, RDZV_JOIN);
    ck_assert_int_eq(b.rounds, 4);
    coordinator_free(c);
}
END_TEST

START_TEST(failures_that_others_excuse_set_no_host_aside) {
    struct peer a = {0}, b = {0};
    setup(1, 2, 9);
    defaults.flap_limit = 0;
    join(&a, "a");
    for (int i = 0; i < 5; i++) {
        join(&b, "b");
        if (b.rounds == 0) say(&a, RDZV_JOIN);
        say(&a, RDZV_FAILED);
        lose(&b);
        say(&a, RDZV_JOIN);
        b = (struct peer){0};
    }
    ck_assert_str_eq(warning, "");
    coordinator_free(c);
}
END_TEST

static Suite *suite(void) {
    Suite *s = suite_create("aside");
    TCase *t = tcase_create("aside");
    tcase_add_test(t, a_refill_gives_restarts_back_and_the_count_goes_on);
    tcase_add_test(t, a_refund_after_a_refill_is_used_first);
    tcase_add_test(t, a_new_coordinator_takes_over_a_refilled_count);
    tcase_add_test(t, back_off_doubles_up_to_five_minutes);
    tcase_add_test(t, a_round_is_one_loss_at_most);
    tcase_add_test(t, a_host_is_slowed_and_then_refused);
    tcase_add_test(t, a_long_life_ends_the_row);
    tcase_add_test(t, nodes_of_one_host_lost_in_one_round_count_once);
    tcase_add_test(t, failures_far_apart_are_no_row);
    tcase_add_test(t, the_oldest_host_gives_way_to_a_new_one);
    tcase_add_test(t, a_job_ends_when_it_has_lost_nodes_too_often);
    tcase_add_test(t, without_a_limit_losses_end_no_job);
    tcase_add_test(t, the_next_round_waits_after_a_failure);
    tcase_add_test(t, a_long_back_off_times_nobody_out);
    tcase_add_test(t, a_lost_node_is_no_reason_to_back_off);
    tcase_add_test(t, a_long_round_refills_the_budget);
    tcase_add_test(t, a_node_that_flaps_is_slowed_and_then_refused);
    tcase_add_test(t, a_node_that_queued_behind_a_short_life_is_slowed);
    tcase_add_test(t, other_nodes_of_a_slowed_host_are_not_slowed);
    tcase_add_test(t, an_operator_admits_a_host);
    tcase_add_test(t, a_node_that_leaves_with_notice_does_not_flap);
    tcase_add_test(t, a_waiting_node_that_loses_its_connection_does_not_flap);
    tcase_add_test(t, a_spare_that_loses_its_connection_does_not_flap);
    tcase_add_test(t, a_spare_takes_the_place_of_a_host_where_failures_begin);
    tcase_add_test(t, a_host_set_aside_takes_part_if_it_is_needed);
    tcase_add_test(t, a_host_set_aside_that_is_slowed_waits_although_it_is_needed);
    tcase_add_test(t, an_elastic_job_goes_on_without_a_host_set_aside);
    tcase_add_test(t, failures_that_others_excuse_set_no_host_aside);
    suite_add_tcase(s, t);
    return s;
}

int main(void) { return run_suite(suite()); }
