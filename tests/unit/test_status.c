/* Tests the pure parts of status/: which rank holds a job up, and the metrics of a snapshot. */
#include "status/snapshot.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <string.h>

/* ---- which rank holds the job up ---- */

/* Parses a list of ranks, judges it, and returns the job. */
static json_t *judged(const char *ranks) {
    json_error_t err;
    json_t *list = json_loads(ranks, 0, &err);
    ck_assert_msg(list != NULL, "%s", err.text);
    json_t *job = json_pack("{s:o}", "ranks", list);
    status_judge(job);
    return job;
}

static void check_odd(const char *ranks, int rank, const char *why) {
    json_t *job = judged(ranks), *odd = json_object_get(job, "odd");
    ck_assert_msg(json_is_object(odd), "no odd rank in %s", ranks);
    json_t *found = json_object_get(odd, "rank");
    if (rank < 0) ck_assert(json_is_null(found));
    else ck_assert_int_eq(json_integer_value(found), rank);
    ck_assert_str_eq(json_string_value(json_object_get(odd, "why")), why);
    json_decref(job);
}

static void check_none(const char *ranks) {
    json_t *job = judged(ranks);
    ck_assert(json_is_null(json_object_get(job, "odd")));
    json_decref(job);
}

START_TEST(test_all_keep_up) {
    check_none("[]");
    check_none("[{\"rank\":0,\"state\":\"running\"}]"); /* counts no steps */
    check_none("[{\"rank\":0,\"step\":10,\"step_age_s\":0.1,\"steps_per_s\":5},"
               "{\"rank\":1,\"step\":9,\"step_age_s\":0.3,\"steps_per_s\":5}]");
    /* a slow job: a step takes a minute */
    check_none("[{\"rank\":0,\"step\":10,\"step_age_s\":90,\"steps_per_s\":0.0166},"
               "{\"rank\":1,\"step\":9,\"step_age_s\":100,\"steps_per_s\":0.0166}]");
}
END_TEST

START_TEST(test_who_is_behind) {
    check_odd("[{\"rank\":0,\"step\":10,\"step_age_s\":0.1},{\"rank\":1,\"step\":7,"
              "\"step_age_s\":3},{\"rank\":2,\"step\":8,\"step_age_s\":2}]",
              1, "3 steps behind, no step for 3.0 s");
    /* one step behind counts only if the rank makes no step for long */
    check_odd("[{\"rank\":4,\"step\":10,\"step_age_s\":30},"
              "{\"rank\":5,\"step\":9,\"step_age_s\":31.5}]",
              5, "1 step behind, no step for 31.5 s");
}
END_TEST

START_TEST(test_what_the_kernel_and_the_agent_say) {
    const char *late = "{\"rank\":9,\"step\":1,\"step_age_s\":1}";
    char ranks[512];
    (void) snprintf(ranks, sizeof(ranks),
                    "[{\"rank\":0,\"step\":50,\"kernel_state\":\"D\","
                    "\"wait_channel\":\"nfs_wait\"},"
                    "{\"rank\":3,\"step\":50,\"kernel_state\":\"T\"},%s]",
                    late);
    check_odd(ranks, 0, "in a system call that cannot be interrupted (nfs_wait)");
    (void) snprintf(ranks, sizeof(ranks), "[{\"rank\":3,\"step\":50,\"kernel_state\":\"T\"},%s]",
                    late);
    check_odd(ranks, 3, "stopped by a signal or a debugger");
    check_odd("[{\"rank\":0,\"kernel_state\":\"D\"},{\"rank\":2,\"step\":3,\"state\":\"hung\","
              "\"step_age_s\":61}]",
              2, "hung: no step for 61 s");
}
END_TEST

START_TEST(test_nobody_goes_on) {
    check_odd("[{\"rank\":0,\"step\":10,\"step_age_s\":20},{\"rank\":1,\"step\":10,"
              "\"step_age_s\":21}]",
              -1, "no rank has made a step for 5 s");
}
END_TEST

START_TEST(test_behind_and_slowest) {
    json_t *job = judged("[{\"rank\":0,\"step\":10},{\"rank\":1},{\"rank\":2,\"step\":10,"
                         "\"step_age_s\":1},{\"rank\":3,\"step\":12}]");
    const json_t *ranks = json_object_get(job, "ranks");
    ck_assert_int_eq(json_integer_value(json_object_get(job, "slowest")), 2);
    ck_assert_int_eq(json_integer_value(json_object_get(json_array_get(ranks, 0), "behind")), 2);
    ck_assert_ptr_null(json_object_get(json_array_get(ranks, 1), "behind"));
    ck_assert_int_eq(json_integer_value(json_object_get(json_array_get(ranks, 3), "behind")), 0);
    json_decref(job);
}
END_TEST

/* ---- metrics ---- */

static const char snapshot_text[] =
    "{\"crun\":\"1.2\",\"host\":\"h\\\"\\\\\\n\",\"jobs\":[{\"id\":\"j\",\"round\":1,"
    "\"restarts\":2,\"max_restarts\":3,\"nodes_in_round\":2,\"world_size\":4,"
    "\"ledger\":{\"effective\":0.5,\"parts_s\":{\"work\":1.5,\"stop\":0.25},"
    "\"causes\":{\"failure\":{\"count\":2,\"lost_s\":0.125}},"
    "\"rows\":[{\"parts_s\":{\"work\":1}}]},"
    "\"ranks\":[{\"rank\":7,\"state\":\"running\",\"step\":5,\"uninterruptible\":true}]}]}";

/* Returns the metrics as text, which the caller frees. */
static char *metrics(const char *snapshot, bool is_open) {
    struct cr_buffer out = {0};
    json_t *parsed = json_loads(snapshot, 0, NULL);
    ck_assert_ptr_nonnull(parsed);
    ck_assert_int_eq(status_metrics(&out, parsed, is_open), 0);
    json_decref(parsed);
    return out.data;
}

static void has(const char *text, const char *line) {
    ck_assert_msg(strstr(text, line) != NULL, "'%s' is not in:\n%s", line, text);
}

START_TEST(test_open_metrics) {
    char *text = metrics(snapshot_text, true);
    has(text, "# TYPE crun_build info\ncrun_build_info{version=\"1.2\",host=\"h\\\"\\\\\\n\"} 1\n");
    has(text, "# TYPE crun_restarts counter\ncrun_restarts_total{job=\"j\"} 2\n");
    has(text, "# UNIT crun_time_seconds seconds\n"
              "crun_time_seconds_total{job=\"j\",part=\"work\"} 1.5\n");
    has(text, "crun_rounds_total{job=\"j\",cause=\"failure\"} 2\n");
    has(text, "crun_lost_seconds_total{job=\"j\",cause=\"failure\"} 0.125\n");
    has(text, "crun_workers{job=\"j\",state=\"running\"} 1\n");
    has(text, "crun_workers{job=\"j\",state=\"hung\"} 0\n");
    has(text, "crun_rank_steps{job=\"j\",rank=\"7\"} 5\n");
    has(text, "crun_rank_uninterruptible{job=\"j\",rank=\"7\"} 1\n");
    ck_assert_str_eq(text + strlen(text) - 6, "# EOF\n");
    ck_assert_ptr_null(strstr(text, "crun_rank_step_age_seconds{")); /* not in the snapshot */
    free(text);
}
END_TEST

START_TEST(test_the_older_format) {
    char *text = metrics(snapshot_text, false);
    has(text, "# TYPE crun_build_info gauge\ncrun_build_info{");
    has(text, "# TYPE crun_restarts_total counter\ncrun_restarts_total{job=\"j\"} 2\n");
    ck_assert_ptr_null(strstr(text, "# UNIT"));
    ck_assert_ptr_null(strstr(text, "# EOF"));
    free(text);
}
END_TEST

START_TEST(test_metrics_without_jobs) {
    char *text = metrics("{\"jobs\":[]}", true);
    has(text, "# TYPE crun_round gauge\n");
    ck_assert_ptr_null(strstr(text, "crun_round{"));
    free(text);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("status");
    TCase *judge = tcase_create("judge");
    tcase_add_test(judge, test_all_keep_up);
    tcase_add_test(judge, test_who_is_behind);
    tcase_add_test(judge, test_what_the_kernel_and_the_agent_say);
    tcase_add_test(judge, test_nobody_goes_on);
    tcase_add_test(judge, test_behind_and_slowest);
    suite_add_tcase(suite, judge);
    TCase *text = tcase_create("metrics");
    tcase_add_test(text, test_open_metrics);
    tcase_add_test(text, test_the_older_format);
    tcase_add_test(text, test_metrics_without_jobs);
    suite_add_tcase(suite, text);
    return run_suite(suite);
}
