/* A node's connection to the coordinator, at the member's end. Pure: the transport passes received
 * bytes in, and takes the bytes to send from `out`. The object lives as long as its node and serves
 * one connection after the other, because it remembers the largest epoch that the node has obeyed.
 *
 *                opened                WELCOME
 *   CLOSED ────────────────► GREETING ─────────► WELCOMED
 *     ▲                         │                   │
 *     └── closed, or broken ────┴───────────────────┘
 *
 * The transport can be a socket, the memory of one process or a simulated network. It calls:
 *
 *     member_session_open()       when the connection is established
 *     member_session_receive()    for all received bytes, in pieces of any size
 *     member_session_close()      when the connection is gone, or is closed by this end
 *
 * After each of these calls, and after each call of the member, the transport sends the bytes in
 * `out` and removes them. A session calls its actions only from inside member_session_receive(). An
 * action may close the session and open it for another connection. */
#ifndef RENDEZVOUS_MEMBER_SESSION_H
#define RENDEZVOUS_MEMBER_SESSION_H

#include "base/log/log.h"
#include "rendezvous/protocol/message.h"

/* clang-format off */
/* S(NAME) — each state, its meaning and its time limit. The member keeps the time limits. */
#define MEMBER_SESSION_STATES(S) \
    S(CLOSED)   /* no connection. Limit: that of the member's tries to connect */ \
    S(GREETING) /* waits for WELCOME. Limit: that of the try to connect; in a round, the fence */ \
    S(WELCOMED) /* WELCOME has come. Limit: the fence, which each answered beat moves */
/* clang-format on */
enum member_session_state {
#define S(name) MEMBER_SESSION_##name,
    MEMBER_SESSION_STATES(S)
#undef S
};
const char *member_session_state_name(enum member_session_state s);

struct member_session_actions {
    /* WELCOME has come: the other end is a coordinator that accepts this node. The owner calls
     * member_welcomed(), which sends JOIN or RESUME. */
    void (*on_welcome)(void *arg, const struct rdzv_welcome *welcome);
    /* A message has come after WELCOME, or a final REFUSED at any time. The owner calls
     * member_receive(). Returns 0, or -EPROTO and a text in err; after an error on_broken is
     * called. */
    int (*on_message)(void *arg, const struct rdzv_message *m, struct cr_error *err);
    /* The session is now CLOSED, because received bytes or messages were malformed, memory was
     * short, the coordinator has a smaller epoch than this node has obeyed, or it has sent a
     * REFUSED that is not final. The owner closes the connection and calls
     * member_disconnected(). */
    void (*on_broken)(void *arg, const char *why);
    /* The host at the other end does not lead the job; it names the host that does. on_broken is
     * called after this action. This action may be NULL. */
    void (*on_moved)(void *arg, const char *addr, uint16_t port);
    /* Logs one line; called for each change of state. */
    void (*log)(void *arg, enum cr_log_level level, const char *text);
};

/* The owner embeds this struct. It may read `state`, `version`, `epoch` and `out`; all other fields
 * are private. */
struct member_session {
    enum member_session_state state;
    uint32_t version;     /* protocol version of the connection; RDZV_VERSION_MIN before WELCOME */
    uint64_t epoch;       /* largest epoch of a coordinator that this node has obeyed; 0 = none */
    struct cr_buffer out; /* bytes that the transport has to send */

    const struct member_session_actions *actions;
    void *arg;
    uint64_t opened;      /* number of times that the session was opened */
    struct cr_buffer in;  /* bytes received but not handled yet */
};

/* Sets the session to CLOSED. `actions` must live as long as the session. */
void member_session_init(struct member_session *s, const struct member_session_actions *actions,
                         void *arg);
/* Frees the buffers. Calls no action. */
void member_session_done(struct member_session *s);

/* Opens the session for a new connection: empties the buffers, and queues the magic number and
 * HELLO. Returns 0 or -ENOMEM; on error the caller has to close the connection. */
int member_session_open(struct member_session *s, const char *run_id);
void member_session_receive(struct member_session *s, const char *data, size_t len);
/* Queues a message, or leaves it out if the connection's version does not have it. Returns 0 or
 * -ENOMEM; on error the caller has to close the connection, because the coordinator would miss this
 * message. */
int member_session_send(struct member_session *s, const struct rdzv_message *m);
/* Closes the session without calling on_broken. The caller may still send the bytes in `out`. */
void member_session_close(struct member_session *s, const char *why);

#endif
