/* Waits. A wait has one registration with the entry of each key that it waits for. Writing a key
 * removes all registrations with its entry. When a wait loses its last registration, it is
 * answered.
 *
 *     session ── wait ─┬─ registration ── entry "a": first waiter, second waiter, …
 *                      └─ registration ── entry "b": …
 *
 * A session whose wait was answered goes to the end of the ready list. So the sessions that wait
 * for one key are sent their answers in the order in which they began to wait. */
#include "store/keyspace/keyspace_internal.h"

/* ---- the ready list ---- */

void store_session_make_ready(struct store_keyspace *ks, struct store_session *s) {
    if (s->ready) return;
    s->ready = true;
    TAILQ_INSERT_TAIL(&ks->ready, s, ready_next);
}

void store_session_unready(struct store_keyspace *ks, struct store_session *s) {
    if (!s->ready) return;
    s->ready = false;
    ks->pushed -= s->pushed;
    s->pushed = 0;
    TAILQ_REMOVE(&ks->ready, s, ready_next);
}

struct store_session *store_keyspace_take_ready(struct store_keyspace *ks) {
    struct store_session *s = TAILQ_FIRST(&ks->ready);
    if (s != NULL) store_session_unready(ks, s);
    return s;
}

/* ---- waits ---- */

size_t store_wait_cost(size_t key_count) {
    return sizeof(struct store_wait) + STORE_MALLOC_OVERHEAD +
           key_count * sizeof(struct store_registration);
}

struct store_wait *store_wait_new(struct store_operation *op, size_t key_count, bool barrier) {
    struct store_keyspace *ks = op->ks;
    struct store_wait *w = malloc(sizeof(*w) + key_count * sizeof(w->registrations[0]));
    if (w == NULL) return NULL;
    *w = (struct store_wait){.session = op->session,
                             .since_ms = op->now_ms,
                             .room = key_count,
                             .barrier = barrier};
    TAILQ_INSERT_TAIL(&ks->waits, w, next);
    ks->wait_count++;
    ks->memory += store_wait_cost(key_count);
    op->session->wait = w;
    return w;
}

/* Frees a wait. Its registrations must have been removed. */
static void wait_free(struct store_keyspace *ks, struct store_wait *w) {
    TAILQ_REMOVE(&ks->waits, w, next);
    ks->wait_count--;
    ks->memory -= store_wait_cost(w->room);
    w->session->wait = NULL;
    free(w);
}

static void unregister(struct store_registration *r) {
    TAILQ_REMOVE(&r->entry->extra->waiters, r, next);
    r->entry = NULL;
}

void store_wait_drop(struct store_keyspace *ks, struct store_session *s) {
    struct store_wait *w = s->wait;
    if (w == NULL) return;
    for (size_t i = 0; i < w->count; i++) {
        struct store_entry *e = w->registrations[i].entry;
        if (e == NULL) continue;
        unregister(&w->registrations[i]);
        store_entry_drop_if_empty(ks, e);
    }
    wait_free(ks, w);
}

/* Registers the wait with the entry. If the wait is registered with this entry already, because the
 * WAIT lists a key twice, the function does nothing. In this case the wait is the last waiter of
 * the entry: no other request is carried out between the registrations of one request. A BARRIER
 * has only one key, so its wait needs no such check. */
int store_wait_add(struct store_operation *op, struct store_wait *w, struct store_entry *e) {
    struct store_extra *x = store_entry_obtain_extra(op->ks, e);
    if (x == NULL) return store_fail_memory(op);
    const struct store_registration *last = TAILQ_LAST(&x->waiters, store_waiters);
    if (!w->barrier && last != NULL && last->wait == w) return 0;
    struct store_registration *r = &w->registrations[w->count++];
    r->entry = e;
    r->wait = w;
    TAILQ_INSERT_TAIL(&x->waiters, r, next);
    w->missing++;
    return 0;
}

/* ---- waking ---- */

static void push_byte(struct store_keyspace *ks, struct store_session *s, uint8_t byte) {
    if (store_output_u8(&s->out, byte) < 0) s->lost = "out of memory";
    store_session_make_ready(ks, s);
}

/* Call this when the key of a registration has been written. The function removes the registration.
 * If the wait has no other registration, answers the wait and returns true; otherwise returns
 * false. */
static bool satisfy(struct store_keyspace *ks, struct store_registration *r) {
    struct store_wait *w = r->wait;
    unregister(r);
    if (--w->missing > 0) return false;
    w->session->by_queue = false;
    push_byte(ks, w->session, STORE_STOP_WAITING);
    wait_free(ks, w);
    return true;
}

void store_wake_all(struct store_keyspace *ks, struct store_entry *e) {
    while (e->extra != NULL && !TAILQ_EMPTY(&e->extra->waiters)) {
        (void) satisfy(ks, TAILQ_FIRST(&e->extra->waiters));
    }
}

/* Answers at most one wait, because one new element of a queue can answer only one. A wait that
 * also waits for other keys cannot be answered yet: it only loses its registration for this queue,
 * and the next wait for the queue is tried. */
void store_wake_one(struct store_keyspace *ks, struct store_entry *e) {
    while (!TAILQ_EMPTY(&e->extra->waiters)) {
        struct store_session *s = TAILQ_FIRST(&e->extra->waiters)->wait->session;
        if (!satisfy(ks, TAILQ_FIRST(&e->extra->waiters))) continue;
        s->by_queue = true;
        return;
    }
}
