/* Hosting: the store's server, the coordinators of one or more jobs, and the connections of nodes
 * to the coordinators. It is the libuv shell around rendezvous/coordinator. This header is the door
 * of rendezvous/host.
 *
 * Every round has a key space of its own. Normally the key space has a new port, which is opened
 * before the port of the previous round is closed. With a fixed port (backend static), all rounds
 * share one key space, which is cleared between two rounds. */
#ifndef RENDEZVOUS_HOST_H
#define RENDEZVOUS_HOST_H

#include "base/error.h"
#include "rendezvous/types.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct coordinator_host;
struct rendezvous_status_events;
struct secure_ring;
struct host_peer; /* one connection of a node or an operator */

struct coordinator_host_options {
    const char *store_host; /* address at which the rounds' stores listen; "" = all interfaces */
    uint16_t store_port;    /* port of all rounds' stores; 0 = a new port for each round */
    const char *store_addr; /* numeric address of the store that workers get; NULL = store_host */
    /* Address at which nodes of other processes connect. If store_port is not 0, nodes connect to
     * that port instead. If listen_host is NULL and store_port is 0, no other process can
     * connect. */
    const char *listen_host;
    uint16_t listen_port;   /* port for listen_host; 0 = any free port */
    struct cr_port_range ports; /* the ports to choose from if store_port or listen_port is 0 */
    /* whom the rounds' stores serve; NULL = as RENDEZVOUS_STORE_AUTO */
    const struct rendezvous_store_guard *store_guard;
    bool has_secret;        /* true: nodes have to prove that they have the job's secret */
    bool in_launcher;       /* true: the host ends with a node's launcher */
    const char *own_run_id; /* run id of the launcher's own job; NULL = there is none */
    /* `instance` in the JOIN of the launcher's own node; used if own_run_id is not NULL */
    uint64_t own_instance;
    bool is_heir;           /* true: this host only goes on with jobs of a host that was lost */
    bool allows_heirs;      /* true: if this host is lost, another node may take over the jobs */
    bool alone;             /* true: the job has one node, in this process */
    bool jobs_come_later;   /* true: the store opens only when the first round forms */
    /* the secrets that nodes of other processes and operators must have; NULL = the host serves
     * everybody. The ring must live until on_close is called. */
    struct secure_ring *ring;
    /* true: other machines can reach this host, so it logs that its jobs are open if `ring` is
     * NULL */
    bool says_open;
    bool elected;           /* true: nodes are refused until coordinator_host_lead() is called */
    /* if a round is due, but an elected host has no right to form it: how long the host waits for
     * the right before it closes all connections */
    int64_t held_ms;
    int64_t close_timeout_ms;
};

/* Starts the store's thread, listens for nodes, and opens the store of the first round. Copies the
 * options. Returns 0, or a negative errno such as -EADDRINUSE or -EADDRNOTAVAIL, and sets err to a
 * text that names the address. */
int coordinator_host_open(uv_loop_t *loop, const struct coordinator_host_options *options,
                          struct coordinator_host **out, struct cr_error *err);

/* Calls the callbacks in `events` for each job of this host, and for each node of that job
 * (server.h). */
void coordinator_host_visit(const struct coordinator_host *host,
                            const struct rendezvous_status_events *events, void *arg);

/* Call this when somebody looks at a snapshot: for a minute, the coordinators ask their nodes what
 * the workers do, and coordinator_host_visit() calls on_rank for each worker. */
void coordinator_host_watch_ranks(struct coordinator_host *host);

/* Returns the port to which nodes of other processes connect. */
uint16_t coordinator_host_port(const struct coordinator_host *host);

/* Connects a node of this process to its coordinator. The host calls `deliver` with the bytes for
 * the node's member; `deliver` must only queue them. When the coordinator closes the connection,
 * the host calls `deliver` with `data` = NULL. Returns NULL when memory is short. */
struct host_peer *coordinator_host_add_local(struct coordinator_host *host,
                                             void (*deliver)(void *arg, const char *data,
                                                             size_t len),
                                             void *arg);
/* Handles bytes that the node of this process has sent. */
void host_peer_receive(struct host_peer *peer, const char *data, size_t len);
/* Frees the peer. Call this when the node of this process has closed its connection; `deliver` is
 * not called any more. */
void host_peer_gone(struct host_peer *peer, const char *why);

/* Call this when etcd has elected this host, or confirms this host again. From now on the host
 * serves nodes as the coordinator with this epoch. If the host was just elected, it knows nothing
 * about the job: it learns the rounds and restarts so far from the nodes' JOINs. `is_first` is
 * false if another host may have led before, whose round may still run. */
void coordinator_host_lead(struct coordinator_host *host, uint64_t epoch, bool is_first);
/* Returns whether a job of this host has not ended yet. */
bool coordinator_host_has_running_job(const struct coordinator_host *host);
/* Call this when an elected host gets the right to form rounds, gets it for longer, or loses it: it
 * has the right until until_ms, a time of uv_now(); 0 = it has lost the right, CR_FOREVER = the
 * right has no end. At first, an elected host does not have the right. Without the right, no round
 * begins and no node is let into the running round, but the running round goes on. If a round is
 * due and the right does not come for held_ms, the host closes all connections, so that its nodes
 * look for another coordinator; after the next coordinator_host_lead() it serves nodes again. */
void coordinator_host_may_form(struct coordinator_host *host, int64_t until_ms);
/* Call this when this host is not the elected coordinator any more. It closes all connections and
 * frees the jobs, which continue under the next coordinator. */
void coordinator_host_depose(struct coordinator_host *host, const char *why);

/* Call this when this launcher was told to end, before its workers are stopped. If the launcher's
 * own job has heirs, this host forms no further round of that job, and the job's nodes get GOODBYE
 * only when the host is closed: no heir may form a round before this launcher's workers have ended.
 * All other jobs are abandoned, as by coordinator_host_abandon(). */
void coordinator_host_retire(struct coordinator_host *host, const char *why);

/* Call this when the launcher's own node is connected to another host, which leads the job
 * `run_id`. Nodes that come to this host are sent to that other host, at `addr` and `port`. */
void coordinator_host_moved(struct coordinator_host *host, const char *run_id, uint64_t epoch,
                            const char *addr, uint16_t port);
/* Returns whether the coordinators of this host have the id `coordinator`, which WELCOME names. */
bool coordinator_host_has_id(const struct coordinator_host *host, uint64_t coordinator);
/* If this host leads the job `run_id` and may decide, stores the job's epoch in *epoch and returns
 * true. Otherwise returns false. */
bool coordinator_host_leads(const struct coordinator_host *host, const char *run_id,
                            uint64_t *epoch);

/* Sends GOODBYE with the reason `why` to the remote nodes of all jobs that have not ended, and
 * refuses further nodes of these jobs. For a node of this process the job ends, with the outcome
 * LOST. The host and its stores stay open. */
void coordinator_host_abandon(struct coordinator_host *host, const char *why);

/* If the job of the node in this process has not ended, ends it. Waits until the jobs of other
 * launchers are over (coordinator_host_abandon() ends them sooner), and then for at most
 * close_timeout_ms until the remote nodes have closed their connections. Then closes the stores,
 * frees the host and calls on_close.
 *
 * If `why` is NULL, the jobs do not end, because they continue under another coordinator; they are
 * freed as by coordinator_host_depose(). If a node of this process is connected, call
 * host_peer_gone() first. */
void coordinator_host_close(struct coordinator_host *host, const char *why,
                            void (*on_close)(void *arg), void *arg);

/* ---- the store that a node offers ---- */

/* MASTER_ADDR is the address of the round's store, and the program of rank 0 may open ports of its
 * own at MASTER_ADDR. So the store of a round runs on the node with group rank 0, even if the
 * coordinator runs on another node: each node opens an empty store before its JOIN, and the JOIN
 * names the port of this store. The address and port in ROUND show whether the coordinator has
 * chosen this store. */
struct store_offer;

struct store_offer_options {
    const char *listen_host;    /* where the stores listen; "" = on all interfaces */
    struct cr_port_range ports; /* the ports that may be chosen */
    struct rendezvous_store_guard guard; /* whom the stores serve */
    bool has_secret;            /* true: the job has a secret */
    /* true: the stores serve plain clients on this machine only, and the other nodes by their
     * gateways. The fields below are used in this case only. */
    bool serves_gateways;
    struct secure_ring *ring; /* the secrets of the job, or NULL; must live as long as the offer */
    const char *run_id;
};

/* Starts the server for the stores that this node offers. Copies the options. Returns NULL and sets
 * err on failure. */
struct store_offer *store_offer_new(const struct store_offer_options *options,
                                    struct cr_error *err);
/* Stores addresses of nodes of the next round, which come in parts: if this node gets the store of
 * that round, the store will serve these nodes. Part 0 discards the addresses of all earlier calls.
 * Returns 0 or -ENOMEM. */
int store_offer_admit(struct store_offer *o, uint32_t part, const char *addresses);
/* Call this before each JOIN. If the offer has no unused empty store, opens one. Stores the port of
 * the empty store in *port. Returns 0, or a negative errno and a text in err. */
int store_offer_port(struct store_offer *o, uint16_t *port, struct cr_error *err);
/* Call this when a round begins; at that time all workers of the previous round are gone. `port` is
 * the port of the round's store if this node has group rank 0, else 0. If the offered store has
 * this port, that store stays open until the next call, and from now on serves the nodes that
 * store_offer_admit() has named; all other stores of the offer are closed. `knows_nodes` is false
 * if the coordinator is too old to name the nodes of the round; in that case the store serves
 * everybody. */
void store_offer_settle(struct store_offer *o, uint16_t port, bool knows_nodes);
/* Call this after store_offer_settle() if the stores serve gateways: from now on the store of this
 * round serves gateways. Returns whether this node has the store of the round. */
bool store_offer_begin_round(struct store_offer *o, uint64_t incarnation, uint64_t round);
void store_offer_free(struct store_offer *o); /* `o` may be NULL */

#endif
