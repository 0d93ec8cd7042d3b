/* The TCP client: its struct, and the functions that its files call in each other. The files form
 * layers; each file calls only the files below it:
 *
 *   tcp_client.c  the operations of a store, and opening a client
 *   connect.c     connecting, with new attempts until the time is up
 *   exchange.c    one request and its reply
 *   question.c    finding out whether the server has an operation
 *   handshake.c   one attempt to connect and make the handshake; receiving one reply
 *   socket.c      one connection with deadlines
 *   probe.c       finding out which protocol a server speaks (pure) */
#ifndef STORE_CLIENT_TCP_CLIENT_INTERNAL_H
#define STORE_CLIENT_TCP_CLIENT_INTERNAL_H

#include "store/client/client.h"
#include "store/client/probe.h"
#include "store/client/socket.h"
#include "store/wire/wire.h"

struct store_client {
    struct store store;
    struct store_socket socket;
    enum store_handshake handshake; /* the handshake that the server accepted */
    char host[CR_HOST_MAX];         /* host name of the server; question.c and exchange.c use it for
                                     * new connections */
    uint16_t port;
    struct cr_error broken;         /* error that broke the client; broken.code is 0 while the
                                     * client is usable */
    struct cr_buffer request;       /* bytes of the current request */
    /* indexed by operation: 1 = the server has the operation, -1 = the server lacks the operation,
     * 0 = not known */
    int8_t known[STORE_OP_COUNT];
};

/* ---- tcp_client.c ---- */

/* not static, because tests use it to make a client from one end of a socket pair */
extern const struct store_ops store_client_ops;

/* ---- handshake.c ---- */

enum store_dialect store_client_dialect(const struct store_client *c);

/* Empties c->request and returns an encoder that appends to it. */
struct store_encoder store_client_encoder(struct store_client *c);

/* Sends the bytes of c->request. Returns 0 or a negative errno. */
int store_client_send(struct store_client *c, int64_t deadline_ms);

/* Receives the reply that the caller has described by store_answer_begin(). Returns 0 or a negative
 * errno. */
int store_client_receive(struct store_client *c, struct store_answer *a, int64_t deadline_ms);

/* Makes one connection and the handshake `how` on it. Returns 0 or a negative errno and sets
 * err. */
int store_client_shake(struct store_client *c, enum store_handshake how, int64_t deadline_ms,
                       struct cr_error *err);

/* Call this when a handshake has failed with `rc`. The function closes the connection, sets err and
 * returns `rc`. */
int store_client_fail_shake(struct store_client *c, int rc, struct cr_error *err);

/* ---- connect.c ---- */

/* Connects and makes the handshake. If that fails, but a later attempt may succeed, tries again
 * until the deadline. Returns 0 or a negative errno and sets err. */
int store_client_connect_until(struct store_client *c, enum store_protocol protocol,
                               int64_t deadline_ms, struct cr_error *err);

/* ---- question.c ---- */

/* Returns 1 if the server has the operation, 0 if the server lacks it, or a negative errno and sets
 * err. Some operations are not in all releases of torch. If c->known has no result for such an
 * operation yet, the client tries it over a new connection, and stores the result in c->known. If
 * the client is broken, the function returns 1 instead of trying. */
int store_client_has(struct store_client *c, enum store_op op, struct cr_error *err);

/* ---- exchange.c ---- */

struct store_call {
    enum store_op op;
    const struct store_bytes *keys; /* keys of the request; error texts name them */
    size_t key_count;
    struct store_bytes tail; /* value that is sent after c->request; empty if the request has
                              * none */
    size_t item_count;       /* number of values in the reply; only for MULTI_GET */
    int64_t timeout_ms;      /* timeout in ms of the user's call; error texts name it */
    int64_t deadline_ms;
};

/* Sends c->request and call->tail, and receives the reply into `a`; `a` is NULL if the operation
 * has no reply. Returns 0 or a negative errno; after any error the client is broken. */
int store_client_exchange(struct store_client *c, const struct store_call *call,
                          struct store_answer *a, struct cr_error *err);

/* Sends c->request, which is a WAIT or BARRIER, and receives its reply. If the time is up, the
 * function cancels the wait at the server and returns -ETIMEDOUT; the client stays usable. After
 * any other error the client is broken. */
int store_client_exchange_wait(struct store_client *c, const struct store_call *call,
                               struct cr_error *err);

int store_client_fail_timeout(const struct store_client *c, const struct store_call *call,
                              struct cr_error *err);

#endif
