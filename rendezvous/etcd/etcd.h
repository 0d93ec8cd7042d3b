/* Elects the coordinator by means of etcd: the shell around election.c. It sends the calls of
 * the election to etcd by HTTP, parses the answers, and runs the election's timer. This header is
 * the door of rendezvous/etcd. */
#ifndef RENDEZVOUS_ETCD_H
#define RENDEZVOUS_ETCD_H

#include "base/error.h"
#include "rendezvous/etcd/election_internal.h"
#include "rendezvous/types.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct etcd_client;

struct etcd_client_options {
    const char *run_id;                /* names the key; copied */
    const struct rendezvous_etcd *etcd; /* where etcd is, and the user; copied */
    int64_t lease_ms;       /* time to live of this node's lease in etcd; rounded up to seconds */
    int64_t claim_delay_ms; /* see etcd_election_settings */
    /* address of this node; "" = found out from its connection to etcd; copied */
    const char *own_addr;
    uint16_t own_port;      /* port at which this node's coordinator listens if this node leads */
    uint64_t seed;          /* random; spreads the waiting times of many nodes */
};

/* Called on the loop's thread, and never from inside a function of this header, with one exception:
 * etcd_client_need() can call them. */
struct etcd_client_events {
    /* The node that has created the key leads. is_us is true if it is this node. */
    void (*on_leader)(void *arg, const struct etcd_key *key, bool is_us);
    /* The key does not exist any more, so no node leads. */
    void (*on_vacant)(void *arg);
    /* This node has the right to form rounds until until_ms; 0 = it has lost the right. It gets the
     * right only while it leads. Called each time until_ms changes; times are those of uv_now(). */
    void (*on_right)(void *arg, int64_t until_ms);
};

/* Starts the election. Returns 0, or a negative errno and a text in err: libcurl cannot be loaded,
 * the file with the password cannot be read, or memory is short. */
int etcd_client_open(uv_loop_t *loop, const struct etcd_client_options *options,
                     const struct etcd_client_events *events, void *arg, struct etcd_client **out,
                     struct cr_error *err);

/* Tells the election whether this node needs a coordinator. Call this with true when the node
 * begins to look for a coordinator, and with false when the node is connected to one. */
void etcd_client_need(struct etcd_client *c, bool needs);

/* Returns the last error of a call to etcd, for an error message; "" if there was none, or if etcd
 * has answered READ after it. */
const char *etcd_client_trouble(const struct etcd_client *c);

/* Ends this node's lease, so that another node can lead at once instead of when the lease expires.
 * If the job has ended (`is_over`) and this node leads, it also deletes the job's mark from etcd.
 * Waits one second at most for etcd's answers, then frees the client. No callback but on_close
 * follows. */
void etcd_client_close(struct etcd_client *c, bool is_over, void (*on_close)(void *arg),
                       void *arg);

#endif
