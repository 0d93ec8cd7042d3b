/* Tests of launcher/options/hosts_options.h: which options, workers and variables the hosts of
 * --hosts get, and which combinations are refused. */
#include "launcher/options/hosts_options.h"
#include "tests/lib/fake_environment.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static struct options o;
static struct hosts_choice choice;
static struct cr_error err;
static char *no_variables[] = {NULL};

static void close_choice(void) { hosts_choice_done(&choice); }

static void parse(const char *const *argv) {
    static const char *kept[32];
    size_t n = 0;
    do kept[n] = argv[n];
    while (argv[n++] != NULL);
    cr_error_clear(&err);
    ck_assert_int_eq(options_parse((char **) (void *) kept, lookup, NULL, &o, &err), 0);
}

static int describe(char *const *variables) {
    hosts_choice_done(&choice); /* frees the result of an earlier call in the same test */
    return hosts_describe(&o, o.value[OPTION_HOSTFILE], variables, "id7", &choice, &err);
}

#define DESCRIBE(...)                                                                              \
    (parse((const char *const[]){"crun", __VA_ARGS__, NULL}), describe(no_variables))
#define ONE_NODE(...)                                                                              \
    (parse((const char *const[]){"crun", __VA_ARGS__, NULL}),                                      \
     hosts_fill_one_node(&o, &choice, &err))

#define EXPECT_FAILURE(needle)                                                                     \
    ck_assert_msg(err.code < 0 && strstr(err.text, needle) != NULL, "'%s' not in: %s", needle,     \
                  err.text)

/* Joins a list with blanks. */
static const char *joined(const char *const *texts) {
    static char out[1024];
    size_t n = 0;
    out[0] = '\0';
    for (; *texts != NULL; texts++) {
        n += (size_t) snprintf(out + n, sizeof(out) - n, "%s%s", n > 0 ? " " : "", *texts);
    }
    return out;
}

START_TEST(slots_are_workers) {
    ck_assert_int_eq(DESCRIBE("--hosts=a:8,b:4", "--max-restarts", "3", "-m", "train", "--x"), 0);
    ck_assert_uint_eq(choice.job.host_count, 2);
    ck_assert_str_eq(choice.job.workers[0], "8");
    ck_assert_str_eq(choice.job.workers[1], "4");
    ck_assert_str_eq(joined(choice.job.options),
                     "--scheduler=none --nnodes=2:2 --rdzv-backend=c10d --rdzv-id=id7 --module "
                     "--max-restarts=3");
    ck_assert_str_eq(joined(choice.job.program), "-- train --x");
    ck_assert_str_eq(choice.job.conf, "");
    ck_assert(!choice.job.user_meets);
    ck_assert(choice.job.starts_local);
}
END_TEST

START_TEST(each_value_of_a_repeated_option_is_passed_on) {
    ck_assert_int_eq(DESCRIBE("--hosts=a", "--hang-rule=1:2:a b", "-x", "PATH=/x", "--hang-rule",
                              "end:c", "--value-rule=nan::(d)", "t"), 0);
    ck_assert_str_eq(joined(choice.job.options),
                     "--scheduler=none --nnodes=1:1 --rdzv-backend=c10d --rdzv-id=id7 "
                     "--hang-rule=1:2:a b --hang-rule=end:c --value-rule=nan::(d)");
}
END_TEST

START_TEST(a_word_is_counted_on_the_host) {
    ck_assert_int_eq(DESCRIBE("--hosts=a,b:2", "--nproc-per-node=gpu", "t"), 0);
    ck_assert_str_eq(choice.job.workers[0], "gpu");
    ck_assert_str_eq(choice.job.workers[1], "gpu");
    hosts_choice_done(&choice);
    ck_assert_int_eq(DESCRIBE("--hosts=a,b", "t"), 0);
    ck_assert_str_eq(choice.job.workers[1], "1");
}
END_TEST

START_TEST(a_number_of_workers_fills_the_hosts_in_turn) {
    ck_assert_int_eq(DESCRIBE("-np", "10", "--hosts=a:8,b:8,c:8", "t"), 0);
    ck_assert_uint_eq(choice.job.host_count, 2);
    ck_assert_str_eq(choice.job.workers[0], "8");
    ck_assert_str_eq(choice.job.workers[1], "2");
    hosts_choice_done(&choice);
    ck_assert_int_eq(DESCRIBE("-n", "3", "-ppn", "2", "--hosts=a,b", "t"), 0);
    ck_assert_str_eq(choice.job.workers[1], "1");
    hosts_choice_done(&choice);
    ck_assert_int_lt(DESCRIBE("-n", "17", "--hosts=a:8,b:8", "t"), 0);
    EXPECT_FAILURE("--world-size=17, but the hosts have room for 16 workers");
}
END_TEST

START_TEST(an_elastic_job_has_a_short_last_call) {
    ck_assert_int_eq(DESCRIBE("--hosts=a,b", "--nnodes=1:2", "--rdzv-conf=join_timeout=9", "t"), 0);
    ck_assert_uint_eq(choice.job.min_nodes, 1);
    ck_assert_str_eq(choice.job.conf, "join_timeout=9,last_call_timeout=2");
    ck_assert_int_eq(choice.job.last_call_ms, 30000);
    hosts_choice_done(&choice);
    ck_assert_int_eq(DESCRIBE("--hosts=a,b", "--nnodes=1:2", "--rdzv-conf=last_call_timeout=7",
                              "t"), 0);
    ck_assert_str_eq(choice.job.conf, "last_call_timeout=7");
    ck_assert_int_eq(choice.job.last_call_ms, 7000);
}
END_TEST

START_TEST(variables_are_chosen) {
    char *variables[] = {(char *) "HOME=/root", (char *) "PATH=/x", (char *) "NCCL_DEBUG=INFO",
                         (char *) "TORCHELASTIC_RUN_ID=1", (char *) "MINE=m", (char *) "NCCLX=1",
                         NULL};
    parse((const char *const[]){"crun", "-x", "MINE", "-xA=1,2", "--export=B=", "--hosts=a", "t",
                                NULL});
    ck_assert_int_eq(describe(variables), 0);
    ck_assert_str_eq(joined(choice.job.variables), "PATH=/x NCCL_DEBUG=INFO MINE=m A=1,2 B=");
    hosts_choice_done(&choice);
    ck_assert_int_lt(DESCRIBE("-x", "NONESUCH", "--hosts=a", "t"), 0);
    EXPECT_FAILURE("the variable 'NONESUCH' is not set here");
}
END_TEST

START_TEST(contradictions_name_both_sides) {
    ck_assert_int_lt(DESCRIBE("--hosts=a:4", "--nproc-per-node=8", "t"), 0);
    EXPECT_FAILURE("--nproc-per-node=8, but 'a' has 4 slots");
    ck_assert_int_lt(DESCRIBE("--hosts=a,b", "--nnodes=3", "t"), 0);
    EXPECT_FAILURE("--nnodes=3, but there are only 2 hosts");
    ck_assert_int_lt(DESCRIBE("--hosts=a,b", "--standalone", "t"), 0);
    EXPECT_FAILURE("--standalone is for one node");
    ck_assert_int_lt(DESCRIBE("--hosts=a,b", "--hostfile=x", "t"), 0);
    EXPECT_FAILURE("exclude each other");
}
END_TEST

START_TEST(on_one_node_the_number_of_workers_is_its_own) {
    ck_assert_int_eq(ONE_NODE("-n", "4", "t"), 0);
    ck_assert_str_eq(o.value[OPTION_NPROC], "4");
    ck_assert_int_eq(ONE_NODE("-np=4", "t"), 0);
    ck_assert_str_eq(o.value[OPTION_NPROC], "4");
    ck_assert_int_eq(ONE_NODE("-ppn", "4", "t"), 0);
    ck_assert_str_eq(o.value[OPTION_NPROC], "4");
    ck_assert_int_lt(ONE_NODE("-n", "4", "--nnodes=2", "t"), 0);
    EXPECT_FAILURE("needs --hosts or --hostfile");
    ck_assert_int_lt(ONE_NODE("-x", "A=1", "t"), 0);
    EXPECT_FAILURE("--export is for a job on several hosts");
}
END_TEST

/* A prefix of an option that torchrun accepts means that option in crun, too, although crun has
 * further options that begin with this prefix. */
START_TEST(prefixes_of_torchrun_mean_what_they_meant) {
    parse((const char *const[]){"crun", "--e=console", "--h", NULL});
    ck_assert_str_eq(o.value[OPTION_EVENT_LOG_HANDLER], "console");
    ck_assert_int_eq(o.wanted, OPTIONS_HELP);
    parse((const char *const[]){"crun", "--hostf=x", "t", NULL});
    ck_assert_str_eq(o.value[OPTION_HOSTFILE], "x");
}
END_TEST

int main(void) {
    Suite *s = suite_create("hosts_options");
    TCase *t = tcase_create("hosts_options");
    tcase_add_checked_fixture(t, NULL, close_choice);
    tcase_add_test(t, slots_are_workers);
    tcase_add_test(t, each_value_of_a_repeated_option_is_passed_on);
    tcase_add_test(t, a_word_is_counted_on_the_host);
    tcase_add_test(t, a_number_of_workers_fills_the_hosts_in_turn);
    tcase_add_test(t, an_elastic_job_has_a_short_last_call);
    tcase_add_test(t, variables_are_chosen);
    tcase_add_test(t, contradictions_name_both_sides);
    tcase_add_test(t, on_one_node_the_number_of_workers_is_its_own);
    tcase_add_test(t, prefixes_of_torchrun_mean_what_they_meant);
    suite_add_tcase(s, t);
    return run_suite(s);
}
