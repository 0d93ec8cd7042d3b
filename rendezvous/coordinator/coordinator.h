/* The coordinator of one job: who takes part, in which round, with which rank; the restart budget;
 * the verdict. Pure: no sockets, no clock, no thread; time comes in with every event, and what is to
 * be done goes out through `struct coordinator_actions`. docs/rendezvous.md tells the rules.
 *
 *            first join                     store opened, ROUND sent
 *   EMPTY ──────────────► FORMING ────────────────────────────────────► RUNNING
 *                            ▲    a worker failed, a node was lost or joined │ │
 *                            └──────────────── STOP sent ────────────────────┘ │
 *                          any phase ── budget spent, all succeeded, time up ──┴──► ENDED
 *
 * A seat is one node's place in the job, from its JOIN until its connection is gone.
 *
 * A change with notice, while RUNNING: a node waits to be let in, or one has told that it goes away.
 *
 *   announced: CHANGE to all nodes of the round ──all have answered──► set: CHANGE_AT, one step for all
 *        │ nobody counts steps, or the time is up                        │ all are ready, or the time is up
 *        └────────────────────────────► STOP ◄───────────────────────────┘
 *
 * A failure or a loss meanwhile stops the round as ever, and with it the change. */
#ifndef RENDEZVOUS_COORDINATOR_H
#define RENDEZVOUS_COORDINATOR_H

#include "base/error.h"
#include "base/log.h"
#include "rendezvous/protocol/protocol.h"
#include "rendezvous/types.h"

#include <stdint.h>

struct coordinator;
struct coordinator_seat;

/* Where a round's workers find their store. */
struct coordinator_store {
    char addr[RDZV_ADDR_MAX]; /* numeric */
    uint16_t port;
};

/* None of these may call back into the coordinator. Texts are borrowed for the call. */
struct coordinator_actions {
    /* `peer` is what the shell gave to coordinator_join. */
    void (*send)(void *arg, void *peer, const struct rdzv_message *m);
    /* Says no more to this node; its seat is gone, do not call coordinator_lost for it. */
    void (*hang_up)(void *arg, void *peer);
    /* An empty key space for `round`; the spaces of earlier rounds are closed after it is open. */
    int (*open_store)(void *arg, uint64_t round, struct coordinator_store *out,
                      struct cr_error *err);
    void (*log)(void *arg, enum cr_log_level level, const char *text);
};

/* `actions` is borrowed, `run_id` copied. NULL when memory is short. */
struct coordinator *coordinator_new(const char *run_id, const struct coordinator_actions *actions,
                                    void *arg);
void coordinator_free(struct coordinator *c); /* NULL is fine */

/* ---- events: time never runs backwards ---- */

/* A node without a seat sent JOIN. Returns its seat, or NULL: then the node was already told why
 * (REFUSED or END) and is to be hung up on. `local` nodes live in this process and need no
 * keep-alive. The job's first node brings the settings. */
struct coordinator_seat *coordinator_join(struct coordinator *c, int64_t now_ms, void *peer,
                                          int local, const struct rdzv_join *join);

/* Anything else that a seated node sent (JOIN again, FAILED, SUCCEEDED, LEAVE, BEAT).
 * Returns 0, or -EPROTO for a message that no member sends: then call coordinator_lost. */
int coordinator_receive(struct coordinator *c, int64_t now_ms, struct coordinator_seat *seat,
                        const struct rdzv_message *m, struct cr_error *err);

/* The node's connection is gone. Frees the seat. */
void coordinator_lost(struct coordinator *c, int64_t now_ms, struct coordinator_seat *seat,
                      const char *why);

/* The time of coordinator_deadline() has come. Early calls do nothing. */
void coordinator_tick(struct coordinator *c, int64_t now_ms);
int64_t coordinator_deadline(const struct coordinator *c); /* CR_FOREVER: none */

/* An operator asks the nodes of `host` (every node if it is "") to go away: each is sent ASK_NOTICE and
 * gives its notice itself. kind 0: to write flight records. Returns how many were asked. */
uint32_t coordinator_operate(struct coordinator *c, const struct rdzv_operate *what);

/* The coordinator's own host goes away: ends the job for everybody with `why`. */
void coordinator_abandon(struct coordinator *c, int64_t now_ms, const char *why);

/* ---- what there is to see (status, tests, the simulator) ---- */

/* clang-format off */
#define COORDINATOR_PHASES(P) P(EMPTY) P(FORMING) P(RUNNING) P(ENDED)
#define SEAT_STATES(S) \
    S(JOINED)    /* waits for a round; while one is running: parked */ \
    S(RUNNING)   /* has the round */ \
    S(SUCCEEDED) /* its workers ended well; waits for the others */ \
    S(STOPPING)  /* its workers are being stopped; will join again */ \
    S(LEAVING)   /* its workers are being stopped; will hang up */
/* clang-format on */

enum coordinator_phase {
#define P(name) COORDINATOR_##name,
    COORDINATOR_PHASES(P)
#undef P
};
enum seat_state {
#define S(name) SEAT_##name,
    SEAT_STATES(S)
#undef S
    SEAT_STATE_COUNT
};

struct coordinator_view {
    enum coordinator_phase phase;
    uint64_t next_round;     /* rounds formed so far */
    uint32_t restart_count, max_restarts, min_nodes, max_nodes;
    uint32_t group_world_size, world_size; /* of the last round */
    uint32_t seats;
    uint32_t in_state[SEAT_STATE_COUNT];
    uint32_t awaited;        /* nodes without which no round forms */
    int outcome;             /* enum rendezvous_outcome once ENDED */
    const char *why;         /* the last round was stopped, or the job ended; borrowed */
};
void coordinator_look(const struct coordinator *c, struct coordinator_view *out);

struct seat_view {
    const char *host, *addr, *role;
    uint64_t pid;
    int local;
    enum seat_state state;
    int64_t group_rank; /* in the last round it was in; -1 = none */
    uint32_t local_world_size, first_rank;
    int64_t heard_ms;
};
/* Calls `visit` for every seat, in no order. */
void coordinator_visit(const struct coordinator *c,
                       void (*visit)(void *arg, const struct seat_view *seat), void *arg);

const char *coordinator_phase_name(enum coordinator_phase p);
const char *seat_state_name(enum seat_state s);

#endif
