/* Checks the options, sets the fields that the plans of all backends have, and calls the chosen
 * backend to complete the plan. */
#include "base/log/log.h"
#include "rendezvous/protocol/protocol.h"
#include "rendezvous/way/backend_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define ADVICE "is the node that hosts it up, the address right, and no firewall between?"

#define LEASE_MIN_MS INT64_C(100) /* shortest lease */

/* Checks that the lease is longer than usual pauses of a process or a network. With a shorter
 * lease, nodes that still run would count as lost. */
static int check_lease(const struct rendezvous_options *o, struct cr_error *err) {
    int64_t lease_ms = o->keep_alive_interval_ms * o->keep_alive_max_attempt;
    if (o->max_nodes == 1 || lease_ms >= LEASE_MIN_MS) return 0;
    return cr_fail(err, -EINVAL,
                   "--rdzv-conf: keep_alive_interval (%g s) times keep_alive_max_attempt (%" PRIu32
                   ") is how long a silent node is trusted; %g s is the least that works",
                   (double) o->keep_alive_interval_ms / 1000, o->keep_alive_max_attempt,
                   (double) LEASE_MIN_MS / 1000);
}

static int check_relay(const struct rendezvous_options *o, struct cr_error *err) {
    struct cr_endpoint relay;
    struct cr_error why = {0};
    if (o->relay[0] == '\0') return 0;
    if (strcmp(o->backend, "c10d") != 0) {
        return cr_fail(err, -EINVAL, "--rdzv-conf: relay is for --rdzv-backend=c10d only");
    }
    if (cr_endpoint_parse(o->relay, BACKEND_RELAY_PORT, &relay, &why) == 0) return 0;
    return cr_fail(err, -EINVAL, "--rdzv-conf: relay: %s", why.text);
}

/* A coordinator refuses a node with wrong options, too. This check reports the error earlier,
 * before anything is opened. */
int backend_check(const struct rendezvous_options *o, struct cr_error *err) {
    if (o->run_id == NULL || o->run_id[0] == '\0') {
        return cr_fail(err, -EINVAL, "the rendezvous id is empty; give --rdzv-id a name");
    }
    if (o->min_nodes < 1 || o->min_nodes > o->max_nodes || o->max_nodes > RDZV_NODES_MAX) {
        return cr_fail(err, -EINVAL,
                       "cannot rendezvous with %" PRIu32 ":%" PRIu32 " nodes (1 to %" PRIu32 ")",
                       o->min_nodes, o->max_nodes, RDZV_NODES_MAX);
    }
    if (o->local_world_size < 1 || o->local_world_size > RDZV_LOCAL_WORLD_MAX) {
        return cr_fail(err, -EINVAL, "cannot rendezvous with %" PRIu32 " workers on this node",
                       o->local_world_size);
    }
    if (strlen(o->run_id) >= RDZV_TEXT_MAX || strlen(o->role) >= RENDEZVOUS_ROLE_MAX) {
        return cr_fail(err, -EINVAL, "the rendezvous id or the role is too long");
    }
    if (o->join_timeout_ms < 1 || o->last_call_timeout_ms < 1 || o->close_timeout_ms < 1 ||
        o->heartbeat_timeout_ms < 1 || o->keep_alive_interval_ms < 1 || o->read_timeout_ms < 1 ||
        o->keep_alive_max_attempt < 1) {
        return cr_fail(err, -EINVAL, "the timeouts of the rendezvous must be positive");
    }
    /* If join_timeout were shorter, the first node's time to join could end during the last call,
     * and the coordinator would send the node away although the round is about to form. */
    if (o->min_nodes < o->max_nodes && o->join_timeout_ms <= o->last_call_timeout_ms) {
        return cr_fail(err, -EINVAL,
                       "--rdzv-conf: join_timeout (%g s) must be longer than last_call_timeout "
                       "(%g s), the wait for more nodes than the minimum; give both",
                       (double) o->join_timeout_ms / 1000, (double) o->last_call_timeout_ms / 1000);
    }
    int rc = check_relay(o, err);
    return rc < 0 ? rc : check_lease(o, err);
}

void backend_look_up_endpoint(const struct rendezvous_options *o, struct host_addresses *found,
                              struct backend_plan *out) {
    struct cr_error err = {0};
    if (addr_look_up(o->endpoint.host, found, &err) == 0) {
        (void) snprintf(out->facts, sizeof(out->facts), "%s", found->text);
        return;
    }
    out->unresolved = true;
    if (o->join_timeout_ms > out->connect_timeout_ms) out->connect_timeout_ms = o->join_timeout_ms;
    addr_of_machine(found->machine);
    cr_warn("%s; trying again for %g s", err.text, (double) out->connect_timeout_ms / 1000);
}

/* Returns the address of the store that workers get. If the user gave --local-addr, it is that
 * address; else the endpoint's. Returns "" if each node has to find out the address itself: the
 * endpoint is 0.0.0.0 or ::, or is a name that resolves to a loopback address, which workers on
 * other machines cannot use. */
static const char *store_addr_of(const struct host_addresses *found,
                                 const struct backend_plan *plan) {
    const char *addr = found->local[0] != '\0' ? found->local : found->first;
    if (plan->own_addr[0] != '\0') return plan->own_addr;
    if (found->is_any) return "";
    return addr_is_loopback(addr) && !found->is_written_loopback ? "" : addr;
}

/* Returns the address at which the rounds' stores listen. `bind` is the address at which the
 * coordinator listens. */
static const char *store_host_of(const struct backend_plan *plan, const char *bind) {
    bool shares_port = plan->store_port != 0;
    bool publishes_other = plan->own_addr[0] != '\0' && strcmp(plan->own_addr, bind) != 0;
    if (shares_port && !addr_is_any(bind)) return bind; /* nodes connect to the store's port */
    if (!shares_port && plan->own_bind[0] != '\0') return plan->own_bind;
    /* If publishes_other is true, workers reach the store at --local-addr. That is a name, or an
     * address that this machine does not have, such as one that a router translates, so the store
     * listens on all interfaces. */
    return publishes_other ? "" : bind;
}

void backend_plan_listening(const struct host_addresses *found, struct backend_plan *out) {
    bool is_everywhere = strcmp(found->first, "::") == 0; /* IPv6 and IPv4 */
    bool is_own = found->is_numeric && found->local[0] != '\0';
    bool is_exact = (found->is_written_loopback || is_own) && !is_everywhere;
    const char *bind = is_exact ? found->first : "";
    (void) snprintf(out->listen_host, sizeof(out->listen_host), "%s", bind);
    (void) snprintf(out->store_host, sizeof(out->store_host), "%s", store_host_of(out, bind));
    (void) snprintf(out->store_addr, sizeof(out->store_addr), "%s", store_addr_of(found, out));
    memcpy(out->machine_addr, found->is_written_loopback ? found->first : found->machine,
           sizeof(out->machine_addr));
}

int backend_plan(const struct rendezvous_options *o, struct backend_plan *out,
                 struct cr_error *err) {
    int rc = backend_check(o, err);
    if (rc < 0) return rc;
    *out = (struct backend_plan){.advice = ADVICE,
                                 .node_rank = o->node_rank,
                                 .ports = o->ports,
                                 .store_guard = o->store_guard,
                                 .connect_timeout_ms = o->read_timeout_ms,
                                 .coordinator_wait_ms = o->coordinator_wait_ms};
    if (o->local_addr != NULL && o->local_addr[0] != '\0') {
        struct host_addresses own;
        rc = addr_look_up(o->local_addr, &own, err);
        if (rc < 0) return cr_wrap(err, "--local-addr");
        (void) snprintf(out->own_addr, sizeof(out->own_addr), "%s", own.first);
        if (own.is_numeric && own.local[0] != '\0' && !own.is_any) {
            (void) snprintf(out->own_bind, sizeof(out->own_bind), "%s", own.first);
        }
    }
    if (o->endpoint.port != 0) {
        (void) snprintf(out->where, sizeof(out->where), "%s:%u", o->endpoint.host,
                        o->endpoint.port);
    } else {
        (void) snprintf(out->where, sizeof(out->where), "%s", o->endpoint.host);
    }
    if (o->standalone || strcmp(o->backend, "c10d") == 0) return backend_c10d_plan(o, out, err);
    if (strcmp(o->backend, "static") == 0) return backend_static_plan(o, out, err);
    if (strcmp(o->backend, "etcd") == 0 || strcmp(o->backend, "etcd-v2") == 0) {
        return backend_etcd_plan(o, out, err);
    }
    return cr_fail(err, -ENOTSUP,
                   "the rendezvous backend '%s' is not known; use c10d, static or etcd",
                   o->backend);
}
