/* The store as programs see it: the room store's blocking client, plus default timeouts, prefixes
 * and turns between threads. A prefixed view holds no connection; it goes to its root. */
#include "worker_runtime/store/store_internal.h"

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int64_t rt_timeout(int64_t timeout_ms, int64_t fallback_ms) {
    return timeout_ms < 0 ? fallback_ms : timeout_ms;
}

/* ---- opening ---- */

static int store_new(struct crunrt_store *parent, const char *prefix, int64_t timeout_ms,
                     struct crunrt_store **out) {
    struct crunrt_store *s = calloc(1, sizeof(*s));
    char *copy = cr_asprintf("%s%s%s", parent != NULL ? parent->prefix : "", prefix,
                             prefix[0] != '\0' ? "/" : "");
    if (s == NULL || copy == NULL) {
        free(s);
        free(copy);
        return cr_fail(rt_last_error(), -ENOMEM, "open a store: out of memory");
    }
    s->parent = parent;
    s->prefix = copy;
    s->timeout_ms = timeout_ms;
    (void) pthread_mutex_init(&s->lock, NULL); /* cannot fail with default attributes */
    *out = s;
    return 0;
}

int crunrt_store_open(const char *host, int port, int64_t timeout_ms, crunrt_store **out) {
    if (out == NULL) return rt_fail_null("open a store", "out");
    if (host == NULL || host[0] == '\0' || port < 1 || port > 65535) {
        return cr_fail(rt_last_error(), -EINVAL, "open the store at '%s' port %d: not an address",
                       host != NULL ? host : "", port);
    }
    struct crunrt_store *s = NULL;
    int rc = store_new(NULL, "", rt_timeout(timeout_ms, CRUNRT_TIMEOUT_MS), &s);
    if (rc < 0) return rc;
    struct store_client *client = NULL;
    rc = store_client_connect(host, (uint16_t) port, STORE_PROTOCOL_PROBE, s->timeout_ms, &client,
                              rt_last_error());
    if (rc < 0) {
        crunrt_store_close(s);
        return rc;
    }
    s->base = store_client_store(client);
    *out = s;
    return 0;
}

int rt_store_move(crunrt_store *store, const char *host, uint16_t port, int64_t timeout_ms) {
    struct store_client *client = NULL;
    int rc = store_client_connect(host, port, STORE_PROTOCOL_PROBE, timeout_ms, &client,
                                  rt_last_error());
    if (rc < 0) return rc;
    (void) pthread_mutex_lock(&store->lock);
    struct store *before = store->base;
    store->base = store_client_store(client);
    (void) pthread_mutex_unlock(&store->lock);
    store_close(before);
    return 0;
}

int rt_store_open_file(const char *path, int world_size, int64_t timeout_ms, crunrt_store **out) {
    struct crunrt_store *s = NULL;
    int rc = store_new(NULL, "", timeout_ms, &s);
    if (rc < 0) return rc;
    rc = store_file_open(path, world_size, &s->base, rt_last_error());
    if (rc < 0) {
        crunrt_store_close(s);
        return rc;
    }
    *out = s;
    return 0;
}

int crunrt_store_prefix(crunrt_store *store, const char *prefix, crunrt_store **out) {
    if (store == NULL) return rt_fail_null("prefix a store", "the store");
    if (out == NULL) return rt_fail_null("prefix a store", "out");
    if (prefix == NULL || prefix[0] == '\0')
        return cr_fail(rt_last_error(), -EINVAL, "prefix a store: the prefix is empty");
    return store_new(store, prefix, store->timeout_ms, out);
}

void crunrt_store_close(crunrt_store *store) {
    if (store == NULL) return;
    if (store->base != NULL) store_close(store->base);
    (void) pthread_mutex_destroy(&store->lock);
    free(store->prefix);
    free(store);
}

/* ---- one call: take the turn, build the raw key ---- */

struct crunrt_store *rt_store_lock(struct crunrt_store *store) {
    while (store->parent != NULL) store = store->parent;
    (void) pthread_mutex_lock(&store->lock);
    return store;
}

static int check_key(const struct crunrt_store *store, const char *key) {
    if (store == NULL) return rt_fail_null("use a store", "the store");
    if (key == NULL) return rt_fail_null("use a store", "the key");
    if (strlen(store->prefix) + strlen(key) > CRUNRT_KEY_MAX) {
        return cr_fail(rt_last_error(), -EINVAL, "use the key '%.64s…': longer than %zu bytes", key,
                       CRUNRT_KEY_MAX);
    }
    return 0;
}

int rt_store_key(const struct crunrt_store *store, const char *key, char **text,
                 struct store_bytes *out) {
    int rc = check_key(store, key);
    if (rc < 0) return rc;
    *text = cr_asprintf("%s%s", store->prefix, key);
    if (*text == NULL)
        return cr_fail(rt_last_error(), -ENOMEM, "use the key '%s': out of memory", key);
    *out = STORE_BYTES(*text);
    return 0;
}

int rt_check_value(const char *key, const void *value, size_t len) {
    if (value != NULL || len == 0) return 0;
    return cr_fail(rt_last_error(), -EINVAL, "set '%.64s': the value is NULL, its length %zu", key,
                   len);
}

int crunrt_store_set(crunrt_store *store, const char *key, const void *value, size_t len) {
    CR_AUTO_FREE char *text = NULL;
    struct store_bytes k;
    int rc = rt_store_key(store, key, &text, &k);
    if (rc == 0) rc = rt_check_value(key, value, len);
    if (rc < 0) return rc;
    struct crunrt_store *root = rt_store_lock(store);
    rc = store_set(root->base, k, (struct store_bytes){value, len}, store->timeout_ms,
                   rt_last_error());
    (void) pthread_mutex_unlock(&root->lock);
    return rc;
}

int crunrt_store_get(crunrt_store *store, const char *key, int64_t timeout_ms, void **value,
                     size_t *len) {
    CR_AUTO_FREE char *text = NULL;
    struct store_bytes k;
    int rc = rt_store_key(store, key, &text, &k);
    if (rc == 0 && value == NULL) rc = rt_fail_null("get a key", "value");
    if (rc < 0) return rc;
    struct crunrt_store *root = rt_store_lock(store);
    size_t n = 0;
    rc = store_get(root->base, k, rt_timeout(timeout_ms, store->timeout_ms), value, &n,
                   rt_last_error());
    (void) pthread_mutex_unlock(&root->lock);
    if (rc == 0 && len != NULL) *len = n;
    return rc;
}

int crunrt_store_add(crunrt_store *store, const char *key, int64_t delta, int64_t *total) {
    CR_AUTO_FREE char *text = NULL;
    struct store_bytes k;
    int rc = rt_store_key(store, key, &text, &k);
    if (rc < 0) return rc;
    struct crunrt_store *root = rt_store_lock(store);
    int64_t sum = 0;
    rc = store_add(root->base, k, delta, store->timeout_ms, &sum, rt_last_error());
    (void) pthread_mutex_unlock(&root->lock);
    if (rc == 0 && total != NULL) *total = sum;
    return rc;
}

int crunrt_store_compare_set(crunrt_store *store, const char *key, const void *expected,
                             size_t expected_len, const void *desired, size_t desired_len,
                             void **value, size_t *len) {
    CR_AUTO_FREE char *text = NULL;
    struct store_bytes k;
    int rc = rt_store_key(store, key, &text, &k);
    if (rc == 0) rc = rt_check_value(key, expected, expected_len);
    if (rc == 0) rc = rt_check_value(key, desired, desired_len);
    if (rc < 0) return rc;
    struct crunrt_store *root = rt_store_lock(store);
    void *held = NULL;
    size_t n = 0;
    rc = store_compare_set(root->base, k, (struct store_bytes){expected, expected_len},
                           (struct store_bytes){desired, desired_len}, store->timeout_ms, &held, &n,
                           rt_last_error());
    (void) pthread_mutex_unlock(&root->lock);
    if (rc < 0) return rc;
    if (len != NULL) *len = n;
    if (value != NULL)
        *value = held;
    else
        free(held);
    return 0;
}

/* ---- calls on lists of keys ---- */

void rt_key_list_done(struct rt_key_list *list) {
    for (size_t i = 0; i < list->count; i++) free((void *) (uintptr_t) list->keys[i].data);
    free(list->keys);
}

int rt_key_list_init(struct rt_key_list *list, const struct crunrt_store *store,
                     const char *const *keys, size_t key_count) {
    *list = (struct rt_key_list){NULL, 0};
    if (store == NULL) return rt_fail_null("use a store", "the store");
    if (keys == NULL && key_count > 0) return rt_fail_null("use a store", "the list of keys");
    if (key_count > STORE_LIST_MAX) {
        return cr_fail(rt_last_error(), -EINVAL, "use %zu keys: more than %zu at once", key_count,
                       STORE_LIST_MAX);
    }
    list->keys = calloc(key_count > 0 ? key_count : 1, sizeof(*list->keys));
    if (list->keys == NULL)
        return cr_fail(rt_last_error(), -ENOMEM, "use %zu keys: out of memory", key_count);
    for (; list->count < key_count; list->count++) {
        char *text = NULL;
        int rc = rt_store_key(store, keys[list->count], &text, &list->keys[list->count]);
        if (rc < 0) {
            rt_key_list_done(list);
            return rc;
        }
    }
    return 0;
}

int crunrt_store_wait(crunrt_store *store, const char *const *keys, size_t key_count,
                      int64_t timeout_ms) {
    struct rt_key_list list;
    int rc = rt_key_list_init(&list, store, keys, key_count);
    if (rc < 0) return rc;
    struct crunrt_store *root = rt_store_lock(store);
    rc = store_wait(root->base, list.keys, list.count, rt_timeout(timeout_ms, store->timeout_ms),
                    rt_last_error());
    (void) pthread_mutex_unlock(&root->lock);
    rt_key_list_done(&list);
    return rc;
}

int crunrt_store_check(crunrt_store *store, const char *const *keys, size_t key_count,
                       int *present) {
    struct rt_key_list list;
    if (present == NULL) return rt_fail_null("check keys", "present");
    int rc = rt_key_list_init(&list, store, keys, key_count);
    if (rc < 0) return rc;
    struct crunrt_store *root = rt_store_lock(store);
    rc =
        store_check(root->base, list.keys, list.count, store->timeout_ms, present, rt_last_error());
    (void) pthread_mutex_unlock(&root->lock);
    rt_key_list_done(&list);
    return rc;
}

int crunrt_store_delete(crunrt_store *store, const char *key, int *deleted) {
    CR_AUTO_FREE char *text = NULL;
    struct store_bytes k;
    int rc = rt_store_key(store, key, &text, &k);
    if (rc < 0) return rc;
    struct crunrt_store *root = rt_store_lock(store);
    int existed = 0;
    rc = store_delete(root->base, k, store->timeout_ms, &existed, rt_last_error());
    (void) pthread_mutex_unlock(&root->lock);
    if (rc == 0 && deleted != NULL) *deleted = existed;
    return rc;
}

int crunrt_store_num_keys(crunrt_store *store, int64_t *count) {
    if (store == NULL) return rt_fail_null("count the keys", "the store");
    if (count == NULL) return rt_fail_null("count the keys", "count");
    struct crunrt_store *root = rt_store_lock(store);
    int rc = store_num_keys(root->base, store->timeout_ms, count, rt_last_error());
    (void) pthread_mutex_unlock(&root->lock);
    return rc;
}
