/* The hash table of the key space: chained, seeded, and rehashed a few buckets at a time.
 *
 * Keyed with SipHash, so that nobody can send keys that all fall into one bucket; grown and shrunk
 * step by step, so that no request pays for a million others. */
#ifndef STORE_KEYSPACE_KEY_TABLE_H
#define STORE_KEYSPACE_KEY_TABLE_H

#include <stddef.h>
#include <stdint.h>

struct store_value;
struct store_extra;

struct store_entry {
    struct store_entry *next;  /* in its bucket */
    struct store_value *value; /* NULL: the key does not exist, something only asks for its name */
    struct store_extra *extra; /* waiters, watchers, a queue; NULL for nearly all */
    uint32_t hash;
    uint32_t key_len;
    uint8_t key[];
};

struct store_key_table {
    uint64_t seed[2];
    struct store_entry **buckets[2]; /* [1] is the array being moved to, or NULL */
    size_t sizes[2];                 /* powers of two */
    size_t moved;                    /* buckets of [0] already moved */
    size_t count;
};

uint64_t store_hash(const uint64_t seed[2], const void *data, size_t len); /* SipHash-1-3 */

void store_key_table_init(struct store_key_table *t, const uint64_t seed[2]);
void store_key_table_done(struct store_key_table *t); /* frees the arrays, not the entries */

struct store_entry *store_key_table_find(struct store_key_table *t, const void *key, size_t len);
/* Finds or inserts (value and extra NULL); NULL when memory is short. */
struct store_entry *store_key_table_obtain(struct store_key_table *t, const void *key, size_t len);

/* The same in two steps, for who knows the hashes of many keys before it comes to the first: what they
 * lead to is then fetched from memory side by side. Inserted must be only what was not found. */
uint32_t store_key_table_hash(const struct store_key_table *t, const void *key, size_t len);
void store_key_table_fetch(struct store_key_table *t, const uint32_t *hashes, size_t count);
struct store_entry *store_key_table_find_hashed(struct store_key_table *t, uint32_t hash,
                                                const void *key, size_t len);
struct store_entry *store_key_table_insert(struct store_key_table *t, uint32_t hash,
                                           const void *key, size_t len);
/* Unlinks and frees the entry. */
void store_key_table_remove(struct store_key_table *t, struct store_entry *e);

/* Calls `visit` for every entry, in no order; it must not change the table. */
void store_key_table_each(const struct store_key_table *t,
                          void (*visit)(void *arg, struct store_entry *e), void *arg);

/* The same a little at a time: visits a few entries from the cursor on (0 first) and returns the next
 * cursor, STORE_SCAN_END after the last. The table may change in between: what is there all the time
 * is visited exactly once, the rest at most once. */
#define STORE_SCAN_END (UINT64_C(1) << 32)
uint64_t store_key_table_scan(const struct store_key_table *t, uint64_t cursor,
                              void (*visit)(void *arg, struct store_entry *e), void *arg);

#endif
