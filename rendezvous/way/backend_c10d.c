/* The backend c10d: the endpoint names the coordinator's host and port. The node whose machine has
 * the endpoint's address hosts the coordinator. If several nodes run on that machine, the one that
 * can bind the port hosts, and the others connect to it. If the job has only one node, that node
 * hosts in any case, and listens at the endpoint only if the user gave one and this machine has its
 * address. */
#include "rendezvous/way/backend_internal.h"

#include "base/log/log.h"

#include <errno.h>
#include <stdio.h>

/* If the endpoint's name has addresses of several machines, each of them waits for a coordinator on
 * the others before it hosts. The machine with the smallest address waits HOST_FIRST_MS; each other
 * machine waits HOST_NEXT_MS longer for each address that is smaller than its own. HOST_NEXT_MS
 * must be longer than a launcher takes to start; with less, two machines could host. */
#define HOST_FIRST_MS INT64_C(1000)
#define HOST_NEXT_MS  INT64_C(3000)

/* Plans a job of one node that does not listen for nodes or operators. If the user gave
 * --standalone and no --local-addr, the job's store listens on loopback only; else programs on
 * other machines can connect to the store, as under torchrun. */
static void plan_alone(const struct rendezvous_options *o, struct backend_plan *out) {
    bool only_here = o->loopback_only && out->own_addr[0] == '\0';
    out->hosting = BACKEND_HOSTS;
    out->alone = true;
    if (only_here) {
        (void) snprintf(out->store_host, sizeof(out->store_host), "127.0.0.1");
        (void) snprintf(out->own_addr, sizeof(out->own_addr), "127.0.0.1");
    } else if (out->own_addr[0] == '\0') {
        addr_of_machine(out->own_addr);
    }
    if (out->own_bind[0] != '\0') {
        (void) snprintf(out->store_host, sizeof(out->store_host), "%s", out->own_bind);
    }
    (void) snprintf(out->store_addr, sizeof(out->store_addr), "%s", out->own_addr);
}

/* Plans a job of one node whose user gave an endpoint. If this machine has the endpoint's address,
 * the node listens there for operators and for clients of the store. If the endpoint is another
 * machine, or cannot be resolved, the job runs without listening there, because no other node has
 * to connect. */
static void plan_one_node(const struct rendezvous_options *o, struct backend_plan *out) {
    struct host_addresses found;
    struct cr_error err = {0};
    if (addr_look_up(o->endpoint.host, &found, &err) < 0) {
        cr_warn("cannot listen at '%s': %s", out->where, err.text);
        plan_alone(o, out);
    } else if (found.local[0] == '\0' && o->is_host < 0) {
        plan_alone(o, out);
    } else {
        out->hosting = BACKEND_HOSTS;
        out->one_node = true;
        backend_plan_listening(&found, out);
        out->listen_port = o->endpoint.port;
    }
}

static int check_port(const struct rendezvous_options *o, struct cr_error *err) {
    if (o->endpoint.port != 0) return 0;
    return cr_fail(err, -EINVAL,
                   "the rendezvous endpoint '%s' of more than one node needs a port; "
                   "write --rdzv-endpoint=HOST:PORT",
                   o->endpoint.host);
}

int backend_c10d_plan(const struct rendezvous_options *o, struct backend_plan *out,
                      struct cr_error *err) {
    if (o->max_nodes == 1 && (o->standalone || o->is_host != 0)) {
        if (o->standalone || !o->endpoint_given) plan_alone(o, out);
        else plan_one_node(o, out);
        return 0;
    }
    struct host_addresses found;
    int rc = check_port(o, err);
    if (rc < 0) return rc;
    backend_look_up_endpoint(o, &found, out);
    if (o->is_host == 0) out->hosting = BACKEND_CONNECTS;
    else if (o->is_host > 0) out->hosting = BACKEND_HOSTS;
    else out->hosting = found.local[0] != '\0' ? BACKEND_MAY_HOST : BACKEND_CONNECTS;
    backend_plan_listening(&found, out);
    out->listen_port = o->endpoint.port;
    out->may_use_signpost = o->max_nodes > 1;
    out->allows_heirs = o->max_nodes >= 3 && !o->keeps_coordinator;
    out->asks_first = out->hosting == BACKEND_MAY_HOST && found.has_others;
    out->host_delay_ms = HOST_FIRST_MS + found.before_local * HOST_NEXT_MS;
    return 0;
}
