/* One exchange: a request out, a reply in, and what becomes of the client when that fails.
 *
 *   in order ──any failure, or time up in the middle of a reply──▶ broken, for good
 *   in order ──time up in WAIT or BARRIER──▶ CANCEL_WAIT ──"01" or "00 01"──▶ in order
 *                                               └─anything else──▶ broken
 *
 * A server of before CANCEL_WAIT (1.13) keeps the wait and answers it whenever the key comes, in
 * the middle of other replies. The only cure is a fresh connection; nothing is lost by it, since
 * the server answered a CHECK right before the WAIT, so it has executed all that was sent. */
#include "store/client/client_internal.h"

#include "base/clock.h"

#include <errno.h>
#include <string.h>

enum store_dialect store_client_dialect(const struct store_client *c) {
    return store_handshake_dialect(c->handshake);
}

struct store_encoder store_client_encoder(struct store_client *c) {
    cr_buffer_clear(&c->request);
    return (struct store_encoder){&c->request, store_client_dialect(c), STORE_BYTES("/")};
}

/* ---- failing ---- */

int store_client_fail_timeout(const struct store_client *c, const struct store_call *call,
                              struct cr_error *err) {
    char what[STORE_CALL_TEXT_MAX];
    store_call_text(call->op, call->keys, call->key_count, what);
    return cr_fail(err, -ETIMEDOUT, "%s at store %s: timed out after %lld ms", what, c->link.peer,
                   (long long) call->timeout_ms);
}

static const char *reason_of(int code) {
    if (code == -ECONNRESET) return "the server closed the connection";
    if (code == -ETIMEDOUT) return "no reply in time";
    return strerror(-code);
}

/* Records what was in flight; the connection is given up at once, so that the server forgets us. */
static int break_client(struct store_client *c, const struct store_call *call, int code,
                        const char *reason, struct cr_error *err) {
    char what[STORE_CALL_TEXT_MAX];
    store_call_text(call->op, call->keys, call->key_count, what);
    if (code == -ETIMEDOUT) {
        (void) cr_fail(&c->broken, code, "%s at store %s: timed out after %lld ms", what,
                       c->link.peer, (long long) call->timeout_ms);
    } else {
        (void) cr_fail(&c->broken, code, "%s at store %s: %s", what, c->link.peer,
                       reason != NULL ? reason : reason_of(code));
    }
    store_link_close(&c->link);
    if (err != NULL) *err = c->broken;
    return code;
}

static int fail_broken(const struct store_client *c, const struct store_call *call,
                       struct cr_error *err) {
    char what[STORE_CALL_TEXT_MAX];
    store_call_text(call->op, call->keys, call->key_count, what);
    return cr_fail(err, c->broken.code, "%s at store %s: the connection was lost before: %s", what,
                   c->link.peer, c->broken.text);
}

/* ---- the exchange ---- */

static int send_request(struct store_client *c, const struct store_call *call) {
    struct iovec iov[2] = {
        {c->request.data, c->request.len},
        {(void *) (uintptr_t) call->tail.data, call->tail.len},
    };
    return store_link_send(&c->link, iov, 2, call->deadline_ms);
}

int store_client_receive(struct store_client *c, struct store_answer *a, int64_t deadline_ms) {
    int rc = store_answer_put(a, 0);
    while (rc == 0) {
        size_t room;
        void *at = store_answer_room(a, &room);
        if (at == NULL) return -ENOMEM;
        int64_t n = store_link_receive(&c->link, at, room, deadline_ms);
        if (n < 0) return (int) n;
        rc = store_answer_put(a, (size_t) n);
    }
    return rc < 0 ? rc : 0;
}

int store_client_exchange(struct store_client *c, const struct store_call *call,
                          struct store_answer *a, struct cr_error *err) {
    if (c->broken.code != 0) return fail_broken(c, call, err);
    int rc = send_request(c, call);
    if (rc < 0) return break_client(c, call, rc, NULL, err);
    if (a == NULL) return 0;
    store_answer_begin(a, store_op_reply(call->op), call->item_count);
    rc = store_client_receive(c, a, call->deadline_ms);
    return rc < 0 ? break_client(c, call, rc, a->reason, err) : 0;
}

/* ---- waiting ---- */

static int receive_byte(struct store_client *c, int64_t deadline_ms, uint8_t *byte) {
    int64_t n = store_link_receive(&c->link, byte, 1, deadline_ms);
    return n < 0 ? (int) n : 0;
}

static int start_afresh(struct store_client *c, const struct store_call *call,
                        struct cr_error *err) {
    (void) store_client_fail_timeout(c, call, err);
    store_link_close(&c->link);
    struct cr_error why = {0};
    int rc = store_client_shake(c, STORE_SHAKE_LEGACY, cr_deadline_ms(STORE_GRACE_MS), &why);
    if (rc < 0) {
        struct store_call again = *call;
        (void) break_client(c, &again, rc, why.text, NULL);
    }
    return -ETIMEDOUT;
}

static int cancel(struct store_client *c, const struct store_call *call, struct cr_error *err) {
    if (store_client_dialect(c) != STORE_DIALECT_MODERN) return start_afresh(c, call, err);
    struct store_encoder e = store_client_encoder(c);
    struct store_call ack = {.op = STORE_OP_CANCEL_WAIT,
                             .keys = call->keys,
                             .key_count = call->key_count,
                             .timeout_ms = STORE_GRACE_MS,
                             .deadline_ms = cr_deadline_ms(STORE_GRACE_MS)};
    uint8_t byte = 0;
    int rc = store_encode_plain(&e, STORE_OP_CANCEL_WAIT);
    if (rc == 0) rc = send_request(c, &ack);
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
    int rc = send_request(c, call);
    if (rc < 0) return break_client(c, call, rc, NULL, err);
    rc = receive_byte(c, call->deadline_ms, &byte);
    if (rc == -ETIMEDOUT) return cancel(c, call, err);
    if (rc < 0) return break_client(c, call, rc, NULL, err);
    if (byte == STORE_STOP_WAITING) return 0;
    return break_client(c, call, -EPROTO, "unexpected byte in reply", err);
}
