/* The store that a node offers with its JOIN, for the case that it becomes group rank 0: see
 * host.h. */
#include "rendezvous/host/host.h"

#include "store/store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct store_offer {
    struct store_server *server;
    char listen_host[CR_HOST_MAX];
    struct store_space *offered; /* an unused store; or NULL */
    uint16_t offered_port;
    struct store_space *serving; /* the store of the round; NULL = another node has that store */
};

struct store_offer *store_offer_new(const char *listen_host, struct cr_port_range ports,
                                    struct cr_error *err) {
    const struct store_server_options options = {.ports = ports};
    struct store_offer *o = calloc(1, sizeof(*o));
    if (o == NULL) {
        (void) cr_fail(err, -ENOMEM, "offer a store: out of memory");
        return NULL;
    }
    (void) snprintf(o->listen_host, sizeof(o->listen_host), "%s", listen_host);
    if (store_server_start(&options, &o->server, err) == 0) return o;
    free(o);
    return NULL;
}

int store_offer_port(struct store_offer *o, uint16_t *port, struct cr_error *err) {
    int rc = 0;
    if (o->offered == NULL) {
        rc = store_server_open(o->server, o->listen_host, 0, &o->offered, &o->offered_port, err);
    }
    if (rc == 0) *port = o->offered_port;
    return rc;
}

void store_offer_settle(struct store_offer *o, uint16_t port) {
    store_space_close(o->serving);
    o->serving = NULL;
    if (port != 0 && port == o->offered_port) o->serving = o->offered;
    else store_space_close(o->offered);
    o->offered = NULL;
    o->offered_port = 0;
}

void store_offer_free(struct store_offer *o) {
    if (o == NULL) return;
    store_offer_settle(o, 0);
    store_server_stop(o->server);
    free(o);
}
