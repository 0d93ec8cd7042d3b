/* The object crunrt_store of crunrt.h: a client of the store (store/store.h) with a default
 * timeout, a prefix for keys, and a lock, because several threads may use the object. */
#ifndef RUNTIME_STORE_H
#define RUNTIME_STORE_H

#include "store/store.h"

#include <crunrt.h>

#include <pthread.h>
#include <stdbool.h>

#define CRUNRT_TIMEOUT_MS INT64_C(300000) /* default timeout in ms of a store's calls, as in
                                           * torch */
#define CRUNRT_KEY_MAX    ((size_t) 8000) /* longest key in bytes, its prefixes included */

/* A root or a view. A root has a connection to a server. A view only adds a prefix to keys; a call
 * on a view uses the connection of the root at the end of the view's chain of parents. */
struct crunrt_store {
    struct crunrt_store *parent; /* the store to which this view belongs; NULL if this is a root */
    struct store *base;          /* the client, which has the connection; NULL if this is a view */
    pthread_mutex_t lock;        /* held during each call on `base`; a view does not use its own */
    int64_t timeout_ms;
    char *prefix; /* text in front of every key, such as "a/b/"; may be "" */
    /* true if a call with one key does not wait when another thread uses the connection, but
     * returns -EBUSY; always false in a root */
    bool never_waits;
};

/* Connects a root to another server. Pointers to the store and to its views stay valid, and later
 * calls on them go to the new server. Returns 0. If connecting fails, returns a negative errno, and
 * the store keeps its old connection. */
int rt_store_move(crunrt_store *store, const char *host, uint16_t port, int64_t timeout_ms);

/* Opens a store in a file that `world_size` processes share. The last process that closes the store
 * deletes the file. Returns 0 or a negative errno. */
int rt_store_open_file(const char *path, int world_size, int64_t timeout_ms, crunrt_store **out);

/* Returns timeout_ms, or fallback_ms if timeout_ms is negative, as CRUNRT_TIMEOUT_DEFAULT is. */
int64_t rt_timeout(int64_t timeout_ms, int64_t fallback_ms);

#endif
