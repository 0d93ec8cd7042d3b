/* The policy of one node's worker group: (state, event) -> actions. Pure: no clock, no process, no
 * socket; the agent feeds it facts and does what it answers.
 *
 *   JOINING ──round──► RUNNING ──all ended well──► WAITING ──end──┐
 *      ▲                  │ failure, stop, end, signal    │ stop   │
 *      │                  ▼                               ▼        ▼
 *      └──── empty ──── STOPPING ◄────────────────────────┴────────┘
 *                         │ empty, and the job's end is known
 *                         ▼
 *                       ENDED
 *
 * A worker that has ended its round but not its process is *parked*: it asked to be in the next one as
 * it is. It does not count as living; where it cannot go on it is stopped like the others.
 *
 * Every way out of RUNNING and WAITING leads through STOPPING, so that nothing of an attempt is left
 * when the next begins or the job ends, be it only a background process of a worker that ended well.
 * What is known about the job's end (`ending`) is a fact beside the state: it may come while workers
 * are still being stopped, and the first one that comes stands. */
#ifndef AGENT_WORKER_GROUP_H
#define AGENT_WORKER_GROUP_H

#include <stdint.h>

#define GROUP_STATES(X) X(JOINING) X(RUNNING) X(WAITING) X(STOPPING) X(ENDED)
#define GROUP_EVENTS(X)                                                                            \
    X(ROUND)        /* a round began: `count` workers are to run */                                \
    X(START_FAILED) /* only `count` of them could be started */                                    \
    X(EXIT_OK)      /* a worker ended with status 0 */                                             \
    X(EXIT_BAD)     /* a worker ended otherwise; `count` != 0: after a signal of ours */           \
    X(EXIT_READY)   /* a worker ended with status 0 because a change was announced */              \
    X(PARKED)       /* a worker asks to be in the next round in its process */                     \
    X(PARKED_GONE)  /* a parked one ended */                                                       \
    X(BROKEN)       /* workers gave up their round, though none failed */                          \
    X(EMPTY)        /* nothing of the group lives any more but parked ones */                      \
    X(STOP)         /* the rendezvous: this round is over; `ms` = longest grace */                 \
    X(END_OK)       /* the rendezvous: the job succeeded */                                        \
    X(END_FAILED)   /* the rendezvous: the job failed, the budget is spent */                      \
    X(END_LOST)     /* the rendezvous: cannot go on */                                             \
    X(LEAVE)        /* this node goes away, as it gave notice */                                   \
    X(SIGNAL)       /* the launcher got the signal `count` */

enum group_state {
#define X(name) GROUP_##name,
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
    GROUP_FAILED,   /* workers failed, here or elsewhere */
    GROUP_LOST,     /* the rendezvous cannot go on */
    GROUP_UNSTARTED, /* a worker could not be started */
    GROUP_LEFT,      /* this node went away with notice */
    GROUP_SIGNALED,
};

struct group_event {
    enum group_event_type type;
    uint32_t count;
    int64_t ms;
    int64_t now_ms;
};

/* What the agent is to do, in this order. */
struct group_actions {
    int tell_failed;    /* rendezvous_failed for this round */
    int tell_succeeded; /* rendezvous_succeeded for this round */
    int leave;          /* rendezvous_leave */
    int end_signal;     /* not 0: nursery_end with it … */
    int64_t end_grace_ms;
    int join;   /* rendezvous_join */
    int start;  /* start the round's workers; answer START_FAILED if that cannot be done */
    int finish; /* `ending` says how; nothing follows */
};

struct worker_group {
    enum group_state state;
    enum group_ending ending;
    int64_t stop_timeout_ms, shutdown_timeout_ms;
    uint32_t living;      /* workers of this attempt that have not ended */
    uint32_t parked;      /* … that are to go on in their processes */
    uint32_t made_way;    /* … that ended for an announced change */
    uint32_t failures;    /* of this attempt, victims not counted */
    uint32_t signals;     /* that the launcher got */
    int signal;           /* the first of them */
    int rendezvous_over;  /* ended or left: there is nobody to tell */
    int64_t kill_at_ms;   /* STOPPING: when the grace is over */
};

/* A group that has just asked to join. */
void worker_group_init(struct worker_group *g, int64_t stop_timeout_ms, int64_t shutdown_timeout_ms);

struct group_actions worker_group_step(struct worker_group *g, const struct group_event *event);

const char *group_state_name(enum group_state state);

#endif
