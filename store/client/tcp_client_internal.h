/* The TCP client, in layers; each file calls only those below it:
 *
 *   tcp_client.c  the operations, and opening a client
 *   connect.c     tries until the time is up      exchange.c   one request and its reply
 *   question.c    which operations the server has
 *   handshake.c   connecting and shaking hands once, receiving one reply
 *   socket.c      one connection with deadlines   probe.c      what a server is (pure) */
#ifndef STORE_CLIENT_TCP_CLIENT_INTERNAL_H
#define STORE_CLIENT_TCP_CLIENT_INTERNAL_H

#include "store/client/client.h"
#include "store/client/probe.h"
#include "store/client/socket.h"
#include "store/wire/wire.h"

struct store_client {
    struct store store;
    struct store_socket socket;
    enum store_handshake handshake; /* the one that worked */
    char host[CR_HOST_MAX];         /* for reconnecting and for questions */
    uint16_t port;
    struct cr_error broken;         /* code 0: the client is usable */
    struct cr_buffer request;       /* of the call under way */
    int8_t known[STORE_OP_COUNT];   /* 1 = the server has it, -1 = it has not, 0 = not asked */
};

/* ---- tcp_client.c ---- */

extern const struct store_ops store_client_ops; /* for tests that make a client of a socket pair */

/* ---- handshake.c ---- */

enum store_dialect store_client_dialect(const struct store_client *c);

/* Returns an encoder into c->request, which is emptied. */
struct store_encoder store_client_encoder(struct store_client *c);

/* Sends c->request, as it is. */
int store_client_send(struct store_client *c, int64_t deadline_ms);

/* Receives the reply that store_answer_begin() was called for. */
int store_client_receive(struct store_client *c, struct store_answer *a, int64_t deadline_ms);

/* Connects once and shakes hands once. */
int store_client_shake(struct store_client *c, enum store_handshake how, int64_t deadline_ms,
                       struct cr_error *err);

/* Closes the connection after a handshake that failed with `rc`, and records why; returns `rc`. */
int store_client_fail_shake(struct store_client *c, int rc, struct cr_error *err);

/* ---- connect.c ---- */

/* Connects and shakes hands, trying again until the deadline. */
int store_client_connect_until(struct store_client *c, enum store_protocol protocol,
                               int64_t deadline_ms, struct cr_error *err);

/* ---- question.c ---- */

/* Whether the server has an operation that not every release has: 1, 0, or negative. Asks the
 * server at most once per operation. */
int store_client_has(struct store_client *c, enum store_op op, struct cr_error *err);

/* ---- exchange.c ---- */

struct store_call {
    enum store_op op;
    const struct store_bytes *keys; /* for error texts: what was under way */
    size_t key_count;
    struct store_bytes tail; /* a value that is sent behind c->request */
    size_t item_count;       /* values that the reply has */
    int64_t timeout_ms;      /* as given, for error texts */
    int64_t deadline_ms;
};

/* Sends c->request and the tail, and receives the reply into `a` (NULL: the operation has none).
 * A failure breaks the client. */
int store_client_exchange(struct store_client *c, const struct store_call *call,
                          struct store_answer *a, struct cr_error *err);

/* The same for WAIT and BARRIER. When the time is up it cancels the wait and returns
 * -ETIMEDOUT; the client stays usable. */
int store_client_exchange_wait(struct store_client *c, const struct store_call *call,
                               struct cr_error *err);

int store_client_fail_timeout(const struct store_client *c, const struct store_call *call,
                              struct cr_error *err);

#endif
