/* The calls on one key or one queue. Each call begins a turn, in which its thread uses the
 * connection alone (store_internal.h), and calls the client of the store (store/store.h). */
#include "worker_runtime/store/store_internal.h"

#include <errno.h>
#include <stdlib.h>

/* ---- operations that send a value ---- */

typedef int (*send_fn)(struct store *s, struct store_bytes key, struct store_bytes value,
                       int64_t timeout_ms, struct cr_error *err);

/* Sends value[len] to the server. `call` is the client's function that sets a key, appends to a
 * key, or pushes to a queue. */
static int send_value(crunrt_store *store, const char *key, const void *value, size_t len,
                      send_fn call) {
    struct turn t;
    int rc = turn_begin(&t, store, key);
    if (rc < 0) return rc;
    rc = check_value(key, value, len);
    if (rc == 0) {
        rc = call(t.base, t.key, (struct store_bytes){value, len}, store->timeout_ms,
                  rt_last_error());
    }
    turn_end(&t);
    return rc;
}

int crunrt_store_set(crunrt_store *store, const char *key, const void *value, size_t len) {
    return send_value(store, key, value, len, store_set);
}

int crunrt_store_append(crunrt_store *store, const char *key, const void *value, size_t len) {
    return send_value(store, key, value, len, store_append);
}

int crunrt_store_queue_push(crunrt_store *store, const char *name, const void *value, size_t len) {
    return send_value(store, name, value, len, store_queue_push);
}

/* ---- operations that receive a value ---- */

typedef int (*receive_fn)(struct store *s, struct store_bytes key, int64_t timeout_ms, void **value,
                          size_t *len, struct cr_error *err);

static int receive_value(crunrt_store *store, const char *key, int64_t timeout_ms, void **value,
                         size_t *len, receive_fn call) {
    struct turn t;
    size_t n = 0;
    int rc = turn_begin(&t, store, key);
    if (rc < 0) return rc;
    rc = call(t.base, t.key, rt_timeout(timeout_ms, store->timeout_ms), value, &n,
              rt_last_error());
    turn_end(&t);
    if (rc == 0 && len != NULL) *len = n;
    return rc;
}

int crunrt_store_get(crunrt_store *store, const char *key, int64_t timeout_ms, void **value,
                     size_t *len) {
    if (value == NULL) return rt_fail_null("get a key", "value");
    return receive_value(store, key, timeout_ms, value, len, store_get);
}

int crunrt_store_queue_pop(crunrt_store *store, const char *name, int64_t timeout_ms, void **value,
                           size_t *len) {
    if (value == NULL) return rt_fail_null("pop from a queue", "value");
    return receive_value(store, name, timeout_ms, value, len, store_queue_pop);
}

/* ---- add, compare_set, delete, barrier, queue_len and num_keys ---- */

int crunrt_store_add(crunrt_store *store, const char *key, int64_t delta, int64_t *total) {
    struct turn t;
    int64_t sum = 0;
    int rc = turn_begin(&t, store, key);
    if (rc < 0) return rc;
    rc = store_add(t.base, t.key, delta, store->timeout_ms, &sum, rt_last_error());
    turn_end(&t);
    if (rc == 0 && total != NULL) *total = sum;
    return rc;
}

int crunrt_store_compare_set(crunrt_store *store, const char *key, const void *expected,
                             size_t expected_len, const void *desired, size_t desired_len,
                             void **value, size_t *len) {
    struct turn t;
    void *held = NULL;
    size_t n = 0;
    int rc = turn_begin(&t, store, key);
    if (rc < 0) return rc;
    rc = check_value(key, expected, expected_len);
    if (rc == 0) rc = check_value(key, desired, desired_len);
    if (rc == 0) {
        struct store_swap swap = {t.key, {expected, expected_len}, {desired, desired_len}};
        rc = store_compare_set(t.base, &swap, store->timeout_ms, &held, &n, rt_last_error());
    }
    turn_end(&t);
    if (rc < 0) return rc;
    if (len != NULL) *len = n;
    if (value != NULL) {
        *value = held;
    } else {
        free(held);
    }
    return 0;
}

int crunrt_store_delete(crunrt_store *store, const char *key, int *deleted) {
    struct turn t;
    int existed = 0;
    int rc = turn_begin(&t, store, key);
    if (rc < 0) return rc;
    rc = store_delete(t.base, t.key, store->timeout_ms, &existed, rt_last_error());
    turn_end(&t);
    if (rc == 0 && deleted != NULL) *deleted = existed;
    return rc;
}

int crunrt_store_barrier(crunrt_store *store, const char *name, int world_size,
                         int64_t timeout_ms) {
    struct turn t;
    if (world_size < 1)
        return cr_fail(rt_last_error(), -EINVAL, "meet at a barrier: world size %d", world_size);
    int rc = turn_begin(&t, store, name);
    if (rc < 0) return rc;
    rc = store_barrier(t.base, t.key, world_size, rt_timeout(timeout_ms, store->timeout_ms),
                       rt_last_error());
    turn_end(&t);
    return rc;
}

int crunrt_store_queue_len(crunrt_store *store, const char *name, int64_t *count) {
    struct turn t;
    if (count == NULL) return rt_fail_null("measure a queue", "count");
    int rc = turn_begin(&t, store, name);
    if (rc < 0) return rc;
    rc = store_queue_len(t.base, t.key, store->timeout_ms, count, rt_last_error());
    turn_end(&t);
    return rc;
}

int crunrt_store_num_keys(crunrt_store *store, int64_t *count) {
    struct turn t;
    if (store == NULL) return rt_fail_null("count the keys", "the store");
    if (count == NULL) return rt_fail_null("count the keys", "count");
    turn_take(&t, store);
    int rc = store_num_keys(t.base, store->timeout_ms, count, rt_last_error());
    turn_end(&t);
    return rc;
}
