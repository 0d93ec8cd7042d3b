/* The keys of a file store in memory: a map from each key to its last value.
 *
 * Zero-initialise a map before its first use. The map is a tree made with tsearch(3). It does not
 * use the hash table of the server, because this file is linked into libcrunrt, and libcrunrt shall
 * not contain the server's code. */
#ifndef STORE_CLIENT_FILE_KEYS_H
#define STORE_CLIENT_FILE_KEYS_H

#include "store/bytes/bytes.h"

#include <sys/queue.h>

struct store_file_key {
    struct store_bytes key; /* must be the first field, because compare() in file_keys.c uses a
                             * pointer to this struct as a pointer to the key */
    struct store_bytes value;
    LIST_ENTRY(store_file_key) next; /* links of the list store_file_keys.all, which has no order */
};

struct store_file_keys {
    void *tree;
    LIST_HEAD(, store_file_key) all;
    size_t count;
};

/* Returns the value of a key, or NULL if the key does not exist. The result is valid until the next
 * change of the map. */
const struct store_bytes *store_file_keys_find(const struct store_file_keys *keys,
                                               struct store_bytes key);
/* Sets a key to a value; copies both. Returns 0, or -ENOMEM and leaves the map unchanged. */
int store_file_keys_put(struct store_file_keys *keys, struct store_bytes key,
                        struct store_bytes value);
void store_file_keys_remove(struct store_file_keys *keys, struct store_bytes key);
void store_file_keys_clear(struct store_file_keys *keys);

#endif
