/* Tests base/log: log lines are complete and in order, with several threads and also while stderr
 * is full. A diverted log never blocks, keeps at most a fixed amount, and reports how much it
 * lost. */
#include "base/log/log_limit.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- a reader of a diverted log, which a test can make refuse lines ---- */

struct reader {
    int takes;
    struct cr_buffer got;
};

static void on_lines(void *arg, struct cr_buffer *kept) {
    struct reader *r = arg;
    if (!r->takes) return;
    ck_assert_int_eq(cr_buffer_append(&r->got, kept->data, kept->len), 0);
    cr_buffer_clear(kept);
}

/* Returns the number after the last blank of the next line at *at, and moves *at behind that line.
 * Returns -1 at the end of the text. */
static long next_number(const char **at) {
    if (*at == NULL || **at == '\0') return -1;
    const char *end = strchr(*at, '\n');
    ck_assert_ptr_nonnull(end);
    const char *program = strstr(*at, "test[");
    ck_assert(program != NULL && program < end);
    const char *blank = end;
    while (*blank != ' ') blank--;
    *at = end + 1;
    return strtol(blank + 1, NULL, 10);
}

START_TEST(test_head_of_a_line) {
    struct reader r = {.takes = 1};
    char line[256], host[64] = "", want[128];
    cr_log_setup("test", CR_LOG_INFO);
    cr_log_divert(on_lines, &r);
    cr_warn("text");
    ck_assert_int_eq(cr_buffer_append(&r.got, "", 1), 0);
    (void) snprintf(line, sizeof(line), "%s", r.got.data);
    ck_assert_int_eq(gethostname(host, sizeof(host) - 1), 0);
    host[strcspn(host, ".")] = '\0';
    (void) snprintf(want, sizeof(want), " %s test[%d] warning: text\n", host, (int) getpid());
    struct tm tm;
    char *rest = strptime(line, "%Y-%m-%d %H:%M:%S", &tm);
    ck_assert_ptr_nonnull(rest);
    ck_assert_int_eq(rest[0], '.');
    ck_assert_str_eq(rest + 4, want);
    cr_buffer_done(&r.got);
}
END_TEST

static const char *text_of(struct reader *r) {
    ck_assert_int_eq(cr_buffer_append(&r->got, "", 1), 0);
    return r->got.data;
}

START_TEST(test_kept_until_taken) {
    struct reader r = {.takes = 0};
    cr_log_setup("test", CR_LOG_INFO);
    cr_log_divert(on_lines, &r);
    for (int i = 0; i < 100; i++) cr_info("line %d", i);
    cr_debug("not at this level");
    ck_assert_uint_eq(r.got.len, 0);
    r.takes = 1;
    cr_log_drain();
    for (int i = 100; i < 200; i++) cr_info("line %d", i);
    cr_log_text("test[raw] 200\n", 14);
    const char *at = text_of(&r);
    for (int i = 0; i <= 200; i++) ck_assert_int_eq(next_number(&at), i);
    ck_assert_int_eq(next_number(&at), -1);
    cr_buffer_done(&r.got);
}
END_TEST

/* A diverted log keeps a limited number of lines. If there are more, it keeps the first lines,
 * because these usually name the cause, and counts the others. */
START_TEST(test_what_is_too_much_is_counted) {
    enum { ALL = 20000 };
    struct reader r = {.takes = 0};
    cr_log_setup("test", CR_LOG_INFO);
    cr_log_divert(on_lines, &r);
    for (int i = 0; i < ALL; i++) cr_info("line %d", i);
    r.takes = 1;
    cr_log_drain();
    ck_assert_uint_le(r.got.len, CR_LOG_KEPT_MAX + 200);
    ck_assert_uint_ge(r.got.len, CR_LOG_KEPT_MAX - 200);
    cr_info("line %d", ALL);
    const char *at = text_of(&r);
    int kept = 0;
    while (strncmp(strstr(at, "] ") + 2, "info", 4) == 0)
        ck_assert_int_eq(next_number(&at), kept++);
    char want[64];
    (void) snprintf(want, sizeof(want), "warning: %d lines are missing here: stderr was full\n",
                    ALL - kept);
    ck_assert_int_eq(strncmp(strstr(at, "] ") + 2, want, strlen(want)), 0);
    (void) next_number(&at);
    ck_assert_int_eq(next_number(&at), ALL);
    ck_assert_int_eq(next_number(&at), -1);
    cr_buffer_done(&r.got);
}
END_TEST

static void on_lines_badly(void *arg, struct cr_buffer *kept) {
    cr_warn("cannot pass on %zu bytes", kept->len);
    on_lines(arg, kept);
}

START_TEST(test_who_drains_is_not_heard) {
    struct reader r = {.takes = 1};
    cr_log_setup("test", CR_LOG_INFO);
    cr_log_divert(on_lines_badly, &r);
    for (int i = 0; i < 10; i++) cr_info("line %d", i);
    const char *at = text_of(&r);
    for (int i = 0; i < 10; i++) ck_assert_int_eq(next_number(&at), i);
    ck_assert_int_eq(next_number(&at), -1);
    cr_buffer_done(&r.got);
}
END_TEST

/* ---- a full stderr ---- */

/* Replaces stderr by a pipe; returns the pipe's reading end. */
static int pipe_for_stderr(void) {
    int ends[2];
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    ck_assert_int_eq(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
    ck_assert_int_eq(close(ends[1]), 0);
    return ends[0];
}

static void log_more_than_a_pipe_holds(int from, int to) {
    for (int i = from; i < to; i++) cr_info("%0*d", 90, i);
}

static void read_lines(int fd, int from, int to) {
    FILE *f = fdopen(fd, "r");
    char line[300];
    for (int i = from; i < to; i++) {
        ck_assert_ptr_nonnull(fgets(line, sizeof(line), f));
        const char *at = line;
        ck_assert_int_eq(next_number(&at), i);
    }
    (void) fclose(f);
}

static void *flush(void *arg) {
    (void) arg;
    cr_log_flush();
    return NULL;
}

START_TEST(test_full_stderr_is_not_waited_for) {
    cr_log_setup("test", CR_LOG_INFO);
    int fd = pipe_for_stderr();
    cr_log_never_wait();
    log_more_than_a_pipe_holds(0, 1000); /* returns although no reader empties the pipe */
    char start[70000];
    ssize_t n = read(fd, start, sizeof(start));
    ck_assert_int_gt(n, 1000);
    /* writes those lines that wait in memory and for which the pipe has room */
    cr_info("%d", 1000);
    struct reader r = {.takes = 1};
    ck_assert_int_eq(cr_buffer_append(&r.got, start, (size_t) n), 0);
    pthread_t thread;
    /* The new thread calls cr_log_flush(), which blocks until this thread has read all lines. */
    ck_assert_int_eq(pthread_create(&thread, NULL, flush, NULL), 0);
    while (memmem(r.got.data, r.got.len, " 1000\n", 6) == NULL) {
        n = read(fd, start, sizeof(start));
        ck_assert_int_gt(n, 0);
        ck_assert_int_eq(cr_buffer_append(&r.got, start, (size_t) n), 0);
    }
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    const char *at = text_of(&r);
    for (int i = 0; i <= 1000; i++) ck_assert_int_eq(next_number(&at), i);
    ck_assert_int_eq(next_number(&at), -1);
    cr_buffer_done(&r.got);
    (void) close(fd);
}
END_TEST

START_TEST(test_after_a_flush_lines_are_written_at_once) {
    cr_log_setup("test", CR_LOG_INFO);
    int fd = pipe_for_stderr();
    cr_log_divert(NULL, NULL);
    for (int i = 0; i < 10; i++) cr_info("line %d", i);
    cr_log_flush();
    for (int i = 10; i < 20; i++) cr_info("line %d", i);
    read_lines(fd, 0, 20);
}
END_TEST

START_TEST(test_reader_that_has_gone) {
    cr_log_setup("test", CR_LOG_INFO);
    (void) signal(SIGPIPE, SIG_IGN);
    int fd = pipe_for_stderr();
    cr_log_never_wait();
    (void) close(fd);
    log_more_than_a_pipe_holds(0, 5000);
    cr_log_flush();
    log_more_than_a_pipe_holds(0, 10);
}
END_TEST

/* ---- limits on lines that others can cause (base/log/log_limit.h) ---- */

START_TEST(test_a_limit_admits_some_lines_in_a_window) {
    struct cr_log_limit l = {.about = "tests", .max = 3};
    for (int i = 0; i < 3; i++) {
        struct cr_log_limit_decision d = cr_log_limit_decide(&l, 1000 + i);
        ck_assert(d.is_admitted && !d.begins && d.reported == 0);
    }
    struct cr_log_limit_decision fourth = cr_log_limit_decide(&l, 1003);
    ck_assert(!fourth.is_admitted && fourth.begins && fourth.reported == 0);
    struct cr_log_limit_decision last = cr_log_limit_decide(&l, 1000 + CR_LOG_LIMIT_WINDOW_MS - 1);
    ck_assert(!last.is_admitted && !last.begins);
    struct cr_log_limit_decision next = cr_log_limit_decide(&l, 1000 + CR_LOG_LIMIT_WINDOW_MS);
    ck_assert(next.is_admitted && next.reported == 2);
    struct cr_log_limit_decision later = cr_log_limit_decide(&l, 1001 + CR_LOG_LIMIT_WINDOW_MS);
    ck_assert(later.is_admitted && later.reported == 0);
}
END_TEST

static int count(const char *text, const char *word) {
    int n = 0;
    for (const char *at = text; (at = strstr(at, word)) != NULL; at++) n++;
    return n;
}

START_TEST(test_suppressed_lines_are_counted) {
    struct reader r = {.takes = 1};
    struct cr_log_limit l = {.about = "tests"};
    cr_log_setup("test", CR_LOG_INFO);
    cr_log_divert(on_lines, &r);
    for (int i = 0; i < 100; i++) cr_log_limited(&l, CR_LOG_DEBUG, "not of a logged level");
    for (int i = 0; i < 1000; i++) cr_log_limited(&l, CR_LOG_INFO, "flood %d", i);
    cr_log_limit_end(&l);
    cr_log_limit_end(&l);
    const char *text = text_of(&r);
    ck_assert_int_eq(count(text, "\n"), CR_LOG_LIMIT_LINES + 2);
    ck_assert_int_eq(count(text, "flood "), CR_LOG_LIMIT_LINES);
    ck_assert_int_eq(count(text, "too many lines about tests: more of them are only counted"), 1);
    ck_assert_int_eq(count(text, ": 980 more lines about tests were not logged\n"), 1);
    cr_buffer_done(&r.got);
}
END_TEST

/* ---- logging from many threads ---- */

enum { THREADS = 4, LINES = 200 };

static void *log_lines(void *arg) {
    for (int i = 0; i < LINES; i++) cr_info("of thread %d line %d", *(int *) arg, i);
    return NULL;
}

START_TEST(test_threads) {
    struct reader r = {.takes = 1};
    pthread_t threads[THREADS];
    int numbers[THREADS], seen[THREADS] = {0};
    cr_log_setup("test", CR_LOG_INFO);
    cr_log_divert(on_lines, &r);
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        ck_assert_int_eq(pthread_create(&threads[i], NULL, log_lines, &numbers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    const char *at = text_of(&r);
    for (int i = 0; i < THREADS * LINES; i++) {
        const char *whose = strstr(at, "of thread ");
        ck_assert_ptr_nonnull(whose);
        int thread = whose[10] - '0';
        ck_assert_int_eq(next_number(&at), seen[thread]++);
    }
    ck_assert_int_eq(next_number(&at), -1);
    cr_buffer_done(&r.got);
}
END_TEST

int main(void) {
    Suite *s = suite_create("log");
    TCase *t = tcase_create("log");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, test_head_of_a_line);
    tcase_add_test(t, test_kept_until_taken);
    tcase_add_test(t, test_what_is_too_much_is_counted);
    tcase_add_test(t, test_who_drains_is_not_heard);
    tcase_add_test(t, test_full_stderr_is_not_waited_for);
    tcase_add_test(t, test_after_a_flush_lines_are_written_at_once);
    tcase_add_test(t, test_reader_that_has_gone);
    tcase_add_test(t, test_a_limit_admits_some_lines_in_a_window);
    tcase_add_test(t, test_suppressed_lines_are_counted);
    tcase_add_test(t, test_threads);
    suite_add_tcase(s, t);
    return run_suite(s);
}
