/* The hash table of the key space: chained, with a secret seed, rehashed a few buckets at a time.
 *
 * The hash is SipHash with a random seed, so that a client cannot choose keys that all fall
 * into one bucket. The table grows and shrinks in steps of a few buckets per request, so that
 * no single request pays for moving a million keys: growing to a million keys, no moment is
 * longer than 10 ms (docs/protocols/store.md, section 8). */
#ifndef STORE_KEYSPACE_KEY_TABLE_H
#define STORE_KEYSPACE_KEY_TABLE_H

#include <stddef.h>
#include <stdint.h>

struct store_value;
struct store_extra;

struct store_entry {
    struct store_entry *next;  /* in its bucket */
    struct store_value *value; /* NULL: there is no key, but something refers to the name */
    struct store_extra *extra; /* waiters, watches, a queue; NULL for nearly all names */
    uint32_t hash;
    uint32_t key_len;
    uint8_t key[];
};

struct store_key_table {
    uint64_t seed[2];
    struct store_entry **buckets[2]; /* [1] is the array that entries are being moved to, or NULL */
    size_t sizes[2];                 /* powers of two */
    size_t moved;                    /* buckets of [0] that have been moved */
    size_t count;
};

uint64_t store_hash(const uint64_t seed[2], const void *data, size_t len); /* SipHash-1-3 */

void store_key_table_init(struct store_key_table *t, const uint64_t seed[2]);
void store_key_table_done(struct store_key_table *t); /* frees the arrays, not the entries */

struct store_entry *store_key_table_find(struct store_key_table *t, const void *key, size_t len);
/* Finds or inserts (with value and extra NULL). Returns NULL when memory is short. */
struct store_entry *store_key_table_obtain(struct store_key_table *t, const void *key, size_t len);

/* The same in steps, for a caller that looks up many keys: it computes the hashes of several
 * keys, then has the cache lines that they lead to fetched at the same time, then looks them
 * up. Only a key that was not found may be inserted. */
uint32_t store_key_table_hash(const struct store_key_table *t, const void *key, size_t len);
void store_key_table_fetch(struct store_key_table *t, const uint32_t *hashes, size_t count);
struct store_entry *store_key_table_find_hashed(struct store_key_table *t, uint32_t hash,
                                                const void *key, size_t len);
struct store_entry *store_key_table_insert(struct store_key_table *t, uint32_t hash,
                                           const void *key, size_t len);
/* Unlinks and frees the entry. */
void store_key_table_remove(struct store_key_table *t, struct store_entry *e);

/* Calls `visit` for every entry, in no order. `visit` must not change the table. */
void store_key_table_each(const struct store_key_table *t,
                          void (*visit)(void *arg, struct store_entry *e), void *arg);

/* Calls `visit` for a few entries, beginning at the cursor (0 at first), and returns the next
 * cursor, or STORE_SCAN_END after the last entry. The table may change between two calls: an
 * entry that is there all the time is visited exactly once, any other at most once. */
#define STORE_SCAN_END (UINT64_C(1) << 32)
uint64_t store_key_table_scan(const struct store_key_table *t, uint64_t cursor,
                              void (*visit)(void *arg, struct store_entry *e), void *arg);

#endif
