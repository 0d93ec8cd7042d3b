/* The ledger of a node: how its wall time divides into parts, round by round. Pure: ledger_step()
 * is a function of (ledger, event, now) and uses no clock.
 *
 * Each moment belongs to exactly one part, so the parts of all rows add up to the wall time, to the
 * nanosecond:
 *
 *   RENDEZVOUS ──ROUND──► SPAWN ──STARTED──► RUN ──DONE──► WAIT
 *        ▲                   │ BROKEN         │ BROKEN       │ BROKEN
 *        │                   ▼                ▼              ▼
 *        └────── GONE ───── STOP ◄───────────┴──────────────┘      END from every phase ──► ENDED
 *
 * A row is one round, with the interruption that came before it. Example: a worker fails. The row
 * of the running round ends when the worker died, and the next row begins: DETECT until crun knows
 * of the death, STOP until all processes of the round are gone, RENDEZVOUS until the next round
 * forms, SPAWN until its workers are started, FIRST_STEP until they make their first step, and WORK
 * from there on. All times are in ns of one monotonic clock. */
#ifndef AGENT_LEDGER_H
#define AGENT_LEDGER_H

#include <stdbool.h>
#include <stdint.h>

#define LEDGER_ROWS_MAX 128 /* the ledger keeps the last 128 rows; its sums are over all rows */

/* P(NAME, word): what the time is spent for */
#define LEDGER_PARTS(P)                                                                            \
    P(DETECT, "detect")           /* from the end of the work until this node notices the end */   \
    P(STOP, "stop")               /* stopping workers, until no process of the round is left */    \
    P(RENDEZVOUS, "rendezvous")   /* waiting for the next round to form */                         \
    P(SPAWN, "spawn")             /* from the forming of the round to the workers' start */        \
    P(FIRST_STEP, "first_step")   /* from the workers' start until all have made a step */         \
    P(WORK, "work")               /* from the last worker's first step until the work ends */      \
    P(WAIT, "wait")               /* from the success of all this node's workers to the job's end */

/* C(NAME, word): why a row began */
#define LEDGER_CAUSES(C)                                                                           \
    C(START, "start")                                                                              \
    C(FAILURE, "failure")                     /* a worker of this node failed */                   \
    C(HANG, "hang")                           /* a worker of this node hung, or all of them did */ \
    C(FAILURE_ELSEWHERE, "elsewhere")         /* a worker of another node failed */                \
    C(NODES, "nodes")                         /* a node was lost or left without notice */         \
    C(JOIN, "join")                           /* the next four are announced changes */            \
    C(LEAVE, "leave")                                                                              \
    C(PREEMPTION, "preemption")                                                                    \
    C(MAINTENANCE, "maintenance")                                                                  \
    C(SIGNAL, "signal")                       /* the launcher received a signal */                 \
    C(END, "end")                             /* the job has ended, and crun ended the workers */

/* S(NAME, word): how the ledger knows the time of a round's first step; the least exact sign comes
 * first */
#define LEDGER_SIGNS(S)                                                                            \
    S(UNKNOWN, "unknown") /* no sign: the whole time of the round counts as work */                \
    S(AWAITED, "awaited") /* the workers count steps, and have made none yet */                    \
    S(OUTPUT, "output")   /* the workers count no steps; their first output counts as the step */  \
    S(STEP, "step")       /* the last worker's first step is known; its time counts */

enum ledger_part {
#define P(NAME, word) LEDGER_##NAME,
    LEDGER_PARTS(P)
#undef P
        LEDGER_PART_COUNT
};
enum ledger_cause {
#define C(NAME, word) LEDGER_BY_##NAME,
    LEDGER_CAUSES(C)
#undef C
        LEDGER_CAUSE_COUNT
};
enum ledger_sign {
#define S(NAME, word) LEDGER_SIGN_##NAME,
    LEDGER_SIGNS(S)
#undef S
        LEDGER_SIGN_COUNT
};
enum ledger_phase {
    LEDGER_IN_RENDEZVOUS,
    LEDGER_IN_SPAWN,
    LEDGER_IN_RUN,
    LEDGER_IN_WAIT,
    LEDGER_IN_STOP,
    LEDGER_ENDED
};

enum ledger_event_type {
    LEDGER_EVENT_ROUND,   /* the rendezvous has formed a round; uses `round`, `restart_count` */
    LEDGER_EVENT_STARTED, /* the workers of the round are started */
    LEDGER_EVENT_SIGN,    /* what is known of the first step; uses `sign`, `since_ns` */
    LEDGER_EVENT_BROKEN,  /* the round is over for this node; uses `cause`, `since_ns` */
    LEDGER_EVENT_DONE,    /* all workers of this node have ended well */
    LEDGER_EVENT_GONE,    /* no process of the round is left */
    LEDGER_EVENT_END,     /* the agent ends */
    LEDGER_EVENT_COUNT
};

struct ledger_event {
    enum ledger_event_type type;
    uint64_t round;
    uint32_t restart_count;
    enum ledger_cause cause;
    enum ledger_sign sign;
    /* SIGN: time of the first step or first output. BROKEN: time at which the work ended, for
     * example the death of the worker. A time before the beginning of the current part counts as
     * that beginning, and a time after `now` counts as `now`. */
    int64_t since_ns;
};

struct ledger_row {
    bool has_round; /* true if the round of this row has formed */
    uint64_t round;
    uint32_t restart_count;
    enum ledger_cause cause;
    enum ledger_sign sign;
    int64_t began_ns;
    int64_t part_ns[LEDGER_PART_COUNT];
};

struct ledger {
    enum ledger_phase phase;
    int64_t began_ns, since_ns; /* began_ns: the time at which the ledger began; since_ns: the time
                                 * until which the wall time has been added to parts */
    int64_t first_step_ns;      /* time of the first step or output in ns; valid if the current
                                 * row's sign is OUTPUT or STEP */
    uint64_t row_count;         /* number of rows so far; `rows` keeps the last ones */
    uint64_t round_count;       /* number of rounds so far */
    struct ledger_row rows[LEDGER_ROWS_MAX];
    int64_t part_ns[LEDGER_PART_COUNT];       /* sums over all rows */
    int64_t lost_ns[LEDGER_CAUSE_COUNT];      /* time in ns that is neither work nor wait, by the
                                               * cause of its row */
    uint64_t cause_count[LEDGER_CAUSE_COUNT]; /* number of rows, by cause */
};

/* Begins a ledger at now_ns, in the phase RENDEZVOUS, with its first row. */
void ledger_init(struct ledger *l, int64_t now_ns);

/* Adds the time until now_ns to the part of the current phase, and enters the next phase. An event
 * that the phase does not expect changes nothing; example: the second BROKEN of a round. If now_ns
 * is earlier than the time of the last event, the time of that event is used instead. */
void ledger_step(struct ledger *l, const struct ledger_event *event, int64_t now_ns);

/* Fills in *out with the ledger as it would be if the agent ended at now_ns: the time until now_ns
 * is added to the part of the current phase. */
void ledger_read(const struct ledger *l, int64_t now_ns, struct ledger *out);

/* Returns row number `i` (0 is the first one), or NULL if the ledger does not keep that row. */
const struct ledger_row *ledger_row(const struct ledger *l, uint64_t i);
/* Returns the number of the oldest row that the ledger keeps. */
uint64_t ledger_first_row(const struct ledger *l);

int64_t ledger_wall_ns(const struct ledger *l);      /* until the last event */
int64_t ledger_row_lost_ns(const struct ledger_row *row); /* time that is neither work nor wait */
/* Returns the effective time: the part work divided by the wall time, 0 to 1; 0 if no time has
 * passed. */
double ledger_effective(const struct ledger *l);

const char *ledger_part_word(enum ledger_part part);
const char *ledger_cause_word(enum ledger_cause cause);
const char *ledger_sign_word(enum ledger_sign sign);

#endif
