/* Tests of a relay's core and of the frames of a trunk: what goes up and down, when a BEAT is
 * answered, when a place is free again, and what ends a member or the trunk. */
#include "base/time/clock.h"
#include "rendezvous/relay/core_internal.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <string.h>

#define INTERVAL INT64_C(4000) /* keep-alive interval of the job, in ms */

static struct relay relay;
static int64_t now_ms;

/* What the core has sent up since the last call of look(): counts by type, and the last
 * messages. */
static struct {
    int count[256];      /* messages between relay and host, by type */
    int frames[64];      /* frames of members, by place */
    struct rdzv_message last_frame; /* texts in it are not valid */
    struct rdzv_hold hold;
    struct rdzv_detach detach;
} up;

static int on_frame(void *arg, uint32_t place, const char *frame, size_t len,
                    struct cr_error *err) {
    size_t used;
    (void) arg;
    up.frames[place]++;
    return rdzv_message_decode(frame, len, &up.last_frame, &used, err);
}

static int on_message(void *arg, const struct rdzv_message *m, struct cr_error *err) {
    (void) arg;
    (void) err;
    up.count[m->type]++;
    if (m->type == RDZV_HOLD) up.hold = m->hold;
    if (m->type == RDZV_DETACH) up.detach = m->detach;
    return 0;
}

static void look(void) {
    static const struct rdzv_trunk_actions actions = {on_frame, on_message};
    struct rdzv_trunk t = {.has_via = false};
    memset(&up, 0, sizeof(up));
    for (size_t i = 0; i < relay.out.len; i++) { /* byte by byte: no piece is too small */
        ck_assert_int_eq(rdzv_trunk_receive(&t, relay.out.data + i, 1, &actions, NULL, NULL), 0);
    }
    ck_assert_uint_eq(t.in.len, 0);
    ck_assert(!t.has_via);
    cr_buffer_clear(&relay.out);
    rdzv_trunk_done(&t);
}

static void encode(const struct rdzv_message *m, struct cr_buffer *out) {
    ck_assert_int_eq(rdzv_message_encode(m, RDZV_VERSION_MAX, out), 0);
}

/* Passes the message `m` to the relay as if the host had sent it on the trunk. If `place` is not
 * -1, the message is for the member at that place. */
static void down(int place, const struct rdzv_message *m) {
    struct cr_buffer b = {0};
    struct rdzv_message via = {.type = RDZV_VIA, .via = {.place = (uint32_t) place}};
    if (place >= 0) encode(&via, &b);
    encode(m, &b);
    relay_trunk_receive(&relay, b.data, b.len);
    cr_buffer_done(&b);
}

static void member_sends(uint32_t place, const struct rdzv_message *m) {
    struct cr_buffer b = {0};
    encode(m, &b);
    relay_receive(&relay, now_ms, place, b.data, b.len);
    cr_buffer_done(&b);
}

static void beat(uint32_t place, uint64_t rounds_seen, int64_t heard_at_ms) {
    struct rdzv_message m = {.type = RDZV_BEAT};
    m.beat = (struct rdzv_beat){.sent_ms = now_ms, .rounds_seen = rounds_seen,
                                .heard_at_ms = heard_at_ms};
    member_sends(place, &m);
}

/* Decodes the only message that the relay has sent to the member since the last call of got(), and
 * stores it in *m. Returns its type, or 0 if the relay has sent none. */
static int got(uint32_t place, struct rdzv_message *m) {
    struct cr_buffer *out = &relay.places[place].out;
    size_t used = 0;
    if (out->len == 0) return 0;
    ck_assert_int_eq(rdzv_message_decode(out->data, out->len, m, &used, NULL), 0);
    ck_assert_uint_eq(used, out->len);
    cr_buffer_clear(out);
    return (int) m->type;
}

/* Connects a member to the relay, passes it WELCOME and ACCEPTED of the host, and passes the
 * member's first BEAT up to the host. Returns the member's place. */
static uint32_t seat(void) {
    struct rdzv_message m = {.type = RDZV_WELCOME}, sent;
    m.welcome.version = RDZV_VERSION_MAX;
    int place = relay_attach(&relay, "10.0.0.1");
    ck_assert_int_ge(place, 0);
    down(place, &m);
    ck_assert_int_eq(got((uint32_t) place, &sent), RDZV_WELCOME);
    m.type = RDZV_ACCEPTED;
    m.accepted = (struct rdzv_accepted){.keep_alive_interval_ms = INTERVAL, .differs = ""};
    down(place, &m);
    ck_assert_int_eq(got((uint32_t) place, &sent), RDZV_ACCEPTED);
    beat((uint32_t) place, 1, 7);
    look();
    ck_assert_int_eq(up.frames[place], 1);
    return (uint32_t) place;
}

static void setup(void) {
    struct rdzv_message m = {.type = RDZV_WELCOME};
    now_ms = 1000;
    ck_assert_int_eq(relay_open(&relay, now_ms, "job"), 0);
    ck_assert_int_eq(memcmp(relay.out.data, RDZV_MAGIC, RDZV_MAGIC_LEN), 0);
    cr_buffer_consume(&relay.out, RDZV_MAGIC_LEN);
    look();
    ck_assert_int_eq(up.count[RDZV_RELAY], 1);
    m.welcome.version = RDZV_VERSION_MAX;
    down(-1, &m);
}

static void finish(void) { relay_done(&relay); }

START_TEST(frames_go_up_and_down_unchanged) {
    struct rdzv_message m = {.type = RDZV_FAILED}, sent;
    uint32_t a = seat(), b = seat();
    m.failed = (struct rdzv_failed){.round = 4, .what = "rank 1", .blame = 2};
    member_sends(b, &m);
    look();
    ck_assert_int_eq(up.frames[a], 0);
    ck_assert_int_eq(up.frames[b], 1);
    ck_assert_int_eq(up.last_frame.type, RDZV_FAILED);
    ck_assert_uint_eq(up.last_frame.failed.blame, 2);
    m.type = RDZV_STOP;
    m.stop = (struct rdzv_stop){.round = 4, .why = "a failure"};
    down((int) a, &m);
    ck_assert_int_eq(got(a, &sent), RDZV_STOP);
    ck_assert_int_eq(got(b, &sent), 0);
}
END_TEST

START_TEST(beats_are_gathered_and_answered_after_the_host_has_answered) {
    struct rdzv_message m = {.type = RDZV_BEAT_ACK}, sent;
    uint32_t a = seat(), b = seat(), c = seat();
    now_ms = 2000;
    beat(a, 1, 90);
    now_ms = 2010;
    beat(b, 1, 80);
    look();
    ck_assert_int_eq(up.frames[a] + up.frames[b], 0);
    ck_assert_int_eq(relay_deadline(&relay), 2000 + INTERVAL / 8 + 1);
    relay_tick(&relay, now_ms);
    look();
    ck_assert_int_eq(up.count[RDZV_HOLD], 0); /* not yet */
    now_ms = relay_deadline(&relay);
    relay_tick(&relay, now_ms);
    look();
    ck_assert_int_eq(up.count[RDZV_HOLD], 1);
    ck_assert_uint_eq(up.hold.places, UINT64_C(1) << a | UINT64_C(1) << b);
    ck_assert_int_eq(up.hold.heard_at_ms, 80); /* the smaller one: no more is certain */
    now_ms += 5;
    beat(a, 1, 90); /* this one came too late for the HOLD */
    beat(c, 1, 90);
    /* the relay answers no BEAT before the host has answered HOLD */
    ck_assert_int_eq(got(a, &sent), 0);
    m.beat_ack = (struct rdzv_beat_ack){.sent_ms = up.hold.sent_ms, .at_ms = 555, .settled = 3};
    down(-1, &m);
    ck_assert_int_eq(got(a, &sent), RDZV_BEAT_ACK);
    ck_assert_int_eq(sent.beat_ack.sent_ms, 2000);
    ck_assert_int_eq(sent.beat_ack.at_ms, 555);
    ck_assert_uint_eq(sent.beat_ack.settled, 3);
    ck_assert_int_eq(got(b, &sent), RDZV_BEAT_ACK);
    ck_assert_int_eq(sent.beat_ack.sent_ms, 2010);
    ck_assert_int_eq(got(c, &sent), 0);
    now_ms = relay_deadline(&relay);
    relay_tick(&relay, now_ms);
    look();
    ck_assert_uint_eq(up.hold.places, UINT64_C(1) << a | UINT64_C(1) << c);
}
END_TEST

START_TEST(a_beat_with_news_goes_up_as_it_is) {
    uint32_t a = seat();
    beat(a, 2, 7); /* the node is in another round */
    look();
    ck_assert_int_eq(up.frames[a], 1);
    ck_assert_uint_eq(up.last_frame.beat.rounds_seen, 2);
    beat(a, 2, 9);
    look();
    ck_assert_int_eq(up.frames[a], 0);
}
END_TEST

START_TEST(one_hold_is_under_way_at_a_time_and_has_a_limit) {
    struct rdzv_message sent;
    uint32_t a = seat();
    beat(a, 1, 7);
    now_ms = relay_deadline(&relay);
    relay_tick(&relay, now_ms);
    int64_t limit_ms = now_ms + RELAY_ANSWER_MS;
    now_ms += INTERVAL;
    beat(a, 1, 7);
    relay_tick(&relay, now_ms);
    look();
    ck_assert_int_eq(up.count[RDZV_HOLD], 1);
    ck_assert_int_eq(relay_deadline(&relay), limit_ms);
    relay_tick(&relay, limit_ms - 1);
    ck_assert(!relay.is_over);
    relay_tick(&relay, limit_ms);
    ck_assert(relay.is_over);
    ck_assert(relay.places[a].ends && relay.places[a].is_broken); /* it may resume */
    ck_assert_int_eq(got(a, &sent), 0);
    ck_assert_int_eq(relay_attach(&relay, "10.0.0.1"), -1);
    ck_assert_int_eq(relay_deadline(&relay), CR_FOREVER);
    relay_lost(&relay, a, RENDEZVOUS_CLOSED);
    ck_assert_uint_eq(relay.used, 0);
}
END_TEST

START_TEST(without_members_the_trunk_still_speaks) {
    now_ms = relay_deadline(&relay);
    ck_assert_int_le(now_ms, 1000 + SESSION_RELAY_MS / 4);
    relay_tick(&relay, now_ms);
    look();
    ck_assert_int_eq(up.count[RDZV_HOLD], 1);
    ck_assert_uint_eq(up.hold.places, 0);
}
END_TEST

START_TEST(a_place_is_free_when_both_ends_have_detached) {
    struct rdzv_message m = {.type = RDZV_DETACH}, sent;
    uint32_t a = seat();
    beat(a, 1, 7);
    relay_lost(&relay, a, RENDEZVOUS_BROKEN);
    look();
    ck_assert_int_eq(up.count[RDZV_DETACH], 1);
    ck_assert_uint_eq(up.detach.place, a);
    ck_assert_uint_eq(up.detach.is_broken, 1);
    ck_assert_uint_ne(seat(), a);
    m.detach.place = a;
    down(-1, &m);
    uint32_t again = seat();
    ck_assert_uint_eq(again, a);
    now_ms = relay_deadline(&relay);
    relay_tick(&relay, now_ms);
    look();
    /* HOLD must not count the beat of the member that had this place before */
    ck_assert_uint_eq(up.hold.places, 0);
    m.detach = (struct rdzv_detach){.place = a};
    down(-1, &m); /* the host hangs up */
    ck_assert(relay.places[a].ends && !relay.places[a].is_broken);
    ck_assert_int_eq(got(a, &sent), 0);
    relay_lost(&relay, a, RENDEZVOUS_CLOSED);
    look();
    ck_assert_int_eq(up.count[RDZV_DETACH], 1);
    ck_assert_int_eq(relay.places[a].state, RELAY_FREE);
    ck_assert(!relay.is_over);
}
END_TEST

START_TEST(sixty_four_members_have_places) {
    for (uint32_t i = 0; i < RDZV_RELAY_PLACES; i++) ck_assert_uint_eq(seat(), i);
    ck_assert_int_eq(relay_attach(&relay, "10.0.0.1"), -1);
    for (uint32_t i = 0; i < RDZV_RELAY_PLACES; i++) beat(i, 1, 7);
    relay_tick(&relay, relay_deadline(&relay));
    look();
    ck_assert_uint_eq(up.hold.places, UINT64_MAX);
}
END_TEST

START_TEST(a_member_that_sends_no_frames_is_ended) {
    uint32_t a = seat(), b = seat();
    relay_receive(&relay, now_ms, a, "\xff\xff\xff\xff", 4);
    ck_assert(relay.places[a].ends && relay.places[a].is_broken);
    ck_assert(!relay.places[b].ends && !relay.is_over);
}
END_TEST

START_TEST(a_wrong_trunk_is_given_up) {
    struct rdzv_message wrong[] = {{.type = RDZV_STOP}, {.type = RDZV_DETACH},
                                   {.type = RDZV_REFUSED}, {.type = RDZV_VIA}};
    wrong[0].stop.why = "for nobody";
    wrong[1].detach.place = 9; /* nobody is there */
    wrong[2].refused.why = "another job";
    wrong[3].via.place = RDZV_RELAY_PLACES;
    for (size_t i = 0; i < 4; i++) {
        uint32_t a = seat();
        down(-1, &wrong[i]);
        ck_assert_msg(relay.is_over, "%zu", i);
        ck_assert(relay.places[a].ends && relay.places[a].is_broken);
        ck_assert_str_ne(relay.why, "");
        finish();
        setup();
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("relay");
    TCase *t = tcase_create("core");
    tcase_add_checked_fixture(t, setup, finish);
    tcase_add_test(t, frames_go_up_and_down_unchanged);
    tcase_add_test(t, beats_are_gathered_and_answered_after_the_host_has_answered);
    tcase_add_test(t, a_beat_with_news_goes_up_as_it_is);
    tcase_add_test(t, one_hold_is_under_way_at_a_time_and_has_a_limit);
    tcase_add_test(t, without_members_the_trunk_still_speaks);
    tcase_add_test(t, a_place_is_free_when_both_ends_have_detached);
    tcase_add_test(t, sixty_four_members_have_places);
    tcase_add_test(t, a_member_that_sends_no_frames_is_ended);
    tcase_add_test(t, a_wrong_trunk_is_given_up);
    suite_add_tcase(s, t);
    return run_suite(s);
}
