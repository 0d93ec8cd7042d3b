/* Backends answer one question: who is the coordinator, and where. What follows from the answer,
 * where the stores listen and whether ranks are fixed, is in the plan too. */
#ifndef RENDEZVOUS_BACKEND_H
#define RENDEZVOUS_BACKEND_H

#include "rendezvous/coordinator/coordinator.h"
#include "rendezvous/rendezvous.h"

enum backend_hosting {
    BACKEND_CONNECTS,  /* the coordinator is elsewhere */
    BACKEND_HOSTS,     /* it is here */
    BACKEND_MAY_HOST,  /* here, if we get the port; else another process of this machine has it */
    BACKEND_ELECTS,    /* whoever the election says, for as long as it says so */
};

struct backend_plan {
    enum backend_hosting hosting;
    char where[CR_HOST_MAX + 8];       /* the coordinator, for messages: "host:port" */
    char facts[512];                   /* what was found out about addresses, for messages */
    char own_addr[RDZV_ADDR_MAX];      /* what this node calls itself; "" = as it connects */
    int64_t node_rank;                 /* -1 = none asked for */
    int64_t connect_timeout_ms, coordinator_wait_ms;
    struct cr_endpoint etcd;           /* BACKEND_ELECTS: a member of the cluster */
    int64_t etcd_lease_ms;
    int fixed_ranks;                   /* group rank = node rank */
    /* hosting only */
    int alone;                         /* the job has one node */
    char store_host[CR_HOST_MAX];      /* "" = all interfaces */
    uint16_t store_port;               /* 0 = a new one each round */
    char store_addr[RDZV_ADDR_MAX];    /* numeric; what workers are told */
    char listen_host[CR_HOST_MAX];     /* for nodes, if store_port is 0 */
    uint16_t listen_port;              /* 0 = nobody else comes */
};

/* Decides. Asks the resolver, if the endpoint is a name. Returns 0, or -EINVAL, -ENOENT, -ENOTSUP
 * with a text. */
int backend_plan(const struct rendezvous_options *o, struct backend_plan *out,
                 struct cr_error *err);

int backend_c10d_plan(const struct rendezvous_options *o, struct backend_plan *out,
                      struct cr_error *err);
int backend_static_plan(const struct rendezvous_options *o, struct backend_plan *out,
                        struct cr_error *err);

int backend_etcd_plan(const struct rendezvous_options *o, struct backend_plan *out,
                      struct cr_error *err);

/* ---- addresses ---- */

/* What the resolver and the interfaces say about a host. */
struct backend_addresses {
    char first[RDZV_ADDR_MAX];  /* its address to use: IPv4 before IPv6 */
    char local[RDZV_ADDR_MAX];  /* one of them that this machine has, or "" */
    int is_loopback;            /* `first` is */
    char text[512];             /* "'n0' resolves to 10.0.0.1; this node has 10.0.0.2, 127.0.0.1" */
};

/* Returns 0 or -ENOENT with a text. */
int backend_look_up(const char *host, struct backend_addresses *out, struct cr_error *err);

#endif
