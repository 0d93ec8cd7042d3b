/* Decides whom the stores of the rounds serve. In a job with a secret, or if --store-allow says so,
 * a store serves only its own machine, the nodes of the round, and the networks of --store-allow.
 * The coordinator says which nodes are in a round (host_admit); this file knows the addresses of
 * these nodes. A store in this process gets the addresses directly. If the node with group rank 0
 * has the store, that node gets the addresses by NODES. */
#include "rendezvous/host/host_internal.h"

#include "base/log/log.h"
#include "base/network/address.h"

#include <errno.h>
#include <string.h>

bool host_guard_restricts(const struct rendezvous_store_guard *guard, bool has_secret) {
    if (guard->access == RENDEZVOUS_STORE_AUTO) return has_secret;
    return guard->access == RENDEZVOUS_STORE_NODES;
}

int host_guard_add(const struct rendezvous_store_guard *guard, struct cr_network_list *list) {
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < guard->network_count; i++) {
        rc = cr_network_list_add(list, &guard->networks[i]);
    }
    return rc;
}

int host_tell_space(struct store_space *space, bool is_restricted, struct cr_network_list *nodes) {
    cr_network_list_sort(nodes);
    return is_restricted ? store_space_restrict(space, nodes) : store_space_know(space, nodes);
}

/* ---- the addresses of a node ---- */

int host_peer_ip(const struct host_peer *peer, struct cr_ip *out) {
    struct sockaddr_storage from;
    int len = sizeof(from);
    static const struct cr_ip unknown;
    if (peer->is_relayed) {
        *out = peer->relayed_ip;
        return memcmp(out, &unknown, sizeof(unknown)) == 0 ? -ENOTCONN : 0;
    }
    if (peer->local) return -ENOTCONN;
    if (uv_tcp_getpeername(&peer->wire->tcp, (struct sockaddr *) &from, &len) < 0) return -ENOTCONN;
    return cr_address_ip((struct sockaddr *) &from, out) ? 0 : -ENOTCONN;
}

static bool has_address(const struct cr_network_list *l, const struct cr_ip *ip) {
    for (size_t i = 0; i < l->count; i++) {
        if (memcmp(&l->items[i].ip, ip, sizeof(*ip)) == 0) return true;
    }
    return false;
}

/* Appends the address from which a remote node has connected to peer->addresses, unless the node
 * has named this address, as most nodes do. Returns 0 or -ENOMEM; does nothing and returns 0 if
 * that address is not known, or if the node is in this process. */
static int add_observed(struct host_peer *peer) {
    struct cr_ip ip;
    if (host_peer_ip(peer, &ip) < 0 || has_address(&peer->addresses, &ip)) return 0;
    return cr_network_list_add_ip(&peer->addresses, &ip);
}

void host_note_addresses(struct host_peer *peer, const struct rdzv_join *join) {
    cr_network_list_done(&peer->addresses);
    int rc = cr_network_list_add_text(&peer->addresses, join->addr);
    if (rc == 0) rc = cr_network_list_add_text(&peer->addresses, join->addresses);
    if (rc == 0) rc = add_observed(peer);
    if (rc < 0) cr_warn("the store will not serve node '%.200s': out of memory", join->host);
}

/* ---- a port without a store of a round ---- */

int host_close_door(struct coordinator_host *host, struct store_space *space,
                    struct cr_error *err) {
    struct cr_network_list list = {0};
    if (space == NULL) return 0;
    int rc = host_guard_add(&host->guard, &list);
    if (rc == 0) rc = host_tell_space(space, host->is_restricted, &list);
    cr_network_list_done(&list);
    return rc < 0 ? cr_fail(err, rc, "cannot open the store: out of memory") : 0;
}

/* ---- the store of a round ---- */

void host_admit(void *arg, void *peer) {
    struct job_store *js = host_job_store(arg);
    const struct host_peer *node = peer;
    int rc = 0;
    for (size_t i = 0; node != NULL && rc == 0 && i < node->addresses.count; i++) {
        rc = cr_network_list_add(&js->admitted, &node->addresses.items[i]);
    }
    if (rc < 0) cr_warn("the store will not serve all nodes of the round: out of memory");
}

/* Sends the addresses of the round's nodes to `peer`, in as many NODES messages as are
 * necessary. */
static void send_nodes(const struct job_store *js, struct host_peer *peer, uint64_t round) {
    char text[RDZV_TEXT_MAX] = "";
    struct rdzv_message m = {.type = RDZV_NODES};
    m.nodes = (struct rdzv_nodes){.round = round, .addresses = text};
    size_t len = 0;
    for (size_t i = 0; i < js->admitted.count; i++) {
        char address[CR_NETWORK_TEXT_MAX];
        cr_ip_format(&js->admitted.items[i].ip, address);
        if (len + strlen(address) + 2 > sizeof(text)) {
            host_peer_send(peer, &m);
            m.nodes.part++;
            len = 0;
        }
        if (len > 0) text[len++] = ' ';
        len = (size_t) (stpcpy(text + len, address) - text);
    }
    host_peer_send(peer, &m);
}

void host_prepare_store(void *arg, void *peer, uint64_t round, bool has_store) {
    struct job_store *js = host_job_store(arg);
    const struct coordinator_host *host = host_of_job(&js->job);
    cr_network_list_sort(&js->admitted); /* also removes duplicates */
    /* NODES is sent in any case: the node's own options say whether its store serves only these
     * addresses */
    if (has_store) send_nodes(js, peer, round);
    if (has_store || js->space == NULL) return;
    int rc = host_guard_add(&host->guard, &js->admitted);
    if (rc == 0) rc = host_tell_space(js->space, host->is_restricted, &js->admitted);
    if (rc < 0) cr_warn("the store of this round serves no other node: out of memory");
}
