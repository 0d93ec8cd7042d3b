/* etcd: the endpoint is a member of an etcd cluster, which elects the coordinator among the
 * nodes. */
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
    /* A dead leader is replaced when its lease in etcd is over. That should not take much longer
     * than the nodes' own leases. */
    out->etcd_lease_ms = clamp(o->keep_alive_interval_ms * o->keep_alive_max_attempt,
                               ETCD_LEASE_MIN, ETCD_LEASE_MAX);
    /* Another leader will be elected, and waiting for it is part of the rendezvous. */
    if (o->join_timeout_ms > out->coordinator_wait_ms)
        out->coordinator_wait_ms = o->join_timeout_ms;
    return 0;
}
