/* The operations. Order of the file: bookkeeping (memory, entries), waits, watches, values, queues,
 * then one small function an operation, and the table that picks it. */
#include "store/keyspace/keyspace.h"

#include "base/assert.h"
#include "store/keyspace/key_entry.h"
#include "store/keyspace/remains.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT_REACHED    "memory limit of the store reached"
#define COUNTER_TEXT_MAX ((size_t) 64 << 10)
#define LOOK_AHEAD       16 /* names of a list that are fetched from memory together */

/* What an operation works on. */
struct call {
    struct store_keyspace *ks;
    struct store_session *session;
    const struct store_request *request;
    int64_t now_ms;
    const char *reason;
    uint32_t hashes[LOOK_AHEAD]; /* of the names that stand in a list around the one at hand */
};

static int fail(struct call *c, int code, const char *reason) {
    c->reason = reason;
    return code;
}

static int no_memory(struct call *c) { return fail(c, -ENOMEM, "out of memory"); }

/* A reply that may not have fitted into memory. */
static int replied(struct call *c, int rc) { return rc < 0 ? no_memory(c) : 0; }

/* ---- memory ---- */

#define WATCH_COST (sizeof(struct store_watch) + STORE_MALLOC_OVERHEAD)

static size_t wait_cost(size_t count) {
    return sizeof(struct store_wait) + STORE_MALLOC_OVERHEAD +
           count * sizeof(struct store_registration);
}

bool store_keyspace_affords(struct store_keyspace *ks, size_t more) {
    if (ks->memory_max == 0) return true;
    while (ks->memory + more > ks->memory_max && store_keyspace_free_some(ks)) {
    }
    return ks->memory + more <= ks->memory_max;
}

/* What waiting for a name, watching it or queueing something adds at first. */
static size_t extra_cost(const struct store_entry *e) {
    return e->extra == NULL ? STORE_EXTRA_COST : 0;
}

/* May `more` bytes be used? Nothing is counted yet. */
static int afford(struct call *c, size_t more) {
    if (store_keyspace_affords(c->ks, more)) return 0;
    return fail(c, -ENOSPC, LIMIT_REACHED);
}

/* A long reply is in memory before it is sent, whoever reads it: may there be so much of it? */
static int afford_reply(struct call *c, size_t len) {
    return len <= STORE_REPLY_FREE ? 0 : afford(c, len);
}

static void count_freed(struct store_keyspace *ks) {
    if (++ks->freed % STORE_SETTLE_AFTER == 0) store_heap_settle();
}

/* ---- entries ---- */

static struct store_entry *find(struct call *c, struct store_bytes key) {
    return store_key_table_find(&c->ks->table, key.data, key.len);
}

/* The names of a list come one after another, `step` apart, from the first: when a block of them begins,
 * all of it is fetched. Returns the hash of number i. */
static uint32_t item_hash(struct call *c, size_t i, size_t step) {
    const struct store_request *r = c->request;
    size_t at = i / step % LOOK_AHEAD, n = 0;
    for (size_t j = i; at == 0 && n < LOOK_AHEAD && j < r->item_count; j += step) {
        struct store_bytes key = store_request_item(r, j);
        c->hashes[n++] = store_key_table_hash(&c->ks->table, key.data, key.len);
    }
    if (n > 1) store_key_table_fetch(&c->ks->table, c->hashes, n);
    return c->hashes[at];
}

static struct store_entry *find_item(struct call *c, size_t i) {
    struct store_bytes key = store_request_item(c->request, i);
    return store_key_table_find_hashed(&c->ks->table, item_hash(c, i, 1), key.data, key.len);
}

/* A new entry for what was not found, NULL with the reason set. It holds nothing: give it something, or
 * settle() it. */
static struct store_entry *create(struct call *c, uint32_t hash, struct store_bytes key, int *rc) {
    *rc = afford(c, store_entry_cost(key.len));
    if (*rc < 0) return NULL;
    struct store_entry *e = store_key_table_insert(&c->ks->table, hash, key.data, key.len);
    if (e == NULL) *rc = no_memory(c);
    if (e != NULL) c->ks->memory += store_entry_cost(key.len);
    return e;
}

static struct store_entry *obtain_hashed(struct call *c, uint32_t hash, struct store_bytes key,
                                         int *rc) {
    struct store_key_table *t = &c->ks->table;
    struct store_entry *e = store_key_table_find_hashed(t, hash, key.data, key.len);
    *rc = 0;
    return e != NULL ? e : create(c, hash, key, rc);
}

/* Finds or creates. */
static struct store_entry *obtain(struct call *c, struct store_bytes key, int *rc) {
    uint32_t hash = store_key_table_hash(&c->ks->table, key.data, key.len);
    return obtain_hashed(c, hash, key, rc);
}

static struct store_extra *obtain_extra(struct store_keyspace *ks, struct store_entry *e) {
    if (e->extra != NULL) return e->extra;
    e->extra = calloc(1, sizeof(*e->extra));
    if (e->extra != NULL) ks->memory += STORE_EXTRA_COST;
    return e->extra;
}

/* Forgets what is empty: the extra part, then the entry itself. */
static void settle(struct store_keyspace *ks, struct store_entry *e) {
    struct store_extra *x = e->extra;
    if (x != NULL && x->waiter_first == NULL && x->watches == NULL && x->queue_first == NULL) {
        ks->memory -= STORE_EXTRA_COST;
        free(x);
        e->extra = NULL;
    }
    if (e->value != NULL || e->extra != NULL) return;
    ks->memory -= store_entry_cost(e->key_len);
    store_key_table_remove(&ks->table, e);
    count_freed(ks);
}

/* What WAIT and CHECK ask: a key, or a queue with something in it. */
static bool exists(const struct store_entry *e) {
    return e != NULL && (e->value != NULL || (e->extra != NULL && e->extra->queue_first != NULL));
}

/* ---- the ready list ---- */

/* Behind the others, so that nobody is overtaken. */
static void make_ready(struct store_keyspace *ks, struct store_session *s) {
    if (s->ready) return;
    s->ready = true;
    s->ready_next = NULL;
    s->ready_prev = ks->ready_last;
    if (ks->ready_last != NULL) {
        ks->ready_last->ready_next = s;
    } else {
        ks->ready_first = s;
    }
    ks->ready_last = s;
}

static void unready(struct store_keyspace *ks, struct store_session *s) {
    if (!s->ready) return;
    s->ready = false;
    ks->pushed -= s->pushed;
    s->pushed = 0;
    if (s->ready_next != NULL) {
        s->ready_next->ready_prev = s->ready_prev;
    } else {
        ks->ready_last = s->ready_prev;
    }
    if (s->ready_prev != NULL) {
        s->ready_prev->ready_next = s->ready_next;
    } else {
        ks->ready_first = s->ready_next;
    }
}

struct store_session *store_keyspace_take_ready(struct store_keyspace *ks) {
    struct store_session *s = ks->ready_first;
    if (s != NULL) unready(ks, s);
    return s;
}

/* ---- waits ---- */

static void registration_link(struct store_registration *r, struct store_wait *w,
                              struct store_entry *e) {
    struct store_extra *x = e->extra;
    *r = (struct store_registration){.prev = x->waiter_last, .entry = e, .wait = w};
    if (x->waiter_last != NULL) {
        x->waiter_last->next = r;
    } else {
        x->waiter_first = r;
    }
    x->waiter_last = r;
}

static void registration_unlink(struct store_registration *r) {
    struct store_extra *x = r->entry->extra;
    if (r->prev != NULL) {
        r->prev->next = r->next;
    } else {
        x->waiter_first = r->next;
    }
    if (r->next != NULL) {
        r->next->prev = r->prev;
    } else {
        x->waiter_last = r->prev;
    }
    r->entry = NULL;
}

static struct store_wait *wait_new(struct call *c, size_t count, bool barrier) {
    struct store_keyspace *ks = c->ks;
    struct store_wait *w = malloc(sizeof(*w) + count * sizeof(w->registrations[0]));
    if (w == NULL) return NULL;
    *w = (struct store_wait){.prev = ks->wait_last,
                             .session = c->session,
                             .since_ms = c->now_ms,
                             .room = count,
                             .barrier = barrier};
    if (ks->wait_last != NULL) {
        ks->wait_last->next = w;
    } else {
        ks->wait_first = w;
    }
    ks->wait_last = w;
    ks->wait_count++;
    ks->memory += wait_cost(count);
    c->session->wait = w;
    return w;
}

/* Every registration of it must be unlinked by now. */
static void wait_free(struct store_keyspace *ks, struct store_wait *w) {
    if (w->prev != NULL) {
        w->prev->next = w->next;
    } else {
        ks->wait_first = w->next;
    }
    if (w->next != NULL) {
        w->next->prev = w->prev;
    } else {
        ks->wait_last = w->prev;
    }
    ks->wait_count--;
    ks->memory -= wait_cost(w->room);
    w->session->wait = NULL;
    free(w);
}

/* Ends the session's wait, if any, without an answer. */
static void wait_drop(struct store_keyspace *ks, struct store_session *s) {
    struct store_wait *w = s->wait;
    if (w == NULL) return;
    for (size_t i = 0; i < w->count; i++) {
        struct store_entry *e = w->registrations[i].entry;
        if (e == NULL) continue;
        registration_unlink(&w->registrations[i]);
        settle(ks, e);
    }
    wait_free(ks, w);
}

/* Waits for e as well, which must have been afforded. A name that stands twice in one request is
 * registered once: its first registration is the last in the key's list, since nobody else came in
 * between. */
static int wait_add(struct call *c, struct store_wait *w, struct store_entry *e) {
    struct store_extra *x = obtain_extra(c->ks, e);
    if (x == NULL) return no_memory(c);
    if (!w->barrier && x->waiter_last != NULL && x->waiter_last->wait == w) return 0;
    registration_link(&w->registrations[w->count++], w, e);
    w->missing++;
    return 0;
}

static void push_byte(struct store_keyspace *ks, struct store_session *s, uint8_t byte) {
    if (store_output_u8(&s->out, byte) < 0) s->lost = "out of memory";
    make_ready(ks, s);
}

/* The key of r was written. True if that was the last one its wait was missing. */
static bool registration_satisfy(struct store_keyspace *ks, struct store_registration *r) {
    struct store_wait *w = r->wait;
    registration_unlink(r);
    if (--w->missing > 0) return false;
    push_byte(ks, w->session, STORE_STOP_WAITING);
    wait_free(ks, w);
    return true;
}

static void wake_all(struct store_keyspace *ks, struct store_entry *e) {
    while (e->extra != NULL && e->extra->waiter_first != NULL) {
        (void) registration_satisfy(ks, e->extra->waiter_first);
    }
}

/* A queue got one element: one waiter may have it. One that still misses other names has seen this
 * one, but is not the one to be woken. */
static void wake_one(struct store_keyspace *ks, struct store_entry *e) {
    while (e->extra->waiter_first != NULL) {
        if (registration_satisfy(ks, e->extra->waiter_first)) return;
    }
}

/* ---- watches ---- */

static void watch_free(struct store_keyspace *ks, struct store_watch *w) {
    struct store_entry *e = w->entry;
    if (w->prev != NULL) {
        w->prev->next = w->next;
    } else {
        e->extra->watches = w->next;
    }
    if (w->next != NULL) w->next->prev = w->prev;
    ks->memory -= WATCH_COST;
    free(w);
    settle(ks, e);
}

static bool watched(const struct store_entry *e) {
    return e->extra != NULL && e->extra->watches != NULL;
}

/* Nobody charges a push before its session is flushed, and one request may cause any number: so they
 * are held to the limits here, where they are made. */
static bool push_fits(struct store_keyspace *ks, struct store_session *s, size_t bytes) {
    if (s->lost != NULL) return false;
    ks->pushed += bytes;
    s->pushed += bytes;
    if (s->out.pending > ks->reply_max) {
        s->lost = "it does not read its replies";
    } else if (s->pushed > STORE_PUSH_FREE && !store_keyspace_affords(ks, ks->pushed)) {
        s->lost = LIMIT_REACHED;
    }
    return s->lost == NULL;
}

static void watch_push(struct store_keyspace *ks, const struct store_watch *w, uint8_t code,
                       struct store_value *old, struct store_value *new) {
    struct store_session *s = w->session;
    struct store_output *out = &s->out;
    size_t bytes = 9 + w->entry->key_len + store_output_copies(old) + store_output_copies(new);
    make_ready(ks, s);
    if (!push_fits(ks, s, bytes)) return;
    int rc = store_output_u8(out, code);
    if (rc == 0) rc = store_output_u64(out, w->entry->key_len);
    if (rc == 0) rc = store_output_bytes(out, w->entry->key, w->entry->key_len);
    if (rc == 0) rc = store_output_value(out, old);
    if (rc == 0) rc = store_output_value(out, new);
    if (rc < 0) s->lost = "out of memory";
}

static void notify(struct store_keyspace *ks, struct store_entry *e, uint8_t code,
                   struct store_value *old, struct store_value *new) {
    if (!watched(e)) return;
    for (struct store_watch *w = e->extra->watches; w != NULL; w = w->next) {
        watch_push(ks, w, code, old, new);
    }
}

/* ---- values ---- */

static size_t value_cost(struct store_bytes bytes, const struct store_value *block) {
    return block != NULL ? store_value_cost(block) : store_value_cost_of(bytes.len);
}

/* A value for these bytes: the block they were received into, or a copy. */
static struct store_value *value_of(struct store_bytes bytes, struct store_value *block) {
    if (block != NULL) return store_value_ref(block);
    struct store_value *v = store_value_new(bytes.len);
    if (v == NULL) return NULL;
    if (bytes.len > 0) memcpy(v->data, bytes.data, bytes.len);
    v->len = (uint32_t) bytes.len;
    return v;
}

static void release(struct store_keyspace *ks, struct store_value *v) {
    store_value_release(v, &ks->memory);
    if (v != NULL) count_freed(ks);
}

/* Makes v the entry's value: takes it, wakes, notifies. */
static void install(struct store_keyspace *ks, struct store_entry *e, struct store_value *v) {
    struct store_value *old = e->value;
    ks->memory += store_value_cost(v);
    ks->value_bytes += v->len - (size_t) (old == NULL ? 0 : old->len);
    if (old == NULL) {
        ks->key_count++;
        ks->key_bytes += e->key_len;
    }
    e->value = v;
    wake_all(ks, e);
    notify(ks, e, old == NULL ? STORE_WATCH_CREATED : STORE_WATCH_UPDATED, old, v);
    release(ks, old);
    if (e->extra != NULL) settle(ks, e);
}

/* A small value over one of about its size, nobody else looking: the common overwrite. */
static bool overwrite(struct store_keyspace *ks, struct store_entry *e, struct store_bytes bytes) {
    struct store_value *v = e->value;
    if (v == NULL || e->extra != NULL || v->refs > 1 || v->lent) return false;
    if (bytes.len > v->cap || v->cap > 2 * bytes.len + 64) return false;
    if (bytes.len > 0) memcpy(v->data, bytes.data, bytes.len);
    ks->value_bytes += bytes.len - v->len;
    v->len = (uint32_t) bytes.len;
    return true;
}

static int put_value(struct call *c, struct store_entry *e, struct store_bytes bytes,
                     struct store_value *block) {
    if (block == NULL && overwrite(c->ks, e, bytes)) return 0;
    int rc = afford(c, value_cost(bytes, block));
    if (rc < 0) return rc;
    if (bytes.len + 8 > c->ks->reply_max) return fail(c, -EMSGSIZE, "value too long");
    struct store_value *v = value_of(bytes, block);
    if (v == NULL) return no_memory(c);
    install(c->ks, e, v);
    return 0;
}

/* e may be NULL: then rc says why. */
static int set_entry(struct call *c, struct store_entry *e, int rc, struct store_bytes bytes,
                     struct store_value *block) {
    if (e == NULL) return rc;
    rc = put_value(c, e, bytes, block);
    if (rc < 0) settle(c->ks, e);
    return rc;
}

static int set(struct call *c, struct store_bytes key, struct store_bytes bytes,
               struct store_value *block) {
    int rc;
    struct store_entry *e = obtain(c, key, &rc);
    return set_entry(c, e, rc, bytes, block);
}

/* Text to number as strtoll reads it: white space, sign, digits, and whatever follows. Not of a value so
 * long that only looking at it would keep the others waiting. */
static int read_counter(struct call *c, const struct store_value *v, int64_t *out) {
    char text[64];
    size_t len = v->len, at = 0;
    if (len > COUNTER_TEXT_MAX)
        return fail(c, -EPROTO, "add to a value that is too long for a number");
    while (at < len && (v->data[at] == ' ' || (v->data[at] >= '\t' && v->data[at] <= '\r'))) at++;
    size_t start = at, digits = 0;
    if (at < len && (v->data[at] == '-' || v->data[at] == '+')) at++;
    while (at + digits < len && v->data[at + digits] >= '0' && v->data[at + digits] <= '9')
        digits++;
    if (digits == 0) return fail(c, -EPROTO, "add to a value that is not a number");
    while (digits > 1 && v->data[at] == '0') at++, digits--;
    if (digits > 19) return fail(c, -EPROTO, "add to a number out of range");
    size_t n = 0;
    if (v->data[start] == '-') text[n++] = '-';
    memcpy(text + n, v->data + at, digits);
    text[n + digits] = '\0';
    errno = 0;
    long long number = strtoll(text, NULL, 10);
    if (errno == ERANGE) return fail(c, -EPROTO, "add to a number out of range");
    *out = number;
    return 0;
}

/* The entry's number plus delta, wrapping. */
static int count_up(struct call *c, const struct store_entry *e, int64_t delta, int64_t *total) {
    int64_t now = 0;
    if (e->value != NULL) {
        int rc = read_counter(c, e->value, &now);
        if (rc < 0) return rc;
    }
    *total = (int64_t) ((uint64_t) now + (uint64_t) delta);
    return 0;
}

static struct store_bytes number_text(int64_t number, char text[24]) {
    uint64_t rest = number < 0 ? 0 - (uint64_t) number : (uint64_t) number;
    size_t at = 24;
    do {
        text[--at] = (char) ('0' + rest % 10);
        rest /= 10;
    } while (rest > 0);
    if (number < 0) text[--at] = '-';
    return (struct store_bytes){text + at, 24 - at};
}

/* ---- one function an operation ---- */

static int apply_ping(struct call *c) {
    uint8_t raw[4];
    store_put_u32(raw, (uint32_t) c->request->number);
    return replied(c, store_output_bytes(&c->session->out, raw, sizeof(raw)));
}

static int apply_set(struct call *c) {
    const struct store_request *r = c->request;
    return set(c, r->key, r->value, r->block);
}

static int apply_get(struct call *c) {
    struct store_entry *e = find(c, c->request->key);
    return replied(c, store_output_value(&c->session->out, e == NULL ? NULL : e->value));
}

static int reply_bytes(struct call *c, struct store_bytes bytes) {
    int rc = afford_reply(c, bytes.len);
    if (rc < 0) return rc;
    rc = store_output_u64(&c->session->out, bytes.len);
    if (rc == 0) rc = store_output_bytes(&c->session->out, bytes.data, bytes.len);
    return replied(c, rc);
}

static bool holds(const struct store_value *v, struct store_bytes bytes) {
    return v->len == bytes.len && (bytes.len == 0 || memcmp(v->data, bytes.data, bytes.len) == 0);
}

static int apply_compare_set(struct call *c) {
    const struct store_request *r = c->request;
    struct store_entry *e = find(c, r->key);
    struct store_value *held = e == NULL ? NULL : e->value;
    if (held == NULL && r->expected.len > 0) return reply_bytes(c, r->expected);
    if (held != NULL && !holds(held, r->expected)) {
        return replied(c, store_output_value(&c->session->out, held));
    }
    int rc = set(c, r->key, r->value, r->block);
    if (rc < 0) return rc;
    return r->block != NULL ? apply_get(c) : reply_bytes(c, r->value); /* a big one by reference */
}

static int apply_add(struct call *c) {
    int rc;
    struct store_entry *e = obtain(c, c->request->key, &rc);
    if (e == NULL) return rc;
    int64_t total = 0;
    char text[24];
    rc = count_up(c, e, c->request->number, &total);
    if (rc == 0) rc = put_value(c, e, number_text(total, text), NULL);
    if (rc < 0) {
        settle(c->ks, e);
        return rc;
    }
    return replied(c, store_output_u64(&c->session->out, (uint64_t) total));
}

static int apply_check(struct call *c) {
    const struct store_request *r = c->request;
    uint8_t answer = STORE_READY;
    for (size_t i = 0; i < r->item_count && answer == STORE_READY; i++) {
        if (!exists(find_item(c, i))) answer = STORE_NOT_READY;
    }
    return replied(c, store_output_u8(&c->session->out, answer));
}

/* For the i-th name of the request, if it is missing. */
static int wait_for(struct call *c, size_t i) {
    struct store_bytes key = store_request_item(c->request, i);
    int rc;
    struct store_entry *e = obtain_hashed(c, item_hash(c, i, 1), key, &rc);
    if (e == NULL || exists(e)) return rc;
    rc = afford(c, extra_cost(e));
    if (rc == 0) rc = wait_add(c, c->session->wait, e);
    settle(c->ks, e);
    return rc;
}

/* A second wait on a connection takes the place of the first. */
static int apply_wait(struct call *c) {
    const struct store_request *r = c->request;
    wait_drop(c->ks, c->session);
    size_t missing = 0;
    for (size_t i = 0; i < r->item_count; i++) {
        if (!exists(find_item(c, i))) missing++;
    }
    if (missing == 0) return replied(c, store_output_u8(&c->session->out, STORE_STOP_WAITING));
    int rc = afford(c, wait_cost(missing));
    if (rc < 0) return rc;
    if (wait_new(c, missing, false) == NULL) return no_memory(c);
    for (size_t i = 0; i < r->item_count && rc == 0; i++) rc = wait_for(c, i);
    if (rc < 0) wait_drop(c->ks, c->session);
    return rc;
}

static int apply_cancel_wait(struct call *c) {
    wait_drop(c->ks, c->session);
    return replied(c, store_output_u8(&c->session->out, STORE_WAIT_CANCELED));
}

static int apply_num_keys(struct call *c) {
    return replied(c, store_output_u64(&c->session->out, c->ks->key_count));
}

static int apply_delete(struct call *c) {
    struct store_keyspace *ks = c->ks;
    struct store_entry *e = find(c, c->request->key);
    struct store_value *old = e == NULL ? NULL : e->value;
    if (old == NULL) return replied(c, store_output_u64(&c->session->out, 0));
    e->value = NULL;
    ks->key_count--;
    ks->key_bytes -= e->key_len;
    ks->value_bytes -= old->len;
    notify(ks, e, STORE_WATCH_DELETED, old, NULL);
    release(ks, old);
    settle(ks, e);
    return replied(c, store_output_u64(&c->session->out, 1));
}

/* Grows by half, so that appending all day copies each byte only a few times. */
static size_t grown_cap(size_t len) { return len + len / 2; }

/* In place where nobody else looks at it. */
static bool grows_in_place(const struct store_entry *e, size_t len) {
    return e->value->refs == 1 && !watched(e) && len <= e->value->cap;
}

/* By how much the memory in use grows with the value, if its old self can be let go of. */
static size_t growth(const struct store_entry *e, size_t len) {
    if (grows_in_place(e, len)) return 0;
    size_t new = store_value_cost_of(grown_cap(len));
    size_t old = e->value->refs == 1 && !watched(e) ? store_value_cost(e->value) : 0;
    return new > old ? new - old : 0;
}

/* The old value with more behind it. */
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

static int append(struct call *c, struct store_entry *e, struct store_bytes more) {
    struct store_keyspace *ks = c->ks;
    size_t len = e->value->len + more.len;
    if (len + 8 > ks->reply_max) return fail(c, -EMSGSIZE, "appended value too long");
    if (more.len == 0) {
        wake_all(ks, e);
        settle(ks, e);
        return 0;
    }
    int rc = afford(c, growth(e, len));
    if (rc < 0) return rc;
    struct store_value *v = grown(e, more);
    if (v == NULL) return no_memory(c);
    if (v != e->value) {
        install(ks, e, v);
        return 0;
    }
    v->len = (uint32_t) len;
    ks->value_bytes += more.len;
    wake_all(ks, e);
    settle(ks, e);
    return 0;
}

static int apply_append(struct call *c) {
    const struct store_request *r = c->request;
    struct store_entry *e = find(c, r->key);
    if (e == NULL || e->value == NULL) return set(c, r->key, r->value, r->block);
    return append(c, e, r->value);
}

static int apply_multi_get(struct call *c) {
    const struct store_request *r = c->request;
    struct store_output *out = &c->session->out;
    size_t before = out->pending, cap = out->bytes.cap;
    int rc = 0;
    for (size_t i = 0; i < r->item_count && rc == 0; i++) {
        struct store_entry *e = find_item(c, i);
        if (store_output_value(out, e == NULL ? NULL : e->value) < 0) return no_memory(c);
        if (out->pending - before > c->ks->reply_max) return fail(c, -EMSGSIZE, "reply too long");
        if (out->bytes.cap != cap) rc = afford_reply(c, cap = out->bytes.cap);
    }
    return rc;
}

static int apply_multi_set(struct call *c) {
    const struct store_request *r = c->request;
    for (size_t i = 0; i < r->item_count; i += 2) {
        int rc;
        struct store_entry *e = obtain_hashed(c, item_hash(c, i, 2), store_request_item(r, i), &rc);
        rc = set_entry(c, e, rc, store_request_item(r, i + 1), NULL);
        if (rc < 0) return rc;
    }
    return 0;
}

static void list_key(void *arg, struct store_entry *e) {
    struct store_output *out = arg;
    if (e->value == NULL) return;
    (void) store_output_u64(out, e->key_len); /* room was made for all of them */
    (void) store_output_bytes(out, e->key, e->key_len);
}

static void list_one_more(void *arg, struct store_entry *e) {
    struct store_listing *l = arg;
    if (e->value == NULL) return;
    if (cr_buffer_reserve(&l->bytes, 8 + e->key_len) < 0) {
        l->short_of_memory = true;
        return;
    }
    store_put_u64(l->bytes.data + l->bytes.len, e->key_len);
    memcpy(l->bytes.data + l->bytes.len + 8, e->key, e->key_len);
    l->bytes.len += 8 + e->key_len;
    l->count++;
}

static int begin_listing(struct call *c) {
    struct store_listing *l = calloc(1, sizeof(*l));
    if (l == NULL || cr_buffer_reserve(&l->bytes, 8) < 0) {
        free(l);
        return no_memory(c);
    }
    l->bytes.len = 8; /* the count, known in the end */
    c->session->listing = l;
    return 0;
}

static void drop_listing(struct store_session *s) {
    if (s->listing != NULL) cr_buffer_done(&s->listing->bytes);
    free(s->listing);
    s->listing = NULL;
}

/* The usual case hands the memory over: nothing else is to be sent. */
static int finish_listing(struct store_session *s) {
    struct store_listing *l = s->listing;
    struct store_output *out = &s->out;
    int rc = 0;
    store_put_u64(l->bytes.data, l->count);
    if (out->pending > 0) {
        rc = store_output_bytes(out, l->bytes.data, l->bytes.len);
    } else {
        store_output_done(out);
        out->bytes = l->bytes;
        out->pending = l->bytes.len;
        l->bytes = (struct cr_buffer){0};
    }
    drop_listing(s);
    return rc;
}

static int apply_list_keys(struct call *c) {
    struct store_keyspace *ks = c->ks;
    struct store_output *out = &c->session->out;
    size_t size = 8 + 8 * ks->key_count + ks->key_bytes;
    if (size > ks->reply_max) return fail(c, -EMSGSIZE, "reply too long");
    if (c->session->patient && ks->table.count > ks->pace.list_at_once) return begin_listing(c);
    if (cr_buffer_reserve(&out->bytes, size) < 0) return no_memory(c);
    (void) store_output_u64(out, ks->key_count);
    store_key_table_each(&ks->table, list_key, out);
    return 0;
}

static int apply_queue_push(struct call *c) {
    const struct store_request *r = c->request;
    struct store_keyspace *ks = c->ks;
    int rc;
    struct store_entry *e = obtain(c, r->key, &rc);
    if (e == NULL) return rc;
    rc = afford(c, STORE_QUEUED_COST + extra_cost(e) + value_cost(r->value, r->block));
    if (rc == 0 && r->value.len + 16 > ks->reply_max) rc = fail(c, -EMSGSIZE, "value too long");
    struct store_queued *q = rc < 0 ? NULL : calloc(1, sizeof(*q));
    struct store_value *v = q == NULL ? NULL : value_of(r->value, r->block);
    struct store_extra *x = v == NULL ? NULL : obtain_extra(ks, e);
    if (x == NULL) {
        store_value_unref(v);
        free(q);
        settle(ks, e);
        return rc < 0 ? rc : no_memory(c);
    }
    q->value = v;
    if (x->queue_last != NULL) {
        x->queue_last->next = q;
    } else {
        x->queue_first = q;
        ks->queue_count++;
    }
    x->queue_last = q;
    x->queue_len++;
    ks->value_bytes += v->len;
    ks->memory += STORE_QUEUED_COST + store_value_cost(v);
    wake_one(ks, e);
    return 0;
}

/* Takes the head out; the caller has to release() the value. */
static struct store_value *queue_take(struct store_keyspace *ks, struct store_entry *e) {
    struct store_extra *x = e->extra;
    struct store_queued *q = x->queue_first;
    struct store_value *v = q->value;
    x->queue_first = q->next;
    x->queue_len--;
    if (q->next == NULL) {
        x->queue_last = NULL;
        ks->queue_count--;
    }
    ks->value_bytes -= v->len;
    ks->memory -= STORE_QUEUED_COST;
    free(q);
    return v;
}

static size_t queue_len(const struct store_entry *e) {
    return e == NULL || e->extra == NULL ? 0 : e->extra->queue_len;
}

static int apply_queue_pop(struct call *c) {
    struct store_entry *e = find(c, c->request->key);
    size_t len = queue_len(e);
    int rc = store_output_u64(&c->session->out, len);
    if (len == 0 || rc < 0) return replied(c, rc);
    struct store_value *v = queue_take(c->ks, e);
    rc = store_output_value(&c->session->out, v);
    release(c->ks, v);
    settle(c->ks, e);
    return replied(c, rc);
}

static int apply_queue_len(struct call *c) {
    return replied(c, store_output_u64(&c->session->out, queue_len(find(c, c->request->key))));
}

/* Sets the counter without waking: only the last arrival releases. */
static int barrier_count(struct call *c, struct store_entry *e, int64_t total) {
    char text[24];
    struct store_value *v = value_of(number_text(total, text), NULL);
    if (v == NULL) return no_memory(c);
    struct store_extra *x = e->extra;
    e->extra = NULL; /* install() wakes whoever hangs here */
    install(c->ks, e, v);
    e->extra = x;
    return 0;
}

static int barrier_arrive(struct call *c, struct store_entry *e) {
    int64_t total = 0;
    int rc = count_up(c, e, 1, &total);
    if (rc == 0) rc = afford(c, wait_cost(1) + STORE_EXTRA_COST + store_value_cost_of(24));
    if (rc == 0) rc = barrier_count(c, e, total);
    if (rc < 0) return rc;
    if (total >= c->request->number) {
        rc = replied(c, store_output_u8(&c->session->out, STORE_STOP_WAITING));
        wake_all(c->ks, e);
        return rc;
    }
    struct store_wait *w = wait_new(c, 1, true);
    rc = w == NULL ? no_memory(c) : wait_add(c, w, e);
    if (rc < 0) wait_drop(c->ks, c->session);
    return rc;
}

static int apply_barrier(struct call *c) {
    wait_drop(c->ks, c->session);
    int rc;
    struct store_entry *e = obtain(c, c->request->key, &rc);
    if (e == NULL) return rc;
    rc = barrier_arrive(c, e);
    settle(c->ks, e);
    return rc;
}

static int apply_watch(struct call *c) {
    struct store_keyspace *ks = c->ks;
    int rc;
    struct store_entry *e = obtain(c, c->request->key, &rc);
    if (e == NULL) return rc;
    rc = afford(c, WATCH_COST + extra_cost(e));
    struct store_watch *w = rc < 0 ? NULL : malloc(sizeof(*w));
    struct store_extra *x = w == NULL ? NULL : obtain_extra(ks, e);
    if (x == NULL) {
        free(w);
        settle(ks, e);
        return rc < 0 ? rc : no_memory(c);
    }
    *w = (struct store_watch){
        .next = x->watches, .next_own = c->session->watches, .entry = e, .session = c->session};
    if (x->watches != NULL) x->watches->prev = w;
    x->watches = w;
    c->session->watches = w;
    ks->memory += WATCH_COST;
    return replied(c, store_output_u8(&c->session->out, STORE_WATCH_REGISTERED));
}

static int apply_nothing(struct call *c) { return fail(c, -EPROTO, "unknown operation"); }

static int (*const apply[STORE_OP_COUNT])(struct call *) = {
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
    [STORE_OP_QUEUE_PUSH] = apply_queue_push,
    [STORE_OP_QUEUE_POP] = apply_queue_pop,
    [STORE_OP_QUEUE_LEN] = apply_queue_len,
    [STORE_OP_LIST_KEYS] = apply_list_keys,
    [STORE_OP_BARRIER] = apply_barrier,
    [STORE_OP_WATCH] = apply_watch,
};

/* ---- the face ---- */

void store_keyspace_init(struct store_keyspace *ks, const uint64_t seed[2]) {
    *ks = (struct store_keyspace){.reply_max = UINT32_MAX};
    ks->pace = (struct store_pace){STORE_LIST_AT_ONCE, STORE_LIST_STEP, STORE_FREE_STEP};
    store_key_table_init(&ks->table, seed);
}

int store_keyspace_apply(struct store_keyspace *ks, struct store_session *s,
                         const struct store_request *r, int64_t now_ms, const char **reason) {
    struct call c; /* member by member: clearing what a list alone needs would show in every GET */
    c.ks = ks;
    c.session = s;
    c.request = r;
    c.now_ms = now_ms;
    c.reason = NULL;
    if (s->legacy && s->wait != NULL) wait_drop(ks, s);
    ks->op_count[r->op]++;
    int rc = apply[r->op](&c);
    if (rc < 0) *reason = c.reason;
    return rc;
}

int store_keyspace_list_on(struct store_keyspace *ks, struct store_session *s,
                           const char **reason) {
    struct store_listing *l = s->listing;
    size_t steps = ks->table.sizes[0] / STORE_LIST_TURNS; /* it ends, however fast keys are added */
    if (steps < ks->pace.list_step) steps = ks->pace.list_step;
    for (size_t i = 0; i < steps && l->cursor < STORE_SCAN_END; i++)
        l->cursor = store_key_table_scan(&ks->table, l->cursor, list_one_more, l);
    *reason = l->bytes.len > ks->reply_max ? "reply too long" : "out of memory";
    if (l->bytes.len > ks->reply_max) return -EMSGSIZE;
    if (l->short_of_memory) return -ENOMEM;
    return l->cursor < STORE_SCAN_END ? 1 : finish_listing(s);
}

void store_keyspace_leave(struct store_keyspace *ks, struct store_session *s) {
    wait_drop(ks, s);
    drop_listing(s);
    while (s->watches != NULL) {
        struct store_watch *w = s->watches;
        s->watches = w->next_own;
        watch_free(ks, w);
    }
    unready(ks, s);
    store_output_done(&s->out);
}

/* ---- clearing ---- */

void store_keyspace_clear(struct store_keyspace *ks, const uint64_t seed[2]) {
    CR_ASSERT(ks->wait_count == 0 && ks->ready_first == NULL); /* all sessions left */
    struct store_remains old = {.next = ks->remains, .table = ks->table};
    struct store_keyspace empty = {.reply_max = ks->reply_max,
                                   .memory_max = ks->memory_max,
                                   .memory = ks->memory,
                                   .pace = ks->pace,
                                   .remains = ks->remains};
    store_key_table_init(&empty.table, seed);
    *ks = empty;
    if (old.table.buckets[0] == NULL) return;
    struct store_remains *r = malloc(sizeof(*r));
    if (r == NULL) {
        while (store_remains_free_some(&old, &ks->memory, SIZE_MAX)) { /* in one go, but all */
        }
        return;
    }
    *r = old;
    ks->remains = r;
}

bool store_keyspace_free_some(struct store_keyspace *ks) {
    struct store_remains *r = ks->remains;
    if (r != NULL && !store_remains_free_some(r, &ks->memory, ks->pace.free_step)) {
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
