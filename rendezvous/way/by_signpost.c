/* Finds the coordinator by a signpost: a TCPStore that somebody else runs at the endpoint. A node
 * that has reached no coordinator yet claims the signpost's key: it opens a host of its own, and
 * writes the host's address to the key. The node whose claim wins hosts. If the node that the key
 * names does not answer for STALE_MS, a later node replaces it in the key. */
#include "rendezvous/way/remote_way_internal.h"

#include "base/log/log.h"
#include "base/time/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

/* After this time in ms without an answer, the node that the signpost names counts as gone, for
 * example because it was killed and so could not empty the key. */
#define STALE_MS INT64_C(5000)

static void connect_to(struct remote_way *r, const char *addr, uint16_t port) {
    (void) snprintf(r->home.host, sizeof(r->home.host), "%s", addr);
    r->home.port = port;
    /* dial_aim() fails only if memory is short: in that case this try goes to the old address, and
     * a later try calls dial_aim() again */
    (void) dial_aim(r->dial, addr, port);
    dial_open(r->dial, r->greeting.data, r->greeting.len);
}

static void close_claimant(struct remote_way *r) {
    if (r->claimant != NULL) coordinator_host_close(r->claimant, NULL, NULL, NULL);
    r->claimant = NULL;
}

/* ---- events of the signpost ---- */

static void on_won(void *arg, const struct signpost_value *v) {
    struct remote_way *r = arg;
    cr_info("this node hosts the coordinator, at '%s' port %u, as the TCPStore at the endpoint "
            "says", v->addr, v->port);
    r->way.host = r->claimant;
    r->claimant = NULL;
    r->may_claim = false;
    coordinator_host_lead(r->way.host, v->epoch, true);
    coordinator_host_may_form(r->way.host, CR_FOREVER);
    signpost_publish(r->signpost, v);
    connect_to(r, v->addr, v->port);
}

/* Makes this node's host send the nodes of the job to another node from now on: to the one that the
 * signpost names. Call this when the signpost names another node although this node hosts. */
static void step_down(struct remote_way *r, const struct signpost_value *v) {
    cr_warn("the TCPStore at the endpoint names '%s' port %u as the coordinator, not this node any "
            "more; nodes that come here are sent there", v->addr, v->port);
    coordinator_host_moved(r->way.host, r->run_id, v->epoch, v->addr, v->port);
    r->home.port = v->port;
    (void) snprintf(r->home.host, sizeof(r->home.host), "%s", v->addr);
}

static void on_named(void *arg, const struct signpost_value *v) {
    struct remote_way *r = arg;
    bool is_same = r->named.nonce == v->nonce && r->named.turn == v->turn;
    if (r->way.host != NULL) step_down(r, v);
    /* Do not connect if this node hosts, or is connected already: an heir that leads is connected
     * to itself, and learns of a later heir by its own host. */
    if (r->way.host != NULL || dial_is_open(r->dial)) return;
    close_claimant(r);
    if (!is_same) {
        cr_info("the TCPStore at the endpoint names '%s' port %u as the coordinator", v->addr,
                v->port);
        r->named = *v;
        r->named_ms = (int64_t) uv_now(r->way.loop);
    }
    connect_to(r, v->addr, v->port);
}

static void on_unknown(void *arg, const char *why) {
    struct remote_way *r = arg;
    (void) snprintf(r->report, sizeof(r->report), "%s", why);
    r->way.events->on_lost(r->way.arg, RENDEZVOUS_BROKEN, why);
}

/* Returns whether this node may write its address to the signpost now. A node that hosts may always
 * do so; an heir may do so only while it leads. */
static bool may_publish(void *arg) {
    const struct remote_way *r = arg;
    uint64_t epoch;
    if (r->way.host != NULL || r->way.heir == NULL) return true;
    return coordinator_host_leads(r->way.heir, r->run_id, &epoch);
}

static const struct signpost_events signpost_events = {
    .on_won = on_won, .on_named = on_named, .on_unknown = on_unknown, .may_publish = may_publish};

/* ---- looking ---- */

/* Opens the host whose address this node writes to the signpost when it claims. The host refuses
 * all nodes until the claim has won. Returns 0 or a negative errno. */
static int open_claimant(struct remote_way *r) {
    struct cr_error err = {0};
    struct coordinator_host_options h = {
        .store_host = r->plan.store_host, .store_addr = r->plan.own_addr,
        .listen_host = r->plan.listen_host, .jobs_come_later = true, .elected = true,
        .in_launcher = true, .allows_heirs = r->plan.allows_heirs, .own_run_id = r->run_id,
        .own_instance = r->plan.instance, .ports = r->plan.ports, .ring = r->way.ring,
        .close_timeout_ms = r->close_timeout_ms};
    if (r->claimant != NULL) return 0;
    int rc = coordinator_host_open(r->way.loop, &h, &r->claimant, &err);
    if (rc == 0) return 0;
    cr_warn("this node cannot host: %s", err.text);
    r->claimant = NULL;
    return rc;
}

/* Stores in `mine` the value with which this node claims the signpost. If `stale` is not NULL, that
 * is the value to be replaced, and `mine` is made newer than it. Returns false if no random number
 * can be drawn. */
static bool make_claim(const struct remote_way *r, const struct signpost_value *stale,
                       struct signpost_value *mine) {
    const char *addr = r->plan.own_addr[0] != '\0' ? r->plan.own_addr : r->own_end;
    *mine = (struct signpost_value){.epoch = 1, .port = coordinator_host_port(r->claimant)};
    if (stale != NULL) {
        mine->epoch = stale->epoch;
        mine->turn = stale->turn + 1;
    }
    (void) snprintf(mine->addr, sizeof(mine->addr), "%s", addr);
    return getrandom(&mine->nonce, sizeof(mine->nonce), 0) == sizeof(mine->nonce);
}

void remote_way_look(struct remote_way *r) {
    struct signpost_value mine;
    int64_t silent_ms = (int64_t) uv_now(r->way.loop) - r->named_ms;
    bool is_stale = r->named.port != 0 && silent_ms >= STALE_MS;
    const struct signpost_value *stale = is_stale ? &r->named : NULL;
    bool claims = r->may_claim && open_claimant(r) == 0 && make_claim(r, stale, &mine);
    if (claims && is_stale) {
        cr_warn("no coordinator answers at '%s' port %u, which the TCPStore at the endpoint names: "
                "this node takes its place", r->named.addr, r->named.port);
    }
    signpost_look(r->signpost, claims ? &mine : NULL, claims ? stale : NULL);
}

void remote_way_found_store(struct remote_way *r, const char *own_addr, const char *addr,
                            bool is_old) {
    cr_warn("at '%s' port %u is a TCPStore that is not crun's: it serves as a signpost; the nodes "
            "of job '%s' elect one that hosts the coordinator, at an address of its own",
            addr, r->home.port, r->run_id);
    (void) snprintf(r->own_end, sizeof(r->own_end), "%s", own_addr);
    r->report[0] = '\0';
    r->signpost = signpost_new(r->way.loop, addr, r->home.port, is_old, r->run_id, &signpost_events,
                               r);
    if (r->signpost != NULL) remote_way_look(r);
    else r->way.events->on_lost(r->way.arg, RENDEZVOUS_BROKEN, "out of memory");
}

/* ---- heirs, and the end ---- */

void remote_way_publish(struct remote_way *r, uint64_t epoch, const char *addr, uint16_t port) {
    struct signpost_value v = {.epoch = epoch, .port = port};
    (void) snprintf(v.addr, sizeof(v.addr), "%s", addr);
    if (getrandom(&v.nonce, sizeof(v.nonce), 0) == sizeof(v.nonce)) {
        signpost_publish(r->signpost, &v);
    }
}

void remote_way_leave_signpost(struct remote_way *r, void (*on_close)(void *arg), void *arg) {
    struct signpost *s = r->signpost;
    struct way *w = &r->way;
    const struct coordinator_host *leader = w->host != NULL ? w->host : w->heir;
    bool is_over = leader != NULL && !coordinator_host_has_running_job(leader);
    close_claimant(r);
    r->signpost = NULL;
    if (s != NULL) signpost_close(s, is_over, on_close, arg);
    else on_close(arg);
}
