/* Tests of launcher/jobset/protocol.c: what a pod does in JobSet's in-place restarts. */
#include "launcher/jobset/protocol_internal.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define NONE (-1)

/* Writes a JobSet with these attempts; NONE leaves a field out. */
static const char *jobset_text(const char *version, int current, int previous) {
    static char text[512];
    char now[64] = "", before[64] = "";
    if (current != NONE) {
        (void) snprintf(now, sizeof(now), "\"currentInPlaceRestartAttempt\": %d", current);
    }
    if (previous != NONE) {
        (void) snprintf(before, sizeof(before), "%s\"previousInPlaceRestartAttempt\": %d",
                        now[0] != '\0' ? ", " : "", previous);
    }
    (void) snprintf(text, sizeof(text),
                    "{\"metadata\": {\"resourceVersion\": \"%s\"}, \"spec\": {\"failurePolicy\": "
                    "{\"restartStrategy\": \"InPlaceRestart\"}}, \"status\": {%s%s}}",
                    version, now, before);
    return text;
}

static const char *event_text(const char *type, const char *object) {
    static char text[600];
    (void) snprintf(text, sizeof(text), "{\"type\": \"%s\", \"object\": %s}", type, object);
    return text;
}

static int take(struct jobset_protocol *p, enum jobset_call call, const char *text) {
    struct cr_error err = {0};
    int rc = jobset_take(p, call, text, strlen(text), &err);
    ck_assert_int_eq(rc == -EPROTO, err.text[0] != '\0');
    return rc;
}

/* Returns the order that is due, or NONE. */
static int order_of(struct jobset_protocol *p) {
    enum jobset_order order;
    return jobset_order(p, &order) ? (int) order : NONE;
}

/* Returns a pod that has read the JobSet and announced its attempt. */
static struct jobset_protocol announced(int current, int previous) {
    struct jobset_protocol p = {.previous = -1};
    ck_assert_int_eq(jobset_next(&p), JOBSET_READ);
    ck_assert_int_eq(take(&p, JOBSET_READ, jobset_text("7", current, previous)), 0);
    ck_assert_int_eq(jobset_ended(&p, JOBSET_READ, 200, true, 0), 0);
    ck_assert_int_eq(jobset_next(&p), JOBSET_ANNOUNCE);
    ck_assert_int_eq(order_of(&p), NONE);
    jobset_announced(&p);
    ck_assert_int_eq(jobset_ended(&p, JOBSET_ANNOUNCE, 200, true, 0), 0);
    ck_assert_int_eq(jobset_next(&p), JOBSET_WATCH);
    return p;
}

START_TEST(test_the_first_attempt_is_0_and_later_ones_are_current_plus_1) {
    char body[JOBSET_BODY_MAX];
    struct jobset_protocol first = announced(NONE, NONE), later = announced(4, 3);
    jobset_patch(&first, body);
    ck_assert_str_eq(body, "{\"metadata\": {\"annotations\": "
                           "{\"jobset.sigs.k8s.io/in-place-restart-attempt\": \"0\"}}}");
    jobset_patch(&later, body);
    ck_assert_ptr_nonnull(strstr(body, "attempt\": \"5\"}}}"));
}
END_TEST

START_TEST(test_the_barrier_lifts_at_the_own_attempt_once) {
    struct jobset_protocol p = announced(4, 3);
    ck_assert_int_eq(order_of(&p), NONE);
    ck_assert_int_eq(take(&p, JOBSET_WATCH, event_text("MODIFIED", jobset_text("8", 4, 4))), 0);
    ck_assert_int_eq(order_of(&p), NONE);
    ck_assert_int_eq(take(&p, JOBSET_WATCH, event_text("MODIFIED", jobset_text("9", 5, 4))), 0);
    ck_assert_int_eq(order_of(&p), JOBSET_START);
    ck_assert_int_eq(order_of(&p), NONE);
    ck_assert_int_eq(take(&p, JOBSET_WATCH, event_text("MODIFIED", jobset_text("10", 5, 5))), 0);
    ck_assert_int_eq(order_of(&p), JOBSET_RESTART);
    ck_assert_int_eq(order_of(&p), NONE);
    ck_assert_int_eq(jobset_next(&p), JOBSET_NOTHING);
}
END_TEST

START_TEST(test_an_attempt_that_was_not_announced_is_never_outdated) {
    struct jobset_protocol p = {.previous = -1};
    ck_assert_int_eq(take(&p, JOBSET_READ, jobset_text("7", NONE, 3)), 0);
    ck_assert_int_eq(order_of(&p), NONE);
    jobset_announced(&p);
    ck_assert_int_eq(order_of(&p), JOBSET_RESTART);
}
END_TEST

START_TEST(test_the_attempt_stays_while_announcing_is_tried_again) {
    struct jobset_protocol p = {.previous = -1};
    ck_assert_int_eq(take(&p, JOBSET_READ, jobset_text("7", 0, NONE)), 0);
    ck_assert_int_gt((int) jobset_ended(&p, JOBSET_ANNOUNCE, 0, false, 0), 0);
    ck_assert_int_eq(take(&p, JOBSET_READ, jobset_text("8", 1, 0)), 0);
    ck_assert_int_eq((int) p.attempt, 1);
    jobset_announced(&p);
    ck_assert_int_eq(order_of(&p), JOBSET_START);
}
END_TEST

START_TEST(test_a_version_that_is_gone_is_read_again) {
    struct jobset_protocol p = announced(0, NONE);
    const char *status = "{\"kind\": \"Status\", \"code\": 410}";
    ck_assert_int_eq(take(&p, JOBSET_WATCH, event_text("ERROR", status)), -ESTALE);
    ck_assert_int_eq(jobset_next(&p), JOBSET_READ);
    ck_assert_int_eq((int) jobset_ended(&p, JOBSET_WATCH, 410, false, 0), 0);
    /* when the version is gone a second time in a row, the next call waits */
    ck_assert_int_gt((int) jobset_ended(&p, JOBSET_WATCH, 410, false, 0), 0);
}
END_TEST

START_TEST(test_the_watch_goes_on_at_the_newest_version) {
    char path[JOBSET_PATH_MAX];
    struct jobset_options o = {.name = "js", .pod = "js-0", .space = "ml"};
    struct jobset_protocol p = announced(0, NONE);
    const char *mark = "{\"metadata\": {\"resourceVersion\": \"90\"}}";
    ck_assert_int_eq(take(&p, JOBSET_WATCH, event_text("BOOKMARK", mark)), 0);
    ck_assert_int_eq(order_of(&p), NONE);
    jobset_path(&p, &o, JOBSET_WATCH, path);
    ck_assert_str_eq(path, "/apis/jobset.x-k8s.io/v1alpha2/namespaces/ml/jobsets?watch=1"
                           "&fieldSelector=metadata.name%3Djs&resourceVersion=90"
                           "&allowWatchBookmarks=true&timeoutSeconds=240");
    jobset_path(&p, &o, JOBSET_READ, path);
    ck_assert_str_eq(path, "/apis/jobset.x-k8s.io/v1alpha2/namespaces/ml/jobsets/js");
    jobset_path(&p, &o, JOBSET_ANNOUNCE, path);
    ck_assert_str_eq(path, "/api/v1/namespaces/ml/pods/js-0");
}
END_TEST

START_TEST(test_pauses_grow_to_half_a_minute_and_spread) {
    struct jobset_protocol p = announced(0, NONE);
    int64_t last = 0;
    for (int i = 0; i < 40; i++) {
        struct jobset_protocol other = p;
        int64_t a = jobset_ended(&p, JOBSET_WATCH, 0, false, 0);
        int64_t b = jobset_ended(&other, JOBSET_WATCH, 0, false, UINT32_MAX);
        ck_assert(a >= last && a >= 125 && b < 2 * a && a <= 15000);
        last = a;
    }
    ck_assert_int_eq((int) last, 15000);
    /* READ is allowed and WATCH is not: there must be a pause before READ is repeated */
    ck_assert_int_eq((int) jobset_ended(&p, JOBSET_READ, 200, true, 0), 0);
    ck_assert_int_eq((int) jobset_ended(&p, JOBSET_WATCH, 403, false, 0), 15000);
    ck_assert_int_eq(take(&p, JOBSET_WATCH, event_text("ADDED", jobset_text("9", 0, NONE))), 0);
    ck_assert_int_eq((int) jobset_ended(&p, JOBSET_WATCH, 0, false, 0), 125);
}
END_TEST

START_TEST(test_other_strategies_are_left_alone) {
    static const char *const texts[] = {
        "{\"metadata\": {\"resourceVersion\": \"7\"}, \"spec\": {}}",
        "{\"metadata\": {\"resourceVersion\": \"7\"}, \"spec\": {\"failurePolicy\": "
        "{\"restartStrategy\": \"Recreate\"}}}",
        "{\"metadata\": {\"resourceVersion\": \"7\", \"annotations\": "
        "{\"jobset.sigs.k8s.io/disable-in-place-restart\": \"\"}}, \"spec\": {\"failurePolicy\": "
        "{\"restartStrategy\": \"InPlaceRestart\"}}}"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct jobset_protocol p = {.previous = -1};
        ck_assert_int_eq(take(&p, JOBSET_READ, texts[i]), 0);
        ck_assert_int_eq(order_of(&p), JOBSET_START);
        ck_assert_int_eq(jobset_next(&p), JOBSET_NOTHING);
    }
}
END_TEST

START_TEST(test_forged_answers) {
    static const char *const reads[] = {"", "[]", "{", "{\"metadata\": {}}",
        "{\"metadata\": {\"resourceVersion\": \"7&watch=1\"}}",
        "{\"metadata\": {\"resourceVersion\": 7}}"};
    static const char *const lines[] = {"{}", "{\"type\": 1, \"object\": {}}",
        "{\"type\": \"ADDED\"}", "{\"type\": \"ERROR\", \"object\": {\"code\": 500}}"};
    for (size_t i = 0; i < sizeof(reads) / sizeof(reads[0]); i++) {
        struct jobset_protocol p = {.previous = -1};
        ck_assert_int_eq(take(&p, JOBSET_READ, reads[i]), -EPROTO);
        ck_assert_int_eq(order_of(&p), NONE);
        ck_assert_int_eq(jobset_next(&p), JOBSET_READ);
    }
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        struct jobset_protocol p = announced(0, NONE);
        ck_assert_int_eq(take(&p, JOBSET_WATCH, lines[i]), -EPROTO);
        ck_assert_int_eq(order_of(&p), NONE);
    }
    struct jobset_protocol p = announced(0, NONE);
    const char *huge = "{\"metadata\": {\"resourceVersion\": \"8\"}, \"status\": "
                       "{\"previousInPlaceRestartAttempt\": 99999999999, "
                       "\"currentInPlaceRestartAttempt\": -1}}";
    ck_assert_int_eq(take(&p, JOBSET_WATCH, event_text("MODIFIED", huge)), 0);
    ck_assert_int_eq(order_of(&p), NONE);
}
END_TEST

int main(void) {
    Suite *s = suite_create("jobset");
    TCase *t = tcase_create("jobset");
    tcase_add_test(t, test_the_first_attempt_is_0_and_later_ones_are_current_plus_1);
    tcase_add_test(t, test_the_barrier_lifts_at_the_own_attempt_once);
    tcase_add_test(t, test_an_attempt_that_was_not_announced_is_never_outdated);
    tcase_add_test(t, test_the_attempt_stays_while_announcing_is_tried_again);
    tcase_add_test(t, test_a_version_that_is_gone_is_read_again);
    tcase_add_test(t, test_the_watch_goes_on_at_the_newest_version);
    tcase_add_test(t, test_pauses_grow_to_half_a_minute_and_spread);
    tcase_add_test(t, test_other_strategies_are_left_alone);
    tcase_add_test(t, test_forged_answers);
    suite_add_tcase(s, t);
    return run_suite(s);
}
