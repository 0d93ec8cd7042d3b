/* What hangs on a name besides its value, and how much memory all of it counts for. */
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

/* Waiters, watches and the queue of one name. Few names have any. */
struct store_extra {
    struct store_waiters waiters;
    LIST_HEAD(, store_watch) watches;
    STAILQ_HEAD(, store_queued) queue;
    size_t queue_len;
};

/* What counts toward memory_max, approximately. */
#define STORE_MALLOC_OVERHEAD 16 /* bytes that the allocator adds to a block */
#define STORE_EXTRA_COST      (sizeof(struct store_extra) + STORE_MALLOC_OVERHEAD)
#define STORE_QUEUED_COST     (sizeof(struct store_queued) + STORE_MALLOC_OVERHEAD)

static inline size_t store_entry_cost(size_t key_len) {
    return sizeof(struct store_entry) + key_len + STORE_MALLOC_OVERHEAD + 2 * sizeof(void *);
}

/* What creating the extra part of `e` would add; 0 if it is there. */
static inline size_t store_extra_cost(const struct store_entry *e) {
    return e->extra == NULL ? STORE_EXTRA_COST : 0;
}

/* glibc keeps freed small blocks apart and merges all of them when a large block is next asked for,
 * which takes a third of a second after a million keys were freed. So a large block is asked for
 * after every STORE_MERGE_AFTER freed blocks. */
#define STORE_MERGE_AFTER 256u
static inline void store_heap_merge(void) {
    void *volatile large = malloc(4096); /* volatile: the compiler must not remove the pair */
    free(large);
}

/* Drops a reference. While an unsent reply still holds the value it stays counted in *memory;
 * otherwise a client that never reads could pin any amount of memory. */
static inline void store_value_release(struct store_value *v, size_t *memory) {
    if (v == NULL) return;
    v->account = memory;
    store_value_unref(v);
}

#endif
