/* The values of the rendezvous: options, rounds, outcomes, changes and limits. This header
 * declares no function and includes neither libuv nor a socket header, so that pure code of this
 * and other rooms can use it. rendezvous/rendezvous.h has the calls. */
#ifndef RENDEZVOUS_TYPES_H
#define RENDEZVOUS_TYPES_H

#include "base/change_kind.h"
#include "base/endpoint.h"

#include <stdbool.h>
#include <stdint.h>

#define RENDEZVOUS_ROLE_MAX  128                /* bytes of a role name, NUL included */
#define RDZV_NODES_MAX       ((uint32_t) 65536) /* nodes of one job */
#define RDZV_LOCAL_WORLD_MAX ((uint32_t) 32767) /* workers of one node; ranks fit into an int */
#define RDZV_ADDR_MAX        64                 /* bytes of a numeric address, NUL included */

/* What the command line says about the rendezvous. Times are in milliseconds. Names and defaults
 * of the timeouts are those of torchrun's --rdzv-conf: 600 s to join, 30 s last call, 30 s to
 * close, 5 s heartbeat, a keep-alive every 5 s and 3 attempts. */
struct rendezvous_options {
    const char *run_id;          /* the job's id; never empty */
    const char *backend;         /* "c10d", "static", "etcd" or "etcd-v2" */
    struct cr_endpoint endpoint; /* where the coordinator is; for one node: where it listens */
    int standalone;              /* one node, loopback only, a port of the kernel's choice */
    uint32_t min_nodes, max_nodes;
    int64_t node_rank;           /* --node-rank, or -1 */
    const char *local_addr;      /* --local-addr: the address this node publishes; NULL = find it */
    const char *role;
    uint32_t local_world_size;   /* workers of this node */
    uint32_t max_restarts;       /* the budget of the whole job */
    int64_t join_timeout_ms, last_call_timeout_ms, close_timeout_ms, heartbeat_timeout_ms;
    int64_t keep_alive_interval_ms;
    uint32_t keep_alive_max_attempt;
    int64_t read_timeout_ms;     /* for the first connection to the coordinator; 60 s */
    int64_t change_notice_ms;    /* notice before a joining node's round; 30 s; 0 = none */
    int64_t coordinator_wait_ms; /* how long to wait for a lost coordinator to come back; 0 */
    int is_host;                 /* 1 = this node hosts, 0 = it does not, -1 = by addresses */
};

/* What a node needs to start its workers. The ranks of one node are contiguous. */
struct rendezvous_round {
    uint64_t round;                       /* 0, 1, 2 … within the job */
    uint32_t restart_count;               /* restarts so far; the same on every node */
    uint32_t group_rank, group_world_size;
    uint32_t first_rank, world_size;      /* of this node's local rank 0; of the job */
    uint32_t first_role_rank, role_world_size;
    char master_addr[CR_HOST_MAX];        /* numeric */
    uint16_t master_port;
};

enum rendezvous_outcome {
    RENDEZVOUS_SUCCEEDED, /* the workers of every node ended well */
    RENDEZVOUS_FAILED,    /* a worker failed and the budget is spent */
    RENDEZVOUS_LOST,      /* the coordinator is gone, or the rendezvous timed out; see the text */
};

/* Why a round is about to end; base/change_kind.h explains each kind. The numbers travel in
 * messages. */
enum rendezvous_change_kind {
#define K(NAME, number, word, phrase) RENDEZVOUS_CHANGE_##NAME = (number),
    CR_CHANGE_KINDS(K)
#undef K
};

struct rendezvous_change {
    uint64_t id;
    enum rendezvous_change_kind kind;
    int64_t left_ms; /* from now until the round is stopped even if workers are not ready */
    const char *why; /* one line; borrowed for the call */
};

#endif
