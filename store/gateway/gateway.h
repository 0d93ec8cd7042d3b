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
 * - WAITs of several workers for the same key become one: a later WAIT joins the one that is under
 *   way. The store's answer is passed on to the worker of a later WAIT only if the key certainly
 *   existed after that WAIT had come. The gateway sends one new WAIT for all later WAITs that get
 *   no answer.
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
#define STORE_GATEWAY_ID    16 /* number of random bytes that name a gateway's trunk */

/* size in bytes of HELLO, the first message of a gateway on a connection */
#define STORE_GATEWAY_HELLO ((size_t) (4 + STORE_GATEWAY_ID + 8 + 8 + 8))
struct store_gateway_hello {
    uint8_t id[STORE_GATEWAY_ID];
    uint64_t incarnation, round; /* the round whose store the gateway's workers use */
    uint64_t received;           /* bytes of the store's stream that the gateway has received */
};
void store_gateway_write_hello(const struct store_gateway_hello *h,
                               uint8_t out[STORE_GATEWAY_HELLO]);
/* Reads HELLO from `in` into *h. Returns 0, or -EPROTO if `in` does not begin with the magic
 * number. */
int store_gateway_read_hello(const uint8_t in[STORE_GATEWAY_HELLO], struct store_gateway_hello *h);

/* size in bytes of WELCOME, the store's answer to HELLO: one byte, an enum store_gateway_answer,
 * and a u64, the number of bytes of the gateway's stream that the store has received. If the answer
 * is not OK, the gateway must close the connection. */
#define STORE_GATEWAY_WELCOME ((size_t) 9)
enum store_gateway_answer {
    STORE_GATEWAY_OK = 0,
    STORE_GATEWAY_ROUND = 2, /* the store belongs to another round */
    STORE_GATEWAY_LOST = 3,  /* the store does not have the trunk that HELLO continues, or has lost
                              * bytes of it */
};

/* ---- the gateway ---- */

struct store_gateway;
struct store_gateway_worker; /* one connection of a worker */

/* Creates a gateway without workers and without a connection. `limits` must live as long as the
 * gateway. Returns NULL if memory is short. */
struct store_gateway *store_gateway_new(const struct store_limits *limits);
void store_gateway_free(struct store_gateway *g); /* frees its workers, too; `g` may be NULL */

/* Adds a connection of a worker. store_gateway_owner() returns `owner`. Returns NULL if memory is
 * short. */
struct store_gateway_worker *store_gateway_add(struct store_gateway *g, void *owner);
void *store_gateway_owner(const struct store_gateway_worker *w);
/* Handles bytes that have come from a worker. Requests above the limits of one worker (gateway.c)
 * are kept; store_gateway_go_on() sends them later. Returns 0. On error returns a negative errno
 * and sets *reason to a static text; in this case the owner must close the worker's connection. If
 * store_gateway_is_over() returns a reason for this worker, ignores the bytes and returns 0. */
int store_gateway_from_worker(struct store_gateway_worker *w, const void *data, size_t len,
                              const char **reason);
/* Call this when the owner has sent replies and removed them. The function sends requests that were
 * kept because of the limits. If it returns false, some are still kept: the owner must read no more
 * bytes from the worker until a call returns true. */
bool store_gateway_go_on(struct store_gateway_worker *w);
/* Call this when the worker has closed its sending side. The function ends the worker's wait and
 * watches. store_gateway_is_over() returns true once all replies to the worker have come. */
void store_gateway_half_closed(struct store_gateway_worker *w);
/* Returns the buffer with the replies for the worker. The owner sends them, and removes from the
 * buffer what it has sent. */
struct cr_buffer *store_gateway_replies(struct store_gateway_worker *w);
/* Returns true if the owner must close the worker's connection once the replies are sent. Sets
 * *reason to NULL, or after an error to a text that lives as long as the worker. */
bool store_gateway_is_over(const struct store_gateway_worker *w, const char **reason);
/* Call this when the worker's connection is closed. The function ends the worker's wait and
 * watches, and frees `w`. */
void store_gateway_remove(struct store_gateway_worker *w);
/* Returns a worker with news since it was returned last: its replies have grown, or its connection
 * may be over (store_gateway_is_over()). Returns NULL if no worker has news. */
struct store_gateway_worker *store_gateway_take_ready(struct store_gateway *g);

/* Returns how many bytes of the store's stream the gateway has received, for HELLO. */
uint64_t store_gateway_received(const struct store_gateway *g);
/* Makes the trunk go on over a new connection. Call this when the store has answered OK there.
 * `received` is the number in WELCOME. Returns 0, or -EPROTO if the gateway does not have the bytes
 * any more that the store lacks. */
int store_gateway_connected(struct store_gateway *g, uint64_t received);
/* Handles bytes from the store. Returns 0. After a negative errno, the trunk cannot be used any
 * more. */
int store_gateway_from_store(struct store_gateway *g, const void *data, size_t len);
/* Returns the buffer with the bytes for the store. The owner sends them, and removes from the
 * buffer what it has sent. Call this only between store_gateway_connected() and the end of that
 * connection. Returns NULL if memory is short. */
struct cr_buffer *store_gateway_to_store(struct store_gateway *g);
/* Call this every few seconds while connected. The function sends a PING to the store. Returns
 * false if the store has not answered the previous PING: the connection may be dead. */
bool store_gateway_ping(struct store_gateway *g);
/* Returns the number of bytes that wait to be sent to the store or acknowledged by it. */
size_t store_gateway_held(const struct store_gateway *g);
/* Sets *asked to the number of requests with a reply that the gateway has sent for the shared
 * session, and *joined to the number of workers' WAITs that joined a WAIT that was at the store
 * already. */
void store_gateway_counts(const struct store_gateway *g, uint64_t *asked, uint64_t *joined);

/* ---- the gate ---- */

struct store_gate;

/* Creates the store's end of one trunk. The pointers must live as long as the gate, and `keys` must
 * not be cleared before store_gate_free(). The gate adds 1 to *operations for each request. Returns
 * NULL if memory is short. */
struct store_gate *store_gate_new(struct store_keyspace *keys, const struct store_limits *limits,
                                  uint64_t *operations);
void store_gate_free(struct store_gate *gate); /* `gate` may be NULL */
uint64_t store_gate_received(const struct store_gate *gate);
/* Makes the trunk go on over a new connection. Call this when the gateway has connected, for the
 * first time or again. `received` is the number of bytes of the store's stream that the gateway has
 * received. Returns 0, or -EPROTO if the gate does not have the bytes any more that the gateway
 * lacks. */
int store_gate_connected(struct store_gate *gate, uint64_t received);
/* Handles bytes from the gateway: carries out the complete requests. Returns 0. After a negative
 * errno, the caller must free the gate. */
int store_gate_receive(struct store_gate *gate, const void *data, size_t len, int64_t now_ms);
/* Returns the buffer with the bytes for the gateway. The owner sends them, and removes from the
 * buffer what it has sent. Returns NULL if memory is short. */
struct cr_buffer *store_gate_out(struct store_gate *gate);
/* Returns how many bytes of memory the gate uses, without those that the key space counts. */
size_t store_gate_held(const struct store_gate *gate);
/* Call this with a session of the ready list whose `gate` is not NULL. The function moves the
 * session's output to the trunk. Returns 0. After a negative errno, the caller must free the
 * gate. */
int store_gate_wake(struct store_session *session);

#endif
