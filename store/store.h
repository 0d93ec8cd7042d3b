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
#define STORE_KEY_MAX   ((size_t) 64 << 10)          /* bytes of a key, torch's leading '/' not counted */
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
    int no_thread; /* the loop runs in store_server_run(); every call comes from that thread */
};

#define STORE_CLIENT_BUFFER_MAX ((size_t) 256 << 20)

/* Starts the thread, if any. `options` may be NULL; it is copied. */
int store_server_start(const struct store_server_options *options, struct store_server **out,
                       struct cr_error *err);

/* With no_thread: serves until `signal_fd` is readable, which it does not read; then
 * store_server_stop(). A process of one thread is charged less for each system call: the kernel
 * need not guard its descriptors. SIGPIPE must be ignored. Returns 0 or negative. */
int store_server_run(struct store_server *server, int signal_fd);

/* Listens on host:port (port 0: any free one) with an empty key space; *bound_port is the real
 * port. `host` is a name or address of this machine; NULL or "" is all interfaces, both families.
 * Returns 0, or -EADDRINUSE, -EADDRNOTAVAIL, -EACCES, -ENOENT (unknown host) with a text that names
 * the address. */
int store_server_open(struct store_server *server, const char *host, uint16_t port,
                      struct store_space **out, uint16_t *bound_port, struct cr_error *err);

/* Takes leave of every connection of the space and forgets its keys, all at once; the port stays open
 * throughout. What takes its time follows little by little, others being served in between: the
 * clients' FIN, and the memory of many keys, which counts until it is freed; where it would be in
 * the way of the limit, it is freed first. */
void store_space_clear(struct store_space *space);

/* The same, and the listener is closed and the space freed. NULL is fine. */
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

/* ---- a store: one face for the client and the file store ----
 *
 * Every call takes `timeout_ms` (CR_FOREVER = no limit) for the whole of itself, and returns 0, or
 * -ETIMEDOUT, -ENOMEM, -EINVAL (more than STORE_KEY_MAX, STORE_LIST_MAX…), -ENOTSUP (the server is
 * too old for it), or what the transport says, with a text that names the operation, the keys and
 * the store. Outputs are written only on success. One caller at a time. */

struct store;

/* Bytes that a call returned, all in one block; a NUL stands behind each, not counted in its len.
 * store_list_done() frees them. */
struct store_list {
    struct store_bytes *items;
    size_t count;
    void *block; /* private: what the items point into */
};

void store_list_done(struct store_list *list);

/* What a kind of store does; called through store_set() and so on below. */
struct store_ops {
    int (*set)(struct store *s, struct store_bytes key, struct store_bytes value,
               int64_t timeout_ms, struct cr_error *err);
    int (*get)(struct store *s, struct store_bytes key, int64_t timeout_ms, void **value,
               size_t *len, struct cr_error *err);
    int (*add)(struct store *s, struct store_bytes key, int64_t delta, int64_t timeout_ms,
               int64_t *total, struct cr_error *err);
    int (*compare_set)(struct store *s, struct store_bytes key, struct store_bytes expected,
                       struct store_bytes desired, int64_t timeout_ms, void **value, size_t *len,
                       struct cr_error *err);
    int (*wait)(struct store *s, const struct store_bytes *keys, size_t key_count,
                int64_t timeout_ms, struct cr_error *err);
    int (*check)(struct store *s, const struct store_bytes *keys, size_t key_count,
                 int64_t timeout_ms, int *present, struct cr_error *err);
    int (*delete_key)(struct store *s, struct store_bytes key, int64_t timeout_ms, int *deleted,
                  struct cr_error *err);
    int (*num_keys)(struct store *s, int64_t timeout_ms, int64_t *count, struct cr_error *err);
    int (*append)(struct store *s, struct store_bytes key, struct store_bytes value,
                  int64_t timeout_ms, struct cr_error *err);
    int (*multi_get)(struct store *s, const struct store_bytes *keys, size_t key_count,
                     int64_t timeout_ms, struct store_list *values, struct cr_error *err);
    int (*multi_set)(struct store *s, const struct store_bytes *keys,
                     const struct store_bytes *values, size_t pair_count, int64_t timeout_ms,
                     struct cr_error *err);
    int (*queue_push)(struct store *s, struct store_bytes name, struct store_bytes value,
                      int64_t timeout_ms, struct cr_error *err);
    int (*queue_pop)(struct store *s, struct store_bytes name, int64_t timeout_ms, void **value,
                     size_t *len, struct cr_error *err);
    int (*queue_len)(struct store *s, struct store_bytes name, int64_t timeout_ms, int64_t *count,
                     struct cr_error *err);
    int (*list_keys)(struct store *s, int64_t timeout_ms, struct store_list *keys,
                     struct cr_error *err);
    int (*barrier)(struct store *s, struct store_bytes key, int64_t world_size, int64_t timeout_ms,
                   struct cr_error *err);
    void (*close)(struct store *s);
};

/* The first member of every kind of store. */
struct store {
    const struct store_ops *ops;
};

/* SET has no reply on the wire: 0 means handed to the kernel; the next call with a reply confirms
 * it. append, multi_set and queue_push are the same. */
static inline int store_set(struct store *s, struct store_bytes key, struct store_bytes value,
                            int64_t timeout_ms, struct cr_error *err) {
    return s->ops->set(s, key, value, timeout_ms, err);
}

/* Waits for the key, then returns a malloc'ed copy of its value (a NUL is put behind it, not
 * counted in *len). */
static inline int store_get(struct store *s, struct store_bytes key, int64_t timeout_ms,
                            void **value, size_t *len, struct cr_error *err) {
    return s->ops->get(s, key, timeout_ms, value, len, err);
}

/* Adds to a decimal counter (absent = 0); *total gets the sum. */
static inline int store_add(struct store *s, struct store_bytes key, int64_t delta,
                            int64_t timeout_ms, int64_t *total, struct cr_error *err) {
    return s->ops->add(s, key, delta, timeout_ms, total, err);
}

/* Sets key to `desired` if it holds `expected` (or is absent and `expected` is empty). The reply is
 * the value held afterwards, or, for an absent key with a non-empty `expected`, `expected`: the
 * result alone cannot prove a creation when expected equals desired. malloc'ed as for get. */
static inline int store_compare_set(struct store *s, struct store_bytes key,
                                    struct store_bytes expected, struct store_bytes desired,
                                    int64_t timeout_ms, void **value, size_t *len,
                                    struct cr_error *err) {
    return s->ops->compare_set(s, key, expected, desired, timeout_ms, value, len, err);
}

/* Waits until all keys exist. timeout_ms 0 looks once. */
static inline int store_wait(struct store *s, const struct store_bytes *keys, size_t key_count,
                             int64_t timeout_ms, struct cr_error *err) {
    return s->ops->wait(s, keys, key_count, timeout_ms, err);
}

/* *present = 1 if all keys exist now, else 0. */
static inline int store_check(struct store *s, const struct store_bytes *keys, size_t key_count,
                              int64_t timeout_ms, int *present, struct cr_error *err) {
    return s->ops->check(s, keys, key_count, timeout_ms, present, err);
}

/* *deleted = 1 if the key existed (a file store cannot tell and always says 1, as torch's). */
static inline int store_delete(struct store *s, struct store_bytes key, int64_t timeout_ms,
                               int *deleted, struct cr_error *err) {
    return s->ops->delete_key(s, key, timeout_ms, deleted, err);
}

/* All keys of the store, also those that the store keeps for itself. */
static inline int store_num_keys(struct store *s, int64_t timeout_ms, int64_t *count,
                                 struct cr_error *err) {
    return s->ops->num_keys(s, timeout_ms, count, err);
}

/* Appends to the value, or creates it. */
static inline int store_append(struct store *s, struct store_bytes key, struct store_bytes value,
                               int64_t timeout_ms, struct cr_error *err) {
    return s->ops->append(s, key, value, timeout_ms, err);
}

/* Waits for all keys, then returns their values in the order asked for. */
static inline int store_multi_get(struct store *s, const struct store_bytes *keys,
                                  size_t key_count, int64_t timeout_ms, struct store_list *values,
                                  struct cr_error *err) {
    return s->ops->multi_get(s, keys, key_count, timeout_ms, values, err);
}

/* values[pair_count] belong to keys[pair_count]; set in order. */
static inline int store_multi_set(struct store *s, const struct store_bytes *keys,
                                  const struct store_bytes *values, size_t pair_count,
                                  int64_t timeout_ms, struct cr_error *err) {
    return s->ops->multi_set(s, keys, values, pair_count, timeout_ms, err);
}

/* Queues live beside the keys: FIFO, each element popped once. */
static inline int store_queue_push(struct store *s, struct store_bytes name,
                                   struct store_bytes value, int64_t timeout_ms,
                                   struct cr_error *err) {
    return s->ops->queue_push(s, name, value, timeout_ms, err);
}

/* Waits for an element and takes it; timeout_ms 0 only looks: -ENOENT if the queue is empty. */
static inline int store_queue_pop(struct store *s, struct store_bytes name, int64_t timeout_ms,
                                  void **value, size_t *len, struct cr_error *err) {
    return s->ops->queue_pop(s, name, timeout_ms, value, len, err);
}

static inline int store_queue_len(struct store *s, struct store_bytes name, int64_t timeout_ms,
                                  int64_t *count, struct cr_error *err) {
    return s->ops->queue_len(s, name, timeout_ms, count, err);
}

/* The user's keys, in no order. */
static inline int store_list_keys(struct store *s, int64_t timeout_ms, struct store_list *keys,
                                  struct cr_error *err) {
    return s->ops->list_keys(s, timeout_ms, keys, err);
}

/* Returns when world_size callers have arrived. A name serves once. */
static inline int store_barrier(struct store *s, struct store_bytes key, int64_t world_size,
                                int64_t timeout_ms, struct cr_error *err) {
    return s->ops->barrier(s, key, world_size, timeout_ms, err);
}

static inline void store_close(struct store *s) { /* NULL is fine */
    if (s != NULL) s->ops->close(s);
}

/* ---- client: blocking, one connection, no thread, no libuv ----
 *
 * There is no silent reconnection: after -ECONNRESET, -EPIPE or -EPROTO the client is broken, every
 * later call returns the same error, and only closing is useful. After a timed-out get, wait,
 * multi_get, queue_pop or barrier the connection stays usable (an old server, which cannot cancel a
 * wait, is connected to afresh); after any other timed-out call it is broken. */

struct store_client; /* begins with a struct store */

enum store_protocol {
    STORE_PROTOCOL_MODERN, /* torch >= 2.5 and our server: VALIDATE and PING */
    STORE_PROTOCOL_LEGACY, /* torch 1.13 and 2.0: no handshake, other opcodes */
    STORE_PROTOCOL_PROBE,  /* unknown server: modern first, then older ones */
};

/* Largest value, and sum of values of one multi_get, that the client accepts from a server. */
#define STORE_REPLY_MAX ((size_t) 1 << 30)

/* Connects, retrying refused and reset connections and unknown names (the server may not be up yet)
 * with back-off until the time is up, and shakes hands. */
int store_client_connect(const char *host, uint16_t port, enum store_protocol protocol,
                         int64_t timeout_ms, struct store_client **out, struct cr_error *err);

static inline struct store *store_client_store(struct store_client *c) { return (struct store *) c; }

/* Says in a few words what was found: "modern", "modern without ping", "legacy". */
const char *store_client_protocol(const struct store_client *c);

/* Torch's join counter: the raw key "init/", which has no leading '/'. */
int store_client_add_raw(struct store_client *c, struct store_bytes raw_key, int64_t delta,
                         int64_t timeout_ms, int64_t *total, struct cr_error *err);

static inline void store_client_close(struct store_client *c) { /* NULL is fine */
    store_close(store_client_store(c));
}

/* ---- a store that needs no server ---- */

/* A file that any number of processes share, torch's FileStore among them (same bytes). The file
 * is made by the first write. With world_size >= 0, the last of world_size stores to be closed
 * removes it. Queues are not supported. */
int store_file_open(const char *path, int64_t world_size, struct store **out,
                    struct cr_error *err);

#endif
