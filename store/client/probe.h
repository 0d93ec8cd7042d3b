/* What an unknown server is, and how the client finds out: the decisions, without I/O.
 *
 * The protocol has no version number, so the client tries:
 *
 *   PING ──echo──▶ modern               ┌──closed──▶ PING, after a pause
 *     ├──closed──▶ NOPING ──answer──▶ modern without ping
 *     └──silence─▶ LEGACY ──answer──▶ CONFIRM      (silence in NOPING also leads to LEGACY)
 *                                        ├──closed──▶ LEGACY ──answer──▶ legacy
 *                                        └──"01"────▶ PING, with all the time that is left
 *
 * Silence has two possible reasons. A server that is older than VALIDATE takes the handshake for
 * the first half of a SET; it serves no client until we close the connection, so STORE_PROBE_MS is
 * short. Or a modern server is overloaded, and it may speak legacy as well, as ours does. So a
 * server that answers legacy is asked for CANCEL_WAIT, which no old release has.
 *
 * Pure: no sockets, no clock. */
#ifndef STORE_CLIENT_PROBE_H
#define STORE_CLIENT_PROBE_H

#include "base/error.h"
#include "store/client/client.h"
#include "store/wire/wire.h"

/* Time for exchanges that a server answers at once, in a call whose own time is up: acknowledging a
 * cancelled wait, reading a value that is known to exist, reconnecting to an old server. */
#define STORE_GRACE_MS 5000

/* An unknown server that does not answer within this time is taken for one that is too old to know
 * VALIDATE (1.13, 2.0). */
#define STORE_PROBE_MS 1000

/* ---- one handshake ---- */

enum store_handshake {
    STORE_SHAKE_PING,   /* VALIDATE and PING in one segment */
    STORE_SHAKE_NOPING, /* VALIDATE, then NUM_KEYS, which any server answers (2.1 to 2.4) */
    STORE_SHAKE_LEGACY, /* no handshake; legacy NUM_KEYS */
};

const char *store_handshake_name(enum store_handshake how); /* "modern", "legacy"… */
enum store_dialect store_handshake_dialect(enum store_handshake how);

/* Appends what the client sends. Returns 0 or -ENOMEM. */
int store_handshake_encode(enum store_handshake how, uint32_t nonce, struct cr_buffer *out);
enum store_reply store_handshake_reply(enum store_handshake how);
bool store_handshake_accepts(enum store_handshake how, uint32_t nonce, int64_t answer);

/* ---- trying ---- */

struct store_probe {
    enum store_protocol protocol;
    enum store_handshake how; /* to be tried next; at the end, the one that worked */
    bool is_old;              /* it answered legacy, and closed the connection on CANCEL_WAIT */
};

enum store_probe_next {
    STORE_PROBE_FOUND,   /* the connection is in order */
    STORE_PROBE_CONFIRM, /* send CANCEL_WAIT on this connection, then store_probe_confirmed() */
    STORE_PROBE_AGAIN,   /* close the connection and try probe->how at once */
    STORE_PROBE_LATER,   /* the same after a pause */
    STORE_PROBE_STOP,    /* give up: a later try would fail, too */
};

struct store_probe store_probe_new(enum store_protocol protocol);

/* How long one attempt may take. CR_FOREVER: as long as the whole connecting. */
int64_t store_probe_limit_ms(const struct store_probe *p);

/* The handshake worked. */
enum store_probe_next store_probe_shaken(struct store_probe *p);

/* The attempt failed with `code`: in the handshake if `connected`, else before it. */
enum store_probe_next store_probe_failed(struct store_probe *p, int code, bool connected);

/* The answer to CANCEL_WAIT: code 0 and the byte, or a negative code. */
enum store_probe_next store_probe_confirmed(struct store_probe *p, int code, uint8_t byte);

/* Whether a later try may succeed after a connect or handshake that failed with `code`. */
bool store_worth_retry(int code);

/* Pauses between attempts: an interval that grows from 50 ms to 5 s, each time changed at
 * random by up to a half, so that a thousand clients do not try at the same moments. */
struct store_backoff {
    int64_t interval_ms;
    uint64_t random;
};

struct store_backoff store_backoff_new(uint64_t seed);
int64_t store_backoff_next_ms(struct store_backoff *b);

/* How much of the time that is left one of several addresses may use: an address that does not
 * answer must leave time for the others. */
int64_t store_address_time_ms(int64_t time_left_ms, size_t addresses_left);

/* Records "connect to the store at HOST:PORT: …" and returns `code`. */
int store_fail_connect(struct cr_error *err, int code, const char *host, uint16_t port,
                       int64_t timeout_ms, const char *why);

/* Why a handshake failed, in words; NULL if strerror() says it. */
const char *store_handshake_reason(int code);

/* ---- which operations the server has ---- */

/* Not every release has LIST_KEYS, BARRIER and queues, and a server closes the connection on an
 * operation that it does not know. So the first use is preceded by a question over a connection of
 * its own.
 *
 * Returns whether the server has `op`: 1, 0, or -1 if it must be asked store_question(op). `known`
 * has the earlier answers: 1 = it has the operation, -1 = it has not, 0 = not asked. */
int store_server_has(enum store_handshake how, const int8_t known[STORE_OP_COUNT],
                     enum store_op op);

/* The operation to ask for; its answer holds for `op`, too. */
enum store_op store_question(enum store_op op);

/* Appends one or two requests without lasting effect that only a server with this operation
 * answers. */
int store_question_encode(enum store_op question, struct cr_buffer *out);

/* The shape of reply number `nth` (from 0); STORE_REPLY_NONE after the last. All replies are
 * read, so that the server has carried out the last request before the connection is closed. */
enum store_reply store_question_reply(enum store_op question, int nth);

#endif
