/* The store's client on a libuv loop, for agents: the calls of store.h with a callback each.
 *
 * One connection; calls are sent in the order they were made, one under way at a time (a server
 * answers a connection in order), so a wait holds up what comes behind it: open two where that
 * matters. No silent reconnection after opening; a lost connection fails the calls under way and all
 * later ones with a text that says what was in flight. All on the loop's thread. SIGPIPE must be ignored,
 * as libuv asks for. */
#ifndef STORE_CLIENT_ASYNC_H
#define STORE_CLIENT_ASYNC_H

#include "store/store.h"

#include <uv.h>

#define STORE_ASYNC_CALLS_MAX 4096 /* under way and queued */

struct store_async;

/* What a call returned; valid during the callback. Which field counts depends on the call. */
struct store_async_result {
    int64_t number;           /* add, num_keys, queue_len; delete and check: 1 or 0 */
    struct store_bytes value; /* get, compare_set, queue_pop */
    struct store_list list;   /* multi_get, list_keys; the callback takes it by setting it to {0} */
};

/* status is 0, -ETIMEDOUT, -ECANCELED (closed), -ECONNRESET, -EPROTO…; err has the text. Called
 * once, never inside the call that began it; it may make and close anything. */
typedef void (*store_async_fn)(void *arg, int status, struct store_async_result *result,
                               const struct cr_error *err);

/* Connects, trying again with back-off while the server is refused, reset or unknown, until the time is
 * up, and finds out what it is: `protocol` and the rules are those of store_client_connect(). `done`
 * tells; calls may be made only after it said 0. Returns 0 or -ENOMEM, -EINVAL; then `done` never
 * comes. */
int store_async_open(uv_loop_t *loop, const char *host, uint16_t port, enum store_protocol protocol,
                     int64_t timeout_ms, store_async_fn done, void *arg, struct store_async **out,
                     struct cr_error *err);

/* What was found: "modern", "modern without ping", "legacy". */
const char *store_async_protocol(const struct store_async *a);

/* Why no call can be made any more, with what was in flight; code 0 while they can. */
const struct cr_error *store_async_error(const struct store_async *a);

/* What they mean is said in store.h. Not every server has every operation; before the first call that
 * needs one of the rarer ones, the server is asked for it over a connection of its own. What it lacks is
 * made of other operations, in the place and the time of the one call (append, multi_get, multi_set,
 * barrier), or fails with -ENOTSUP (queues, list_keys).
 *
 * After a timed-out get, wait, multi_get, queue_pop or barrier the connection stays usable (an old
 * server, which cannot cancel a wait, is connected to afresh; calls may be made meanwhile); any other
 * call that runs out of time loses it.
 *
 * Each returns 0, or -ENOTCONN, -EAGAIN (too many calls), -EMSGSIZE, -ENOMEM, or the code of the
 * lost connection, and then `done` never comes. Keys and values are copied. */
int store_async_set(struct store_async *a, struct store_bytes key, struct store_bytes value,
                    int64_t timeout_ms, store_async_fn done, void *arg);
int store_async_get(struct store_async *a, struct store_bytes key, int64_t timeout_ms,
                    store_async_fn done, void *arg);
int store_async_add(struct store_async *a, struct store_bytes key, int64_t delta,
                    int64_t timeout_ms, store_async_fn done, void *arg);
/* Torch's join counter: the raw key "init/", which has no leading '/'. */
int store_async_add_raw(struct store_async *a, struct store_bytes raw_key, int64_t delta,
                        int64_t timeout_ms, store_async_fn done, void *arg);
int store_async_compare_set(struct store_async *a, struct store_bytes key,
                            struct store_bytes expected, struct store_bytes desired,
                            int64_t timeout_ms, store_async_fn done, void *arg);
int store_async_wait(struct store_async *a, const struct store_bytes *keys, size_t key_count,
                     int64_t timeout_ms, store_async_fn done, void *arg);
int store_async_check(struct store_async *a, const struct store_bytes *keys, size_t key_count,
                      int64_t timeout_ms, store_async_fn done, void *arg);
int store_async_multi_get(struct store_async *a, const struct store_bytes *keys, size_t key_count,
                          int64_t timeout_ms, store_async_fn done, void *arg);
int store_async_delete(struct store_async *a, struct store_bytes key, int64_t timeout_ms,
                       store_async_fn done, void *arg);
int store_async_num_keys(struct store_async *a, int64_t timeout_ms, store_async_fn done, void *arg);
int store_async_append(struct store_async *a, struct store_bytes key, struct store_bytes value,
                       int64_t timeout_ms, store_async_fn done, void *arg);
int store_async_multi_set(struct store_async *a, const struct store_bytes *keys,
                          const struct store_bytes *values, size_t pair_count, int64_t timeout_ms,
                          store_async_fn done, void *arg);
int store_async_queue_push(struct store_async *a, struct store_bytes name, struct store_bytes value,
                           int64_t timeout_ms, store_async_fn done, void *arg);
/* Without time (0) it only looks, as get, multi_get and wait do: -ENOENT if the queue is empty. */
int store_async_queue_pop(struct store_async *a, struct store_bytes name, int64_t timeout_ms,
                          store_async_fn done, void *arg);
int store_async_queue_len(struct store_async *a, struct store_bytes name, int64_t timeout_ms,
                          store_async_fn done, void *arg);
int store_async_list_keys(struct store_async *a, int64_t timeout_ms, store_async_fn done,
                          void *arg);
int store_async_barrier(struct store_async *a, struct store_bytes key, int64_t world_size,
                        int64_t timeout_ms, store_async_fn done, void *arg);

/* Ends everything: `done` of each call under way says -ECANCELED, then `closed` comes and the memory
 * is gone. NULL is fine (then `closed` never comes); `closed` may be NULL. */
void store_async_close(struct store_async *a, void (*closed)(void *arg), void *arg);

#endif
