/* A store as its users see it, and the two kinds of it: the TCP client and the file store.
 *
 * `struct store` is the common interface. Every call takes `timeout_ms` (CR_FOREVER = no limit) for
 * the whole call and returns 0, or -ETIMEDOUT, -ENOMEM, -EMSGSIZE (over STORE_KEY_MAX,
 * STORE_VALUE_MAX, STORE_LIST_MAX …), -ENOTSUP (the server is too old for it), or an error of the
 * transport, with a text that names the operation, the keys and the store. Outputs are written only
 * on success. A store may be used by one thread at a time.
 *
 * This code lives in other people's processes (libcrunrt): it starts no thread, raises no signal,
 * keeps no global state and needs libc alone. */
#ifndef STORE_CLIENT_CLIENT_H
#define STORE_CLIENT_CLIENT_H

#include "base/error.h"
#include "store/bytes/bytes.h"

struct store;

/* What compare_set does: `key` becomes `desired` if it holds `expected`. */
struct store_swap {
    struct store_bytes key, expected, desired;
};

/* What a kind of store implements; users call store_set() and so on below. */
struct store_ops {
    int (*set)(struct store *s, struct store_bytes key, struct store_bytes value,
               int64_t timeout_ms, struct cr_error *err);
    int (*get)(struct store *s, struct store_bytes key, int64_t timeout_ms, void **value,
               size_t *len, struct cr_error *err);
    int (*add)(struct store *s, struct store_bytes key, int64_t delta, int64_t timeout_ms,
               int64_t *total, struct cr_error *err);
    int (*compare_set)(struct store *s, const struct store_swap *swap, int64_t timeout_ms,
                       void **value, size_t *len, struct cr_error *err);
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

/* SET has no reply on the wire: 0 means that the kernel took the request; the next call with a
 * reply confirms it. The same holds for append, multi_set and queue_push. */
static inline int store_set(struct store *s, struct store_bytes key, struct store_bytes value,
                            int64_t timeout_ms, struct cr_error *err) {
    return s->ops->set(s, key, value, timeout_ms, err);
}

/* Waits for the key, then returns a malloc'ed copy of its value, with a NUL behind it that *len
 * does not count. */
static inline int store_get(struct store *s, struct store_bytes key, int64_t timeout_ms,
                            void **value, size_t *len, struct cr_error *err) {
    return s->ops->get(s, key, timeout_ms, value, len, err);
}

/* Adds to a decimal counter (absent = 0) and returns the sum in *total. */
static inline int store_add(struct store *s, struct store_bytes key, int64_t delta,
                            int64_t timeout_ms, int64_t *total, struct cr_error *err) {
    return s->ops->add(s, key, delta, timeout_ms, total, err);
}

/* Sets swap->key to swap->desired if it holds swap->expected, or if it is absent and `expected`
 * is empty. Returns the value that the key holds afterwards, malloc'ed as for get; if the key
 * is absent and `expected` is not empty, it returns `expected`. So the result alone does not
 * prove that the key was created when `expected` equals `desired`. */
static inline int store_compare_set(struct store *s, const struct store_swap *swap,
                                    int64_t timeout_ms, void **value, size_t *len,
                                    struct cr_error *err) {
    return s->ops->compare_set(s, swap, timeout_ms, value, len, err);
}

/* Waits until all keys exist. With timeout_ms 0 it looks once. */
static inline int store_wait(struct store *s, const struct store_bytes *keys, size_t key_count,
                             int64_t timeout_ms, struct cr_error *err) {
    return s->ops->wait(s, keys, key_count, timeout_ms, err);
}

/* *present becomes 1 if all keys exist now, else 0. */
static inline int store_check(struct store *s, const struct store_bytes *keys, size_t key_count,
                              int64_t timeout_ms, int *present, struct cr_error *err) {
    return s->ops->check(s, keys, key_count, timeout_ms, present, err);
}

/* *deleted becomes 1 if the key existed, else 0. A file store always returns 1, as torch's does. */
static inline int store_delete(struct store *s, struct store_bytes key, int64_t timeout_ms,
                               int *deleted, struct cr_error *err) {
    return s->ops->delete_key(s, key, timeout_ms, deleted, err);
}

/* Counts all keys, those included that clients and stores keep for themselves. */
static inline int store_num_keys(struct store *s, int64_t timeout_ms, int64_t *count,
                                 struct cr_error *err) {
    return s->ops->num_keys(s, timeout_ms, count, err);
}

/* Appends to the value, or creates it. */
static inline int store_append(struct store *s, struct store_bytes key, struct store_bytes value,
                               int64_t timeout_ms, struct cr_error *err) {
    return s->ops->append(s, key, value, timeout_ms, err);
}

/* Waits for all keys, then returns their values in the order of `keys`. */
static inline int store_multi_get(struct store *s, const struct store_bytes *keys,
                                  size_t key_count, int64_t timeout_ms, struct store_list *values,
                                  struct cr_error *err) {
    return s->ops->multi_get(s, keys, key_count, timeout_ms, values, err);
}

/* Sets keys[i] to values[i], in order, for each i below pair_count. */
static inline int store_multi_set(struct store *s, const struct store_bytes *keys,
                                  const struct store_bytes *values, size_t pair_count,
                                  int64_t timeout_ms, struct cr_error *err) {
    return s->ops->multi_set(s, keys, values, pair_count, timeout_ms, err);
}

/* Queues have names of their own beside the keys: first in, first out, each element popped once. */
static inline int store_queue_push(struct store *s, struct store_bytes name,
                                   struct store_bytes value, int64_t timeout_ms,
                                   struct cr_error *err) {
    return s->ops->queue_push(s, name, value, timeout_ms, err);
}

/* Waits for an element and takes it. With timeout_ms 0 it looks once: -ENOENT if the queue is
 * empty. The value is malloc'ed as for get. */
static inline int store_queue_pop(struct store *s, struct store_bytes name, int64_t timeout_ms,
                                  void **value, size_t *len, struct cr_error *err) {
    return s->ops->queue_pop(s, name, timeout_ms, value, len, err);
}

static inline int store_queue_len(struct store *s, struct store_bytes name, int64_t timeout_ms,
                                  int64_t *count, struct cr_error *err) {
    return s->ops->queue_len(s, name, timeout_ms, count, err);
}

/* Returns the keys that users named, in no order. */
static inline int store_list_keys(struct store *s, int64_t timeout_ms, struct store_list *keys,
                                  struct cr_error *err) {
    return s->ops->list_keys(s, timeout_ms, keys, err);
}

/* Returns when world_size callers have arrived. A key serves for one barrier. */
static inline int store_barrier(struct store *s, struct store_bytes key, int64_t world_size,
                                int64_t timeout_ms, struct cr_error *err) {
    return s->ops->barrier(s, key, world_size, timeout_ms, err);
}

static inline void store_close(struct store *s) { /* NULL is fine */
    if (s != NULL) s->ops->close(s);
}

/* ---- the TCP client: blocking, one connection ----
 *
 * It never reconnects silently: after -ECONNRESET, -EPIPE or -EPROTO the client is broken, every
 * later call fails with the same code, and it can only be closed. After a get, wait, multi_get,
 * queue_pop or barrier that timed out the client stays usable; to a server of before CANCEL_WAIT
 * (torch 1.13 and 2.0) it makes a new connection. After any other call that timed out it is
 * broken. */

struct store_client; /* begins with a struct store */

enum store_protocol {
    STORE_PROTOCOL_MODERN, /* torch >= 2.5 and our server: VALIDATE and PING */
    STORE_PROTOCOL_LEGACY, /* torch 1.13 and 2.0: no handshake, other opcodes */
    STORE_PROTOCOL_PROBE,  /* unknown server: modern first, then older ones */
};

/* Connects and shakes hands. Refused and reset connections and unknown names are retried with
 * back-off until the time is up, because the server may not be running yet. */
int store_client_connect(const char *host, uint16_t port, enum store_protocol protocol,
                         int64_t timeout_ms, struct store_client **out, struct cr_error *err);

static inline struct store *store_client_store(struct store_client *c) {
    return (struct store *) c;
}

/* What the server was found to be: "modern", "modern without ping" or "legacy". */
const char *store_client_protocol(const struct store_client *c);

/* Adds to a key that has no leading '/' on the wire, such as torch's join counter "init/". */
int store_client_add_raw(struct store_client *c, struct store_bytes raw_key, int64_t delta,
                         int64_t timeout_ms, int64_t *total, struct cr_error *err);

static inline void store_client_close(struct store_client *c) { /* NULL is fine */
    store_close(store_client_store(c));
}

/* Asks one of our servers for its statistics over a connection of its own. *text becomes the
 * malloc'ed JSON object of docs/protocols/store.md, section 6, with a NUL behind it. Returns 0, or
 * -ECONNRESET if the server closed the connection: it is no server of ours. */
int store_client_stat(const char *host, uint16_t port, int64_t timeout_ms, char **text,
                      size_t *len, struct cr_error *err);

/* ---- the file store ---- */

/* Opens a store in a file that any number of processes share, torch's FileStore among them: the
 * bytes are the same. The file is created if it is missing. With world_size >= 0, the last of
 * world_size stores to be closed removes it. Queues are not supported. */
int store_file_open(const char *path, int64_t world_size, struct store **out,
                    struct cr_error *err);

#endif
