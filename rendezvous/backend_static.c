/* static: node rank 0 is the coordinator, at the endpoint; ranks are the node ranks; the workers'
 * store has the endpoint's address and port in every round. */
#include "rendezvous/backend.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>

static int numeric(const struct cr_endpoint *e, char out[RDZV_ADDR_MAX], struct cr_error *err) {
    struct sockaddr_storage addr;
    socklen_t len;
    int rc = cr_address_resolve(e->host, e->port, &addr, &len, err);
    if (rc < 0) return rc;
    const void *raw = addr.ss_family == AF_INET6
                          ? (const void *) &((struct sockaddr_in6 *) (void *) &addr)->sin6_addr
                          : (const void *) &((struct sockaddr_in *) (void *) &addr)->sin_addr;
    if (inet_ntop(addr.ss_family, raw, out, RDZV_ADDR_MAX) == NULL) {
        return cr_fail_errno(err, "cannot write down the address of '%s'", e->host);
    }
    return 0;
}

int backend_static_plan(const struct rendezvous_options *o, struct backend_plan *out,
                        struct cr_error *err) {
    out->fixed_ranks = 1;
    out->node_rank = o->node_rank >= 0 ? o->node_rank : 0;
    if (o->max_nodes > 1) {
        return cr_fail(err, -ENOTSUP, "more than one node is not supported yet by backend static");
    }
    if (out->node_rank != 0) {
        return cr_fail(err, -EINVAL, "node rank %lld is outside of 0 to 0; --nnodes says how many nodes "
                       "there are", (long long) out->node_rank);
    }
    int rc = numeric(&o->endpoint, out->store_addr, err);
    if (rc < 0) return rc;
    out->hosting = 1;
    out->store_port = o->endpoint.port;
    (void) snprintf(out->own_addr, sizeof(out->own_addr), "%s", out->store_addr);
    (void) snprintf(out->store_host, sizeof(out->store_host), "%s", out->store_addr);
    return 0;
}
