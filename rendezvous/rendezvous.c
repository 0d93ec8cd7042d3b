/* The implementation of rendezvous.h. It connects the three parts of a node's side: the member,
 * which decides; the session, which turns messages into bytes; and the way, which carries the bytes
 * to the coordinator.
 *
 *     agent ── calls ──► member ── messages ──► session ── bytes ──► way ──► coordinator
 *     agent ◄─ events ── member ◄─ messages ─── session ◄─ bytes ─── way ◄── coordinator
 * Member and session are pure. The way is a socket, or two buffers if the coordinator runs in this
 * process. */
#include "rendezvous/rendezvous.h"

#include "base/assert.h"
#include "base/log/log.h"
#include "base/log/log_limit.h"
#include "base/time/clock.h"
#include "base/time/waiting.h"
#include "rendezvous/dial/dial.h"
#include "rendezvous/host/host.h"
#include "rendezvous/member/member.h"
#include "rendezvous/protocol/protocol.h"
#include "rendezvous/way/way.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define HOST_LEAVES "the node that hosts the rendezvous leaves"
#define TOLD_TO_END "its launcher was told to end"

struct rendezvous {
    uv_loop_t *loop;
    const struct rendezvous_events *events;
    void *arg;
    char *run_id;
    uint64_t coordinator;  /* id of the coordinator in the newest WELCOME */
    uint32_t max_restarts; /* this node's setting; the job's may differ */
    struct member *member;
    struct member_session session;
    struct way *way;
    /* see the fields of the same names in struct backend_plan */
    char machine_addr[RDZV_ADDR_MAX], master_name[CR_HOST_MAX], where[CR_HOST_MAX + 8];
    uv_timer_t timer;  /* runs until member_deadline() */
    /* until_ms of the last call of on_lease; CR_FOREVER before the first call */
    int64_t lease_end_ms;
    uv_timer_t waiting; /* runs until the next log line about the wait for the coordinator */
    /* the offer of this node (see host.h); NULL = none was opened yet */
    struct store_offer *offer;
    bool offers;               /* true if this node opens an offer */
    char offer_host[CR_HOST_MAX]; /* host at which the offer listens */
    struct cr_port_range ports;   /* ports at which the offer may listen */
    struct rendezvous_store_guard store_guard; /* whom the offer's stores serve */
    bool uses_gateway;            /* true: --store-gateway */
    /* true if only workers of this machine can reach the job's stores, because the job has no other
     * node and its stores listen on loopback */
    bool is_only_here;
    /* the gateway of this node's workers; NULL = there is none, or this node has the store */
    struct way_gateway *gateway;
    int gateways;                 /* number of gateways that are not freed yet */
    int64_t waiting_since_ms;
    uint32_t waiting_lines;
    /* the member's state in which the line of a wait was shown (cr_log_waiting); -1 = no line is
     * shown */
    int shown_state;
    /* true if a message could not be queued for lack of memory; in that case end_event() breaks off
     * the connection */
    bool lost_message;
    struct cr_log_limit lines; /* limits the log lines that the coordinator can cause */
    bool closing;
    bool closes_way; /* true: the timers are closed; the way is closed once no gateway is left */
    void (*on_close)(void *arg);
    /* why this node leaves; "" = it does not leave, or no reason was noted. If this node hosts, the
     * other nodes get this text. */
    char leaves[RDZV_TEXT_MAX];
    const char *advice;        /* what to check if the coordinator cannot be reached */
    char tries[RDZV_TEXT_MAX]; /* see tries() */
};

static int64_t now_ms(const struct rendezvous *r) { return (int64_t) uv_now(r->loop); }

bool rendezvous_visit(const struct rendezvous *r, const struct rendezvous_status_events *events,
                      void *arg) {
    const struct coordinator_host *host = way_host(r->way);
    if (host == NULL) return false;
    coordinator_host_visit(host, events, arg);
    return true;
}

void rendezvous_watch_ranks(struct rendezvous *r) {
    struct coordinator_host *host = way_host(r->way);
    if (host != NULL) coordinator_host_watch_ranks(host);
}

/* ---- end_event(): the last call of every event ---- */

static void on_timer(uv_timer_t *timer);

static void arm_timer(struct rendezvous *r) {
    int64_t when_ms = member_deadline(r->member), now = now_ms(r);
    if (when_ms == CR_FOREVER) (void) uv_timer_stop(&r->timer);
    else
        (void) uv_timer_start(&r->timer, on_timer, when_ms > now ? (uint64_t) (when_ms - now) : 0,
                              0);
}

static void report_lease(struct rendezvous *r) {
    int64_t end_ms = member_lease_end_ms(r->member);
    if (r->events->on_lease == NULL || end_ms == r->lease_end_ms) return;
    r->lease_end_ms = end_ms;
    r->events->on_lease(r->arg, end_ms);
}

static void send_queued(struct rendezvous *r) {
    struct cr_buffer *out = &r->session.out;
    if (out->len > 0) way_send(r->way, out->data, out->len);
    cr_buffer_clear(out);
    way_flush(r->way);
}

static void break_off(struct rendezvous *r, const char *why) {
    r->lost_message = false;
    member_session_close(&r->session, why);
    cr_buffer_clear(&r->session.out);
    way_hang_up(r->way);
    member_disconnected(r->member, now_ms(r), RENDEZVOUS_BROKEN, why);
}

/* ---- the wait for the coordinator ---- */

static void arm_waiting(struct rendezvous *r);

/* Shows a line about a wait: what the node waits for, since when, and how long it will still wait.
 * Returns false if the log cannot show such a line, so that the caller has to log the wait. */
static bool show_waiting(void *arg, const char *what, int64_t waited_ms, int64_t left_ms) {
    struct rendezvous *r = arg;
    if (!cr_log_waiting(what, waited_ms, left_ms)) return false;
    r->shown_state = (int) member_state(r->member);
    return true;
}

/* Removes the line of a wait when the member is no longer in the state of that wait. */
static void end_shown_waiting(struct rendezvous *r) {
    if (r->shown_state < 0 || r->shown_state == (int) member_state(r->member)) return;
    r->shown_state = -1;
    (void) cr_log_waiting(NULL, 0, 0);
}

/* Returns the result at each address that is tried, and the trouble with etcd; "" if there is
 * neither. The text is valid until the next call. */
static const char *tries(void *arg) {
    struct rendezvous *r = arg;
    const char *report = way_report(r->way), *trouble = way_trouble(r->way);
    const char *comma = report[0] != '\0' && trouble[0] != '\0' ? ", " : "";
    (void) snprintf(r->tries, sizeof(r->tries), "%s%s%s", report, comma, trouble);
    return r->tries;
}

/* Logs one line about the wait for the coordinator: the result at each address that is tried, how
 * long the wait has lasted, and how long it can still last. Sets the timer for the next line. */
static void on_waiting(uv_timer_t *timer) {
    struct rendezvous *r = timer->data;
    int64_t left_ms = member_gives_up_ms(r->member) - now_ms(r);
    int64_t waited_ms = now_ms(r) - r->waiting_since_ms;
    const char *result = tries(r);
    char text[2 * RDZV_TEXT_MAX];
    (void) snprintf(text, sizeof(text), "for the coordinator at '%s': %s; %s", r->where,
                    result[0] != '\0' ? result : "no answer", r->advice);
    if (left_ms < 0) left_ms = 0;
    if (!show_waiting(r, text, waited_ms, left_ms)) {
        cr_warn("waiting %s (%.0f s so far, %.0f s left)", text, (double) waited_ms / 1000,
                (double) left_ms / 1000);
    }
    r->waiting_lines++;
    arm_waiting(r);
}

static void arm_waiting(struct rendezvous *r) {
    int64_t when_ms = r->waiting_since_ms + cr_waiting_line_ms(r->waiting_lines), now = now_ms(r);
    (void) uv_timer_start(&r->waiting, on_waiting,
                          when_ms > now ? (uint64_t) (when_ms - now) : 0, 0);
}

/* Starts the timer of the log lines about the wait for the coordinator when the member begins to
 * connect; stops it when the member does not connect any more. */
static void note_waiting(struct rendezvous *r) {
    bool waits = member_state(r->member) == MEMBER_CONNECTING;
    bool is_active = uv_is_active((uv_handle_t *) &r->waiting) != 0;
    if (!waits) (void) uv_timer_stop(&r->waiting);
    if (!waits || is_active) return;
    r->waiting_since_ms = now_ms(r);
    r->waiting_lines = 0;
    arm_waiting(r);
}

/* Every callback, and every function that the agent calls, ends with this function. It sends the
 * bytes that the session has queued, and sets the timer to the member's next deadline. If a message
 * was lost for lack of memory, it first breaks off the connection. */
static void end_event(struct rendezvous *r) {
    if (!r->closing && r->lost_message) break_off(r, "out of memory");
    if (r->closing) return;
    send_queued(r);
    arm_timer(r);
    note_waiting(r);
    end_shown_waiting(r);
    report_lease(r);
}

static void on_timer(uv_timer_t *timer) {
    struct rendezvous *r = timer->data;
    member_tick(r->member, now_ms(r));
    end_event(r);
}

/* ---- the way's events ---- */

/* Returns an address of this machine that other nodes can use. `addr` is an address of this
 * machine, or "". Other machines cannot use "" or a loopback address: if `addr` is one of these,
 * returns machine_addr, if that is known. In all other cases returns `addr`. */
static const char *public_addr(const struct rendezvous *r, const char *addr) {
    bool is_private = addr[0] == '\0' || addr_is_loopback(addr);
    return is_private && r->machine_addr[0] != '\0' ? r->machine_addr : addr;
}

static void on_open(void *arg, const char *own_addr) {
    struct rendezvous *r = arg;
    if (!way_is_local(r->way)) member_set_addr(r->member, public_addr(r, own_addr));
    end_event(r);
}

static void on_data(void *arg, const char *data, size_t len) {
    struct rendezvous *r = arg;
    member_session_receive(&r->session, data, len);
    end_event(r);
}

static void on_lost(void *arg, enum rendezvous_loss how, const char *why) {
    struct rendezvous *r = arg;
    if (r->closing) return;
    member_session_close(&r->session, why);
    cr_buffer_clear(&r->session.out);
    member_disconnected(r->member, now_ms(r), how, why);
    end_event(r);
}

static void on_hopeless(void *arg, const char *why) {
    struct rendezvous *r = arg;
    if (r->closing) return;
    member_session_close(&r->session, why);
    member_give_up(r->member, why);
    end_event(r);
}

static const struct way_events way_events = {.on_open = on_open, .on_data = on_data,
                                             .on_lost = on_lost, .on_hopeless = on_hopeless};

/* ---- the session's actions ---- */

static void on_welcome(void *arg, const struct rdzv_welcome *welcome) {
    struct rendezvous *r = arg;
    r->coordinator = welcome->coordinator;
    member_welcomed(r->member, now_ms(r), welcome);
}

static void on_moved(void *arg, const char *addr, uint16_t port) {
    struct rendezvous *r = arg;
    member_moved(r->member, now_ms(r), addr, port);
}

static int on_message(void *arg, const struct rdzv_message *m, struct cr_error *err) {
    struct rendezvous *r = arg;
    return r->closing ? 0 : member_receive(r->member, now_ms(r), m, err);
}

static void on_broken(void *arg, const char *why) { break_off(arg, why); }

/* Logs a line of the member or of its session. Messages of the coordinator cause most of these
 * lines, so their rate is limited, except for lines of the level debug. */
static void on_log(void *arg, enum cr_log_level level, const char *text) {
    struct rendezvous *r = arg;
    if (level == CR_LOG_DEBUG) cr_debug("%s", text);
    else cr_log_limited(&r->lines, level, "%s", text);
}

static const struct member_session_actions session_actions = {
    .on_welcome = on_welcome, .on_message = on_message, .on_broken = on_broken,
    .on_moved = on_moved, .log = on_log};

/* ---- the member's actions: towards the coordinator ---- */

/* Opens the session, which queues the greeting, before a connection exists: the way tries all
 * addresses of the coordinator, and sends the greeting on each of these connections. */
static void do_connect(void *arg) {
    struct rendezvous *r = arg;
    struct cr_buffer *greeting = &r->session.out;
    r->lost_message = member_session_open(&r->session, r->run_id) < 0;
    way_connect(r->way, greeting->data, greeting->len);
    cr_buffer_clear(greeting);
}

/* Opens an offer if there is none. Returns the port of its empty store, or 0 if this node offers no
 * store or the store could not be opened. */
static uint16_t offered_port(struct rendezvous *r) {
    struct cr_error err = {0};
    uint16_t port = 0;
    if (!r->offers || r->closing) return 0;
    const struct store_offer_options options = {
        .listen_host = r->offer_host, .ports = r->ports, .guard = r->store_guard,
        .has_secret = way_has_secret(r->way), .serves_gateways = r->uses_gateway,
        .ring = way_ring(r->way), .run_id = r->run_id};
    if (r->offer == NULL) r->offer = store_offer_new(&options, &err);
    if (r->offer != NULL && store_offer_port(r->offer, &port, &err) == 0) return port;
    cr_warn("this node offers no store, so the coordinator's host has it: %s", err.text);
    return 0;
}

static void do_send(void *arg, const struct rdzv_message *m) {
    struct rendezvous *r = arg;
    struct rdzv_message out = *m;
    char addresses[RDZV_TEXT_MAX] = "";
    if (m->type == RDZV_BEAT) out.beat.wall_ns = cr_wall_ns();
    if (m->type == RDZV_FAILURE) out.failure.wall_ns = cr_wall_ns();
    /* The coordinator needs the addresses to know from where this node's workers connect to a
     * store. They are listed only for JOIN and RESUME, because the kernel takes about 12 us for
     * each network interface. */
    if (!r->is_only_here && (m->type == RDZV_JOIN || m->type == RDZV_RESUME)) {
        addr_list_own(addresses, sizeof(addresses));
    }
    if (m->type == RDZV_JOIN) {
        out.join.store_port = offered_port(r);
        out.join.heir_port = r->closing ? 0 : way_heir_port(r->way);
        out.join.addresses = addresses;
    }
    if (m->type == RDZV_RESUME) out.resume.addresses = addresses;
    if (member_session_send(&r->session, &out) < 0) r->lost_message = true;
}

static void do_hang_up(void *arg) {
    struct rendezvous *r = arg;
    if (!r->lost_message) send_queued(r);
    r->lost_message = false;
    member_session_close(&r->session, "this end hung up");
    way_hang_up(r->way);
}

static void do_aim(void *arg, const char *addr, uint16_t port) {
    const struct rendezvous *r = arg;
    way_aim(r->way, addr, port);
}

static void do_lead(void *arg, uint64_t epoch) {
    const struct rendezvous *r = arg;
    way_lead(r->way, epoch, member_addr(r->member));
}

/* ---- the member's actions: towards the agent ---- */

/* Returns the address at which workers of this node reach the store. `master_addr` is the address
 * that the coordinator has sent. If it is a loopback address, only the store's own host could use
 * it; if it is "", the store listens on all interfaces. In both cases the store runs on the
 * coordinator's host, so the workers use the address at which this node last reached the
 * coordinator. */
static const char *reachable(const struct rendezvous *r, const char *master_addr) {
    const char *reached = way_is_local(r->way) ? "" : way_coordinator_addr(r->way);
    bool is_vague = master_addr[0] == '\0' || addr_is_loopback(master_addr);
    return public_addr(r, is_vague && reached[0] != '\0' ? reached : master_addr);
}

/* ---- the gateway of this node's workers ---- */

static void on_gateway_closed(void *arg);

static void close_gateway(struct rendezvous *r) {
    if (r->gateway == NULL) return;
    way_gateway_close(r->gateway, on_gateway_closed, r);
    r->gateway = NULL;
}

/* With --store-gateway: replaces the store's address in `round` by a loopback address for the
 * workers of this node. If this node has the store, that is an address of the store itself;
 * otherwise it is that of a new gateway. Returns 0, or a negative errno and a text in err. */
static int open_gateway(struct rendezvous *r, uint64_t incarnation,
                        struct rendezvous_round *round, struct cr_error *err) {
    close_gateway(r);
    if (!r->uses_gateway) return 0;
    round->master_name[0] = '\0'; /* master_name names the store, but workers connect to loopback */
    if (r->offer != NULL && store_offer_begin_round(r->offer, incarnation, round->round)) {
        bool is_anywhere = r->offer_host[0] == '\0' || addr_is_any(r->offer_host);
        (void) snprintf(round->master_addr, sizeof(round->master_addr), "%.63s",
                        is_anywhere ? "127.0.0.1" : r->offer_host);
        return 0;
    }
    const struct way_gateway_options options = {
        .host = round->master_addr, .port = round->master_port, .run_id = r->run_id,
        .incarnation = incarnation, .round = round->round, .ports = r->ports};
    int rc = way_gateway_open(r->way, &options, &r->gateway, &round->master_port, err);
    if (rc < 0) return rc;
    r->gateways++;
    (void) snprintf(round->master_addr, sizeof(round->master_addr), "127.0.0.1");
    return 0;
}

static void do_round(void *arg, const struct rdzv_round *m) {
    struct rendezvous *r = arg;
    bool has_settings = r->session.version >= RDZV_VERSION_SETTINGS;
    struct rendezvous_round round = {
        .round = m->round, .restart_count = m->restart_count,
        .max_restarts = has_settings ? m->max_restarts : r->max_restarts,
        .group_rank = m->group_rank, .group_world_size = m->group_world_size,
        .first_rank = m->first_rank, .world_size = m->world_size,
        .first_role_rank = m->first_role_rank, .role_world_size = m->role_world_size,
        .kept = (int64_t) m->kept - 1,
        .master_port = (uint16_t) m->master_port};
    (void) snprintf(round.master_addr, sizeof(round.master_addr), "%s",
                    reachable(r, m->master_addr));
    memcpy(round.master_name, r->master_name, sizeof(round.master_name));
    if (r->offer != NULL) {
        store_offer_settle(r->offer, m->group_rank == 0 ? round.master_port : 0,
                           r->session.version >= RDZV_VERSION_NODES);
    }
    struct cr_error err = {0};
    /* An error is only logged here. Without a gateway the workers cannot reach the store; they fail
     * with an error of their own. */
    if (open_gateway(r, m->incarnation, &round, &err) < 0) cr_warn("%s", err.text);
    const char *addr;
    uint16_t port;
    if (member_leader_at(r->member, &addr, &port)) {
        way_follow(r->way, r->coordinator, r->session.epoch, addr, port);
    }
    if (!r->closing) r->events->on_round(r->arg, &round);
}

static void do_nodes(void *arg, const struct rdzv_nodes *nodes) {
    struct rendezvous *r = arg;
    if (r->offer == NULL || store_offer_admit(r->offer, nodes->part, nodes->addresses) == 0) return;
    cr_warn("the store of the next round will not serve all its nodes: out of memory");
}

static void do_stop(void *arg, int64_t grace_max_ms, const char *why) {
    struct rendezvous *r = arg;
    if (!r->closing) r->events->on_stop(r->arg, grace_max_ms, why);
}

static void note_why_we_leave(struct rendezvous *r, const char *why) {
    (void) snprintf(r->leaves, sizeof(r->leaves), HOST_LEAVES ": %.*s",
                    (int) (sizeof(r->leaves) - sizeof(HOST_LEAVES ": ")), why);
}

static void lost_error(const struct rendezvous *r, const char *why, struct cr_error *err) {
    const char *trouble = way_trouble(r->way);
    if (strstr(why, trouble) != NULL) trouble = "";
    if (trouble[0] != '\0') (void) cr_fail(err, -ENOTCONN, "%s (%s)", why, trouble);
    else (void) cr_fail(err, -ENOTCONN, "%s", why);
}

static void do_end(void *arg, int outcome, const char *why) {
    struct rendezvous *r = arg;
    struct cr_error err = {0};
    if (outcome == RENDEZVOUS_LOST) note_why_we_leave(r, why);
    if (outcome == RENDEZVOUS_FAILED) (void) cr_fail(&err, -ECHILD, "%s", why);
    if (outcome == RENDEZVOUS_LOST) lost_error(r, why, &err);
    if (!r->closing) r->events->on_end(r->arg, (enum rendezvous_outcome) outcome, &err);
}

/* Passes an announced change to the agent. If the agent has no on_change, its workers do not count
 * steps; the coordinator then gets the answer at once, with the step -1. */
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

static void do_ask_ranks(void *arg, uint64_t round) {
    struct rendezvous *r = arg;
    if (r->closing || r->events->on_ask_ranks == NULL) return;
    r->events->on_ask_ranks(r->arg, round);
}

static void do_ask_progress(void *arg, uint64_t inquiry) {
    struct rendezvous *r = arg;
    bool answers = !r->closing && r->events->on_ask_progress != NULL;
    if (answers) r->events->on_ask_progress(r->arg, inquiry);
    else rendezvous_progress(r, inquiry, NULL);
}

static void do_behind(void *arg, const struct rdzv_behind *b) {
    struct rendezvous *r = arg;
    if (!r->closing && r->events->on_behind != NULL)
        r->events->on_behind(r->arg, b->is_found != 0, b->what);
}

static void do_inspect(void *arg, uint64_t id, const char *why) {
    struct rendezvous *r = arg;
    if (!r->closing && r->events->on_inspect != NULL) r->events->on_inspect(r->arg, id, why);
    else member_inspected(r->member, id, 0);
}

static void do_hung(void *arg, const struct rdzv_hung *m) {
    struct rendezvous *r = arg;
    const struct rendezvous_hung hung = {
        .round = m->round, .rank = m->rank, .pid = (int64_t) m->pid, .decides = m->decides != 0,
        .reasons = m->reasons, .quiet_ms = m->quiet_ms, .what = m->what, .lines = m->lines,
        .is_last = m->is_last != 0};
    if (!r->closing && r->events->on_hung != NULL) r->events->on_hung(r->arg, &hung);
}

static void do_pair(void *arg, const struct rdzv_pair *m) {
    struct rendezvous *r = arg;
    const struct rendezvous_pair pair = {.id = m->id, .rank = m->rank, .host = m->host,
                                         .addr = m->addr, .port = (uint16_t) m->port};
    if (!r->closing && r->events->on_pair != NULL) r->events->on_pair(r->arg, &pair);
    else member_paired(r->member, m->id, "this node makes no paired tests");
}

static void do_failure(void *arg, const struct rdzv_failure *m) {
    struct rendezvous *r = arg;
    const struct rendezvous_failure failure = {
        .round = m->round, .rank = m->rank, .local_rank = m->local_rank, .pid = (int64_t) m->pid,
        .exit_code = m->exit_code, .died_ns = m->died_ns, .offset_ns = m->offset_ns,
        .offset_error_ns = m->offset_error_ns, .host = m->host, .kind = m->kind, .what = m->what,
        .message = m->message, .last_words = m->last_words, .kernel = m->kernel,
        .log_folder = m->log_folder};
    if (!r->closing && r->events->on_failure != NULL) r->events->on_failure(r->arg, &failure);
}

static const struct member_actions member_actions = {
    .connect = do_connect, .send = do_send, .hang_up = do_hang_up, .aim = do_aim,
    .lead = do_lead, .log = on_log, .show_waiting = show_waiting, .tries = tries,
    .on_round = do_round, .on_stop = do_stop, .on_end = do_end,
    .on_change = do_change, .on_change_at = do_change_at, .on_notice = do_notice,
    .on_dump = do_dump, .on_inspect = do_inspect, .on_ask_progress = do_ask_progress,
    .on_ask_ranks = do_ask_ranks, .on_hung = do_hung, .on_pair = do_pair,
    .on_behind = do_behind, .on_nodes = do_nodes, .on_failure = do_failure};

/* ---- the agent's calls ---- */

void rendezvous_join(struct rendezvous *r, uint32_t kept) {
    member_join(r->member, now_ms(r), kept);
    end_event(r);
}

void rendezvous_set_unfit(struct rendezvous *r, const char *why) {
    member_set_unfit(r->member, why);
    end_event(r);
}

void rendezvous_failed(struct rendezvous *r, uint64_t round, const char *what,
                       enum rendezvous_blame blame) {
    member_failed(r->member, now_ms(r), round, what, blame);
    end_event(r);
}

void rendezvous_succeeded(struct rendezvous *r, uint64_t round) {
    member_succeeded(r->member, now_ms(r), round);
    end_event(r);
}

void rendezvous_stood_still(struct rendezvous *r, int64_t slept_ms) {
    uv_update_time(r->loop);
    member_stood_still(r->member, now_ms(r), slept_ms);
    end_event(r);
}

void rendezvous_change_answer(struct rendezvous *r, uint64_t id, int64_t step, int64_t needs_ms) {
    member_change_answer(r->member, id, step, needs_ms);
    end_event(r);
}

void rendezvous_change_ready(struct rendezvous *r, uint64_t id) {
    member_change_ready(r->member, id);
    end_event(r);
}

void rendezvous_notice(struct rendezvous *r, enum rendezvous_change_kind kind, int64_t left_ms,
                       const char *why) {
    member_notice(r->member, now_ms(r), (uint32_t) kind, left_ms, why);
    end_event(r);
}

void rendezvous_failure(struct rendezvous *r, const struct rendezvous_failure *f) {
    const struct rdzv_failure message = {
        .round = f->round, .rank = f->rank, .local_rank = f->local_rank, .pid = (uint64_t) f->pid,
        .exit_code = f->exit_code, .died_ns = f->died_ns, .host = f->host, .kind = f->kind,
        .what = f->what, .message = f->message, .last_words = f->last_words, .kernel = f->kernel,
        .log_folder = f->log_folder, .offset_error_ns = -1};
    member_failure(r->member, &message);
    end_event(r);
}

void rendezvous_inquire(struct rendezvous *r) {
    member_inquire(r->member);
    end_event(r);
}

void rendezvous_progress(struct rendezvous *r, uint64_t inquiry,
                         const struct rendezvous_progress *p) {
    struct rdzv_progress m = {.inquiry = inquiry, .is_last = p == NULL, .name = "", .op = ""};
    if (p != NULL) {
        m.rank = p->rank;
        m.group = p->group;
        m.name = p->name;
        m.place = p->place;
        m.size = p->size;
        m.state = (uint32_t) p->state;
        m.begun = p->begun;
        m.seq = p->seq;
        m.op = p->op;
        m.peer = p->peer;
        m.since_ms = p->since_ms;
    }
    member_progress(r->member, &m);
    if (p == NULL) end_event(r); /* which sends all of them at once */
}

void rendezvous_rank(struct rendezvous *r, const struct rendezvous_rank *w) {
    const struct rdzv_rank m = {
        .round = w->round, .rank = w->rank, .local_rank = w->local_rank, .pid = (uint64_t) w->pid,
        .state = w->state, .kernel_state = w->kernel_state, .steps = w->steps,
        .step_age_ms = w->step_age_ms, .steps_per_ks = w->steps_per_ks,
        .output_age_ms = w->output_age_ms, .rss_bytes = w->rss_bytes, .last_line = w->last_line};
    member_rank(r->member, &m);
}

bool rendezvous_quiet(struct rendezvous *r, const struct rendezvous_quiet *quiet) {
    const struct rdzv_quiet m = {.silent = quiet->silent, .broken = quiet->broken,
                                 .quiet_ms = quiet->quiet_ms, .what = quiet->what};
    bool is_known = member_quiet(r->member, &m);
    end_event(r);
    return is_known;
}

void rendezvous_paired(struct rendezvous *r, uint64_t id, const char *why) {
    member_paired(r->member, id, why);
    end_event(r);
}

void rendezvous_row(struct rendezvous *r, uint64_t id, const struct rendezvous_row *row) {
    const char state[2] = {row->state, '\0'};
    const struct rdzv_row message = {
        .id = id, .ranks = row->ranks, .pid = (uint64_t) row->pid, .host = row->host,
        .state = state, .program = row->program, .kernel = row->kernel,
        .operation = row->operation, .python = row->python, .native = row->native,
        .note = row->note};
    member_row(r->member, &message);
    end_event(r);
}

void rendezvous_inspected(struct rendezvous *r, uint64_t id, uint32_t rows) {
    member_inspected(r->member, id, rows);
    end_event(r);
}

void rendezvous_leave(struct rendezvous *r) {
    member_leave(r->member, now_ms(r), TOLD_TO_END);
    note_why_we_leave(r, TOLD_TO_END);
    way_retire(r->way, r->leaves);
    end_event(r);
}

void rendezvous_hasten_close(struct rendezvous *r) {
    char why[RDZV_TEXT_MAX];
    (void) snprintf(why, sizeof(why), HOST_LEAVES ": " TOLD_TO_END);
    if (r->closing) way_abandon(r->way, why);
}

/* ---- opening ---- */

int rendezvous_check(const struct rendezvous_options *options, struct cr_error *err) {
    return backend_check(options, err);
}

/* Returns the JOIN message of this node: its host name, its address and the user's settings. */
static struct rdzv_join describe_node(const struct rendezvous_options *o,
                                      const struct backend_plan *plan, const char *host,
                                      bool hosts) {
    const char *addr = plan->own_addr;
    /* A node that hosts has no connection to another machine from which the member could learn this
     * node's address, so an address of the plan is used. */
    if (addr[0] == '\0' && hosts) addr = plan->store_addr;
    if (addr[0] == '\0' && hosts) addr = plan->machine_addr;
    return (struct rdzv_join){
        .host = host, .pid = (uint64_t) getpid(), .addr = addr,
        .role = o->role, .node_rank = plan->node_rank, .local_world_size = o->local_world_size,
        .min_nodes = plan->fixed_ranks ? o->max_nodes : o->min_nodes, .max_nodes = o->max_nodes,
        .max_restarts = o->max_restarts, .fixed_ranks = plan->fixed_ranks ? 1 : 0,
        .join_timeout_ms = o->join_timeout_ms, .last_call_timeout_ms = o->last_call_timeout_ms,
        .close_timeout_ms = o->close_timeout_ms, .skips_last_call = o->skips_last_call,
        .keep_alive_interval_ms = o->keep_alive_interval_ms,
        .keep_alive_max_attempt = o->keep_alive_max_attempt,
        .change_notice_ms = o->change_notice_ms, .stop_limit_ms = o->stop_limit_ms,
        .digest = o->digest,
        .loss_limit = o->loss_limit, .restart_backoff_ms = o->restart_backoff_ms,
        .restart_refill_ms = o->restart_refill_ms, .flap_limit = o->flap_limit,
        .flap_window_ms = o->flap_window_ms, .flap_refusal_ms = o->flap_refusal_ms,
        .aside_after = o->aside_after, .aside_ms = o->aside_ms,
        .slow_percent = o->slow_percent, .slow_ms = o->slow_ms,
        .slow_notice_ms = o->slow_notice_ms, .watches = o->watches,
        .pair_port = o->pair_port, .pair_timeout_ms = o->pair_timeout_ms,
        .store_gateway = o->store_gateway ? 1 : 0};
}

static int make_member(struct rendezvous *r, const struct rendezvous_options *o,
                       const struct backend_plan *plan, struct cr_error *err) {
    char host[CR_HOST_MAX] = "localhost";
    (void) gethostname(host, sizeof(host) - 1);
    struct member_settings s = {.where = plan->where, .facts = plan->facts,
                                .advice = plan->advice, .local = way_is_local(r->way),
                                .connect_timeout_ms = plan->connect_timeout_ms,
                                .coordinator_wait_ms = plan->coordinator_wait_ms};
    s.self = describe_node(o, plan, host, way_hosts(r->way));
    s.self.instance = plan->instance;
    r->max_restarts = o->max_restarts;
    r->advice = plan->advice;
    r->run_id = strdup(o->run_id);
    r->member = member_new(&s, &member_actions, r);
    if (r->run_id != NULL && r->member != NULL) return 0;
    return cr_fail(err, -ENOMEM, "start the rendezvous: out of memory");
}

/* Logs in one line which node hosts, and the time limits that follow from the settings. */
static void log_plan(const struct rendezvous *r, const struct rendezvous_options *o,
                     const struct backend_plan *plan) {
    double lease = (double) (o->keep_alive_interval_ms * o->keep_alive_max_attempt) / 1000;
    if (plan->alone) return;
    cr_info(
        "rendezvous of job '%s' at '%s' (%s), %u:%u nodes: the coordinator %s; a silent node is "
        "given up after %g s, and ends its workers by itself after %g s; join %g s, last call %g s",
        o->run_id, plan->where, o->backend, o->min_nodes, o->max_nodes, way_description(r->way),
        lease + lease / 8, lease * 5 / 6, (double) o->join_timeout_ms / 1000,
        (double) o->last_call_timeout_ms / 1000);
}

int rendezvous_open(uv_loop_t *loop, const struct rendezvous_options *options,
                    const struct rendezvous_events *events, void *arg, struct rendezvous **out,
                    struct cr_error *err) {
    struct backend_plan plan;
    int rc = backend_plan(options, &plan, err);
    if (rc < 0) return rc;
    if (getrandom(&plan.instance, sizeof(plan.instance), 0) != sizeof(plan.instance)) {
        return cr_fail_errno(err, "cannot draw a random number");
    }
    struct rendezvous *r = calloc(1, sizeof(*r));
    if (r == NULL) return cr_fail(err, -ENOMEM, "start the rendezvous: out of memory");
    r->loop = loop;
    r->events = events;
    r->arg = arg;
    r->lease_end_ms = CR_FOREVER;
    r->shown_state = -1;
    memcpy(r->machine_addr, plan.machine_addr, sizeof(r->machine_addr));
    memcpy(r->master_name, plan.master_name, sizeof(r->master_name));
    memcpy(r->where, plan.where, sizeof(r->where));
    memcpy(r->offer_host, plan.store_host, sizeof(r->offer_host));
    r->ports = options->ports;
    r->store_guard = options->store_guard;
    r->lines.about = "the coordinator";
    member_session_init(&r->session, &session_actions, r);
    rc = way_open(loop, options, &plan, &way_events, r, &r->way, err);
    if (rc < 0) {
        free(r);
        return rc;
    }
    r->uses_gateway = options->store_gateway && !plan.alone;
    r->is_only_here = plan.alone && addr_is_loopback(plan.store_host);
    r->offers = r->uses_gateway || (!plan.fixed_ranks && !way_is_local(r->way));
    (void) uv_timer_init(loop, &r->timer);
    (void) uv_timer_init(loop, &r->waiting);
    r->timer.data = r->waiting.data = r;
    rc = make_member(r, options, &plan, err);
    if (rc < 0) {
        rendezvous_close(r, NULL);
        return rc;
    }
    log_plan(r, options, &plan);
    *out = r;
    return 0;
}

/* ---- closing, in this order: the timers; the gateways; the way, with what this node hosts; the
 * memory ---- */

static void on_way_closed(void *arg) {
    struct rendezvous *r = arg;
    void (*on_close)(void *) = r->on_close;
    void *user = r->arg;
    cr_log_limit_end(&r->lines);
    store_offer_free(r->offer);
    member_free(r->member);
    member_session_done(&r->session);
    free(r->run_id);
    free(r);
    if (on_close != NULL) on_close(user);
}

static void close_way(struct rendezvous *r) {
    way_close(r->way, r->leaves[0] != '\0' ? r->leaves : HOST_LEAVES, on_way_closed, r);
}

/* Call this when a gateway is closed. If it was the last one, and the timers are closed, closes the
 * way, which gateways use as long as they are open. */
static void on_gateway_closed(void *arg) {
    struct rendezvous *r = arg;
    r->gateways--;
    if (r->closes_way && r->gateways == 0) close_way(r);
}

static void on_timer_closed(uv_handle_t *handle) {
    struct rendezvous *r = handle->data;
    if (uv_is_closing((uv_handle_t *) &r->waiting) == 0) {
        uv_close((uv_handle_t *) &r->waiting, on_timer_closed);
        return;
    }
    close_gateway(r);
    r->closes_way = true;
    if (r->gateways == 0) close_way(r);
}
void rendezvous_close(struct rendezvous *r, void (*on_close)(void *arg)) {
    CR_ASSERT(!r->closing);
    send_queued(r);
    if (r->shown_state >= 0) (void) cr_log_waiting(NULL, 0, 0);
    r->closing = true;
    r->on_close = on_close;
    uv_close((uv_handle_t *) &r->timer, on_timer_closed);
}
