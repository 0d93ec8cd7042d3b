/* Tests agent/watchdog/quiet.h: when workers count as hung. */
#include "agent/watchdog/quiet.h"

#include "tests/lib/run_suite.h"

static struct quiet q;

static void begin(int64_t limit_ms) {
    quiet_done(&q);
    ck_assert_int_eq(quiet_init(&q, limit_ms, false, 2), 0);
    quiet_begin(&q, 0);
}

/* Takes samples for `ms` milliseconds. Worker 0 uses `a` thousandths of a processor, worker 1 uses
 * `b`, and together the workers write `bytes` bytes between two samples. Returns the time in ms at
 * which the node counts as hung, or -1 if it does not. */
static int64_t run(int64_t ms, int64_t a, int64_t b, uint64_t bytes) {
    uint64_t output = 0;
    for (int64_t now = 0; now <= ms; now = quiet_next_ms(&q)) {
        const int64_t cpu_ms[2] = {now * a / 1000, now * b / 1000};
        if (quiet_sample(&q, now, cpu_ms, output += bytes)) return now;
        ck_assert_int_gt(quiet_next_ms(&q), now);
    }
    return -1;
}

START_TEST(a_quiet_node_hangs_at_the_limit) {
    begin(60000);
    ck_assert_int_eq(run(120000, 0, 0, 0), 60000);
    begin(1000);
    ck_assert_int_eq(run(120000, 5, 9, 0), 1000); /* less than 1 % each */
}
END_TEST

/* With two samples in the limit, a quiet node is found at the second sample. */
START_TEST(samples_may_be_rare) {
    begin(60000);
    q.interval_ms = 60000;
    ck_assert_int_eq(quiet_next_ms(&q), 60000);
    ck_assert_int_eq(run(600000, 5, 5, 0), 60000);
    begin(60000);
    q.interval_ms = 60000;
    ck_assert_int_eq(run(600000, 20, 0, 0), -1);
}
END_TEST

START_TEST(output_is_activity) {
    begin(60000);
    ck_assert_int_eq(run(1000000, 0, 0, 1), -1);
}
END_TEST

START_TEST(one_busy_worker_is_enough) {
    begin(60000);
    ck_assert_int_eq(run(1000000, 0, 20, 0), -1);
}
END_TEST

START_TEST(output_alone_can_count) {
    begin(60000);
    q.only_output = true;
    ck_assert_int_eq(run(1000000, 1000, 1000, 0), 60000);
    begin(60000);
    q.only_output = true;
    ck_assert_int_eq(run(1000000, 1000, 1000, 1), -1);
}
END_TEST

START_TEST(a_descendant_that_ends_is_activity) {
    const int64_t before[2] = {500, 0}, after[2] = {100, 0};
    begin(10000);
    ck_assert(!quiet_sample(&q, 0, before, 0));
    ck_assert(!quiet_sample(&q, 9000, after, 0));
    ck_assert(!quiet_sample(&q, 18000, after, 0));
    ck_assert(quiet_sample(&q, 19000, after, 0));
}
END_TEST

START_TEST(a_new_round_begins_anew) {
    const int64_t none[2] = {0, 0};
    begin(10000);
    ck_assert(!quiet_sample(&q, 0, none, 0));
    ck_assert(!quiet_sample(&q, 9999, none, 0));
    quiet_begin(&q, 9999);
    ck_assert(!quiet_sample(&q, 15000, none, 0));
    ck_assert(!quiet_sample(&q, 20000, none, 0));
    ck_assert(quiet_sample(&q, 25000, none, 0));
}
END_TEST

/* The node is quiet for 9 s, then nobody sees it for an hour, and it is quiet for a second more. */
START_TEST(a_time_that_is_left_out_does_not_count) {
    const int64_t none[2] = {0, 0}, little[2] = {20, 0};
    const int64_t hour = 3600000;
    begin(10000);
    quiet_leave_out(&q, hour);
    ck_assert_int_eq(quiet_next_ms(&q), hour + 1000);
    begin(10000);
    ck_assert(!quiet_sample(&q, 0, none, 0));
    ck_assert(!quiet_sample(&q, 9000, none, 0));
    quiet_leave_out(&q, hour);
    ck_assert_int_eq(quiet_next_ms(&q), hour + 10000);
    ck_assert(!quiet_sample(&q, hour + 9500, none, 0));
    ck_assert(quiet_sample(&q, hour + 10000, none, 0));
    /* 20 ms in the second before and after the hour are activity */
    begin(10000);
    ck_assert(!quiet_sample(&q, 0, none, 0));
    ck_assert(!quiet_sample(&q, 9000, none, 0));
    quiet_leave_out(&q, hour);
    ck_assert(!quiet_sample(&q, hour + 10000, little, 0));
}
END_TEST

int main(void) {
    Suite *s = suite_create("quiet");
    TCase *t = tcase_create("quiet");
    tcase_add_test(t, a_quiet_node_hangs_at_the_limit);
    tcase_add_test(t, samples_may_be_rare);
    tcase_add_test(t, output_is_activity);
    tcase_add_test(t, one_busy_worker_is_enough);
    tcase_add_test(t, output_alone_can_count);
    tcase_add_test(t, a_descendant_that_ends_is_activity);
    tcase_add_test(t, a_new_round_begins_anew);
    tcase_add_test(t, a_time_that_is_left_out_does_not_count);
    suite_add_tcase(s, t);
    return run_suite(s);
}
