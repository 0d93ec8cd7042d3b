/* Tests agent/watchdog: the parser for lines of the timer pipe, and the set of timers, which
 * returns the timer that expires next. */
#include "agent/watchdog/timers.h"
#include "base/cleanup.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <errno.h>
#include <string.h>

static int parse(const char *line, struct timer_request *r) {
    return timer_request_parse(r, line, strlen(line));
}

static void apply(struct timers *t, const char *line) {
    struct timer_request r;
    ck_assert_int_eq(parse(line, &r), 0);
    ck_assert_int_eq(timers_apply(t, &r), 0);
    timer_request_done(&r);
}

START_TEST(test_a_request) {
    struct timer_request r;
    ck_assert_int_eq(parse("{\"version\": 1, \"pid\": 4711, \"scope_id\": \"train.py#12\", "
                           "\"expiration_time\": 1700000000.5, \"signal\": 9}",
                           &r),
                     0);
    ck_assert_int_eq(r.pid, 4711);
    ck_assert_str_eq(r.scope, "train.py#12");
    ck_assert_int_eq(r.expires_ms, INT64_C(1700000000500));
    ck_assert_int_eq(r.signum, 9);
    ck_assert(!r.cancels);
    timer_request_done(&r);
}
END_TEST

/* Numbers that do not fit must not become other numbers: the signal here is 9 modulo 2^32. */
START_TEST(test_numbers_out_of_range) {
    struct timer_request r;
    ck_assert_int_eq(parse("{\"pid\": 2, \"scope_id\": \"\", \"expiration_time\": 1e300, "
                           "\"signal\": -4294967287}",
                           &r),
                     0);
    ck_assert_int_eq(r.signum, 0);
    ck_assert_int_eq(r.expires_ms, INT64_MAX);
    timer_request_done(&r);
    ck_assert_int_eq(parse("{\"pid\": 2, \"scope_id\": \"\", \"expiration_time\": -1e304, "
                           "\"signal\": 9}",
                           &r),
                     0);
    ck_assert(r.cancels);
    timer_request_done(&r);
}
END_TEST

START_TEST(test_lines_that_are_not_requests) {
    static const char *const lines[] = {
        "",
        "x",
        "[]",
        "{}",
        "{\"pid\": 2",
        "{\"pid\": 1, \"scope_id\": \"a\", \"expiration_time\": 1, \"signal\": 9}",
        "{\"pid\": 2.5, \"scope_id\": \"a\", \"expiration_time\": 1, \"signal\": 9}",
        "{\"pid\": 4294967298, \"scope_id\": \"a\", \"expiration_time\": 1, \"signal\": 9}",
        "{\"pid\": 2, \"scope_id\": null, \"expiration_time\": 1, \"signal\": 9}",
        "{\"pid\": 2, \"scope_id\": \"a\", \"expiration_time\": \"1\", \"signal\": 9}",
        "{\"pid\": 2, \"scope_id\": \"a\", \"expiration_time\": 1, \"signal\": 65}",
    };
    for (size_t i = 0; i < CR_ARRAY_LEN(lines); i++) {
        struct timer_request r;
        ck_assert_msg(parse(lines[i], &r) == -EINVAL, "%s", lines[i]);
    }
}
END_TEST

static void check_expires(struct timers *t, int64_t now_ms, const char *scope) {
    struct timer *timer = timers_take_expired(t, now_ms);
    if (scope == NULL) {
        ck_assert_ptr_null(timer);
        return;
    }
    ck_assert_ptr_nonnull(timer);
    ck_assert_str_eq(timer->scope, scope);
    timer_free(timer);
}

START_TEST(test_what_expires_first) {
    struct timers t = {0};
    ck_assert_int_eq(timers_next_ms(&t), INT64_MAX);
    apply(&t, "{\"pid\": 2, \"scope_id\": \"log\", \"expiration_time\": 1, \"signal\": 0}");
    apply(&t, "{\"pid\": 3, \"scope_id\": \"late\", \"expiration_time\": 3, \"signal\": 9}");
    apply(&t, "{\"pid\": 4, \"scope_id\": \"early\", \"expiration_time\": 2, \"signal\": 9}");
    ck_assert_int_eq(timers_next_ms(&t), 1000);
    check_expires(&t, 999, NULL);
    check_expires(&t, 3000, "early"); /* of the timers that are due, those with a signal come
                                       * first */
    check_expires(&t, 3000, "late");
    check_expires(&t, 3000, "log");
    check_expires(&t, INT64_MAX, NULL);
}
END_TEST

START_TEST(test_a_timer_is_moved_cancelled_forgotten) {
    struct timers t = {0};
    apply(&t, "{\"pid\": 2, \"scope_id\": \"a\", \"expiration_time\": 1, \"signal\": 9}");
    apply(&t, "{\"pid\": 2, \"scope_id\": \"a\", \"expiration_time\": 5, \"signal\": 9}");
    apply(&t, "{\"pid\": 2, \"scope_id\": \"b\", \"expiration_time\": 7, \"signal\": 9}");
    apply(&t, "{\"pid\": 3, \"scope_id\": \"b\", \"expiration_time\": 9, \"signal\": 9}");
    ck_assert_uint_eq(t.count, 3);
    ck_assert_int_eq(timers_next_ms(&t), 5000);
    apply(&t, "{\"pid\": 2, \"scope_id\": \"a\", \"expiration_time\": -1, \"signal\": 9}");
    apply(&t, "{\"pid\": 2, \"scope_id\": \"a\", \"expiration_time\": -1, \"signal\": 9}");
    ck_assert_int_eq(timers_next_ms(&t), 7000);
    ck_assert(timers_forget(&t, 2) && !timers_forget(&t, 2));
    ck_assert_int_eq(timers_next_ms(&t), 9000);
    timers_done(&t);
}
END_TEST

int main(void) {
    Suite *s = suite_create("timers");
    TCase *t = tcase_create("timers");
    tcase_add_test(t, test_a_request);
    tcase_add_test(t, test_numbers_out_of_range);
    tcase_add_test(t, test_lines_that_are_not_requests);
    tcase_add_test(t, test_what_expires_first);
    tcase_add_test(t, test_a_timer_is_moved_cancelled_forgotten);
    suite_add_tcase(s, t);
    return run_suite(s);
}
