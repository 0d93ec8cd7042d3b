/* Which node is the coordinator, as elected by etcd: every node campaigns under a lease of its
 * own, and watches who leads. The revision at which a leader's key was made is the leader's
 * epoch, so a later leader has a larger one. */
#ifndef RENDEZVOUS_ETCD_ELECTION_INTERNAL_H
#define RENDEZVOUS_ETCD_ELECTION_INTERNAL_H

#include "base/endpoint.h"
#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct etcd_election;

struct etcd_election_options {
    const char *run_id;          /* copied */
    struct cr_endpoint endpoint; /* of one member of the cluster, which is asked for the others */
    int64_t lease_ms;            /* rounded up to seconds */
    const char *own_addr;        /* "" = our address as the connection to etcd shows it; copied */
    uint16_t own_port;           /* where our coordinator would listen */
};

/* Called on the loop, never from inside a call below. */
struct etcd_election_events {
    /* There is a new leader, with a larger epoch than any before. */
    void (*on_leader)(void *arg, const char *host, uint16_t port, uint64_t epoch, bool is_us);
    /* This node led, and its lease cannot be relied on any more. */
    void (*on_deposed)(void *arg, const char *why);
};

/* NULL when memory is short. */
struct etcd_election *etcd_election_start(uv_loop_t *loop,
                                          const struct etcd_election_options *options,
                                          const struct etcd_election_events *events, void *arg);

/* What went wrong last with etcd, or "". */
const char *etcd_election_trouble(const struct etcd_election *e);

/* Gives the lease back, so that the next leader need not wait until it expires (waits for etcd
 * one second at most); then frees. No event follows but on_close. */
void etcd_election_close(struct etcd_election *e, void (*on_close)(void *arg), void *arg);

#endif
