/* Tests the file store: each operation, the bytes of the file, which must be those that torch's
 * FileStore writes, and several processes that share one file. */
#include "base/time/clock.h"
#include "store/store.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LONG_MS 30000
#define B(text) STORE_BYTES(text)

static struct cr_error err;
static char folder[] = "/tmp/test_store_file.XXXXXX";
static char path[64];

static void make_folder(void) {
    ck_assert_ptr_nonnull(mkdtemp(folder));
    (void) snprintf(path, sizeof(path), "%s/store", folder);
}

static void remove_folder(void) {
    (void) unlink(path);
    ck_assert_int_eq(rmdir(folder), 0);
}

static struct store *open_file(int64_t world_size) {
    struct store *s = NULL;
    int rc = store_file_open(path, world_size, &s, &err);
    ck_assert_msg(rc == 0, "%s", err.text);
    return s;
}

/* ---- operations ---- */

static void get_is(struct store *s, const char *key, const char *value) {
    void *got = NULL;
    size_t len = 0;
    int rc = store_get(s, B(key), LONG_MS, &got, &len, &err);
    ck_assert_msg(rc == 0, "%s", err.text);
    ck_assert_str_eq(got, value);
    ck_assert_uint_eq(len, strlen(value));
    free(got);
}

static void swap_is(struct store *s, const char *key, const char *expected, const char *desired,
                    const char *result) {
    void *got = NULL;
    size_t len = 0;
    struct store_swap swap = {B(key), B(expected), B(desired)};
    ck_assert_int_eq(store_compare_set(s, &swap, LONG_MS, &got, &len, &err), 0);
    ck_assert_str_eq(got, result);
    free(got);
}

static void exercise_values(struct store *s) {
    char odd[] = {'a', 0, '\n', (char) 0xff};
    void *got = NULL;
    size_t len = 0;
    ck_assert_int_eq(store_set(s, B("k"), B("v1"), LONG_MS, &err), 0);
    get_is(s, "k", "v1");
    ck_assert_int_eq(store_set(s, B(""), B(""), LONG_MS, &err), 0);
    get_is(s, "", "");
    struct store_bytes name = {odd, sizeof(odd)};
    ck_assert_int_eq(store_set(s, name, name, LONG_MS, &err), 0);
    ck_assert_int_eq(store_get(s, name, LONG_MS, &got, &len, &err), 0);
    ck_assert_uint_eq(len, sizeof(odd));
    ck_assert_mem_eq(got, odd, sizeof(odd));
    free(got);
    ck_assert_int_eq(store_append(s, B("log"), B("ab"), LONG_MS, &err), 0);
    ck_assert_int_eq(store_append(s, B("log"), B("cd"), LONG_MS, &err), 0);
    get_is(s, "log", "abcd");
    /* a second append of the same bytes must take effect, too */
    ck_assert_int_eq(store_append(s, B("twice"), B("ab"), LONG_MS, &err), 0);
    ck_assert_int_eq(store_append(s, B("twice"), B("ab"), LONG_MS, &err), 0);
    get_is(s, "twice", "abab");
}

static void exercise_compare_set(struct store *s) {
    swap_is(s, "cs", "", "a", "a");
    swap_is(s, "cs", "a", "b", "b");
    swap_is(s, "cs", "zz", "c", "b");
    swap_is(s, "nokey", "exp", "des", "exp");
    int present = 7;
    ck_assert_int_eq(store_check(s, &B("nokey"), 1, LONG_MS, &present, &err), 0);
    ck_assert_int_eq(present, 0);
}

static void exercise_counters(struct store *s) {
    int64_t n = 0;
    ck_assert_int_eq(store_add(s, B("c"), 5, LONG_MS, &n, &err), 0);
    ck_assert_int_eq(store_add(s, B("c"), -7, LONG_MS, &n, &err), 0);
    ck_assert_int_eq(n, -2);
    get_is(s, "c", "-2");
    ck_assert_int_eq(store_set(s, B("c"), B(" +12abc"), LONG_MS, &err), 0);
    ck_assert_int_eq(store_add(s, B("c"), 0, LONG_MS, &n, &err), 0);
    ck_assert_int_eq(n, 12);
    ck_assert_int_eq(store_set(s, B("c"), B("abc"), LONG_MS, &err), 0);
    ck_assert_int_lt(store_add(s, B("c"), 1, LONG_MS, &n, &err), 0);
    get_is(s, "c", "abc");
    ck_assert_int_eq(store_set(s, B("c"), B("9223372036854775807"), LONG_MS, &err), 0);
    ck_assert_int_eq(store_add(s, B("c"), 1, LONG_MS, &n, &err), 0);
    ck_assert(n == INT64_MIN);
}

static void exercise_lists(struct store *s) {
    struct store_bytes keys[] = {B("m1"), B("m2"), B("m1")}, values[] = {B("1"), B("22"), B("333")};
    struct store_list list;
    int present = 7;
    ck_assert_int_eq(store_multi_set(s, keys, values, 3, LONG_MS, &err), 0);
    ck_assert_int_eq(store_multi_get(s, keys, 2, LONG_MS, &list, &err), 0);
    ck_assert_uint_eq(list.count, 2);
    ck_assert_str_eq(list.items[0].data, "333"); /* the later record of a key counts */
    ck_assert_str_eq(list.items[1].data, "22");
    store_list_done(&list);
    ck_assert_int_eq(store_check(s, keys, 3, LONG_MS, &present, &err), 0);
    ck_assert_int_eq(present, 1);
    ck_assert_int_eq(store_wait(s, keys, 3, 0, &err), 0);
    ck_assert_int_eq(store_wait(s, &B("absent"), 1, 20, &err), -ETIMEDOUT);
    ck_assert_ptr_nonnull(strstr(err.text, "absent' in the "));
    ck_assert_int_eq(store_barrier(s, B("alone"), 1, LONG_MS, &err), 0);
}

static int lists_key(struct store *s, const char *key) {
    struct store_list list;
    int found = 0;
    ck_assert_int_eq(store_list_keys(s, LONG_MS, &list, &err), 0);
    for (size_t i = 0; i < list.count; i++) found += strcmp(list.items[i].data, key) == 0;
    store_list_done(&list);
    return found;
}

static void exercise_delete(struct store *s) {
    int64_t before = 0, after = 0;
    int deleted = 0, present = 7;
    ck_assert_int_eq(store_num_keys(s, LONG_MS, &before, &err), 0);
    ck_assert_int_eq(lists_key(s, "k"), 1);
    ck_assert_int_eq(store_delete(s, B("k"), LONG_MS, &deleted, &err), 0);
    ck_assert_int_eq(deleted, 1);
    ck_assert_int_eq(store_num_keys(s, LONG_MS, &after, &err), 0);
    ck_assert_int_eq(after, before - 1);
    ck_assert_int_eq(store_check(s, &B("k"), 1, LONG_MS, &present, &err), 0);
    ck_assert_int_eq(present, 0);
    ck_assert_int_eq(lists_key(s, "k"), 0);
}

static void exercise(struct store *s) {
    exercise_values(s);
    exercise_compare_set(s);
    exercise_counters(s);
    exercise_lists(s);
    exercise_delete(s);
}

START_TEST(file_store_does_it_all) {
    struct store *s = open_file(1);
    exercise(s);
    void *got;
    size_t len;
    ck_assert_int_eq(store_queue_pop(s, B("q"), 0, &got, &len, &err), -ENOTSUP);
    ck_assert_str_eq(err.text, "use a queue: a file store does not support queues");
    store_close(s);
    ck_assert_int_eq(access(path, F_OK), -1);
}
END_TEST

/* ---- the bytes of the file ---- */

static size_t read_file(uint8_t *out, size_t max) {
    FILE *f = fopen(path, "rb");
    ck_assert_ptr_nonnull(f);
    size_t n = fread(out, 1, max, f);
    (void) fclose(f);
    return n;
}

/* `want` is the file that torch 2.15 writes for FileStore(path, 2), set, add, compare_set, two
 * deletions and closing. Our store must write the same bytes. */
START_TEST(file_is_torchs) {
    static const char want[] = "\x09\0\0\0refcount/\x01\0\0\0"
                               "1"
                               "\x02\0\0\0/k\x01\0\0\0v"
                               "\x02\0\0\0/c\x01\0\0\0"
                               "5"
                               "\x02\0\0\0/q\x01\0\0\0"
                               "1"
                               "\x03\0\0\0-/k\0\0\0\0"
                               "\x07\0\0\0-/never\0\0\0\0"
                               "\x08\0\0\0cleanup/\x01\0\0\0"
                               "1"
                               "\x09\0\0\0refcount/\x01\0\0\0"
                               "0";
    struct store *s = open_file(2);
    int64_t n;
    int deleted;
    ck_assert_int_eq(store_set(s, B("k"), B("v"), LONG_MS, &err), 0);
    ck_assert_int_eq(store_add(s, B("c"), 5, LONG_MS, &n, &err), 0);
    swap_is(s, "q", "", "1", "1");
    ck_assert_int_eq(store_delete(s, B("k"), LONG_MS, &deleted, &err), 0);
    ck_assert_int_eq(store_delete(s, B("never"), LONG_MS, &deleted, &err), 0);
    ck_assert_int_eq(deleted, 1); /* as in torch, 1 even for a key that never existed */
    store_close(s);
    uint8_t got[512];
    ck_assert_uint_eq(read_file(got, sizeof(got)), sizeof(want) - 1);
    ck_assert_mem_eq(got, want, sizeof(want) - 1);
}
END_TEST

START_TEST(file_is_removed_by_the_last) {
    struct store *a = open_file(2), *b = open_file(2);
    ck_assert_int_eq(store_set(a, B("k"), B("v"), LONG_MS, &err), 0);
    get_is(b, "k", "v");
    store_close(a);
    ck_assert_int_eq(access(path, F_OK), 0);
    store_close(b);
    ck_assert_int_eq(access(path, F_OK), -1);
}
END_TEST

static void write_file(const void *data, size_t len) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, data, len), (ssize_t) len);
    (void) close(fd);
}

/* The store refuses a file that is not a store, here a shopping list, and does not change it. */
START_TEST(other_files_are_refused) {
    static const char text[] = "milk, bread, 2 GiB of rice";
    struct store *s = NULL;
    uint8_t got[64];
    write_file(text, sizeof(text));
    ck_assert_int_eq(store_file_open(path, 1, &s, &err), -EBADMSG);
    ck_assert_ptr_nonnull(strstr(err.text, "the record at byte 0 is cut off"));
    ck_assert_uint_eq(read_file(got, sizeof(got)), sizeof(text));
    ck_assert_mem_eq(got, text, sizeof(text));
    ck_assert_int_eq(store_file_open("/nowhere/at/all", 1, &s, &err), -ENOENT);
    ck_assert_str_eq(err.text, "open the store file '/nowhere/at/all': No such file or directory");
}
END_TEST

#define CHILDREN 4
#define ADDS     200

/* All children append the same bytes, at the same time. */
static void add_many(void) {
    struct store *s = NULL;
    int64_t n;
    void *log = NULL;
    size_t log_len = 0;
    if (store_file_open(path, CHILDREN, &s, NULL) < 0) _exit(1);
    for (int i = 0; i < ADDS; i++) {
        if (store_add(s, B("sum"), 1, LONG_MS, &n, NULL) < 0) _exit(2);
        if (store_append(s, B("log"), B("x"), LONG_MS, NULL) < 0) _exit(5);
    }
    if (store_barrier(s, B("end"), CHILDREN, LONG_MS, NULL) < 0) _exit(3);
    if (store_add(s, B("sum"), 0, LONG_MS, &n, NULL) < 0 || n != CHILDREN * ADDS) _exit(4);
    if (store_get(s, B("log"), LONG_MS, &log, &log_len, NULL) < 0) _exit(6);
    if (log_len != CHILDREN * ADDS) _exit(7);
    free(log);
    store_close(s);
    _exit(0);
}

START_TEST(file_store_counts_across_processes) {
    pid_t pid[CHILDREN];
    for (int i = 0; i < CHILDREN; i++) {
        pid[i] = fork();
        if (pid[i] == 0) add_many();
    }
    for (int i = 0; i < CHILDREN; i++) {
        int status = -1;
        ck_assert_int_eq(waitpid(pid[i], &status, 0), pid[i]);
        ck_assert_int_eq(status, 0);
    }
    ck_assert_int_eq(access(path, F_OK), -1); /* the last user removed the file */
}
END_TEST

int main(void) {
    TCase *file = tcase_create("file");
    tcase_add_checked_fixture(file, make_folder, remove_folder);
    tcase_add_test(file, file_store_does_it_all);
    tcase_add_test(file, file_is_torchs);
    tcase_add_test(file, file_is_removed_by_the_last);
    tcase_add_test(file, other_files_are_refused);
    tcase_add_test(file, file_store_counts_across_processes);
    tcase_set_timeout(file, 120);
    Suite *suite = suite_create("file store");
    suite_add_tcase(suite, file);
    return run_suite(suite);
}
