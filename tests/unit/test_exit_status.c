/* Tests launcher/exit_status.h: which status each result of a job has. */
#include "launcher/exit_status.h"

#include "tests/lib/run_suite.h"

#include <errno.h>
#include <signal.h>

static const struct {
    struct agent_result result;
    int status;
} rows[] = {
    {{.outcome = AGENT_SUCCEEDED}, 0},
    {{.outcome = AGENT_FAILED, .cause = AGENT_CAUSE_WORKER}, 1},
    {{.outcome = AGENT_FAILED, .cause = AGENT_CAUSE_BUDGET}, 81},
    {{.outcome = AGENT_ERROR, .cause = AGENT_CAUSE_RENDEZVOUS}, 82},
    {{.outcome = AGENT_LEFT}, 83},
    {{.outcome = AGENT_FAILED, .cause = AGENT_CAUSE_OOM}, 84},
    {{.outcome = AGENT_FAILED, .cause = AGENT_CAUSE_HANG}, 85},
    {{.outcome = AGENT_ERROR, .cause = AGENT_CAUSE_MACHINE}, 86},
    {{.outcome = AGENT_FAILED, .cause = AGENT_CAUSE_NO_REQUEUE}, 93},
    {{.outcome = AGENT_SIGNALED, .signal = SIGTERM}, 143},
};

START_TEST(each_result_has_a_status_of_its_own) {
    ck_assert_int_eq(exit_status_of(&rows[_i].result, true), rows[_i].status);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        ck_assert((int) i == _i || rows[i].status != rows[_i].status);
    }
}
END_TEST

START_TEST(scripts_for_torchrun_see_one) {
    int expected = rows[_i].result.outcome == AGENT_SUCCEEDED ? 0 : 1;
    ck_assert_int_eq(exit_status_of(&rows[_i].result, false), expected);
}
END_TEST

START_TEST(a_failed_start) {
    ck_assert_int_eq(exit_status_of_start(-EADDRINUSE, true), 86);
    ck_assert_int_eq(exit_status_of_start(-EINVAL, true), 2);
    ck_assert_int_eq(exit_status_of_start(-EINVAL, false), 1);
}
END_TEST

int main(void) {
    Suite *s = suite_create("exit_status");
    TCase *t = tcase_create("exit_status");
    int count = sizeof(rows) / sizeof(rows[0]);
    tcase_add_loop_test(t, each_result_has_a_status_of_its_own, 0, count);
    tcase_add_loop_test(t, scripts_for_torchrun_see_one, 0, count);
    tcase_add_test(t, a_failed_start);
    suite_add_tcase(s, t);
    return run_suite(s);
}
