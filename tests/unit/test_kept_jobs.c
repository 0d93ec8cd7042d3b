/* Tests of launcher/keeper: how a kept job is chosen by its id or name, and how the folders of kept
 * jobs are made and listed. */
#include "launcher/keeper/jobs_internal.h"
#include "launcher/keeper/keeper.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[KEPT_PATH_MAX];
static struct cr_error err;
static char *words[] = {(char *) "train.py", (char *) "a b\n", NULL};

static void setup(void) {
    cr_error_clear(&err);
    (void) snprintf(folder, sizeof(folder), "/tmp/test_kept_jobs-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    ck_assert_int_eq(setenv("CRUN_JOBS_DIR", folder, 1), 0);
}

static void teardown(void) {
    char command[KEPT_PATH_MAX + 16];
    (void) snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    ck_assert_int_eq(system(command), 0);
}

START_TEST(test_which_job_is_meant) {
    const struct kept_job jobs[] = {{.id = "ab1", .state = KEPT_ENDED},
                                    {.id = "ab2", .state = KEPT_RUNNING},
                                    {.id = "ab", .state = KEPT_LOST},
                                    {.id = "cd3", .state = KEPT_RUNNING}};
    ck_assert_ptr_eq(kept_choose(jobs, 4, "ab2", &err), &jobs[1]);
    ck_assert_ptr_eq(kept_choose(jobs, 4, "ab", &err), &jobs[2]); /* the whole id, not a prefix */
    ck_assert_ptr_eq(kept_choose(jobs, 4, "c", &err), &jobs[3]);
    ck_assert_ptr_eq(kept_choose(jobs, 3, NULL, &err), &jobs[1]); /* the only running one */
    ck_assert_int_eq(err.code, 0);
    ck_assert_ptr_null(kept_choose(jobs, 4, "a", &err));
    ck_assert_ptr_nonnull(strstr(err.text, "several jobs have ids that begin with 'a'"));
    cr_error_clear(&err);
    ck_assert_ptr_null(kept_choose(jobs, 4, "x", &err));
    ck_assert_ptr_nonnull(strstr(err.text, "no job has the id 'x'"));
    cr_error_clear(&err);
    ck_assert_ptr_null(kept_choose(jobs, 4, NULL, &err));
    ck_assert_ptr_nonnull(strstr(err.text, "several jobs run"));
    cr_error_clear(&err);
    ck_assert_ptr_null(kept_choose(jobs, 1, NULL, &err));
    ck_assert_ptr_nonnull(strstr(err.text, "no job runs"));
}
END_TEST

START_TEST(test_the_folder_must_be_private) {
    char path[KEPT_PATH_MAX];
    ck_assert_int_eq(kept_folder(path, &err), 0);
    ck_assert_str_eq(path, folder);
    ck_assert_int_eq(chmod(folder, 0755), 0);
    ck_assert_int_eq(kept_folder(path, &err), -EPERM);
    ck_assert_ptr_nonnull(strstr(err.text, "only you may enter"));
}
END_TEST

START_TEST(test_a_job_is_listed_with_its_command_and_status) {
    char id[KEPT_ID_MAX];
    struct kept_job *jobs = NULL;
    size_t count = 0;
    ck_assert_int_eq(kept_make(folder, "mine", words, id, &err), 0);
    ck_assert_int_eq(kept_list(folder, &jobs, &count, &err), 0);
    ck_assert_uint_eq(count, 1);
    ck_assert_str_eq(jobs[0].id, "mine");
    ck_assert_str_eq(jobs[0].command, "train.py a b\\x0a");
    ck_assert_int_eq(jobs[0].state, KEPT_LOST); /* nothing listens at its socket */
    free(jobs);
    ck_assert_int_eq(kept_make(folder, "mine", words, id, &err), -EEXIST);
    cr_error_clear(&err);
    ck_assert_int_eq(kept_write_status(folder, id, 137), 0);
    ck_assert_int_eq(kept_list(folder, &jobs, &count, &err), 0);
    ck_assert_int_eq(jobs[0].state, KEPT_ENDED);
    ck_assert_int_eq(jobs[0].status, 137);
    free(jobs);
    ck_assert_int_eq(kept_make(folder, "mine", words, id, &err), 0); /* its name is free again */
}
END_TEST

START_TEST(test_names_that_are_no_file_names_are_refused) {
    static const char *const names[] = {"", "..", "a/b", ".x", "-x", "a b",
                                        "0123456789012345678901234567890123"};
    char id[KEPT_ID_MAX];
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        cr_error_clear(&err);
        ck_assert_int_eq(kept_make(folder, names[i], words, id, &err), -EINVAL);
    }
}
END_TEST

START_TEST(test_only_the_newest_ended_jobs_are_kept) {
    char id[KEPT_ID_MAX];
    struct kept_job *jobs = NULL;
    size_t count = 0;
    for (int i = 0; i < KEPT_ENDED_MAX + 3; i++) {
        ck_assert_int_eq(kept_make(folder, NULL, words, id, &err), 0);
        ck_assert_int_eq(kept_write_status(folder, id, 0), 0);
    }
    ck_assert_int_eq(kept_make(folder, "lost", words, id, &err), 0);
    ck_assert_int_eq(kept_list(folder, &jobs, &count, &err), 0);
    ck_assert_uint_eq(count, KEPT_ENDED_MAX + 4);
    kept_tidy(folder, jobs, count);
    free(jobs);
    ck_assert_int_eq(kept_list(folder, &jobs, &count, &err), 0);
    ck_assert_uint_eq(count, KEPT_ENDED_MAX + 1);
    ck_assert_ptr_nonnull(kept_choose(jobs, count, "lost", &err));
    free(jobs);
}
END_TEST

START_TEST(test_a_file_with_the_name_of_a_command_is_the_program) {
    char *line[] = {(char *) "crun", (char *) "ps", NULL};
    ck_assert_int_eq(chdir(folder), 0);
    ck_assert(keeper_is_meant("crun", line));
    ck_assert(!keeper_is_meant("torchrun", line));
    ck_assert_int_eq(mkdir("ps", 0700), 0);
    ck_assert(!keeper_is_meant("crun", line));
    line[1] = (char *) "train.py";
    ck_assert(!keeper_is_meant("crun", line));
}
END_TEST

int main(void) {
    Suite *s = suite_create("kept_jobs");
    TCase *t = tcase_create("kept_jobs");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, test_which_job_is_meant);
    tcase_add_test(t, test_the_folder_must_be_private);
    tcase_add_test(t, test_a_job_is_listed_with_its_command_and_status);
    tcase_add_test(t, test_names_that_are_no_file_names_are_refused);
    tcase_add_test(t, test_only_the_newest_ended_jobs_are_kept);
    tcase_add_test(t, test_a_file_with_the_name_of_a_command_is_the_program);
    suite_add_tcase(s, t);
    return run_suite(s);
}
