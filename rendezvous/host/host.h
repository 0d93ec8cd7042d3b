/* Hosting: the store's server, the coordinators of the jobs, and the nodes that are connected to
 * them. The libuv shell around rendezvous/coordinator, and the door of rendezvous/host.
 *
 * Every round has a key space of its own. Normally that is a new port, which is open before the
 * old one is closed. With a fixed port (backend static) the key space is cleared between rounds. */
#ifndef RENDEZVOUS_HOST_H
#define RENDEZVOUS_HOST_H

#include "base/error.h"
#include "rendezvous/types.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct coordinator_host;
struct host_peer; /* one connected node */

struct coordinator_host_options {
    const char *store_host; /* where the stores of the rounds listen; "" = all interfaces */
    uint16_t store_port;    /* 0 = a new port for each round, else this one for all rounds */
    const char *store_addr; /* numeric address that workers get; NULL = store_host */
    /* Where nodes of other processes connect, unless the stores have a fixed port: then they
     * connect there. NULL and no fixed port: no other process can connect. */
    const char *listen_host;
    uint16_t listen_port;   /* 0 = any free one */
    bool alone;             /* the job has one node, which is in this process */
    bool jobs_come_later;   /* opens no store ahead of the first round */
    bool elected;           /* refuses nodes until coordinator_host_lead() */
    int64_t close_timeout_ms;
};

/* Starts the store's thread, listens for nodes and opens the store of the first round. Copies
 * what it needs. Returns 0, or -EADDRINUSE, -EADDRNOTAVAIL… with a text that names the address. */
int coordinator_host_open(uv_loop_t *loop, const struct coordinator_host_options *options,
                          struct coordinator_host **out, struct cr_error *err);

uint16_t coordinator_host_port(const struct coordinator_host *host); /* where nodes connect */

/* Connects a node of this process. `deliver` gets bytes for the member and must only queue them;
 * it is called with NULL when the coordinator hangs up. Returns NULL when memory is short. */
struct host_peer *coordinator_host_add_local(struct coordinator_host *host,
                                             void (*deliver)(void *arg, const char *data,
                                                             size_t len),
                                             void *arg);
/* Bytes from that node. */
void host_peer_receive(struct host_peer *peer, const char *data, size_t len);
/* The node has hung up. Frees the peer; `deliver` is not called any more. */
void host_peer_gone(struct host_peer *peer, const char *why);

/* An elected host takes over: from now on it serves nodes, with this epoch and without any
 * memory. */
void coordinator_host_lead(struct coordinator_host *host, uint64_t epoch);
/* It is not the coordinator any more: closes all connections and forgets the jobs of their
 * nodes. */
void coordinator_host_depose(struct coordinator_host *host, const char *why);

/* Ends all jobs with the outcome LOST and sends `why` to their nodes. Closes nothing yet. */
void coordinator_host_abandon(struct coordinator_host *host, const char *why);

/* Abandons the jobs, waits until the remote nodes have hung up (close_timeout_ms at most),
 * closes the stores and frees. With `why` NULL the jobs go on elsewhere: they are deposed
 * instead of abandoned. The local peer must be gone. */
void coordinator_host_close(struct coordinator_host *host, const char *why,
                            void (*on_close)(void *arg), void *arg);

#endif
