/* The client on a loop, in parts.
 *
 *   client_async.c           its life: states, the one timer, losing the connection, closing
 *   client_async_open.c      finding the server and what it is; connecting an old one afresh
 *   client_async_question.c  asking whether the server has an operation
 *   client_async_link.c      one connection: libuv is in here
 *   client_async_calls.c     the queue: calls one after the other, their time, their end
 *   client_async_plan.c      what one call exchanges with the server, step by step (pure)
 *   client_async_ops.c       the calls of client_async.h
 *
 *   PAUSE ─▶ RESOLVE ─▶ DIAL ────────▶ READY ─▶ LOST
 *     ▲                 │ ▲  ▲          │  ▲
 *     └──── later ──────┘ │  └CONFIRM   ▼  │
 *                     at once          RENEW ─▶ LOST       closing: from any state, at any time
 *
 * RENEW: an old server keeps a wait that was given up, so it is left and connected to afresh. Calls
 * queue there as in READY.
 *
 * Callbacks of libuv end in a handler of the link's owner; only store_async_enter() writes the state;
 * only store_async_release() frees. A user's callback runs from the loop alone: what is decided
 * inside a call of the user's is told from the timer. */
#ifndef STORE_CLIENT_ASYNC_INTERNAL_H
#define STORE_CLIENT_ASYNC_INTERNAL_H

#include "store/answer_internal.h"
#include "store/call_text_internal.h"
#include "store/client_async.h"
#include "store/fallback_internal.h"
#include "store/probe_internal.h"

#include "base/address.h"

#include <sys/socket.h>

/* ---- one connection ---- */

struct store_async_link;

/* What its owner hears, from the loop only. After `failed` nothing more comes; closing it is the
 * owner's business, at any time. */
struct store_async_events {
    void (*up)(struct store_async *a);       /* connected, and the handshake was answered */
    void (*answered)(struct store_async *a); /* store_async_link_answer() is whole */
    void (*failed)(struct store_async *a, int code, const char *reason); /* reason may be NULL */
};

/* Begins to connect and to shake hands. The link holds `a` until libuv has let it go. */
int store_async_link_open(struct store_async *a, const struct sockaddr *to,
                          enum store_handshake how, const struct store_async_events *on,
                          struct store_async_link **out);
int store_async_link_connected(const struct store_async_link *l);

/* Sends the bytes, which it takes also on failure. 0 or negative; later failures are events. */
int store_async_link_send(struct store_async_link *l, struct cr_buffer *bytes);

/* From now on bytes are expected: one reply. Without that, bytes are a failure. */
void store_async_link_expect(struct store_async_link *l, enum store_reply shape, size_t item_count);
struct store_answer *store_async_link_answer(struct store_async_link *l);

/* No event comes any more; *l becomes NULL. NULL is fine. */
void store_async_link_close(struct store_async_link **l);

/* ---- one call: its arguments, and the steps that it consists of ---- */

/* A request and its reply. */
struct store_exchange {
    enum store_op op;
    const struct store_bytes *keys, *values;
    size_t key_count;
    int64_t number;
    int with_grace; /* it should answer at once, also when the call's own time is over */
};

struct store_async_call {
    struct store_async_call *next;

    /* as made */
    enum store_op op;
    const struct store_bytes *keys, *values; /* in `items` */
    size_t key_count, value_count;
    int64_t number;
    int is_raw; /* the key has no '/' in front */
    int64_t timeout_ms, deadline_ms;
    char what[STORE_CALL_TEXT_MAX];
    store_async_fn done;
    void *arg;

    /* under way */
    struct store_exchange step;
    int in_flight;      /* the step was sent, its reply is due */
    int is_cancelling;  /* CANCEL_WAIT was sent: its answer ends the call with -ETIMEDOUT */
    int64_t expires_ms; /* of the step, or of waiting for its turn */
    int is_over;        /* how it ended is known, and told from the timer */
    int code;
    const char *reason; /* why it failed; NULL: the code says it */

    /* where the plan stands */
    int is_composed; /* the server lacks the operation: it is made of others */
    size_t item;     /* multi_get: values that came */
    int rounds;      /* queue_pop: waits that ended in an empty queue */
    struct store_list_builder list;
    struct cr_buffer name, wanted; /* barrier: a counter's key; append: the whole new value */
    void *seen;                    /* append: the value that it believes to be there */
    size_t seen_len;
    struct store_bytes pair[2]; /* what the step's keys or values are, where not the call's own */

    struct store_bytes items[]; /* copies: the keys, the values; their bytes follow */
};

/* ---- the plan of a call ---- */

enum store_plan { STORE_PLAN_END, STORE_PLAN_STEP }; /* or a negative code, with c->reason */

/* Without time, it is asked once whether the keys are there. */
int store_plan_looks(const struct store_async_call *c);
/* The first step. `has`: the server has the operation itself. */
int store_plan_begin(struct store_async_call *c, enum store_dialect dialect, int has);
/* The next one, after the reply to a step. */
int store_plan_next(struct store_async_call *c, enum store_dialect dialect, struct store_answer *a,
                    int time_is_up);
/* The step as a request. 0, -ENOMEM. */
int store_plan_encode(const struct store_async_call *c, enum store_dialect dialect,
                      struct cr_buffer *out);
/* The step has a reply to wait for. */
int store_plan_has_reply(const struct store_async_call *c);
/* What the call returned. 0 or -ENOMEM; the value is the caller's to free. */
int store_plan_result(struct store_async_call *c, struct store_answer *a,
                      struct store_async_result *result, void **value);
void store_plan_done(struct store_async_call *c);

/* ---- the client ---- */

#define STORE_ASYNC_STATES(X)                                                                      \
    X(RESOLVE) X(DIAL) X(CONFIRM) X(PAUSE) X(READY) X(RENEW) X(LOST) X(CLOSING)

enum store_async_state {
#define X(name) STORE_ASYNC_##name,
    STORE_ASYNC_STATES(X)
#undef X
};

struct store_async {
    enum store_async_state state;
    uv_timer_t timer;
    int held; /* by the timer, the links and the resolver */

    /* opening */
    char host[CR_HOST_MAX];
    uint16_t port;
    int64_t timeout_ms, deadline_ms;
    int64_t until_ms;       /* of the state; calls have their own */
    int64_t shake_until_ms; /* DIAL: of the handshake, once it is connected */
    struct store_probe probe;
    struct store_pace pace;
    uv_getaddrinfo_t resolve;
    int resolving;
    struct addrinfo *addresses, *address; /* all, and the one to try */
    int best_failure;                     /* of the addresses tried in this round */
    struct cr_error why;                  /* the attempt before failed */
    store_async_fn opened;
    void *opened_arg;

    /* the connection */
    struct store_async_link *link;
    struct sockaddr_storage to;
    char peer[CR_ADDRESS_MAX];
    int8_t knows[STORE_OP_COUNT];       /* as in probe_internal.h */
    char given_up[STORE_CALL_TEXT_MAX]; /* RENEW: the wait that it is for */
    struct cr_error lost;

    /* the question of the first call */
    struct store_async_link *asking;
    enum store_op question;
    int answers;
    int asked; /* it was sent */

    /* calls */
    struct store_async_call *first, *last;
    size_t call_count;

    void (*closed)(void *arg);
    void *closed_arg;
};

/* client_async.c */
void store_async_enter(struct store_async *a, enum store_async_state next);
void store_async_arm(struct store_async *a); /* the timer, for whatever is due first */
void store_async_lose(struct store_async *a, int code, const char *reason);
void store_async_release(struct store_async *a); /* one holder less */

/* client_async_open.c */
void store_async_start(struct store_async *a);
void store_async_opening_late(struct store_async *a);
void store_async_renew(struct store_async *a, const char *given_up);
void store_async_finish_opening(struct store_async *a, const struct cr_error *err);

/* client_async_question.c */
int store_async_ask(struct store_async *a, enum store_op question);

/* client_async_calls.c */
enum store_dialect store_async_dialect(const struct store_async *a);
void store_async_submit(struct store_async *a, struct store_async_call *c);
void store_async_free_call(struct store_async_call *c);
void store_async_start_first(struct store_async *a);
void store_async_answered(struct store_async *a);
void store_async_asked(struct store_async *a, const char *reason, int code);
int64_t store_async_calls_due(const struct store_async *a);
void store_async_calls_late(struct store_async *a);
void store_async_end_all(struct store_async *a, enum store_async_state in,
                         const struct cr_error *err);

#endif
