/* The way to the coordinator that etcd has elected: a remote way whose host is set to each new
 * leader. Every node listens for other nodes all the time, but serves them only while it leads.
 *
 * If etcd does not confirm a leader in time (because etcd has no majority, for example), the
 * running round goes on, because that needs no decision of the coordinator. The leader forms no
 * round before etcd confirms it again. If a round becomes due before that, the leader waits for the
 * time of one lease. If etcd has not confirmed it by then, the leader closes all connections, so
 * that nodes that still reach etcd can elect another leader. */
#include "rendezvous/way/remote_way_internal.h"

#include "base/buffer.h"
#include "base/log/log.h"
#include "base/time/clock.h"
#include "rendezvous/etcd/etcd.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

struct elected_way {
    struct remote_way remote;
    struct etcd_client *client;
    struct cr_endpoint leader; /* the newest leader */
    uint64_t epoch;            /* epoch of `leader`; 0 = no leader was known yet */
    bool is_first;             /* true: as far as this node knows, no node led before */
    bool has_leader;
    bool has_right;            /* true: this node leads and has the right to form rounds */
    bool waits_for_leader; /* true: way_connect() waits until a leader is known */
    struct cr_buffer greeting; /* the greeting of that way_connect() */
};

/* ---- events of the election ---- */

/* Makes the connection follow a newly elected leader. `is_same` is true if the leader listens at
 * the address of the previous leader. If way_connect() waits for a leader, this function connects.
 * Otherwise an open connection stays if the address is the same, even if the epoch is new; a
 * connection to another address is closed. */
static void follow(struct elected_way *e, bool is_same) {
    struct way *w = &e->remote.way;
    if (e->waits_for_leader) {
        e->waits_for_leader = false;
        remote_way_connect(w, e->greeting.data, e->greeting.len);
    } else if (!is_same && dial_is_open(e->remote.dial)) {
        remote_way_hang_up(w);
        w->events->on_lost(w->arg, RENDEZVOUS_BROKEN, "another node has been elected");
    }
}

static void on_leader(void *arg, const struct etcd_key *key, bool is_us) {
    struct elected_way *e = arg;
    const struct cr_endpoint *at = &key->at;
    bool is_same = strcmp(at->host, e->leader.host) == 0 && at->port == e->leader.port;
    cr_info("the coordinator is '%s' port %u%s, epoch %" PRIu64, at->host, at->port,
            is_us ? " (this node)" : "", key->epoch);
    e->epoch = key->epoch;
    e->is_first = key->is_first;
    if (is_us) coordinator_host_lead(e->remote.way.host, key->epoch, key->is_first);
    else coordinator_host_depose(e->remote.way.host, "another node leads");
    e->has_leader = true;
    e->leader = *at;
    if (dial_aim(e->remote.dial, at->host, at->port) < 0)
        /* memory is short: the dial keeps the address of the old leader until the next election */
        return;
    follow(e, is_same);
}

/* Call this when the leader's key has vanished from etcd. The connection to the leader stays open:
 * perhaps the leader has only lost its connection to etcd, and its round goes on. */
static void on_vacant(void *arg) { ((struct elected_way *) arg)->has_leader = false; }

static void on_right(void *arg, int64_t until_ms) {
    struct elected_way *e = arg;
    struct coordinator_host *host = e->remote.way.host;
    bool is_new = !e->has_right && until_ms > 0;
    e->has_right = until_ms > 0;
    if (is_new) coordinator_host_lead(host, e->epoch, e->is_first);
    else if (!e->has_right)
        cr_warn("etcd does not confirm this node as the coordinator (%s); the running round goes "
                "on, but no new round forms until it does",
                etcd_client_trouble(e->client));
    coordinator_host_may_form(host, until_ms);
}

static const struct etcd_client_events client_events = {
    .on_leader = on_leader, .on_vacant = on_vacant, .on_right = on_right};

const char *way_elected_trouble(const struct way *w) {
    return etcd_client_trouble(((const struct elected_way *) w)->client);
}

/* ---- the calls of way.h ---- */

/* Connects to the leader. If no leader is known, stores the greeting, which is sent when a leader
 * is elected. If memory is too short to store it, an empty greeting is sent: the connection then
 * ends without an answer, and the member tries again. */
static void elected_connect(struct way *w, const void *greeting, size_t len) {
    struct elected_way *e = (struct elected_way *) w;
    e->waits_for_leader = !e->has_leader;
    cr_buffer_clear(&e->greeting);
    if (e->has_leader) remote_way_connect(w, greeting, len);
    else (void) cr_buffer_append(&e->greeting, greeting, len);
    etcd_client_need(e->client, true);
}

/* The member sends bytes only when it is connected, so a call of this function shows that this node
 * does not look for a coordinator any more. */
static void elected_send(struct way *w, const void *data, size_t len) {
    etcd_client_need(((struct elected_way *) w)->client, false);
    remote_way_send(w, data, len);
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
    bool is_over = !coordinator_host_has_running_job(w->host);
    etcd_client_close(e->client, is_over, on_election_closed, e);
}

const struct way_kind way_elected = {
    .description = "is elected", .connect = elected_connect, .send = elected_send,
    .flush = remote_way_flush, .hang_up = elected_hang_up, .close = elected_close};

/* ---- opening the way ---- */

static int64_t claim_delay_ms(const struct rendezvous_options *o, uint64_t random) {
    if (o->etcd.is_candidate == 0) return CR_FOREVER;
    return o->etcd.is_candidate == 1 ? 0 : etcd_claim_delay_ms(random, o->max_nodes);
}

static int open_client(struct elected_way *e, const struct rendezvous_options *o,
                       const struct backend_plan *plan, uint16_t port, struct cr_error *err) {
    uint64_t random;
    if (getrandom(&random, sizeof(random), 0) != sizeof(random)) {
        return cr_fail_errno(err, "cannot draw a random number");
    }
    struct etcd_client_options options = {
        .run_id = o->run_id, .etcd = &o->etcd, .lease_ms = plan->etcd_lease_ms,
        .claim_delay_ms = claim_delay_ms(o, random), .own_addr = plan->own_addr, .own_port = port,
        .seed = random};
    return etcd_client_open(e->remote.way.loop, &options, &client_events, e, &e->client, err);
}

int way_elected_new(uv_loop_t *loop, const struct rendezvous_options *o,
                    const struct backend_plan *plan, struct coordinator_host *host,
                    struct way **out, struct cr_error *err) {
    struct elected_way *e = calloc(1, sizeof(*e));
    if (e == NULL ||
        remote_way_init(&e->remote, &way_elected, loop, o->etcd.endpoints[0].host, 1,
                                     o->run_id) < 0) {
        free(e);
        return cr_fail(err, -ENOMEM, "start the rendezvous: out of memory");
    }
    int rc = open_client(e, o, plan, coordinator_host_port(host), err);
    if (rc < 0) {
        remote_way_drop(&e->remote);
        return rc;
    }
    e->remote.way.host = host;
    *out = &e->remote.way;
    return 0;
}
