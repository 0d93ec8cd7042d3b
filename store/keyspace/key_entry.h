/* What hangs on a name besides its value, and what all of it counts in the key space's memory. */
#ifndef STORE_KEYSPACE_KEY_ENTRY_H
#define STORE_KEYSPACE_KEY_ENTRY_H

#include "store/keyspace/key_table.h"
#include "store/wire/wire.h"

#include <stdlib.h>

struct store_queued {
    struct store_queued *next;
    struct store_value *value;
};

/* Waiters, watchers and the queue of one name: what few names have. */
struct store_extra {
    struct store_registration *waiter_first, *waiter_last;
    struct store_watch *watches;
    struct store_queued *queue_first, *queue_last;
    size_t queue_len;
};

#define STORE_MALLOC_OVERHEAD 16 /* what the allocator adds to a block, about */
#define STORE_EXTRA_COST      (sizeof(struct store_extra) + STORE_MALLOC_OVERHEAD)
#define STORE_QUEUED_COST     (sizeof(struct store_queued) + STORE_MALLOC_OVERHEAD)

static inline size_t store_entry_cost(size_t key_len) {
    return sizeof(struct store_entry) + key_len + STORE_MALLOC_OVERHEAD + 2 * sizeof(void *);
}

/* glibc keeps small blocks that were freed apart, and merges all of them in one go when somebody next
 * asks for a large one: a third of a second for a million keys. So ask for one after some hundred. */
#define STORE_SETTLE_AFTER 256u
static inline void store_heap_settle(void) {
    void *volatile large = malloc(4096); /* volatile: not to be optimised away */
    free(large);
}

/* Lets go of a value. While a reply that is not sent yet still holds it, it stays counted: else a
 * client that never reads could pin any amount of memory. */
static inline void store_value_release(struct store_value *v, size_t *memory) {
    if (v == NULL) return;
    v->account = memory;
    store_value_unref(v);
}

#endif
