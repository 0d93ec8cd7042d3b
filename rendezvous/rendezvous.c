/* The front door: one member, its way to the coordinator, and, on the hosting node, the coordinator
 * itself. What backend decides what is in backend.h.
 *
 * A member and a coordinator in one process speak the same bytes as over a socket, through two
 * buffers that are emptied on the next turn of the loop: no socket, no delay, and no upcall from
 * inside a call of the agent. */
#include "rendezvous/rendezvous.h"

#include "base/assert.h"
#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "rendezvous/way/backend.h"
#include "rendezvous/host/host.h"
#include "rendezvous/way/etcd_election.h"
#include "rendezvous/member/member.h"
#include "rendezvous/protocol/protocol.h"
#include "rendezvous/way/stream.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define HOST_LEAVES "the node that hosts the rendezvous leaves"
#define TOLD_TO_END "its launcher was told to end"

struct rendezvous {
    uv_loop_t *loop;
    const struct rendezvous_events *events;
    void *arg;
    struct member *member;
    struct member_session session; /* our connection to the coordinator, wherever that is */
    char *run_id;
    char master_host[RDZV_ADDR_MAX]; /* how we reach the coordinator */

    /* the coordinator is elsewhere: */
    struct member_link *link; /* NULL on the node that hosts from the start */
    struct backend_plan *may_host; /* NULL unless we could not have the port, and reached nobody yet */
    int64_t close_timeout_ms;

    /* the coordinator is whoever is elected: */
    struct etcd_election *election; /* NULL with other backends */
    char leader_host[CR_HOST_MAX];
    uint16_t leader_port;           /* 0 = nobody yet */
    int waits_for_leader;           /* the member wants to connect */
    int elected;                    /* closing: there was an election */

    /* the coordinator is here: */
    struct coordinator_host *host;       /* NULL elsewhere */
    struct host_peer *peer;              /* its view of us */
    int connecting, hanging_up, hung_up; /* facts for the next turn */
    struct cr_buffer to_member;

    int lost_message;   /* for lack of memory: the connection is of no use any more */
    int cannot_connect; /* for lack of memory: the member hears of it with the next turn */

    uv_timer_t timer; /* the member's next deadline */
    uv_idle_t turn;   /* runs once, when something is to be delivered */
    int open_handles;
    int closing;
    void (*on_close)(void *arg);
    char leaves[RDZV_TEXT_MAX]; /* what the other nodes hear when we, who host, go */
};

static int64_t now_ms(const struct rendezvous *r) { return (int64_t) uv_now(r->loop); }

static void on_timer(uv_timer_t *timer);
static void on_turn(uv_idle_t *turn);
static void way_is_broken(struct rendezvous *r, const char *why);

/* What the session wants to send goes out: over the network, or with the next turn of the loop. */
static void session_flush(struct rendezvous *r) {
    if (r->link == NULL || r->session.out.len == 0) return;
    if (member_link_send(r->link, r->session.out.data, r->session.out.len) < 0) r->lost_message = 1;
    cr_buffer_clear(&r->session.out);
    member_link_flush(r->link);
}

/* Ends every event: what was said is sent, and the next deadline is set. */
static void settle(struct rendezvous *r) {
    if (r->closing) return;
    if (!r->lost_message) session_flush(r);
    if (r->lost_message) way_is_broken(r, "out of memory");
    if (r->closing) return;
    int64_t when = member_deadline(r->member), now = now_ms(r);
    if (when == CR_FOREVER) (void) uv_timer_stop(&r->timer);
    else (void) uv_timer_start(&r->timer, on_timer, when > now ? (uint64_t) (when - now) : 0, 0);
}

static void on_timer(uv_timer_t *timer) {
    struct rendezvous *r = timer->data;
    member_tick(r->member, now_ms(r));
    settle(r);
}

/* ---- the way to a coordinator in this process ---- */

static void next_turn(struct rendezvous *r) {
    if (!r->closing) (void) uv_idle_start(&r->turn, on_turn);
}

static void local_deliver(void *arg, const char *data, size_t len) {
    struct rendezvous *r = arg;
    if (data == NULL) r->hung_up = 1;
    else if (cr_buffer_append(&r->to_member, data, len) < 0) r->lost_message = 1;
    next_turn(r);
}

static void local_open(struct rendezvous *r) {
    r->connecting = 0;
    r->hung_up = 0;
    r->peer = coordinator_host_add_local(r->host, local_deliver, r);
    if (r->peer == NULL) {
        member_disconnected(r->member, now_ms(r), "out of memory");
        return;
    }
    if (member_session_open(&r->session, r->run_id) < 0) r->lost_message = 1;
    member_connected(r->member, now_ms(r));
}

static void local_shut(struct rendezvous *r, const char *why) {
    if (r->peer != NULL) host_peer_gone(r->peer, why);
    r->peer = NULL;
    r->hanging_up = r->hung_up = r->lost_message = 0;
    member_session_close(&r->session, why);
    cr_buffer_clear(&r->session.out);
    cr_buffer_clear(&r->to_member);
}

static void local_to_host(struct rendezvous *r) {
    struct cr_buffer data = r->session.out;
    r->session.out = (struct cr_buffer){0};
    if (r->peer != NULL) host_peer_receive(r->peer, data.data, data.len);
    cr_buffer_done(&data);
}

/* The member may hang up, and the agent may close us, at any message. */
static void local_to_member(struct rendezvous *r) {
    struct cr_buffer data = r->to_member;
    r->to_member = (struct cr_buffer){0};
    member_session_receive(&r->session, data.data, data.len);
    cr_buffer_done(&data);
}

static void on_turn(uv_idle_t *turn) {
    struct rendezvous *r = turn->data;
    uv_update_time(r->loop);
    while (!r->closing) {
        if (r->cannot_connect) {
            r->cannot_connect = 0;
            member_disconnected(r->member, now_ms(r), "out of memory");
        } else if (r->link != NULL) {
            break;
        } else if (r->connecting) {
            local_open(r);
        } else if (r->lost_message) {
            way_is_broken(r, "out of memory");
        } else if (r->session.out.len > 0) {
            local_to_host(r);
        } else if (r->hanging_up) {
            local_shut(r, "it hung up");
        } else if (r->to_member.len > 0) {
            local_to_member(r);
        } else if (r->hung_up) {
            local_shut(r, "it was hung up on");
            member_disconnected(r->member, now_ms(r), "the coordinator hung up");
        } else {
            break;
        }
    }
    if (!r->closing) (void) uv_idle_stop(&r->turn);
    settle(r);
}

/* ---- hosting ---- */

static int open_host(struct rendezvous *r, const struct backend_plan *plan, struct cr_error *err) {
    struct coordinator_host_options h = {
        .store_host = plan->store_host, .store_port = plan->store_port,
        .store_addr = plan->store_addr, .alone = plan->alone,
        .listen_host = plan->listen_port != 0 ? plan->listen_host : NULL,
        .listen_port = plan->listen_port,
        .close_timeout_ms = r->close_timeout_ms};
    return coordinator_host_open(r->loop, &h, &r->host, err);
}

/* Somebody has the port: the coordinator, normally, and we connect to it. */
static int open_host_or_link(struct rendezvous *r, const struct backend_plan *plan,
                             struct cr_error *err) {
    int rc = open_host(r, plan, err);
    if (rc == -EADDRINUSE && plan->hosting == BACKEND_MAY_HOST) {
        cr_debug("%s has a coordinator already", plan->where);
        r->may_host = malloc(sizeof(*r->may_host)); /* without memory for it, we only connect */
        if (r->may_host != NULL) *r->may_host = *plan;
        return 0;
    }
    if (rc < 0) (void) cr_wrap(err, "cannot host the rendezvous at '%s'", plan->where);
    return rc;
}

/* Who has the port does not listen: a connection that the kernel gave this very port, say. We host
 * as soon as it can be had, and reach ourselves as the others do. */
static void host_after_all(struct rendezvous *r) {
    struct cr_error err = {0};
    if (open_host(r, r->may_host, &err) == 0) {
        cr_info("nobody listened at '%s': the coordinator is this node", r->may_host->where);
        free(r->may_host);
        r->may_host = NULL;
    }
}

/* ---- the way to a coordinator elsewhere ---- */

static void on_link_open(void *arg, const char *own_addr, const char *peer_addr) {
    struct rendezvous *r = arg;
    free(r->may_host);
    r->may_host = NULL;
    (void) snprintf(r->master_host, sizeof(r->master_host), "%s", peer_addr);
    if (member_session_open(&r->session, r->run_id) < 0) r->lost_message = 1;
    member_set_addr(r->member, own_addr);
    member_connected(r->member, now_ms(r));
    settle(r);
}

static void on_link_lost(void *arg, const char *why) {
    struct rendezvous *r = arg;
    if (r->may_host != NULL) host_after_all(r);
    member_session_close(&r->session, why);
    member_disconnected(r->member, now_ms(r), why);
    settle(r);
}

/* What a coordinator must not say ends the connection; the member connects anew or gives up. */
static void way_is_broken(struct rendezvous *r, const char *why) {
    r->lost_message = 0;
    member_session_close(&r->session, why);
    if (r->link != NULL) member_link_shut(r->link);
    else local_shut(r, why);
    member_disconnected(r->member, now_ms(r), why);
}

static void on_link_data(void *arg, const char *data, size_t len) {
    struct rendezvous *r = arg;
    member_session_receive(&r->session, data, len);
    settle(r);
}

/* ---- the session's actions ---- */

static void on_welcome(void *arg) {
    struct rendezvous *r = arg;
    member_welcomed(r->member);
}

static int on_message(void *arg, const struct rdzv_message *m, struct cr_error *err) {
    struct rendezvous *r = arg;
    return r->closing ? 0 : member_receive(r->member, now_ms(r), m, err);
}

static void on_broken(void *arg, const char *why) { way_is_broken(arg, why); }

static void on_log(void *arg, enum cr_log_level level, const char *text) {
    (void) arg;
    if (cr_log_enabled(level)) cr_log(level, "%s", text);
}

static const struct member_session_actions session_actions = {
    .on_welcome = on_welcome, .on_message = on_message, .on_broken = on_broken, .log = on_log};

static const struct member_link_events link_events = {
    .on_open = on_link_open, .on_data = on_link_data, .on_lost = on_link_lost};

/* ---- the election ---- */

/* With an election: as soon as there is a leader. The member's own time limit runs meanwhile. */
static void link_connect(struct rendezvous *r) {
    r->waits_for_leader = r->election != NULL && r->leader_port == 0;
    if (r->waits_for_leader || member_link_open(r->link) == 0) return;
    r->cannot_connect = 1;
    next_turn(r);
}

static void on_leader(void *arg, const char *host, uint16_t port, uint64_t epoch, int is_us) {
    struct rendezvous *r = arg;
    cr_info("the coordinator is '%s' port %u%s, epoch %llu", host, port, is_us ? " (this node)" : "",
            (unsigned long long) epoch);
    if (is_us) coordinator_host_lead(r->host, epoch);
    else coordinator_host_depose(r->host, "another node leads");
    (void) snprintf(r->leader_host, sizeof(r->leader_host), "%s", host);
    r->leader_port = port;
    if (member_link_aim(r->link, host, port) < 0) return; /* the next leader finds more memory */
    if (r->waits_for_leader) {
        link_connect(r);
    } else if (member_link_is_open(r->link)) {
        way_is_broken(r, "another node has been elected");
        settle(r);
    }
}

static void on_deposed(void *arg, const char *why) {
    struct rendezvous *r = arg;
    cr_warn("this node is not the coordinator any more: %s", why);
    r->leader_port = 0;
    coordinator_host_depose(r->host, why);
}

static const struct etcd_election_events election_events = {.on_leader = on_leader,
                                                            .on_deposed = on_deposed};

/* ---- what the member wants ---- */

static void do_connect(void *arg) {
    struct rendezvous *r = arg;
    if (r->link != NULL) {
        link_connect(r);
        return;
    }
    r->connecting = 1;
    next_turn(r);
}

static void do_send(void *arg, const struct rdzv_message *m) {
    struct rendezvous *r = arg;
    if (member_session_send(&r->session, m) < 0) r->lost_message = 1;
    if (r->link == NULL) next_turn(r);
}

static void do_hang_up(void *arg) {
    struct rendezvous *r = arg;
    r->waits_for_leader = r->cannot_connect = 0;
    member_session_close(&r->session, "this end hung up");
    if (r->link != NULL) {
        session_flush(r);
        member_link_shut(r->link);
        return;
    }
    r->connecting = 0;
    r->hanging_up = 1;
    next_turn(r);
}

/* A host that knows itself by a loopback address only (its name resolves to 127.0.1.1, say), or that
 * listens on all interfaces, is for us where we connected to. */
static const char *reachable(const struct rendezvous *r, const char *master_addr) {
    int vague = strncmp(master_addr, "127.", 4) == 0 || strcmp(master_addr, "::1") == 0 ||
                strcmp(master_addr, "") == 0;
    return vague && r->link != NULL && r->master_host[0] != '\0' ? r->master_host : master_addr;
}

static void do_round(void *arg, const struct rdzv_round *m) {
    struct rendezvous *r = arg;
    struct rendezvous_round round = {
        .round = m->round, .restart_count = m->restart_count,
        .group_rank = m->group_rank, .group_world_size = m->group_world_size,
        .first_rank = m->first_rank, .world_size = m->world_size,
        .first_role_rank = m->first_role_rank, .role_world_size = m->role_world_size,
        .master_port = (uint16_t) m->master_port};
    (void) snprintf(round.master_addr, sizeof(round.master_addr), "%s", reachable(r, m->master_addr));
    if (!r->closing) r->events->on_round(r->arg, &round);
}

static void do_stop(void *arg, int64_t grace_max_ms, const char *why) {
    struct rendezvous *r = arg;
    if (!r->closing) r->events->on_stop(r->arg, grace_max_ms, why);
}

static void lost_error(const struct rendezvous *r, const char *why, struct cr_error *err) {
    const char *trouble = r->election != NULL ? etcd_election_trouble(r->election) : "";
    (void) cr_fail(err, -ENOTCONN, "%s%s%s%s", why, trouble[0] != '\0' ? " (" : "", trouble,
                   trouble[0] != '\0' ? ")" : "");
}

static void note_why_we_leave(struct rendezvous *r, const char *why) {
    (void) snprintf(r->leaves, sizeof(r->leaves), HOST_LEAVES ": %.*s",
                    (int) (sizeof(r->leaves) - sizeof(HOST_LEAVES ": ")), why);
}

static void do_end(void *arg, int outcome, const char *why) {
    struct rendezvous *r = arg;
    struct cr_error err = {0};
    if (outcome == RENDEZVOUS_LOST) note_why_we_leave(r, why);
    if (outcome == RENDEZVOUS_FAILED) (void) cr_fail(&err, -ECHILD, "%s", why);
    if (outcome == RENDEZVOUS_LOST) lost_error(r, why, &err);
    if (!r->closing) r->events->on_end(r->arg, (enum rendezvous_outcome) outcome, &err);
}

static void do_change(void *arg, const struct rdzv_change *m) {
    struct rendezvous *r = arg;
    struct rendezvous_change change = {.id = m->id, .kind = (enum rendezvous_change_kind) m->kind,
                                       .left_ms = m->left_ms, .why = m->why};
    if (r->closing) return;
    if (r->events->on_change != NULL) r->events->on_change(r->arg, &change);
    else member_change_answer(r->member, m->id, -1, 0);
}

static void do_change_at(void *arg, const struct rdzv_change_at *m) {
    struct rendezvous *r = arg;
    if (r->closing || r->events->on_change_at == NULL) return;
    r->events->on_change_at(r->arg, m->id, m->step, m->left_ms);
}

static void do_notice(void *arg, const struct rdzv_ask_notice *m) {
    struct rendezvous *r = arg;
    if (r->closing || r->events->on_notice == NULL) return;
    r->events->on_notice(r->arg, (enum rendezvous_change_kind) m->kind, m->left_ms, m->why);
}

static void do_dump(void *arg, const char *why) {
    struct rendezvous *r = arg;
    if (!r->closing && r->events->on_dump != NULL) r->events->on_dump(r->arg, why);
}

static const struct member_actions member_actions = {
    .connect = do_connect, .send = do_send, .hang_up = do_hang_up, .log = on_log,
    .on_round = do_round, .on_stop = do_stop, .on_end = do_end,
    .on_change = do_change, .on_change_at = do_change_at, .on_notice = do_notice,
    .on_dump = do_dump};

/* ---- the agent's calls ---- */

void rendezvous_join(struct rendezvous *r) {
    member_join(r->member, now_ms(r));
    settle(r);
}

void rendezvous_failed(struct rendezvous *r, uint64_t round, const char *what) {
    member_failed(r->member, now_ms(r), round, what);
    settle(r);
}

void rendezvous_succeeded(struct rendezvous *r, uint64_t round) {
    member_succeeded(r->member, now_ms(r), round);
    settle(r);
}

void rendezvous_change_answer(struct rendezvous *r, uint64_t id, int64_t step, int64_t needs_ms) {
    member_change_answer(r->member, id, step, needs_ms);
    settle(r);
}

void rendezvous_change_ready(struct rendezvous *r, uint64_t id) {
    member_change_ready(r->member, id);
    settle(r);
}

void rendezvous_notice(struct rendezvous *r, enum rendezvous_change_kind kind, int64_t left_ms,
                       const char *why) {
    member_notice(r->member, (uint32_t) kind, left_ms, why);
    settle(r);
}

void rendezvous_leave(struct rendezvous *r) {
    member_leave(r->member, now_ms(r), TOLD_TO_END);
    note_why_we_leave(r, TOLD_TO_END);
    if (r->host != NULL && r->election == NULL) coordinator_host_abandon(r->host, r->leaves);
    settle(r);
}

/* ---- opening ---- */

static int member_of(struct rendezvous *r, const struct rendezvous_options *o,
                     const struct backend_plan *plan, struct cr_error *err) {
    char host[CR_HOST_MAX] = "localhost";
    (void) gethostname(host, sizeof(host) - 1);
    uint64_t instance = 0;
    if (getrandom(&instance, sizeof(instance), 0) != (ssize_t) sizeof(instance)) {
        return cr_fail_errno(err, "cannot draw a random number");
    }
    struct member_settings s = {
        .where = plan->where, .facts = plan->facts, .local = r->link == NULL,
        .connect_timeout_ms = plan->connect_timeout_ms,
        .coordinator_wait_ms = plan->coordinator_wait_ms,
        .self = {.host = host, .pid = (uint64_t) getpid(), .instance = instance,
                 .addr = plan->own_addr[0] != '\0' || r->link != NULL ? plan->own_addr : plan->store_addr,
                 .role = o->role, .node_rank = plan->node_rank,
                 .local_world_size = o->local_world_size,
                 .min_nodes = plan->fixed_ranks ? o->max_nodes : o->min_nodes,
                 .max_nodes = o->max_nodes,
                 .max_restarts = o->max_restarts, .fixed_ranks = (uint32_t) plan->fixed_ranks,
                 .join_timeout_ms = o->join_timeout_ms,
                 .last_call_timeout_ms = o->last_call_timeout_ms,
                 .close_timeout_ms = o->close_timeout_ms,
                 .keep_alive_interval_ms = o->keep_alive_interval_ms,
                 .keep_alive_max_attempt = o->keep_alive_max_attempt,
                 .change_notice_ms = o->change_notice_ms}};
    r->run_id = strdup(o->run_id);
    r->member = member_new(&s, &member_actions, r);
    return r->run_id != NULL && r->member != NULL ? 0 : cr_fail(err, -ENOMEM, "start the rendezvous: out of memory");
}

/* Every node can lead: it listens before it campaigns, and reaches itself like any other leader. */
static int open_election(struct rendezvous *r, const struct rendezvous_options *o,
                         const struct backend_plan *plan, struct cr_error *err) {
    struct coordinator_host_options h = {.store_host = "", .store_addr = plan->own_addr,
                                         .listen_host = "", .jobs_come_later = 1, .elected = 1,
                                         .close_timeout_ms = o->close_timeout_ms};
    int rc = coordinator_host_open(r->loop, &h, &r->host, err);
    if (rc < 0) return cr_wrap(err, "cannot listen for the nodes of job '%s'", o->run_id);
    struct etcd_election_options e = {.run_id = o->run_id, .endpoint = plan->etcd,
                                      .lease_ms = plan->etcd_lease_ms, .own_addr = plan->own_addr,
                                      .own_port = coordinator_host_port(r->host)};
    r->election = etcd_election_start(r->loop, &e, &election_events, r);
    r->link = member_link_new(r->loop, plan->etcd.host, 1, &link_events, r);
    if (r->election != NULL && r->link != NULL) return 0;
    return cr_fail(err, -ENOMEM, "start the rendezvous: out of memory");
}

/* The member's way to the coordinator: through memory or over the network. */
static int open_way(struct rendezvous *r, const struct rendezvous_options *o,
                    const struct backend_plan *plan, struct cr_error *err) {
    if (plan->hosting == BACKEND_ELECTS) return open_election(r, o, plan, err);
    if (plan->hosting != BACKEND_CONNECTS) {
        int rc = open_host_or_link(r, plan, err);
        if (rc < 0 || r->host != NULL) return rc;
    }
    r->link = member_link_new(r->loop, o->endpoint.host, o->endpoint.port, &link_events, r);
    return r->link != NULL ? 0 : cr_fail(err, -ENOMEM, "start the rendezvous: out of memory");
}

/* One line that says who hosts and which limits follow from the settings. */
static void log_plan(const struct rendezvous *r, const struct rendezvous_options *o,
                     const struct backend_plan *plan) {
    double lease = (double) (o->keep_alive_interval_ms * o->keep_alive_max_attempt) / 1000;
    const char *who = r->election != NULL ? "is elected" : r->link != NULL ? "is there" : "is this node";
    if (plan->alone) return;
    cr_info("rendezvous of job '%s' at '%s' (%s), %u:%u nodes: the coordinator %s; a silent node is given up "
            "after %g s, and ends its workers by itself after %g s; join %g s, last call %g s",
            o->run_id, plan->where, o->backend, o->min_nodes, o->max_nodes, who, lease + lease / 8,
            lease * 5 / 6, (double) o->join_timeout_ms / 1000, (double) o->last_call_timeout_ms / 1000);
}

int rendezvous_open(uv_loop_t *loop, const struct rendezvous_options *options,
                    const struct rendezvous_events *events, void *arg, struct rendezvous **out,
                    struct cr_error *err) {
    struct backend_plan plan;
    int rc = backend_plan(options, &plan, err);
    if (rc < 0) return rc;
    struct rendezvous *r = calloc(1, sizeof(*r));
    if (r == NULL) return cr_fail(err, -ENOMEM, "start the rendezvous: out of memory");
    r->loop = loop;
    r->events = events;
    r->arg = arg;
    r->close_timeout_ms = options->close_timeout_ms;
    member_session_init(&r->session, &session_actions, r);
    rc = open_way(r, options, &plan, err);
    if (rc < 0 && r->host == NULL) { /* the usual case: nothing is open */
        free(r->may_host);
        free(r);
        return rc;
    }
    (void) uv_timer_init(loop, &r->timer);
    (void) uv_idle_init(loop, &r->turn);
    r->timer.data = r->turn.data = r;
    r->open_handles = 2;
    if (rc == 0) rc = member_of(r, options, &plan, err);
    if (rc < 0) {
        rendezvous_close(r, NULL);
        return rc;
    }
    log_plan(r, options, &plan);
    *out = r;
    return 0;
}

/* ---- closing: our handles, then the way to the coordinator, then everything ---- */

static void on_way_closed(void *arg) {
    struct rendezvous *r = arg;
    void (*on_close)(void *) = r->on_close;
    void *user = r->arg;
    member_free(r->member);
    member_session_done(&r->session);
    free(r->run_id);
    cr_buffer_done(&r->to_member);
    free(r->may_host);
    free(r);
    if (on_close != NULL) on_close(user);
}

/* One after the other: the election (nobody shall elect us), our connection, what we host. */
static void close_next(void *arg) {
    struct rendezvous *r = arg;
    struct etcd_election *election = r->election;
    struct member_link *link = r->link;
    struct coordinator_host *host = r->host;
    if (election != NULL) {
        r->elected = 1;
        r->election = NULL;
        etcd_election_close(election, close_next, r);
    } else if (link != NULL) {
        r->link = NULL;
        member_link_close(link, close_next, r);
    } else if (host != NULL) {
        r->host = NULL;
        const char *why = r->leaves[0] != '\0' ? r->leaves : HOST_LEAVES;
        /* Jobs of an elected coordinator go on elsewhere. */
        coordinator_host_close(host, r->elected ? NULL : why, close_next, r);
    } else {
        on_way_closed(r);
    }
}

static void on_handle_closed(uv_handle_t *handle) {
    struct rendezvous *r = handle->data;
    if (--r->open_handles > 0) return;
    local_shut(r, "it closed");
    close_next(r);
}

void rendezvous_close(struct rendezvous *r, void (*on_close)(void *arg)) {
    CR_ASSERT(!r->closing);
    session_flush(r);
    r->closing = 1;
    r->on_close = on_close;
    uv_close((uv_handle_t *) &r->timer, on_handle_closed);
    uv_close((uv_handle_t *) &r->turn, on_handle_closed);
}
