/* Finds out which protocol an unknown server speaks. This header has the decisions, without I/O.
 *
 * The protocol has no version number, so the client tries the handshakes of enum store_handshake:
 *
 *   PING ──echo──▶ modern               ┌──closed──▶ PING, after a pause
 *     ├──closed──▶ NOPING ──answer──▶ modern without ping
 *     └──silence─▶ LEGACY ──answer──▶ CONFIRM      (silence in NOPING also leads to LEGACY)
 *                                        ├──closed──▶ LEGACY ──answer──▶ legacy
 *                                        └──"01"────▶ PING, with all the time that is left
 *
 * If a server does not answer PING, there are two possible reasons. First, it may be older than
 * VALIDATE and take the handshake for the first half of a SET. Such a server serves no other client
 * until this one closes the connection, so STORE_PROBE_MS is short. Second, it may be a modern
 * server that is overloaded; crun's server, for example, answers a legacy handshake as well. To
 * tell an old server from an overloaded modern one, CONFIRM sends CANCEL_WAIT to a server that has
 * answered LEGACY: an old server closes the connection, because it does not know CANCEL_WAIT; a
 * modern server answers with the byte 01. */
#ifndef STORE_CLIENT_PROBE_H
#define STORE_CLIENT_PROBE_H

#include "base/error.h"
#include "store/client/client.h"
#include "store/wire/wire.h"

/* Time in ms for an exchange that a server answers at once. The client waits this long for the
 * reply even if the time of the user's call is up: when it confirms a cancelled wait, reads a value
 * that is known to exist, or reconnects to an old server. */
#define STORE_GRACE_MS 5000

/* Time in ms after which the client tries the legacy handshake, because an unknown server has not
 * answered: servers that do not know VALIDATE (torch 1.13 and 2.0) do not answer the modern
 * handshake. */
#define STORE_PROBE_MS 1000

/* ---- one handshake ---- */

enum store_handshake {
    STORE_SHAKE_PING,   /* VALIDATE and PING in one segment */
    STORE_SHAKE_NOPING, /* VALIDATE, then NUM_KEYS, for servers without PING (2.1 to 2.4) */
    STORE_SHAKE_LEGACY, /* no handshake; legacy NUM_KEYS */
};

const char *store_handshake_name(enum store_handshake how); /* "modern", "legacy"… */
enum store_dialect store_handshake_dialect(enum store_handshake how);

/* Appends the bytes that the client sends for this handshake. Returns 0 or -ENOMEM. */
int store_handshake_encode(enum store_handshake how, uint32_t nonce, struct cr_buffer *out);
enum store_reply store_handshake_reply(enum store_handshake how);
bool store_handshake_accepts(enum store_handshake how, uint32_t nonce, int64_t answer);

/* ---- choosing the next handshake ---- */

struct store_probe {
    enum store_protocol protocol;
    enum store_handshake how; /* handshake to try next; after success, the handshake that worked */
    /* true if the server answered the legacy handshake and closed the connection on CANCEL_WAIT */
    bool is_old;
};

enum store_probe_next {
    STORE_PROBE_FOUND,   /* the handshake worked; use this connection */
    STORE_PROBE_CONFIRM, /* send CANCEL_WAIT on this connection, then call
                          * store_probe_confirmed() */
    STORE_PROBE_AGAIN,   /* close the connection and try probe->how at once */
    STORE_PROBE_LATER,   /* close the connection and try probe->how after a pause */
    STORE_PROBE_STOP,    /* give up: a later attempt would fail, too */
};

struct store_probe store_probe_new(enum store_protocol protocol);

/* Returns the longest time in ms that one attempt may take, or CR_FOREVER if only the deadline of
 * store_client_connect() limits it. */
int64_t store_probe_limit_ms(const struct store_probe *p);

/* Call this when the handshake p->how has worked. Returns what to do next. */
enum store_probe_next store_probe_shaken(struct store_probe *p);

/* Call this when an attempt has failed with `code`. `connected` is true if the connection was made
 * but the handshake failed. The function sets p->how and returns what to do next. */
enum store_probe_next store_probe_failed(struct store_probe *p, int code, bool connected);

/* Call this with the result of sending CANCEL_WAIT: `code` is 0 and `byte` the reply, or `code` is
 * a negative errno. Returns what to do next. */
enum store_probe_next store_probe_confirmed(struct store_probe *p, int code, uint8_t byte);

/* Returns whether a later attempt may succeed, if this one has failed with `code` in connecting or
 * in the handshake. */
bool store_worth_retry(int code);

/* The pauses between attempts to connect. The interval grows from 50 ms to 5 s. A pause is the
 * interval plus or minus a random part of up to half of it, so that a thousand clients do not
 * connect at the same moments. */
struct store_backoff {
    int64_t interval_ms;
    uint64_t random;
};

struct store_backoff store_backoff_new(uint64_t seed);
int64_t store_backoff_next_ms(struct store_backoff *b);

/* Returns how many ms the next of several addresses may use of the time that is left. An address
 * that does not answer must not use up the time of the other addresses. */
int64_t store_address_time_ms(int64_t time_left_ms, size_t addresses_left);

/* Sets err to "connect to the store at HOST:PORT: …" and returns `code`. */
int store_fail_connect(struct cr_error *err, int code, const char *host, uint16_t port,
                       int64_t timeout_ms, const char *why);

/* Returns a text that says why a handshake failed with `code`, or NULL if strerror() describes it
 * well. */
const char *store_handshake_reason(int code);

/* ---- which operations the server has ---- */

/* Not every release of torch has LIST_KEYS, BARRIER and queues, and a server closes the connection
 * on an operation that it does not know. So before the client first uses such an operation, it
 * tries the operation on a second connection (question.c).
 *
 * store_server_has() returns 1 if the server has `op`, 0 if it lacks it, or -1 if the client must
 * first try store_question(op). `known` holds the results of earlier tries: 1 = the server has the
 * operation, -1 = it lacks it, 0 = not tried. */
int store_server_has(enum store_handshake how, const int8_t known[STORE_OP_COUNT],
                     enum store_op op);

/* Returns the operation to try in order to know whether the server has `op`: QUEUE_LEN for push and
 * pop, else `op` itself. */
enum store_op store_question(enum store_op op);

/* Appends the one or two requests that try an operation. They leave no key behind, and only a
 * server with the operation answers them. Returns 0 or -ENOMEM. */
int store_question_encode(enum store_op question, struct cr_buffer *out);

/* Returns the form of reply number `nth` (from 0) to the requests of store_question_encode(), or
 * STORE_REPLY_NONE after the last reply. The client reads all replies before it closes the
 * connection: the last reply proves that the server has carried out the last request. */
enum store_reply store_question_reply(enum store_op question, int nth);

#endif
