/* Simulated workers: small models of programs. For each process the simulator draws whether the
 * process counts steps, can rejoin, ignores SIGTERM and writes flight records, and how it answers
 * changes.
 *
 * The page is the real struct channel_page. Its count of steps is computed when the agent reads the
 * page, so that no event is needed for each step. A worker also runs and dies while its agent is
 * stalled; its packets and its exit reach the agent when the agent runs again. */
#include "tests/sim/world.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>

/* What a worker does at a later time, by itself or after a packet from its agent (event EV_ACT). */
enum act { ACT_END, ACT_HANG, ACT_PARK, ACT_READY, ACT_STOP_FOR_CHANGE, ACT_OVERDUE,
           ACT_MISS_A_PEER, ACT_BE_KILLED };
/* The packets that a worker sends to its agent (event EV_PACKET). */
enum packet { PACKET_READY, PACKET_REJOIN, PACKET_DUMPED, PACKET_HUNG };

static struct sim_worker *at(struct sim_node *n, int worker) { return &n->workers[worker]; }

static int index_of(const struct sim_node *n, const struct sim_worker *k) {
    return (int) (k - n->workers);
}

static struct event event_of(struct sim_node *n, struct sim_worker *k, enum event_type type,
                             int64_t in) {
    return (struct event){.at = n->w->now + in, .type = type, .node = n->index, .inc = n->inc,
                          .worker = index_of(n, k), .id = k->life};
}

static void act_in(struct sim_node *n, struct sim_worker *k, int64_t in, enum act what) {
    struct event e = event_of(n, k, EV_ACT, in);
    e.what = what;
    world_push(n->w, e);
}

static void report_in(struct sim_node *n, struct sim_worker *k, int64_t in, enum packet what) {
    struct event e = event_of(n, k, EV_PACKET, in);
    e.what = what;
    world_push(n->w, e);
}

/* ---- progress ---- */

static void catch_up(struct sim_node *n, struct sim_worker *k) {
    if (!k->alive || k->step_ms == 0 || k->hangs || k->waits) return;
    uint64_t made = (uint64_t) ((n->w->now - k->step_since) / k->step_ms);
    if (made >= k->most_steps - k->steps) {
        k->steps = k->most_steps;
    } else {
        k->steps += made;
        k->step_since += (int64_t) made * k->step_ms;
    }
    atomic_store(&k->page.step, k->steps);
}

static void begin_round(struct sim_node *n, struct sim_worker *k) {
    k->record = n->record;
    k->steps = 0;
    k->most_steps = UINT64_MAX;
    k->step_since = n->w->now;
    k->change = k->agreed = 0;
    k->hangs = k->waits = k->is_over = false;
}

/* ---- signals and deaths ---- */

static void die_within(struct sim_node *n, struct sim_worker *k, int64_t in, int exit_code) {
    int64_t when = n->w->now + in;
    if (!k->alive || k->dies_at <= when) return; /* the process dies earlier anyway */
    k->dies_at = when;
    k->exit_code = exit_code;
    world_push(n->w, event_of(n, k, EV_DEATH, in));
}

void worker_dies(struct sim_node *n, const struct event *e) {
    struct sim_worker *k = at(n, e->worker);
    if (!k->alive || k->life != e->id || k->dies_at != e->at) return;
    catch_up(n, k);
    k->alive = false;
    story(n->w, "node %d, worker %d: dies (%d)", n->index, e->worker, k->exit_code);
    if (n->up && n->inc == e->inc) world_push(n->w, event_of(n, k, EV_EXIT, 0));
}

static bool in_round_of(const struct sim_node *a, const struct sim_node *b) {
    return a != b && a->up && a->record >= 0 && a->record == b->record &&
           a->node.group.state == GROUP_RUNNING;
}

void workers_notice_end_of(struct sim_node *n) {
    struct world *w = n->w;
    /* the workers of `n` do not run, so no other worker can miss them */
    if (n->node.group.state != GROUP_RUNNING) return;
    for (int i = 0; i < w->node_count; i++) {
        struct sim_node *other = &w->nodes[i];
        if (!in_round_of(other, n) || !chance(w, 40)) continue;
        struct sim_worker *k = &other->workers[rnd(w, other->worker_count)];
        if (!k->alive || k->waits || k->hangs || k->dies_at != CR_FOREVER) continue;
        k->missed_node = n->index;
        k->missed_in = other->record;
        act_in(other, k, rnd(w, LEASE / 2), ACT_MISS_A_PEER);
    }
}

static void take_signal(struct sim_node *n, struct sim_worker *k, int signum, bool is_ours) {
    if (!k->alive) return;
    if (is_ours) k->signal_sent = signum;
    if (signum == SIGKILL) {
        die_within(n, k, rnd(n->w, KILL_TIME), -SIGKILL);
    } else if (!k->ignores_term) {
        die_within(n, k, rnd(n->w, DYING_MAX), chance(n->w, 20) ? 0 : -signum);
    }
}

void workers_die_with_agent(struct sim_node *n, bool silently) {
    for (uint32_t i = 0; i < n->worker_count; i++) {
        struct sim_worker *k = &n->workers[i];
        if (silently) k->alive = false; /* the power is off */
        else die_within(n, k, rnd(n->w, KILL_TIME), -SIGKILL);
    }
    n->stopping = false;
}

bool workers_any_alive(const struct sim_node *n) {
    for (uint32_t i = 0; i < n->worker_count; i++) {
        if (n->workers[i].alive) return true;
    }
    return false;
}

/* ---- the nursery ---- */

static bool only_kept_live(const struct sim_node *n) {
    for (uint32_t i = 0; i < n->worker_count; i++) {
        const struct sim_worker *k = &n->workers[i];
        if ((k->alive || !k->reported) && !k->kept) return false;
    }
    return true;
}

/* If workers_stop() was called and only kept workers live, tells the node that its processes are
 * gone. In one case of ten the event comes later, as if a child process of a worker still lived. */
static void check_gone(struct sim_node *n) {
    if (!n->stopping || !only_kept_live(n)) return;
    world_push(n->w, (struct event){.at = n->w->now + (chance(n->w, 90) ? 0 : rnd(n->w, KILL_TIME)),
                                    .type = EV_GONE, .node = n->index, .inc = n->inc,
                                    .id = n->grace_gen});
}

void workers_gone(struct sim_node *n, const struct event *e) {
    if (!n->stopping || e->id != n->grace_gen || !only_kept_live(n)) return;
    n->stopping = false;
    node_processes_gone(&n->node, node_now(n));
}

void workers_grace_over(struct sim_node *n, const struct event *e) {
    if (e->id != n->grace_gen || !n->stopping) return;
    for (uint32_t i = 0; i < n->worker_count; i++) {
        struct sim_worker *k = &n->workers[i];
        if (!k->kept) take_signal(n, k, SIGKILL, true);
    }
}

static void note_failure(struct sim_node *n, const struct sim_worker *k) {
    struct round_record *r = &n->w->history.rounds[n->record];
    n->failures++;
    if (r->failed_at == CR_FOREVER) r->failed_at = n->w->now;
    if (k->symptom_of >= 0) r->symptoms_of |= 1U << k->symptom_of;
    else r->failed_by_itself = true;
}

void worker_exit_reported(struct sim_node *n, const struct event *e) {
    struct sim_worker *k = at(n, e->worker);
    if (k->life != e->id || k->reported) return;
    k->reported = true;
    bool has_failed = k->exit_code != 0 && k->signal_sent == 0;
    if (has_failed || k->is_unreached) note_failure(n, k);
    node_worker_exited(&n->node, node_now(n), (uint32_t) e->worker, k->exit_code, k->signal_sent);
    check_gone(n);
}

/* ---- starts of workers ---- */

static void draw_habits(struct world *w, struct sim_worker *k) {
    k->has_channel = chance(w, 80);
    k->ignores_term = chance(w, 10);
    k->writes_dumps = k->has_channel && chance(w, 70);
    k->step_ms = k->has_channel && chance(w, 90) ? 5 + rnd(w, 35) : 0;
    if (!k->has_channel) return;
    atomic_store(&k->page.can_rejoin, chance(w, 60));
    if (chance(w, 10)) atomic_store(&k->page.answer, CHANNEL_NOW);
    if (chance(w, 20)) {
        atomic_store(&k->page.answer, CHANNEL_NEEDS);
        atomic_store(&k->page.needs_ms, rnd(w, NEEDS_MAX));
    }
    /* as crunrt_answer_changes() does */
    if (atomic_load(&k->page.answer) != CHANNEL_AFTER_STEP)
        atomic_store(&k->page.counts_from_start, 1);
}

/* Draws when the workers of a node end by themselves in this round, and which of them fails. All
 * workers of the node end within 20 ms. */
static void draw_fate(struct sim_node *n) {
    struct world *w = n->w;
    n->fate_at = w->now + 20 + rnd(w, 6000);
    bool fails = chance(w, 30) || w->kind == ONLY_CUTS;
    n->fate_worker = fails ? (int) rnd(w, n->worker_count) : -1;
}

static void meet_fate(struct sim_node *n, struct sim_worker *k) {
    struct world *w = n->w;
    act_in(n, k, n->fate_at - w->now + rnd(w, 20), ACT_END);
    if (!k->has_channel || w->calm) return;
    if (chance(w, 3)) act_in(n, k, rnd(w, 3000), ACT_HANG);
    if (chance(w, 1)) act_in(n, k, rnd(w, 3000), ACT_PARK);
}

int workers_start(void *arg, bool *starts) {
    struct sim_node *n = arg;
    draw_fate(n);
    n->failures = 0;
    n->failed_told = false;
    for (uint32_t i = 0; i < n->worker_count; i++) {
        struct sim_worker *k = &n->workers[i];
        if (!starts[i]) continue;
        if (k->alive || !k->reported) {
            world_violation(n->w, "node %d starts worker %u twice", n->index, i);
        }
        if (!n->w->calm && chance(n->w, 1) && chance(n->w, 20)) { /* simulates a failed fork() */
            starts[i] = false;
            continue;
        }
        *k = (struct sim_worker){.alive = true, .life = k->life + 1, .dies_at = CR_FOREVER,
                                  .symptom_of = -1};
        draw_habits(n->w, k);
        begin_round(n, k);
        meet_fate(n, k);
    }
    return 0;
}

int workers_hand_over(void *arg, uint32_t worker) {
    struct sim_node *n = arg;
    struct sim_worker *k = &n->workers[worker];
    k->is_unreached = !k->alive;
    if (!k->alive) return -ENOTCONN;
    if (!k->waits) world_violation(n->w, "node %d: worker %u is not parked", n->index, worker);
    worker_page_begin_round(&k->page);
    k->signal_sent = 0;
    k->symptom_of = -1;
    begin_round(n, k);
    meet_fate(n, k);
    return 0;
}

/* ---- other actions of the node on workers ---- */

void workers_stop(void *arg, int signum, int64_t grace_ms) {
    struct sim_node *n = arg;
    n->stopping = true;
    n->grace_gen++;
    for (uint32_t i = 0; i < n->worker_count; i++) {
        if (!n->workers[i].kept) take_signal(n, &n->workers[i], signum, true);
    }
    if (grace_ms != CR_FOREVER) {
        world_push(n->w, (struct event){.at = clock_when(n->w, node_now(n) + grace_ms, n->offset,
                                                         n->ppm),
                                        .type = EV_GRACE_OVER, .node = n->index, .inc = n->inc,
                                        .id = n->grace_gen});
    }
    check_gone(n);
}

void workers_keep(void *arg, uint32_t worker, bool keep) {
    struct sim_node *n = arg;
    n->workers[worker].kept = keep;
    if (keep) n->w->totals.kept++;
}

void workers_signal(void *arg, uint32_t worker, int signum) {
    struct sim_node *n = arg;
    take_signal(n, &n->workers[worker], signum, true);
}

void workers_kill_hung(void *arg, uint32_t worker) {
    struct sim_node *n = arg;
    n->w->totals.hung++;
    take_signal(n, &n->workers[worker], SIGKILL, false);
}

bool workers_is_dead(void *arg, uint32_t worker) {
    const struct sim_node *n = arg;
    return !n->workers[worker].alive;
}

void workers_read_page(void *arg, uint32_t worker, struct worker_progress *out) {
    struct sim_node *n = arg;
    struct sim_worker *k = &n->workers[worker];
    *out = (struct worker_progress){0};
    if (!k->has_channel) return;
    catch_up(n, k);
    worker_page_read(&k->page, out);
    if (k->alive) return;
    /* the channel of a dead process is closed, and only stopped_for can still be read */
    *out = (struct worker_progress){.stopped_for = out->stopped_for};
}

int workers_ask_dump(void *arg, uint32_t worker, uint64_t dump_id) {
    struct sim_node *n = arg;
    struct sim_worker *k = &n->workers[worker];
    if (!k->alive || !k->writes_dumps) return -ENOTSUP;
    atomic_store(&k->page.dump_id, dump_id);
    if (chance(n->w, 80)) report_in(n, k, rnd(n->w, DUMP_TIME), PACKET_DUMPED);
    return 0;
}

/* ---- packets that the agent sends to a worker ---- */

/* Lets a worker receive the announcement of a change: after its next step the worker pauses until
 * it knows the agreed step. In some cases it makes one step more, as if that step had begun before
 * the packet arrived. */
static void hear_change(struct sim_node *n, struct sim_worker *k, uint64_t id) {
    catch_up(n, k);
    if (chance(n->w, 30) && k->step_ms > 0 && !k->hangs) {
        k->steps++;
        k->step_since = n->w->now;
        atomic_store(&k->page.step, k->steps);
    }
    k->most_steps = k->steps + 1;
    k->change = id;
    k->agreed = 0;
}

static void hear_agreed_step(struct sim_node *n, struct sim_worker *k, uint64_t step) {
    catch_up(n, k);
    if (k->steps > step) {
        world_violation(n->w, "node %d, worker %d has made step %" PRIu64 ", agreed was %" PRIu64,
                        n->index, index_of(n, k), k->steps, step);
        return;
    }
    if (k->steps == k->most_steps) k->step_since = n->w->now; /* the worker had paused until now */
    k->had_begun = k->steps > 0 || atomic_load(&k->page.counts_from_start) != 0;
    k->most_steps = k->agreed = step;
    if (k->step_ms == 0) return; /* the worker never makes a step */
    int64_t left = (int64_t) (step - k->steps) * k->step_ms - (n->w->now - k->step_since);
    k->stops_at = n->w->now + (left > 0 ? left : 0);
    act_in(n, k, k->stops_at - n->w->now, ACT_STOP_FOR_CHANGE);
}

static void hear_over(struct sim_node *n, struct sim_worker *k) {
    k->is_over = true;
    if (k->waits || k->hangs) return;
    if (chance(n->w, 3)) die_within(n, k, rnd(n->w, 50), 1);
    if (chance(n->w, 80)) act_in(n, k, rnd(n->w, 40), ACT_PARK);
    else if (chance(n->w, 50)) act_in(n, k, rnd(n->w, 2 * STOP_TIME), ACT_PARK);
}

int workers_send_packet(void *arg, uint32_t worker, const struct channel_packet *p) {
    struct sim_node *n = arg;
    struct sim_worker *k = &n->workers[worker];
    if (!k->alive || !k->has_channel) return -ENOTCONN;
    if (p->type == CHANNEL_CHANGE) hear_change(n, k, p->id);
    if (p->type == CHANNEL_OVER) hear_over(n, k);
    if (p->type == CHANNEL_STOP_AT && p->id == k->change) {
        hear_agreed_step(n, k, p->stop_at.step);
    }
    return 0;
}

/* ---- acts of a worker (enum act) ---- */

/* Returns whether the worker has a reason to wait for the next round: its round is over, or it has
 * stopped for a change. */
static bool has_reason_to_park(const struct sim_worker *k) {
    return k->is_over || (k->change != 0 && atomic_load(&k->page.stopped_for) == k->change);
}

/* Makes a worker call crunrt_rejoin() and wait for the next round. If the worker has no reason to
 * wait, it breaks its round. After the last fault no worker may do that, so a call without a reason
 * does nothing then: it may come from an act that was queued in an earlier round. */
static void park(struct sim_node *n, struct sim_worker *k) {
    if (k->waits || k->hangs || !atomic_load(&k->page.can_rejoin)) return;
    if (n->w->calm && !has_reason_to_park(k)) return;
    k->waits = true;
    n->w->totals.parked++;
    report_in(n, k, rnd(n->w, 3), PACKET_REJOIN);
}

static void stop_for_change(struct sim_node *n, struct sim_worker *k) {
    if (k->waits || k->hangs || k->agreed == 0) return;
    catch_up(n, k);
    if (k->steps != k->agreed) {
        world_violation(n->w, "node %d, worker %d stops at step %" PRIu64 " instead of %" PRIu64,
                        n->index, index_of(n, k), k->steps, k->agreed);
    }
    atomic_store(&k->page.stopped_for, k->change);
    int64_t saving = rnd(n->w, chance(n->w, 80) ? 60 : NOTICE_MAX);
    switch (rnd(n->w, 10)) {
    case 0: die_within(n, k, saving, 0); return;
    case 1: return; /* the worker never finishes saving */
    case 2:
    case 3:
    case 4: act_in(n, k, saving, ACT_PARK); return;
    default: act_in(n, k, saving, ACT_READY);
    }
}

static void hang(struct sim_node *n, struct sim_worker *k) {
    if (k->waits || k->agreed != 0 || k->step_ms == 0) return;
    catch_up(n, k);
    k->hangs = true;
    if (n->step_limit > 0) act_in(n, k, n->step_limit, ACT_OVERDUE);
}

static void miss_a_peer(struct sim_node *n, struct sim_worker *k) {
    if (k->waits || k->hangs || k->record != k->missed_in || k->dies_at != CR_FOREVER) return;
    k->symptom_of = k->missed_node;
    n->w->totals.symptoms++;
    die_within(n, k, 0, 1);
}

void workers_kill_one(struct sim_node *n, int64_t in) {
    struct sim_worker *k = &n->workers[rnd(n->w, n->worker_count)];
    k->killed_in = n->record;
    if (k->alive) act_in(n, k, in, ACT_BE_KILLED);
}

static void be_killed(struct sim_node *n, struct sim_worker *k) {
    if (k->waits || k->hangs || k->record != k->killed_in || k->dies_at != CR_FOREVER) return;
    k->symptom_of = n->index;
    n->w->totals.killed++;
    die_within(n, k, 0, chance(n->w, 50) ? -SIGTERM : -SIGKILL);
    if (n->up) workers_notice_end_of(n);
}

static void end(struct sim_node *n, struct sim_worker *k) {
    bool fails = index_of(n, k) == n->fate_worker;
    if (n->w->calm || k->waits || k->hangs || k->record != n->record) return;
    die_within(n, k, 0, fails ? 1 : 0);
}

void worker_acts(struct sim_node *n, const struct event *e) {
    struct sim_worker *k = at(n, e->worker);
    if (!k->alive || k->life != e->id) return;
    switch ((enum act) e->what) {
    case ACT_END:
        if (n->w->now >= n->fate_at) end(n, k); /* an act before fate_at belongs to an earlier
                                                 * round */
        return;
    case ACT_HANG: hang(n, k); return;
    case ACT_PARK: park(n, k); return;
    case ACT_READY: /* no READY is sent if the worker is already in its next round */
        if (k->change != 0 && atomic_load(&k->page.stopped_for) == k->change) {
            report_in(n, k, rnd(n->w, 3), PACKET_READY);
        }
        return;
    case ACT_STOP_FOR_CHANGE:
        if (e->at == k->stops_at) stop_for_change(n, k); /* an act at another time belongs to an
                                                          * earlier change */
        return;
    case ACT_MISS_A_PEER: miss_a_peer(n, k); return;
    case ACT_BE_KILLED: be_killed(n, k); return;
    case ACT_OVERDUE:
        if (k->hangs) report_in(n, k, 0, PACKET_HUNG);
        return;
    }
}

void worker_packet(struct sim_node *n, const struct event *e) {
    struct sim_worker *k = at(n, e->worker);
    uint32_t i = (uint32_t) e->worker;
    /* A packet that a worker sent before its death is handled, unless the worker's exit has been
     * reported before the packet arrives. */
    if (k->life != e->id || k->reported) return;
    int64_t now = node_now(n);
    switch ((enum packet) e->what) {
    case PACKET_READY:
        node_worker_ready(&n->node, now, i, atomic_load(&k->page.stopped_for));
        return;
    case PACKET_REJOIN:
        if (k->waits) node_worker_rejoin(&n->node, now, i);
        return;
    case PACKET_DUMPED:
        node_worker_dumped(&n->node, now, i, atomic_load(&k->page.dump_id), "");
        return;
    case PACKET_HUNG:
        if (k->hangs) node_worker_hung(&n->node, now, i, k->steps, n->step_limit);
        return;
    }
}

/* Lets all workers that are not parked end with exit code 0, even hung ones. Call this at the end
 * of a schedule. */
void workers_finish(struct sim_node *n) {
    for (uint32_t i = 0; i < n->worker_count; i++) {
        struct sim_worker *k = &n->workers[i];
        if (!k->waits) die_within(n, k, 0, 0);
    }
}
