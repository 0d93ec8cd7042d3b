/* Connects a client: makes attempts, each of one connection and one handshake, until an attempt
 * succeeds or the time is up.
 *
 * Another attempt follows if the server is not running yet (connection refused), if the server's
 * queue of new connections is full (connection reset, perhaps in the middle of the handshake), or
 * if the host name does not resolve yet. probe.c decides which handshake is tried next. */
#include "store/client/tcp_client_internal.h"

#include "base/time/clock.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

static void pause_before_retry(struct store_backoff *backoff, int64_t deadline_ms) {
    int64_t until = cr_deadline_ms(store_backoff_next_ms(backoff));
    if (until > deadline_ms) until = deadline_ms;
    while (cr_monotonic_ms() < until) (void) poll(NULL, 0, cr_poll_timeout(until));
}

/* Sends CANCEL_WAIT to a server that has answered the legacy handshake; no wait is pending. Returns
 * 0 and sets *byte to the reply, or returns a negative errno. */
static int cancel_nothing(struct store_client *c, int64_t deadline_ms, uint8_t *byte) {
    struct store_encoder e = store_client_encoder(c);
    int rc = store_encode_plain(&e, STORE_OP_CANCEL_WAIT);
    if (rc == 0) rc = store_client_send(c, deadline_ms);
    if (rc < 0) return rc;
    int64_t n = store_socket_receive(&c->socket, byte, 1, deadline_ms);
    return n < 0 ? (int) n : 0;
}

static enum store_probe_next confirm(struct store_client *c, struct store_probe *probe,
                                     int64_t deadline_ms, int *rc, struct cr_error *err) {
    uint8_t byte = 0;
    *rc = cancel_nothing(c, deadline_ms, &byte);
    enum store_probe_next next = store_probe_confirmed(probe, *rc, byte);
    if (next != STORE_PROBE_AGAIN)
        *rc = store_client_fail_shake(c, *rc < 0 ? *rc : -EPROTO, err);
    store_socket_close(&c->socket);
    return next;
}

/* Makes one attempt to connect. Returns what to do next. Sets *rc to 0, or to the errno with which
 * the attempt failed. */
static enum store_probe_next attempt(struct store_client *c, struct store_probe *probe,
                                     int64_t deadline_ms, int *rc, struct cr_error *err) {
    int64_t until = cr_deadline_ms(store_probe_limit_ms(probe));
    c->socket.peer[0] = '\0'; /* store_client_shake() sets `peer` as soon as it has connected; if
                               * `peer` is still "" after the call, it could not connect */
    *rc = store_client_shake(c, probe->how, until < deadline_ms ? until : deadline_ms, err);
    bool connected = c->socket.peer[0] != '\0';
    enum store_probe_next next =
        *rc == 0 ? store_probe_shaken(probe) : store_probe_failed(probe, *rc, connected);
    return next == STORE_PROBE_CONFIRM ? confirm(c, probe, deadline_ms, rc, err) : next;
}

int store_client_connect_until(struct store_client *c, enum store_protocol protocol,
                               int64_t deadline_ms, struct cr_error *err) {
    struct store_backoff backoff =
        store_backoff_new((uint64_t) cr_monotonic_ns() ^ (uint64_t) getpid() << 32);
    struct store_probe probe = store_probe_new(protocol);
    for (;;) {
        int rc;
        enum store_probe_next next = attempt(c, &probe, deadline_ms, &rc, err);
        if (next == STORE_PROBE_FOUND) return 0;
        if (next == STORE_PROBE_STOP) return rc;
        if (rc < 0 && deadline_ms != CR_FOREVER && cr_monotonic_ms() >= deadline_ms)
            return -ETIMEDOUT;
        if (next == STORE_PROBE_LATER) pause_before_retry(&backoff, deadline_ms);
    }
}
