/* Who this process is, read from what its launcher left in the environment. Pure: the environment
 * is handed in, so that every case can be tested. */
#ifndef WORKER_PLACE_INTERNAL_H
#define WORKER_PLACE_INTERNAL_H

#include "base/error.h"

#include <stdint.h>

typedef const char *(*worker_place_get_fn)(void *arg, const char *name);

struct worker_place {
    int rank, world_size;
    int local_rank, local_world_size; /* -1: not known */
    int restart_count;
    int agent_hosts_store; /* 0: rank 0 does */
    char master_addr[256]; /* "" with a file */
    uint16_t master_port;
    char file[1024];    /* the store's path; "" = it is at master_addr:master_port */
    const char *source; /* which launcher's variables gave the rank */
};

/* method      NULL or "env://", "tcp://host:port[?rank=R&world_size=N]", or "file:///path[?…]"
 * rank, world_size   -1: from the method's query, else from the environment
 * 0, or -EINVAL with a text that lists what was looked for, or -ENOTSUP for another method. An
 * empty variable counts as unset, as torch has it. */
int worker_place_read(worker_place_get_fn get, void *arg, const char *method, int rank,
                      int world_size, struct worker_place *out, struct cr_error *err);

#endif
