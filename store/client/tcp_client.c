/* The TCP client: its opening, and the operations of a store. Each operation makes one or two
 * exchanges with the server.
 *
 * A get sends WAIT and then GET, as torch's clients do, because some servers close the connection
 * on a GET of a missing key. If an old server lacks an operation, the client uses other operations
 * instead (fallback.c), or returns an error that names the operation. */
#include "store/client/tcp_client_internal.h"
#include "store/client/fallback.h"

#include "base/time/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define POP_ROUNDS_MAX 100 /* largest number of attempts in client_queue_pop() */

static struct store_client *self(struct store *s) { return (struct store_client *) (void *) s; }

/* ---- one call ---- */

static struct store_call new_call(enum store_op op, const struct store_bytes *keys,
                                  size_t key_count, int64_t timeout_ms) {
    return (struct store_call){.op = op,
                               .keys = keys,
                               .key_count = key_count,
                               .timeout_ms = timeout_ms,
                               .deadline_ms = cr_deadline_ms(timeout_ms)};
}

/* Returns a copy of `call` whose deadline is at least STORE_GRACE_MS from now. Use the copy for an
 * exchange that the server answers at once: it shall succeed even if the timeout of the user's call
 * has just passed. */
static struct store_call with_grace(struct store_call call) {
    int64_t grace = cr_deadline_ms(STORE_GRACE_MS);
    if (call.deadline_ms < grace) call.deadline_ms = grace;
    return call;
}

static int check_limits(const struct store_call *call, const struct store_bytes *values,
                        size_t value_count, struct cr_error *err) {
    char what[STORE_CALL_TEXT_MAX];
    size_t limit = 0;
    const char *wrong =
        store_request_excess(call->keys, call->key_count, values, value_count, &limit);
    if (wrong == NULL) return 0;
    store_call_text(call->op, call->keys, call->key_count, what);
    return cr_fail(err, -EMSGSIZE, "%s: %s is longer than %zu", what, wrong, limit);
}

static int fail_encode(const struct store_call *call, int rc, struct cr_error *err) {
    char what[STORE_CALL_TEXT_MAX];
    store_call_text(call->op, call->keys, call->key_count, what);
    return cr_fail(err, rc, "%s: %s", what,
                   rc == -ENOTSUP ? "the store's server does not have this operation"
                                  : "out of memory");
}

static int check_has(struct store_client *c, const struct store_call *call,
                     struct cr_error *err) {
    int has = store_client_has(c, call->op, err);
    return has == 0 ? fail_encode(call, -ENOTSUP, err) : has < 0 ? has : 0;
}

/* ---- requests of each shape ---- */

static int call_key(struct store_client *c, const struct store_call *call, struct store_answer *a,
                    struct cr_error *err) {
    int rc = check_limits(call, NULL, 0, err);
    if (rc < 0) return rc;
    struct store_encoder e = store_client_encoder(c);
    rc = call->key_count == 0 ? store_encode_plain(&e, call->op)
                              : store_encode_key(&e, call->op, call->keys[0]);
    if (rc < 0) return fail_encode(call, rc, err);
    return store_client_exchange(c, call, a, err);
}

static int call_value(struct store_client *c, enum store_op op, struct store_bytes key,
                      struct store_bytes value, int64_t timeout_ms, struct cr_error *err) {
    struct store_call call = new_call(op, &key, 1, timeout_ms);
    call.tail = value;
    int rc = check_limits(&call, &value, 1, err);
    if (rc < 0) return rc;
    struct store_encoder e = store_client_encoder(c);
    rc = store_encode_value_head(&e, op, key, value.len);
    if (rc < 0) return fail_encode(&call, rc, err);
    return store_client_exchange(c, &call, NULL, err);
}

static int call_keys(struct store_client *c, const struct store_call *call, struct store_answer *a,
                     struct cr_error *err) {
    int rc = check_limits(call, NULL, 0, err);
    if (rc < 0) return rc;
    struct store_encoder e = store_client_encoder(c);
    rc = store_encode_keys(&e, call->op, call->keys, call->key_count);
    if (rc < 0) return fail_encode(call, rc, err);
    return call->op == STORE_OP_WAIT ? store_client_exchange_wait(c, call, err)
                                     : store_client_exchange(c, call, a, err);
}

/* ---- the simple operations ---- */

static int client_set(struct store *s, struct store_bytes key, struct store_bytes value,
                      int64_t timeout_ms, struct cr_error *err) {
    return call_value(self(s), STORE_OP_SET, key, value, timeout_ms, err);
}

static int add_with_prefix(struct store_client *c, struct store_bytes prefix,
                           struct store_bytes key, int64_t delta, int64_t timeout_ms,
                           int64_t *total, struct cr_error *err) {
    struct store_call call = new_call(STORE_OP_ADD, &key, 1, timeout_ms);
    int rc = check_limits(&call, NULL, 0, err);
    if (rc < 0) return rc;
    struct store_encoder e = store_client_encoder(c);
    e.prefix = prefix;
    rc = store_encode_number(&e, STORE_OP_ADD, key, delta);
    if (rc < 0) return fail_encode(&call, rc, err);
    struct store_answer a = {0};
    rc = store_client_exchange(c, &call, &a, err);
    if (rc == 0) *total = a.number;
    store_answer_done(&a);
    return rc;
}

static int client_add(struct store *s, struct store_bytes key, int64_t delta, int64_t timeout_ms,
                      int64_t *total, struct cr_error *err) {
    return add_with_prefix(self(s), STORE_BYTES("/"), key, delta, timeout_ms, total, err);
}

int store_client_add_raw(struct store_client *c, struct store_bytes raw_key, int64_t delta,
                         int64_t timeout_ms, int64_t *total, struct cr_error *err) {
    return add_with_prefix(c, STORE_BYTES(""), raw_key, delta, timeout_ms, total, err);
}

/* Call this with the result `rc` of an exchange. If `rc` is 0, the function moves the value of the
 * reply to *value and its length to *len. In any case it frees `a`. Returns `rc`, or -ENOMEM. */
static int take_value(struct store_answer *a, int rc, void **value, size_t *len,
                      struct cr_error *err) {
    if (rc == 0 && store_answer_take_value(a, value, len) < 0)
        rc = cr_fail(err, -ENOMEM, "read a value: out of memory");
    store_answer_done(a);
    return rc;
}

static int client_compare_set(struct store *s, const struct store_swap *swap, int64_t timeout_ms,
                              void **value, size_t *len, struct cr_error *err) {
    struct store_client *c = self(s);
    struct store_call call = new_call(STORE_OP_COMPARE_SET, &swap->key, 1, timeout_ms);
    const struct store_bytes values[] = {swap->expected, swap->desired};
    int rc = check_limits(&call, values, 2, err);
    if (rc < 0) return rc;
    struct store_encoder e = store_client_encoder(c);
    rc = store_encode_compare_set(&e, swap->key, swap->expected, swap->desired);
    if (rc < 0) return fail_encode(&call, rc, err);
    struct store_answer a = {0};
    rc = store_client_exchange(c, &call, &a, err);
    return take_value(&a, rc, value, len, err);
}

static int check(struct store_client *c, const struct store_call *call, int *present,
                 struct cr_error *err) {
    struct store_call ask = *call;
    ask.op = STORE_OP_CHECK;
    struct store_answer a = {0};
    int rc = call_keys(c, &ask, &a, err);
    if (rc == 0) *present = a.byte == STORE_READY;
    store_answer_done(&a);
    return rc;
}

static int client_check(struct store *s, const struct store_bytes *keys, size_t key_count,
                        int64_t timeout_ms, int *present, struct cr_error *err) {
    struct store_call call = new_call(STORE_OP_CHECK, keys, key_count, timeout_ms);
    return check(self(s), &call, present, err);
}

static int call_number(struct store_client *c, const struct store_call *call, int64_t *number,
                       struct cr_error *err) {
    struct store_answer a = {0};
    int rc = call_key(c, call, &a, err);
    if (rc == 0) *number = a.number;
    store_answer_done(&a);
    return rc;
}

static int client_delete(struct store *s, struct store_bytes key, int64_t timeout_ms, int *deleted,
                         struct cr_error *err) {
    struct store_call call = new_call(STORE_OP_DELETE, &key, 1, timeout_ms);
    int64_t count = 0;
    int rc = call_number(self(s), &call, &count, err);
    if (rc == 0) *deleted = count > 0;
    return rc;
}

static int client_num_keys(struct store *s, int64_t timeout_ms, int64_t *count,
                           struct cr_error *err) {
    struct store_call call = new_call(STORE_OP_NUM_KEYS, NULL, 0, timeout_ms);
    return call_number(self(s), &call, count, err);
}

/* ---- waiting ---- */

/* Waits until all of call->keys exist. If call->timeout_ms is 0, the function sends a CHECK instead
 * of a WAIT. To a legacy server it sends a CHECK before the WAIT, for two reasons. First, if all
 * keys exist, no WAIT is needed; a WAIT at a legacy server can be ended only by closing the
 * connection. Second, the reply to the CHECK proves that the server has carried out all earlier
 * requests, so that none of them is lost if the connection is closed (exchange.c). */
static int wait_keys(struct store_client *c, const struct store_call *call, struct cr_error *err) {
    bool legacy = store_client_dialect(c) != STORE_DIALECT_MODERN;
    if (call->timeout_ms <= 0 || legacy) {
        struct store_call look = with_grace(*call);
        int present = 0;
        int rc = check(c, &look, &present, err);
        if (rc < 0 || present) return rc;
        if (cr_time_left_ms(call->deadline_ms) == 0) return store_client_fail_timeout(c, call, err);
    }
    struct store_call wait = *call;
    wait.op = STORE_OP_WAIT;
    return call_keys(c, &wait, NULL, err);
}

static int client_wait(struct store *s, const struct store_bytes *keys, size_t key_count,
                       int64_t timeout_ms, struct cr_error *err) {
    struct store_call call = new_call(STORE_OP_WAIT, keys, key_count, timeout_ms);
    return wait_keys(self(s), &call, err);
}

static int client_get(struct store *s, struct store_bytes key, int64_t timeout_ms, void **value,
                      size_t *len, struct cr_error *err) {
    struct store_client *c = self(s);
    struct store_call call = new_call(STORE_OP_GET, &key, 1, timeout_ms);
    int rc = wait_keys(c, &call, err);
    if (rc < 0) return rc;
    call = with_grace(call);
    struct store_answer a = {0};
    rc = call_key(c, &call, &a, err);
    return take_value(&a, rc, value, len, err);
}

/* ---- operations on many keys ---- */

static int client_append(struct store *s, struct store_bytes key, struct store_bytes value,
                         int64_t timeout_ms, struct cr_error *err) {
    struct store_client *c = self(s);
    if (store_client_has(c, STORE_OP_APPEND, NULL) == 0)
        return store_fallback_append(s, key, value, timeout_ms, err);
    return call_value(c, STORE_OP_APPEND, key, value, timeout_ms, err);
}

static int client_multi_get(struct store *s, const struct store_bytes *keys, size_t key_count,
                            int64_t timeout_ms, struct store_list *values, struct cr_error *err) {
    struct store_client *c = self(s);
    if (store_client_has(c, STORE_OP_MULTI_GET, NULL) == 0)
        return store_fallback_multi_get(s, keys, key_count, timeout_ms, values, err);
    struct store_call call = new_call(STORE_OP_MULTI_GET, keys, key_count, timeout_ms);
    int rc = wait_keys(c, &call, err);
    if (rc < 0) return rc;
    call = with_grace(call);
    call.item_count = key_count;
    struct store_answer a = {0};
    rc = call_keys(c, &call, &a, err);
    if (rc == 0) store_answer_take_list(&a, values);
    store_answer_done(&a);
    return rc;
}

static int client_multi_set(struct store *s, const struct store_bytes *keys,
                            const struct store_bytes *values, size_t pair_count, int64_t timeout_ms,
                            struct cr_error *err) {
    struct store_client *c = self(s);
    if (store_client_has(c, STORE_OP_MULTI_SET, NULL) == 0)
        return store_fallback_multi_set(s, keys, values, pair_count, timeout_ms, err);
    struct store_call call = new_call(STORE_OP_MULTI_SET, keys, pair_count, timeout_ms);
    int rc = check_limits(&call, values, pair_count, err);
    if (rc < 0) return rc;
    struct store_encoder e = store_client_encoder(c);
    rc = store_encode_pairs(&e, keys, values, pair_count);
    if (rc < 0) return fail_encode(&call, rc, err);
    return store_client_exchange(c, &call, NULL, err);
}

static int client_list_keys(struct store *s, int64_t timeout_ms, struct store_list *keys,
                            struct cr_error *err) {
    struct store_client *c = self(s);
    struct store_call call = new_call(STORE_OP_LIST_KEYS, NULL, 0, timeout_ms);
    int rc = check_has(c, &call, err);
    struct store_answer a = {0};
    if (rc == 0) rc = call_key(c, &call, &a, err);
    if (rc == 0) store_answer_take_list(&a, keys);
    store_answer_done(&a);
    if (rc == 0) store_list_keep_users(keys);
    return rc;
}

/* ---- queues and barrier ---- */

static int client_queue_push(struct store *s, struct store_bytes name, struct store_bytes value,
                             int64_t timeout_ms, struct cr_error *err) {
    struct store_call call = new_call(STORE_OP_QUEUE_PUSH, &name, 1, timeout_ms);
    int rc = check_has(self(s), &call, err);
    return rc < 0 ? rc : call_value(self(s), STORE_OP_QUEUE_PUSH, name, value, timeout_ms, err);
}

static int fail_empty(const struct store_call *call, const char *why, struct cr_error *err) {
    char what[STORE_CALL_TEXT_MAX];
    store_call_text(call->op, call->keys, call->key_count, what);
    return cr_fail(err, -ENOENT, "%s: %s", what, why);
}

/* Pops an element; if the queue is empty, waits and tries again. If another client pops the element
 * between the end of the wait and the pop, this client waits once more. The number of attempts is
 * limited because of one case: if a key has the same name as the queue, the server ends each WAIT
 * at once, although the queue is empty. */
static int client_queue_pop(struct store *s, struct store_bytes name, int64_t timeout_ms,
                            void **value, size_t *len, struct cr_error *err) {
    static const char always_empty[] =
        "the queue was empty after each wait; is there a key of the same name?";
    struct store_client *c = self(s);
    struct store_call call = new_call(STORE_OP_QUEUE_POP, &name, 1, timeout_ms);
    int rc = check_has(c, &call, err);
    struct store_answer a = {0};
    for (int round = 0; rc == 0; round++) {
        struct store_call pop = with_grace(call);
        rc = call_key(c, &pop, &a, err);
        if (rc < 0 || a.number > 0) break;
        if (timeout_ms > 0 && round < POP_ROUNDS_MAX) {
            rc = wait_keys(c, &call, err);
        } else {
            rc = fail_empty(&call, timeout_ms > 0 ? always_empty : "the queue is empty", err);
        }
    }
    return take_value(&a, rc, value, len, err);
}

static int client_queue_len(struct store *s, struct store_bytes name, int64_t timeout_ms,
                            int64_t *count, struct cr_error *err) {
    struct store_call call = new_call(STORE_OP_QUEUE_LEN, &name, 1, timeout_ms);
    int rc = check_has(self(s), &call, err);
    return rc < 0 ? rc : call_number(self(s), &call, count, err);
}

static int client_barrier(struct store *s, struct store_bytes key, int64_t world_size,
                          int64_t timeout_ms, struct cr_error *err) {
    struct store_client *c = self(s);
    int has = store_client_has(c, STORE_OP_BARRIER, err);
    if (has < 0) return has;
    if (has == 0) return store_fallback_barrier(s, key, world_size, timeout_ms, err);
    struct store_call call = new_call(STORE_OP_BARRIER, &key, 1, timeout_ms);
    int rc = check_limits(&call, NULL, 0, err);
    if (rc < 0) return rc;
    struct store_encoder e = store_client_encoder(c);
    rc = store_encode_number(&e, STORE_OP_BARRIER, key, world_size);
    if (rc < 0) return fail_encode(&call, rc, err);
    return store_client_exchange_wait(c, &call, err);
}

static void client_close(struct store *s) {
    struct store_client *c = self(s);
    store_socket_close(&c->socket);
    cr_buffer_done(&c->request);
    free(c);
}

const struct store_ops store_client_ops = {
    .set = client_set,
    .get = client_get,
    .add = client_add,
    .compare_set = client_compare_set,
    .wait = client_wait,
    .check = client_check,
    .delete_key = client_delete,
    .num_keys = client_num_keys,
    .append = client_append,
    .multi_get = client_multi_get,
    .multi_set = client_multi_set,
    .queue_push = client_queue_push,
    .queue_pop = client_queue_pop,
    .queue_len = client_queue_len,
    .list_keys = client_list_keys,
    .barrier = client_barrier,
    .close = client_close,
};

/* ---- opening ---- */

int store_client_connect(const char *host, uint16_t port, enum store_protocol protocol,
                         int64_t timeout_ms, struct store_client **out, struct cr_error *err) {
    if (strlen(host) >= CR_HOST_MAX)
        return cr_fail(err, -EINVAL, "host name '%.64s...' too long", host);
    struct store_client *c = calloc(1, sizeof(*c));
    if (c == NULL) return cr_fail(err, -ENOMEM, "connect to the store: out of memory");
    c->store.ops = &store_client_ops;
    c->socket.fd = -1;
    c->port = port;
    memcpy(c->host, host, strlen(host));
    struct cr_error why = {0};
    int rc = store_client_connect_until(c, protocol, cr_deadline_ms(timeout_ms), &why);
    if (rc < 0) {
        (void) store_fail_connect(err, rc, host, port, timeout_ms, why.text);
        store_client_close(c);
        return rc;
    }
    *out = c;
    return 0;
}

const char *store_client_protocol(const struct store_client *c) {
    return store_handshake_name(c->handshake);
}
