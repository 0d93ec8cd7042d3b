/* Declarations for every call on a store: a turn, which gives the calling thread the connection,
 * and keys with their prefixes. */
#ifndef RUNTIME_STORE_INTERNAL_H
#define RUNTIME_STORE_INTERNAL_H

#include "worker_runtime/report/report.h"
#include "worker_runtime/store/store.h"

/* A turn: the exclusive use of a root's client by one thread for one call, and the prefixed key of
 * this call.
 *
 *     struct turn t;
 *     int rc = turn_begin(&t, store, key);
 *     if (rc < 0) return rc;
 *     rc = store_delete(t.base, t.key, …);
 *     turn_end(&t); */
struct turn {
    struct crunrt_store *root;
    struct store *base;
    char *text; /* memory of the prefixed key, to which `key` points; turn_end() frees it */
    struct store_bytes key;
};

/* Makes the prefixed key, and waits until no other thread has the turn. Returns 0, -EINVAL,
 * -ENOMEM, or -EBUSY (the store never waits, and another thread has the turn). After a failure
 * turn_end() must not be called. */
int turn_begin(struct turn *t, struct crunrt_store *store, const char *key);

/* Begins a turn for a call without a key, or with a list of keys: waits until no other thread uses
 * the connection. `store` must not be NULL. */
void turn_take(struct turn *t, struct crunrt_store *store);

void turn_end(struct turn *t);

/* Returns 0; or -EINVAL if `value` is NULL and `len` is not 0. */
int check_value(const char *key, const void *value, size_t len);

/* Several keys, each with the store's prefix in front. */
struct key_list {
    struct store_bytes *keys;
    size_t count;
};

/* Makes the list of prefixed keys. Returns 0, -EINVAL or -ENOMEM. After a failure nothing needs to
 * be freed. */
int key_list_init(struct key_list *list, const struct crunrt_store *store, const char *const *keys,
                  size_t key_count);
void key_list_done(struct key_list *list);

#endif
