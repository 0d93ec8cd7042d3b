/* What a hosting node keeps open: the store's server, the coordinators of its jobs, and the nodes
 * that speak to them. The libuv shell around coordinator.h.
 *
 * Every round has a key space of its own. Normally that is a new port, opened before the old one is
 * closed; with a fixed port (backend static) the space is cleared between rounds. */
#ifndef RENDEZVOUS_COORDINATOR_HOST_H
#define RENDEZVOUS_COORDINATOR_HOST_H

#include "base/error.h"
#include "rendezvous/coordinator/coordinator.h"

#include <stdint.h>
#include <uv.h>

struct coordinator_host;
struct host_peer;

struct coordinator_host_options {
    const char *store_host; /* where rounds' stores listen; "" = all interfaces */
    uint16_t store_port;    /* 0 = a new port for each round, else this one for all */
    const char *store_addr; /* numeric address to tell the workers; NULL = store_host */
    /* Nodes of other processes come to the port of the rounds' stores if that is fixed, else to this
     * one; without either (NULL) nobody comes. */
    const char *listen_host;
    uint16_t listen_port;   /* 0 = any free one */
    int alone;              /* 1: nobody is let in anyway: the job has one node, this one */
    int jobs_come_later;    /* 1: opens no store ahead of the first round */
    int elected;            /* 1: hangs up on nodes until coordinator_host_lead() */
    int64_t close_timeout_ms;
};

/* Starts the store's thread, listens for nodes, opens the first round's store. Copies what it
 * needs. -EADDRINUSE, -EADDRNOTAVAIL… with a text that names the address. */
int coordinator_host_open(uv_loop_t *loop, const struct coordinator_host_options *options,
                          struct coordinator_host **out, struct cr_error *err);

uint16_t coordinator_host_port(const struct coordinator_host *host); /* where nodes come to */

/* A node of this very process. `deliver` gets bytes for the member and must only queue them; it is
 * called with NULL when the coordinator hangs up. Returns NULL when memory is short. */
struct host_peer *coordinator_host_add_local(struct coordinator_host *host,
                                             void (*deliver)(void *arg, const char *data,
                                                             size_t len),
                                             void *arg);
/* Bytes from that node: magic and frames. */
void host_peer_receive(struct host_peer *peer, const char *data, size_t len);
/* It hung up; frees the peer; `deliver` is not called any more. */
void host_peer_gone(struct host_peer *peer, const char *why);

/* An elected host takes over: it welcomes nodes, with this epoch, and with no memory. */
void coordinator_host_lead(struct coordinator_host *host, uint64_t epoch);
/* It leads no more: hangs up on all nodes without a word and forgets their jobs. */
void coordinator_host_depose(struct coordinator_host *host, const char *why);

/* Ends what still runs, for `why`, and tells all nodes; nothing is closed yet. */
void coordinator_host_abandon(struct coordinator_host *host, const char *why);

/* Abandons (deposes instead, if `why` is NULL: jobs that go on elsewhere), waits for remote nodes to hang up (close_timeout_ms at most), closes the stores, frees.
 * The local peer must be gone. */
void coordinator_host_close(struct coordinator_host *host, const char *why,
                            void (*on_close)(void *arg), void *arg);

#endif
