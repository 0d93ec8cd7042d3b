/* The way to the coordinator that etcd has elected: a remote way whose host is set to each new
 * leader. Every node listens for other nodes all the time, but serves them only while it leads. */
#include "rendezvous/way/remote_way_internal.h"

#include "base/buffer.h"
#include "base/log.h"
#include "rendezvous/way/etcd_election_internal.h"

#include <inttypes.h>
#include <stdlib.h>

struct elected_way {
    struct remote_way remote;
    struct etcd_election *election;
    bool has_leader;
    bool waits_for_leader; /* way_connect() was called while no leader was known */
    struct cr_buffer greeting; /* of that call */
};

/* ---- events of the election ---- */

static void follow(struct elected_way *e) {
    struct way *w = &e->remote.way;
    if (e->waits_for_leader) {
        e->waits_for_leader = false;
        remote_way_connect(w, e->greeting.data, e->greeting.len);
    } else if (dial_is_open(e->remote.dial)) {
        remote_way_hang_up(w);
        w->events->on_lost(w->arg, RENDEZVOUS_BROKEN, "another node has been elected");
    }
}

static void on_leader(void *arg, const char *host, uint16_t port, uint64_t epoch, bool is_us) {
    struct elected_way *e = arg;
    cr_info("the coordinator is '%s' port %u%s, epoch %" PRIu64, host, port,
            is_us ? " (this node)" : "", epoch);
    if (is_us) coordinator_host_lead(e->remote.way.host, epoch);
    else coordinator_host_depose(e->remote.way.host, "another node leads");
    e->has_leader = true;
    if (dial_aim(e->remote.dial, host, port) < 0)
        /* memory is short, so the address of the old leader stays until the next election */
        return;
    follow(e);
}

static void on_deposed(void *arg, const char *why) {
    struct elected_way *e = arg;
    cr_warn("this node is not the coordinator any more: %s", why);
    e->has_leader = false;
    coordinator_host_depose(e->remote.way.host, why);
}

static const struct etcd_election_events election_events = {.on_leader = on_leader,
                                                            .on_deposed = on_deposed};

const char *way_elected_trouble(const struct way *w) {
    return etcd_election_trouble(((const struct elected_way *) w)->election);
}

/* ---- the calls of way.h ---- */

/* While no leader is known, keeps the greeting. If memory is short for it, the connection will be
 * closed without an answer, and the member tries again. */
static void elected_connect(struct way *w, const void *greeting, size_t len) {
    struct elected_way *e = (struct elected_way *) w;
    e->waits_for_leader = !e->has_leader;
    cr_buffer_clear(&e->greeting);
    if (e->has_leader) remote_way_connect(w, greeting, len);
    else (void) cr_buffer_append(&e->greeting, greeting, len);
}

static void elected_hang_up(struct way *w) {
    ((struct elected_way *) w)->waits_for_leader = false;
    remote_way_hang_up(w);
}

static void on_election_closed(void *arg) {
    struct elected_way *e = arg;
    cr_buffer_done(&e->greeting);
    remote_way_close(&e->remote.way);
}

/* Closes the election before the connection, so that this node cannot be elected while it
 * closes. */
static void elected_close(struct way *w) {
    struct elected_way *e = (struct elected_way *) w;
    etcd_election_close(e->election, on_election_closed, e);
}

const struct way_kind way_elected = {
    .description = "is elected", .connect = elected_connect, .send = remote_way_send,
    .flush = remote_way_flush, .hang_up = elected_hang_up, .close = elected_close};

/* ---- opening the way ---- */

static void on_dial_closed(void *arg) { free(arg); }

struct way *way_elected_new(uv_loop_t *loop, const struct rendezvous_options *o,
                            const struct backend_plan *plan, struct coordinator_host *host) {
    struct elected_way *e = calloc(1, sizeof(*e));
    struct etcd_election_options options = {
        .run_id = o->run_id, .endpoint = plan->etcd, .lease_ms = plan->etcd_lease_ms,
        .own_addr = plan->own_addr, .own_port = coordinator_host_port(host)};
    if (e == NULL || remote_way_init(&e->remote, &way_elected, loop, plan->etcd.host, 1,
                                     o->run_id) < 0) {
        free(e);
        return NULL;
    }
    e->election = etcd_election_start(loop, &options, &election_events, e);
    if (e->election == NULL) {
        dial_close(e->remote.dial, on_dial_closed, e);
        return NULL;
    }
    e->remote.way.host = host;
    return &e->remote.way;
}
