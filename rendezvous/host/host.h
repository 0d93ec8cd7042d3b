/* Hosting: the store's server, the coordinators of one or more jobs, and the connections of nodes
 * to them. It is the libuv shell around rendezvous/coordinator. This header is the door of
 * rendezvous/host.
 *
 * Every round has a key space of its own. Normally it has a new port, which is opened before the
 * last round's port is closed. With a fixed port (backend static) there is only one key space,
 * which is cleared between rounds. */
#ifndef RENDEZVOUS_HOST_H
#define RENDEZVOUS_HOST_H

#include "base/error.h"
#include "rendezvous/types.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct coordinator_host;
struct host_peer; /* one connection of a node or an operator */

struct coordinator_host_options {
    const char *store_host; /* address at which the rounds' stores listen; "" = all interfaces */
    uint16_t store_port;    /* port of all rounds' stores; 0 = a new port for each round */
    const char *store_addr; /* numeric address of the store that workers get; NULL = store_host */
    /* Address at which nodes of other processes connect. If store_port is not 0, they connect to
     * that port instead. If listen_host is NULL and store_port is 0, no other process can
     * connect. */
    const char *listen_host;
    uint16_t listen_port;   /* port for listen_host; 0 = any free port */
    bool in_launcher;       /* the host ends together with the launcher of a node */
    bool alone;             /* the job has only one node, which is in this process */
    bool jobs_come_later;   /* do not open a store before the first round forms */
    bool elected;           /* refuse nodes until coordinator_host_lead() is called */
    /* how long an elected host waits for the right to form a round before it closes all
     * connections */
    int64_t held_ms;
    int64_t close_timeout_ms;
};

/* Starts the store's thread, listens for nodes, and opens the store of the first round. Copies the
 * options. Returns 0, or a negative errno such as -EADDRINUSE or -EADDRNOTAVAIL, and sets err to a
 * text that names the address. */
int coordinator_host_open(uv_loop_t *loop, const struct coordinator_host_options *options,
                          struct coordinator_host **out, struct cr_error *err);

/* the port to which nodes connect */
uint16_t coordinator_host_port(const struct coordinator_host *host);

/* Connects a node of this process to its coordinator. The host calls `deliver` with bytes for the
 * node's member; `deliver` must only queue them. It is called with NULL when the coordinator closes
 * the connection. Returns NULL when memory is short. */
struct host_peer *coordinator_host_add_local(struct coordinator_host *host,
                                             void (*deliver)(void *arg, const char *data,
                                                             size_t len),
                                             void *arg);
/* Call this with bytes that the node of this process sends. */
void host_peer_receive(struct host_peer *peer, const char *data, size_t len);
/* Call this when the node of this process has closed its connection. It frees the peer; `deliver`
 * is not called any more. */
void host_peer_gone(struct host_peer *peer, const char *why);

/* Call this when etcd has elected this host. From now on it serves nodes, with this epoch. It knows
 * nothing about the job yet; rounds and restarts so far come from the nodes' JOINs. `is_first` is
 * false if another host may have led before, whose round may still run. */
void coordinator_host_lead(struct coordinator_host *host, uint64_t epoch, bool is_first);
/* Returns whether a job of this host has not ended yet. */
bool coordinator_host_has_running_job(const struct coordinator_host *host);
/* Call this when an elected host has got or lost the right to form rounds. At first it has not.
 * Without it a round that runs goes on, but no round begins and no node is let into the running
 * one. If a round is due and the right does not come for held_ms, the host closes all connections,
 * so that its nodes look for another coordinator; coordinator_host_lead() ends that. */
void coordinator_host_may_form(struct coordinator_host *host, bool may_form);
/* Call this when this host is not the elected coordinator any more. It closes all connections and
 * frees the jobs, which continue under the next coordinator. */
void coordinator_host_depose(struct coordinator_host *host, const char *why);

/* Sends GOODBYE with the reason `why` to the remote nodes of all jobs that have not ended, and
 * takes no more nodes. For a node of this process the job ends, with the outcome LOST. Closes
 * nothing yet. */
void coordinator_host_abandon(struct coordinator_host *host, const char *why);

/* Ends the job of the node in this process if it has not ended. Waits until the jobs of other
 * launchers are over (coordinator_host_abandon() ends them sooner), and until the remote nodes have
 * closed their connections (close_timeout_ms at most). Then closes the stores, frees the host and
 * calls on_close. If `why` is NULL, the jobs continue under another coordinator, so they are not
 * ended, but freed as by coordinator_host_depose(). The caller must have called host_peer_gone()
 * for the node of this process before. */
void coordinator_host_close(struct coordinator_host *host, const char *why,
                            void (*on_close)(void *arg), void *arg);

/* ---- the store that a node offers ---- */

/* Programs of rank 0 open ports of their own at MASTER_ADDR, so the store of a round is on the node
 * with group rank 0, also if the coordinator is elsewhere. Each node opens an empty store before
 * its JOIN, which names the port; ROUND shows whether the coordinator has chosen it. */
struct store_offer;

/* Starts a store's server for offers, which listen at `listen_host`; "" = on all interfaces.
 * Returns NULL and sets err on failure. */
struct store_offer *store_offer_new(const char *listen_host, struct cr_error *err);
/* Call this before each JOIN. It opens a new empty store if there is none, and stores its port in
 * *port. Returns 0, or a negative errno and a text in err. */
int store_offer_port(struct store_offer *o, uint16_t *port, struct cr_error *err);
/* Call this when a round begins, which means that no worker of the last round is left. `port` is
 * that of the round's store if this node has group rank 0, else 0. If it is the offered one, that
 * store stays open until the next call; all other stores of the offer are closed. */
void store_offer_settle(struct store_offer *o, uint16_t port);
void store_offer_free(struct store_offer *o); /* `o` may be NULL */

#endif
