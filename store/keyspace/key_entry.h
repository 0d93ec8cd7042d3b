/* The parts of a key's entry besides its value: waits, watches and queue. The functions compute how
 * many bytes an entry and its parts count toward memory_max, the memory limit of a key space. */
#ifndef STORE_KEYSPACE_KEY_ENTRY_H
#define STORE_KEYSPACE_KEY_ENTRY_H

#include "store/keyspace/key_table.h"
#include "store/keyspace/value.h"

#include <stdlib.h>
#include <sys/queue.h>

struct store_registration;
struct store_watch;

struct store_queued {
    STAILQ_ENTRY(store_queued) next;
    struct store_value *value;
};

TAILQ_HEAD(store_waiters, store_registration);

/* The waits, watches and queue of one key. Most keys have none of these; therefore an entry
 * contains only a pointer to this struct, which is NULL for such keys. */
struct store_extra {
    struct store_waiters waiters;
    LIST_HEAD(, store_watch) watches;
    STAILQ_HEAD(, store_queued) queue;
    size_t queue_len;
};

/* These macros give the approximate number of bytes by which an extra part or a queued value raises
 * ks->memory, which counts toward memory_max. */
#define STORE_MALLOC_OVERHEAD 16 /* bytes that malloc() adds to a block */
#define STORE_EXTRA_COST      (sizeof(struct store_extra) + STORE_MALLOC_OVERHEAD)
#define STORE_QUEUED_COST     (sizeof(struct store_queued) + STORE_MALLOC_OVERHEAD)

static inline size_t store_entry_cost(size_t key_len) {
    return sizeof(struct store_entry) + key_len + STORE_MALLOC_OVERHEAD + 2 * sizeof(void *);
}

/* Returns by how many bytes ks->memory grows when `e` gets an extra part; 0 if `e` has one
 * already. */
static inline size_t store_extra_cost(const struct store_entry *e) {
    return e->extra == NULL ? STORE_EXTRA_COST : 0;
}

/* Makes glibc merge the small blocks that were freed, by allocating a large block. Call this
 * whenever STORE_MERGE_AFTER blocks have been freed. Otherwise glibc merges all freed blocks at
 * once at the next request for a large block, which takes a third of a second after a million keys
 * were freed. */
#define STORE_MERGE_AFTER 256u
static inline void store_heap_merge(void) {
    /* volatile, because the compiler could otherwise drop malloc() and free() */
    void *volatile large = malloc(4096);
    free(large);
}

/* Drops the reference of a key or a queue to a value. If an unsent reply still refers to the value,
 * the value stays counted in *memory until this reply is sent. So a client that does not read its
 * replies cannot make the server use more memory than memory_max. `v` may be NULL. */
static inline void store_value_release(struct store_value *v, size_t *memory) {
    if (v == NULL) return;
    v->account = memory;
    store_value_unref(v);
}

#endif
