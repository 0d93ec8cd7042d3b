/* The invariants that must hold whatever fault occurs. The checks compare the state of the real
 * code (node, coordinator) with the facts of the simulated world: which processes live, and which
 * messages were sent to which node. */
#include "tests/sim/world.h"

#include <string.h>

/* A limit that is exceeded by at most this many milliseconds is not reported. A worker needs some
 * time to die of SIGKILL, and some more time passes until the agent knows of its exit and of the
 * end of all processes. */
#define SLACK (4 * KILL_TIME)
/* the most milliseconds by which the clock of a process can differ from the world's clock after 2
 * s, because it is up to 2 % fast or slow */
#define DRIFT 40
#define CHECK_EVERY 4 /* milliseconds between two checks of the time limits */

/* ---- rounds that the coordinator sends ---- */

static struct round_record *last_record(struct world *w) {
    return &w->history.rounds[w->history.round_count - 1];
}

/* Returns whether the process of the host with this id still runs. */
static bool is_up(const struct world *w, int host_id) {
    for (int i = 0; i < HOSTS_MAX; i++) {
        if (w->hosts[i].id == host_id && w->hosts[i].up) return true;
    }
    return false;
}

/* Returns whether the coordinator of the round `a` is newer than that of the round `b`. With heirs,
 * the coordinators' epochs decide, because an heir can begin to serve before another heir and get
 * the majority after it. A coordinator whose process has ended does not count as newer: the process
 * that is started in its place begins with the smallest epoch. Without heirs, hosts start in the
 * order in which they are elected, so their ids decide. */
static bool is_of_newer_coordinator(const struct world *w, const struct round_record *a,
                                    const struct round_record *b) {
    return w->heirs ? a->epoch > b->epoch && is_up(w, a->host_id) : a->host_id > b->host_id;
}

/* Marks the rounds before the one with the index `last` as superseded, because a coordinator has
 * formed that later round. If the later round comes from an older coordinator than a round before
 * it, it is superseded itself. */
static void supersede_rounds(struct world *w, int last) {
    struct round_record *by = &w->history.rounds[last];
    for (int i = 0; i < last; i++) {
        struct round_record *r = &w->history.rounds[i];
        bool is_run = r->incarnation == by->incarnation;
        bool is_older = is_of_newer_coordinator(w, r, by);
        if (w->heirs && !is_run) continue;
        if (w->heirs && is_older) {
            world_violation(w, "host %d forms a round after host %d has, under a smaller epoch",
                            by->host_id, r->host_id);
        }
        if (is_older) by->superseded_at = w->now;
        else if (r->superseded_at == CR_FOREVER) r->superseded_at = w->now;
    }
}

static void note_candidate(void *arg, const struct seat_view *seat) {
    struct history *history = arg;
    if (seat->state != SEAT_JOINED) return;
    CR_ASSERT(history->candidate_count < NODES_MAX * 4);
    history->candidates[history->candidate_count++] =
        (struct candidate){.node = seat->host[1] - '0', .inc = (int) seat->pid,
                           .kept_rank = seat->group_rank, .rank = -1};
}

static void note_host(void *arg, const struct host_view *host) {
    struct history *history = arg;
    for (int i = 0; i < history->candidate_count; i++) {
        struct candidate *k = &history->candidates[i];
        if (k->node != host->host[1] - '0') continue;
        k->is_slowed = host->slowed_ms > 0 && k->kept_rank < 0;
        k->is_aside = host->aside_ms > 0;
    }
}

/* Checks two rules for the standing of hosts. A node of a slowed host must not be in the new round,
 * unless the node was in the round before. A node of a host that is set aside must not be in the
 * new round while a node waits outside whose host is neither slowed nor set aside. */
static void check_aside(struct host *h) {
    const struct history *history = &h->w->history;
    int others_out = 0, aside_in = 0;
    for (int i = 0; i < history->candidate_count; i++) {
        const struct candidate *k = &history->candidates[i];
        if (!k->is_aside && !k->is_slowed && k->rank < 0) others_out++;
        if (k->is_aside && k->rank >= 0) aside_in++;
        if (k->is_slowed && k->rank >= 0) {
            world_violation(h->w, "node %d is in a round, but its host is slowed", k->node);
        }
    }
    if (aside_in > 0 && others_out > 0) {
        world_violation(h->w, "a round takes a node whose host is set aside, not another one");
    }
    h->w->totals.recalled += (uint64_t) aside_in;
}

/* A node that is cut off must end its workers before its lease ends at the coordinator, so that a
 * new round never runs beside old workers. Call this when a round forms: it checks that the nodes
 * whose leases have ended run no worker. */
static void check_given_up(struct host *h, uint64_t round) {
    struct world *w = h->w;
    for (int i = 0; i < w->node_count; i++) {
        const struct sim_node *n = &w->nodes[i];
        const struct conn *c = n->conn;
        if (!n->up || n->ended || c == NULL || !c->hung_up_by_lease) continue;
        if (c->host != h || c->host_id != h->id) continue;
        if (n->stalled_until != 0 || w->now < n->resumed_at + SLACK) continue;
        for (uint32_t k = 0; k < n->worker_count; k++) {
            if (!n->workers[k].alive || n->workers[k].waits) continue;
            world_violation(w, "round %" PRIu64 " forms while workers of silent node %d run", round,
                            i);
        }
    }
}

/* Call this when the host `h` forms a round: checks that no other host may decide for the job at
 * this moment. Leaves out hosts that are stalled, because they do nothing, and notice before their
 * next decision that they may not decide. */
static void check_one_decides(struct host *h) {
    struct world *w = h->w;
    struct coordinator_view v;
    w->leader = (int) (h - w->hosts);
    for (int i = 0; i < HOSTS_MAX; i++) {
        const struct host *other = &w->hosts[i];
        if (other == h || !other->up || other->stalled_until != 0) continue;
        if (w->now < w->nodes[other->owner].resumed_at + SLACK) continue;
        if (!other->terms->leads || other->job->is_superseded || other->closes) continue;
        jobs_look(other, &v);
        if (v.phase == COORDINATOR_EMPTY || v.phase == COORDINATOR_ENDED || !v.decides) continue;
        if (v.incarnation != last_record(w)->incarnation) {
            w->has_two_runs = true;
            continue;
        }
        world_violation(w, "hosts %d and %d may both decide", h->id, other->id);
    }
}

/* Checks that a coordinator forms no round of a run under a number that it has given before. */
static void check_number(struct host *h, const struct round_record *formed) {
    for (const struct round_record *r = h->w->history.rounds; r < formed; r++) {
        if (r->formed_by != h->id || r->life != formed->life) continue;
        if (r->incarnation != formed->incarnation || r->round < formed->round) continue;
        world_violation(h->w, "host %d forms round %" PRIu64 " after round %" PRIu64, h->id,
                        formed->round, r->round);
    }
}

void check_store_opened(struct host *h, uint64_t round) {
    struct world *w = h->w;
    CR_ASSERT(w->history.round_count < ROUNDS_MAX);
    struct round_record *r = &w->history.rounds[w->history.round_count++];
    struct coordinator_view v;
    jobs_look(h, &v);
    *r = (struct round_record){.incarnation = v.incarnation, .host_id = h->id,
                               .formed_by = h->id, .life = h->life, .round = round,
                               .order = ++w->history.orders,
                               .formed_at = w->now, .min_nodes = v.min_nodes,
                               .max_nodes = v.max_nodes, .max_restarts = v.max_restarts,
                               .superseded_at = CR_FOREVER, .failed_at = CR_FOREVER,
                               .port = (uint16_t) (1000 + w->history.round_count)};
    for (int i = 0; i < NODES_MAX; i++) r->node[i] = -1;
    story(w, "host %d: ROUND %" PRIu64 " (record %d)", h->id, round, w->history.round_count - 1);
    w->totals.rounds++;
    if (w->elected && h != &w->hosts[w->leader]) {
        world_violation(w, "host %d forms a round, but host %d has been elected", h->id,
                        w->hosts[w->leader].id);
    }
    if (w->kind == HANGS) hangs_draw_round(w, r);
    check_number(h, r);
    if (!h->forming) h->first_formed = w->history.round_count - 1;
    h->forming = true;
    h->change_until = CR_FOREVER;
    w->history.candidate_count = 0;
    coordinator_visit(h->coordinator, note_candidate, &w->history);
    coordinator_visit_hosts(h->coordinator, host_now(h), note_host, &w->history);
    trace_form(h);
    check_given_up(h, round);
    if (w->heirs) check_one_decides(h);
}

static const struct round_record *last_record_of(const struct world *w, int host_id);

/* Checks a ROUND that is sent to a node a second time, because the node's connection broke before
 * the first ROUND arrived: both must name the same round and the same ranks. */
static void check_round_repeated(struct host *h, const struct conn *c, const struct rdzv_round *m) {
    const struct round_record *r = last_record_of(h->w, h->id);
    if (r == NULL || m->group_rank >= r->group || r->round != m->round ||
        r->node[m->group_rank] != c->node || r->told[m->group_rank].first_rank != m->first_rank) {
        world_violation(h->w, "node %d is sent another round again", c->node);
    }
}

void check_round_sent(struct host *h, const struct conn *c, const struct rdzv_round *m) {
    struct history *history = &h->w->history;
    struct round_record *r = last_record(h->w);
    if (!h->forming) {
        check_round_repeated(h, c, m);
        return;
    }
    if (m->group_rank >= NODES_MAX || r->node[m->group_rank] >= 0) {
        world_violation(h->w, "group rank %u is given twice", m->group_rank);
        return;
    }
    if (m->kept == 0) world_violation(h->w, "a new round does not say how many workers are kept");
    r->node[m->group_rank] = c->node;
    r->told[m->group_rank] = *m;
    r->told[m->group_rank].master_addr = NULL;
    r->group = m->group_world_size;
    r->restart_count = m->restart_count;
    for (int i = 0; i < history->candidate_count; i++) {
        struct candidate *k = &history->candidates[i];
        if (k->node == c->node && k->inc == c->node_inc && k->rank < 0) {
            k->rank = m->group_rank;
            return;
        }
    }
    world_violation(h->w, "node %d is in a round that it did not wait for", c->node);
}

/* Checks that the ranks of a round are numbered without gaps in the order of the group ranks, and
 * that the role ranks of each role are, too. */
static void check_ranks(struct host *h, const struct round_record *r) {
    struct world *w = h->w;
    uint32_t next = 0, next_of_role[2] = {0, 0};
    for (uint32_t g = 0; g < r->group; g++) {
        const struct rdzv_round *m = &r->told[g];
        if (r->node[g] < 0) {
            world_violation(w, "round %" PRIu64 ": group rank %u is given to no node", r->round, g);
            return;
        }
        if (w->kind == STATIC_RANKS && r->node[g] != (int) g) {
            world_violation(w, "the node with node rank %d has group rank %u", r->node[g], g);
        }
        uint32_t *role = &next_of_role[r->node[g] % 2], workers = w->nodes[r->node[g]].worker_count;
        if (m->first_rank != next) world_violation(w, "ranks are not contiguous");
        if (m->first_role_rank != *role) world_violation(w, "role ranks are not contiguous");
        next += workers;
        *role += workers;
    }
    for (uint32_t g = 0; g < r->group; g++) {
        const struct rdzv_round *m = &r->told[g];
        if (m->world_size != next) world_violation(w, "ranks do not fill the world");
        if (m->role_world_size != next_of_role[r->node[g] % 2]) {
            world_violation(w, "role ranks do not fill the role");
        }
        if (m->restart_count != r->restart_count || m->group_world_size != r->group ||
            m->master_port != r->port || m->round != r->round) {
            world_violation(w, "node %d has another view of round %" PRIu64, r->node[g], r->round);
        }
    }
}

/* Checks which nodes are in a round. A node of the last round keeps its group rank if the new round
 * has that rank. A spare is taken only if all waiting nodes of the last round are taken. */
static void check_who(struct host *h, const struct round_record *r) {
    const struct history *history = &h->w->history;
    bool spare_in = false, member_out = false;
    for (int i = 0; i < history->candidate_count; i++) {
        const struct candidate *k = &history->candidates[i];
        if (k->rank >= 0 && k->kept_rank < 0) spare_in = true;
        if (k->rank < 0 && k->kept_rank >= 0 && !k->is_aside) member_out = true;
        if (k->rank >= 0 && k->kept_rank >= 0 && k->kept_rank < (int64_t) r->group &&
            k->kept_rank != k->rank) {
            world_violation(h->w, "node %d had group rank %" PRId64 " and gets %" PRId64, k->node,
                            k->kept_rank, k->rank);
        }
    }
    if (spare_in && member_out) {
        world_violation(h->w, "round %" PRIu64 " takes a spare, not a node of the last round",
                        r->round);
    }
}

/* Checks that the settings of the round are those of one of the nodes. (The settings of a job are
 * those of its first node; this check accepts those of any node.) */
static void check_settings(struct host *h, const struct round_record *r) {
    struct world *w = h->w;
    for (int i = 0; i < w->node_count; i++) {
        const struct sim_node *n = &w->nodes[i];
        if (r->min_nodes == (uint32_t) n->min_nodes && r->max_nodes == (uint32_t) n->max_nodes &&
            r->max_restarts == (uint32_t) n->max_restarts) {
            return;
        }
    }
    world_violation(w, "the job has settings that no node has");
}

void check_round_formed(struct host *h) {
    struct world *w = h->w;
    const struct round_record *r = last_record(w);
    h->forming = false;
    for (int i = h->first_formed; i < w->history.round_count; i++) {
        /* the node that came last in this event may have raised the epoch after the round formed */
        w->history.rounds[i].epoch = host_epoch(h);
        supersede_rounds(w, i);
    }
    check_settings(h, r);
    if (r->group < r->min_nodes || r->group > r->max_nodes) {
        world_violation(w, "round %" PRIu64 " has %u nodes", r->round, r->group);
        return;
    }
    if (r->restart_count > r->max_restarts) world_violation(w, "the budget is exceeded");
    check_ranks(h, r);
    check_who(h, r);
    check_aside(h);
    if (w->kind == PAIR_TESTS) pair_tests_check_round(h);
}

/* ---- rounds that a node receives, and the end of the job ---- */

/* Returns the index in history.rounds of the round with this number that this host has formed; -1
 * if the host has formed none. Compares formed_by and not host_id: if another host rebuilds the
 * round before ROUND arrives at a node, host_id is the id of that other host. */
static int find_record(const struct world *w, int host_id, uint64_t round) {
    for (int i = w->history.round_count; i-- > 0;) {
        const struct round_record *r = &w->history.rounds[i];
        if (r->formed_by == host_id && r->round == round) return i;
    }
    return -1;
}

/* Checks the number of kept workers in a round: it is the sum of those that its nodes have told. */
static void check_kept(const struct sim_node *n, struct round_record *r,
                       const struct rdzv_round *m) {
    if (m->kept != r->told[0].kept) {
        world_violation(n->w, "round %" PRIu64 ": nodes hear of different numbers of kept workers",
                        m->round);
    }
    if ((r->heard & 1U << m->group_rank) != 0) return;
    r->heard |= 1U << m->group_rank;
    r->kept += n->kept;
    bool is_whole = r->heard == (1U << r->group) - 1;
    if (is_whole ? r->kept + 1 != m->kept : r->kept + 1 > m->kept) {
        world_violation(n->w, "round %" PRIu64 ": %u workers are kept, and ROUND says 1 plus %u",
                        m->round, r->kept, m->kept);
    }
}

void check_round_heard(struct sim_node *n, const struct rdzv_round *m) {
    struct world *w = n->w;
    int found = find_record(w, n->conn->host_id, m->round);
    if (found < 0) {
        world_violation(w, "node %d hears of a round that was never formed", n->index);
        return;
    }
    struct round_record *r = &w->history.rounds[found];
    if (m->group_rank >= r->group || r->node[m->group_rank] != n->index ||
        r->told[m->group_rank].first_rank != m->first_rank) {
        world_violation(w, "node %d hears something else than was sent", n->index);
        return;
    }
    if (m->restart_count < n->restarts_seen) {
        world_violation(w, "node %d hears of restart %u after restart %u", n->index,
                        m->restart_count, n->restarts_seen);
    }
    if (n->incarnation == m->incarnation && m->round <= n->round) {
        world_violation(w, "node %d hears of round %" PRIu64 " after round %" PRIu64, n->index,
                        m->round, n->round);
    }
    if (m->kept != 0) check_kept(n, r, m);
    n->incarnation = m->incarnation;
    n->record = found;
    n->round = m->round;
    n->group_rank = m->group_rank;
    n->restarts_seen = m->restart_count;
    n->answer = -2;
    n->hung_in = -1;
}

/* Returns the last round that this host has formed or rebuilt; NULL if there is none. */
static const struct round_record *last_record_of(const struct world *w, int host_id) {
    const struct round_record *last = NULL;
    for (int i = 0; i < w->history.round_count; i++) {
        const struct round_record *r = &w->history.rounds[i];
        if (r->host_id == host_id && (last == NULL || r->order > last->order)) last = r;
    }
    return last;
}

bool check_is_last_round(const struct host *h, int record) {
    return record >= 0 && last_record_of(h->w, h->id) == &h->w->history.rounds[record];
}

/* If the node was started again while RESUME was under way, its record is that of the new process,
 * so the fields of RESUME are compared. They do not identify a round as surely as the record: a
 * coordinator that has discarded the job may form a round of the same number again. */
bool check_resumes_last_round(const struct conn *c, const struct rdzv_resume *resume) {
    const struct host *h = c->host;
    const struct sim_node *n = &h->w->nodes[c->node];
    const struct round_record *r = last_record_of(h->w, h->id);
    if (n->up && n->inc == c->node_inc) return check_is_last_round(h, n->record);
    return r != NULL && resume->rounds_seen == r->round + 1 &&
           resume->formed_by == (uint64_t) r->formed_by;
}

/* Checks the outcome of the job that a node receives. The outcome may be success only if the
 * workers of all nodes of the last round have succeeded. */
void check_end_heard(struct sim_node *n, int outcome) {
    struct world *w = n->w;
    if (n->ended) world_violation(w, "node %d hears of the end twice", n->index);
    if (outcome != RENDEZVOUS_SUCCEEDED) return;
    const struct round_record *r = last_record_of(w, n->conn->host_id);
    if (r == NULL || r->succeeded != (1U << r->group) - 1) {
        world_violation(w, "node %d hears of a success that is none", n->index);
    }
}

/* ---- reports of a node (failure, success, JOIN, READY), and charged restarts ---- */

/* Checks a node's report of a failure: either a worker has failed by itself, or a worker has parked
 * without a reason and so has broken the round. A worker that a signal of its agent ended has not
 * failed. */
void check_failure_told(struct sim_node *n) {
    bool right = n->failures > 0 || (n->node.is_hung && n->hung_in == n->record);
    for (uint32_t i = 0; n->node.is_broken && i < n->worker_count; i++) {
        const struct sim_worker *k = &n->workers[i];
        if (i == n->node.gave_up && (k->waits || !k->alive)) right = true;
    }
    if (!right) world_violation(n->w, "node %d reports a failure that was none", n->index);
    if (n->failed_told) world_violation(n->w, "node %d reports two failures", n->index);
    n->failed_told = true;
}

/* Checks a node's report of success: all workers must have ended with exit code 0. A worker that
 * ended because of a change has not completed its program, so its exit is no success. */
void check_success_told(struct sim_node *n) {
    for (uint32_t i = 0; i < n->worker_count; i++) {
        const struct sim_worker *k = &n->workers[i];
        if (k->alive || k->exit_code != 0 || atomic_load(&k->page.stopped_for) != 0) {
            world_violation(n->w, "node %d reports success, but worker %u has not finished",
                            n->index, i);
        }
    }
}

/* Checks a node's JOIN, by which the node requests the next round: no process of the node's last
 * round may live, except parked workers. */
void check_join(struct sim_node *n) {
    if (n->node.notice.given) {
        world_violation(n->w, "node %d joins after it gave notice", n->index);
    }
    if (n->stopping) world_violation(n->w, "node %d joins while processes live", n->index);
    if (n->node.change.id != 0) {
        world_violation(n->w, "node %d joins and still takes part in a change", n->index);
    }
    for (uint32_t i = 0; i < n->worker_count; i++) {
        const struct sim_worker *k = &n->workers[i];
        if (k->alive && !k->waits) {
            world_violation(n->w, "node %d joins while worker %u runs", n->index, i);
        }
        if (!k->reported && !k->alive) {
            world_violation(n->w, "node %d joins with the dead worker %u", n->index, i);
        }
    }
}

/* Checks a node's READY for a change: every live worker that has received the agreed step must have
 * made that step, unless it counted no steps while others had made two or more. */
void check_ready(struct sim_node *n, uint64_t change) {
    for (uint32_t i = 0; i < n->worker_count; i++) {
        const struct sim_worker *k = &n->workers[i];
        if (!k->alive || k->change != change || k->agreed == 0) continue;
        if (k->agreed > 2 && !k->had_begun) continue;
        if (atomic_load(&k->page.stopped_for) == change) continue;
        world_violation(n->w, "node %d is ready, but worker %u has not made the step", n->index, i);
    }
}

static bool is_in_record(const struct round_record *r, int node) {
    for (uint32_t g = 0; g < r->group; g++) {
        if (r->node[g] == node) return true;
    }
    return false;
}

void check_node_gone(struct host *h, const struct conn *c) {
    if (h->failed_record < 0) return;
    if (is_in_record(&h->w->history.rounds[h->failed_record], c->node)) h->failure_excused = true;
}

/* Returns whether the coordinator must know that node `n` was gone when the first worker failed,
 * and that `n` is still gone. `ended` says whether the failure has ended the job. If two signals
 * end a node (ends_in_pieces), its worker may die before its launcher gets the second signal. The
 * coordinator waits KILLED_TIME for such a node before it ends the job, unless no other node is
 * left. It does not wait before it charges a restart, because it can refund the restart later. */
static bool is_gone(const struct host *h, const struct round_record *r, const struct sim_node *n,
                    bool ended) {
    bool is_awaited = ended && !h->failed_alone && host_now(h) < h->failed_at + KILLED_TIME;
    if (n->ends_in_pieces && !is_awaited) return false;
    return n->gone_at <= r->failed_at && (!n->up || n->record == h->failed_record);
}

/* Call this when a failure was charged. A failure that was caused only by nodes that are gone must
 * not be charged. So this function checks that a worker failed by itself, or that a node that
 * seemed to be gone has come back. */
static void check_cause(const struct host *h, bool ended) {
    struct world *w = h->w;
    const struct round_record *r = &w->history.rounds[h->failed_record];
    if (r->failed_by_itself) return;
    if (h != &w->hosts[w->leader]) return; /* this host was stalled, and does not know yet that it
                                            * no longer leads */
    for (int i = 0; i < w->node_count; i++) {
        if ((r->symptoms_of & 1U << i) != 0 && !is_gone(h, r, &w->nodes[i], ended)) return;
    }
    world_violation(w, "round %" PRIu64 " is charged, but only nodes that are gone made it fail",
                    r->round);
}

static bool has_newer_record(const struct host *h) {
    const struct history *history = &h->w->history;
    if (h->failed_record < 0) return false;
    return last_record_of(h->w, h->id) != &history->rounds[h->failed_record];
}

/* Checks what the failure of the last round has cost, once the next round has formed or the job has
 * ended. A failure costs one restart, or none if a node of the failed round has left or was lost
 * after the failure. */
static void check_decision(struct host *h, uint32_t charged,
                           const struct coordinator_view *after) {
    struct world *w = h->w;
    bool ended = after->phase == COORDINATOR_ENDED && after->outcome == RENDEZVOUS_FAILED;
    if (charged > 1) world_violation(w, "a round costs %u restarts", charged);
    bool lost_too_often = after->max_losses >= 0 && after->losses > after->max_losses;
    /* One event of the coordinator can form the next round, for which the restart is charged, and
     * also end that round and the job because of a loss. */
    if (ended && charged > 0 && !(lost_too_often && has_newer_record(h))) {
        world_violation(w, "a restart is charged to a job that has ended");
    }
    bool is_final = w->history.rounds[h->failed_record].is_final;
    if (h->failure_is_final && charged > 0) world_violation(w, "a final failure is charged");
    if (ended && is_final) w->totals.final++;
    if (ended && after->restart_count < after->max_restarts && !lost_too_often && !is_final) {
        world_violation(w, "the job has failed, but has restarts left");
    }
    if (after->phase != COORDINATOR_ENDED && charged == 0 && !h->failure_excused) {
        world_violation(w, "a failure is not charged");
    }
    if (charged == 0 && !ended) w->totals.excused++;
    if (charged > 0 || (ended && !lost_too_often)) check_cause(h, ended);
    w->totals.charged += charged;
    h->failed_record = -1;
}

/* Returns whether a node has closed a connection on which it still has a seat at the host `h`,
 * because the host does not know of the close yet. */
static bool has_seat_of_closed_connection(const struct host *h) {
    for (const struct conn *c = h->w->conns; c != NULL; c = c->next) {
        if (c->host == h && c->host_id == h->id && c->seat != NULL && !c->node_open) return true;
    }
    return false;
}

/* Returns whether a worker runs in the round with this index in history.rounds. */
static bool has_workers(const struct world *w, int record) {
    for (int i = 0; i < w->node_count; i++) {
        for (uint32_t k = 0; k < w->nodes[i].worker_count; k++) {
            const struct sim_worker *worker = &w->nodes[i].workers[k];
            if (worker->alive && !worker->waits && worker->record == record) return true;
        }
    }
    return false;
}

/* Returns whether the round with this index may be rebuilt. It may if no other round has superseded
 * it. It also may if all rounds that have superseded it were of other runs, and no worker is left
 * in them: if the last node of such a run leaves, and a node of the older run comes before its
 * lease is over, the coordinator goes on with the older run. */
static bool may_be_rebuilt(const struct world *w, int record) {
    const struct round_record *r = &w->history.rounds[record];
    if (r->superseded_at == CR_FOREVER) return true;
    for (int i = 0; i < w->history.round_count; i++) {
        const struct round_record *other = &w->history.rounds[i];
        bool is_older = i < record ? !is_of_newer_coordinator(w, other, r)
                                   : is_of_newer_coordinator(w, r, other);
        if (i == record || is_older) continue;
        if (other->incarnation == r->incarnation || has_workers(w, i)) return false;
    }
    return true;
}

/* Returns the index in history.rounds of the round that this host's coordinator has just rebuilt:
 * the last round of a node that has a seat. Returns -1 if none of these rounds may be rebuilt. */
static int find_rebuilt(const struct host *h, const struct coordinator_view *after) {
    const struct world *w = h->w;
    for (const struct conn *c = w->conns; c != NULL; c = c->next) {
        const struct sim_node *n = &w->nodes[c->node];
        bool has_seat = c->host == h && c->host_id == h->id && c->seat != NULL;
        if (!has_seat || c->node_inc != n->inc || n->record < 0) continue;
        const struct round_record *r = &w->history.rounds[n->record];
        bool is_it = r->round + 1 == after->next_round && r->incarnation == after->incarnation;
        if (is_it && may_be_rebuilt(w, n->record)) return n->record;
    }
    return -1;
}

/* If a new coordinator has just rebuilt the round of an earlier coordinator, records the round as
 * one of the new coordinator's host. */
static void note_rebuilt(struct host *h, const struct coordinator_view *before,
                         const struct coordinator_view *after) {
    struct world *w = h->w;
    if (before->group_world_size != 0 || after->group_world_size == 0 || h->forming) return;
    int record = find_rebuilt(h, after);
    if (record < 0) {
        /* RESUME can arrive after its node has closed the connection and has been in a later round.
         * When the host learns of the close, it ends the rebuilt round. Also, a former leader that
         * was stalled may rebuild an old round, because it does not know yet that it is deposed. */
        if (!has_seat_of_closed_connection(h) && h == &w->hosts[w->leader]) {
            world_violation(w, "a round is rebuilt that is not the newest");
        }
        return;
    }
    struct round_record *r = &w->history.rounds[record];
    for (int k = 0; k < HOSTS_MAX; k++) {
        struct host *other = &w->hosts[k];
        if (other != h && other->id == r->host_id) other->is_superseded = true;
    }
    r->superseded_at = CR_FOREVER;
    r->order = ++w->history.orders;
    r->host_id = h->id;
    r->epoch = host_epoch(h);
    r->is_rebuilt = true;
    w->totals.rebuilt++;
    story(w, "host %d: has rebuilt record %d", h->id, record);
}

/* In a schedule whose only faults are resets and short restarts of the host, no node and no
 * coordinator may count as lost. In such a schedule, checks that the node is not stopped for that
 * reason. */
void check_stop_heard(struct sim_node *n, const char *why) {
    bool is_loss = strstr(why, "was lost: ") != NULL || strstr(why, "lost the coord") != NULL;
    const struct host *h = &n->w->hosts[n->w->leader];
    bool host_leaves = n->w->host_with_node >= 0 && (!h->up || h->terms->closing != NULL);
    if (host_leaves) return;
    for (int i = 0; i < n->w->node_count; i++) {
        if (n->w->nodes[i].gone_at != CR_FOREVER) return; /* a node has really left */
    }
    if (!n->w->only_resets || !is_loss || member_state(n->member) == MEMBER_LEAVING) return;
    world_violation(n->w, "node %d is stopped by a reset: %s", n->index, why);
}

bool ends_the_job(uint32_t blame) {
    return blame == RENDEZVOUS_FINAL || blame == RENDEZVOUS_FINAL_KILLED;
}

static void note_failure(struct host *h, const struct coordinator_view *before,
                         const struct coordinator_view *after, const struct rdzv_message *m) {
    const struct round_record *last = last_record_of(h->w, h->id);
    bool resumes_failed = m != NULL && m->type == RDZV_RESUME &&
                          m->resume.part == RDZV_PART_FAILED;
    bool is_failed = m != NULL && m->type == RDZV_FAILED;
    uint64_t round = is_failed ? m->failed.round : resumes_failed ? m->resume.rounds_seen - 1 : 0;
    /* If the coordinator finds in this event that it has lost the majority, it ends the round for
     * that reason before it handles the message, and a failure after the end of a round costs
     * nothing. */
    bool lost_majority = !before->lacks_majority && after->lacks_majority;
    if ((!is_failed && !resumes_failed) || before->phase != COORDINATOR_RUNNING) return;
    if (lost_majority) return;
    if (last == NULL || round != last->round) return;
    h->failed_record = (int) (last - h->w->history.rounds);
    h->failed_at = host_now(h);
    h->failed_alone = before->seats == 1;
    h->failure_excused = last->is_rebuilt;
    h->failure_is_final = ends_the_job(is_failed ? m->failed.blame : m->resume.blame);
}

/* Checks the count of losses: it grows by one at most in one event, and no round begins when it is
 * above the limit. */
static void check_losses(struct host *h, const struct coordinator_view *before,
                         const struct coordinator_view *after) {
    bool is_over = after->max_losses >= 0 && after->losses > after->max_losses;
    bool begins = before->phase == COORDINATOR_FORMING && after->phase == COORDINATOR_RUNNING;
    if (after->losses > before->losses + 1) world_violation(h->w, "a round costs two losses");
    if (is_over && begins) world_violation(h->w, "a round begins after too many losses");
    if (is_over && before->phase != COORDINATOR_ENDED && after->phase == COORDINATOR_ENDED) {
        h->w->totals.out_of_losses++;
    }
}

/* Checks the coordinator's count of restarts after each of its events. The count may grow in two
 * cases only: a round forms after a failed round, or a JOIN or RESUME tells a new coordinator the
 * count that the node remembers. */
void check_charge(struct host *h, const struct coordinator_view *before,
                  const struct coordinator_view *after, const struct rdzv_message *m) {
    struct world *w = h->w;
    uint32_t known = before->restart_count, known_spent = before->spent, seen = 0;
    if (m != NULL && m->type == RDZV_JOIN) seen = m->join.restarts_seen;
    if (m != NULL && m->type == RDZV_RESUME) seen = m->resume.restarts_seen;
    if (h->is_superseded) return;
    check_losses(h, before, after);
    note_rebuilt(h, before, after);
    if (seen > known && seen <= after->restart_count) {
        known = known_spent = seen;
        if (known > w->history.top_restarts) {
            world_violation(w, "a node remembers a restart that never was");
        }
    }
    if (before->phase != COORDINATOR_EMPTY && after->phase == COORDINATOR_EMPTY) {
        h->failed_record = -1; /* the coordinator's last node is gone, so its counts begin again at
                                * 0 */
        return;
    }
    if (m != NULL && (m->type == RDZV_JOIN || m->type == RDZV_RESUME) &&
        after->incarnation != before->incarnation) {
        /* the coordinator has taken over the run of the job that the message names, with the count
         * of restarts that the message names */
        known = known_spent = m->type == RDZV_JOIN ? m->join.restarts_seen
                                                   : m->resume.restarts_seen;
    }
    note_failure(h, before, after, m);
    /* A coordinator without the majority decides what a failure costs when all nodes are back; then
     * its next round is held. But if the coordinator loses one of these nodes in the same event,
     * the round is not held after the event, and was_held is true instead. */
    bool was_held = before->lacks_majority && after->seats < before->seats &&
                    after->spent > known_spent;
    bool is_decided = after->phase == COORDINATOR_ENDED || after->is_held || was_held ||
                      has_newer_record(h);
    /* `spent` counts only the restarts that were not refunded, restart_count counts all. If the
     * coordinator has taken over another run, its counts are those of that run. */
    bool is_refund = after->spent < before->spent && after->incarnation == before->incarnation;
    if (is_refund) w->totals.refunded++;
    if (is_refund && before->spent - after->spent > 1) world_violation(w, "two restarts refunded");
    if (after->spent != known_spent && !is_refund && (h->failed_record < 0 || !is_decided)) {
        world_violation(w, "a restart is charged without a failure");
    }
    if (h->failed_record >= 0 && is_decided) check_decision(h, after->spent - known_spent, after);
    if (after->restart_count > w->history.top_restarts) {
        w->history.top_restarts = after->restart_count;
    }
    if (m != NULL && m->type == RDZV_JOIN && after->phase != COORDINATOR_ENDED &&
        after->seats > before->seats && after->restart_count < m->join.restarts_seen) {
        world_violation(w, "the coordinator forgets restarts");
    }
}

/* ---- changes ---- */

static struct change_record *find_change(struct world *w, int host_id, uint64_t id) {
    for (int i = w->history.change_count; i-- > 0;) {
        struct change_record *r = &w->history.changes[i];
        if (r->host_id == host_id && r->id == id) return r;
    }
    return NULL;
}

/* Records a change and the time at which it must be over. Workers may request more time than the
 * notice only if the change lets a node join. */
void check_change_announced(struct host *h, const struct rdzv_change *m) {
    struct world *w = h->w;
    bool may_extend = m->kind == RENDEZVOUS_CHANGE_JOIN;
    if (find_change(w, h->id, m->id) != NULL) return;
    CR_ASSERT(w->history.change_count < CHANGES_MAX);
    w->history.changes[w->history.change_count++] =
        (struct change_record){.host_id = h->id, .id = m->id, .top_answer = -1};
    h->change_until = host_now(h) + m->left_ms + (may_extend ? NEEDS_MAX : 0);
    w->totals.changes++;
}

void check_change_answered(struct host *h, const struct rdzv_change_answer *m) {
    struct change_record *r = find_change(h->w, h->id, m->id);
    if (r != NULL && r->step == 0 && m->step > r->top_answer) r->top_answer = m->step;
}

/* Checks that all nodes receive the same agreed step, and that this step is the largest step in the
 * nodes' answers plus one. */
void check_change_set(struct host *h, const struct rdzv_change_at *m) {
    struct world *w = h->w;
    struct change_record *r = find_change(w, h->id, m->id);
    if (r == NULL) {
        world_violation(w, "change %" PRIu64 " has a step, but was never announced", m->id);
    } else if (r->step == 0) {
        r->step = m->step;
        w->totals.agreed++;
        if (m->step != (uint64_t) r->top_answer + 1) {
            world_violation(w, "change %" PRIu64 " is set to step %" PRIu64 ", the furthest is at %"
                            PRId64, m->id, m->step, r->top_answer);
        }
    } else if (r->step != m->step) {
        world_violation(w, "change %" PRIu64 " has two steps, %" PRIu64 " and %" PRIu64, m->id,
                        r->step, m->step);
    }
}

static void check_change_is_over_in_time(struct host *h) {
    struct coordinator_view v;
    if (!h->up || h->stalled_until != 0 || h->change_until == CR_FOREVER) return;
    if (host_now(h) <= h->change_until + KILL_TIME) return;
    jobs_look(h, &v);
    if (v.phase == COORDINATOR_RUNNING) {
        world_violation(h->w, "a change is not over %" PRId64 " ms after its time",
                        host_now(h) - h->change_until);
    }
    h->change_until = CR_FOREVER;
}

/* ---- workers ---- */

/* A node without a lease must end its workers. So this checks that no worker runs in a superseded
 * round for longer than a lease. A parked worker does not count as running. */
static void check_superseded(struct sim_node *n, const struct sim_worker *k) {
    struct world *w = n->w;
    int64_t since = w->history.rounds[k->record].superseded_at;
    if (since == CR_FOREVER || k->waits || n->ended) return;
    if (w->now > since + LEASE + LEASE / 10 + SLACK) {
        world_violation(w, "node %d runs record %d, superseded for %" PRId64 " ms", n->index,
                        k->record, w->now - since);
    }
}

/* Checks that the node counts no more failed workers in this round than have failed. A worker that
 * a signal of its agent ended has not failed. */
static void check_failure_count(struct sim_node *n) {
    if (n->node.group.failures > n->failures + (n->node.is_broken || n->node.is_hung ? 1 : 0)) {
        world_violation(n->w, "node %d counts %u failures, there were %u", n->index,
                        n->node.group.failures, n->failures);
    }
}

/* Checks that the node's record of a worker (struct node_worker) agrees with the state of the
 * simulated process. */
static void check_belief(struct sim_node *n, uint32_t i) {
    const struct sim_worker *k = &n->workers[i];
    enum worker_state state = n->node.workers[i].state;
    bool kept = state == WORKER_KEPT || state == WORKER_PARKED;
    if (k->kept != kept) {
        world_violation(n->w, "node %d, worker %u: %s, but kept is %d", n->index, i,
                        worker_state_name(state), k->kept);
    }
    if (state == WORKER_PARKED && k->alive && !k->waits) {
        world_violation(n->w, "node %d, worker %u is parked and runs", n->index, i);
    }
    if (state == WORKER_RUNNING && k->alive && k->record != n->record) {
        world_violation(n->w, "node %d, worker %u runs in an old round", n->index, i);
    }
    if (kept && n->node.notice.given && n->node.group.state == GROUP_STOPPING) {
        world_violation(n->w, "node %d leaves and keeps worker %u", n->index, i);
    }
    if (state == WORKER_ABSENT && k->alive) {
        world_violation(n->w, "node %d, worker %u is forgotten and lives", n->index, i);
    }
}

/* ---- time limits of the states of workers and nodes ---- */

static bool is_late(int64_t now, int64_t limit) {
    return limit != CR_FOREVER && now > limit + SLACK;
}

static void check_worker_limit(struct sim_node *n, uint32_t i, int64_t now) {
    const struct node_worker *k = &n->node.workers[i];
    if (is_late(now, k->until_ms)) {
        world_violation(n->w, "node %d, worker %u is %s for too long; limit: %s", n->index, i,
                        worker_state_name(k->state), worker_state_limit(k->state));
    }
    if (k->state == WORKER_KEPT && k->until_ms == CR_FOREVER) {
        world_violation(n->w, "node %d, worker %u is kept without a limit", n->index, i);
    }
    if (k->state == WORKER_HUNG && k->until_ms == CR_FOREVER &&
        n->workers[i].dies_at == CR_FOREVER) {
        world_violation(n->w, "node %d, worker %u hangs without a limit", n->index, i);
    }
}

static void check_node_limits(struct sim_node *n, int64_t now) {
    const struct node *node = &n->node;
    bool in_round = node->group.state == GROUP_RUNNING || node->group.state == GROUP_WAITING;
    if (node->group.state == GROUP_STOPPING && is_late(now, node->group.kill_at_ms)) {
        world_violation(n->w, "node %d is STOPPING for too long; limit: %s", n->index,
                        group_state_limit(GROUP_STOPPING));
    }
    if (node->group.state == GROUP_STOPPING && node->group.kill_at_ms > now + STOP_TIME) {
        world_violation(n->w, "node %d has more time to stop than any node", n->index);
    }
    if (in_round && n->gave_notice && n->w->now > n->notice_until + DRIFT) {
        world_violation(n->w, "node %d has not left by its deadline", n->index);
    }
    if (node->group.state == GROUP_RUNNING && is_late(now, node->patience_until_ms)) {
        world_violation(n->w, "node %d is patient for too long", n->index);
    }
}

/* Checks the time limits of a node. A stalled agent cannot act in time; so the limits are not
 * checked while the agent is stalled, nor shortly after it runs again. */
static void check_limits(struct sim_node *n) {
    struct world *w = n->w;
    if (w->now < n->resumed_at + SLACK || (n->up && n->stalled_until != 0)) return;
    int64_t now = node_now(n);
    for (uint32_t i = 0; i < n->worker_count; i++) {
        if (n->up) check_worker_limit(n, i, now);
        if (n->workers[i].alive) check_superseded(n, &n->workers[i]);
    }
    if (n->up) check_node_limits(n, now);
}

/* Checks the state of `touched`, the node to which the event happened; the event has changed no
 * other node's state. Checks the time limits of all nodes and hosts once in CHECK_EVERY ms. */
void check_step(struct world *w, struct sim_node *touched) {
    for (uint32_t i = 0; touched != NULL && touched->up && i < touched->worker_count; i++) {
        check_belief(touched, i);
    }
    if (touched != NULL && touched->up) check_failure_count(touched);
    if (w->now < w->checked_at + CHECK_EVERY) return;
    w->checked_at = w->now;
    for (int i = 0; i < HOSTS_MAX; i++) check_change_is_over_in_time(&w->hosts[i]);
    if (w->kind == HANGS) hangs_check(w);
    for (int i = 0; i < w->node_count; i++) check_limits(&w->nodes[i]);
}

/* ---- the end of a schedule ---- */

static bool has_round(const struct sim_node *n) {
    return n->node.group.state == GROUP_RUNNING || n->node.group.state == GROUP_WAITING;
}

/* Returns whether a node has never reached a coordinator. In a job with heirs this can happen: if
 * the host at the endpoint is lost, new nodes do not know where the heir is. */
static bool is_stranded(const struct sim_node *n) { return n->w->heirs && !n->was_welcomed; }

/* Call this long after the last fault. Checks the job: either as many nodes as possible are in one
 * round, or the job has ended and no launcher runs any more. */
void check_calm(struct world *w) {
    struct coordinator_view v;
    const struct host *h = &w->hosts[w->leader];
    if (!h->up || w->has_two_runs) return;
    jobs_look(h, &v);
    int live = 0, running = 0;
    bool ending = false;
    for (int i = 0; i < w->node_count; i++) {
        const struct sim_node *n = &w->nodes[i];
        if (!n->up || is_stranded(n)) continue;
        live++;
        if (!has_round(n)) continue;
        running++;
        /* Once a node has reported success, the coordinator lets no further node join. */
        ending = ending || w->history.rounds[n->record].succeeded != 0;
    }
    if (v.phase == COORDINATOR_ENDED) {
        if (live > 0) world_violation(w, "the job has ended, but %d nodes do not know", live);
        return;
    }
    int min_nodes = v.phase == COORDINATOR_EMPTY ? w->min_nodes : (int) v.min_nodes;
    int max_nodes = v.phase == COORDINATOR_EMPTY ? w->max_nodes : (int) v.max_nodes;
    if (live < min_nodes) return;
    live -= (int) v.in_state[SEAT_ASIDE];
    /* while there are enough others, nodes that were at fault are not tested again */
    if (w->kind == PAIR_TESTS && running >= min_nodes) live -= (int) v.in_state[SEAT_UNFIT];
    if (live < min_nodes || w->now < v.backoff_until_ms) return;
    int want = live < max_nodes ? live : max_nodes;
    /* A rebuilt round keeps all its nodes. The coordinator that has rebuilt it has the settings of
     * the first node that resumed, and this node's --nnodes may allow fewer nodes. */
    if (w->kind == SETTINGS_DIFFER && running > want) want = running;
    if (v.phase != COORDINATOR_RUNNING || (running != want && !ending)) {
        world_violation(w, "no rest: phase %s, %d of %d nodes run (%d wanted)",
                        coordinator_phase_name(v.phase), running, live, want);
    }
}

/* Checks, after all workers have succeeded, that every launcher has received the success of the job
 * and has ended. */
void check_finished(struct world *w) {
    struct coordinator_view v;
    const struct host *h = &w->hosts[w->leader];
    if (!h->up || w->has_two_runs) return;
    jobs_look(h, &v);
    for (int i = 0; i < w->node_count; i++) {
        const struct sim_node *n = &w->nodes[i];
        if (!n->up || is_stranded(n) || v.phase == COORDINATOR_EMPTY) continue;
        if (v.phase == COORDINATOR_FORMING && n->node.group.state == GROUP_JOINING) continue;
        world_violation(w, "all have succeeded, but node %d does not know", i);
    }
}
