/* The runtime object that crunrt_init() makes: this process's place in the job, its store, and its
 * channel to the agent. Process groups are built on it. */
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

/* The first group of this round that contains all ranks and whose backend can split. Later groups
 * may be made by splitting it (group/group_split.c). */
struct rt_whole_group {
    /* backend of the group; NULL if this round has not had such a group */
    const struct crunrt_backend *backend;
    struct crunrt_group *group;           /* the group; NULL if it has been destroyed */
    uint64_t number;
};

struct crunrt {
    struct worker_place place; /* rank, world size and store address in the current round */
    struct crunrt_store *store;
    struct hosted_store hosted; /* the store's server, if this process hosts it */
    /* prefix of all keys of this runtime: "crunrt/<restart count>/<n>" */
    char prefix[64];
    uint64_t group_count;       /* number of groups made in this round; the same on every rank */
    struct rt_whole_group whole;
    /* Returns -ENOTRECOVERABLE, and sets err, if this process can make no more groups, for example
     * because it has lost its GPU. NULL while no backend can say so. */
    int (*recoverable)(struct cr_error *err);
    struct worker_channel channel;
    struct cr_error channel_error; /* why there is no channel; valid only if channel.page is NULL */
};

/* Returns true if the agent has reported that the round is over without an agreed step, and the
 * next round has not begun. Any thread may call it. */
bool rt_round_is_over(const struct crunrt *rt);

/* Returns 0; or -ENOTRECOVERABLE if only a new process can take this worker's place. In that case
 * it also reports in the page that this process cannot rejoin, so that the agent replaces it. */
int rt_recoverable(struct crunrt *rt, struct cr_error *err);

/* Sets rt->prefix to a prefix that no earlier runtime of this job has used, so that this runtime
 * never reads keys that an earlier runtime has left in the store. The prefix contains two numbers.
 * The first is the restart count, because torchrun keeps one store for all restarts of a job. The
 * second says how many runtimes this rank has made before on this store, because a program may make
 * several runtimes, and a user may start the program again on a store that still runs. If all ranks
 * have made the same number of runtimes, all get the same prefix. Returns 0, or the store's
 * failure. */
int rt_take_prefix(struct crunrt *rt);

#define RT_ADDRESS_MAX 64 /* bytes of a numeric IP address, NUL included */

/* Writes to `out` the numeric address of this host at which the other ranks can reach it. */
int rt_bind_address(const struct crunrt *rt, char out[RT_ADDRESS_MAX], struct cr_error *err);

#endif
