/* Tests of nesting_check(), which decides whether a crun may run inside another crun. The test
 * makes a folder with invented processes, which nesting_check() reads in place of /proc. */
#include "launcher/nesting.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/crun-nesting-XXXXXX";
static struct cr_error err;

static void write_bytes(const char *name, const void *bytes, size_t len) {
    FILE *f = fopen(name, "wb");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(bytes, 1, len, f), len);
    (void) fclose(f);
}

static void link_to(const char *target, const char *process, const char *name) {
    char path[128], to[128];
    (void) snprintf(path, sizeof(path), "proc/%s/%s", process, name);
    (void) snprintf(to, sizeof(to), "../../%s", target);
    (void) unlink(path);
    ck_assert_int_eq(symlink(to, path), 0);
}

static void write_text(const char *process, const char *name, const char *text, size_t len) {
    char path[128];
    (void) snprintf(path, sizeof(path), "proc/%s/%s", process, name);
    write_bytes(path, text, len);
}

/* Adds a process to the made-up /proc; `argv` is a string literal with NULs between the words. */
#define PROCESS(pid, parent, exe, comm, cwd, argv)                                                 \
    process(pid, parent, exe, comm, cwd, argv, sizeof(argv))

static void process(const char *pid, int parent, const char *exe, const char *comm,
                    const char *cwd, const char *argv, size_t argv_len) {
    char path[128], text[128];
    (void) snprintf(path, sizeof(path), "proc/%s", pid);
    (void) mkdir(path, 0755);
    link_to(exe, pid, "exe");
    link_to(cwd, pid, "cwd");
    int n = snprintf(text, sizeof(text), "%s\n", comm);
    write_text(pid, "comm", text, (size_t) n);
    n = snprintf(text, sizeof(text), "7 (a) R (%s) S %d 1 1 0 -1\n", comm, parent);
    write_text(pid, "stat", text, (size_t) n);
    write_text(pid, "cmdline", argv, argv_len);
}

static void setup(void) {
    ck_assert_ptr_nonnull(mkdtemp(folder));
    ck_assert_int_eq(chdir(folder), 0);
    ck_assert_int_eq(mkdir("proc", 0755), 0);
    ck_assert_int_eq(mkdir("here", 0755), 0);
    ck_assert_int_eq(mkdir("there", 0755), 0);
    write_bytes("crun", "1", 1);
    write_bytes("sh", "2", 1);
    PROCESS("1", 0, "sh", "init", "here", "init");
    PROCESS("self", 30, "crun", "crun", "here", "crun\0-m\0pkg\0a");
    PROCESS("30", 20, "sh", "sh", "here", "sh\0script");
    PROCESS("20", 1, "crun", "crun", "here", "/usr/bin/crun\0-m\0pkg\0a");
}

static void teardown(void) {
    char command[128];
    ck_assert_int_eq(chdir("/"), 0);
    (void) snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    ck_assert_int_eq(system(command), 0);
}

static int check(void) {
    cr_error_clear(&err);
    return nesting_check("proc", "pkg", &err);
}

START_TEST(itself_within_itself) {
    ck_assert_int_eq(check(), -ELOOP);
    ck_assert_ptr_nonnull(strstr(err.text, "cannot run 'pkg': a crun with the same arguments"));
    ck_assert_ptr_nonnull(strstr(err.text, "(pid 20)"));
    /* the parent, a crun, has started this crun directly, without a shell between */
    PROCESS("self", 20, "crun", "crun", "here", "crun\0-m\0pkg\0a");
    ck_assert_int_eq(check(), -ELOOP);
}
END_TEST

START_TEST(another_within_it) {
    PROCESS("20", 1, "crun", "crun", "here", "crun\0-m\0pkg\0b");
    ck_assert_int_eq(check(), 0);
    PROCESS("20", 1, "crun", "crun", "here", "crun\0-m\0pkg\0a\0a");
    ck_assert_int_eq(check(), 0);
    PROCESS("20", 1, "crun", "crun", "here", "crun\0-m\0pkg");
    ck_assert_int_eq(check(), 0);
    PROCESS("20", 1, "crun", "crun", "here", "crun\0-m\0pkga");
    ck_assert_int_eq(check(), 0);
    /* in another folder, the same words may name another program */
    PROCESS("20", 1, "crun", "crun", "there", "crun\0-m\0pkg\0a");
    ck_assert_int_eq(check(), 0);
}
END_TEST

/* Under an emulator, /proc/PID/exe is the emulator for every process. So a process counts as a crun
 * only if both its executable and its name are those of this process. */
START_TEST(not_every_process_is_a_crun) {
    PROCESS("20", 1, "crun", "bash", "here", "crun\0-m\0pkg\0a");
    ck_assert_int_eq(check(), 0);
    PROCESS("20", 1, "sh", "crun", "here", "crun\0-m\0pkg\0a");
    ck_assert_int_eq(check(), 0);
}
END_TEST

START_TEST(two_around_it_are_the_most) {
    PROCESS("20", 19, "crun", "crun", "here", "crun\0c");
    PROCESS("19", 18, "crun", "crun", "here", "crun\0b");
    PROCESS("18", 1, "sh", "sh", "here", "sh");
    ck_assert_int_eq(check(), 0);
    PROCESS("18", 17, "sh", "sh", "here", "sh");
    PROCESS("17", 1, "crun", "crun", "here", "crun\0a");
    ck_assert_int_eq(check(), -ELOOP);
    ck_assert_ptr_nonnull(strstr(err.text, "cannot run 'pkg': 3 cruns are around this one"));
}
END_TEST

START_TEST(what_cannot_be_read_is_no_crun) {
    ck_assert_int_eq(unlink("proc/20/exe"), 0);
    ck_assert_int_eq(check(), 0);
    ck_assert_int_eq(unlink("proc/30/stat"), 0);
    ck_assert_int_eq(check(), 0);
    write_text("self", "stat", "7 (crun", 7);
    ck_assert_int_eq(check(), 0);
    write_text("self", "stat", "7 (crun) S x 1", 14);
    ck_assert_int_eq(check(), 0);
    write_text("self", "stat", "", 0);
    ck_assert_int_eq(check(), 0);
    ck_assert_int_eq(nesting_check("nowhere", "pkg", &err), 0);
    PROCESS("self", 30, "crun", "crun", "here", "crun\0a"); /* the parents form a circle */
    PROCESS("30", 30, "sh", "sh", "here", "sh");
    ck_assert_int_eq(check(), 0);
}
END_TEST

int main(void) {
    Suite *s = suite_create("nesting");
    TCase *t = tcase_create("nesting_check");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, itself_within_itself);
    tcase_add_test(t, another_within_it);
    tcase_add_test(t, not_every_process_is_a_crun);
    tcase_add_test(t, two_around_it_are_the_most);
    tcase_add_test(t, what_cannot_be_read_is_no_crun);
    suite_add_tcase(s, t);
    return run_suite(s);
}
