/* The gateway of a store: both of its ends. This header is the door of store/gateway.
 *
 * A gateway serves the store's protocol to the workers of one node, and carries their requests to
 * the round's store over one trunk (trunk_internal.h). The store's end of a trunk is a gate.
 *
 *     workers ── requests ──► gateway ══ trunk ══► gate ── requests ──► key space
 *     workers ◄── replies ─── gateway ◄══════════ gate ◄── replies ─── key space
 *
 * - All requests of a node share one session of the key space. Only a request that waits has a
 *   session of its own, and so has a connection that watches keys (torch 1.13 and older).
 * - WAITs of several workers for the same key become one: the later ones join the one that is under
 *   way. A later one is answered together with it only if it is certain that the key existed after
 *   the later one came. Otherwise the gateway asks once more for all later ones together.
 *   There is one difference to a store without gateways: a worker that waits for the key in which a
 *   BARRIER counts may be answered only when the barrier is complete.
 * - When the connection below the trunk is lost, requests and replies wait for the next one; each
 *   request is carried out exactly once.
 *
 * Pure: bytes go in and bytes come out; no socket, no clock. */
#ifndef STORE_GATEWAY_GATEWAY_H
#define STORE_GATEWAY_GATEWAY_H

#include "base/buffer.h"
#include "store/keyspace/keyspace.h"
#include "store/wire/wire.h"

#include <stdbool.h>
#include <stdint.h>

/* ---- the greeting of a connection ---- */

#define STORE_GATEWAY_MAGIC "CRG1"
#define STORE_GATEWAY_ID    16 /* random bytes that name a gateway's trunk */

/* HELLO, the first bytes that a gateway sends on a connection. */
#define STORE_GATEWAY_HELLO ((size_t) (4 + STORE_GATEWAY_ID + 8 + 8 + 8))
struct store_gateway_hello {
    uint8_t id[STORE_GATEWAY_ID];
    uint64_t incarnation, round; /* the round whose store the gateway's workers use */
    uint64_t received;           /* bytes of the store's stream that the gateway has received */
};
void store_gateway_write_hello(const struct store_gateway_hello *h,
                               uint8_t out[STORE_GATEWAY_HELLO]);
/* Returns 0, or -EPROTO if the bytes do not begin with the magic number. */
int store_gateway_read_hello(const uint8_t in[STORE_GATEWAY_HELLO], struct store_gateway_hello *h);

/* WELCOME, the store's answer: one byte, and u64 bytes of the gateway's stream that the store has
 * received. After any answer but OK, the store closes the connection. */
#define STORE_GATEWAY_WELCOME ((size_t) 9)
enum store_gateway_answer {
    STORE_GATEWAY_OK = 0,
    STORE_GATEWAY_ROUND = 2, /* the store belongs to another round */
    STORE_GATEWAY_LOST = 3,  /* the store knows nothing of this trunk, which has begun before */
};

/* ---- the gateway ---- */

struct store_gateway;
struct store_gateway_worker; /* one connection of a worker */

/* `limits` must live as long as the gateway. Returns NULL when memory is short. */
struct store_gateway *store_gateway_new(const struct store_limits *limits);
void store_gateway_free(struct store_gateway *g); /* frees its workers, too; `g` may be NULL */

/* Adds a connection of a worker; `owner` is returned by store_gateway_owner(). Returns NULL when
 * memory is short. */
struct store_gateway_worker *store_gateway_add(struct store_gateway *g, void *owner);
void *store_gateway_owner(const struct store_gateway_worker *w);
/* Handles bytes from a worker. Returns 0; or a negative errno, and sets *reason to a static text:
 * the owner must close the worker's connection. */
int store_gateway_from_worker(struct store_gateway_worker *w, const void *data, size_t len,
                              const char **reason);
/* Call this when the worker has closed its sending side. Its wait and watches end, and
 * store_gateway_is_over() is true once it has all replies. */
void store_gateway_half_closed(struct store_gateway_worker *w);
/* Returns the replies for the worker; the owner removes what it has sent. */
struct cr_buffer *store_gateway_replies(struct store_gateway_worker *w);
/* Returns true if the worker's connection must be closed once its replies are sent. If that is
 * because of an error, sets *reason to a text that lives as long as the worker; else to NULL. */
bool store_gateway_is_over(const struct store_gateway_worker *w, const char **reason);
/* Call this when the worker's connection is closed. Ends its wait, and frees `w`. */
void store_gateway_remove(struct store_gateway_worker *w);
/* Returns a worker whose replies have grown, or which is over, since the last call; or NULL. */
struct store_gateway_worker *store_gateway_take_ready(struct store_gateway *g);

/* Returns how many bytes of the store's stream the gateway has received, for HELLO. */
uint64_t store_gateway_received(const struct store_gateway *g);
/* Call this when the store has answered OK on a new connection. Returns 0 or -EPROTO. */
int store_gateway_connected(struct store_gateway *g, uint64_t received);
/* Handles bytes from the store. Returns 0, or a negative errno: the trunk is of no use any more. */
int store_gateway_from_store(struct store_gateway *g, const void *data, size_t len);
/* Returns the bytes for the store; the owner removes what it has sent. Call this only between
 * store_gateway_connected() and the end of that connection. Returns NULL when memory is short. */
struct cr_buffer *store_gateway_to_store(struct store_gateway *g);
/* Call this every few seconds while connected. Sends a PING to the store. Returns false if the
 * store has not answered the previous one: the connection may be dead. */
bool store_gateway_ping(struct store_gateway *g);
/* Returns the number of bytes that wait to be sent to the store or acknowledged by it. */
size_t store_gateway_held(const struct store_gateway *g);
/* Returns how many requests the gateway has sent to the store, and how many of the workers'
 * requests joined a wait that was under way. */
void store_gateway_counts(const struct store_gateway *g, uint64_t *asked, uint64_t *joined);

/* ---- the gate ---- */

struct store_gate;

/* Creates the store's end of one trunk. The pointers must live as long as the gate, and `keys` must
 * not be cleared before store_gate_free(). Adds 1 to *operations for each request. Returns NULL
 * when memory is short. */
struct store_gate *store_gate_new(struct store_keyspace *keys, const struct store_limits *limits,
                                  uint64_t *operations);
void store_gate_free(struct store_gate *gate); /* `gate` may be NULL */
uint64_t store_gate_received(const struct store_gate *gate);
/* Call this when the gateway has connected again and has received so many bytes of the store's
 * stream. Returns 0 or -EPROTO. */
int store_gate_connected(struct store_gate *gate, uint64_t received);
/* Handles bytes from the gateway: carries out the complete requests. Returns 0; or a negative
 * errno, and the gate must be freed. */
int store_gate_receive(struct store_gate *gate, const void *data, size_t len, int64_t now_ms);
/* Returns the bytes for the gateway; the owner removes what it has sent. Returns NULL when memory
 * is short. */
struct cr_buffer *store_gate_out(struct store_gate *gate);
/* Returns the number of bytes of memory that the gate holds beyond those that the key space
 * counts. */
size_t store_gate_held(const struct store_gate *gate);
/* Call this with a session of the ready list whose `gate` is not NULL. Moves its output to the
 * trunk. Returns 0, or a negative errno, and the gate must be freed. */
int store_gate_wake(struct store_session *session);

#endif
