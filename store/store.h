/* The store: torch's TCPStore, served and spoken. The room's front door.
 *
 * The wire is docs/protocols/store.md. Keys here are the user's keys: the client puts torch's
 * leading '/' in front. Keys and values are bytes (any value, NUL included). */
#ifndef STORE_STORE_H
#define STORE_STORE_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

/* Borrowed bytes. */
struct store_bytes {
    const void *data; /* may be NULL when len is 0 */
    size_t len;
};

#define STORE_BYTES(text) ((struct store_bytes){(text), strlen(text)})

/* ---- limits: at least torch's own (its libuv server); see docs/protocols/store.md ---- */
#define STORE_KEY_MAX   ((size_t) 8192)              /* bytes on the wire, leading '/' included */
#define STORE_VALUE_MAX ((size_t) 64 << 20)          /* bytes of one value in one request */
#define STORE_LIST_MAX  ((size_t) 131072)            /* keys or pairs in one request */

/* ---- server: one thread, one loop, any number of spaces ----
 *
 * A space is a listening address with a key space of its own. The agent opens one for each attempt,
 * so that no attempt ever reads another's keys. All calls are thread-safe and synchronous. */

struct store_server;
struct store_space;

/* Exceeding one of them closes the connection that did, with one line in the log. */
struct store_server_options {
    size_t key_max, value_max, list_max; /* 0 = the limits above */
    size_t memory_max;                   /* bytes of one space: keys, values, waits, half requests,
                                            unread replies; 0 = half of this machine's memory */
    size_t client_max;                   /* connections in one space; 0 = no limit */
    size_t client_buffer_max;            /* one request, and the unread replies of one connection;
                                            0 = STORE_CLIENT_BUFFER_MAX */
};

#define STORE_CLIENT_BUFFER_MAX ((size_t) 256 << 20)

/* Starts the thread. `options` may be NULL; it is copied. */
int store_server_start(const struct store_server_options *options, struct store_server **out,
                       struct cr_error *err);

/* Listens on host:port (port 0: any free one) with an empty key space; *bound_port is the real
 * port. `host` is a name or address of this machine; NULL or "" is all interfaces, both families.
 * Returns 0, or -EADDRINUSE, -EADDRNOTAVAIL, -EACCES, -ENOENT (unknown host) with a text that names
 * the address. */
int store_server_open(struct store_server *server, const char *host, uint16_t port,
                      struct store_space **out, uint16_t *bound_port, struct cr_error *err);

/* Closes every connection of the space and forgets its keys; the port stays open throughout. */
void store_space_clear(struct store_space *space);

/* Closes the listener and every connection, frees the space. NULL is fine. */
void store_space_close(struct store_space *space);

/* "0.0.0.0:29500": the address it listens on, numeric. Borrowed from the space. */
const char *store_space_address(const struct store_space *space);

/* A connection that belongs to another room: the descriptor (non-blocking, now the receiver's) and
 * the bytes that were read from it, magic included, borrowed for the call. */
struct store_handoff {
    struct store_space *space;
    int fd;
    const void *data;
    size_t len;
};

/* Runs on the server's thread; it must not block. */
typedef void (*store_handoff_fn)(void *arg, const struct store_handoff *handoff);

/* From now on connections to any space that open with these four bytes are handed to `fn`. The
 * first byte must be above 0x08, so that no torch client can send it. Returns 0, -EINVAL, -EEXIST or
 * -ENOSPC (there is room for a few). */
int store_server_register_magic(struct store_server *server, const void *magic,
                                store_handoff_fn fn, void *arg);

/* Closes all spaces, ends and joins the thread, frees. NULL is fine. */
void store_server_stop(struct store_server *server);

/* ---- client: blocking, one connection, no thread, no libuv ----
 *
 * Not thread-safe: one caller at a time. There is no silent reconnection: after -ECONNRESET,
 * -EPIPE or -EPROTO the client is broken, every later call returns the same error, and only
 * store_client_close() is useful. Every call takes `timeout_ms` (CR_FOREVER = no limit) for the
 * whole of itself and returns -ETIMEDOUT with a text that names the operation and the keys; after a
 * timed-out get or wait the connection stays usable; after any other timed-out call it is broken. */

struct store_client;

enum store_protocol {
    STORE_PROTOCOL_MODERN, /* torch >= 2.5 and our server: VALIDATE and PING */
    STORE_PROTOCOL_LEGACY, /* torch 1.13 and 2.0: no handshake, other opcodes */
    STORE_PROTOCOL_PROBE,  /* unknown server: modern first, then older ones */
};

/* Connects, retrying refused and reset connections (the server may not be up yet) with back-off
 * until the time is up, and shakes hands. */
int store_client_connect(const char *host, uint16_t port, enum store_protocol protocol,
                         int64_t timeout_ms, struct store_client **out, struct cr_error *err);
void store_client_close(struct store_client *c); /* NULL is fine */

/* SET has no reply: 0 means handed to the kernel; the next call with a reply confirms it. */
int store_client_set(struct store_client *c, struct store_bytes key, struct store_bytes value,
                     int64_t timeout_ms, struct cr_error *err);

/* Waits for the key, then returns a malloc'ed copy of its value (a NUL is put behind it, not
 * counted in *len). */
int store_client_get(struct store_client *c, struct store_bytes key, int64_t timeout_ms,
                     void **value, size_t *len, struct cr_error *err);

/* Adds to a decimal counter (absent = 0); *total gets the sum. */
int store_client_add(struct store_client *c, struct store_bytes key, int64_t delta,
                     int64_t timeout_ms, int64_t *total, struct cr_error *err);

/* Sets key to `desired` if it holds `expected` (or is absent and `expected` is empty). The reply is
 * the value held afterwards, or, for an absent key with a non-empty `expected`, `expected`: the
 * result alone cannot prove a creation when expected equals desired. malloc'ed as for get. */
int store_client_compare_set(struct store_client *c, struct store_bytes key,
                             struct store_bytes expected, struct store_bytes desired,
                             int64_t timeout_ms, void **value, size_t *len, struct cr_error *err);

/* Waits until all keys exist. */
int store_client_wait(struct store_client *c, const struct store_bytes *keys, size_t key_count,
                      int64_t timeout_ms, struct cr_error *err);

/* *present = 1 if all keys exist now, else 0. */
int store_client_check(struct store_client *c, const struct store_bytes *keys, size_t key_count,
                       int64_t timeout_ms, int *present, struct cr_error *err);

/* *deleted = 1 if the key existed. */
int store_client_delete(struct store_client *c, struct store_bytes key, int64_t timeout_ms,
                        int *deleted, struct cr_error *err);

int store_client_num_keys(struct store_client *c, int64_t timeout_ms, int64_t *count,
                          struct cr_error *err);

#endif
