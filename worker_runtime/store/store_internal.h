/* What the calls on a store use: a turn, in which the calling thread uses the connection alone, and
 * keys with the store's prefix. */
#ifndef RUNTIME_STORE_INTERNAL_H
#define RUNTIME_STORE_INTERNAL_H

#include "worker_runtime/report/report.h"
#include "worker_runtime/store/store.h"

/* A turn: the time during which one thread uses a store's connection alone, for one call. The
 * struct also has the call's key, with the store's prefix.
 *
 *     struct turn t;
 *     int rc = turn_begin(&t, store, key);
 *     if (rc < 0) return rc;
 *     rc = store_delete(t.base, t.key, …);
 *     turn_end(&t); */
struct turn {
    struct crunrt_store *root;
    struct store *base;
    char *text; /* the key with its prefix, to which `key` points; turn_end() frees it */
    struct store_bytes key;
};

/* Begins a turn for a call with one key: puts the store's prefix in front of `key`, and waits until
 * no other thread uses the connection. If the store's `never_waits` is true and another thread uses
 * the connection, returns -EBUSY instead of waiting. Returns 0, -EINVAL, -ENOMEM or -EBUSY. After
 * an error, turn_end() must not be called. */
int turn_begin(struct turn *t, struct crunrt_store *store, const char *key);

/* Begins a turn for a call without a key or with several keys: waits until no other thread uses the
 * connection. `store` must not be NULL. */
void turn_take(struct turn *t, struct crunrt_store *store);

void turn_end(struct turn *t);

/* Returns 0; or -EINVAL, with the thread's error text set, if `value` is NULL although `len` is not
 * 0. */
int check_value(const char *key, const void *value, size_t len);

/* A list of several keys, each with the store's prefix in front of it. */
struct key_list {
    struct store_bytes *keys;
    size_t count;
};

/* Fills the list with `keys`, each with the store's prefix in front of it. Returns 0, -EINVAL or
 * -ENOMEM. After an error, key_list_done() need not be called. */
int key_list_init(struct key_list *list, const struct crunrt_store *store, const char *const *keys,
                  size_t key_count);
void key_list_done(struct key_list *list);

#endif
