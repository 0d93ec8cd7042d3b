/* The way to a coordinator in another process, over a dial. */
#include "rendezvous/way/remote_way_internal.h"

#include "base/log/log.h"
#include "rendezvous/way/backend_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* time in ms for the relay to answer, before the node connects to the endpoint itself */
#define RELAY_FIRST_MS 3000

/* Looks up the endpoint's name again, which could not be resolved when the plan was made. If this
 * machine has the endpoint's address, completes the plan r->may_host and returns true. If the
 * machine does not have it, frees that plan, so that this node never hosts, and returns false. If
 * the name still cannot be resolved, only returns false. */
static bool is_here(struct remote_way *r) {
    struct host_addresses found;
    struct cr_error err = {0};
    if (!dial_has_addresses(r->dial) || addr_look_up(r->host, &found, &err) < 0) return false;
    if (found.local[0] == '\0') {
        free(r->may_host);
        r->may_host = NULL;
        return false;
    }
    r->may_host->unresolved = false;
    backend_plan_listening(&found, r->may_host);
    return true;
}

/* Call this if this node may host and no coordinator has answered. It binds the endpoint's port; if
 * that works, this node hosts, and connects to its own coordinator over TCP. Even if the port was
 * in use before, it may be free now: perhaps some connection had it as its local port. */
static void try_to_host(struct remote_way *r) {
    struct cr_error err = {0};
    if (r->may_host->unresolved && !is_here(r)) return;
    r->host_rc = way_open_host(r->way.loop, r->may_host, r->run_id, r->close_timeout_ms,
                               &r->way.host, &err);
    if (r->host_rc < 0) {
        (void) snprintf(r->host_why, sizeof(r->host_why), "%.199s", err.text);
        return;
    }
    cr_info("no process listened at '%s': the coordinator is this node", r->may_host->where);
    free(r->may_host);
    r->may_host = NULL;
}

/* host_delay_ms have passed, and no coordinator has answered at any address of the endpoint's name,
 * so this node tries to host. */
static void on_host_time(uv_timer_t *timer) {
    struct remote_way *r = timer->data;
    if (r->may_host == NULL) return;
    try_to_host(r);
    if (r->may_host != NULL || !dial_is_open(r->dial)) return;
    /* The current race may have tried this node's own address before this node listened there, so
     * end the race. */
    dial_shut(r->dial);
    r->way.events->on_lost(r->way.arg, RENDEZVOUS_BROKEN, "this node hosts now");
}

/* ---- relays ---- */

/* Connects to the endpoint, without the relay. */
static void connect_home(struct remote_way *r) {
    r->is_by_relay = false;
    (void) uv_timer_stop(&r->host_timer);
    if (dial_aim(r->dial, r->home.host, r->home.port) < 0) cr_warn("connect: out of memory");
    dial_open(r->dial, r->greeting.data, r->greeting.len);
}

/* Connects to the endpoint, because the relay has not answered for RELAY_FIRST_MS. */
static void on_relay_time(uv_timer_t *timer) {
    struct remote_way *r = timer->data;
    if (!dial_is_open(r->dial)) return;
    cr_debug("no answer from the relay at '%s' port %u", r->relay.host, r->relay.port);
    dial_shut(r->dial);
    connect_home(r);
}

/* Connects to the relay. If it does not answer, connect_home() follows. */
static void connect_by_relay(struct remote_way *r) {
    r->is_by_relay = true;
    if (dial_aim(r->dial, r->relay.host, r->relay.port) < 0) cr_warn("connect: out of memory");
    (void) uv_timer_start(&r->host_timer, on_relay_time, RELAY_FIRST_MS, 0);
    dial_open(r->dial, r->greeting.data, r->greeting.len);
}

/* Corrects the addresses of a connection to a relay. The other end is not the coordinator, so
 * *peer_addr becomes the address of the endpoint. If this end has a loopback address, because the
 * relay is on this machine, other machines cannot use *own_addr. So if the endpoint is on another
 * machine, *own_addr becomes the address at which other machines reach this one. */
static void correct_ends(struct remote_way *r, const char **own_addr, const char **peer_addr) {
    bool is_far = !addr_is_loopback(r->home_addr);
    if (!r->is_by_relay) return;
    *peer_addr = r->home_addr;
    if (!is_far || !addr_is_loopback(*own_addr)) return;
    addr_of_machine(r->machine_addr);
    *own_addr = r->machine_addr;
}

static void on_open(void *arg, const char *own_addr, const char *peer_addr) {
    struct remote_way *r = arg;
    (void) uv_timer_stop(&r->host_timer);
    r->is_open = true;
    correct_ends(r, &own_addr, &peer_addr);
    free(r->may_host);
    r->may_host = NULL;
    r->may_claim = false;
    (void) snprintf(r->coordinator_addr, sizeof(r->coordinator_addr), "%s", peer_addr);
    r->way.events->on_open(r->way.arg, own_addr);
}

static void on_data(void *arg, const char *data, size_t len) {
    const struct remote_way *r = arg;
    r->way.events->on_data(r->way.arg, data, len);
}

static void on_lost(void *arg, enum rendezvous_loss how, const char *why) {
    struct remote_way *r = arg;
    if (r->is_by_relay && !r->is_open) {
        connect_home(r);
        return;
    }
    /* if the relay has closed the connection, the coordinator may still run, so the node may
     * resume */
    if (r->is_by_relay) how = RENDEZVOUS_BROKEN;
    if (r->may_host != NULL && !r->may_host->asks_first) try_to_host(r);
    r->way.events->on_lost(r->way.arg, how, why);
}

static void on_hopeless(void *arg, const char *why) {
    const struct remote_way *r = arg;
    r->way.events->on_hopeless(r->way.arg, why);
}

static void on_store(void *arg, const char *own_addr, const char *addr, bool is_old) {
    remote_way_found_store(arg, own_addr, addr, is_old);
}

static const struct dial_events dial_events = {
    .on_open = on_open, .on_data = on_data, .on_lost = on_lost, .on_hopeless = on_hopeless,
    .on_store = on_store};

/* ---- the calls of way.h ---- */

void remote_way_connect(struct way *w, const void *greeting, size_t len) {
    struct remote_way *r = (struct remote_way *) w;
    cr_buffer_clear(&r->greeting);
    /* If memory is short, the greeting stays empty. A connection that is made after a look at the
     * signpost then sends no greeting, so no coordinator answers, and the member tries again. */
    (void) cr_buffer_append(&r->greeting, greeting, len);
    bool has_relay = r->relay.port != 0 && r->may_host == NULL && r->aims_home;
    r->is_open = r->is_by_relay = false;
    if (r->signpost != NULL && r->aims_home) remote_way_look(r);
    else if (has_relay) connect_by_relay(r);
    else dial_open(r->dial, greeting, len);
}

void remote_way_send(struct way *w, const void *data, size_t len) {
    dial_send(((struct remote_way *) w)->dial, data, len);
}

void remote_way_flush(struct way *w) { dial_flush(((struct remote_way *) w)->dial); }
void remote_way_hang_up(struct way *w) {
    struct remote_way *r = (struct remote_way *) w;
    if (r->signpost != NULL) signpost_hang_up(r->signpost);
    if (r->is_by_relay) (void) uv_timer_stop(&r->host_timer);
    dial_shut(r->dial);
}

void way_remote_secure(struct way *w) { dial_secure(((struct remote_way *) w)->dial, w->ring); }

const char *way_remote_coordinator_addr(const struct way *w) {
    return ((const struct remote_way *) w)->coordinator_addr;
}

/* Writes to r->report why this node, which has the endpoint's address, does not host; and after
 * that `tries`, the dial's report on the addresses. If the port is in use, but nothing has shown
 * that it is not crun, a crun of this job may have it: one that is stopped, or has another
 * secret. */
static void report_why_not_host(struct remote_way *r, const char *tries) {
    const char *has = "this node has the address, but";
    size_t room = sizeof(r->report);
    if (r->host_rc != -EADDRINUSE) {
        (void) snprintf(r->report, room, "%s cannot host: %s; %.200s", has, r->host_why, tries);
    } else if (dial_has_stranger(r->dial)) {
        (void) snprintf(r->report, room, "%s another program has the port: %.250s; give "
                        "--rdzv-endpoint another port", has, tries);
    } else {
        (void) snprintf(r->report, room, "%s the port is in use: %.250s; unless a crun of this job "
                        "has it, give --rdzv-endpoint another port", has, tries);
    }
}

/* Returns the dial's report on the addresses. If this node has tried to host and may still host,
 * the report begins with the reason why it does not. If a TCPStore at the endpoint serves as a
 * signpost and has named no coordinator yet, the report says what came of asking it; "" before its
 * first answer. */
const char *way_remote_report(struct way *w) {
    struct remote_way *r = (struct remote_way *) w;
    const char *tries = dial_report(r->dial);
    if (r->signpost != NULL && r->named.port == 0) return r->report;
    if (r->may_host == NULL || r->host_rc == 0 || tries[0] == '\0') return tries;
    report_why_not_host(r, tries);
    return r->report;
}

static void on_timer_closed(uv_handle_t *handle) {
    struct remote_way *r = handle->data;
    free(r->may_host);
    free(r->run_id);
    cr_buffer_done(&r->greeting);
    way_closed(&r->way);
}

static void on_dial_closed(void *arg) {
    struct remote_way *r = arg;
    if (r->knocker != NULL) {
        struct knocker *k = r->knocker;
        r->knocker = NULL;
        knocker_close(k, on_dial_closed, r);
        return;
    }
    uv_close((uv_handle_t *) &r->host_timer, on_timer_closed);
}

static void on_signpost_left(void *arg) {
    struct remote_way *r = arg;
    dial_close(r->dial, on_dial_closed, r);
}

void remote_way_close(struct way *w) {
    struct remote_way *r = (struct remote_way *) w;
    remote_way_leave_signpost(r, on_signpost_left, r);
}

static void on_dropped(uv_handle_t *handle) {
    struct remote_way *r = handle->data;
    free(r->run_id);
    free(r);
}

static void on_dial_dropped(void *arg) {
    struct remote_way *r = arg;
    uv_close((uv_handle_t *) &r->host_timer, on_dropped);
}

void remote_way_drop(struct remote_way *r) { dial_close(r->dial, on_dial_dropped, r); }

const struct way_kind way_remote = {
    .description = "is there", .connect = remote_way_connect, .send = remote_way_send,
    .flush = remote_way_flush, .hang_up = remote_way_hang_up, .close = remote_way_close};

int remote_way_init(struct remote_way *r, const struct way_kind *kind, uv_loop_t *loop,
                    const char *host, uint16_t port, const char *run_id) {
    r->way = (struct way){.kind = kind, .loop = loop};
    r->run_id = strdup(run_id);
    if (r->run_id == NULL) return -ENOMEM;
    r->dial = dial_new(loop, host, port, run_id, &dial_events, r);
    if (r->dial == NULL) {
        free(r->run_id);
        return -ENOMEM;
    }
    r->home.port = port;
    (void) snprintf(r->home.host, sizeof(r->home.host), "%s", host);
    (void) uv_timer_init(loop, &r->host_timer);
    r->host_timer.data = r;
    return 0;
}

/* Reads the option `relay`, which backend_check() has checked. */
static void set_relay(struct remote_way *r, const struct rendezvous_options *o) {
    struct host_addresses found;
    struct cr_error err = {0};
    if (o->relay[0] == '\0') return;
    if (addr_look_up(o->endpoint.host, &found, &err) < 0) {
        cr_warn("the relay is not used: %s", err.text);
        return;
    }
    memcpy(r->home_addr, found.first, sizeof(r->home_addr));
    (void) cr_endpoint_parse(o->relay, BACKEND_RELAY_PORT, &r->relay, &err);
}

/* Creates a remote way whose node connects to `host` if it connects to no heir. */
static struct remote_way *new_way(uv_loop_t *loop, const struct rendezvous_options *o,
                                  const struct backend_plan *plan, const char *host) {
    struct remote_way *r = calloc(1, sizeof(*r));
    if (r == NULL || remote_way_init(r, &way_remote, loop, host, o->endpoint.port, o->run_id) < 0) {
        free(r);
        return NULL;
    }
    r->close_timeout_ms = o->close_timeout_ms;
    r->aims_home = true;
    r->may_claim = plan->may_use_signpost && o->is_host != 0;
    dial_accept_stores(r->dial, plan->may_use_signpost);
    memcpy(r->host, o->endpoint.host, sizeof(r->host));
    r->plan.allows_heirs = plan->allows_heirs;
    r->plan.instance = plan->instance;
    r->plan.ports = plan->ports;
    memcpy(r->plan.listen_host, plan->listen_host, sizeof(r->plan.listen_host));
    memcpy(r->plan.store_host, plan->store_host, sizeof(r->plan.store_host));
    memcpy(r->plan.own_addr, plan->own_addr, sizeof(r->plan.own_addr));
    return r;
}

/* The node connects to its own host through loopback. If the host listens at one address only, the
 * node connects to that address. */
struct way *way_remote_new_hosting(uv_loop_t *loop, const struct rendezvous_options *o,
                                   const struct backend_plan *plan,
                                   struct coordinator_host *host) {
    bool is_one = plan->listen_host[0] != '\0' && !addr_is_any(plan->listen_host);
    struct remote_way *r = new_way(loop, o, plan, is_one ? plan->listen_host : "127.0.0.1");
    if (r == NULL) return NULL;
    r->way.host = host;
    return &r->way;
}

struct way *way_remote_new(uv_loop_t *loop, const struct rendezvous_options *o,
                           const struct backend_plan *plan, const struct backend_plan *may_host) {
    struct remote_way *r = new_way(loop, o, plan, o->endpoint.host);
    if (r == NULL) return NULL;
    set_relay(r, o);
    if (may_host != NULL) r->may_host = malloc(sizeof(*r->may_host));
    if (r->may_host != NULL)
        /* if malloc() has failed, may_host stays NULL, so this node never hosts, but it can
         * connect */
        *r->may_host = *may_host;
    /* in all other cases the caller has just tried to host */
    bool tries_later = r->may_host != NULL && (may_host->asks_first || may_host->unresolved);
    if (r->may_host != NULL && !tries_later) r->host_rc = -EADDRINUSE;
    if (r->may_host != NULL && r->may_host->asks_first) {
        dial_sort(r->dial);
        (void) uv_timer_start(&r->host_timer, on_host_time, (uint64_t) may_host->host_delay_ms, 0);
    }
    return &r->way;
}
