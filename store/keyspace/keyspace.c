/* The operations of the key space: one function for each, and the table that selects the function
 * for a request. Where torch's servers differ from each other, docs/protocols/store.md, section 4,
 * says what an operation does here. */
#include "store/keyspace/keyspace_internal.h"

#include "base/assert.h"
#include "store/keyspace/remains.h"

#include <string.h>

/* ---- replies ---- */

static int replied(struct store_operation *op, int rc) {
    return rc < 0 ? store_fail_memory(op) : 0;
}

static int reply_u8(struct store_operation *op, uint8_t v) {
    return replied(op, store_output_u8(&op->session->out, v));
}

static int reply_u64(struct store_operation *op, uint64_t v) {
    return replied(op, store_output_u64(&op->session->out, v));
}

static int reply_value(struct store_operation *op, struct store_value *v) {
    return replied(op, store_output_value(&op->session->out, v));
}

/* Checks that a reply of `len` bytes fits under the memory limit; the whole reply is in memory
 * before it is sent. Replies of up to STORE_REPLY_FREE bytes always fit. Returns 0 or -ENOSPC. */
static int afford_reply(struct store_operation *op, size_t len) {
    return len <= STORE_REPLY_FREE ? 0 : store_afford(op, len);
}

static int reply_bytes(struct store_operation *op, struct store_bytes bytes) {
    int rc = afford_reply(op, bytes.len);
    if (rc < 0) return rc;
    rc = store_output_u64(&op->session->out, bytes.len);
    if (rc == 0) rc = store_output_bytes(&op->session->out, bytes.data, bytes.len);
    return replied(op, rc);
}

/* ---- one key ---- */

static int apply_ping(struct store_operation *op) {
    uint8_t raw[4];
    store_put_u32(raw, (uint32_t) op->request->number);
    return replied(op, store_output_bytes(&op->session->out, raw, sizeof(raw)));
}

static int apply_set(struct store_operation *op) {
    const struct store_request *r = op->request;
    return store_write_key(op, r->key, r->value, r->block);
}

static int apply_get(struct store_operation *op) {
    struct store_entry *e = store_entry_find(op, op->request->key);
    return reply_value(op, e == NULL ? NULL : e->value);
}

static bool holds(const struct store_value *v, struct store_bytes bytes) {
    return v->len == bytes.len && (bytes.len == 0 || memcmp(v->data, bytes.data, bytes.len) == 0);
}

static int apply_compare_set(struct store_operation *op) {
    const struct store_request *r = op->request;
    struct store_entry *e = store_entry_find(op, r->key);
    struct store_value *held = e == NULL ? NULL : e->value;
    if (held == NULL && r->expected.len > 0) return reply_bytes(op, r->expected);
    if (held != NULL && !holds(held, r->expected)) return reply_value(op, held);
    int rc = store_write_key(op, r->key, r->value, r->block);
    if (rc < 0) return rc;
    /* a value that was received into a block is big: apply_get() lets the reply refer to it, so
     * that it is not copied */
    if (r->block != NULL) return apply_get(op);
    return reply_bytes(op, r->value);
}

/* Sets *total to the entry's counter plus `delta`, but does not change the counter. If the entry
 * has no value, the counter is 0. Overflow wraps around. */
static int count_up(struct store_operation *op, const struct store_entry *e, int64_t delta,
                    int64_t *total) {
    int64_t now = 0;
    int rc = e->value == NULL ? 0 : store_counter_read(e->value, &now, &op->reason);
    if (rc < 0) return rc;
    *total = (int64_t) ((uint64_t) now + (uint64_t) delta);
    return 0;
}

static int apply_add(struct store_operation *op) {
    int rc;
    struct store_entry *e = store_entry_obtain(op, op->request->key, &rc);
    if (e == NULL) return rc;
    int64_t total = 0;
    char text[STORE_NUMBER_TEXT_MAX];
    rc = count_up(op, e, op->request->number, &total);
    if (rc < 0) {
        store_entry_drop_if_empty(op->ks, e);
        return rc;
    }
    rc = store_write_entry(op, e, 0, store_counter_text(total, text), NULL);
    return rc < 0 ? rc : reply_u64(op, (uint64_t) total);
}

static int apply_delete(struct store_operation *op) {
    struct store_entry *e = store_entry_find(op, op->request->key);
    if (e == NULL || e->value == NULL) return reply_u64(op, 0);
    store_write_deletion(op->ks, e);
    return reply_u64(op, 1);
}

static int apply_append(struct store_operation *op) {
    const struct store_request *r = op->request;
    struct store_entry *e = store_entry_find(op, r->key);
    if (e == NULL || e->value == NULL) return store_write_key(op, r->key, r->value, r->block);
    return store_write_more(op, e, r->value);
}

static int apply_num_keys(struct store_operation *op) { return reply_u64(op, op->ks->key_count); }

/* ---- several keys ---- */

static int apply_check(struct store_operation *op) {
    const struct store_request *r = op->request;
    uint8_t answer = STORE_READY;
    for (size_t i = 0; i < r->item_count && answer == STORE_READY; i++) {
        if (!store_entry_exists(store_item_find(op, i))) answer = STORE_NOT_READY;
    }
    return reply_u8(op, answer);
}

static int apply_multi_get(struct store_operation *op) {
    const struct store_request *r = op->request;
    struct store_output *out = &op->session->out;
    size_t before = out->pending, cap = out->bytes.cap;
    int rc = 0;
    for (size_t i = 0; i < r->item_count && rc == 0; i++) {
        struct store_entry *e = store_item_find(op, i);
        if (store_output_value(out, e == NULL ? NULL : e->value) < 0) return store_fail_memory(op);
        if (out->pending - before > op->ks->reply_max)
            return store_fail(op, -EMSGSIZE, "reply too long");
        if (out->bytes.cap != cap) rc = afford_reply(op, cap = out->bytes.cap);
    }
    return rc;
}

static int apply_multi_set(struct store_operation *op) {
    const struct store_request *r = op->request;
    for (size_t i = 0; i < r->item_count; i += 2) {
        int rc;
        struct store_bytes key = store_request_item(r, i), value = store_request_item(r, i + 1);
        struct store_entry *e =
            store_entry_obtain_hashed(op, store_item_hash(op, i, 2), key, &rc);
        rc = store_write_entry(op, e, rc, value, NULL);
        if (rc < 0) return rc;
    }
    return 0;
}

/* ---- waiting ---- */

/* Returns whether a key counts as existing for a wait. It does if it has a value; if `queues` is
 * true, also if its queue has an element. */
static bool is_there(const struct store_entry *e, bool queues) {
    return queues ? store_entry_exists(e) : e != NULL && e->value != NULL;
}

/* Registers the session's wait with the entry of item i of the request, if this key does not
 * exist. */
static int wait_for_item(struct store_operation *op, size_t i, bool queues) {
    struct store_bytes key = store_request_item(op->request, i);
    int rc;
    struct store_entry *e = store_entry_obtain_hashed(op, store_item_hash(op, i, 1), key, &rc);
    if (e == NULL || is_there(e, queues)) return rc;
    rc = store_afford(op, store_extra_cost(e));
    if (rc == 0) rc = store_wait_add(op, op->session->wait, e);
    store_entry_drop_if_empty(op->ks, e);
    return rc;
}

/* Carries out WAIT. If the session waits already, the new wait replaces the earlier one. If
 * `queues` is true, a key without a value also counts as existing if its queue has an element. */
static int wait_for_all(struct store_operation *op, bool queues) {
    const struct store_request *r = op->request;
    store_wait_drop(op->ks, op->session);
    size_t missing = 0;
    for (size_t i = 0; i < r->item_count; i++) {
        if (!is_there(store_item_find(op, i), queues)) missing++;
    }
    if (missing == 0) return reply_u8(op, STORE_STOP_WAITING);
    int rc = store_afford(op, store_wait_cost(missing));
    if (rc < 0) return rc;
    if (store_wait_new(op, missing, false) == NULL) return store_fail_memory(op);
    for (size_t i = 0; i < r->item_count && rc == 0; i++) rc = wait_for_item(op, i, queues);
    if (rc < 0) store_wait_drop(op->ks, op->session);
    return rc;
}

static int apply_wait(struct store_operation *op) { return wait_for_all(op, true); }

int store_keyspace_wait_on(struct store_keyspace *ks, struct store_session *s,
                           const struct store_request *r, int64_t now_ms, const char **reason) {
    struct store_operation op = {.ks = ks, .session = s, .request = r, .now_ms = now_ms};
    int rc = wait_for_all(&op, false);
    if (rc < 0) *reason = op.reason;
    return rc;
}

static int apply_cancel_wait(struct store_operation *op) {
    store_wait_drop(op->ks, op->session);
    return reply_u8(op, STORE_WAIT_CANCELED);
}

/* Writes the counter of a barrier, but does not answer the waits for the key: they wait until the
 * barrier is complete, and arrive() answers them when the last client arrives. */
static int set_barrier_count(struct store_operation *op, struct store_entry *e, int64_t total) {
    char text[STORE_NUMBER_TEXT_MAX];
    struct store_value *v = store_value_of(store_counter_text(total, text), NULL);
    if (v == NULL) return store_fail_memory(op);
    struct store_extra *x = e->extra;
    e->extra = NULL; /* hidden from store_write_value(), which would answer all waits in the extra
                      * part */
    store_write_value(op->ks, e, v);
    e->extra = x;
    return 0;
}

static int arrive(struct store_operation *op, struct store_entry *e) {
    int64_t total = 0;
    size_t cost = store_wait_cost(1) + STORE_EXTRA_COST;
    int rc = count_up(op, e, 1, &total);
    if (rc == 0) rc = store_afford(op, cost + store_value_cost_of(STORE_NUMBER_TEXT_MAX));
    if (rc == 0) rc = set_barrier_count(op, e, total);
    if (rc < 0) return rc;
    if (total >= op->request->number) {
        rc = reply_u8(op, STORE_STOP_WAITING);
        store_wake_all(op->ks, e);
        return rc;
    }
    struct store_wait *w = store_wait_new(op, 1, true);
    rc = w == NULL ? store_fail_memory(op) : store_wait_add(op, w, e);
    if (rc < 0) store_wait_drop(op->ks, op->session);
    return rc;
}

static int apply_barrier(struct store_operation *op) {
    store_wait_drop(op->ks, op->session);
    int rc;
    struct store_entry *e = store_entry_obtain(op, op->request->key, &rc);
    if (e == NULL) return rc;
    rc = arrive(op, e);
    store_entry_drop_if_empty(op->ks, e);
    return rc;
}

static int apply_watch(struct store_operation *op) {
    int rc = store_watch_add(op);
    return rc < 0 ? rc : reply_u8(op, STORE_WATCH_REGISTERED);
}

/* ---- queues ---- */

static size_t queue_len(const struct store_entry *e) {
    return e == NULL || e->extra == NULL ? 0 : e->extra->queue_len;
}

static int apply_queue_pop(struct store_operation *op) {
    struct store_entry *e = store_entry_find(op, op->request->key);
    size_t len = queue_len(e);
    int rc = reply_u64(op, len);
    if (len == 0 || rc < 0) return rc;
    struct store_value *v = store_queue_take(op->ks, e);
    rc = reply_value(op, v);
    store_keyspace_release(op->ks, v);
    store_entry_drop_if_empty(op->ks, e);
    return rc;
}

static int apply_queue_len(struct store_operation *op) {
    return reply_u64(op, queue_len(store_entry_find(op, op->request->key)));
}

/* ---- the table ---- */

static int apply_nothing(struct store_operation *op) {
    return store_fail(op, -EPROTO, "unknown operation");
}

static int (*const apply[STORE_OP_COUNT])(struct store_operation *) = {
    [STORE_OP_VALIDATE] = apply_nothing,
    [STORE_OP_SET] = apply_set,
    [STORE_OP_COMPARE_SET] = apply_compare_set,
    [STORE_OP_GET] = apply_get,
    [STORE_OP_ADD] = apply_add,
    [STORE_OP_CHECK] = apply_check,
    [STORE_OP_WAIT] = apply_wait,
    [STORE_OP_NUM_KEYS] = apply_num_keys,
    [STORE_OP_DELETE] = apply_delete,
    [STORE_OP_APPEND] = apply_append,
    [STORE_OP_MULTI_GET] = apply_multi_get,
    [STORE_OP_MULTI_SET] = apply_multi_set,
    [STORE_OP_CANCEL_WAIT] = apply_cancel_wait,
    [STORE_OP_PING] = apply_ping,
    [STORE_OP_QUEUE_PUSH] = store_queue_append,
    [STORE_OP_QUEUE_POP] = apply_queue_pop,
    [STORE_OP_QUEUE_LEN] = apply_queue_len,
    [STORE_OP_LIST_KEYS] = store_listing_apply,
    [STORE_OP_BARRIER] = apply_barrier,
    [STORE_OP_WATCH] = apply_watch,
};

int store_keyspace_apply(struct store_keyspace *ks, struct store_session *s,
                         const struct store_request *r, int64_t now_ms, const char **reason) {
    /* fields are set one by one: an initialiser would also clear `hashes`, which slows down every
     * GET */
    struct store_operation op;
    op.ks = ks;
    op.session = s;
    op.request = r;
    op.now_ms = now_ms;
    op.reason = NULL;
    if (s->legacy && s->wait != NULL) store_wait_drop(ks, s);
    ks->op_count[r->op]++;
    int rc = apply[r->op](&op);
    if (rc < 0) *reason = op.reason;
    return rc;
}

void store_keyspace_leave(struct store_keyspace *ks, struct store_session *s) {
    store_wait_drop(ks, s);
    store_listing_drop(s);
    store_watch_drop_all(ks, s);
    store_session_unready(ks, s);
    store_output_done(&s->out);
}

/* ---- beginning, clearing and ending ---- */

#define LIST_AT_ONCE 2048 /* up to this many keys, LIST_KEYS lists all keys in one piece, which
                           * takes a fraction of a millisecond */
#define LIST_STEP    512  /* number of buckets that one piece visits; a bucket may cost a few cache
                           * misses */

static void init_empty(struct store_keyspace *ks, const uint64_t seed[2]) {
    TAILQ_INIT(&ks->waits);
    TAILQ_INIT(&ks->ready);
    store_key_table_init(&ks->table, seed);
}

void store_keyspace_init(struct store_keyspace *ks, const uint64_t seed[2]) {
    *ks = (struct store_keyspace){
        .reply_max = UINT32_MAX,
        .pieces = {.list_at_once = LIST_AT_ONCE,
                   .list_step = LIST_STEP,
                   .free_step = STORE_FREE_STEP},
    };
    init_empty(ks, seed);
}

/* Adds the table of a cleared key space to ks->remains, which are freed in pieces. If memory for
 * the list element is short, it frees the table at once. */
static void keep_remains(struct store_keyspace *ks, struct store_key_table table) {
    if (table.buckets[0] == NULL) return;
    struct store_remains old = {.next = ks->remains, .table = table};
    struct store_remains *r = malloc(sizeof(*r));
    if (r == NULL) {
        while (store_remains_free_some(&old, &ks->memory, SIZE_MAX)) {
        }
        return;
    }
    *r = old;
    ks->remains = r;
}

void store_keyspace_clear(struct store_keyspace *ks, const uint64_t seed[2]) {
    /* the caller has ended all sessions, so no session waits or is on the ready list */
    CR_ASSERT(ks->wait_count == 0 && TAILQ_EMPTY(&ks->ready));
    struct store_key_table table = ks->table;
    *ks = (struct store_keyspace){.reply_max = ks->reply_max,
                                  .memory_max = ks->memory_max,
                                  .memory = ks->memory,
                                  .pieces = ks->pieces,
                                  .remains = ks->remains};
    init_empty(ks, seed);
    keep_remains(ks, table);
}

bool store_keyspace_free_some(struct store_keyspace *ks) {
    struct store_remains *r = ks->remains;
    if (r != NULL && !store_remains_free_some(r, &ks->memory, ks->pieces.free_step)) {
        ks->remains = r->next;
        free(r);
    }
    return ks->remains != NULL;
}

void store_keyspace_done(struct store_keyspace *ks) {
    store_keyspace_clear(ks, ks->table.seed);
    while (store_keyspace_free_some(ks)) {
    }
}
