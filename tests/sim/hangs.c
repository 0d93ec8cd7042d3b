/* Hangs: nodes report for which reasons their workers are silent, jobs hang, and the coordinator
 * decides. docs/rendezvous.md (Hangs) has the rules that this file checks:
 *
 * - A hang is declared only if, when the inspection was ordered, all nodes of the round that watch
 *   for a reason were silent for it, and its time was over on one of them.
 * - It is declared only while the round runs and all its nodes have a connection.
 * - One node has to report it: a node that watches for it; that of the odd rank, if it does.
 * - HUNG reaches only nodes that are in the round which HUNG names.
 * - A round that hangs while nothing disturbs the nodes and the network is ended in bounded time.
 *
 * In the simulator a node is silent for random reasons at random times. In most rounds there is a
 * time from which on all nodes are silent. */
#include "rendezvous/coordinator/coordinator_internal.h"
#include "tests/sim/world.h"

#include <stdio.h>

#define REASONS      7    /* mask of the reasons: no activity, and two rules */
#define LOOK_MAX     500  /* the most milliseconds from one EV_QUIET of a node to the next one */
#define INSPECT_TIME 300  /* the most milliseconds that a node takes to inspect its workers */
#define ANSWER_TIME  8000 /* how long the coordinator waits for answers; INSPECT_MS of hang.c */
/* The most milliseconds from the moment at which a job hangs to the end of its round, if all nodes
 * answer: five messages of at most 250 ms, and the inspection, with room for bytes that wait behind
 * others. */
#define DECISION_TIME 2500

void hangs_draw(struct sim_node *n) {
    struct world *w = n->w;
    n->watches = chance(w, 80) ? 1 + (uint64_t) rnd(w, REASONS) : 0;
    n->is_deaf = chance(w, 5);
}

void hangs_draw_round(struct world *w, struct round_record *r) {
    r->hangs_at = r->hangs_until = CR_FOREVER;
    if (w->calm || chance(w, 40)) return;
    r->hangs_at = w->now + 100 + rnd(w, 2500);
    if (r->hangs_at >= CHAOS_TIME) r->hangs_at = CR_FOREVER;
    else if (chance(w, 30)) r->hangs_until = r->hangs_at + rnd(w, 3000);
}

/* ---- nodes ---- */

static void look_in(struct sim_node *n, int64_t in) {
    world_push(n->w, (struct event){.at = n->w->now + in, .type = EV_QUIET, .node = n->index,
                                    .inc = n->inc, .id = (uint64_t) n->record});
}

void hangs_round_begins(struct sim_node *n) {
    /* what a node is assumed to be before its first report */
    n->silent = n->watches & ~RENDEZVOUS_HANG_IDLE;
    n->broken = 0;
    if (n->watches != 0) look_in(n, rnd(n->w, LOOK_MAX));
}

static void tell(struct sim_node *n, uint64_t silent, uint64_t broken) {
    const struct rdzv_quiet m = {.silent = silent, .broken = broken, .quiet_ms = 1,
                                 .what = broken != 0 ? "a simulated silence" : ""};
    n->silent = silent;
    n->broken = broken;
    story(n->w, "node %d: is silent for %" PRIu64 ", too long for %" PRIu64, n->index, silent,
          broken);
    if (!member_quiet(n->member, &m)) {
        world_violation(n->w, "node %d is to decide alone that it hangs", n->index);
    }
}

void hangs_look(struct sim_node *n, const struct event *e) {
    struct world *w = n->w;
    if (e->id != (uint64_t) n->record || member_state(n->member) != MEMBER_RUNNING) return;
    const struct round_record *r = &w->history.rounds[n->record];
    bool hangs = w->now >= r->hangs_at && w->now < r->hangs_until;
    if (hangs) {
        tell(n, n->watches, w->calm || chance(w, 50) ? n->watches : n->broken);
    } else if (w->calm) {
        tell(n, 0, 0);
    } else {
        uint64_t silent = rnd64(w) & n->watches;
        tell(n, silent, chance(w, 40) ? rnd64(w) & silent : 0);
    }
    if (!w->calm) look_in(n, 20 + rnd(w, LOOK_MAX - 20));
    else if (hangs && r->hangs_until != CR_FOREVER) look_in(n, r->hangs_until - w->now);
}

void hangs_inspect(struct sim_node *n, uint64_t id) {
    struct world *w = n->w;
    if (n->is_deaf) return;
    world_push(w, (struct event){.at = w->now + rnd(w, chance(w, 80) ? 20 : INSPECT_TIME),
                                 .type = EV_INSPECTED, .node = n->index, .inc = n->inc, .id = id});
}

void hangs_inspected(struct sim_node *n, const struct event *e) {
    struct world *w = n->w;
    char ranks[16];
    struct rdzv_row row = {.id = e->id, .ranks = ranks, .host = "", .state = "S", .program = "p",
                           .operation = "", .python = "", .native = "", .note = ""};
    const struct rdzv_round *told =
        n->record >= 0 ? &w->history.rounds[n->record].told[n->group_rank] : NULL;
    for (uint32_t i = 0; told != NULL && i < n->worker_count; i++) {
        (void) snprintf(ranks, sizeof(ranks), "%u", told->first_rank + i);
        row.pid = 1 + i;
        row.kernel = chance(w, 80) ? "futex" : "read";
        member_row(n->member, &row);
    }
    member_inspected(n->member, e->id, n->worker_count);
}

void hangs_heard(struct sim_node *n, const struct rdzv_hung *m) {
    struct world *w = n->w;
    if (n->record != n->conn->hung_record || m->round != n->round) {
        world_violation(w, "node %d hears that another round than its own hangs", n->index);
    }
    if (n->watches == 0) world_violation(w, "node %d hears of a hang unasked", n->index);
    if (!m->is_last || !m->decides) return;
    w->totals.hangs++;
    story(w, "node %d: the job hangs: %s", n->index, m->what);
    if (chance(w, 15)) {
        tell(n, 0, 0); /* its workers have gone on */
    } else if (n->node.group.state == GROUP_RUNNING) {
        n->hung_in = n->record;
        node_hung(&n->node, node_now(n));
    }
}

/* ---- for which reasons a job hangs ---- */

/* What the nodes that have a seat in the running round do. */
struct silence {
    const struct host *host;
    bool as_heard; /* true: what the host has heard of it; false: what the nodes have told */
    struct coordinator_view view;
    uint64_t all, any;
    uint32_t seats, suspended;
    bool is_disturbed, is_deaf;
    uintptr_t conns; /* changes when a connection changes */
};

static bool is_disturbed(const struct host *h, const struct sim_node *n) {
    const struct world *w = n->w;
    const struct conn *c = n->conn;
    if (n->stalled_until != 0 || n->cut[0] || n->cut[1] || c == NULL) return true;
    if (c->host != h || c->host_id != h->id || c->is_reset || !c->node_open) return true;
    return !c->host_open || world_pair_is_cut(w, n->index, h);
}

/* Compares the numbers of the node's round and of the round that runs: negative if the node has not
 * received ROUND yet, positive if it is in a later round. The number of the next round does not
 * tell the number of this one, because a node that waits may have made it larger. */
static int compare_rounds(const struct sim_node *n, const struct silence *s) {
    uint64_t round = s->host->coordinator->round;
    if (n->incarnation != s->view.incarnation || n->round < round) return -1;
    return n->round > round ? 1 : 0;
}

/* Adds the reasons in the node's last report that has arrived. Before the first one, a node is
 * silent for all rules. */
static void add_heard(struct silence *s, const struct sim_node *n, const struct seat_view *seat) {
    bool runs = seat->state == SEAT_RUNNING;
    bool is_in = s->host->heard[n->index].inc == (int) seat->pid &&
                 s->host->heard[n->index].incarnation == s->view.incarnation &&
                 s->host->heard[n->index].round == s->host->coordinator->round;
    uint64_t silent =
        is_in ? s->host->heard[n->index].silent : n->watches & ~RENDEZVOUS_HANG_IDLE;
    if (n->watches != 0) s->all &= silent | ~n->watches | (runs ? 0 : RENDEZVOUS_HANG_IDLE);
    if (runs && is_in) s->any |= s->host->heard[n->index].broken;
}

static void add_seat(void *arg, const struct seat_view *seat) {
    struct silence *s = arg;
    const struct sim_node *n = &s->host->w->nodes[seat->host[1] - '0'];
    bool runs = seat->state == SEAT_RUNNING;
    if (seat->group_rank < 0 || (!runs && seat->state != SEAT_SUCCEEDED)) return;
    if (s->as_heard) {
        s->seats++;
        add_heard(s, n, seat);
        return;
    }
    s->seats++;
    s->is_deaf = s->is_deaf || n->is_deaf;
    s->conns = s->conns * 31 + (uintptr_t) n->conn; /* a new one begins the inspection anew */
    s->suspended += seat->suspended ? 1 : 0;
    if (!n->up || n->inc != (int) seat->pid) {
        if (runs) s->all = 0; /* the process has ended */
        return;
    }
    /* a node that has not received ROUND yet is silent for all rules */
    bool is_in = compare_rounds(n, s) == 0;
    uint64_t silent = is_in ? n->silent : n->watches & ~RENDEZVOUS_HANG_IDLE;
    if (n->watches != 0) s->all &= silent | ~n->watches | (runs ? 0 : RENDEZVOUS_HANG_IDLE);
    if (compare_rounds(n, s) > 0) s->all = 0;
    if (!runs) return;
    s->any |= is_in ? n->broken : 0;
    s->is_disturbed = s->is_disturbed || is_disturbed(s->host, n);
}

/* Finds out for which reasons the job hangs now: with as_heard, from the reports that have arrived;
 * else from what the nodes have told last, even if it is under way or lost with a connection. */
static uint64_t find_reasons(const struct host *h, struct silence *s, bool as_heard) {
    *s = (struct silence){.host = h, .as_heard = as_heard, .all = UINT64_MAX};
    jobs_look(h, &s->view);
    coordinator_visit(h->coordinator, add_seat, s);
    /* a node that has ended well and is gone may have written what the rules want */
    if (s->seats < s->view.group_world_size) s->all &= RENDEZVOUS_HANG_IDLE;
    return s->all & s->any;
}

/* ---- what the coordinator gets and sends ---- */

void hangs_got(struct host *h, const struct conn *c, const struct rdzv_quiet *m) {
    struct coordinator_view v;
    jobs_look(h, &v);
    h->heard[c->node].inc = c->node_inc;
    h->heard[c->node].incarnation = v.incarnation;
    h->heard[c->node].round = m->round;
    h->heard[c->node].silent = m->silent;
    h->heard[c->node].broken = m->broken;
}

void hangs_ask_sent(struct host *h, const struct rdzv_ask_inspect *m) {
    struct silence s;
    if (m->id == h->inspection) return;
    h->inspection = m->id;
    h->hung_for = find_reasons(h, &s, true);
    h->w->totals.inspections++;
    story(h->w, "host %d: inspection because of %" PRIu64, h->id, h->hung_for);
}

void hangs_hung_sent(struct host *h, struct conn *c, const struct rdzv_hung *m) {
    struct world *w = h->w;
    struct silence s;
    (void) find_reasons(h, &s, false);
    if ((h->hung_for & m->reasons) == 0) {
        world_violation(w, "host %d declares a hang, but the job did not hang", h->id);
    }
    if (s.suspended > 0) {
        world_violation(w, "host %d declares a hang while a node has no connection", h->id);
    }
    if (s.view.phase != COORDINATOR_RUNNING || m->round != h->coordinator->round) {
        world_violation(w, "host %d declares that round %" PRIu64 " hangs, which does not run",
                        h->id, m->round);
    }
    c->hung_record = w->history.round_count - 1;
    while (c->hung_record >= 0 && !check_is_last_round(h, c->hung_record)) c->hung_record--;
    if (!m->is_last) return;
    h->hung_rank = m->rank;
    h->hung_reasons = m->reasons;
    h->hung_told |= 1U << c->node;
    if (m->decides) h->hung_deciders |= 1U << c->node;
}

/* Returns the index of the node that has this rank in the round; -1 if none has it. */
static int node_of_rank(const struct round_record *r, const struct world *w, uint32_t rank) {
    for (uint32_t g = 0; g < r->group; g++) {
        uint32_t first = r->told[g].first_rank;
        if (rank >= first && rank < first + w->nodes[r->node[g]].worker_count) return r->node[g];
    }
    return -1;
}

static bool runs_in(const struct sim_node *n, int record) {
    return n->up && n->record == record && member_state(n->member) == MEMBER_RUNNING;
}

void hangs_after_event(struct host *h) {
    struct world *w = h->w;
    unsigned told = h->hung_told, deciders = h->hung_deciders;
    if (told == 0) return;
    h->hung_told = h->hung_deciders = 0;
    /* if the node that has to report the hang has gone on, and a reason is left for which it does
     * not watch, another inspection begins */
    h->hangs_since = w->now;
    if (__builtin_popcount(deciders) != 1) {
        world_violation(w, "%d nodes have to report a hang", __builtin_popcount(deciders));
        return;
    }
    for (int i = 0; i < w->node_count; i++) {
        const struct sim_node *n = &w->nodes[i];
        if ((told & 1U << i) == 0) continue;
        if (n->watches == 0) world_violation(w, "node %d is told of a hang unasked", i);
        if (deciders == 1U << i && (n->watches & h->hung_reasons) == 0) {
            world_violation(w, "node %d has to report a hang for which it does not watch", i);
        }
        if (n->record < 0 || n->conn == NULL || n->record != n->conn->hung_record) continue;
        int odd = node_of_rank(&w->history.rounds[n->record], w, h->hung_rank);
        bool is_right = odd >= 0 && (deciders == 1U << odd ||
                                     (w->nodes[odd].watches & h->hung_reasons) == 0);
        if (odd >= 0 && !runs_in(&w->nodes[odd], n->record)) continue;
        if (!is_right) {
            world_violation(w, "rank %u differs, but a node without it reports the hang",
                            h->hung_rank);
        }
    }
}

/* ---- the time until a hang is declared ---- */

/* Returns the reasons for which the job of this host hangs, if its nodes and their connections are
 * undisturbed; else 0. */
static uint64_t find_undisturbed(const struct host *h, struct silence *s) {
    const struct sim_node *owner = h->owner >= 0 ? &h->w->nodes[h->owner] : NULL;
    if (!h->up || h->stalled_until != 0 || h->closes || h->coordinator == NULL) return 0;
    if (owner != NULL && (owner->cut[0] || owner->cut[1])) return 0;
    uint64_t reasons = find_reasons(h, s, false);
    bool is_calm = s->view.phase == COORDINATOR_RUNNING && !s->view.lacks_majority &&
                   s->suspended == 0 && !s->is_disturbed;
    return is_calm ? reasons : 0;
}

void hangs_check(struct world *w) {
    for (int i = 0; i < HOSTS_MAX; i++) {
        struct silence s = {.conns = 0};
        struct host *h = &w->hosts[i];
        uint64_t reasons = find_undisturbed(h, &s);
        bool is_same = (reasons & h->hangs_for) != 0 && s.conns == h->hangs_conns;
        h->hangs_for = is_same ? reasons & h->hangs_for : reasons;
        h->hangs_conns = s.conns;
        if (!is_same) h->hangs_since = w->now;
        int64_t limit = DECISION_TIME + (s.is_deaf ? ANSWER_TIME : 0);
        if (!is_same || w->now <= h->hangs_since + limit) continue;
        world_violation(w, "the job of host %d has hung for %" PRId64 " ms", h->id,
                        w->now - h->hangs_since);
    }
}
