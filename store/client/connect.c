/* Connecting: dial and handshake are one unit, tried until the time is up.
 *
 * The server may not be up yet (refused), its listen queue may overflow (reset, also in the middle
 * of the handshake), its name may not resolve yet: all of these mean later. What is tried next, and
 * what it proves, is decided in probe.c; here are the sockets and the clock. */
#include "store/client/client_internal.h"

#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- one handshake ---- */

static int shake_failed(struct store_client *c, int rc, struct cr_error *err) {
    store_link_close(&c->link);
    const char *reason = store_handshake_reason(rc);
    return cr_fail(err, rc, "%s", reason != NULL ? reason : strerror(-rc));
}

int store_client_shake(struct store_client *c, enum store_handshake how, int64_t deadline_ms,
                       struct cr_error *err) {
    int rc = store_link_dial(&c->link, c->host, c->port, deadline_ms, err);
    if (rc < 0) return rc;
    c->handshake = how;
    uint32_t nonce = (uint32_t) getpid();
    cr_buffer_clear(&c->request);
    rc = store_handshake_encode(how, nonce, &c->request);
    struct iovec iov = {c->request.data, c->request.len};
    if (rc == 0) rc = store_link_send(&c->link, &iov, 1, deadline_ms);
    if (rc < 0) return shake_failed(c, rc, err);
    struct store_answer a = {0};
    store_answer_begin(&a, store_handshake_reply(how), 0);
    rc = store_client_receive(c, &a, deadline_ms);
    if (rc == 0 && !store_handshake_accepts(how, nonce, a.number)) rc = -EPROTO;
    store_answer_done(&a);
    return rc < 0 ? shake_failed(c, rc, err) : 0;
}

/* ---- trying until the time is up ---- */

static void back_off(struct store_pace *pace, int64_t deadline_ms) {
    int64_t until = cr_deadline_ms(store_pace_next_ms(pace));
    if (until > deadline_ms) until = deadline_ms;
    while (cr_monotonic_ms() < until) (void) poll(NULL, 0, cr_poll_timeout(until));
}

/* Asks the server that answered legacy for CANCEL_WAIT. */
static enum store_probe_next confirm(struct store_client *c, struct store_probe *probe,
                                     int64_t deadline_ms, int *rc, struct cr_error *err) {
    struct store_encoder e = store_client_encoder(c);
    uint8_t byte = 0;
    *rc = store_encode_plain(&e, STORE_OP_CANCEL_WAIT);
    struct iovec iov = {c->request.data, c->request.len};
    if (*rc == 0) *rc = store_link_send(&c->link, &iov, 1, deadline_ms);
    if (*rc == 0) {
        int64_t n = store_link_receive(&c->link, &byte, 1, deadline_ms);
        if (n < 0) *rc = (int) n;
    }
    enum store_probe_next next = store_probe_confirmed(probe, *rc, byte);
    if (next != STORE_PROBE_AGAIN) *rc = shake_failed(c, *rc < 0 ? *rc : -EPROTO, err);
    store_link_close(&c->link);
    return next;
}

static int connect_until(struct store_client *c, enum store_protocol protocol, int64_t deadline_ms,
                         struct cr_error *err) {
    struct store_pace pace =
        store_pace_new((uint64_t) cr_monotonic_ns() ^ (uint64_t) getpid() << 32);
    struct store_probe probe = store_probe_new(protocol);
    for (;;) {
        int64_t until = cr_deadline_ms(store_probe_limit_ms(&probe));
        c->link.peer[0] = '\0';
        int rc = store_client_shake(c, probe.how, until < deadline_ms ? until : deadline_ms, err);
        enum store_probe_next next = rc == 0
                                         ? store_probe_shaken(&probe)
                                         : store_probe_failed(&probe, rc, c->link.peer[0] != '\0');
        if (next == STORE_PROBE_CONFIRM) next = confirm(c, &probe, deadline_ms, &rc, err);
        if (next == STORE_PROBE_FOUND) return 0;
        if (next == STORE_PROBE_STOP) return rc;
        if (rc < 0 && deadline_ms != CR_FOREVER && cr_monotonic_ms() >= deadline_ms)
            return -ETIMEDOUT;
        if (next == STORE_PROBE_LATER) back_off(&pace, deadline_ms);
    }
}

int store_client_connect(const char *host, uint16_t port, enum store_protocol protocol,
                         int64_t timeout_ms, struct store_client **out, struct cr_error *err) {
    if (strlen(host) >= CR_HOST_MAX)
        return cr_fail(err, -EINVAL, "host name '%.64s...' too long", host);
    struct store_client *c = calloc(1, sizeof(*c));
    if (c == NULL) return cr_fail(err, -ENOMEM, "connect to the store: out of memory");
    c->store.ops = &store_client_ops;
    c->link.fd = -1;
    c->port = port;
    memcpy(c->host, host, strlen(host));
    struct cr_error why = {0};
    int rc = connect_until(c, protocol, cr_deadline_ms(timeout_ms), &why);
    if (rc < 0) {
        (void) store_fail_connect(err, rc, host, port, timeout_ms, why.text);
        store_client_close(c);
        return rc;
    }
    *out = c;
    return 0;
}

const char *store_client_protocol(const struct store_client *c) {
    return store_handshake_name(c->handshake);
}

/* ---- what the server knows ---- */

static int await_answers(struct store_client *probe, enum store_op question, int64_t deadline_ms) {
    struct store_answer a = {0};
    int rc = 0;
    for (int nth = 0; rc == 0; nth++) {
        enum store_reply shape = store_question_reply(question, nth);
        if (shape == STORE_REPLY_NONE) break;
        store_answer_begin(&a, shape, 0);
        rc = store_client_receive(probe, &a, deadline_ms);
    }
    store_answer_done(&a);
    return rc;
}

static int ask(struct store_client *c, enum store_op question, struct cr_error *err) {
    struct store_client probe = {.link.fd = -1, .port = c->port};
    memcpy(probe.host, c->host, sizeof(probe.host));
    int64_t deadline = cr_deadline_ms(STORE_GRACE_MS);
    int rc = store_client_shake(&probe, c->handshake, deadline, err);
    if (rc < 0) {
        cr_buffer_done(&probe.request);
        return err != NULL ? cr_wrap(err, "ask the store at %s for '%s'", c->link.peer,
                                     store_op_name(question))
                           : rc;
    }
    cr_buffer_clear(&probe.request);
    rc = store_question_encode(question, &probe.request);
    struct iovec iov = {probe.request.data, probe.request.len};
    if (rc == 0) rc = store_link_send(&probe.link, &iov, 1, deadline);
    if (rc == 0) rc = await_answers(&probe, question, deadline);
    store_link_close(&probe.link);
    cr_buffer_done(&probe.request);
    if (rc == -ECONNRESET) return 0;
    if (rc < 0) {
        return cr_fail(err, rc, "ask the store at %s for '%s': %s", c->link.peer,
                       store_op_name(question), strerror(-rc));
    }
    return 1;
}

int store_client_knows(struct store_client *c, enum store_op op, struct cr_error *err) {
    int has = store_server_has(c->handshake, c->knows, op);
    if (has >= 0) return has;
    if (c->broken.code != 0) return 1; /* the call itself says so */
    enum store_op question = store_question(op);
    int rc = ask(c, question, err);
    if (rc >= 0) c->knows[question] = rc == 1 ? 1 : -1;
    return rc;
}
