/* The key space: the keys, queues, waits and watches of one TCPStore, and what each request does.
 *
 * A session is one client as the key space sees it; the caller embeds it in its connection. A
 * request goes in through store_keyspace_apply(): the reply is appended to the session's output.
 * A request can also add to the output of other sessions: it ends the waits of those that waited
 * for a key, and tells those that watch the key about the change. These sessions are put on the
 * ready list, from which the caller takes them to send their output.
 *
 *     apply(A sets k)  ──►  A's output: nothing, SET has no reply
 *                           B waited for k: B's output grows by one byte, B is on the ready list
 *
 * Two operations on many keys are done in pieces, so that other clients are served in between:
 * LIST_KEYS (store_keyspace_list_on) and freeing what was cleared (store_keyspace_free_some).
 *
 * Cost: waking a key is proportional to its waiters; a session that leaves or cancels costs its own
 * registrations.
 *
 * Pure: no sockets, no clock (the time is an argument), no globals. */
#ifndef STORE_KEYSPACE_KEYSPACE_H
#define STORE_KEYSPACE_KEYSPACE_H

#include "store/keyspace/key_table.h"
#include "store/keyspace/output.h"
#include "store/keyspace/value.h"
#include "store/wire/wire.h"

#include <stdbool.h>
#include <sys/queue.h>

/* One key that a wait still misses. */
struct store_registration {
    TAILQ_ENTRY(store_registration) next; /* of the same key, in order of arrival */
    struct store_entry *entry;            /* NULL once the key was written */
    struct store_wait *wait;
};

/* A WAIT or BARRIER that has not been answered. */
struct store_wait {
    TAILQ_ENTRY(store_wait) next; /* all waits of the key space, the oldest first */
    struct store_session *session;
    int64_t since_ms;
    size_t missing; /* keys that have not been written since; answered at 0 */
    size_t count;   /* registrations in use */
    size_t room;    /* registrations that there is memory for */
    bool barrier;
    struct store_registration registrations[];
};

/* A WATCH_KEY. */
struct store_watch {
    LIST_ENTRY(store_watch) next;      /* of the same key */
    SLIST_ENTRY(store_watch) next_own; /* of the same session */
    struct store_entry *entry;
    struct store_session *session;
};

/* A LIST_KEYS that is being answered in pieces. */
struct store_listing {
    uint64_t cursor, count;
    struct cr_buffer bytes; /* the reply so far */
    bool short_of_memory;
};

/* Zero-initialise; store_keyspace_leave() ends it. */
struct store_session {
    struct store_output out;
    struct store_wait *wait; /* at most one; NULL: it does not wait */
    SLIST_HEAD(, store_watch) watches;
    struct store_listing *listing; /* if not NULL, only store_keyspace_list_on() may be called */
    TAILQ_ENTRY(store_session) ready_next;
    const char *lost; /* static text: a push was dropped, so the session must be closed; or NULL */
    size_t pushed;    /* bytes of pushes since it was put on the ready list */
    bool ready;       /* on the ready list */
    bool lists_in_pieces; /* set by a caller that calls store_keyspace_list_on() */
    bool legacy;          /* a new request proves that its pending wait was given up: torch 1.13
                             has no CANCEL_WAIT */
};

/* A reply up to this size is never refused for want of memory, and a session that has fewer bytes
 * of pushes than this is not lost because of them. */
#define STORE_REPLY_FREE ((size_t) 1 << 20)
#define STORE_PUSH_FREE  ((size_t) 64 << 10)

/* How much is done in one piece; tests make it small. */
struct store_pieces {
    size_t list_at_once; /* up to this many names, LIST_KEYS is answered in one piece */
    size_t list_step;    /* names visited in one piece of a longer list, approximately */
    size_t free_step;    /* work of one store_keyspace_free_some(), see remains.h */
};

TAILQ_HEAD(store_waits, store_wait);
TAILQ_HEAD(store_ready, store_session);

struct store_keyspace {
    struct store_key_table table;
    size_t reply_max;  /* bytes of one reply, so of one stored value too; below 4 GiB */
    size_t memory_max; /* 0 = no limit */
    size_t memory;     /* in use: keys, values, waits, remains; the caller adds what it buffers */
    size_t pushed;     /* bytes of pushes to sessions on the ready list, not in `memory` yet */
    struct store_pieces pieces;
    unsigned freed;                /* blocks freed, see store_heap_merge() */
    struct store_remains *remains; /* cleared and not freed yet: call store_keyspace_free_some() */
    struct store_waits waits;
    struct store_ready ready;
    uint64_t op_count[STORE_OP_COUNT];
    size_t key_count, queue_count, wait_count;
    size_t key_bytes, value_bytes; /* of existing keys; values in queues count too */
};

/* The struct must not be moved afterwards. */
void store_keyspace_init(struct store_keyspace *ks, const uint64_t seed[2]);
/* Frees everything; all sessions must have left. */
void store_keyspace_done(struct store_keyspace *ks);

/* Removes all keys and queues and sets the counts of operations to 0, in constant time; all
 * sessions must have left. The memory still counts until store_keyspace_free_some() has freed
 * it. */
void store_keyspace_clear(struct store_keyspace *ks, const uint64_t seed[2]);

/* Frees one piece (some hundred blocks of memory) of what was cleared. Returns true while there is
 * more. */
bool store_keyspace_free_some(struct store_keyspace *ks);

/* Whether `more` bytes fit under memory_max. If they do not, but would once cleared keys are freed,
 * those are freed first. */
bool store_keyspace_affords(struct store_keyspace *ks, size_t more);

/* Carries out one request. Returns 0, or a negative errno after which the session must be closed;
 * *reason (static text) then says why: -EPROTO (a counter that is no number), -EMSGSIZE (value or
 * reply over reply_max), -ENOSPC (memory_max), -ENOMEM. */
int store_keyspace_apply(struct store_keyspace *ks, struct store_session *s,
                         const struct store_request *r, int64_t now_ms, const char **reason);

/* Continues s->listing by one piece. Returns 1 when there is more to do, 0 when the reply is in
 * s->out, or negative like store_keyspace_apply(). Keys may change between two pieces: every key
 * that exists all the time is listed. */
int store_keyspace_list_on(struct store_keyspace *ks, struct store_session *s, const char **reason);

/* Takes the next session whose output grew because of another session's request, or NULL. */
struct store_session *store_keyspace_take_ready(struct store_keyspace *ks);

/* Drops the session's wait, watches and output. */
void store_keyspace_leave(struct store_keyspace *ks, struct store_session *s);

#endif
