/* Tests of rendezvous/http/text.c: the token of a pod, and the reason in an answer that refuses a
 * request. */
#include "rendezvous/http/http.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <string.h>

START_TEST(test_a_token_file_becomes_a_header) {
    char text[16] = "abc\r\n";
    ck_assert_int_eq(http_make_authorization(text, 5, sizeof(text)), 0);
    ck_assert_str_eq(text, "Bearer abc");
    char longest[16] = "12345678", too_long[16] = "123456789", lines[32] = "a\nb", empty[16] = "\n";
    ck_assert_int_eq(http_make_authorization(longest, 8, sizeof(longest)), 0);
    ck_assert_int_lt(http_make_authorization(too_long, 9, sizeof(too_long)), 0);
    ck_assert_int_lt(http_make_authorization(lines, 3, sizeof(lines)), 0);
    ck_assert_int_lt(http_make_authorization(empty, 1, sizeof(empty)), 0);
}
END_TEST

START_TEST(test_refusals) {
    char out[64];
    const char *forged = "{\"message\": \"a\\nb\\u001b[1m\"}";
    http_refusal(403, "{\"message\": \"Forbidden\"}", 24, out, sizeof(out));
    ck_assert_str_eq(out, "HTTP 403: Forbidden");
    http_refusal(502, "<html>", 6, out, sizeof(out));
    ck_assert_str_eq(out, "HTTP 502");
    http_refusal(422, "{\"message\": 7}", 14, out, sizeof(out));
    ck_assert_str_eq(out, "HTTP 422");
    http_refusal(500, forged, strlen(forged), out, sizeof(out));
    ck_assert_str_eq(out, "HTTP 500: a\\x0ab\\x1b[1m");
}
END_TEST

int main(void) {
    Suite *s = suite_create("http_text");
    TCase *t = tcase_create("http_text");
    tcase_add_test(t, test_a_token_file_becomes_a_header);
    tcase_add_test(t, test_refusals);
    suite_add_tcase(s, t);
    return run_suite(s);
}
