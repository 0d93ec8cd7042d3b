/* The calls on several keys, and the call that lists the keys of a store. */
#include "worker_runtime/store/store_internal.h"

#include "base/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int fail_memory(const char *what) {
    return cr_fail(rt_last_error(), -ENOMEM, "%s: out of memory", what);
}

/* Copies every value of the list, with the NUL after it, to memory of its own. Returns 0; or
 * -ENOMEM, in which case it frees all copies. */
static int copy_values(const struct store_list *list, void **values, size_t *lens) {
    for (size_t i = 0; i < list->count; i++) {
        values[i] = malloc(list->items[i].len + 1);
        if (values[i] == NULL) {
            while (i > 0) free(values[--i]);
            return fail_memory("get several keys");
        }
        memcpy(values[i], list->items[i].data, list->items[i].len + 1);
        if (lens != NULL) lens[i] = list->items[i].len;
    }
    return 0;
}

int crunrt_store_wait(crunrt_store *store, const char *const *keys, size_t key_count,
                      int64_t timeout_ms) {
    struct key_list list;
    struct turn t;
    int rc = key_list_init(&list, store, keys, key_count);
    if (rc < 0) return rc;
    turn_take(&t, store);
    rc = store_wait(t.base, list.keys, list.count, rt_timeout(timeout_ms, store->timeout_ms),
                    rt_last_error());
    turn_end(&t);
    key_list_done(&list);
    return rc;
}

int crunrt_store_check(crunrt_store *store, const char *const *keys, size_t key_count,
                       int *present) {
    struct key_list list;
    struct turn t;
    if (present == NULL) return rt_fail_null("check keys", "present");
    int rc = key_list_init(&list, store, keys, key_count);
    if (rc < 0) return rc;
    turn_take(&t, store);
    rc = store_check(t.base, list.keys, list.count, store->timeout_ms, present,
                     rt_last_error());
    turn_end(&t);
    key_list_done(&list);
    return rc;
}

int crunrt_store_multi_get(crunrt_store *store, const char *const *keys, size_t key_count,
                           int64_t timeout_ms, void **values, size_t *lens) {
    struct key_list names;
    struct store_list list = {0};
    if (values == NULL && key_count > 0) return rt_fail_null("get several keys", "values");
    int rc = key_list_init(&names, store, keys, key_count);
    if (rc < 0) return rc;
    struct turn t;
    turn_take(&t, store);
    rc = store_multi_get(t.base, names.keys, names.count,
                         rt_timeout(timeout_ms, store->timeout_ms), &list, rt_last_error());
    turn_end(&t);
    key_list_done(&names);
    if (rc == 0) rc = copy_values(&list, values, lens);
    store_list_done(&list);
    return rc;
}

static int send_values(crunrt_store *store, const struct key_list *names,
                       const struct store_bytes *values) {
    struct turn t;
    turn_take(&t, store);
    int rc = store_multi_set(t.base, names->keys, values, names->count, store->timeout_ms,
                             rt_last_error());
    turn_end(&t);
    return rc;
}

int crunrt_store_multi_set(crunrt_store *store, const char *const *keys, const void *const *values,
                           const size_t *lens, size_t key_count) {
    struct key_list names;
    if (values == NULL && key_count > 0) return rt_fail_null("set several keys", "values");
    if (lens == NULL && key_count > 0) return rt_fail_null("set several keys", "lens");
    int rc = key_list_init(&names, store, keys, key_count);
    if (rc < 0) return rc;
    CR_AUTO_FREE struct store_bytes *bytes = calloc(key_count + 1, sizeof(*bytes));
    if (bytes == NULL) {
        key_list_done(&names);
        return fail_memory("set several keys");
    }
    for (size_t i = 0; rc == 0 && i < key_count; i++) {
        rc = check_value(keys[i], values[i], lens[i]);
        bytes[i] = (struct store_bytes){values[i], lens[i]};
    }
    if (rc == 0) rc = send_values(store, &names, bytes);
    key_list_done(&names);
    return rc;
}

/* Copies the keys of the list that begin with `prefix`, without this prefix, into one piece of
 * memory: first an array of pointers, then the texts. Returns 0 or -ENOMEM. */
static int copy_keys(const struct store_list *list, const char *prefix, char ***keys,
                     size_t *count) {
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
    struct turn t;
    if (store == NULL) return rt_fail_null("list the keys", "the store");
    if (keys == NULL) return rt_fail_null("list the keys", "keys");
    if (count == NULL) return rt_fail_null("list the keys", "count");
    turn_take(&t, store);
    int rc = store_list_keys(t.base, store->timeout_ms, &list, rt_last_error());
    turn_end(&t);
    if (rc == 0) rc = copy_keys(&list, store->prefix, keys, count);
    store_list_done(&list);
    return rc;
}
