/* Rendezvous: who takes part, in which round, with which rank. The room's front door.
 *
 * A node's agent owns one `struct rendezvous`. It says *join*, *failed*, *succeeded* or *leave*; it is
 * told *round* (start your workers with these ranks), *stop* (this round is over: stop your workers,
 * then join again) and *end* (the job is over, and how). Decisions (membership, ranks, the restart
 * budget, the verdict) are taken in one place, the coordinator, a pure state machine that runs on
 * the hosting node beside the store; see docs/rendezvous.md.
 *
 * Every round has a key space of its own: the address in `struct rendezvous_round` leads to a store
 * that was empty when the round began. */
#ifndef RENDEZVOUS_RENDEZVOUS_H
#define RENDEZVOUS_RENDEZVOUS_H

#include "base/address.h"
#include "base/error.h"

#include <stdint.h>
#include <uv.h>

struct rendezvous;

#define RENDEZVOUS_ROLE_MAX 128 /* bytes of a role name, NUL included */

struct rendezvous_options {
    const char *run_id;        /* job id; never empty */
    const char *backend;       /* "c10d", "static", "etcd", "etcd-v2" */
    struct cr_endpoint endpoint; /* where the coordinator is; for a single node: where it listens */
    int standalone;            /* one node, loopback only, port of the kernel's choice */
    uint32_t min_nodes, max_nodes;
    int64_t node_rank;         /* --node-rank, or -1 */
    const char *local_addr;    /* --local-addr: what this node advertises; NULL = find out */
    const char *role;
    uint32_t local_world_size; /* workers of this node */
    uint32_t max_restarts;     /* job-wide budget */
    /* milliseconds; torchrun's --rdzv-conf names and defaults (600, 30, 30, 5, 5 s, 3) */
    int64_t join_timeout_ms, last_call_timeout_ms, close_timeout_ms, heartbeat_timeout_ms;
    int64_t keep_alive_interval_ms;
    uint32_t keep_alive_max_attempt;
    int64_t read_timeout_ms;   /* connecting to the coordinator; 60 s */
    int is_host;               /* 1, 0, or -1 = find out */
};

/* What a node needs to start its workers. Ranks are contiguous per node. */
struct rendezvous_round {
    uint64_t round;                       /* 0, 1, 2 … within the job */
    uint32_t restart_count;               /* failures so far, the same on every node */
    uint32_t group_rank, group_world_size;
    uint32_t first_rank, world_size;      /* of this node's local rank 0; of the job */
    uint32_t first_role_rank, role_world_size;
    char master_addr[CR_HOST_MAX];        /* numeric */
    uint16_t master_port;
};

enum rendezvous_outcome {
    RENDEZVOUS_SUCCEEDED, /* every node's workers ended well */
    RENDEZVOUS_FAILED,    /* a worker failed and the budget is spent */
    RENDEZVOUS_LOST,      /* the coordinator is gone, or the round timed out; see the text */
};

/* Exactly one of these is called at a time, on the loop thread, never from inside a call below. */
struct rendezvous_events {
    void (*on_round)(void *arg, const struct rendezvous_round *round);
    /* `why` is one line for the log; the workers of this round must be gone before the next join. */
    void (*on_stop)(void *arg, const char *why);
    /* Last callback but on_close's. `err` is filled for RENDEZVOUS_LOST. */
    void (*on_end)(void *arg, enum rendezvous_outcome outcome, const struct cr_error *err);
};

/* Opens what this node hosts (the store's thread, the coordinator) but joins nothing yet.
 * `options` is copied. Returns 0, or -EADDRINUSE, -EADDRNOTAVAIL, -EINVAL… with a text. */
int rendezvous_open(uv_loop_t *loop, const struct rendezvous_options *options,
                    const struct rendezvous_events *events, void *arg, struct rendezvous **out,
                    struct cr_error *err);

/* Asks to be in the next round: at the start, and after on_stop once all workers are gone. */
void rendezvous_join(struct rendezvous *r);

/* A worker of this node failed in `round` (first failure of the node only). `what` is one line that
 * other nodes may print: rank, host, exit code or signal. Answered by on_stop or on_end. */
void rendezvous_failed(struct rendezvous *r, uint64_t round, const char *what);

/* All workers of this node ended well in `round`. Answered by on_end once all nodes said so. */
void rendezvous_succeeded(struct rendezvous *r, uint64_t round);

/* This node goes away (a signal to the launcher); no callback follows but on_close's. */
void rendezvous_leave(struct rendezvous *r);

/* Frees, after the loop has run `on_close`. Allowed in every state. */
void rendezvous_close(struct rendezvous *r, void (*on_close)(void *arg));

#endif
