/* One connection of a node or an operator, at the coordinator's end. Pure: the transport passes
 * received bytes and the time in, and takes the bytes to send from `out`.
 *
 *         magic       HELLO       JOIN              END sent
 *   MAGIC ─────► HELLO ─────► JOIN ─────► SEATED ──────────────► ENDING
 *     │            │            │           │ hung up, refused      │
 *     └────────────┴────────────┴───────────┴──────► CLOSING ◄──────┘
 *          not ours, refused, STATUS or OPERATE answered │
 *          (an order to inspect first leads to INSPECTING,│
 *           and RELAY in place of HELLO to RELAYING)      │
 *                                                        ▼
 *               any state ── transport closed, time up ──► CLOSED
 *
 * The transport can be a socket, the memory of one process or a simulated network. It calls:
 *
 *     host_session_open()       once, when the connection is established
 *     host_session_receive()    for all received bytes, in pieces of any size
 *     host_session_tick()       at host_session_deadline()
 *     host_session_lost()       when the connection is gone
 *
 * After each of these calls the transport checks three things. It also checks them after each call
 * of the coordinator, because the coordinator may have sent a message to any session:
 *
 *     out.len > 0       send these bytes, then remove them from `out`
 *     state CLOSING     once `out` is sent, send end-of-file, and wait until the other end closes
 *     state CLOSED      close the connection; nothing follows
 *
 * A session never calls the transport. It calls its actions only from inside the functions of this
 * header. */
#ifndef RENDEZVOUS_HOST_SESSION_H
#define RENDEZVOUS_HOST_SESSION_H

#include "base/log/log.h"
#include "rendezvous/protocol/message.h"
#include "rendezvous/types.h"

#include <stdbool.h>

/* time limit in ms from the opening of a session to the seat, or to the answer for an operator */
#define SESSION_GREETING_MS INT64_C(10000)
/* time limit in ms for the other end to close its connection after the last message of this end */
#define SESSION_LINGER_MS   INT64_C(2000)
/* time limit in ms for all nodes to answer an order to inspect their workers */
#define SESSION_INSPECT_MS  INT64_C(8000)
/* time limit in ms for a relay to send something; it sends a HOLD every SESSION_RELAY_MS / 4 */
#define SESSION_RELAY_MS    INT64_C(40000)

/* clang-format off */
/* S(NAME) — each state, its meaning and its time limit. A session with a node in the
 * coordinator's own process (`local`) has no time limits. */
#define HOST_SESSION_STATES(S) \
    S(NEW)      /* host_session_open() was not called yet. No time limit */ \
    S(MAGIC)    /* waits for the magic number. Limit: SESSION_GREETING_MS since opening */ \
    S(HELLO)    /* waits for HELLO, STATUS or OPERATE. Limit: SESSION_GREETING_MS since opening */ \
    S(RELAYING) /* serves a relay's trunk. Limit: SESSION_RELAY_MS since last received bytes */ \
    S(INSPECTING) /* sends nodes' rows to an operator. Limit: SESSION_INSPECT_MS since OPERATE */ \
    S(JOIN)     /* waits for JOIN or RESUME. Limit: SESSION_GREETING_MS since opening */ \
    S(SEATED)   /* the node has a seat. No time limit here: the coordinator checks its lease */ \
    S(ENDING)   /* END was sent; the node closes the connection. Limit: terms->close_timeout_ms */ \
    S(CLOSING)  /* the last bytes are queued, input is ignored. Limit: SESSION_LINGER_MS */ \
    S(CLOSED)   /* the session is over. No time limit */
/* clang-format on */
enum host_session_state {
#define S(name) HOST_SESSION_##name,
    HOST_SESSION_STATES(S)
#undef S
};
const char *host_session_state_name(enum host_session_state s);

/* Settings that all sessions of one host share. The host may change them between two calls of a
 * session's functions. */
struct host_session_terms {
    /* true: nodes are served; false: they are refused, because this host is not elected */
    bool leads;
    bool in_launcher;        /* true: the host ends together with the launcher of a node */
    uint64_t epoch;          /* epoch of an elected host; else 0 */
    uint64_t coordinator;    /* id of the coordinators of this host */
    /* if the host is closing: the reason, with which it refuses all nodes; else NULL */
    const char *closing;
    /* true: the host closes before all jobs have ended, so nodes that it refuses shall try another
     * coordinator */
    bool comes_again;
    int64_t close_timeout_ms;
};

/* The result of the action `judge`: whether a host serves a node. */
struct host_session_verdict {
    bool serves;
    uint64_t epoch;   /* epoch of the job's coordinator at this host */
    /* if the host does not serve the job: where the job's coordinator is, or NULL if the host does
     * not know that */
    const char *addr;
    uint16_t port;
};

/* What a session calls. Texts and messages in the arguments are valid until the action returns. If
 * on_hello, on_message or on_operate fails, the session sends the text in err as REFUSED. */
struct host_session_actions {
    /* A node has sent HELLO. Decides whether this host serves the node. terms->epoch does not
     * decide this, because one host may have jobs with different epochs. If this action is NULL, or
     * terms->leads is false, this action is not called, and the terms decide. */
    struct host_session_verdict (*judge)(void *arg, const struct rdzv_hello *hello);
    /* Another host has sent LEADS. If this action is NULL, LEADS is ignored. */
    void (*on_leads)(void *arg, const struct rdzv_leads *leads);
    /* A node has sent HELLO with the run id of its job. Returns 0 if the node may go on. Otherwise
     * returns a negative errno and a text in err, and the node is refused: after -EAGAIN it tries
     * another coordinator, after any other error it gives up. */
    int (*on_hello)(void *arg, const struct rdzv_hello *hello, struct cr_error *err);
    /* A node requests a seat. Returns 0 if the node has got a seat. Otherwise returns a negative
     * errno; in that case the coordinator has sent the reason (REFUSED or END) by
     * host_session_send(), and the session closes. */
    int (*on_join)(void *arg, const struct rdzv_join *join);
    /* on_relay: a relay has sent RELAY. Returns 0 if its trunk is accepted; otherwise returns a
     * negative errno and a text in err, and the relay is refused. on_trunk: bytes that follow RELAY
     * on the trunk (trunk.h) have come. Returns 0; otherwise returns a negative errno and a text in
     * err, and the trunk is refused. If on_relay is NULL, all relays are refused. */
    int (*on_relay)(void *arg, const struct rdzv_relay *relay, struct cr_error *err);
    int (*on_trunk)(void *arg, const char *data, size_t len, struct cr_error *err);
    /* A node that is in a round requests its seat again. Returns 0 if the node has its seat.
     * Otherwise returns a negative errno; in that case the coordinator has sent the reason by
     * host_session_send(), and the session closes. */
    int (*on_resume)(void *arg, const struct rdzv_resume *resume);
    /* A node with a seat has sent a message. Returns 0, or -EPROTO and a text in err; after an
     * error the session closes, and on_lost is called. */
    int (*on_message)(void *arg, const struct rdzv_message *m, struct cr_error *err);
    /* The connection of a node with a seat is over. The owner calls coordinator_suspend() if `how`
     * is BROKEN, else coordinator_lost(). This action is called once for each session with a seat,
     * but not after host_session_hang_up(). `how` is BROKEN only if the connection's version has
     * RESUME, so that the node can resume. */
    void (*on_lost)(void *arg, enum rendezvous_loss how, const char *why);
    /* An operator has sent STATUS (on_status) or OPERATE (on_operate). The action answers by
     * host_session_send() before it returns; after that the session closes. on_operate returns 0;
     * 1 if more answers follow, in which case the session stays open until host_session_hang_up()
     * or its time limit; or a negative errno and a text in err. */
    void (*on_status)(void *arg);
    int (*on_operate)(void *arg, const struct rdzv_operate *what, struct cr_error *err);
    /* Logs one line; called for each change of state. */
    void (*log)(void *arg, enum cr_log_level level, const char *text);
};

/* The owner embeds this struct. It may read `state`, `version`, `seated` and `out`; all other
 * fields are private. */
struct host_session {
    enum host_session_state state;
    uint32_t version;     /* protocol version of the connection; RDZV_VERSION_MIN before HELLO */
    struct cr_buffer out; /* bytes that the transport has to send */

    const struct host_session_terms *terms;
    const struct host_session_actions *actions;
    void *arg;
    bool local;
    bool seated;          /* true: the node has a seat at its coordinator */
    int64_t limit_ms;     /* time at which this state must have ended */
    struct cr_buffer in;  /* bytes received but not handled yet */
};

/* Call this when a connection is established. Begins the session. `terms` and `actions` must live
 * as long as the session. `local` is true if the node is in this process. */
void host_session_open(struct host_session *s, int64_t now_ms, bool local,
                       const struct host_session_terms *terms,
                       const struct host_session_actions *actions, void *arg);

/* Frees the buffers. Calls no action. */
void host_session_done(struct host_session *s);
/* Frees the memory of buffers that are empty. */
void host_session_shrink(struct host_session *s);

void host_session_receive(struct host_session *s, int64_t now_ms, const char *data, size_t len);
void host_session_lost(struct host_session *s, int64_t now_ms, enum rendezvous_loss how,
                       const char *why);
/* Ends the session if the time limit of its state is over. Call this at host_session_deadline(). */
void host_session_tick(struct host_session *s, int64_t now_ms);
int64_t host_session_deadline(const struct host_session *s);    /* CR_FOREVER if there is none */

/* Queues a message, or leaves it out if the connection's version does not have it. If the version
 * does not have GOODBYE, a host in a launcher sends END in its place. The coordinator's actions may
 * call this function, because this function calls no action but `log`. */
void host_session_send(struct host_session *s, int64_t now_ms, const struct rdzv_message *m);
/* Call this if the coordinator has freed the node's seat, or has given it to another connection.
 * Ends the session: queues no further message, and enters CLOSING. on_lost is not called. */
void host_session_hang_up(struct host_session *s, int64_t now_ms);

#endif
