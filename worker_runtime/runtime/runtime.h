/* The runtime object, which crunrt_init() makes: this process's place in the job, the job's store,
 * and the channel to the agent. Process groups use it. */
#ifndef RUNTIME_RUNTIME_H
#define RUNTIME_RUNTIME_H

#include "base/error.h"
#include "worker_runtime/channel/channel.h"
#include "worker_runtime/report/report.h"
#include "worker_runtime/runtime/hosted_store.h"
#include "worker_runtime/runtime/worker_place.h"
#include "worker_runtime/store/store.h"

#include <crunrt.h>

#include <sys/types.h>

struct crunrt_group;
struct crunrt_backend;

/* The first group of this round that contains all ranks and whose backend can split. Later groups
 * may be made by splitting it (group/group_split.c). */
struct rt_whole_group {
    /* the group's backend; NULL if this round has had no such group */
    const struct crunrt_backend *backend;
    struct crunrt_group *group;           /* the group; NULL if there is none, or if it was
                                           * destroyed */
    uint64_t number;
};

struct crunrt {
    struct crunrt *next_living;   /* in the list of all runtimes of this process */
    pid_t pid;                    /* the process that has made this runtime */
    struct crunrt_group *groups;  /* list of all groups of this runtime that are not destroyed */
    /* Writes to the store, for each of `groups`, how many collectives this rank has made in it.
     * NULL as long as no group was made. */
    void (*leave_groups)(struct crunrt *rt);
    struct worker_place place; /* rank, world size and store address in the current round */
    struct crunrt_store *store;
    struct hosted_store hosted; /* the store's server, if this process hosts it */
    /* prefix of all keys of this runtime: "crunrt/<restart count>/<n>" */
    char prefix[64];
    uint64_t group_count;       /* number of groups made in this round; the same on every rank */
    struct rt_whole_group whole;
    /* The function of a backend that checks whether this process can still make groups. It returns
     * 0; or -ENOTRECOVERABLE, for example if the GPU is lost, and sets err. NULL if no backend with
     * such a function is loaded. */
    int (*recoverable)(struct cr_error *err);
    struct worker_channel channel;
    struct cr_error channel_error; /* why there is no channel; valid only if channel.page is NULL */
};

/* Call rt_begin_life() when crunrt_init() has succeeded, and rt_end_life() before the runtime is
 * freed. If the process ends normally between the two calls, rt_report_end() is called. */
void rt_begin_life(struct crunrt *rt);
void rt_end_life(struct crunrt *rt);

/* Writes to the store that this rank has ended, so that ranks that wait for it fail at once. Waits
 * at most a second for each reply of the store. If another thread uses the store's connection,
 * writes nothing. */
void rt_report_end(struct crunrt *rt);

/* Searches ranks[count], or all ranks if `ranks` is NULL, for a rank that has ended: one that has
 * written this to the store in this round. Returns the rank, or -1 if there is none. */
int rt_ended_rank(struct crunrt *rt, const int *ranks, size_t count);

/* Returns true if the agent has ended the round without an agreed step and the next round has not
 * begun. Any thread may call this. */
bool rt_round_is_over(const struct crunrt *rt);

/* Checks whether this process can still make groups, by calling rt->recoverable(). Returns 0 if it
 * can. If it cannot, clears can_rejoin in the page, so that the agent replaces this process, sets
 * err and returns -ENOTRECOVERABLE. */
int rt_recoverable(struct crunrt *rt, struct cr_error *err);

/* Sets rt->prefix to a prefix that no earlier runtime of this rank has used, so that this runtime
 * never reads keys that an earlier one has left in the store. The prefix contains two numbers. The
 * first one is the restart count, because torchrun uses one store for all restarts of a job. The
 * second one is the number of runtimes that this rank has made on this store before: a program can
 * make several runtimes, and a user can start the program again while its store still runs. All
 * ranks make the same number of runtimes, so all have the same prefix. Returns 0, or the error of
 * the store. */
int rt_take_prefix(struct crunrt *rt);

#define RT_ADDRESS_MAX 64 /* bytes of a numeric IP address, NUL included */

/* Sets `out` to the numeric IP address at which the other ranks can reach this host. Returns 0; or
 * a negative errno, and sets err. */
int rt_bind_address(const struct crunrt *rt, char out[RT_ADDRESS_MAX], struct cr_error *err);

#endif
