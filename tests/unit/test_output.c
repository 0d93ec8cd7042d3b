/* Tests parts of agent/output: the buffer with the last bytes of a stream, the splitter that cuts a
 * stream into lines, the fold of equal lines, the texts of the live line, and log files. */
#include "agent/output/fold.h"
#include "agent/output/last_bytes.h"
#include "agent/output/line_splitter.h"
#include "agent/output/live_line.h"
#include "agent/output/log_file.h"
#include "base/time/clock.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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
    last_bytes_add(&l, all.data, all.len); /* more bytes than the buffer holds */
    cr_buffer_clear(&b);
    ck_assert_int_eq(last_bytes_copy(&l, &b), 0);
    ck_assert_int_eq(memcmp(b.data, all.data + all.len - b.len, b.len), 0);
    cr_buffer_done(&b);
    cr_buffer_done(&all);
    last_bytes_done(&l);
}
END_TEST

/* ---- the splitter of lines ---- */

/* Feeds the text to the splitter in chunks of `chunk` bytes. show() writes each line to `out`. */
static void split(struct line_splitter *s, const char *text, size_t len, size_t chunk,
                  void (*show)(struct cr_buffer *out, const struct line *line),
                  struct cr_buffer *out) {
    struct line line;
    for (size_t at = 0; at < len; at += chunk) {
        const char *data = text + at;
        size_t n = len - at < chunk ? len - at : chunk;
        while (line_splitter_next(s, &data, &n, &line) == 1) show(out, &line);
        ck_assert_uint_eq(n, 0);
    }
    ck_assert_uint_eq(s->at, len);
    while (line_splitter_end(s, &line) == 1) show(out, &line);
}

static void show_text(struct cr_buffer *out, const struct line *line) {
    ck_assert(!line->is_long);
    ck_assert_uint_eq(line->to - line->from, line->len);
    ck_assert_int_eq(cr_buffer_append(out, line->is_update ? "(" : "<", 1), 0);
    ck_assert_int_eq(cr_buffer_append(out, line->data, line->len), 0);
    ck_assert_int_eq(cr_buffer_append(out, ">", 1), 0);
}

START_TEST(test_lines_in_any_chunks) {
    static const char text[] = "a\nbb\r\nc\rd\n\r\n\n\re\0f\xff\npart";
    static const char want[] = "<a><bb><c><d><><><><e\0f\xff><part>";
    for (size_t chunk = 1; chunk <= sizeof(text); chunk++) {
        struct line_splitter s = {0};
        struct cr_buffer got = {0};
        split(&s, text, sizeof(text) - 1, chunk, show_text, &got);
        ck_assert_uint_eq(got.len, sizeof(want) - 1);
        for (size_t i = 0; i < got.len; i++) { /* a line that ends in "\r" may be shown with '(' or
                                                * '<', depending on the chunks */
            if (got.data[i] == '(') got.data[i] = '<';
        }
        ck_assert_msg(memcmp(got.data, want, got.len) == 0, "chunks of %zu", chunk);
        cr_buffer_done(&got);
        line_splitter_done(&s);
    }
}
END_TEST

START_TEST(test_updates_of_a_progress_bar) {
    struct line_splitter s = {0};
    struct cr_buffer got = {0};
    split(&s, "1%\r2%\r3%\r\nend\n", 14, 100, show_text, &got);
    ck_assert_int_eq((int) got.len, 17);
    ck_assert_mem_eq(got.data, "(1%>(2%><3%><end>", 17);
    cr_buffer_done(&got);
    line_splitter_done(&s);
}
END_TEST

START_TEST(test_whole_lines_at_once) {
    struct line_splitter s = {0};
    const char *rest = "pa";
    size_t len = 2;
    struct line line;
    ck_assert_uint_eq(line_splitter_take_whole(&s, "a\nbb\npa", 7), 5);
    ck_assert_uint_eq(s.at, 5);
    ck_assert_uint_eq(line_splitter_take_whole(&s, "a\rb\n", 4), 0); /* an update is no line */
    ck_assert_uint_eq(line_splitter_take_whole(&s, "part", 4), 0);
    ck_assert_uint_eq(line_splitter_take_whole(&s, "", 0), 0);
    ck_assert_int_eq(line_splitter_next(&s, &rest, &len, &line), 0);
    ck_assert_uint_eq(line_splitter_take_whole(&s, "rt\nx\n", 5), 0); /* a line has begun */
    rest = "rt\n", len = 3;
    ck_assert_int_eq(line_splitter_next(&s, &rest, &len, &line), 1);
    ck_assert_uint_eq(line.from, 5);
    ck_assert_mem_eq(line.data, "part", line.len);
    ck_assert_uint_eq(line_splitter_take_whole(&s, "x\n", 2), 2);
    ck_assert_uint_eq(s.from, 12);
    line_splitter_done(&s);
}
END_TEST

START_TEST(test_whole_lines_of_a_large_input) {
    struct line_splitter s = {0};
    char many[LINE_MAX_LEN + 10];
    for (size_t i = 0; i < sizeof(many); i++) many[i] = i % 2 == 0 ? 'x' : '\n';
    ck_assert_uint_eq(line_splitter_take_whole(&s, many, sizeof(many)), LINE_MAX_LEN);
    ck_assert_uint_eq(line_splitter_take_whole(&s, many + LINE_MAX_LEN, 10), 10);
    memset(many, 'x', sizeof(many)); /* a long line takes the way of line_splitter_next() */
    many[sizeof(many) - 1] = '\n';
    ck_assert_uint_eq(line_splitter_take_whole(&s, many, sizeof(many)), 0);
    line_splitter_done(&s);
}
END_TEST

static void show_len(struct cr_buffer *out, const struct line *line) {
    ck_assert_int_eq(cr_buffer_printf(out, "%zu ", line->len), 0);
}

/* Returns a text of 3 * LINE_MAX_LEN + 10 bytes with two lines: the first has LINE_MAX_LEN bytes,
 * the second is longer. */
static char *long_text(size_t *len) {
    *len = 3 * LINE_MAX_LEN + 10;
    char *text = malloc(*len);
    ck_assert_ptr_nonnull(text);
    memset(text, 'x', *len);
    text[*len - 1] = '\n';
    text[LINE_MAX_LEN] = '\n';
    return text;
}

START_TEST(test_long_lines_come_in_pieces) {
    size_t len;
    char *text = long_text(&len);
    for (size_t chunk = 1; chunk < 2 * len; chunk = chunk * 3 + 1) {
        struct line_splitter s = {0};
        struct cr_buffer got = {0};
        split(&s, text, len, chunk, show_len, &got);
        ck_assert_str_eq(got.data, "65536 65536 65536 8 ");
        cr_buffer_done(&got);
        line_splitter_done(&s);
    }
    free(text);
}
END_TEST

static void show_place(struct cr_buffer *out, const struct line *line) {
    ck_assert_int_eq(cr_buffer_printf(out, "%s%u-%u ", line->is_long ? "long " : "",
                                      (unsigned) line->from, (unsigned) line->to),
                     0);
}

START_TEST(test_long_lines_can_be_skipped) {
    size_t len;
    char *text = long_text(&len);
    for (size_t chunk = 1; chunk < 2 * len; chunk = chunk * 3 + 1) {
        struct line_splitter s = {.skips_long = true};
        struct cr_buffer got = {0};
        split(&s, text, len, chunk, show_place, &got);
        ck_assert_str_eq(got.data, "0-65536 long 65537-196617 ");
        ck_assert_uint_le(s.partial.cap, 2 * LINE_MAX_LEN);
        cr_buffer_done(&got);
        line_splitter_done(&s);
    }
    free(text);
}
END_TEST

/* ---- log files with a size limit ---- */

static void open_log(struct log_file **f, uint64_t max) {
    int folder = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int fd = openat(folder, "log", O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(log_file_new(fd, max, folder, "log", f), 0);
    (void) close(folder);
}

static uint64_t size_of(const char *name) {
    struct stat st;
    return stat(name, &st) < 0 ? 0 : (uint64_t) st.st_size;
}

/* Appends one line of 100 bytes for each number from `from` to `to` - 1; the line contains the
 * number. Returns the last number. */
static unsigned append_lines(struct log_file *f, unsigned from, unsigned to) {
    for (unsigned i = from; i < to; i++) {
        char line[128];
        int n = snprintf(line, sizeof(line), "%099u\n", i);
        ck_assert_int_eq(log_file_append(f, line, (size_t) n), 0);
    }
    return to - 1;
}

START_TEST(test_log_file_keeps_first_and_last_part) {
    char folder[] = "/tmp/crun-log-file-XXXXXX", out[128];
    struct log_file *f;
    ck_assert_ptr_nonnull(mkdtemp(folder));
    ck_assert_int_eq(chdir(folder), 0);
    open_log(&f, 40000);
    uint64_t at = 0;
    append_lines(f, 0, 10);
    ck_assert_uint_eq(log_file_read(f, &at, out, 100), 100);
    unsigned last = append_lines(f, 10, 5000);
    ck_assert_uint_eq(f->end, 500000);
    ck_assert_uint_eq(size_of("log"), 20000);
    ck_assert_uint_le(size_of("log.last") + size_of("log.last.1"), 20400);
    ck_assert_uint_ge(size_of("log.last") + size_of("log.last.1"), 10000);
    at = 20000; /* the bytes at 20000 are gone, so reading begins at the oldest byte that is left */
    ck_assert_uint_eq(log_file_read(f, &at, out, 100), 100);
    ck_assert_uint_ge(at, 480000);
    ck_assert_uint_eq(at % 100, 0);
    for (; at < f->end; at += 100) {
        uint64_t wanted = at;
        ck_assert_uint_eq(log_file_read(f, &wanted, out, 100), 100);
        ck_assert_uint_eq(wanted, at);
        ck_assert_int_eq((int) strtol(out, NULL, 10), (int) (at / 100));
    }
    ck_assert_int_eq((int) strtol(out, NULL, 10), (int) last);
    ck_assert_uint_eq(log_file_read(f, &at, out, 100), 0);
    log_file_free(f);
    (void) unlink("log"), (void) unlink("log.last"), (void) unlink("log.last.1");
    ck_assert_int_eq(rmdir(folder), 0);
}
END_TEST

START_TEST(test_log_file_without_limit) {
    char folder[] = "/tmp/crun-log-file-XXXXXX", out[128];
    struct log_file *f;
    uint64_t at = 499900;
    ck_assert_ptr_nonnull(mkdtemp(folder));
    ck_assert_int_eq(chdir(folder), 0);
    open_log(&f, 0);
    append_lines(f, 0, 5000);
    ck_assert_uint_eq(log_file_read(f, &at, out, 128), 100);
    ck_assert_int_eq((int) strtol(out, NULL, 10), 4999);
    ck_assert_int_eq(truncate("log", 0), 0); /* another program has emptied the file */
    ck_assert_uint_eq(log_file_read(f, &at, out, 128), 0);
    log_file_free(f);
    ck_assert_int_eq(unlink("log"), 0);
    ck_assert_int_eq(rmdir(folder), 0);
}
END_TEST

/* ---- the fold ---- */

/* Takes all lines that are due at now_ms out of the fold, and checks that they are `want`: for each
 * line its ranks, ":", the text, and " ". */
static void take_folded(struct fold *f, int64_t now_ms, bool all, const char *want) {
    static const uint32_t numbers[] = {0, 1, 2, 3, 4, 5, 6, 7};
    struct cr_buffer got = {0};
    struct fold_line line;
    while (fold_take(f, now_ms, all, &line)) {
        ck_assert_int_eq(fold_ranks(&got, line.joined, numbers, 4), 0);
        ck_assert_int_eq(cr_buffer_printf(&got, ":%.*s ", (int) line.len, line.text), 0);
    }
    ck_assert_int_eq(cr_buffer_printf(&got, "%s", ""), 0);
    ck_assert_str_eq(got.data, want);
    cr_buffer_done(&got);
}

static void fold_text(struct fold *f, uint32_t rank, const char *text, int64_t now_ms) {
    ck_assert_int_eq(fold_add(f, 0, 4, rank, text, strlen(text), now_ms), 0);
}

START_TEST(test_equal_lines_are_folded) {
    struct fold *f = fold_new(4);
    for (uint32_t r = 0; r < 4; r++) fold_text(f, r, "same", 0);
    take_folded(f, 0, false, "0-3:same "); /* at once: all have written it */
    fold_text(f, 0, "a", 10), fold_text(f, 2, "a", 20), fold_text(f, 3, "a", 30);
    fold_text(f, 1, "b", 40);
    ck_assert_int_eq(fold_due_ms(f), 10 + FOLD_MS);
    take_folded(f, 9 + FOLD_MS, false, "");
    take_folded(f, 10 + FOLD_MS, false, "0,2-3:a ");
    take_folded(f, 10 + FOLD_MS, true, "1:b ");
    ck_assert_int_eq(fold_due_ms(f), CR_FOREVER);
    fold_free(f);
}
END_TEST

START_TEST(test_a_fold_keeps_the_order_of_each_rank) {
    struct fold *f = fold_new(4);
    fold_text(f, 0, "x", 0), fold_text(f, 0, "y", 0), fold_text(f, 0, "x", 0);
    fold_text(f, 1, "y", 0); /* rank 1 is added to the second line */
    /* rank 1 is added to the third line, the second "x". If it were added to the first line, its
     * "x" would come before its "y". */
    fold_text(f, 1, "x", 0);
    fold_text(f, 1, "x", 0); /* makes a fourth line */
    take_folded(f, 0, true, "0:x 0-1:y 0-1:x 1:x ");
    fold_free(f);
}
END_TEST

START_TEST(test_a_fold_is_bounded_and_keeps_kinds_apart) {
    struct fold *f = fold_new(4);
    struct fold_line line;
    char text[16];
    for (int i = 0; i <= FOLD_LINES_MAX; i++) {
        (void) snprintf(text, sizeof(text), "%d", i);
        fold_text(f, 0, text, 0);
    }
    ck_assert(fold_take(f, 0, false, &line));
    ck_assert(!fold_take(f, 0, false, &line));
    fold_free(f);
    f = fold_new(4);
    ck_assert_int_eq(fold_add(f, 0, 4, 0, "x", 1, 0), 0);
    ck_assert_int_eq(fold_add(f, 1, 4, 1, "x", 1, 0), 0);
    take_folded(f, 0, true, "0:x 1:x ");
    fold_free(f);
}
END_TEST

/* ---- the live line ---- */

START_TEST(test_texts_of_the_live_line) {
    static const char text[] = "\033[31m\303\244b\033[0mc\033[A\t\007d\033[";
    struct cr_buffer clean = {0};
    ck_assert_int_eq(live_line_clean(&clean, text, sizeof(text) - 1), 0);
    ck_assert_uint_eq(clean.len, 15);
    ck_assert_mem_eq(clean.data, "\033[31m\303\244b\033[0mc d", 15);
    ck_assert_uint_eq(live_line_fit(clean.data, clean.len, 5), 15);
    ck_assert_uint_eq(live_line_fit(clean.data, clean.len, 4), 14);
    ck_assert_uint_eq(live_line_fit(clean.data, clean.len, 1), 7); /* the colour and two bytes */
    cr_buffer_done(&clean);
}
END_TEST

int main(void) {
    Suite *s = suite_create("output");
    TCase *t = tcase_create("output");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, test_last_bytes);
    tcase_add_test(t, test_lines_in_any_chunks);
    tcase_add_test(t, test_updates_of_a_progress_bar);
    tcase_add_test(t, test_whole_lines_at_once);
    tcase_add_test(t, test_whole_lines_of_a_large_input);
    tcase_add_test(t, test_long_lines_come_in_pieces);
    tcase_add_test(t, test_long_lines_can_be_skipped);
    tcase_add_test(t, test_equal_lines_are_folded);
    tcase_add_test(t, test_a_fold_keeps_the_order_of_each_rank);
    tcase_add_test(t, test_a_fold_is_bounded_and_keeps_kinds_apart);
    tcase_add_test(t, test_texts_of_the_live_line);
    tcase_add_test(t, test_log_file_keeps_first_and_last_part);
    tcase_add_test(t, test_log_file_without_limit);
    suite_add_tcase(s, t);
    return run_suite(s);
}
