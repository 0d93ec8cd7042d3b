/* Tests two parts of agent/output: the buffer with the last bytes of a stream, and the splitter
 * that cuts a stream into lines. */
#include "agent/output/last_bytes.h"
#include "agent/output/line_splitter.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

START_TEST(test_last_bytes) {
    struct last_bytes l = {0};
    struct cr_buffer b = {0}, all = {0};
    for (int i = 0; i < 9000; i++) {
        char text[16];
        int n = snprintf(text, sizeof(text), "%d,", i);
        last_bytes_add(&l, text, (size_t) n);
        ck_assert_int_eq(cr_buffer_append(&all, text, (size_t) n), 0);
    }
    ck_assert_int_eq(last_bytes_copy(&l, &b), 0);
    ck_assert_uint_eq(b.len, LAST_BYTES_MAX);
    ck_assert_int_eq(memcmp(b.data, all.data + all.len - b.len, b.len), 0);
    last_bytes_add(&l, all.data, all.len); /* more than the ring holds */
    cr_buffer_clear(&b);
    ck_assert_int_eq(last_bytes_copy(&l, &b), 0);
    ck_assert_int_eq(memcmp(b.data, all.data + all.len - b.len, b.len), 0);
    cr_buffer_done(&b);
    cr_buffer_done(&all);
    last_bytes_done(&l);
}
END_TEST

/* ---- the splitter of lines ---- */

static int collect(void *arg, const char *line, size_t len) {
    struct cr_buffer *b = arg;
    int rc = cr_buffer_append(b, "<", 1);
    if (rc == 0) rc = cr_buffer_append(b, line, len);
    return rc < 0 ? rc : cr_buffer_append(b, ">", 1);
}

START_TEST(test_lines_in_any_chunks) {
    static const char text[] = "a\nbb\r\nc\rd\n\r\n\n\re\0f\xff\npart";
    static const char want[] = "<a><bb><c><d><><><><e\0f\xff><part>";
    for (size_t chunk = 1; chunk <= sizeof(text); chunk++) {
        struct line_splitter s = {0};
        struct cr_buffer got = {0};
        for (size_t at = 0; at < sizeof(text) - 1; at += chunk) {
            size_t n = sizeof(text) - 1 - at < chunk ? sizeof(text) - 1 - at : chunk;
            ck_assert_int_eq(line_splitter_feed(&s, text + at, n, collect, &got), 0);
        }
        ck_assert_int_eq(line_splitter_end(&s, collect, &got), 0);
        ck_assert_uint_eq(got.len, sizeof(want) - 1);
        ck_assert_msg(memcmp(got.data, want, got.len) == 0, "chunks of %zu", chunk);
        cr_buffer_done(&got);
        line_splitter_done(&s);
    }
}
END_TEST

static int measure(void *arg, const char *line, size_t len) {
    (void) line;
    return cr_buffer_printf(arg, "%zu ", len);
}

START_TEST(test_long_lines_come_in_pieces) {
    size_t len = 3 * LINE_MAX_LEN + 10;
    char *text = malloc(len);
    ck_assert_ptr_nonnull(text);
    memset(text, 'x', len);
    text[len - 1] = '\n';
    text[LINE_MAX_LEN] = '\n'; /* a line as long as the limit is one piece */
    for (size_t chunk = 1; chunk < 2 * len; chunk = chunk * 3 + 1) {
        struct line_splitter s = {0};
        struct cr_buffer got = {0};
        for (size_t at = 0; at < len; at += chunk) {
            size_t n = len - at < chunk ? len - at : chunk;
            ck_assert_int_eq(line_splitter_feed(&s, text + at, n, measure, &got), 0);
        }
        ck_assert_str_eq(got.data, "65536 65536 65536 8 ");
        cr_buffer_done(&got);
        line_splitter_done(&s);
    }
    free(text);
}
END_TEST

int main(void) {
    Suite *s = suite_create("output");
    TCase *t = tcase_create("output");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, test_last_bytes);
    tcase_add_test(t, test_lines_in_any_chunks);
    tcase_add_test(t, test_long_lines_come_in_pieces);
    suite_add_tcase(s, t);
    return run_suite(s);
}
