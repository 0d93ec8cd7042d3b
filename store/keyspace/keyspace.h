/* The key space: what the operations mean. Requests in, replies and wake-ups out.
 *
 * Pure: no sockets, no clock (time is passed in), no globals. A session is one client as the key
 * space sees it: what it must be sent, what it waits for, what it watches. The caller embeds it.
 *
 *     apply(request of A) ──► A's output grows, and for each session that it woke,
 *                             that one's output grows and it is in the ready list
 *
 * Costs: waking a key is its waiters; a session that leaves or cancels is its own registrations. */
#ifndef STORE_KEYSPACE_KEYSPACE_H
#define STORE_KEYSPACE_KEYSPACE_H

#include "store/keyspace/key_table.h"
#include "store/keyspace/output.h"
#include "store/wire/wire.h"

#include <stdbool.h>

/* One missing key of one wait, hanging in that key's list in order of arrival. */
struct store_registration {
    struct store_registration *next, *prev;
    struct store_entry *entry; /* NULL once the key was written */
    struct store_wait *wait;
};

struct store_wait {
    struct store_wait *next, *prev; /* all waits, the oldest first */
    struct store_session *session;
    int64_t since_ms;
    size_t missing;     /* keys that were not written since; released at 0 */
    size_t count, room; /* registrations: used, and there is memory for */
    bool barrier;
    struct store_registration registrations[];
};

struct store_watch {
    struct store_watch *next, *prev; /* of the same key */
    struct store_watch *next_own;    /* of the same session */
    struct store_entry *entry;
    struct store_session *session;
};

/* A LIST_KEYS of many keys, made a little at a time so that nobody is kept waiting for it. */
struct store_listing {
    uint64_t cursor, count;
    struct cr_buffer bytes; /* the reply so far */
    bool short_of_memory;
};

#define STORE_LIST_AT_ONCE 2048 /* up to so many names, keys or not, are gone through in one go */
#define STORE_LIST_STEP    512  /* of more, about so many a turn: each may cost a few cache misses */
#define STORE_LIST_TURNS   1024 /* but no more turns than about that */

/* Zero-initialise; store_keyspace_leave() ends it. */
struct store_session {
    struct store_output out;
    struct store_wait *wait; /* at most one; NULL = none */
    struct store_watch *watches;
    struct store_listing *listing; /* under way: call store_keyspace_list_on(), nothing else */
    struct store_session *ready_next, *ready_prev;
    const char *lost; /* why a push could not be queued: out of step, must be closed; or NULL */
    size_t pushed;    /* bytes of pushes since it got into the ready list */
    bool ready;       /* in the ready list */
    bool patient; /* whoever drives it knows store_keyspace_list_on() */
    bool legacy;  /* a new request proves that its pending wait was given up (it cannot say so) */
};

/* Up to here a reply is not refused, nor a session lost by pushes, for want of memory. */
#define STORE_REPLY_FREE ((size_t) 1 << 20)
#define STORE_PUSH_FREE  ((size_t) 64 << 10)

/* How much is done in one go; for tests to make small. */
struct store_pace {
    size_t list_at_once, list_step, free_step;
};

struct store_keyspace {
    struct store_key_table table;
    size_t reply_max;  /* bytes of one reply, so of one stored value too; below 4 GiB */
    size_t memory_max; /* 0 = no limit */
    size_t memory;     /* in use: keys, values, waits, remains; the caller adds what it buffers */
    size_t pushed;     /* bytes of pushes to sessions in the ready list, not in `memory` yet */
    struct store_pace pace;
    unsigned freed;    /* blocks, see store_heap_settle() */
    struct store_remains *remains; /* cleared, not freed yet: call store_keyspace_free_some() */
    struct store_wait *wait_first, *wait_last;
    struct store_session *ready_first, *ready_last;
    uint64_t op_count[STORE_OP_COUNT];
    size_t key_count, queue_count, wait_count;
    size_t key_bytes, value_bytes; /* of existing keys; values in queues count too */
};

void store_keyspace_init(struct store_keyspace *ks, const uint64_t seed[2]);
void store_keyspace_done(struct store_keyspace *ks); /* after all sessions left; frees everything */

/* Empties it at once, however much there was, and counts its operations from 0 again; after all
 * sessions left. What was there stays in `memory` until it is freed, piece by piece. */
void store_keyspace_clear(struct store_keyspace *ks, const uint64_t seed[2]);

/* Frees a piece, of some hundred blocks of memory, of what was cleared. True while there is more. */
bool store_keyspace_free_some(struct store_keyspace *ks);

/* Whether `more` bytes fit under memory_max; what was cleared and is in the way is freed first. */
bool store_keyspace_affords(struct store_keyspace *ks, size_t more);

/* Carries out one request. Returns 0, or a negative errno after which the session must be closed;
 * *reason (static text) then says why: -EPROTO (a counter that is no number), -EMSGSIZE (value or
 * reply over reply_max), -ENOSPC (memory_max), -ENOMEM. */
int store_keyspace_apply(struct store_keyspace *ks, struct store_session *s,
                         const struct store_request *r, int64_t now_ms, const char **reason);

/* Goes on with s->listing for some hundred keys. Returns 1 when there is more to do, 0 when the reply
 * is in s->out, or negative like store_keyspace_apply(). Others may change the keys in between: those
 * that are there all the time are listed. */
int store_keyspace_list_on(struct store_keyspace *ks, struct store_session *s, const char **reason);

/* Takes the next session whose output grew by someone else's request, or NULL. */
struct store_session *store_keyspace_take_ready(struct store_keyspace *ks);

/* Drops its wait, watches and output. */
void store_keyspace_leave(struct store_keyspace *ks, struct store_session *s);

#endif
