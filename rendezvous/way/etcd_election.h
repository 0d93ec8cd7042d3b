/* Who is the coordinator, by etcd: every node campaigns under a lease of its own and watches who leads.
 * The revision at which a leader's key was made is its epoch: a later leader has a larger one. */
#ifndef RENDEZVOUS_ETCD_ELECTION_H
#define RENDEZVOUS_ETCD_ELECTION_H

#include "base/address.h"
#include "base/error.h"

#include <stdint.h>
#include <uv.h>

struct etcd_election;

struct etcd_election_options {
    const char *run_id;          /* copied */
    struct cr_endpoint endpoint; /* one member; the others are asked for */
    int64_t lease_ms;            /* rounded up to seconds */
    const char *own_addr;        /* "" = as we reach etcd; copied */
    uint16_t own_port;           /* where our coordinator would listen */
};

/* On the loop, never from inside a call below. */
struct etcd_election_events {
    /* A new leader, with a larger epoch than any before. */
    void (*on_leader)(void *arg, const char *host, uint16_t port, uint64_t epoch, int is_us);
    /* We led, and our lease cannot be relied on any more. */
    void (*on_deposed)(void *arg, const char *why);
};

/* Starts. NULL when memory is short. */
struct etcd_election *etcd_election_start(uv_loop_t *loop, const struct etcd_election_options *options,
                                          const struct etcd_election_events *events, void *arg);

/* What went wrong last with etcd, or "". */
const char *etcd_election_trouble(const struct etcd_election *e);

/* Gives the lease back (waiting for etcd a second at most), so that the next leader need not wait for it
 * to expire; then frees. No event follows but on_close. */
void etcd_election_close(struct etcd_election *e, void (*on_close)(void *arg), void *arg);

#endif
