/* The clock, the random numbers and the queue of events of the simulated world. The queue is a heap
 * ordered by time. Events of equal time are ordered by when they were queued, so that a seed always
 * gives the same schedule. */
#include "tests/sim/world.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- failed checks, and the story of a schedule ---- */

void world_violation(struct world *w, const char *fmt, ...) {
    if (w->first->failed) return; /* only the first failed check of a schedule is reported */
    w->failed = w->first->failed = true;
    (void) printf("seed %" PRIu64 ": at %" PRId64 " ms: ", w->first->seed, w->now);
    if (w->kind == SEVERAL_JOBS) (void) printf("%s: ", w->run_id);
    va_list ap;
    va_start(ap, fmt);
    (void) vprintf(fmt, ap);
    va_end(ap);
    (void) printf("\n");
}

void world_tell(const struct world *w, const char *fmt, ...) {
    (void) printf("%6" PRId64 "  ", w->now);
    va_list ap;
    va_start(ap, fmt);
    (void) vprintf(fmt, ap);
    va_end(ap);
    (void) printf("\n");
}

/* ---- randomness (splitmix64) ---- */

uint64_t rnd64(struct world *w) {
    uint64_t z = (w->rng += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

int64_t rnd(struct world *w, int64_t below) { return (int64_t) (rnd64(w) % (uint64_t) below); }
bool chance(struct world *w, int percent) { return rnd(w, 100) < percent; }

/* ---- clocks ---- */

int64_t clock_shows(const struct world *w, int64_t offset, int64_t ppm) {
    return offset + w->now + w->now * ppm / 1000000;
}

int64_t clock_when(const struct world *w, int64_t when, int64_t offset, int64_t ppm) {
    int64_t t = (when - offset) * 1000000 / (1000000 + ppm);
    while (offset + t + t * ppm / 1000000 < when) t++;
    return t > w->now ? t : w->now;
}

int64_t node_now(const struct sim_node *n) { return clock_shows(n->w, n->offset, n->ppm); }
int64_t host_now(const struct host *h) { return clock_shows(h->w, h->offset, h->ppm); }

/* ---- the queue ---- */

#define SEQ_BITS 40

/* Makes the arrays of the queue twice as long. */
static void grow(struct world *w) {
    size_t old = w->heap_cap, cap = old != 0 ? 2 * old : 256;
    w->heap = realloc(w->heap, cap * sizeof(*w->heap));
    w->pool = realloc(w->pool, cap * sizeof(*w->pool));
    w->free_places = realloc(w->free_places, cap * sizeof(*w->free_places));
    CR_ASSERT(w->heap != NULL && w->pool != NULL && w->free_places != NULL);
    w->heap_cap = cap;
    while (cap > old) w->free_places[w->free_count++] = (uint32_t) --cap;
}

static void push_in_order(struct world *w, const struct event *e) {
    if (w->free_count == 0) grow(w);
    CR_ASSERT(e->at >= 0 && e->at >> (64 - SEQ_BITS) == 0 && e->seq >> SEQ_BITS == 0);
    struct queued q = {.order = (uint64_t) e->at << SEQ_BITS | e->seq,
                       .index = w->free_places[--w->free_count]};
    w->pool[q.index] = *e;
    size_t i = w->heap_len++;
    while (i > 0 && q.order < w->heap[(i - 1) / 2].order) {
        w->heap[i] = w->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    w->heap[i] = q;
}

void world_push(struct world *w, struct event e) {
    e.seq = w->seq++;
    push_in_order(w, &e);
}

int64_t world_next_at(const struct world *w) {
    return w->heap_len > 0 ? (int64_t) (w->heap[0].order >> SEQ_BITS) : CR_FOREVER;
}

struct event world_pop(struct world *w) {
    uint32_t top = w->heap[0].index;
    struct queued last = w->heap[--w->heap_len];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= w->heap_len) break;
        if (child + 1 < w->heap_len && w->heap[child + 1].order < w->heap[child].order) child++;
        if (last.order < w->heap[child].order) break;
        w->heap[i] = w->heap[child];
        i = child;
    }
    if (w->heap_len > 0) w->heap[i] = last;
    w->free_places[w->free_count++] = top;
    return w->pool[top];
}

/* ---- events that are kept for a process that is stalled or cut off ---- */

static bool keep(struct held *held, const struct event *e) {
    if (held->count == held->cap) {
        held->cap = held->cap != 0 ? 2 * held->cap : 8;
        held->events = realloc(held->events, held->cap * sizeof(*held->events));
        CR_ASSERT(held->events != NULL);
    }
    held->events[held->count++] = *e;
    return true;
}

static bool is_of_network(enum event_type type) {
    return type == EV_BYTES || type == EV_CLOSED || type == EV_RESET || type == EV_CONNECTED ||
           type == EV_REFUSED;
}

bool world_pair_is_cut(const struct world *w, int node, const struct host *host) {
    const struct pair_cut *p = &w->pair_cut;
    return p->is_on && p->node == node && p->host == host;
}

/* Holds back an event that comes for a process that is stalled or cut off, until that is over.
 * Returns true if the event is held back. Events of the type EV_DEATH and of all types after it in
 * EVENTS are never held back for a stalled process, because they happen outside of that process,
 * for example in a worker. */
bool world_hold(struct world *w, struct event *e) {
    if (is_of_network(e->type) && e->conn != NULL && !(w->heirs && conn_is_own(e->conn))) {
        struct sim_node *n = &w->nodes[e->conn->node];
        enum direction dir = e->host != NULL || e->relay != NULL ? TO_HOST : TO_NODE;
        if (n->cut[dir]) return keep(&n->held, e);
        /* A host in a node's process uses that node's network. While the node cannot receive
         * (cut[TO_NODE]), bytes to the host are kept; while it cannot send (cut[TO_HOST]), bytes
         * from the host are kept. */
        struct sim_node *owner = w->heirs ? &w->nodes[e->conn->host->owner] : NULL;
        if (owner != NULL && owner->cut[!dir]) return keep(&owner->held, e);
        bool is_cut = world_pair_is_cut(w, e->conn->node, e->conn->host);
        if (is_cut && e->conn->relay == NULL) return keep(&w->pair_cut.held, e);
    }
    if (e->type >= EV_DEATH) return false;
    if (e->relay != NULL) {
        struct sim_relay *r = e->relay;
        bool is_stalled = r->up && r->id == e->relay_id && r->stalled_until != 0;
        return is_stalled && keep(&r->held, e);
    }
    if (e->host != NULL) {
        struct host *h = e->host;
        return h->up && h->id == e->host_id && h->stalled_until != 0 && keep(&h->held, e);
    }
    if (e->node < 0) return false;
    struct sim_node *n = &w->nodes[e->node];
    return n->up && n->inc == e->inc && n->stalled_until != 0 && keep(&n->held, e);
}

/* Queues the kept events for the present time. Each event keeps its old sequence number, so it
 * happens before events of the same time that were queued later. */
void world_release(struct world *w, struct held *held) {
    size_t count = held->count;
    held->count = 0;
    for (size_t i = 0; i < count; i++) {
        struct event e = held->events[i];
        e.at = w->now;
        push_in_order(w, &e);
    }
}

static void held_clear(struct held *held) {
    for (size_t i = 0; i < held->count; i++) free(held->events[i].bytes);
    held->count = 0;
}

void world_clear(struct world *w) {
    while (w->heap_len > 0) {
        uint32_t place = w->heap[--w->heap_len].index;
        free(w->pool[place].bytes);
        w->free_places[w->free_count++] = place;
    }
    w->seq = 0;
    held_clear(&w->pair_cut.held);
    w->pair_cut.is_on = false;
    for (int i = 0; i < NODES_MAX; i++) held_clear(&w->nodes[i].held);
    for (int i = 0; i < HOSTS_MAX; i++) held_clear(&w->hosts[i].held);
    for (int i = 0; i < RELAYS_MAX; i++) held_clear(&w->relays[i].held);
}
