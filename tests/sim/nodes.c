/* A simulated node: the real code of agent/node, the real member and the real session. This file
 * connects them in the same way as agent.c and rendezvous.c do, but without libuv. */
#include "tests/sim/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct host *own_host(const struct sim_node *n) {
    return n->index == n->w->host_with_node ? &n->w->hosts[0] : NULL;
}

/* ---- struct node_actions: what the node requests of the rendezvous ---- */

/* Makes the health check of a node that is about to join. In a quarter of the schedules some of
 * these checks fail, and the node passes its check some time later. The other schedules draw no
 * number here, so that the seeds which have found errors still stand for the same schedules. */
static void check_health(struct sim_node *n) {
    struct world *w = n->w;
    bool is_sick = w->seed % 4 == 0 && !w->calm && rnd(w, 100) < 8;
    member_set_unfit(n->member, is_sick ? "a simulated fault" : "");
    if (!is_sick) return;
    story(w, "node %d: is not fit", n->index);
    w->totals.unfit++;
    world_push(w, (struct event){.at = w->now + 10 + rnd(w, 2000), .type = EV_HEALED,
                                 .node = n->index, .inc = n->inc});
}

void node_healed(struct sim_node *n) {
    story(n->w, "node %d: is fit again", n->index);
    member_set_unfit(n->member, "");
}

static void do_join(void *arg) {
    struct sim_node *n = arg;
    check_join(n);
    check_health(n);
    n->kept = node_parked_workers(&n->node);
    member_join(n->member, node_now(n), n->kept);
}

static void do_failed(void *arg, uint64_t round, enum rendezvous_blame blame) {
    struct sim_node *n = arg;
    story(n->w, "node %d: a worker failed", n->index);
    check_failure_told(n);
    if (ends_the_job(blame)) n->w->history.rounds[n->record].is_final = true;
    if (n->node.is_broken || n->node.is_hung) {
        n->w->history.rounds[n->record].failed_by_itself = true;
    }
    member_failed(n->member, node_now(n), round, "rank 0: exit code 1", blame);
}

static void do_succeeded(void *arg, uint64_t round) {
    struct sim_node *n = arg;
    story(n->w, "node %d: all workers ended well", n->index);
    check_success_told(n);
    n->w->history.rounds[n->record].succeeded |= 1U << n->group_rank;
    member_succeeded(n->member, node_now(n), round);
}

static void do_leave(void *arg) {
    struct sim_node *n = arg;
    struct host *own = own_host(n);
    story(n->w, "node %d: leaves", n->index);
    n->w->totals.left++;
    member_leave(n->member, node_now(n), "it was told to end");
    if (n->w->heirs) {
        if (own != NULL) host_retire(own);
        host_retire(host_of_heir(n));
        return;
    }
    if (own != NULL) host_abandon(own, "its node leaves");
}

static void do_notice(void *arg, enum rendezvous_change_kind kind, int64_t left_ms,
                      const char *why) {
    struct sim_node *n = arg;
    member_notice(n->member, node_now(n), (uint32_t) kind, left_ms, why);
}

static void do_change_answer(void *arg, uint64_t id, int64_t step, int64_t needs_ms) {
    struct sim_node *n = arg;
    story(n->w, "node %d: is at step %" PRId64, n->index, step);
    n->answer = step;
    member_change_answer(n->member, id, step, needs_ms);
}

static void do_change_ready(void *arg, uint64_t id) {
    struct sim_node *n = arg;
    story(n->w, "node %d: is ready", n->index);
    check_ready(n, id);
    member_change_ready(n->member, id);
}

/* The action `finish`: all workers have ended. The launcher ends after this event. */
static void do_finish(void *arg) {
    struct sim_node *n = arg;
    n->finished = true;
    if (workers_any_alive(n)) world_violation(n->w, "node %d ends before its workers", n->index);
}

static void do_log(void *arg, enum cr_log_level level, const char *text) {
    struct sim_node *n = arg;
    (void) level;
    story(n->w, "node %d: %s", n->index, text);
}

static const struct node_actions node_actions = {
    .start = workers_start, .hand_over = workers_hand_over, .stop = workers_stop,
    .keep = workers_keep, .signal = workers_signal, .kill_hung = workers_kill_hung,
    .is_dead = workers_is_dead, .send_packet = workers_send_packet, .ask_dump = workers_ask_dump,
    .read_page = workers_read_page, .join = do_join, .failed = do_failed,
    .succeeded = do_succeeded, .leave = do_leave, .notice = do_notice,
    .change_answer = do_change_answer, .change_ready = do_change_ready, .finish = do_finish,
    .log = do_log};

/* ---- struct member_actions: what the member requests of its node ---- */

static void do_connect(void *arg) {
    struct sim_node *n = arg;
    n->conn = network_connect(n);
}

static void flush(struct sim_node *n) {
    if (n->conn != NULL) network_send(n->conn, TO_HOST, &n->session.out);
    else cr_buffer_clear(&n->session.out);
}

static void do_send(void *arg, const struct rdzv_message *m) {
    struct sim_node *n = arg;
    struct rdzv_message out = *m;
    uint32_t port = n->w->heirs ? (uint32_t) (HEIR_PORT + n->index) : 0;
    if (m->type == RDZV_JOIN) out.join.heir_port = port;
    if (m->type == RDZV_RESUME) out.resume.heir_port = port;
    CR_ASSERT(member_session_send(&n->session, &out) == 0);
}

static void do_aim(void *arg, const char *addr, uint16_t port) {
    struct sim_node *n = arg;
    (void) addr;
    n->aim = port == 0 ? &n->w->hosts[0] : &n->w->hosts[1 + port - HEIR_PORT];
}

static void do_lead(void *arg, uint64_t epoch) {
    struct sim_node *n = arg;
    n->w->totals.takeovers++;
    host_lead(host_of_heir(n), epoch);
}

static void do_hang_up(void *arg) {
    struct sim_node *n = arg;
    n->avoids_relay = n->conn != NULL && n->session.state != MEMBER_SESSION_WELCOMED;
    member_session_close(&n->session, "this end hung up");
    flush(n);
    if (n->conn != NULL) {
        network_close(n->conn, TO_HOST);
        n->conn->failed = true; /* node_connected() and node_refused() ignore the connection from
                                 * now on */
    }
}

/* Call this when ROUND comes. Like way_follow(), it tells the hosts in this node's own launcher
 * which node leads the job, so that a host which has taken over but does not lead ends its
 * coordinator. */
static void follow(struct sim_node *n) {
    const char *addr;
    uint16_t port;
    if (!n->w->heirs || !member_leader_at(n->member, &addr, &port)) return;
    struct host *at = n->conn->host, *own = own_host(n), *heir = host_of_heir(n);
    int leader = port != 0 ? port - HEIR_PORT : -1; /* -1: the host at the endpoint */
    if (own != NULL && port != 0) host_follow(own, n->session.epoch, leader);
    if (at != heir) host_follow(heir, n->session.epoch, leader);
}

static void on_round(void *arg, const struct rdzv_round *r) {
    struct sim_node *n = arg;
    story(n->w, "node %d: round %" PRIu64 ", group rank %u of %u, restart %u", n->index, r->round,
          r->group_rank, r->group_world_size, r->restart_count);
    if (workers_any_alive(n) && n->node.group.parked == 0) {
        world_violation(n->w, "node %d gets a round while workers run", n->index);
    }
    check_round_heard(n, r);
    n->pair_id = 0;
    if (n->w->kind == HANGS) hangs_round_begins(n);
    follow(n);
    struct rendezvous_round round = {
        .round = r->round, .restart_count = r->restart_count, .group_rank = r->group_rank,
        .group_world_size = r->group_world_size, .first_rank = r->first_rank,
        .world_size = r->world_size, .first_role_rank = r->first_role_rank,
        .role_world_size = r->role_world_size, .master_port = (uint16_t) r->master_port};
    node_round(&n->node, node_now(n), &round);
}

static void on_stop(void *arg, int64_t grace_max_ms, const char *why) {
    struct sim_node *n = arg;
    story(n->w, "node %d: stop within %" PRId64 ": %s", n->index,
          grace_max_ms == CR_FOREVER ? -1 : grace_max_ms, why);
    check_stop_heard(n, why);
    node_stop(&n->node, node_now(n), grace_max_ms);
}

static void on_end(void *arg, int outcome, const char *why) {
    struct sim_node *n = arg;
    story(n->w, "node %d: end %d: %s", n->index, outcome, why);
    check_end_heard(n, outcome);
    n->ended = true;
    node_end(&n->node, node_now(n), (enum rendezvous_outcome) outcome);
}

static void on_change(void *arg, const struct rdzv_change *m) {
    struct sim_node *n = arg;
    struct rendezvous_change change = {.id = m->id, .kind = (enum rendezvous_change_kind) m->kind,
                                       .left_ms = m->left_ms, .why = m->why};
    if (n->answer != -2) world_violation(n->w, "node %d hears of two changes", n->index);
    node_change(&n->node, node_now(n), &change);
}

static void on_change_at(void *arg, const struct rdzv_change_at *m) {
    struct sim_node *n = arg;
    if (n->answer == -2 || (int64_t) m->step <= n->answer) {
        world_violation(n->w, "node %d, at step %" PRId64 ", is to stop after step %" PRIu64,
                        n->index, n->answer, m->step);
    }
    node_change_at(&n->node, node_now(n), m->id, m->step, m->left_ms);
}

void node_gives_notice(struct sim_node *n, enum rendezvous_change_kind kind, int64_t left_ms) {
    if (!n->gave_notice) n->notice_until = n->w->now + left_ms;
    n->gave_notice = true;
    node_notice(&n->node, node_now(n), kind, left_ms, "notice");
}

static void on_notice(void *arg, const struct rdzv_ask_notice *m) {
    node_gives_notice(arg, (enum rendezvous_change_kind) m->kind, m->left_ms);
}

static void on_inspect(void *arg, uint64_t id, const char *why) {
    (void) why;
    hangs_inspect(arg, id);
}

static void on_hung(void *arg, const struct rdzv_hung *hung) { hangs_heard(arg, hung); }
static void on_pair(void *arg, const struct rdzv_pair *pair) { pair_tests_begin(arg, pair); }

static void on_failure(void *arg, const struct rdzv_failure *failure) {
    (void) arg, (void) failure;
}

static void on_dump(void *arg, const char *why) {
    struct sim_node *n = arg;
    node_dump(&n->node, node_now(n), why);
}

/* Answers an inquiry. A simulated worker is in no process group, so the answer only says that it is
 * complete. */
static void on_ask_progress(void *arg, uint64_t inquiry) {
    struct sim_node *n = arg;
    const struct rdzv_progress last = {.inquiry = inquiry, .is_last = 1, .name = "", .op = ""};
    member_progress(n->member, &last);
}

static void on_behind(void *arg, const struct rdzv_behind *behind) {
    (void) arg;
    (void) behind;
}

static const struct member_actions member_actions = {
    .connect = do_connect, .send = do_send, .hang_up = do_hang_up, .log = do_log,
    .aim = do_aim, .lead = do_lead,
    .on_round = on_round, .on_stop = on_stop, .on_end = on_end, .on_change = on_change,
    .on_change_at = on_change_at, .on_notice = on_notice, .on_dump = on_dump,
    .on_inspect = on_inspect, .on_ask_progress = on_ask_progress, .on_behind = on_behind,
    .on_failure = on_failure, .on_hung = on_hung, .on_pair = on_pair};

/* ---- struct member_session_actions: what the session requests of its node ---- */

static void on_welcome(void *arg, const struct rdzv_welcome *welcome) {
    struct sim_node *n = arg;
    if (n->session.epoch < n->epoch_seen) {
        world_violation(n->w, "node %d obeys an older coordinator", n->index);
    }
    n->epoch_seen = n->session.epoch;
    n->was_welcomed = true;
    member_welcomed(n->member, node_now(n), welcome);
}

static void on_moved(void *arg, const char *addr, uint16_t port) {
    struct sim_node *n = arg;
    story(n->w, "node %d: is sent to %s", n->index, addr);
    member_moved(n->member, node_now(n), addr, port);
}

static int on_message(void *arg, const struct rdzv_message *m, struct cr_error *err) {
    struct sim_node *n = arg;
    int rc = member_receive(n->member, node_now(n), m, err);
    if (rc < 0) world_violation(n->w, "node %d refuses the coordinator: %s", n->index, err->text);
    return rc;
}

static void on_broken(void *arg, const char *why) {
    struct sim_node *n = arg;
    network_close(n->conn, TO_HOST);
    member_disconnected(n->member, node_now(n), RENDEZVOUS_BROKEN, why);
}

static const struct member_session_actions session_actions = {
    .on_welcome = on_welcome, .on_message = on_message, .on_broken = on_broken,
    .on_moved = on_moved, .log = do_log};

/* ---- starts and ends of launchers ---- */

static struct member *new_member(struct sim_node *n) {
    struct world *w = n->w;
    char host[16];
    (void) snprintf(host, sizeof(host), "n%d", n->index);
    struct member_settings s = {
        .where = "host", .local = own_host(n) != NULL && !w->heirs,
        .connect_timeout_ms = 20000, .coordinator_wait_ms = w->wait_ms,
        .self = {.host = host, .addr = host, .pid = (uint64_t) n->inc,
                 .instance = w->heirs ? n->instance : rnd64(w),
                 .role = n->index % 2 ? "odd" : "even",
                 .fixed_ranks = w->kind == STATIC_RANKS,
                 .node_rank = w->kind == STATIC_RANKS ? n->index : -1,
                 .local_world_size = n->worker_count, .min_nodes = (uint32_t) n->min_nodes,
                 .max_nodes = (uint32_t) n->max_nodes,
                 .max_restarts = (uint32_t) n->max_restarts, .join_timeout_ms = w->join_ms,
                 .last_call_timeout_ms = LAST_CALL, .close_timeout_ms = CLOSE_TIME,
                 .skips_last_call = w->skips_last_call,
                 .keep_alive_interval_ms = INTERVAL, .keep_alive_max_attempt = ATTEMPTS,
                 .change_notice_ms = w->notice_ms, .loss_limit = w->loss_limit,
                 .restart_backoff_ms = w->restart_backoff_ms, .flap_limit = w->flap_limit,
                 .flap_window_ms = w->flap_window_ms, .flap_refusal_ms = w->flap_refusal_ms,
                 .aside_after = w->aside_after, .aside_ms = w->aside_ms,
                 .watches = n->watches,
                 .pair_port = n->makes_pairs ? (uint32_t) (PAIR_PORT + n->index) : 0,
                 .pair_timeout_ms = n->makes_pairs ? PAIR_TIME : 0}};
    return member_new(&s, &member_actions, n);
}

void node_start(struct sim_node *n) {
    struct world *w = n->w;
    struct host *own = own_host(n);
    n->instance = (uint64_t) (n->inc + 1) * 100 + (uint64_t) n->index;
    n->was_welcomed = false;
    n->aim = &w->hosts[0];
    if (own != NULL && !own->up) host_start(own);
    if (w->heirs && !host_of_heir(n)->up) host_open_heir(host_of_heir(n));
    struct node_settings settings = {.workers = n->worker_count, .stop_timeout_ms = STOP_TIME,
                                     .policies = n->policies,
                                     .shutdown_timeout_ms = STOP_TIME,
                                     .log_level = w->verbose ? CR_LOG_DEBUG : CR_LOG_OFF};
    n->inc++;
    n->up = true;
    n->ended = n->finished = n->stopping = n->gave_notice = false;
    n->failures = 0;
    n->gone_at = CR_FOREVER;
    n->ends_in_pieces = false;
    n->failed_told = false;
    n->stalled_until = n->resumed_at = 0;
    n->timer_at = n->timer_for = CR_FOREVER;
    n->record = n->hung_in = -1;
    n->pair_id = 0;
    n->restarts_seen = 0;
    n->incarnation = 0;
    n->epoch_seen = 0;
    n->answer = -2;
    n->conn = NULL;
    n->step_limit = chance(w, 50) ? 300 + rnd(w, 500) : 0;
    for (uint32_t i = 0; i < WORKERS_MAX; i++) {
        n->workers[i].reported = true;
        n->workers[i].kept = false;
    }
    CR_ASSERT(node_init(&n->node, &settings, &node_actions, n) == 0);
    member_session_init(&n->session, &session_actions, n);
    n->member = new_member(n);
    story(w, "node %d: up (%d)", n->index, n->inc);
    check_health(n);
    n->kept = 0;
    member_join(n->member, node_now(n), n->kept);
}

static void free_parts(struct sim_node *n) {
    member_free(n->member);
    member_session_done(&n->session);
    node_done(&n->node);
    n->member = NULL;
    n->session = (struct member_session){0};
}

/* Ends a launcher without warning, as a crash does. Its workers die with it. If `silently` is true,
 * the whole machine loses power, so that no connection is closed. */
void node_die(struct sim_node *n, bool silently) {
    struct host *own = own_host(n);
    if (!n->up) return;
    story(n->w, "node %d: dies%s", n->index, silently ? " without a word" : "");
    if (n->gone_at == CR_FOREVER) n->gone_at = n->w->now;
    workers_notice_end_of(n);
    n->up = false;
    n->resumed_at = n->w->now; /* check_limits() checks nothing for SLACK ms from now, in which the
                                * workers die */
    if (n->conn != NULL && silently) n->conn->node_open = false;
    else if (n->conn != NULL) network_close(n->conn, TO_HOST);
    free_parts(n);
    workers_die_with_agent(n, silently);
    if (own != NULL) host_die(own, silently);
    if (n->w->heirs) host_die(host_of_heir(n), silently);
}

/* Call this after the node's state machine has requested the action `finish`: ends the launcher of
 * the node. In some schedules a user starts the launcher again later. */
static void exit_launcher(struct sim_node *n) {
    struct world *w = n->w;
    struct host *own = own_host(n);
    story(w, "node %d: its launcher ends", n->index);
    bool was_ended = n->ended;
    if (n->gone_at == CR_FOREVER) n->gone_at = w->now;
    n->up = false;
    if (n->conn != NULL) network_close(n->conn, TO_HOST);
    free_parts(n);
    if (own != NULL) host_close(own);
    if (w->heirs) host_close(host_of_heir(n));
    if (w->calm || own != NULL || !chance(w, was_ended ? 30 : 80)) return;
    world_push(w, (struct event){.at = w->now + 100 + rnd(w, 2000), .type = EV_NODE_UP,
                                 .node = n->index});
}

/* ---- events ---- */

static int64_t min_ms(int64_t a, int64_t b) { return a < b ? a : b; }

void node_after_event(struct sim_node *n) {
    if (!n->up) return;
    flush(n);
    if (n->finished) {
        exit_launcher(n);
        return;
    }
    int64_t deadline = min_ms(member_deadline(n->member), node_deadline(&n->node));
    if (deadline >= n->timer_for) return;
    int64_t at = clock_when(n->w, deadline, n->offset, n->ppm);
    n->timer_for = deadline;
    if (n->timer_at <= at) return;
    n->timer_at = at;
    world_push(n->w, (struct event){.at = at, .type = EV_NODE_TIMER, .node = n->index,
                                    .inc = n->inc});
}

void node_timer(struct sim_node *n) {
    if (n->timer_at <= n->w->now) n->timer_at = n->timer_for = CR_FOREVER;
    member_tick(n->member, node_now(n));
    node_tick(&n->node, node_now(n));
}

/* Lets a stalled node run again. As in libuv, its timers are handled before the events that arrived
 * during the stall. */
void node_resume(struct sim_node *n) {
    story(n->w, "node %d: goes on", n->index);
    n->resumed_at = n->w->now;
    n->stalled_until = 0;
    node_timer(n);
    world_release(n->w, &n->held);
}

void node_refused(struct conn *c) {
    struct sim_node *n = &c->host->w->nodes[c->node];
    if (n->conn != c || c->failed || c->connected) return;
    c->failed = true;
    n->avoids_relay = true;
    member_disconnected(n->member, node_now(n), RENDEZVOUS_BROKEN, "connection refused");
}

void node_connected(struct conn *c) {
    struct sim_node *n = &c->host->w->nodes[c->node];
    if (n->conn != c || c->failed) return;
    bool is_up = c->relay != NULL ? c->relay->up && c->relay->id == c->relay_id : host_serves(c);
    if (!is_up) {
        node_refused(c);
        return;
    }
    c->connected = c->node_open = true;
    if (c->relay != NULL) {
        c->relay_open = true; /* host_open is set when the relay has attached the node */
    } else {
        c->host_open = true;
        host_connected(c);
    }
    member_session_open(&n->session, n->w->run_id);
}

void node_bytes(struct conn *c, const char *bytes, size_t len) {
    struct sim_node *n = &c->host->w->nodes[c->node];
    if (n->conn != c || !c->node_open || c->is_reset) return;
    member_session_receive(&n->session, bytes, len);
}

void node_closed(struct conn *c, enum rendezvous_loss how) {
    struct sim_node *n = &c->host->w->nodes[c->node];
    if (n->conn != c || !c->node_open) return;
    network_close(c, TO_HOST);
    if (c->relay != NULL) how = RENDEZVOUS_BROKEN; /* the coordinator may still run */
    member_session_close(&n->session, "connection closed");
    cr_buffer_clear(&n->session.out);
    member_disconnected(n->member, node_now(n), how, "connection gone");
}
