/* What the files of the worker runtime share; never installed. */
#ifndef RUNTIME_RUNTIME_H
#define RUNTIME_RUNTIME_H

#include "base/error.h"
#include "worker_runtime/channel/channel.h"
#include "worker_runtime/host/store_host.h"
#include "worker_runtime/report/report.h"
#include "worker_runtime/runtime/worker_place_internal.h"
#include "worker_runtime/store/store.h"

#include <crunrt.h>

struct crunrt_group;
struct crunrt_backend;

/* The group of all ranks that later ones may be split from; see group_split.c. */
struct rt_whole_group {
    const struct crunrt_backend *backend; /* NULL: there has been none */
    struct crunrt_group *group;           /* NULL: it was destroyed */
    uint64_t number;
    char prefix[64]; /* the runtime's when it was made */
};

struct crunrt {
    struct worker_place place;
    struct crunrt_store *store;
    const struct store_host *host;    /* the module, where this process hosts the store */
    void *host_state;                 /* NULL: another process hosts it */
    int first_rank, first_world_size; /* from the launcher; place has those of this generation */
    int64_t generation;               /* 0, then one more with each crunrt_rejoin() */
    char prefix[64];                  /* "crunrt/<attempt>/<generation>" */
    uint64_t group_seq;               /* groups made so far, the same on every rank */
    struct rt_whole_group whole;
    struct agent_link link;
    struct cr_error link_error; /* why there is none, though one is named */
};

/* Sets the place in the first generation, or, for a process started anew, joins the next one. */
int rt_enter_first_generation(struct crunrt *rt);

/* Whether the agent has said so, without notice, and no next round has begun: any thread may ask. */
int rt_round_is_over(const struct crunrt *rt);

#define RT_ADDRESS_MAX 64 /* a numeric address, NUL included */

/* The numeric address of this host by which the other ranks reach it. */
int rt_bind_address(const struct crunrt *rt, char out[RT_ADDRESS_MAX], struct cr_error *err);

#endif
