/* The store behind crunrt.h's calls: a client of the room store, with a default timeout, prefixes,
 * and turns between threads. */
#ifndef RUNTIME_STORE_H
#define RUNTIME_STORE_H

#include "store/store.h"

#include <crunrt.h>

#include <pthread.h>

#define CRUNRT_TIMEOUT_MS INT64_C(300000) /* torch's default timeout of a store */
#define CRUNRT_KEY_MAX    ((size_t) 8000) /* bytes of a key, its prefixes included */

/* A connection, or a view with a prefix. A view has no connection of its own: its calls go to the
 * store at the end of its chain of parents, the root. */
struct crunrt_store {
    struct crunrt_store *parent; /* NULL: this is a root */
    struct store *base;          /* the client; NULL in a view */
    pthread_mutex_t lock;        /* held during each call on `base`; unused in a view */
    int64_t timeout_ms;
    char *prefix; /* in front of every key: "", or "a/b/" */
};

/* Connects a root to another server. The store and its views stay valid for their users; their
 * next calls go to the new server. On failure nothing changes. */
int rt_store_move(crunrt_store *store, const char *host, uint16_t port, int64_t timeout_ms);

/* Opens a store in a file that world_size processes share; the last to close it removes the file.
 * */
int rt_store_open_file(const char *path, int world_size, int64_t timeout_ms, crunrt_store **out);

/* Returns timeout_ms, or fallback_ms if it is CRUNRT_TIMEOUT_DEFAULT. */
int64_t rt_timeout(int64_t timeout_ms, int64_t fallback_ms);

#endif
