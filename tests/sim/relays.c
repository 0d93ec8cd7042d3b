/* Simulates relays. The relay's side of a trunk is the real rendezvous/relay/core.c, and the host's
 * side is the real rendezvous/host/trunk_end.c. This file stands in for the shells around them:
 * rendezvous/relay/trunks.c and nodes.c, and rendezvous/host/relays.c. */
#include "tests/sim/world.h"

#include "base/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int64_t relay_now(const struct sim_relay *r) { return clock_shows(r->w, r->offset, r->ppm); }

/* ---- the network between a relay and the host ---- */

/* Queues an event for one end of the trunk: TO_NODE is the relay's end, TO_HOST the host's end. */
static void deliver(struct trunk *t, enum direction dir, struct event e, int64_t in) {
    struct world *w = t->relay->w;
    int64_t at = w->now + in;
    if (at < t->last_arrival[dir]) at = t->last_arrival[dir];
    t->last_arrival[dir] = at;
    e.at = at;
    e.node = -1;
    e.trunk = t;
    e.relay = dir == TO_NODE ? t->relay : NULL;
    e.relay_id = t->relay_id;
    e.host = dir == TO_HOST ? t->host : NULL;
    e.host_id = t->host_id;
    world_push(w, e);
}

static int64_t delay(struct world *w) {
    if (w->only_resets || chance(w, 90)) return rnd(w, 4);
    return rnd(w, w->calm ? 30 : 150);
}

static void learn_of_reset(struct trunk *t, enum direction end) {
    if (t->reset_known[end]) return;
    t->reset_known[end] = true;
    deliver(t, end, (struct event){.type = EV_RESET}, delay(t->relay->w));
}

static void send_piece(struct trunk *t, enum direction dir, const char *data, size_t len) {
    struct event e = {.type = EV_BYTES, .len = len, .bytes = malloc(len)};
    CR_ASSERT(e.bytes != NULL);
    memcpy(e.bytes, data, len);
    deliver(t, dir, e, delay(t->relay->w));
}

/* Sends the bytes in one or two pieces, and empties the buffer. */
static void send_on(struct trunk *t, enum direction dir, struct cr_buffer *bytes) {
    struct world *w = t->relay->w;
    bool is_open = dir == TO_HOST ? t->relay_open : t->host_open;
    if (is_open && bytes->len > 0) {
        if (t->is_reset) learn_of_reset(t, dir == TO_HOST ? TO_NODE : TO_HOST);
        size_t first = chance(w, 5) ? (size_t) rnd(w, (int64_t) bytes->len) : bytes->len;
        if (first > 0) send_piece(t, dir, bytes->data, first);
        if (first < bytes->len) send_piece(t, dir, bytes->data + first, bytes->len - first);
    }
    cr_buffer_clear(bytes);
}

static void close_end(struct trunk *t, enum direction dir) {
    bool *is_open = dir == TO_HOST ? &t->relay_open : &t->host_open;
    if (!*is_open) return;
    *is_open = false;
    if (!t->is_reset) deliver(t, dir, (struct event){.type = EV_CLOSED}, delay(t->relay->w));
}

/* ---- the relay: its trunk ---- */

static struct trunk *trunk_new(struct sim_relay *r) {
    struct world *w = r->w;
    struct trunk *t = calloc(1, sizeof(*t));
    CR_ASSERT(t != NULL);
    t->next = w->trunks;
    w->trunks = t;
    t->relay = r;
    t->relay_id = r->id;
    t->host = &w->hosts[w->leader];
    t->host_id = t->host->id;
    t->relay_open = true;
    t->session_timer_at = CR_FOREVER;
    CR_ASSERT(relay_open(&r->core, relay_now(r), "job") == 0);
    deliver(t, TO_NODE, (struct event){.type = t->host->up ? EV_CONNECTED : EV_REFUSED}, delay(w));
    return t;
}

static void trunk_end(struct sim_relay *r) {
    close_end(r->trunk, TO_HOST);
    relay_done(&r->core);
    r->trunk = NULL;
}

/* Call this when the core ends the connection of the node at place `i`. */
static void end_node(struct sim_relay *r, uint32_t i, bool is_broken) {
    struct conn *c = r->nodes[i];
    r->nodes[i] = NULL;
    relay_lost(&r->core, i, RENDEZVOUS_CLOSED);
    if (is_broken) {
        network_reset(c, 1 << TO_NODE);
        c->relay_open = false;
    } else {
        network_close(c, TO_NODE);
    }
}

static void set_timer(struct sim_relay *r) {
    int64_t deadline = relay_deadline(&r->core);
    if (deadline == CR_FOREVER) return;
    int64_t at = clock_when(r->w, deadline, r->offset, r->ppm);
    if (r->timer_at <= at) return;
    r->timer_at = at;
    world_push(r->w, (struct event){.at = at, .type = EV_RELAY_TIMER, .node = -1, .relay = r,
                                    .relay_id = r->id});
}

/* Call this after each call of the core, as relays do with relay_trunk_settle(). Sends the core's
 * output, ends the connections that the core has ended, and sets the relay's timer. */
static void settle(struct sim_relay *r) {
    if (r->trunk == NULL) return;
    for (uint32_t i = 0; i < RDZV_RELAY_PLACES; i++) {
        struct relay_place *p = &r->core.places[i];
        if (r->nodes[i] == NULL) continue;
        network_send(r->nodes[i], TO_NODE, &p->out);
        if (p->ends) end_node(r, i, p->is_broken);
    }
    if (r->core.is_over) story(r->w, "relay: %s", r->core.why);
    if (r->core.is_over || r->core.used == 0) {
        trunk_end(r);
        return;
    }
    if (r->trunk->connected) send_on(r->trunk, TO_HOST, &r->core.out);
    set_timer(r);
}

/* ---- the relay: its nodes ---- */

static void lost(struct sim_relay *r, struct conn *c, enum rendezvous_loss how) {
    network_close(c, TO_NODE);
    if (r->trunk == NULL || r->nodes[c->place] != c) return;
    r->nodes[c->place] = NULL;
    relay_lost(&r->core, c->place, how);
    settle(r);
}

/* Gives the node a place once its HELLO is complete. */
static void greet(struct sim_relay *r, struct conn *c) {
    struct rdzv_message m;
    char addr[24];
    size_t used = 0;
    if (c->greeting.len < RDZV_MAGIC_LEN) return;
    const char *hello = c->greeting.data + RDZV_MAGIC_LEN;
    size_t len = c->greeting.len - RDZV_MAGIC_LEN;
    CR_ASSERT(rdzv_message_decode(hello, len, &m, &used, NULL) == 0);
    if (used == 0) return;
    if (r->trunk == NULL) r->trunk = trunk_new(r);
    (void) snprintf(addr, sizeof(addr), "10.0.0.%d", c->node + 1);
    int place = relay_attach(&r->core, addr);
    CR_ASSERT(place >= 0);
    c->place = (uint32_t) place;
    r->trunk->attached[place] = c;
    r->nodes[place] = c;
    relay_receive(&r->core, relay_now(r), c->place, hello, len);
    settle(r);
}

static void got_bytes(struct sim_relay *r, struct conn *c, const struct event *e) {
    if (!c->relay_open || c->is_reset) return;
    if (r->trunk != NULL && r->nodes[c->place] == c) {
        relay_receive(&r->core, relay_now(r), c->place, e->bytes, e->len);
        settle(r);
        return;
    }
    CR_ASSERT(cr_buffer_append(&c->greeting, e->bytes, e->len) == 0);
    greet(r, c);
}

static void happen_to_trunk(struct sim_relay *r, const struct event *e) {
    struct trunk *t = e->trunk;
    if (r->trunk != t) return;
    if (e->type == EV_CONNECTED && t->host->up && t->host->id == t->host_id) {
        t->connected = t->host_open = true;
        deliver(t, TO_HOST, (struct event){.type = EV_CONNECTED}, 0);
    } else if (e->type == EV_BYTES) {
        if (!t->is_reset) relay_trunk_receive(&r->core, e->bytes, e->len);
    } else {
        relay_trunk_lost(&r->core, e->type == EV_CLOSED ? "closed" : "connection lost");
    }
    settle(r);
}

void relays_happen(const struct event *e) {
    struct sim_relay *r = e->relay;
    if (e->type == EV_RELAY_TIMER) {
        if (r->timer_at <= r->w->now) r->timer_at = CR_FOREVER;
        if (r->trunk != NULL) relay_tick(&r->core, relay_now(r));
        settle(r);
    } else if (e->trunk != NULL) {
        happen_to_trunk(r, e);
    } else if (e->type == EV_BYTES) {
        got_bytes(r, e->conn, e);
    } else if (e->conn->relay_open) {
        lost(r, e->conn, e->type == EV_CLOSED ? RENDEZVOUS_CLOSED : RENDEZVOUS_BROKEN);
    }
}

/* ---- the relay: starts and ends ---- */

void relays_draw(struct world *w) {
    for (int i = 0; i < RELAYS_MAX; i++) {
        struct sim_relay *r = &w->relays[i];
        r->w = w;
        r->offset = rnd(w, 100000);
        r->ppm = rnd(w, 40001) - 20000;
        world_push(w, (struct event){.type = EV_RELAY_UP, .node = -1, .relay = r});
    }
}

/* A node whose relay has not answered connects to the host itself, as remote_way.c does. In some
 * other tries, chosen at random, it also connects to the host itself. */
struct sim_relay *relays_for(struct sim_node *n) {
    struct world *w = n->w;
    if (w->kind != RELAYS || n->index % 3 == 2) return NULL; /* this node has no relay */
    bool was_refused = n->avoids_relay;
    n->avoids_relay = false;
    if (was_refused || chance(w, 5)) return NULL;
    return &w->relays[n->index % 3];
}

void relays_start(struct sim_relay *r) {
    if (r->up) return;
    r->up = true;
    r->id++;
    r->stalled_until = 0;
    r->timer_at = CR_FOREVER;
    story(r->w, "relay %d: up", (int) (r - r->w->relays));
}

void relays_die(struct sim_relay *r, bool silently) {
    struct world *w = r->w;
    if (!r->up) return;
    story(w, "relay %d: dies%s", (int) (r - w->relays), silently ? " without a word" : "");
    w->totals.trunks_lost += r->trunk != NULL ? 1 : 0;
    r->up = false;
    for (struct conn *c = w->conns; c != NULL; c = c->next) {
        if (c->relay != r || c->relay_id != r->id) continue;
        if (silently) c->relay_open = false;
        else network_close(c, TO_NODE);
    }
    memset(r->nodes, 0, sizeof(r->nodes));
    if (r->trunk == NULL) return;
    if (silently) r->trunk->relay_open = false;
    trunk_end(r);
}

void relays_stall(struct sim_relay *r, int64_t until) {
    if (!r->up || r->stalled_until != 0) return;
    r->stalled_until = until;
    story(r->w, "relay %d: stalls until %" PRId64, (int) (r - r->w->relays), until);
    world_push(r->w, (struct event){.at = until, .type = EV_STALL_ENDS, .node = -1, .relay = r,
                                    .relay_id = r->id});
}

void relays_resume(struct sim_relay *r) {
    story(r->w, "relay %d: goes on", (int) (r - r->w->relays));
    r->stalled_until = 0;
    if (r->trunk != NULL) relay_tick(&r->core, relay_now(r));
    settle(r);
    world_release(r->w, &r->held);
}

void relays_reset_trunk(struct sim_relay *r, int sides) {
    struct trunk *t = r->trunk;
    if (!r->up || t == NULL || !t->connected || t->is_reset) return;
    story(r->w, "relay %d: its trunk is reset", (int) (r - r->w->relays));
    r->w->totals.trunks_lost++;
    t->is_reset = true;
    if ((sides & 1 << TO_NODE) != 0) learn_of_reset(t, TO_NODE);
    if ((sides & 1 << TO_HOST) != 0) learn_of_reset(t, TO_HOST);
}

/* ---- the host: struct trunk_end_actions ---- */

static struct conn *conn_of(struct trunk_member *m) {
    return CR_CONTAINER_OF(m, struct conn, member);
}

static struct trunk_member *attach(void *arg, uint32_t place, const char *addr) {
    struct trunk *t = arg;
    struct conn *c = t->attached[place];
    (void) addr;
    c->host = t->host;
    c->host_id = t->host_id;
    c->host_open = true;
    c->member.session = &c->session;
    host_connected(c);
    t->host->w->totals.relayed++;
    return &c->member;
}

static void member_lost(void *arg, struct trunk_member *m, enum rendezvous_loss how,
                        const char *why) {
    struct conn *c = conn_of(m);
    (void) arg;
    host_session_lost(&c->session, host_now(c->host), how, why);
    host_mark(c);
}

static void member_changed(void *arg, struct trunk_member *m) {
    (void) arg;
    host_mark(conn_of(m));
}

static const struct trunk_end_actions end_actions = {
    .attach = attach, .lost = member_lost, .changed = member_changed};

bool relays_keep(struct conn *c, const struct rdzv_message *m) {
    if (!trunk_end_keeps(&c->member, m)) return false;
    c->host->w->totals.holds++;
    return true;
}

/* ---- the host: the trunk's session ---- */

static int on_relay(void *arg, const struct rdzv_relay *relay, struct cr_error *err) {
    struct trunk *t = arg;
    (void) relay, (void) err;
    trunk_end_init(&t->end, &t->session, &end_actions, t);
    return 0;
}

static int on_trunk(void *arg, const char *data, size_t len, struct cr_error *err) {
    struct trunk *t = arg;
    int rc = trunk_end_receive(&t->end, host_now(t->host), data, len, err);
    if (rc < 0) world_violation(t->host->w, "the host refuses a trunk: %s", err->text);
    return rc;
}

static void on_log(void *arg, enum cr_log_level level, const char *text) {
    const struct trunk *t = arg;
    (void) level;
    story(t->host->w, "host %d, trunk: %s", t->host_id, text);
}

static void trunk_lost(struct trunk *t, const char *why) {
    trunk_end_lost(&t->end, why);
    close_end(t, TO_NODE);
}

static const struct host_session_actions trunk_actions = {
    .on_relay = on_relay, .on_trunk = on_trunk, .log = on_log};

void relays_happen_at_host(const struct event *e) {
    struct trunk *t = e->trunk;
    int64_t now_ms = host_now(t->host);
    if (!t->host_open) return;
    if (e->type == EV_CONNECTED) {
        host_session_open(&t->session, now_ms, false, t->host->terms, &trunk_actions, t);
    } else if (e->type == EV_BYTES) {
        if (!t->is_reset) host_session_receive(&t->session, now_ms, e->bytes, e->len);
    } else if (e->type == EV_TRUNK_TIMER) {
        if (t->session_timer_at <= t->host->w->now) t->session_timer_at = CR_FOREVER;
        host_session_tick(&t->session, now_ms);
        trunk_end_tick(&t->end, now_ms);
    } else {
        host_session_lost(&t->session, now_ms, RENDEZVOUS_BROKEN, "connection gone");
        trunk_lost(t, "the connection to its relay was lost");
    }
}

/* ---- the host: sending ---- */

void relays_flush(struct conn *c) {
    bool is_over;
    CR_ASSERT(trunk_end_flush(&c->member, host_now(c->host), &is_over) == 0);
    if (is_over) c->host_open = false;
}

static void flush_trunk(struct trunk *t) {
    struct host *h = t->host;
    send_on(t, TO_NODE, &t->session.out);
    if (t->session.state >= HOST_SESSION_CLOSING) {
        host_session_lost(&t->session, host_now(h), RENDEZVOUS_BROKEN, "closed");
        trunk_lost(t, "its relay's connection is over");
        return;
    }
    int64_t deadline = host_session_deadline(&t->session);
    int64_t members = trunk_end_deadline(&t->end);
    if (members < deadline) deadline = members;
    if (deadline == CR_FOREVER) return;
    int64_t at = clock_when(h->w, deadline, h->offset, h->ppm);
    if (t->session_timer_at <= at) return;
    t->session_timer_at = at;
    world_push(h->w, (struct event){.at = at, .type = EV_TRUNK_TIMER, .node = -1, .host = h,
                                    .host_id = h->id, .trunk = t});
}

void relays_after_event(struct host *h) {
    for (struct trunk *t = h->w->trunks; t != NULL; t = t->next) {
        bool is_here = t->host == h && t->host_id == h->id && t->host_open;
        if (is_here && t->session.state != HOST_SESSION_NEW) flush_trunk(t);
    }
}

void relays_host_dies(struct host *h, bool silently) {
    for (struct trunk *t = h->w->trunks; t != NULL; t = t->next) {
        if (t->host != h || t->host_id != h->id || !t->host_open) continue;
        if (silently) t->host_open = false;
        else close_end(t, TO_NODE);
    }
}

void relays_clear(struct world *w) {
    for (int i = 0; i < RELAYS_MAX; i++) {
        struct sim_relay *r = &w->relays[i];
        struct held held = r->held;
        if (r->trunk != NULL) relay_done(&r->core);
        *r = (struct sim_relay){.held = {.events = held.events, .cap = held.cap}};
    }
    while (w->trunks != NULL) {
        struct trunk *t = w->trunks;
        w->trunks = t->next;
        host_session_done(&t->session);
        trunk_end_done(&t->end);
        free(t);
    }
}
