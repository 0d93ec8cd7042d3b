/* The hash table of the key space: a map from keys to entries, with a list of entries per bucket.
 *
 * The hash is SipHash with a random seed, so that a client cannot choose keys that all fall into
 * one bucket. When the table grows or shrinks, its entries move to a new array of buckets. Each
 * look-up moves only a few buckets, so that no single request has to move a million keys: while a
 * table grows to a million keys, no pause is longer than 10 ms (docs/protocols/store.md, section
 * 8). */
#ifndef STORE_KEYSPACE_KEY_TABLE_H
#define STORE_KEYSPACE_KEY_TABLE_H

#include <stddef.h>
#include <stdint.h>

struct store_value;
struct store_extra;

struct store_entry {
    struct store_entry *next;  /* next entry of the same bucket */
    /* NULL if the key does not exist and the entry is only here for waits, watches or a queue */
    struct store_value *value;
    struct store_extra *extra; /* waits, watches and queue; NULL for nearly all keys */
    uint32_t hash;
    uint32_t key_len;
    uint8_t key[];
};

struct store_key_table {
    uint64_t seed[2];
    /* [0] is the array of buckets. While the table changes its size, [0] is the old array and [1]
     * the new one; at other times [1] is NULL. */
    struct store_entry **buckets[2];
    size_t sizes[2];                 /* number of buckets in each array, a power of two */
    size_t moved;                    /* number of buckets of the old array that are moved already */
    size_t count;
};

uint64_t store_hash(const uint64_t seed[2], const void *data, size_t len); /* SipHash-1-3 */

void store_key_table_init(struct store_key_table *t, const uint64_t seed[2]);
void store_key_table_done(struct store_key_table *t); /* frees the arrays, not the entries */

struct store_entry *store_key_table_find(struct store_key_table *t, const void *key, size_t len);

/* ---- a look-up in steps, for a caller that looks up many keys ----
 *
 * The caller first computes the hashes of several keys, then prefetches the cache lines of all
 * their entries, then looks the keys up. Call store_key_table_insert() only for a key that
 * was not found; the function returns NULL if memory is short. */
uint32_t store_key_table_hash(const struct store_key_table *t, const void *key, size_t len);
void store_key_table_fetch(struct store_key_table *t, const uint32_t *hashes, size_t count);
struct store_entry *store_key_table_find_hashed(struct store_key_table *t, uint32_t hash,
                                                const void *key, size_t len);
struct store_entry *store_key_table_insert(struct store_key_table *t, uint32_t hash,
                                           const void *key, size_t len);
/* Removes the entry from the table and frees the entry, but not the value and the extra part. */
void store_key_table_remove(struct store_key_table *t, struct store_entry *e);

/* Calls `visit` for every entry, in any order. `visit` must not change the table. */
void store_key_table_each(const struct store_key_table *t,
                          void (*visit)(void *arg, struct store_entry *e), void *arg);

/* Calls `visit` for the entries of a few buckets, beginning at the cursor. Returns the cursor for
 * the next call, or STORE_SCAN_END if all entries have been visited. The first call gets the cursor
 * 0. The table may change between two calls: an entry that is in the table from the first call to
 * the last is visited exactly once, any other entry at most once. */
#define STORE_SCAN_END (UINT64_C(1) << 32)
uint64_t store_key_table_scan(const struct store_key_table *t, uint64_t cursor,
                              void (*visit)(void *arg, struct store_entry *e), void *arg);

#endif
