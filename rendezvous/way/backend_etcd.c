/* The backend etcd: the endpoint is a cluster of etcd, by which the nodes elect the one that hosts
 * the coordinator. */
#include "rendezvous/way/backend_internal.h"

#include <errno.h>
#include <stdio.h>

#define ETCD_LEASE_MIN INT64_C(2000)
#define ETCD_LEASE_MAX INT64_C(5000)

static int64_t clamp(int64_t v, int64_t min, int64_t max) {
    return v < min ? min : v > max ? max : v;
}

static int check_files(const struct rendezvous_etcd *e, struct cr_error *err) {
    if ((e->ca_cert[0] != '\0' || e->ssl_cert[0] != '\0') && !e->https) {
        return cr_fail(err, -EINVAL,
                       "--rdzv-conf: ca_cert and ssl_cert need TLS; write https:// before the "
                       "endpoint, or protocol=https");
    }
    if (e->ssl_cert_key[0] != '\0' && e->ssl_cert[0] == '\0') {
        return cr_fail(err, -EINVAL, "--rdzv-conf: ssl_cert_key needs ssl_cert");
    }
    if ((e->user[0] == '\0') != (e->password_file[0] == '\0')) {
        return cr_fail(err, -EINVAL, "--rdzv-conf: user and password_file need each other");
    }
    return 0;
}

/* Writes the members as "a:2379,b:2379" for log lines and errors; cuts off what does not fit into
 * `room` bytes. */
static void describe(const struct rendezvous_etcd *e, char *out, size_t room) {
    size_t len = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < e->endpoint_count && len < room; i++) {
        int add = snprintf(out + len, room - len, "%s%s:%u", i > 0 ? "," : "",
                           e->endpoints[i].host, e->endpoints[i].port);
        if (add > 0) len += (size_t) add;
    }
}

int backend_etcd_plan(const struct rendezvous_options *o, struct backend_plan *out,
                      struct cr_error *err) {
    int rc = check_files(&o->etcd, err);
    if (rc < 0) return rc;
    out->hosting = BACKEND_ELECTS;
    out->advice = "is etcd up, the address right, and no firewall between?";
    describe(&o->etcd, out->where, sizeof(out->where));
    (void) snprintf(out->listen_host, sizeof(out->listen_host), "%s", out->own_bind);
    (void) snprintf(out->store_host, sizeof(out->store_host), "%s", out->own_bind);
    /* etcd deletes a dead leader's key when the leader's lease in etcd has expired. That should not
     * take much longer than the nodes' leases at the coordinator, so the lease in etcd is as long
     * as a node's lease, but at least 2 s and at most 5 s. */
    out->etcd_lease_ms = clamp(o->keep_alive_interval_ms * o->keep_alive_max_attempt,
                               ETCD_LEASE_MIN, ETCD_LEASE_MAX);
    /* After a leader is lost, another one is elected. So the nodes wait for a coordinator at least
     * as long as for nodes that join (join_timeout). */
    if (o->join_timeout_ms > out->coordinator_wait_ms)
        out->coordinator_wait_ms = o->join_timeout_ms;
    return 0;
}
