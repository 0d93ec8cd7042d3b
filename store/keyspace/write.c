/* Changes the value of a key, or a queue.
 *
 * Each change updates the count of memory, answers waits, and is sent to the sessions that watch
 * the key. While an unsent reply refers to a value, or after the value's pages were lent to the
 * kernel, the value is not changed in place, because the change would appear in the reply. */
#include "store/keyspace/keyspace_internal.h"

#include <string.h>

/* ---- setting and deleting ---- */

static size_t value_cost(struct store_bytes bytes, const struct store_value *block) {
    return block != NULL ? store_value_cost(block) : store_value_cost_of(bytes.len);
}

struct store_value *store_value_of(struct store_bytes bytes, struct store_value *block) {
    if (block != NULL) return store_value_ref(block);
    struct store_value *v = store_value_new(bytes.len);
    if (v == NULL) return NULL;
    if (bytes.len > 0) memcpy(v->data, bytes.data, bytes.len);
    v->len = (uint32_t) bytes.len;
    return v;
}

void store_write_value(struct store_keyspace *ks, struct store_entry *e, struct store_value *v) {
    struct store_value *old = e->value;
    ks->memory += store_value_cost(v);
    ks->value_bytes += v->len - (size_t) (old == NULL ? 0 : old->len);
    if (old == NULL) {
        ks->key_count++;
        ks->key_bytes += e->key_len;
    }
    e->value = v;
    store_wake_all(ks, e);
    store_watch_notify(ks, e, old == NULL ? STORE_WATCH_CREATED : STORE_WATCH_UPDATED, old, v);
    store_keyspace_release(ks, old);
    if (e->extra != NULL) store_entry_drop_if_empty(ks, e);
}

/* Overwrites the value in place and returns true, if all of this holds: the entry has a value and
 * no extra part, nothing else refers to the value, its pages were not lent, and its memory is large
 * enough but at most about twice as large as needed. Otherwise changes nothing and returns false.
 * Most SETs of an existing key overwrite the value in place. */
static bool overwrite(struct store_keyspace *ks, struct store_entry *e, struct store_bytes bytes) {
    struct store_value *v = e->value;
    if (v == NULL || e->extra != NULL || v->refs > 1 || v->lent) return false;
    if (bytes.len > v->cap || v->cap > 2 * bytes.len + 64) return false;
    if (bytes.len > 0) memcpy(v->data, bytes.data, bytes.len);
    ks->value_bytes += bytes.len - v->len;
    v->len = (uint32_t) bytes.len;
    return true;
}

static int put_value(struct store_operation *op, struct store_entry *e, struct store_bytes bytes,
                     struct store_value *block) {
    if (block == NULL && overwrite(op->ks, e, bytes)) return 0;
    int rc = store_afford(op, value_cost(bytes, block));
    if (rc < 0) return rc;
    if (bytes.len + 8 > op->ks->reply_max) return store_fail(op, -EMSGSIZE, "value too long");
    struct store_value *v = store_value_of(bytes, block);
    if (v == NULL) return store_fail_memory(op);
    store_write_value(op->ks, e, v);
    return 0;
}

int store_write_entry(struct store_operation *op, struct store_entry *e, int rc,
                      struct store_bytes bytes, struct store_value *block) {
    if (e == NULL) return rc;
    rc = put_value(op, e, bytes, block);
    if (rc < 0) store_entry_drop_if_empty(op->ks, e);
    return rc;
}

int store_write_key(struct store_operation *op, struct store_bytes key, struct store_bytes bytes,
                    struct store_value *block) {
    int rc;
    struct store_entry *e = store_entry_obtain(op, key, &rc);
    return store_write_entry(op, e, rc, bytes, block);
}

void store_write_deletion(struct store_keyspace *ks, struct store_entry *e) {
    struct store_value *old = e->value;
    e->value = NULL;
    ks->key_count--;
    ks->key_bytes -= e->key_len;
    ks->value_bytes -= old->len;
    store_watch_notify(ks, e, STORE_WATCH_DELETED, old, NULL);
    store_keyspace_release(ks, old);
    store_entry_drop_if_empty(ks, e);
}

/* ---- appending ---- */

/* Returns how many bytes to allocate for a value of `len` bytes that APPEND has extended. Half of
 * the length is added as reserve, so that repeated APPENDs copy each byte only a few times. */
static size_t grown_cap(size_t len) { return len + len / 2; }

static bool is_shared(const struct store_entry *e) {
    return e->value->refs > 1 || store_entry_watched(e);
}

static bool grows_in_place(const struct store_entry *e, size_t len) {
    return !is_shared(e) && len <= e->value->cap;
}

/* Returns by how many bytes ks->memory would grow if APPEND made the value `len` bytes long. */
static size_t growth(const struct store_entry *e, size_t len) {
    if (grows_in_place(e, len)) return 0;
    size_t new_cost = store_value_cost_of(grown_cap(len));
    size_t old_cost = is_shared(e) ? 0 : store_value_cost(e->value);
    return new_cost > old_cost ? new_cost - old_cost : 0;
}

/* Returns a value with the bytes of e->value followed by `more`. If e->value has room and is not
 * shared, the function appends to e->value and returns it; the caller must then update its len and
 * ks->value_bytes. Otherwise it returns a new value, which the caller must give to the entry.
 * Returns NULL if memory is short. */
static struct store_value *grown(struct store_entry *e, struct store_bytes more) {
    struct store_value *old = e->value;
    size_t len = old->len + more.len;
    if (grows_in_place(e, len)) {
        memcpy(old->data + old->len, more.data, more.len);
        return old;
    }
    struct store_value *v = store_value_new(grown_cap(len));
    if (v == NULL) return NULL;
    memcpy(v->data, old->data, old->len);
    memcpy(v->data + old->len, more.data, more.len);
    v->len = (uint32_t) len;
    return v;
}

static void wake_after_append(struct store_keyspace *ks, struct store_entry *e) {
    store_wake_all(ks, e);
    store_entry_drop_if_empty(ks, e);
}

int store_write_more(struct store_operation *op, struct store_entry *e, struct store_bytes more) {
    struct store_keyspace *ks = op->ks;
    size_t len = e->value->len + more.len;
    if (len + 8 > ks->reply_max) return store_fail(op, -EMSGSIZE, "appended value too long");
    if (more.len == 0) {
        wake_after_append(ks, e);
        return 0;
    }
    int rc = store_afford(op, growth(e, len));
    if (rc < 0) return rc;
    struct store_value *v = grown(e, more);
    if (v == NULL) return store_fail_memory(op);
    if (v != e->value) {
        store_write_value(ks, e, v);
        return 0;
    }
    v->len = (uint32_t) len;
    ks->value_bytes += more.len;
    wake_after_append(ks, e);
    return 0;
}

/* ---- queues ---- */

static void queue_link(struct store_keyspace *ks, struct store_extra *x, struct store_queued *q) {
    if (STAILQ_EMPTY(&x->queue)) ks->queue_count++;
    STAILQ_INSERT_TAIL(&x->queue, q, next);
    x->queue_len++;
    ks->value_bytes += q->value->len;
    ks->memory += STORE_QUEUED_COST + store_value_cost(q->value);
}

int store_queue_append(struct store_operation *op) {
    const struct store_request *r = op->request;
    struct store_keyspace *ks = op->ks;
    int rc;
    struct store_entry *e = store_entry_obtain(op, r->key, &rc);
    if (e == NULL) return rc;
    rc = store_afford(op, STORE_QUEUED_COST + store_extra_cost(e) + value_cost(r->value, r->block));
    if (rc == 0 && r->value.len + 16 > ks->reply_max)
        rc = store_fail(op, -EMSGSIZE, "value too long");
    struct store_queued *q = rc < 0 ? NULL : calloc(1, sizeof(*q));
    if (q != NULL) q->value = store_value_of(r->value, r->block);
    struct store_extra *x =
        q == NULL || q->value == NULL ? NULL : store_entry_obtain_extra(ks, e);
    if (x == NULL) {
        if (q != NULL) store_value_unref(q->value);
        free(q);
        store_entry_drop_if_empty(ks, e);
        return rc < 0 ? rc : store_fail_memory(op);
    }
    queue_link(ks, x, q);
    store_wake_one(ks, e);
    return 0;
}

struct store_value *store_queue_take(struct store_keyspace *ks, struct store_entry *e) {
    struct store_extra *x = e->extra;
    struct store_queued *q = STAILQ_FIRST(&x->queue);
    struct store_value *v = q->value;
    STAILQ_REMOVE_HEAD(&x->queue, next);
    x->queue_len--;
    if (STAILQ_EMPTY(&x->queue)) ks->queue_count--;
    ks->value_bytes -= v->len;
    ks->memory -= STORE_QUEUED_COST;
    free(q);
    return v;
}
