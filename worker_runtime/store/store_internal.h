/* What the files of this chamber share: a call's turn on the connection, and its keys. */
#ifndef RUNTIME_STORE_INTERNAL_H
#define RUNTIME_STORE_INTERNAL_H

#include "worker_runtime/report/report.h"
#include "worker_runtime/store/store.h"

/* One call on one key: the key with its prefixes, and the root's client, locked.
 *
 *     struct turn t;
 *     int rc = turn_begin(&t, store, key);
 *     if (rc < 0) return rc;
 *     rc = store_delete(t.base, t.key, …);
 *     turn_end(&t); */
struct turn {
    struct crunrt_store *root;
    struct store *base;
    char *text; /* of `key` */
    struct store_bytes key;
};

/* Takes the turn. 0, -EINVAL or -ENOMEM; after a failure there is no turn to end. */
int turn_begin(struct turn *t, struct crunrt_store *store, const char *key);

/* The same for a call without a key, or with a list of keys. `store` is not NULL. */
void turn_take(struct turn *t, struct crunrt_store *store);

void turn_end(struct turn *t);

/* 0, or -EINVAL if `value` is NULL and `len` is not 0. */
int check_value(const char *key, const void *value, size_t len);

/* Several keys with their prefixes. */
struct key_list {
    struct store_bytes *keys;
    size_t count;
};

/* 0, -EINVAL or -ENOMEM; after a failure there is nothing to free. */
int key_list_init(struct key_list *list, const struct crunrt_store *store, const char *const *keys,
                  size_t key_count);
void key_list_done(struct key_list *list);

#endif
