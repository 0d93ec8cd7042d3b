/* Tests the pure parts of status/: which rank holds a job up, the metrics of a snapshot, and the
 * view for a terminal. */
#include "status/snapshot.h"
#include "status/view.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <string.h>

/* ---- which rank holds the job up ---- */

/* Returns a job with these ranks (a JSON text), to which status_judge() has added its results. */
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
    /* a rank that is one step behind is odd only if it has made no step for a long time */
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

/* ---- the view ---- */

static const char viewed[] =
    "{\"monotonic_s\":20,\"jobs\":[{\"id\":\"other\"},{\"id\":\"j\",\"title\":\"t\\u001b[2J\","
    "\"group_state\":\"running\",\"round\":1,\"restarts\":1,\"max_restarts\":3,"
    "\"nodes_in_round\":2,\"min_nodes\":1,\"max_nodes\":2,\"world_size\":3,\"slowest\":1,"
    "\"odd\":{\"rank\":1,\"why\":\"4 steps behind\"},\"ledger\":{\"effective\":0.5,\"wall_s\":100,"
    "\"rows\":[{\"cause\":\"failure\",\"parts_s\":{\"stop\":0.25,\"first_step\":1.5}}]},"
    "\"nodes\":[{\"host\":\"a\",\"group_rank\":0,\"first_rank\":0,\"workers\":2},"
    "{\"host\":\"b\",\"group_rank\":-1}],"
    "\"ranks\":[{\"rank\":0,\"pid\":70,\"state\":\"running\",\"kernel_state\":\"S\",\"step\":9,"
    "\"steps_per_s\":2,\"behind\":0,\"rss_bytes\":2097152},"
    "{\"rank\":1,\"pid\":71,\"step\":5,\"steps_per_s\":3,\"behind\":4,\"last_line\":\"hi\"},"
    "{\"rank\":2,\"pid\":72}]}]}";

/* Returns the view as text, which the caller frees. */
static char *view(struct status_view v) {
    struct cr_buffer out = {0};
    json_t *snapshot = json_loads(viewed, 0, NULL);
    ck_assert_ptr_nonnull(snapshot);
    v.snapshot = snapshot;
    ck_assert_int_eq(status_view(&out, &v), 0);
    ck_assert_int_eq(cr_buffer_append(&out, "", 1), 0);
    json_decref(snapshot);
    return out.data;
}

START_TEST(test_view) {
    char *text = view((struct status_view){.columns = 80});
    has(text, "rank 1: 4 steps behind\njob 'j'  t\\x1b[2J  running, round 1, restarts 1 of 3\n");
    has(text, "nodes 2 of 1:2, ranks 3\n"
              "work 50.0 % of 100 s; last: failure: stop 0.250, first_step 1.500\n");
    has(text, "\n    0  a ");
    has(text, "\n   -1  b ");
    has(text, "\n    1      71 ?                5   3.00      4     -     -     -  hi\n"
              "    0      70 running S        9   2.00      0     -     -  2.0M  \n"
              "    2      72 ?                -      -      -     -     -     -  \n");
    ck_assert(strncmp(text, "rank 1", 6) == 0 && strchr(text, '\033') == NULL);
    free(text);
    text = view((struct status_view){.columns = 80, .run_id = "none"});
    ck_assert_str_eq(text, "there is no such job: none\n");
    free(text);
    text = view((struct status_view){.columns = 80, .run_id = "other"});
    has(text, "the ranks are on other nodes");
    free(text);
}
END_TEST

/* If an earlier snapshot is given, the view computes the steps per second from both snapshots, for
 * each rank that has the same process in both. */
START_TEST(test_rates) {
    json_t *before = json_loads("{\"monotonic_s\":18,\"jobs\":[{\"id\":\"j\",\"round\":1,"
                                "\"ranks\":[{\"rank\":0,\"pid\":70,\"step\":8},"
                                "{\"rank\":1,\"pid\":99,\"step\":1}]}]}",
                                0, NULL);
    char *text = view((struct status_view){.columns = 80, .before = before});
    has(text, "    0      70 running S        9   0.50 ");
    has(text, "    1      71 ?                5   3.00 "); /* another process than before */
    free(text);
    json_decref(before);
}
END_TEST

/* No line is wider than the terminal, and there are never more lines than the terminal has. */
START_TEST(test_sizes) {
    for (size_t rows = 1; rows < 16; rows++) {
        for (size_t columns = 1; columns < 100; columns += 7) {
            char *text = view((struct status_view){.rows = rows, .columns = columns,
                                                   .footer = "the keys are these"});
            size_t lines = 0;
            for (char *at = text; *at != '\0'; lines++) {
                size_t len = strcspn(at, "\n");
                ck_assert_uint_le(len, columns);
                at += len + 1;
            }
            ck_assert_uint_le(lines, rows);
            free(text);
        }
    }
}
END_TEST

START_TEST(test_selected_row) {
    char *text = view((struct status_view){.rows = 24, .columns = 80, .has_escapes = true,
                                           .selected = 99});
    has(text, "\033[1;31mrank 1: 4 steps behind\033[0m\n");
    has(text, "\033[31m    1      71");
    has(text, "\033[7m    2      72"); /* .selected = 99 selects the last row */
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
    TCase *terminal = tcase_create("view");
    tcase_add_test(terminal, test_view);
    tcase_add_test(terminal, test_rates);
    tcase_add_test(terminal, test_sizes);
    tcase_add_test(terminal, test_selected_row);
    suite_add_tcase(suite, terminal);
    return run_suite(suite);
}
