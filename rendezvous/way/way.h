/* The way: how one node reaches its coordinator. This header is the door of rendezvous/way.
 *
 * A backend (c10d, static, etcd) decides where the coordinator is, and stores that in a struct
 * backend_plan. There are three kinds of way:
 *
 *     local     the coordinator runs in this process: bytes go through two buffers, without a
 *               socket, and are delivered on the next turn of the loop
 *     remote    over a TCP connection
 *     elected   over a TCP connection to the node that etcd has elected, even if that is this node
 *
 * The way also opens and closes what this node hosts (rendezvous/host). */
#ifndef RENDEZVOUS_WAY_H
#define RENDEZVOUS_WAY_H

#include "base/error.h"
#include "rendezvous/types.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct secure_ring;

/* ---- where the coordinator is ---- */

enum backend_hosting {
    BACKEND_CONNECTS,  /* the coordinator is in another process */
    BACKEND_HOSTS,     /* the coordinator is in this process */
    BACKEND_MAY_HOST,  /* this node hosts if it is the first on its machine to bind the port */
    BACKEND_ELECTS,    /* the coordinator is on the node that etcd elects */
};

struct backend_plan {
    enum backend_hosting hosting;
    /* the coordinator as "host:port", for log lines and errors */
    char where[CR_HOST_MAX + 8];
    /* addresses of the endpoint and of this host, for error texts */
    char facts[512];
    const char *advice; /* what to check if the coordinator cannot be reached */
    /* address this node publishes; "" = its address on the connection to the coordinator */
    char own_addr[RDZV_ADDR_MAX];
    /* own_addr if the user gave it as a numeric address and this machine has that address: the
     * stores of this node listen there and nowhere else. "" = --local-addr does not decide where
     * they listen */
    char own_bind[RDZV_ADDR_MAX];
    /* address at which other nodes reach this machine, if no better one is known. If the user wrote
     * a loopback address as the endpoint, it is that address, because all nodes are on this
     * machine. "" = not known */
    char machine_addr[RDZV_ADDR_MAX];
    int64_t node_rank;                 /* node rank that the user requests; -1 = none */
    int64_t connect_timeout_ms, coordinator_wait_ms;
    /* true if the endpoint's name could not be resolved, so it is not known whether this machine
     * has its address. If that decides whether this node hosts, the node looks the name up again
     * later. */
    bool unresolved;
    int64_t etcd_lease_ms;             /* lease of a leader in etcd, if BACKEND_ELECTS */
    bool fixed_ranks;                  /* true: a node's group rank is its node rank */
    /* MASTER_ADDR of the workers as the user wrote it; "" = the numeric address of the store */
    char master_name[CR_HOST_MAX];
    /* true if the endpoint's name also has addresses of other machines, so that each of these
     * machines may host. This node then first asks the other machines for a coordinator. It hosts
     * only if none has answered after host_delay_ms, which is shorter on a machine with a smaller
     * address. */
    bool asks_first;
    int64_t host_delay_ms;
    /* true: if the coordinator is lost, this node or another one takes over */
    bool allows_heirs;
    /* true: a TCPStore at the endpoint that is not crun's may say where the coordinator is */
    bool may_use_signpost;
    uint64_t instance;                 /* `instance` in this node's JOIN */
    /* The fields below are used only if this node hosts the coordinator or may do so. */
    bool alone;                        /* true: the job has one node and listens nowhere */
    /* true if the job has one node; such a job runs even if another program has the endpoint's
     * port */
    bool one_node;
    char store_host[CR_HOST_MAX];      /* where the rounds' stores listen; "" = all interfaces */
    /* port of all rounds' stores; 0 = a new port for each round */
    uint16_t store_port;
    /* numeric address of the store that workers get; "" = each node uses the address at which it
     * reached the coordinator, and the hosting node uses machine_addr */
    char store_addr[RDZV_ADDR_MAX];
    char listen_host[CR_HOST_MAX];     /* where other nodes connect if store_port is 0 */
    uint16_t listen_port;              /* port at listen_host; 0 = other nodes cannot connect */
    /* the secrets of the job, set and owned by way_open(); NULL if no connection is to be
     * authenticated */
    struct secure_ring *ring;
    /* true: the job has a secret; set by way_open(). Even then `ring` is NULL if no other process
     * can connect, because in that case there is nobody to authenticate. */
    bool has_secret;
    /* true: a host without a secret logs that its jobs are open; set by way_open() */
    bool says_open;
    struct cr_port_range ports;        /* the ports that may be chosen where none is given */
    struct rendezvous_store_guard store_guard; /* whom the rounds' stores serve */
};

/* Checks the options without resolving a name or opening a socket. Returns 0, or -EINVAL and sets
 * err to a text that names the wrong option. */
int backend_check(const struct rendezvous_options *o, struct cr_error *err);

/* Decides where the coordinator is, and stores the plan in *out. Resolves the endpoint's host if it
 * is a name. Returns 0, or -EINVAL, -ENOENT (cannot resolve) or -ENOTSUP (unknown backend) and a
 * text in err. */
int backend_plan(const struct rendezvous_options *o, struct backend_plan *out,
                 struct cr_error *err);

/* ---- the way to the coordinator ---- */

struct way;

/* Called on the loop's thread, never from inside a way_ function. */
struct way_events {
    /* The connection to the coordinator is established, and the greeting was sent. `own_addr` is
     * the numeric address of this end; "" on the local way. */
    void (*on_open)(void *arg, const char *own_addr);
    void (*on_data)(void *arg, const char *data, size_t len);
    /* The connection could not be established, or has ended. No callback follows until the next
     * way_connect(). */
    void (*on_lost)(void *arg, enum rendezvous_loss how, const char *why);
    /* The connection could not be established, and another try cannot help. No callback but
     * on_close follows. */
    void (*on_hopeless)(void *arg, const char *why);
};

/* Opens what this node hosts, but does not connect yet. `options` and `plan` need not live longer
 * than this call; `events` must live until on_close. Returns 0, or a negative errno such as
 * -EADDRINUSE or -EADDRNOTAVAIL and a text in err; on error nothing stays open. Also reads the
 * job's token file: a file that cannot be used is an error. */
int way_open(uv_loop_t *loop, const struct rendezvous_options *options,
             const struct backend_plan *plan, const struct way_events *events, void *arg,
             struct way **out, struct cr_error *err);

/* Returns whether the job has a secret. If it has, nodes in other processes must authenticate. */
bool way_has_secret(const struct way *w);
/* Returns the secrets of the job, or NULL if it has none. Valid until way_close(). */
struct secure_ring *way_ring(const struct way *w);
bool way_is_local(const struct way *w);
/* Returns whether the coordinator at the endpoint runs in this process. */
bool way_hosts(const struct way *w);
/* Returns where the coordinator is, as the end of the phrase "the coordinator …" in a log line: "is
 * this node", "is there" (at the endpoint) or "is elected". */
const char *way_description(const struct way *w);
/* Returns what this node hosts, or NULL if it hosts nothing. */
struct coordinator_host *way_host(const struct way *w);
/* Returns the numeric address at which this node last reached the coordinator; "" on the local way
 * and before the first connection. */
const char *way_coordinator_addr(const struct way *w);
/* Returns the last error of the election, or "" if there was none or the way is not elected. */
const char *way_trouble(const struct way *w);

/* Returns what is known about each address since the last way_connect(), for error texts; "" on the
 * local way. Valid until the next call of this function. */
const char *way_report(struct way *w);

/* Makes the next way_connect() go to this numeric address; if `port` is 0, to the endpoint. Does
 * nothing on a way without heirs. */
void way_aim(struct way *w, const char *addr, uint16_t port);
/* Returns the port at which this node serves other nodes if it takes over. The first call opens the
 * port. Returns 0 if this way has no heirs, or if no port could be opened; in the second case, logs
 * the reason. */
uint16_t way_heir_port(struct way *w);
/* Makes this node the host of the coordinator, with the given epoch. Call this when this node takes
 * over. From now on it serves other nodes at way_heir_port(). `addr` is the address that this node
 * publishes. */
void way_lead(struct way *w, uint64_t epoch, const char *addr);
/* Tells the way which coordinator this node follows. Call this with each ROUND. `coordinator` and
 * `epoch` are the id and the epoch of the coordinator that sent the ROUND, from its WELCOME. `addr`
 * and `port` are those of this coordinator; port 0 means that it is the one at the endpoint. If a
 * host in this process has taken over before, but is not this coordinator, that host stops leading.
 * If an heir leads, this node's host at the endpoint sends nodes to that heir from now on. */
void way_follow(struct way *w, uint64_t coordinator, uint64_t epoch, const char *addr,
                uint16_t port);

/* Tries once to connect, at all addresses of the coordinator side by side; on_open, on_lost or
 * on_hopeless follows. Copies `greeting`, the bytes that are sent first on each connection. The
 * first connection on which a coordinator answers is kept. If no leader is elected, the elected way
 * waits for one before it connects; this wait has no limit, so the caller has to set one. */
void way_connect(struct way *w, const void *greeting, size_t len);
/* way_send() queues bytes; way_flush() sends the queue. */
void way_send(struct way *w, const void *data, size_t len);
void way_flush(struct way *w);
/* If connected, sends the queued bytes and closes the connection; if connecting, stops that. No
 * callback follows until the next way_connect(). */
void way_hang_up(struct way *w);

/* Call this when this node leaves. Says goodbye to the nodes of the jobs that this node hosts, with
 * `why` as the reason. If the node's own job has heirs, its nodes get the goodbye only at
 * way_close(), when the workers of this node are gone. Does nothing on the elected way, because the
 * next leader continues the job. */
void way_retire(struct way *w, const char *why);
/* Says goodbye at once to the nodes of all jobs that this node hosts. */
void way_abandon(struct way *w, const char *why);

/* Closes the connection and what this node hosts, and frees the way. Nodes that are connected to
 * this node get `why` as the reason. No callback but on_close follows. */
void way_close(struct way *w, const char *why, void (*on_close)(void *arg), void *arg);

/* ---- the gateway of this node's workers to the store of their round (store/gateway) ---- */

struct way_gateway;

struct way_gateway_options {
    const char *host;           /* numeric address of the node that has the store */
    uint16_t port;
    const char *run_id;
    uint64_t incarnation, round; /* the round whose store it is */
    struct cr_port_range ports; /* the ports on which the gateway may listen */
};

/* Opens a gateway, which serves the round's store to the workers of this node at 127.0.0.1, and
 * stores its port in *port. Its connection to the store is authenticated with the job's secret, if
 * there is one. Copies the options; the way must live until on_close. Returns 0, or a negative
 * errno and a text in err. */
int way_gateway_open(struct way *w, const struct way_gateway_options *o, struct way_gateway **out,
                     uint16_t *port, struct cr_error *err);
/* Closes the workers' connections and the one to the store, frees the gateway and calls on_close
 * from the loop. on_close may be NULL. */
void way_gateway_close(struct way_gateway *g, void (*on_close)(void *arg), void *arg);

#endif
