/* The backend etcd: the endpoint is a member of an etcd cluster, by which the nodes elect the one
 * that hosts the coordinator. */
#include "rendezvous/way/backend_internal.h"

#include <stdio.h>

#define ETCD_PORT       2379
#define ETCD_LEASE_MIN  INT64_C(2000)
#define ETCD_LEASE_MAX  INT64_C(5000)

static int64_t clamp(int64_t v, int64_t min, int64_t max) {
    return v < min ? min : v > max ? max : v;
}

int backend_etcd_plan(const struct rendezvous_options *o, struct backend_plan *out,
                      struct cr_error *err) {
    (void) err;
    out->hosting = BACKEND_ELECTS;
    out->etcd = o->endpoint;
    if (out->etcd.port == 0) out->etcd.port = ETCD_PORT;
    (void) snprintf(out->where, sizeof(out->where), "%s:%u", out->etcd.host, out->etcd.port);
    /* etcd replaces a dead leader when the leader's lease in etcd has expired. That should not take
     * much longer than the nodes' own leases, so it gets the same length, within 2 to 5 s. */
    out->etcd_lease_ms = clamp(o->keep_alive_interval_ms * o->keep_alive_max_attempt,
                               ETCD_LEASE_MIN, ETCD_LEASE_MAX);
    /* When a leader is lost, another one is elected, so it is worth to wait for it as long as for
     * nodes to join. */
    if (o->join_timeout_ms > out->coordinator_wait_ms)
        out->coordinator_wait_ms = o->join_timeout_ms;
    return 0;
}
