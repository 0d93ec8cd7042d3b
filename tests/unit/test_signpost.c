/* Tests of the value of a signpost's key, which names the hosting node, and of the request by which
 * a node reads it. */
#include "rendezvous/way/signpost_value_internal.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <string.h>

static const struct signpost_value v = {
    .epoch = 3, .turn = 2, .addr = "fe80::1%eth0", .port = 4000, .nonce = 0xabc};

START_TEST(a_value_is_read_as_it_was_written) {
    char text[SIGNPOST_VALUE_MAX];
    struct signpost_value read;
    signpost_format(&v, text);
    ck_assert_str_eq(text, "crun-rendezvous 1 3 2 4000 fe80::1%eth0 abc");
    ck_assert(signpost_parse(text, strlen(text), &read));
    ck_assert(read.epoch == 3 && read.turn == 2 && read.port == 4000 && read.nonce == 0xabc);
    ck_assert_str_eq(read.addr, "fe80::1%eth0");
}
END_TEST

START_TEST(other_texts_are_no_values) {
    static const char *const texts[] = {
        "", "?", "something else", "crun-rendezvous 2 1 1 4000 a 0", "crun-rendezvous 1 1 1 4000 a",
        "crun-rendezvous 1 0 1 4000 a 1", "crun-rendezvous 1 1 1 0 a 1",
        "crun-rendezvous 1 1 1 65536 a 1"};
    struct signpost_value read;
    char long_text[SIGNPOST_VALUE_MAX + 1];
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        ck_assert_msg(!signpost_parse(texts[i], strlen(texts[i]), &read), "'%s'", texts[i]);
    }
    memset(long_text, 'x', sizeof(long_text));
    ck_assert(!signpost_parse(long_text, sizeof(long_text), &read));
}
END_TEST

START_TEST(an_epoch_counts_more_than_a_turn) {
    struct signpost_value heir = {.epoch = 4}, next = {.epoch = 3, .turn = 3};
    ck_assert(signpost_is_newer(&heir, &v) && !signpost_is_newer(&v, &heir));
    ck_assert(signpost_is_newer(&next, &v) && signpost_is_newer(&heir, &next));
    ck_assert(!signpost_is_newer(&v, &v));
}
END_TEST

static void expect_question(bool is_old, const char *head, size_t head_len) {
    static const char body[] = "\x14\0\0\0\0\0\0\0/crun/rendezvous/job"
                               "\1\0\0\0\0\0\0\0a\2\0\0\0\0\0\0\0bc";
    struct cr_buffer b = {0};
    ck_assert_int_eq(signpost_ask(&b, is_old, "job", "a", "bc"), 0);
    ck_assert_uint_eq(b.len, head_len + sizeof(body) - 1);
    ck_assert_mem_eq(b.data, head, head_len);
    ck_assert_mem_eq(b.data + head_len, body, sizeof(body) - 1);
    cr_buffer_done(&b);
}

START_TEST(the_question_is_compare_set) {
    expect_question(false, "\0\xce\xf7\x85\x3c\2", 6);
    expect_question(true, "\1", 1);
}
END_TEST

START_TEST(an_answer_may_come_in_pieces) {
    static const char answer[] = "\3\0\0\0\0\0\0\0xyz";
    char value[SIGNPOST_VALUE_MAX];
    for (size_t len = 0; len < sizeof(answer) - 1; len++) {
        ck_assert_int_eq(signpost_read(answer, len, value), SIGNPOST_INCOMPLETE);
    }
    ck_assert_int_eq(signpost_read(answer, sizeof(answer) - 1, value), SIGNPOST_ANSWERED);
    ck_assert_str_eq(value, "xyz");
    ck_assert_int_eq(signpost_read("\0\1\0\0\0\0\0\0", 8, value), SIGNPOST_STRANGE);
    ck_assert_int_eq(signpost_read("HTTP/1.1", 8, value), SIGNPOST_STRANGE);
}
END_TEST

int main(void) {
    Suite *s = suite_create("signpost");
    TCase *t = tcase_create("signpost");
    tcase_add_test(t, a_value_is_read_as_it_was_written);
    tcase_add_test(t, other_texts_are_no_values);
    tcase_add_test(t, an_epoch_counts_more_than_a_turn);
    tcase_add_test(t, the_question_is_compare_set);
    tcase_add_test(t, an_answer_may_come_in_pieces);
    suite_add_tcase(s, t);
    return run_suite(s);
}
