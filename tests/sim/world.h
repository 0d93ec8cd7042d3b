/* The simulated world of one job: a virtual clock, a queue of events, and the simulated nodes,
 * hosts, workers and connections.
 *
 *     world.c     clock, randomness, the queue of events, processes that are stopped or cut off
 *     network.c   connections: streams of bytes that arrive late, in pieces, or not at all
 *     hosts.c     processes that host a coordinator (the real one, behind real sessions)
 *     nodes.c     nodes: the real member and the real node policy (agent/node)
 *     workers.c   workers: small models of programs with real pages
 *     faults.c    the faults that are injected: crashes, cuts, stalls, elections, signals
 *     checks.c    the invariants that must hold in spite of all faults
 *
 * All times are milliseconds. Each node and each host has a clock of its own, which has another
 * origin and runs up to 2 % fast or slow; `now` is the time of the world's clock. */
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
#define HOSTS_MAX   2 /* hosts that exist at the same time: an old coordinator and its successor */
#define ROUNDS_MAX  512
#define CHANGES_MAX 2048

#define INTERVAL    100 /* time between two beats of a node */
#define ATTEMPTS    3
#define LEASE       (INTERVAL * ATTEMPTS)
#define LAST_CALL   200
#define JOIN_TIME   4000
#define CLOSE_TIME  1000
#define STOP_TIME   600  /* a node's grace between SIGTERM and SIGKILL */
#define DYING_MAX   450  /* longest time that a worker takes to die of SIGTERM: more than LEASE */
#define KILL_TIME   5    /* longest time to die of SIGKILL, or of the agent's death */
#define CHAOS_TIME  12000
#define NOTICE_MAX  1500 /* longest notice of a change */
#define NEEDS_MAX   400  /* longest time that workers request in addition to the notice */
#define SYMPTOM_MIN 250 /* least time from a node's end until a worker of another node fails */
#define DUMP_TIME   50   /* longest time to write a flight record */

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
    X(EXIT, "exit of a worker is reported")                                                        \
    X(GONE, "processes are gone")                                                                  \
    X(GRACE_OVER, "grace is over")                                                                 \
    X(PACKET, "packet of a worker")                                                                \
    X(DEPOSED, "deposed")                                                                          \
    X(DEATH, "worker dies")                                                                        \
    X(ACT, "worker acts")                                                                          \
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
    int what;            /* EV_ACT: an enum act; EV_PACKET: an enum packet (workers.c) */
    int node, inc;       /* the node that it happens to, or -1, and the node's sim_node.inc */
    int worker;
    uint64_t id;         /* worker events: sim_worker.life; EV_GRACE_OVER, EV_GONE: grace_gen */
    struct host *host;   /* the host that it happens to, or NULL */
    int host_id;         /* that host's host.id */
    struct conn *conn;
    char *bytes;         /* EV_BYTES; freed with the event */
    size_t len;
};

/* The events that a process will handle when it runs again or is no longer cut off, in order. */
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
    bool connected, failed;    /* the node has learnt that connecting has succeeded, or failed */
    bool node_open, host_open; /* the node, or the host, has not closed its end yet */
    bool fin_sent;             /* the host has closed its sending side, but still reads */
    bool is_reset;             /* the connection was reset: bytes under way do not arrive */
    bool hung_up_by_lease;     /* the coordinator closed it because the node's lease ended */
    int64_t last_arrival[2];
    struct host_session session; /* the host's end */
    int64_t session_timer_at;
    struct coordinator_seat *seat;
    bool is_unsent; /* this connection is in the list host.unsent */
};

/* ---- hosts ---- */

struct host {
    struct world *w;
    bool up;
    int id;                /* number of this start of a host; each start has another number */
    int64_t stalled_until; /* 0 while it runs */
    int64_t offset, ppm, timer_at;
    struct held held;
    struct coordinator *coordinator;
    struct host_session_terms terms;
    struct conn *unsent[NODES_MAX * 8]; /* connections to which output must be sent */
    size_t unsent_count;
    bool forming;          /* it has formed a round in this event, which is not checked yet */
    bool closes;           /* its node has ended, and it waits until the other nodes know */
    int failed_record;     /* the round whose failure is not charged yet; -1 if there is none */
    bool failure_excused;  /* a node of that round has left or was lost since */
    /* when the announced change must be over, by the host's clock; CR_FOREVER if there is none */
    int64_t change_until;
};

/* ---- workers ---- */

struct sim_worker {
    bool alive, reported; /* reported: the node knows of its exit, or it was never started */
    bool kept;
    uint64_t life;        /* how many processes have been started as this worker */
    int record;           /* its round, as an index into history.rounds */
    int signal_sent, exit_code;
    int missed_node, missed_in; /* the node that it misses soon, and in which of its rounds */
    int symptom_of;       /* the node whose end made it fail; -1 if it fails by itself */
    int64_t dies_at;      /* CR_FOREVER as long as nothing makes it die */

    /* habits of its program, drawn when it starts */
    bool has_channel, ignores_term, writes_dumps;
    int64_t step_ms; /* duration of a step; 0 if it counts no steps */

    /* its progress */
    struct channel_page page;
    uint64_t steps, most_steps; /* steps made; it makes no further step once they are most_steps */
    int64_t step_since;  /* when it began its current step */
    bool hangs, waits;   /* waits: it is in crunrt_rejoin() */
    uint64_t change;     /* id of the change that was announced to it, or 0 */
    uint64_t agreed;     /* the agreed step of that change, or 0 until it knows it */
    int64_t stops_at;    /* when it will have made the agreed step */
};

/* ---- nodes ---- */

struct sim_node {
    struct world *w;
    int index;
    bool up, cut, ended, finished; /* ended: the member reported the job's end */
    int inc; /* how many times its launcher has been started */
    int64_t stalled_until, resumed_at;
    int64_t offset, ppm, timer_at;
    struct held held;
    struct conn *conn;
    struct member_session session;
    struct member *member;
    struct node node;

    uint32_t worker_count;
    struct sim_worker workers[WORKERS_MAX];
    bool stopping;         /* it has called workers_stop(), and some processes still live */
    uint64_t grace_gen;    /* how many times it has called workers_stop() */
    int64_t fate_at;       /* when the workers of this round end by themselves */
    int fate_worker;       /* the worker that fails at this time; -1 if all succeed */
    int64_t step_limit;    /* the workers' step timeout; 0 if they have none */

    int record;            /* its round, as an index into history.rounds; -1 before the first */
    uint64_t round;
    uint32_t group_rank, restarts_seen;
    uint64_t epoch_seen;
    uint32_t failures;     /* workers of this round that failed without a signal of the agent */
    /* when it died, was cut off or was told to end; CR_FOREVER if it was not */
    int64_t gone_at;
    bool failed_told, gave_notice;
    int64_t notice_until;
    int64_t answer;        /* the step in its answer to a change; -2: no answer in this round */
};

/* ---- what the checks remember ---- */

struct round_record {
    int host_id;
    uint64_t round;
    int64_t formed_at, superseded_at; /* superseded_at: CR_FOREVER for the newest round */
    uint32_t group, restart_count;
    uint16_t port;
    int node[NODES_MAX];             /* by group rank; -1 until the round is sent to a node */
    struct rdzv_round told[NODES_MAX]; /* by group rank: what was sent, without master_addr */
    unsigned succeeded;              /* bit g is set: the node with group rank g has succeeded */
    int64_t failed_at;               /* when the first worker failed; CR_FOREVER if none has */
    bool failed_by_itself;           /* a worker failed for another reason than a node's end */
    unsigned symptoms_of;            /* bit n is set: a worker failed because node n has ended */
};

/* A node that was waiting for a round at the moment when the coordinator formed one. */
struct candidate {
    int node, inc;
    int64_t kept_rank; /* its group rank in the last round; -1 if it was not in that round */
    int64_t rank;      /* its group rank in the new round; -1 if it is not in that round */
};

/* What the checks have recorded about one change. */
struct change_record {
    int host_id;
    uint64_t id, step;  /* id of the change; its agreed step, or 0 until it is known */
    int64_t top_answer; /* the largest step that a node has answered */
};

struct history {
    struct round_record rounds[ROUNDS_MAX];
    int round_count;
    struct change_record changes[CHANGES_MAX];
    int change_count;
    uint32_t top_restarts; /* the largest count of restarts that any host has charged */
    struct candidate candidates[NODES_MAX * 4]; /* of the round that is being formed */
    int candidate_count;
};

struct totals {
    uint64_t events, rounds, changes, agreed, parked, kept, hung, left, takeovers, resets;
    uint64_t symptoms, charged, excused;
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
    int64_t checked_at; /* when the time limits were last checked */
    bool calm;          /* no faults are injected any more */
    bool verbose, failed;

    /* the job */
    int node_count, min_nodes, max_nodes, max_restarts;
    int host_with_node; /* the hosting node; -1 if the coordinator runs in a separate process */
    bool elected;       /* coordinators have epochs, and another one may take over */
    int64_t wait_ms;    /* member_settings.coordinator_wait_ms */
    int64_t notice_ms;  /* notice before the change with which a node joins; 0 if there is none */
};

/* ---- world.c ---- */

void world_violation(struct world *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void world_tell(const struct world *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#define story(w, ...)                                                                              \
    do {                                                                                           \
        if ((w)->verbose) world_tell(w, __VA_ARGS__);                                              \
    } while (0)

uint64_t rnd64(struct world *w);
int64_t rnd(struct world *w, int64_t below); /* 0 … below - 1 */
bool chance(struct world *w, int percent);

/* clock_shows() returns the current time of a process's clock; clock_when() returns the time of the
 * world's clock at which the process's clock first shows `when` or later. */
int64_t clock_shows(const struct world *w, int64_t offset, int64_t ppm);
int64_t clock_when(const struct world *w, int64_t when, int64_t offset, int64_t ppm);
int64_t node_now(const struct sim_node *n);
int64_t host_now(const struct host *h);

void world_push(struct world *w, struct event e); /* queues it after events of the same time */
struct event world_pop(struct world *w);
/* If the process for which the event is meant is stalled or cut off, it keeps the event until
 * world_release() and returns true. */
bool world_hold(struct world *w, struct event *e);
void world_release(struct world *w, struct held *held); /* queues the kept events for now */
void world_clear(struct world *w);
const char *event_name(enum event_type type);

/* ---- network.c ---- */

bool conn_is_local(const struct conn *c);
struct conn *network_connect(struct sim_node *n); /* causes EV_CONNECTED or EV_REFUSED later */
void network_send(struct conn *c, enum direction dir, struct cr_buffer *bytes); /* clears bytes */
void network_close(struct conn *c, enum direction dir); /* dir: the end that receives EV_CLOSED */
void network_reset(struct conn *c);
void network_clear(struct world *w);

/* ---- hosts.c ---- */

void host_start(struct host *h);
void host_die(struct host *h, bool silently);
void host_depose(struct host *h);
void host_abandon(struct host *h, const char *why);
void host_close(struct host *h); /* call this when the hosting node's launcher ends */
void host_stall(struct host *h, int64_t until);
bool host_serves(const struct conn *c); /* whether the host of the connection still runs */
void host_connected(struct conn *c);
void host_bytes(struct conn *c, const char *bytes, size_t len);
void host_closed(struct conn *c);
void host_timer(struct host *h);
void host_session_timer(struct conn *c);
void host_operate(struct host *h, int node, uint32_t kind);
void host_after_event(struct host *h); /* sends the output of this event, sets the timer */

/* ---- nodes.c ---- */

void node_start(struct sim_node *n);
void node_die(struct sim_node *n, bool silently);
void node_connected(struct conn *c);
void node_refused(struct conn *c);
void node_bytes(struct conn *c, const char *bytes, size_t len);
void node_closed(struct conn *c);
void node_timer(struct sim_node *n);
void node_resume(struct sim_node *n);
void node_gives_notice(struct sim_node *n, enum rendezvous_change_kind kind, int64_t left_ms);
void node_after_event(struct sim_node *n);

/* ---- workers.c ---- */

/* The actions of the node policy on processes and channels. `arg` is the struct sim_node. */
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
/* Workers of other nodes in the round of `n` fail, because the workers of `n` do not answer. */
void workers_notice_end_of(struct sim_node *n);
void workers_finish(struct sim_node *n); /* all workers that are not parked succeed now */
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
/* Call this when a node leaves, or the coordinator has lost it. */
void check_node_gone(struct host *h, const struct conn *c);

/* Call these when a node receives a round, or the end of the job. */
void check_round_heard(struct sim_node *n, const struct rdzv_round *m);
void check_end_heard(struct sim_node *n, int outcome);

/* Call these when a node reports a failure or success, joins, or reports that it is ready. */
void check_failure_told(struct sim_node *n);
void check_success_told(struct sim_node *n);
void check_join(struct sim_node *n);
void check_ready(struct sim_node *n, uint64_t change);

#endif
