/* The interface of a store, and its two implementations: the TCP client and the file store.
 *
 * Users call the functions store_set(), store_get() and so on with a `struct store`. Every such
 * function except store_close() has a parameter `timeout_ms`, the longest time that the whole call
 * may take (CR_FOREVER = no limit). It returns 0; or a negative errno, and sets err to a text that
 * names the operation, the keys and the store. The usual errors are -ETIMEDOUT, -ENOMEM, -EMSGSIZE
 * (a limit such as STORE_KEY_MAX is exceeded), -ENOTSUP (the store does not have the operation),
 * and the errnos of failed system calls. Outputs are written only on success. Only one thread at a
 * time may use a store.
 *
 * This code also runs in worker processes (libcrunrt). Therefore it starts no thread, causes no
 * signal, has no global state, and needs no library except libc. */
#ifndef STORE_CLIENT_CLIENT_H
#define STORE_CLIENT_CLIENT_H

#include "base/error.h"
#include "store/bytes/bytes.h"

struct store;

/* Arguments of store_compare_set(), which sets `key` to `desired` if the key's value is
 * `expected`. */
struct store_swap {
    struct store_bytes key, expected, desired;
};

/* The functions that an implementation of a store provides. Users of a store do not call them
 * directly, but by store_set(), store_get() and so on, which are documented below. */
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

/* Any store. The struct of an implementation has this struct as its first member. */
struct store {
    const struct store_ops *ops;
};

/* Sets a key. The operation SET of the protocol has no reply. Therefore the TCP client returns 0 as
 * soon as the kernel has accepted the request. The server has surely carried out the SET when a
 * later call that has a reply returns 0. The same applies to store_append(), store_multi_set() and
 * store_queue_push(). */
static inline int store_set(struct store *s, struct store_bytes key, struct store_bytes value,
                            int64_t timeout_ms, struct cr_error *err) {
    return s->ops->set(s, key, value, timeout_ms, err);
}

/* Waits until the key exists, then sets *value to a malloc'ed copy of the key's value, and *len to
 * the number of its bytes. A NUL byte, which *len does not count, follows the value. */
static inline int store_get(struct store *s, struct store_bytes key, int64_t timeout_ms,
                            void **value, size_t *len, struct cr_error *err) {
    return s->ops->get(s, key, timeout_ms, value, len, err);
}

/* Adds `delta` to a counter and sets *total to the sum. A counter is a key whose value is a decimal
 * number as text. A key that does not exist counts as 0. */
static inline int store_add(struct store *s, struct store_bytes key, int64_t delta,
                            int64_t timeout_ms, int64_t *total, struct cr_error *err) {
    return s->ops->add(s, key, delta, timeout_ms, total, err);
}

/* Sets the key swap->key to swap->desired in two cases: the key's value is swap->expected; or the
 * key does not exist and swap->expected is empty. Otherwise the key stays as it is.
 *
 * Sets *value and *len, as store_get() does, to the key's value after the call, or to
 * swap->expected if the key does not exist after the call. If swap->expected and swap->desired are
 * equal, a result with these bytes therefore does not show whether the key exists. */
static inline int store_compare_set(struct store *s, const struct store_swap *swap,
                                    int64_t timeout_ms, void **value, size_t *len,
                                    struct cr_error *err) {
    return s->ops->compare_set(s, swap, timeout_ms, value, len, err);
}

/* Waits until all keys exist. Returns 0, -ETIMEDOUT if the time is up, or another error. If
 * timeout_ms is 0, the function does not wait: it returns -ETIMEDOUT if a key does not exist
 * now. */
static inline int store_wait(struct store *s, const struct store_bytes *keys, size_t key_count,
                             int64_t timeout_ms, struct cr_error *err) {
    return s->ops->wait(s, keys, key_count, timeout_ms, err);
}

/* Sets *present to 1 if all keys exist now, else to 0. */
static inline int store_check(struct store *s, const struct store_bytes *keys, size_t key_count,
                              int64_t timeout_ms, int *present, struct cr_error *err) {
    return s->ops->check(s, keys, key_count, timeout_ms, present, err);
}

/* Deletes a key. Sets *deleted to 1 if the key existed, else to 0. A file store always sets
 * *deleted to 1, as torch's file store does. */
static inline int store_delete(struct store *s, struct store_bytes key, int64_t timeout_ms,
                               int *deleted, struct cr_error *err) {
    return s->ops->delete_key(s, key, timeout_ms, deleted, err);
}

/* Sets *count to the number of all keys. Keys that no user has set are counted, too: clients and
 * stores create keys for themselves, such as torch's "init/". */
static inline int store_num_keys(struct store *s, int64_t timeout_ms, int64_t *count,
                                 struct cr_error *err) {
    return s->ops->num_keys(s, timeout_ms, count, err);
}

/* Appends `value` to the value of the key, or creates the key with this value. A server of torch
 * 1.13 or 2.0 lacks the operation APPEND. With such a server, the client appends by compare_set;
 * two clients that append equal bytes at the same time may then append them only once
 * (append_loop() in fallback.c). */
static inline int store_append(struct store *s, struct store_bytes key, struct store_bytes value,
                               int64_t timeout_ms, struct cr_error *err) {
    return s->ops->append(s, key, value, timeout_ms, err);
}

/* Waits until all keys exist, then sets *values to the list of the keys' values, in the order of
 * `keys`. The caller frees the list by store_list_done(). */
static inline int store_multi_get(struct store *s, const struct store_bytes *keys,
                                  size_t key_count, int64_t timeout_ms, struct store_list *values,
                                  struct cr_error *err) {
    return s->ops->multi_get(s, keys, key_count, timeout_ms, values, err);
}

/* Sets keys[i] to values[i] for each i below pair_count, in this order. */
static inline int store_multi_set(struct store *s, const struct store_bytes *keys,
                                  const struct store_bytes *values, size_t pair_count,
                                  int64_t timeout_ms, struct cr_error *err) {
    return s->ops->multi_set(s, keys, values, pair_count, timeout_ms, err);
}

/* Appends an element to a queue. Elements are popped in the order in which they were appended, and
 * each element is popped by one client only. A queue and a key may have the same name. */
static inline int store_queue_push(struct store *s, struct store_bytes name,
                                   struct store_bytes value, int64_t timeout_ms,
                                   struct cr_error *err) {
    return s->ops->queue_push(s, name, value, timeout_ms, err);
}

/* Waits until the queue has an element, removes the first element, and sets *value and *len to its
 * bytes, as store_get() does. If timeout_ms is 0, the function does not wait: it returns -ENOENT if
 * the queue is empty. */
static inline int store_queue_pop(struct store *s, struct store_bytes name, int64_t timeout_ms,
                                  void **value, size_t *len, struct cr_error *err) {
    return s->ops->queue_pop(s, name, timeout_ms, value, len, err);
}

static inline int store_queue_len(struct store *s, struct store_bytes name, int64_t timeout_ms,
                                  int64_t *count, struct cr_error *err) {
    return s->ops->queue_len(s, name, timeout_ms, count, err);
}

/* Sets *keys to a list of all keys that users have set, in any order. Keys that clients and stores
 * create for themselves, such as torch's "init/", are left out. The caller frees the list by
 * store_list_done(). */
static inline int store_list_keys(struct store *s, int64_t timeout_ms, struct store_list *keys,
                                  struct cr_error *err) {
    return s->ops->list_keys(s, timeout_ms, keys, err);
}

/* Waits until world_size callers have called this function with the same key. Each barrier needs a
 * new key. */
static inline int store_barrier(struct store *s, struct store_bytes key, int64_t world_size,
                                int64_t timeout_ms, struct cr_error *err) {
    return s->ops->barrier(s, key, world_size, timeout_ms, err);
}

static inline void store_close(struct store *s) { /* s may be NULL */
    if (s != NULL) s->ops->close(s);
}

/* ---- the TCP client: blocking, with one connection ----
 *
 * If a request cannot be sent completely, or its reply cannot be received completely, the client is
 * broken: every later call fails with the same code, and the client can only be closed. A broken
 * client never reconnects. Typical codes are -ECONNRESET, -EPIPE, -EPROTO and -ETIMEDOUT.
 *
 * One kind of -ETIMEDOUT does not break the client: if a get, wait, multi_get, queue_pop or barrier
 * times out while it waits, the client cancels the wait at the server and stays usable. A server of
 * torch 1.13 or 2.0 cannot cancel a wait; the client closes the connection to such a server and
 * makes a new one. */

struct store_client; /* the TCP client; its first member is a struct store */

enum store_protocol {
    STORE_PROTOCOL_MODERN, /* with VALIDATE and PING: torch 2.5 and later, and crun's server */
    STORE_PROTOCOL_LEGACY, /* without handshake, with opcodes of its own: torch 1.13 and 2.0 */
    STORE_PROTOCOL_PROBE,  /* unknown: the client tries MODERN first, then LEGACY */
};

/* Connects to a server, makes the handshake and stores the client in *out. If the connection is
 * refused or reset, or the host name is unknown, the server may not be running yet: in these cases
 * the function tries again, with growing pauses, until the time is up. Returns 0, -ETIMEDOUT or
 * another negative errno. */
int store_client_connect(const char *host, uint16_t port, enum store_protocol protocol,
                         int64_t timeout_ms, struct store_client **out, struct cr_error *err);

static inline struct store *store_client_store(struct store_client *c) {
    return (struct store *) c;
}

/* Returns which protocol the server speaks: "modern", "modern without ping" or "legacy". */
const char *store_client_protocol(const struct store_client *c);

/* Adds `delta` to a counter and sets *total to the sum, as store_add() does, but sends the key
 * without the leading '/' that the client puts in front of users' keys. torch has such a key,
 * "init/", in which it counts the workers that have connected. */
int store_client_add_raw(struct store_client *c, struct store_bytes raw_key, int64_t delta,
                         int64_t timeout_ms, int64_t *total, struct cr_error *err);

static inline void store_client_close(struct store_client *c) { /* c may be NULL */
    store_close(store_client_store(c));
}

/* Requests the statistics of a server of crun, over a new connection. Sets *text to a malloc'ed
 * JSON object, which docs/protocols/store.md, section 6, describes, and *len to the number of its
 * bytes. A NUL byte, which *len does not count, follows. Returns 0 or a negative errno: -ECONNRESET
 * if the server is one of torch, which closes the connection on this request. */
int store_client_stat(const char *host, uint16_t port, int64_t timeout_ms, char **text,
                      size_t *len, struct cr_error *err);

/* ---- the file store ---- */

/* Opens a store whose keys are kept in a file, and creates the file if it does not exist. Any
 * number of processes may use the same file at a time. Some of them may use torch's FileStore,
 * because the format of the file is the same.
 *
 * `world_size` decides when the file is removed. If it is negative, the file is never removed.
 * Otherwise, a store that is closed removes the file if no other store has the file open and at
 * least world_size stores, this one included, have been closed. A file store has no queues:
 * store_queue_push(), store_queue_pop() and store_queue_len() return -ENOTSUP. */
int store_file_open(const char *path, int64_t world_size, struct store **out,
                    struct cr_error *err);

#endif
