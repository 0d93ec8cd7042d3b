/* Opens and closes stores and views. It also has the functions that each call on a store uses
 * first: they check the key, put the prefix in front of it, and lock the connection. */
#include "worker_runtime/store/store_internal.h"

#include "base/buffer.h"

#include <errno.h>
#include <stdint.h>
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
    (void) pthread_mutex_init(&s->lock, NULL); /* without attributes this cannot fail */
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

/* ---- keys ---- */

/* Puts the store's prefix in front of the key. Sets *text to the new text, which the caller frees,
 * and *out to the bytes of this text, without its NUL. Returns 0, -EINVAL or -ENOMEM. */
static int make_key(const struct crunrt_store *store, const char *key, char **text,
                    struct store_bytes *out) {
    if (store == NULL) return rt_fail_null("use a store", "the store");
    if (key == NULL) return rt_fail_null("use a store", "the key");
    if (strlen(store->prefix) + strlen(key) > CRUNRT_KEY_MAX) {
        return cr_fail(rt_last_error(), -EINVAL, "use the key '%.64s…': longer than %zu bytes", key,
                       CRUNRT_KEY_MAX);
    }
    *text = cr_asprintf("%s%s", store->prefix, key);
    if (*text == NULL)
        return cr_fail(rt_last_error(), -ENOMEM, "use the key '%s': out of memory", key);
    *out = STORE_BYTES(*text);
    return 0;
}

int check_value(const char *key, const void *value, size_t len) {
    if (value != NULL || len == 0) return 0;
    return cr_fail(rt_last_error(), -EINVAL, "set '%.64s': the value is NULL, its length %zu", key,
                   len);
}

void key_list_done(struct key_list *list) {
    for (size_t i = 0; i < list->count; i++) free((void *) (uintptr_t) list->keys[i].data);
    free(list->keys);
}

int key_list_init(struct key_list *list, const struct crunrt_store *store, const char *const *keys,
                  size_t key_count) {
    *list = (struct key_list){NULL, 0};
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
        int rc = make_key(store, keys[list->count], &text, &list->keys[list->count]);
        if (rc == 0) continue;
        key_list_done(list);
        return rc;
    }
    return 0;
}

/* ---- turns (see store_internal.h) ---- */

static int lock_root(struct turn *t, struct crunrt_store *store) {
    bool never_waits = store->never_waits;
    while (store->parent != NULL) store = store->parent;
    if (never_waits && pthread_mutex_trylock(&store->lock) != 0) return -EBUSY;
    if (!never_waits) (void) pthread_mutex_lock(&store->lock);
    t->root = store;
    t->base = store->base;
    return 0;
}

int turn_begin(struct turn *t, struct crunrt_store *store, const char *key) {
    *t = (struct turn){NULL};
    int rc = make_key(store, key, &t->text, &t->key);
    if (rc == 0) rc = lock_root(t, store);
    if (rc != -EBUSY) return rc;
    free(t->text);
    return cr_fail(rt_last_error(), rc, "use the key '%s': another thread uses the store", key);
}

void turn_take(struct turn *t, struct crunrt_store *store) {
    *t = (struct turn){NULL};
    (void) lock_root(t, store);
}

void turn_end(struct turn *t) {
    (void) pthread_mutex_unlock(&t->root->lock);
    free(t->text);
}
