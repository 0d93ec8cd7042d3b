/* Tests of launcher/options/programs.h (where the command line of a further program begins, and
 * what it says), of the job that is built from several programs, and of the workers' role ranks. */
#include "agent/attempt/role.h"
#include "launcher/job.h"
#include "tests/lib/fake_environment.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <errno.h>
#include <string.h>

static struct options o;
static struct job job;
static struct cr_error err;

static int draw(void *arg, unsigned char out[16]) {
    (void) arg;
    memset(out, 7, 16);
    return 0;
}

static uint32_t count_cpus(void *arg) { return (void) arg, 5; }

/* Parses a command line and builds its job. The words are copied, because options_parse() reorders
 * them. */
static int build(const char *const *argv) {
    static const struct job_world world = {
        .lookup = lookup, .random = draw, .cpu_count = count_cpus};
    static const char *kept[64];
    size_t n = 0;
    job_done(&job);
    do kept[n] = argv[n];
    while (argv[n++] != NULL);
    cr_error_clear(&err);
    int rc = options_parse((char **) (void *) kept, lookup, NULL, &o, &err);
    return rc < 0 ? rc : job_build(&o, &world, &job, &err);
}

#define BUILD(...) build((const char *const[]){"crun", __VA_ARGS__, NULL})
#define EXPECT_ERROR(needle)                                                                       \
    do {                                                                                           \
        ck_assert_int_lt(err.code, 0);                                                             \
        ck_assert_msg(strstr(err.text, needle) != NULL, "'%s' not in: %s", needle, err.text);      \
    } while (0)

static void setup(void) { environment = NULL; }
static void teardown(void) { job_done(&job); }

START_TEST(test_one_program_is_as_in_torchrun) {
    ck_assert_int_eq(BUILD("--nproc-per-node=2", "a.py", "x"), 0);
    ck_assert_uint_eq(job.agent.program_count, 0);
    ck_assert_uint_eq(job.agent.rendezvous.local_world_size, 2);
    ck_assert_str_eq(job.agent.rendezvous.role, "default");
}
END_TEST

START_TEST(test_a_colon_before_other_words_is_an_argument) {
    ck_assert_int_eq(BUILD("a.py", ":", "b.py", ":", "--lr", ":", "--nproc", ":"), 0);
    ck_assert_ptr_null(o.more);
    ck_assert_str_eq(o.args[0], ":");
    ck_assert_str_eq(o.args[6], ":");
    ck_assert_ptr_null(o.args[7]);
    ck_assert_uint_eq(job.agent.program_count, 0);
}
END_TEST

START_TEST(test_two_programs) {
    ck_assert_int_eq(BUILD("--nproc-per-node=2", "trainer.py", "--lr", "1", ":",
                           "--nproc_per_node=6", "--role", "rollout", "rollout.py", "-x", "--role"),
                     0);
    ck_assert_str_eq(o.program, "trainer.py");
    ck_assert_str_eq(o.args[1], "1");
    ck_assert_ptr_null(o.args[2]);
    ck_assert_uint_eq(job.agent.program_count, 2);
    ck_assert_uint_eq(job.agent.rendezvous.local_world_size, 8);
    ck_assert_str_eq(job.agent.rendezvous.role, "default*2:rollout*6");
    ck_assert_str_eq(job.lines[1].program, "rollout.py");
    ck_assert_str_eq(job.lines[1].args[0], "-x");
    ck_assert_str_eq(job.lines[1].args[1], "--role");
    ck_assert_ptr_null(job.lines[1].args[2]);
    ck_assert_uint_eq(job.programs[1].workers, 6);
    ck_assert_str_eq(job.programs[1].role, "rollout");
    ck_assert_int_eq(job.programs[1].on_failure, AGENT_RESTARTS_ALL);
}
END_TEST

START_TEST(test_three_programs_with_policies) {
    ck_assert_int_eq(BUILD("--on-failure=end", "a", ":", "--role=r", "--on-failure=alone:7", "b",
                           ":", "--service", "-n", "cpu", "-m", "c", "--", "d"),
                     0);
    ck_assert_uint_eq(job.agent.program_count, 3);
    ck_assert_int_eq(job.programs[0].on_failure, AGENT_ENDS_JOB);
    ck_assert_int_eq(job.programs[1].on_failure, AGENT_RESTARTS_ALONE);
    ck_assert_uint_eq(job.programs[1].restarts, 7);
    ck_assert_uint_eq(job.programs[1].workers, 1);
    ck_assert(job.programs[2].is_service);
    ck_assert_uint_eq(job.programs[2].workers, 5);
    ck_assert(job.lines[2].module);
    ck_assert_str_eq(job.lines[2].args[0], "d"); /* one "--" behind the program is dropped */
    struct node_policy p = agent_policy_of(&job.agent, 1);
    ck_assert_int_eq(p.on_failure, NODE_RESTARTS_ALONE);
    ck_assert_uint_eq(p.restarts, 7);
    ck_assert(!p.is_service);
    ck_assert(agent_policy_of(&job.agent, 6).is_service);
}
END_TEST

START_TEST(test_the_policy_of_a_single_program) {
    ck_assert_int_eq(BUILD("--nproc-per-node=2", "--on-failure=alone", "--role=r", "a"), 0);
    ck_assert_uint_eq(job.agent.program_count, 1);
    ck_assert_uint_eq(job.programs[0].restarts, 3);
    ck_assert_str_eq(job.agent.rendezvous.role, "r");
}
END_TEST

START_TEST(test_mistakes_are_named) {
    (void) BUILD("a", ":", "--role=r");
    EXPECT_ERROR("program 2, behind ':': no program given");
    (void) BUILD("a", ":", "--role=r", "--max-restarts=3", "b");
    EXPECT_ERROR("stand before the first program");
    (void) BUILD("a", ":", "--role=r", "b", ":", "--nproc-per-node=0", "c");
    EXPECT_ERROR("program 3, behind ':': --nproc-per-node: '0' is not a number of workers");
    (void) BUILD("--on-failure=never", "a");
    EXPECT_ERROR("--on-failure: 'never' is none of all, alone, alone:N, end");
    (void) BUILD("a", ":", "--role=r", "--on-failure=alone:0", "b");
    EXPECT_ERROR("program 2, behind ':': --on-failure:");
    (void) BUILD("--service", "a", ":", "--service", "b");
    EXPECT_ERROR("--service: the job has no other program");
    (void) BUILD("-ppn", "4000", "a", ":", "-ppn", "97", "b");
    EXPECT_ERROR("the programs have 4097 workers together");
}
END_TEST

START_TEST(test_too_many_programs) {
    const char *words[64] = {"crun", "a"};
    size_t n = 2;
    for (int i = 1; i <= PROGRAMS_MAX; i++) {
        words[n++] = ":";
        words[n++] = "--service";
        words[n++] = "b";
    }
    words[n] = NULL;
    ck_assert_int_lt(build(words), 0);
    EXPECT_ERROR("at most 16 programs");
}
END_TEST

/* Three nodes run the same two programs. The round is as the second node gets it. So in each role,
 * the role ranks of the first node's workers come before those of the second node's workers. */
START_TEST(test_places_in_the_role) {
    ck_assert_int_eq(BUILD("-ppn", "2", "a", ":", "-ppn", "3", "--role=r", "b"), 0);
    struct rendezvous_round round = {
        .first_rank = 5, .world_size = 15, .first_role_rank = 5, .role_world_size = 15};
    struct agent_role role = agent_role_of(&job.agent, &round, 1);
    ck_assert_str_eq(role.name, "default");
    ck_assert_uint_eq(role.rank, 3);
    ck_assert_uint_eq(role.world_size, 6);
    role = agent_role_of(&job.agent, &round, 4);
    ck_assert_str_eq(role.name, "r");
    ck_assert_uint_eq(role.rank, 5);
    ck_assert_uint_eq(role.world_size, 9);
}
END_TEST

START_TEST(test_two_programs_may_have_one_role) {
    ck_assert_int_eq(BUILD("-ppn", "2", "a", ":", "-ppn", "3", "b"), 0);
    struct rendezvous_round round = {.world_size = 5, .role_world_size = 5};
    struct agent_role role = agent_role_of(&job.agent, &round, 4);
    ck_assert_uint_eq(role.rank, 4);
    ck_assert_uint_eq(role.world_size, 5);
}
END_TEST

int main(void) {
    Suite *s = suite_create("programs");
    TCase *t = tcase_create("programs");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, test_one_program_is_as_in_torchrun);
    tcase_add_test(t, test_a_colon_before_other_words_is_an_argument);
    tcase_add_test(t, test_two_programs);
    tcase_add_test(t, test_three_programs_with_policies);
    tcase_add_test(t, test_the_policy_of_a_single_program);
    tcase_add_test(t, test_mistakes_are_named);
    tcase_add_test(t, test_too_many_programs);
    tcase_add_test(t, test_places_in_the_role);
    tcase_add_test(t, test_two_programs_may_have_one_role);
    suite_add_tcase(s, t);
    return run_suite(s);
}
