/* Tests of agent/trainjob/status.c: the address and the body of a report to TrainJob. */
#include "agent/trainjob/status_internal.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define NOON_NS (INT64_C(1700000000) * 1000000000)

static int parse(const char *url, struct cr_endpoint *to, const char **path) {
    struct cr_error err = {0};
    int rc = trainjob_parse_url(url, to, path, &err);
    ck_assert_int_eq(rc < 0, err.text[0] != '\0');
    return rc;
}

START_TEST(test_urls) {
    static const char *const bad[] = {"", "https://", "https://host", "http://host/x", "https:///x",
                                      "https://host:0x/", "https://a b/x", "https://h/\r\nX: y"};
    struct cr_endpoint to;
    const char *path = NULL;
    ck_assert_int_eq(parse("https://trainer.ns.svc:10443/apis/x/status", &to, &path), 0);
    ck_assert_str_eq(to.host, "trainer.ns.svc");
    ck_assert_uint_eq(to.port, 10443);
    ck_assert_str_eq(path, "/apis/x/status");
    ck_assert_int_eq(parse("https://[fd00::1]/", &to, &path), 0);
    ck_assert_str_eq(to.host, "fd00::1");
    ck_assert_uint_eq(to.port, 443);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ck_assert_msg(parse(bad[i], &to, &path) < 0, "'%s' was taken", bad[i]);
    }
}
END_TEST

/* Returns the trainerStatus of a report as a new JSON object. */
static json_t *status_of(struct trainjob_progress p, uint32_t total) {
    struct cr_buffer b = {0};
    ck_assert_int_eq(trainjob_write_body(&p, total, NOON_NS, &b), 0);
    json_t *body = json_loads(b.data, 0, NULL), *status = json_object_get(body, "trainerStatus");
    ck_assert_ptr_nonnull(status);
    ck_assert_str_eq(json_string_value(json_object_get(status, "lastUpdatedTime")),
                     "2023-11-14T22:13:20.000Z");
    json_incref(status);
    json_decref(body);
    cr_buffer_done(&b);
    return status;
}

/* Checks the estimates of a report; -1 means that the report has none. */
static void check_estimates(struct trainjob_progress p, uint32_t total, json_int_t percent,
                            json_int_t left_s) {
    json_t *status = status_of(p, total), *found = json_object_get(status, "progressPercentage");
    json_t *left = json_object_get(status, "estimatedRemainingSeconds");
    ck_assert_int_eq(found != NULL ? json_integer_value(found) : -1, percent);
    ck_assert_int_eq(left != NULL ? json_integer_value(left) : -1, left_s);
    json_decref(status);
}

START_TEST(test_estimates) {
    check_estimates((struct trainjob_progress){.steps = 250, .steps_per_s = 2}, 1000, 25, 375);
    check_estimates((struct trainjob_progress){.steps = 250}, 1000, 25, -1);
    check_estimates((struct trainjob_progress){.steps = 250, .steps_per_s = 2}, 0, -1, -1);
    check_estimates((struct trainjob_progress){.steps_per_s = 2}, 1000, -1, -1);
    /* more steps than expected: 100 % is only reported when the job has succeeded */
    check_estimates((struct trainjob_progress){.steps = 2000, .steps_per_s = 2}, 1000, 99, 0);
    check_estimates((struct trainjob_progress){.steps = 1, .steps_per_s = 1e-9}, 1000, 0, -1);
    /* after the first round, the steps do not count from the training's begin */
    check_estimates((struct trainjob_progress){.round = 1, .steps = 9, .steps_per_s = 2}, 10, -1,
                    -1);
    check_estimates((struct trainjob_progress){.round = 1, .is_done = true}, 0, 100, 0);
}
END_TEST

START_TEST(test_metrics) {
    json_t *status = status_of((struct trainjob_progress){.round = 3, .restarts = 2, .workers = 16,
                                                          .steps = 7, .steps_per_s = 0.25}, 0);
    char *text = json_dumps(json_object_get(status, "metrics"), JSON_COMPACT);
    ck_assert_str_eq(text, "[{\"name\":\"crun_round\",\"value\":\"3\"},"
                           "{\"name\":\"crun_restarts\",\"value\":\"2\"},"
                           "{\"name\":\"crun_workers\",\"value\":\"16\"},"
                           "{\"name\":\"crun_steps\",\"value\":\"7\"},"
                           "{\"name\":\"crun_steps_per_second\",\"value\":\"0.25\"}]");
    free(text);
    json_decref(status);
}
END_TEST

int main(void) {
    Suite *s = suite_create("trainjob");
    TCase *t = tcase_create("trainjob");
    tcase_add_test(t, test_urls);
    tcase_add_test(t, test_estimates);
    tcase_add_test(t, test_metrics);
    suite_add_tcase(s, t);
    return run_suite(s);
}
