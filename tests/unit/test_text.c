/* Tests base/text: which bytes are UTF-8, and how bytes from outside are shown. */
#include "base/text/text.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

/* Encodes one code point as UTF-8, even if it is not a valid code point. */
static size_t encode(unsigned long c, char out[4]) {
    if (c < 0x80) return out[0] = (char) c, 1;
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, c >>= 6) out[i] = (char) (0x80 | (c & 0x3F));
    out[0] = (char) ((n == 2 ? 0xC0 : n == 3 ? 0xE0 : 0xF0) | c);
    return n;
}

/* Returns the first code point for which base/text gives a wrong answer, or 0 if there is none. */
static unsigned long first_wrong_code_point(void) {
    char text[4];
    for (unsigned long c = 0; c < 0x1FFFFF; c++) {
        size_t n = encode(c, text);
        int valid = c <= 0x10FFFF && (c < 0xD800 || c > 0xDFFF);
        int printable = valid && c >= 0x20 && (c < 0x7F || c > 0x9F);
        if (cr_utf8_len(text, n) != (valid ? n : 0)) return c;
        if (cr_text_printable_len(text, n) != (printable ? n : 0)) return c;
        if (n > 1 && cr_utf8_len(text, n - 1) != 0) return c; /* incomplete */
    }
    return 0;
}

/* One assertion for all code points, because Check writes to a pipe for each assertion, which is
 * slow. */
START_TEST(test_every_code_point) {
    ck_assert_uint_eq(first_wrong_code_point(), 0);
    /* U+0000, which first_wrong_code_point() cannot report */
    ck_assert_uint_eq(cr_utf8_len("", 1), 1);
}
END_TEST

START_TEST(test_bytes_that_are_not_utf8) {
    static const char *const bad[] = {"\x80", "\xBF", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF",
                                      "\xF0\x8F\xBF\xBF", "\xF5\x80\x80\x80", "\xFF", "\xC3(",
                                      "\xE2\x82(", "\xED\xA0\x80", "\xF4\x90\x80\x80"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ck_assert_uint_eq(cr_utf8_len(bad[i], strlen(bad[i])), 0);
    }
    ck_assert_uint_eq(cr_utf8_len("", 0), 0);
    ck_assert_uint_eq(cr_text_printable_len("", 0), 0);
}
END_TEST

static const struct {
    const char *from, *to;
} escapes[] = {
    {"plain text", "plain text"},
    {"a\nb\tc\x7f", "a\\x0ab\\x09c\\x7f"},
    {"\x1b[31m", "\\x1b[31m"},
    {"gr\xC3\xBC\xC3\x9F \xE2\x82\xAC", "gr\xC3\xBC\xC3\x9F \xE2\x82\xAC"},
    {"\xC2\x9B" "31m", "\\xc2\\x9b31m"}, /* U+009B, the C1 control character CSI */
    {"caf\xE9", "caf\\xe9"},             /* Latin-1 */
    {"\xE2\x82", "\\xe2\\x82"},
    {"", ""},
};

START_TEST(test_escapes) {
    for (size_t i = 0; i < sizeof(escapes) / sizeof(escapes[0]); i++) {
        char out[64];
        size_t n = cr_text_copy(out, sizeof(out), escapes[i].from, strlen(escapes[i].from));
        ck_assert_str_eq(out, escapes[i].to);
        ck_assert_uint_eq(n, strlen(escapes[i].to));
        struct cr_buffer b = {0};
        ck_assert_int_eq(cr_text_append(&b, escapes[i].from, strlen(escapes[i].from), ""), 0);
        ck_assert_uint_eq(b.len, n);
        if (n > 0) ck_assert_int_eq(memcmp(b.data, out, n), 0);
        cr_buffer_done(&b);
    }
}
END_TEST

START_TEST(test_kept_bytes) {
    struct cr_buffer b = {0};
    ck_assert_int_eq(cr_text_append(&b, "a\tb\nc\0", 6, "\t"), 0);
    ck_assert_int_eq(cr_buffer_append(&b, "", 1), 0);
    ck_assert_str_eq(b.data, "a\tb\\x0ac\\x00");
    cr_buffer_done(&b);
}
END_TEST

START_TEST(test_words_for_a_shell) {
    static const struct { const char *word, *quoted; } cases[] = {
        {"/usr/bin/crun", "/usr/bin/crun"}, {"", "''"}, {"two words", "'two words'"},
        {"it's", "'it'\\''s'"}, {"$HOME", "'$HOME'"}, {"a;b", "'a;b'"}, {"~", "'~'"},
        {"\303\244", "'\303\244'"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct cr_buffer out = {0};
        ck_assert_int_eq(cr_shell_word_append(&out, cases[i].word), 0);
        ck_assert_int_eq(cr_buffer_append(&out, "", 1), 0);
        ck_assert_str_eq(out.data, cases[i].quoted);
        cr_buffer_done(&out);
    }
}
END_TEST

/* A text that is too long for the array is cut between two characters, never inside the escape
 * sequence of one. */
START_TEST(test_cut) {
    char out[16];
    ck_assert_uint_eq(cr_text_copy(out, 6, "ab\n", 3), 2);
    ck_assert_str_eq(out, "ab");
    ck_assert_uint_eq(cr_text_copy(out, 7, "ab\n", 3), 6);
    ck_assert_str_eq(out, "ab\\x0a");
    ck_assert_uint_eq(cr_text_copy(out, 4, "a\xE2\x82\xAC", 4), 1);
    ck_assert_uint_eq(cr_text_copy(out, 1, "a", 1), 0);
    ck_assert_str_eq(out, "");
}
END_TEST

int main(void) {
    Suite *s = suite_create("text");
    TCase *t = tcase_create("text");
    tcase_add_test(t, test_every_code_point);
    tcase_add_test(t, test_bytes_that_are_not_utf8);
    tcase_add_test(t, test_escapes);
    tcase_add_test(t, test_kept_bytes);
    tcase_add_test(t, test_words_for_a_shell);
    tcase_add_test(t, test_cut);
    suite_add_tcase(s, t);
    return run_suite(s);
}
