/* Sends one request and receives its reply. An error in this exchange changes the state of the
 * client:
 *
 *   usable ──any error, or time up in the middle of a reply──▶ broken, for good
 *   usable ──time up in WAIT or BARRIER──▶ CANCEL_WAIT ──"01" or "00 01"──▶ usable
 *                                             └─anything else──▶ broken
 *
 * A server of torch 1.13 or 2.0 has no CANCEL_WAIT. It answers a wait when the key is set, even if
 * the client has given up the wait; the client could take this answer for the reply to a later
 * request. Therefore the client closes the connection to such a server and makes a new one. No
 * request is lost with the old connection, although SET and other requests have no reply: before
 * each WAIT the client sends a CHECK (wait_keys() in tcp_client.c), and the reply to the CHECK
 * proves that the server has carried out all requests before the CHECK. */
#include "store/client/tcp_client_internal.h"

#include "base/time/clock.h"

#include <errno.h>
#include <string.h>

/* ---- failing ---- */

int store_client_fail_timeout(const struct store_client *c, const struct store_call *call,
                              struct cr_error *err) {
    char what[STORE_CALL_TEXT_MAX];
    store_call_text(call->op, call->keys, call->key_count, what);
    return cr_fail(err, -ETIMEDOUT, "%s at store %s: timed out after %lld ms", what, c->socket.peer,
                   (long long) call->timeout_ms);
}

static const char *reason_of(int code) {
    return code == -ECONNRESET ? "the server closed the connection" : strerror(-code);
}

/* Makes the client broken: stores the error in c->broken, so that every later call fails with it,
 * and closes the connection. Returns `code`. */
static int break_client(struct store_client *c, const struct store_call *call, int code,
                        const char *reason, struct cr_error *err) {
    char what[STORE_CALL_TEXT_MAX];
    store_call_text(call->op, call->keys, call->key_count, what);
    if (code == -ETIMEDOUT) {
        (void) store_client_fail_timeout(c, call, &c->broken);
    } else {
        (void) cr_fail(&c->broken, code, "%s at store %s: %s", what, c->socket.peer,
                       reason != NULL ? reason : reason_of(code));
    }
    store_socket_close(&c->socket);
    if (err != NULL) *err = c->broken;
    return code;
}

static int fail_broken(const struct store_client *c, const struct store_call *call,
                       struct cr_error *err) {
    char what[STORE_CALL_TEXT_MAX];
    store_call_text(call->op, call->keys, call->key_count, what);
    return cr_fail(err, c->broken.code, "%s at store %s: the connection was lost before: %s", what,
                   c->socket.peer, c->broken.text);
}

/* ---- the exchange ---- */

static int send_call(struct store_client *c, const struct store_call *call) {
    struct iovec iov[2] = {
        {c->request.data, c->request.len},
        {(void *) (uintptr_t) call->tail.data, call->tail.len},
    };
    return store_socket_send(&c->socket, iov, 2, call->deadline_ms);
}

int store_client_exchange(struct store_client *c, const struct store_call *call,
                          struct store_answer *a, struct cr_error *err) {
    if (c->broken.code != 0) return fail_broken(c, call, err);
    int rc = send_call(c, call);
    if (rc < 0) return break_client(c, call, rc, NULL, err);
    if (a == NULL) return 0;
    store_answer_begin(a, store_op_reply(call->op), call->item_count);
    rc = store_client_receive(c, a, call->deadline_ms);
    return rc < 0 ? break_client(c, call, rc, a->reason, err) : 0;
}

/* ---- waiting ---- */

static int receive_byte(struct store_client *c, int64_t deadline_ms, uint8_t *byte) {
    int64_t n = store_socket_receive(&c->socket, byte, 1, deadline_ms);
    return n < 0 ? (int) n : 0;
}

static int reconnect(struct store_client *c, const struct store_call *call, struct cr_error *err) {
    (void) store_client_fail_timeout(c, call, err);
    store_socket_close(&c->socket);
    struct cr_error why = {0};
    int rc = store_client_shake(c, STORE_SHAKE_LEGACY, cr_deadline_ms(STORE_GRACE_MS), &why);
    if (rc < 0) (void) break_client(c, call, rc, why.text, NULL);
    return -ETIMEDOUT;
}

static int cancel(struct store_client *c, const struct store_call *call, struct cr_error *err) {
    if (store_client_dialect(c) != STORE_DIALECT_MODERN) return reconnect(c, call, err);
    struct store_encoder e = store_client_encoder(c);
    struct store_call ack = {.op = STORE_OP_CANCEL_WAIT,
                             .keys = call->keys,
                             .key_count = call->key_count,
                             .timeout_ms = STORE_GRACE_MS,
                             .deadline_ms = cr_deadline_ms(STORE_GRACE_MS)};
    uint8_t byte = 0;
    int rc = store_encode_plain(&e, STORE_OP_CANCEL_WAIT);
    if (rc == 0) rc = send_call(c, &ack);
    if (rc == 0) rc = receive_byte(c, ack.deadline_ms, &byte);
    if (rc == 0 && byte == STORE_STOP_WAITING) rc = receive_byte(c, ack.deadline_ms, &byte);
    if (rc < 0) return break_client(c, &ack, rc, NULL, err);
    if (byte != STORE_WAIT_CANCELED)
        return break_client(c, &ack, -EPROTO, "unexpected byte in reply", err);
    return store_client_fail_timeout(c, call, err);
}

int store_client_exchange_wait(struct store_client *c, const struct store_call *call,
                               struct cr_error *err) {
    if (c->broken.code != 0) return fail_broken(c, call, err);
    uint8_t byte = 0;
    int rc = send_call(c, call);
    if (rc < 0) return break_client(c, call, rc, NULL, err);
    rc = receive_byte(c, call->deadline_ms, &byte);
    if (rc == -ETIMEDOUT) return cancel(c, call, err);
    if (rc < 0) return break_client(c, call, rc, NULL, err);
    if (byte == STORE_STOP_WAITING) return 0;
    return break_client(c, call, -EPROTO, "unexpected byte in reply", err);
}
