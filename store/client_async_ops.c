/* The calls of client_async.h: each is its arguments, copied, and the plan for its operation. */
#include "store/client_async_internal.h"

#include "base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* What a call is made of. Borrowed. */
struct arguments {
    enum store_op op;
    const struct store_bytes *keys, *values;
    size_t key_count, value_count;
    int64_t number;
    int is_raw;
};

static int check_limits(const struct arguments *g) {
    size_t limit;
    return store_request_excess(g->keys, g->key_count, g->values, g->value_count, &limit) == NULL
               ? 0
               : -EMSGSIZE;
}

static size_t total_len(const struct store_bytes *items, size_t count) {
    size_t total = 0;
    for (size_t i = 0; i < count; i++) total += items[i].len;
    return total;
}

/* Copies the items to `to` and their bytes to `at`; returns where the bytes end. */
static char *copy_items(struct store_bytes *to, const struct store_bytes *items, size_t count,
                        char *at) {
    for (size_t i = 0; i < count; i++) {
        if (items[i].len > 0) memcpy(at, items[i].data, items[i].len);
        to[i] = (struct store_bytes){at, items[i].len};
        at += items[i].len;
    }
    return at;
}

static struct store_async_call *new_call(const struct arguments *g) {
    size_t items = g->key_count + g->value_count;
    size_t bytes = total_len(g->keys, g->key_count) + total_len(g->values, g->value_count);
    struct store_async_call *c = calloc(1, sizeof(*c) + items * sizeof(c->items[0]) + bytes);
    if (c == NULL) return NULL;
    char *at = copy_items(c->items, g->keys, g->key_count, (char *) &c->items[items]);
    (void) copy_items(c->items + g->key_count, g->values, g->value_count, at);
    c->op = g->op;
    c->keys = c->items;
    c->values = c->items + g->key_count;
    c->key_count = g->key_count;
    c->value_count = g->value_count;
    c->number = g->number;
    c->is_raw = g->is_raw;
    store_call_text(g->op, c->keys, c->key_count, c->what);
    return c;
}

static int is_open(const struct store_async *a) {
    return a->state == STORE_ASYNC_READY || a->state == STORE_ASYNC_RENEW;
}

static int make_call(struct store_async *a, const struct arguments *g, int64_t timeout_ms,
                     store_async_fn done, void *arg) {
    if (!is_open(a)) return a->state == STORE_ASYNC_LOST ? a->lost.code : -ENOTCONN;
    if (a->call_count >= STORE_ASYNC_CALLS_MAX) return -EAGAIN;
    int rc = check_limits(g);
    if (rc < 0) return rc;
    struct store_async_call *c = new_call(g);
    if (c == NULL) return -ENOMEM;
    c->timeout_ms = timeout_ms;
    c->deadline_ms = cr_deadline_ms(timeout_ms);
    c->done = done;
    c->arg = arg;
    store_async_submit(a, c);
    return 0;
}

/* ---- one key ---- */

static int call_value(struct store_async *a, enum store_op op, struct store_bytes key,
                      struct store_bytes value, int64_t timeout_ms, store_async_fn done,
                      void *arg) {
    struct arguments g = {
        .op = op, .keys = &key, .key_count = 1, .values = &value, .value_count = 1};
    return make_call(a, &g, timeout_ms, done, arg);
}

int store_async_set(struct store_async *a, struct store_bytes key, struct store_bytes value,
                    int64_t timeout_ms, store_async_fn done, void *arg) {
    return call_value(a, STORE_OP_SET, key, value, timeout_ms, done, arg);
}

int store_async_append(struct store_async *a, struct store_bytes key, struct store_bytes value,
                       int64_t timeout_ms, store_async_fn done, void *arg) {
    return call_value(a, STORE_OP_APPEND, key, value, timeout_ms, done, arg);
}

int store_async_queue_push(struct store_async *a, struct store_bytes name, struct store_bytes value,
                           int64_t timeout_ms, store_async_fn done, void *arg) {
    return call_value(a, STORE_OP_QUEUE_PUSH, name, value, timeout_ms, done, arg);
}

int store_async_compare_set(struct store_async *a, struct store_bytes key,
                            struct store_bytes expected, struct store_bytes desired,
                            int64_t timeout_ms, store_async_fn done, void *arg) {
    struct store_bytes both[] = {expected, desired};
    struct arguments g = {
        .op = STORE_OP_COMPARE_SET, .keys = &key, .key_count = 1, .values = both, .value_count = 2};
    return make_call(a, &g, timeout_ms, done, arg);
}

static int call_number(struct store_async *a, enum store_op op, struct store_bytes key,
                       int64_t number, int is_raw, int64_t timeout_ms, store_async_fn done,
                       void *arg) {
    struct arguments g = {
        .op = op, .keys = &key, .key_count = 1, .number = number, .is_raw = is_raw};
    return make_call(a, &g, timeout_ms, done, arg);
}

int store_async_add(struct store_async *a, struct store_bytes key, int64_t delta,
                    int64_t timeout_ms, store_async_fn done, void *arg) {
    return call_number(a, STORE_OP_ADD, key, delta, 0, timeout_ms, done, arg);
}

int store_async_add_raw(struct store_async *a, struct store_bytes raw_key, int64_t delta,
                        int64_t timeout_ms, store_async_fn done, void *arg) {
    return call_number(a, STORE_OP_ADD, raw_key, delta, 1, timeout_ms, done, arg);
}

int store_async_barrier(struct store_async *a, struct store_bytes key, int64_t world_size,
                        int64_t timeout_ms, store_async_fn done, void *arg) {
    return call_number(a, STORE_OP_BARRIER, key, world_size, 0, timeout_ms, done, arg);
}

static int call_keys(struct store_async *a, enum store_op op, const struct store_bytes *keys,
                     size_t key_count, int64_t timeout_ms, store_async_fn done, void *arg) {
    struct arguments g = {.op = op, .keys = keys, .key_count = key_count};
    return make_call(a, &g, timeout_ms, done, arg);
}

int store_async_get(struct store_async *a, struct store_bytes key, int64_t timeout_ms,
                    store_async_fn done, void *arg) {
    return call_keys(a, STORE_OP_GET, &key, 1, timeout_ms, done, arg);
}

int store_async_delete(struct store_async *a, struct store_bytes key, int64_t timeout_ms,
                       store_async_fn done, void *arg) {
    return call_keys(a, STORE_OP_DELETE, &key, 1, timeout_ms, done, arg);
}

int store_async_queue_pop(struct store_async *a, struct store_bytes name, int64_t timeout_ms,
                          store_async_fn done, void *arg) {
    return call_keys(a, STORE_OP_QUEUE_POP, &name, 1, timeout_ms, done, arg);
}

int store_async_queue_len(struct store_async *a, struct store_bytes name, int64_t timeout_ms,
                          store_async_fn done, void *arg) {
    return call_keys(a, STORE_OP_QUEUE_LEN, &name, 1, timeout_ms, done, arg);
}

/* ---- many keys, or none ---- */

int store_async_wait(struct store_async *a, const struct store_bytes *keys, size_t key_count,
                     int64_t timeout_ms, store_async_fn done, void *arg) {
    return call_keys(a, STORE_OP_WAIT, keys, key_count, timeout_ms, done, arg);
}

int store_async_check(struct store_async *a, const struct store_bytes *keys, size_t key_count,
                      int64_t timeout_ms, store_async_fn done, void *arg) {
    return call_keys(a, STORE_OP_CHECK, keys, key_count, timeout_ms, done, arg);
}

int store_async_multi_get(struct store_async *a, const struct store_bytes *keys, size_t key_count,
                          int64_t timeout_ms, store_async_fn done, void *arg) {
    return call_keys(a, STORE_OP_MULTI_GET, keys, key_count, timeout_ms, done, arg);
}

int store_async_multi_set(struct store_async *a, const struct store_bytes *keys,
                          const struct store_bytes *values, size_t pair_count, int64_t timeout_ms,
                          store_async_fn done, void *arg) {
    struct arguments g = {.op = STORE_OP_MULTI_SET,
                          .keys = keys,
                          .key_count = pair_count,
                          .values = values,
                          .value_count = pair_count};
    return make_call(a, &g, timeout_ms, done, arg);
}

int store_async_num_keys(struct store_async *a, int64_t timeout_ms, store_async_fn done,
                         void *arg) {
    return call_keys(a, STORE_OP_NUM_KEYS, NULL, 0, timeout_ms, done, arg);
}

int store_async_list_keys(struct store_async *a, int64_t timeout_ms, store_async_fn done,
                          void *arg) {
    return call_keys(a, STORE_OP_LIST_KEYS, NULL, 0, timeout_ms, done, arg);
}
