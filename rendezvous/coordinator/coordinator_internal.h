/* What the files of rendezvous/coordinator share.
 *
 *     coordinator.c   the phases, the messages of seated nodes, and reconcile(), the story
 *     joining.c       what a JOIN must fulfil, and what follows from it
 *     seats.c         the table of nodes
 *     forming.c       when a round forms, with whom, and with which ranks (assignment.c)
 *     change.c        the end of a round with notice
 *     budget.c        how many restarts the job has left
 *     limits.c        everything that time decides: leases, timeouts, the next deadline
 *     view.c          what operators, tests and the simulator can see */
#ifndef RENDEZVOUS_COORDINATOR_INTERNAL_H
#define RENDEZVOUS_COORDINATOR_INTERNAL_H

#include "rendezvous/coordinator/budget_internal.h"
#include "rendezvous/coordinator/coordinator.h"
#include "rendezvous/types.h"

#define COORDINATOR_NEVER (-1)
#define SEAT_NAME_MAX     320

/* A node's part in the change that is announced. */
enum seat_change {
    CHANGE_NONE,  /* no part: it was not asked */
    CHANGE_ASKED, /* has not answered yet */
    CHANGE_RUNS,  /* will be ready after the agreed step */
    CHANGE_READY, /* its workers may be stopped */
    SEAT_CHANGE_COUNT
};

/* The change that is announced. There is at most one. */
struct coordinator_change {
    bool open;         /* there is one */
    bool is_set;       /* the agreed step is known */
    bool is_hard;      /* a node leaves: workers cannot get more time */
    uint64_t id;
    int64_t notice_ms; /* answers until then may ask for more time */
    int64_t until_ms;  /* the round is stopped then, ready or not */
    int64_t step;      /* of the furthest worker so far; -1 = none counts steps */
};

struct coordinator_seat {
    void *peer;
    uint32_t index; /* in coordinator.seats */
    enum seat_state state;
    enum seat_change change;
    bool local;
    char *host, *addr, *role;
    uint64_t pid, instance, connection;
    int64_t node_rank;
    uint32_t local_world_size;
    int64_t group_rank;   /* in the last round of this coordinator; -1: was not in it */
    int64_t old_rank;     /* an earlier one, as the node remembers it; -1 = none */
    uint32_t first_rank;
    int64_t since_ms;     /* in this state since then */
    int64_t heard_ms;     /* its last message came then */
    int64_t suspected_ms; /* its lease was found to be over then; COORDINATOR_NEVER = it is not */
};

struct coordinator {
    const struct coordinator_actions *actions;
    void *arg;
    char *run_id;

    /* settings, from the job's first node */
    uint32_t min_nodes, max_nodes;
    bool fixed_ranks;
    int64_t join_timeout_ms, last_call_timeout_ms, interval_ms, lease_ms, notice_ms;

    enum coordinator_phase phase;
    uint64_t round;        /* the last round formed; valid if group_size is not 0 */
    uint64_t next_round;   /* number of the next one */
    struct budget budget;
    int64_t forming_ms;    /* since then nodes wait, and no node is stopping its workers */
    bool had_stopping;     /* a node was still stopping its workers at the last look */
    int64_t last_call_ms;  /* when the last call ends; COORDINATOR_NEVER: the minimum is not here */
    bool members_changed;  /* a node came or went since the last round formed */
    uint32_t group_size;   /* nodes of the last round */
    uint32_t world_size;   /* workers of the last round */
    struct coordinator_change change;
    uint32_t gone_after_success; /* nodes of this round that succeeded and have hung up since */
    int outcome;           /* enum rendezvous_outcome, if ENDED */
    char why[RDZV_TEXT_MAX]; /* why the round was stopped or the job ended */

    struct coordinator_seat **seats;
    uint32_t seat_count, seat_cap;
    uint32_t in_state[SEAT_STATE_COUNT], in_change[SEAT_CHANGE_COUNT];
    char **departed; /* by group rank: the host that had it last, if no node has it now */
    uint32_t departed_count;
    int64_t wake_ms; /* coordinator_deadline() */
};

/* ---- coordinator.c ---- */

/* Takes whatever step follows from what is true now. The last call of every event. */
void coordinator_reconcile(struct coordinator *c, int64_t now_ms);

/* The only writer of the phase. */
void coordinator_enter(struct coordinator *c, enum coordinator_phase next, const char *why);
void coordinator_start_forming(struct coordinator *c, int64_t now_ms, const char *why);
/* Ends the running round for c->why: its nodes stop their workers and join again. */
void coordinator_stop_round(struct coordinator *c, int64_t now_ms);
/* Ends the job for c->why. Seats stay until their nodes hang up. */
void coordinator_end_job(struct coordinator *c, enum rendezvous_outcome outcome);

/* A node's seat is empty from now on. `how`: what happened, after the node's name. */
void coordinator_vacate(struct coordinator *c, int64_t now_ms, struct coordinator_seat *s,
                        const char *how, const char *why);

void coordinator_log(struct coordinator *c, enum cr_log_level level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void coordinator_set_why(struct coordinator *c, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void coordinator_send_end(struct coordinator *c, void *peer, int outcome, const char *why);

/* ---- seats.c ---- */

/* NULL when memory is short. */
struct coordinator_seat *seat_new(struct coordinator *c, int64_t now_ms, void *peer, bool local,
                                  const struct rdzv_join *join);
/* Takes the seat out of the table and frees it. Remembers the host of its rank. */
void seat_remove(struct coordinator *c, struct coordinator_seat *s);
void seats_free(struct coordinator *c);

/* The only writer of a seat's state. In the new state it has no part in a change. */
void seat_enter(struct coordinator *c, struct coordinator_seat *s, enum seat_state next,
                int64_t now_ms);
/* The only writer of a seat's part in a change. */
void seat_take_part(struct coordinator *c, struct coordinator_seat *s, enum seat_change next);
/* Host, address and process: several nodes may have one host name. */
void seat_name(const struct coordinator_seat *s, char out[SEAT_NAME_MAX]);

/* ---- forming.c ---- */

void coordinator_reconcile_forming(struct coordinator *c, int64_t now_ms);

/* ---- change.c ---- */

/* Announces that the round ends within left_ms, for c->why. `kind`: enum rendezvous_change_kind. */
void coordinator_announce(struct coordinator *c, int64_t now_ms, uint32_t kind, int64_t left_ms);
void coordinator_reconcile_change(struct coordinator *c, int64_t now_ms);
void coordinator_got_answer(struct coordinator *c, int64_t now_ms, struct coordinator_seat *s,
                            const struct rdzv_change_answer *a);
void coordinator_got_ready(struct coordinator *c, struct coordinator_seat *s, uint64_t id);
void coordinator_got_notice(struct coordinator *c, int64_t now_ms, struct coordinator_seat *s,
                            const struct rdzv_notice *n);

/* ---- limits.c ---- */

/* There is something to do at when_ms, at the latest. */
void coordinator_wake_by(struct coordinator *c, int64_t when_ms);
/* Finds the next deadline from scratch. */
void coordinator_find_deadline(struct coordinator *c);

#endif
