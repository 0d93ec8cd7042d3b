/* The blocking client, in parts: connecting (client_connect.c), one exchange (client_exchange.c),
 * the operations (client.c). */
#ifndef STORE_CLIENT_CLIENT_INTERNAL_H
#define STORE_CLIENT_CLIENT_INTERNAL_H

#include "store/wire/answer.h"
#include "store/wire/call_text.h"
#include "store/client/socket.h"
#include "store/client/probe.h"

struct store_client {
    struct store store;
    struct store_link link;
    enum store_handshake handshake; /* the one that worked */
    char host[CR_HOST_MAX];         /* where to connect afresh or for a probe */
    uint16_t port;
    struct cr_error broken;       /* code 0: it is fine */
    struct cr_buffer request;     /* of the call under way */
    int8_t knows[STORE_OP_COUNT]; /* 1 = the server has it, -1 = not, 0 = never asked */
};

extern const struct store_ops store_client_ops;

enum store_dialect store_client_dialect(const struct store_client *c);

/* One dial and one handshake. */
int store_client_shake(struct store_client *c, enum store_handshake how, int64_t deadline_ms,
                       struct cr_error *err);

/* ---- one exchange ---- */

struct store_call {
    enum store_op op;
    const struct store_bytes *keys; /* for what went wrong: what was in flight */
    size_t key_count;
    struct store_bytes tail; /* value that follows c->request */
    size_t item_count;       /* values that come back */
    int64_t timeout_ms;      /* as given, for the text */
    int64_t deadline_ms;
};

/* An encoder into c->request, which is emptied. */
struct store_encoder store_client_encoder(struct store_client *c);

/* Receives one reply that store_answer_begin() was called for. */
int store_client_receive(struct store_client *c, struct store_answer *a, int64_t deadline_ms);

/* Sends c->request and the tail, and receives the reply into `a` (NULL: the operation has none).
 * Whatever fails in here breaks the client. */
int store_client_exchange(struct store_client *c, const struct store_call *call,
                          struct store_answer *a, struct cr_error *err);

/* The same for WAIT and BARRIER: when the time is up it cancels and returns -ETIMEDOUT with the
 * client in order. */
int store_client_exchange_wait(struct store_client *c, const struct store_call *call,
                               struct cr_error *err);

int store_client_fail_timeout(const struct store_client *c, const struct store_call *call,
                              struct cr_error *err);

/* Whether the server has an operation that not every release has; asks it, once, over a connection
 * of its own, since a server answers an unknown one by hanging up. 1, 0, or negative. */
int store_client_knows(struct store_client *c, enum store_op op, struct cr_error *err);

#endif
