/* What one call exchanges with the server, step by step.
 *
 * get is WAIT, then GET, as torch's clients do it: a bare GET of an absent key makes some servers hang
 * up. Without time WAIT is CHECK; to an old server both, since giving a wait up costs such a
 * connection, so it should not begin for nothing, and the answer proves that all before it was
 * executed. What the server lacks is made of what it has, as torch's base class does:
 *
 *   append      COMPARE_SET, until what it believes to be there is there
 *   multi_get   get, key by key
 *   multi_set   SETs in one go
 *   barrier     ADD to a counter; the last one SETs a key, the others wait for it
 *
 * Pure: no sockets, no clock. */
#include "store/client_async_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define POP_ROUNDS_MAX 100 /* a plain key of the name ends every wait at once */

static int fail(struct store_async_call *c, int code, const char *reason) {
    c->reason = reason;
    return code;
}

static int step(struct store_async_call *c, enum store_op op, const struct store_bytes *keys,
                size_t key_count, int with_grace) {
    c->step = (struct store_exchange){.op = op,
                                      .keys = keys,
                                      .values = c->values,
                                      .key_count = key_count,
                                      .number = c->number,
                                      .with_grace = with_grace};
    return STORE_PLAN_STEP;
}

static int whole(struct store_async_call *c, int with_grace) {
    return step(c, c->op, c->keys, c->key_count, with_grace);
}

/* ---- waiting for what is to be read ---- */

int store_plan_looks(const struct store_async_call *c) {
    return c->timeout_ms <= 0 && (c->op == STORE_OP_GET || c->op == STORE_OP_MULTI_GET ||
                                  c->op == STORE_OP_WAIT || c->op == STORE_OP_QUEUE_POP);
}

static int wait_for(struct store_async_call *c, enum store_dialect dialect,
                    const struct store_bytes *keys, size_t key_count) {
    int asks = store_plan_looks(c) || dialect != STORE_DIALECT_MODERN;
    return step(c, asks ? STORE_OP_CHECK : STORE_OP_WAIT, keys, key_count, asks);
}

/* The keys of the last step are there. */
static int arrived(struct store_async_call *c) {
    if (c->op == STORE_OP_MULTI_GET && c->is_composed)
        return step(c, STORE_OP_GET, &c->keys[c->item], 1, 1);
    if (c->op == STORE_OP_GET || c->op == STORE_OP_MULTI_GET || c->op == STORE_OP_QUEUE_POP)
        return whole(c, 1);
    return STORE_PLAN_END;
}

static int looked(struct store_async_call *c, const struct store_answer *a, int time_is_up) {
    if (c->op == STORE_OP_CHECK) return STORE_PLAN_END;
    if (a->byte == STORE_READY) return arrived(c);
    if (store_plan_looks(c) || time_is_up) return fail(c, -ETIMEDOUT, NULL);
    return step(c, STORE_OP_WAIT, c->step.keys, c->step.key_count, 0);
}

/* Others may take the element between our wake-up and our pop: then wait again. */
static int popped(struct store_async_call *c, enum store_dialect dialect,
                  const struct store_answer *a) {
    if (a->number > 0) return STORE_PLAN_END;
    if (store_plan_looks(c)) return fail(c, -ENOENT, "the queue is empty");
    if (c->rounds++ == POP_ROUNDS_MAX)
        return fail(c, -ENOENT,
                    "the queue is empty each time it is announced; is there a key of the same "
                    "name?");
    return wait_for(c, dialect, c->keys, 1);
}

/* ---- made of others ---- */

static int is_same(const void *a, size_t a_len, const void *b, size_t b_len) {
    return a_len == b_len && (a_len == 0 || memcmp(a, b, a_len) == 0);
}

static int append_step(struct store_async_call *c) {
    if (c->seen_len + c->values[0].len > STORE_VALUE_MAX)
        return fail(c, -EMSGSIZE, "the value would be longer than a request can carry");
    cr_buffer_clear(&c->wanted);
    int rc = cr_buffer_append(&c->wanted, c->seen, c->seen_len);
    if (rc == 0) rc = cr_buffer_append(&c->wanted, c->values[0].data, c->values[0].len);
    if (rc < 0) return rc;
    c->pair[0] = (struct store_bytes){c->seen, c->seen_len};
    c->pair[1] = (struct store_bytes){c->wanted.data, c->wanted.len};
    (void) step(c, STORE_OP_COMPARE_SET, c->keys, 1, 1);
    c->step.values = c->pair;
    return STORE_PLAN_STEP;
}

/* The server answers with what is there; with our own belief if the key vanished. */
static int append_answered(struct store_async_call *c, struct store_answer *a, int time_is_up) {
    void *held = NULL;
    size_t len = 0;
    int rc = store_answer_take_value(a, &held, &len);
    if (rc < 0) return rc;
    int done = is_same(held, len, c->wanted.data, c->wanted.len);
    int vanished = !done && is_same(held, len, c->seen, c->seen_len);
    free(c->seen);
    c->seen = held;
    c->seen_len = vanished ? 0 : len;
    if (done) return STORE_PLAN_END;
    if (time_is_up) return fail(c, -ETIMEDOUT, "timed out: others keep changing the key");
    return append_step(c);
}

static int got_one(struct store_async_call *c, enum store_dialect dialect, struct store_answer *a) {
    int rc = store_list_add(&c->list, a->bytes.data, a->bytes.len);
    if (rc < 0) return rc;
    if (++c->item == c->key_count) return STORE_PLAN_END;
    return wait_for(c, dialect, &c->keys[c->item], 1);
}

static int name_key(struct store_async_call *c, const char *suffix) {
    if (c->keys[0].len + strlen(suffix) >= STORE_KEY_MAX)
        return fail(c, -EMSGSIZE, "the keys made of this one are longer than a key may be");
    cr_buffer_clear(&c->name);
    int rc = cr_buffer_append(&c->name, c->keys[0].data, c->keys[0].len);
    if (rc == 0) rc = cr_buffer_append(&c->name, suffix, strlen(suffix));
    c->pair[0] = (struct store_bytes){c->name.data, c->name.len};
    c->pair[1] = STORE_BYTES("1");
    return rc;
}

static int barrier_arrive(struct store_async_call *c) {
    int rc = name_key(c, "/num_members");
    if (rc < 0) return rc;
    (void) step(c, STORE_OP_ADD, &c->pair[0], 1, 1);
    c->step.number = 1;
    return STORE_PLAN_STEP;
}

static int barrier_counted(struct store_async_call *c, enum store_dialect dialect,
                           int64_t arrived_count) {
    int rc = name_key(c, "/last_member");
    if (rc < 0) return rc;
    if (arrived_count != c->number) return wait_for(c, dialect, &c->pair[0], 1);
    (void) step(c, STORE_OP_SET, &c->pair[0], 1, 0);
    c->step.values = &c->pair[1];
    return STORE_PLAN_STEP;
}

/* ---- step by step ---- */

static int begin_composed(struct store_async_call *c, enum store_dialect dialect) {
    if (c->op == STORE_OP_APPEND) return append_step(c);
    if (c->op == STORE_OP_BARRIER) return barrier_arrive(c);
    if (c->op != STORE_OP_MULTI_GET && c->op != STORE_OP_MULTI_SET)
        return fail(c, -ENOTSUP, "the store's server does not have this operation");
    if (c->key_count == 0) return STORE_PLAN_END;
    if (c->op == STORE_OP_MULTI_GET) return wait_for(c, dialect, c->keys, 1);
    return step(c, STORE_OP_SET, c->keys, c->key_count, 0);
}

int store_plan_begin(struct store_async_call *c, enum store_dialect dialect, int has) {
    c->is_composed = !has;
    if (!has) return begin_composed(c, dialect);
    if (c->op == STORE_OP_WAIT || c->op == STORE_OP_GET || c->op == STORE_OP_MULTI_GET)
        return wait_for(c, dialect, c->keys, c->key_count);
    return whole(c, c->op == STORE_OP_QUEUE_POP);
}

/* Only steps that may be followed by another need a line here. */
int store_plan_next(struct store_async_call *c, enum store_dialect dialect, struct store_answer *a,
                    int time_is_up) {
    enum store_op op = c->step.op;
    if (op == STORE_OP_CHECK) return looked(c, a, time_is_up);
    if (op == STORE_OP_WAIT) return arrived(c);
    if (op == STORE_OP_QUEUE_POP) return popped(c, dialect, a);
    if (!c->is_composed) return STORE_PLAN_END;
    if (op == STORE_OP_COMPARE_SET) return append_answered(c, a, time_is_up);
    if (op == STORE_OP_GET) return got_one(c, dialect, a);
    if (op == STORE_OP_ADD) return barrier_counted(c, dialect, a->number);
    return STORE_PLAN_END;
}

/* ---- bytes out, results in ---- */

static int encode_values(const struct store_encoder *e, const struct store_exchange *x) {
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < x->key_count; i++) {
        rc = store_encode_value_head(e, x->op, x->keys[i], x->values[i].len);
        if (rc == 0) rc = cr_buffer_append(e->out, x->values[i].data, x->values[i].len);
    }
    return rc;
}

int store_plan_encode(const struct store_async_call *c, enum store_dialect dialect,
                      struct cr_buffer *out) {
    const struct store_exchange *x = &c->step;
    const char *fields = store_op_fields(x->op);
    struct store_encoder e = {out, dialect, STORE_BYTES(c->is_raw ? "" : "/")};
    if (strcmp(fields, "") == 0) return store_encode_plain(&e, x->op);
    if (strcmp(fields, "K") == 0) return store_encode_keys(&e, x->op, x->keys, x->key_count);
    if (strcmp(fields, "P") == 0) return store_encode_pairs(&e, x->keys, x->values, x->key_count);
    if (strcmp(fields, "kv") == 0) return encode_values(&e, x);
    if (strcmp(fields, "kn") == 0) return store_encode_number(&e, x->op, x->keys[0], x->number);
    if (strcmp(fields, "kvv") == 0)
        return store_encode_compare_set(&e, x->keys[0], x->values[0], x->values[1]);
    return store_encode_key(&e, x->op, x->keys[0]);
}

int store_plan_has_reply(const struct store_async_call *c) {
    enum store_reply shape = store_op_reply(c->step.op);
    return shape != STORE_REPLY_NONE && (shape != STORE_REPLY_VALUES || c->step.key_count > 0);
}

int store_plan_result(struct store_async_call *c, struct store_answer *a,
                      struct store_async_result *result, void **value) {
    *value = NULL;
    *result = (struct store_async_result){0};
    if (c->op == STORE_OP_MULTI_GET && c->is_composed) {
        result->list = store_list_build(&c->list);
        return 0;
    }
    if (c->op != c->step.op) return 0; /* it ended with another one, which answers nothing of it */
    result->number = a->number;
    if (c->op == STORE_OP_CHECK) result->number = a->byte == STORE_READY;
    if (c->op == STORE_OP_DELETE) result->number = a->number > 0;
    if (c->op == STORE_OP_MULTI_GET || c->op == STORE_OP_LIST_KEYS)
        store_answer_take_list(a, &result->list);
    if (c->op == STORE_OP_LIST_KEYS) store_list_keep_users(&result->list);
    if (store_op_reply(c->op) != STORE_REPLY_VALUE && c->op != STORE_OP_QUEUE_POP) return 0;
    size_t len = 0;
    int rc = store_answer_take_value(a, value, &len);
    result->value = (struct store_bytes){*value, len};
    return rc;
}

void store_plan_done(struct store_async_call *c) {
    store_list_drop(&c->list);
    cr_buffer_done(&c->name);
    cr_buffer_done(&c->wanted);
    free(c->seen);
}
