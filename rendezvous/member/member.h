/* The member: one node's side of the rendezvous. It keeps the connection to the coordinator, sends
 * it what the node's agent reports, and calls the agent when the coordinator has decided something.
 * Pure: every function gets the time, and every effect goes out through `struct member_actions`.
 * rendezvous/protocol encodes the messages.
 *
 *   IDLE ─join─► CONNECTING ──WELCOME──► JOINING ─ROUND─► RUNNING ─succeeded─► SUCCEEDED
 *                   ▲                       ▲                │ failed              │
 *                   │ disconnected          │                ▼                     │
 *                   └────────── join ───────┴─── STOPPING ◄─ FAILED ◄──── STOP ────┘
 *   any ─leave─► LEAVING     any ─END, REFUSED, time up─► ENDED
 *
 * If the connection is lost in a round, the workers go on: the member connects again and sends
 * RESUME (resuming.c). The workers are stopped when the coordinator has not answered for 5/6 of the
 * lease (the fence), because after the lease the coordinator may give their ranks to other nodes.
 * The workers are stopped at once if the coordinator has closed the connection and is not expected
 * back. */
#ifndef RENDEZVOUS_MEMBER_H
#define RENDEZVOUS_MEMBER_H

#include "base/error.h"
#include "base/log/log.h"
#include "rendezvous/protocol/protocol.h"

#include <stdbool.h>
#include <stdint.h>

struct member;

struct member_settings {
    const char *where;     /* the coordinator as "host:port", for error texts */
    /* addresses of coordinator and node, for error texts; may be "" or NULL */
    const char *facts;
    /* text that says what the user can check if the coordinator cannot be reached; or NULL. It is
     * not copied, so it must be a constant. */
    const char *advice;
    struct rdzv_join self; /* the JOIN to send; the member fills the fields about rounds */
    bool local;            /* true: the coordinator is in this process, so there is no lease */
    int64_t connect_timeout_ms;  /* time limit of the first series of tries to connect, in ms */
    /* time limit, in ms, of each later series of tries to connect; 0 = one try. -1 = 60 s for a
     * coordinator that is not in a launcher, else 0 */
    int64_t coordinator_wait_ms;
};

/* What the member calls to act. The on_… actions call the agent. Each function of the member calls
 * them as the last thing that it does, so the agent may call the member from inside them. The other
 * actions must not call the member. Texts and messages are valid until the action returns. */
struct member_actions {
    /* Begins a try to connect. The caller reports the result later, by member_welcomed() or
     * member_disconnected(). */
    void (*connect)(void *arg);
    void (*send)(void *arg, const struct rdzv_message *m);
    /* From now on `connect` tries this address; if `port` is 0, the address of the settings. This
     * action may be NULL if the coordinator names no heirs. */
    void (*aim)(void *arg, const char *addr, uint16_t port);
    /* Called when the coordinator is lost and this node, an heir, takes over. From now on this
     * process has to serve the other nodes as their coordinator with this epoch, at the port that
     * this node's JOIN has named. This action may be NULL if JOIN names no such port. */
    void (*lead)(void *arg, uint64_t epoch);
    /* If the node is connected, sends the queued messages and closes the connection. If the node is
     * still connecting, ends the try. After this action member_disconnected() must not be called
     * for the old connection. */
    void (*hang_up)(void *arg);
    /* Logs one line. It is called for each change of state. */
    void (*log)(void *arg, enum cr_log_level level, const char *text);
    /* Shows, at a place that is rewritten, what the node waits for, how long it has waited, and how
     * long it can still wait, both in ms; left_ms is -1 if there is no limit. Returns false if
     * there is no such place. If this action returns false or is NULL, `log` gets a warning
     * instead. */
    bool (*show_waiting)(void *arg, const char *what, int64_t waited_ms, int64_t left_ms);
    /* Returns what the tries to connect have come to, for an error text: each address with its
     * result; "" if there was no try. This action may be NULL. */
    const char *(*tries)(void *arg);
    void (*on_round)(void *arg, const struct rdzv_round *round);
    void (*on_stop)(void *arg, int64_t grace_max_ms, const char *why);
    /* `outcome` is an enum rendezvous_outcome */
    void (*on_end)(void *arg, int outcome, const char *why);
    void (*on_change)(void *arg, const struct rdzv_change *change);
    void (*on_change_at)(void *arg, const struct rdzv_change_at *at);
    void (*on_notice)(void *arg, const struct rdzv_ask_notice *notice);
    void (*on_dump)(void *arg, const char *why);
    /* Called when an inquiry has begun. The agent answers with one call of member_progress() for
     * each group of each worker, and one last call with is_last = 1. on_behind gets the result. */
    void (*on_ask_progress)(void *arg, uint64_t inquiry);
    void (*on_behind)(void *arg, const struct rdzv_behind *behind);
    /* Called with ASK_RANKS. The agent answers with one member_rank() for each worker. This action
     * may be NULL. */
    void (*on_ask_ranks)(void *arg, uint64_t round);
    /* Called when an operator requests an inspection of this node's workers. The agent answers with
     * member_row() and member_inspected(). */
    void (*on_inspect)(void *arg, uint64_t id, const char *why);
    /* Called when the coordinator has decided that the job hangs, once for each piece of the
     * report. This action may be NULL. */
    void (*on_hung)(void *arg, const struct rdzv_hung *hung);
    /* Called when this node has to begin a paired test. The agent answers with member_paired(). If
     * this action is NULL, the member answers that the test has failed. */
    void (*on_pair)(void *arg, const struct rdzv_pair *pair);
    /* Called when a worker of the job has failed, on this node or another one. */
    void (*on_failure)(void *arg, const struct rdzv_failure *failure);
    /* Called with addresses of nodes of the next round. This action may be NULL. */
    void (*on_nodes)(void *arg, const struct rdzv_nodes *nodes);
};

/* Creates a member. The texts in `settings` are copied, except for `advice`; `actions` must live as
 * long as the member. Returns NULL when memory is short. */
struct member *member_new(const struct member_settings *settings,
                          const struct member_actions *actions, void *arg);
void member_free(struct member *m); /* `m` may be NULL */

/* ---- calls of the agent; none of them calls an on_… action ---- */

/* Requests a place in the next round. `kept` is the number of this node's workers that have parked:
 * they go on in their processes in that round. */
void member_join(struct member *m, int64_t now_ms, uint32_t kept);
/* Notes the result of this node's health check for the JOINs that follow: why the node is not fit,
 * or "" if the node is fit. A node that was not fit and waits sends JOIN again when the result
 * changes. */
void member_set_unfit(struct member *m, const char *why);
void member_failed(struct member *m, int64_t now_ms, uint64_t round, const char *what,
                   enum rendezvous_blame blame);
void member_succeeded(struct member *m, int64_t now_ms, uint64_t round);
void member_change_answer(struct member *m, uint64_t id, int64_t step, int64_t needs_ms);
void member_change_ready(struct member *m, uint64_t id);
void member_notice(struct member *m, int64_t now_ms, uint32_t kind, int64_t left_ms,
                   const char *why);
/* Call this before member_failed() with the evidence about a worker of this node that has failed.
 * Sends the evidence, so that the other nodes have it before the round ends. Sends nothing without
 * a connection. */
void member_failure(struct member *m, const struct rdzv_failure *failure);
/* Requests an inquiry. Does nothing if no round runs, or if the coordinator knows no inquiries. */
void member_inquire(struct member *m);
void member_rank(struct member *m, const struct rdzv_rank *rank);
/* Reports for which reasons the workers may hang; the member fills in `round`. Sends nothing
 * if the report is the same as the last one in this round. If the connection is lost, the report is
 * repeated after RESUME. Returns false if the coordinator does not know such reports, so that the
 * node has to decide by itself. */
bool member_quiet(struct member *m, const struct rdzv_quiet *quiet);
void member_progress(struct member *m, const struct rdzv_progress *progress);

/* Answer on_inspect; `id` is the one that on_inspect got. Call member_row() for each set of workers
 * that are at the same place, then member_inspected() with the number of these calls. Both send
 * nothing without a connection. */
void member_row(struct member *m, const struct rdzv_row *row);
void member_inspected(struct member *m, uint64_t id, uint32_t rows);
/* Answers on_pair: `why` says why the paired test `id` has failed, or is "" if it has passed. Sends
 * nothing without a connection, because a test ends with the connection. */
void member_paired(struct member *m, uint64_t id, const char *why);
/* Call this when the node leaves. The member sends LEAVE. It keeps the connection and the lease
 * while the agent stops the workers; the caller closes the connection when the workers are gone.
 * After this call, on_stop is the only on_… action that is still called: it shortens the time to
 * stop the workers if the connection is lost. */
void member_leave(struct member *m, int64_t now_ms, const char *why);

/* ---- events of the connection and of time ---- */

/* Makes `addr` the address that this node publishes, unless the settings have one (self.addr).
 * `addr` is the node's own address on its connection. Call this before member_welcomed(). */
void member_set_addr(struct member *m, const char *addr);
/* Call this when the session has received WELCOME: the other end is a coordinator that accepts this
 * node, so the try to connect has succeeded. Sends JOIN or RESUME. */
void member_welcomed(struct member *m, int64_t now_ms, const struct rdzv_welcome *welcome);
/* Call this if the node cannot connect, and another try cannot help, because the program that
 * answers at the coordinator's address is not a coordinator. Ends the job on this node with an
 * error text that contains `why`, which names that program. */
void member_give_up(struct member *m, const char *why);
/* Call this when a host has answered MOVED: the next tries go to this address. Call
 * member_disconnected() after it. */
void member_moved(struct member *m, int64_t now_ms, const char *addr, uint16_t port);
/* Call this when a try to connect has failed, or when the connection is gone. After a failed try,
 * plans the next one, or gives up. If the connection is gone, connects again, or makes the agent
 * stop the workers. */
void member_disconnected(struct member *m, int64_t now_ms, enum rendezvous_loss how,
                         const char *why);
/* Handles a message of the coordinator. Call this with each message after WELCOME, and with a final
 * REFUSED at any time. Returns 0; or returns -EPROTO and a text in err if a coordinator must not
 * send the message. On error the caller has to close the connection and call
 * member_disconnected(). */
int member_receive(struct member *m, int64_t now_ms, const struct rdzv_message *msg,
                   struct cr_error *err);
void member_tick(struct member *m, int64_t now_ms); /* does nothing before member_deadline() */
int64_t member_deadline(const struct member *m);    /* CR_FOREVER if there is none */
/* Returns the time at which somebody else has to end the workers if the member cannot, because its
 * process stands still (keep_alive_end()). CR_FOREVER if no lease runs. */
int64_t member_lease_end_ms(const struct member *m);
/* Call this when this process or its machine stood still. slept_ms is the part of that time, in ms,
 * that the clock has not counted, because the machine was suspended. Does what is due at the time
 * limits that have passed. */
void member_stood_still(struct member *m, int64_t now_ms, int64_t slept_ms);
/* Returns the time at which the present series of tries to connect ends; CR_FOREVER if there is no
 * series. */
int64_t member_gives_up_ms(const struct member *m);

/* clang-format off */
/* S(NAME) — each state, its meaning and its time limit. The fence is the time at which the
 * coordinator has not answered for 5/6 of the lease; without a connection there is a fence only in
 * RUNNING, SUCCEEDED, FAILED and STOPPING. */
#define MEMBER_STATES(S) \
    S(IDLE)       /* before the first join. No time limit */ \
    S(CONNECTING) /* tries to connect. Limit: connect_timeout_ms, later coordinator_wait_ms */ \
    S(JOINING)    /* waits for a round. Limit: the fence, or the coordinator's join_timeout */ \
    S(RUNNING)    /* the workers run. Limit: the fence */ \
    S(SUCCEEDED)  /* its workers ended well; it waits for other nodes. Limit: the fence */ \
    S(FAILED)     /* a worker failed; the agent stops the others. Limit: the fence */ \
    S(STOPPING)   /* the agent stops the workers. Limit: the fence; if cut off, the lease */ \
    S(LEAVING)    /* the agent stops the workers, then closes. Limit: the fence */ \
    S(ENDED)      /* the job is over for this node. No time limit */
/* clang-format on */
enum member_state {
#define S(name) MEMBER_##name,
    MEMBER_STATES(S)
#undef S
};
enum member_state member_state(const struct member *m);
const char *member_state_name(enum member_state s);
/* Returns the address that this node publishes; valid until the next event. */
const char *member_addr(const struct member *m);
/* If the node is connected, returns true, and stores the address of its coordinator in *addr and
 * *port, or port 0 if that is the coordinator at the endpoint; else returns false. The text is
 * valid until the next event. */
bool member_leader_at(const struct member *m, const char **addr, uint16_t *port);
uint64_t member_round(const struct member *m); /* number of the last round this node was in */

#endif
