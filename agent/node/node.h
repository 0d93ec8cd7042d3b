/* Decides everything about the workers of one node, as a function of (state, event, now). Pure: it
 * has no process, socket, clock or thread. agent.c turns what happens into the events below and
 * carries out the actions; the simulator (tests/sim) does so with simulated workers.
 *
 * Three kinds of state machines, each with a list of its states and of what limits the time in
 * each:
 *   - the worker group as a whole (worker_group.h): joining, running, stopping …;
 *   - each worker (WORKER_STATES): whether it runs, hangs, is kept, is parked, is being stopped;
 *   - each worker's part in the announced change (PART_STATES).
 *
 *                  park                      hand over
 *   RUNNING ──────────────────────► PARKED ────────────► RUNNING (in the next round)
 *      │ │ round over, can rejoin      ▲ │
 *      │ └──────────► KEPT ──── park ──┘ │ this node does not go on
 *      │ hangs          │ grace over     ▼
 *      │                └───────────► STOPPING ──┐
 *      └──► HUNG ────────────────────────────────┴──► ABSENT (ended)
 *
 * A change with notice takes this course. The rendezvous announces it. The node freezes the workers
 * that count their steps, and reports the largest step that any of them has made. The rendezvous
 * answers with the agreed step. When every worker that takes part has made that step and is ready,
 * the node reports itself ready, and the rendezvous ends the round. contract/channel.h explains why
 * no worker makes more steps than agreed. */
#ifndef AGENT_NODE_NODE_H
#define AGENT_NODE_NODE_H

#include "agent/node/worker_group.h"
#include "agent/node/worker_page.h"
#include "base/log.h"
#include "rendezvous/types.h"

#include <stdbool.h>
#include <stdint.h>

/* Longest time in ms that a worker can be parked in a running round before the node counts the
 * round as broken. A worker parks when its process groups break; the report of the failure that
 * broke them may arrive at this node later. */
#define NODE_PATIENCE_MS INT64_C(1000)
/* Time in ms that a hung worker has to write its flight record before it is killed. */
#define NODE_DUMP_MS INT64_C(1000)

/* The states of a worker: X(name, what limits the time in the state). */
#define WORKER_STATES(X)                                                                           \
    X(ABSENT, "none: not started in this round, or ended")                                         \
    X(STARTING, "the start, which does not wait")                                                  \
    X(RUNNING, "none: the program's own time")                                                     \
    X(HUNG, "NODE_DUMP_MS, then SIGKILL")                                                          \
    X(KEPT, "the grace of the stop, then SIGKILL")                                                 \
    X(PARKED, "NODE_PATIENCE_MS while the round runs; then what limits the group's state")         \
    X(STOPPING, "the grace of the stop, then SIGKILL")

/* A worker's part in the announced change: X(name, what limits the time in the state). */
#define PART_STATES(X)                                                                             \
    X(NONE, "none: the announced change does not concern this worker")                             \
    X(FROZEN, "the time of the change: holds at its next step until the agreed one is known")      \
    X(AGREED, "the time of the change: goes on until it has made the agreed step")                 \
    X(READY, "the time of the change: has made it and saved, may be stopped")

enum worker_state {
#define X(name, limit) WORKER_##name,
    WORKER_STATES(X)
#undef X
        WORKER_STATE_COUNT
};

enum part_state {
#define X(name, limit) PART_##name,
    PART_STATES(X)
#undef X
        PART_STATE_COUNT
};

/* The actions that the node requests from its caller. Strings and packets are valid only during the
 * call. An action must not call the node. `worker` is a local rank. */
struct node_actions {
    /* Starts each worker i for which starts[i] is true, and sets starts[i] to false for each worker
     * that it could not start. Returns 0; or a negative number if the round cannot run, in which
     * case starts[] may be unchanged. */
    int (*start)(void *arg, bool *starts);
    /* Sends a parked worker its ranks in the new round, and prepares its page. Returns 0, or a
     * negative number if the worker cannot be reached. */
    int (*hand_over)(void *arg, uint32_t worker);
    /* Sends `signum` to all processes of workers that are not kept, and SIGKILL after grace_ms
     * (CR_FOREVER: never). The caller then calls node_processes_gone() when these processes are
     * gone. A second call of stop() starts the grace again. */
    void (*stop)(void *arg, int signum, int64_t grace_ms);
    /* Sets whether stop() spares the worker. */
    void (*keep)(void *arg, uint32_t worker, bool keep);
    /* Sends a signal to one worker. If the worker fails after it, the worker counts as a victim. */
    void (*signal)(void *arg, uint32_t worker, int signum);
    /* Sends SIGKILL to a hung worker. Its end counts as its own failure. */
    void (*kill_hung)(void *arg, uint32_t worker);
    /* Returns whether the process is dead; node_worker_exited() may not have been called for it
     * yet. */
    bool (*is_dead)(void *arg, uint32_t worker);

    /* The channel to a worker. send_packet and ask_dump return 0, or a negative number if the
     * worker has no channel or the channel is broken. ask_dump requests the worker's flight
     * record. */
    int (*send_packet)(void *arg, uint32_t worker, const struct channel_packet *packet);
    int (*ask_dump)(void *arg, uint32_t worker, uint64_t dump_id);
    void (*read_page)(void *arg, uint32_t worker, struct worker_progress *out);

    /* Calls of the rendezvous: the functions of the same names in rendezvous/rendezvous.h. */
    void (*join)(void *arg);
    void (*failed)(void *arg, uint64_t round, bool is_killed);
    void (*succeeded)(void *arg, uint64_t round);
    void (*leave)(void *arg);
    void (*notice)(void *arg, enum rendezvous_change_kind kind, int64_t left_ms, const char *why);
    void (*change_answer)(void *arg, uint64_t id, int64_t step, int64_t needs_ms);
    void (*change_ready)(void *arg, uint64_t id);

    void (*finish)(void *arg); /* the last action; node.group.ending is the result */
    void (*log)(void *arg, enum cr_log_level level, const char *text);
};

struct node_settings {
    uint32_t workers; /* number of workers of the node, at least 1 */
    int64_t stop_timeout_ms, shutdown_timeout_ms;
    enum cr_log_level log_level; /* lines below this level are not formatted */
};

struct node_worker {
    enum worker_state state;
    enum part_state part;
    /* end of the time limit of `state`, in ms of the monotonic clock; CR_FOREVER if the node itself
     * enforces no limit */
    int64_t until_ms;
    /* if the worker hung in this round: the time in ms for which it had made no step; else 0 */
    int64_t hung_ms;
    uint64_t hung_step; /* the last step that the worker made; valid if hung_ms > 0 */
};

/* The state of a node. Only node.c writes it. */
struct node {
    const struct node_actions *actions;
    void *arg;
    enum cr_log_level log_level;
    struct worker_group group;
    struct node_worker *workers; /* [worker_count], indexed by local rank */
    uint32_t worker_count;
    bool *starts; /* [worker_count], indexed by local rank: the array that is passed to the action
                   * `start` */

    uint64_t round; /* number of the current round; between two rounds, number of the last one */
    uint32_t first_rank; /* rank of the worker with local rank 0, in the round `round` */
    /* true if node_processes_gone() was called after the last stop(): only kept workers are
     * alive */
    bool processes_gone;
    uint64_t dumps;      /* number of flight records requested so far; also the dump_id of the last
                          * request */

    struct {
        uint64_t id; /* id of the announced change; 0 if none is announced */
        bool is_set; /* true if the agreed step is known */
        bool reported_ready;
    } change;

    struct {
        bool given;
        int64_t until_ms; /* time (ms, monotonic clock) at which this node leaves, whether its
                           * workers are ready or not */
        char why[256];
    } notice;

    /* time (ms, monotonic clock) at which the round counts as broken; CR_FOREVER if no worker has
     * parked without a reason */
    int64_t patience_until_ms;
    /* local rank of the first worker that parked without a reason; valid if patience_until_ms is
     * not CR_FOREVER or is_broken is true */
    uint32_t gave_up;
    /* the last worker that ended without a signal of this node died of a signal that also ends
     * whole nodes (ends_nodes() in node.c) */
    bool is_killed;
    bool is_broken; /* patience_until_ms has passed: the round counts as broken by gave_up */
};

/* Initialises a node. `actions` must stay valid as long as the node. Returns 0 or -ENOMEM. */
int node_init(struct node *n, const struct node_settings *settings,
              const struct node_actions *actions, void *arg);
void node_done(struct node *n); /* frees what the node owns; the node may also be all zeros */

/* ---- events: the rendezvous ---- */

void node_round(struct node *n, int64_t now_ms, const struct rendezvous_round *round);
/* Call this when the rendezvous has ended the round. grace_max_ms is the longest grace that the
 * rendezvous allows, as in rendezvous.h. */
void node_stop(struct node *n, int64_t now_ms, int64_t grace_max_ms);
void node_end(struct node *n, int64_t now_ms, enum rendezvous_outcome outcome);
void node_change(struct node *n, int64_t now_ms, const struct rendezvous_change *change);
void node_change_at(struct node *n, int64_t now_ms, uint64_t id, uint64_t step, int64_t left_ms);

/* ---- events: processes ---- */

/* Call this when a worker's process has ended. `signal_sent` is the last signal that stop() or
 * signal() sent to it before it died, or 0. */
void node_worker_exited(struct node *n, int64_t now_ms, uint32_t worker, int exit_code,
                        int signal_sent);
/* Call this after the action stop() when all processes but kept workers are gone. */
void node_processes_gone(struct node *n, int64_t now_ms);

/* ---- events: what workers report on their channels ---- */

void node_worker_ready(struct node *n, int64_t now_ms, uint32_t worker, uint64_t change_id);
void node_worker_rejoin(struct node *n, int64_t now_ms, uint32_t worker);
void node_worker_dumped(struct node *n, int64_t now_ms, uint32_t worker, uint64_t dump_id,
                        const char *path);
/* Call this when a worker has made no step for `ms`, its step timeout. `step` is the last step that
 * it made. */
void node_worker_hung(struct node *n, int64_t now_ms, uint32_t worker, uint64_t step, int64_t ms);

/* ---- events: signals, notices and requests for dumps ---- */

/* Call this when the launcher has received a signal. The node stops its workers with that signal,
 * and the job ends on this node. */
void node_signal(struct node *n, int64_t now_ms, int signum);
/* Call this when this node has to leave the job within left_ms. Only the first notice counts; later
 * ones are ignored. */
void node_notice(struct node *n, int64_t now_ms, enum rendezvous_change_kind kind,
                 int64_t left_ms, const char *why);
/* Requests the flight records of all workers. `why` is for the log. */
void node_dump(struct node *n, int64_t now_ms, const char *why);

/* ---- events: time ---- */

/* Call this at node_deadline(); a call before that time does nothing. */
void node_tick(struct node *n, int64_t now_ms);
/* Returns the time of the next node_tick() (ms, monotonic clock), or CR_FOREVER if none is
 * needed. */
int64_t node_deadline(const struct node *n);

/* ---- names of the states ---- */

const char *worker_state_name(enum worker_state state);
const char *worker_state_limit(enum worker_state state);
const char *part_state_name(enum part_state state);
const char *part_state_limit(enum part_state state);

#endif
