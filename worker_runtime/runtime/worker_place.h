/* Which worker this process is, and where its store is: from the environment that the launcher set,
 * or from the packet with which the agent begins a round. Pure: the environment is a function that
 * the caller passes in, so that tests can cover every case. */
#ifndef RUNTIME_WORKER_PLACE_H
#define RUNTIME_WORKER_PLACE_H

#include "base/error.h"
#include "contract/channel.h"

#include <stdbool.h>
#include <stdint.h>

/* Returns the value of a variable, or NULL. */
typedef const char *(*worker_place_get_fn)(void *arg, const char *name);

struct worker_place {
    int rank, world_size;
    int local_rank, local_world_size; /* -1: not known */
    int restart_count;
    bool agent_hosts_store; /* otherwise rank 0 hosts it */
    char master_addr[256];  /* the store's host; "" if the store is a file */
    uint16_t master_port;
    char file[1024];    /* the store's path; "" if it is at master_addr:master_port */
    const char *source; /* the launcher whose variables gave the rank, or "options" */
};

/* method      NULL or "env://", "tcp://host:port[?rank=R&world_size=N]", or "file:///path[?…]"
 * rank, world_size   -1: from the method's query, else from the environment
 *
 * An empty variable counts as unset, as in torch.
 * 0; -EINVAL with a text that lists what was looked for; -ENOTSUP for another method. */
int worker_place_read(worker_place_get_fn get, void *arg, const char *method, int rank,
                      int world_size, struct worker_place *out, struct cr_error *err);

/* The place in the round that a ROUND packet describes. 0, or -EPROTO if the packet contradicts
 * itself (a rank beyond the world size, say); *out is then unchanged. */
int worker_place_from_packet(const struct channel_packet *p, struct worker_place *out,
                             struct cr_error *err);

#endif
