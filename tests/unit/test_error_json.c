/* Tests base/files/error_json.h, which writes an error file: the file is valid JSON whatever bytes
 * the texts contain, has the form of torch's error files, and replaces an older file. */
#include "base/cleanup.h"
#include "base/files/error_json.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static json_t *record_of(const char *message, const char *call_stack) {
    struct cr_buffer text = {0};
    json_error_t error;
    ck_assert_int_eq(cr_error_json_append(&text, message, call_stack, 1700000000), 0);
    json_t *record = json_loadb(text.data, text.len, 0, &error);
    ck_assert_msg(record != NULL, "%s: %.*s", error.text, (int) text.len, text.data);
    cr_buffer_done(&text);
    return record;
}

START_TEST(test_a_record_has_the_form_of_torch) {
    const char *message, *call_stack, *timestamp;
    json_auto_t *record = record_of("out of \"cake\"", "File \\a.py\nline 2\t\x01");
    ck_assert_int_eq(json_unpack(record, "{s:{s:s, s:{s:s, s:s !} !} !}", "message", "message",
                                 &message, "extraInfo", "py_callstack", &call_stack, "timestamp",
                                 &timestamp),
                     0);
    ck_assert_str_eq(message, "out of \"cake\"");
    ck_assert_str_eq(call_stack, "File \\a.py\nline 2\t\x01");
    ck_assert_str_eq(timestamp, "1700000000");
}
END_TEST

START_TEST(test_bytes_that_are_not_utf8_are_replaced) {
    static const char *const cases[][2] = {
        {"h\xc3\xa9llo", "h\xc3\xa9llo"},
        {"\xff", "\xef\xbf\xbd"},
        {"a\xc3", "a\xef\xbf\xbd"},                               /* incomplete UTF-8 sequence */
        /* UTF-8 form of a surrogate, which UTF-8 forbids */
        {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        /* overlong form of '/', which UTF-8 forbids */
        {"\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd"},
    };
    for (size_t i = 0; i < CR_ARRAY_LEN(cases); i++) {
        const char *message;
        json_auto_t *record = record_of(cases[i][0], "");
        ck_assert_int_eq(json_unpack(record, "{s:{s:s}}", "message", "message", &message), 0);
        ck_assert_str_eq(message, cases[i][1]);
    }
}
END_TEST

START_TEST(test_a_long_text_is_cut) {
    const char *message;
    char *text = calloc(1, 2 * CR_ERROR_JSON_TEXT_MAX);
    ck_assert_ptr_nonnull(text);
    memset(text, 'x', 2 * CR_ERROR_JSON_TEXT_MAX - 1);
    json_auto_t *record = record_of(text, "");
    ck_assert_int_eq(json_unpack(record, "{s:{s:s}}", "message", "message", &message), 0);
    ck_assert_uint_eq(strlen(message), CR_ERROR_JSON_TEXT_MAX);
    free(text);
}
END_TEST

static void check_file(const char *path, const char *expected) {
    char text[64] = "";
    FILE *f = fopen(path, "r");
    ck_assert_ptr_nonnull(f);
    size_t len = fread(text, 1, sizeof(text) - 1, f);
    ck_assert_uint_eq(len, strlen(expected));
    ck_assert_str_eq(text, expected);
    (void) fclose(f);
}

START_TEST(test_a_file_is_replaced) {
    char dir[] = "/tmp/test_error_json_XXXXXX", path[64];
    ck_assert_ptr_nonnull(mkdtemp(dir));
    (void) snprintf(path, sizeof(path), "%s/error.json", dir);
    ck_assert_int_eq(cr_error_json_write_file(path, "a longer text", 13), 0);
    check_file(path, "a longer text");
    ck_assert_int_eq(cr_error_json_write_file(path, "text", 4), 0);
    check_file(path, "text");
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(rmdir(dir), 0); /* no temporary file is left */
    ck_assert_int_eq(cr_error_json_write_file(path, "text", 4), -ENOENT);
}
END_TEST

/* The temporary file's name contains the pid, which another user could guess. That user could put a
 * link there that names a file of this user. The file must stay as it is. */
START_TEST(test_a_link_in_the_place_of_the_temporary_file) {
    char dir[] = "/tmp/test_error_json_XXXXXX", path[64], beside[96], precious[64];
    struct stat st;
    ck_assert_ptr_nonnull(mkdtemp(dir));
    (void) umask(0);
    (void) snprintf(path, sizeof(path), "%s/error.json", dir);
    (void) snprintf(beside, sizeof(beside), "%s.%d", path, (int) getpid());
    (void) snprintf(precious, sizeof(precious), "%s/precious", dir);
    ck_assert_int_eq(cr_error_json_write_file(precious, "precious", 8), 0);
    ck_assert_int_eq(symlink(precious, beside), 0);
    ck_assert_int_eq(cr_error_json_write_file(path, "text", 4), 0);
    check_file(precious, "precious");
    check_file(path, "text");
    ck_assert_int_eq(lstat(path, &st), 0);
    ck_assert(S_ISREG(st.st_mode) && (st.st_mode & 0777) == 0600);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(unlink(precious), 0);
    ck_assert_int_eq(rmdir(dir), 0);
}
END_TEST

int main(void) {
    Suite *s = suite_create("error_json");
    TCase *t = tcase_create("error_json");
    tcase_add_test(t, test_a_record_has_the_form_of_torch);
    tcase_add_test(t, test_bytes_that_are_not_utf8_are_replaced);
    tcase_add_test(t, test_a_long_text_is_cut);
    tcase_add_test(t, test_a_file_is_replaced);
    tcase_add_test(t, test_a_link_in_the_place_of_the_temporary_file);
    suite_add_tcase(s, t);
    return run_suite(s);
}
