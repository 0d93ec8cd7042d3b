/* Finds a worker's place: its rank, the world size, and the address of its store. The place comes
 * from the environment, which the launcher has set, or from the packet with which the agent begins
 * a round. Pure: a parameter is the function that reads the environment, so that tests can use any
 * environment. */
#ifndef RUNTIME_WORKER_PLACE_H
#define RUNTIME_WORKER_PLACE_H

#include "base/error.h"
#include "contract/channel.h"

#include <stdbool.h>
#include <stdint.h>

/* Returns the value of environment variable `name`, or NULL if it is unset. */
typedef const char *(*worker_place_get_fn)(void *arg, const char *name);

struct worker_place {
    int rank, world_size;
    int local_rank, local_world_size; /* rank on this node and number of ranks on this node; -1 if
                                       * unknown */
    int restart_count;
    int kept; /* ranks of the round that have gone on in their processes; -1 if unknown */
    bool agent_hosts_store; /* true if the agent hosts the store, false if rank 0 does */
    char master_addr[256];  /* the store's host; "" if the store is a file */
    uint16_t master_port;
    /* path of the store's file; "" if the store is at master_addr:master_port */
    char file[1024];
    /* the name of the launcher, such as "Open MPI", whose variables for rank and world size are
     * both set; "options" if there is none: the options, or the URL of the init method, then give
     * both numbers */
    const char *source;
};

/* Finds the place from the options of crunrt_init() and the environment.
 *
 * method             NULL or "env://", "tcp://host:port[?rank=R&world_size=N]", or
 *                    "file:///path[?…]"
 * rank, world_size   -1 if the caller does not give it: it is read from the method's query; if it
 *                    is not there, from the environment
 *
 * An empty variable counts as unset, as in torch. Returns 0; -EINVAL if a value is missing or
 * wrong, and sets err to a text that names it; or -ENOTSUP if `method` has another form. */
int worker_place_read(worker_place_get_fn get, void *arg, const char *method, int rank,
                      int world_size, struct worker_place *out, struct cr_error *err);

/* Sets *out to the place that a packet ROUND describes, and returns 0. If the packet contradicts
 * itself (for example, rank 5 of 4), returns -EPROTO and leaves *out unchanged. */
int worker_place_from_packet(const struct channel_packet *p, struct worker_place *out,
                             struct cr_error *err);

#endif
