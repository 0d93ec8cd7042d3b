/* The coordinator of one job: who takes part, in which round, with which rank; the restart
 * budget; the outcome. Pure: every function gets the time, and what is to be done goes out
 * through `struct coordinator_actions`. docs/rendezvous.md has the rules.
 *
 *            first JOIN                     store opened, ROUND sent
 *   EMPTY ──────────────► FORMING ────────────────────────────────────► RUNNING
 *                            ▲    a worker failed, a node was lost or joined │ │
 *                            └──────────────── STOP sent ────────────────────┘ │
 *                 any phase ── budget spent, all succeeded, time up ───────────┴──► ENDED
 *
 * A seat is the record of one node, from its JOIN until its connection is gone. change.c shows
 * how a round ends with notice. This header is the door of rendezvous/coordinator. */
#ifndef RENDEZVOUS_COORDINATOR_H
#define RENDEZVOUS_COORDINATOR_H

#include "base/error.h"
#include "base/log.h"
#include "rendezvous/protocol/protocol.h"
#include "rendezvous/types.h"

#include <stdbool.h>
#include <stdint.h>

struct coordinator;
struct coordinator_seat;

/* Where the workers of a round find their store. */
struct coordinator_store {
    char addr[RDZV_ADDR_MAX]; /* numeric */
    uint16_t port;
};

/* None of these may call the coordinator. Texts are borrowed for the call. `peer` is what was
 * given to coordinator_join(). */
struct coordinator_actions {
    void (*send)(void *arg, void *peer, const struct rdzv_message *m);
    /* Nothing more is sent to this node. Its seat is gone: do not call coordinator_lost() for
     * it. */
    void (*hang_up)(void *arg, void *peer);
    /* Opens an empty key space for `round`, then closes that of the last round. Returns 0, or a
     * negative errno with a text: the job ends. */
    int (*open_store)(void *arg, uint64_t round, struct coordinator_store *out,
                      struct cr_error *err);
    /* One line for each change of state (debug), and for what a reader of the log wants to know. */
    void (*log)(void *arg, enum cr_log_level level, const char *text);
    /* Whether lines of that level are wanted; others are not even formatted. NULL: all are. */
    int (*wants_log)(void *arg, enum cr_log_level level);
};

/* `actions` is borrowed, `run_id` copied. NULL when memory is short. */
struct coordinator *coordinator_new(const char *run_id, const struct coordinator_actions *actions,
                                    void *arg);
void coordinator_free(struct coordinator *c); /* NULL is fine */

/* ---- events; the time never runs backwards ---- */

/* A node without a seat has sent JOIN. Returns its seat, or NULL: then the node was sent the
 * reason (REFUSED or END), and the connection is to be closed. A `local` node lives in this
 * process and has no lease. The first node's settings become the job's. */
struct coordinator_seat *coordinator_join(struct coordinator *c, int64_t now_ms, void *peer,
                                          bool local, const struct rdzv_join *join);

/* A later message of a node with a seat: JOIN again, FAILED, SUCCEEDED, LEAVE, BEAT, NOTICE,
 * CHANGE_ANSWER or CHANGE_READY. Returns 0, or -EPROTO with a text for a message that no member
 * sends: then call coordinator_lost(). */
int coordinator_receive(struct coordinator *c, int64_t now_ms, struct coordinator_seat *seat,
                        const struct rdzv_message *m, struct cr_error *err);

/* The node's connection is gone. Frees the seat. */
void coordinator_lost(struct coordinator *c, int64_t now_ms, struct coordinator_seat *seat,
                      const char *why);

/* The time of coordinator_deadline() has come. Early calls do nothing. */
void coordinator_tick(struct coordinator *c, int64_t now_ms);
int64_t coordinator_deadline(const struct coordinator *c); /* CR_FOREVER: none */

/* An operator's order to the nodes of a host, or to all nodes if the host is "". Each of them is
 * sent ASK_NOTICE and gives its notice itself; if kind is 0: ASK_DUMP. Returns how many were
 * asked. */
uint32_t coordinator_operate(struct coordinator *c, const struct rdzv_operate *what);

/* The coordinator's own host leaves: ends the job with the outcome LOST. */
void coordinator_abandon(struct coordinator *c, int64_t now_ms, const char *why);

/* ---- what can be seen (status, tests, the simulator) ---- */

/* clang-format off */
/* P(NAME) — what limits the time in this phase. */
#define COORDINATOR_PHASES(P) \
    P(EMPTY)   /* no node has joined yet: none */ \
    P(FORMING) /* join_timeout of each waiting node; last_call_timeout once the minimum waits */ \
    P(RUNNING) /* a round runs: none, but for the time of an announced change */ \
    P(ENDED)   /* none here; the host closes connections after close_timeout */

/* S(NAME) — what limits the time in this state, beside the lease: a remote node that is silent
 * for a lease, and for an eighth of it more, is lost in every state. */
#define SEAT_STATES(S) \
    S(JOINED)    /* waits for a round: join_timeout while FORMING. A spare while RUNNING: none */ \
    S(RUNNING)   /* is in the round: none */ \
    S(SUCCEEDED) /* its workers ended well, it waits for the other nodes: none */ \
    S(STOPPING)  /* stops its workers and will join again: join_timeout, at least 120 s */ \
    S(LEAVING)   /* stops its workers and will hang up: the same */
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
    uint64_t next_round;     /* number of the next round */
    uint32_t restart_count, max_restarts, min_nodes, max_nodes;
    uint32_t group_world_size, world_size; /* of the last round */
    uint32_t seats;
    uint32_t in_state[SEAT_STATE_COUNT];
    uint32_t awaited;        /* nodes that are missing before a round can form */
    int outcome;             /* enum rendezvous_outcome, if ENDED */
    const char *why;         /* why the last round was stopped, or the job ended; borrowed */
};
void coordinator_look(const struct coordinator *c, struct coordinator_view *out);

struct seat_view {
    const char *host, *addr, *role;
    uint64_t pid;
    bool local;
    enum seat_state state;
    int64_t group_rank; /* in the last round it was in; -1 = none */
    uint32_t local_world_size, first_rank;
    int64_t heard_ms;   /* its last message came then */
};
/* Calls `visit` for every seat, in no particular order. */
void coordinator_visit(const struct coordinator *c,
                       void (*visit)(void *arg, const struct seat_view *seat), void *arg);

/* "FORMING" and so on; "?" for a number that stands for no state. The numbers also come over the
 * wire, in STATUS_JOB and STATUS_NODE. */
const char *coordinator_phase_name(uint32_t phase);
const char *seat_state_name(uint32_t state);

#endif
