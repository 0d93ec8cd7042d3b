/* Injects faults, one at a time: crashes, power losses, cut networks, stalled processes, connection
 * resets, elections. It also simulates what users and operators can do at any time: they send
 * signals, notices and orders, and start launchers again. */
#include "tests/sim/world.h"

#include <signal.h>

/* Returns whether the coordinator runs on this node and no heir can take over from it. */
static bool hosts_with(const struct sim_node *n) {
    return n->index == n->w->host_with_node && !n->w->heirs;
}
static bool is_cut(const struct sim_node *n) { return n->cut[TO_HOST] || n->cut[TO_NODE]; }
static bool runs(const struct sim_node *n) { return n->up && n->stalled_until == 0; }

static struct host *leader(struct world *w) { return &w->hosts[w->leader]; }

static void start_host_in(struct world *w, struct host *h, int64_t in) {
    world_push(w, (struct event){.at = w->now + in, .type = EV_HOST_UP, .node = -1, .host = h});
}

static void start_node_in(struct sim_node *n, int64_t in) {
    world_push(n->w, (struct event){.at = n->w->now + in, .type = EV_NODE_UP, .node = n->index});
}

static void crash_node(struct sim_node *n) {
    if (!n->up) return;
    node_die(n, chance(n->w, 50));
    start_node_in(n, 50 + rnd(n->w, 3000));
}

static void cut_node(struct sim_node *n) {
    struct world *w = n->w;
    int sides = 1 + (int) rnd(w, 3); /* 1: only the bytes to the host are cut, 2: only those from
                                      * the host, 3: both */
    if (is_cut(n) || hosts_with(n)) return;
    n->cut[TO_HOST] = (sides & 1) != 0;
    n->cut[TO_NODE] = (sides & 2) != 0;
    if (n->up && sides == 3) n->gone_at = w->now;
    if (n->up && sides == 3) workers_notice_end_of(n);
    story(w, "node %d: cut off%s%s", n->index, n->cut[TO_HOST] ? ", to the host" : "",
          n->cut[TO_NODE] ? ", from the host" : "");
    world_push(w, (struct event){.at = w->now + 10 + rnd(w, 1500), .type = EV_CUT_ENDS,
                                 .node = n->index});
}

/* Cuts the network between a node and one host that runs; the node still reaches other hosts. */
static void cut_pair(struct sim_node *n) {
    struct world *w = n->w;
    struct host *h = &w->hosts[rnd(w, w->heirs ? w->node_count + 1 : 2)];
    bool is_own = w->heirs ? h->owner == n->index : hosts_with(n);
    if (w->pair_cut.is_on || is_own || !h->up) return;
    w->pair_cut.is_on = true;
    w->pair_cut.node = n->index;
    w->pair_cut.host = h;
    w->totals.pairs_cut++;
    story(w, "node %d: cut off from host %d only", n->index, h->id);
    world_push(w, (struct event){.at = w->now + 10 + rnd(w, 2500), .type = EV_PAIR_CUT_ENDS,
                                 .node = -1});
}

/* Stalls a node: its agent handles no event for a while. If the node hosts the coordinator, the
 * host stalls too, because both are one process. */
static void stall_node(struct sim_node *n) {
    struct world *w = n->w;
    struct host *own = hosts_with(n) ? &w->hosts[0] : NULL;
    if (!runs(n) || (own != NULL && (!own->up || own->stalled_until != 0))) return;
    n->stalled_until = w->now + 10 + rnd(w, 1200);
    story(w, "node %d: stalls until %" PRId64, n->index, n->stalled_until);
    world_push(w, (struct event){.at = n->stalled_until, .type = EV_STALL_ENDS, .node = n->index,
                                 .inc = n->inc});
    if (own != NULL) host_stall(own, n->stalled_until);
    if (!w->heirs) return;
    if (host_of_heir(n)->up) host_stall(host_of_heir(n), n->stalled_until);
    if (n->index == w->host_with_node && w->hosts[0].up) host_stall(&w->hosts[0], n->stalled_until);
}

static void stall_host(struct world *w) {
    struct host *h = leader(w);
    if (w->host_with_node >= 0 || w->first != w) return;
    if (!h->up || h->stalled_until != 0) return;
    host_stall(h, w->now + 10 + rnd(w, 1200));
}

static void crash_host(struct world *w) {
    struct host *h = leader(w);
    if (w->host_with_node >= 0 || w->first != w) return;
    if (!h->up || w->hosts[!w->leader].up || !chance(w, 30)) return;
    host_die(h, chance(w, 50));
    start_host_in(w, h, 20 + rnd(w, 1500));
}

static void restart_host(struct world *w) {
    struct host *h = leader(w);
    if (w->host_with_node >= 0 || w->first != w) return;
    if (w->elected || !h->up || h->stalled_until != 0) return;
    host_restart(h);
}

/* Elects the other host as coordinator, in one of two ways: the old leader steps down, or the old
 * leader is silent for longer than its lease. */
static void elect(struct world *w) {
    struct host *old = leader(w), *next = &w->hosts[!w->leader];
    if (!w->elected || !old->up || next->up || old->stalled_until != 0) return;
    w->totals.takeovers++;
    if (chance(w, 40)) {
        host_depose(old);
        start_host_in(w, next, 20 + rnd(w, 300));
        return;
    }
    host_stall(old, w->now + 2 * LEASE + rnd(w, 1500));
    start_host_in(w, next, LEASE + rnd(w, LEASE));
}

/* Takes the right to form rounds from the elected coordinator for a while, as an outage of etcd
 * does. */
static void lose_right(struct world *w) {
    struct host *h = leader(w);
    if (!w->elected || !h->up || h->stalled_until != 0 || !h->may_form) return;
    host_may_form(h, false);
    world_push(w, (struct event){.at = w->now + 10 + rnd(w, 2500), .type = EV_RIGHT_BACK,
                                 .node = -1, .host = h, .host_id = h->id});
}

static void reset(struct sim_node *n) {
    if (n->conn == NULL || !n->conn->connected || !n->conn->node_open) return;
    if (conn_is_own(n->conn)) return; /* both ends are in one process, so no network is between
                                         * them that could reset the connection */
    story(n->w, "node %d: connection reset", n->index);
    n->w->totals.resets++;
    network_reset(n->conn, chance(n->w, 70) ? 3 : 1 + (int) rnd(n->w, 2));
}

/* Sends a signal to a launcher. A signal to the launcher that hosts the coordinator ends the whole
 * job, so that launcher is signalled rarely. */
static void signal_launcher(struct sim_node *n) {
    if (!runs(n) || !chance(n->w, hosts_with(n) ? 5 : 40)) return;
    story(n->w, "node %d: its launcher gets a signal", n->index);
    if (n->gone_at == CR_FOREVER) n->gone_at = n->w->now;
    workers_notice_end_of(n);
    node_signal(&n->node, node_now(n), chance(n->w, 50) ? SIGTERM : SIGINT);
}

/* Ends a whole node: one of its workers and its launcher get signals, in any order. */
static void end_node(struct sim_node *n) {
    struct world *w = n->w;
    if (!runs(n) || hosts_with(n) || is_cut(n) || n->node.group.state != GROUP_RUNNING) return;
    story(w, "node %d: all its processes are told to end", n->index);
    n->gone_at = w->now;
    n->ends_in_pieces = true;
    workers_kill_one(n, rnd(w, 30));
    world_push(w, (struct event){.at = w->now + rnd(w, 150), .type = EV_SIGNAL, .node = n->index,
                                 .inc = n->inc});
}

static void give_notice(struct sim_node *n) {
    struct world *w = n->w;
    enum rendezvous_change_kind kind = (enum rendezvous_change_kind)(2 + rnd(w, 3));
    if (!runs(n) || (hosts_with(n) && !chance(w, 5))) return;
    node_gives_notice(n, kind, rnd(w, NOTICE_MAX));
}

static void operate(struct sim_node *n) {
    struct world *w = n->w;
    struct host *h = leader(w);
    if (!h->up || h->stalled_until != 0 || hosts_with(n) || !h->terms->leads) return;
    host_operate(h, n->index, chance(w, 30) ? 0 : RENDEZVOUS_CHANGE_PREEMPTION);
}

/* Kills a relay, stalls it, or resets its trunk. */
static void relay_fault(struct world *w) {
    struct sim_relay *r = &w->relays[rnd(w, RELAYS_MAX)];
    int fault = (int) rnd(w, 4);
    if (fault == 0 && r->up) {
        relays_die(r, chance(w, 50));
        world_push(w, (struct event){.at = w->now + 20 + rnd(w, 1500), .type = EV_RELAY_UP,
                                     .node = -1, .relay = r});
    } else if (fault == 1) {
        relays_stall(r, w->now + 10 + rnd(w, 1200));
    } else {
        relays_reset_trunk(r, chance(w, 70) ? 3 : 1 + (int) rnd(w, 2));
    }
}

static void start_again(struct sim_node *n) {
    if (!n->up) start_node_in(n, 50 + rnd(n->w, 3000));
}

void faults_inject(struct world *w) {
    struct sim_node *n = &w->nodes[rnd(w, w->node_count)];
    int fault = (int) rnd(w, w->kind == PAIRS_ARE_CUT ? 20 : w->kind == RELAYS ? 24 : 17);
    if (w->kind == SEVERAL_JOBS && chance(w, 30)) {
        jobs_crowd(w->first->hosts);
        return;
    }
    if (w->only_resets && w->now < w->last_reset + 2 * LEASE) return;
    if (w->only_resets) fault = chance(w, 80) ? 5 : 14;
    w->last_reset = w->now;
    static const int cuts[] = {2, 2, 3, 5, 17, 17};
    if (w->kind == ONLY_CUTS) fault = cuts[fault % 6];
    if (w->kind == RELAYS && fault >= 17) {
        relay_fault(w);
        return;
    }
    switch (fault) {
    case 0:
    case 1: crash_node(n); break;
    case 2: cut_node(n); break;
    case 3: stall_node(n); break;
    case 4: stall_host(w); break;
    case 5: reset(n); break;
    case 6: crash_host(w); break;
    case 7: signal_launcher(n); break;
    case 8: give_notice(n); break;
    case 9: operate(n); break;
    case 10: end_node(n); break;
    case 11:
    case 12: elect(w); break;
    case 13: reset(n); break;
    case 14: restart_host(w); break;
    case 15: lose_right(w); break;
    case 17:
    case 18:
    case 19: cut_pair(n); break;
    default: start_again(n); break;
    }
    node_after_event(n);
}
