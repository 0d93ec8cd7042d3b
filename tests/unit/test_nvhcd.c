/* Tests agent/health/nvhcd.c: the bytes of NVRx's node health service, and what its answers
 * mean. */
#include "agent/health/nvhcd_internal.h"

#include "tests/lib/run_suite.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static struct nvhcd_answer answer;
static char why[100];

#define READ(bytes) nvhcd_read_answer(bytes, sizeof(bytes) - 1, &answer)

START_TEST(a_request_has_its_words) {
    static const char expected[] = "\0\0\0\0\x0b\x0a\x02--\x0a\x05group";
    struct cr_buffer out = {0};
    ck_assert_int_eq(nvhcd_write_request(&out, "--  group "), 0);
    ck_assert_uint_eq(out.len, sizeof(expected) - 1);
    ck_assert_mem_eq(out.data, expected, out.len);
    cr_buffer_clear(&out);
    ck_assert_int_eq(nvhcd_write_request(&out, ""), 0);
    ck_assert_uint_eq(out.len, 5);
    cr_buffer_done(&out);
}
END_TEST

START_TEST(a_long_word_has_a_long_length) {
    char word[301];
    struct cr_buffer out = {0};
    memset(word, 'x', 300);
    word[300] = '\0';
    ck_assert_int_eq(nvhcd_write_request(&out, word), 0);
    ck_assert_mem_eq(out.data, "\0\0\0\x01\x2f\x0a\xac\x02x", 9);
    ck_assert_uint_eq(out.len, 5 + 3 + 300);
    cr_buffer_done(&out);
}
END_TEST

START_TEST(answers_are_read) {
    ck_assert_int_eq(READ("\0\0\0\0\0"), 0); /* all fields have their defaults */
    ck_assert(!answer.success);
    ck_assert_int_eq(READ("\0\0\0\0\x02\x08\x01"), 0);
    ck_assert(answer.success);
    ck_assert(nvhcd_is_well(&answer, why, sizeof(why)));
    ck_assert_int_eq(READ("\0\0\0\0\x07\x10\x2a\x1a\x03" "out"), 0);
    ck_assert_int_eq(answer.exit_code, 42);
    ck_assert(!nvhcd_is_well(&answer, why, sizeof(why)));
    ck_assert_str_eq(why, "out");
    ck_assert_int_eq(READ("\0\0\0\0\x0b\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), 0);
    ck_assert_int_eq(answer.exit_code, -1);
    /* field 9 as a varint, 10 as 8 bytes, 11 as text, 12 as 4 bytes: of a later nvhcd.proto */
    ck_assert_int_eq(READ("\0\0\0\0\x15\x48\x07\x51" "12345678" "\x5a\x01y\x65" "1234"
                          "\x08\x01"), 0);
    ck_assert(answer.success);
}
END_TEST

START_TEST(other_bytes_are_no_answer) {
    ck_assert_int_eq(READ(""), -EPROTO);
    ck_assert_int_eq(READ("\0\0\0\0"), -EPROTO);
    ck_assert_int_eq(READ("\x01\0\0\0\x02\x08\x01"), -EPROTO); /* compressed */
    ck_assert_int_eq(READ("\0\0\0\0\x03\x08\x01"), -EPROTO);   /* too short */
    ck_assert_int_eq(READ("\0\0\0\0\x01\x08\x01"), -EPROTO);   /* too long */
    ck_assert_int_eq(READ("\0\0\0\0\x01\x08"), -EPROTO);       /* no value */
    ck_assert_int_eq(READ("\0\0\0\0\x02\x1a\x05"), -EPROTO);   /* a text past the end */
    ck_assert_int_eq(READ("\0\0\0\0\x0a\x1a\xff\xff\xff\xff\xff\xff\xff\xff\x7f"), -EPROTO);
    ck_assert_int_eq(READ("\0\0\0\0\x02\x4b\x01"), -EPROTO);   /* a group */
    ck_assert_int_eq(READ("\0\0\0\0\x02\0\x01"), -EPROTO);     /* field 0 */
    ck_assert_int_eq(READ("\0\0\0\0\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), -EPROTO);
}
END_TEST

static bool is_well(bool success, const char *output, const char *error) {
    answer = (struct nvhcd_answer){.success = success, .exit_code = 7, .output = output,
                                   .output_len = strlen(output), .error = error,
                                   .error_len = strlen(error)};
    return nvhcd_is_well(&answer, why, sizeof(why));
}

START_TEST(what_an_answer_means) {
    ck_assert(is_well(true, "", ""));
    ck_assert(is_well(true, "{\"fail_count\": 0}", ""));
    ck_assert(is_well(true, "all fine", "")); /* no JSON: success counts */
    ck_assert(is_well(true, "{\"fail_count\": \"2\"}", ""));
    ck_assert(!is_well(true, "{\"fail_count\": 2, \"failed_checks\": [\"gpu\", \"ib0\"]}", ""));
    ck_assert_str_eq(why, "gpu, ib0");
    ck_assert(!is_well(false, "{\"failed_checks\": [{\"name\": \"disk\"}]}", ""));
    ck_assert_str_eq(why, "disk");
    ck_assert(!is_well(false, "{}", "no\nscript"));
    ck_assert_str_eq(why, "no\\x0ascript");
    ck_assert(!is_well(false, "", ""));
    ck_assert_str_eq(why, "it has failed with exit code 7");
}
END_TEST

START_TEST(a_long_reason_is_cut) {
    char output[600] = "{\"failed_checks\": [", word[] = "\"ABCDEFGHIJKLMNOPQRSTUVW\",";
    for (int i = 0; i < 20; i++) (void) strncat(output, word, sizeof(output) - strlen(output) - 1);
    output[strlen(output) - 1] = ']';
    (void) strncat(output, "}", 2);
    ck_assert(!is_well(false, output, ""));
    ck_assert_uint_lt(strlen(why), sizeof(why));
    ck_assert_int_eq(strncmp(why, "ABCDEFGHIJKLMNOPQRSTUVW, ABC", 28), 0);
}
END_TEST

int main(void) {
    Suite *s = suite_create("nvhcd");
    TCase *t = tcase_create("nvhcd");
    tcase_add_test(t, a_request_has_its_words);
    tcase_add_test(t, a_long_word_has_a_long_length);
    tcase_add_test(t, answers_are_read);
    tcase_add_test(t, other_bytes_are_no_answer);
    tcase_add_test(t, what_an_answer_means);
    tcase_add_test(t, a_long_reason_is_cut);
    suite_add_tcase(s, t);
    return run_suite(s);
}
