/* Tests agent/report/ledger.c: the parts of the wall time, their sums, the causes of interruptions,
 * and the table that a person reads. A property test feeds random events and compares the sums with
 * the wall time. */
#include "agent/report/ledger_text.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS INT64_C(1000000)

static struct ledger l;

static void at(int64_t ms, struct ledger_event e) { ledger_step(&l, &e, ms * MS); }

static void begin_round(int64_t ms, uint64_t round, uint32_t restarts) {
    at(ms, (struct ledger_event){
               .type = LEDGER_EVENT_ROUND, .round = round, .restart_count = restarts});
}

static void started(int64_t ms) { at(ms, (struct ledger_event){.type = LEDGER_EVENT_STARTED}); }

static void sign(int64_t ms, enum ledger_sign what, int64_t since_ms) {
    at(ms, (struct ledger_event){
               .type = LEDGER_EVENT_SIGN, .sign = what, .since_ns = since_ms * MS});
}

static void broken(int64_t ms, enum ledger_cause cause, int64_t since_ms) {
    at(ms, (struct ledger_event){
               .type = LEDGER_EVENT_BROKEN, .cause = cause, .since_ns = since_ms * MS});
}

static void simple(int64_t ms, enum ledger_event_type type) {
    at(ms, (struct ledger_event){.type = type});
}

static void setup(void) { ledger_init(&l, 0); }

static int64_t part(uint64_t row, enum ledger_part p) {
    ck_assert_ptr_nonnull(ledger_row(&l, row));
    return ledger_row(&l, row)->part_ns[p] / MS;
}

static int64_t sum_of(const struct ledger *from) {
    int64_t ns = 0;
    for (int i = 0; i < LEDGER_PART_COUNT; i++) ns += from->part_ns[i];
    return ns;
}

/* A job with one restart: each part has the time from the event that begins it to the event that
 * ends it. */
START_TEST(test_a_restart) {
    begin_round(2, 0, 0);
    started(5);
    sign(1000, LEDGER_SIGN_STEP, 805);
    broken(1010, LEDGER_BY_FAILURE, 1000);
    simple(1100, LEDGER_EVENT_GONE);
    begin_round(1103, 1, 1);
    started(1105);
    sign(2000, LEDGER_SIGN_STEP, 1300);
    simple(2000, LEDGER_EVENT_DONE);
    simple(2050, LEDGER_EVENT_END);
    ck_assert_int_eq(part(0, LEDGER_RENDEZVOUS), 2);
    ck_assert_int_eq(part(0, LEDGER_SPAWN), 3);
    ck_assert_int_eq(part(0, LEDGER_FIRST_STEP), 800);
    ck_assert_int_eq(part(0, LEDGER_WORK), 195);
    ck_assert_int_eq(part(1, LEDGER_DETECT), 10);
    ck_assert_int_eq(part(1, LEDGER_STOP), 90);
    ck_assert_int_eq(part(1, LEDGER_RENDEZVOUS), 3);
    ck_assert_int_eq(part(1, LEDGER_SPAWN), 2);
    ck_assert_int_eq(part(1, LEDGER_FIRST_STEP), 195);
    ck_assert_int_eq(part(1, LEDGER_WORK), 700);
    ck_assert_int_eq(part(1, LEDGER_WAIT), 50);
    ck_assert_int_eq(ledger_wall_ns(&l), 2050 * MS);
    ck_assert_int_eq(sum_of(&l), 2050 * MS);
    ck_assert_int_eq(l.lost_ns[LEDGER_BY_START], 805 * MS);
    ck_assert_int_eq(l.lost_ns[LEDGER_BY_FAILURE], 300 * MS);
    ck_assert_double_eq_tol(ledger_effective(&l), 895.0 / 2050, 1e-9);
    ck_assert_uint_eq(l.round_count, 2);
}
END_TEST

/* How much of a round's time counts as work depends on what is known of the round's first step. If
 * nothing is known, all of the time is work. If the step is not over yet, nothing is work. If
 * output or a step has shown when it was over, the time after that is work. */
START_TEST(test_signs_of_the_first_step) {
    const struct {
        enum ledger_sign sign;
        int64_t first_ms, work_ms;
    } cases[] = {{LEDGER_SIGN_UNKNOWN, 0, 100}, {LEDGER_SIGN_AWAITED, 100, 0},
                 {LEDGER_SIGN_OUTPUT, 30, 70}, {LEDGER_SIGN_STEP, 30, 70}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ledger_init(&l, 0);
        begin_round(0, 0, 0);
        started(0);
        sign(50, cases[i].sign, 30);
        simple(100, LEDGER_EVENT_END);
        ck_assert_int_eq(part(0, LEDGER_FIRST_STEP), cases[i].first_ms);
        ck_assert_int_eq(part(0, LEDGER_WORK), cases[i].work_ms);
    }
}
END_TEST

START_TEST(test_a_step_says_more_than_output) {
    begin_round(0, 0, 0);
    started(0);
    sign(40, LEDGER_SIGN_OUTPUT, 10);
    sign(50, LEDGER_SIGN_STEP, 45);
    sign(60, LEDGER_SIGN_OUTPUT, 10);
    sign(61, LEDGER_SIGN_AWAITED, 0);
    simple(100, LEDGER_EVENT_END);
    ck_assert_int_eq(part(0, LEDGER_FIRST_STEP), 45);
}
END_TEST

/* When the rendezvous ends a round, it does not say why. If the next round has a higher restart
 * count, a restart was charged, so a worker of another node had failed. */
START_TEST(test_failure_elsewhere) {
    begin_round(0, 0, 0);
    started(0);
    broken(100, LEDGER_BY_NODES, 100);
    simple(110, LEDGER_EVENT_GONE);
    ck_assert_int_eq(ledger_row(&l, 1)->cause, LEDGER_BY_NODES);
    begin_round(120, 1, 1);
    ck_assert_int_eq(ledger_row(&l, 1)->cause, LEDGER_BY_FAILURE_ELSEWHERE);
    ck_assert_int_eq(l.lost_ns[LEDGER_BY_NODES], 0);
    ck_assert_int_eq(l.lost_ns[LEDGER_BY_FAILURE_ELSEWHERE], 20 * MS);
    started(120);
    broken(200, LEDGER_BY_NODES, 200);
    simple(210, LEDGER_EVENT_GONE);
    begin_round(220, 2, 1);
    ck_assert_int_eq(ledger_row(&l, 2)->cause, LEDGER_BY_NODES);
    ck_assert_uint_eq(l.cause_count[LEDGER_BY_NODES], 1);
    ck_assert_uint_eq(l.cause_count[LEDGER_BY_FAILURE_ELSEWHERE], 1);
}
END_TEST

/* A failure is followed by further deaths and a stop. Only the first of these events ends the
 * round and gives the cause. */
START_TEST(test_only_the_first_cause_counts) {
    begin_round(0, 0, 0);
    started(0);
    broken(100, LEDGER_BY_HANG, 60);
    broken(105, LEDGER_BY_NODES, 105);
    broken(106, LEDGER_BY_SIGNAL, 0);
    ck_assert_uint_eq(l.row_count, 2);
    ck_assert_int_eq(ledger_row(&l, 1)->cause, LEDGER_BY_HANG);
    ck_assert_int_eq(part(1, LEDGER_DETECT), 40);
}
END_TEST

/* Reading the ledger while the job runs counts the time until now, and does not change the
 * ledger. */
START_TEST(test_reading_changes_nothing) {
    struct ledger now;
    begin_round(1, 0, 0);
    started(2);
    ledger_read(&l, 500 * MS, &now);
    ck_assert_int_eq(ledger_wall_ns(&now), 500 * MS);
    ck_assert_int_eq(sum_of(&now), 500 * MS);
    ck_assert_int_eq(now.phase, LEDGER_IN_RUN);
    ck_assert_int_eq(ledger_wall_ns(&l), 2 * MS);
    simple(600, LEDGER_EVENT_DONE);
    ck_assert_int_eq(part(0, LEDGER_WORK), 598);
}
END_TEST

/* The ledger keeps only the last LEDGER_ROWS_MAX rows, but its sums count all rows. */
START_TEST(test_more_rows_than_are_kept) {
    for (uint32_t i = 0; i < 3 * LEDGER_ROWS_MAX; i++) {
        begin_round(10 * i, i, i);
        started(10 * i);
        broken(10 * i + 6, LEDGER_BY_FAILURE, 10 * i + 5);
        simple(10 * i + 10, LEDGER_EVENT_GONE);
    }
    ck_assert_uint_eq(l.row_count, 3 * LEDGER_ROWS_MAX + 1);
    ck_assert_ptr_null(ledger_row(&l, 0));
    ck_assert_ptr_null(ledger_row(&l, l.row_count));
    ck_assert_uint_eq(ledger_row(&l, ledger_first_row(&l))->round, 2 * LEDGER_ROWS_MAX + 1);
    ck_assert_int_eq(l.part_ns[LEDGER_WORK], 5 * 3 * LEDGER_ROWS_MAX * MS);
    ck_assert_int_eq(sum_of(&l), ledger_wall_ns(&l));
}
END_TEST

/* ---- random events ---- */

static int64_t sum_of_rows(void) {
    int64_t ns = 0;
    for (uint64_t i = ledger_first_row(&l); i < l.row_count; i++) {
        for (int p = 0; p < LEDGER_PART_COUNT; p++) {
            ck_assert_int_ge(ledger_row(&l, i)->part_ns[p], 0);
            ns += ledger_row(&l, i)->part_ns[p];
        }
    }
    return ns;
}

static int64_t sum_of_causes(void) {
    int64_t ns = l.part_ns[LEDGER_WORK] + l.part_ns[LEDGER_WAIT];
    for (int c = 0; c < LEDGER_CAUSE_COUNT; c++) {
        ck_assert_int_ge(l.lost_ns[c], 0);
        ns += l.lost_ns[c];
    }
    return ns;
}

static int64_t random_ns(int64_t limit) {
    return (int64_t) (((uint64_t) rand() << 31 | (uint64_t) rand()) % (uint64_t) limit);
}

/* Feeds random events in random order with random times, even with a clock that steps back. The
 * parts of all rows, their sums, and the sums by cause must each add up to the wall time. */
START_TEST(test_parts_add_up) {
    srand((unsigned) _i);
    int64_t now = random_ns(INT64_C(1) << 40), begin = now, latest = now;
    ledger_init(&l, now);
    for (int i = 0; i < 100; i++) {
        now += random_ns(5000000000) - (rand() % 10 == 0 ? 1000000000 : 0);
        if (now > latest) latest = now;
        struct ledger_event e = {.type = (enum ledger_event_type)(rand() % LEDGER_EVENT_END),
                                 .round = (uint64_t) i,
                                 .restart_count = (uint32_t) (rand() % 5),
                                 .cause = (enum ledger_cause)(rand() % LEDGER_CAUSE_COUNT),
                                 .sign = (enum ledger_sign)(rand() % LEDGER_SIGN_COUNT),
                                 .since_ns = now - random_ns(8000000000) + 1000000000};
        ledger_step(&l, &e, now);
    }
    struct ledger read;
    ledger_read(&l, latest, &read);
    ck_assert_int_eq(sum_of(&read), latest - begin);
    simple(latest / MS + 1, LEDGER_EVENT_END);
    ck_assert_int_eq(l.phase, LEDGER_ENDED);
    ck_assert_int_eq(sum_of(&l), ledger_wall_ns(&l));
    ck_assert_int_eq(sum_of_rows(), ledger_wall_ns(&l));
    ck_assert_int_eq(sum_of_causes(), ledger_wall_ns(&l));
}
END_TEST

/* ---- the table ---- */

START_TEST(test_the_table) {
    struct cr_buffer out = {0};
    begin_round(2, 0, 0);
    started(5);
    sign(900, LEDGER_SIGN_STEP, 505);
    broken(1010, LEDGER_BY_FAILURE, 1000);
    simple(1100, LEDGER_EVENT_GONE);
    begin_round(1103, 1, 1);
    started(1105);
    simple(2000, LEDGER_EVENT_END);
    ck_assert_int_eq(ledger_text(&out, &l), 0);
    ck_assert_str_eq(
        out.data,
        "crun: where the time went, in seconds: 2.000, of which 69.5 % is work; "
        "1 round after the first\n"
        "crun: round  cause          detect      stop rendezvous     spawn firs"
        "t_step      work      wait\n"
        "crun:     0  start           0.000     0.000      0.002     0.003     "
        " 0.500     0.495     0.000\n"
        "crun:     1  failure         0.010     0.090      0.003     0.002     "
        " 0.000     0.895     0.000\n"
        "crun:   all                  0.010     0.090      0.005     0.005     "
        " 0.500     1.390     0.000\n");
    cr_buffer_done(&out);
}
END_TEST

START_TEST(test_a_long_table_has_the_last_rows) {
    struct cr_buffer out = {0};
    for (uint32_t i = 0; i < 100; i++) {
        begin_round(10 * i, i, i);
        started(10 * i);
        broken(10 * i + 6, LEDGER_BY_FAILURE, 10 * i + 5);
        simple(10 * i + 10, LEDGER_EVENT_GONE);
    }
    ck_assert_int_eq(ledger_text(&out, &l), 0);
    ck_assert_ptr_nonnull(strstr(out.data, "crun: (81 rows are left out)\n"));
    ck_assert_ptr_null(strstr(out.data, "\ncrun:    80 "));
    ck_assert_ptr_nonnull(strstr(out.data, "\ncrun:    81 "));
    cr_buffer_done(&out);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ledger");
    TCase *tc = tcase_create("ledger");
    tcase_add_checked_fixture(tc, setup, NULL);
    tcase_add_test(tc, test_a_restart);
    tcase_add_test(tc, test_signs_of_the_first_step);
    tcase_add_test(tc, test_a_step_says_more_than_output);
    tcase_add_test(tc, test_failure_elsewhere);
    tcase_add_test(tc, test_only_the_first_cause_counts);
    tcase_add_test(tc, test_reading_changes_nothing);
    tcase_add_test(tc, test_more_rows_than_are_kept);
    tcase_add_test(tc, test_the_table);
    tcase_add_test(tc, test_a_long_table_has_the_last_rows);
    suite_add_tcase(suite, tc);
    TCase *random = tcase_create("random");
    tcase_add_loop_test(random, test_parts_add_up, 0, 500);
    suite_add_tcase(suite, random);
    return run_suite(suite);
}
