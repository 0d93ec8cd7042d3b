/* The store as programs see it: struct crunrt_store behind crunrt.h's calls, as the other chambers of the
 * worker runtime need it. */
#ifndef RUNTIME_STORE_H
#define RUNTIME_STORE_H

#include "store/store.h"

#include <crunrt.h>

#include <pthread.h>

#define CRUNRT_TIMEOUT_MS INT64_C(300000) /* torch's default of a store */
#define CRUNRT_KEY_MAX    ((size_t) 8000) /* bytes of a key, its prefixes included */

/* One connection, shared by a store and its prefixed views. */
struct crunrt_store {
    struct crunrt_store *parent; /* NULL: this one owns the client */
    struct store *base;          /* NULL in a view */
    pthread_mutex_t lock;        /* turns on `base`; unused in a view */
    int64_t timeout_ms;
    char *prefix; /* "" or "a/b/", in front of every key */
};

/* Connects the store and its views to another server; what they are stays the same to their users. */
int rt_store_move(crunrt_store *store, const char *host, uint16_t port, int64_t timeout_ms);

/* A store in a file, shared by world_size processes; the last one to close it removes it. */
int rt_store_open_file(const char *path, int world_size, int64_t timeout_ms, crunrt_store **out);

/* `timeout_ms`, or the fallback if it is CRUNRT_TIMEOUT_DEFAULT. */
int64_t rt_timeout(int64_t timeout_ms, int64_t fallback_ms);

#endif
