/* The hash table of the key space. The entries of a bucket form a singly linked list, the newest
 * entry first. While the table changes its size, it has an old and a new array of buckets, and
 * rehash_step() moves a few buckets from the old array to the new one. */
#include "store/keyspace/key_table.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS_MIN      16u
/* Number of buckets that one rehash_step() moves. It must be large enough that all buckets are
 * moved before the table grows again. A table that grows from n to 2n buckets grows again after n
 * more insertions at the earliest. Each insertion is preceded by a look-up, which makes one step.
 * So n buckets, 4 at each step, are moved after n/4 insertions. */
#define BUCKETS_PER_STEP 4u

/* ---- SipHash-1-3 (Aumasson, Bernstein) ---- */

static inline uint64_t rotate(uint64_t x, int bits) { return x << bits | x >> (64 - bits); }

static inline void sip_round(uint64_t v[4]) {
    v[0] += v[1];
    v[1] = rotate(v[1], 13) ^ v[0];
    v[0] = rotate(v[0], 32);
    v[2] += v[3];
    v[3] = rotate(v[3], 16) ^ v[2];
    v[0] += v[3];
    v[3] = rotate(v[3], 21) ^ v[0];
    v[2] += v[1];
    v[1] = rotate(v[1], 17) ^ v[2];
    v[2] = rotate(v[2], 32);
}

uint64_t store_hash(const uint64_t seed[2], const void *data, size_t len) {
    const uint8_t *at = data;
    uint64_t v[4] = {seed[0] ^ UINT64_C(0x736f6d6570736575), seed[1] ^ UINT64_C(0x646f72616e646f6d),
                     seed[0] ^ UINT64_C(0x6c7967656e657261),
                     seed[1] ^ UINT64_C(0x7465646279746573)};
    uint64_t word;
    for (size_t left = len; left >= 8; left -= 8, at += 8) {
        memcpy(&word, at, 8);
        v[3] ^= word;
        sip_round(v);
        v[0] ^= word;
    }
    word = (uint64_t) len << 56;
    for (size_t i = 0; i < len % 8; i++) word |= (uint64_t) at[i] << (8 * i);
    v[3] ^= word;
    sip_round(v);
    v[0] ^= word;
    v[2] ^= 0xff;
    for (int i = 0; i < 3; i++) sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* ---- growing and shrinking ---- */

void store_key_table_init(struct store_key_table *t, const uint64_t seed[2]) {
    *t = (struct store_key_table){.seed = {seed[0], seed[1]}};
}

void store_key_table_done(struct store_key_table *t) {
    free(t->buckets[0]);
    free(t->buckets[1]);
    store_key_table_init(t, (const uint64_t[2]){t->seed[0], t->seed[1]});
}

static void push(struct store_entry **bucket, struct store_entry *e) {
    e->next = *bucket;
    *bucket = e;
}

/* Moves the entries of BUCKETS_PER_STEP buckets to the new array. After the last bucket it frees
 * the old array, and the table has one array again. */
static void rehash_step(struct store_key_table *t) {
    for (unsigned i = 0; i < BUCKETS_PER_STEP && t->moved < t->sizes[0]; i++, t->moved++) {
        size_t ahead = t->moved + 2 * BUCKETS_PER_STEP;
        if (ahead < t->sizes[0]) __builtin_prefetch(t->buckets[0][ahead]);
        struct store_entry *next;
        for (struct store_entry *e = t->buckets[0][t->moved]; e != NULL; e = next) {
            next = e->next;
            push(&t->buckets[1][e->hash & (t->sizes[1] - 1)], e);
        }
        t->buckets[0][t->moved] = NULL;
    }
    if (t->moved < t->sizes[0]) return;
    free(t->buckets[0]);
    t->buckets[0] = t->buckets[1];
    t->sizes[0] = t->sizes[1];
    t->buckets[1] = NULL;
    t->sizes[1] = 0;
    t->moved = 0;
}

/* Begins to move all entries to a new array of `size` buckets. If memory for the array is short,
 * the table keeps its size; look-ups are then slower, but correct. */
static void rehash_start(struct store_key_table *t, size_t size) {
    if (t->buckets[1] != NULL || size > (size_t) UINT32_MAX + 1) return;
    t->buckets[1] = calloc(size, sizeof(struct store_entry *));
    if (t->buckets[1] == NULL) return;
    t->sizes[1] = size;
    t->moved = 0;
}

/* Returns the bucket of a hash: a bucket of the new array if rehash_step() has already moved the
 * old array's bucket of this hash, else a bucket of the old array. */
static inline struct store_entry **bucket_of(struct store_key_table *t, uint32_t hash) {
    size_t i = hash & (t->sizes[0] - 1);
    if (t->buckets[1] == NULL || i >= t->moved) return &t->buckets[0][i];
    return &t->buckets[1][hash & (t->sizes[1] - 1)];
}

/* ---- the operations ---- */

static inline struct store_entry *find(struct store_key_table *t, uint32_t hash, const void *key,
                                       size_t len) {
    for (struct store_entry *e = *bucket_of(t, hash); e != NULL; e = e->next) {
        if (e->hash == hash && e->key_len == len && memcmp(e->key, key, len) == 0) return e;
    }
    return NULL;
}

uint32_t store_key_table_hash(const struct store_key_table *t, const void *key, size_t len) {
    return (uint32_t) store_hash(t->seed, key, len);
}

struct store_entry *store_key_table_find_hashed(struct store_key_table *t, uint32_t hash,
                                                const void *key, size_t len) {
    if (t->count == 0) return NULL;
    if (t->buckets[1] != NULL) rehash_step(t);
    return find(t, hash, key, len);
}

struct store_entry *store_key_table_find(struct store_key_table *t, const void *key, size_t len) {
    if (t->count == 0) return NULL;
    if (t->buckets[1] != NULL) rehash_step(t);
    return find(t, store_key_table_hash(t, key, len), key, len);
}

static bool make_buckets(struct store_key_table *t) {
    if (t->buckets[0] != NULL) return true;
    t->buckets[0] = calloc(BUCKETS_MIN, sizeof(struct store_entry *));
    if (t->buckets[0] == NULL) return false;
    t->sizes[0] = BUCKETS_MIN;
    return true;
}

struct store_entry *store_key_table_insert(struct store_key_table *t, uint32_t hash,
                                           const void *key, size_t len) {
    if (!make_buckets(t)) return NULL;
    struct store_entry *e = malloc(sizeof(*e) + len);
    if (e == NULL) return NULL;
    *e = (struct store_entry){.hash = hash, .key_len = (uint32_t) len};
    memcpy(e->key, key, len);
    push(bucket_of(t, hash), e);
    if (++t->count > t->sizes[0]) rehash_start(t, t->sizes[0] * 2);
    return e;
}

/* Prefetches the buckets of all hashes, then the first entry of each bucket, then the value of each
 * of these entries. Each loop causes up to one cache miss per key. A prefetch does not wait for
 * memory, so the cache misses of one loop overlap. */
void store_key_table_fetch(struct store_key_table *t, const uint32_t *hashes, size_t count) {
    if (t->count == 0) return;
    for (size_t i = 0; i < count; i++) __builtin_prefetch(bucket_of(t, hashes[i]));
    for (size_t i = 0; i < count; i++) __builtin_prefetch(*bucket_of(t, hashes[i]));
    for (size_t i = 0; i < count; i++) {
        const struct store_entry *e = *bucket_of(t, hashes[i]);
        if (e != NULL) __builtin_prefetch(e->value);
    }
}

void store_key_table_remove(struct store_key_table *t, struct store_entry *e) {
    struct store_entry **at = bucket_of(t, e->hash);
    while (*at != e) at = &(*at)->next;
    *at = e->next;
    free(e);
    t->count--;
    if (t->buckets[1] != NULL) {
        rehash_step(t);
    } else if (t->count < t->sizes[0] / 8 && t->sizes[0] > BUCKETS_MIN) {
        rehash_start(t, t->sizes[0] / 4);
    }
}

void store_key_table_each(const struct store_key_table *t,
                          void (*visit)(void *arg, struct store_entry *e), void *arg) {
    for (int half = 0; half < 2; half++) {
        for (size_t i = 0; i < t->sizes[half]; i++) {
            for (struct store_entry *e = t->buckets[half][i]; e != NULL; e = e->next) visit(arg, e);
        }
    }
}

/* ---- scanning in pieces ---- */

static uint32_t reversed(uint32_t x) {
    x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
    x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
    x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
    return __builtin_bswap32(x);
}

/* The cursor is a position in the order of bit-reversed hashes. The low bits of a hash select its
 * bucket. Reversed, they are the high bits, so in this order the entries of one bucket are one
 * contiguous range. A table of another size divides the same order into other ranges. Therefore
 * growing, shrinking and moving to a new array do not change which entries come after the
 * cursor. */
uint64_t store_key_table_scan(const struct store_key_table *t, uint64_t cursor,
                              void (*visit)(void *arg, struct store_entry *e), void *arg) {
    if (t->count == 0) return STORE_SCAN_END;
    size_t coarse = t->buckets[1] != NULL && t->sizes[1] < t->sizes[0] ? t->sizes[1] : t->sizes[0];
    uint64_t width = STORE_SCAN_END / coarse;
    uint64_t end = (cursor / width + 1) * width;
    for (int half = 0; half < 2 && t->sizes[half] > 0; half++) {
        uint64_t step = STORE_SCAN_END / t->sizes[half];
        for (uint64_t at = cursor / step * step; at < end; at += step) {
            for (struct store_entry *e = t->buckets[half][reversed((uint32_t) at)]; e != NULL;
                 e = e->next) {
                if (reversed(e->hash) >= cursor) visit(arg, e);
            }
        }
    }
    return end;
}
