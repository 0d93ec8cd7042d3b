/* Decides about one node's worker group as a whole, by a table of (state, event) -> actions. Pure:
 * it uses no clock, process or socket. node.c passes the events and carries out the actions. node.h
 * has the states of the single workers.
 *
 *   JOINING ──round──► RUNNING ──all ended well──► WAITING ──end──┐
 *      ▲                  │ failure, stop, end, signal    │ stop   │
 *      │                  ▼                               ▼        ▼
 *      └──── empty ──── STOPPING ◄────────────────────────┴────────┘
 *                         │ empty, and the job's end is known
 *                         ▼
 *                       ENDED
 *
 * A service (--service) is a worker for whose end the job does not wait. In WAITING, only services
 * may still live. If one of them ends there, the group only counts it, because the round has
 * succeeded already; the end of the job stops the others.
 *
 * A parked worker has ended its round but not its process: it waits for the next round, and is not
 * counted in `living`. If the node cannot go on, a parked worker is stopped like the others.
 *
 * If SIGKILL does not end the processes, the group goes from STOPPING to ENDED without waiting for
 * them (UNKILLABLE): this node cannot run another round beside them, and the other nodes do not
 * wait for it.
 *
 * Every way out of RUNNING and WAITING leads through STOPPING, which ends all processes of the
 * round, also background processes of a worker that ended well. So no process of a round is left
 * when this node begins its next round. How the job ends (`ending`) is stored beside the
 * state, because it may become known while workers are still being stopped. If several endings
 * become known, the first one counts. */
#ifndef AGENT_NODE_WORKER_GROUP_H
#define AGENT_NODE_WORKER_GROUP_H

#include <stdbool.h>
#include <stdint.h>

/* The states of a worker group: X(name, what limits the time in the state). */
#define GROUP_STATES(X)                                                                            \
    X(JOINING, "the rendezvous: its join timeout")                                                 \
    X(RUNNING, "none: the workers' own time")                                                      \
    X(WAITING, "none: the time of the other nodes' workers")                                       \
    X(STOPPING, "the grace, which ends at kill_at_ms; then SIGKILL; then UNKILLABLE")              \
    X(ENDED, "none: nothing follows")

#define GROUP_EVENTS(X)                                                                            \
    X(ROUND)        /* a round began with `count` workers; `services` of these are services */     \
    X(START_FAILED) /* some workers could not be started; `count` workers are alive */             \
                    /* (`services` of these `count` workers are services) */                       \
    X(EXIT_OK)      /* a worker ended with status 0 */                                             \
    X(EXIT_BAD)     /* a worker ended with another status or by a signal; see after_our_signal */  \
    X(EXIT_READY)   /* a worker ended with status 0 after the agreed step of a change */           \
    X(PARKED)       /* a worker of this round now waits in its process for the next round */       \
    X(UNPARKED)     /* a parked worker is being stopped, because this node does not go on */       \
    X(PARKED_GONE)  /* a parked worker ended by itself */                                          \
    X(BROKEN)       /* a worker parked without a reason, or the workers hang */                    \
                    /* (the round cannot go on although no worker has ended) */                    \
    X(EMPTY)        /* no process of the round is left, except parked workers */                   \
    X(UNKILLABLE)   /* processes of the round have lived on too long after SIGKILL */              \
    X(STOP)         /* the rendezvous ended the round; `ms`: longest grace */                      \
    X(END_OK)       /* the rendezvous reports that the job succeeded */                            \
    X(END_FAILED)   /* the rendezvous reports that the job failed and the budget is spent */       \
    X(END_LOST)     /* the rendezvous cannot go on */                                              \
    X(LEAVE)        /* this node leaves after its notice; `ms`: longest grace */                   \
    X(SIGNAL)       /* the launcher received the signal `count` */

enum group_state {
#define X(name, limit) GROUP_##name,
    GROUP_STATES(X)
#undef X
        GROUP_STATE_COUNT
};

enum group_event_type {
#define X(name) GROUP_EVENT_##name,
    GROUP_EVENTS(X)
#undef X
        GROUP_EVENT_COUNT
};

enum group_ending {
    GROUP_GOES_ON,
    GROUP_SUCCEEDED,
    GROUP_FAILED,    /* workers failed, here or on another node */
    GROUP_LOST,      /* the rendezvous cannot go on */
    GROUP_UNSTARTED, /* a worker could not be started */
    GROUP_LEFT,      /* this node left after its notice */
    GROUP_SIGNALED,  /* the launcher received a signal */
    GROUP_STUCK,     /* workers could not be killed, so this node cannot run the next round */
};

struct group_event {
    enum group_event_type type;
    uint32_t count;
    /* only for ROUND and START_FAILED: how many of the `count` workers are services, for whose end
     * the round does not wait */
    uint32_t services;
    /* only for EXIT_*, PARKED and UNPARKED: true if the event is about a service */
    bool is_service;
    /* only for EXIT_BAD: true if crun had sent a signal to the worker before its end; such a worker
     * counts as a victim */
    bool after_our_signal;
    /* only for STOP and LEAVE: longest grace in ms; CR_FOREVER if only the group's stop timeout
     * limits the grace */
    int64_t ms;
    int64_t now_ms;
};

/* The actions that the caller must carry out, in this order. */
struct group_actions {
    bool report_failed;    /* report to the rendezvous that a worker failed in this round */
    /* report to the rendezvous that in this round all workers except services have ended well */
    bool report_succeeded;
    bool leave;            /* leave the rendezvous */
    int stop_signal; /* signal with which to stop the workers; 0 if they are not to be stopped */
    int64_t stop_grace_ms; /* time from stop_signal to SIGKILL, in ms */
    /* request a place in the next round from the rendezvous */
    bool join;
    bool start;  /* start the workers of the round; if that fails, pass the event START_FAILED */
    bool finish; /* the last action: the group has ended, and `ending` is the result */
};

/* The times (ms) that say how further signals to the launcher shorten the grace that the first
 * signal began. A signal within GROUP_REPEAT_MS of the first one does not shorten the grace. The
 * next signal after that time shortens what is left of it to GROUP_HASTE_MS at most. */
#define GROUP_REPEAT_MS 1000
#define GROUP_HASTE_MS  5000

struct worker_group {
    enum group_state state;
    enum group_ending ending;
    int64_t stop_timeout_ms, shutdown_timeout_ms;
    uint32_t living;      /* number of workers of this round that have neither ended nor parked */
    /* number of the living workers that are services; the round succeeds without waiting for their
     * end */
    uint32_t services;
    uint32_t parked;      /* number of workers that wait in their processes for the next round */
    /* number of workers of this round that ended for a change, or while parked. If it is not 0, the
     * round cannot succeed, and goes on until another event (EXIT_BAD, STOP, LEAVE …) ends it */
    uint32_t ended_early;
    uint32_t failures;    /* number of failures in this round; victims are not counted */
    uint32_t signals;     /* number of signals that the launcher has received */
    int signal;           /* the first signal that the launcher received */
    /* time (ms, monotonic clock) of the first signal; valid if signals > 0 */
    int64_t signaled_ms;
    bool is_hastened;     /* true if a later signal has shortened the grace */
    /* true if the rendezvous has ended or this node has left it, so that the rendezvous gets no
     * more reports */
    bool rendezvous_over;
    int64_t kill_at_ms;   /* time (ms, monotonic clock) at which the grace ends; valid in the state
                           * STOPPING */
    /* if this node is cut off: the end of its lease (ms, monotonic clock); else CR_FOREVER. No
     * grace ends later, because after the lease other nodes may run workers with this node's
     * ranks. */
    int64_t lease_ms;
};

/* Initialises a group in the state JOINING. */
void worker_group_init(struct worker_group *g, int64_t stop_timeout_ms,
                       int64_t shutdown_timeout_ms);

struct group_actions worker_group_step(struct worker_group *g, const struct group_event *event);

const char *group_state_name(enum group_state state);
const char *group_state_limit(enum group_state state);

#endif
