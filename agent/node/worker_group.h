/* The policy of one node's worker group as a whole: a table of (state, event) -> actions. Pure: it
 * uses no clock, process or socket. node.c feeds it and carries out the actions; node.h has the
 * states of the single workers.
 *
 *   JOINING ──round──► RUNNING ──all ended well──► WAITING ──end──┐
 *      ▲                  │ failure, stop, end, signal    │ stop   │
 *      │                  ▼                               ▼        ▼
 *      └──── empty ──── STOPPING ◄────────────────────────┴────────┘
 *                         │ empty, and the job's end is known
 *                         ▼
 *                       ENDED
 *
 * A parked worker has ended its round but not its process: it waits for the next round. It does not
 * count as living. If the node cannot go on, it is stopped like the other workers.
 *
 * Every way out of RUNNING and WAITING leads through STOPPING. So nothing of a round is left when
 * the next one begins or the job ends, not even a background process of a worker that ended well.
 * How the job ends (`ending`) is a fact beside the state, because it may become known while workers
 * are still being stopped. The first ending that becomes known stays. */
#ifndef AGENT_NODE_WORKER_GROUP_H
#define AGENT_NODE_WORKER_GROUP_H

#include <stdbool.h>
#include <stdint.h>

/* X(name, what limits the time in this state) */
#define GROUP_STATES(X)                                                                            \
    X(JOINING, "the rendezvous: its join timeout")                                                 \
    X(RUNNING, "none: the workers' own time")                                                      \
    X(WAITING, "none: the time of the other nodes' workers")                                       \
    X(STOPPING, "the grace, which ends at kill_at_ms; then SIGKILL")                               \
    X(ENDED, "none: nothing follows")

#define GROUP_EVENTS(X)                                                                            \
    X(ROUND)        /* a round began: `count` workers are to run */                                \
    X(START_FAILED) /* only `count` of them could be started */                                    \
    X(EXIT_OK)      /* a worker ended with status 0 */                                             \
    X(EXIT_BAD)     /* a worker ended otherwise; see after_our_signal */                           \
    X(EXIT_READY)   /* a worker ended with status 0, because a change asked it to stop */          \
    X(PARKED)       /* a worker waits in its process for the next round */                         \
    X(UNPARKED)     /* a parked worker is now stopped like the others */                           \
    X(PARKED_GONE)  /* a parked worker ended by itself */                                          \
    X(BROKEN)       /* workers gave up their round, though none failed */                          \
    X(EMPTY)        /* nothing of the group lives any more but parked workers */                   \
    X(STOP)         /* the rendezvous ended the round; `ms` = longest grace */                     \
    X(END_OK)       /* the rendezvous reports that the job succeeded */                            \
    X(END_FAILED)   /* the rendezvous reports that the job failed and the budget is spent */       \
    X(END_LOST)     /* the rendezvous cannot go on */                                              \
    X(LEAVE)        /* this node leaves, after its notice; `ms` = longest grace */                 \
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
};

struct group_event {
    enum group_event_type type;
    uint32_t count;
    bool after_our_signal; /* EXIT_BAD: we had sent it a signal, so its failure is our doing */
    int64_t ms;            /* CR_FOREVER: no limit beyond the group's own stop timeout */
    int64_t now_ms;
};

/* What is to be done, in this order. */
struct group_actions {
    bool report_failed;    /* to the rendezvous, for this round */
    bool report_succeeded; /* to the rendezvous, for this round */
    bool leave;            /* leave the rendezvous */
    int stop_signal;       /* not 0: stop the workers, with this signal first … */
    int64_t stop_grace_ms; /* … and SIGKILL after that */
    bool join;             /* ask the rendezvous for the next round */
    bool start;            /* start the round's workers; feed START_FAILED if that fails */
    bool finish;           /* `ending` is the result; nothing follows */
};

struct worker_group {
    enum group_state state;
    enum group_ending ending;
    int64_t stop_timeout_ms, shutdown_timeout_ms;
    uint32_t living;      /* workers of this round that have neither ended nor parked */
    uint32_t parked;      /* workers that wait in their processes for the next round */
    uint32_t ended_early; /* workers that ended for a change or while parked; without them the
                             round cannot succeed, and something else ends it */
    uint32_t failures;    /* of this round; workers that failed after our signal do not count */
    uint32_t signals;     /* that the launcher received */
    int signal;           /* the first of them */
    bool rendezvous_over; /* it ended, or we left it: it expects no more reports */
    int64_t kill_at_ms;   /* STOPPING: when the grace ends */
    int64_t lease_ms;     /* no grace ends later: this node's ranks may then run elsewhere;
                             CR_FOREVER: it is not cut off */
};

/* A group that is about to join. */
void worker_group_init(struct worker_group *g, int64_t stop_timeout_ms,
                       int64_t shutdown_timeout_ms);

struct group_actions worker_group_step(struct worker_group *g, const struct group_event *event);

const char *group_state_name(enum group_state state);
const char *group_state_limit(enum group_state state);

#endif
