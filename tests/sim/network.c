/* Simulated connections. Bytes arrive late, but in order within each direction. The bytes of one
 * send may arrive in two events. A reset loses all bytes that are under way in both directions, and
 * the two ends learn of it at different times. */
#include "tests/sim/world.h"

#include <stdlib.h>
#include <string.h>

bool conn_is_own(const struct conn *c) {
    const struct world *w = c->host->w;
    if (w->heirs) return c->node == c->host->owner;
    return c->node == w->host_with_node && c->host == &w->hosts[0];
}

bool conn_is_local(const struct conn *c) { return conn_is_own(c) && !c->host->w->heirs; }

static int64_t delay(struct world *w) {
    if (w->only_resets) return rnd(w, 4); /* a longer delay could end a lease */
    if (chance(w, 90)) return rnd(w, 4);
    return chance(w, 80) ? rnd(w, 30) : rnd(w, w->calm ? 60 : 250);
}

/* Queues an event for the process at one end of the connection: TO_NODE is the node's end, TO_HOST
 * the host's end. Events for the same end happen in the order of the calls. */
static void deliver(struct conn *c, enum direction dir, struct event e, int64_t at) {
    struct world *w = c->host->w;
    if (at < c->last_arrival[dir]) at = c->last_arrival[dir];
    c->last_arrival[dir] = at;
    e.at = at;
    e.conn = c;
    e.node = dir == TO_NODE ? c->node : -1;
    e.inc = c->node_inc;
    e.host = dir == TO_HOST && c->relay == NULL ? c->host : NULL;
    e.host_id = c->host_id;
    e.relay = dir == TO_HOST ? c->relay : NULL;
    e.relay_id = c->relay_id;
    world_push(w, e);
}

static int64_t arrival(struct conn *c) {
    struct world *w = c->host->w;
    return w->now + (conn_is_own(c) ? 0 : delay(w));
}

static void send_piece(struct conn *c, enum direction dir, const char *data, size_t len) {
    struct event e = {.type = EV_BYTES, .len = len, .bytes = malloc(len)};
    CR_ASSERT(e.bytes != NULL);
    memcpy(e.bytes, data, len);
    deliver(c, dir, e, arrival(c));
}

static void learn_of_reset(struct conn *c, enum direction end) {
    if (c->reset_known[end]) return;
    c->reset_known[end] = true;
    deliver(c, end, (struct event){.type = EV_RESET}, arrival(c));
}

void network_send(struct conn *c, enum direction dir, struct cr_buffer *bytes) {
    struct world *w = c->host->w;
    bool is_open_down = c->relay != NULL ? c->relay_open : c->host_open && !c->fin_sent;
    bool open = dir == TO_HOST ? c->node_open : is_open_down;
    enum direction back = dir == TO_HOST ? TO_NODE : TO_HOST;
    if (open && c->is_reset && bytes->len > 0) learn_of_reset(c, back);
    if (open && bytes->len > 0) {
        size_t first = bytes->len;
        if (chance(w, 5) && !conn_is_own(c)) first = (size_t) rnd(w, (int64_t) bytes->len);
        if (first > 0) send_piece(c, dir, bytes->data, first);
        if (first < bytes->len) send_piece(c, dir, bytes->data + first, bytes->len - first);
    }
    cr_buffer_clear(bytes);
}

/* Closes the end that sends in the direction `dir`. The other end receives EV_CLOSED after all
 * bytes that were sent before. */
void network_close(struct conn *c, enum direction dir) {
    bool *down = c->relay != NULL ? &c->relay_open : &c->host_open;
    bool *open = dir == TO_HOST ? &c->node_open : down;
    if (!*open) return;
    *open = false;
    if (dir == TO_NODE && c->fin_sent && c->relay == NULL) return;
    if (c->is_reset) return; /* the FIN is lost as well */
    deliver(c, dir, (struct event){.type = EV_CLOSED}, arrival(c));
}

void network_reset(struct conn *c, int sides) {
    if (c->is_reset || !c->connected) return;
    c->is_reset = true;
    if ((sides & 1 << TO_NODE) != 0) learn_of_reset(c, TO_NODE);
    if ((sides & 1 << TO_HOST) != 0) learn_of_reset(c, TO_HOST);
}

/* Returns the host to which a node connects: the leader. If a former leader still runs, some nodes
 * connect to the former leader instead, as if they had not learned its successor's address yet. */
static struct host *host_for(struct world *w, const struct sim_node *n) {
    if (w->heirs) return n->aim;
    struct host *old = &w->hosts[!w->leader];
    if (w->elected && old->up && chance(w, 15)) return old;
    return &w->hosts[w->leader];
}

struct conn *network_connect(struct sim_node *n) {
    struct world *w = n->w;
    struct conn *c = calloc(1, sizeof(*c));
    CR_ASSERT(c != NULL);
    c->next = w->conns;
    w->conns = c;
    c->host = host_for(w, n);
    c->host_id = c->host->id;
    c->node = n->index;
    c->node_inc = n->inc;
    c->session_timer_at = CR_FOREVER;
    c->relay = relays_for(n);
    c->relay_id = c->relay != NULL ? c->relay->id : 0;
    bool is_up = c->relay != NULL ? c->relay->up : c->host->up;
    world_push(w, (struct event){.at = arrival(c), .conn = c, .node = n->index, .inc = n->inc,
                                 .type = is_up ? EV_CONNECTED : EV_REFUSED});
    return c;
}

void network_clear(struct world *w) {
    while (w->conns != NULL) {
        struct conn *c = w->conns;
        w->conns = c->next;
        host_session_done(&c->session);
        cr_buffer_done(&c->greeting);
        free(c);
    }
}
