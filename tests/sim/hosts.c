/* The simulated processes that host the coordinator of the job. Each process runs the real
 * coordinator, and one real host session for each connection. If coordinators are elected, each
 * start of a host has a higher epoch than the start before. */
#include "tests/sim/world.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

void host_mark(struct conn *c) {
    struct host *h = c->host;
    if (c->is_unsent) return;
    CR_ASSERT(h->unsent_count < sizeof(h->unsent) / sizeof(h->unsent[0]));
    c->is_unsent = true;
    h->unsent[h->unsent_count++] = c;
}

/* ---- struct coordinator_actions: what the coordinator requests of its host ---- */

static void do_send(void *arg, void *peer, const struct rdzv_message *m) {
    struct host *h = jobs_host(arg);
    struct conn *c = peer;
    if (c->host != h) world_violation(h->w, "a coordinator writes to a node of another job");
    if (m->type == RDZV_ROUND) check_round_sent(h, c, &m->round);
    if (m->type == RDZV_CHANGE) check_change_announced(h, &m->change);
    if (m->type == RDZV_CHANGE_AT) check_change_set(h, &m->change_at);
    if (m->type == RDZV_STOP) h->change_until = CR_FOREVER;
    if (m->type == RDZV_ASK_INSPECT) hangs_ask_sent(h, &m->ask_inspect);
    if (m->type == RDZV_HUNG) hangs_hung_sent(h, c, &m->hung);
    if (m->type == RDZV_PAIR) pair_tests_sent(h, c, &m->pair);
    if (relays_keep(c, m)) return;
    host_session_send(&c->session, host_now(h), m);
    host_mark(c);
}

static void do_hang_up(void *arg, void *peer) {
    struct host *h = jobs_host(arg);
    struct conn *c = peer;
    c->seat = NULL;
    c->hung_up_by_lease = true;
    check_node_gone(h, c);
    host_session_hang_up(&c->session, host_now(h));
    host_mark(c);
}

static int do_open_store(void *arg, uint64_t round, struct coordinator_store *out,
                         struct cr_error *err) {
    struct host *h = jobs_host(arg);
    (void) err;
    /* A store is opened only for a new round, so the right to form is needed. (ROUND is also sent
     * once more to a node that has resumed. That needs no right to form, because the round runs
     * already, and does not open a store.) */
    if (!h->may_form) {
        world_violation(h->w, "host %d forms a round without the right to", h->id);
    }
    check_store_opened(h, round);
    (void) snprintf(out->addr, sizeof(out->addr), "10.0.0.1");
    out->port = h->w->history.rounds[h->w->history.round_count - 1].port;
    return 0;
}

static uint64_t do_draw(void *arg) {
    struct host *h = jobs_host(arg);
    return (uint64_t) h->w->now << 32 | (rnd64(h->w) & UINT32_MAX) | 1;
}

static void do_log(void *arg, enum cr_log_level level, const char *text) {
    struct host *h = jobs_host(arg);
    (void) level;
    if (h != NULL) story(h->w, "host %d: %s", h->id, text);
}

static int wants_log(void *arg, enum cr_log_level level) {
    const struct host *h = jobs_host(arg);
    (void) level;
    return h != NULL && h->w->verbose;
}

const struct coordinator_actions host_coordinator_actions = {
    .send = do_send, .hang_up = do_hang_up, .open_store = do_open_store, .draw = do_draw,
    .other_waiting = job_table_other_waiting, .log = do_log, .wants_log = wants_log};

/* ---- jobs that another host leads ---- */

uint64_t host_epoch(const struct host *h) { return job_table_epoch(h->table, h->job); }

static bool decides(const struct host *h) {
    uint64_t epoch;
    return h->up && job_table_leads(h->table, h->w->run_id, &epoch);
}

/* Writes the address of the host of node `leader` as nodes get it; "" = it is not known. */
static const char *address_of(int leader, char text[16]) {
    (void) snprintf(text, 16, leader >= 0 ? "n%d" : "", leader);
    return text;
}

static uint16_t port_of(int leader) { return leader >= 0 ? (uint16_t) (HEIR_PORT + leader) : 0; }

static struct host_session_verdict judge(void *arg, const struct rdzv_hello *hello) {
    struct conn *c = arg;
    c->named_epoch = hello->epoch;
    return job_table_judge(c->host->table, host_now(c->host), hello);
}

struct host *host_of_heir(struct sim_node *n) {
    return n->w->heirs ? &n->w->hosts[1 + n->index] : NULL;
}

void host_open_heir(struct host *h) {
    host_start(h);
    h->terms->leads = false;
}

void host_lead(struct host *h, uint64_t epoch) {
    trace_serve(h);
    host_die(h, false);
    host_start(h);
    h->terms->epoch = epoch;
    world_push(h->w, (struct event){.at = h->w->now + KNOCK_TIME, .type = EV_KNOCK, .node = -1,
                                    .host = h, .host_id = h->id});
}

void host_follow(struct host *h, uint64_t epoch, int leader) {
    if (!h->up) return;
    if (h == h->w->hosts) {
        char addr[16];
        story(h->w, "host %d: the heir of node %d leads", h->id, leader);
        job_table_supersede(h->job, epoch, address_of(leader, addr), port_of(leader));
    } else if (h->terms->leads) {
        host_die(h, false);
        host_open_heir(h);
    }
}

/* If `h` leads the job, reports this to the host at the endpoint, unless the network between the
 * two is cut. Plans the next call of host_knock() in any case. */
void host_knock(struct host *h) {
    struct world *w = h->w;
    struct host *at = &w->hosts[0];
    const struct sim_node *a = &w->nodes[h->owner], *b = &w->nodes[at->owner];
    char addr[16];
    world_push(w, (struct event){.at = w->now + KNOCK_TIME, .type = EV_KNOCK, .node = -1,
                                 .host = h, .host_id = h->id});
    if (!decides(h) || !at->up || at->stalled_until != 0) return;
    if (world_pair_is_cut(w, a->index, at)) return;
    if (a != b && (a->cut[0] || a->cut[1] || b->cut[0] || b->cut[1])) return;
    job_table_hear_leader(at->job, host_epoch(h), address_of(h->owner, addr), port_of(h->owner));
}

void host_retire(struct host *h) {
    if (!h->up) return;
    if (!job_table_retire_own(h->table)) host_abandon(h, "its node leaves");
}

/* ---- struct host_session_actions: what a session requests of its host ---- */

static int on_hello(void *arg, const struct rdzv_hello *hello, struct cr_error *err) {
    return jobs_hello(arg, hello, err);
}

static int on_join(void *arg, const struct rdzv_join *join) {
    struct conn *c = arg;
    struct host *h = c->host;
    struct coordinator_view before, after;
    jobs_look(h, &before);
    c->seat = coordinator_join(h->coordinator, host_now(h), c, conn_is_local(c), join);
    jobs_look(h, &after);
    /* the JOIN has replaced a suspended seat, so the coordinator counts that seat's node as lost */
    if (after.suspended < before.suspended) h->failure_excused = true;
    if (c->seat != NULL) job_table_admitted(h->job, c->named_epoch);
    pair_tests_joined(c, false);
    struct rdzv_message m = {.type = RDZV_JOIN, .join = *join};
    check_charge(h, &before, &after, &m);
    return c->seat != NULL ? 0 : -EACCES;
}

static int on_resume(void *arg, const struct rdzv_resume *resume) {
    struct conn *c = arg;
    struct host *h = c->host;
    struct coordinator_view before, after;
    jobs_look(h, &before);
    c->seat = coordinator_resume(h->coordinator, host_now(h), c, resume);
    jobs_look(h, &after);
    if (c->seat != NULL) job_table_admitted(h->job, c->named_epoch);
    pair_tests_joined(c, resume->part == RDZV_PART_FAILED && before.phase == COORDINATOR_RUNNING &&
                             after.phase != COORDINATOR_RUNNING);
    struct rdzv_message m = {.type = RDZV_RESUME, .resume = *resume};
    /* If the node resumes a round of another host, or an earlier round, check_charge() must ignore
     * a failure that RESUME reports: the last round of this host has not failed. */
    if (!check_resumes_last_round(c, resume)) m.resume.part = RDZV_PART_RUNS;
    check_charge(h, &before, &after, &m);
    h->w->totals.resumed++;
    return c->seat != NULL ? 0 : -EACCES;
}

static int on_message(void *arg, const struct rdzv_message *m, struct cr_error *err) {
    struct conn *c = arg;
    struct host *h = c->host;
    struct coordinator_view before, after;
    if (m->type == RDZV_BEAT) {
        c->member.rounds_over = m->beat.rounds_over;
        c->member.rounds_seen = m->beat.rounds_seen;
        trace_naming(h, c->node, m->beat.rounds_seen);
    }
    if (m->type == RDZV_JOIN) trace_naming(h, c->node, m->join.rounds_seen);
    if (m->type == RDZV_LEAVE) check_node_gone(h, c);
    if (m->type == RDZV_LEAVE) c->pair.has_left = true;
    if (m->type == RDZV_PAIRED) pair_tests_got(h, c, &m->paired);
    if (m->type == RDZV_QUIET) hangs_got(h, c, &m->quiet);
    if (m->type == RDZV_CHANGE_ANSWER) check_change_answered(h, &m->change_answer);
    jobs_look(h, &before);
    int rc = coordinator_receive(h->coordinator, host_now(h), c->seat, m, err);
    jobs_look(h, &after);
    if (rc < 0) {
        world_violation(h->w, "the coordinator refuses node %d: %s", c->node, err->text);
    }
    bool has_ended_round = before.phase == COORDINATOR_RUNNING && after.phase != before.phase &&
                           before.lacks_majority == after.lacks_majority;
    if (m->type == RDZV_FAILED && has_ended_round) pair_tests_distrust(c);
    check_charge(h, &before, &after, m);
    return rc;
}

static void on_lost(void *arg, enum rendezvous_loss how, const char *why) {
    struct conn *c = arg;
    struct coordinator_seat *seat = c->seat;
    struct coordinator_view before, after;
    c->seat = NULL;
    if (seat == NULL) return;
    struct coordinator *coordinator = c->host->coordinator;
    jobs_look(c->host, &before);
    if (how == RENDEZVOUS_BROKEN) coordinator_suspend(coordinator, host_now(c->host), seat, why);
    else coordinator_lost(coordinator, host_now(c->host), seat, why);
    jobs_look(c->host, &after);
    if (after.suspended <= before.suspended) check_node_gone(c->host, c);
    check_charge(c->host, &before, &after, NULL);
}

static void on_status(void *arg) { (void) arg; }

static int on_operate(void *arg, const struct rdzv_operate *what, struct cr_error *err) {
    (void) arg, (void) what, (void) err;
    return 0;
}

static void on_log(void *arg, enum cr_log_level level, const char *text) {
    const struct conn *c = arg;
    (void) level;
    story(c->host->w, "host %d, node %d: %s", c->host->id, c->node, text);
}

static const struct host_session_actions session_actions = {
    .judge = judge, .on_hello = on_hello, .on_join = on_join, .on_resume = on_resume,
    .on_message = on_message, .on_lost = on_lost, .on_status = on_status,
    .on_operate = on_operate, .log = on_log};

/* ---- output and timers after each event ---- */

static void set_session_timer(struct conn *c) {
    struct host *h = c->host;
    int64_t deadline = host_session_deadline(&c->session);
    if (deadline == CR_FOREVER) return;
    int64_t at = clock_when(h->w, deadline, h->offset, h->ppm);
    if (c->session_timer_at <= at) return;
    c->session_timer_at = at;
    world_push(h->w, (struct event){.at = at, .type = EV_SESSION_TIMER, .node = -1, .host = h,
                                    .host_id = h->id, .conn = c});
}

static void flush(struct conn *c) {
    c->is_unsent = false;
    if (!c->host_open) return;
    if (c->relay != NULL) {
        relays_flush(c); /* this session needs no timer, because the trunk's timer runs it */
        return;
    }
    network_send(c, TO_NODE, &c->session.out);
    if (c->session.state == HOST_SESSION_CLOSED) {
        network_close(c, TO_NODE);
    } else if (c->session.state == HOST_SESSION_CLOSING && !c->fin_sent) {
        network_close(c, TO_NODE);
        c->host_open = c->fin_sent = true; /* the host still reads until the node closes its end */
    }
    set_session_timer(c);
}

void host_after_event(struct host *h) {
    if (!h->up) return;
    if (h->w->kind == SEVERAL_JOBS) jobs_after_event(h);
    if (h->w->kind == PAIR_TESTS) pair_tests_after_event(h);
    if (h->w->kind == HANGS) hangs_after_event(h);
    if (h->forming) check_round_formed(h);
    for (size_t i = 0; i < h->unsent_count; i++) flush(h->unsent[i]);
    h->unsent_count = 0;
    if (h->w->trunks != NULL) relays_after_event(h);
    if (h->w->first != h->w) return; /* the first world has the timer of the host */
    int64_t deadline = job_table_deadline(h->table);
    if (deadline >= h->timer_for) return;
    int64_t at = clock_when(h->w, deadline, h->offset, h->ppm);
    h->timer_for = deadline;
    if (h->timer_at <= at) return;
    h->timer_at = at;
    world_push(h->w, (struct event){.at = at, .type = EV_HOST_TIMER, .node = -1, .host = h,
                                    .host_id = h->id});
}

/* ---- starts and ends of hosts ---- */

/* Deposes the host that was the elected coordinator until now. A stalled host does not know of the
 * election, and acts as coordinator for a short time after it runs again. So it is deposed up to 50
 * ms after its stall ends. */
static void depose_other(struct world *w, struct host *other) {
    if (!other->up) return;
    if (other->stalled_until == 0) {
        host_depose(other);
        return;
    }
    world_push(w, (struct event){.at = other->stalled_until + 1 + rnd(w, 50), .type = EV_DEPOSED,
                                 .node = -1, .host = other, .host_id = other->id});
}

/* If coordinators are elected and the leader is stalled, its lease has to end before another host
 * is elected. Returns true if the lease is not over yet; in that case starts `h` when it is. */
static bool waits_for_lease(struct host *h) {
    struct world *w = h->w;
    const struct host *other = &w->hosts[h == w->hosts];
    if (!w->elected || !other->up || other->right_until == CR_FOREVER) return false;
    int64_t end = clock_when(w, other->right_until + LEASE / 6, other->offset, other->ppm);
    if (end <= w->now) return false;
    world_push(w, (struct event){.at = end, .type = EV_HOST_UP, .node = -1, .host = h});
    return true;
}

void host_start(struct host *h) {
    struct world *w = h->w;
    if (waits_for_lease(h)) return;
    if (w->elected) depose_other(w, &w->hosts[h == w->hosts]);
    h->up = true;
    h->id = ++w->host_ids;
    h->stalled_until = 0;
    h->timer_at = h->timer_for = h->change_until = CR_FOREVER;
    h->forming = h->closes = h->is_superseded = false;
    h->may_form = true;
    h->right_until = CR_FOREVER;
    h->unsent_count = 0;
    h->failed_record = -1;
    h->hangs_for = h->inspection = 0;
    memset(h->heard, 0, sizeof(h->heard));
    jobs_begin(h);
    if (!w->heirs) w->leader = (int) (h - w->hosts);
    story(w, "host %d: up", h->id);
    for (int i = 0; i < w->guest_count; i++) host_start(w->guests[i]->hosts);
}

void host_die(struct host *h, bool silently) {
    if (!h->up) return;
    story(h->w, "host %d: dies%s", h->id, silently ? " without a word" : "");
    h->up = false;
    h->change_until = CR_FOREVER;
    for (struct conn *c = h->w->conns; c != NULL; c = c->next) {
        if (c->host != h || c->host_id != h->id) continue;
        c->is_unsent = false;
        c->member.trunk = NULL;
        if (silently || c->relay != NULL) c->host_open = false;
        else network_close(c, TO_NODE);
    }
    relays_host_dies(h, silently);
    h->unsent_count = 0;
    for (int i = 0; i < h->w->guest_count; i++) host_die(h->w->guests[i]->hosts, silently);
    jobs_end(h);
}

/* Ends the coordinator of a host, as coordinator_host_depose() does: closes all its connections and
 * frees all that it knew of the job. */
void host_depose(struct host *h) {
    if (!h->up) return;
    story(h->w, "host %d: deposed", h->id);
    host_die(h, false);
}

void host_abandon(struct host *h, const char *why) {
    if (!h->up) return;
    if (job_table_has_running(h->table)) h->terms->closing = why;
    job_table_abandon(h->table, false, why);
    for (int i = 0; i < h->w->guest_count; i++) host_after_event(h->w->guests[i]->hosts);
    host_after_event(h);
}

void host_restart(struct host *h) {
    struct world *w = h->w;
    int64_t in = 1 + rnd(w, w->only_resets ? 20 : 2 * LEASE);
    w->totals.restarts++;
    host_abandon(h, "the host is restarted");
    host_die(h, false);
    world_push(w, (struct event){.at = w->now + in, .type = EV_HOST_UP, .node = -1, .host = h});
}

void host_close(struct host *h) {
    if (!h->up || h->closes) return;
    h->closes = true;
    host_abandon(h, "the host closes");
    world_push(h->w, (struct event){.at = h->w->now + CLOSE_TIME, .type = EV_HOST_DOWN, .node = -1,
                                    .host = h, .host_id = h->id});
}

void host_stall(struct host *h, int64_t until) {
    h->stalled_until = until;
    for (int i = 0; i < h->w->guest_count; i++) h->w->guests[i]->hosts->stalled_until = until;
    if (h->w->elected && h->may_form) {
        /* from now on the election does not renew the right. As in etcd/election.c, the right ends
         * a sixth of the lease before the lease does. */
        h->right_until = host_now(h) + LEASE - LEASE / 6;
        job_table_may_form(h->table, host_now(h), h->right_until);
    }
    story(h->w, "host %d: stalls until %" PRId64, h->id, until);
    world_push(h->w, (struct event){.at = until, .type = EV_STALL_ENDS, .node = -1, .host = h,
                                    .host_id = h->id});
}

void host_stall_ends(struct host *h) {
    struct world *w = h->w;
    story(w, "host %d: goes on", h->id);
    h->stalled_until = 0;
    if (h->right_until != CR_FOREVER && host_now(h) < h->right_until) {
        job_table_may_form(h->table, host_now(h), CR_FOREVER);
    } else if (h->right_until != CR_FOREVER) {
        h->may_form = false;
        world_push(w, (struct event){.at = w->now + CONFIRM_TIME, .type = EV_RIGHT_BACK,
                                     .node = -1, .host = h, .host_id = h->id});
    }
    h->right_until = CR_FOREVER;
    host_timer(h); /* as in libuv, timers are handled before input */
    world_release(w, &h->held);
    for (int i = 0; i < w->guest_count; i++) {
        w->guests[i]->hosts->stalled_until = 0;
        world_release(w->guests[i], &w->guests[i]->hosts->held);
    }
}

/* ---- events ---- */

bool host_serves(const struct conn *c) { return c->host->up && c->host->id == c->host_id; }

void host_connected(struct conn *c) {
    host_session_open(&c->session, host_now(c->host), conn_is_local(c), c->host->terms,
                      &session_actions, c);
    if (c->relay == NULL) set_session_timer(c);
}

void host_bytes(struct conn *c, const char *bytes, size_t len) {
    if (!c->host_open || c->is_reset) return;
    host_session_receive(&c->session, host_now(c->host), bytes, len);
    host_mark(c);
}

void host_closed(struct conn *c, enum rendezvous_loss how) {
    if (!c->host_open) return;
    host_session_lost(&c->session, host_now(c->host), how, "connection gone");
    network_close(c, TO_NODE);
}

void host_timer(struct host *h) {
    struct coordinator_view before[1 + GUESTS_MAX], after;
    struct world *w = h->w;
    if (h->timer_at <= w->now) h->timer_at = h->timer_for = CR_FOREVER;
    for (int i = 0; i <= w->guest_count; i++) {
        jobs_look(i == 0 ? h : w->guests[i - 1]->hosts, &before[i]);
    }
    if (w->kind == PAIR_TESTS) pair_tests_tick(h);
    job_table_tick(h->table, host_now(h));
    for (int i = 0; i <= w->guest_count; i++) {
        struct host *at = i == 0 ? h : w->guests[i - 1]->hosts;
        jobs_look(at, &after);
        /* the lease of a suspended seat is over, so the coordinator counts its node as lost */
        if (after.suspended < before[i].suspended) at->failure_excused = true;
        check_charge(at, &before[i], &after, NULL);
    }
}

void host_session_timer(struct conn *c) {
    if (c->session_timer_at <= c->host->w->now) c->session_timer_at = CR_FOREVER;
    if (!c->host_open) return;
    host_session_tick(&c->session, host_now(c->host));
    host_mark(c);
}

void host_may_form(struct host *h, bool may_form) {
    struct coordinator_view before, after;
    if (may_form && h != &h->w->hosts[h->w->leader]) return; /* another host has been elected */
    story(h->w, "host %d: may %sform rounds", h->id, may_form ? "" : "not ");
    h->may_form = may_form;
    jobs_look(h, &before);
    job_table_may_form(h->table, host_now(h), may_form ? CR_FOREVER : 0);
    jobs_look(h, &after);
    check_charge(h, &before, &after, NULL);
}

void host_operate(struct host *h, int node, uint32_t kind) {
    char host[16];
    (void) snprintf(host, sizeof(host), "n%d", node);
    if (h->job == NULL) return;
    struct rdzv_operate o = {.run_id = h->w->run_id, .host = host, .kind = kind,
                             .left_ms = rnd(h->w, NOTICE_MAX), .why = "an operator"};
    (void) coordinator_operate(h->coordinator, host_now(h), &o);
}
