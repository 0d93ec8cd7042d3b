/* The data types of the rendezvous: options, rounds, outcomes, changes and limits. This header
 * declares no function and includes neither libuv nor a socket header, so that pure code of this
 * and other rooms can use it. rendezvous/rendezvous.h has the functions. */
#ifndef RENDEZVOUS_TYPES_H
#define RENDEZVOUS_TYPES_H

#include "base/change_kind.h"
#include "base/network/endpoint.h"
#include "base/network/port_range.h"
#include "rendezvous/store_guard.h"

#include <stdbool.h>
#include <stdint.h>

#define RENDEZVOUS_ROLE_MAX  128                /* bytes of a role name, NUL included */
#define RDZV_NODES_MAX       ((uint32_t) 262144) /* largest number of nodes in a job */
/* largest number of workers on one node; the ranks of RDZV_NODES_MAX such nodes fit into an int */
#define RDZV_LOCAL_WORLD_MAX ((uint32_t) 4096)
/* bytes of an IPv4 or IPv6 address as text, NUL included */
#define RDZV_ADDR_MAX        64

#define RENDEZVOUS_ETCD_TEXT_MAX    512 /* bytes of a path or name below, NUL included */
#define RENDEZVOUS_ETCD_MEMBERS_MAX 8

/* Where etcd is, and how this node authenticates there; used by the backend etcd. */
struct rendezvous_etcd {
    struct cr_endpoint endpoints[RENDEZVOUS_ETCD_MEMBERS_MAX]; /* members of the cluster */
    uint32_t endpoint_count;                                   /* at least 1 */
    int https;
    /* 1 = this node may be elected, 0 = it may not, -1 = it may, but in a job of many nodes most of
     * them wait before they claim the key */
    int is_candidate;
    char prefix[RENDEZVOUS_ETCD_TEXT_MAX];  /* start of the keys' names; the run id follows */
    char ca_cert[RENDEZVOUS_ETCD_TEXT_MAX]; /* file; "" = the system's authorities */
    char ssl_cert[RENDEZVOUS_ETCD_TEXT_MAX], ssl_cert_key[RENDEZVOUS_ETCD_TEXT_MAX];
    char user[RENDEZVOUS_ETCD_TEXT_MAX], password_file[RENDEZVOUS_ETCD_TEXT_MAX];
};

/* What a node reports about a failed worker, besides the text: whether a signal from outside has
 * ended it, and whether its failure ends the job. Messages carry these numbers, so they must not
 * change. */
enum rendezvous_blame {
    RENDEZVOUS_OWN = 0,    /* the worker failed by itself */
    RENDEZVOUS_KILLED = 1, /* a signal that its agent did not send has ended the worker */
    /* the worker belongs to a program whose failure ends the job (--on-failure=end), so the job is
     * not restarted; a coordinator of an older build takes this for KILLED and restarts the job */
    RENDEZVOUS_FINAL = 2,
    RENDEZVOUS_FINAL_KILLED = 3, /* both KILLED and FINAL */
};

/* When nodes and operators have to authenticate. */
enum rendezvous_auth {
    RENDEZVOUS_AUTH_AUTO,     /* if there is a token file, or MUNGE in a task of Slurm */
    RENDEZVOUS_AUTH_REQUIRED, /* always; without token file and MUNGE the job does not start */
    RENDEZVOUS_AUTH_OFF,      /* never, even if there is a token file */
    RENDEZVOUS_AUTH_MUNGE,    /* always, by MUNGE, even outside of Slurm */
};

/* What the command line sets for the rendezvous. Times are in milliseconds. The timeouts have the
 * names and defaults of torchrun's --rdzv-conf: 600 s to join, 30 s last call, 30 s to close, 5 s
 * heartbeat, a keep-alive every 5 s, and a lease of 3 keep-alive intervals. */
struct rendezvous_options {
    const char *run_id;          /* --rdzv-id, which names the job; never empty */
    const char *backend;         /* "c10d", "static", "etcd" or "etcd-v2" */
    /* where the coordinator is; in a job of one node: where its coordinator listens */
    struct cr_endpoint endpoint;
    /* true if the user gave the endpoint; only in that case does a job of one node with the backend
     * c10d listen there */
    bool endpoint_given;
    /* 1 = the job has one node, because of --standalone or because no option says where its nodes
     * meet; its store listens at a port that the kernel chooses; else 0 */
    int standalone;
    /* true if --standalone is given: unless the user gave --local-addr, the store of a standalone
     * job listens on loopback only */
    bool loopback_only;
    uint32_t min_nodes, max_nodes;
    int64_t node_rank;           /* the value of --node-rank; -1 = not given */
    /* true if the user or the scheduler gave the node rank; if false, a node_rank of 0 is only the
     * default of the backend `static` */
    bool node_rank_given;
    /* --local-addr: the address this node publishes; NULL = its address on the connection to the
     * coordinator */
    const char *local_addr;
    struct cr_port_range ports;  /* --port-range: ports of listeners whose port is not given */
    struct rendezvous_store_guard store_guard; /* --store-allow */
    /* --store-gateway: workers of other nodes reach the store of a round only through the gateways
     * of their nodes. All nodes of the job must set it. */
    bool store_gateway;
    const char *role;
    /* hash of the program and its arguments; the coordinator compares the hashes of all nodes; 0 =
     * unknown */
    uint64_t digest;
    uint32_t local_world_size;   /* number of workers that this node starts */
    uint32_t max_restarts;       /* number of restarts that the whole job may use, over all nodes */
    int64_t join_timeout_ms, last_call_timeout_ms, close_timeout_ms, heartbeat_timeout_ms;
    bool skips_last_call;        /* true: only a run's first round has a last call */
    int64_t keep_alive_interval_ms;
    uint32_t keep_alive_max_attempt;
    /* time limit for the first connection to the coordinator, over all tries; default 60 s */
    int64_t read_timeout_ms;
    /* time limit for this node to stop its workers; after it, the job goes on without this node;
     * default: the longest grace of its agent plus 5 s; 0 = join_timeout_ms, but at least 120 s */
    int64_t stop_limit_ms;
    /* when a node joins a running job: how many ms before the next round the running workers get
     * notice; default 30 s; 0 = no notice */
    int64_t change_notice_ms;
    uint32_t loss_limit; /* how many rounds may end by the loss of a node, plus 1; 0 = no limit */
    /* back-off: time in ms that the next round waits after a charged failure, twice as long after
     * each further one; 0 = the next round forms at once */
    int64_t restart_backoff_ms;
    /* a round that runs for this many ms refills the budget; 0 = none does */
    int64_t restart_refill_ms;
    /* Limits for hosts whose nodes are lost soon after they have joined (flap_…), and for hosts on
     * which failures begin again and again (aside_…); rendezvous/rules/standing_internal.h has the
     * rules. flap_limit 0 = no host is slowed or refused; aside_after 0 = no host is set aside. */
    uint32_t flap_limit, aside_after;
    int64_t flap_window_ms, flap_refusal_ms, aside_ms;
    /* The rule about slow ranks: a rank is slow if in slow_ms it makes less than slow_percent
     * percent of the steps of the median rank. The coordinator names it in a log line; if
     * slow_notice_ms is not 0, its node has to leave with notice, within that time. slow_percent 0
     * = no rule. */
    uint32_t slow_percent;
    int64_t slow_ms, slow_notice_ms;
    uint64_t watches; /* mask of the reasons for a hang that this node watches for (struct
                       * rendezvous_quiet); 0 = none */
    /* Port at which this node's part of a paired test may listen, and the time limit of one test in
     * ms. Port 0 = this node makes no paired tests. */
    uint16_t pair_port;
    int64_t pair_timeout_ms;
    /* how long to wait for a lost coordinator to come back; -1, the default, means 60 s if the
     * coordinator does not run in the launcher of a node, and 0 if it does */
    int64_t coordinator_wait_ms;
    /* 1 = if the node that hosts the coordinator is lost, no other node takes over; else 0 */
    int keeps_coordinator;
    /* 1 = this node hosts, 0 = it does not, -1 = it hosts if the endpoint's address is its own */
    int is_host;
    /* HOST:PORT of a relay (relay/relay.h) that this node tries before the endpoint; "" = none */
    char relay[RENDEZVOUS_ETCD_TEXT_MAX];
    int auth; /* an enum rendezvous_auth */
    /* file with the job's secrets; NULL or "" = the mounted Kubernetes secret, if there is one */
    const char *token_file;
    struct rendezvous_etcd etcd;
};

/* What a node needs to know to start its workers in one round. The ranks of one node's workers are
 * contiguous. */
struct rendezvous_round {
    uint64_t round;                       /* number of the round in the job, counted from 0 */
    /* restarts of the job so far; all nodes get the same number */
    uint32_t restart_count;
    uint32_t max_restarts;                /* the job's budget; all nodes get the same number */
    uint32_t group_rank, group_world_size;
    /* first_rank: the rank of this node's local rank 0; world_size: number of all workers */
    uint32_t first_rank, world_size;
    uint32_t first_role_rank, role_world_size;
    /* number of workers, over all nodes, that go on in this round in their processes; -1 = unknown,
     * because a node is older than protocol version 9 */
    int64_t kept;
    char master_addr[CR_HOST_MAX];        /* numeric address of the round's store */
    /* host of the round's store as the user wrote it, which workers get as MASTER_ADDR; "" = they
     * get master_addr */
    char master_name[CR_HOST_MAX];
    uint16_t master_port;
};

enum rendezvous_outcome {
    RENDEZVOUS_SUCCEEDED, /* all workers of all nodes ended with exit code 0 */
    RENDEZVOUS_FAILED,    /* a worker failed and the budget is spent */
    /* the coordinator is gone, or the rendezvous timed out; on_end's `err` has the reason */
    RENDEZVOUS_LOST,
};

/* What a worker does in a process group. Messages between nodes carry these numbers, so they must
 * not change. */
enum rendezvous_progress_state {
    /* the worker waits in no operation; all operations that it has started have ended */
    RENDEZVOUS_IDLE = 0,
    /* the worker waits in no operation; operations that it has started may still go on */
    RENDEZVOUS_OPEN = 1,
    RENDEZVOUS_WAITS_COLLECTIVE = 2,
    RENDEZVOUS_WAITS_MESSAGE = 3, /* in a send or receive */
    RENDEZVOUS_WAITS_MAKING = 4,  /* for the other ranks to make the group */
};

/* What one worker does in one process group. */
struct rendezvous_progress {
    uint32_t rank;
    uint64_t group;       /* number of the process group among those that the round has made */
    const char *name, *op; /* name of the group, and of the operation */
    uint32_t place, size; /* the worker's rank in the group, and the group's size */
    enum rendezvous_progress_state state;
    uint32_t begun; /* number of collectives that the worker has entered */
    uint32_t seq;   /* number of the operation in which the worker waits */
    uint32_t peer;  /* for RENDEZVOUS_WAITS_MESSAGE: the other end's rank in the group */
    int64_t since_ms; /* for how long this has been its state */
};

/* How a connection has ended. */
enum rendezvous_loss {
    /* end-of-file has come: the process at the other end has ended, or has closed the connection */
    RENDEZVOUS_CLOSED,
    /* the connection was reset, has timed out, or could not be made: the process at the other end
     * may still run */
    RENDEZVOUS_BROKEN,
};

/* Why a round is about to end. base/change_kind.h explains each kind. Messages between nodes carry
 * these numbers, so they must not change. */
enum rendezvous_change_kind {
#define K(NAME, number, word, phrase) RENDEZVOUS_CHANGE_##NAME = (number),
    CR_CHANGE_KINDS(K)
#undef K
};

/* Returns whether ranks may still be before their first step although they will take part in a
 * change with this agreed step. Such a change is called early. The agreed step is one more than the
 * most steps that a rank has made. Ranks that communicate in each step are at most one step apart,
 * so if a rank has made two steps, all ranks have made one. But if a rank has made one step,
 * another may have made none: it has not counted the step yet, or has not even connected to its
 * agent. */
static inline bool rendezvous_step_is_early(uint64_t agreed_step) {
    return agreed_step == 1 || agreed_step == 2;
}

struct rendezvous_change {
    uint64_t id;
    enum rendezvous_change_kind kind;
    int64_t left_ms; /* time until the round is stopped, even if workers are not ready */
    const char *why; /* one line for the log; valid until the callback returns */
};

/* The evidence about a worker of the job that has failed; docs/verdict.md describes the fields.
 * Texts must be valid until the call or the callback returns; none is NULL. */
struct rendezvous_failure {
    uint64_t round;
    uint32_t rank, local_rank;
    int64_t pid;
    int64_t exit_code; /* exit code, or minus the number of the signal */
    int64_t died_ns;   /* time of its death by its node's wall clock, in ns since 1970 */
    /* by how many ns the wall clock of the worker's node is ahead of the coordinator's, and the
     * largest error of this number in ns; error -1 = both are unknown */
    int64_t offset_ns, offset_error_ns;
    const char *host, *kind, *what, *message, *last_words, *kernel, *log_folder;
};

/* What a worker of this node does now; the fields are those of the message RANK (message.h). Texts
 * must be valid until the call returns. */
struct rendezvous_rank {
    uint64_t round;
    uint32_t rank, local_rank;
    int64_t pid;
    const char *state, *kernel_state, *last_line;
    uint64_t steps, steps_per_ks, rss_bytes;
    int64_t step_age_ms, output_age_ms;
};

/* For which reasons the workers of this node may hang. Bit 0 is RENDEZVOUS_HANG_IDLE: no activity
 * for the time of --hang-timeout. Each other bit is a hang rule, the same one on all nodes. The job
 * hangs for a reason if all nodes that watch for it are silent, and the reason is broken on one of
 * them. Before its first report in a round, a node is silent for all rules, and not idle. */
#define RENDEZVOUS_HANG_IDLE UINT64_C(1)
struct rendezvous_quiet {
    uint64_t silent;  /* reasons for which this node is silent */
    uint64_t broken;  /* reasons in `silent` whose time is over on this node */
    int64_t quiet_ms; /* for how many ms there has been no activity, or no line that a rule wants */
    const char *what; /* the reason as a phrase; "" if `broken` is 0 */
};

/* The decision that the job hangs. Texts are valid until the callback returns. */
struct rendezvous_hung {
    uint64_t round;
    uint32_t rank;      /* the odd rank; if no rank differs from the others, some rank */
    int64_t pid;        /* its process; 0 = unknown */
    bool decides;       /* true: this node has to report the failure */
    uint64_t reasons;   /* mask of the reasons (struct rendezvous_quiet) */
    int64_t quiet_ms;
    const char *what;   /* one line that names the reason and the odd rank */
    const char *lines;  /* a piece of the lines that say where the workers are */
    bool is_last;       /* true: this is the last piece */
};

/* A paired test that this node has to begin. Texts are valid until the callback returns. */
struct rendezvous_pair {
    uint64_t id;
    uint32_t rank;          /* 0 or 1: this node's rank in the pair */
    const char *host, *addr; /* host and address of the partner */
    uint16_t port;          /* pair_port of the node with rank 0 */
};

/* What an inspection has found out about workers of this node that are at the same place; the
 * fields are those of inspect/inspect.h. Texts must be valid until the call returns. */
struct rendezvous_row {
    const char *ranks; /* the ranks, such as "0-4,6" */
    int64_t pid;       /* process of the first of these ranks */
    char state;
    const char *host, *program, *kernel, *operation, *python, *native, *note;
};

#endif
