/* Decides everything about the workers of one node, as a function of (state, event, now). Pure: it
 * uses no process, socket, clock or thread. agent.c turns what happens into the events below and
 * carries out the actions; the simulator (tests/sim) does so with simulated workers.
 *
 * There are three kinds of state machines. Each has a list of its states, which says for each state
 * what limits the time that is spent in it:
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
 * A change with notice takes this course. The rendezvous announces the change. The node freezes the
 * workers that have connected, or connect now, and reports the largest step that any of them has
 * made. The rendezvous answers with the agreed step. When each worker that counts steps has made
 * that step and is ready, the node reports that it is ready, and the rendezvous ends the round.
 * contract/channel.h explains why no worker makes more steps than agreed.
 *
 * A change is early if its agreed step is the first or second one (rendezvous_step_is_early()).
 * Then the node also waits for workers that have not counted a step or have not connected. */
#ifndef AGENT_NODE_NODE_H
#define AGENT_NODE_NODE_H

#include "agent/node/worker_group.h"
#include "agent/node/worker_page.h"
#include "base/log/log.h"
#include "rendezvous/types.h"

#include <stdbool.h>
#include <stdint.h>

/* A worker parks without a reason if it parks in a running round and has not stopped for a change.
 * In that case the node waits this long, in ms, before it counts the round as broken: a worker
 * parks when its process groups break, and the report of the failure that broke them may arrive at
 * this node later. */
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
    X(EXPECTED, "the time of the change: has not connected yet, and has to make the first step")   \
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

/* The actions that the node requests from its caller. Strings and packets are valid only until the
 * action returns. An action must not call a function of this header. `worker` is a local rank. */
struct node_actions {
    /* Starts each worker i for which starts[i] is true, and sets starts[i] to false if it could not
     * start that worker. Returns 0; or a negative number if the round cannot run. starts[] is set
     * in both cases. */
    int (*start)(void *arg, bool *starts);
    /* Ends what is left of a worker that has failed, and starts that worker again in the same round
     * with the same ranks. Returns 0; or a negative number if the worker could not be started. */
    int (*restart)(void *arg, uint32_t worker);
    /* Sends a parked worker its ranks in the new round, and prepares its page. Returns 0; or a
     * negative number if the worker does not get them, because its channel is broken. */
    int (*hand_over)(void *arg, uint32_t worker);
    /* Sends `signum` to all processes except kept workers, and after grace_ms SIGKILL to those that
     * still live; no SIGKILL if grace_ms is CR_FOREVER. When all these processes are gone, the
     * caller calls node_processes_gone(). If the node requests stop() once more before that, the
     * new signal is sent, and the new grace replaces the old one. */
    void (*stop)(void *arg, int signum, int64_t grace_ms);
    /* If `keep` is true, stop() spares the worker from now on. If `keep` is false, stop() ends the
     * worker like the others. */
    void (*keep)(void *arg, uint32_t worker, bool keep);
    /* Sends a signal to one worker. If the worker ends with an error after that, it counts as a
     * victim. */
    void (*signal)(void *arg, uint32_t worker, int signum);
    /* Sends SIGKILL to a hung worker. The worker counts as failed, not as a victim. */
    void (*kill_hung)(void *arg, uint32_t worker);
    /* Returns whether the process of the worker is dead. A process can be dead some time before
     * node_worker_exited() is called for it. */
    bool (*is_dead)(void *arg, uint32_t worker);

    /* The channel to a worker. send_packet sends it a packet; ask_dump requests its flight record.
     * Both return 0, or a negative number if the worker has no channel, the channel is broken, or
     * the worker cannot write flight records. read_page reads its progress; without a channel, all
     * fields but stopped_for are 0. */
    int (*send_packet)(void *arg, uint32_t worker, const struct channel_packet *packet);
    int (*ask_dump)(void *arg, uint32_t worker, uint64_t dump_id);
    void (*read_page)(void *arg, uint32_t worker, struct worker_progress *out);

    /* Each of these actions calls the function of rendezvous/rendezvous.h that has its name after
     * the prefix rendezvous_: join() calls rendezvous_join(), and so on. */
    void (*join)(void *arg);
    void (*failed)(void *arg, uint64_t round, enum rendezvous_blame blame);
    void (*succeeded)(void *arg, uint64_t round);
    void (*leave)(void *arg);
    void (*notice)(void *arg, enum rendezvous_change_kind kind, int64_t left_ms, const char *why);
    void (*change_answer)(void *arg, uint64_t id, int64_t step, int64_t needs_ms);
    void (*change_ready)(void *arg, uint64_t id);

    void (*finish)(void *arg); /* the last action; node.group.ending is the result */
    void (*log)(void *arg, enum cr_log_level level, const char *text);
};

/* What happens when a worker fails (--on-failure of its program). NODE_RESTARTS_ALL: all workers of
 * the job are restarted; if no restart is left, the job ends. NODE_RESTARTS_ALONE: only that worker
 * is started again, but at most `restarts` times in a round; its next failure has the effect of
 * NODE_RESTARTS_ALL. NODE_ENDS_JOB: the job ends, even if restarts are left. */
enum node_on_failure { NODE_RESTARTS_ALL, NODE_RESTARTS_ALONE, NODE_ENDS_JOB };

struct node_policy {
    enum node_on_failure on_failure;
    /* for NODE_RESTARTS_ALONE: the most times that the worker is restarted alone in one round */
    uint32_t restarts;
    /* true if the job does not wait for the end of this worker: when all other workers have ended
     * well, the worker is stopped, and the job has succeeded */
    bool is_service;
};

struct node_settings {
    uint32_t workers; /* number of workers of the node, at least 1 */
    /* [workers], indexed by local rank; node_init() copies it. NULL if no worker is a service and
     * every failure restarts all workers */
    const struct node_policy *policies;
    int64_t stop_timeout_ms, shutdown_timeout_ms;
    enum cr_log_level log_level; /* the action `log` gets no lines below this level */
};

struct node_worker {
    struct node_policy policy;
    uint32_t restarts; /* number of times that the worker was restarted alone in this round */
    enum worker_state state;
    enum part_state part;
    /* end of the time limit of `state`, in ms of the monotonic clock; CR_FOREVER if the node itself
     * enforces no limit */
    int64_t until_ms;
    /* if the worker hung in this round: for how many ms it had made no step; else 0 */
    int64_t hung_ms;
    uint64_t hung_step; /* the last step that the worker made; valid if hung_ms > 0 */
    /* true if the action hand_over() has failed, so that the worker does not know the current
     * round. Whatever its exit code, such a worker counts as a failed worker of the round */
    bool is_unreached;
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
    /* number of requests for flight records so far; it is also the dump_id of the last request */
    uint64_t dumps;

    struct {
        uint64_t id; /* id of the announced change; 0 if none is announced */
        bool is_set; /* true if the agreed step is known */
        bool is_early; /* true if is_set and the change is early */
        struct channel_packet announcement; /* packet that announces the change to workers */
        struct channel_packet agreed; /* packet with the agreed step; valid if is_set */
        int64_t until_ms; /* end of the change's time (ms, monotonic clock) */
        bool reported_ready;
    } change;

    struct {
        bool given;
        /* time (ms, monotonic clock) at which this node leaves, even if its workers are not
         * ready */
        int64_t until_ms;
        char why[256];
    } notice;

    /* time (ms, monotonic clock) at which the round counts as broken, because a worker has parked
     * in it without a reason (NODE_PATIENCE_MS); CR_FOREVER if no worker has */
    int64_t patience_until_ms;
    /* local rank of the first worker that parked in this round without a reason; valid if
     * patience_until_ms is not CR_FOREVER or is_broken is true */
    uint32_t gave_up;
    /* true if the last worker that ended with an error was killed by a signal that the node did not
     * send, and if that signal is one that also ends whole nodes (ends_nodes() in node.c) */
    bool is_killed;
    bool is_final;  /* true if the worker whose failure has ended the round has the policy
                     * NODE_ENDS_JOB */
    bool is_hung;   /* true if node_hung() has ended the round */
    /* true if patience_until_ms has passed, so that the round counts as broken by the worker
     * `gave_up` */
    bool is_broken;
};

/* Initialises a node. `actions` must stay valid as long as the node. Returns 0 or -ENOMEM. */
int node_init(struct node *n, const struct node_settings *settings,
              const struct node_actions *actions, void *arg);
void node_done(struct node *n); /* frees what the node owns; the node may also be all zeros */

/* ---- events: the rendezvous ---- */

void node_round(struct node *n, int64_t now_ms, const struct rendezvous_round *round);
/* Call this when the rendezvous has ended the round: the node stops or keeps its workers, and then
 * joins the next round, or leaves if it has given notice. grace_max_ms is the longest grace, in ms,
 * that the rendezvous allows; it is CR_FOREVER if only the stop timeout limits the grace. */
void node_stop(struct node *n, int64_t now_ms, int64_t grace_max_ms);
void node_end(struct node *n, int64_t now_ms, enum rendezvous_outcome outcome);
void node_change(struct node *n, int64_t now_ms, const struct rendezvous_change *change);
void node_change_at(struct node *n, int64_t now_ms, uint64_t id, uint64_t step, int64_t left_ms);

/* Returns the number of parked workers: they go on in their processes in the next round. */
uint32_t node_parked_workers(const struct node *n);

/* ---- events: processes ---- */

/* Call this when a worker's process has ended: the node decides whether the worker has failed, and
 * what follows from its end. `signal_sent` is the last signal that the actions stop() and signal()
 * sent to the worker before its end, or 0 if they sent none. */
void node_worker_exited(struct node *n, int64_t now_ms, uint32_t worker, int exit_code,
                        int signal_sent);
/* Call this when the action stop() was requested and no process is left except kept workers. When
 * the kept workers have parked, too, the node joins the next round, leaves or ends. */
void node_processes_gone(struct node *n, int64_t now_ms);
/* Call this if SIGKILL, which the action stop() has sent, has not ended all processes in the time
 * that the caller allows. The node leaves the rendezvous and ends at once; it requests no further
 * stop(). */
void node_processes_unkillable(struct node *n, int64_t now_ms);

/* ---- events: what workers report on their channels ---- */

/* Call this when the worker has connected, and before it can make a step. If a change is announced,
 * sends the worker the announcement, and also the agreed step if this is known and the node waits
 * for the worker. */
void node_worker_connected(struct node *n, int64_t now_ms, uint32_t worker);
void node_worker_ready(struct node *n, int64_t now_ms, uint32_t worker, uint64_t change_id);
void node_worker_rejoin(struct node *n, int64_t now_ms, uint32_t worker);
void node_worker_dumped(struct node *n, int64_t now_ms, uint32_t worker, uint64_t dump_id,
                        const char *path);
/* Call this when a worker has made no step for `ms`, its step timeout. The node requests the
 * worker's flight record, and then kills the worker. `step` is the last step that the worker has
 * made. */
void node_worker_hung(struct node *n, int64_t now_ms, uint32_t worker, uint64_t step, int64_t ms);

/* Call this when the workers of this node hang (--hang-timeout) and the caller has reported what
 * they do. The node ends the round as failed. */
void node_hung(struct node *n, int64_t now_ms);
/* Call this when a worker of this node has failed although it has not ended: it has written a bad
 * value. The node ends the round as failed. */
void node_broken(struct node *n, int64_t now_ms);

/* ---- events: signals, notices and requests for dumps ---- */

/* Call this when the launcher has received a signal. The node stops its workers with that signal
 * and leaves the rendezvous; the job ends on this node. */
void node_signal(struct node *n, int64_t now_ms, int signum);
/* Call this when this node has to leave the job within left_ms. Only the first notice has an
 * effect; the node ignores all others. */
void node_notice(struct node *n, int64_t now_ms, enum rendezvous_change_kind kind,
                 int64_t left_ms, const char *why);
/* Requests the flight records of all workers, and logs the reason `why`. */
void node_dump(struct node *n, int64_t now_ms, const char *why);

/* ---- events: time ---- */

/* Does what is due at the time now_ms: for example kills workers whose time limit is over, or
 * leaves when the time of the notice is over. Call this at node_deadline(); a call before that time
 * does nothing. */
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
