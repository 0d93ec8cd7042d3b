/* Tests how a worker handles its agent's packets: which bytes are a valid packet, when the worker
 * is frozen, at which step it must stop, and how long it waits. */
#include "worker_runtime/channel/packet.h"

#include "base/time/clock.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <errno.h>
#include <string.h>

#define NOW 1000

static struct round_state s;

static void begin(uint64_t steps) { s = (struct round_state){.steps = steps}; }

static void receive_change(uint64_t id, int64_t left_ms) {
    struct channel_packet p = {.type = CHANNEL_CHANGE, .id = id, .change = {.left_ms = left_ms}};
    round_state_receive(&s, &p, NOW);
}

static void receive_stop_at(uint64_t id, uint64_t step, int64_t left_ms) {
    struct channel_packet p = {
        .type = CHANNEL_STOP_AT, .id = id, .stop_at = {.step = step, .left_ms = left_ms}};
    round_state_receive(&s, &p, NOW);
}

static void receive_type(enum channel_type type) {
    struct channel_packet p = {.type = type};
    round_state_receive(&s, &p, NOW);
}

START_TEST(test_only_whole_packets_are_decoded) {
    struct channel_packet p = {.type = CHANNEL_CHANGE, .id = 7}, out = {0};
    memset(p.text, 'x', sizeof(p.text));
    ck_assert_int_eq(channel_packet_decode(&p, sizeof(p) - 1, &out), -EPROTO);
    ck_assert_int_eq(channel_packet_decode(&p, sizeof(p) + 1, &out), -EPROTO);
    ck_assert_int_eq(channel_packet_decode(&p, 0, &out), -EPROTO);
    p.reserved = 1;
    ck_assert_int_eq(channel_packet_decode(&p, sizeof(p), &out), -EPROTO);
    ck_assert_uint_eq(out.id, 0); /* the decoder writes nothing to `out` if it refuses a packet */
    p.reserved = 0;
    ck_assert_int_eq(channel_packet_decode(&p, sizeof(p), &out), 0);
    ck_assert_uint_eq(out.id, 7);
    ck_assert_uint_eq(strlen(out.text), sizeof(out.text) - 1);
    p.type = CHANNEL_HELLO;
    memset(p.hello.token, 'x', sizeof(p.hello.token));
    ck_assert_int_eq(channel_packet_decode(&p, sizeof(p), &out), 0);
    ck_assert_uint_eq(strlen(out.hello.token), sizeof(out.hello.token) - 1);
}
END_TEST

START_TEST(test_a_change_freezes_until_its_step_is_agreed) {
    begin(4);
    ck_assert(!round_state_is_frozen(&s));
    ck_assert_int_eq(round_state_wait_until_ms(&s), 0);
    receive_change(1, 300);
    ck_assert(round_state_is_frozen(&s) && !round_state_must_stop(&s));
    ck_assert_int_eq(s.change_until_ms, NOW + 300);
    ck_assert_int_gt(round_state_wait_until_ms(&s), NOW + 300);
    receive_stop_at(1, 5, 200);
    ck_assert(!round_state_is_frozen(&s) && !round_state_must_stop(&s));
    ck_assert_int_eq(s.change_until_ms, NOW + 200);
    s.steps = 5;
    ck_assert(round_state_must_stop(&s));
    s.steps = 6;
    ck_assert(round_state_must_stop(&s));
}
END_TEST

START_TEST(test_a_step_for_another_change_is_ignored) {
    begin(4);
    receive_stop_at(1, 5, 0);
    ck_assert_uint_eq(s.stop_at, 0);
    receive_change(2, 300);
    receive_stop_at(1, 5, 0);
    ck_assert(round_state_is_frozen(&s));
    receive_stop_at(2, 5, 0);
    ck_assert(!round_state_is_frozen(&s));
    receive_change(3, 300); /* the new change replaces the one before it and its agreed step */
    ck_assert(round_state_is_frozen(&s));
}
END_TEST

START_TEST(test_the_end_of_the_round_unfreezes) {
    begin(4);
    receive_change(1, 300);
    receive_type(CHANNEL_OVER);
    ck_assert(s.is_over && !round_state_is_frozen(&s));
    receive_change(2, 300);
    ck_assert(!round_state_is_frozen(&s));
}
END_TEST

START_TEST(test_other_packets_change_nothing) {
    begin(4);
    struct round_state before = s;
    receive_type(CHANNEL_ROUND);
    receive_type(CHANNEL_WELCOME);
    receive_type((enum channel_type) 77);
    ck_assert_mem_eq(&s, &before, sizeof(s));
    receive_type(CHANNEL_REFUSED);
    ck_assert(s.is_refused);
}
END_TEST

START_TEST(test_times_saturate) {
    begin(4);
    receive_change(1, -5);
    ck_assert_int_eq(s.change_until_ms, NOW);
    receive_change(1, INT64_MAX);
    ck_assert_int_eq(s.change_until_ms, CR_FOREVER);
    ck_assert_int_eq(round_state_wait_until_ms(&s), CR_FOREVER);
    receive_change(1, INT64_MAX - NOW - 1);
    ck_assert_int_eq(round_state_wait_until_ms(&s), CR_FOREVER);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("channel_packet");
    TCase *t = tcase_create("channel_packet");
    tcase_add_test(t, test_only_whole_packets_are_decoded);
    tcase_add_test(t, test_a_change_freezes_until_its_step_is_agreed);
    tcase_add_test(t, test_a_step_for_another_change_is_ignored);
    tcase_add_test(t, test_the_end_of_the_round_unfreezes);
    tcase_add_test(t, test_other_packets_change_nothing);
    tcase_add_test(t, test_times_saturate);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
