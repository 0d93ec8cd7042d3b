/* Nodes behind relays: the shell around the host's end of a trunk (trunk_end_internal.h). Each of
 * these nodes has a host_peer, like a node that has connected directly, but without a connection of
 * its own. */
#include "rendezvous/host/host_internal.h"

#include "base/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct host_peer *peer_of(struct trunk_member *m) {
    return CR_CONTAINER_OF(m, struct host_peer, member);
}

struct host_peer *host_relay_of(const struct host_peer *peer) {
    return peer->member.trunk != NULL ? peer->member.trunk->arg : NULL;
}

/* ---- struct trunk_end_actions ---- */

static struct trunk_member *attach(void *arg, uint32_t place, const char *addr) {
    const struct host_peer *relay = arg;
    struct host_peer *peer = host_peer_new(relay->host, false);
    (void) place;
    if (peer == NULL) return NULL;
    peer->is_relayed = true;
    peer->member.session = &peer->session;
    /* if the address is not understood, relayed_ip stays unknown */
    if (cr_ip_parse(addr, &peer->relayed_ip) < 0) peer->relayed_ip = (struct cr_ip){{0}};
    return &peer->member;
}

static void lost(void *arg, struct trunk_member *m, enum rendezvous_loss how, const char *why) {
    (void) arg;
    host_peer_close(peer_of(m), how, why);
    host_peer_mark(peer_of(m)); /* also if it was being closed already */
}

static void changed(void *arg, struct trunk_member *m) {
    (void) arg;
    host_peer_mark(peer_of(m));
}

static const struct trunk_end_actions actions = {
    .attach = attach, .lost = lost, .changed = changed};

/* ---- the trunk ---- */

int host_on_relay(void *arg, const struct rdzv_relay *r, struct cr_error *err) {
    struct host_peer *relay = arg;
    if (relay->wire == NULL) return cr_fail(err, -EACCES, "a relay has a connection of its own");
    int rc = host_check_member(relay, r->run_id, err);
    if (rc < 0) return rc;
    struct host_trunk *t = calloc(1, sizeof(*t));
    if (t != NULL) t->run_id = strdup(r->run_id);
    if (t == NULL || t->run_id == NULL) {
        free(t);
        return cr_fail(err, -ENOMEM, "the coordinator is out of memory");
    }
    trunk_end_init(&t->end, &relay->session, &actions, relay);
    relay->trunk = t;
    return 0;
}

int host_on_trunk(void *arg, const char *data, size_t len, struct cr_error *err) {
    struct host_peer *relay = arg;
    int64_t now_ms = host_now_ms(relay->host);
    int rc = trunk_end_receive(&relay->trunk->end, now_ms, data, len, err);
    host_peer_mark(relay);
    return rc;
}

bool host_relay_keeps(struct host_peer *peer, const struct rdzv_message *m) {
    return trunk_end_keeps(&peer->member, m);
}

void host_relay_lost(struct host_peer *relay, const char *why) {
    if (relay->trunk != NULL) trunk_end_lost(&relay->trunk->end, why);
}

void host_trunk_free(struct host_trunk *t) {
    if (t == NULL) return;
    trunk_end_done(&t->end);
    free(t->run_id);
    free(t);
}

/* ---- sending, and the end of a member's session ---- */

/* Marks the relay, so that its bytes are sent and its deadline is set anew. Call this after
 * trunk_end_push() or trunk_end_flush() with its result `rc`; if that is negative, closes the
 * connection of the relay. */
static void pushed(struct host_peer *relay, int rc) {
    if (relay == NULL) return;
    if (rc < 0) host_peer_close(relay, RENDEZVOUS_BROKEN, "out of memory");
    else host_peer_mark(relay); /* even without bytes, for the deadline */
}

void host_push_relayed(struct host_peer *peer) {
    struct host_peer *relay = host_relay_of(peer);
    pushed(relay, trunk_end_push(&peer->member));
}

void host_flush_relayed(struct host_peer *peer) {
    struct host_peer *relay = host_relay_of(peer);
    bool is_over;
    pushed(relay, trunk_end_flush(&peer->member, host_now_ms(peer->host), &is_over));
    if (is_over) host_peer_free(peer);
}

/* ---- closing the host ---- */

void host_end_relays(struct coordinator_host *host) {
    struct host_peer *peer;
    LIST_FOREACH(peer, &host->peers, entry) {
        if (peer->trunk == NULL || trunk_end_has_members(&peer->trunk->end)) continue;
        if (peer->session.state == HOST_SESSION_RELAYING) host_peer_hang_up(peer);
    }
}
