/* Connecting: dial and handshake are one unit, tried until the time is up.
 *
 * The server may not be up yet (refused), its listen queue may overflow (reset, also in the middle
 * of the handshake), its name may not resolve yet: all of these mean later. Attempts back off with
 * jitter, so that a thousand clients do not come in step.
 *
 * What an unknown server is, is found by trying, since no version is on the wire:
 *
 *   PING ──echo──▶ modern               ┌──closed──▶ PING, after a pause
 *     ├──closed──▶ NOPING ──answer──▶ modern without ping
 *     └──silence─▶ LEGACY ──answer──▶ legacy      (silence in NOPING also leads to LEGACY)
 *
 * Silence means a server of before VALIDATE, which takes it for half a SET; it serves nobody until
 * we hang up, hence STORE_PROBE_MS. Or it means a modern server that is overloaded and speaks legacy
 * as well, as ours does: so one that answers legacy is asked for CANCEL_WAIT, which no old release
 * has; if it knows that, it gets all the time it needs for PING. */
#include "store/client_internal.h"

#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BACKOFF_FIRST_MS 50
#define BACKOFF_MAX_MS   5000

/* ---- one handshake ---- */

static int shake_failed(struct store_client *c, int rc, const char *reason, struct cr_error *err) {
    store_link_close(&c->link);
    if (reason == NULL) {
        reason = rc == -ECONNRESET  ? "the server closed the connection in the handshake"
                 : rc == -ETIMEDOUT ? "the server does not answer the handshake"
                                    : strerror(-rc);
    }
    return cr_fail(err, rc, "%s", reason);
}

static int encode_hello(struct store_client *c, uint32_t nonce) {
    struct store_encoder e = store_client_encoder(c);
    int rc = 0;
    if (c->handshake != STORE_SHAKE_LEGACY) rc = store_encode_validate(&c->request);
    if (rc < 0) return rc;
    if (c->handshake == STORE_SHAKE_PING) return store_encode_ping(&c->request, nonce);
    return store_encode_plain(&e, STORE_OP_NUM_KEYS);
}

int store_client_shake(struct store_client *c, enum store_handshake how, int64_t deadline_ms,
                       struct cr_error *err) {
    int rc = store_link_dial(&c->link, c->host, c->port, deadline_ms, err);
    if (rc < 0) return rc;
    c->handshake = how;
    uint32_t nonce = (uint32_t) getpid();
    rc = encode_hello(c, nonce);
    struct iovec iov = {c->request.data, c->request.len};
    if (rc == 0) rc = store_link_send(&c->link, &iov, 1, deadline_ms);
    if (rc < 0) return shake_failed(c, rc, NULL, err);
    struct store_answer a = {0};
    store_answer_begin(&a, how == STORE_SHAKE_PING ? STORE_REPLY_NONCE : STORE_REPLY_NUMBER, 0);
    rc = store_client_receive(c, &a, deadline_ms);
    int64_t number = a.number;
    store_answer_done(&a);
    if (rc < 0) return shake_failed(c, rc, NULL, err);
    if (how == STORE_SHAKE_PING ? number != nonce : number < 0)
        return shake_failed(c, -EPROTO, "the handshake was answered with other bytes", err);
    return 0;
}

/* ---- trying until the time is up ---- */

static uint64_t next_random(uint64_t *state) { /* xorshift: jitter needs no more */
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

struct pace {
    int64_t interval_ms;
    uint64_t random;
};

/* Sleeps about the interval, +/- half of it, never beyond the deadline; the interval grows. */
static void back_off(struct pace *p, int64_t deadline_ms) {
    int64_t ms =
        p->interval_ms / 2 + (int64_t) (next_random(&p->random) % (uint64_t) (p->interval_ms + 1));
    int64_t until = cr_deadline_ms(ms);
    if (until > deadline_ms) until = deadline_ms;
    while (cr_monotonic_ms() < until) (void) poll(NULL, 0, cr_poll_timeout(until));
    p->interval_ms += p->interval_ms / 2;
    if (p->interval_ms > BACKOFF_MAX_MS) p->interval_ms = BACKOFF_MAX_MS;
}

/* What to try after a failure in an unknown server; `connected` tells a failed handshake from a
 * failed dial. Sets *at_once when there is no reason to pause. */
static enum store_handshake next_probe(enum store_handshake tried, int rc, int connected,
                                       int *at_once) {
    *at_once = connected && tried != STORE_SHAKE_LEGACY;
    if (!connected) return tried;
    if (rc == -ETIMEDOUT && tried != STORE_SHAKE_LEGACY) return STORE_SHAKE_LEGACY;
    if (tried == STORE_SHAKE_PING) return STORE_SHAKE_NOPING;
    *at_once = 0;
    return STORE_SHAKE_PING;
}

/* After a legacy handshake: 1 = it knows CANCEL_WAIT, so it is modern in truth, 0 = it is old and
 * hung up, and is connected to afresh; negative = failed. */
static int is_modern_after_all(struct store_client *c, int64_t deadline_ms, struct cr_error *err) {
    struct store_encoder e = store_client_encoder(c);
    uint8_t byte = 0;
    int rc = store_encode_plain(&e, STORE_OP_CANCEL_WAIT);
    struct iovec iov = {c->request.data, c->request.len};
    if (rc == 0) rc = store_link_send(&c->link, &iov, 1, deadline_ms);
    int64_t n = rc < 0 ? rc : store_link_receive(&c->link, &byte, 1, deadline_ms);
    store_link_close(&c->link);
    if (n > 0) return byte == STORE_WAIT_CANCELED;
    if (n != -ECONNRESET && n != -EPIPE) return shake_failed(c, (int) n, NULL, err);
    rc = store_client_shake(c, STORE_SHAKE_LEGACY, deadline_ms, err);
    return rc < 0 ? rc : 0;
}

static int connect_until(struct store_client *c, enum store_protocol protocol, int64_t deadline_ms,
                         struct cr_error *err) {
    struct pace pace = {BACKOFF_FIRST_MS, (uint64_t) cr_monotonic_ns() ^ (uint64_t) getpid() << 32};
    enum store_handshake how =
        protocol == STORE_PROTOCOL_LEGACY ? STORE_SHAKE_LEGACY : STORE_SHAKE_PING;
    for (;;) {
        int64_t until = deadline_ms;
        if (protocol == STORE_PROTOCOL_PROBE) {
            int64_t probe = cr_deadline_ms(STORE_PROBE_MS);
            if (probe < until) until = probe;
        }
        c->link.peer[0] = '\0';
        int rc = store_client_shake(c, how, until, err);
        if (rc == 0 && how == STORE_SHAKE_LEGACY && protocol == STORE_PROTOCOL_PROBE) {
            rc = is_modern_after_all(c, deadline_ms, err);
            if (rc == 1) {
                protocol = STORE_PROTOCOL_MODERN;
                how = STORE_SHAKE_PING;
                continue;
            }
        }
        if (rc == 0) return 0;
        int connected = c->link.peer[0] != '\0', at_once = 0;
        if (!store_link_worth_retry(rc) && !(connected && rc == -EPROTO)) return rc;
        if (protocol == STORE_PROTOCOL_PROBE) how = next_probe(how, rc, connected, &at_once);
        if (deadline_ms != CR_FOREVER && cr_monotonic_ms() >= deadline_ms) return -ETIMEDOUT;
        if (!at_once) back_off(&pace, deadline_ms);
    }
}

static int fail_connect(const struct store_client *c, int rc, int64_t timeout_ms,
                        struct cr_error *err) {
    if (err == NULL) return rc;
    struct cr_error why = *err;
    const char *colon = strchr(c->host, ':') != NULL ? "[" : "";
    const char *end = colon[0] != '\0' ? "]" : "";
    if (rc != -ETIMEDOUT)
        return cr_fail(err, rc, "connect to the store at %s%s%s:%u: %s", colon, c->host, end,
                       c->port, why.text);
    return cr_fail(err, rc,
                   "connect to the store at %s%s%s:%u: timed out after %lld ms (%s); is it "
                   "running there?",
                   colon, c->host, end, c->port, (long long) timeout_ms, why.text);
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
        (void) fail_connect(c, rc, timeout_ms, &why);
        if (err != NULL) *err = why;
        store_client_close(c);
        return rc;
    }
    *out = c;
    return 0;
}

const char *store_client_protocol(const struct store_client *c) {
    static const char *const names[] = {"modern", "modern without ping", "legacy"};
    return names[c->handshake];
}

/* ---- what the server knows ---- */

/* A request without lasting effect that only a server with this operation answers. */
static int encode_question(struct store_client *probe, enum store_op op) {
    struct store_encoder e = store_client_encoder(probe);
    struct store_bytes name = STORE_BYTES("crunrt/probe");
    if (op == STORE_OP_LIST_KEYS) return store_encode_plain(&e, op);
    if (op != STORE_OP_BARRIER) return store_encode_key(&e, STORE_OP_QUEUE_LEN, name);
    int rc = store_encode_number(&e, op, name, 1);
    return rc < 0 ? rc : store_encode_key(&e, STORE_OP_DELETE, name); /* it leaves a counter */
}

/* Reads the whole answer, so that the server is not reset before it has done the last request. */
static int await_answer(struct store_client *probe, size_t want, int64_t deadline_ms) {
    uint8_t bytes[9];
    while (want > 0) {
        int64_t n = store_link_receive(&probe->link, bytes, want, deadline_ms);
        if (n < 0) return (int) n;
        want -= (size_t) n;
    }
    return 0;
}

static int ask(struct store_client *c, enum store_op op, struct cr_error *err) {
    struct store_client probe = {.link.fd = -1, .port = c->port};
    memcpy(probe.host, c->host, sizeof(probe.host));
    int64_t deadline = cr_deadline_ms(STORE_GRACE_MS);
    int rc = store_client_shake(&probe, c->handshake, deadline, err);
    if (rc < 0) {
        cr_buffer_done(&probe.request);
        return err != NULL
                   ? cr_wrap(err, "ask the store at %s for '%s'", c->link.peer, store_op_name(op))
                   : rc;
    }
    rc = encode_question(&probe, op);
    struct iovec iov = {probe.request.data, probe.request.len};
    if (rc == 0) rc = store_link_send(&probe.link, &iov, 1, deadline);
    if (rc == 0) rc = await_answer(&probe, op == STORE_OP_BARRIER ? 9 : 8, deadline);
    store_link_close(&probe.link);
    cr_buffer_done(&probe.request);
    if (rc == -ECONNRESET) return 0;
    if (rc < 0) {
        return cr_fail(err, rc, "ask the store at %s for '%s': %s", c->link.peer, store_op_name(op),
                       strerror(-rc));
    }
    return 1;
}

int store_client_knows(struct store_client *c, enum store_op op, struct cr_error *err) {
    if (c->handshake == STORE_SHAKE_LEGACY) {
        int code = store_op_code(STORE_DIALECT_LEGACY_A, op);
        return code >= 0 && code <= STORE_LEGACY_FIRST_MAX; /* above: never in a release */
    }
    if (op == STORE_OP_QUEUE_PUSH || op == STORE_OP_QUEUE_POP) op = STORE_OP_QUEUE_LEN;
    if (op != STORE_OP_LIST_KEYS && op != STORE_OP_BARRIER && op != STORE_OP_QUEUE_LEN) return 1;
    if (c->knows[op] == 0) {
        int rc = ask(c, op, err);
        if (rc < 0) return rc;
        c->knows[op] = rc == 1 ? 1 : -1;
    }
    return c->knows[op] == 1;
}
