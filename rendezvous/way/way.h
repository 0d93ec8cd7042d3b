/* How one node reaches its coordinator, and the door of rendezvous/way.
 *
 * A backend decides where the coordinator is (struct backend_plan). There are three ways to it:
 *
 *     local     it runs in this process: bytes pass through two buffers, without a socket, and are
 *               delivered on the next turn of the loop
 *     remote    over a TCP connection
 *     elected   over a TCP connection to the node that etcd has elected, which may be this one
 *
 * The way also opens and closes what this node hosts. */
#ifndef RENDEZVOUS_WAY_H
#define RENDEZVOUS_WAY_H

#include "base/error.h"
#include "rendezvous/types.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

/* ---- where the coordinator is ---- */

enum backend_hosting {
    BACKEND_CONNECTS,  /* the coordinator is elsewhere */
    BACKEND_HOSTS,     /* it is here */
    BACKEND_MAY_HOST,  /* it is here if this process gets the port; else in another process here */
    BACKEND_ELECTS,    /* it is where the election says */
};

struct backend_plan {
    enum backend_hosting hosting;
    char where[CR_HOST_MAX + 8];       /* the coordinator, for messages: "host:port" */
    char facts[512];                   /* what was found out about addresses, for messages */
    char own_addr[RDZV_ADDR_MAX];      /* the address this node publishes; "" = as it connects */
    int64_t node_rank;                 /* -1 = none asked for */
    int64_t connect_timeout_ms, coordinator_wait_ms;
    struct cr_endpoint etcd;           /* BACKEND_ELECTS: a member of the cluster */
    int64_t etcd_lease_ms;
    bool fixed_ranks;                  /* the group rank is the node rank */
    /* hosting only */
    bool alone;                        /* the job has one node */
    char store_host[CR_HOST_MAX];      /* where stores listen; "" = all interfaces */
    uint16_t store_port;               /* 0 = a new one for each round */
    char store_addr[RDZV_ADDR_MAX];    /* numeric address that workers get */
    char listen_host[CR_HOST_MAX];     /* where nodes connect, if store_port is 0 */
    uint16_t listen_port;              /* 0 = no other node can connect */
};

/* Checks what can be checked without asking or opening anything. Returns 0, or -EINVAL with a
 * text. */
int backend_check(const struct rendezvous_options *o, struct cr_error *err);

/* Decides. Asks the resolver if the endpoint is a name. Returns 0, or -EINVAL, -ENOENT, -ENOTSUP
 * with a text. */
int backend_plan(const struct rendezvous_options *o, struct backend_plan *out,
                 struct cr_error *err);

/* What the resolver and this machine's interfaces know about a host. */
struct backend_addresses {
    char first[RDZV_ADDR_MAX];  /* its address to use: IPv4 before IPv6 */
    char local[RDZV_ADDR_MAX];  /* one of its addresses that this machine has, or "" */
    bool is_loopback;           /* `first` is */
    char text[512];             /* "'n0' resolves to 10.0.0.1; this node has 10.0.0.2, 127.0.0.1" */
};

/* Returns 0 or -ENOENT with a text. */
int backend_look_up(const char *host, struct backend_addresses *out, struct cr_error *err);

/* ---- the way to it ---- */

struct way;

/* Called on the loop, never from inside a call below. */
struct way_events {
    /* There is a connection. `own_addr` is the numeric address of this end; "" on the local way. */
    void (*on_open)(void *arg, const char *own_addr);
    void (*on_data)(void *arg, const char *data, size_t len);
    /* The connection could not be made, or is gone. No event follows until the next
     * way_connect(). */
    void (*on_lost)(void *arg, const char *why);
};

/* Opens what this node hosts. Connects to nothing yet. `options` and `plan` are used during the
 * call only, `events` is borrowed. Returns 0, or -EADDRINUSE, -EADDRNOTAVAIL… with a text; then
 * nothing is open. */
int way_open(uv_loop_t *loop, const struct rendezvous_options *options,
             const struct backend_plan *plan, const struct way_events *events, void *arg,
             struct way **out, struct cr_error *err);

bool way_is_local(const struct way *w);
/* For a log line: "is this node", "is there" or "is elected". */
const char *way_description(const struct way *w);
/* Numeric address at which the coordinator was reached; "" if it is local or was not reached
 * yet. */
const char *way_coordinator_addr(const struct way *w);
/* What went wrong last with the election, or "". */
const char *way_trouble(const struct way *w);

/* Starts to connect; on_open or on_lost follows. With an election it waits for a leader, without
 * a time limit of its own. */
void way_connect(struct way *w);
/* Queues bytes; way_flush() sends them. */
void way_send(struct way *w, const void *data, size_t len);
void way_flush(struct way *w);
/* Sends what is queued and closes the connection, or cancels connecting. No event follows. */
void way_hang_up(struct way *w);

/* This node leaves: ends the jobs that it hosts, for `why`. With an election they go on
 * elsewhere. */
void way_abandon(struct way *w, const char *why);

/* Hangs up, closes what this node hosts, and frees. Other nodes are sent `why`. No event follows
 * but on_close. */
void way_close(struct way *w, const char *why, void (*on_close)(void *arg), void *arg);

#endif
