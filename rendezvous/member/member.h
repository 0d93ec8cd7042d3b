/* One node's side of the rendezvous: it keeps the connection to the coordinator, sends what its
 * agent reports, and calls the agent with what the coordinator decides. Pure: every function
 * gets the time, and what is to be done goes out through `struct member_actions`.
 * rendezvous/protocol has the bytes.
 *
 *   IDLE ─join─► CONNECTING ─connected─► JOINING ─ROUND─► RUNNING ─succeeded─► SUCCEEDED
 *                   ▲                       ▲                │ failed              │
 *                   │ disconnected          │                ▼                     │
 *                   └────────── join ───────┴─── STOPPING ◄─ FAILED ◄──── STOP ────┘
 *   any ─leave─► LEAVING     any ─END, REFUSED, time up─► ENDED
 *
 * A node is cut off when its connection is closed, or when the coordinator has not answered for
 * 5/6 of the lease. It then ends its workers before the lease is over, because the coordinator
 * may give their ranks to other nodes after that. */
#ifndef RENDEZVOUS_MEMBER_H
#define RENDEZVOUS_MEMBER_H

#include "base/error.h"
#include "base/log.h"
#include "rendezvous/protocol/protocol.h"

#include <stdbool.h>
#include <stdint.h>

struct member;

struct member_settings {
    const char *where;     /* the coordinator, for messages: "host:port" */
    const char *facts;     /* about its address and ours, for messages; may be "" or NULL */
    struct rdzv_join self; /* what this node reports about itself; fields of rounds are ignored */
    bool local;            /* the coordinator runs in this process: no keep-alive, no lease */
    int64_t connect_timeout_ms;  /* for the first connection, all tries together */
    int64_t coordinator_wait_ms; /* for later ones; one try is always made */
};

/* The on_… actions are upcalls to the agent: the member has taken its new state already, and may
 * be called again from inside. None of the others may call the member. Texts are borrowed for
 * the call. */
struct member_actions {
    /* Starts to connect. Answered later by member_connected() or member_disconnected(). */
    void (*connect)(void *arg);
    void (*send)(void *arg, const struct rdzv_message *m);
    /* Sends what is queued and closes, or cancels connecting. No member_disconnected() follows. */
    void (*hang_up)(void *arg);
    /* One line for each change of state. */
    void (*log)(void *arg, enum cr_log_level level, const char *text);
    void (*on_round)(void *arg, const struct rdzv_round *round);
    void (*on_stop)(void *arg, int64_t grace_max_ms, const char *why);
    void (*on_end)(void *arg, int outcome, const char *why); /* enum rendezvous_outcome */
    void (*on_change)(void *arg, const struct rdzv_change *change);
    void (*on_change_at)(void *arg, const struct rdzv_change_at *at);
    void (*on_notice)(void *arg, const struct rdzv_ask_notice *notice);
    void (*on_dump)(void *arg, const char *why);
};

/* Texts in `settings` are copied, `actions` is borrowed. NULL when memory is short. */
struct member *member_new(const struct member_settings *settings,
                          const struct member_actions *actions, void *arg);
void member_free(struct member *m); /* NULL is fine */

/* ---- calls of the agent; none of them leads to an upcall before it returns ---- */

void member_join(struct member *m, int64_t now_ms);
void member_failed(struct member *m, int64_t now_ms, uint64_t round, const char *what);
void member_succeeded(struct member *m, int64_t now_ms, uint64_t round);
void member_change_answer(struct member *m, uint64_t id, int64_t step, int64_t needs_ms);
void member_change_ready(struct member *m, uint64_t id);
void member_notice(struct member *m, uint32_t kind, int64_t left_ms, const char *why);
/* The only upcall that may follow is an on_stop that shortens the time for ending the workers. The
 * connection stays and is kept alive until the shell closes it, when the workers are gone. */
void member_leave(struct member *m, int64_t now_ms, const char *why);

/* ---- events of the connection and of time ---- */

/* This node's address as the connection shows it. Used only if `self.addr` is "". Call it before
 * member_connected(). */
void member_set_addr(struct member *m, const char *addr);
/* The connection is there and its session is open: sends JOIN. */
void member_connected(struct member *m, int64_t now_ms);
/* The session has got WELCOME: the other end is a coordinator that wants this node. */
void member_welcomed(struct member *m);
/* The connection could not be made, or is gone. */
void member_disconnected(struct member *m, int64_t now_ms, const char *why);
/* Any message after WELCOME, or REFUSED. Returns 0, or -EPROTO with a text if a coordinator
 * never sends this message: then hang up and call member_disconnected(). */
int member_receive(struct member *m, int64_t now_ms, const struct rdzv_message *msg,
                   struct cr_error *err);
void member_tick(struct member *m, int64_t now_ms); /* early calls do nothing */
int64_t member_deadline(const struct member *m);    /* CR_FOREVER: none */

/* clang-format off */
/* S(NAME) — what limits the time in this state. "The fence" is 5/6 of the lease without an
 * answer. */
#define MEMBER_STATES(S) \
    S(IDLE)       /* before the first join: none */ \
    S(CONNECTING) /* connect_timeout_ms at first, later coordinator_wait_ms; each try: a lease */ \
    S(JOINING)    /* waits for a round: the coordinator's join_timeout; the fence */ \
    S(RUNNING)    /* the fence */ \
    S(SUCCEEDED)  /* waits for the other nodes: the fence */ \
    S(FAILED)     /* the agent ends its workers and joins again: the fence */ \
    S(STOPPING)   /* the same after a STOP; when cut off, the rest of the lease */ \
    S(LEAVING)    /* the agent ends its workers and closes: the fence */ \
    S(ENDED)      /* none */
/* clang-format on */
enum member_state {
#define S(name) MEMBER_##name,
    MEMBER_STATES(S)
#undef S
};
enum member_state member_state(const struct member *m);
const char *member_state_name(enum member_state s);
uint64_t member_round(const struct member *m); /* the last round this node was in */

#endif
