/* What the files of the key space share.
 *
 *   keyspace.c    one function per operation, and the table that picks it
 *   entry.c       names in the table, and the memory that they count for
 *   write.c       changing the value of a key, queues
 *   wait.c        waits, waking them, the ready list
 *   watch.c       watches and the pushes that they cause
 *   counter.c     numbers as text
 *   listing.c     LIST_KEYS, in pieces
 *   look_ahead.c  looking up the names of a list side by side
 *   remains.c     freeing what was cleared, in pieces */
#ifndef STORE_KEYSPACE_KEYSPACE_INTERNAL_H
#define STORE_KEYSPACE_KEYSPACE_INTERNAL_H

#include "store/keyspace/key_entry.h"
#include "store/keyspace/keyspace.h"

#include <errno.h>
#include <stdlib.h>

/* ---- one request that is being carried out ---- */

#define STORE_LOOK_AHEAD 16 /* names of a list that are fetched from memory together */

struct store_operation {
    struct store_keyspace *ks;
    struct store_session *session;
    const struct store_request *request;
    int64_t now_ms;
    const char *reason; /* why it failed; static text */
    uint32_t hashes[STORE_LOOK_AHEAD]; /* see look_ahead.c */
};

static inline int store_fail(struct store_operation *op, int code, const char *reason) {
    op->reason = reason;
    return code;
}

static inline int store_fail_memory(struct store_operation *op) {
    return store_fail(op, -ENOMEM, "out of memory");
}

#define STORE_MEMORY_LIMIT_REACHED "memory limit of the store reached"

/* 0 if `more` bytes fit under memory_max, else -ENOSPC. Nothing is counted yet. */
int store_afford(struct store_operation *op, size_t more);

/* ---- entry.c ---- */

static inline struct store_entry *store_entry_find(struct store_operation *op,
                                                   struct store_bytes key) {
    return store_key_table_find(&op->ks->table, key.data, key.len);
}

/* What WAIT and CHECK ask: is there a key of this name, or a queue that is not empty? */
static inline bool store_entry_exists(const struct store_entry *e) {
    if (e == NULL) return false;
    return e->value != NULL || (e->extra != NULL && !STAILQ_EMPTY(&e->extra->queue));
}

/* Finds or creates. A created entry holds nothing: the caller gives it a value or an extra part, or
 * calls store_entry_drop_if_empty(). Returns NULL with *rc negative. */
struct store_entry *store_entry_obtain(struct store_operation *op, struct store_bytes key, int *rc);
struct store_entry *store_entry_obtain_hashed(struct store_operation *op, uint32_t hash,
                                              struct store_bytes key, int *rc);

/* The extra part, created if it is missing; NULL when memory is short. */
struct store_extra *store_entry_obtain_extra(struct store_keyspace *ks, struct store_entry *e);

/* Frees the extra part if it is empty, then the entry if it is. */
void store_entry_drop_if_empty(struct store_keyspace *ks, struct store_entry *e);

/* Drops the key space's reference to a value; NULL is fine. */
void store_keyspace_release(struct store_keyspace *ks, struct store_value *v);

/* ---- wait.c ---- */

/* Puts the session at the end of the ready list. */
void store_session_make_ready(struct store_keyspace *ks, struct store_session *s);
void store_session_unready(struct store_keyspace *ks, struct store_session *s);

size_t store_wait_cost(size_t key_count);
/* Creates the session's wait with room for `key_count` keys; NULL when memory is short. */
struct store_wait *store_wait_new(struct store_operation *op, size_t key_count, bool barrier);
/* Adds an entry whose extra part has been afforded. */
int store_wait_add(struct store_operation *op, struct store_wait *w, struct store_entry *e);
/* Ends the session's wait, if it has one, without an answer. */
void store_wait_drop(struct store_keyspace *ks, struct store_session *s);

/* The key was written: ends the waits that missed nothing else. */
void store_wake_all(struct store_keyspace *ks, struct store_entry *e);
/* The queue got one element: ends one wait. */
void store_wake_one(struct store_keyspace *ks, struct store_entry *e);

/* ---- watch.c ---- */

static inline bool store_entry_watched(const struct store_entry *e) {
    return e->extra != NULL && !LIST_EMPTY(&e->extra->watches);
}

int store_watch_add(struct store_operation *op);
void store_watch_drop_all(struct store_keyspace *ks, struct store_session *s);
/* Sends a change to all sessions that watch the entry. */
void store_watch_notify(struct store_keyspace *ks, struct store_entry *e, uint8_t code,
                        struct store_value *old_value, struct store_value *new_value);

/* ---- write.c ---- */

/* Sets the key. `block` is the value if it was received into memory of its own, or NULL. */
int store_write_key(struct store_operation *op, struct store_bytes key, struct store_bytes bytes,
                    struct store_value *block);
/* Sets the value of an entry. If `e` is NULL, returns `rc`; if it fails, `e` may be gone. */
int store_write_entry(struct store_operation *op, struct store_entry *e, int rc,
                      struct store_bytes bytes, struct store_value *block);
/* Makes `v`, which is taken over, the entry's value; wakes its waiters and notifies its watches. */
void store_write_value(struct store_keyspace *ks, struct store_entry *e, struct store_value *v);
/* Appends to an existing value. */
int store_write_more(struct store_operation *op, struct store_entry *e, struct store_bytes more);
/* Removes the value of an entry that has one. */
void store_write_deletion(struct store_keyspace *ks, struct store_entry *e);

/* Returns a copy of the bytes, or a new reference to `block` if it is not NULL; NULL when memory is
 * short. */
struct store_value *store_value_of(struct store_bytes bytes, struct store_value *block);

int store_queue_append(struct store_operation *op);
/* Takes the first element; the caller releases it with store_keyspace_release(). */
struct store_value *store_queue_take(struct store_keyspace *ks, struct store_entry *e);

/* ---- counter.c ---- */

#define STORE_NUMBER_TEXT_MAX 24

/* Reads a value as strtoll() does: white space, sign, digits, then anything. Returns 0, or -EPROTO
 * with *reason. */
int store_counter_read(const struct store_value *v, int64_t *out, const char **reason);
/* The canonical decimal text, in `text`. */
struct store_bytes store_counter_text(int64_t number, char text[STORE_NUMBER_TEXT_MAX]);

/* ---- listing.c ---- */

int store_listing_apply(struct store_operation *op); /* LIST_KEYS */
void store_listing_drop(struct store_session *s);

/* ---- look_ahead.c ---- */

/* The hash of item i of the request, one of the items 0, step, 2 * step… that are looked up in this
 * order. */
uint32_t store_item_hash(struct store_operation *op, size_t i, size_t step);
struct store_entry *store_item_find(struct store_operation *op, size_t i);

#endif
