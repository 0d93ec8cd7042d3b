/* The simulated processes that host the coordinator of the job. Each process runs the real
 * coordinator, and one real host session for each connection. If coordinators are elected, each
 * start of a host has a higher epoch than the start before. */
#include "rendezvous/rules/rules.h"
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
    struct host *h = arg;
    struct conn *c = peer;
    if (m->type == RDZV_ROUND) check_round_sent(h, c, &m->round);
    if (m->type == RDZV_CHANGE) check_change_announced(h, &m->change);
    if (m->type == RDZV_CHANGE_AT) check_change_set(h, &m->change_at);
    if (m->type == RDZV_STOP) h->change_until = CR_FOREVER;
    if (relays_keep(c, m)) return;
    host_session_send(&c->session, host_now(h), m);
    host_mark(c);
}

static void do_hang_up(void *arg, void *peer) {
    struct host *h = arg;
    struct conn *c = peer;
    c->seat = NULL;
    c->hung_up_by_lease = true;
    check_node_gone(h, c);
    host_session_hang_up(&c->session, host_now(h));
    host_mark(c);
}

static int do_open_store(void *arg, uint64_t round, struct coordinator_store *out,
                         struct cr_error *err) {
    struct host *h = arg;
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
    struct host *h = arg;
    return (uint64_t) h->w->now << 32 | (rnd64(h->w) & UINT32_MAX) | 1;
}

static void do_log(void *arg, enum cr_log_level level, const char *text) {
    struct host *h = arg;
    (void) level;
    story(h->w, "host %d: %s", h->id, text);
}

static int wants_log(void *arg, enum cr_log_level level) {
    const struct host *h = arg;
    (void) level;
    return h->w->verbose;
}

static const struct coordinator_actions coordinator_actions = {
    .send = do_send, .hang_up = do_hang_up, .open_store = do_open_store, .draw = do_draw,
    .log = do_log,
    .wants_log = wants_log};

/* ---- what the shell (rendezvous/host/jobs.c and peers.c) does for jobs with heirs ---- */

static struct leading leading_of(const struct host *h) {
    return (struct leading){.allows_heirs = h->w->heirs, .has_job = true, .job_epoch = h->epoch,
                            .is_superseded = h->is_superseded_job, .host_epoch = h->terms.epoch};
}

uint64_t host_epoch(const struct host *h) {
    const struct leading l = leading_of(h);
    return leading_epoch(&l);
}

static bool decides(const struct host *h) {
    struct coordinator_view v;
    if (!h->up || !h->terms.leads || h->is_superseded_job) return false;
    coordinator_look(h->coordinator, &v);
    return v.decides && v.phase != COORDINATOR_ENDED;
}

static void supersede(struct host *h, uint64_t epoch, int leader) {
    story(h->w, "host %d: the heir of node %d leads", h->id, leader);
    h->is_superseded_job = true;
    if (epoch > h->epoch) h->epoch = epoch;
    h->leader_node = leader;
    coordinator_send_away(h->coordinator);
}

static struct host_session_verdict judge(void *arg, const struct rdzv_hello *hello) {
    static char addr[16];
    struct conn *c = arg;
    struct host *h = c->host;
    struct leading l = leading_of(h);
    struct host_session_verdict v = {0};
    if (leading_is_in_doubt(&l, hello->epoch) &&
        coordinator_hear_epoch(h->coordinator, host_now(h)) == COORDINATOR_IS_SUPERSEDED) {
        h->is_superseded_job = l.is_superseded = true;
    }
    v.serves = leading_serves(&l, hello->epoch, &v.epoch);
    c->named_epoch = hello->epoch;
    if (v.serves || h->leader_node < 0) return v;
    (void) snprintf(addr, sizeof(addr), "n%d", h->leader_node);
    v.addr = addr;
    v.port = (uint16_t) (HEIR_PORT + h->leader_node);
    return v;
}

struct host *host_of_heir(struct sim_node *n) {
    return n->w->heirs ? &n->w->hosts[1 + n->index] : NULL;
}

void host_open_heir(struct host *h) {
    host_start(h);
    h->terms.leads = false;
}

void host_lead(struct host *h, uint64_t epoch) {
    trace_serve(h);
    host_die(h, false);
    host_start(h);
    h->terms.epoch = epoch;
    world_push(h->w, (struct event){.at = h->w->now + KNOCK_TIME, .type = EV_KNOCK, .node = -1,
                                    .host = h, .host_id = h->id});
}

void host_follow(struct host *h, uint64_t epoch, int leader) {
    if (!h->up) return;
    if (h == h->w->hosts) {
        supersede(h, epoch, leader);
    } else if (h->terms.leads) {
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
    struct coordinator_view v;
    world_push(w, (struct event){.at = w->now + KNOCK_TIME, .type = EV_KNOCK, .node = -1,
                                 .host = h, .host_id = h->id});
    if (!decides(h) || !at->up || at->stalled_until != 0) return;
    if (world_pair_is_cut(w, a->index, at)) return;
    if (a != b && (a->cut[0] || a->cut[1] || b->cut[0] || b->cut[1])) return;
    coordinator_look(at->coordinator, &v);
    const struct leading l = leading_of(at);
    if (leading_gives_up(&l, host_epoch(h), v.decides, v.phase == COORDINATOR_ENDED)) {
        supersede(at, host_epoch(h), h->owner);
    }
}

void host_retire(struct host *h) {
    struct coordinator_view v;
    if (!h->up) return;
    coordinator_look(h->coordinator, &v);
    if (v.has_heirs && v.phase != COORDINATOR_ENDED) coordinator_retire(h->coordinator);
    else host_abandon(h, "its node leaves");
}

/* ---- struct host_session_actions: what a session requests of its host ---- */

static int on_hello(void *arg, const struct rdzv_hello *hello, struct cr_error *err) {
    (void) arg, (void) hello, (void) err;
    return 0;
}

/* Call this when a node has got a seat: like host_admitted(), sets the epoch of the job. */
static void admitted(struct conn *c, const struct coordinator_view *after) {
    struct host *h = c->host;
    const struct leading l = leading_of(h);
    if (c->seat == NULL) return;
    h->epoch = leading_admits(&l, c->named_epoch, after->incarnation == h->epoch_run);
    h->epoch_run = after->incarnation;
}

static int on_join(void *arg, const struct rdzv_join *join) {
    struct conn *c = arg;
    struct host *h = c->host;
    struct coordinator_view before, after;
    coordinator_look(h->coordinator, &before);
    c->seat = coordinator_join(h->coordinator, host_now(h), c, conn_is_local(c), join);
    coordinator_look(h->coordinator, &after);
    /* the JOIN has replaced a suspended seat, so the coordinator counts that seat's node as lost */
    if (after.suspended < before.suspended) h->failure_excused = true;
    admitted(c, &after);
    struct rdzv_message m = {.type = RDZV_JOIN, .join = *join};
    check_charge(h, &before, &after, &m);
    return c->seat != NULL ? 0 : -EACCES;
}

static int on_resume(void *arg, const struct rdzv_resume *resume) {
    struct conn *c = arg;
    struct host *h = c->host;
    struct coordinator_view before, after;
    coordinator_look(h->coordinator, &before);
    c->seat = coordinator_resume(h->coordinator, host_now(h), c, resume);
    coordinator_look(h->coordinator, &after);
    admitted(c, &after);
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
    if (m->type == RDZV_CHANGE_ANSWER) check_change_answered(h, &m->change_answer);
    coordinator_look(h->coordinator, &before);
    int rc = coordinator_receive(h->coordinator, host_now(h), c->seat, m, err);
    coordinator_look(h->coordinator, &after);
    if (rc < 0) {
        world_violation(h->w, "the coordinator refuses node %d: %s", c->node, err->text);
    }
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
    coordinator_look(coordinator, &before);
    if (how == RENDEZVOUS_BROKEN) coordinator_suspend(coordinator, host_now(c->host), seat, why);
    else coordinator_lost(coordinator, host_now(c->host), seat, why);
    coordinator_look(coordinator, &after);
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
    if (h->forming) check_round_formed(h);
    for (size_t i = 0; i < h->unsent_count; i++) flush(h->unsent[i]);
    h->unsent_count = 0;
    if (h->w->trunks != NULL) relays_after_event(h);
    int64_t deadline = coordinator_deadline(h->coordinator);
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
    h->terms = (struct host_session_terms){.leads = true, .close_timeout_ms = CLOSE_TIME,
                                           .in_launcher = w->host_with_node >= 0,
                                           .epoch = w->elected ? (uint64_t) h->id : 0};
    h->terms.coordinator = (uint64_t) h->id;
    h->coordinator = coordinator_new("job", &coordinator_actions, h);
    coordinator_identify(h->coordinator, h->terms.coordinator);
    h->epoch = h->epoch_run = 0;
    h->is_superseded_job = false;
    h->leader_node = -1;
    if (w->heirs || w->elected) coordinator_keep_job(h->coordinator);
    if (w->heirs && h != w->hosts) coordinator_is_heir(h->coordinator);
    if (w->heirs) coordinator_set_own(h->coordinator, w->nodes[h->owner].instance);
    if (w->heirs) coordinator_allow_heirs(h->coordinator);
    if (w->elected && h->id > 1) coordinator_follows_another(h->coordinator);
    if (!w->heirs) w->leader = (int) (h - w->hosts);
    story(w, "host %d: up", h->id);
}

static void forget_coordinator(struct host *h) {
    for (struct conn *c = h->w->conns; c != NULL; c = c->next) {
        if (c->host == h && c->host_id == h->id) c->seat = NULL;
    }
    coordinator_free(h->coordinator);
    h->coordinator = NULL;
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
    forget_coordinator(h);
}

/* Ends the coordinator of a host, as coordinator_host_depose() does: closes all its connections and
 * frees all that it knew of the job. */
void host_depose(struct host *h) {
    if (!h->up) return;
    story(h->w, "host %d: deposed", h->id);
    host_die(h, false);
}

void host_abandon(struct host *h, const char *why) {
    struct coordinator_view v;
    if (!h->up) return;
    coordinator_look(h->coordinator, &v);
    if (v.phase != COORDINATOR_ENDED) {
        h->terms.closing = why;
        h->terms.comes_again = true;
    }
    coordinator_goodbye(h->coordinator, why);
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
    if (h->w->elected && h->may_form) {
        /* from now on the election does not renew the right. As in etcd/election.c, the right ends
         * a sixth of the lease before the lease does. */
        h->right_until = host_now(h) + LEASE - LEASE / 6;
        coordinator_may_form(h->coordinator, host_now(h), h->right_until);
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
        coordinator_may_form(h->coordinator, host_now(h), CR_FOREVER);
    } else if (h->right_until != CR_FOREVER) {
        h->may_form = false;
        world_push(w, (struct event){.at = w->now + CONFIRM_TIME, .type = EV_RIGHT_BACK,
                                     .node = -1, .host = h, .host_id = h->id});
    }
    h->right_until = CR_FOREVER;
    host_timer(h); /* as in libuv, timers are handled before input */
    world_release(w, &h->held);
}

/* ---- events ---- */

bool host_serves(const struct conn *c) { return c->host->up && c->host->id == c->host_id; }

void host_connected(struct conn *c) {
    host_session_open(&c->session, host_now(c->host), conn_is_local(c), &c->host->terms,
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
    struct coordinator_view before, after;
    if (h->timer_at <= h->w->now) h->timer_at = h->timer_for = CR_FOREVER;
    coordinator_look(h->coordinator, &before);
    coordinator_tick(h->coordinator, host_now(h));
    coordinator_look(h->coordinator, &after);
    /* the lease of a suspended seat is over, so the coordinator counts its node as lost */
    if (after.suspended < before.suspended) h->failure_excused = true;
    check_charge(h, &before, &after, NULL);
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
    coordinator_look(h->coordinator, &before);
    coordinator_may_form(h->coordinator, host_now(h), may_form ? CR_FOREVER : 0);
    coordinator_look(h->coordinator, &after);
    check_charge(h, &before, &after, NULL);
}

void host_operate(struct host *h, int node, uint32_t kind) {
    char host[16];
    (void) snprintf(host, sizeof(host), "n%d", node);
    struct rdzv_operate o = {.run_id = "job", .host = host, .kind = kind,
                             .left_ms = rnd(h->w, NOTICE_MAX), .why = "an operator"};
    (void) coordinator_operate(h->coordinator, host_now(h), &o);
}
