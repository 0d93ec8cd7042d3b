/* Frees the table of a cleared key space in pieces. The size of a piece is a number of units of
 * work and not of entries, because entries differ: one has a single block of memory, another a
 * queue of millions of blocks. */
#include "store/keyspace/remains.h"

#include "base/assert.h"
#include "store/keyspace/key_entry.h"

/* Work in units of about an eighth of a microsecond. To skip an empty bucket takes one unit. To
 * free a block of memory that is not in the cache takes eight units. To free a big value takes one
 * more unit for each of its pages, because the kernel takes back each page. */
#define WORK_OF_A_BUCKET 1u
#define WORK_OF_A_BLOCK  8u
#define PAGE             4096u

/* ---- one entry ---- */

static size_t free_value(struct store_value *v, size_t *memory) {
    size_t work = WORK_OF_A_BLOCK + store_value_cost(v) / PAGE;
    store_value_release(v, memory);
    return work;
}

static size_t free_queued(struct store_extra *x, size_t *memory) {
    struct store_queued *q = STAILQ_FIRST(&x->queue);
    STAILQ_REMOVE_HEAD(&x->queue, next);
    size_t work = free_value(q->value, memory);
    *memory -= STORE_QUEUED_COST;
    free(q);
    return WORK_OF_A_BLOCK + work;
}

static void free_extra(struct store_extra *x, size_t *memory) {
    /* the caller has ended all sessions, so the entry has no waits and no watches */
    CR_ASSERT(TAILQ_EMPTY(&x->waiters) && LIST_EMPTY(&x->watches));
    *memory -= STORE_EXTRA_COST;
    free(x);
}

/* Frees a part of the entry at *at. If the entry has a queue element, frees one element; otherwise
 * frees the entry and sets *at to the next entry of the bucket. Returns the work in units. */
static size_t free_part(struct store_entry **at, size_t *memory) {
    struct store_entry *e = *at;
    size_t work = WORK_OF_A_BLOCK;
    if (e->extra != NULL && !STAILQ_EMPTY(&e->extra->queue)) return free_queued(e->extra, memory);
    if (e->extra != NULL) free_extra(e->extra, memory);
    if (e->value != NULL) work += free_value(e->value, memory);
    *memory -= store_entry_cost(e->key_len);
    *at = e->next;
    free(e);
    return work;
}

/* ---- the table ---- */

/* Returns the bucket to free next, or NULL after the last one. */
static struct store_entry **next_bucket(struct store_remains *r) {
    struct store_key_table *t = &r->table;
    if (r->bucket < t->sizes[0]) return &t->buckets[0][r->bucket];
    size_t at = r->bucket - t->sizes[0];
    return at < t->sizes[1] ? &t->buckets[1][at] : NULL;
}

bool store_remains_free_some(struct store_remains *r, size_t *memory, size_t work_max) {
    size_t work = 0;
    struct store_entry **at = next_bucket(r);
    while (at != NULL && work < work_max) {
        if (*at != NULL) {
            work += free_part(at, memory);
        } else {
            work += WORK_OF_A_BUCKET;
            r->bucket++;
            at = next_bucket(r);
        }
    }
    store_heap_merge();
    if (at == NULL) store_key_table_done(&r->table);
    return at != NULL;
}
