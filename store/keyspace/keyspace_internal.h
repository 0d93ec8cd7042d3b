/* The functions that the files of the key space call in each other.
 *
 *   keyspace.c    one function per operation, and the table that selects it
 *   entry.c       creating and dropping entries, and counting their memory
 *   write.c       changing the value of a key; queues
 *   wait.c        waits, answering them, the ready list
 *   watch.c       watches and the pushes that they cause
 *   counter.c     counters, which are numbers as decimal text
 *   listing.c     LIST_KEYS, in pieces
 *   look_ahead.c  looking up the keys of one request several at a time
 *   remains.c     freeing cleared keys, in pieces */
#ifndef STORE_KEYSPACE_KEYSPACE_INTERNAL_H
#define STORE_KEYSPACE_KEYSPACE_INTERNAL_H

#include "store/keyspace/key_entry.h"
#include "store/keyspace/keyspace.h"

#include <errno.h>
#include <stdlib.h>

/* ---- one request that is being carried out ---- */

#define STORE_LOOK_AHEAD 16 /* number of keys of a request whose entries are prefetched together */

struct store_operation {
    struct store_keyspace *ks;
    struct store_session *session;
    const struct store_request *request;
    int64_t now_ms;
    const char *reason; /* static text that says why the operation failed; set on error */
    /* hashes of the keys that look_ahead.c has prefetched most recently */
    uint32_t hashes[STORE_LOOK_AHEAD];
};

static inline int store_fail(struct store_operation *op, int code, const char *reason) {
    op->reason = reason;
    return code;
}

static inline int store_fail_memory(struct store_operation *op) {
    return store_fail(op, -ENOMEM, "out of memory");
}

#define STORE_MEMORY_LIMIT_REACHED "memory limit of the store reached"

/* Returns 0 if `more` bytes fit under memory_max; else returns -ENOSPC and sets op->reason. The
 * function does not change ks->memory: a caller that then allocates the bytes must add them to
 * ks->memory. */
int store_afford(struct store_operation *op, size_t more);

/* ---- entry.c ---- */

static inline struct store_entry *store_entry_find(struct store_operation *op,
                                                   struct store_bytes key) {
    return store_key_table_find(&op->ks->table, key.data, key.len);
}

/* Returns whether the key exists for WAIT and CHECK: it has a value, or the queue of the same name
 * is not empty. `e` is NULL if the key has no entry. */
static inline bool store_entry_exists(const struct store_entry *e) {
    if (e == NULL) return false;
    return e->value != NULL || (e->extra != NULL && !STAILQ_EMPTY(&e->extra->queue));
}

/* Returns the entry of a key, and creates the entry if it is missing. A created entry is empty: the
 * caller must give it a value or an extra part, or call store_entry_drop_if_empty(). Sets *rc to 0.
 * On error sets *rc to a negative errno and returns NULL. */
struct store_entry *store_entry_obtain(struct store_operation *op, struct store_bytes key, int *rc);
struct store_entry *store_entry_obtain_hashed(struct store_operation *op, uint32_t hash,
                                              struct store_bytes key, int *rc);

/* Returns the extra part of the entry (waits, watches, queue), and creates it if it is missing.
 * Returns NULL if memory is short. */
struct store_extra *store_entry_obtain_extra(struct store_keyspace *ks, struct store_entry *e);

/* Frees the entry's extra part if the extra part is empty. If the entry then has neither a value
 * nor an extra part, removes the entry from the table and frees it. */
void store_entry_drop_if_empty(struct store_keyspace *ks, struct store_entry *e);

/* Drops the key space's reference to a value. `v` may be NULL. */
void store_keyspace_release(struct store_keyspace *ks, struct store_value *v);

/* ---- wait.c ---- */

/* Puts the session at the end of the ready list, unless it is on the list already. */
void store_session_make_ready(struct store_keyspace *ks, struct store_session *s);
void store_session_unready(struct store_keyspace *ks, struct store_session *s);

size_t store_wait_cost(size_t key_count);
/* Creates the session's wait with memory for `key_count` registrations. Returns NULL if memory is
 * short. */
struct store_wait *store_wait_new(struct store_operation *op, size_t key_count, bool barrier);
/* Registers the wait with an entry. The caller must have checked by store_afford() that an extra
 * part for the entry fits under the memory limit. Returns 0 or -ENOMEM. */
int store_wait_add(struct store_operation *op, struct store_wait *w, struct store_entry *e);
/* Ends the session's wait without an answer. Does nothing if the session does not wait. */
void store_wait_drop(struct store_keyspace *ks, struct store_session *s);

/* Call this when the entry's key has been written. The function removes the registrations of all
 * waits for the key, and answers each wait that now waits for no key. */
void store_wake_all(struct store_keyspace *ks, struct store_entry *e);
/* Call this when one element was appended to the entry's queue. The function answers the oldest
 * wait for the queue whose other keys all exist. Later waits stay unanswered, because their clients
 * would find no element. */
void store_wake_one(struct store_keyspace *ks, struct store_entry *e);

/* ---- watch.c ---- */

static inline bool store_entry_watched(const struct store_entry *e) {
    return e->extra != NULL && !LIST_EMPTY(&e->extra->watches);
}

int store_watch_add(struct store_operation *op);
void store_watch_drop_all(struct store_keyspace *ks, struct store_session *s);
/* Appends a change of the key to the output of each session that watches the key. `code` is
 * STORE_WATCH_CREATED, _UPDATED or _DELETED. `old_value` is NULL if the key is created, `new_value`
 * is NULL if the key is deleted. */
void store_watch_notify(struct store_keyspace *ks, struct store_entry *e, uint8_t code,
                        struct store_value *old_value, struct store_value *new_value);

/* ---- write.c ---- */

/* Sets a key to a value. If the value was received into a block, `block` is this block, and the key
 * shares it. Otherwise `block` is NULL, and `bytes` are copied. Returns 0 or a negative errno. */
int store_write_key(struct store_operation *op, struct store_bytes key, struct store_bytes bytes,
                    struct store_value *block);
/* Sets the value of an entry, as store_write_key() does. `e` and `rc` are the results of
 * store_entry_obtain(): if `e` is NULL, the function only returns `rc`. If it cannot set the value,
 * and the entry has no value and no extra part, it frees the entry. */
int store_write_entry(struct store_operation *op, struct store_entry *e, int rc,
                      struct store_bytes bytes, struct store_value *block);
/* Makes `v` the value of the entry, which takes over the caller's reference to `v`. Answers the
 * waits for the key, and sends the change to the sessions that watch the key. */
void store_write_value(struct store_keyspace *ks, struct store_entry *e, struct store_value *v);
/* Appends `more` to the value of the entry, which must have a value. Returns 0 or a negative
 * errno. */
int store_write_more(struct store_operation *op, struct store_entry *e, struct store_bytes more);
/* Deletes the value of the entry, which must have a value. If the entry has no extra part, frees
 * the entry. */
void store_write_deletion(struct store_keyspace *ks, struct store_entry *e);

/* If `block` is not NULL, returns a new reference to it. Otherwise returns a new value with a copy
 * of `bytes`, or NULL if memory is short. */
struct store_value *store_value_of(struct store_bytes bytes, struct store_value *block);

int store_queue_append(struct store_operation *op);
/* Removes the first element of the entry's queue, which must not be empty, and returns it. The
 * caller releases it by store_keyspace_release(). */
struct store_value *store_queue_take(struct store_keyspace *ks, struct store_entry *e);

/* ---- counter.c ---- */

#define STORE_NUMBER_TEXT_MAX 24

/* Sets *out to the number in the value of a counter. Reads the number as strtoll() does: white
 * space, a sign, and digits; bytes behind the digits are ignored. Returns 0; or -EPROTO, and sets
 * *reason to a static text. */
int store_counter_read(const struct store_value *v, int64_t *out, const char **reason);
/* Writes the number as decimal text into `text` and returns the part of `text` that it uses. */
struct store_bytes store_counter_text(int64_t number, char text[STORE_NUMBER_TEXT_MAX]);

/* ---- listing.c ---- */

int store_listing_apply(struct store_operation *op); /* carries out LIST_KEYS */
void store_listing_drop(struct store_session *s);

/* ---- look_ahead.c ---- */

/* Returns the hash of item i of the request. The caller must begin with i = 0 and add `step` to i
 * for each further call, because the function prefetches the entries of the items that come
 * next. */
uint32_t store_item_hash(struct store_operation *op, size_t i, size_t step);
struct store_entry *store_item_find(struct store_operation *op, size_t i);

#endif
