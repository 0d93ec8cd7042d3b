/* The simulated world of one job: a virtual clock, a queue of events, and the simulated nodes,
 * hosts, workers and connections.
 *
 *     world.c     the clock, random numbers, the queue of events, events that are kept for later
 *     network.c   connections: streams of bytes that arrive late, in pieces, or not at all
 *     hosts.c     processes that host a coordinator (the real one, with real sessions)
 *     nodes.c     nodes: the real member and the real node policy (agent/node)
 *     workers.c   workers: small models of programs with real pages
 *     faults.c    the faults that are injected: crashes, cuts, stalls, elections, signals
 *     checks.c    the invariants that must hold in spite of all faults
 *
 * All times are in milliseconds. Each node and each host has a clock of its own, which begins at
 * another value and is up to 2 % fast or slow. world.now is the time of the world's clock. */
#ifndef TESTS_SIM_WORLD_H
#define TESTS_SIM_WORLD_H

#include "agent/node/node.h"
#include "base/assert.h"
#include "base/buffer.h"
#include "base/clock.h"
#include "rendezvous/coordinator/coordinator.h"
#include "rendezvous/member/member.h"
#include "rendezvous/protocol/protocol.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NODES_MAX   7
#define WORKERS_MAX 3
#define HOSTS_MAX   2 /* the number of hosts that can run at the same time: an old coordinator and
                       * its successor */
#define ROUNDS_MAX  512
#define CHANGES_MAX 2048

#define INTERVAL    100 /* milliseconds between two heartbeats of a node */
#define ATTEMPTS    3
#define LEASE       (INTERVAL * ATTEMPTS)
#define LAST_CALL   200
#define JOIN_TIME   4000
#define CLOSE_TIME  1000
#define STOP_TIME   600  /* milliseconds between SIGTERM and SIGKILL when a node stops its
                          * workers */
#define DYING_MAX   450  /* the most milliseconds that a worker takes to die of SIGTERM; more than
                          * LEASE */
#define KILL_TIME   5    /* the most milliseconds that a process takes to die of SIGKILL */
#define CHAOS_TIME  12000
#define NOTICE_MAX  1500 /* the most milliseconds of notice before a change */
#define NEEDS_MAX   400  /* the most milliseconds that workers request in addition to the notice */
#define KILLED_TIME 200  /* equal to KILLED_MS of rendezvous/coordinator/charge.c */
#define DUMP_TIME   50   /* the most milliseconds that a worker takes to write a flight record */

/* ---- events ---- */

/* The types of events: X(NAME, text), where the text is for the story that --verbose prints. */
#define EVENTS(X)                                                                                  \
    X(NODE_TIMER, "timer")                                                                         \
    X(HOST_TIMER, "timer")                                                                         \
    X(SESSION_TIMER, "session's timer")                                                            \
    X(CONNECTED, "connected")                                                                      \
    X(REFUSED, "connection refused")                                                               \
    X(BYTES, "bytes")                                                                              \
    X(CLOSED, "connection closed")                                                                 \
    X(RESET, "connection reset")                                                                   \
    X(EXIT, "exit of a worker is reported")                                                        \
    X(GONE, "processes are gone")                                                                  \
    X(GRACE_OVER, "grace is over")                                                                 \
    X(PACKET, "packet of a worker")                                                                \
    X(DEPOSED, "deposed")                                                                          \
    X(RIGHT_BACK, "the host may form rounds again")                                                \
    X(DEATH, "worker dies")                                                                        \
    X(ACT, "worker acts")                                                                          \
    X(SIGNAL, "the launcher gets a signal")                                                        \
    X(NODE_UP, "node starts")                                                                      \
    X(HOST_UP, "host starts")                                                                      \
    X(HOST_DOWN, "host ends")                                                                      \
    X(CUT_ENDS, "cut ends")                                                                        \
    X(STALL_ENDS, "stall ends")                                                                    \
    X(FAULT, "fault")

enum event_type {
#define X(name, text) EV_##name,
    EVENTS(X)
#undef X
};

struct conn;
struct host;

struct event {
    int64_t at;
    uint64_t seq;
    enum event_type type;
    int what;            /* EV_ACT: an enum act; EV_PACKET: an enum packet (both in workers.c) */
    int node, inc;       /* the node of the event, or -1, and its sim_node.inc */
    int worker;
    uint64_t id;         /* sim_worker.life; for EV_GRACE_OVER and EV_GONE: sim_node.grace_gen */
    struct host *host;   /* the host of the event, or NULL */
    int host_id;         /* host.id at the time of queueing */
    struct conn *conn;
    char *bytes;         /* only for EV_BYTES; freed after the event */
    size_t len;
};

/* Events for a process that is stalled or cut off, in order. They happen when the process runs
 * again or can be reached again. */
struct held {
    struct event *events;
    size_t count, cap;
};

/* ---- connections ---- */

enum direction { TO_HOST, TO_NODE };

struct conn {
    struct conn *next;
    int node, node_inc;
    struct host *host;
    int host_id;
    bool connected, failed;    /* true once the node knows that connecting succeeded, or failed */
    bool node_open, host_open; /* true until the node, or the host, closes its end */
    bool fin_sent;             /* true once the host sends no more; it still reads */
    bool is_reset;             /* true after a reset: bytes under way do not arrive */
    /* true once the end to which a direction leads knows, or will know, of the reset */
    bool reset_known[2];
    bool hung_up_by_lease;     /* true if the coordinator closed the connection when the node's
                                * lease ended */
    int64_t last_arrival[2];
    struct host_session session; /* the session at the host's end */
    int64_t session_timer_at;
    struct coordinator_seat *seat;
    bool is_unsent; /* true while the connection is in the list host.unsent */
};

/* ---- hosts ---- */

struct host {
    struct world *w;
    bool up;
    int id;                /* a number that each start of a host gets, beginning at 1 */
    int64_t stalled_until; /* time at which a stalled host runs again; 0: it is not stalled */
    int64_t offset, ppm, timer_at;
    struct held held;
    struct coordinator *coordinator;
    struct host_session_terms terms;
    struct conn *unsent[NODES_MAX * 8]; /* connections with output that is not sent yet */
    size_t unsent_count;
    bool may_form;         /* true: the host may form rounds; an elected host can lose this right */
    bool forming;          /* true if this event has formed a round that is not checked yet */
    bool is_superseded;    /* another host has rebuilt its last round */
    bool closes;           /* true from the end of the hosting node until other nodes were told */
    int failed_record;     /* index in history.rounds of a failure not yet charged; -1: none */
    int64_t failed_at;     /* time of failed_record's first FAILED, by the host's clock */
    bool failed_alone;     /* true if only the failed node had a seat at failed_at */
    bool failure_excused;  /* true if a node of failed_record has left or was lost since */
    /* time at which the announced change must be over, by the host's clock; CR_FOREVER: none */
    int64_t change_until;
};

/* ---- workers ---- */

struct sim_worker {
    bool alive, reported; /* reported: the node knows of the exit, or nothing was started */
    bool kept;
    uint64_t life;        /* number of processes started as this worker so far */
    int record;           /* index in history.rounds of the worker's round */
    int signal_sent, exit_code;
    int missed_node, missed_in; /* the ended node that the worker will miss, and the round of both
                                 * (an index) */
    int symptom_of;       /* index of the node whose end made this worker fail; -1: none */
    int64_t dies_at;      /* time of the process's death; CR_FOREVER: not known yet */

    /* ---- habits of the program, drawn at the start ---- */
    bool has_channel, ignores_term, writes_dumps;
    int64_t step_ms; /* milliseconds for one step; 0: the program counts no steps */

    /* ---- progress of the program ---- */
    struct channel_page page;
    uint64_t steps, most_steps; /* steps made so far, and the number of steps after which it
                                 * pauses */
    int64_t step_since;  /* time at which the current step began */
    bool hangs, waits;   /* hangs: makes no step; waits: is inside crunrt_rejoin() */
    uint64_t change;     /* id of the change that the worker was told; 0: none */
    uint64_t agreed;     /* agreed step of that change; 0: not known yet */
    int64_t stops_at;    /* time at which the agreed step will be made */
};

/* ---- nodes ---- */

struct sim_node {
    struct world *w;
    int index;
    bool up, ended, finished; /* ended: the member has reported the end of the job */
    bool cut[2]; /* bytes of this direction do not arrive before the cut ends */
    int inc; /* number of starts of the launcher so far */
    int64_t stalled_until, resumed_at;
    int64_t offset, ppm, timer_at;
    struct held held;
    struct conn *conn;
    struct member_session session;
    struct member *member;
    struct node node;

    uint32_t worker_count;
    struct sim_worker workers[WORKERS_MAX];
    bool stopping;         /* true from workers_stop() until all stopped processes are gone */
    uint64_t grace_gen;    /* number of calls of workers_stop() so far */
    int64_t fate_at;       /* time at which the workers of this round end by themselves */
    int fate_worker;       /* index of the worker that then fails; -1: all succeed */
    int64_t step_limit;    /* the workers' step timeout in milliseconds; 0: none */

    int record;            /* index in history.rounds of the node's round; -1 before the first */
    uint64_t round, incarnation; /* incarnation: of that round's run; 0 before the first round */
    uint32_t group_rank, restarts_seen;
    uint64_t epoch_seen;
    uint32_t failures;     /* number of workers that failed in this round without a signal of the
                            * agent */
    /* time at which the launcher died, was cut off or was told to end, or CR_FOREVER */
    int64_t gone_at;
    bool ends_in_pieces; /* true if its workers are signalled before its launcher */
    bool failed_told, gave_notice;
    int64_t notice_until;
    int64_t answer;        /* the step that the node answered to a change; -2: no answer in this
                            * round */
};

/* ---- what the checks record ---- */

struct round_record {
    int host_id; /* the host that has formed it, or that has rebuilt it later */
    bool is_rebuilt;
    uint64_t round;
    int64_t formed_at, superseded_at; /* superseded_at: CR_FOREVER for the newest round */
    uint32_t group, restart_count;
    uint16_t port;
    int node[NODES_MAX];             /* index of the node, by group rank; -1: not sent to a node
                                      * yet */
    struct rdzv_round told[NODES_MAX]; /* the round as sent, by group rank; without master_addr */
    unsigned succeeded;              /* a bit for each group rank whose node has reported success */
    int64_t failed_at;               /* time of the first worker's failure, or CR_FOREVER */
    bool failed_by_itself;           /* true if a worker failed for another reason than a node's
                                      * end */
    unsigned symptoms_of;            /* a bit for each node whose end made a worker of another node
                                      * fail */
};

/* A node that was waiting at the moment when the coordinator formed a round. */
struct candidate {
    int node, inc;
    int64_t kept_rank; /* the node's group rank in the round before; -1: it was not in that round */
    int64_t rank;      /* the node's group rank in the new round; -1: it is not in that round */
};

/* What the checks have recorded about one change. */
struct change_record {
    int host_id;
    uint64_t id, step;  /* step: the agreed step; 0: not known yet */
    int64_t top_answer; /* the largest step that a node has answered */
};

struct history {
    struct round_record rounds[ROUNDS_MAX];
    int round_count;
    struct change_record changes[CHANGES_MAX];
    int change_count;
    uint32_t top_restarts; /* the largest count of restarts of any coordinator so far */
    struct candidate candidates[NODES_MAX * 4]; /* the nodes that wait for the round being formed */
    int candidate_count;
};

struct totals {
    uint64_t events, rounds, changes, agreed, parked, kept, hung, left, takeovers, resets;
    uint64_t resumed, rebuilt, restarts; /* RESUMEs; rebuilt rounds; restarts of a host */
    uint64_t symptoms, charged, excused, refunded, killed;
};

struct world {
    uint64_t rng, seed;
    int64_t now;
    uint64_t seq;
    struct event *heap;
    size_t heap_len, heap_cap;
    struct conn *conns;
    struct host hosts[HOSTS_MAX];
    int leader;         /* index in `hosts` of the host to which nodes connect */
    int host_ids;
    struct sim_node nodes[NODES_MAX];
    struct history history;
    struct totals totals;
    int events_now;     /* number of events at the time `now` so far */
    int64_t checked_at; /* time of the last check of the time limits */
    bool calm;          /* true once no more faults are injected */
    /* the only faults are resets and short restarts of the host, which must stop no worker */
    bool only_resets;
    int64_t last_reset; /* time of the last fault; a further one within two leases is left out */
    bool verbose, failed;

    /* ---- the job ---- */
    int node_count, min_nodes, max_nodes, max_restarts;
    int host_with_node; /* index of the node that hosts the coordinator; -1: no node does */
    bool elected;       /* true if coordinators are elected, so that another can take over */
    int64_t wait_ms;    /* milliseconds that a node waits for a coordinator that is gone */
    bool skips_last_call; /* only the first round of a run has a last call */
    int64_t notice_ms;  /* milliseconds of notice before a change that lets a node join */
};

/* ---- world.c ---- */

void world_violation(struct world *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void world_tell(const struct world *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#define story(w, ...)                                                                              \
    do {                                                                                           \
        if ((w)->verbose) world_tell(w, __VA_ARGS__);                                              \
    } while (0)

uint64_t rnd64(struct world *w);
int64_t rnd(struct world *w, int64_t below); /* returns 0 to below - 1 */
bool chance(struct world *w, int percent);

/* clock_shows() returns what a process's clock shows now. clock_when() returns the time of the
 * world's clock at which the process's clock will first show `when`. */
int64_t clock_shows(const struct world *w, int64_t offset, int64_t ppm);
int64_t clock_when(const struct world *w, int64_t when, int64_t offset, int64_t ppm);
int64_t node_now(const struct sim_node *n);
int64_t host_now(const struct host *h);

void world_push(struct world *w, struct event e); /* orders the event after those of the same
                                                   * time */
struct event world_pop(struct world *w);
/* Call this before an event is handled. If the process of the event is stalled or cut off, it keeps
 * the event for world_release() and returns true. */
bool world_hold(struct world *w, struct event *e);
void world_release(struct world *w, struct held *held); /* queues the kept events for now */
void world_clear(struct world *w);
const char *event_name(enum event_type type);

/* ---- network.c ---- */

bool conn_is_local(const struct conn *c);
struct conn *network_connect(struct sim_node *n); /* queues EV_CONNECTED or EV_REFUSED */
void network_send(struct conn *c, enum direction dir, struct cr_buffer *bytes); /* clears `bytes` */
void network_close(struct conn *c, enum direction dir); /* `dir` names the end that receives
                                                         * EV_CLOSED */
/* Resets the connection. `sides` has a bit for each direction whose receiving end learns of it at
 * once; the other end learns of it when it sends. */
void network_reset(struct conn *c, int sides);
void network_clear(struct world *w);

/* ---- hosts.c ---- */

void host_start(struct host *h);
void host_die(struct host *h, bool silently);
void host_depose(struct host *h);
void host_abandon(struct host *h, const char *why);
void host_close(struct host *h); /* call this when the hosting node ends */
void host_stall(struct host *h, int64_t until);
bool host_serves(const struct conn *c); /* true if the start of the host to which `c` leads still
                                         * runs */
void host_connected(struct conn *c);
void host_bytes(struct conn *c, const char *bytes, size_t len);
void host_closed(struct conn *c, enum rendezvous_loss how);
void host_restart(struct host *h); /* as when a crun-agent gets SIGTERM and is started again */
void host_timer(struct host *h);
void host_session_timer(struct conn *c);
void host_operate(struct host *h, int node, uint32_t kind);
/* Call this when the election no longer confirms that the host leads, and when it does again. */
void host_may_form(struct host *h, bool may_form);
void host_after_event(struct host *h); /* sends the output of this event and sets the timer */

/* ---- nodes.c ---- */

void node_start(struct sim_node *n);
void node_die(struct sim_node *n, bool silently);
void node_connected(struct conn *c);
void node_refused(struct conn *c);
void node_bytes(struct conn *c, const char *bytes, size_t len);
void node_closed(struct conn *c, enum rendezvous_loss how);
void node_timer(struct sim_node *n);
void node_resume(struct sim_node *n);
void node_gives_notice(struct sim_node *n, enum rendezvous_change_kind kind, int64_t left_ms);
void node_after_event(struct sim_node *n);

/* ---- workers.c ---- */

/* The actions that the node policy requests of its processes and channels. `arg` is the struct
 * sim_node. */
int workers_start(void *arg, bool *starts);
int workers_hand_over(void *arg, uint32_t worker);
void workers_stop(void *arg, int signum, int64_t grace_ms);
void workers_keep(void *arg, uint32_t worker, bool keep);
void workers_signal(void *arg, uint32_t worker, int signum);
void workers_kill_hung(void *arg, uint32_t worker);
bool workers_is_dead(void *arg, uint32_t worker);
int workers_send_packet(void *arg, uint32_t worker, const struct channel_packet *packet);
int workers_ask_dump(void *arg, uint32_t worker, uint64_t dump_id);
void workers_read_page(void *arg, uint32_t worker, struct worker_progress *out);

void workers_die_with_agent(struct sim_node *n, bool silently);
/* Ends a worker of the node by a signal from outside in `in` ms, as when the whole node is ended.
 * Some workers of other nodes fail soon after that. */
void workers_kill_one(struct sim_node *n, int64_t in);
/* Call this when node `n` ends. It makes some workers of the other nodes in the round fail after a
 * while, because the workers of `n` no longer answer them. */
void workers_notice_end_of(struct sim_node *n);
void workers_finish(struct sim_node *n); /* makes all workers that are not parked succeed now */
void worker_dies(struct sim_node *n, const struct event *e);
void worker_acts(struct sim_node *n, const struct event *e);
void worker_exit_reported(struct sim_node *n, const struct event *e);
void worker_packet(struct sim_node *n, const struct event *e);
void workers_grace_over(struct sim_node *n, const struct event *e);
void workers_gone(struct sim_node *n, const struct event *e);
bool workers_any_alive(const struct sim_node *n);

/* ---- faults.c ---- */

void faults_inject(struct world *w);

/* ---- checks.c ---- */

/* Call this after every event. `touched` is the node to which the event happened, or NULL. */
void check_step(struct world *w, struct sim_node *touched);
void check_calm(struct world *w);
void check_finished(struct world *w);

/* Call these when the coordinator forms or sends a round, handles a change, charges a restart. */
void check_store_opened(struct host *h, uint64_t round);
void check_round_sent(struct host *h, const struct conn *c, const struct rdzv_round *m);
void check_round_formed(struct host *h);
void check_change_announced(struct host *h, const struct rdzv_change *m);
void check_change_answered(struct host *h, const struct rdzv_change_answer *m);
void check_change_set(struct host *h, const struct rdzv_change_at *m);
void check_charge(struct host *h, const struct coordinator_view *before,
                  const struct coordinator_view *after, const struct rdzv_message *m);
/* Call this when a node leaves, or the coordinator has lost its connection. */
void check_node_gone(struct host *h, const struct conn *c);

/* Call these when a node receives a round or the end of the job. */
void check_stop_heard(struct sim_node *n, const char *why);
void check_round_heard(struct sim_node *n, const struct rdzv_round *m);
void check_end_heard(struct sim_node *n, int outcome);

/* Call these when a node reports a failure or success, joins, or reports that it is ready. */
void check_failure_told(struct sim_node *n);
void check_success_told(struct sim_node *n);
void check_join(struct sim_node *n);
void check_ready(struct sim_node *n, uint64_t change);

#endif
