/* Tests every call on the job's store. */
#include "tests/workers/crunrt/worker.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Tests the operations that older servers lack: append, operations on several keys, queues, the
 * list of keys, barriers. */
static void use_more_of_the_store(crunrt_store *s) {
    char mine[2][16];
    const char *keys[2] = {mine[0], mine[1]};
    const void *values[2] = {"one", "two\0s"};
    const size_t lens[2] = {3, 5};
    void *got[2] = {NULL, NULL}, *value = NULL;
    size_t got_lens[2], len = 0, count = 0;
    int64_t n = -1;
    char **names = NULL;
    crunrt_store *view;
    REQUIRE(crunrt_store_prefix(s, "more", &view) == 0, "prefix");
    for (int i = 0; i < 2; i++) (void) snprintf(mine[i], sizeof(mine[i]), "m%d/%d", i, rank);
    REQUIRE(crunrt_store_multi_set(view, keys, values, lens, 2) == 0, "multi_set");
    REQUIRE(crunrt_store_append(view, "log", "x", 1) == 0, "append");
    REQUIRE(crunrt_store_queue_push(view, "jobs", "job", 3) == 0, "push");
    REQUIRE(crunrt_store_barrier(view, "set", size, 20000) == 0, "barrier");

    for (int i = 0; i < 2; i++)
        (void) snprintf(mine[i], sizeof(mine[i]), "m%d/%d", i, (rank + 1) % size);
    REQUIRE(crunrt_store_multi_get(view, keys, 2, 20000, got, got_lens) == 0, "multi_get");
    for (int i = 0; i < 2; i++) {
        REQUIRE(got_lens[i] == lens[i] && memcmp(got[i], values[i], lens[i]) == 0, "value %d", i);
        crunrt_free(got[i]);
    }
    REQUIRE(crunrt_store_get(view, "log", 0, &value, &len) == 0 && len == (size_t) size, "log");
    crunrt_free(value);
    REQUIRE(crunrt_store_queue_pop(view, "jobs", 20000, &value, &len) == 0 && len == 3, "pop");
    crunrt_free(value);
    REQUIRE(crunrt_store_barrier(view, "popped", size, 20000) == 0, "barrier");
    REQUIRE(crunrt_store_queue_len(view, "jobs", &n) == 0 && n == 0, "one job each");
    REQUIRE(crunrt_store_queue_pop(view, "jobs", 0, &value, &len) == -ENOENT, "empty");
    REQUIRE(crunrt_store_list_keys(view, &names, &count) == 0, "list_keys");
    size_t own = 0;
    for (size_t i = 0; i < count; i++) own += strcmp(names[i], mine[0]) == 0;
    REQUIRE(own == 1 && names[count] == NULL && count >= 2 * (size_t) size + 1, "%zu keys", count);
    crunrt_free(names);
    REQUIRE(crunrt_store_barrier(view, "alone", size + 1, 100) == -ETIMEDOUT, "one is missing");
    REQUIRE(crunrt_store_barrier(view, "alone", 0, 100) == -EINVAL, "no world");
    crunrt_store_close(view);
}

void mode_store(void) {
    open_runtime();
    crunrt_store *s = crunrt_job_store(rt), *view, *inner, *other;
    char key[32];
    (void) snprintf(key, sizeof(key), "k%d", rank);
    const char bytes[] = {0, (char) 0xff, '\n', 'x'};
    void *value = NULL;
    size_t len = 0;
    int64_t n = 0;
    int flag = -1;
    const char *const both[2] = {key, "missing"};

    REQUIRE(crunrt_store_set(s, key, bytes, sizeof(bytes)) == 0, "set");
    REQUIRE(crunrt_store_get(s, key, CRUNRT_TIMEOUT_DEFAULT, &value, &len) == 0, "get");
    REQUIRE(len == sizeof(bytes) && memcmp(value, bytes, len) == 0, "any bytes come back");
    REQUIRE(((char *) value)[len] == '\0', "a NUL follows");
    crunrt_free(value);
    REQUIRE(crunrt_store_check(s, both, 1, &flag) == 0 && flag == 1, "check one");
    REQUIRE(crunrt_store_check(s, both, 2, &flag) == 0 && flag == 0, "check both");

    int64_t since = now_ms();
    REQUIRE(crunrt_store_wait(s, both, 2, 300) == -ETIMEDOUT, "wait");
    REQUIRE(strstr(crunrt_last_error(), "missing") != NULL, "the text names the key");
    REQUIRE(now_ms() - since >= 250, "not before the time is up");
    REQUIRE(crunrt_store_get(s, "missing", 100, &value, &len) == -ETIMEDOUT, "get");
    REQUIRE(crunrt_store_get(s, key, 0, &value, NULL) == 0, "usable after timeouts, and at once");
    crunrt_free(value);

    REQUIRE(crunrt_store_add(s, "sum", rank + 1, NULL) == 0, "add");
    REQUIRE(crunrt_store_add(s, "here", 1, &n) == 0, "add");
    if (n == size) REQUIRE(crunrt_store_set(s, "all", "", 0) == 0, "set");
    const char *all = "all";
    REQUIRE(crunrt_store_wait(s, &all, 1, 20000) == 0, "wait for all");
    REQUIRE(crunrt_store_add(s, "sum", 0, &n) == 0 && n == size * (size + 1) / 2, "sum %lld",
            (long long) n);

    char mine[16];
    (void) snprintf(mine, sizeof(mine), "rank%d", rank);
    REQUIRE(crunrt_store_compare_set(s, "winner", NULL, 0, mine, strlen(mine), &value, &len) == 0,
            "cas");
    int won = len == strlen(mine) && memcmp(value, mine, len) == 0;
    printf("winner %.*s %s\n", (int) len, (char *) value, won ? "mine" : "other");
    crunrt_free(value);
    REQUIRE(crunrt_store_compare_set(s, "winner", "nobody", 6, "x", 1, &value, &len) == 0,
            "mismatch");
    REQUIRE(len >= 5 && memcmp(value, "rank", 4) == 0, "a mismatch leaves the value");
    crunrt_free(value);

    REQUIRE(crunrt_store_prefix(s, "outer", &view) == 0, "prefix");
    REQUIRE(crunrt_store_prefix(view, "inner", &inner) == 0, "nested");
    REQUIRE(crunrt_store_set(inner, key, "v", 1) == 0, "set below");
    (void) snprintf(key, sizeof(key), "outer/inner/k%d", rank);
    REQUIRE(crunrt_store_get(s, key, 0, &value, NULL) == 0 && strcmp(value, "v") == 0,
            "prefix form");
    crunrt_free(value);
    REQUIRE(crunrt_store_delete(s, key, &flag) == 0 && flag == 1, "delete");
    REQUIRE(crunrt_store_delete(s, key, &flag) == 0 && flag == 0, "delete again");
    crunrt_store_close(inner);
    crunrt_store_close(view);
    use_more_of_the_store(s);

    int port = atoi(getenv("MASTER_PORT"));
    REQUIRE(crunrt_store_open(getenv("MASTER_ADDR"), port, 5000, &other) == 0, "second connection");
    REQUIRE(crunrt_store_num_keys(other, &n) == 0 && n > 0, "num_keys");
    crunrt_store_close(other);
    crunrt_destroy(rt);
    printf("store right on rank %d\n", rank);
}
