/* The backend static: the node with node rank 0 hosts the coordinator, at the endpoint. Each node's
 * group rank is its node rank. The workers' store has the endpoint's address and port in every
 * round, and MASTER_ADDR is the text that the user gave, as under torchrun. */
#include "rendezvous/way/backend_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

/* Every node has node rank 0 by default, but only a node on the endpoint's machine can have it.
 * Without this check, each node whose user forgot --node-rank would host, and would wait in vain
 * for the others. */
static int check_forgotten_rank(const struct rendezvous_options *o,
                                const struct backend_plan *plan,
                                const struct host_addresses *found, struct cr_error *err) {
    if (o->node_rank_given || plan->one_node || plan->unresolved) return 0;
    if (plan->node_rank != 0 || found->local[0] != '\0') return 0;
    return cr_fail(err, -EINVAL,
                   "this node cannot have node rank 0, because the endpoint is another machine; "
                   "give every node its --node-rank (%.300s)", found->text);
}

int backend_static_plan(const struct rendezvous_options *o, struct backend_plan *out,
                        struct cr_error *err) {
    struct host_addresses found;
    out->fixed_ranks = true;
    out->node_rank = o->node_rank >= 0 ? o->node_rank : 0;
    out->one_node = o->max_nodes == 1;
    if (out->node_rank >= o->max_nodes) {
        return cr_fail(err, -EINVAL,
                       "node rank %" PRId64 " is outside of 0 to %" PRIu32
                       "; --nnodes says how many nodes there are",
                       out->node_rank, o->max_nodes - 1);
    }
    if (o->endpoint.port == 0 && o->max_nodes > 1) {
        return cr_fail(err, -EINVAL,
                       "the rendezvous endpoint '%s' of more than one node needs a port; "
                       "give --master-port",
                       o->endpoint.host);
    }
    if (out->one_node) {
        int rc = addr_look_up(o->endpoint.host, &found, err);
        if (rc < 0) return rc;
    } else {
        backend_look_up_endpoint(o, &found, out);
    }
    int rc = check_forgotten_rank(o, out, &found, err);
    if (rc < 0) return rc;
    /* Nodes wait for each other for up to join_timeout, so the hosting node (node rank 0) may start
     * that late. The others must try to connect for at least that long. */
    if (o->join_timeout_ms > out->connect_timeout_ms) out->connect_timeout_ms = o->join_timeout_ms;
    out->hosting = out->node_rank == 0 ? BACKEND_HOSTS : BACKEND_CONNECTS;
    out->store_port = o->endpoint.port;
    backend_plan_listening(&found, out);
    if (!found.is_any) {
        (void) snprintf(out->master_name, sizeof(out->master_name), "%s", o->endpoint.host);
    }
    return 0;
}
