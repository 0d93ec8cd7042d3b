/* The key space: the keys, queues, waits and watches of one TCPStore, and what each request does to
 * them.
 *
 * A session is one client as the key space sees it; the caller embeds the session in its
 * connection. The caller passes each request of the client to store_keyspace_apply(), which appends
 * the reply to the session's output. A request can also append to the output of other sessions: a
 * request that writes a key answers the sessions that wait for this key and for no other, and sends
 * the change to the sessions that watch this key. The key space puts these other sessions on the
 * ready list; the caller takes them from the list and sends their output.
 *
 *     apply(A sets k)  ──►  A's output: nothing, because SET has no reply
 *                           B waited for k: B's output grows by one byte, B is on the ready list
 *
 * Two operations on many keys are done in pieces, and other clients are served between two pieces:
 * LIST_KEYS (store_keyspace_list_on) and freeing cleared keys (store_keyspace_free_some).
 *
 * To write a key takes time in proportion to the number of waits for the key. To end a session, or
 * to cancel its wait, takes time in proportion to the number of keys that it waits for or watches.
 *
 * Pure: no sockets, no globals; the time is an argument. */
#ifndef STORE_KEYSPACE_KEYSPACE_H
#define STORE_KEYSPACE_KEYSPACE_H

#include "store/keyspace/key_table.h"
#include "store/keyspace/output.h"
#include "store/keyspace/value.h"
#include "store/wire/wire.h"

#include <stdbool.h>
#include <sys/queue.h>

/* One key for which a wait still waits. */
struct store_registration {
    /* links of the entry's list of registrations, in order of arrival */
    TAILQ_ENTRY(store_registration) next;
    struct store_entry *entry;            /* entry of the key; NULL once the key has been written */
    struct store_wait *wait;
};

/* A WAIT or BARRIER that has not been answered. */
struct store_wait {
    TAILQ_ENTRY(store_wait) next; /* links of the key space's list of all waits, oldest first */
    struct store_session *session;
    int64_t since_ms;
    /* number of the wait's keys that have not been written; at 0 the wait is answered */
    size_t missing;
    size_t count;   /* number of registrations in use */
    size_t room;    /* number of registrations that are allocated */
    bool barrier;
    struct store_registration registrations[];
};

/* One key that a session watches, by a WATCH request. */
struct store_watch {
    LIST_ENTRY(store_watch) next;      /* next watch of the same entry */
    SLIST_ENTRY(store_watch) next_own; /* next watch of the same session */
    struct store_entry *entry;
    struct store_session *session;
};

/* The state of a LIST_KEYS that is carried out in pieces. */
struct store_listing {
    uint64_t cursor, count;
    struct cr_buffer bytes; /* the part of the reply that has been made */
    bool short_of_memory;
};

struct store_gate;

/* One client as the key space sees it. Zero-initialise; end it with store_keyspace_leave(). */
struct store_session {
    struct store_output out;
    struct store_wait *wait; /* the wait of this session; NULL if the session does not wait */
    SLIST_HEAD(, store_watch) watches;
    /* the LIST_KEYS of this session that is being made in pieces, or NULL. While it is not NULL,
     * the caller may call only store_keyspace_list_on() for this session. */
    struct store_listing *listing;
    TAILQ_ENTRY(store_session) ready_next;
    /* reason (static text) why a push could not be queued, or NULL. If `lost` is not NULL, the
     * caller must close the session. */
    const char *lost;
    size_t pushed;    /* bytes of pushes in `out` since the session was put on the ready list */
    bool ready;       /* true while the session is on the ready list */
    /* The caller sets this to true if it calls store_keyspace_list_on(). A LIST_KEYS of many keys
     * is then carried out in pieces, otherwise at once. */
    bool lists_in_pieces;
    /* true if the client speaks the legacy dialect, whose clients have no CANCEL_WAIT (torch 1.13).
     * Such a client ends its wait by sending its next request. */
    bool legacy;
    /* true if the last wait of the session was answered by an element of a queue, which can answer
     * one wait only. The code that reads this field sets it to false. */
    bool by_queue;
    /* the gate (store/gateway) that the session belongs to; NULL if it belongs to a connection. The
     * key space does not use this field. */
    struct store_gate *gate;
};

/* Exceptions to the memory limit: a reply of up to STORE_REPLY_FREE bytes is always made, and a
 * session with at most STORE_PUSH_FREE bytes of pushes is never lost because of the memory
 * limit. */
#define STORE_REPLY_FREE ((size_t) 1 << 20)
#define STORE_PUSH_FREE  ((size_t) 64 << 10)

/* How much work is done in one piece. Tests set smaller values. */
struct store_pieces {
    size_t list_at_once; /* largest number of keys for which LIST_KEYS is answered in one piece */
    size_t list_step;    /* smallest number of buckets that one piece of a longer list visits */
    size_t free_step;    /* work of one store_keyspace_free_some(), in the units of remains.c */
};

TAILQ_HEAD(store_waits, store_wait);
TAILQ_HEAD(store_ready, store_session);

struct store_keyspace {
    struct store_key_table table;
    size_t reply_max;  /* longest reply, and longest stored value, in bytes; below 4 GiB */
    size_t memory_max; /* limit of `memory` in bytes; 0 means no limit */
    /* bytes of memory used by keys, values, waits, watches and remains; the caller adds the bytes
     * of its own buffers */
    size_t memory;
    /* bytes of pushes in the output of the sessions on the ready list; `memory` does not include
     * these bytes */
    size_t pushed;
    struct store_pieces pieces;
    unsigned freed;                /* number of freed blocks; store_heap_merge() is called whenever
                                    * it is a multiple of STORE_MERGE_AFTER */
    struct store_remains *remains; /* cleared tables that store_keyspace_free_some() has to free */
    struct store_waits waits;
    struct store_ready ready;
    uint64_t op_count[STORE_OP_COUNT];
    size_t key_count, queue_count, wait_count;
    /* key_bytes: bytes of all keys that exist; value_bytes: bytes of their values and of all values
     * in queues */
    size_t key_bytes, value_bytes;
};

/* Initialises an empty key space. The struct must not be moved afterwards, because values and lists
 * point into it. `seed` is the secret seed of the hash table. */
void store_keyspace_init(struct store_keyspace *ks, const uint64_t seed[2]);
/* Frees all memory of the key space. The caller must have ended all sessions by
 * store_keyspace_leave(). */
void store_keyspace_done(struct store_keyspace *ks);

/* Removes all keys and queues and sets the counts of operations to 0, in constant time. The caller
 * must have ended all sessions by store_keyspace_leave(). The memory of the keys counts in
 * ks->memory until store_keyspace_free_some() has freed it. */
void store_keyspace_clear(struct store_keyspace *ks, const uint64_t seed[2]);

/* Frees one piece, some hundred blocks of memory, of the cleared keys. Returns true if cleared keys
 * are left, which later calls have to free. */
bool store_keyspace_free_some(struct store_keyspace *ks);

/* Returns whether `more` bytes fit under memory_max. While they do not fit, the function first
 * frees pieces of cleared keys, until the bytes fit or no cleared keys are left. */
bool store_keyspace_affords(struct store_keyspace *ks, size_t more);

/* Carries out one request. Returns 0 or a negative errno; on error *reason is set to a static text,
 * and the caller must close the session. The errors are -EPROTO (ADD to a value that is not a
 * number), -EMSGSIZE (value or reply longer than reply_max), -ENOSPC (memory_max reached) and
 * -ENOMEM. */
int store_keyspace_apply(struct store_keyspace *ks, struct store_session *s,
                         const struct store_request *r, int64_t now_ms, const char **reason);

/* Makes a session that does not wait at present wait again for the keys of the WAIT `r`, behind all
 * other waits. A key without a value does not count as existing, even if the queue of this name has
 * elements. If all keys exist, the function answers the wait at once. Returns what
 * store_keyspace_apply() returns. */
int store_keyspace_wait_on(struct store_keyspace *ks, struct store_session *s,
                           const struct store_request *r, int64_t now_ms, const char **reason);

/* Makes one more piece of the LIST_KEYS in s->listing. Returns 1 if more pieces follow; 0 if the
 * complete reply is in s->out; or a negative errno, and sets *reason, as store_keyspace_apply()
 * does. Keys may be created and deleted between two pieces: the reply lists every key that exists
 * from the first piece to the last. */
int store_keyspace_list_on(struct store_keyspace *ks, struct store_session *s, const char **reason);

/* Removes the first session from the ready list and returns this session, or returns NULL if the
 * list is empty. Another session's request has appended to this session's output, so the caller
 * must send the output. */
struct store_session *store_keyspace_take_ready(struct store_keyspace *ks);

/* Call this when a session ends. It drops the session's wait, watches, listing and output. */
void store_keyspace_leave(struct store_keyspace *ks, struct store_session *s);

#endif
