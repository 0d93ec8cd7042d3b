/* Tests of the host's end of a trunk (rendezvous/host/trunk_end_internal.h): which places are free,
 * what a HOLD stands for, what is sent to the relay, and what follows from the loss of a node or of
 * the trunk. */
#include "base/time/clock.h"
#include "tests/lib/run_suite.h"
#include "tests/lib/trunk_ends.h"

#include <check.h>
#include <errno.h>
#include <string.h>

#define NODES_MAX 8

/* A node behind the relay, at the host's end. */
struct node {
    struct trunk_node at;
    bool is_over;
    int joins, beats, losses;
    enum rendezvous_loss how;
    uint64_t rounds_seen; /* in the last BEAT that the session has received */
};

static struct node nodes[NODES_MAX];
static uint32_t node_count;
static bool is_out_of_memory;

/* ---- sessions ---- */

static int on_join(void *arg, const struct rdzv_join *j) {
    struct node *n = arg;
    (void) j;
    n->joins++;
    return 0;
}

static int on_node_message(void *arg, const struct rdzv_message *m, struct cr_error *err) {
    struct node *n = arg;
    struct rdzv_message ack = {.type = RDZV_BEAT_ACK};
    (void) err;
    if (m->type != RDZV_BEAT) return 0;
    n->beats++;
    n->rounds_seen = m->beat.rounds_seen;
    ack.beat_ack = (struct rdzv_beat_ack){.sent_ms = m->beat.sent_ms, .at_ms = now_ms,
                                          .settled = 5};
    if (!trunk_end_keeps(&n->at.member, &ack)) host_session_send(&n->at.session, now_ms, &ack);
    return 0;
}

static void on_lost(void *arg, enum rendezvous_loss how, const char *why) {
    struct node *n = arg;
    (void) why;
    n->losses++;
    n->how = how;
}

static const struct host_session_actions node_actions = {
    .on_hello = on_hello, .on_join = on_join, .on_message = on_node_message, .on_lost = on_lost,
    .log = on_log};

static struct trunk_member *attach(void *arg, uint32_t place, const char *addr) {
    struct node *n = &nodes[node_count];
    (void) arg, (void) place;
    ck_assert_str_eq(addr, "10.0.0.1");
    if (is_out_of_memory) return NULL;
    ck_assert_uint_lt(node_count++, NODES_MAX);
    host_session_open(&n->at.session, now_ms, false, &terms, &node_actions, n);
    n->at.member.session = &n->at.session;
    return &n->at.member;
}

static void attach_at(uint32_t place) {
    struct rdzv_message m = {.type = RDZV_ATTACH};
    m.attach = (struct rdzv_attach){.place = place, .addr = "10.0.0.1"};
    send_up(-1, &m);
}

static void detach_at(uint32_t place, bool is_broken) {
    struct rdzv_message m = {.type = RDZV_DETACH};
    m.detach = (struct rdzv_detach){.place = place, .is_broken = is_broken};
    send_up(-1, &m);
}

/* Attaches a node at `place`, and lets it send HELLO and JOIN. */
static struct node *seat(uint32_t place) {
    struct node *n = &nodes[node_count];
    attach_at(place);
    send_join((int) place);
    ck_assert_int_eq(n->joins, 1);
    return n;
}

/* ---- what the host has sent to the relay ---- */

static struct {
    int count[256];  /* messages between host and relay, by type */
    int frames[RDZV_RELAY_PLACES]; /* frames of members, by place */
    struct rdzv_beat_ack ack;
    uint32_t detached;
} down;

static int on_down_frame(void *arg, uint32_t place, const char *frame, size_t len,
                         struct cr_error *err) {
    (void) arg, (void) frame, (void) len, (void) err;
    down.frames[place]++;
    return 0;
}

static int on_down_message(void *arg, const struct rdzv_message *m, struct cr_error *err) {
    (void) arg, (void) err;
    down.count[m->type]++;
    if (m->type == RDZV_BEAT_ACK) down.ack = m->beat_ack;
    if (m->type == RDZV_DETACH) down.detached = m->detach.place;
    return 0;
}

/* Flushes all marked nodes, as the end of an event does, and counts what was sent to the relay. */
static void look(void) {
    static const struct rdzv_trunk_actions counting = {on_down_frame, on_down_message};
    struct rdzv_trunk t = {.has_via = false};
    memset(&down, 0, sizeof(down));
    for (uint32_t i = 0; i < node_count; i++) {
        struct node *n = &nodes[i];
        if (!n->at.marked) continue;
        n->at.marked = false;
        ck_assert_int_eq(trunk_end_flush(&n->at.member, now_ms, &n->is_over), 0);
        ck_assert_uint_eq(n->at.session.out.len, 0);
    }
    ck_assert_int_eq(rdzv_trunk_receive(&t, relay.out.data, relay.out.len, &counting, NULL, NULL),
                     0);
    cr_buffer_clear(&relay.out);
    rdzv_trunk_done(&t);
}

static void setup(void) {
    memset(nodes, 0, sizeof(nodes));
    node_count = 0;
    now_ms = 1000;
    is_out_of_memory = false;
    open_relay();
    ck_assert_int_eq(relay.state, HOST_SESSION_RELAYING);
    look();
    ck_assert_int_eq(down.count[RDZV_WELCOME], 1);
}

static void finish(void) {
    trunk_end_done(&end);
    host_session_done(&relay);
    for (uint32_t i = 0; i < node_count; i++) host_session_done(&nodes[i].at.session);
}

/* ---- the tests ---- */

START_TEST(a_node_behind_the_relay_is_greeted_and_gets_a_seat) {
    struct node *a = seat(3);
    look();
    ck_assert_int_eq(down.frames[3], 1); /* WELCOME */
    ck_assert(a->at.session.seated && !a->is_over);
    ck_assert(trunk_end_has_members(&end));
    struct rdzv_message stop = {.type = RDZV_STOP, .stop = {.why = "test"}};
    host_session_send(&a->at.session, now_ms, &stop);
    ck_assert_int_eq(trunk_end_push(&a->at.member), 0);
    look();
    ck_assert_int_eq(down.frames[3], 1);
}
END_TEST

START_TEST(a_hold_is_a_beat_of_each_node_that_it_names_and_gets_one_answer) {
    struct node *a = seat(0), *b = seat(1), *c = seat(63);
    struct rdzv_message m = {.type = RDZV_HOLD};
    attach_at(2); /* this node has not joined yet, so it has no lease */
    a->at.member.rounds_seen = 4;
    look();
    m.hold = (struct rdzv_hold){.sent_ms = 77, .heard_at_ms = 9,
                                .places = UINT64_C(1) | UINT64_C(1) << 63 | UINT64_C(4)};
    send_up(-1, &m);
    look();
    ck_assert_int_eq(a->beats, 1);
    ck_assert_uint_eq(a->rounds_seen, 4);
    ck_assert_int_eq(b->beats, 0);
    ck_assert_int_eq(c->beats, 1);
    ck_assert_int_eq(down.count[RDZV_BEAT_ACK], 1);
    ck_assert_int_eq(down.ack.sent_ms, 77);
    ck_assert_uint_eq(down.ack.settled, 5); /* as the coordinator has answered */
    ck_assert_int_eq(down.frames[0] + down.frames[63], 0);
}
END_TEST

START_TEST(a_beat_of_its_own_is_answered_to_the_node) {
    struct node *a = seat(0);
    struct rdzv_message m = {.type = RDZV_BEAT, .beat = {.sent_ms = 5, .rounds_seen = 2}};
    look();
    send_up(0, &m);
    look();
    ck_assert_int_eq(a->beats, 1);
    ck_assert_int_eq(down.frames[0], 1);
    ck_assert_int_eq(down.count[RDZV_BEAT_ACK], 0);
}
END_TEST

START_TEST(a_place_is_free_when_both_ends_have_detached) {
    struct node *a = seat(0), *b = seat(1);
    look();
    detach_at(0, true); /* the relay detaches first */
    ck_assert_int_eq(a->losses, 1);
    ck_assert_int_eq(a->how, RENDEZVOUS_BROKEN);
    look();
    ck_assert(a->is_over && a->at.member.trunk == NULL);
    ck_assert_int_eq(down.count[RDZV_DETACH], 1);
    ck_assert_uint_eq(down.detached, 0);
    ck_assert_ptr_nonnull(seat(0));
    host_session_hang_up(&b->at.session, now_ms); /* this end detaches first */
    b->at.marked = true;
    look();
    ck_assert(b->is_over);
    ck_assert_int_eq(b->losses, 0);
    struct rdzv_message late = {.type = RDZV_BEAT}; /* sent before the relay has got DETACH */
    send_up(1, &late);
    ck_assert_int_eq(b->beats, 0);
    ck_assert_int_eq(relay.state, HOST_SESSION_RELAYING);
    detach_at(1, false);
    ck_assert_ptr_nonnull(seat(1));
    ck_assert_int_eq(relay.state, HOST_SESSION_RELAYING);
}
END_TEST

START_TEST(a_node_that_closes_its_connection_has_ended) {
    struct node *a = seat(0);
    detach_at(0, false);
    ck_assert_int_eq(a->losses, 1);
    ck_assert_int_eq(a->how, RENDEZVOUS_CLOSED);
}
END_TEST

START_TEST(the_loss_of_the_trunk_is_the_loss_of_connections_and_of_no_node) {
    struct node *a = seat(0), *b = seat(9);
    look();
    trunk_end_lost(&end, "its relay is gone");
    ck_assert_int_eq(a->how, RENDEZVOUS_BROKEN);
    ck_assert_int_eq(b->how, RENDEZVOUS_BROKEN);
    ck_assert(!trunk_end_has_members(&end));
    look();
    ck_assert(a->is_over && b->is_over);
    ck_assert_int_eq(down.count[RDZV_DETACH], 0); /* nobody would get it */
}
END_TEST

START_TEST(the_sessions_of_nodes_have_their_time_limits) {
    attach_at(5);
    int64_t when_ms = trunk_end_deadline(&end);
    ck_assert_int_gt(when_ms, now_ms);
    ck_assert_int_eq(when_ms, host_session_deadline(&nodes[0].at.session));
    now_ms = when_ms; /* the node has sent no HELLO */
    trunk_end_tick(&end, now_ms);
    look();
    ck_assert(nodes[0].is_over);
    ck_assert_int_eq(down.count[RDZV_DETACH], 1);
    ck_assert_int_eq(trunk_end_deadline(&end), CR_FOREVER);
}
END_TEST

START_TEST(a_wrong_trunk_is_refused) {
    struct rdzv_message wrong[] = {{.type = RDZV_ATTACH}, {.type = RDZV_ATTACH},
                                   {.type = RDZV_DETACH}, {.type = RDZV_DETACH},
                                   {.type = RDZV_STOP}};
    wrong[0].attach = (struct rdzv_attach){.place = 0, .addr = "10.0.0.1"}; /* it is not free */
    wrong[1].attach = (struct rdzv_attach){.place = RDZV_RELAY_PLACES, .addr = "10.0.0.1"};
    wrong[2].detach.place = 7; /* nobody is there */
    wrong[3].detach.place = RDZV_RELAY_PLACES;
    wrong[4].stop.why = "not for a relay";
    for (size_t i = 0; i < CR_ARRAY_LEN(wrong); i++) {
        (void) seat(0);
        send_up(-1, &wrong[i]);
        ck_assert_msg(relay.state == HOST_SESSION_CLOSING, "%zu", i);
        finish();
        setup();
    }
}
END_TEST

START_TEST(a_frame_of_a_place_without_a_node_is_refused) {
    struct rdzv_message m = {.type = RDZV_BEAT};
    send_up(12, &m);
    ck_assert_int_eq(relay.state, HOST_SESSION_CLOSING);
}
END_TEST

START_TEST(without_memory_for_a_node_the_trunk_is_given_up) {
    is_out_of_memory = true;
    attach_at(0);
    ck_assert_int_eq(relay.state, HOST_SESSION_CLOSING);
    ck_assert(!trunk_end_has_members(&end));
}
END_TEST

int main(void) {
    Suite *s = suite_create("trunk_end");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, finish);
    tcase_add_test(t, a_node_behind_the_relay_is_greeted_and_gets_a_seat);
    tcase_add_test(t, a_hold_is_a_beat_of_each_node_that_it_names_and_gets_one_answer);
    tcase_add_test(t, a_beat_of_its_own_is_answered_to_the_node);
    tcase_add_test(t, a_place_is_free_when_both_ends_have_detached);
    tcase_add_test(t, a_node_that_closes_its_connection_has_ended);
    tcase_add_test(t, the_loss_of_the_trunk_is_the_loss_of_connections_and_of_no_node);
    tcase_add_test(t, the_sessions_of_nodes_have_their_time_limits);
    tcase_add_test(t, a_wrong_trunk_is_refused);
    tcase_add_test(t, a_frame_of_a_place_without_a_node_is_refused);
    tcase_add_test(t, without_memory_for_a_node_the_trunk_is_given_up);
    suite_add_tcase(s, t);
    return run_suite(s);
}
