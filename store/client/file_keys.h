/* The keys of a file store in memory: a map from each key to its last value.
 *
 * Zero-initialise. The tree is tsearch(3) of libc: libcrunrt, which links this file, needs neither
 * the server's hash table nor its shared values. */
#ifndef STORE_CLIENT_FILE_KEYS_H
#define STORE_CLIENT_FILE_KEYS_H

#include "store/bytes/bytes.h"

#include <sys/queue.h>

struct store_file_key {
    struct store_bytes key; /* first: what the tree compares */
    struct store_bytes value;
    LIST_ENTRY(store_file_key) next; /* of all keys, in no order */
};

struct store_file_keys {
    void *tree;
    LIST_HEAD(, store_file_key) all;
    size_t count;
};

/* The value of a key, borrowed until the map changes; NULL if there is no such key. */
const struct store_bytes *store_file_keys_find(const struct store_file_keys *keys,
                                               struct store_bytes key);
/* Copies both. Returns 0, or -ENOMEM with nothing changed. */
int store_file_keys_put(struct store_file_keys *keys, struct store_bytes key,
                        struct store_bytes value);
void store_file_keys_remove(struct store_file_keys *keys, struct store_bytes key);
void store_file_keys_clear(struct store_file_keys *keys);

#endif
