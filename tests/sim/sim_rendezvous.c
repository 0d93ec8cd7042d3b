/* The simulator of a job's control plane. The real coordinator, sessions, members and nodes
 * (agent/node) run on a virtual clock and a virtual network, with simulated workers. world.h lists
 * the files of the simulator.
 *
 * Each schedule is drawn from a seed. In the first 12 s faults are injected. Then comes a time
 * without faults, at whose end as many nodes as possible must be in one round. Finally all workers
 * end with success. Invariants are checked after every event. If a check fails, the seed is
 * printed, and the same seed gives the same schedule again.
 *
 *     sim_rendezvous --seed S [--verbose]
 *     sim_rendezvous [--first S] [--schedules N] [--seconds-max T] [--states FILE] [--trace FILE]
 *
 * The first form runs the schedule with seed S, and --verbose prints what happens in it. The second
 * form runs N schedules with the seeds S, S + 1, …, and writes to FILE what states.c keeps or what
 * trace.c writes. */
#include "tests/sim/world.h"

#include "base/text/parse.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The milliseconds after the last fault within which the nodes must be in one round. In this time
 * leases end, workers are stopped, the last call for nodes passes, nodes reconnect, and at most two
 * changes with notice are made. */
#define CALM_TIME                                                                                  \
    (STOP_TIME + 4 * LEASE + LAST_CALL + 3000 + 2 * (NOTICE_MAX + NEEDS_MAX + STOP_TIME) +         \
     NODE_PATIENCE_MS)

/* The additional milliseconds that paired tests take: a node that was turned out is tested again
 * after 10 s, and each of at most four tests may wait 5 s for an answer (coordinator/pairs.c). */
#define PAIR_CALM_TIME (10000 + 4 * (5000 + PAIR_TIME))

/* The additional milliseconds that hangs take: if a node does not answer, an inspection takes 8 s
 * (coordinator/hang.c), and a hang for each of three reasons may be declared after another one. */
#define HANG_CALM_TIME (3 * 8000)

static int64_t calm_time(enum schedule_kind kind) {
    return CALM_TIME + (kind == PAIR_TESTS ? PAIR_CALM_TIME : kind == HANGS ? HANG_CALM_TIME : 0);
}

#define EVENTS_NOW_MAX 10000 /* the most events that may happen at the same time of the virtual
                              * clock */

static struct world the_world;
static struct world guest_worlds[GUESTS_MAX]; /* the other jobs of SEVERAL_JOBS */

/* ---- handling of events ---- */

static void stall_ends(struct world *w, const struct event *e) {
    struct host *h = e->host;
    if (h == NULL) {
        node_resume(&w->nodes[e->node]);
        return;
    }
    host_stall_ends(h);
}

static void happen_at_host(struct world *w, const struct event *e) {
    if (e->trunk != NULL) {
        relays_happen_at_host(e);
        return;
    }
    switch ((int) e->type) {
    case EV_HOST_TIMER: host_timer(e->host); break;
    case EV_SESSION_TIMER: host_session_timer(e->conn); break;
    case EV_BYTES: host_bytes(e->conn, e->bytes, e->len); break;
    case EV_CLOSED: host_closed(e->conn, RENDEZVOUS_CLOSED); break;
    case EV_RESET: host_closed(e->conn, RENDEZVOUS_BROKEN); break;
    case EV_DEPOSED: host_depose(e->host); break;
    case EV_HOST_DOWN: host_die(e->host, false); break;
    case EV_RIGHT_BACK: host_may_form(e->host, true); break;
    case EV_KNOCK: host_knock(e->host); break;
    case EV_STRANGER: jobs_stranger_leaves(e->host, e->what); break;
    case EV_STALL_ENDS: stall_ends(w, e); break;
    default: CR_ASSERT(0 && "no event of a host");
    }
}

static void happen_at_node(struct world *w, struct sim_node *n, const struct event *e) {
    switch ((int) e->type) {
    case EV_NODE_TIMER: node_timer(n); break;
    case EV_CONNECTED: node_connected(e->conn); break;
    case EV_REFUSED: node_refused(e->conn); break;
    case EV_BYTES: node_bytes(e->conn, e->bytes, e->len); break;
    case EV_CLOSED: node_closed(e->conn, RENDEZVOUS_CLOSED); break;
    case EV_RESET: node_closed(e->conn, RENDEZVOUS_BROKEN); break;
    case EV_EXIT: worker_exit_reported(n, e); break;
    case EV_GONE: workers_gone(n, e); break;
    case EV_GRACE_OVER: workers_grace_over(n, e); break;
    case EV_PACKET: worker_packet(n, e); break;
    case EV_STALL_ENDS: stall_ends(w, e); break;
    case EV_HEALED: node_healed(n); break;
    case EV_QUIET: hangs_look(n, e); break;
    case EV_INSPECTED: hangs_inspected(n, e); break;
    case EV_PAIRED: pair_tests_over(n, e); break;
    case EV_SIGNAL: node_signal(&n->node, node_now(n), SIGTERM); break;
    default: CR_ASSERT(0 && "no event of a node");
    }
}

/* Handles the events of workers and the events that start or end processes. Returns false for all
 * other events: those are for a running node or host. */
static bool happen_in_world(struct world *w, const struct event *e) {
    struct sim_node *n = e->node >= 0 ? &w->nodes[e->node] : NULL;
    switch ((int) e->type) {
    case EV_DEATH: worker_dies(n, e); return true;
    case EV_ACT: worker_acts(n, e); return true;
    case EV_NODE_UP:
        if (!n->up && !workers_any_alive(n)) node_start(n);
        return true;
    case EV_HOST_UP:
        if (!e->host->up) host_start(e->host);
        return true;
    case EV_RELAY_UP: relays_start(e->relay); return true;
    case EV_CUT_ENDS:
        story(w, "node %d: reachable again", n->index);
        n->cut[TO_HOST] = n->cut[TO_NODE] = false;
        if (n->up && !n->node.group.rendezvous_over) n->gone_at = CR_FOREVER;
        world_release(w, &n->held);
        return true;
    case EV_PAIR_CUT_ENDS:
        story(w, "node %d: reaches host %d again", w->pair_cut.node, w->pair_cut.host->id);
        w->pair_cut.is_on = false;
        world_release(w, &w->pair_cut.held);
        return true;
    case EV_FAULT:
        if (!w->calm) faults_inject(w);
        return true;
    default: return false;
    }
}

/* Handles one event. An event for a process that has ended is ignored, even if the node or host has
 * been started again since. */
static void happen(struct world *w, const struct event *e) {
    if (happen_in_world(w, e)) return;
    if (e->relay != NULL) {
        if (!e->relay->up || e->relay->id != e->relay_id) return;
        if (e->type == EV_STALL_ENDS) relays_resume(e->relay);
        else relays_happen(e);
        return;
    }
    if (e->host != NULL) {
        if (!e->host->up || e->host->id != e->host_id) return;
        happen_at_host(w, e);
        return;
    }
    struct sim_node *n = &w->nodes[e->node];
    if (n->up && n->inc == e->inc) happen_at_node(w, n, e);
}

/* Fails the schedule if too many events happen at one time of the virtual clock. The reason is
 * either a timer that is set to the past again and again, or two state machines that send each
 * other messages without end. */
static void check_time_passes(struct world *w, int64_t now) {
    w->events_now = now == w->now ? w->events_now + 1 : 0;
    if (w->events_now > EVENTS_NOW_MAX) world_violation(w, "time stands still");
}

/* Handles the next event of the world `w`. The worlds of all jobs have the same time. */
static void run_next(struct world *w) {
    struct world *first = w->first;
    struct event e = world_pop(w);
    check_time_passes(w, e.at);
    first->now = e.at;
    for (int i = 0; i < first->guest_count; i++) first->guests[i]->now = e.at;
    if (world_hold(w, &e)) return;
    jobs_before(w, &e);
    happen(w, &e);
    for (int i = 0; i < HOSTS_MAX; i++) host_after_event(&w->hosts[i]);
    if (w != first) host_after_event(first->hosts); /* it has the timer of the shared host */
    for (int i = 0; i < first->guest_count; i++) {
        if (first->guests[i] != w) host_after_event(first->guests[i]->hosts);
    }
    struct sim_node *touched = e.node >= 0 ? &w->nodes[e.node] : NULL;
    if (touched != NULL) node_after_event(touched);
    jobs_after(w, &e);
    check_step(w, touched);
    states_note(w);
    trace_note(w);
    free(e.bytes);
    w->totals.events++;
}

/* Returns the world with the next event: `first`, or that of another job at the same host. */
static struct world *next_world(struct world *first) {
    struct world *next = first;
    for (int i = 0; i < first->guest_count; i++) {
        if (world_next_at(first->guests[i]) < world_next_at(next)) next = first->guests[i];
    }
    return next;
}

/* Runs all jobs until `end`. */
static void run_until(struct world *first, int64_t end) {
    struct world *next;
    while (!first->failed && world_next_at(next = next_world(first)) <= end) run_next(next);
    first->now = end;
    for (int i = 0; i < first->guest_count; i++) first->guests[i]->now = end;
}

/* Runs the time without faults until `end`, or until the job has been at rest for a while. */
static void run_until_rest(struct world *w, int64_t end) {
    struct rest rest = {.since = w->now};
    bool is_short = w->kind != SEVERAL_JOBS;
    while (!w->failed && w->now < end && !(is_short && rest_is_reached(w, &rest))) {
        run_until(w, w->now + 200);
    }
}

/* ---- schedules ---- */

static void end_stall(struct world *w, int64_t *stalled_until, struct event e) {
    if (*stalled_until == 0) return;
    *stalled_until = w->now;
    e.at = w->now;
    e.type = EV_STALL_ENDS;
    world_push(w, e);
}

static void let_all_recover(struct world *w) {
    story(w, "---- calm ----");
    w->calm = true;
    for (int i = 0; i < w->node_count; i++) {
        struct sim_node *n = &w->nodes[i];
        struct event e = {.at = w->now, .type = EV_CUT_ENDS, .node = i, .inc = n->inc};
        if (n->cut[TO_HOST] || n->cut[TO_NODE]) world_push(w, e);
        if (n->up) end_stall(w, &n->stalled_until, e);
        n->nic_is_bad = false;
    }
    if (w->pair_cut.is_on) {
        world_push(w, (struct event){.at = w->now, .type = EV_PAIR_CUT_ENDS, .node = -1});
    }
    for (int i = 0; i < HOSTS_MAX && w->first == w; i++) {
        struct host *h = &w->hosts[i];
        struct event e = {.node = -1, .host = h, .host_id = h->id};
        if (h->up) end_stall(w, &h->stalled_until, e);
        e.at = w->now + rnd(w, 50);
        e.type = EV_DEPOSED;
        if (h->up && i != w->leader && !w->heirs) world_push(w, e);
    }
    for (int i = 0; i < RELAYS_MAX && w->kind == RELAYS; i++) {
        struct sim_relay *r = &w->relays[i];
        struct event e = {.node = -1, .relay = r, .relay_id = r->id};
        if (r->up) end_stall(w, &r->stalled_until, e);
        else world_push(w, (struct event){.at = w->now, .type = EV_RELAY_UP, .node = -1,
                                          .relay = r});
    }
    struct host *h = &w->hosts[w->leader];
    if (h->up || w->host_with_node >= 0 || w->first != w) return;
    world_push(w, (struct event){.at = w->now, .type = EV_HOST_UP, .node = -1, .host = h});
}

static int64_t random_ppm(struct world *w) { return rnd(w, 40001) - 20000; }

/* Draws the numbers of nodes of a job with heirs: the job has at least three nodes, because a
 * smaller round has no heirs. */
static void draw_job_with_heirs(struct world *w) {
    w->node_count = 3 + (int) rnd(w, NODES_MAX - 2);
    w->max_nodes = w->node_count - (int) rnd(w, w->node_count - 2);
    w->min_nodes = 1 + (int) rnd(w, w->max_nodes);
}

/* Returns the kind of schedule that this seed gives. */
static enum schedule_kind kind_of(uint64_t seed) {
    switch (seed % 64) {
    case 15: /* with heirs, like 59 and 3 */
    case 26:
    case 58:
    case 59: return HANGS;
    case 3:
    case 28:
    case 60:
    case 62: return PAIR_TESTS;
    default: break;
    }
    switch (seed % 32) {
    case 1:
    case 17: return STATIC_RANKS;
    case 2:
    case 18: return SETTINGS_DIFFER;
    case 6:
    case 7:
    case 25: return PAIRS_ARE_CUT;
    case 8:
    case 24: return FAILURES_END;
    case 12:
    case 20: return RELAYS;
    case 11: return ONLY_CUTS;
    case 13:
    case 29: return SEVERAL_JOBS;
    default: return PLAIN;
    }
}

/* Sets the numbers of a job whose trace the model can follow: three or four nodes, because a
 * smaller round has no heirs and the model has four nodes at most; and so many restarts that the
 * job goes on for the whole schedule. */
static void make_few_nodes(struct world *w) {
    w->node_count = w->max_nodes = 3 + (int) rnd(w, 2);
    w->min_nodes = 3;
    w->max_restarts = 100;
    w->host_with_node = (int) rnd(w, w->node_count);
    w->loss_limit = w->flap_limit = w->aside_after = 0;
}

/* Sets what the backend static requires: every round has all nodes, and the node with node rank 0
 * hosts the coordinator, if a node hosts it. */
static void make_ranks_static(struct world *w) {
    w->min_nodes = w->max_nodes = w->node_count;
    if (w->host_with_node >= 0) w->host_with_node = 0;
}

static int not_below_one(int64_t n) { return n < 1 ? 1 : (int) n; }

/* Sets what the node's command line says of the job. */
static void draw_settings(struct sim_node *n) {
    struct world *w = n->w;
    n->min_nodes = w->min_nodes;
    n->max_nodes = w->max_nodes;
    n->max_restarts = w->max_restarts;
    if (w->kind != SETTINGS_DIFFER || chance(w, 50)) return;
    n->min_nodes = not_below_one(n->min_nodes + rnd(w, 3) - 1);
    n->max_nodes = n->min_nodes + (int) rnd(w, 3);
    /* A round record has room for NODES_MAX nodes only. Without this limit a round could have more:
     * it may have two nodes of one host, namely the process that died, while its lease lasts, and
     * the process that was started in its place. */
    if (n->max_nodes > NODES_MAX) n->max_nodes = NODES_MAX;
    n->max_restarts = (int) rnd(w, 6);
}

static void draw_policies(struct sim_node *n) {
    for (uint32_t i = 0; i < WORKERS_MAX; i++) {
        bool ends = n->w->kind == FAILURES_END && chance(n->w, 20);
        n->policies[i] =
            (struct node_policy){.on_failure = ends ? NODE_ENDS_JOB : NODE_RESTARTS_ALL};
    }
}

/* Draws what failures and losses cost. The first wait of a slowed host is 5 s, so in some schedules
 * nodes still wait when the faults are over. */
static void draw_costs(struct world *w) {
    w->loss_limit = w->flap_limit = w->aside_after = 0;
    w->restart_backoff_ms = w->flap_window_ms = w->flap_refusal_ms = w->aside_ms = 0;
    if (w->only_resets || chance(w, 60)) return;
    w->loss_limit = chance(w, 30) ? 1 + (uint32_t) rnd(w, 5) : 0;
    w->restart_backoff_ms = chance(w, 40) ? 1 + rnd(w, 800) : 0;
    w->flap_limit = (uint32_t) rnd(w, 4);
    w->flap_window_ms = 1 + rnd(w, 4000);
    w->flap_refusal_ms = 1 + rnd(w, 6000);
    w->aside_after = (uint32_t) rnd(w, 4);
    w->aside_ms = 1 + rnd(w, 6000);
}

static void draw_job(struct world *w) {
    w->skips_last_call = chance(w, 50);
    w->notice_ms = chance(w, 30) ? 0 : 1 + rnd(w, NOTICE_MAX);
    w->node_count = 1 + (int) rnd(w, NODES_MAX);
    w->max_nodes = 1 + (int) rnd(w, w->node_count);
    w->min_nodes = 1 + (int) rnd(w, w->max_nodes);
    w->max_restarts = (int) rnd(w, 6);
    w->heirs = w->seed % 4 == 3;
    if (w->heirs) draw_job_with_heirs(w);
    w->host_with_node = chance(w, 40) || w->heirs ? (int) rnd(w, w->node_count) : -1;
    w->elected = w->host_with_node < 0 && chance(w, 40);
    w->wait_ms = chance(w, 70) ? 10000 : chance(w, 50) ? 0 : -1;
    w->only_resets = chance(w, 10) && !w->heirs;
    if (w->heirs) w->wait_ms = -1;
    w->last_reset = -2 * LEASE;
    if (w->only_resets && w->wait_ms == 0) w->wait_ms = -1;
    draw_costs(w);
    w->kind = w->first == w ? kind_of(w->seed) : SEVERAL_JOBS;
    w->join_ms = JOIN_TIME;
    /* Tests count as waiting, so join_timeout has to be longer than they take. Without heirs it is
     * longer than the schedule, so a job that waits for nothing does not end by it. With heirs it
     * ends before the schedule does, as in the other kinds: README.md (Known) says why. */
    if (w->kind == PAIR_TESTS) w->join_ms = w->heirs ? 2 * JOIN_TIME + rnd(w, 3 * JOIN_TIME)
                                                     : 100 * JOIN_TIME;
    if (w->kind == STATIC_RANKS) make_ranks_static(w);
    if (w->kind == ONLY_CUTS) make_few_nodes(w);
    if (w->kind == SEVERAL_JOBS) {
        w->host_with_node = -1;
        w->elected = w->heirs = w->only_resets = false;
    }
    if (w->kind == RELAYS) {
        w->host_with_node = -1; /* the nodes of a relay may not host */
        w->elected = false;
    }
    story(w, "---- %d nodes, %d:%d, %d restarts, host %d%s ----", w->node_count, w->min_nodes,
          w->max_nodes, w->max_restarts, w->host_with_node, w->elected ? ", elected" : "");
}

static void draw_processes(struct world *w) {
    for (int i = 0; i < HOSTS_MAX; i++) {
        struct host *h = &w->hosts[i];
        h->w = w;
        h->owner = !w->heirs ? -1 : i == 0 ? w->host_with_node : i - 1;
        if (i > 1) continue; /* the hosts of heirs use the clocks of their nodes */
        h->offset = rnd(w, 100000);
        h->ppm = random_ppm(w);
    }
    if (w->first != w) {
        w->hosts[0].offset = w->first->hosts[0].offset;
        w->hosts[0].ppm = w->first->hosts[0].ppm;
    } else if (!w->heirs) {
        world_push(w, (struct event){.type = EV_HOST_UP, .node = -1, .host = &w->hosts[0]});
    }
    if (w->kind == RELAYS) relays_draw(w);
    for (int i = 0; i < w->node_count; i++) {
        struct sim_node *n = &w->nodes[i];
        n->w = w;
        n->index = i;
        n->worker_count = 1 + (uint32_t) rnd(w, WORKERS_MAX);
        n->offset = rnd(w, 100000);
        n->ppm = random_ppm(w);
        draw_settings(n);
        draw_policies(n);
        if (w->kind == HANGS) hangs_draw(n);
        if (w->kind == PAIR_TESTS) pair_tests_draw(n);
        if (i == w->host_with_node) { /* a hosting node and its host are one process with one
                                       * clock */
            n->offset = w->hosts[0].offset;
            n->ppm = w->hosts[0].ppm;
        }
        if (w->heirs) {
            w->hosts[1 + i].offset = n->offset;
            w->hosts[1 + i].ppm = n->ppm;
        }
        world_push(w, (struct event){.at = chance(w, 70) ? rnd(w, 100) : rnd(w, 4000),
                                     .type = EV_NODE_UP, .node = i});
    }
}

static void reset_node(struct sim_node *n) {
    struct held held = n->held;
    member_free(n->member);
    member_session_done(&n->session);
    node_done(&n->node);
    *n = (struct sim_node){.held = {.events = held.events, .cap = held.cap}};
}

static void reset_host(struct host *h) {
    struct held held = h->held;
    h->up = false;
    jobs_end(h);
    *h = (struct host){.held = {.events = held.events, .cap = held.cap}};
}

static void reset_world(struct world *w) {
    world_clear(w);
    relays_clear(w);
    network_clear(w);
    for (int i = 0; i < NODES_MAX; i++) reset_node(&w->nodes[i]);
    for (int i = 0; i < HOSTS_MAX; i++) reset_host(&w->hosts[i]);
    w->history.round_count = w->history.change_count = 0;
    w->history.top_restarts = 0;
    w->now = w->checked_at = w->leader = w->host_ids = 0;
    w->failed = w->calm = w->has_two_runs = false;
    w->events_now = 0;
}

/* Draws one job, with its faults. */
static void draw_world(struct world *w, uint64_t seed) {
    w->seed = w->rng = seed;
    draw_job(w);
    draw_processes(w);
    int64_t faults = rnd(w, 30);
    for (int64_t i = 0; i < faults; i++) {
        world_push(w, (struct event){.at = rnd(w, CHAOS_TIME), .type = EV_FAULT, .node = -1});
    }
}

/* Draws the other jobs of the host. They have random numbers of their own, so their number does not
 * change what is drawn for the first job. */
static void draw_guests(struct world *first) {
    static const char *const run_ids[GUESTS_MAX] = {"job 2", "job 3"};
    if (first->kind != SEVERAL_JOBS) return;
    first->guest_count = 1 + (int) (first->seed / 32 % GUESTS_MAX);
    for (int i = 0; i < first->guest_count; i++) {
        struct world *w = first->guests[i] = &guest_worlds[i];
        w->first = first;
        w->run_id = run_ids[i];
        w->verbose = first->verbose;
        draw_world(w, first->seed ^ (uint64_t) (i + 1) << 48);
    }
}

/* Calls `f` for the world of each job. */
static void for_each(struct world *first, void (*f)(struct world *w)) {
    f(first);
    for (int i = 0; i < first->guest_count; i++) f(first->guests[i]);
}

static void check_end_of_chaos(struct world *w) {
    if (!w->first->failed) check_calm(w);
    for (int i = 0; i < w->node_count; i++) {
        if (w->nodes[i].up) workers_finish(&w->nodes[i]);
    }
}

static void check_end_of_job(struct world *w) {
    if (!w->first->failed) check_finished(w);
}

static bool run_schedule(struct world *w, uint64_t seed) {
    w->first = w;
    w->run_id = "job";
    draw_world(w, seed);
    draw_guests(w);
    run_until(w, CHAOS_TIME);
    for_each(w, let_all_recover);
    run_until(w, CHAOS_TIME + 4000); /* in these 4 s, users start ended launchers again */
    run_until_rest(w, CHAOS_TIME + 4000 + calm_time(w->kind));
    for_each(w, check_end_of_chaos);
    run_until(w, w->now + 500 + STOP_TIME + CLOSE_TIME);
    for_each(w, check_end_of_job);
    if (w->kind == SEVERAL_JOBS) {
        run_until(w, w->now + 5000 + 2 * CLOSE_TIME); /* strangers leave, and jobs are forgotten */
        if (!w->failed) jobs_check_end(w->hosts);
    }
    bool failed = w->failed;
    trace_end(w);
    for_each(w, reset_world);
    if (w->jobs_alive != 0) world_violation(w, "%d jobs were never freed", w->jobs_alive);
    failed = failed || w->failed;
    w->failed = false;
    w->guest_count = w->jobs_alive = 0;
    return failed;
}

/* ---- the program ---- */

static void print_totals(const struct totals *t, int64_t schedules, int failures, int64_t ms) {
    (void) printf("%" PRId64 " schedules, %" PRIu64 " events, %" PRIu64 " rounds, ", schedules,
                  t->events, t->rounds);
    (void) printf("%" PRIu64 " changes (%" PRIu64 " with a step), %" PRIu64 " kept, ", t->changes,
                  t->agreed, t->kept);
    (void) printf("%" PRIu64 " parked, %" PRIu64 " hung, %" PRIu64 " left, %" PRIu64 " unfit, ",
                  t->parked, t->hung, t->left, t->unfit);
    (void) printf("%" PRIu64 " symptoms, %" PRIu64 " charged, %" PRIu64 " excused, %" PRIu64
                  " refunded, ", t->symptoms, t->charged, t->excused, t->refunded);
    (void) printf("%" PRIu64 " inspections, %" PRIu64 " hangs, %" PRIu64 " paired tests (%" PRIu64
                  " failed), ", t->inspections, t->hangs, t->paired, t->pairs_failed);
    (void) printf("%" PRIu64 " elections, %" PRIu64 " resets, %" PRIu64 " resumed, ",
                  t->takeovers, t->resets, t->resumed);
    (void) printf("%" PRIu64 " pairs cut, %" PRIu64 " ended by a final failure, ", t->pairs_cut,
                  t->final);
    (void) printf("%" PRIu64 " attached by relays, %" PRIu64 " trunks lost, %" PRIu64 " holds, ",
                  t->relayed, t->trunks_lost, t->holds);
    (void) printf("%" PRIu64 " strangers, %" PRIu64 " refused, %" PRIu64 " jobs forgotten, ",
                  t->strangers, t->crowded, t->forgotten);
    (void) printf("%" PRIu64 " nodes recalled, %" PRIu64 " jobs out of losses, ", t->recalled,
                  t->out_of_losses);
    (void) printf("%" PRIu64 " restarts of the host, %" PRIu64 " rounds rebuilt; %d failed, ",
                  t->restarts, t->rebuilt, failures);
    (void) printf("%" PRId64 " ms\n", ms);
    if (failures > 0) (void) printf("replay one with: make sim SEED=<seed>\n");
}

static int run_many(struct world *w, int64_t first, int64_t schedules, int64_t seconds_max) {
    int64_t started = cr_monotonic_ms(), done = 0;
    int failures = 0;
    while (done < schedules && cr_monotonic_ms() - started < seconds_max * 1000 && failures < 10) {
        failures += run_schedule(w, (uint64_t) (first + done++)) ? 1 : 0;
    }
    print_totals(&w->totals, done, failures, cr_monotonic_ms() - started);
    return failures > 0 || done == 0;
}

static void free_world(struct world *w) {
    for (int i = 0; i < GUESTS_MAX && w == &the_world; i++) free_world(&guest_worlds[i]);
    free(w->heap);
    free(w->pool);
    free(w->free_places);
    free(w->pair_cut.held.events);
    for (int i = 0; i < NODES_MAX; i++) free(w->nodes[i].held.events);
    for (int i = 0; i < HOSTS_MAX; i++) free(w->hosts[i].held.events);
    for (int i = 0; i < RELAYS_MAX; i++) free(w->relays[i].held.events);
}

struct options {
    int64_t seed, first, schedules, seconds_max; /* seed: -1 = many schedules */
    const char *states; /* NULL = states are not counted */
    const char *trace;  /* NULL = no trace is written */
};

/* Returns a pointer to the field for the option's number, or NULL if the option takes no number. */
static int64_t *find_number(struct options *o, const char *name) {
    if (strcmp(name, "--seed") == 0) return &o->seed;
    if (strcmp(name, "--first") == 0) return &o->first;
    if (strcmp(name, "--schedules") == 0) return &o->schedules;
    return strcmp(name, "--seconds-max") == 0 ? &o->seconds_max : NULL;
}

static bool read_options(struct world *w, struct options *o, int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        int64_t *into = find_number(o, argv[i]);
        bool has_value = i + 1 < argc;
        if (strcmp(argv[i], "--verbose") == 0) {
            w->verbose = true;
        } else if (strcmp(argv[i], "--states") == 0 && has_value) {
            o->states = argv[++i];
        } else if (strcmp(argv[i], "--trace") == 0 && has_value) {
            o->trace = argv[++i];
        } else if (into == NULL || !has_value ||
                   cr_parse_i64(argv[++i], 0, INT64_MAX, into) < 0) {
            (void) fprintf(stderr, "usage: sim_rendezvous [--seed S] [--verbose] [--first S] "
                                   "[--schedules N] [--seconds-max T] [--states FILE] "
                                   "[--trace FILE]\n");
            return false;
        }
    }
    return true;
}

int main(int argc, char **argv) {
    struct world *w = &the_world;
    struct options o = {.seed = -1, .schedules = 20000, .seconds_max = 600};
    if (!read_options(w, &o, argc, argv)) return 2;
    if (o.states != NULL && states_begin(w) < 0) return 2;
    if (o.trace != NULL && (w->trace.file = fopen(o.trace, "w")) == NULL) return 2;
    int rc = o.seed >= 0 ? run_schedule(w, (uint64_t) o.seed)
                         : run_many(w, o.first, o.schedules, o.seconds_max);
    if (o.states != NULL && states_end(w, o.states) < 0) rc = 2;
    if (w->trace.file != NULL && fclose(w->trace.file) != 0) rc = 2;
    free_world(w);
    return rc;
}
