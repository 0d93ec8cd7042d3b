/* Tests agent/verdict/failures.h and kernel_log.h: the order of failures across nodes, texts from
 * other hosts, and lines of the kernel's log. */
#include "agent/evidence/kernel_log.h"
#include "agent/evidence/xid.h"
#include "agent/verdict/failures.h"

#include "tests/lib/run_suite.h"

#include <stdio.h>
#include <string.h>

static struct failures list;

static struct rendezvous_failure failure(uint32_t rank, const char *host, int64_t died_ns) {
    return (struct rendezvous_failure){.rank = rank, .pid = 100 + rank, .host = host,
                                       .died_ns = died_ns, .offset_error_ns = -1, .kind = "exit",
                                       .what = "exit code 1", .message = "", .last_words = "",
                                       .kernel = "", .log_folder = ""};
}

static void add(struct rendezvous_failure f) { ck_assert_int_eq(failures_add(&list, &f), 0); }

START_TEST(the_order_is_that_of_one_clock) {
    struct rendezvous_failure ahead = failure(1, "b", 5000);
    add(failure(0, "a", 1000));
    ahead.offset_ns = 4500;
    ahead.offset_error_ns = 10;
    add(ahead);
    ck_assert_uint_eq(list.count, 2);
    ck_assert_uint_eq(list.list[0].rank, 1); /* 5000 - 4500 is before 1000 */
    ck_assert_int_eq(failure_time_ns(&list.list[0]), 500);
    failures_clear(&list);
}
END_TEST

START_TEST(a_process_is_listed_once) {
    struct rendezvous_failure again = failure(0, "a", 1000);
    add(failure(0, "a", 1000));
    again.offset_ns = 7;
    again.offset_error_ns = 1;
    again.kernel = "segfault";
    add(again);
    add(failure(0, "b", 1000));
    ck_assert_uint_eq(list.count, 2);
    ck_assert_str_eq(list.list[0].kernel, "segfault");
    ck_assert_int_eq(list.list[0].offset_ns, 7);
    failures_clear(&list);
}
END_TEST

START_TEST(only_so_many_are_kept) {
    for (uint32_t i = 0; i < FAILURES_MAX + 3; i++) add(failure(i, "a", i));
    ck_assert_uint_eq(list.count, FAILURES_MAX);
    ck_assert_uint_eq(list.left_out, 3);
    failures_clear(&list);
}
END_TEST

START_TEST(texts_of_other_hosts_are_made_safe) {
    struct rendezvous_failure f = failure(0, "a\033b", INT64_MIN);
    f.offset_ns = INT64_MAX;
    f.offset_error_ns = 0;
    f.last_words = "one\ntwo\xff";
    f.message = "one\ntwo";
    add(f);
    ck_assert_str_eq(list.list[0].host, "a\\x1bb");
    ck_assert_str_eq(list.list[0].last_words, "one\ntwo\\xff");
    ck_assert_str_eq(list.list[0].message, "one\\x0atwo");
    failures_clear(&list);
}
END_TEST

/* ---- the kernel's log ---- */

static struct kernel_log_line line;

static bool parse(const char *record) { return kernel_log_parse(record, strlen(record), &line); }

START_TEST(lines_about_deaths_are_found) {
    ck_assert(parse("6,26540,27585026301,-;train[4711]: segfault at 0 ip 00 sp 00 error 6 in train"
                    "[1bd,5602+1000]\n SUBSYSTEM=x\n"));
    ck_assert_int_eq(line.kind, KERNEL_LOG_CRASH);
    ck_assert_int_eq(line.pid, 4711);
    ck_assert_int_eq(line.ns, INT64_C(27585026301000));
    ck_assert_str_eq(line.text,
                     "train[4711]: segfault at 0 ip 00 sp 00 error 6 in train[1bd,5602+1000]");
    ck_assert(parse("3,1,5,-;Memory cgroup out of memory: Killed process 12 (python3) total-vm:1"));
    ck_assert_int_eq(line.kind, KERNEL_LOG_OOM);
    ck_assert_int_eq(line.pid, 12);
    ck_assert(parse("4,1,5,-;NVRM: Xid (PCI:0000:01:00): 79, pid=7, name=python3, GPU has fallen"));
    ck_assert_int_eq(line.kind, KERNEL_LOG_GPU);
    ck_assert_int_eq(line.pid, 7);
    ck_assert(parse("4,1,5,-;NVRM: Xid (PCI:0000:01:00): 48, pid='<unknown>', name=<unknown>, D"));
    ck_assert_int_eq(line.pid, 0);
    ck_assert(parse("4,1,5,-;traps: train[9] general protection fault ip:1 sp:2 error:0 in train"));
    ck_assert_int_eq(line.pid, 9);
}
END_TEST

START_TEST(other_lines_and_bytes_are_not) {
    static const char *const bad[] = {"", ";", "6,1,2,-;br0: port 1 entered forwarding state",
                                      "x,y,z;Killed process 1", "6,1;Killed process 1", "6,1,2,-"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) ck_assert(!parse(bad[i]));
    char big[4096];
    memset(big, '1', sizeof(big));
    ck_assert(!kernel_log_parse(big, sizeof(big), &line));
    (void) snprintf(big, sizeof(big), "3,1,5,-;Killed process 12 (\033[2J%0600d", 7);
    ck_assert(parse(big));
    ck_assert_uint_lt(strlen(line.text), KERNEL_LOG_LINE_MAX);
    ck_assert_ptr_nonnull(strstr(line.text, "(\\x1b[2J"));
}
END_TEST

START_TEST(packets_about_gpus_are_parsed) {
    static const char good[] = "1234567 NVML: Xid 79 of GPU 2 (PCI 0000:41:00.0)";
    ck_assert(xid_parse(good, strlen(good), &line));
    ck_assert_int_eq(line.kind, KERNEL_LOG_GPU);
    ck_assert_int_eq(line.pid, 0);
    ck_assert_int_eq(line.ns, 1234567);
    ck_assert_str_eq(line.text, "NVML: Xid 79 of GPU 2 (PCI 0000:41:00.0)");
    static const char *const bad[] = {"", " ", "7", "7 ", "x NVML", "-7 NVML"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ck_assert_msg(!xid_parse(bad[i], strlen(bad[i]), &line), "'%s'", bad[i]);
    }
    char big[KERNEL_LOG_LINE_MAX];
    memset(big, '1', sizeof(big));
    ck_assert(!xid_parse(big, sizeof(big), &line));
    ck_assert(!xid_parse("1 a\0b", 5, &line));
}
END_TEST

START_TEST(a_line_about_a_gpu_counts_only_near_the_failure) {
    struct kernel_log log = {0};
    kernel_log_add(&log, &(struct kernel_log_line){.kind = KERNEL_LOG_GPU, .ns = 10, .text = "a"});
    kernel_log_add(&log, &(struct kernel_log_line){.kind = KERNEL_LOG_GPU, .ns = 20, .text = "b"});
    kernel_log_add(&log, &(struct kernel_log_line){.kind = KERNEL_LOG_GPU, .ns = 21, .pid = 4});
    kernel_log_add(&log, &(struct kernel_log_line){.kind = KERNEL_LOG_OOM, .ns = 22});
    ck_assert_str_eq(kernel_log_of_gpus(&log, 0, 30)->text, "b");
    ck_assert_str_eq(kernel_log_of_gpus(&log, 0, 10)->text, "a");
    ck_assert_ptr_null(kernel_log_of_gpus(&log, 11, 19));
    for (int i = 0; i < KERNEL_LOG_LINES_MAX; i++) {
        kernel_log_add(&log, &(struct kernel_log_line){.kind = KERNEL_LOG_CRASH, .ns = 30});
    }
    ck_assert_ptr_null(kernel_log_of_gpus(&log, 0, 30));
}
END_TEST

START_TEST(the_newest_line_of_a_process_counts) {
    struct kernel_log log = {.count = 3, .lines = {{.pid = 1, .text = "old"},
                                                   {.pid = 2, .text = "other"},
                                                   {.pid = 1, .text = "new"}}};
    ck_assert_str_eq(kernel_log_of(&log, 1)->text, "new");
    ck_assert_ptr_null(kernel_log_of(&log, 3));
}
END_TEST

int main(void) {
    Suite *s = suite_create("failures");
    TCase *t = tcase_create("failures");
    tcase_add_test(t, the_order_is_that_of_one_clock);
    tcase_add_test(t, a_process_is_listed_once);
    tcase_add_test(t, only_so_many_are_kept);
    tcase_add_test(t, texts_of_other_hosts_are_made_safe);
    tcase_add_test(t, lines_about_deaths_are_found);
    tcase_add_test(t, other_lines_and_bytes_are_not);
    tcase_add_test(t, packets_about_gpus_are_parsed);
    tcase_add_test(t, a_line_about_a_gpu_counts_only_near_the_failure);
    tcase_add_test(t, the_newest_line_of_a_process_counts);
    suite_add_tcase(s, t);
    return run_suite(s);
}
