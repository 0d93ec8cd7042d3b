/* Elects the coordinator by means of etcd. Every node campaigns under a lease of its own, and
 * observes which node leads. A leader has a key in etcd; the revision at which the key was created
 * is the leader's epoch, so a later leader has a larger epoch. */
#ifndef RENDEZVOUS_ETCD_ELECTION_INTERNAL_H
#define RENDEZVOUS_ETCD_ELECTION_INTERNAL_H

#include "base/endpoint.h"
#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct etcd_election;

struct etcd_election_options {
    const char *run_id;          /* names the election; copied */
    /* one member of the etcd cluster, from which the addresses of the others are requested */
    struct cr_endpoint endpoint;
    /* time to live of this node's lease in etcd; rounded up to seconds */
    int64_t lease_ms;
    /* address of this node; "" = its address on the connection to etcd; copied */
    const char *own_addr;
    uint16_t own_port;           /* port of this node's coordinator, should it lead */
};

/* Called on the loop's thread, never from inside a function of this header. */
struct etcd_election_events {
    /* A node leads with a larger epoch than any leader before. host and port are the coordinator's;
     * is_us is true if this node leads. */
    void (*on_leader)(void *arg, const char *host, uint16_t port, uint64_t epoch, bool is_us);
    /* This node leads no more: its lease in etcd has expired or could not be renewed in time. */
    void (*on_deposed)(void *arg, const char *why);
};

/* Starts to campaign and to observe. Returns NULL when memory is short. */
struct etcd_election *etcd_election_start(uv_loop_t *loop,
                                          const struct etcd_election_options *options,
                                          const struct etcd_election_events *events, void *arg);

/* Returns the last error of a call to etcd, for an error message, or "". */
const char *etcd_election_trouble(const struct etcd_election *e);

/* Revokes this node's lease, so that etcd can elect another leader at once instead of when the
 * lease expires. Waits for etcd's answer one second at most, then frees the election. No callback
 * but on_close follows. */
void etcd_election_close(struct etcd_election *e, void (*on_close)(void *arg), void *arg);

#endif
