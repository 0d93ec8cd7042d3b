/* One node's side of the rendezvous: keeps the connection to the coordinator, says what its agent
 * says, and passes on what the coordinator decides. Pure, like the coordinator.
 *
 *   IDLE ─join─► LINKING ─linked─► JOINING ─ROUND─► RUNNING ─succeeded─► SUCCEEDED
 *                   ▲                 ▲                │ failed              │
 *                   │ cut off         │                ▼                     │
 *                   └─────── join ────┴──── STOPPING ◄─┴ FAILED ◄── STOP ────┘
 *   any ─leave─► LEAVING     any ─END, REFUSED, time up─► ENDED
 *
 * Being cut off (connection closed, or silent for most of the lease) stops the workers within the
 * lease: after that the coordinator may have given our ranks to others. */
#ifndef RENDEZVOUS_MEMBER_H
#define RENDEZVOUS_MEMBER_H

#include "base/error.h"
#include "rendezvous/protocol/message.h"

#include <stdint.h>

struct member;

struct member_settings {
    const char *run_id;
    const char *where;    /* the coordinator, for messages: "host:port" */
    const char *facts;    /* about its address and ours, for messages; may be "" */
    struct rdzv_join self; /* what we say of ourselves; the parts about earlier rounds are ignored */
    int local;            /* the coordinator lives in this process: no keep-alive, no lease */
    int64_t connect_timeout_ms;  /* for the first connection, all attempts together */
    int64_t coordinator_wait_ms; /* for later ones; one attempt is always made */
};

/* on_… are upcalls: the member is in its new state already and may be called again from inside. */
struct member_actions {
    /* Starts connecting; answered, later, by member_linked or member_unlinked. */
    void (*connect)(void *arg);
    void (*send)(void *arg, const struct rdzv_message *m);
    /* Sends what is queued and closes, or cancels connecting. No member_unlinked follows. */
    void (*hang_up)(void *arg);
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
void member_free(struct member *m);

/* ---- what the agent says; none of these leads to an upcall before it returns ---- */
void member_join(struct member *m, int64_t now_ms);
void member_failed(struct member *m, int64_t now_ms, uint64_t round, const char *what);
void member_succeeded(struct member *m, int64_t now_ms, uint64_t round);
void member_change_answer(struct member *m, uint64_t id, int64_t step, int64_t needs_ms);
void member_change_ready(struct member *m, uint64_t id);
void member_notice(struct member *m, uint32_t kind, int64_t left_ms, const char *why);
/* No upcall follows but an on_stop that hastens. The connection stays, and is kept alive, until the shell closes it, when the
 * workers are gone. */
void member_leave(struct member *m, int64_t now_ms, const char *why);

/* ---- what happens ---- */

/* Our address, as the connection shows it; only when none was given. Before member_linked. */
void member_set_addr(struct member *m, const char *addr);
void member_linked(struct member *m, int64_t now_ms);
void member_unlinked(struct member *m, int64_t now_ms, const char *why);
/* Returns 0, or -EPROTO (a coordinator does not say that): then hang up, call member_unlinked. */
int member_receive(struct member *m, int64_t now_ms, const struct rdzv_message *msg,
                   struct cr_error *err);
void member_tick(struct member *m, int64_t now_ms); /* early calls do nothing */
int64_t member_deadline(const struct member *m);    /* CR_FOREVER: none */

/* clang-format off */
#define MEMBER_STATES(S) \
    S(IDLE) S(LINKING) S(JOINING) S(RUNNING) S(SUCCEEDED) S(FAILED) S(STOPPING) S(LEAVING) S(ENDED)
/* clang-format on */
enum member_state {
#define S(name) MEMBER_##name,
    MEMBER_STATES(S)
#undef S
};
enum member_state member_state(const struct member *m);
const char *member_state_name(enum member_state s);
uint64_t member_round(const struct member *m);

#endif
