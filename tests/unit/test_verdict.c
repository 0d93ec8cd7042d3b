/* Tests agent/report: the choice of the worker that failed first and of the cause, the text of the
 * failure report, the contents of error files, and the display of a stream's last lines. */
#include "agent/evidence/error_file.h"
#include "agent/evidence/last_lines.h"
#include "agent/verdict/decision.h"
#include "base/time/clock.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define S CR_NS_PER_S
#define NOW (INT64_C(1700000000) * S)

static struct verdict_worker worker(uint32_t rank, uint64_t order, int64_t died_ns, int code) {
    return (struct verdict_worker){.rank = rank, .local_rank = rank, .pid = 100 + (pid_t) rank,
                                   .exit_code = code, .order = order, .started_ns = NOW,
                                   .died_ns = died_ns, .error = {.timestamp_s = -1},
                                   .error_path = "/e/error.json", .log_names = ""};
}

static struct verdict_worker with_file(struct verdict_worker w, int64_t stated_s,
                                       int64_t mtime_ns) {
    w.error.present = 1;
    w.error.timestamp_s = stated_s;
    w.error.mtime_ns = mtime_ns;
    return w;
}

/* Checks that the verdict names the worker with this rank as the first that failed. */
static void first_is(const struct verdict_worker *w, size_t count, uint32_t rank) {
    ck_assert_uint_eq(w[verdict_first(w, count)].rank, rank);
}

START_TEST(test_kernel_order_decides) {
    const struct verdict_worker w[] = {worker(0, 3, NOW + 9, 1), worker(1, 1, NOW + 9, 1),
                                       worker(2, 2, NOW + 9, 1)};
    first_is(w, 3, 1);
    /* The wall clock was set back between two deaths, so the order of the deaths decides. */
    const struct verdict_worker back[] = {worker(0, 2, NOW + 1 * S, 1),
                                          worker(1, 1, NOW + 9 * S, 1)};
    first_is(back, 2, 1);
}
END_TEST

START_TEST(test_victims_are_not_first) {
    struct verdict_worker w[] = {worker(0, 1, NOW + 1, -15), worker(1, 2, NOW + 9, 3)};
    w[0].signal_sent = 15;
    first_is(w, 2, 1);
}
END_TEST

START_TEST(test_error_file_before_a_death) {
    /* Rank 0 wrote its error file at 2 s and ended at 5 s. Rank 1 died at 3 s. A worker with an
     * error file failed when it wrote the file, so rank 0 failed first. */
    const struct verdict_worker w[] = {
        with_file(worker(0, 2, NOW + 5 * S, 1), NOW / S + 2, NOW + 2 * S + 500),
        worker(1, 1, NOW + 3 * S, -6)};
    first_is(w, 2, 0);
}
END_TEST

START_TEST(test_whole_seconds_do_not_beat_an_earlier_death) {
    /* Rank 1 died at 2.3 s. Rank 0 wrote its error file at 2.6 s, but an error record states only
     * whole seconds, here 2. */
    int64_t at_2 = NOW + 2 * S;
    const struct verdict_worker agree[] = {
        with_file(worker(0, 2, at_2 + 700 * CR_NS_PER_MS, 1), at_2 / S, at_2 + 600 * CR_NS_PER_MS),
        worker(1, 1, at_2 + 300 * CR_NS_PER_MS, -11)};
    first_is(agree, 2, 1);
    /* The modification time of rank 0's error file is long after the time stated in the file,
     * because the file was written again. So the verdict ignores the modification time. The stated
     * time is in whole seconds, and the verdict assumes the end of the stated second. */
    const struct verdict_worker apart[] = {
        with_file(worker(0, 2, at_2 + 4 * S, 1), at_2 / S, at_2 + 4 * S),
        worker(1, 1, at_2 + 300 * CR_NS_PER_MS, -11)};
    first_is(apart, 2, 1);
    /* The kernel's time stamp of a file is the time of its last timer tick, up to 10 ms too early.
     * Rank 0's file has a stamp 4 ms before rank 1's death, which does not prove that it was
     * written before. */
    const struct verdict_worker tick[] = {
        with_file(worker(0, 2, at_2 + 8 * CR_NS_PER_MS, 1), at_2 / S, at_2 + 1),
        worker(1, 1, at_2 + 4 * CR_NS_PER_MS, 1)};
    first_is(tick, 2, 1);
}
END_TEST

START_TEST(test_smallest_stated_time_wins) {
    const struct verdict_worker w[] = {
        with_file(worker(0, 1, NOW + 1 * S, 1), 200, NOW + 1 * S),
        with_file(worker(1, 2, NOW + 2 * S, 1), 100, NOW + 2 * S),
        worker(2, 3, NOW + 3 * S, 1)};
    first_is(w, 3, 1);
}
END_TEST

START_TEST(test_future_and_missing_times) {
    const struct verdict_worker w[] = {
        with_file(worker(0, 2, NOW + 2 * S, 1), NOW / S + 9999, NOW + 2 * S),
        with_file(worker(1, 1, NOW + 1 * S, 1), -1, NOW + 1 * S)};
    first_is(w, 2, 1);
}
END_TEST

START_TEST(test_culprit_that_hung) {
    /* Rank 0 wrote its error and hung; rank 1 died because of that; then crun stopped rank 0. */
    struct verdict_worker w[] = {
        with_file(worker(0, 2, NOW + 9 * S, -15), NOW / S + 1, NOW + 1 * S + 5),
        worker(1, 1, NOW + 8 * S, -6)};
    w[0].signal_sent = 15;
    first_is(w, 2, 0);
    /* A worker that wrote its error after the first death, because of crun's signal, is a
     * victim. */
    w[0].error.mtime_ns = NOW + 8 * S + 1;
    w[0].error.timestamp_s = 5;
    first_is(w, 2, 1);
}
END_TEST

START_TEST(test_crash_seen_after_the_peer_that_noticed) {
    struct verdict_worker w[] = {worker(0, 1, NOW + 1 * S, 7),
                                 worker(1, 2, NOW + 1 * S + 15 * CR_NS_PER_MS, -11)};
    first_is(w, 2, 1);
    w[1].exit_code = -6; /* SIGABRT may be the consequence of another worker's death */
    first_is(w, 2, 0);
    w[1].exit_code = -11;
    w[1].died_ns = NOW + 1 * S + 25 * CR_NS_PER_MS; /* after rank 0's exit, so not its cause */
    first_is(w, 2, 0);
    w[1].died_ns = NOW + 1 * S;
    w[1].signal_sent = 15; /* crun's SIGTERM caused the crash */
    first_is(w, 2, 0);
}
END_TEST

/* ---- the text of the failure report ---- */

static char *cause_of(int code, int core) {
    struct cr_buffer b = {0};
    struct verdict_worker w = worker(0, 1, NOW, code);
    w.core_dumped = core;
    ck_assert_int_eq(verdict_cause(&b, &w), 0);
    ck_assert_int_eq(cr_buffer_append(&b, "", 1), 0);
    return b.data;
}

START_TEST(test_cause) {
    static const struct {
        int code, core;
        const char *want;
    } cases[] = {
        {3, 0, "exit code 3"},
        {127, 0, "exit code 127 (a shell's: command not found; or a shared library is missing)"},
        {139, 0, "exit code 139 (a shell's: killed by signal 11 (SIGSEGV, segmentation fault))"},
        {255, 0, "exit code 255"},
        {-11, 1, "killed by signal 11 (SIGSEGV, segmentation fault), core dumped"},
        {-9, 0, "killed by signal 9 (SIGKILL, killed)"},
        {-7, 0, "killed by signal 7 (SIGBUS, bus error)"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *got = cause_of(cases[i].code, cases[i].core);
        ck_assert_str_eq(got, cases[i].want);
        free(got);
    }
}
END_TEST

static char *report_of(const struct verdict *v) {
    struct cr_buffer b = {0};
    ck_assert_int_eq(verdict_report(&b, v), 0);
    ck_assert_int_eq(cr_buffer_append(&b, "", 1), 0);
    return b.data;
}

START_TEST(test_report_whole) {
    (void) setenv("TZ", "UTC", 1);
    struct verdict_worker w[] = {worker(0, 3, NOW + 2 * S, -15), worker(1, 1, NOW + 1 * S, 3),
                                 worker(2, 2, NOW + 1 * S, 1), worker(3, 4, NOW + 3 * S, -9)};
    w[0].signal_sent = 15;
    w[3].signal_sent = 9;
    w[1].last_words = "first\nbad \x1b[31m\xff\n";
    w[1].last_words_len = strlen(w[1].last_words);
    w[1].log_folder = "/logs/a/1";
    w[1].log_names = "stderr.log";
    const struct verdict v = {.title = "train.py", .host = "node1", .workers = w, .count = 4,
                              .restarts = 2, .max_restarts = 2};
    char *got = report_of(&v);
    ck_assert_str_eq(got,
        "crun: rank 1 (local rank 1, pid 101) on node1 failed first: exit code 3\n"
        "  last lines of its stderr:\n"
        "    | first\n"
        "    | bad \\x1b[31m\\xff\n"
        "  its files: /logs/a/1 (stderr.log)\n"
        "  failed later: rank 2: exit code 1\n"
        "  stopped by crun: rank 0 (SIGTERM); rank 3 (SIGKILL)\n"
        "  restarts: 2 of 2 used\n"
        "============================================================\n"
        "train.py FAILED\n"
        "------------------------------------------------------------\n"
        "Failures:\n"
        "[1]:\n"
        "  time      : 2023-11-14_22:13:21\n"
        "  host      : node1\n"
        "  rank      : 2 (local_rank: 2)\n"
        "  exitcode  : 1 (pid: 102)\n"
        "  error_file: <N/A>\n"
        "  traceback : To enable traceback see: "
        "https://pytorch.org/docs/stable/elastic/errors.html\n"
        "------------------------------------------------------------\n"
        "Root Cause (first observed failure):\n"
        "[0]:\n"
        "  time      : 2023-11-14_22:13:21\n"
        "  host      : node1\n"
        "  rank      : 1 (local_rank: 1)\n"
        "  exitcode  : 3 (pid: 101)\n"
        "  error_file: <N/A>\n"
        "  traceback : To enable traceback see: "
        "https://pytorch.org/docs/stable/elastic/errors.html\n"
        "============================================================\n");
    free(got);
}
END_TEST

START_TEST(test_report_signal_and_out_of_memory) {
    struct verdict_worker w = worker(0, 1, NOW + 1, -9);
    struct verdict v = {.title = "p", .host = "h", .workers = &w, .count = 1, .oom_kills = 2};
    char *got = report_of(&v);
    ck_assert_ptr_nonnull(strstr(got, "SIGKILL, killed), consistent with out of memory: the memory "
                                      "cgroup counted 2 out-of-memory kills"));
    ck_assert_ptr_nonnull(strstr(got, "traceback : Signal 9 (SIGKILL) received by PID 100\n"));
    ck_assert_ptr_nonnull(strstr(got, "  <NO_OTHER_FAILURES>\n"));
    free(got);
    v.oom_kills = 0;
    got = report_of(&v);
    ck_assert_ptr_nonnull(strstr(got, "(SIGKILL, killed), not sent by crun\n"));
    free(got);
}
END_TEST

/* If one of crun's watchdogs killed the worker, the line also says why. */
START_TEST(test_report_watchdogs) {
    struct verdict_worker w = worker(0, 1, NOW + 1, -6);
    struct verdict v = {.title = "p", .host = "h", .workers = &w, .count = 1, .oom_kills = 2};
    w.hung_ms = 2500;
    w.hung_step = 41;
    char *got = report_of(&v);
    ck_assert_ptr_nonnull(
        strstr(got, "killed by signal 6 (SIGABRT, aborted), sent by crun: it had made no "
                    "step for 2.5 s, after step 41\n"));
    free(got);
    w.hung_ms = 0;
    w.timer_expired = 1;
    w.exit_code = -9; /* the watchdog killed it, not the OOM killer */
    got = report_of(&v);
    ck_assert_ptr_nonnull(
        strstr(got, "killed by signal 9 (SIGKILL, killed), sent by crun's timer watchdog: a "
                    "timer that it had set had expired\n"));
    free(got);
    w.exit_code = 3; /* the worker handled the watchdog's signal and exited */
    got = report_of(&v);
    ck_assert_ptr_nonnull(strstr(got, "failed first: exit code 3\n"));
    free(got);
}
END_TEST

START_TEST(test_report_of_many) {
    struct verdict_worker w[30];
    for (uint32_t i = 0; i < 30; i++) w[i] = worker(i, i + 1, NOW + i * S, i < 15 ? 1 : -15);
    for (uint32_t i = 15; i < 30; i++) w[i].signal_sent = i == 20 ? 9 : 15;
    const struct verdict v = {.title = "p", .host = "h", .workers = w, .count = 30};
    char *got = report_of(&v);
    ck_assert_ptr_nonnull(
        strstr(got, "  failed later: rank 1: exit code 1, rank 2: exit code 1, rank 3: exit "
                    "code 1, rank 4: exit code 1, rank 5: exit code 1, rank 6: exit code 1, "
                    "rank 7: exit code 1, rank 8: exit code 1, and 6 more\n"));
    ck_assert_ptr_nonnull(
        strstr(got, "  stopped by crun: rank 15-19, 21-29 (SIGTERM); rank 20 (SIGKILL)\n"));
    free(got);
}
END_TEST

START_TEST(test_report_traceback) {
    static const char json[] = "{\"message\": {\"message\": \"ValueError: x\", \"extraInfo\": "
                               "{\"py_callstack\": \"Traceback:\\n  File\\n\", "
                               "\"timestamp\": \"1700000001\"}}}";
    struct verdict_worker w = worker(0, 1, NOW + 3 * S, 1);
    error_record_parse(&w.error, json, strlen(json));
    struct verdict v = {.title = "p", .host = "h", .workers = &w, .count = 1};
    char *got = report_of(&v);
    ck_assert_ptr_nonnull(strstr(got, "  message: ValueError: x\n"));
    ck_assert_ptr_nonnull(strstr(got, "  error_file: /e/error.json\n"
                                      "  traceback : Traceback:\n    File\n  \n===="));
    ck_assert_ptr_nonnull(strstr(got, "  time      : "));
    free(got);
    error_record_done(&w.error);
}
END_TEST

/* ---- error files ---- */

START_TEST(test_error_file_forms) {
    static const struct {
        const char *json, *message, *traceback, *flaw;
        int64_t stamp;
    } cases[] = {
        {"{\"message\":{\"message\":\"m\",\"extraInfo\":{\"py_callstack\":\"t\","
         "\"timestamp\":\"12\"}}}",
         "m", "t", NULL, 12},
        {"{\"message\":{\"message\":\"m\",\"extraInfo\":{\"timestamp\":12.7}}}",
         "m", NULL, NULL, 12},
        {"{\"message\":{\"message\":\"m\"}}", "m", NULL, NULL, -1},
        {"{\"message\":\"m\",\"timestamp\":5}", "m", NULL, NULL, 5},
        {"{\"message\":\"m\"}", "m", NULL, NULL, -1},
        {"{\"message\":[1,2]}", "[1,2]", NULL, NULL, -1},
        {"{\"message\":{\"message\":{\"a\":1}}}", "{\"a\":1}", NULL, NULL, -1},
        {"{\"message\":\"m\",\"timestamp\":\"soon\"}", "m", NULL, NULL, -1},
        {"{\"message\":\"m\",\"timestamp\":1e300}", "m", NULL, NULL, -1},
        {"{\"message\":\"m\",\"timestamp\":-4}", "m", NULL, NULL, -1},
        {"", NULL, NULL, "it is empty", -1},
        {"{\"message\": {\"mess", NULL, NULL, "it is not JSON", -1},
        {"\xff\xfe", NULL, NULL, "it is not JSON", -1},
        {"[]", NULL, NULL, "it is not a JSON object", -1},
        {"3", NULL, NULL, "it is not a JSON object", -1},
        {"{}", NULL, NULL, "it has no \"message\"", -1},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct error_record e = {0};
        error_record_parse(&e, cases[i].json, strlen(cases[i].json));
        ck_assert_pstr_eq(e.message, cases[i].message);
        ck_assert_pstr_eq(e.traceback, cases[i].traceback);
        ck_assert_pstr_eq(e.flaw, cases[i].flaw);
        ck_assert_int_eq(e.timestamp_s, cases[i].stamp);
        struct verdict_worker w = worker(0, 1, NOW + 1, 1);
        w.error = e;
        struct verdict v = {.title = "p", .host = "h", .workers = &w, .count = 1};
        free(report_of(&v)); /* must not crash, whatever the record contains */
        error_record_done(&e);
    }
}
END_TEST

START_TEST(test_error_file_deep_and_huge) {
    size_t len = 200000;
    char *deep = malloc(len);
    ck_assert_ptr_nonnull(deep);
    memset(deep, '[', len);
    struct error_record e = {0};
    error_record_parse(&e, deep, len);
    ck_assert_ptr_nonnull(e.flaw);
    error_record_done(&e);
    free(deep);

    char path[] = "/tmp/test_error_file_XXXXXX";
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(ftruncate(fd, (off_t) 3 << 30), 0); /* 3 GiB without data blocks */
    error_file_read(&e, path);
    ck_assert_int_eq(e.present, 1);
    ck_assert_str_eq(e.flaw, "it is larger than 1 MiB");
    ck_assert_uint_eq(e.raw_len, ERROR_FILE_MAX);
    error_record_done(&e);
    (void) close(fd);
    (void) unlink(path);
    error_file_read(&e, path);
    ck_assert_int_eq(e.present, 0);
    error_file_read(&e, "/dev/zero"); /* not a regular file */
    ck_assert_int_eq(e.present, 0);
}
END_TEST

/* ---- the last lines of a stream ---- */

static char *shown(const char *data, size_t len) {
    struct cr_buffer b = {0};
    ck_assert_int_eq(last_lines_append(&b, data, len, "|"), 0);
    ck_assert_int_eq(cr_buffer_append(&b, "", 1), 0);
    return b.data;
}

START_TEST(test_last_lines) {
    static const char *const cases[][2] = {
        {"", ""},
        {"\n\n", ""},
        {"a", "|a\n"},
        {"a\nb\n\n", "|a\n|b\n"},
        {"\n\na\n", "|\n|\n|a\n"},
        {"10%\r20%\r30%\r\ndone", "|30%\n|done\n"},
        {"tab\there \x1b[0m \xc3\xa9 \xc2\x9b \xc3",
         "|tab\there \\x1b[0m \xc3\xa9 \\xc2\\x9b \\xc3\n"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *got = shown(cases[i][0], strlen(cases[i][0]));
        ck_assert_str_eq(got, cases[i][1]);
        free(got);
    }
    struct cr_buffer many = {0};
    for (int i = 0; i < 30; i++) ck_assert_int_eq(cr_buffer_printf(&many, "%d\n", i), 0);
    char *got = shown(many.data, many.len);
    ck_assert_int_eq(strncmp(got, "|10\n|11\n", 8), 0);
    ck_assert_ptr_nonnull(strstr(got, "|29\n"));
    free(got);
    cr_buffer_done(&many);
}
END_TEST

int main(void) {
    Suite *s = suite_create("verdict");
    TCase *t = tcase_create("verdict");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, test_kernel_order_decides);
    tcase_add_test(t, test_victims_are_not_first);
    tcase_add_test(t, test_error_file_before_a_death);
    tcase_add_test(t, test_whole_seconds_do_not_beat_an_earlier_death);
    tcase_add_test(t, test_smallest_stated_time_wins);
    tcase_add_test(t, test_future_and_missing_times);
    tcase_add_test(t, test_culprit_that_hung);
    tcase_add_test(t, test_crash_seen_after_the_peer_that_noticed);
    tcase_add_test(t, test_cause);
    tcase_add_test(t, test_report_whole);
    tcase_add_test(t, test_report_signal_and_out_of_memory);
    tcase_add_test(t, test_report_watchdogs);
    tcase_add_test(t, test_report_of_many);
    tcase_add_test(t, test_report_traceback);
    tcase_add_test(t, test_error_file_forms);
    tcase_add_test(t, test_error_file_deep_and_huge);
    tcase_add_test(t, test_last_lines);
    suite_add_tcase(s, t);
    return run_suite(s);
}
