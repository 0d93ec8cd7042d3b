/* Finding out which protocol an unknown server speaks: the decisions, without I/O.
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
 * until we close the connection, so STORE_PROBE_MS is short. Second, it may be a modern server that
 * is overloaded; our own server, for example, would answer a legacy handshake as well. To tell an
 * old server from an overloaded modern one, CONFIRM sends CANCEL_WAIT to a server that answered
 * legacy: an old release closes the connection, because it does not know CANCEL_WAIT; a modern
 * server answers with the byte 01.
 *
 * Pure: no sockets, no clock. */
#ifndef STORE_CLIENT_PROBE_H
#define STORE_CLIENT_PROBE_H

#include "base/error.h"
#include "store/client/client.h"
#include "store/wire/wire.h"

/* Time in milliseconds for exchanges that a server answers at once, although the time of the user's
 * call may be up already: confirming a cancelled wait, reading a value that is known to exist,
 * reconnecting to an old server. */
#define STORE_GRACE_MS 5000

/* If an unknown server does not answer within this many milliseconds, the client tries the legacy
 * handshake, because servers that are too old to know VALIDATE (1.13, 2.0) do not answer. */
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
    enum store_handshake how; /* handshake to try next; after success, the one that worked */
    /* the server is legacy: it answered legacy and closed the connection on CANCEL_WAIT */
    bool is_old;
};

enum store_probe_next {
    STORE_PROBE_FOUND,   /* the handshake worked: use this connection */
    STORE_PROBE_CONFIRM, /* send CANCEL_WAIT on this connection, then store_probe_confirmed() */
    STORE_PROBE_AGAIN,   /* close the connection and try probe->how at once */
    STORE_PROBE_LATER,   /* close the connection and try probe->how after a pause */
    STORE_PROBE_STOP,    /* give up, because a later try would fail, too */
};

struct store_probe store_probe_new(enum store_protocol protocol);

/* Returns how many milliseconds one attempt may take at most; CR_FOREVER if only the deadline of
 * the whole connecting limits it. */
int64_t store_probe_limit_ms(const struct store_probe *p);

/* Call this when the handshake p->how has worked. Returns what to do next. */
enum store_probe_next store_probe_shaken(struct store_probe *p);

/* Call this when an attempt has failed with `code`; `connected` is whether the connection was made
 * and the handshake failed. Chooses p->how and returns what to do next. */
enum store_probe_next store_probe_failed(struct store_probe *p, int code, bool connected);

/* Call this with the result of sending CANCEL_WAIT: `code` is 0 and `byte` the reply, or `code` is
 * a negative errno. Returns what to do next. */
enum store_probe_next store_probe_confirmed(struct store_probe *p, int code, uint8_t byte);

/* Returns whether a later attempt may succeed after a connect or a handshake has failed with
 * `code`. */
bool store_worth_retry(int code);

/* The pauses between attempts to connect. The interval grows from 50 ms to 5 s, and each pause
 * differs from it at random by up to a half, so that a thousand clients do not connect at the same
 * moments. */
struct store_backoff {
    int64_t interval_ms;
    uint64_t random;
};

struct store_backoff store_backoff_new(uint64_t seed);
int64_t store_backoff_next_ms(struct store_backoff *b);

/* Returns how many milliseconds of the time left the next of several addresses may use. An address
 * that does not answer must leave time for the others. */
int64_t store_address_time_ms(int64_t time_left_ms, size_t addresses_left);

/* Sets err to "connect to the store at HOST:PORT: …" and returns `code`. */
int store_fail_connect(struct cr_error *err, int code, const char *host, uint16_t port,
                       int64_t timeout_ms, const char *why);

/* Returns a text that says why a handshake failed with `code`, or NULL if strerror() describes it
 * well. */
const char *store_handshake_reason(int code);

/* ---- which operations the server has ---- */

/* Not every release has LIST_KEYS, BARRIER and queues, and a server closes the connection on an
 * operation that it does not know. Therefore, before the first use of such an operation, the client
 * tries it on a second connection (question.c).
 *
 * store_server_has() returns 1 if the server has `op`, 0 if it lacks it, or -1 if the client must
 * first try store_question(op). `known` holds the earlier results: 1 = the server has the
 * operation, -1 = it lacks it, 0 = not tried. */
int store_server_has(enum store_handshake how, const int8_t known[STORE_OP_COUNT],
                     enum store_op op);

/* Returns the operation to try in order to know whether the server has `op`: QUEUE_LEN for all
 * queue operations, else `op` itself. */
enum store_op store_question(enum store_op op);

/* Appends one or two requests that leave no keys behind and that only a server with this operation
 * answers. Returns 0 or -ENOMEM. */
int store_question_encode(enum store_op question, struct cr_buffer *out);

/* Returns the shape of reply number `nth`, counted from 0, to these requests; STORE_REPLY_NONE
 * after the last. The client reads all replies, so that the server has carried out the last request
 * before the connection is closed. */
enum store_reply store_question_reply(enum store_op question, int nth);

#endif
