/* Tests of log_dir_remove_empty(): which folders it removes, and which descriptors it passes on. */
#include "agent/output/log_dir.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WORKERS 260 /* more than LOG_DIR_REMOVED_MAX */

static char temp[] = "/tmp/crun-test-log-dir-XXXXXX";

static bool exists(const char *path) {
    struct stat st;
    return stat(path, &st) == 0;
}

/* Opens a log folder in a new base folder, and makes the folders of WORKERS workers. */
static void open_folders(struct log_dir *d) {
    static bool starts[WORKERS];
    memset(starts, 1, sizeof(starts));
    ck_assert_int_eq(log_dir_open(d, NULL, "job", NULL), 0);
    ck_assert_int_eq(log_dir_begin(d, 0, WORKERS, starts, NULL), 0);
}

START_TEST(test_empty_folders_are_removed) {
    struct log_dir d;
    struct log_dir_removed removed = {.count = 0};
    char base[LOG_PATH_MAX];
    open_folders(&d);
    memcpy(base, d.path, sizeof(base));
    base[d.base_len] = '\0';
    ck_assert(exists(base));
    log_dir_remove_empty(&d, &removed);
    ck_assert(!exists(base));
    ck_assert_uint_eq(removed.count, LOG_DIR_REMOVED_MAX);
    for (size_t i = 0; i < removed.count; i++) {
        struct stat st;
        ck_assert_int_eq(fstat(removed.fds[i], &st), 0);
        ck_assert(S_ISDIR(st.st_mode));
        ck_assert_uint_eq(st.st_nlink, 0);
        (void) close(removed.fds[i]);
    }
    log_dir_done(&d);
}
END_TEST

START_TEST(test_a_file_keeps_all_folders) {
    struct log_dir d;
    struct log_dir_removed removed = {.count = 0};
    char path[LOG_PATH_MAX];
    int fd;
    open_folders(&d);
    ck_assert_int_eq(log_dir_create(&d, 7, "error.json", &fd, NULL), 0);
    (void) close(fd);
    log_dir_remove_empty(&d, &removed);
    ck_assert_uint_eq(removed.count, 0);
    log_dir_path(&d, d.attempt, 7, "error.json", path);
    ck_assert(exists(path));
    log_dir_path(&d, d.attempt, WORKERS - 1, "", path);
    ck_assert(exists(path));
    /* without the file, the folders can be removed */
    log_dir_path(&d, d.attempt, 7, "error.json", path);
    ck_assert_int_eq(unlink(path), 0);
    log_dir_remove_empty(&d, &removed);
    ck_assert(!exists(d.path));
    for (size_t i = 0; i < removed.count; i++) (void) close(removed.fds[i]);
    log_dir_done(&d);
}
END_TEST

int main(void) {
    if (mkdtemp(temp) == NULL || setenv("TMPDIR", temp, 1) < 0) return 1;
    Suite *s = suite_create("log_dir");
    TCase *t = tcase_create("remove_empty");
    tcase_add_test(t, test_empty_folders_are_removed);
    tcase_add_test(t, test_a_file_keeps_all_folders);
    suite_add_tcase(s, t);
    int rc = run_suite(s);
    /* rmdir() fails if a log folder is left in `temp`; in that case the test fails */
    return rmdir(temp) < 0 ? 1 : rc;
}
