/* A worker of libcrunrt for the tests with a failing allocator: it opens the runtime, makes each
 * store call, and reduces one number over a gloo group of all ranks. When a call fails, the worker
 * prints the library's error text as one line and exits with status 1. */
#include <crunrt.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TIMEOUT_MS = 60000 };

static int failed(const char *what) {
    (void) fprintf(stderr, "worker: %s: %s\n", what, crunrt_last_error());
    return -1;
}

static int set_and_get(crunrt_store *store) {
    void *value = NULL;
    size_t len = 0;
    int64_t total = 0;
    if (crunrt_store_set(store, "key", "one", 3) < 0) return failed("set");
    if (crunrt_store_append(store, "key", "two", 3) < 0) return failed("append");
    if (crunrt_store_get(store, "key", TIMEOUT_MS, &value, &len) < 0) return failed("get");
    crunrt_free(value);
    if (crunrt_store_add(store, "count", 1, &total) < 0) return failed("add");
    if (crunrt_store_compare_set(store, "other", "", 0, "new", 3, &value, &len) < 0) {
        return failed("compare_set");
    }
    crunrt_free(value);
    return 0;
}

static int many_at_once(crunrt_store *store) {
    static const char *const keys[] = {"a", "b"};
    const void *in[] = {"1", "2"};
    const size_t in_lens[] = {1, 1};
    void *out[2] = {NULL, NULL};
    size_t out_lens[2];
    char **names = NULL;
    size_t count = 0;
    int present = 0, deleted = 0;
    if (crunrt_store_multi_set(store, keys, in, in_lens, 2) < 0) return failed("multi_set");
    if (crunrt_store_wait(store, keys, 2, TIMEOUT_MS) < 0) return failed("wait");
    if (crunrt_store_check(store, keys, 2, &present) < 0) return failed("check");
    if (crunrt_store_multi_get(store, keys, 2, TIMEOUT_MS, out, out_lens) < 0) {
        return failed("multi_get");
    }
    crunrt_free(out[0]);
    crunrt_free(out[1]);
    if (crunrt_store_list_keys(store, &names, &count) < 0) return failed("list_keys");
    crunrt_free(names);
    return crunrt_store_delete(store, "a", &deleted) < 0 ? failed("delete") : 0;
}

static int queue(crunrt_store *store) {
    void *value = NULL;
    size_t len = 0;
    if (crunrt_store_queue_push(store, "queue", "x", 1) < 0) return failed("queue_push");
    if (crunrt_store_queue_pop(store, "queue", TIMEOUT_MS, &value, &len) < 0) {
        return failed("queue_pop");
    }
    crunrt_free(value);
    return 0;
}

static int use_store(crunrt *rt) {
    char prefix[32];
    crunrt_store *own = NULL;
    (void) snprintf(prefix, sizeof(prefix), "rank%d", crunrt_rank(rt));
    if (crunrt_store_prefix(crunrt_job_store(rt), prefix, &own) < 0) return failed("prefix");
    int rc = set_and_get(own);
    if (rc == 0) rc = many_at_once(own);
    if (rc == 0) rc = queue(own);
    crunrt_store_close(own);
    return rc;
}

static int use_group(crunrt *rt) {
    crunrt_group_options options = CRUNRT_GROUP_OPTIONS_INIT;
    crunrt_group *group = NULL;
    float sum = 1;
    options.timeout_ms = TIMEOUT_MS;
    if (crunrt_group_new(rt, &options, &group) < 0) return failed("group_new");
    int rc = crunrt_group_all_reduce(group, &sum, &sum, 1, CRUNRT_FLOAT32, CRUNRT_SUM);
    if (rc < 0) (void) failed("all_reduce");
    if (rc == 0 && sum != (float) crunrt_world_size(rt)) {
        (void) fprintf(stderr, "worker: the sum is %g\n", (double) sum);
        rc = -1;
    }
    crunrt_group_destroy(group);
    return rc;
}

/* With the argument "group" the worker also makes a group and reduces a number over it. Without
 * this argument it makes only the store calls. */
int main(int argc, char **argv) {
    crunrt *rt = NULL;
    if (crunrt_init(NULL, &rt) < 0) return failed("init") < 0;
    int rc = use_store(rt);
    if (rc == 0 && argc > 1 && strcmp(argv[1], "group") == 0) rc = use_group(rt);
    crunrt_destroy(rt);
    return rc < 0;
}
