/* The simulated world of one job: a virtual clock, a queue of events, and the simulated nodes,
 * hosts, workers and connections.
 *
 *     world.c     the clock, random numbers, the queue of events, events that are kept for later
 *     network.c   connections: streams of bytes that arrive late, in pieces, or not at all
 *     hosts.c     processes that host a coordinator (the real one, with real sessions)
 *     jobs.c      the jobs of one host, of which each has a world of its own
 *     relays.c    relays with the real core, and the real ends of their trunks at the host
 *     nodes.c     nodes: the real member and the real code of agent/node
 *     workers.c   workers: small models of programs; each has a real struct channel_page
 *     faults.c    the faults that are injected: crashes, cuts, stalls, elections, signals
 *     checks.c    the invariants that must hold in spite of all faults
 *     rest.c      whether the job has come to rest after the last fault
 *     states.c    how many distinct states were seen
 *     hangs.c     for which reasons nodes are silent, and what must hold when a job hangs
 *     pair_tests.c  paired tests between nodes, and what must hold of them
 *     trace.c     writes what happens as steps of a model
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
#include "base/time/clock.h"
#include "rendezvous/coordinator/coordinator.h"
#include "rendezvous/host/job_table_internal.h"
#include "rendezvous/host/trunk_end_internal.h"
#include "rendezvous/member/member.h"
#include "rendezvous/protocol/protocol.h"
#include "rendezvous/protocol/trunk.h"
#include "rendezvous/relay/core_internal.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define NODES_MAX   7
#define WORKERS_MAX 3
/* With heirs, hosts[0] is the host at the endpoint, and hosts[i + 1] is the host that node i opens
 * as an heir. Without heirs, only hosts[0] and hosts[1] are used: a coordinator and its successor.
 */
#define HOSTS_MAX   (NODES_MAX + 1)
#define RELAYS_MAX  2
#define HEIR_PORT   5000 /* node i, as an heir, has the port HEIR_PORT + i */
#define PAIR_PORT   6000 /* node i has the port PAIR_PORT + i for its paired tests */
#define KNOCK_TIME  100  /* milliseconds from one LEADS of a host to the next (EV_KNOCK) */
#define GUESTS_MAX  2 /* jobs besides the first one at the host of SEVERAL_JOBS */
#define STRANGERS_MAX 256
#define FAILED_WITH_MAX 16
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
#define PAIR_TIME   300  /* time limit in milliseconds of a paired test */
#define KILL_TIME   5    /* the most milliseconds that a process takes to die of SIGKILL */
#define CONFIRM_TIME 10 /* milliseconds after a stall until the election confirms the leader */
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
    EV_TRUNK_TIMER,   /* a timer of the host's end of a trunk expires */
    EV_RELAY_TIMER,   /* a relay's timer expires */
    EV_KNOCK,         /* a host tells the endpoint's host that it leads (LEADS) */
    EV_DEATH,         /* a worker dies */
    EV_ACT,           /* a worker does its next step */
    EV_SIGNAL,        /* a launcher gets a signal */
    EV_HEALED,        /* a node that was not fit passes its health check */
    EV_QUIET,         /* a node looks for which reasons its workers are silent */
    EV_INSPECTED,     /* a node has inspected its workers */
    EV_PAIRED,        /* the command of a node's paired test ends */
    EV_STRANGER,      /* a stranger, who has made a job, closes its connection */
    EV_NODE_UP,       /* a node starts */
    EV_HOST_UP,       /* a host starts */
    EV_HOST_DOWN,     /* a host ends */
    EV_RELAY_UP,      /* a relay starts */
    EV_CUT_ENDS,      /* a cut of the network around a node ends */
    EV_PAIR_CUT_ENDS, /* a cut between one node and one host ends */
    EV_STALL_ENDS,    /* a stalled process runs on */
    EV_FAULT,         /* the schedule causes its next fault */
};

struct conn;
struct host;
struct sim_relay;
struct trunk;

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
    struct sim_relay *relay; /* the relay to which the event happens, or NULL */
    int relay_id;        /* sim_relay.id at the time of queueing */
    struct conn *conn;   /* the connection of the event; NULL if it is of no connection of a node */
    struct trunk *trunk; /* the trunk of the event, or NULL */
    char *bytes;         /* only for EV_BYTES; freed after the event */
    size_t len;
};

/* An event in the queue. `order` is the event's time in its upper bits and its sequence number in
 * its lower bits, so that the event with the smallest order happens next. `index` is its place in
 * world.pool. */
struct queued {
    uint64_t order;
    uint32_t index;
};

/* The events that are kept for a process that is stalled or cut off, in the order in which they
 * came. They happen when the process runs again or can be reached again. */
struct held {
    struct event *events;
    size_t count, cap;
};

/* ---- connections ---- */

enum direction { TO_HOST, TO_NODE };

/* The paired test of one connection, as the messages at the host's end show it. */
struct pair_part {
    bool is_open;      /* true: PAIR was sent, there is no result yet, and it was not dropped */
    bool is_answered, has_failed; /* is_answered: PAIRED has come, or its time is over */
    uint64_t id;
    uint32_t rank;
    int other;         /* index of the partner */
    uint64_t begun_in; /* totals.events in the event that has sent PAIR */
    int64_t until_ms;  /* end of the time for the answer, by the host's clock */
    struct conn *partner;
    bool has_left;     /* true: the node has sent LEAVE on this connection */
    int64_t again_ms;  /* of its seat, when it was turned out last (struct seat_pair) */
    enum seat_state state; /* of its seat after the last event */
    /* the nodes with which this node has failed since it has passed or was turned out */
    int failures;
    struct { int node, inc; } failed_with[FAILED_WITH_MAX];
};

struct conn {
    struct conn *next;
    int node, node_inc;
    struct host *host;
    int host_id;
    /* connected: true once the node knows that the connection is made; failed: true once the node
     * knows that the host has refused the connection, or once the node has hung up */
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
    uint64_t named_epoch; /* the epoch in the node's HELLO */
    struct pair_part pair;
    int hung_record; /* index in history.rounds of the round of the last HUNG on this connection */
    struct host_job *job; /* the job of the node, which counts this connection; NULL = none, also
                           * in all schedules but SEVERAL_JOBS */

    /* ---- only for a connection to a relay; `host` is the host that its trunk leads to ---- */
    struct sim_relay *relay; /* NULL = this connection leads to the host */
    int relay_id;
    bool relay_open;         /* true until the relay closes its end */
    struct cr_buffer greeting; /* bytes that the relay has received before HELLO was complete */
    uint32_t place;          /* place of the node on its trunk */
    struct trunk_member member; /* the node at the host's end of the trunk */
};

/* ---- relays ---- */

/* The connection from a relay to the host. The fields that a struct conn has, too, mean the same as
 * there, with the relay in the place of the node. */
struct trunk {
    struct trunk *next;
    struct sim_relay *relay;
    int relay_id;
    struct host *host;
    int host_id;
    bool connected, is_reset, relay_open, host_open;
    bool reset_known[2];
    int64_t last_arrival[2];
    struct host_session session; /* the session at the host's end */
    int64_t session_timer_at;
    struct trunk_end end;  /* the host's end of the trunk */
    struct conn *attached[RDZV_RELAY_PLACES]; /* the node for which the relay has sent ATTACH */
};

struct sim_relay {
    struct world *w;
    bool up;
    int id; /* number of starts of this relay so far */
    int64_t stalled_until, offset, ppm, timer_at;
    struct held held;
    struct trunk *trunk; /* NULL = no node is connected */
    struct relay core;   /* the core of `trunk` */
    struct conn *nodes[RDZV_RELAY_PLACES];
};

/* ---- hosts ---- */

struct host {
    struct world *w;
    int owner;             /* with heirs: index of the node in whose process the host runs;
                            * otherwise -1 */
    /* The table of this host's jobs, and the terms of its sessions: own_table and own_terms. But
     * with SEVERAL_JOBS each job has a world of its own, and one host serves all jobs; so the hosts
     * of all these worlds point at the table and the terms of the first world's host. */
    struct job_table *table, own_table;
    struct host_session_terms *terms, own_terms;
    struct host_job *job; /* the job of this world at this host; NULL = there is none now */
    struct coordinator *coordinator; /* of `job`; NULL if that is NULL */
    int life; /* number of coordinators that this host has had for the job of this world */
    bool up;
    int id;                /* number of this start among the starts of all hosts, from 1 */
    int64_t stalled_until; /* time at which a stalled host runs again; 0 if the host is not
                            * stalled */
    int64_t offset, ppm;
    int64_t timer_at;  /* time of the queued EV_HOST_TIMER; CR_FOREVER if there is none */
    int64_t timer_for; /* coordinator's deadline for which that event was queued; or CR_FOREVER */
    struct held held;
    struct conn *unsent[NODES_MAX * 8]; /* connections with output that is not sent yet */
    size_t unsent_count;
    bool may_form;         /* true if the host has the right to form rounds; an elected host can
                            * lose this right */
    int64_t right_until;   /* end of that right by the host's clock, if the host is stalled;
                            * otherwise CR_FOREVER, because the election renews the right */
    bool forming;          /* true if a round was formed in this event and check_round_formed() has
                            * not checked it yet */
    int first_formed;      /* if forming is true: index in history.rounds of the first round that
                            * was formed in this event */
    bool is_superseded;    /* true if another host has rebuilt the last round of this host */
    bool closes; /* true once the hosting node has ended; the host itself ends CLOSE_TIME later */
    int failed_record;     /* index in history.rounds of the last failed round, while it is open
                            * whether its failure is charged; else -1 */
    int64_t failed_at;     /* time of the first FAILED for the round failed_record, by the host's
                            * clock */
    bool failed_alone;     /* true if only the failed node had a seat at failed_at */
    bool failure_is_final; /* true if the host was told that the failure ends the job */
    bool failure_excused;  /* true if a node of the round failed_record has left or was lost after
                            * the failure, or if the round was rebuilt */
    /* time (the host's clock) at which the announced change must be over; CR_FOREVER if no change
     * is announced */
    int64_t change_until;

    /* ---- only for HANGS ---- */
    /* the last QUIET of each node that has arrived; round 0, like inc 0, also means that there is
     * none */
    struct { int inc; uint64_t incarnation, round, silent, broken; } heard[NODES_MAX];
    uint64_t inspection; /* id of the last inspection that was ordered because the job hangs */
    uint64_t hung_for;   /* the reasons for which the job did hang when it was ordered */
    /* HUNG in the present event: the nodes that got the last piece, and those that report it */
    unsigned hung_told, hung_deciders;
    uint32_t hung_rank;
    uint64_t hung_reasons;
    /* the reasons for which the job has hung without a disturbance since hangs_since, and what the
     * nodes' connections were; hangs_for 0 = it does not hang */
    uint64_t hangs_for;
    uintptr_t hangs_conns;
    int64_t hangs_since;
};

/* ---- workers ---- */

struct sim_worker {
    bool alive, reported; /* reported: true if the node knows of the process's exit, or if no
                           * process was started */
    bool kept;
    uint64_t life;        /* number of processes started as this worker so far */
    int record;           /* index in history.rounds of the worker's round */
    /* true if the process was dead when the node tried to send it the node's round */
    bool is_unreached;
    int signal_sent, exit_code;
    /* index of the ended node whose workers no longer answer this worker, and index in
     * history.rounds of the round in which this happens */
    int missed_node, missed_in;
    /* index in history.rounds of the round in which somebody kills this worker from outside */
    int killed_in;
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
    bool hangs, waits;   /* hangs: true if the worker makes no steps; waits: true if it is inside
                          * crunrt_rejoin() */
    bool is_over;        /* true if the agent has told the worker that its round is over */
    uint64_t change;     /* id of the last change that the agent has announced to the worker; 0 if
                          * there is none in this round */
    /* agreed step of the change `change`; 0 if the worker does not know this step yet */
    uint64_t agreed;
    bool had_begun;      /* true if the worker counted steps when it got to know the agreed step */
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
    int64_t offset, ppm;
    int64_t timer_at;  /* time of the queued EV_NODE_TIMER; CR_FOREVER if there is none */
    int64_t timer_for; /* the node's deadline for which that event was queued; or CR_FOREVER */
    struct held held;
    struct conn *conn;
    struct host *aim;   /* the host to which the node connects */
    bool avoids_relay;  /* true: the next try leads to the host, because a relay has not answered */
    uint64_t instance;  /* `instance` in the JOINs of this launcher */
    bool was_welcomed;  /* true once a coordinator has answered this launcher with WELCOME */
    struct member_session session;
    struct member *member;
    struct node node;

    uint32_t worker_count;
    /* what this node's command line says of the job; the same on all nodes, except in schedules of
     * the kind SETTINGS_DIFFER */
    int min_nodes, max_nodes, max_restarts;
    struct node_policy policies[WORKERS_MAX];
    struct sim_worker workers[WORKERS_MAX];
    bool stopping;         /* true from workers_stop() until all stopped processes are gone */
    uint64_t grace_gen;    /* number of calls of workers_stop() so far */
    int64_t fate_at;       /* time at which the workers of this round end by themselves */
    int fate_worker; /* index of the worker that fails at fate_at; -1 if all workers succeed */
    int64_t step_limit;    /* the workers' step timeout in milliseconds; 0 if they have none */

    /* index in history.rounds of the node's round; -1 before its first round */
    int record;
    uint64_t round, incarnation; /* number of the node's round, and the incarnation of that round's
                                  * run; incarnation is 0 before the node's first round */
    uint32_t group_rank, restarts_seen;
    uint32_t kept; /* number of kept workers in the last JOIN of the node */
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
    /* number of steps in the node's answer to the announced change; -1 if none of its workers
     * counts steps; -2 if the node has answered no change in this round */
    int64_t answer;

    /* ---- only for HANGS ---- */
    uint64_t watches;       /* mask of the reasons that this node watches for */
    uint64_t silent, broken; /* what it has told in this round (struct rendezvous_quiet) */
    bool is_deaf;           /* true: it answers no inspection */
    int hung_in; /* index in history.rounds of the round that it has ended because of HUNG; or -1 */

    /* ---- only for PAIR_TESTS ---- */
    bool makes_pairs;       /* true: it was started with --pair-check */
    bool nic_is_bad;        /* true: all its paired tests fail */
    uint64_t pair_id;       /* the paired test whose command runs; 0 = none */
    int pair_partner;       /* index of the partner in this test */
    struct passed { int host_id, inc; } passed[HOSTS_MAX]; /* by host: the last pass there */
};

/* ---- what the checks record ---- */

struct round_record {
    uint64_t incarnation; /* the run of the job */
    int host_id; /* id of the host that has formed the round, or that has rebuilt it later */
    int formed_by; /* id of the host that has formed the round */
    int life;      /* host.life when the round formed */
    uint64_t epoch; /* epoch of the job at the host host_id when it formed or rebuilt the round */
    bool is_rebuilt;
    uint64_t order; /* the round that a host has formed or rebuilt last has the largest order */
    uint64_t round;
    int64_t formed_at, superseded_at; /* superseded_at: time at which a newer round superseded this
                                       * one; CR_FOREVER if none has */
    uint32_t min_nodes, max_nodes, max_restarts; /* settings of the job */
    uint32_t group, restart_count;
    uint16_t port;
    int node[NODES_MAX];             /* by group rank: index of the node; -1 until the round is sent
                                      * to a node */
    struct rdzv_round told[NODES_MAX]; /* by group rank: the round as it was sent; its master_addr
                                        * is set to NULL */
    unsigned heard;     /* a bit for each group rank whose node has received the round */
    uint32_t kept;      /* how many workers these nodes have kept for the round */
    unsigned succeeded;              /* a bit for each group rank whose node has reported success */
    int64_t failed_at; /* time of the first failure of a worker; CR_FOREVER if none has failed */
    bool is_final; /* true if a node has reported a failure that ends the job */
    bool failed_by_itself; /* true if a worker failed for another reason than the end of a node */
    /* the times between which all workers wait for each other; only for HANGS */
    int64_t hangs_at, hangs_until;
    unsigned symptoms_of;            /* a bit for each node whose end made a worker of another node
                                      * fail */
};

/* A node that was waiting at the moment when the coordinator formed a round. */
struct candidate {
    int node, inc;
    /* the node's group rank in the round before; -1 if it was not in that round */
    int64_t kept_rank;
    int64_t rank;      /* the node's group rank in the new round; -1 if it is not in that round */
    /* true if the node's host is slowed and the node was not in the round before; such a node must
     * not be in the new round */
    bool is_slowed;
    bool is_aside;     /* true if the node's host is set aside */
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
    uint64_t orders; /* the largest order of a round so far */
    struct change_record changes[CHANGES_MAX];
    int change_count;
    uint32_t top_restarts; /* the largest count of restarts of any coordinator so far */
    struct candidate candidates[NODES_MAX * 4]; /* the nodes that wait for the round being formed */
    int candidate_count;
};

/* What is special in a schedule. The kind follows from the seed, and schedules of the kind PLAIN
 * draw no numbers for the other kinds, so that the seeds which have found errors still stand for
 * the same schedules. */
enum schedule_kind {
    PLAIN,
    STATIC_RANKS,    /* each node's group rank is its node rank, and all nodes are needed */
    SETTINGS_DIFFER, /* nodes are started with different values of --nnodes and --max-restarts */
    PAIRS_ARE_CUT,   /* one kind of fault more: the network between one node and one host is cut */
    FAILURES_END,    /* failures of some workers end the job: --on-failure=end */
    RELAYS,          /* some nodes are behind relays, which are killed, stalled, cut off */
    SEVERAL_JOBS,    /* one host serves several jobs, each with a world of its own */
    ONLY_CUTS,       /* three or four nodes with heirs; no process ends, the network fails often */
    HANGS,           /* nodes watch for a hang, and jobs hang */
    PAIR_TESTS,      /* most nodes make paired tests, and the network of some nodes is bad */
};

/* The trace of a schedule (trace.c): its file, and the state of each node after the last step that
 * was written. */
struct trace {
    FILE *file; /* NULL = no trace is written */
    bool is_on, is_over;
    int first_record; /* index in history.rounds of the model's round 1 */
    int record[NODES_MAX], inc[NODES_MAX];
    int link[NODES_MAX]; /* index of the host to which the node is connected; -1 if there is none */
    bool is_settled[NODES_MAX];
    bool holds[HOSTS_MAX][NODES_MAX]; /* holds[h][n]: host h counts the ballot of node n as held */
};

/* A cut of the network between one node and one host, in both directions. Node and host reach all
 * others. */
struct pair_cut {
    bool is_on;
    int node;
    struct host *host;
    struct held held;
};

/* A connection that is no node of a simulated job: it names a run id of its own, and joins no
 * round. */
struct stranger {
    struct host_job *job; /* NULL = this place is free */
    int host_id;
};

struct totals {
    uint64_t events, rounds, changes, agreed, parked, kept, hung, left, unfit, takeovers, resets;
    uint64_t resumed, rebuilt, restarts; /* RESUMEs received; rounds rebuilt; restarts of a host */
    uint64_t relayed, trunks_lost, holds; /* nodes that relays have attached; trunks that were reset
                                           * or ended with a process; beats that came by a HOLD */
    uint64_t pairs_cut, final; /* cuts of a pair; jobs that were ended by a failure that is final */
    /* jobs that strangers have made; strangers that were refused; jobs that the host has freed */
    uint64_t strangers, crowded, forgotten;
    uint64_t inspections, hangs, paired, pairs_failed; /* hangs: HUNG to a node that reports it */
    uint64_t symptoms, charged, excused, refunded, killed, recalled, out_of_losses;
};

struct world {
    uint64_t rng, seed;
    int64_t now;
    uint64_t seq;
    struct queued *heap; /* the queue of events */
    size_t heap_len, heap_cap;
    struct event *pool;  /* pool[i], for each i in the queue: the event */
    uint32_t *free_places; /* the places in `pool` that no event in the queue has */
    size_t free_count;
    struct conn *conns;
    struct host hosts[HOSTS_MAX];
    struct pair_cut pair_cut;
    int leader;         /* index in `hosts` of the host to which nodes connect */
    int host_ids;
    struct sim_node nodes[NODES_MAX];
    struct sim_relay relays[RELAYS_MAX];
    struct trunk *trunks;
    struct history history;
    struct totals totals;
    /* true if two runs of the job exist: an heir leads the old run, and a launcher that was started
     * again at the endpoint could not learn of the heir and has begun a new run */
    bool has_two_runs;
    int events_now;     /* number of events at the time `now` so far */
    int64_t checked_at; /* time of the last check of the time limits */
    bool calm;          /* true once no more faults are injected */
    /* true if the only faults of the schedule are resets and short restarts of the host; these must
     * stop no worker */
    bool only_resets;
    int64_t last_reset; /* time of the last fault; if only_resets is true, no further fault is
                         * injected in the two leases after this time */
    bool verbose, failed;
    struct trace trace;
    uint8_t *states;    /* what states.c keeps; NULL if states are not counted */

    /* ---- only for SEVERAL_JOBS ---- */
    const char *run_id;
    struct world *first;  /* the world of the first job; that world itself for the first job */
    struct world *guests[GUESTS_MAX]; /* in the world of the first job: the worlds of the others */
    int guest_count;
    int jobs_alive;       /* in the world of the first job: how many jobs have not been freed */
    struct host *making;  /* the host, in the world of the job that is being made; or NULL */
    struct stranger strangers[STRANGERS_MAX];

    /* ---- the job ---- */
    enum schedule_kind kind;
    int node_count, min_nodes, max_nodes, max_restarts;
    int host_with_node; /* index of the node that hosts the coordinator; -1 if no node does */
    bool heirs;   /* true if the coordinator runs in a node's process and the rounds have heirs */
    /* true if coordinators are elected, so that one host can take over from the other */
    bool elected;
    int64_t join_ms;    /* milliseconds that a node waits for a round */
    int64_t wait_ms;    /* milliseconds that a node waits for a coordinator that is gone; -1 for the
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
int64_t world_next_at(const struct world *w); /* time of the next event; CR_FOREVER if there is
                                               * none */
struct event world_pop(struct world *w);
/* Call this before an event is handled. If the process to which the event happens is stalled or cut
 * off, this function keeps the event for world_release() and returns true. Otherwise it returns
 * false. */
bool world_hold(struct world *w, struct event *e);
/* Returns whether the network is cut between this node and this host, by a cut of only this
 * pair. */
bool world_pair_is_cut(const struct world *w, int node, const struct host *host);
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

/* ---- relays.c ---- */

void relays_draw(struct world *w);
/* Returns the relay that this node tries next; NULL = it connects to the host itself. */
struct sim_relay *relays_for(struct sim_node *n);
void relays_start(struct sim_relay *r);
void relays_die(struct sim_relay *r, bool silently);
void relays_stall(struct sim_relay *r, int64_t until);
void relays_resume(struct sim_relay *r);
void relays_reset_trunk(struct sim_relay *r, int sides);
/* Handle an event that happens to a relay, and one that happens to the host's end of a trunk. */
void relays_happen(const struct event *e);
void relays_happen_at_host(const struct event *e);
/* Call this when a host dies. */
void relays_host_dies(struct host *h, bool silently);
/* If `m` answers a beat that the host handles for a HOLD of the relay, stores `m` in the trunk and
 * returns true: the caller must not send `m`, because one BEAT_ACK answers the whole HOLD. */
bool relays_keep(struct conn *c, const struct rdzv_message *m);
/* Sends what the host has written into the session of a node behind a relay, and DETACH if the
 * session is over. */
void relays_flush(struct conn *c);
void relays_after_event(struct host *h); /* sends what the host has written to its trunks */
void relays_clear(struct world *w);

/* ---- jobs.c ---- */

/* Begins the table of a host that starts, and makes the job of the world unless the schedule is one
 * of SEVERAL_JOBS, in which nodes make the jobs. */
void jobs_begin(struct host *h);
/* Frees all jobs of a host that has ended. */
void jobs_end(struct host *h);
/* Returns the host, in the world of the job, to which this argument of a coordinator's action
 * belongs; NULL = the job of a stranger. */
struct host *jobs_host(void *arg);
/* Like coordinator_look(), also if the host has no job of this world. */
void jobs_look(const struct host *h, struct coordinator_view *out);
/* A node has sent HELLO. Returns what the session's action `on_hello` returns. */
int jobs_hello(struct conn *c, const struct rdzv_hello *hello, struct cr_error *err);
/* Call this after every event: counts the connections that are over, and checks the jobs. */
void jobs_after_event(struct host *h);
/* Makes jobs for strangers, and ends one of these connections. */
void jobs_crowd(struct host *h);
void jobs_stranger_leaves(struct host *h, int place);
/* Notes the state of the other jobs at this host before an event of the world `w`, and checks after
 * the event that it has not changed. */
void jobs_before(struct world *w, const struct event *e);
void jobs_after(struct world *w, const struct event *e);
/* Checks, at the end of a schedule, that the host keeps no job longer than it must. */
void jobs_check_end(struct host *h);

/* ---- hosts.c ---- */

/* The actions of all coordinators; their argument is that of jobs_host(). */
extern const struct coordinator_actions host_coordinator_actions;

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
void host_stall_ends(struct host *h);
bool host_serves(const struct conn *c); /* returns whether the host process to which `c` leads still
                                         * runs */
void host_connected(struct conn *c);
void host_mark(struct conn *c); /* call this when the session has written output, or has ended */
void host_bytes(struct conn *c, const char *bytes, size_t len);
void host_closed(struct conn *c, enum rendezvous_loss how);
void host_restart(struct host *h); /* ends the host and starts it again later, as when a crun-agent
                                    * gets SIGTERM and is started again */
void host_timer(struct host *h);
void host_session_timer(struct conn *c);
void host_operate(struct host *h, int node, uint32_t kind);
/* Gives the host the right to form rounds, or takes it away. Call this with false when the election
 * no longer confirms that the host leads, and with true when the election confirms this again. */
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

/* ---- rest.c ---- */

/* What must not change while a job is at rest: the newest connection, and how many rounds and
 * changes there have been. `since` is the time since which the job has been at rest. */
struct rest {
    int64_t since;
    const struct conn *newest;
    int rounds, changes;
};

/* Call this every 200 ms after the last fault, each time with the same `rest`. Returns whether the
 * job has been at rest for so long that the schedule may be cut short. */
bool rest_is_reached(const struct world *w, struct rest *rest);

/* ---- states.c ---- */

/* Begins to count states. Returns 0 or -ENOMEM. */
int states_begin(struct world *w);
/* Counts the present state of the job. Call this after every event. */
void states_note(struct world *w);
/* Writes what states.c has kept of the states to the file `path`, for long.py. Returns 0 or a
 * negative errno. */
int states_end(struct world *w, const char *path);

/* ---- hangs.c ---- */

void hangs_draw(struct sim_node *n);
void hangs_draw_round(struct world *w, struct round_record *r);
void hangs_round_begins(struct sim_node *n);
/* Handle EV_QUIET, ASK_INSPECT, EV_INSPECTED and HUNG at a node. */
void hangs_look(struct sim_node *n, const struct event *e);
void hangs_inspect(struct sim_node *n, uint64_t id);
void hangs_inspected(struct sim_node *n, const struct event *e);
void hangs_heard(struct sim_node *n, const struct rdzv_hung *m);
/* Check ASK_INSPECT and HUNG when the coordinator sends them, and what it has sent in an event. */
void hangs_got(struct host *h, const struct conn *c, const struct rdzv_quiet *m);
void hangs_ask_sent(struct host *h, const struct rdzv_ask_inspect *m);
void hangs_hung_sent(struct host *h, struct conn *c, const struct rdzv_hung *m);
void hangs_after_event(struct host *h);
/* Checks that no job hangs for longer than it takes to decide that it hangs. */
void hangs_check(struct world *w);

/* ---- pair_tests.c ---- */

void pair_tests_draw(struct sim_node *n);
/* Handle PAIR and EV_PAIRED at a node. */
void pair_tests_begin(struct sim_node *n, const struct rdzv_pair *m);
void pair_tests_over(struct sim_node *n, const struct event *e);
/* Check a PAIR that the coordinator sends, and note a PAIRED that it will get, before it has it. */
void pair_tests_sent(struct host *h, struct conn *c, const struct rdzv_pair *m);
void pair_tests_got(struct host *h, struct conn *c, const struct rdzv_paired *m);
/* Call this when the node has joined or resumed; has_failed: RESUME has reported a failure that has
 * ended the running round. */
void pair_tests_joined(struct conn *c, bool has_failed);
/* Notes that a worker of the node has failed, so that the node is tested again. */
void pair_tests_distrust(struct conn *c);
/* Call this before the coordinator does what is due: notes the answers that have not come. */
void pair_tests_tick(struct host *h);
void pair_tests_after_event(struct host *h);
/* Checks that all nodes of the round that is formed have passed their tests. */
void pair_tests_check_round(const struct host *h);

/* ---- trace.c ---- */

/* Writes the steps that the last event has made. Call this after every event. */
void trace_note(struct world *w);
/* Write the steps of the model that cannot be seen after an event. Call trace_serve() before a host
 * begins to serve as an heir; trace_naming() before a host handles a message in which a node with a
 * seat names its last round; trace_form() before a host forms a round of the nodes in
 * history.candidates. trace_end() ends the trace at the end of a schedule. */
void trace_serve(struct host *h);
void trace_naming(const struct host *h, int node, uint64_t rounds_seen);
void trace_form(const struct host *h);
void trace_end(struct world *w);

/* ---- checks.c ---- */

/* Checks the state of one node, and from time to time all time limits. Call this after every event.
 * `touched` is the node to which the event happened, or NULL. */
void check_step(struct world *w, struct sim_node *touched);
void check_calm(struct world *w);
void check_finished(struct world *w);

/* Check and record what the coordinator does: it opens a store for a round, sends ROUND, has formed
 * the round, or handles a message about a change. Call check_charge() after every event of the
 * coordinator. */
void check_store_opened(struct host *h, uint64_t round);
void check_round_sent(struct host *h, const struct conn *c, const struct rdzv_round *m);
void check_round_formed(struct host *h);
void check_change_announced(struct host *h, const struct rdzv_change *m);
void check_change_answered(struct host *h, const struct rdzv_change_answer *m);
void check_change_set(struct host *h, const struct rdzv_change_at *m);
/* Returns whether `record` is the index in history.rounds of this host's last round. */
bool check_is_last_round(const struct host *h, int record);
/* Returns whether the node that has sent RESUME on this connection was in the last round of the
 * host. */
bool check_resumes_last_round(const struct conn *c, const struct rdzv_resume *resume);
void check_charge(struct host *h, const struct coordinator_view *before,
                  const struct coordinator_view *after, const struct rdzv_message *m);
/* Call this when a node leaves, or when the coordinator counts the node as lost. If the node was in
 * the last failed round, records that the failure need not be charged. */
void check_node_gone(struct host *h, const struct conn *c);

/* Returns whether a failure with this enum rendezvous_blame ends the job. */
bool ends_the_job(uint32_t blame);

/* Check what a node receives: a stop, a round, or the end of the job. */
void check_stop_heard(struct sim_node *n, const char *why);
void check_round_heard(struct sim_node *n, const struct rdzv_round *m);
void check_end_heard(struct sim_node *n, int outcome);

/* Check what a node reports: a failure, a success, a JOIN, or that it is ready for a change. */
void check_failure_told(struct sim_node *n);
void check_success_told(struct sim_node *n);
void check_join(struct sim_node *n);
void check_ready(struct sim_node *n, uint64_t change);

#endif
