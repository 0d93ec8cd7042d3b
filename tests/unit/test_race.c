/* Tests, without sockets, in which order and when a node tries the addresses of its coordinator,
 * and how it recognises another program that answers there. */
#include "rendezvous/dial/race_internal.h"

#include "base/time/clock.h"
#include "rendezvous/protocol/protocol.h"
#include "rendezvous/dial/stranger_internal.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

static struct race race;

static void begin(const char *const *addrs) {
    race_begin(&race, 1000);
    for (; *addrs != NULL; addrs++) race_add(&race, *addrs);
}
#define BEGIN(...) begin((const char *const[]){__VA_ARGS__, NULL})

static void expect_order(const char *want) {
    char got[512];
    size_t len = 0;
    for (uint32_t i = 0; i < race.count; i++) {
        len += (size_t) snprintf(got + len, sizeof(got) - len, "%s%s", i > 0 ? " " : "",
                                 race.entries[i].addr);
    }
    ck_assert_str_eq(got, want);
}

static void expect_text(const char *want) {
    char got[512];
    race_describe(&race, got, sizeof(got));
    ck_assert_str_eq(got, want);
}

START_TEST(families_take_turns) {
    BEGIN("::1", "::2", "::3", "1.1.1.1", "2.2.2.2", "::1");
    race_order(&race, "");
    expect_order("::1 1.1.1.1 ::2 2.2.2.2 ::3");
}
END_TEST

START_TEST(the_address_that_worked_comes_first) {
    BEGIN("::1", "::2", "1.1.1.1", "2.2.2.2");
    race_order(&race, "2.2.2.2");
    expect_order("2.2.2.2 ::1 1.1.1.1 ::2");
}
END_TEST

START_TEST(all_nodes_sort_alike) {
    BEGIN("10.0.0.10", "fd00::2", "10.0.0.9", "10.0.0.2");
    race_sort(&race);
    expect_order("10.0.0.2 10.0.0.9 10.0.0.10 fd00::2");
}
END_TEST

START_TEST(a_silent_address_holds_up_the_next_for_a_quarter_of_a_second) {
    BEGIN("1.1.1.1", "2.2.2.2", "3.3.3.3");
    ck_assert_int_eq(race_start_next(&race, 1000), 0);
    ck_assert_int_eq(race_start_next(&race, 1000), -1);
    ck_assert_int_eq(race_deadline(&race), 1250);
    ck_assert_int_eq(race_start_next(&race, 1249), -1);
    ck_assert_int_eq(race_start_next(&race, 1250), 1);
    ck_assert_int_eq(race_start_next(&race, 1250), -1);
    ck_assert_int_eq(race_start_next(&race, 1500), 2);
    ck_assert_int_eq(race_start_next(&race, 9999), -1);
    ck_assert_int_eq(race_deadline(&race), CR_FOREVER);
    ck_assert(!race_is_lost(&race));
    race_connected(&race, 1);
    race_note(&race, 2, "odd");
    expect_text("1.1.1.1: no answer, 2.2.2.2: connected, but nothing comes, 3.3.3.3: odd");
}
END_TEST

START_TEST(after_a_failure_the_next_starts_at_once) {
    BEGIN("1.1.1.1", "2.2.2.2");
    ck_assert_int_eq(race_start_next(&race, 1000), 0);
    race_failed(&race, 1003, 0, "connection refused");
    ck_assert_int_eq(race_deadline(&race), 1003);
    ck_assert_int_eq(race_start_next(&race, 1003), 1);
    ck_assert(!race_is_lost(&race));
    race_failed(&race, 1004, 1, "no route");
    ck_assert(race_is_lost(&race));
    expect_text("1.1.1.1: connection refused, 2.2.2.2: no route");
}
END_TEST

START_TEST(a_refusal_counts_when_no_other_address_is_left) {
    BEGIN("1.1.1.1", "2.2.2.2");
    ck_assert_int_eq(race_start_next(&race, 1000), 0);
    race_refused(&race, 1001, 0);
    ck_assert_int_eq(race_accepts_refusal(&race, 1001), -1);
    ck_assert_int_eq(race_start_next(&race, 1001), 1);
    ck_assert_int_eq(race_deadline(&race), 2001);
    ck_assert_int_eq(race_accepts_refusal(&race, 2000), -1);
    ck_assert_int_eq(race_accepts_refusal(&race, 2001), 0); /* the other one is silent too long */
    race_failed(&race, 1100, 1, "x");
    ck_assert_int_eq(race_accepts_refusal(&race, 1100), 0);
    ck_assert(!race_is_lost(&race));
    expect_text("1.1.1.1: a coordinator refuses this node, 2.2.2.2: x");
}
END_TEST

START_TEST(what_the_last_race_found_out_is_not_forgotten) {
    struct race last;
    BEGIN("1.1.1.1", "2.2.2.2");
    (void) race_start_next(&race, 1000);
    ck_assert(!race_has_stranger(&race));
    race_met_stranger(&race, 1000, 0, "it speaks HTTP");
    ck_assert(race_has_stranger(&race));
    (void) race_start_next(&race, 1000);
    last = race;
    BEGIN("2.2.2.2", "1.1.1.1");
    race_remember(&race, &last);
    (void) race_start_next(&race, 1000);
    (void) race_start_next(&race, 1250);
    expect_text("2.2.2.2: no answer, 1.1.1.1: it speaks HTTP");
    ck_assert(race_has_stranger(&race));
    race_failed(&race, 1300, 1, "connection refused");
    ck_assert(!race_has_stranger(&race));
    expect_text("2.2.2.2: no answer, 1.1.1.1: connection refused");
}
END_TEST

START_TEST(more_addresses_than_there_is_room_for) {
    char addr[RDZV_ADDR_MAX];
    race_begin(&race, 0);
    for (int i = 0; i < RACE_MAX + 3; i++) {
        (void) snprintf(addr, sizeof(addr), "10.0.0.%d", i);
        race_add(&race, addr);
    }
    ck_assert_uint_eq(race.count, RACE_MAX);
}
END_TEST

#define FIRST(bytes) stranger_first(bytes, sizeof(bytes) - 1)

START_TEST(frames_of_a_coordinator) {
    struct cr_buffer b = {0};
    struct rdzv_message m = {.type = RDZV_WELCOME};
    ck_assert_int_eq(rdzv_message_encode(&m, RDZV_VERSION_MIN, &b), 0);
    for (size_t len = 0; len < 5; len++) {
        ck_assert_int_eq(stranger_first(b.data, len), STRANGER_UNDECIDED);
    }
    ck_assert_int_eq(stranger_first(b.data, b.len), STRANGER_WELCOME);
    cr_buffer_clear(&b);
    m = (struct rdzv_message){.type = RDZV_REFUSED};
    m.refused.why = "no";
    ck_assert_int_eq(rdzv_message_encode(&m, RDZV_VERSION_MIN, &b), 0);
    ck_assert_int_eq(stranger_first(b.data, b.len), STRANGER_REFUSED);
    cr_buffer_done(&b);
    ck_assert_int_eq(FIRST("H"), STRANGER_FOREIGN);
    ck_assert_int_eq(FIRST("\0\0\0\6\7"), STRANGER_FOREIGN);
}
END_TEST

#define NAME(bytes) stranger_name(bytes, sizeof(bytes) - 1)

START_TEST(names_of_strangers) {
    ck_assert_str_eq(NAME("HTTP/1.1 400 Bad Request\r\n"), "it speaks HTTP");
    ck_assert_str_eq(NAME("SSH-2.0-OpenSSH"), "it speaks SSH");
    ck_assert_str_eq(NAME("\r\n\r\n"), "it is a TCPStore of torch");
    ck_assert_str_eq(NAME("x"), "it speaks another protocol");
    ck_assert(stranger_is_store("\r\n\r\n", 4) && !stranger_is_store("\r\n\r", 3));
    ck_assert(stranger_has_torchrun("", 1) && !stranger_has_torchrun("\1", 1));
    ck_assert(!stranger_has_torchrun("", 0));
}
END_TEST

/* CHECK of one key of 21 bytes: "/torch.rendezvous.job" */
START_TEST(the_question_for_torchrun) {
    static const char want[] = "\x05\x01\0\0\0\0\0\0\0"
                               "\x15\0\0\0\0\0\0\0/torch.rendezvous.job";
    struct cr_buffer b = {0};
    ck_assert_int_eq(stranger_ask_for_torchrun(&b, "job", false), 0);
    ck_assert_uint_eq(b.len, sizeof(want) - 1);
    ck_assert_mem_eq(b.data, want, b.len);
    cr_buffer_clear(&b);
    ck_assert_int_eq(stranger_ask_for_crun(&b), 0);
    ck_assert_uint_eq(b.len, 5);
    ck_assert_mem_eq(b.data, "CRS1S", b.len);
    cr_buffer_done(&b);
}
END_TEST

int main(void) {
    Suite *s = suite_create("race");
    TCase *t = tcase_create("addresses");
    tcase_add_test(t, families_take_turns);
    tcase_add_test(t, the_address_that_worked_comes_first);
    tcase_add_test(t, all_nodes_sort_alike);
    tcase_add_test(t, a_silent_address_holds_up_the_next_for_a_quarter_of_a_second);
    tcase_add_test(t, after_a_failure_the_next_starts_at_once);
    tcase_add_test(t, a_refusal_counts_when_no_other_address_is_left);
    tcase_add_test(t, what_the_last_race_found_out_is_not_forgotten);
    tcase_add_test(t, more_addresses_than_there_is_room_for);
    suite_add_tcase(s, t);
    TCase *o = tcase_create("strangers");
    tcase_add_test(o, frames_of_a_coordinator);
    tcase_add_test(o, names_of_strangers);
    tcase_add_test(o, the_question_for_torchrun);
    suite_add_tcase(s, o);
    return run_suite(s);
}
