/* One connection of a node or an operator, as the coordinator's end sees it. Pure: the transport
 * gives bytes and the time, and gets bytes back in `out`.
 *
 *         magic       HELLO       JOIN              END sent
 *   MAGIC ─────► HELLO ─────► JOIN ─────► SEATED ──────────────► ENDING
 *     │            │            │           │ hung up, refused      │
 *     └────────────┴────────────┴───────────┴──────► CLOSING ◄──────┘
 *          not ours, refused, STATUS or OPERATE answered │
 *                                                        ▼
 *               any state ── transport closed, time up ──► CLOSED
 *
 * How a transport drives it, be it a socket, the memory of one process or a simulated network:
 *
 *     host_session_open()       once, when the connection is there
 *     host_session_receive()    for all bytes that arrive, in pieces of any size
 *     host_session_tick()       at host_session_deadline()
 *     host_session_lost()       when the connection is gone
 *
 * After each of these calls, and after each call of the coordinator, which may have sent
 * something to any session, the transport looks at three things:
 *
 *     out.len > 0       send these bytes, then remove them from `out`
 *     state CLOSING     once `out` is sent: send end-of-file, and wait for the other end to close
 *     state CLOSED      close the connection; nothing follows
 *
 * A session never calls the transport. It calls its actions only from inside the functions
 * below. */
#ifndef RENDEZVOUS_HOST_SESSION_H
#define RENDEZVOUS_HOST_SESSION_H

#include "base/log.h"
#include "rendezvous/protocol/message.h"

#include <stdbool.h>

#define SESSION_GREETING_MS                                                                        \
    INT64_C(10000) /* from opening to the seat, or to the operator's answer */
#define SESSION_LINGER_MS   INT64_C(2000)  /* for the other end to close after our last message */

/* clang-format off */
/* S(NAME) — what limits the time in this state. A session in the coordinator's own process
 * (`local`) has no limits. */
#define HOST_SESSION_STATES(S) \
    S(NEW)      /* not opened yet: none */ \
    S(MAGIC)    /* waits for the magic number: SESSION_GREETING_MS from opening */ \
    S(HELLO)    /* waits for HELLO, STATUS or OPERATE: the same limit goes on */ \
    S(JOIN)     /* waits for JOIN: the same limit goes on */ \
    S(SEATED)   /* has a seat: the coordinator's lease, not the session */ \
    S(ENDING)   /* was sent END; the node closes next: close_timeout_ms of the terms */ \
    S(CLOSING)  /* our last bytes are queued; input is ignored: SESSION_LINGER_MS */ \
    S(CLOSED)   /* over: none */
/* clang-format on */
enum host_session_state {
#define S(name) HOST_SESSION_##name,
    HOST_SESSION_STATES(S)
#undef S
};
const char *host_session_state_name(enum host_session_state s);

/* What all sessions of one host share. The host may change the fields between two calls. */
struct host_session_terms {
    bool leads;              /* nodes are welcome; false: this host is not elected (any more) */
    uint64_t epoch;          /* of an elected host; else 0 */
    const char *closing;     /* why the host closes and refuses all nodes; NULL: it does not */
    int64_t close_timeout_ms;
};

/* All texts and messages are borrowed for the call. The error of an action that fails is sent to
 * the node as REFUSED. */
struct host_session_actions {
    /* A node names its job. Returns 0, or a negative errno with a text. */
    int (*on_hello)(void *arg, const struct rdzv_hello *hello, struct cr_error *err);
    /* It asks for a seat. Returns 0 if it has one now. Else the coordinator has sent it the reason
     * (REFUSED or END) through host_session_send(), and the session closes. */
    int (*on_join)(void *arg, const struct rdzv_join *join);
    /* A message of a node with a seat. Returns 0, or -EPROTO with a text: on_lost follows. */
    int (*on_message)(void *arg, const struct rdzv_message *m, struct cr_error *err);
    /* The node's seat is empty from now on. Comes once for a session with a seat, unless
     * host_session_hang_up() was called before. */
    void (*on_lost)(void *arg, const char *why);
    /* An operator's question or order. Answered by host_session_send() inside the call; the session
     * closes afterwards. on_operate returns 0, or a negative errno with a text. */
    void (*on_status)(void *arg);
    int (*on_operate)(void *arg, const struct rdzv_operate *what, struct cr_error *err);
    /* One line for each change of state. */
    void (*log)(void *arg, enum cr_log_level level, const char *text);
};

/* Embedded by its owner, who reads `state` and `out` and leaves the rest alone. */
struct host_session {
    enum host_session_state state;
    struct cr_buffer out; /* to be sent */

    const struct host_session_terms *terms;
    const struct host_session_actions *actions;
    void *arg;
    bool local, seated;
    int64_t limit_ms;     /* the time of this state is up then */
    struct cr_buffer in;  /* not handled yet */
};

/* `terms` and `actions` are borrowed for the life of the session. `local`: the node lives in this
 * process. */
void host_session_open(struct host_session *s, int64_t now_ms, bool local,
                       const struct host_session_terms *terms,
                       const struct host_session_actions *actions, void *arg);

/* Frees the buffers. Calls no action. */
void host_session_done(struct host_session *s);

void host_session_receive(struct host_session *s, int64_t now_ms, const char *data, size_t len);
void host_session_lost(struct host_session *s, int64_t now_ms, const char *why);
void host_session_tick(struct host_session *s, int64_t now_ms); /* early calls do nothing */
int64_t host_session_deadline(const struct host_session *s);    /* CR_FOREVER: none */

/* For the coordinator's actions: these call no action themselves. */
void host_session_send(struct host_session *s, int64_t now_ms, const struct rdzv_message *m);
/* Sends nothing more. The seat is gone already; on_lost does not follow. */
void host_session_hang_up(struct host_session *s, int64_t now_ms);

#endif
