/* The coordinator of one job. It decides which nodes take part in which round, which ranks they
 * get, whether the job has a restart left, and how the job ends. Pure: every function gets the
 * time, and every effect goes out through `struct coordinator_actions`. docs/rendezvous.md has the
 * rules.
 *
 *            first JOIN                     store opened, ROUND sent
 *   EMPTY ──────────────► FORMING ────────────────────────────────────► RUNNING
 *                            ▲    a worker failed, a node was lost or joined │ │
 *                            └──────────────── STOP sent ────────────────────┘ │
 *                 any phase ── budget spent, all succeeded, time up ───────────┴──► ENDED
 *                 FORMING, RUNNING ── the last seat is gone ───────────────────────► EMPTY
 *
 * A new coordinator of a job that already runs has one more phase, REBUILDING (resuming.c).
 *
 * A seat is the record of one node, from its JOIN until the node is gone. While the node of a round
 * has no connection, its seat is suspended. change.c has the rules for a round that ends with
 * notice. This header is the door of rendezvous/coordinator. */
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

/* Address and port of the store of one round. */
struct coordinator_store {
    char addr[RDZV_ADDR_MAX]; /* numeric address */
    uint16_t port;
};

/* What the coordinator calls to act. An action must not call the coordinator. Texts and messages
 * are valid until the action returns. `peer` is the pointer that the caller passed to
 * coordinator_join() for that node. */
struct coordinator_actions {
    void (*send)(void *arg, void *peer, const struct rdzv_message *m);
    /* Closes the connection to this node after the queued messages. The coordinator has freed the
     * node's seat already, so coordinator_lost() must not be called for it. */
    void (*hang_up)(void *arg, void *peer);
    /* Opens an empty key space for `round`, and closes that of the last round. Returns 0, or a
     * negative errno and a text in err; on error it is called again for a minute, then the job
     * ends. */
    int (*open_store)(void *arg, uint64_t round, struct coordinator_store *out,
                      struct cr_error *err);
    /* Closes the store of the last round, if this host has it, because another node has the store
     * of the next one. This action may be NULL. */
    void (*close_store)(void *arg);
    /* Returns the run id of another job whose nodes wait at the same host, valid until the next
     * event; NULL = there is none. This action may be NULL. */
    const char *(*other_waiting)(void *arg);
    /* Returns the incarnation of a new run: never 0, larger than all that were drawn earlier on
     * machines with about the same time of day, and unlikely to be drawn twice. If this action is
     * NULL, runs have no incarnation. */
    uint64_t (*draw)(void *arg);
    /* Logs one line. Changes of state have the level debug. */
    void (*log)(void *arg, enum cr_log_level level, const char *text);
    /* Returns whether lines of that level are logged; if not, the coordinator does not format them.
     * If this action is NULL, all lines are formatted. */
    int (*wants_log)(void *arg, enum cr_log_level level);
};

/* Creates the coordinator of a job. `actions` must live as long as the coordinator; `run_id` is
 * copied. Returns NULL when memory is short. */
struct coordinator *coordinator_new(const char *run_id, const struct coordinator_actions *actions,
                                    void *arg);
void coordinator_free(struct coordinator *c); /* `c` may be NULL */
/* Sets the id that nodes get in WELCOME and show in later JOINs. By it a new coordinator finds out
 * that the job had an earlier one. Call this before the first event. */
void coordinator_identify(struct coordinator *c, uint64_t id);

/* ---- events; now_ms must never decrease from one call to the next ---- */

/* Call this when a node without a seat has sent JOIN. Returns its seat. Returns NULL if the node
 * may not join; in that case it was sent the reason (REFUSED or END), and the caller has to close
 * the connection. A `local` node is in the coordinator's process and has no lease. The settings of
 * the first node that joins become the job's. */
struct coordinator_seat *coordinator_join(struct coordinator *c, int64_t now_ms, void *peer,
                                          bool local, const struct rdzv_join *join);

/* Call this with each later message of a node that has a seat: JOIN again, FAILED, SUCCEEDED,
 * LEAVE, BEAT, NOTICE, CHANGE_ANSWER or CHANGE_READY. Returns 0, or -EPROTO and a text in err if a
 * member must not send the message; on error the caller has to call coordinator_lost(). */
int coordinator_receive(struct coordinator *c, int64_t now_ms, struct coordinator_seat *seat,
                        const struct rdzv_message *m, struct cr_error *err);

/* Call this when the node is gone, because it has closed its connection. It frees the seat. */
void coordinator_lost(struct coordinator *c, int64_t now_ms, struct coordinator_seat *seat,
                      const char *why);

/* Call this when the connection was reset or has timed out, and the node can resume. If the node is
 * in a round, its seat is kept until its lease ends. If not, it calls coordinator_lost(). */
void coordinator_suspend(struct coordinator *c, int64_t now_ms, struct coordinator_seat *seat,
                         const char *why);

/* Call this when a node has sent RESUME on a new connection. Returns its seat. Returns NULL if it
 * gets none; in that case it was sent the reason, and the caller has to close the connection. */
struct coordinator_seat *coordinator_resume(struct coordinator *c, int64_t now_ms, void *peer,
                                            const struct rdzv_resume *resume);

/* Call this at coordinator_deadline(). Before that time it does nothing. */
void coordinator_tick(struct coordinator *c, int64_t now_ms);
int64_t coordinator_deadline(const struct coordinator *c); /* CR_FOREVER = no deadline */

/* Passes an operator's order to the nodes of the host what->host, or to all nodes if that is "". If
 * what->kind is 0, it sends them ASK_DUMP, else ASK_NOTICE, which each node answers with NOTICE.
 * Returns how many nodes the order was sent to. */
uint32_t coordinator_operate(struct coordinator *c, const struct rdzv_operate *what);

/* Call this right after coordinator_new() if an elected coordinator has led the job before, whose
 * round may still run. */
void coordinator_follows_another(struct coordinator *c);

/* Call this when the coordinator gets or loses the right to form rounds. A new coordinator has it.
 * Without it, a round that runs goes on; no round begins, and no node is let into the running
 * round. */
void coordinator_may_form(struct coordinator *c, int64_t now_ms, bool may_form);
/* Call this before the host closes the connections of all nodes. The nodes do not count as gone, so
 * they excuse no failure. */
void coordinator_stand_by(struct coordinator *c);

/* Call this when the process that hosts the coordinator ends and the job has not ended. It sends
 * GOODBYE to the remote nodes, which may go on under another coordinator, hangs up on them, and
 * frees their seats. For the node in the coordinator's own process the job ends, with the outcome
 * LOST. */
void coordinator_goodbye(struct coordinator *c, const char *why);

/* ---- the state, as operators, tests and the simulator can read it ---- */

/* clang-format off */
/* P(NAME) — each phase, its meaning and its time limits. */
#define COORDINATOR_PHASES(P) \
    P(EMPTY)   /* no node has joined yet. No time limit */ \
    P(FORMING) /* nodes wait. Limits: join_timeout; with min_nodes, last_call_timeout */ \
    P(RUNNING) /* a round runs. No time limit, unless a change is announced */ \
    P(ENDED)   /* the job is over. Limit: the host closes connections after close_timeout */ \
    P(REBUILDING) /* a new coordinator waits for the nodes of the running round. Limit: a lease */

/* S(NAME) — each state, its meaning and its time limit. The lease is a further limit in every
 * state: a remote node that has sent nothing for 9/8 of its lease is lost. */
#define SEAT_STATES(S) \
    S(JOINED)    /* waits for a round. Limit: join_timeout in phase FORMING; for a spare, none */ \
    S(RUNNING)   /* is in the round. No time limit */ \
    S(SUCCEEDED) /* its workers ended well, it waits for the other nodes. No time limit */ \
    S(STOPPING)  /* stops its workers and will join again. Limit: its stop_limit */ \
    S(LEAVING)   /* stops its workers and will close. Limit: its stop_limit */ \
    /* waits until the node that has its node rank is gone. Limit: that node's lease */ \
    S(QUEUED)
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
    uint64_t incarnation;    /* number of this run of the job; 0 in phase EMPTY */
    uint64_t next_round;     /* number that the next round will have */
    uint32_t restart_count, max_restarts, min_nodes, max_nodes;
    uint32_t spent;          /* restarts charged; less than restart_count after a refund */
    uint32_t group_world_size, world_size; /* sizes of the last round */
    uint32_t seats, suspended; /* suspended: seats whose nodes have no connection */
    uint32_t in_state[SEAT_STATE_COUNT];
    uint32_t awaited;        /* nodes that are missing before a round can form */
    bool is_held;            /* a round would form now if the coordinator had the right to */
    int outcome;             /* an enum rendezvous_outcome, valid in phase ENDED */
    /* why the last round was stopped, or the job ended; valid until the next event */
    const char *why;
};
void coordinator_look(const struct coordinator *c, struct coordinator_view *out);

struct seat_view {
    const char *host, *addr, *role;
    uint64_t pid;
    bool local, suspended;
    enum seat_state state;
    int64_t group_rank; /* group rank in the last round; -1 = it was not in it */
    uint32_t local_world_size, first_rank;
    int64_t heard_ms;   /* time of its last message */
};
/* Calls `visit` for every seat, in no particular order. */
void coordinator_visit(const struct coordinator *c,
                       void (*visit)(void *arg, const struct seat_view *seat), void *arg);

/* Return the name of a phase or a seat's state, "FORMING" for example; "?" for an unknown number.
 * Operators pass numbers that they have received in STATUS_JOB and STATUS_NODE. */
const char *coordinator_phase_name(uint32_t phase);
const char *seat_state_name(uint32_t state);

#endif
