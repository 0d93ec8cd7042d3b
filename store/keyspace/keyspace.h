/* The key space: the keys, queues, waits and watches of one TCPStore, and what each request does to
 * them.
 *
 * A session is one client as the key space sees it; the caller embeds it in its connection. The
 * caller passes each request of the client to store_keyspace_apply(), which appends the reply to
 * the session's output. A request can also add to the output of other sessions: it answers waits
 * that missed only the key that was written, and it sends the change to the sessions that watch the
 * key. These other sessions are put on the ready list; the caller takes them from there and sends
 * their output.
 *
 *     apply(A sets k)  ──►  A's output: nothing, because SET has no reply
 *                           B waited for k: B's output grows by one byte, B is on the ready list
 *
 * Two operations on many keys are done in pieces, so that other clients are served in between:
 * LIST_KEYS (store_keyspace_list_on) and freeing cleared keys (store_keyspace_free_some).
 *
 * Cost: writing a key takes time in proportion to the waits for that key. A session that leaves or
 * cancels its wait takes time in proportion to the keys that it waits for or watches.
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

/* One key that a wait misses. */
struct store_registration {
    /* next registration with the same entry, in order of arrival */
    TAILQ_ENTRY(store_registration) next;
    struct store_entry *entry;            /* NULL once the key has been written */
    struct store_wait *wait;
};

/* A WAIT or BARRIER that has not been answered. */
struct store_wait {
    TAILQ_ENTRY(store_wait) next; /* links of the key space's list of waits, oldest first */
    struct store_session *session;
    int64_t since_ms;
    /* keys that have not been written yet; the wait is answered when it drops to 0 */
    size_t missing;
    size_t count;   /* registrations in use */
    size_t room;    /* registrations that are allocated */
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
    struct cr_buffer bytes; /* the part of the reply that is ready */
    bool short_of_memory;
};

/* One client as the key space sees it. Zero-initialise; end it with store_keyspace_leave(). */
struct store_session {
    struct store_output out;
    struct store_wait *wait; /* the wait of this session; NULL if it does not wait */
    SLIST_HEAD(, store_watch) watches;
    /* the LIST_KEYS of this session that is made in pieces, or NULL. Until it is complete, the
     * caller may call no other function for this session than store_keyspace_list_on(). */
    struct store_listing *listing;
    TAILQ_ENTRY(store_session) ready_next;
    /* NULL, or why a push could not be queued (static text): the caller must close the session */
    const char *lost;
    size_t pushed;    /* bytes of pushes since the session was put on the ready list */
    bool ready;       /* the session is on the ready list */
    /* set by the caller: it will call store_keyspace_list_on(), so long lists may be made in
     * pieces */
    bool lists_in_pieces;
    /* the client is older than CANCEL_WAIT (torch 1.13): if it sends a request while its wait is
     * unanswered, it has given up that wait */
    bool legacy;
};

/* A reply of up to STORE_REPLY_FREE bytes is not refused because of the memory limit. A session is
 * not lost because of the memory limit while it has at most STORE_PUSH_FREE bytes of pushes. */
#define STORE_REPLY_FREE ((size_t) 1 << 20)
#define STORE_PUSH_FREE  ((size_t) 64 << 10)

/* How much work is done in one piece. Tests set small values. */
struct store_pieces {
    size_t list_at_once; /* up to this many keys, LIST_KEYS is answered in one piece */
    size_t list_step;    /* buckets of the table that one piece of a longer list visits, at least */
    size_t free_step;    /* work of one store_keyspace_free_some(), in the unit of remains.c */
};

TAILQ_HEAD(store_waits, store_wait);
TAILQ_HEAD(store_ready, store_session);

struct store_keyspace {
    struct store_key_table table;
    size_t reply_max;  /* most bytes of one reply, and therefore of one stored value; below 4 GiB */
    size_t memory_max; /* bytes; 0 means no limit */
    /* bytes used by keys, values, waits and remains; the caller adds those of its buffers */
    size_t memory;
    /* bytes of pushes to sessions on the ready list, which `memory` does not contain yet */
    size_t pushed;
    struct store_pieces pieces;
    unsigned freed;                /* count of freed blocks, see store_heap_merge() */
    struct store_remains *remains; /* cleared tables that store_keyspace_free_some() has to free */
    struct store_waits waits;
    struct store_ready ready;
    uint64_t op_count[STORE_OP_COUNT];
    size_t key_count, queue_count, wait_count;
    /* bytes of existing keys, and bytes of their values and of the values in queues */
    size_t key_bytes, value_bytes;
};

/* Initialises an empty key space. Its struct must not be moved afterwards, because values and lists
 * point into it. `seed` is the secret seed of the hash table. */
void store_keyspace_init(struct store_keyspace *ks, const uint64_t seed[2]);
/* Frees all memory of the key space. All sessions must have left before. */
void store_keyspace_done(struct store_keyspace *ks);

/* Removes all keys and queues and sets the counts of operations to 0, in constant time. All
 * sessions must have left before. The memory of the keys still counts in ks->memory until
 * store_keyspace_free_some() has freed it. */
void store_keyspace_clear(struct store_keyspace *ks, const uint64_t seed[2]);

/* Frees one piece of the cleared keys, some hundred blocks of memory. Returns true while there is
 * more to free. */
bool store_keyspace_free_some(struct store_keyspace *ks);

/* Returns whether `more` bytes fit under memory_max. If they do not fit, it first frees cleared
 * keys until they fit or no cleared keys are left. */
bool store_keyspace_affords(struct store_keyspace *ks, size_t more);

/* Carries out one request. Returns 0 or a negative errno; on error *reason is set to a static text,
 * and the caller must close the session. The errors are -EPROTO (ADD to a value that is not a
 * number), -EMSGSIZE (value or reply longer than reply_max), -ENOSPC (memory_max reached) and
 * -ENOMEM. */
int store_keyspace_apply(struct store_keyspace *ks, struct store_session *s,
                         const struct store_request *r, int64_t now_ms, const char **reason);

/* Continues s->listing by one piece. Returns 1 when there is more to list, 0 when the reply is in
 * s->out, or a negative errno as store_keyspace_apply() does. Keys may be created and deleted
 * between two pieces: each key that exists during the whole listing is listed. */
int store_keyspace_list_on(struct store_keyspace *ks, struct store_session *s, const char **reason);

/* Removes the first session from the ready list and returns that session, or returns NULL if the
 * list is empty. The session's output has grown because of another session's request, so the caller
 * must send the output. */
struct store_session *store_keyspace_take_ready(struct store_keyspace *ks);

/* Call this when a session ends. It drops the session's wait, watches, listing and output. */
void store_keyspace_leave(struct store_keyspace *ks, struct store_session *s);

#endif
