/* The simulated world of one job: a virtual clock, a queue of events, and the simulated nodes,
 * hosts, workers and connections.
 *
 *     world.c     the clock, random numbers, the queue of events, events that are kept for later
 *     network.c   connections: streams of bytes that arrive late, in pieces, or not at all
 *     hosts.c     processes that host a coordinator (the real one, with real sessions)
 *     nodes.c     nodes: the real member and the real code of agent/node
 *     workers.c   workers: small models of programs; each has a real struct channel_page
 *     faults.c    the faults that are injected: crashes, cuts, stalls, elections, signals
 *     checks.c    the invariants that must hold in spite of all faults
 *     states.c    how many distinct states were seen
 *
 * In the simulator, a host is a process that hosts a coordinator.
 *
 * All times are in milliseconds. Each node and each host has a clock of its own, which begins at a
 * random value and is up to 2 % fast or slow. world.now is the time of the world's clock. */
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
/* With heirs, hosts[0] is the host at the endpoint, and hosts[i + 1] is the host that node i opens
 * as an heir. Without heirs, only hosts[0] and hosts[1] are used: a coordinator and its successor.
 */
#define HOSTS_MAX   (NODES_MAX + 1)
#define HEIR_PORT   5000 /* node i, as an heir, has the port HEIR_PORT + i */
#define KNOCK_TIME  100  /* milliseconds from one LEADS of a host to the next (EV_KNOCK) */
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
#define NEEDS_MAX   400  /* the most milliseconds that a worker requests beyond the notice */
#define KILLED_TIME 200  /* time limit in milliseconds for a node to leave after its worker was
                          * killed; equal to KILLED_MS of rendezvous/coordinator/charge.c */
#define DUMP_TIME   50   /* the most milliseconds that a worker takes to write a flight record */

/* ---- events ---- */

enum event_type {
    EV_NODE_TIMER,    /* a node's timer expires */
    EV_HOST_TIMER,    /* a hosting process's timer expires */
    EV_SESSION_TIMER, /* the timer of a host's end of a session expires */
    EV_CONNECTED,     /* a connection is made */
    EV_REFUSED,       /* a connection is refused */
    EV_BYTES,         /* bytes arrive */
    EV_CLOSED,        /* a connection is closed */
    EV_RESET,         /* a connection is reset */
    EV_EXIT,          /* the kernel reports a worker's death to its agent */
    EV_GONE,          /* all processes of a node's workers are gone */
    EV_GRACE_OVER,    /* a node's time between SIGTERM and SIGKILL is over */
    EV_PACKET,        /* a packet of a worker arrives at its agent */
    EV_DEPOSED,       /* a host learns that it is not the leader any more */
    EV_RIGHT_BACK,    /* a leader may form rounds again */
    EV_KNOCK,         /* a host tells the endpoint's host that it leads (LEADS) */
    EV_DEATH,         /* a worker dies */
    EV_ACT,           /* a worker does its next step */
    EV_SIGNAL,        /* a launcher gets a signal */
    EV_HEALED,        /* a node that was not fit passes its health check */
    EV_NODE_UP,       /* a node starts */
    EV_HOST_UP,       /* a host starts */
    EV_HOST_DOWN,     /* a host ends */
    EV_CUT_ENDS,      /* a cut of the network ends */
    EV_STALL_ENDS,    /* a stalled process runs on */
    EV_FAULT,         /* the schedule causes its next fault */
};

struct conn;
struct host;

struct event {
    int64_t at;
    uint64_t seq;
    enum event_type type;
    int what; /* in EV_ACT: an enum act; in EV_PACKET: an enum packet (both in workers.c) */
    int node, inc;       /* index of the node to which the event happens, or -1; and that
                          * node's sim_node.inc at the time of queueing */
    int worker;
    uint64_t id;         /* in events of a worker: its sim_worker.life at the time of queueing; in
                          * EV_GRACE_OVER and EV_GONE: sim_node.grace_gen at that time */
    struct host *host;   /* the host to which the event happens, or NULL */
    int host_id;         /* host.id at the time of queueing */
    struct conn *conn;
    char *bytes;         /* only for EV_BYTES; freed after the event */
    size_t len;
};

/* The events that are kept for a process that is stalled or cut off, in the order in which they
 * came. They happen when the process runs again or can be reached again. */
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
    /* connected: true once the node knows that it is connected; failed: true once it knows that the
     * host has refused it, or once it has hung up */
    bool connected, failed;
    bool node_open, host_open; /* node_open: true until the node closes its end; host_open: true
                                * until the host closes its end */
    bool fin_sent; /* true once the host has closed its direction; the host still reads */
    bool is_reset;             /* true after a reset: bytes under way do not arrive */
    /* by direction: true once EV_RESET is queued for the end that receives in this direction */
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
    int owner;             /* with heirs: index of the node in whose process the host runs;
                            * otherwise -1 */
    uint64_t epoch;        /* the job's epoch at this host is the larger of this and terms.epoch */
    bool is_superseded_job; /* true if this host sends nodes away, because another host leads */
    int leader_node;       /* the node whose host leads instead; -1 if it is not known */
    bool up;
    int id;                /* number of this start among the starts of all hosts, from 1 */
    int64_t stalled_until; /* time at which a stalled host runs again; 0 if the host is not
                            * stalled */
    int64_t offset, ppm, timer_at;
    struct held held;
    struct coordinator *coordinator;
    struct host_session_terms terms;
    struct conn *unsent[NODES_MAX * 8]; /* connections with output that is not sent yet */
    size_t unsent_count;
    bool may_form;         /* true if the host has the right to form rounds; an elected host can
                            * lose this right */
    bool forming;          /* true if a round was formed in this event and check_round_formed() has
                            * not checked it yet */
    bool is_superseded;    /* true if another host has rebuilt the last round of this host */
    bool closes; /* true once the hosting node has ended; the host itself ends CLOSE_TIME later */
    int failed_record;     /* index in history.rounds of the last failed round, while it is open
                            * whether its failure is charged; else -1 */
    int64_t failed_at;     /* time of the first FAILED for the round failed_record, by the host's
                            * clock */
    bool failed_alone;     /* true if only the failed node had a seat at failed_at */
    bool failure_excused;  /* true if a node of the round failed_record has left or was lost after
                            * the failure, or if the round was rebuilt */
    /* time (the host's clock) at which the announced change must be over; CR_FOREVER if no change
     * is announced */
    int64_t change_until;
};

/* ---- workers ---- */

struct sim_worker {
    bool alive, reported; /* reported: true if the node knows of the process's exit, or if no
                           * process was started */
    bool kept;
    uint64_t life;        /* number of processes started as this worker so far */
    int record;           /* index in history.rounds of the worker's round */
    bool is_unreached;    /* true if it was dead when it was to be handed the node's round */
    int signal_sent, exit_code;
    /* index of the ended node whose workers no longer answer this worker, and index in
     * history.rounds of the round in which this happens */
    int missed_node, missed_in;
    int symptom_of; /* index of the node whose end made this worker fail; -1 if no node's end did */
    int64_t dies_at;      /* time of the process's death; CR_FOREVER if it is not known yet */

    /* ---- habits of the program, drawn at the start ---- */
    bool has_channel, ignores_term, writes_dumps;
    int64_t step_ms; /* milliseconds for one step; 0 if the program counts no steps */

    /* ---- progress of the program ---- */
    struct channel_page page;
    uint64_t steps, most_steps; /* steps made so far in this round, and the number of steps after
                                 * which the worker pauses */
    int64_t step_since;  /* time at which the current step began */
    bool hangs, waits;   /* hangs: true if it makes no steps; waits: true if it is inside
                          * crunrt_rejoin() */
    bool is_over;        /* true if the agent has told the worker that its round is over */
    uint64_t change;     /* id of the last change that the agent has announced to the worker; 0 if
                          * there is none in this round */
    uint64_t agreed;     /* agreed step of that change; 0 if the worker does not know it yet */
    int64_t stops_at;    /* time at which the worker will have made the agreed step */
};

/* ---- nodes ---- */

struct sim_node {
    struct world *w;
    int index;
    bool up, ended, finished; /* up: the launcher runs; ended: the member has reported the end of
                               * the job; finished: the node has requested its action `finish` */
    bool cut[2]; /* by direction: true if bytes do not arrive before the cut ends */
    int inc; /* number of starts of this node's launcher so far */
    int64_t stalled_until, resumed_at;
    int64_t offset, ppm, timer_at;
    struct held held;
    struct conn *conn;
    struct host *aim;   /* the host to which the node connects */
    uint64_t instance;  /* `instance` in the JOINs of this launcher */
    bool was_welcomed;  /* true once a coordinator has answered this launcher with WELCOME */
    struct member_session session;
    struct member *member;
    struct node node;

    uint32_t worker_count;
    struct sim_worker workers[WORKERS_MAX];
    bool stopping;         /* true from workers_stop() until all stopped processes are gone */
    uint64_t grace_gen;    /* number of calls of workers_stop() so far */
    int64_t fate_at;       /* time at which the workers of this round end by themselves */
    int fate_worker; /* index of the worker that fails at fate_at; -1 if all workers succeed */
    int64_t step_limit;    /* the workers' step timeout in milliseconds; 0 if they have none */

    int record;            /* index in history.rounds of the node's round; -1 before the first */
    uint64_t round, incarnation; /* number of that round; and the incarnation of its run, 0 before
                                  * the first round */
    uint32_t group_rank, restarts_seen;
    uint64_t epoch_seen;
    uint32_t failures;     /* number of workers that failed in this round without a signal of the
                            * agent */
    /* time at which the launcher died, was cut off or was told to end; CR_FOREVER if none of these
     * has happened */
    int64_t gone_at;
    bool ends_in_pieces; /* true if somebody ends the node by two signals: the first one ends one
                          * of its workers, the second one its launcher */
    bool failed_told, gave_notice;
    int64_t notice_until;
    /* the step that the node has answered to the announced change; -1 if none of its workers counts
     * steps; -2 if it has answered no change in this round */
    int64_t answer;
};

/* ---- what the checks record ---- */

struct round_record {
    uint64_t incarnation; /* the run of the job */
    int host_id; /* id of the host that has formed the round, or that has rebuilt it later */
    int formed_by; /* id of the host that has formed the round */
    uint64_t epoch; /* epoch of the job at the host host_id when it formed or rebuilt the round */
    bool is_rebuilt;
    uint64_t round;
    int64_t formed_at, superseded_at; /* superseded_at: time at which a newer round superseded this
                                       * one; CR_FOREVER if none has */
    uint32_t group, restart_count;
    uint16_t port;
    int node[NODES_MAX];             /* by group rank: index of the node; -1 until the round is sent
                                      * to a node */
    struct rdzv_round told[NODES_MAX]; /* by group rank: the round as it was sent; its master_addr
                                        * is set to NULL */
    unsigned succeeded;              /* a bit for each group rank whose node has reported success */
    int64_t failed_at; /* time of the first failure of a worker; CR_FOREVER if none has failed */
    bool failed_by_itself; /* true if a worker failed for another reason than the end of a node */
    unsigned symptoms_of;            /* a bit for each node whose end made a worker of another node
                                      * fail */
};

/* A node that was waiting at the moment when the coordinator formed a round. */
struct candidate {
    int node, inc;
    int64_t kept_rank; /* the node's group rank in the round before; -1: it was not in that round */
    int64_t rank;      /* the node's group rank in the new round; -1: it is not in that round */
    bool is_slowed;    /* true: its host is slowed or refused, so it must not be in the new round */
    bool is_aside;     /* true: its host is set aside */
};

/* What the checks have recorded about one change. */
struct change_record {
    int host_id;
    uint64_t id, step;  /* step: the agreed step; 0 until it is known */
    int64_t top_answer; /* the largest step that a node has answered; -1 if no node has answered a
                         * step */
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
    uint64_t events, rounds, changes, agreed, parked, kept, hung, left, unfit, takeovers, resets;
    uint64_t resumed, rebuilt, restarts; /* RESUMEs received; rounds rebuilt; restarts of a host */
    uint64_t symptoms, charged, excused, refunded, killed, recalled, out_of_losses;
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
    /* true if two runs of the job exist: an heir leads the old run, and a launcher that was started
     * again at the endpoint could not learn of the heir and has begun a new run */
    bool has_two_runs;
    int events_now;     /* number of events at the time `now` so far */
    int64_t checked_at; /* time of the last check of the time limits */
    bool calm;          /* true once no more faults are injected */
    /* true if the only faults are resets and short restarts of the host, which must stop no
     * worker */
    bool only_resets;
    int64_t last_reset; /* time of the last fault; with only_resets, a fault within two leases after
                         * it is left out */
    bool verbose, failed;
    uint8_t *states;    /* what states.c keeps; NULL = states are not counted */

    /* ---- the job ---- */
    int node_count, min_nodes, max_nodes, max_restarts;
    int host_with_node; /* index of the node that hosts the coordinator; -1 if no node does */
    bool heirs;   /* true if the coordinator runs in a node's process and the rounds have heirs */
    bool elected; /* true if coordinators are elected; then one host can take over from the other */
    int64_t wait_ms;    /* milliseconds that a node waits for a coordinator that is gone; -1: the
                         * default of member.h */
    bool skips_last_call; /* true if only the first round of a run has a last call */
    int64_t notice_ms;  /* milliseconds of notice before a change that lets a node join */
    /* what failures and losses cost: fields of JOIN with these names; all 0 in most schedules */
    uint32_t loss_limit, flap_limit, aside_after;
    int64_t restart_backoff_ms, flap_window_ms, flap_refusal_ms, aside_ms;
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

/* Two functions for the clock of a process, which is described by `offset` and `ppm`. clock_shows()
 * returns what this clock shows now. clock_when() returns the time of the world's clock at which
 * this clock first shows `when`; or world.now, if that time has passed. */
int64_t clock_shows(const struct world *w, int64_t offset, int64_t ppm);
int64_t clock_when(const struct world *w, int64_t when, int64_t offset, int64_t ppm);
int64_t node_now(const struct sim_node *n);
int64_t host_now(const struct host *h);

void world_push(struct world *w, struct event e); /* queues the event, after the queued events of
                                                   * the same time */
struct event world_pop(struct world *w);
/* Call this before an event is handled. If the process to which the event happens is stalled or cut
 * off, this function keeps the event for world_release() and returns true. Otherwise it returns
 * false. */
bool world_hold(struct world *w, struct event *e);
/* queues the kept events for the time `now` */
void world_release(struct world *w, struct held *held);
void world_clear(struct world *w);

/* ---- network.c ---- */

/* conn_is_own() returns whether both ends of the connection are in one process. conn_is_local()
 * returns whether the connection has no socket: it is own, and the job has no heirs. */
bool conn_is_own(const struct conn *c);
bool conn_is_local(const struct conn *c);
struct conn *network_connect(struct sim_node *n); /* queues EV_CONNECTED or EV_REFUSED */
void network_send(struct conn *c, enum direction dir, struct cr_buffer *bytes); /* clears `bytes` */
/* closes the end that sends in the direction `dir`; the other end receives EV_CLOSED */
void network_close(struct conn *c, enum direction dir);
/* Resets the connection. `sides` has a bit for each direction whose receiving end learns of the
 * reset at once. The other end learns of the reset when it sends. */
void network_reset(struct conn *c, int sides);
void network_clear(struct world *w);

/* ---- hosts.c ---- */

void host_start(struct host *h);
/* ---- hosts of a job with heirs ---- */
struct host *host_of_heir(struct sim_node *n);
/* Returns the epoch of the job at this host. */
uint64_t host_epoch(const struct host *h);
/* Opens the host with which a node may take over. The host serves nobody until host_lead(). */
void host_open_heir(struct host *h);
/* Call this when the host's node takes over: the host serves nodes from now on. */
void host_lead(struct host *h, uint64_t epoch);
/* Passes this message to `h`: the coordinator in the process of node `leader` leads the job now,
 * with this epoch. */
void host_follow(struct host *h, uint64_t epoch, int leader);
void host_knock(struct host *h);
void host_retire(struct host *h);
void host_die(struct host *h, bool silently);
void host_depose(struct host *h);
void host_abandon(struct host *h, const char *why);
void host_close(struct host *h); /* call this when the hosting node ends */
void host_stall(struct host *h, int64_t until);
bool host_serves(const struct conn *c); /* returns whether the host process to which `c` leads still
                                         * runs */
void host_connected(struct conn *c);
void host_bytes(struct conn *c, const char *bytes, size_t len);
void host_closed(struct conn *c, enum rendezvous_loss how);
void host_restart(struct host *h); /* ends the host and starts it again later, as when a crun-agent
                                    * gets SIGTERM and is started again */
void host_timer(struct host *h);
void host_session_timer(struct conn *c);
void host_operate(struct host *h, int node, uint32_t kind);
/* Call this with false when the election no longer confirms that the host leads, and with true when
 * the election confirms that again. */
void host_may_form(struct host *h, bool may_form);
/* sends what the host has written into its sessions during this event, and sets its timer */
void host_after_event(struct host *h);

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
void node_healed(struct sim_node *n); /* the node passes its health check */
void node_after_event(struct sim_node *n);

/* ---- workers.c ---- */

/* The actions of struct node_actions (agent/node/node.h) on processes and channels. `arg` is the
 * struct sim_node. */
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
/* After `in` ms, ends one worker of the node by a signal that the agent has not sent. This is what
 * the agent sees first if somebody kills all processes of a node one by one. Some workers of other
 * nodes fail soon after that. */
void workers_kill_one(struct sim_node *n, int64_t in);
/* Call this when node `n` ends. Some workers of the other nodes in the round then fail after a
 * while, because the workers of `n` no longer answer them. */
void workers_notice_end_of(struct sim_node *n);
void workers_finish(struct sim_node *n); /* lets all workers that are not parked end with exit code
                                          * 0 */
void worker_dies(struct sim_node *n, const struct event *e);
void worker_acts(struct sim_node *n, const struct event *e);
void worker_exit_reported(struct sim_node *n, const struct event *e);
void worker_packet(struct sim_node *n, const struct event *e);
void workers_grace_over(struct sim_node *n, const struct event *e);
void workers_gone(struct sim_node *n, const struct event *e);
bool workers_any_alive(const struct sim_node *n);

/* ---- faults.c ---- */

void faults_inject(struct world *w);

/* ---- states.c ---- */

/* Begins to count states. Returns 0 or -ENOMEM. */
int states_begin(struct world *w);
/* Call this after every event. */
void states_note(struct world *w);
/* Writes what was kept to the file `path`, for long.py. Returns 0 or a negative errno. */
int states_end(struct world *w, const char *path);

/* ---- checks.c ---- */

/* Call this after every event. `touched` is the node to which the event happened, or NULL. */
void check_step(struct world *w, struct sim_node *touched);
void check_calm(struct world *w);
void check_finished(struct world *w);

/* Call these when the coordinator forms or sends a round, or handles a change. Call check_charge()
 * after every event of the coordinator. */
void check_store_opened(struct host *h, uint64_t round);
void check_round_sent(struct host *h, const struct conn *c, const struct rdzv_round *m);
void check_round_formed(struct host *h);
void check_change_announced(struct host *h, const struct rdzv_change *m);
void check_change_answered(struct host *h, const struct rdzv_change_answer *m);
void check_change_set(struct host *h, const struct rdzv_change_at *m);
/* Returns whether `record` is the index in history.rounds of this host's last round. */
bool check_is_last_round(const struct host *h, int record);
void check_charge(struct host *h, const struct coordinator_view *before,
                  const struct coordinator_view *after, const struct rdzv_message *m);
/* Call this when a node leaves, or when the coordinator counts the node as lost. */
void check_node_gone(struct host *h, const struct conn *c);

/* Call these when a node receives a stop, a round or the end of the job. */
void check_stop_heard(struct sim_node *n, const char *why);
void check_round_heard(struct sim_node *n, const struct rdzv_round *m);
void check_end_heard(struct sim_node *n, int outcome);

/* Call these when a node reports a failure or success, joins, or reports that it is ready. */
void check_failure_told(struct sim_node *n);
void check_success_told(struct sim_node *n);
void check_join(struct sim_node *n);
void check_ready(struct sim_node *n, uint64_t change);

#endif
