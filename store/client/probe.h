/* Finds out which protocol an unknown server speaks. The functions of this header only decide what
 * to try next; connect.c and question.c do the I/O.
 *
 * The protocol has no version number, so the client tries the handshakes of enum store_handshake:
 *
 *   PING ──echo──▶ modern               ┌──closed──▶ PING, after a pause
 *     ├──closed──▶ NOPING ──answer──▶ modern without ping
 *     └──silence─▶ LEGACY ──answer──▶ CONFIRM      (silence in NOPING also leads to LEGACY)
 *                                        ├──closed──▶ LEGACY ──answer──▶ legacy
 *                                        └──"01"────▶ PING, with all the time that is left
 *
 * There are two possible reasons why a server does not answer PING. First, it may be an old server,
 * which does not know VALIDATE and takes the handshake for the first half of a SET. Such a server
 * serves no other client until this client closes the connection; therefore the client waits only
 * for STORE_PROBE_MS. Second, it may be a modern server that is overloaded. The legacy handshake
 * does not tell these two apart, because a modern server such as crun's may answer it, too.
 * Therefore the client sends CANCEL_WAIT to a server that has answered LEGACY; this is CONFIRM. An
 * old server does not know CANCEL_WAIT and closes the connection. The client then connects again,
 * and from this moment on uses the legacy handshake. A modern server answers CANCEL_WAIT with the
 * byte 01. */
#ifndef STORE_CLIENT_PROBE_H
#define STORE_CLIENT_PROBE_H

#include "base/error.h"
#include "store/client/client.h"
#include "store/wire/wire.h"

/* Time limit in ms of an exchange that a server answers at once. Such an exchange gets this time
 * even if the timeout of the user's call has passed: for example, when the client confirms a
 * cancelled wait, reads a value that is known to exist, or makes a new connection to an old
 * server. */
#define STORE_GRACE_MS 5000

/* Time in ms that an unknown server has to answer a handshake. If it does not answer the modern
 * handshake in this time, the client tries the legacy handshake: servers that do not know VALIDATE
 * (torch 1.13 and 2.0) never answer the modern one. */
#define STORE_PROBE_MS 1000

/* ---- one handshake ---- */

enum store_handshake {
    STORE_SHAKE_PING,   /* VALIDATE and PING, sent together */
    STORE_SHAKE_NOPING, /* VALIDATE and NUM_KEYS, for servers without PING (torch 2.1 to 2.4) */
    STORE_SHAKE_LEGACY, /* only NUM_KEYS with its legacy opcode, for servers without VALIDATE */
};

const char *store_handshake_name(enum store_handshake how); /* "modern", "legacy"… */
enum store_dialect store_handshake_dialect(enum store_handshake how);

/* Appends to `out` the bytes that the client sends for the handshake. Returns 0 or -ENOMEM. */
int store_handshake_encode(enum store_handshake how, uint32_t nonce, struct cr_buffer *out);
enum store_reply store_handshake_reply(enum store_handshake how);
bool store_handshake_accepts(enum store_handshake how, uint32_t nonce, int64_t answer);

/* ---- choosing the next handshake ---- */

struct store_probe {
    enum store_protocol protocol;
    enum store_handshake how; /* handshake to try next; after success, the handshake that worked */
    /* true if the server answered the legacy handshake, and then closed the connection on
     * CANCEL_WAIT */
    bool is_old;
};

enum store_probe_next {
    STORE_PROBE_FOUND,   /* the handshake worked; use this connection */
    STORE_PROBE_CONFIRM, /* send CANCEL_WAIT on this connection, then call
                          * store_probe_confirmed() */
    STORE_PROBE_AGAIN,   /* close the connection and try the handshake probe->how at once */
    STORE_PROBE_LATER,   /* close the connection, pause, and try the handshake probe->how */
    STORE_PROBE_STOP,    /* give up, because a later attempt would fail, too */
};

struct store_probe store_probe_new(enum store_protocol protocol);

/* Returns the longest time in ms that one attempt to connect may take; CR_FOREVER if an attempt may
 * take as long as store_client_connect() as a whole. */
int64_t store_probe_limit_ms(const struct store_probe *p);

/* Call this when the handshake p->how has worked. Returns what to do next. */
enum store_probe_next store_probe_shaken(struct store_probe *p);

/* Call this when an attempt has failed with `code`. `connected` is true if the connection was made
 * but the handshake failed. The function sets p->how to the next handshake and returns what to do
 * next. */
enum store_probe_next store_probe_failed(struct store_probe *p, int code, bool connected);

/* Call this after STORE_PROBE_CONFIRM, when CANCEL_WAIT was sent. If the server has replied, `code`
 * is 0 and `byte` is the reply; otherwise `code` is a negative errno. Returns what to do next. */
enum store_probe_next store_probe_confirmed(struct store_probe *p, int code, uint8_t byte);

/* Call this if connecting or the handshake has failed with `code`. Returns true if a later attempt
 * may succeed, for example because the server is not running yet. */
bool store_worth_retry(int code);

/* The pauses between attempts to connect. The interval grows from 50 ms to 5 s. A pause is a random
 * time from half of the interval to one and a half times the interval, so that a thousand clients
 * do not connect at the same moments. */
struct store_backoff {
    int64_t interval_ms;
    uint64_t random;
};

struct store_backoff store_backoff_new(uint64_t seed);
int64_t store_backoff_next_ms(struct store_backoff *b);

/* Call this before connecting to each address of a host name. Returns how many ms the client may
 * spend on this address: an equal share of the time that is left for this and the other untried
 * addresses. So an address that does not answer does not use up the time of the others. If
 * time_left_ms is CR_FOREVER, the result is 10 s, or 60 s for the only untried address. */
int64_t store_address_time_ms(int64_t time_left_ms, size_t addresses_left);

/* Sets err to "connect to the store at HOST:PORT: …" and returns `code`. */
int store_fail_connect(struct cr_error *err, int code, const char *host, uint16_t port,
                       int64_t timeout_ms, const char *why);

/* Returns a text that says why a handshake failed with `code`, or NULL if the text of strerror() is
 * to be used. */
const char *store_handshake_reason(int code);

/* ---- which operations the server has ---- */

/* Not every release of torch has LIST_KEYS, BARRIER and queues, and a server closes the connection
 * on an operation that it does not know. Therefore the client tries such an operation on a second
 * connection before it first uses the operation (question.c).
 *
 * store_server_has() returns 1 if the server has `op`, 0 if the server lacks `op`, or -1 if the
 * client must first try store_question(op). `known` holds the results of earlier tries, indexed by
 * operation: 1 = the server has the operation, -1 = the server lacks it, 0 = not tried. */
int store_server_has(enum store_handshake how, const int8_t known[STORE_OP_COUNT],
                     enum store_op op);

/* Returns the operation that the client tries to find out whether the server has `op`: QUEUE_LEN if
 * `op` is QUEUE_PUSH or QUEUE_POP, else `op` itself. */
enum store_op store_question(enum store_op op);

/* Appends to `out` the one or two requests that try the operation `question`. The requests leave no
 * key in the store. A server without the operation closes the connection instead of answering.
 * Returns 0 or -ENOMEM. */
int store_question_encode(enum store_op question, struct cr_buffer *out);

/* Returns the shape of reply number `nth` (from 0) to the requests of store_question_encode(), or
 * STORE_REPLY_NONE if there is no such reply. The client reads all replies before it closes the
 * connection: the last reply proves that the server has carried out the last request. */
enum store_reply store_question_reply(enum store_op question, int nth);

#endif
