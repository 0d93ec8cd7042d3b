/* Paired tests between nodes (--pair-check): the commands of the tests, and the rules that
 * docs/rendezvous.md (Paired tests) and docs/usage.md state:
 *
 * - Each test has two nodes (processes, maybe of one host), with the ranks 0 and 1, and both get
 *   the port of rank 0. Only nodes that wait for a round, and have no running worker, are tested,
 *   and no node is in two tests at a time.
 * - The coordinator awaits exactly the answers that are missing, and none beyond its time.
 * - If two or more nodes that make tests wait when a round forms, those in the round have passed.
 *   A node whose network is bad passes no test, so it gets no place beside another one.
 * - A node is turned out only if it has failed with two nodes that have passed with others, or with
 *   four nodes, or if no node is left with which it has not failed. A test whose partner is lost
 *   counts for nothing.
 *
 * The connections have what the messages at the host's end show (struct pair_part). */
#include "rendezvous/coordinator/coordinator_internal.h"
#include "tests/sim/world.h"

#include <string.h>

#define ANSWER_TIME 5000 /* ANSWER_MS of rendezvous/coordinator/pairs.c */
#define TRIES       4    /* PAIRS_TRIES of rendezvous/rules/pairs_internal.h */
#define DELAY       60   /* how many ms after its time the coordinator may still await an answer */

void pair_tests_draw(struct sim_node *n) {
    n->makes_pairs = chance(n->w, 85);
    n->nic_is_bad = chance(n->w, 15);
}

/* ---- nodes ---- */

void pair_tests_begin(struct sim_node *n, const struct rdzv_pair *m) {
    struct world *w = n->w;
    n->pair_id = m->id;
    n->pair_partner = m->host[1] - '0';
    story(w, "node %d: paired test with %s", n->index, m->host);
    if (!w->calm && chance(w, 2)) return; /* it never answers */
    world_push(w, (struct event){.at = w->now + 5 + rnd(w, PAIR_TIME - 5), .type = EV_PAIRED,
                                 .node = n->index, .inc = n->inc, .id = m->id});
}

static bool is_reachable(const struct sim_node *n) {
    return n->up && n->stalled_until == 0 && !n->cut[0] && !n->cut[1] && !n->nic_is_bad;
}

void pair_tests_over(struct sim_node *n, const struct event *e) {
    const struct sim_node *other = &n->w->nodes[n->pair_partner];
    if (e->id != n->pair_id) return;
    n->pair_id = 0;
    bool passed = is_reachable(n) && is_reachable(other);
    story(n->w, "node %d: paired test with node %d %s", n->index, other->index,
          passed ? "passed" : "failed");
    member_paired(n->member, e->id, passed ? "" : "a simulated fault of the network");
}

/* ---- what the coordinator has heard ---- */

static bool serves(const struct host *h, const struct conn *c) {
    return c->host == h && c->host_id == h->id;
}

/* Returns whether the node's seat is gone, so that its test is dropped. */
static bool is_gone(const struct conn *c) {
    /* on_join() has not returned yet */
    bool joins = c->pair.begun_in == c->host->w->totals.events && !c->hung_up_by_lease;
    return (c->seat == NULL && !joins) || c->pair.has_left || !host_serves(c);
}

static void drop_if_gone(struct conn *c) {
    struct pair_part *p = &c->pair;
    if (p->is_open && p->partner != NULL && (is_gone(p->partner) || is_gone(c))) p->is_open = false;
}

static struct passed *passed_at(const struct conn *c) {
    const struct world *w = c->host->w;
    return &c->host->w->nodes[c->node].passed[c->host - w->hosts];
}

static bool has_passed(const struct conn *c) {
    const struct passed *p = passed_at(c);
    return p->host_id == c->host_id && p->inc == c->node_inc;
}

static void forget_pass(const struct conn *c) {
    if (has_passed(c)) *passed_at(c) = (struct passed){.host_id = 0};
}

static void note_failure(struct conn *c) {
    struct pair_part *p = &c->pair;
    if (has_passed(c) || p->failures == FAILED_WITH_MAX) return;
    p->failed_with[p->failures].node = p->partner->node;
    p->failed_with[p->failures++].inc = p->partner->node_inc;
}

static void note_pass(struct conn *c) {
    *passed_at(c) = (struct passed){.host_id = c->host_id, .inc = c->node_inc};
    c->pair.failures = 0;
}

static void conclude(struct conn *c) {
    struct conn *other = c->pair.partner;
    struct world *w = c->host->w;
    if (!c->pair.is_answered || !other->pair.is_answered) return;
    bool passed = !c->pair.has_failed && !other->pair.has_failed;
    c->pair.is_open = other->pair.is_open = false;
    w->totals.paired++;
    if (passed) {
        note_pass(c);
        note_pass(other);
        return;
    }
    w->totals.pairs_failed++;
    note_failure(c);
    note_failure(other);
}

void pair_tests_got(struct host *h, struct conn *c, const struct rdzv_paired *m) {
    struct pair_part *p = &c->pair;
    (void) h;
    drop_if_gone(c);
    if (!p->is_open || p->is_answered || p->id != m->id) return;
    p->is_answered = true;
    p->has_failed = m->why[0] != '\0';
    conclude(c);
}

void pair_tests_tick(struct host *h) {
    for (struct conn *c = h->w->conns; c != NULL; c = c->next) {
        struct pair_part *p = &c->pair;
        drop_if_gone(c);
        if (!serves(h, c) || !p->is_open || p->is_answered || host_now(h) < p->until_ms) continue;
        p->is_answered = p->has_failed = true;
        conclude(c);
    }
}

void pair_tests_distrust(struct conn *c) {
    forget_pass(c);
    c->pair.failures = 0;
}

/* A node that has joined anew is tested again. A node that has got its seat back on a new
 * connection is what it was. */
void pair_tests_joined(struct conn *c, bool has_failed) {
    if (c->seat == NULL) return;
    bool is_new = c->seat->joined_ms == host_now(c->host);
    if (!is_new && c->seat->pair != NULL) c->pair.again_ms = c->seat->pair->again_ms;
    for (const struct conn *old = c->next; old != NULL && !is_new; old = old->next) {
        if (!serves(c->host, old) || old->node != c->node || old->node_inc != c->node_inc) continue;
        c->pair.failures = old->pair.failures;
        memcpy(c->pair.failed_with, old->pair.failed_with, sizeof(c->pair.failed_with));
        break;
    }
    if (is_new || has_failed) forget_pass(c);
}

/* ---- PAIR ---- */

static bool has_running_workers(const struct sim_node *n) {
    for (uint32_t i = 0; i < n->worker_count; i++) {
        if (n->workers[i].alive && !n->workers[i].waits) return true;
    }
    return false;
}

static bool is_partner(const struct conn *a, const struct conn *b) {
    return b->host == a->host && b->host_id == a->host_id && b != a && b->pair.is_open &&
           b->pair.id == a->pair.id && b->node == a->pair.other && b->pair.other == a->node &&
           b->pair.rank == 1 - a->pair.rank && b->pair.partner == NULL;
}

/* If the partner has got its PAIR, too, connects the two. */
static void find_partner(struct conn *a) {
    for (struct conn *b = a->host->w->conns; b != NULL; b = b->next) {
        if (!is_partner(a, b)) continue;
        a->pair.partner = b;
        b->pair.partner = a;
        return;
    }
}

void pair_tests_sent(struct host *h, struct conn *c, const struct rdzv_pair *m) {
    struct world *w = h->w;
    const struct sim_node *n = &w->nodes[c->node];
    struct coordinator_view v;
    int other = m->host[1] - '0', first = m->rank == 0 ? c->node : other;
    jobs_look(h, &v);
    drop_if_gone(c);
    story(w, "host %d: PAIR to node %d, rank %u, with node %d", h->id, c->node, m->rank, other);
    if (v.phase != COORDINATOR_FORMING) world_violation(w, "a paired test begins beside a round");
    if (!n->makes_pairs) world_violation(w, "node %d is tested unasked", c->node);
    if (c->pair.is_open) world_violation(w, "node %d is in two paired tests", c->node);
    if (m->rank > 1 || m->port != (uint32_t) (PAIR_PORT + first)) {
        world_violation(w, "node %d gets rank %u of a pair with node %d, and port %u", c->node,
                        m->rank, other, m->port);
    }
    if (n->up && n->inc == c->node_inc && n->conn == c && has_running_workers(n)) {
        world_violation(w, "node %d is tested while its workers run", c->node);
    }
    c->pair.is_open = true;
    c->pair.is_answered = c->pair.has_failed = false;
    c->pair.id = m->id;
    c->pair.rank = m->rank;
    c->pair.other = other;
    c->pair.begun_in = w->totals.events;
    c->pair.until_ms = host_now(h) + PAIR_TIME + ANSWER_TIME;
    c->pair.partner = NULL;
    find_partner(c);
}

/* ---- nodes that are turned out ---- */

/* What the seat of a connection is after an event. */
struct seat_after {
    const struct host *host;
    struct conn *conn;
    enum seat_state state;
    bool is_turned_out; /* true: it was turned out in this event; it may be back already */
    bool is_out, is_unclear; /* it is UNFIT because of its tests; nobody knows who is at fault */
};

struct seats_after {
    const struct host *host;
    struct seat_after of[NODES_MAX * 4];
    int count;
};

static void note_seat(void *arg, const struct seat_view *seat) {
    struct seats_after *all = arg;
    struct conn *found = NULL;
    for (struct conn *c = all->host->w->conns; c != NULL && found == NULL; c = c->next) {
        bool is_it = serves(all->host, c) && c->node == seat->host[1] - '0' &&
                     c->node_inc == (int) seat->pid && c->seat != NULL;
        if (is_it) found = c;
    }
    if (found == NULL || all->count == NODES_MAX * 4) return;
    all->of[all->count++] = (struct seat_after){
        .conn = found, .state = seat->state,
        .is_turned_out = found->seat->pair != NULL &&
                         found->seat->pair->again_ms != found->pair.again_ms,
        .is_out = seat->state == SEAT_UNFIT && strncmp(seat->unfit, "its paired test", 15) == 0,
        .is_unclear = strstr(seat->unfit, "no third node") != NULL};
}

static bool has_failed_with(const struct conn *a, const struct conn *b) {
    for (int i = 0; i < a->pair.failures; i++) {
        if (a->pair.failed_with[i].node == b->node && a->pair.failed_with[i].inc == b->node_inc) {
            return true;
        }
    }
    return false;
}

/* Returns whether the node was there when the coordinator turned nodes out. */
static bool was_there(const struct host *h, const struct seat_after *s) {
    const struct sim_node *n = &h->w->nodes[s->conn->node];
    bool has_place = h->forming && s->state == SEAT_RUNNING;
    return n->makes_pairs && (s->state == SEAT_JOINED || s->is_turned_out || has_place);
}

/* Returns whether the node was no candidate before this event. If it is one now, it came back
 * because another node was turned out, or just before that. */
static bool was_outside(const struct seat_after *s) {
    return s->conn->pair.state == SEAT_UNFIT || s->conn->pair.state == SEAT_ASIDE;
}

static void check_turned_out(const struct host *h, const struct seats_after *all,
                             const struct seat_after *s) {
    const struct conn *c = s->conn;
    int witnesses = 0;
    /* has_left: a node with which this one could be tested was turned out in this event, too; it is
     * not known which of the two was first */
    bool has_partner = false, has_returned = false, has_left = false;
    for (int i = 0; i < all->count; i++) {
        const struct conn *other = all->of[i].conn;
        if (other == c || !was_there(h, &all->of[i])) continue;
        if (was_outside(&all->of[i])) has_returned = true;
        if (was_outside(&all->of[i])) continue;
        bool failed = has_failed_with(c, other);
        if (failed && has_passed(other)) witnesses++;
        bool is_partner = !failed && !has_failed_with(other, c);
        if (is_partner && all->of[i].is_turned_out) has_left = true;
        else if (is_partner) has_partner = true;
    }
    story(h->w, "host %d: node %d is turned out: %d failures, %d witnesses", h->id, c->node,
          c->pair.failures, witnesses);
    if (c->pair.failures > 0 && has_returned) witnesses++; /* it may be one */
    bool is_at_fault = witnesses >= 2 || c->pair.failures >= TRIES ||
                       (witnesses == 1 && !has_partner);
    bool is_unclear = witnesses == 0 && !has_partner;
    if (has_passed(c) || c->pair.failures == 0 || (!is_at_fault && !is_unclear)) {
        world_violation(h->w, "node %d is turned out without a reason", c->node);
    } else if (s->is_out && s->is_unclear == is_at_fault && !has_returned && !has_left) {
        world_violation(h->w, "node %d is turned out for another reason than it is told", c->node);
    }
}

/* Checks the nodes that were turned out in this event. */
static void check_all_turned_out(struct host *h) {
    struct seats_after all = {.host = h};
    coordinator_visit(h->coordinator, note_seat, &all);
    for (int i = 0; i < all.count; i++) {
        if (all.of[i].is_turned_out) check_turned_out(h, &all, &all.of[i]);
    }
    for (int i = 0; i < all.count; i++) {
        struct pair_part *p = &all.of[i].conn->pair;
        if (all.of[i].is_turned_out) {
            p->failures = 0; /* it is tested anew later */
            p->again_ms = all.of[i].conn->seat->pair->again_ms;
        }
        p->state = all.of[i].state;
    }
}

/* ---- after an event ---- */

void pair_tests_after_event(struct host *h) {
    struct world *w = h->w;
    uint32_t awaited = 0;
    if (h->coordinator == NULL) return;
    for (struct conn *c = w->conns; c != NULL; c = c->next) {
        if (!serves(h, c)) continue;
        drop_if_gone(c);
        if (c->pair.is_open && c->pair.partner == NULL) {
            world_violation(w, "node %d is in a paired test without a partner", c->node);
        }
        if (c->pair.is_open && !c->pair.is_answered) awaited++;
        if (!c->pair.is_open || c->pair.is_answered || h->stalled_until != 0) continue;
        if (host_now(h) > c->pair.until_ms + DELAY) {
            world_violation(w, "the answer of node %d is awaited for too long", c->node);
        }
    }
    if (awaited != h->coordinator->pairs.awaited) {
        world_violation(w, "host %d awaits %u answers to PAIR, not %u", h->id,
                        h->coordinator->pairs.awaited, awaited);
    }
    check_all_turned_out(h);
}

void pair_tests_check_round(const struct host *h) {
    const struct history *history = &h->w->history;
    int testers = 0;
    for (int i = 0; i < history->candidate_count; i++) {
        testers += h->w->nodes[history->candidates[i].node].makes_pairs ? 1 : 0;
    }
    for (int i = 0; i < history->candidate_count && testers > 1; i++) {
        const struct candidate *k = &history->candidates[i];
        const struct sim_node *n = &h->w->nodes[k->node];
        const struct passed *p = &n->passed[h - h->w->hosts];
        if (k->rank < 0 || !n->makes_pairs || (p->host_id == h->id && p->inc >= k->inc)) continue;
        world_violation(h->w, "node %d is in a round without having passed a paired test", k->node);
    }
}
