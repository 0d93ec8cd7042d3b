/* Tests of the scheduler finder with environments that need a host name or a file in addition to
 * variables, and of its lists of hosts. (tests/golden/test_schedulers.py tests all other
 * environments.) */
#include "launcher/scheduler/find_internal.h"
#include "launcher/options/scheduler_options.h"
#include "tests/lib/fake_environment.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char *file_path, *file_text; /* the only file that can be read: its path and its
                                           * text */

static int read_file(void *arg, const char *path, char *out, size_t cap) {
    (void) arg;
    if (file_path == NULL || strcmp(path, file_path) != 0) return -ENOENT;
    (void) snprintf(out, cap, "%s", file_text);
    return 0;
}

static struct scheduler_facts facts;
static struct cr_error err;

static int find(const char *host, const char *const *list) {
    struct scheduler_world world = {
        .lookup = lookup, .read_file = read_file, .host_name = host};
    set_environment(list);
    cr_error_clear(&err);
    return scheduler_find(&world, &facts, &err);
}

#define FIND(host, ...) find(host, (const char *const[]){__VA_ARGS__, NULL})

static void setup(void) { file_path = NULL; }

START_TEST(the_first_host_of_a_list) {
    static const struct {
        const char *list, *first;
    } cases[] = {
        {"n1", "n1"},
        {"n1,n2", "n1"},
        {"gpu[001-004,7],login", "gpu001"},
        {"gpu[7]", "gpu7"},
        {"rack[1-2]n[01-20].site", "rack1n01.site"},
        {"10.0.0.5\n10.0.0.6\n", "10.0.0.5"},
        {" fd00::1 fd00::2", "fd00::1"},
    };
    char out[CR_HOST_MAX];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ck_assert_int_eq(host_list_first(cases[i].list, out), 0);
        ck_assert_str_eq(out, cases[i].first);
    }
    char longest[CR_HOST_MAX + 1];
    memset(longest, 'a', CR_HOST_MAX);
    longest[CR_HOST_MAX] = '\0';
    ck_assert_int_eq(host_list_first(longest, out), -EINVAL);
    ck_assert_int_eq(host_list_first(longest + 1, out), 0);
    ck_assert_int_eq(host_list_first("", out), -EINVAL);
    ck_assert_int_eq(host_list_first(" ,", out), -EINVAL);
    ck_assert_int_eq(host_list_first("n[1-", out), -EINVAL);
    ck_assert_int_eq(host_list_first("n]1", out), -EINVAL);
}
END_TEST

START_TEST(a_host_is_found_by_its_short_name) {
    ck_assert_uint_eq(host_list_count("a,b c\nd"), 4);
    ck_assert_int_eq(host_list_find("a.site,b.site", "b"), 1);
    ck_assert_int_eq(host_list_find("a,b", "b.site"), 1);
    ck_assert_int_eq(host_list_find("a,bc", "b"), -1);
    ck_assert_int_eq(host_list_find("", "b"), -1);
}
END_TEST

START_TEST(the_port_is_the_same_on_all_nodes_and_in_range) {
    ck_assert_uint_eq(fact_port_of("slurm-1.0"), fact_port_of("slurm-1.0"));
    ck_assert_uint_ne(fact_port_of("slurm-1.0"), fact_port_of("slurm-1.1"));
    for (int i = 0; i < 1000; i++) {
        char id[32];
        (void) snprintf(id, sizeof(id), "slurm-%d", i);
        ck_assert_uint_ge(fact_port_of(id), 15000);
        ck_assert_uint_lt(fact_port_of(id), 32768);
    }
}
END_TEST

START_TEST(pbs_has_its_hosts_in_a_file) {
    file_path = "/var/spool/aux/12";
    file_text = "n1.site\nn1.site\nn2.site\nn2.site\nn3.site\n";
    ck_assert_int_eq(FIND("n2", "PBS_JOBID=12.srv", "PBS_NODEFILE=/var/spool/aux/12",
                          "PBS_TASKNUM=3", "NGPUS=2"), 0);
    ck_assert_str_eq(facts.name, "PBS");
    ck_assert_uint_eq(facts.nodes, 3);
    ck_assert_int_eq(facts.node_rank, 1);
    ck_assert_str_eq(facts.head, "n1.site");
    ck_assert_uint_eq(facts.workers, 2);
    ck_assert_int_eq(facts.start, SCHEDULER_STARTS_EACH_NODE);
    ck_assert_int_eq(FIND("n1", "PBS_JOBID=12.srv", "PBS_NODEFILE=/var/spool/aux/12"), 0);
    ck_assert_int_eq(facts.start, SCHEDULER_STARTS_FIRST_NODE);
    ck_assert_int_eq(FIND("n1", "PBS_JOBID=12.srv", "PBS_NODEFILE=/gone"), -ENOENT);
    ck_assert_ptr_nonnull(strstr(err.text, "PBS_NODEFILE"));
}
END_TEST

START_TEST(lsf_lists_hosts_with_their_slots) {
    ck_assert_int_eq(FIND("hostB", "LSB_JOBID=9", "LSB_MCPU_HOSTS=hostA 4 hostB 4 hostC 2",
                          "LSF_PM_TASKID=2"), 0);
    ck_assert_uint_eq(facts.nodes, 3);
    ck_assert_int_eq(facts.node_rank, 1);
    ck_assert_str_eq(facts.head, "hostA");
    ck_assert_str_eq(facts.hosts, "hostA,hostB,hostC");
    ck_assert_int_eq(FIND("hostB", "LSB_JOBID=9", "LSB_MCPU_HOSTS= "), -EINVAL);
}
END_TEST

START_TEST(an_indexed_job_meets_at_the_pod_with_index_0) {
    file_path = "/etc/hosts";
    file_text = "127.0.0.1\tlocalhost\n"
                "10.1.0.7\tjs-w-0-3.train.default.svc.cluster.local\tjs-w-0-3\n";
    ck_assert_int_eq(FIND("js-w-0-3", "KUBERNETES_SERVICE_HOST=10.0.0.1",
                          "JOB_COMPLETION_INDEX=3"), 0);
    ck_assert_str_eq(facts.head, "js-w-0-0.train.default.svc.cluster.local");
    ck_assert_int_eq(facts.node_rank, 3);
    ck_assert_str_eq(facts.job_id, "k8s-js-w-0");
    ck_assert_uint_ne(facts.port, 0);
    file_text = "10.1.0.7 js-w-0-3\n"; /* the pod has no subdomain */
    ck_assert_int_eq(FIND("js-w-0-3", "KUBERNETES_SERVICE_HOST=10.0.0.1",
                          "JOB_COMPLETION_INDEX=3"), 0);
    ck_assert_str_eq(facts.head, "js-w-0-0");
    /* the host name does not end in the index, so nothing is known about pod 0 */
    ck_assert_int_eq(FIND("custom", "KUBERNETES_SERVICE_HOST=10.0.0.1",
                          "JOB_COMPLETION_INDEX=3"), 0);
    ck_assert_str_eq(facts.head, "");
}
END_TEST

START_TEST(wrong_values_are_refused_with_the_name_of_the_variable) {
    static const struct {
        const char *variables[8], *needle;
    } cases[] = {
        {{"SLURM_JOB_ID=1", "SLURM_JOB_NUM_NODES=two"}, "SLURM_JOB_NUM_NODES='two'"},
        {{"SLURM_JOB_ID=1", "SLURM_JOB_NUM_NODES=0"}, "SLURM_JOB_NUM_NODES='0'"},
        {{"SLURM_JOB_ID=1", "SLURM_JOB_NODELIST=n[1"}, "SLURM_JOB_NODELIST='n[1'"},
        {{"SLURM_JOB_ID=1", "SLURM_JOB_END_TIME=soon"}, "SLURM_JOB_END_TIME='soon'"},
        {{"SM_HOSTS=algo-1", "SM_CURRENT_HOST=algo-1"}, "SM_HOSTS='algo-1'"},
        {{"SM_HOSTS=[\"a\"]", "SM_CURRENT_HOST=b"}, "SM_CURRENT_HOST='b'"},
        {{"SKYPILOT_NODE_RANK=-1"}, "SKYPILOT_NODE_RANK='-1'"},
        {{"OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_LOCAL_SIZE=3"},
         "contradict"},
        {{"KUBERNETES_SERVICE_HOST=h", "MASTER_ADDR=m", "MASTER_PORT=70000", "RANK=0",
          "WORLD_SIZE=2"}, "MASTER_PORT=70000"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ck_assert_int_eq(find("h", cases[i].variables), -EINVAL);
        ck_assert_msg(strstr(err.text, cases[i].needle) != NULL, "'%s' not in: %s",
                      cases[i].needle, err.text);
    }
}
END_TEST

START_TEST(sigterm_is_a_notice_for_process_one_of_a_pod) {
    static char *const argv[] = {(char *) "crun", (char *) "prog", NULL};
    char *words[3];
    struct options o;
    struct scheduler_choice choice;
    ck_assert_int_eq(FIND("pod", "KUBERNETES_SERVICE_HOST=h"), 0);
    for (int process_one = 0; process_one < 2; process_one++) {
        memcpy(words, argv, sizeof(words));
        ck_assert_int_eq(options_parse(words, lookup, NULL, &o, &err), 0);
        ck_assert_int_eq(scheduler_fill(&facts, process_one, &o, &choice, &err), 0);
        ck_assert_str_eq(o.value[OPTION_PREEMPTION_SIGNALS],
                         process_one ? "SIGTERM,SIGUSR1" : "SIGUSR1");
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("scheduler");
    TCase *t = tcase_create("scheduler");
    tcase_add_checked_fixture(t, setup, NULL);
    tcase_add_test(t, the_first_host_of_a_list);
    tcase_add_test(t, a_host_is_found_by_its_short_name);
    tcase_add_test(t, the_port_is_the_same_on_all_nodes_and_in_range);
    tcase_add_test(t, pbs_has_its_hosts_in_a_file);
    tcase_add_test(t, lsf_lists_hosts_with_their_slots);
    tcase_add_test(t, an_indexed_job_meets_at_the_pod_with_index_0);
    tcase_add_test(t, wrong_values_are_refused_with_the_name_of_the_variable);
    tcase_add_test(t, sigterm_is_a_notice_for_process_one_of_a_pod);
    suite_add_tcase(s, t);
    return run_suite(s);
}
