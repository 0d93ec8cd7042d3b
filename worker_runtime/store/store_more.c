/* The store's calls that current torch has besides: append, several keys at once, queues, the list
 * of keys, a barrier. Servers that lack one are served by others where that is possible
 * (store/client/client.c). */
#include "worker_runtime/store/store_internal.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int fail_memory(const char *what) {
    return cr_fail(rt_last_error(), -ENOMEM, "%s: out of memory", what);
}

/* ---- one key ---- */

int crunrt_store_append(crunrt_store *store, const char *key, const void *value, size_t len) {
    CR_AUTO_FREE char *text = NULL;
    struct store_bytes k;
    int rc = rt_store_key(store, key, &text, &k);
    if (rc == 0) rc = rt_check_value(key, value, len);
    if (rc < 0) return rc;
    struct crunrt_store *root = rt_store_lock(store);
    rc = store_append(root->base, k, (struct store_bytes){value, len}, store->timeout_ms,
                      rt_last_error());
    (void) pthread_mutex_unlock(&root->lock);
    return rc;
}

int crunrt_store_barrier(crunrt_store *store, const char *name, int world_size,
                         int64_t timeout_ms) {
    CR_AUTO_FREE char *text = NULL;
    struct store_bytes k;
    if (world_size < 1)
        return cr_fail(rt_last_error(), -EINVAL, "meet at a barrier: world size %d", world_size);
    int rc = rt_store_key(store, name, &text, &k);
    if (rc < 0) return rc;
    struct crunrt_store *root = rt_store_lock(store);
    rc = store_barrier(root->base, k, world_size, rt_timeout(timeout_ms, store->timeout_ms),
                       rt_last_error());
    (void) pthread_mutex_unlock(&root->lock);
    return rc;
}

/* ---- several keys ---- */

/* Copies of all values, each for crunrt_free(); none on failure. */
static int copy_values(const struct store_list *list, void **values, size_t *lens) {
    for (size_t i = 0; i < list->count; i++) {
        values[i] = malloc(list->items[i].len + 1);
        if (values[i] == NULL) {
            while (i > 0) free(values[--i]);
            return fail_memory("get several keys");
        }
        memcpy(values[i], list->items[i].data, list->items[i].len + 1); /* and its NUL */
        if (lens != NULL) lens[i] = list->items[i].len;
    }
    return 0;
}

int crunrt_store_multi_get(crunrt_store *store, const char *const *keys, size_t key_count,
                           int64_t timeout_ms, void **values, size_t *lens) {
    struct rt_key_list names;
    struct store_list list = {0};
    if (values == NULL && key_count > 0) return rt_fail_null("get several keys", "values");
    int rc = rt_key_list_init(&names, store, keys, key_count);
    if (rc < 0) return rc;
    struct crunrt_store *root = rt_store_lock(store);
    rc = store_multi_get(root->base, names.keys, names.count,
                         rt_timeout(timeout_ms, store->timeout_ms), &list, rt_last_error());
    (void) pthread_mutex_unlock(&root->lock);
    rt_key_list_done(&names);
    if (rc == 0) rc = copy_values(&list, values, lens);
    store_list_done(&list);
    return rc;
}

int crunrt_store_multi_set(crunrt_store *store, const char *const *keys, const void *const *values,
                           const size_t *lens, size_t key_count) {
    struct rt_key_list names;
    if (values == NULL && key_count > 0) return rt_fail_null("set several keys", "values");
    if (lens == NULL && key_count > 0) return rt_fail_null("set several keys", "lens");
    int rc = rt_key_list_init(&names, store, keys, key_count);
    if (rc < 0) return rc;
    CR_AUTO_FREE struct store_bytes *bytes = calloc(key_count + 1, sizeof(*bytes));
    if (bytes == NULL) {
        rt_key_list_done(&names);
        return fail_memory("set several keys");
    }
    for (size_t i = 0; rc == 0 && i < key_count; i++) {
        rc = rt_check_value(keys[i], values[i], lens[i]);
        bytes[i] = (struct store_bytes){values[i], lens[i]};
    }
    if (rc == 0) {
        struct crunrt_store *root = rt_store_lock(store);
        rc = store_multi_set(root->base, names.keys, bytes, names.count, store->timeout_ms,
                             rt_last_error());
        (void) pthread_mutex_unlock(&root->lock);
    }
    rt_key_list_done(&names);
    return rc;
}

/* The keys below a prefix, in one block: the array of pointers, then the texts. */
static int collect(const struct store_list *list, const char *prefix, char ***keys, size_t *count) {
    size_t prefix_len = strlen(prefix), kept = 0, bytes = 0;
    for (size_t i = 0; i < list->count; i++) bytes += list->items[i].len + 1;
    char **block = malloc((list->count + 1) * sizeof(*block) + bytes);
    if (block == NULL) return fail_memory("list the keys");
    char *at = (char *) (block + list->count + 1);
    for (size_t i = 0; i < list->count; i++) {
        struct store_bytes key = list->items[i];
        if (key.len < prefix_len || memcmp(key.data, prefix, prefix_len) != 0) continue;
        block[kept++] = at;
        memcpy(at, (const char *) key.data + prefix_len, key.len - prefix_len + 1);
        at += key.len - prefix_len + 1;
    }
    block[kept] = NULL;
    *keys = block;
    *count = kept;
    return 0;
}

int crunrt_store_list_keys(crunrt_store *store, char ***keys, size_t *count) {
    struct store_list list = {0};
    if (store == NULL) return rt_fail_null("list the keys", "the store");
    if (keys == NULL) return rt_fail_null("list the keys", "keys");
    if (count == NULL) return rt_fail_null("list the keys", "count");
    struct crunrt_store *root = rt_store_lock(store);
    int rc = store_list_keys(root->base, store->timeout_ms, &list, rt_last_error());
    (void) pthread_mutex_unlock(&root->lock);
    if (rc == 0) rc = collect(&list, store->prefix, keys, count);
    store_list_done(&list);
    return rc;
}

/* ---- queues ---- */

int crunrt_store_queue_push(crunrt_store *store, const char *name, const void *value, size_t len) {
    CR_AUTO_FREE char *text = NULL;
    struct store_bytes k;
    int rc = rt_store_key(store, name, &text, &k);
    if (rc == 0) rc = rt_check_value(name, value, len);
    if (rc < 0) return rc;
    struct crunrt_store *root = rt_store_lock(store);
    rc = store_queue_push(root->base, k, (struct store_bytes){value, len}, store->timeout_ms,
                          rt_last_error());
    (void) pthread_mutex_unlock(&root->lock);
    return rc;
}

int crunrt_store_queue_pop(crunrt_store *store, const char *name, int64_t timeout_ms, void **value,
                           size_t *len) {
    CR_AUTO_FREE char *text = NULL;
    struct store_bytes k;
    size_t n = 0;
    if (value == NULL) return rt_fail_null("pop from a queue", "value");
    int rc = rt_store_key(store, name, &text, &k);
    if (rc < 0) return rc;
    struct crunrt_store *root = rt_store_lock(store);
    rc = store_queue_pop(root->base, k, rt_timeout(timeout_ms, store->timeout_ms), value, &n,
                         rt_last_error());
    (void) pthread_mutex_unlock(&root->lock);
    if (rc == 0 && len != NULL) *len = n;
    return rc;
}

int crunrt_store_queue_len(crunrt_store *store, const char *name, int64_t *count) {
    CR_AUTO_FREE char *text = NULL;
    struct store_bytes k;
    if (count == NULL) return rt_fail_null("measure a queue", "count");
    int rc = rt_store_key(store, name, &text, &k);
    if (rc < 0) return rc;
    struct crunrt_store *root = rt_store_lock(store);
    rc = store_queue_len(root->base, k, store->timeout_ms, count, rt_last_error());
    (void) pthread_mutex_unlock(&root->lock);
    return rc;
}
