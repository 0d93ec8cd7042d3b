/* The backend c10d: the endpoint names the coordinator's host and port. The node whose machine has
 * the endpoint's address hosts the coordinator. If several nodes run on that machine, the one that
 * can bind the port hosts, and the others connect to it. If the job has only one node, the node
 * hosts on loopback, and the endpoint is not used. */
#include "rendezvous/way/backend_internal.h"

#include <errno.h>
#include <stdio.h>

static void plan_alone(struct backend_plan *out) {
    out->hosting = BACKEND_HOSTS;
    out->alone = true;
    (void) snprintf(out->own_addr, sizeof(out->own_addr), "127.0.0.1");
    (void) snprintf(out->store_host, sizeof(out->store_host), "127.0.0.1");
    (void) snprintf(out->store_addr, sizeof(out->store_addr), "127.0.0.1");
}

/* Plans where the stores listen. Workers on other nodes must reach them, so they listen on all
 * interfaces, unless the endpoint is a loopback address, which means that all nodes are on this
 * machine. */
static void plan_host(const struct rendezvous_options *o, const struct backend_addresses *found,
                      struct backend_plan *out) {
    const char *addr = found->local[0] != '\0' ? found->local : found->first;
    const char *bind = found->is_loopback ? found->first : "";
    (void) snprintf(out->store_host, sizeof(out->store_host), "%s", bind);
    (void) snprintf(out->listen_host, sizeof(out->listen_host), "%s", bind);
    (void) snprintf(out->store_addr, sizeof(out->store_addr), "%s",
                    out->own_addr[0] != '\0' ? out->own_addr : addr);
    out->listen_port = o->endpoint.port;
}

int backend_c10d_plan(const struct rendezvous_options *o, struct backend_plan *out,
                      struct cr_error *err) {
    if (o->max_nodes == 1 && (o->standalone || o->is_host != 0)) {
        plan_alone(out);
        return 0;
    }
    if (o->endpoint.port == 0) {
        return cr_fail(err, -EINVAL,
                       "the rendezvous endpoint '%s' of more than one node needs a port; "
                       "write --rdzv-endpoint=HOST:PORT",
                       o->endpoint.host);
    }
    struct backend_addresses found;
    int rc = backend_look_up(o->endpoint.host, &found, err);
    if (rc < 0) return rc;
    (void) snprintf(out->facts, sizeof(out->facts), "%s", found.text);
    if (o->is_host == 0) out->hosting = BACKEND_CONNECTS;
    else if (o->is_host > 0) out->hosting = BACKEND_HOSTS;
    else out->hosting = found.local[0] != '\0' ? BACKEND_MAY_HOST : BACKEND_CONNECTS;
    if (out->hosting != BACKEND_CONNECTS) plan_host(o, &found, out);
    return 0;
}
