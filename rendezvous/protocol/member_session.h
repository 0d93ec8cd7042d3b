/* A node's connection to the coordinator, as the member's end sees it. Pure: the transport gives
 * bytes and gets bytes back in `out`. The object lives as long as its node and serves one
 * connection after the other, because it remembers the newest epoch that the node has obeyed.
 *
 *                opened                WELCOME
 *   CLOSED ────────────────► GREETING ─────────► WELCOMED
 *     ▲                         │                   │
 *     └── closed, or broken ────┴───────────────────┘
 *
 * How a transport drives it, be it a socket, the memory of one process or a simulated network:
 *
 *     member_session_open()       when the connection is there; then member_connected()
 *     member_session_receive()    for all bytes that arrive, in pieces of any size
 *     member_session_close()      when the connection is gone, or is closed by this end
 *
 * After each of these calls, and after each call of the member, send `out` and remove the bytes.
 * A session calls its actions only from inside member_session_receive(). Inside an action the
 * owner may close the session and open it for another connection. */
#ifndef RENDEZVOUS_MEMBER_SESSION_H
#define RENDEZVOUS_MEMBER_SESSION_H

#include "base/log.h"
#include "rendezvous/protocol/message.h"

/* clang-format off */
/* S(NAME) — what limits the time in this state. */
#define MEMBER_SESSION_STATES(S) \
    S(CLOSED)   /* no connection: the member's time to connect */ \
    S(GREETING) /* HELLO is sent, waits for WELCOME: the member's fence, 5/6 of its lease */ \
    S(WELCOMED) /* messages flow: the same fence, which each answered beat moves */
/* clang-format on */
enum member_session_state {
#define S(name) MEMBER_SESSION_##name,
    MEMBER_SESSION_STATES(S)
#undef S
};
const char *member_session_state_name(enum member_session_state s);

struct member_session_actions {
    /* The coordinator wants this node: call member_welcomed(). */
    void (*on_welcome)(void *arg);
    /* Any later message, and REFUSED if it is final: call member_receive(). Returns 0, or
     * -EPROTO with a text: on_broken follows. */
    int (*on_message)(void *arg, const struct rdzv_message *m, struct cr_error *err);
    /* The session is CLOSED: the bytes were not understood, the coordinator is older than one
     * that this node has obeyed, or it refuses the node for now. Close the connection and call
     * member_disconnected(). */
    void (*on_broken)(void *arg, const char *why);
    /* One line for each change of state. */
    void (*log)(void *arg, enum cr_log_level level, const char *text);
};

/* Embedded by its owner, who reads `state`, `epoch` and `out` and leaves the rest alone. */
struct member_session {
    enum member_session_state state;
    uint64_t epoch;       /* of the newest coordinator that this node has obeyed; 0 = none */
    struct cr_buffer out; /* to be sent */

    const struct member_session_actions *actions;
    void *arg;
    uint64_t opened;      /* how many times */
    struct cr_buffer in;  /* not handled yet */
};

/* `actions` is borrowed for the life of the session. */
void member_session_init(struct member_session *s, const struct member_session_actions *actions,
                         void *arg);
/* Frees the buffers. Calls no action. */
void member_session_done(struct member_session *s);

/* Begins with empty buffers, and queues the magic number and HELLO. Returns 0 or -ENOMEM; then the
 * connection must be closed. */
int member_session_open(struct member_session *s, const char *run_id);
void member_session_receive(struct member_session *s, const char *data, size_t len);
/* Queues a message. Returns 0 or -ENOMEM: then a message is missing, and the connection must
 * end. */
int member_session_send(struct member_session *s, const struct rdzv_message *m);
/* Calls no action. What is in `out` may still be sent. */
void member_session_close(struct member_session *s, const char *why);

#endif
