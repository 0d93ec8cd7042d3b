/* Tests the probe, which finds the protocol generation of a server from its answers: each path
 * through the probe, the pauses between attempts, and which operations of a server it tests. */
#include "base/time/clock.h"
#include "store/client/probe.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- attempts ---- */

/* Reports a failed attempt to the probe. Checks that the probe requests the next attempt as `next`
 * says (at once or later), with the handshake `how`. */
static void fails(struct store_probe *p, int code, int connected, enum store_probe_next next,
                  enum store_handshake how) {
    ck_assert_int_eq(store_probe_failed(p, code, connected), next);
    ck_assert_int_eq(p->how, how);
}

START_TEST(modern_is_found_at_once) {
    struct store_probe p = store_probe_new(STORE_PROTOCOL_PROBE);
    ck_assert_int_eq(p.how, STORE_SHAKE_PING);
    ck_assert_int_eq(store_probe_limit_ms(&p), STORE_PROBE_MS);
    ck_assert_int_eq(store_probe_shaken(&p), STORE_PROBE_FOUND);
}
END_TEST

START_TEST(a_failed_dial_proves_nothing) {
    struct store_probe p = store_probe_new(STORE_PROTOCOL_PROBE);
    fails(&p, -ECONNREFUSED, 0, STORE_PROBE_LATER, STORE_SHAKE_PING);
    fails(&p, -ETIMEDOUT, 0, STORE_PROBE_LATER, STORE_SHAKE_PING);
    fails(&p, -EACCES, 0, STORE_PROBE_STOP, STORE_SHAKE_PING);
}
END_TEST

START_TEST(without_ping) {
    struct store_probe p = store_probe_new(STORE_PROTOCOL_PROBE);
    fails(&p, -ECONNRESET, 1, STORE_PROBE_AGAIN, STORE_SHAKE_NOPING);
    ck_assert_int_eq(store_probe_shaken(&p), STORE_PROBE_FOUND);
    /* After a reset during NOPING the probe begins again with PING. */
    fails(&p, -ECONNRESET, 1, STORE_PROBE_LATER, STORE_SHAKE_PING);
    fails(&p, -EPROTO, 1, STORE_PROBE_AGAIN, STORE_SHAKE_NOPING);
    fails(&p, -ETIMEDOUT, 1, STORE_PROBE_AGAIN, STORE_SHAKE_LEGACY);
}
END_TEST

static struct store_probe answered_legacy(void) {
    struct store_probe p = store_probe_new(STORE_PROTOCOL_PROBE);
    fails(&p, -ETIMEDOUT, 1, STORE_PROBE_AGAIN, STORE_SHAKE_LEGACY);
    ck_assert_int_eq(store_probe_shaken(&p), STORE_PROBE_CONFIRM);
    return p;
}

START_TEST(an_old_one_hangs_up_and_is_connected_to_afresh) {
    struct store_probe p = answered_legacy();
    ck_assert_int_eq(store_probe_confirmed(&p, -ECONNRESET, 0), STORE_PROBE_AGAIN);
    ck_assert_int_eq(p.how, STORE_SHAKE_LEGACY);
    ck_assert_int_eq(store_probe_limit_ms(&p), CR_FOREVER);
    ck_assert_int_eq(store_probe_shaken(&p), STORE_PROBE_FOUND);
    p = answered_legacy();
    ck_assert_int_eq(store_probe_confirmed(&p, -EPIPE, 0), STORE_PROBE_AGAIN);
    fails(&p, -ECONNREFUSED, 0, STORE_PROBE_LATER, STORE_SHAKE_LEGACY);
    /* The last connection was refused, so since the first answer another server may have taken the
     * address. Therefore the new answer in legacy must be confirmed, too. */
    ck_assert_int_eq(store_probe_shaken(&p), STORE_PROBE_CONFIRM);
}
END_TEST

START_TEST(a_busy_modern_one_gets_all_the_time) {
    struct store_probe p = answered_legacy();
    ck_assert_int_eq(store_probe_confirmed(&p, 0, STORE_WAIT_CANCELED), STORE_PROBE_AGAIN);
    ck_assert_int_eq(p.how, STORE_SHAKE_PING);
    ck_assert_int_eq(store_probe_limit_ms(&p), CR_FOREVER);
    /* This server has answered CANCEL_WAIT, which only a modern server does, so the probe does not
     * fall back to legacy although PING times out. */
    fails(&p, -ETIMEDOUT, 1, STORE_PROBE_LATER, STORE_SHAKE_PING);
}
END_TEST

START_TEST(other_answers_begin_anew) {
    struct store_probe p = answered_legacy();
    ck_assert_int_eq(store_probe_confirmed(&p, 0, 7), STORE_PROBE_LATER);
    ck_assert_int_eq(p.how, STORE_SHAKE_PING);
    p = answered_legacy();
    ck_assert_int_eq(store_probe_confirmed(&p, -ETIMEDOUT, 0), STORE_PROBE_LATER);
    ck_assert_int_eq(p.how, STORE_SHAKE_PING);
    p = answered_legacy();
    ck_assert_int_eq(store_probe_confirmed(&p, -ENOMEM, 0), STORE_PROBE_STOP);
}
END_TEST

START_TEST(who_is_told_does_not_probe) {
    struct store_probe p = store_probe_new(STORE_PROTOCOL_LEGACY);
    ck_assert_int_eq(p.how, STORE_SHAKE_LEGACY);
    ck_assert_int_eq(store_probe_limit_ms(&p), CR_FOREVER);
    ck_assert_int_eq(store_probe_shaken(&p), STORE_PROBE_FOUND);
    fails(&p, -ECONNRESET, 1, STORE_PROBE_LATER, STORE_SHAKE_LEGACY);
    p = store_probe_new(STORE_PROTOCOL_MODERN);
    fails(&p, -ECONNRESET, 1, STORE_PROBE_LATER, STORE_SHAKE_PING);
    fails(&p, -ETIMEDOUT, 1, STORE_PROBE_LATER, STORE_SHAKE_PING);
}
END_TEST

/* ---- pauses between attempts ---- */

START_TEST(pauses_grow_and_differ) {
    struct store_backoff a = store_backoff_new(1), b = store_backoff_new(99);
    int differ = 0;
    for (int i = 0; i < 40; i++) {
        int64_t interval = a.interval_ms, ms = store_backoff_next_ms(&a);
        ck_assert_int_ge(ms, interval / 2);
        ck_assert_int_le(ms, interval / 2 + interval);
        differ += ms != store_backoff_next_ms(&b);
    }
    ck_assert_int_eq(a.interval_ms, 5000);
    ck_assert_int_gt(differ, 30);
    struct store_backoff zero = store_backoff_new(0); /* 0 is a valid seed */
    ck_assert_int_gt(store_backoff_next_ms(&zero), 0);
}
END_TEST

START_TEST(addresses_share_the_time) {
    ck_assert_int_eq(store_address_time_ms(9000, 3), 3000);
    ck_assert_int_eq(store_address_time_ms(9000, 1), 9000);
    ck_assert_int_lt(store_address_time_ms(CR_FOREVER, 2), 60000);
    ck_assert_int_eq(store_address_time_ms(CR_FOREVER, 1), 60000);
}
END_TEST

/* ---- which operations the server has ---- */

START_TEST(what_is_asked) {
    int8_t known[STORE_OP_COUNT] = {0};
    int asked = 0;
    for (int op = 0; op < STORE_OP_COUNT; op++)
        asked += store_server_has(STORE_SHAKE_PING, known, (enum store_op) op) < 0;
    ck_assert_int_eq(asked, 5); /* three queue operations, list_keys, barrier */
    known[STORE_OP_QUEUE_LEN] = -1;
    known[STORE_OP_BARRIER] = 1;
    ck_assert_int_eq(store_server_has(STORE_SHAKE_NOPING, known, STORE_OP_QUEUE_PUSH), 0);
    ck_assert_int_eq(store_server_has(STORE_SHAKE_NOPING, known, STORE_OP_QUEUE_POP), 0);
    ck_assert_int_eq(store_server_has(STORE_SHAKE_NOPING, known, STORE_OP_BARRIER), 1);
    ck_assert_int_eq(store_server_has(STORE_SHAKE_NOPING, known, STORE_OP_LIST_KEYS), -1);
}
END_TEST

/* The probe sends an old server no request to learn its operations, because those of torch 1.13.1
 * are known. */
START_TEST(what_an_old_one_has) {
    int8_t known[STORE_OP_COUNT] = {0};
    enum store_op has[] = {STORE_OP_SET,   STORE_OP_COMPARE_SET, STORE_OP_GET,
                           STORE_OP_ADD,   STORE_OP_CHECK,       STORE_OP_WAIT,
                           STORE_OP_WATCH, STORE_OP_NUM_KEYS,    STORE_OP_DELETE};
    int count = 0;
    for (int op = 0; op < STORE_OP_COUNT; op++) {
        int answer = store_server_has(STORE_SHAKE_LEGACY, known, (enum store_op) op);
        ck_assert_int_ge(answer, 0);
        count += answer;
    }
    ck_assert_int_eq(count, (int) (sizeof(has) / sizeof(has[0])));
    for (size_t i = 0; i < sizeof(has) / sizeof(has[0]); i++)
        ck_assert_int_eq(store_server_has(STORE_SHAKE_LEGACY, known, has[i]), 1);
}
END_TEST

int main(void) {
    TCase *t = tcase_create("probe");
    tcase_add_test(t, modern_is_found_at_once);
    tcase_add_test(t, a_failed_dial_proves_nothing);
    tcase_add_test(t, without_ping);
    tcase_add_test(t, an_old_one_hangs_up_and_is_connected_to_afresh);
    tcase_add_test(t, a_busy_modern_one_gets_all_the_time);
    tcase_add_test(t, other_answers_begin_anew);
    tcase_add_test(t, who_is_told_does_not_probe);
    tcase_add_test(t, pauses_grow_and_differ);
    tcase_add_test(t, addresses_share_the_time);
    tcase_add_test(t, what_is_asked);
    tcase_add_test(t, what_an_old_one_has);
    Suite *suite = suite_create("store probe");
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
