/* The keys of a file store in memory: a map from each key to its last value.
 *
 * Zero-initialise a map. It is a tree made with tsearch(3) of libc. The server has a hash table,
 * but libcrunrt, which links this file, shall not contain it. */
#ifndef STORE_CLIENT_FILE_KEYS_H
#define STORE_CLIENT_FILE_KEYS_H

#include "store/bytes/bytes.h"

#include <sys/queue.h>

struct store_file_key {
    struct store_bytes key; /* first field, because tsearch(3) gets a pointer to the entry as a
                             * pointer to its key */
    struct store_bytes value;
    LIST_ENTRY(store_file_key) next; /* links of the list store_file_keys.all, which has no order */
};

struct store_file_keys {
    void *tree;
    LIST_HEAD(, store_file_key) all;
    size_t count;
};

/* Returns the value of a key, or NULL if the key does not exist. The result is valid until the map
 * changes. */
const struct store_bytes *store_file_keys_find(const struct store_file_keys *keys,
                                               struct store_bytes key);
/* Sets a key; copies key and value. Returns 0, or -ENOMEM and leaves the map unchanged. */
int store_file_keys_put(struct store_file_keys *keys, struct store_bytes key,
                        struct store_bytes value);
void store_file_keys_remove(struct store_file_keys *keys, struct store_bytes key);
void store_file_keys_clear(struct store_file_keys *keys);

#endif
