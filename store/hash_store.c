/* A hash store: the server's own key space in memory, behind a lock, for the threads of one process.
 *
 * A call is one request, built here instead of parsed, and one reply, read here instead of sent; so
 * every operation means exactly what it means at a server. A waiter has a session of its own and
 * sleeps until the lock's condition says that something changed. Unlike torch's, add wakes. */
#include "store/answer_internal.h"
#include "store/call_text_internal.h"
#include "store/fallback_internal.h"
#include "store/keyspace_internal.h"

#include "base/clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#define POP_ROUNDS_MAX 100 /* a plain key of the name ends every wait at once */

struct hash_store {
    struct store store;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* on the monotonic clock */
    struct store_keyspace keys;
};

static struct hash_store *self(struct store *s) { return (struct hash_store *) (void *) s; }

static int fail_call(enum store_op op, const struct store_bytes *keys, size_t key_count, int code,
                     const char *reason, struct cr_error *err) {
    char what[STORE_CALL_TEXT_MAX];
    store_call_text(op, keys, key_count, what);
    return cr_fail(err, code, "%s in the hash store: %s", what, reason);
}

/* ---- requests ---- */

/* Keys, or keys and values in turn, as a request has them: places in one run of bytes. */
struct item_block {
    struct cr_buffer bytes;
    struct store_span *spans;
    size_t count;
};

static int add_item(struct item_block *b, struct store_bytes item) {
    b->spans[b->count++] = (struct store_span){(uint32_t) b->bytes.len, (uint32_t) item.len};
    return cr_buffer_append(&b->bytes, item.data, item.len);
}

static int build_items(struct item_block *b, const struct store_bytes *keys,
                       const struct store_bytes *values, size_t count) {
    *b = (struct item_block){0};
    b->spans = calloc(2 * count + 1, sizeof(*b->spans));
    int rc = b->spans == NULL ? -ENOMEM : cr_buffer_reserve(&b->bytes, 1); /* never a NULL base */
    for (size_t i = 0; i < count && rc == 0; i++) {
        rc = add_item(b, keys[i]);
        if (rc == 0 && values != NULL) rc = add_item(b, values[i]);
    }
    if (b->bytes.len > UINT32_MAX) rc = -EMSGSIZE;
    return rc;
}

static void drop_items(struct item_block *b) {
    cr_buffer_done(&b->bytes);
    free(b->spans);
}

static struct store_request items_request(enum store_op op, const struct item_block *b) {
    return (struct store_request){.op = op,
                                  .base = (const uint8_t *) b->bytes.data,
                                  .items = b->spans,
                                  .item_count = b->count};
}

/* ---- one exchange ---- */

/* Reads a reply out of a session's output, as a client reads it from a socket. */
static int read_reply(struct store_session *session, struct store_answer *a) {
    int rc = store_answer_put(a, 0);
    while (rc == 0 && session->out.pending > 0) {
        struct iovec iov;
        if (store_output_iov(&session->out, &iov, 1, 0) == 0) break;
        size_t room;
        void *at = store_answer_room(a, &room);
        if (at == NULL) return -ENOMEM;
        size_t n = iov.iov_len < room ? iov.iov_len : room;
        memcpy(at, iov.iov_base, n);
        store_output_sent(&session->out, n);
        rc = store_answer_put(a, n);
    }
    return rc < 0 ? rc : rc == 1 ? 0 : -EAGAIN;
}

/* Waiters look for themselves: nobody needs the list of those that were woken. */
static void wake_waiters(struct hash_store *h) {
    int woken = 0;
    while (store_keyspace_take_ready(&h->keys) != NULL) woken = 1;
    if (woken) (void) pthread_cond_broadcast(&h->changed);
}

/* Applies a request under the lock. `a` may be NULL where no reply comes. */
static int exchange(struct hash_store *h, const struct store_request *r, size_t item_count,
                    struct store_answer *a, const char **reason) {
    struct store_session session = {0};
    (void) pthread_mutex_lock(&h->lock);
    int rc = store_keyspace_apply(&h->keys, &session, r, cr_monotonic_ms(), reason);
    wake_waiters(h);
    if (rc == 0 && a != NULL) {
        store_answer_begin(a, store_op_reply(r->op), item_count);
        rc = read_reply(&session, a);
    }
    store_keyspace_leave(&h->keys, &session);
    (void) pthread_mutex_unlock(&h->lock);
    return rc;
}

static int call_one(struct store *s, struct store_request r, struct store_answer *a,
                    struct cr_error *err) {
    const char *reason = "out of memory";
    int rc = exchange(self(s), &r, 0, a, &reason);
    return rc < 0 ? fail_call(r.op, &r.key, 1, rc, reason, err) : 0;
}

static int call_number(struct store *s, struct store_request r, int64_t *number,
                       struct cr_error *err) {
    struct store_answer a = {0};
    int rc = call_one(s, r, &a, err);
    if (rc == 0) *number = a.number;
    store_answer_done(&a);
    return rc;
}

static int call_value(struct store *s, struct store_request r, void **value, size_t *len,
                      struct cr_error *err) {
    struct store_answer a = {0};
    int rc = call_one(s, r, &a, err);
    if (rc == 0 && store_answer_take_value(&a, value, len) < 0)
        rc = fail_call(r.op, &r.key, 1, -ENOMEM, "out of memory", err);
    store_answer_done(&a);
    return rc;
}

/* ---- waiting ---- */

static int sleep_until_changed(struct hash_store *h, int64_t deadline_ms) {
    if (deadline_ms == CR_FOREVER) return pthread_cond_wait(&h->changed, &h->lock);
    struct timespec t = {.tv_sec = (time_t) (deadline_ms / 1000),
                         .tv_nsec = (long) (deadline_ms % 1000) * 1000000L};
    return pthread_cond_timedwait(&h->changed, &h->lock, &t);
}

/* WAIT or BARRIER: until the key space answers. */
static int wait_for_reply(struct hash_store *h, const struct store_request *r, int64_t deadline_ms,
                          const char **reason) {
    struct store_session session = {0};
    (void) pthread_mutex_lock(&h->lock);
    int rc = store_keyspace_apply(&h->keys, &session, r, cr_monotonic_ms(), reason);
    wake_waiters(h);
    while (rc == 0 && session.out.pending == 0) {
        if (cr_time_left_ms(deadline_ms) == 0)
            rc = -ETIMEDOUT;
        else
            (void) sleep_until_changed(h, deadline_ms);
    }
    store_keyspace_leave(&h->keys, &session);
    (void) pthread_mutex_unlock(&h->lock);
    if (rc == -ETIMEDOUT) *reason = "timed out";
    return rc;
}

static int wait_keys(struct store *s, enum store_op named, const struct store_bytes *keys,
                     size_t key_count, int64_t deadline_ms, struct cr_error *err) {
    struct item_block items;
    const char *reason = "out of memory";
    int rc = build_items(&items, keys, NULL, key_count);
    struct store_request r = items_request(STORE_OP_WAIT, &items);
    if (rc == 0) rc = wait_for_reply(self(s), &r, deadline_ms, &reason);
    drop_items(&items);
    return rc < 0 ? fail_call(named, keys, key_count, rc, reason, err) : 0;
}

static int hash_wait(struct store *s, const struct store_bytes *keys, size_t key_count,
                     int64_t timeout_ms, struct cr_error *err) {
    return wait_keys(s, STORE_OP_WAIT, keys, key_count, cr_deadline_ms(timeout_ms), err);
}

/* ---- operations ---- */

static int hash_set(struct store *s, struct store_bytes key, struct store_bytes value,
                    int64_t timeout_ms, struct cr_error *err) {
    (void) timeout_ms;
    struct store_request r = {.op = STORE_OP_SET, .key = key, .value = value};
    return call_one(s, r, NULL, err);
}

static int hash_append(struct store *s, struct store_bytes key, struct store_bytes value,
                       int64_t timeout_ms, struct cr_error *err) {
    (void) timeout_ms;
    struct store_request r = {.op = STORE_OP_APPEND, .key = key, .value = value};
    return call_one(s, r, NULL, err);
}

static int hash_get(struct store *s, struct store_bytes key, int64_t timeout_ms, void **value,
                    size_t *len, struct cr_error *err) {
    int rc = wait_keys(s, STORE_OP_GET, &key, 1, cr_deadline_ms(timeout_ms), err);
    if (rc < 0) return rc;
    return call_value(s, (struct store_request){.op = STORE_OP_GET, .key = key}, value, len, err);
}

static int hash_add(struct store *s, struct store_bytes key, int64_t delta, int64_t timeout_ms,
                    int64_t *total, struct cr_error *err) {
    (void) timeout_ms;
    struct store_request r = {.op = STORE_OP_ADD, .key = key, .number = delta};
    return call_number(s, r, total, err);
}

static int hash_compare_set(struct store *s, struct store_bytes key, struct store_bytes expected,
                            struct store_bytes desired, int64_t timeout_ms, void **value,
                            size_t *len, struct cr_error *err) {
    (void) timeout_ms;
    struct store_request r = {
        .op = STORE_OP_COMPARE_SET, .key = key, .expected = expected, .value = desired};
    return call_value(s, r, value, len, err);
}

static int hash_check(struct store *s, const struct store_bytes *keys, size_t key_count,
                      int64_t timeout_ms, int *present, struct cr_error *err) {
    (void) timeout_ms;
    struct item_block items;
    struct store_answer a = {0};
    const char *reason = "out of memory";
    int rc = build_items(&items, keys, NULL, key_count);
    struct store_request r = items_request(STORE_OP_CHECK, &items);
    if (rc == 0) rc = exchange(self(s), &r, 0, &a, &reason);
    if (rc == 0) *present = a.byte == STORE_READY;
    store_answer_done(&a);
    drop_items(&items);
    return rc < 0 ? fail_call(STORE_OP_CHECK, keys, key_count, rc, reason, err) : 0;
}

static int hash_delete(struct store *s, struct store_bytes key, int64_t timeout_ms, int *deleted,
                       struct cr_error *err) {
    (void) timeout_ms;
    int64_t count = 0;
    struct store_request r = {.op = STORE_OP_DELETE, .key = key};
    int rc = call_number(s, r, &count, err);
    if (rc == 0) *deleted = count > 0;
    return rc;
}

static int hash_num_keys(struct store *s, int64_t timeout_ms, int64_t *count,
                         struct cr_error *err) {
    (void) timeout_ms;
    return call_number(s, (struct store_request){.op = STORE_OP_NUM_KEYS}, count, err);
}

static int call_list(struct store *s, const struct store_request *r, const struct store_bytes *keys,
                     size_t key_count, struct store_list *out, struct cr_error *err) {
    struct store_answer a = {0};
    const char *reason = "out of memory";
    int rc = exchange(self(s), r, key_count, &a, &reason);
    if (rc == 0) store_answer_take_list(&a, out);
    store_answer_done(&a);
    return rc < 0 ? fail_call(r->op, keys, key_count, rc, reason, err) : 0;
}

static int hash_multi_get(struct store *s, const struct store_bytes *keys, size_t key_count,
                          int64_t timeout_ms, struct store_list *values, struct cr_error *err) {
    int64_t deadline = cr_deadline_ms(timeout_ms);
    int rc = wait_keys(s, STORE_OP_MULTI_GET, keys, key_count, deadline, err);
    if (rc < 0) return rc;
    struct item_block items;
    rc = build_items(&items, keys, NULL, key_count);
    if (rc < 0) (void) fail_call(STORE_OP_MULTI_GET, keys, key_count, rc, "out of memory", err);
    struct store_request r = items_request(STORE_OP_MULTI_GET, &items);
    if (rc == 0) rc = call_list(s, &r, keys, key_count, values, err);
    drop_items(&items);
    return rc;
}

static int hash_multi_set(struct store *s, const struct store_bytes *keys,
                          const struct store_bytes *values, size_t pair_count, int64_t timeout_ms,
                          struct cr_error *err) {
    (void) timeout_ms;
    struct item_block items;
    const char *reason = "out of memory";
    int rc = build_items(&items, keys, values, pair_count);
    struct store_request r = items_request(STORE_OP_MULTI_SET, &items);
    if (rc == 0) rc = exchange(self(s), &r, 0, NULL, &reason);
    drop_items(&items);
    return rc < 0 ? fail_call(STORE_OP_MULTI_SET, keys, pair_count, rc, reason, err) : 0;
}

static int hash_list_keys(struct store *s, int64_t timeout_ms, struct store_list *keys,
                          struct cr_error *err) {
    (void) timeout_ms;
    struct store_request r = {.op = STORE_OP_LIST_KEYS};
    return call_list(s, &r, NULL, 0, keys, err);
}

static int hash_queue_push(struct store *s, struct store_bytes name, struct store_bytes value,
                           int64_t timeout_ms, struct cr_error *err) {
    (void) timeout_ms;
    struct store_request r = {.op = STORE_OP_QUEUE_PUSH, .key = name, .value = value};
    return call_one(s, r, NULL, err);
}

/* Another thread may take the element first: then wait again. */
static int hash_queue_pop(struct store *s, struct store_bytes name, int64_t timeout_ms,
                          void **value, size_t *len, struct cr_error *err) {
    int64_t deadline = cr_deadline_ms(timeout_ms);
    struct store_request r = {.op = STORE_OP_QUEUE_POP, .key = name};
    struct store_answer a = {0};
    int rc = 0;
    for (int round = 0; rc == 0; round++) {
        rc = call_one(s, r, &a, err);
        if (rc < 0 || a.number > 0) break;
        if (timeout_ms <= 0 || round == POP_ROUNDS_MAX) {
            rc = fail_call(r.op, &name, 1, -ENOENT, "the queue is empty", err);
        } else {
            rc = wait_keys(s, r.op, &name, 1, deadline, err);
        }
    }
    if (rc == 0 && store_answer_take_value(&a, value, len) < 0)
        rc = fail_call(r.op, &name, 1, -ENOMEM, "out of memory", err);
    store_answer_done(&a);
    return rc;
}

static int hash_queue_len(struct store *s, struct store_bytes name, int64_t timeout_ms,
                          int64_t *count, struct cr_error *err) {
    (void) timeout_ms;
    return call_number(s, (struct store_request){.op = STORE_OP_QUEUE_LEN, .key = name}, count,
                       err);
}

static int hash_barrier(struct store *s, struct store_bytes key, int64_t world_size,
                        int64_t timeout_ms, struct cr_error *err) {
    struct store_request r = {.op = STORE_OP_BARRIER, .key = key, .number = world_size};
    const char *reason = "out of memory";
    int rc = wait_for_reply(self(s), &r, cr_deadline_ms(timeout_ms), &reason);
    return rc < 0 ? fail_call(r.op, &key, 1, rc, reason, err) : 0;
}

static void hash_close(struct store *s) {
    struct hash_store *h = self(s);
    store_keyspace_done(&h->keys);
    (void) pthread_cond_destroy(&h->changed);
    (void) pthread_mutex_destroy(&h->lock);
    free(h);
}

static const struct store_ops hash_ops = {
    .set = hash_set,
    .get = hash_get,
    .add = hash_add,
    .compare_set = hash_compare_set,
    .wait = hash_wait,
    .check = hash_check,
    .delete_key = hash_delete,
    .num_keys = hash_num_keys,
    .append = hash_append,
    .multi_get = hash_multi_get,
    .multi_set = hash_multi_set,
    .queue_push = hash_queue_push,
    .queue_pop = hash_queue_pop,
    .queue_len = hash_queue_len,
    .list_keys = hash_list_keys,
    .barrier = hash_barrier,
    .close = hash_close,
};

int store_hash_open(struct store **out, struct cr_error *err) {
    struct hash_store *h = calloc(1, sizeof(*h));
    if (h == NULL) return cr_fail(err, -ENOMEM, "open a hash store: out of memory");
    h->store.ops = &hash_ops;
    uint64_t seed[2] = {0};
    (void) getrandom(seed, sizeof(seed), GRND_NONBLOCK); /* zeros serve as well, less guarded */
    store_keyspace_init(&h->keys, seed);
    pthread_condattr_t attributes;
    (void) pthread_condattr_init(&attributes); /* these cannot fail with valid arguments */
    (void) pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void) pthread_cond_init(&h->changed, &attributes);
    (void) pthread_condattr_destroy(&attributes);
    (void) pthread_mutex_init(&h->lock, NULL);
    *out = &h->store;
    return 0;
}
