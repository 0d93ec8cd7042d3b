/* What an unknown server is, and how both clients find out: the decisions, without the bytes' way.
 *
 * No version is on the wire, so it is found by trying:
 *
 *   PING ──echo──▶ modern               ┌──closed──▶ PING, after a pause
 *     ├──closed──▶ NOPING ──answer──▶ modern without ping
 *     └──silence─▶ LEGACY ──answer──▶ CONFIRM      (silence in NOPING also leads to LEGACY)
 *                                        ├──closed──▶ LEGACY ──answer──▶ legacy
 *                                        └──"01"────▶ PING, with all the time there is
 *
 * Silence means a server of before VALIDATE, which takes it for half a SET; it serves nobody until
 * we hang up, hence STORE_PROBE_MS. Or it means a modern server that is overloaded and speaks legacy
 * as well, as ours does: so one that answers legacy is asked for CANCEL_WAIT, which no old release
 * has.
 *
 * Pure: no sockets, no clock. */
#ifndef STORE_CLIENT_PROBE_H
#define STORE_CLIENT_PROBE_H

#include "store/wire/wire.h"

/* Time for what should answer at once, when the caller's own time is over: acknowledging a
 * cancelled wait, reading a value that is known to be there, connecting an old server afresh. */
#define STORE_GRACE_MS 5000

/* An unknown server that does not answer in this time is taken for one too old to know VALIDATE.
 * Such a server (1.13, 2.0) serves nobody until we hang up again, so it is short. */
#define STORE_PROBE_MS 1000

/* ---- one handshake ---- */

enum store_handshake {
    STORE_SHAKE_PING,   /* VALIDATE and PING in one segment */
    STORE_SHAKE_NOPING, /* VALIDATE, then NUM_KEYS to see that it is served (2.1 to 2.4) */
    STORE_SHAKE_LEGACY, /* nothing, then legacy NUM_KEYS */
};

const char *store_handshake_name(enum store_handshake how); /* "modern", "legacy"… */
enum store_dialect store_handshake_dialect(enum store_handshake how);

/* What is sent; 0 or -ENOMEM. */
int store_handshake_encode(enum store_handshake how, uint32_t nonce, struct cr_buffer *out);
enum store_reply store_handshake_reply(enum store_handshake how);
int store_handshake_accepts(enum store_handshake how, uint32_t nonce, int64_t answer);

/* ---- trying ---- */

struct store_probe {
    enum store_protocol protocol;
    enum store_handshake how; /* to be tried next; the one that worked, once it is found */
    int is_old;               /* it answered legacy, and hung up on CANCEL_WAIT */
};

enum store_probe_next {
    STORE_PROBE_FOUND,   /* the connection is in order */
    STORE_PROBE_CONFIRM, /* send CANCEL_WAIT on this connection, then store_probe_confirmed() */
    STORE_PROBE_AGAIN,   /* hang up, and try probe->how at once */
    STORE_PROBE_LATER,   /* the same after a pause */
    STORE_PROBE_STOP,    /* it will not get better */
};

struct store_probe store_probe_new(enum store_protocol protocol);

/* How long one attempt may take; CR_FOREVER: as long as the whole of connecting. */
int64_t store_probe_limit_ms(const struct store_probe *p);

/* The handshake worked. */
enum store_probe_next store_probe_shaken(struct store_probe *p);

/* It did not; `connected` tells a failed handshake from a failed dial. */
enum store_probe_next store_probe_failed(struct store_probe *p, int code, int connected);

/* What became of CANCEL_WAIT: 0 and the byte of the answer, or a negative code. */
enum store_probe_next store_probe_confirmed(struct store_probe *p, int code, uint8_t byte);

/* Whether a failed dial or handshake may go better later: refused, reset, silent, unknown. */
int store_worth_retry(int code);

/* Pauses between attempts: about the interval, +/- half of it, so that a thousand clients do not
 * come in step; the interval grows from 50 ms to 5 s. */
struct store_pace {
    int64_t interval_ms;
    uint64_t random;
};

struct store_pace store_pace_new(uint64_t seed);
int64_t store_pace_next_ms(struct store_pace *p);

/* One of several addresses may use so much of the time: a silent one must leave some to others. */
int64_t store_address_time_ms(int64_t time_left_ms, size_t addresses_left);

/* "connect to the store at HOST:PORT: …"; returns `code`. */
int store_fail_connect(struct cr_error *err, int code, const char *host, uint16_t port,
                       int64_t timeout_ms, const char *why);

/* Why a handshake failed, in words, or NULL: the code says it all. */
const char *store_handshake_reason(int code);

/* ---- what the server knows ---- */

/* Whether the server has an operation: 1, 0, or -1: ask it store_question(op), over a connection of
 * its own, since a server answers an unknown operation by hanging up. `known` has the answers of
 * before: 1 = it has it, -1 = not, 0 = never asked. */
int store_server_has(enum store_handshake how, const int8_t known[STORE_OP_COUNT],
                     enum store_op op);

/* The operation to ask for; the answer to it is the one for `op`. */
enum store_op store_question(enum store_op op);

/* A request, or two, without lasting effect that only a server with this operation answers. */
int store_question_encode(enum store_op question, struct cr_buffer *out);

/* The shape of its first (0), second (1)… reply; STORE_REPLY_NONE: that was all. They are read to the
 * end, so that the server is not reset before it has done the last request. */
enum store_reply store_question_reply(enum store_op question, int nth);

#endif
