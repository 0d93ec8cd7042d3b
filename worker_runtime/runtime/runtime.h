/* The runtime object: who this process is, its store, and its channel to the agent. The process
 * groups are built on it. */
#ifndef RUNTIME_RUNTIME_H
#define RUNTIME_RUNTIME_H

#include "base/error.h"
#include "worker_runtime/channel/channel.h"
#include "worker_runtime/report/report.h"
#include "worker_runtime/runtime/hosted_store.h"
#include "worker_runtime/runtime/worker_place.h"
#include "worker_runtime/store/store.h"

#include <crunrt.h>

struct crunrt_group;
struct crunrt_backend;

/* The first group of all ranks, from which later groups may be split; see group/group_split.c. */
struct rt_whole_group {
    const struct crunrt_backend *backend; /* NULL: there has been no such group in this round */
    struct crunrt_group *group;           /* NULL: it was destroyed */
    uint64_t number;
};

struct crunrt {
    struct worker_place place; /* in the current round */
    struct crunrt_store *store;
    struct hosted_store hosted; /* if this process hosts the store */
    char prefix[64];            /* of this runtime's keys: "crunrt/<restart count>/<n>" */
    uint64_t group_count;       /* groups made in this round; the same on every rank */
    struct rt_whole_group whole;
    struct worker_channel channel;
    struct cr_error channel_error; /* why there is no channel */
};

/* Whether the agent has reported that the round is over without notice, and the next one has not
 * begun. Any thread may ask. */
bool rt_round_is_over(const struct crunrt *rt);

/* Sets rt->prefix, so that this runtime never reads keys that were left in the store before: the
 * restart count is in it, because torchrun keeps one store for all restarts of a job; and so is how
 * often a runtime of this rank has been made on this store before, because a program may make
 * another runtime, or a user may start the program again on a store that goes on. All ranks get the
 * same prefix if they were started equally often. 0, or the store's failure. */
int rt_take_prefix(struct crunrt *rt);

#define RT_ADDRESS_MAX 64 /* bytes of a numeric address, NUL included */

/* Writes the numeric address of this host at which the other ranks can reach it. */
int rt_bind_address(const struct crunrt *rt, char out[RT_ADDRESS_MAX], struct cr_error *err);

#endif
