/* A prefix store: every key becomes "PREFIX/key" in the store below, as torch's PrefixStore does.
 * Nothing is cleaned up on the way: an empty prefix or one with slashes is joined as it stands.
 * num_keys counts the whole store below. Keys of a call are built in one block. */
#include "base/cleanup.h"
#include "store/store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct prefix_store {
    struct store store;
    struct store *base; /* borrowed */
    size_t prefix_len;  /* the '/' behind it included */
    char prefix[];
};

static struct prefix_store *self(struct store *s) { return (struct prefix_store *) (void *) s; }

/* ---- keys ---- */

/* Writes the full key at `at`; returns the place behind it. */
static char *put_key(const struct prefix_store *p, char *at, struct store_bytes key,
                     struct store_bytes *full) {
    *full = (struct store_bytes){at, p->prefix_len + key.len};
    memcpy(at, p->prefix, p->prefix_len);
    if (key.len > 0) memcpy(at + p->prefix_len, key.data, key.len);
    return at + full->len;
}

static int fail_memory(struct cr_error *err) {
    return cr_fail(err, -ENOMEM, "put the prefix in front of a key: out of memory");
}

/* The full key in a new block, or NULL. */
static void *full_key(const struct prefix_store *p, struct store_bytes key,
                      struct store_bytes *full) {
    char *block = malloc(p->prefix_len + key.len + 1);
    if (block != NULL) (void) put_key(p, block, key, full);
    return block;
}

/* The full keys, array and bytes in one new block, or NULL. */
static struct store_bytes *full_keys(const struct prefix_store *p, const struct store_bytes *keys,
                                     size_t key_count) {
    size_t size = (key_count + 1) * sizeof(*keys);
    for (size_t i = 0; i < key_count; i++) size += p->prefix_len + keys[i].len;
    struct store_bytes *full = malloc(size);
    if (full == NULL) return NULL;
    char *at = (char *) (full + key_count + 1);
    for (size_t i = 0; i < key_count; i++) at = put_key(p, at, keys[i], &full[i]);
    return full;
}

#define WITH_FULL_KEY(call)                                                                        \
    struct prefix_store *p = self(s);                                                              \
    struct store_bytes full;                                                                       \
    CR_AUTO_FREE void *block = full_key(p, key, &full);                                            \
    return block == NULL ? fail_memory(err) : (call)

#define WITH_FULL_KEYS(call)                                                                       \
    struct prefix_store *p = self(s);                                                              \
    CR_AUTO_FREE struct store_bytes *full = full_keys(p, keys, key_count);                         \
    return full == NULL ? fail_memory(err) : (call)

/* ---- operations ---- */

static int prefix_set(struct store *s, struct store_bytes key, struct store_bytes value,
                      int64_t timeout_ms, struct cr_error *err) {
    WITH_FULL_KEY(store_set(p->base, full, value, timeout_ms, err));
}

static int prefix_get(struct store *s, struct store_bytes key, int64_t timeout_ms, void **value,
                      size_t *len, struct cr_error *err) {
    WITH_FULL_KEY(store_get(p->base, full, timeout_ms, value, len, err));
}

static int prefix_add(struct store *s, struct store_bytes key, int64_t delta, int64_t timeout_ms,
                      int64_t *total, struct cr_error *err) {
    WITH_FULL_KEY(store_add(p->base, full, delta, timeout_ms, total, err));
}

static int prefix_compare_set(struct store *s, struct store_bytes key, struct store_bytes expected,
                              struct store_bytes desired, int64_t timeout_ms, void **value,
                              size_t *len, struct cr_error *err) {
    WITH_FULL_KEY(
        store_compare_set(p->base, full, expected, desired, timeout_ms, value, len, err));
}

static int prefix_wait(struct store *s, const struct store_bytes *keys, size_t key_count,
                       int64_t timeout_ms, struct cr_error *err) {
    WITH_FULL_KEYS(store_wait(p->base, full, key_count, timeout_ms, err));
}

static int prefix_check(struct store *s, const struct store_bytes *keys, size_t key_count,
                        int64_t timeout_ms, int *present, struct cr_error *err) {
    WITH_FULL_KEYS(store_check(p->base, full, key_count, timeout_ms, present, err));
}

static int prefix_delete(struct store *s, struct store_bytes key, int64_t timeout_ms, int *deleted,
                         struct cr_error *err) {
    WITH_FULL_KEY(store_delete(p->base, full, timeout_ms, deleted, err));
}

static int prefix_num_keys(struct store *s, int64_t timeout_ms, int64_t *count,
                           struct cr_error *err) {
    return store_num_keys(self(s)->base, timeout_ms, count, err);
}

static int prefix_append(struct store *s, struct store_bytes key, struct store_bytes value,
                         int64_t timeout_ms, struct cr_error *err) {
    WITH_FULL_KEY(store_append(p->base, full, value, timeout_ms, err));
}

static int prefix_multi_get(struct store *s, const struct store_bytes *keys, size_t key_count,
                            int64_t timeout_ms, struct store_list *values, struct cr_error *err) {
    WITH_FULL_KEYS(store_multi_get(p->base, full, key_count, timeout_ms, values, err));
}

static int prefix_multi_set(struct store *s, const struct store_bytes *keys,
                            const struct store_bytes *values, size_t key_count, int64_t timeout_ms,
                            struct cr_error *err) {
    WITH_FULL_KEYS(store_multi_set(p->base, full, values, key_count, timeout_ms, err));
}

static int prefix_queue_push(struct store *s, struct store_bytes key, struct store_bytes value,
                             int64_t timeout_ms, struct cr_error *err) {
    WITH_FULL_KEY(store_queue_push(p->base, full, value, timeout_ms, err));
}

static int prefix_queue_pop(struct store *s, struct store_bytes key, int64_t timeout_ms,
                            void **value, size_t *len, struct cr_error *err) {
    WITH_FULL_KEY(store_queue_pop(p->base, full, timeout_ms, value, len, err));
}

static int prefix_queue_len(struct store *s, struct store_bytes key, int64_t timeout_ms,
                            int64_t *count, struct cr_error *err) {
    WITH_FULL_KEY(store_queue_len(p->base, full, timeout_ms, count, err));
}

static int prefix_list_keys(struct store *s, int64_t timeout_ms, struct store_list *keys,
                            struct cr_error *err) {
    struct prefix_store *p = self(s);
    struct store_list list;
    int rc = store_list_keys(p->base, timeout_ms, &list, err);
    if (rc < 0) return rc;
    size_t kept = 0;
    for (size_t i = 0; i < list.count; i++) {
        const char *key = list.items[i].data;
        size_t len = list.items[i].len;
        if (len < p->prefix_len || memcmp(key, p->prefix, p->prefix_len) != 0) continue;
        list.items[kept++] = (struct store_bytes){key + p->prefix_len, len - p->prefix_len};
    }
    list.count = kept;
    *keys = list;
    return 0;
}

static int prefix_barrier(struct store *s, struct store_bytes key, int64_t world_size,
                          int64_t timeout_ms, struct cr_error *err) {
    WITH_FULL_KEY(store_barrier(p->base, full, world_size, timeout_ms, err));
}

static void prefix_close(struct store *s) { free(self(s)); }

static const struct store_ops prefix_ops = {
    .set = prefix_set,
    .get = prefix_get,
    .add = prefix_add,
    .compare_set = prefix_compare_set,
    .wait = prefix_wait,
    .check = prefix_check,
    .delete_key = prefix_delete,
    .num_keys = prefix_num_keys,
    .append = prefix_append,
    .multi_get = prefix_multi_get,
    .multi_set = prefix_multi_set,
    .queue_push = prefix_queue_push,
    .queue_pop = prefix_queue_pop,
    .queue_len = prefix_queue_len,
    .list_keys = prefix_list_keys,
    .barrier = prefix_barrier,
    .close = prefix_close,
};

int store_prefix_open(struct store *base, struct store_bytes prefix, struct store **out,
                      struct cr_error *err) {
    struct prefix_store *p = malloc(sizeof(*p) + prefix.len + 1);
    if (p == NULL) return fail_memory(err);
    p->store.ops = &prefix_ops;
    p->base = base;
    p->prefix_len = prefix.len + 1;
    if (prefix.len > 0) memcpy(p->prefix, prefix.data, prefix.len);
    p->prefix[prefix.len] = '/';
    *out = &p->store;
    return 0;
}
