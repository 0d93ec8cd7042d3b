/* Tests of what happens when the coordinator is lost, on a virtual clock: which coordinator may
 * decide (electorate.c, succession.c), whom a node tries to join (member/succession.c), and the
 * order of succession as a text (heirs.c). */
#include "base/time/clock.h"
#include "rendezvous/coordinator/coordinator.h"
#include "rendezvous/rules/electorate_internal.h"
#include "rendezvous/member/succession_internal.h"
#include "tests/lib/coordinator_actions.h"
#include "tests/lib/coordinator_clock.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEASE INT64_C(15000)

/* ---- heirs.c ---- */

START_TEST(heirs_are_read_as_they_were_written) {
    struct rdzv_heirs in = {.count = 0}, out;
    char text[RDZV_HEIRS_TEXT_MAX];
    for (uint32_t i = 0; i < 20; i++) rdzv_heirs_add(&in, i, i == 1 ? "fd77::2" : "10.0.0.1", 4711);
    ck_assert_uint_eq(in.count, RDZV_HEIRS_MAX);
    rdzv_heirs_write(&in, text);
    rdzv_heirs_read(text, &out);
    ck_assert_uint_eq(out.count, RDZV_HEIRS_MAX);
    ck_assert_str_eq(out.heir[1].addr, "fd77::2");
    ck_assert_uint_eq(out.heir[7].rank, 7);
    ck_assert_uint_eq(out.heir[7].port, 4711);
}
END_TEST

START_TEST(malformed_heirs_are_left_out) {
    struct rdzv_heirs out;
    rdzv_heirs_read("1 a;;2 b 0;x c 1;3 d 70000;-1 e 1;4  1;5 f 80;6 g 81 ", &out);
    ck_assert_uint_eq(out.count, 1);
    ck_assert_str_eq(out.heir[0].addr, "f");
    rdzv_heirs_read("", &out);
    ck_assert_uint_eq(out.count, 0);
}
END_TEST

/* ---- electorate.c ---- */

START_TEST(a_coordinator_decides_while_no_other_one_can_win) {
    struct electorate e = {.rounds_seen = 0};
    ck_assert(electorate_may_decide(&e, 0)); /* no electorate */
    ck_assert_int_eq(electorate_begin(&e, 1, 7, 4, true), 0);
    for (int64_t i = 0; i < 4; i++) electorate_hold(&e, i, 100 + i);
    ck_assert(electorate_may_decide(&e, 50));
    /* three of four ballots are a majority, so the coordinator may decide until the third ballot
     * becomes free */
    ck_assert_int_eq(electorate_until(&e, 50), 102);
    ck_assert(electorate_may_decide(&e, 101));
    ck_assert(!electorate_may_decide(&e, 102));
    electorate_hold(&e, 0, 200); /* two nodes are heard again */
    electorate_hold(&e, 1, 200);
    ck_assert(electorate_may_decide(&e, 102));
    electorate_end(&e);
}
END_TEST

START_TEST(an_heir_needs_more_than_half_and_half_is_enough_to_stay) {
    struct electorate heir = {.rounds_seen = 0}, old = {.rounds_seen = 0};
    ck_assert_int_eq(electorate_begin(&heir, 1, 7, 4, false), 0);
    ck_assert_int_eq(electorate_begin(&old, 1, 7, 4, true), 0);
    electorate_hold(&heir, 2, 100);
    electorate_hold(&heir, 3, 100);
    electorate_hold(&old, 0, 100);
    electorate_hold(&old, 1, 100);
    ck_assert(!electorate_may_decide(&heir, 50));
    ck_assert(electorate_may_decide(&old, 50));
    electorate_release(&old, 1);
    electorate_hold(&heir, 1, 100);
    ck_assert(electorate_may_decide(&heir, 50));
    ck_assert(!electorate_may_decide(&old, 50));
    electorate_end(&heir);
    electorate_end(&old);
}
END_TEST

/* Coordinator `second` had three of four ballots, so it could decide. Two of its nodes leave it and
 * join `first`, one after the other. After the first of them, `first` has two ballots and `second`
 * still decides with two; only the third ballot lets `first` decide. */
START_TEST(who_may_have_lost_to_another_coordinator_has_to_win_again) {
    struct electorate first = {.rounds_seen = 0}, second = {.rounds_seen = 0};
    ck_assert_int_eq(electorate_begin(&first, 1, 7, 4, true), 0);
    ck_assert_int_eq(electorate_begin(&second, 1, 7, 4, false), 0);
    electorate_hold(&first, 0, 300);
    for (int64_t i = 1; i < 4; i++) electorate_hold(&second, i, 300);
    ck_assert(!electorate_may_decide(&first, 100));
    ck_assert(electorate_may_decide(&second, 100));
    /* node 1 leaves the second coordinator and joins the first one */
    electorate_release(&second, 1);
    electorate_hold(&first, 1, 300);
    ck_assert(electorate_may_decide(&second, 100));
    ck_assert(!electorate_may_decide(&first, 100));
    electorate_release(&second, 2);
    electorate_hold(&first, 2, 300);
    ck_assert(!electorate_may_decide(&second, 100));
    ck_assert(electorate_may_decide(&first, 100));
    electorate_end(&first);
    electorate_end(&second);
}
END_TEST

START_TEST(a_ballot_that_is_held_for_ever_is_neither_free_nor_void) {
    struct electorate e = {.rounds_seen = 0};
    ck_assert_int_eq(electorate_begin(&e, 1, 7, 4, false), 0);
    electorate_hold(&e, 0, CR_FOREVER);
    electorate_hold(&e, 1, CR_FOREVER);
    electorate_release(&e, 0);
    electorate_void(&e, 1);
    ck_assert(!electorate_may_decide(&e, 50)); /* two ballots of four are no majority */
    /* no other coordinator can get three of the four ballots */
    ck_assert(electorate_is_closed(&e));
    ck_assert(!electorate_is_open(&e, 0) && !electorate_is_open(&e, 1));
    ck_assert(electorate_is_open(&e, 2) && !electorate_is_open(&e, 4));
    electorate_hold(&e, 2, 100);
    ck_assert(electorate_may_decide(&e, 50));
    electorate_end(&e);
}
END_TEST

START_TEST(an_electorate_closes_when_enough_nodes_give_up_their_votes) {
    struct electorate e = {.rounds_seen = 0};
    ck_assert_int_eq(electorate_begin(&e, 1, 7, 5, true), 0);
    electorate_hold(&e, 0, CR_FOREVER);
    ck_assert(!electorate_can_close(&e, 1)); /* three of the four others could win */
    ck_assert(electorate_can_close(&e, 2));
    electorate_end(&e);
}
END_TEST

START_TEST(nodes_that_have_ended_elect_nobody) {
    struct electorate e = {.rounds_seen = 0};
    ck_assert_int_eq(electorate_begin(&e, 1, 7, 3, true), 0);
    electorate_hold(&e, 0, 100);
    electorate_void(&e, 1);
    ck_assert(!electorate_is_closed(&e));
    ck_assert(electorate_may_decide(&e, 50));
    electorate_void(&e, 2);
    ck_assert(electorate_is_closed(&e));
    ck_assert(electorate_may_decide(&e, 1000)); /* even if the own node is silent */
    electorate_void(&e, 7);                     /* no such rank */
    electorate_end(&e);
}
END_TEST

START_TEST(a_ballot_belongs_to_one_node) {
    struct electorate e = {.rounds_seen = 0};
    ck_assert_int_eq(electorate_begin(&e, 1, 7, 3, true), 0);
    ck_assert_int_eq(electorate_claim(&e, 2, 7), 2);
    ck_assert_int_eq(electorate_claim(&e, 2, 7), 2);
    ck_assert_int_eq(electorate_claim(&e, 2, 8), -1); /* rank 2 of another round 0 */
    ck_assert_int_eq(electorate_claim(&e, 3, 8), -1);
    ck_assert_int_eq(electorate_claim(&e, -1, 8), -1);
    electorate_end(&e);
}
END_TEST

/* ---- member/succession.c ---- */

static struct succession lost(enum rendezvous_loss how, uint32_t own_rank) {
    struct succession s;
    struct rdzv_round r = {.round = 4, .group_rank = own_rank, .leader = 1,
                           .heirs = "1 b 11;2 c 12"};
    succession_begin_round(&s, &r, 7);
    ck_assert(succession_lost(&s, 100000, how, 90000, LEASE, 0));
    return s;
}

START_TEST(after_the_end_of_the_process_an_heir_serves_at_once) {
    struct succession b = lost(RENDEZVOUS_CLOSED, 1), c2 = lost(RENDEZVOUS_CLOSED, 2);
    ck_assert(succession_takes_over(&b, 100000));
    ck_assert(!succession_takes_over(&b, 100001)); /* once */
    ck_assert(!succession_takes_over(&c2, 100000));
    ck_assert(succession_takes_over(&c2, 100000 + LEASE / 2));
    ck_assert_uint_gt(succession_epoch(&b), 0);
    ck_assert_uint_ne(succession_epoch(&b), succession_epoch(&c2));
    ck_assert_str_eq(succession_next(&c2, 100000)->addr, "b");
    ck_assert_str_eq(succession_next(&c2, 100000)->addr, "c");
    ck_assert_str_eq(succession_next(&c2, 100000)->addr, "b"); /* too soon for the old one */
    (void) succession_next(&c2, 100000);
    ck_assert_ptr_null(succession_next(&c2, 100000 + LEASE / 2));
}
END_TEST

START_TEST(a_silent_coordinator_is_given_five_quarters_of_a_lease) {
    struct succession b = lost(RENDEZVOUS_BROKEN, 1);
    int64_t votes_ms = 90000 + LEASE + LEASE / 4 + 1;
    ck_assert_ptr_null(succession_next(&b, votes_ms - 1));
    ck_assert(!succession_takes_over(&b, votes_ms - 1));
    ck_assert(succession_takes_over(&b, votes_ms));
    ck_assert_str_eq(succession_next(&b, votes_ms)->addr, "b");
}
END_TEST

START_TEST(the_search_ends_four_leases_after_it_began) {
    struct succession s = lost(RENDEZVOUS_CLOSED, 5); /* no heir itself */
    int64_t until_ms = s.until_ms;
    ck_assert_int_eq(until_ms, 100000 + 4 * LEASE);
    ck_assert(!succession_takes_over(&s, until_ms));
    succession_found(&s, 101000); /* an heir accepts the node, and sends it away two leases later */
    ck_assert(!succession_is_on(&s));
    ck_assert(!succession_lost(&s, 101000 + 2 * LEASE, RENDEZVOUS_CLOSED, 101000, LEASE, 0));
    ck_assert_int_eq(s.until_ms, until_ms);
    /* a coordinator accepts the node, and serves it for 100 s before it is lost */
    succession_found(&s, 200000);
    ck_assert(succession_lost(&s, 300000, RENDEZVOUS_CLOSED, 300000, LEASE, 0));
    ck_assert_int_eq(s.until_ms, 300000 + 4 * LEASE);
}
END_TEST

/* This node was the first heir of round 4. It is not in round 5, which runs while the node waits as
 * a spare. So it searches among the heirs of round 5. */
START_TEST(a_spare_searches_among_the_heirs_of_the_running_round) {
    struct succession s;
    struct rdzv_round r = {.round = 4, .group_rank = 1, .heirs = "1 b 11;2 c 12"};
    succession_begin_round(&s, &r, 7);
    succession_begin_beside(&s, "0 x 21;3 y 22");
    ck_assert(succession_lost(&s, 100000, RENDEZVOUS_CLOSED, 90000, LEASE, 0));
    ck_assert(!succession_takes_over(&s, CR_FOREVER - 1));
    ck_assert_str_eq(succession_next(&s, 100000)->addr, "x");
    ck_assert_str_eq(succession_next(&s, 100000)->addr, "y");
    ck_assert_str_eq(succession_next(&s, 100000)->addr, "x");
    succession_begin_beside(&s, ""); /* a round without heirs */
    ck_assert(!succession_is_on(&s));
    r.round = 6;
    succession_begin_round(&s, &r, 7); /* it has stepped in */
    ck_assert(succession_lost(&s, 200000, RENDEZVOUS_CLOSED, 190000, LEASE, 0));
    ck_assert_str_eq(succession_next(&s, 200000)->addr, "b");
}
END_TEST

/* A round of two nodes has no heirs. Both nodes are gone, and a new coordinator is started at the
 * address of the old one. The new coordinator sends the spare away every two leases, because no
 * node of that round joins it. */
START_TEST(a_spare_beside_a_round_without_heirs_gives_up_too) {
    struct succession s;
    succession_init(&s);
    succession_begin_beside(&s, "");
    succession_found(&s, 10000);
    ck_assert(succession_lost(&s, 100000, RENDEZVOUS_BROKEN, 100000 - LEASE, LEASE, 0));
    for (int64_t now_ms = 100000; now_ms < 100000 + 4 * LEASE; now_ms += 2 * LEASE) {
        ck_assert(!succession_is_over(&s, now_ms, RENDEZVOUS_CLOSED));
        succession_found(&s, now_ms + 1);
        ck_assert(succession_lost(&s, now_ms + 2 * LEASE, RENDEZVOUS_CLOSED, now_ms, LEASE, 0));
    }
    /* a connection that is reset shows nothing about the coordinator */
    ck_assert(!succession_is_over(&s, 100000 + 5 * LEASE, RENDEZVOUS_BROKEN));
    ck_assert(succession_is_over(&s, 100000 + 5 * LEASE, RENDEZVOUS_CLOSED));
    /* a coordinator that keeps the spare for three leases has the majority */
    succession_found(&s, 200000);
    ck_assert(succession_lost(&s, 200000 + 4 * LEASE, RENDEZVOUS_CLOSED, 200000, LEASE, 0));
    ck_assert(!succession_is_over(&s, 200000 + 4 * LEASE, RENDEZVOUS_CLOSED));
}
END_TEST

START_TEST(after_an_heir_without_a_majority_the_next_candidate_is_tried) {
    struct succession c = lost(RENDEZVOUS_CLOSED, 2); /* the last heir */
    int64_t now_ms = 100000 + LEASE / 2;
    ck_assert_str_eq(succession_next(&c, now_ms)->addr, "b");
    ck_assert_str_eq(succession_next(&c, now_ms)->addr, "c");
    /* c connects to itself, and gives up after two leases because it has no majority */
    succession_found(&c, now_ms);
    now_ms += 2 * LEASE;
    ck_assert(!succession_lost(&c, now_ms, RENDEZVOUS_CLOSED, now_ms, LEASE, 0));
    ck_assert_ptr_null(succession_next(&c, now_ms)); /* the old coordinator may be back */
    ck_assert_str_eq(succession_next(&c, now_ms)->addr, "b");
}
END_TEST

/* Each of the two heirs serves only itself, and sends its own node away at the same moment as the
 * other. If each node tried the heirs after itself first, each would go to the other's heir, and
 * neither heir would get the majority. So both nodes try the first heir. */
START_TEST(two_heirs_that_were_alone_meet_at_the_first) {
    struct succession b = lost(RENDEZVOUS_CLOSED, 1), c = lost(RENDEZVOUS_CLOSED, 2);
    int64_t now_ms = 100000 + LEASE / 2;
    ck_assert_str_eq(succession_next(&b, now_ms)->addr, "b");
    ck_assert_str_eq(succession_next(&c, now_ms)->addr, "b"); /* no answer in time */
    ck_assert_str_eq(succession_next(&c, now_ms)->addr, "c");
    succession_found(&b, now_ms);
    succession_found(&c, now_ms);
    now_ms += 2 * LEASE;
    ck_assert(!succession_lost(&b, now_ms, RENDEZVOUS_CLOSED, now_ms, LEASE, 0));
    ck_assert(!succession_lost(&c, now_ms, RENDEZVOUS_CLOSED, now_ms, LEASE, 0));
    ck_assert_ptr_null(succession_next(&b, now_ms)); /* the old coordinator may be back */
    ck_assert_ptr_null(succession_next(&c, now_ms));
    ck_assert_str_eq(succession_next(&b, now_ms)->addr, "b");
    ck_assert_str_eq(succession_next(&c, now_ms)->addr, "b");
}
END_TEST

START_TEST(a_node_that_may_wait_longer_searches_longer) {
    struct succession s;
    struct rdzv_round r = {.round = 4, .group_rank = 1, .leader = 1, .heirs = "1 b 11"};
    succession_begin_round(&s, &r, 7);
    ck_assert(succession_lost(&s, 100000, RENDEZVOUS_CLOSED, 90000, LEASE, 10 * LEASE));
    ck_assert_int_eq(s.until_ms, 100000 + 10 * LEASE);
}
END_TEST

START_TEST(without_heirs_nothing_is_searched) {
    struct succession s;
    struct rdzv_round r = {.heirs = ""};
    succession_begin_round(&s, &r, 7);
    ck_assert(succession_lost(&s, 1000, RENDEZVOUS_CLOSED, 1000, LEASE, 0));
    ck_assert(!succession_is_on(&s));
    ck_assert(!succession_takes_over(&s, CR_FOREVER - 1));
    ck_assert_ptr_null(succession_next(&s, 1000));
}
END_TEST

/* An old coordinator (7) may have formed round 4 before it was lost, and an heir (8) another round
 * 4. A node of the old coordinator's round 4 that waits at the heir must not regard its own round
 * as settled when the heir's round is. */
START_TEST(only_the_coordinator_that_formed_the_round_settles_it) {
    struct succession s;
    struct rdzv_round r = {.round = 4, .heirs = "1 b 11", .before_seen = 4, .before_size = 3,
                           .before_place = 2};
    succession_begin_round(&s, &r, 7);
    succession_settle(&s, 5, 8); /* the heir's round */
    ck_assert_uint_eq(s.before_seen, 4);
    succession_settle(&s, 4, 7); /* the round before */
    ck_assert_uint_eq(s.before_size, 3);
    succession_settle(&s, 5, 7);
    ck_assert_uint_eq(s.before_seen + s.before_size + s.before_place, 0);
}
END_TEST

/* ---- the coordinator ---- */

struct peer {
    struct coordinator_seat *seat;
    int rounds, stops, hung_up, ends;
    int64_t stop_limit_ms;
    struct rdzv_round round;
    char heirs[RDZV_HEIRS_TEXT_MAX], why[RDZV_TEXT_MAX];
    uint64_t settled, yields; /* in the last BEAT_ACK, and in the last SPARE */
    struct rdzv_join join;
};

static struct coordinator *c;
static uint64_t coordinator_id; /* id of `c` */
static int64_t now;
static struct peer a, b, d;

static void on_send(void *arg, void *peer, const struct rdzv_message *m) {
    struct peer *p = peer;
    (void) arg;
    if (m->type == RDZV_BEAT_ACK) p->settled = m->beat_ack.settled;
    if (m->type == RDZV_STOP) p->stops++, p->stop_limit_ms = m->stop.limit_ms;
    if (m->type == RDZV_END) p->ends++, (void) snprintf(p->why, sizeof(p->why), "%s", m->end.why);
    if (m->type == RDZV_SPARE) {
        (void) snprintf(p->heirs, sizeof(p->heirs), "%s", m->spare.heirs);
        p->yields = m->spare.yields;
    }
    if (m->type != RDZV_ROUND) return;
    p->rounds++;
    p->round = m->round;
    (void) snprintf(p->heirs, sizeof(p->heirs), "%s", m->round.heirs);
    p->join.rounds_seen = m->round.round + 1;
    p->join.last_rank = m->round.group_rank;
    p->join.last_group_size = m->round.group_world_size;
    p->join.leader = m->round.leader;
    p->join.incarnation = m->round.incarnation;
    p->join.heirs = m->round.heirs[0] != '\0' ? 2 : 0;
    p->join.before_seen = m->round.before_seen;
    p->join.before_size = m->round.before_size;
    p->join.before_place = m->round.before_place;
    p->join.before_by = m->round.before_by;
    p->join.formed_by = coordinator_id;
}

static void on_hang_up(void *arg, void *peer) {
    (void) arg;
    ((struct peer *) peer)->hung_up++;
    ((struct peer *) peer)->seat = NULL;
}

static uint64_t on_draw(void *arg) {
    (void) arg;
    return 77;
}

static const struct coordinator_actions actions = {
    .send = on_send, .hang_up = on_hang_up, .open_store = open_any_store, .draw = on_draw,
    .log = ignore_log};

static void new_coordinator(bool is_heir) {
    coordinator_free(c);
    c = coordinator_new("job", &actions, NULL);
    coordinator_identify(c, ++coordinator_id);
    coordinator_keep_job(c);
    coordinator_set_own(c, is_heir ? 2 : 1);
    coordinator_allow_heirs(c);
    if (is_heir) coordinator_is_heir(c);
}

static void join(struct peer *p, uint64_t instance) {
    static uint64_t connections;
    const char *hosts[] = {"", "a", "b", "d", "spare", "second spare"};
    uint32_t ports[] = {0, 0, 11, 12, 13, 14};
    struct rdzv_join j = p->join;
    j.host = j.addr = hosts[instance];
    j.role = "default";
    j.instance = instance;
    j.connection = ++connections;
    j.node_rank = -1;
    if (j.rounds_seen == 0) j.last_rank = -1;
    j.local_world_size = 1;
    j.min_nodes = 1;
    j.max_nodes = 3;
    j.join_timeout_ms = 600000;
    j.last_call_timeout_ms = 30000;
    j.skips_last_call = 1;
    j.close_timeout_ms = 30000;
    j.keep_alive_interval_ms = 5000;
    j.keep_alive_max_attempt = 3;
    j.heir_port = ports[instance];
    j.heard_at_ms = now; /* WELCOME came just now */
    p->join = j;
    p->seat = coordinator_join(c, now, p, false, &j);
    ck_assert_ptr_nonnull(p->seat);
}

static void beat(struct peer *p) {
    struct rdzv_message m = {.type = RDZV_BEAT};
    m.beat = (struct rdzv_beat){.sent_ms = now, .rounds_over = p->join.rounds_seen,
                                .heard_at_ms = now, .rounds_seen = p->join.rounds_seen};
    if (p->seat != NULL) ck_assert_int_eq(coordinator_receive(c, now, p->seat, &m, NULL), 0);
}

static void join_again(struct peer *p) {
    struct rdzv_message m = {.type = RDZV_JOIN, .join = p->join};
    m.join.heard_at_ms = now;
    ck_assert_int_eq(coordinator_receive(c, now, p->seat, &m, NULL), 0);
}

static void pass_to(int64_t when_ms) { coordinator_run_until(c, &now, when_ms); }

static struct coordinator_view look(void) {
    struct coordinator_view v;
    coordinator_look(c, &v);
    return v;
}

static void setup(void) {
    a = b = d = (struct peer){.rounds = 0};
    now = 100000;
    new_coordinator(false);
    join(&a, 1); /* in the coordinator's process */
    join(&b, 2);
    join(&d, 3);
    ck_assert_int_eq(a.rounds + b.rounds + d.rounds, 3);
}

static void finish(void) {
    coordinator_free(c);
    c = NULL;
}

START_TEST(round_names_the_heirs) {
    ck_assert_str_eq(b.heirs, "1 b 11;2 d 12");
    ck_assert_uint_eq(b.round.leader, 1);
    ck_assert(look().has_heirs);
}
END_TEST

START_TEST(a_spare_is_told_the_heirs) {
    struct peer spare = {.rounds = 0};
    join(&spare, 4);
    ck_assert_str_eq(spare.heirs, "1 b 11;2 d 12");
    coordinator_lost(c, now, b.seat, "its connection was closed");
    b.seat = NULL;
    join_again(&a);
    join_again(&d);
    ck_assert_int_eq(spare.rounds, 1);
    join(&b, 2); /* has become a spare */
    ck_assert_str_eq(b.heirs, "1 spare 13;2 d 12");
}
END_TEST

START_TEST(who_hears_too_few_stops_its_round_before_an_heir_begins_one) {
    for (int i = 0; i < 4; i++) {
        pass_to(now + 5000);
        beat(&a);
        beat(&b);
    }
    /* d is lost, so the round ends; a and b are two of three nodes, a majority */
    ck_assert_int_eq(a.stops, 1);
    ck_assert(!look().lacks_majority);
    join_again(&a);
    join_again(&b);
    ck_assert_int_eq(a.rounds, 2);
    ck_assert_str_eq(a.heirs, ""); /* a round of two nodes has no heirs */
    beat(&a);
    beat(&b);
    pass_to(now + 12000);
    beat(&a);
    pass_to(now + 12000);
    beat(&a);
    ck_assert_int_eq(a.rounds + a.stops, 4); /* b is lost, and a goes on alone, as ever */
}
END_TEST

START_TEST(who_hears_only_itself_stops_and_sends_its_nodes_away) {
    for (int64_t t = 100000; t < 100000 + LEASE - 2000; t += 2500) {
        pass_to(t);
        beat(&a);
    }
    ck_assert_int_eq(a.stops, 0);
    pass_to(100000 + LEASE);
    ck_assert_int_eq(a.stops, 1);
    ck_assert_int_eq(a.stop_limit_ms, LEASE / 8 + 1); /* an heir begins an eighth later */
    ck_assert(look().lacks_majority);
    join_again(&a);
    for (int64_t t = now; t < 100000 + 3 * LEASE + 100; t += 2500) {
        beat(&a);
        pass_to(t);
    }
    ck_assert_int_eq(a.rounds, 1); /* min_nodes is 1, but a minority must form no round */
    ck_assert_int_eq(a.hung_up, 1);
    ck_assert_int_eq(coordinator_hear_epoch(c, now), COORDINATOR_IS_SUPERSEDED);
}
END_TEST

START_TEST(without_the_majority_a_leaving_node_has_to_end_its_workers_soon) {
    struct rdzv_message m = {.type = RDZV_LEAVE};
    m.leave.why = "signal 15";
    ck_assert_int_eq(coordinator_receive(c, now, a.seat, &m, NULL), 0);
    ck_assert_int_eq(a.stops, 0);
    pass_to(100000 + LEASE);
    ck_assert(look().lacks_majority);
    ck_assert_int_eq(a.stop_limit_ms, LEASE / 8 + 1);
}
END_TEST

START_TEST(without_the_majority_the_job_ends_and_says_why) {
    pass_to(100000 + LEASE);
    join_again(&a);
    for (int64_t t = now; t < 100000 + 9 * LEASE && a.ends == 0; t += 2500) {
        pass_to(t);
        if (a.seat == NULL) join(&a, 1);
        beat(&a);
    }
    ck_assert_int_eq(a.ends, 1);
    ck_assert_ptr_nonnull(strstr(a.why, "half of them or more are silent"));
    ck_assert_int_eq(a.rounds, 1);
}
END_TEST

static void join_late(struct peer *p) {
    struct rdzv_message m = {.type = RDZV_JOIN, .join = p->join};
    m.join.heard_at_ms = 100000;
    ck_assert_int_eq(coordinator_receive(c, now, p->seat, &m, NULL), 0);
}

/* The budget is spent when a worker of node a fails. All nodes join again, but their JOINs are so
 * old that the coordinator no longer has the majority when they arrive, so it may not end the job.
 * It ends the job when beats give it the majority again. */
START_TEST(a_failure_that_ends_the_job_waits_for_the_majority) {
    struct rdzv_message m = {.type = RDZV_FAILED};
    m.failed = (struct rdzv_failed){.round = 0, .what = "rank 0: exit code 1"};
    ck_assert_int_eq(coordinator_receive(c, now, a.seat, &m, NULL), 0);
    pass_to(100000 + LEASE);
    ck_assert(look().lacks_majority);
    join_late(&a), join_late(&b), join_late(&d);
    ck_assert_int_eq(a.ends, 0);
    ck_assert_int_eq(a.rounds, 1);
    beat(&a), beat(&b);
    ck_assert_int_eq(a.ends, 1);
    ck_assert_ptr_nonnull(strstr(a.why, "exit code 1"));
}
END_TEST

START_TEST(who_hears_its_nodes_again_goes_on) {
    pass_to(100000 + LEASE);
    ck_assert(look().lacks_majority);
    join_again(&a);
    join(&b, 2);
    ck_assert(!look().lacks_majority);
    ck_assert_int_eq(coordinator_hear_epoch(c, now), COORDINATOR_SERVES);
}
END_TEST

START_TEST(processes_that_have_ended_elect_no_heir) {
    coordinator_lost(c, now, b.seat, "its connection was closed");
    coordinator_lost(c, now, d.seat, "its connection was closed");
    ck_assert(!look().lacks_majority);
    join_again(&a);
    ck_assert_int_eq(a.rounds, 2); /* alone */
}
END_TEST

START_TEST(a_node_that_has_abandoned_the_coordinator_has_not_ended) {
    struct rdzv_message m = {.type = RDZV_ABANDON};
    m.abandon.why = "it has not answered";
    for (int i = 0; i < 2; i++) {
        struct peer *p = i == 0 ? &b : &d;
        ck_assert_int_eq(coordinator_receive(c, now, p->seat, &m, NULL), 0);
        coordinator_lost(c, now, p->seat, "its connection was closed");
    }
    ck_assert(look().lacks_majority);
}
END_TEST

/* A reset connection does not show that a node's process has ended. When the connections of two
 * nodes that wait for the next round are reset, these two may elect an heir, so this coordinator
 * may not decide. */
START_TEST(a_waiting_node_whose_connection_is_reset_has_not_ended) {
    join(&b, 2); /* on a new connection, so the round is stopped, and the node waits */
    join(&d, 3);
    ck_assert(!look().lacks_majority);
    coordinator_suspend(c, now, b.seat, "connection reset");
    ck_assert(!look().lacks_majority); /* one node alone is no majority */
    coordinator_suspend(c, now, d.seat, "connection reset");
    ck_assert(look().lacks_majority);
    join_again(&a);
    ck_assert_int_eq(a.rounds, 1);
    join(&b, 2);
    ck_assert(!look().lacks_majority);
}
END_TEST

START_TEST(an_heir_forms_a_round_with_a_majority_only) {
    new_coordinator(true);
    join(&b, 2);
    pass_to(now + LEASE / 2);
    ck_assert_int_eq(b.rounds, 1);
    join(&d, 3);
    /* the round forms at once, because all nodes of the last round have joined, except the lost
     * leader */
    ck_assert_int_eq(b.rounds, 2);
    ck_assert_uint_eq(b.round.round, 1);
    ck_assert_uint_eq(b.round.restart_count, 0);
    ck_assert_uint_eq(b.round.incarnation, d.join.incarnation);
}
END_TEST

/* Two coordinators have each formed a round with the same number. Node d was in the other
 * coordinator's round, with the rank that b has in the round of this coordinator. So d's JOIN must
 * not count as the ballot of b. */
START_TEST(a_node_of_another_round_of_the_same_number_has_no_ballot_here) {
    struct rdzv_message m = {.type = RDZV_ABANDON};
    m.abandon.why = "it has not answered";
    struct peer *gone[] = {&b, &d};
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(coordinator_receive(c, now, gone[i]->seat, &m, NULL), 0);
        coordinator_lost(c, now, gone[i]->seat, "its connection was closed");
    }
    ck_assert(look().lacks_majority);
    d.join.last_rank = b.join.last_rank;
    join(&d, 3);
    ck_assert(look().lacks_majority);
    join(&b, 2);
    ck_assert(!look().lacks_majority);
}
END_TEST

/* Two coordinators have each formed a round with the same number. One node of each round joins an
 * heir. Together the two nodes are no majority: each is only one of three nodes of its round, and
 * the two other nodes of that round may have a coordinator that decides. */
START_TEST(nodes_of_two_rounds_of_the_same_number_are_no_majority_together) {
    new_coordinator(true);
    d.join.formed_by = 99;
    join(&b, 2);
    join(&d, 3);
    ck_assert(look().lacks_majority);
    pass_to(now + LEASE / 2);
    ck_assert_int_eq(b.rounds + d.rounds, 2);
}
END_TEST

/* Node a joins the heir first. It was in a round with the same number as the round of b and d, but
 * formed by another coordinator. So the heir serves the round of b and d, which has the
 * majority. */
START_TEST(an_heir_serves_the_larger_of_two_rounds_of_the_same_number) {
    new_coordinator(true);
    a.join.formed_by = 99;
    join(&a, 1);
    join(&b, 2);
    ck_assert(look().lacks_majority);
    join(&d, 3);
    ck_assert(!look().lacks_majority);
}
END_TEST

/* The coordinator's process was stopped for more than a lease. In that time two of its three nodes
 * may have elected an heir. When the process runs again, the coordinator handles a message of b
 * before its timers. This message must not keep it from noticing that the majority was lost. */
START_TEST(a_message_does_not_hide_that_the_majority_was_lost) {
    now += LEASE + 1;
    beat(&b);
    ck_assert_int_eq(a.stops, 1);
}
END_TEST

/* While b's connection to this coordinator was broken, b was in a round of another coordinator.
 * When b joins here again, it counts as a new node. */
START_TEST(a_node_that_was_elsewhere_does_not_get_its_seat_back) {
    struct rdzv_message m = {.type = RDZV_FAILED};
    m.failed = (struct rdzv_failed){.round = 0, .what = "a worker failed"};
    ck_assert_int_eq(coordinator_receive(c, now, a.seat, &m, NULL), 0);
    coordinator_suspend(c, now, b.seat, "connection reset"); /* while it stops its workers */
    b.join.formed_by = 99;
    join(&b, 2);
    join_again(&a);
    join_again(&d);
    ck_assert_uint_eq(b.round.before_place, 0); /* it has no ballot of the first round */
    ck_assert_uint_eq(d.round.before_place, 3);
}
END_TEST

START_TEST(an_heir_begins_no_run_of_its_own) {
    struct peer fresh = {.rounds = 0};
    new_coordinator(true);
    join(&fresh, 1);
    pass_to(now + 10 * LEASE);
    ck_assert_int_eq(fresh.rounds, 0);
}
END_TEST

/* Round n is settled when so few nodes of round n-1 have not received it that they cannot elect an
 * heir in the name of round n-1. Until round n is settled, round n+1 does not form. */
START_TEST(no_round_forms_before_the_last_one_is_settled) {
    beat(&a);
    ck_assert_uint_eq(a.settled, 1); /* the first round is settled at once */
    coordinator_lost(c, now, d.seat, "its connection was closed");
    join(&d, 3);
    join_again(&a);
    join_again(&b);
    ck_assert_int_eq(a.rounds, 2);
    ck_assert_uint_eq(a.round.before_seen, 1);
    ck_assert_uint_eq(a.round.before_size, 3);
    coordinator_lost(c, now, d.seat, "its connection was closed");
    join_again(&a); /* this JOIN names the last round, so a has received that round */
    ck_assert_uint_eq(look().next_round, 2);
    join_again(&b);
    ck_assert_int_eq(a.rounds, 3);
}
END_TEST

/* Makes b and d wait without a place in the round, because they are not fit, and forms round 1 of a
 * and two spares. So round 1 is not settled: b and d do not learn of it. */
static void form_a_round_beside_the_majority(struct peer *spares) {
    struct rdzv_message abandon = {.type = RDZV_ABANDON, .abandon.why = "no answer"};
    join(&spares[0], 4), join(&spares[1], 5);
    ck_assert_int_eq(coordinator_receive(c, now, d.seat, &abandon, NULL), 0);
    coordinator_lost(c, now, d.seat, "its connection was reset");
    b.join.unfit = d.join.unfit = "the GPU is gone";
    join(&d, 3);
    join_again(&b), join_again(&a);
    ck_assert_int_eq(spares[0].rounds + spares[1].rounds, 2);
    beat(&a);
    ck_assert_uint_eq(a.settled, 0);
}

START_TEST(nodes_that_wait_beside_a_round_give_up_their_votes_when_it_ends) {
    struct peer spares[2] = {{.rounds = 0}, {.rounds = 0}};
    form_a_round_beside_the_majority(spares);
    ck_assert(b.yields == 0 && d.yields == 0); /* they may still have to elect an heir */
    coordinator_lost(c, now, spares[0].seat, "its connection was closed");
    spares[0].seat = NULL;
    join_again(&spares[1]), join_again(&a);
    ck_assert(b.yields == 2 && d.yields == 2);
    ck_assert_int_eq(a.rounds, 2);
    b.join.rounds_seen = b.yields;
    beat(&b); /* one of three votes is left, so nobody can be elected any more */
    ck_assert_int_eq(a.rounds, 3);
}
END_TEST

/* Round 1 was formed of b and two others, and a and d were in round 0 only. The coordinator and d
 * are silent, and b is the heir. It hears two of the three nodes of round 1. a could still elect
 * somebody together with d, so b asks a to give up its vote. */
START_TEST(an_heir_asks_a_node_of_the_round_before_for_its_vote) {
    struct peer other = {.rounds = 0};
    uint64_t earlier = coordinator_id;
    new_coordinator(true);
    b.join.rounds_seen = 2, b.join.last_rank = 0, b.join.last_group_size = 3;
    b.join.before_seen = 1, b.join.before_size = 3, b.join.before_place = 2;
    b.join.formed_by = b.join.before_by = earlier;
    other.join = b.join;
    other.join.last_rank = 1, other.join.before_place = 0;
    join(&b, 2), join(&other, 4);
    ck_assert(look().lacks_majority);
    join(&a, 1);
    ck_assert(!look().lacks_majority);
    ck_assert_uint_eq(a.yields, 2);
    ck_assert_int_eq(a.rounds + b.rounds + other.rounds, 2); /* those of round 0 */
    a.join.rounds_seen = a.yields;
    int64_t until = now + 2 * LEASE; /* the third node of round 1 has its time to come back */
    while (now < until && other.rounds == 0) {
        beat(&a), beat(&b), beat(&other);
        pass_to(now + 2500);
    }
    ck_assert_int_eq(a.rounds + b.rounds + other.rounds, 5);
}
END_TEST

/* The launcher at the endpoint was started again. A majority of round 1 joins its coordinator. But
 * round 1 is not settled: nodes of round 0 may have elected an heir. So the coordinator may not
 * decide, and sends the nodes away. It has formed no round, so it forgets them: new nodes begin
 * another run of the job. */
START_TEST(a_new_coordinator_that_formed_no_round_forgets_the_nodes_it_sends_away) {
    struct peer fresh = {.rounds = 0};
    new_coordinator(false);
    for (int i = 0; i < 2; i++) {
        struct peer *p = i == 0 ? &b : &d;
        p->join.rounds_seen = 2;
        p->join.before_seen = 1;
        p->join.before_size = 3; /* before_place is 0: in no earlier round */
        p->join.formed_by = p->join.before_by = 99;
        join(p, i == 0 ? 2 : 3);
    }
    ck_assert(look().lacks_majority);
    for (int64_t t = now; t < 100000 + 2 * LEASE; t += 2500) {
        pass_to(t);
        beat(&b);
        beat(&d);
    }
    pass_to(100000 + 2 * LEASE);
    ck_assert_int_eq(b.hung_up + d.hung_up, 2);
    ck_assert_int_eq(b.rounds + d.rounds, 2);
    join(&fresh, 1);
    for (int i = 0; i < 13 && fresh.rounds == 0; i++) { /* the last call takes 30 s */
        pass_to(now + 2500);
        beat(&fresh);
    }
    ck_assert_int_eq(fresh.rounds, 1);
    ck_assert_uint_eq(fresh.round.round, 0);
}
END_TEST

int main(void) {
    Suite *s = suite_create("succession");
    TCase *t = tcase_create("rules");
    tcase_add_test(t, heirs_are_read_as_they_were_written);
    tcase_add_test(t, malformed_heirs_are_left_out);
    tcase_add_test(t, a_coordinator_decides_while_no_other_one_can_win);
    tcase_add_test(t, an_heir_needs_more_than_half_and_half_is_enough_to_stay);
    tcase_add_test(t, who_may_have_lost_to_another_coordinator_has_to_win_again);
    tcase_add_test(t, a_ballot_that_is_held_for_ever_is_neither_free_nor_void);
    tcase_add_test(t, an_electorate_closes_when_enough_nodes_give_up_their_votes);
    tcase_add_test(t, nodes_that_have_ended_elect_nobody);
    tcase_add_test(t, a_ballot_belongs_to_one_node);
    tcase_add_test(t, after_the_end_of_the_process_an_heir_serves_at_once);
    tcase_add_test(t, a_silent_coordinator_is_given_five_quarters_of_a_lease);
    tcase_add_test(t, the_search_ends_four_leases_after_it_began);
    tcase_add_test(t, a_spare_searches_among_the_heirs_of_the_running_round);
    tcase_add_test(t, a_spare_beside_a_round_without_heirs_gives_up_too);
    tcase_add_test(t, after_an_heir_without_a_majority_the_next_candidate_is_tried);
    tcase_add_test(t, two_heirs_that_were_alone_meet_at_the_first);
    tcase_add_test(t, a_node_that_may_wait_longer_searches_longer);
    tcase_add_test(t, without_heirs_nothing_is_searched);
    tcase_add_test(t, only_the_coordinator_that_formed_the_round_settles_it);
    suite_add_tcase(s, t);
    t = tcase_create("coordinator");
    tcase_add_checked_fixture(t, setup, finish);
    tcase_add_test(t, round_names_the_heirs);
    tcase_add_test(t, a_spare_is_told_the_heirs);
    tcase_add_test(t, who_hears_too_few_stops_its_round_before_an_heir_begins_one);
    tcase_add_test(t, who_hears_only_itself_stops_and_sends_its_nodes_away);
    tcase_add_test(t, without_the_majority_a_leaving_node_has_to_end_its_workers_soon);
    tcase_add_test(t, without_the_majority_the_job_ends_and_says_why);
    tcase_add_test(t, a_failure_that_ends_the_job_waits_for_the_majority);
    tcase_add_test(t, who_hears_its_nodes_again_goes_on);
    tcase_add_test(t, processes_that_have_ended_elect_no_heir);
    tcase_add_test(t, a_node_that_has_abandoned_the_coordinator_has_not_ended);
    tcase_add_test(t, a_waiting_node_whose_connection_is_reset_has_not_ended);
    tcase_add_test(t, an_heir_forms_a_round_with_a_majority_only);
    tcase_add_test(t, a_node_of_another_round_of_the_same_number_has_no_ballot_here);
    tcase_add_test(t, nodes_of_two_rounds_of_the_same_number_are_no_majority_together);
    tcase_add_test(t, an_heir_serves_the_larger_of_two_rounds_of_the_same_number);
    tcase_add_test(t, a_message_does_not_hide_that_the_majority_was_lost);
    tcase_add_test(t, a_node_that_was_elsewhere_does_not_get_its_seat_back);
    tcase_add_test(t, an_heir_begins_no_run_of_its_own);
    tcase_add_test(t, no_round_forms_before_the_last_one_is_settled);
    tcase_add_test(t, nodes_that_wait_beside_a_round_give_up_their_votes_when_it_ends);
    tcase_add_test(t, an_heir_asks_a_node_of_the_round_before_for_its_vote);
    tcase_add_test(t, a_new_coordinator_that_formed_no_round_forgets_the_nodes_it_sends_away);
    suite_add_tcase(s, t);
    return run_suite(s);
}
