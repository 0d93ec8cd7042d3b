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
 * A connection that is lost in a round is no reason to stop the workers: the member connects again
 * and sends RESUME (resuming.c). The workers are stopped when the coordinator has not answered for
 * 5/6 of the lease (the fence), because after the lease it may give their ranks to other nodes.
 * They are stopped at once if the coordinator has closed the connection and will not come back. */
#ifndef RENDEZVOUS_MEMBER_H
#define RENDEZVOUS_MEMBER_H

#include "base/error.h"
#include "base/log.h"
#include "rendezvous/protocol/protocol.h"

#include <stdbool.h>
#include <stdint.h>

struct member;

struct member_settings {
    const char *where;     /* the coordinator as "host:port", for error texts */
    /* addresses of coordinator and node, for error texts; may be "" or NULL */
    const char *facts;
    struct rdzv_join self; /* the JOIN to send; the member itself sets its fields about rounds */
    bool local;            /* the coordinator is in this process, so there is no lease */
    int64_t connect_timeout_ms;  /* limit of the first series of tries to connect */
    /* limit of each later series; one try is always made. -1 = 60 s for a coordinator that is not
     * in a launcher, else 0 */
    int64_t coordinator_wait_ms;
};

/* What the member calls to act. The on_… actions call the agent; they come last in each event, so
 * the agent may call the member from inside them. The other actions must not call the member. Texts
 * and messages are valid until the action returns. */
struct member_actions {
    /* Starts to connect. The caller reports the result later, by member_welcomed() or
     * member_disconnected(). */
    void (*connect)(void *arg);
    void (*send)(void *arg, const struct rdzv_message *m);
    /* Sends the queued messages and closes the connection, or stops connecting. The caller must not
     * call member_disconnected() for it. */
    void (*hang_up)(void *arg);
    /* Logs one line; called for each change of state. */
    void (*log)(void *arg, enum cr_log_level level, const char *text);
    void (*on_round)(void *arg, const struct rdzv_round *round);
    void (*on_stop)(void *arg, int64_t grace_max_ms, const char *why);
    /* `outcome` is an enum rendezvous_outcome */
    void (*on_end)(void *arg, int outcome, const char *why);
    void (*on_change)(void *arg, const struct rdzv_change *change);
    void (*on_change_at)(void *arg, const struct rdzv_change_at *at);
    void (*on_notice)(void *arg, const struct rdzv_ask_notice *notice);
    void (*on_dump)(void *arg, const char *why);
};

/* Creates a member. The texts in `settings` are copied; `actions` must live as long as the member.
 * Returns NULL when memory is short. */
struct member *member_new(const struct member_settings *settings,
                          const struct member_actions *actions, void *arg);
void member_free(struct member *m); /* `m` may be NULL */

/* ---- calls of the agent; none of them calls an on_… action before it returns ---- */

void member_join(struct member *m, int64_t now_ms);
void member_failed(struct member *m, int64_t now_ms, uint64_t round, const char *what,
                   bool is_killed);
void member_succeeded(struct member *m, int64_t now_ms, uint64_t round);
void member_change_answer(struct member *m, uint64_t id, int64_t step, int64_t needs_ms);
void member_change_ready(struct member *m, uint64_t id);
void member_notice(struct member *m, int64_t now_ms, uint32_t kind, int64_t left_ms,
                   const char *why);
/* Call this when the node leaves. The member sends LEAVE, and keeps the connection and the lease
 * until the caller closes them, which it does when the workers are gone. The only on_… action that
 * can follow is an on_stop that shortens the time to stop the workers. */
void member_leave(struct member *m, int64_t now_ms, const char *why);

/* ---- events of the connection and of time ---- */

/* Sets the address that this node publishes to `addr`, its address on the connection, unless the
 * settings have one (self.addr). Call it before member_welcomed(). */
void member_set_addr(struct member *m, const char *addr);
/* Call this when the session has received WELCOME, which shows that the other end is a coordinator
 * that accepts this node. Only then has a try to connect succeeded. It sends JOIN or RESUME. */
void member_welcomed(struct member *m, int64_t now_ms, const struct rdzv_welcome *welcome);
/* Call this when the node cannot connect and another try cannot help. It ends the job on this node;
 * `why` is the end of a sentence that says who should be a coordinator. */
void member_give_up(struct member *m, const char *why);
/* Call this when a try to connect has failed, or when the connection is gone. */
void member_disconnected(struct member *m, int64_t now_ms, enum rendezvous_loss how,
                         const char *why);
/* Call this with each message after WELCOME, and with a final REFUSED before it. Returns 0, or
 * -EPROTO and a text in err if a coordinator must not send the message; on error the caller has to
 * close the connection and call member_disconnected(). */
int member_receive(struct member *m, int64_t now_ms, const struct rdzv_message *msg,
                   struct cr_error *err);
void member_tick(struct member *m, int64_t now_ms); /* does nothing before member_deadline() */
int64_t member_deadline(const struct member *m);    /* CR_FOREVER = no deadline */
/* Returns the time at which the current series of tries to connect ends; CR_FOREVER = none. */
int64_t member_gives_up_ms(const struct member *m);

/* clang-format off */
/* S(NAME) — each state, its meaning and its time limit. "The fence" is the time after which 5/6 of
 * the lease have passed without an answer from the coordinator; without a connection it applies in
 * RUNNING, SUCCEEDED, FAILED and STOPPING. */
#define MEMBER_STATES(S) \
    S(IDLE)       /* before the first join. No time limit */ \
    S(CONNECTING) /* tries to connect. Limit: connect_timeout_ms, later coordinator_wait_ms */ \
    S(JOINING)    /* waits for a round. Limit: the fence; the coordinator's join_timeout */ \
    S(RUNNING)    /* the workers run. Limit: the fence */ \
    S(SUCCEEDED)  /* its workers ended well, it waits for the other nodes. Limit: the fence */ \
    S(FAILED)     /* a worker failed, the agent stops the others. Limit: the fence */ \
    S(STOPPING)   /* the agent stops its workers. Limit: the fence; if cut off, the lease */ \
    S(LEAVING)    /* the agent stops its workers and closes. Limit: the fence */ \
    S(ENDED)      /* the job is over for this node. No time limit */
/* clang-format on */
enum member_state {
#define S(name) MEMBER_##name,
    MEMBER_STATES(S)
#undef S
};
enum member_state member_state(const struct member *m);
const char *member_state_name(enum member_state s);
uint64_t member_round(const struct member *m); /* number of the last round this node was in */

#endif
