/* Decides who may do what at a host: the tunnels of remote peers, the checks of what an
 * authenticated node or operator may do, and the answers to those that have not authenticated. */
#include "rendezvous/host/host_internal.h"

#include "base/log/log.h"
#include "base/network/address.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int host_open_tunnel(struct host_peer *peer) {
    struct secure_ring *ring = peer->host->ring;
    const struct secure_keys *keys = ring != NULL ? secure_ring_keys(ring) : NULL;
    int rc = secure_accept(keys, &peer->wire->tunnel, NULL);
    bool is_later = rc == 0 && keys != NULL && host_agrees_later(peer->host);
    if (is_later) secure_tunnel_defer(peer->wire->tunnel);
    return rc;
}

/* ---- refusing ---- */

/* Logs that a connection is refused. */
static void log_refusal(struct host_peer *peer, enum secure_failure why) {
    const char *role =
        secure_tunnel_role(peer->wire->tunnel) == SECURE_OPERATOR ? "an operator" : "a node";
    const char *run_id = secure_tunnel_run_id(peer->wire->tunnel);
    struct sockaddr_storage addr;
    int len = sizeof(addr);
    char where[CR_ADDRESS_MAX] = "an unknown address", job[300] = "";
    if (uv_tcp_getpeername(&peer->wire->tcp, (struct sockaddr *) &addr, &len) == 0) {
        cr_address_format((struct sockaddr *) &addr, where);
    }
    if (run_id[0] != '\0') (void) snprintf(job, sizeof(job), " of job '%.200s'", run_id);
    const char *detail = secure_tunnel_detail(peer->wire->tunnel);
    bool misses_munge = why == SECURE_IS_PLAIN && secure_ring_is_munge(peer->host->ring);
    cr_log_limited(&peer->host->refusals, CR_LOG_WARN, "refused %s%s at %s: %s%s%s", role, job,
                   where, misses_munge ? "it does not use MUNGE" : secure_failure_text(why, true),
                   detail[0] != '\0' ? ": " : "", detail);
}

/* Sends REFUSED, without encryption, to a node or an operator that has no secret. Such a peer
 * cannot check who has sent REFUSED, and accepts it. */
static void refuse_plain(struct host_peer *peer) {
    struct rdzv_message m = {.type = RDZV_REFUSED};
    m.refused = (struct rdzv_refused){
        .version_min = RDZV_VERSION_MIN, .version_max = RDZV_VERSION_MAX,
        .why = secure_ring_is_munge(peer->host->ring)
                   ? "this coordinator serves only those that authenticate by MUNGE; start crun as "
                     "a task of Slurm, or with --rdzv-conf=auth=munge (docs/security.md)"
                   : "this coordinator serves only those that have the job's secret; give "
                     "--rdzv-token-file, or CRUN_RDZV_TOKEN_FILE (docs/security.md)"};
    (void) rdzv_message_encode(&m, RDZV_VERSION_MIN, secure_tunnel_out(peer->wire->tunnel));
}

/* Call this when the tunnel of a peer has failed. If somebody on the way has changed bytes of an
 * authenticated connection, or if memory is short, the connection is reset. The reset shows the
 * node that this process has not ended. The node keeps its seat until its lease is over, and may
 * resume. */
static void refuse(struct host_peer *peer) {
    enum secure_failure why = secure_tunnel_failure(peer->wire->tunnel);
    log_refusal(peer, why);
    if (why == SECURE_CHANGED || why == SECURE_MEMORY) {
        peer->wire->resets = true;
        host_peer_close(peer, RENDEZVOUS_BROKEN, secure_failure_text(why, true));
        return;
    }
    if (why == SECURE_IS_PLAIN) refuse_plain(peer);
    host_session_hang_up(&peer->session, host_now_ms(peer->host));
}

/* ---- bytes through the tunnel ---- */

void host_receive(struct host_peer *peer, const char *data, size_t len) {
    struct secure_tunnel *tunnel = peer->wire->tunnel;
    if (secure_tunnel_state(tunnel) == SECURE_FAILED) return;
    secure_tunnel_receive(tunnel, data, len);
    host_tunnel_settle(peer);
}

void host_tunnel_settle(struct host_peer *peer) {
    struct secure_tunnel *tunnel = peer->wire->tunnel;
    struct cr_buffer *in = secure_tunnel_in(tunnel);
    if (in->len > 0) {
        host_session_receive(&peer->session, host_now_ms(peer->host), in->data, in->len);
        if (peer->trunk != NULL) cr_buffer_done(in); /* frees the memory: 20 KiB for 64 JOINs */
        else cr_buffer_clear(in);
    }
    if (secure_tunnel_state(tunnel) == SECURE_FAILED) refuse(peer);
    if (secure_tunnel_state(tunnel) == SECURE_AGREE) host_agree(peer);
}

struct cr_buffer *host_outgoing(struct host_peer *peer) {
    struct cr_buffer *out = &peer->session.out;
    enum secure_state state = secure_tunnel_state(peer->wire->tunnel);
    if (state == SECURE_PLAIN) return out;
    if (state == SECURE_OPEN && secure_tunnel_send(peer->wire->tunnel, out->data, out->len) < 0) {
        return NULL;
    }
    /* `out` is not needed any more: if the tunnel is open, all its bytes were sealed; if not, the
     * session has received nothing, so it has nothing to answer */
    cr_buffer_clear(out);
    return secure_tunnel_out(peer->wire->tunnel);
}

/* ---- who may do what ---- */

static bool is_trusted(const struct host_peer *peer) {
    return peer->local || peer->host->ring == NULL;
}

/* A node behind a relay does not authenticate itself: its relay has authenticated as a member of
 * the job. */
int host_check_member(const struct host_peer *peer, const char *run_id, struct cr_error *err) {
    const struct host_peer *relay = host_relay_of(peer);
    if (peer->is_relayed && relay == NULL) return cr_fail(err, -EACCES, "its relay is lost");
    if (peer->is_relayed && strcmp(relay->trunk->run_id, run_id) != 0)
        return cr_fail(err, -EACCES, "the relay of this node serves another job");
    if (peer->is_relayed) return 0;
    if (is_trusted(peer)) return 0;
    if (secure_tunnel_role(peer->wire->tunnel) != SECURE_MEMBER) {
        return cr_fail(err, -EACCES, "an operator's key does not admit a node");
    }
    if (strcmp(secure_tunnel_run_id(peer->wire->tunnel), run_id) == 0) return 0;
    return cr_fail(err, -EACCES, "the node has the key of the job '%.200s', not of '%.200s'",
                   secure_tunnel_run_id(peer->wire->tunnel), run_id);
}

int host_check_operator(const struct host_peer *peer, const char *run_id, struct cr_error *err) {
    if (peer->is_relayed) return cr_fail(err, -EACCES, "a relay carries nodes, and no operators");
    if (is_trusted(peer)) return 0;
    if (secure_tunnel_role(peer->wire->tunnel) != SECURE_OPERATOR) {
        return cr_fail(err, -EACCES, "a node's key gives no orders and asks no questions");
    }
    const char *own = secure_tunnel_run_id(peer->wire->tunnel);
    if (own[0] == '\0' || strcmp(own, run_id) == 0) return 0;
    return cr_fail(err, -EACCES, "this key is for the job '%.200s' only", own);
}

/* ---- open jobs ---- */

void host_say_if_open(struct coordinator_host *host) {
    if (host->ring != NULL || !host->says_open) return;
    host->says_open = false;
    const char *absence = secure_munge_absence();
    cr_warn("the rendezvous is open to its network: whoever reaches port %u of this node can join "
            "a job, end it and change its store; give all nodes the same --rdzv-token-file to "
            "close it, or auth=off if that is meant%s%s", coordinator_host_port(host),
            absence[0] != '\0' ? "; MUNGE is not used: " : "", absence);
}
