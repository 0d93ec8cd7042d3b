/* Tests of the member's rules on a virtual clock: when it sends keep-alives, what it does when it
 * is cut off from the coordinator, when it connects again, and when it gives up. */
#include "base/time/clock.h"
#include "rendezvous/member/member.h"
#include "rendezvous/rendezvous.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct member *m;
static int64_t now;
static int connects, hang_ups, rounds, stops, ends, beats, joins, fails, leaves, last_outcome;
static int64_t last_grace, last_beat;
static struct rdzv_join last_join;
static uint64_t last_beat_rounds; /* rounds_seen in the last BEAT */
static int resumes;
static struct rdzv_resume last_resume;
static char why[RDZV_TEXT_MAX], last_log[RDZV_TEXT_MAX];
static int changes, sets, notices, dumps, inspections, answers, readies, given, findings, asked;
static uint64_t inquiries; /* number of the last inquiry */
static struct rdzv_change_answer last_answer;
static int quiets, hungs, pairings, paireds;
static uint64_t last_paired;
static struct rdzv_quiet last_quiet;

static int aimed_port;
static void on_aim(void *arg, const char *addr, uint16_t port) {
    (void) arg, (void) addr;
    aimed_port = port;
}
static void on_connect(void *arg) { (void) arg; connects++; }
static void on_hang_up(void *arg) { (void) arg; hang_ups++; }
static void on_send(void *arg, const struct rdzv_message *msg) {
    (void) arg;
    if (msg->type == RDZV_BEAT) {
        beats++;
        last_beat = msg->beat.sent_ms;
        last_beat_rounds = msg->beat.rounds_seen;
    }
    if (msg->type == RDZV_JOIN) joins++, last_join = msg->join;
    if (msg->type == RDZV_FAILED) fails++;
    if (msg->type == RDZV_RESUME) resumes++, last_resume = msg->resume;
    if (msg->type == RDZV_INQUIRE) asked++;
    if (msg->type == RDZV_PAIRED) paireds++, last_paired = msg->paired.id;
    if (msg->type == RDZV_QUIET) quiets++, last_quiet = msg->quiet;
    if (msg->type == RDZV_LEAVE) leaves++;
    if (msg->type == RDZV_CHANGE_ANSWER) answers++, last_answer = msg->change_answer;
    if (msg->type == RDZV_CHANGE_READY) readies++;
    if (msg->type == RDZV_NOTICE) given++;
}
static void on_round(void *arg, const struct rdzv_round *r) { (void) arg; (void) r; rounds++; }
static void on_stop(void *arg, int64_t grace, const char *text) {
    (void) arg;
    stops++;
    last_grace = grace;
    (void) snprintf(why, sizeof(why), "%s", text);
}
static void on_end(void *arg, int outcome, const char *text) {
    (void) arg;
    ends++;
    last_outcome = outcome;
    (void) snprintf(why, sizeof(why), "%s", text);
}
static void on_change(void *arg, const struct rdzv_change *ch) { (void) arg; (void) ch; changes++; }
static void on_change_at(void *arg, const struct rdzv_change_at *at) {
    (void) arg;
    (void) at;
    sets++;
}
static void on_notice(void *arg, const struct rdzv_ask_notice *n) {
    (void) arg;
    (void) n;
    notices++;
}
static void on_dump(void *arg, const char *text) { (void) arg; (void) text; dumps++; }
static void on_ask_progress(void *arg, uint64_t inquiry) { (void) arg; inquiries = inquiry; }
static void on_hung(void *arg, const struct rdzv_hung *h) { (void) arg; (void) h; hungs++; }
static void on_pair(void *arg, const struct rdzv_pair *p) { (void) arg; (void) p; pairings++; }
static void on_behind(void *arg, const struct rdzv_behind *b) { (void) arg; (void) b; findings++; }
static void on_inspect(void *arg, uint64_t id, const char *text) {
    (void) arg;
    (void) text;
    inspections += (int) id;
}
static void on_failure(void *arg, const struct rdzv_failure *failure) {
    (void) arg;
    inspections += (int) failure->rank;
}
static void on_log(void *arg, enum cr_log_level level, const char *text) {
    (void) arg;
    (void) level;
    (void) snprintf(last_log, sizeof(last_log), "%s", text);
}
static const struct member_actions actions = {
    .connect = on_connect, .aim = on_aim, .send = on_send, .hang_up = on_hang_up, .log = on_log,
    .on_round = on_round, .on_stop = on_stop, .on_end = on_end, .on_change = on_change,
    .on_change_at = on_change_at, .on_notice = on_notice, .on_dump = on_dump,
    .on_ask_progress = on_ask_progress, .on_hung = on_hung, .on_pair = on_pair,
    .on_behind = on_behind, .on_inspect = on_inspect, .on_failure = on_failure};

static void setup(int64_t wait_ms) {
    now = 1000;
    connects = hang_ups = rounds = stops = ends = beats = joins = fails = leaves = 0;
    resumes = 0;
    changes = sets = notices = dumps = inspections = answers = readies = given = 0;
    findings = asked = quiets = hungs = pairings = paireds = 0;
    inquiries = 0;
    struct member_settings s = {
        .where = "n0:29400", .connect_timeout_ms = 3000,
        .coordinator_wait_ms = wait_ms,
        .self = {.host = "n1", .addr = "n1", .role = "default", .instance = 9, .node_rank = -1,
                 .local_world_size = 1, .min_nodes = 1, .max_nodes = 2,
                 .keep_alive_interval_ms = 5000, .keep_alive_max_attempt = 3}};
    m = member_new(&s, &actions, NULL);
}

static void pass(int64_t ms) {
    int64_t end = now + ms;
    while (member_deadline(m) <= end) {
        if (member_deadline(m) > now) now = member_deadline(m);
        member_tick(m, now);
    }
    now = end;
}

static void hear(const struct rdzv_message *msg) {
    ck_assert_int_eq(member_receive(m, now, msg, NULL), 0);
}

static void hear_round(uint64_t round) {
    struct rdzv_message msg = {.type = RDZV_ROUND};
    msg.round = (struct rdzv_round){
        .round = round, .restart_count = 4, .group_rank = 1, .master_addr = "x"};
    hear(&msg);
}

static void hear_ack(void) {
    struct rdzv_message msg = {.type = RDZV_BEAT_ACK};
    msg.beat_ack.sent_ms = last_beat;
    hear(&msg);
}

static struct rdzv_welcome greeting = {.version = 2};

static void welcome(void) { member_welcomed(m, now, &greeting); }

static void start(int64_t wait_ms) {
    setup(wait_ms);
    member_join(m, now, 0);
    welcome();
    hear_round(0);
    ck_assert_int_eq(rounds, 1);
}

START_TEST(it_beats_at_the_interval_and_is_fenced_before_the_lease_ends) {
    start(0);
    pass(5000);
    ck_assert_int_eq(beats, 1);
    hear_ack();
    int64_t acked = now;
    pass(12499);
    ck_assert_int_eq(stops, 0);
    pass(1); /* five sixths of the lease of 15 s are over: the member must stop its workers */
    ck_assert_int_eq(stops, 1);
    ck_assert_int_eq(last_grace, acked + 15000 - now);
    ck_assert_int_eq(hang_ups, 1);
    ck_assert_ptr_nonnull(strstr(why, "lost the coordinator at 'n0:29400': it has not answered"));
}
END_TEST

/* The coordinator counts a lease from the time at which it receives a beat. The member must count
 * from the earlier time at which it sent the beat. Otherwise its workers could still run when the
 * coordinator gives their ranks to another node. */
/* The machine was suspended for 20 s. The monotonic clock stood still, but the lease is over. */
START_TEST(a_suspended_node_stops_its_workers_at_once) {
    start(0);
    ck_assert_int_lt(member_lease_end_ms(m), CR_FOREVER);
    member_stood_still(m, now, 1);
    ck_assert_int_eq(stops, 0);
    member_stood_still(m, now, 20000);
    ck_assert_int_eq(stops, 1);
    ck_assert_int_eq(last_grace, 0);
    ck_assert_int_eq(member_lease_end_ms(m), CR_FOREVER);
}
END_TEST

START_TEST(the_lease_counts_from_the_beat_not_from_its_answer) {
    start(0);
    pass(5000);
    int64_t sent = now;
    pass(4000); /* BEAT_ACK comes 4 s after the beat was sent */
    hear_ack();
    pass(sent + 12500 - now - 1);
    ck_assert_int_eq(stops, 0);
    pass(1);
    ck_assert_int_eq(stops, 1);
    ck_assert_int_eq(last_grace, 2500);
}
END_TEST

START_TEST(each_change_of_state_is_one_log_line) {
    start(0);
    ck_assert_str_eq(last_log, "member: JOINING -> RUNNING (ROUND)");
    member_failed(m, now, 0, "rank 3: exit code 7", false);
    ck_assert_str_eq(last_log, "member: RUNNING -> FAILED (rank 3: exit code 7)");
}
END_TEST

START_TEST(a_stopped_node_beats_at_once_if_the_coordinator_waits_for_it) {
    struct rdzv_message stop = {.type = RDZV_STOP};
    for (uint32_t unawaited = 0; unawaited < 2; unawaited++) {
        start(0);
        stop.stop = (struct rdzv_stop){.why = "a test", .is_unawaited = unawaited};
        hear(&stop);
        pass(0);
        ck_assert_int_eq(stops, 1);
        ck_assert_int_eq(beats, unawaited ? 0 : 1);
        stop.stop.is_unawaited = 0; /* another failure has to end the job */
        hear(&stop);
        pass(0);
        ck_assert_int_eq(stops, 1);
        ck_assert_int_eq(beats, unawaited ? 1 : 2);
        if (unawaited == 0) member_free(m);
    }
}
END_TEST

START_TEST(an_old_or_future_ack_does_not_extend_the_lease) {
    start(0);
    struct rdzv_message msg = {.type = RDZV_BEAT_ACK};
    pass(5000);
    hear_ack();
    pass(1000);
    msg.beat_ack.sent_ms = now + 100000; /* a time in the future, from a faulty coordinator */
    hear(&msg);
    msg.beat_ack.sent_ms = 0;
    hear(&msg);
    pass(11500);
    ck_assert_int_eq(stops, 1);
}
END_TEST

START_TEST(the_coordinators_settings_count) {
    start(0);
    struct rdzv_message msg = {.type = RDZV_ACCEPTED};
    msg.accepted =
        (struct rdzv_accepted){
            .keep_alive_interval_ms = 100, .keep_alive_max_attempt = 3, .differs = ""};
    hear(&msg);
    pass(100);
    ck_assert_int_eq(beats, 1);
    pass(200);
    ck_assert_int_eq(stops, 1);
}
END_TEST

START_TEST(a_lost_coordinator_is_the_end_unless_coordinator_wait_is_set) {
    start(0);
    member_disconnected(m, now, RENDEZVOUS_BROKEN, "connection reset");
    ck_assert_int_eq(stops, 1);
    ck_assert_int_eq(ends, 0);
    member_join(m, now, 0);
    ck_assert_int_eq(connects, 2); /* the member makes one try even if coordinator_wait is 0 */
    member_disconnected(m, now, RENDEZVOUS_BROKEN, "connection refused");
    ck_assert_int_eq(ends, 1);
    ck_assert_int_eq(last_outcome, RENDEZVOUS_LOST);
    ck_assert_ptr_nonnull(strstr(why, "connection reset"));
    ck_assert_ptr_nonnull(strstr(why, "coordinator_wait"));
}
END_TEST

START_TEST(after_a_reconnect_join_carries_what_the_node_remembers) {
    start(10000);
    member_disconnected(m, now, RENDEZVOUS_BROKEN, "connection reset");
    member_join(m, now, 0);
    for (int i = 0; i < 8; i++) {
        member_disconnected(m, now, RENDEZVOUS_BROKEN, "connection refused");
        ck_assert_int_eq(ends, 0);
        int before = connects;
        pass(1000);
        ck_assert_int_eq(connects, before + 1);
    }
    welcome();
    ck_assert_int_eq(joins, 2);
    ck_assert_uint_eq(last_join.rounds_seen, 1);
    ck_assert_uint_eq(last_join.restarts_seen, 4);
    ck_assert_int_eq(last_join.last_rank, 1);
    ck_assert_uint_eq(last_join.connection, 2);
    hear_round(1);
    ck_assert_int_eq(rounds, 2);
}
END_TEST

START_TEST(the_first_connection_is_tried_until_its_time_is_up) {
    setup(0);
    member_join(m, now, 0);
    while (ends == 0) {
        member_disconnected(m, now, RENDEZVOUS_BROKEN, "connection refused");
        if (ends == 0) pass(member_deadline(m) - now);
        ck_assert_int_le(now, 1000 + 3000);
    }
    ck_assert_int_ge(now, 1000 + 1500);
    ck_assert_int_gt(connects, 5);
    ck_assert_ptr_nonnull(
        strstr(why, "cannot reach the rendezvous at 'n0:29400' within 3 s: connection refused"));
}
END_TEST

START_TEST(a_black_hole_is_an_attempt_without_answer) {
    setup(0);
    member_join(m, now, 0);
    pass(2999);
    ck_assert_int_eq(ends, 0);
    pass(1); /* the time limit of a try is 3 s, not the lease of 15 s */
    ck_assert_int_eq(ends, 1);
    ck_assert_int_ge(hang_ups, 1);
    ck_assert_ptr_nonnull(strstr(why, "no answer"));
}
END_TEST

START_TEST(a_server_that_hangs_up_at_once_is_not_tried_again_at_once) {
    setup(0);
    member_join(m, now, 0);
    /* another program listens on the port: it accepts each connection and closes it before
     * WELCOME */
    for (int i = 0; i < 5; i++) {
        member_disconnected(m, now, RENDEZVOUS_BROKEN, "the connection was closed");
        ck_assert_int_eq(connects, i + 1);
        int64_t before = now;
        pass(member_deadline(m) - now);
        ck_assert_int_ge(now - before, 10 << i);
    }
    while (ends == 0) {
        member_disconnected(m, now, RENDEZVOUS_BROKEN, "the connection was closed");
        if (ends == 0) pass(member_deadline(m) - now);
    }
    ck_assert_int_le(now, 1000 + 3000);
    ck_assert_ptr_nonnull(strstr(
        why, "cannot reach the rendezvous at 'n0:29400' within 3 s: the connection was closed"));
}
END_TEST

START_TEST(a_failed_node_gets_only_a_stop_with_a_limit) {
    start(0);
    struct rdzv_message msg = {.type = RDZV_STOP};
    msg.stop.why = "the same";
    member_failed(m, now, 0, "rank 0", false);
    member_failed(m, now, 0, "rank 1", false);
    ck_assert_int_eq(fails, 1);
    hear(&msg);
    ck_assert_int_eq(stops, 0);
    /* a short time limit, because the coordinator has lost the right to form rounds */
    msg.stop.limit_ms = 900;
    hear(&msg);
    ck_assert_int_eq(stops, 1);
    ck_assert_int_eq(last_grace, 900);
    stops = 0;
    member_disconnected(m, now, RENDEZVOUS_BROKEN, "connection reset");
    ck_assert_int_eq(stops, 1);
    ck_assert(last_grace < CR_FOREVER);
}
END_TEST

START_TEST(old_rounds_do_not_count) {
    start(0);
    struct rdzv_message msg = {.type = RDZV_STOP};
    msg.stop = (struct rdzv_stop){.round = 9, .why = "?"};
    hear(&msg);
    member_failed(m, now, 9, "rank 0", false);
    member_succeeded(m, now, 9);
    ck_assert_int_eq(stops + fails, 0);
    ck_assert_int_eq(member_state(m), MEMBER_RUNNING);
}
END_TEST

START_TEST(a_leaving_node_stays_connected_and_sends_only_beats) {
    start(0);
    member_leave(m, now, "signal 15");
    member_leave(m, now, "signal 15");
    ck_assert_int_eq(leaves, 1);
    ck_assert_int_eq(hang_ups, 0);
    pass(5000);
    ck_assert_int_eq(beats, 1);
    struct rdzv_message msg = {.type = RDZV_END};
    msg.end.why = "";
    hear(&msg);
    ck_assert_int_eq(ends, 0);
}
END_TEST

/* The coordinator has lost the majority, so an heir may begin a round soon. Before that round
 * begins, the workers of a node that leaves must have ended, too. */
START_TEST(a_leaving_node_obeys_the_time_limit_of_a_stop) {
    start(0);
    struct rdzv_message msg = {.type = RDZV_STOP};
    msg.stop.why = "another node has failed";
    member_leave(m, now, "signal 15");
    hear(&msg);
    ck_assert_int_eq(stops, 0); /* its workers are being stopped already */
    msg.stop.limit_ms = 900;
    hear(&msg);
    ck_assert_int_eq(stops, 1);
    ck_assert_int_eq(last_grace, 900);
    ck_assert_int_eq(member_state(m), MEMBER_LEAVING);
}
END_TEST

/* A worker of this node has failed. STOP comes because of another failure of the round, and the
 * connection breaks, so this node's FAILED may not have arrived. If the worker was killed, the
 * member must report this again by RESUME: the node may be about to end, and if it ends, the round
 * costs no restart. */
START_TEST(the_death_of_a_killed_worker_is_reported_although_the_round_is_over) {
    for (int is_killed = 0; is_killed < 2; is_killed++) {
        struct rdzv_welcome w = {.version = RDZV_VERSION_RESUME};
        struct rdzv_message msg = {.type = RDZV_STOP};
        msg.stop.why = "rank 0 on a: exit code 1";
        start(0);
        member_disconnected(m, now, RENDEZVOUS_BROKEN, "reset");
        member_join(m, now, 0);
        member_welcomed(m, now, &w);
        hear_round(1);
        resumes = 0;
        member_failed(m, now, 1, "rank 1 on b: signal 9", is_killed != 0);
        member_join(m, now, 0);
        hear(&msg); /* of round 0, so it does not count */
        msg.stop.round = 1;
        hear(&msg);
        member_disconnected(m, now, RENDEZVOUS_BROKEN, "reset");
        member_welcomed(m, now, &w);
        ck_assert_int_eq(resumes, is_killed);
        ck_assert_int_eq(member_state(m), MEMBER_JOINING);
        if (is_killed == 0) member_free(m);
    }
    ck_assert_uint_eq(last_resume.part, RDZV_PART_FAILED);
    ck_assert_uint_eq(last_resume.blame, 1);
}
END_TEST

/* The node waits beside round 6. The coordinator needs to know that this node elects nobody as a
 * node of round 0, so the node says so at once, and names no heirs in its next JOIN. */
START_TEST(a_waiting_node_gives_up_its_vote_when_it_is_asked_to) {
    struct rdzv_welcome w = {.version = RDZV_VERSION_KEPT, .in_launcher = 1};
    struct rdzv_message round = {.type = RDZV_ROUND}, stop = {.type = RDZV_STOP};
    struct rdzv_message spare = {.type = RDZV_SPARE, .spare = {.heirs = "0 z 13"}};
    round.round = (struct rdzv_round){.group_rank = 2, .group_world_size = 4, .master_addr = "a",
                                      .heirs = "1 x 11;3 y 12"};
    stop.stop.why = "a test";
    setup(-1);
    member_join(m, now, 0);
    member_welcomed(m, now, &w);
    hear(&round), hear(&stop);
    member_join(m, now, 0);
    ck_assert_uint_eq(last_join.heirs, 2);
    hear(&spare);
    pass(0);
    int before = beats;
    spare.spare.yields = 7;
    hear(&spare);
    pass(0);
    ck_assert_int_eq(beats, before + 1);
    ck_assert_uint_eq(last_beat_rounds, 7);
    member_disconnected(m, now, RENDEZVOUS_CLOSED, "gone");
    ck_assert_int_eq(aimed_port, 13);
    member_welcomed(m, now, &w);
    ck_assert(last_join.heirs == 0 && last_join.rounds_seen == 1);
}
END_TEST

/* The node has joined the heir x, which may count the node's vote until a lease is over. The
 * connection breaks. For 5/4 of a lease the node tries only x: if it joined its old coordinator in
 * this time, both coordinators could count its vote. */
START_TEST(a_node_that_has_lost_an_heir_joins_no_other_coordinator_at_once) {
    struct rdzv_welcome w = {.version = RDZV_VERSION_HEIRS, .in_launcher = 1};
    struct rdzv_message msg = {.type = RDZV_ROUND};
    msg.round = (struct rdzv_round){.group_rank = 2, .group_world_size = 4, .master_addr = "a",
                                    .heirs = "1 x 11;3 y 12"};
    setup(-1);
    member_join(m, now, 0);
    member_welcomed(m, now, &w);
    hear(&msg);
    member_disconnected(m, now, RENDEZVOUS_CLOSED, "gone");
    member_join(m, now, 0);
    ck_assert_int_eq(aimed_port, 11);
    member_welcomed(m, now, &w);
    int64_t may_vote_ms = now + 15000 + 15000 / 4;
    member_disconnected(m, now, RENDEZVOUS_BROKEN, "reset");
    for (int tries = 0; now <= may_vote_ms; tries++) {
        ck_assert_int_eq(aimed_port, 11);
        ck_assert_int_lt(tries, 100000);
        member_disconnected(m, now, RENDEZVOUS_BROKEN, "refused");
        if (member_deadline(m) > now) now = member_deadline(m);
        member_tick(m, now);
    }
    unsigned seen = 0; /* a bit for each candidate: y, and the old coordinator at the endpoint */
    for (int tries = 0; tries < 10; tries++) {
        seen |= aimed_port == 12 ? 1 : aimed_port == 0 ? 2 : 0;
        member_disconnected(m, now, RENDEZVOUS_BROKEN, "refused");
        if (member_deadline(m) > now) now = member_deadline(m);
        member_tick(m, now);
    }
    ck_assert_uint_eq(seen, 3);
}
END_TEST

static void hear_change(uint64_t round) {
    struct rdzv_message msg = {.type = RDZV_CHANGE};
    msg.change =
        (struct rdzv_change){.round = round, .id = 3, .kind = 1, .left_ms = 5000, .why = "more"};
    hear(&msg);
}

static void hear_change_at(void) {
    struct rdzv_message msg = {.type = RDZV_CHANGE_AT};
    msg.change_at = (struct rdzv_change_at){.id = 3, .step = 9, .left_ms = 4000};
    hear(&msg);
}

START_TEST(a_change_of_the_running_round_is_passed_on_and_answered) {
    start(0);
    hear_change(1); /* a CHANGE of another round is ignored */
    ck_assert_int_eq(changes, 0);
    hear_change(0);
    ck_assert_int_eq(changes, 1);
    member_change_answer(m, 3, 8, 250);
    ck_assert_int_eq(answers, 1);
    ck_assert(last_answer.id == 3 && last_answer.step == 8 && last_answer.needs_ms == 250);
    hear_change_at();
    ck_assert_int_eq(sets, 1);
    member_change_ready(m, 3);
    ck_assert_int_eq(readies, 1);
}
END_TEST

START_TEST(after_a_failure_a_change_is_not_answered) {
    start(0);
    hear_change(0);
    member_failed(m, now, 0, "exit code 1", false);
    member_change_answer(m, 3, 8, 0);
    member_change_ready(m, 3);
    member_notice(m, now, 2, 1000, "spot");
    hear_change(0);
    hear_change_at();
    ck_assert_int_eq(answers + readies + given + sets, 0);
    ck_assert_int_eq(changes, 1);
}
END_TEST

START_TEST(without_a_connection_a_notice_is_dropped) {
    start(0);
    member_notice(m, now, 2, 1000, "spot");
    ck_assert_int_eq(given, 1);
    member_disconnected(m, now, RENDEZVOUS_BROKEN, "reset");
    member_notice(m, now, 2, 1000, "spot");
    member_change_answer(m, 3, 8, 0);
    ck_assert_int_eq(given + answers, 1);
}
END_TEST

/* Joins round 0 with a coordinator of this protocol version. */
static void start_with(uint32_t version) {
    setup(0);
    member_join(m, now, 0);
    struct rdzv_welcome w = {.version = version};
    member_welcomed(m, now, &w);
    hear_round(0);
}

static bool tell_quiet(uint64_t silent, uint64_t broken) {
    struct rdzv_quiet q = {.silent = silent, .broken = broken, .what = "for 9 s no output"};
    return member_quiet(m, &q);
}

START_TEST(an_old_coordinator_is_not_told_that_workers_are_quiet) {
    start_with(RDZV_VERSION_HANG - 1);
    ck_assert(!tell_quiet(1, 1));
    ck_assert_int_eq(quiets, 0);
}
END_TEST

START_TEST(only_a_new_report_that_workers_are_quiet_is_sent) {
    start_with(RDZV_VERSION_HANG);
    ck_assert(tell_quiet(1, 1) && tell_quiet(1, 1));
    ck_assert_int_eq(quiets, 1);
    ck_assert(tell_quiet(0, 0));
    ck_assert_int_eq(quiets, 2);
    ck_assert_uint_eq(last_quiet.silent, 0);
}
END_TEST

START_TEST(a_report_that_workers_are_quiet_is_repeated_after_resume) {
    start_with(RDZV_VERSION_HANG);
    ck_assert(tell_quiet(3, 2));
    member_disconnected(m, now, RENDEZVOUS_BROKEN, "reset");
    ck_assert(tell_quiet(3, 3));
    ck_assert_int_eq(quiets, 1);
    struct rdzv_welcome w = {.version = RDZV_VERSION_HANG};
    member_welcomed(m, now, &w);
    ck_assert_int_eq(resumes, 1);
    ck_assert_int_eq(quiets, 2);
    ck_assert_uint_eq(last_quiet.broken, 3);
}
END_TEST

/* A new coordinator has to know that the node may have written the lines that the rules want. */
START_TEST(a_node_that_has_ended_well_repeats_its_report_after_resume) {
    start_with(RDZV_VERSION_HANG);
    ck_assert(tell_quiet(0, 0));
    member_succeeded(m, now, 0);
    member_disconnected(m, now, RENDEZVOUS_BROKEN, "reset");
    struct rdzv_welcome w = {.version = RDZV_VERSION_HANG};
    member_welcomed(m, now, &w);
    ck_assert_int_eq(resumes, 1);
    ck_assert_int_eq(quiets, 2);
}
END_TEST

START_TEST(a_paired_test_is_begun_and_answered_only_while_the_node_waits) {
    struct rdzv_message msg = {.type = RDZV_PAIR};
    struct rdzv_welcome w = {.version = RDZV_VERSION_PAIRS};
    msg.pair = (struct rdzv_pair){.id = 7, .host = "b", .addr = "10.0.0.2", .port = 5000};
    setup(0);
    member_join(m, now, 0);
    member_welcomed(m, now, &w);
    hear(&msg);
    ck_assert_int_eq(pairings, 1);
    member_paired(m, 7, "");
    ck_assert_int_eq(paireds, 1);
    ck_assert_uint_eq(last_paired, 7);
    hear_round(0);
    hear(&msg);
    member_paired(m, 7, "");
    ck_assert_int_eq(pairings, 1);
    ck_assert_int_eq(paireds, 1);
}
END_TEST

START_TEST(a_hang_of_another_round_is_not_passed_on) {
    struct rdzv_message msg = {.type = RDZV_HUNG};
    msg.hung.what = msg.hung.lines = "";
    start_with(RDZV_VERSION_HANG);
    hear(&msg);
    ck_assert_int_eq(hungs, 1);
    msg.hung.round = 1;
    hear(&msg);
    ck_assert_int_eq(hungs, 1);
}
END_TEST

/* Joins a round with a coordinator that knows inquiries. */
static void start_inquiring(void) {
    setup(0);
    member_join(m, now, 0);
    struct rdzv_welcome w = {.version = RDZV_VERSION_INQUIRY};
    member_welcomed(m, now, &w);
    hear_round(0);
    member_inquire(m);
    ck_assert_int_eq(asked, 1);
}

/* The report of a failure contains the result of the inquiry. So the member sends FAILED only after
 * the result has come: on FAILED, the coordinator may end the job. */
START_TEST(a_failure_waits_for_the_result_of_an_inquiry) {
    start_inquiring();
    member_failed(m, now, 0, "rank 0: exit code 1", false);
    ck_assert_int_eq(member_state(m), MEMBER_FAILED);
    ck_assert_int_eq(fails, 0);
    struct rdzv_message msg = {.type = RDZV_BEHIND};
    msg.behind.what = "rank 3 …";
    hear(&msg);
    ck_assert_int_eq(findings, 1);
    ck_assert_int_eq(fails, 1);
    pass(400);
    ck_assert_int_eq(fails, 1);
}
END_TEST

START_TEST(a_failure_does_not_wait_long_for_an_inquiry) {
    start_inquiring();
    member_failed(m, now, 0, "rank 0: exit code 1", false);
    pass(199);
    ck_assert_int_eq(fails, 0);
    pass(1);
    ck_assert_int_eq(fails, 1);
}
END_TEST

START_TEST(a_join_waits_for_the_failure_before_it) {
    start_inquiring();
    member_failed(m, now, 0, "rank 0: exit code 1", false);
    joins = 0;
    member_join(m, now, 0);
    ck_assert_int_eq(member_state(m), MEMBER_JOINING);
    ck_assert_int_eq(fails + joins, 0);
    struct rdzv_message msg = {.type = RDZV_BEHIND};
    msg.behind.what = "rank 3 …";
    hear(&msg);
    ck_assert_int_eq(fails, 1);
    ck_assert_int_eq(joins, 1);
}
END_TEST

START_TEST(a_held_join_survives_the_loss_of_the_connection) {
    start_inquiring();
    member_failed(m, now, 0, "rank 0: exit code 1", false);
    joins = connects = 0;
    member_join(m, now, 0);
    member_disconnected(m, now, RENDEZVOUS_CLOSED, "gone");
    ck_assert_int_eq(connects, 1);
    struct rdzv_welcome w = {.version = RDZV_VERSION_INQUIRY};
    member_welcomed(m, now, &w);
    ck_assert_int_eq(joins, 1);
    ck_assert_int_eq(member_state(m), MEMBER_JOINING);
}
END_TEST

START_TEST(a_held_failure_is_reported_on_the_next_connection) {
    start_inquiring();
    member_failed(m, now, 0, "rank 0: exit code 1", false);
    member_disconnected(m, now, RENDEZVOUS_BROKEN, "reset");
    pass(300);
    ck_assert_int_eq(fails, 0);
    ck_assert_int_eq(member_state(m), MEMBER_FAILED); /* it will send RESUME */
}
END_TEST

START_TEST(an_order_is_passed_on_unless_the_node_leaves) {
    start(0);
    struct rdzv_message msg = {.type = RDZV_ASK_NOTICE};
    msg.ask_notice = (struct rdzv_ask_notice){.kind = 3, .left_ms = 1000, .why = "fans"};
    hear(&msg);
    ck_assert_int_eq(notices, 1);
    msg = (struct rdzv_message){.type = RDZV_ASK_DUMP};
    msg.ask_dump.why = "slow";
    hear(&msg);
    ck_assert_int_eq(dumps, 1);
    msg = (struct rdzv_message){.type = RDZV_ASK_PROGRESS};
    msg.ask_progress.inquiry = 5;
    hear(&msg);
    ck_assert_uint_eq(inquiries, 5);
    msg = (struct rdzv_message){.type = RDZV_BEHIND};
    msg.behind.what = "rank 3 …";
    hear(&msg);
    ck_assert_int_eq(findings, 1);
    msg = (struct rdzv_message){.type = RDZV_ASK_DUMP};
    msg.ask_dump.why = "slow";
    msg = (struct rdzv_message){.type = RDZV_ASK_INSPECT};
    msg.ask_inspect = (struct rdzv_ask_inspect){.id = 7, .why = "hangs"};
    hear(&msg);
    ck_assert_int_eq(inspections, 7);
    msg = (struct rdzv_message){.type = RDZV_FAILURE};
    msg.failure = (struct rdzv_failure){.rank = 10, .host = "", .kind = "", .what = "",
                                        .message = "", .last_words = "", .kernel = "",
                                        .log_folder = ""};
    hear(&msg);
    ck_assert_int_eq(inspections, 17);
    member_leave(m, now, "signal 15");
    hear(&msg);
    ck_assert_int_eq(inspections, 17);
}
END_TEST

START_TEST(a_refusal_ends_the_member_with_its_reason) {
    setup(60000); /* coordinator_wait is 60 s, but a refusal is final */
    member_join(m, now, 0);
    struct rdzv_message msg = {.type = RDZV_REFUSED};
    msg.refused.why = "cannot join as node rank 0: 'n7' (process 12) has it";
    hear(&msg);
    ck_assert_int_eq(ends, 1);
    ck_assert_int_eq(last_outcome, RENDEZVOUS_LOST);
    ck_assert_str_eq(why,
                     "the coordinator at 'n0:29400' refuses this node: cannot join as node rank 0: "
                     "'n7' (process 12) has it");
    int before = connects;
    pass(600000);
    ck_assert_int_eq(connects, before);
}
END_TEST

/* The connection breaks after WELCOME and before a round, so the node connects again at once and
 * sends JOIN again. */
START_TEST(a_node_that_is_cut_off_while_joining_joins_again) {
    setup(0);
    member_join(m, now, 0);
    welcome();
    ck_assert_int_eq(joins, 1);
    member_disconnected(m, now, RENDEZVOUS_BROKEN, "connection closed");
    ck_assert_int_eq(stops + ends, 0);
    ck_assert_int_eq(connects, 2);
    welcome();
    ck_assert_int_eq(joins, 2);
    hear_round(0);
    ck_assert_int_eq(rounds, 1);
}
END_TEST

START_TEST(messages_that_no_coordinator_sends_are_refused) {
    start(0);
    struct cr_error err = {0};
    struct rdzv_message msg = {.type = RDZV_JOIN};
    ck_assert_int_eq(member_receive(m, now, &msg, &err), -EPROTO);
    ck_assert_str_eq(err.text, "a coordinator must not send a JOIN message");
    msg.type = RDZV_ACCEPTED;
    msg.accepted = (struct rdzv_accepted){0};
    ck_assert_int_eq(member_receive(m, now, &msg, &err), -EPROTO);
    msg.accepted.keep_alive_interval_ms = INT64_MAX, msg.accepted.keep_alive_max_attempt = 3;
    ck_assert_int_eq(member_receive(m, now, &msg, &err), -EPROTO);
    ck_assert_str_eq(err.text, "the coordinator sent a bad lease: 9223372036854775807 ms, 3 times");
}
END_TEST

static void teardown(void) {
    member_free(m);
    m = NULL;
}

START_TEST(a_node_that_is_not_fit_joins_again_when_it_is) {
    greeting.version = RDZV_VERSION_UNFIT;
    setup(0);
    member_set_unfit(m, "GPU 3 is gone");
    member_join(m, now, 0);
    welcome();
    ck_assert_int_eq(joins, 1);
    member_set_unfit(m, "GPU 3 is gone"); /* nothing new */
    ck_assert_int_eq(joins, 1);
    member_set_unfit(m, "");
    ck_assert_int_eq(joins, 2);
    member_set_unfit(m, "");
    ck_assert_int_eq(joins, 2);
    hear_round(0);
    ck_assert_int_eq(rounds, 1);
    greeting.version = 2;
}
END_TEST

START_TEST(a_node_that_is_not_fit_does_not_join_an_old_coordinator) {
    greeting.version = RDZV_VERSION_UNFIT - 1;
    setup(0);
    member_set_unfit(m, "GPU 3 is gone");
    member_join(m, now, 0);
    welcome();
    ck_assert_int_eq(joins, 0);
    ck_assert_int_eq(ends, 1);
    greeting.version = 2;
}
END_TEST

int main(void) {
    Suite *s = suite_create("member");
    TCase *t = tcase_create("rules");
    tcase_set_timeout(t, 30);
    tcase_add_checked_fixture(t, NULL, teardown);
    tcase_add_test(t, a_node_that_is_not_fit_joins_again_when_it_is);
    tcase_add_test(t, a_node_that_is_not_fit_does_not_join_an_old_coordinator);
    tcase_add_test(t, it_beats_at_the_interval_and_is_fenced_before_the_lease_ends);
    tcase_add_test(t, a_suspended_node_stops_its_workers_at_once);
    tcase_add_test(t, the_lease_counts_from_the_beat_not_from_its_answer);
    tcase_add_test(t, each_change_of_state_is_one_log_line);
    tcase_add_test(t, a_stopped_node_beats_at_once_if_the_coordinator_waits_for_it);
    tcase_add_test(t, an_old_or_future_ack_does_not_extend_the_lease);
    tcase_add_test(t, the_coordinators_settings_count);
    tcase_add_test(t, a_lost_coordinator_is_the_end_unless_coordinator_wait_is_set);
    tcase_add_test(t, after_a_reconnect_join_carries_what_the_node_remembers);
    tcase_add_test(t, the_first_connection_is_tried_until_its_time_is_up);
    tcase_add_test(t, a_black_hole_is_an_attempt_without_answer);
    tcase_add_test(t, a_server_that_hangs_up_at_once_is_not_tried_again_at_once);
    tcase_add_test(t, a_failed_node_gets_only_a_stop_with_a_limit);
    tcase_add_test(t, old_rounds_do_not_count);
    tcase_add_test(t, a_leaving_node_stays_connected_and_sends_only_beats);
    tcase_add_test(t, a_waiting_node_gives_up_its_vote_when_it_is_asked_to);
    tcase_add_test(t, a_node_that_has_lost_an_heir_joins_no_other_coordinator_at_once);
    tcase_add_test(t, a_leaving_node_obeys_the_time_limit_of_a_stop);
    tcase_add_test(t,
                   the_death_of_a_killed_worker_is_reported_although_the_round_is_over);
    tcase_add_test(t, a_refusal_ends_the_member_with_its_reason);
    tcase_add_test(t, a_node_that_is_cut_off_while_joining_joins_again);
    tcase_add_test(t, messages_that_no_coordinator_sends_are_refused);
    tcase_add_test(t, a_change_of_the_running_round_is_passed_on_and_answered);
    tcase_add_test(t, after_a_failure_a_change_is_not_answered);
    tcase_add_test(t, without_a_connection_a_notice_is_dropped);
    tcase_add_test(t, an_old_coordinator_is_not_told_that_workers_are_quiet);
    tcase_add_test(t, only_a_new_report_that_workers_are_quiet_is_sent);
    tcase_add_test(t, a_paired_test_is_begun_and_answered_only_while_the_node_waits);
    tcase_add_test(t, a_report_that_workers_are_quiet_is_repeated_after_resume);
    tcase_add_test(t, a_node_that_has_ended_well_repeats_its_report_after_resume);
    tcase_add_test(t, a_hang_of_another_round_is_not_passed_on);
    tcase_add_test(t, a_failure_waits_for_the_result_of_an_inquiry);
    tcase_add_test(t, a_failure_does_not_wait_long_for_an_inquiry);
    tcase_add_test(t, a_join_waits_for_the_failure_before_it);
    tcase_add_test(t, a_held_join_survives_the_loss_of_the_connection);
    tcase_add_test(t, a_held_failure_is_reported_on_the_next_connection);
    tcase_add_test(t, an_order_is_passed_on_unless_the_node_leaves);
    suite_add_tcase(s, t);
    return run_suite(s);
}
