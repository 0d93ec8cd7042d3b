/* Backends answer one question: who is the coordinator, and where. What follows from the answer,
 * where the stores listen and whether ranks are fixed, is in the plan too. */
#ifndef RENDEZVOUS_BACKEND_H
#define RENDEZVOUS_BACKEND_H

#include "rendezvous/coordinator.h"
#include "rendezvous/rendezvous.h"

struct backend_plan {
    int hosting;                       /* this node runs the coordinator */
    char where[CR_HOST_MAX + 8];       /* the coordinator, for messages */
    char own_addr[RDZV_ADDR_MAX];      /* what this node calls itself */
    int64_t node_rank;                 /* -1 = none asked for */
    int fixed_ranks;                   /* group rank = node rank */
    /* hosting only */
    char store_host[CR_HOST_MAX];      /* "" = all interfaces */
    uint16_t store_port;               /* 0 = a new one each round */
    char store_addr[RDZV_ADDR_MAX];    /* numeric; what workers are told */
};

/* Decides. Returns 0, or -EINVAL, -ENOENT, -ENOTSUP with a text. */
int backend_plan(const struct rendezvous_options *o, struct backend_plan *out,
                 struct cr_error *err);

int backend_c10d_plan(const struct rendezvous_options *o, struct backend_plan *out,
                      struct cr_error *err);
int backend_static_plan(const struct rendezvous_options *o, struct backend_plan *out,
                        struct cr_error *err);

#endif
