/* The way to a coordinator in another process, over a dial. */
#include "rendezvous/way/remote_way_internal.h"

#include "base/log.h"
#include "rendezvous/way/backend_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Call this if the endpoint's name could not be resolved when the plan was made. Returns whether
 * this machine has the endpoint's address, and if it has, completes the plan. If it has not, frees
 * the plan, so that this node never hosts. Also returns false if the name still cannot be
 * resolved. */
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
    if (way_open_host(r->way.loop, r->may_host, r->run_id, r->close_timeout_ms, &r->way.host,
                      &err) < 0)
        return;
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

static void on_open(void *arg, const char *own_addr, const char *peer_addr) {
    struct remote_way *r = arg;
    (void) uv_timer_stop(&r->host_timer);
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
    /* if memory is short, a later look at the signpost connects with an empty greeting, which no
     * coordinator answers, and the member tries again */
    (void) cr_buffer_append(&r->greeting, greeting, len);
    if (r->signpost != NULL && r->aims_home) remote_way_look(r);
    else dial_open(r->dial, greeting, len);
}

void remote_way_send(struct way *w, const void *data, size_t len) {
    dial_send(((struct remote_way *) w)->dial, data, len);
}

void remote_way_flush(struct way *w) { dial_flush(((struct remote_way *) w)->dial); }
void remote_way_hang_up(struct way *w) {
    struct remote_way *r = (struct remote_way *) w;
    if (r->signpost != NULL) signpost_hang_up(r->signpost);
    dial_shut(r->dial);
}

void way_remote_secure(struct way *w) { dial_secure(((struct remote_way *) w)->dial, w->ring); }

const char *way_remote_coordinator_addr(const struct way *w) {
    return ((const struct remote_way *) w)->coordinator_addr;
}

/* If this node may host, it has the endpoint's address but could not bind the port; then the report
 * begins with that. */
const char *way_remote_report(struct way *w) {
    struct remote_way *r = (struct remote_way *) w;
    const char *tries = dial_report(r->dial);
    if (r->may_host == NULL || r->may_host->unresolved || tries[0] == '\0') return tries;
    (void) snprintf(r->report, sizeof(r->report),
                    "this node has the address, but another program has the port: %.300s", tries);
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

/* A node that hosts reaches its host through loopback, unless the host listens at one address
 * only. */
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
    if (may_host != NULL) r->may_host = malloc(sizeof(*r->may_host));
    if (r->may_host != NULL)
        /* if malloc() has failed, may_host stays NULL, so this node never hosts, but it can
         * connect */
        *r->may_host = *may_host;
    if (r->may_host != NULL && r->may_host->asks_first) {
        dial_sort(r->dial);
        (void) uv_timer_start(&r->host_timer, on_host_time, (uint64_t) may_host->host_delay_ms, 0);
    }
    return &r->way;
}
