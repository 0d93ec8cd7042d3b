/* All that one node decides about its workers, as a function of (state, event, now). Pure: no
 * process, socket, clock or thread. agent.c turns what happens into the events below and carries
 * out the actions; the simulator (tests/sim) does the same with simulated workers.
 *
 * Three machines, each with a list of its states and of what limits the time in each:
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
 * A change with notice: the rendezvous announces it; the workers that count their steps are frozen
 * and the furthest step is answered; the rendezvous reports the agreed step; when every worker that
 * takes part has made it and is ready, the node reports itself ready; the rendezvous ends the
 * round. contract/channel.h argues why no worker makes more steps than agreed. */
#ifndef AGENT_NODE_NODE_H
#define AGENT_NODE_NODE_H

#include "agent/node/worker_group.h"
#include "agent/node/worker_page.h"
#include "base/log.h"
#include "rendezvous/types.h"

#include <stdbool.h>
#include <stdint.h>

/* How long a worker may be parked in a round in which nothing failed. It parks when its process
 * groups break, and the report of the failure that broke them may still be on its way to us. */
#define NODE_PATIENCE_MS INT64_C(1000)
/* How long a hung worker has to write its flight record. */
#define NODE_DUMP_MS INT64_C(1000)

/* X(name, what limits the time in this state) */
#define WORKER_STATES(X)                                                                           \
    X(ABSENT, "none: not started in this round, or ended")                                         \
    X(STARTING, "the start, which does not wait")                                                  \
    X(RUNNING, "none: the program's own time")                                                     \
    X(HUNG, "NODE_DUMP_MS, then SIGKILL")                                                          \
    X(KEPT, "the grace of the stop, then SIGKILL")                                                 \
    X(PARKED, "NODE_PATIENCE_MS while the round runs; then what limits the group's state")         \
    X(STOPPING, "the grace of the stop, then SIGKILL")

/* X(name, what limits the time in this state) */
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

/* What the node asks for. Texts and packets are borrowed for the call. None of these may call back
 * into the node. Workers are named by their local rank. */
struct node_actions {
    /* Starts every worker i with starts[i], and clears starts[i] for those that could not be
     * started. 0, or negative: the round cannot run, even if starts[] is unchanged. */
    int (*start)(void *arg, bool *starts);
    /* Gives a parked worker its place in the round, in its page and by a packet. 0 or negative. */
    int (*hand_over)(void *arg, uint32_t worker);
    /* Stops everything that is not kept: `signum` to all, SIGKILL after grace_ms (CR_FOREVER:
     * never). Answered by node_processes_gone(). Calling it again starts the grace again. */
    void (*stop)(void *arg, int signum, int64_t grace_ms);
    /* From now on stop() spares this worker, or does not spare it any more. */
    void (*keep)(void *arg, uint32_t worker, bool keep);
    /* To one worker. Its failure is then our doing. */
    void (*signal)(void *arg, uint32_t worker, int signum);
    /* SIGKILL to a hung worker. Its failure is its own doing. */
    void (*kill_hung)(void *arg, uint32_t worker);
    /* True if the process is dead already, though node_worker_exited() has not come yet. */
    bool (*is_dead)(void *arg, uint32_t worker);

    /* The channel to a worker. Both return 0 or negative: it has none, or it is broken. */
    int (*send_packet)(void *arg, uint32_t worker, const struct channel_packet *packet);
    int (*ask_dump)(void *arg, uint32_t worker, uint64_t dump_id);
    void (*read_page)(void *arg, uint32_t worker, struct worker_progress *out);

    /* The rendezvous; see rendezvous/rendezvous.h. */
    void (*join)(void *arg);
    void (*failed)(void *arg, uint64_t round);
    void (*succeeded)(void *arg, uint64_t round);
    void (*leave)(void *arg);
    void (*notice)(void *arg, enum rendezvous_change_kind kind, int64_t left_ms, const char *why);
    void (*change_answer)(void *arg, uint64_t id, int64_t step, int64_t needs_ms);
    void (*change_ready)(void *arg, uint64_t id);

    void (*finish)(void *arg); /* node.group.ending is the result; no action follows */
    void (*log)(void *arg, enum cr_log_level level, const char *text);
};

struct node_settings {
    uint32_t workers; /* 1 or more */
    int64_t stop_timeout_ms, shutdown_timeout_ms;
    enum cr_log_level log_level; /* lines below it are not made */
};

struct node_worker {
    enum worker_state state;
    enum part_state part;
    int64_t until_ms;  /* when the limit of `state` ends, if the node itself enforces it */
    int64_t hung_ms;   /* it made no step for so long in this round; 0 = it did not hang */
    uint64_t hung_step; /* … after this step */
};

/* Read-only outside of node.c. */
struct node {
    const struct node_actions *actions;
    void *arg;
    enum cr_log_level log_level;
    struct worker_group group;
    struct node_worker *workers; /* by local rank */
    uint32_t worker_count;
    bool *starts; /* room for the action of that name */

    uint64_t round; /* the current one, or the last */
    uint32_t first_rank;
    bool processes_gone; /* since the last stop(): nothing lives but kept workers */
    uint64_t dumps;      /* asked for so far */

    struct {
        uint64_t id; /* 0 = none announced */
        bool is_set; /* the agreed step is known */
        bool reported_ready;
    } change;

    struct {
        bool given;
        int64_t until_ms; /* then this node leaves regardless */
        char why[256];
    } notice;

    int64_t patience_until_ms; /* then the round counts as broken */
    uint32_t gave_up;          /* the worker that parked though nothing had failed … */
    bool is_broken;            /* … and so broke the round */
};

/* `actions` is borrowed. 0 or -ENOMEM. */
int node_init(struct node *n, const struct node_settings *settings,
              const struct node_actions *actions, void *arg);
void node_done(struct node *n); /* a zeroed node is fine */

/* ---- events: the rendezvous ---- */

void node_round(struct node *n, int64_t now_ms, const struct rendezvous_round *round);
/* The round is over; grace_max_ms as in rendezvous.h. */
void node_stop(struct node *n, int64_t now_ms, int64_t grace_max_ms);
void node_end(struct node *n, int64_t now_ms, enum rendezvous_outcome outcome);
void node_change(struct node *n, int64_t now_ms, const struct rendezvous_change *change);
void node_change_at(struct node *n, int64_t now_ms, uint64_t id, uint64_t step, int64_t left_ms);

/* ---- events: processes ---- */

/* signal_sent: the last signal that stop() or signal() had sent it before it died, or 0. */
void node_worker_exited(struct node *n, int64_t now_ms, uint32_t worker, int exit_code,
                        int signal_sent);
/* Answers stop(): nothing lives any more but kept workers. */
void node_processes_gone(struct node *n, int64_t now_ms);

/* ---- events: what workers report on their channels ---- */

void node_worker_ready(struct node *n, int64_t now_ms, uint32_t worker, uint64_t change_id);
void node_worker_rejoin(struct node *n, int64_t now_ms, uint32_t worker);
void node_worker_dumped(struct node *n, int64_t now_ms, uint32_t worker, uint64_t dump_id,
                        const char *path);
/* No step for `ms`, its limit, after `step`. */
void node_worker_hung(struct node *n, int64_t now_ms, uint32_t worker, uint64_t step, int64_t ms);

/* ---- events: orders ---- */

/* The launcher received a signal. */
void node_signal(struct node *n, int64_t now_ms, int signum);
/* This node is to leave within left_ms. Only the first notice counts. */
void node_notice(struct node *n, int64_t now_ms, enum rendezvous_change_kind kind,
                 int64_t left_ms, const char *why);
/* The workers are to write their flight records. */
void node_dump(struct node *n, int64_t now_ms, const char *why);

/* ---- events: time ---- */

void node_tick(struct node *n, int64_t now_ms);   /* early calls do nothing */
int64_t node_deadline(const struct node *n);      /* CR_FOREVER: none */

/* ---- names ---- */

const char *worker_state_name(enum worker_state state);
const char *worker_state_limit(enum worker_state state);
const char *part_state_name(enum part_state state);
const char *part_state_limit(enum part_state state);

#endif
