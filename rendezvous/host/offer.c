/* The store that a node offers with its JOIN, for the case that it becomes group rank 0: see
 * host.h. */
#include "rendezvous/host/host.h"

#include "base/log/log.h"
#include "rendezvous/host/host_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct store_offer {
    struct store_server *server;
    char listen_host[CR_HOST_MAX];
    struct rendezvous_store_guard guard;
    bool is_restricted; /* true: the stores serve only nodes of their round and guard.networks */
    struct cr_network_list admitted; /* addresses of the nodes of the next round */
    struct store_space *offered; /* an unused store; or NULL */
    uint16_t offered_port;
    struct store_space *serving; /* the store of the round; NULL = another node has that store */
    bool serves_gateways;
    struct secure_ring *ring;
    char *run_id;
    struct store_codec codec; /* the codec of `serving`, if that store serves gateways */
};

/* Returns the bytes with which a gateway's connection begins. If the job has a secret, the
 * connection begins with the tunnel. */
static const char *gateway_magic(const struct store_offer *o) {
    return o->ring != NULL ? SECURE_MAGIC : STORE_GATEWAY_MAGIC;
}

static int serve_gateways(struct store_offer *o, const struct store_offer_options *options,
                          struct cr_error *err) {
    o->serves_gateways = true;
    o->is_restricted = true;
    o->ring = options->ring;
    o->run_id = strdup(options->run_id);
    return o->run_id != NULL ? 0 : cr_fail(err, -ENOMEM, "offer a store: out of memory");
}

struct store_offer *store_offer_new(const struct store_offer_options *options,
                                    struct cr_error *err) {
    struct store_offer *o = calloc(1, sizeof(*o));
    if (o == NULL) {
        (void) cr_fail(err, -ENOMEM, "offer a store: out of memory");
        return NULL;
    }
    (void) snprintf(o->listen_host, sizeof(o->listen_host), "%s", options->listen_host);
    o->guard = options->guard;
    o->is_restricted = host_guard_restricts(&o->guard, options->has_secret);
    int rc = options->serves_gateways ? serve_gateways(o, options, err) : 0;
    const struct store_server_options server = {.ports = options->ports,
                                                .restricted = o->is_restricted};
    if (rc == 0) rc = store_server_start(&server, &o->server, err);
    if (rc == 0 && o->serves_gateways) {
        rc = store_server_serve_gateways(o->server, gateway_magic(o));
    }
    if (rc == 0) return o;
    store_server_stop(o->server);
    free(o->run_id);
    free(o);
    return NULL;
}

int store_offer_admit(struct store_offer *o, uint32_t part, const char *addresses) {
    if (part == 0) cr_network_list_done(&o->admitted);
    return cr_network_list_add_text(&o->admitted, addresses);
}

/* Tells the store of the round which nodes the round has. */
static void let_nodes_in(struct store_offer *o, bool knows_nodes) {
    static const struct cr_network everybody = {.bits = 0};
    int rc = host_guard_add(&o->guard, &o->admitted);
    /* the nodes of the round come by their gateways, so only guard.networks are admitted */
    if (o->serves_gateways) {
        cr_network_list_done(&o->admitted);
        rc = host_guard_add(&o->guard, &o->admitted);
        knows_nodes = true;
    }
    if (!o->is_restricted && !knows_nodes) return;
    if (rc == 0 && !knows_nodes) rc = cr_network_list_add(&o->admitted, &everybody);
    if (!knows_nodes) {
        cr_warn("the store of this round serves everybody, because the coordinator's version of "
                "crun does not tell which nodes may use it; install the same version there");
    }
    if (rc == 0) rc = host_tell_space(o->serving, o->is_restricted, &o->admitted);
    if (rc < 0) cr_warn("the store of this round does not know its nodes: out of memory");
}

int store_offer_port(struct store_offer *o, uint16_t *port, struct cr_error *err) {
    int rc = 0;
    if (o->offered == NULL) {
        rc = store_server_open(o->server, o->listen_host, 0, &o->offered, &o->offered_port, err);
    }
    if (rc == 0) *port = o->offered_port;
    return rc;
}

void store_offer_settle(struct store_offer *o, uint16_t port, bool knows_nodes) {
    store_space_close(o->serving);
    host_gate_codec_free(&o->codec);
    o->serving = NULL;
    if (port != 0 && port == o->offered_port) o->serving = o->offered;
    else store_space_close(o->offered);
    if (o->serving != NULL) let_nodes_in(o, knows_nodes);
    cr_network_list_done(&o->admitted);
    o->offered = NULL;
    o->offered_port = 0;
}

bool store_offer_begin_round(struct store_offer *o, uint64_t incarnation, uint64_t round) {
    if (o->serving == NULL || !o->serves_gateways) return o->serving != NULL;
    if (host_gate_codec_new(o->ring, o->run_id, &o->codec) == 0) {
        store_space_begin_round(o->serving, incarnation, round, &o->codec);
    } else {
        cr_warn("the store of this round serves no other node: out of memory");
    }
    return true;
}

void store_offer_free(struct store_offer *o) {
    if (o == NULL) return;
    store_offer_settle(o, 0, true);
    store_server_stop(o->server);
    free(o->run_id);
    free(o);
}
