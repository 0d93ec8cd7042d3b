/* Tests that the agent gives workers the environment and the arguments that torchrun would give. */
#include "agent/attempt/environment.h"
#include "base/text/template.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The cast is needed because execve() takes char *const *, and string literals are const here. */
#define LIST(texts) ((char *const *) (texts))

static const char *const argv_plain[] = {"prog", "a", "b", NULL};

static struct agent_job job_of(uint32_t workers) {
    return (struct agent_job){.rendezvous = {.run_id = "job 7", .role = "trainer",
                                             .local_world_size = workers},
                              .argv = LIST(argv_plain)};
}

/* The round as node 1 of 3 gets it. Node 0 has two workers, so the ranks of node 1 begin at 2. The
 * role ranks of node 1 differ from its ranks. */
static const struct rendezvous_round round_ = {.round = 4, .restart_count = 2, .group_rank = 1,
                                               .group_world_size = 3, .first_rank = 2,
                                               .world_size = 9, .first_role_rank = 10,
                                               .role_world_size = 14, .max_restarts = 5,
                                               .master_addr = "192.0.2.1", .master_port = 31337};

static const char *value(char *const *envp, const char *name) {
    const char *found = NULL;
    for (; *envp != NULL; envp++) {
        if (strncmp(*envp, name, strlen(name)) != 0 || (*envp)[strlen(name)] != '=') continue;
        ck_assert_msg(found == NULL, "%s is there twice", name);
        found = *envp + strlen(name) + 1;
    }
    return found;
}

static void expect(char *const *envp, const char *name, const char *want) {
    const char *got = value(envp, name);
    if (want == NULL) {
        ck_assert_msg(got == NULL, "%s=%s", name, got);
    } else {
        ck_assert_msg(got != NULL && strcmp(got, want) == 0, "%s=%s", name, got);
    }
}

START_TEST(test_every_variable) {
    const char *const inherited[] = {"HOME=/root", "RANK=77", "MASTER_ADDR=wrong", "WORLD=1",
                               "CUDA_VISIBLE_DEVICES=4,5", NULL};
    struct agent_job job = job_of(4);
    struct environment e;
    struct cr_error err;
    char *const *envp;
    ck_assert_int_eq(environment_init(&e, LIST(inherited), &job, &round_), 0);
    for (uint32_t i = 0; i < 4; i++) {
        static const char *const rank[] = {"2", "3", "4", "5"};
        static const char *const role_rank[] = {"10", "11", "12", "13"};
        static const char *const local[] = {"0", "1", "2", "3"};
        char path[64];
        (void) snprintf(path, sizeof(path), "/logs/attempt_2/%u/error.json", i);
        ck_assert_int_eq(environment_for(&e, i, path, "CRUN_AGENT=a:b", &envp, &err), 0);
        expect(envp, "LOCAL_RANK", local[i]);
        expect(envp, "RANK", rank[i]);
        expect(envp, "ROLE_RANK", role_rank[i]);
        expect(envp, "TORCHELASTIC_ERROR_FILE", path);
        expect(envp, "WORLD_SIZE", "9");
        expect(envp, "LOCAL_WORLD_SIZE", "4");
        expect(envp, "GROUP_RANK", "1");
        expect(envp, "GROUP_WORLD_SIZE", "3");
        expect(envp, "ROLE_NAME", "trainer");
        expect(envp, "ROLE_WORLD_SIZE", "14");
        expect(envp, "MASTER_ADDR", "192.0.2.1");
        expect(envp, "MASTER_PORT", "31337");
        expect(envp, "TORCHELASTIC_RESTART_COUNT", "2");
        expect(envp, "TORCHELASTIC_MAX_RESTARTS", "5");
        expect(envp, "TORCHELASTIC_RUN_ID", "job 7");
        expect(envp, "TORCHELASTIC_USE_AGENT_STORE", "True");
        expect(envp, "TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
        expect(envp, "NCCL_ASYNC_ERROR_HANDLING", NULL); /* torch >= 2.2 warns of it */
        expect(envp, "OMP_NUM_THREADS", NULL);
        expect(envp, "CUDA_VISIBLE_DEVICES", "4,5");
        expect(envp, "HOME", "/root");
        expect(envp, "WORLD", "1");
    }
    environment_done(&e);
}
END_TEST

START_TEST(test_master_name) {
    const char *const inherited[] = {NULL};
    struct agent_job job = job_of(1);
    struct rendezvous_round round = round_;
    struct environment e;
    struct cr_error err;
    char *const *envp;
    (void) snprintf(round.master_name, sizeof(round.master_name), "head.example");
    ck_assert_int_eq(environment_init(&e, LIST(inherited), &job, &round), 0);
    ck_assert_int_eq(environment_for(&e, 0, "", "CRUN_AGENT=a:b", &envp, &err), 0);
    expect(envp, "MASTER_ADDR", "head.example");
    environment_done(&e);
}
END_TEST

START_TEST(test_variables_for_torch) {
    const char *const inherited[] = {"TORCH_WORKER_SERVER_SOCKET=/outer", NULL};
    const char *const chosen[] = {"TORCH_FR_DUMP_TEMP_FILE=/mine", NULL};
    static const char file[] = "/logs/0/error.json";
    char long_file[160];
    struct agent_job job = job_of(1);
    struct environment e;
    struct cr_error err;
    char *const *envp;
    ck_assert_int_eq(environment_init(&e, LIST(inherited), &job, &round_), 0);
    ck_assert_int_eq(environment_for(&e, 0, file, "CRUN_AGENT=a:b", &envp, &err), 0);
    expect(envp, "TORCH_WORKER_SERVER_SOCKET", NULL); /* no pipes in this folder */
    ck_assert_str_eq(envp[0], "LOCAL_RANK=0");
    e.has_torch_files = true;
    ck_assert_int_eq(environment_for(&e, 0, file, "CRUN_AGENT=a:b", &envp, &err), 0);
    expect(envp, "TORCH_WORKER_SERVER_SOCKET", "/logs/0/torch.sock");
    expect(envp, "TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "/logs/0/torch_dump_");
    expect(envp, "TORCH_FR_DUMP_TEMP_FILE", "/logs/0/torch_flight_record_");
    expect(envp, "TORCH_NCCL_DEBUG_INFO_TEMP_FILE", NULL); /* torch 2.15 warns of it */
    ck_assert_str_eq(envp[0], "LOCAL_RANK=0");
    (void) snprintf(long_file, sizeof(long_file), "/%0100d/error.json", 1);
    ck_assert_int_eq(environment_for(&e, 0, long_file, "CRUN_AGENT=a:b", &envp, &err), 0);
    expect(envp, "TORCH_WORKER_SERVER_SOCKET", NULL);
    ck_assert_str_eq(envp[0], "LOCAL_RANK=0");
    environment_done(&e);
    ck_assert_int_eq(environment_init(&e, LIST(chosen), &job, &round_), 0);
    e.has_torch_files = true;
    ck_assert_int_eq(environment_for(&e, 0, file, "CRUN_AGENT=a:b", &envp, &err), 0);
    expect(envp, "TORCH_FR_DUMP_TEMP_FILE", "/mine");
    expect(envp, "TORCH_NCCL_DEBUG_INFO_PIPE_FILE", NULL);
    environment_done(&e);
}
END_TEST

START_TEST(test_what_the_user_set_stays) {
    const char *const inherited[] = {"TORCH_NCCL_ASYNC_ERROR_HANDLING=3",
                                     "NCCL_ASYNC_ERROR_HANDLING=",
                               "OMP_NUM_THREADS=", "TORCHELASTIC_TIMER_FILE=/t", NULL};
    struct agent_job job = job_of(2);
    job.set_omp_num_threads = 1;
    struct environment e;
    struct cr_error err;
    char *const *envp;
    ck_assert_int_eq(environment_init(&e, LIST(inherited), &job, &round_), 0);
    ck_assert_int_eq(environment_for(&e, 0, "", "CRUN_AGENT=a:b", &envp, &err), 0);
    expect(envp, "TORCH_NCCL_ASYNC_ERROR_HANDLING", "3");
    expect(envp, "NCCL_ASYNC_ERROR_HANDLING", "");
    expect(envp, "OMP_NUM_THREADS", "");
    expect(envp, "TORCHELASTIC_TIMER_FILE", "/t");
    expect(envp, "TORCHELASTIC_ERROR_FILE", "");
    environment_done(&e);

    const char *const nothing[] = {NULL};
    ck_assert_int_eq(environment_init(&e, LIST(nothing), &job, &round_), 0);
    ck_assert_int_eq(environment_for(&e, 1, "", "CRUN_AGENT=a:b", &envp, &err), 0);
    expect(envp, "OMP_NUM_THREADS", "1");
    expect(envp, "CUDA_VISIBLE_DEVICES", NULL);
    environment_done(&e);
}
END_TEST

/* As in torch 2.15, HIP_VISIBLE_DEVICES is used in place of CUDA_VISIBLE_DEVICES if it is set. The
 * lists of other vendors, if they are set, are divided among the workers in the same way. */
START_TEST(test_virtual_local_rank_of_other_vendors) {
    const char *const inherited[] = {"CUDA_VISIBLE_DEVICES=7", "HIP_VISIBLE_DEVICES=2,3",
                                     "ZE_AFFINITY_MASK=0.0, 0.1", "ASCEND_RT_VISIBLE_DEVICES=",
                                     NULL};
    struct agent_job job = job_of(2);
    job.virtual_local_rank = 1;
    struct environment e, copy;
    struct cr_error err;
    char *const *envp;
    ck_assert_int_eq(environment_init(&e, LIST(inherited), &job, &round_), 0);
    ck_assert_int_eq(environment_copy(&e, &copy), 0);
    ck_assert_int_eq(environment_for(&copy, 1, "", "CRUN_AGENT=a:b", &envp, &err), 0);
    expect(envp, "LOCAL_RANK", "0");
    expect(envp, "CUDA_VISIBLE_DEVICES", "3");
    expect(envp, "HIP_VISIBLE_DEVICES", "3");
    expect(envp, "ZE_AFFINITY_MASK", "0.1");
    expect(envp, "ASCEND_RT_VISIBLE_DEVICES", "");
    environment_done(&copy);
    environment_done(&e);
}
END_TEST

START_TEST(test_virtual_local_rank) {
    const char *const listed[] = {"CUDA_VISIBLE_DEVICES=4, GPU-5 ", NULL};
    const char *const unlisted[] = {NULL};
    struct agent_job job = job_of(3);
    job.virtual_local_rank = 1;
    struct environment e;
    struct cr_error err;
    char *const *envp;
    ck_assert_int_eq(environment_init(&e, LIST(listed), &job, &round_), 0);
    ck_assert_int_eq(environment_for(&e, 0, "", "CRUN_AGENT=a:b", &envp, &err), 0);
    expect(envp, "LOCAL_RANK", "0");
    expect(envp, "CUDA_VISIBLE_DEVICES", "4");
    ck_assert_int_eq(environment_for(&e, 1, "", "CRUN_AGENT=a:b", &envp, &err), 0);
    expect(envp, "LOCAL_RANK", "0");
    expect(envp, "RANK", "3");
    expect(envp, "CUDA_VISIBLE_DEVICES", "GPU-5");
    ck_assert_int_eq(environment_for(&e, 2, "", "CRUN_AGENT=a:b", &envp, &err), -EINVAL);
    ck_assert_ptr_nonnull(strstr(err.text, "local rank 2"));
    environment_done(&e);
    ck_assert_int_eq(environment_init(&e, LIST(unlisted), &job, &round_), 0);
    ck_assert_int_eq(environment_for(&e, 2, "", "CRUN_AGENT=a:b", &envp, &err), 0);
    expect(envp, "CUDA_VISIBLE_DEVICES", "2");
    environment_done(&e);
}
END_TEST

START_TEST(test_arguments) {
    const char *const argv[] = {"$local_rank", "--gpu=${local_rank}", "a$$b$x${y}",
                                "$local_rank", "", NULL};
    const char *const nothing[] = {NULL};
    struct agent_job job = job_of(16);
    job.argv = LIST(argv);
    struct environment e;
    struct cr_error err;
    char *const *got;
    ck_assert_int_eq(environment_init(&e, LIST(nothing), &job, &round_), 0);
    ck_assert_int_eq(environment_arguments(&e, 13, &got, &err), 0);
    ck_assert_str_eq(got[0], "$local_rank"); /* variables are not replaced in the program's name */
    ck_assert_str_eq(got[1], "--gpu=13");
    ck_assert_str_eq(got[2], "a$b$x${y}");
    ck_assert_str_eq(got[3], "13");
    ck_assert_str_eq(got[4], "");
    ck_assert_ptr_null(got[5]);
    environment_done(&e);
    job.argv = LIST(argv_plain);
    ck_assert_int_eq(environment_init(&e, LIST(nothing), &job, &round_), 0);
    ck_assert_int_eq(environment_arguments(&e, 1, &got, &err), 0);
    ck_assert_ptr_eq(got, LIST(argv_plain));
    environment_done(&e);
}
END_TEST

START_TEST(test_template) {
    static const struct template_variable v[] = {{"rank", "3"}, {"role_name", "tr"}};
    static const char *const cases[][2] = {
        {"", ""},
        {"plain", "plain"},
        {"$rank", "3"},
        {"${rank}", "3"},
        {"[${role_name}$rank]: ", "[tr3]: "},
        {"$ranks ${ranks}", "$ranks ${ranks}"},
        {"$$rank", "$rank"},
        {"$$$rank", "$3"},
        {"$", "$"},
        {"a$", "a$"},
        {"${rank", "${rank"},
        {"${}", "${}"},
        {"$1rank", "$1rank"},
        {"$-$rank-", "$-3-"},
        {"${rank }", "${rank }"},
        {"\xff$rank\xfe", "\xff" "3\xfe"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct cr_buffer b = {0};
        ck_assert_int_eq(template_expand(&b, cases[i][0], v, 2), 0);
        ck_assert_int_eq(cr_buffer_append(&b, "", 1), 0);
        ck_assert_str_eq(b.data, cases[i][1]);
        cr_buffer_done(&b);
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("environment");
    TCase *t = tcase_create("environment");
    tcase_add_test(t, test_every_variable);
    tcase_add_test(t, test_master_name);
    tcase_add_test(t, test_variables_for_torch);
    tcase_add_test(t, test_what_the_user_set_stays);
    tcase_add_test(t, test_virtual_local_rank);
    tcase_add_test(t, test_virtual_local_rank_of_other_vendors);
    tcase_add_test(t, test_arguments);
    tcase_add_test(t, test_template);
    suite_add_tcase(s, t);
    return run_suite(s);
}
