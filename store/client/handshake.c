/* The layer of the TCP client above socket.c: makes one connection and a handshake on it; sends a
 * request; receives one reply. */
#include "store/client/tcp_client_internal.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum store_dialect store_client_dialect(const struct store_client *c) {
    return store_handshake_dialect(c->handshake);
}

struct store_encoder store_client_encoder(struct store_client *c) {
    cr_buffer_clear(&c->request);
    return (struct store_encoder){&c->request, store_client_dialect(c), STORE_BYTES("/")};
}

int store_client_send(struct store_client *c, int64_t deadline_ms) {
    struct iovec iov = {c->request.data, c->request.len};
    return store_socket_send(&c->socket, &iov, 1, deadline_ms);
}

int store_client_receive(struct store_client *c, struct store_answer *a, int64_t deadline_ms) {
    int rc = store_answer_put(a, 0);
    while (rc == 0) {
        size_t room;
        void *at = store_answer_room(a, &room);
        if (at == NULL) return -ENOMEM;
        int64_t n = store_socket_receive(&c->socket, at, room, deadline_ms);
        if (n < 0) return (int) n;
        rc = store_answer_put(a, (size_t) n);
    }
    return rc < 0 ? rc : 0;
}

int store_client_fail_shake(struct store_client *c, int rc, struct cr_error *err) {
    store_socket_close(&c->socket);
    const char *reason = store_handshake_reason(rc);
    return cr_fail(err, rc, "%s", reason != NULL ? reason : strerror(-rc));
}

int store_client_shake(struct store_client *c, enum store_handshake how, int64_t deadline_ms,
                       struct cr_error *err) {
    int rc = store_socket_connect(&c->socket, c->host, c->port, deadline_ms, err);
    if (rc < 0) return rc;
    c->handshake = how;
    uint32_t nonce = (uint32_t) getpid();
    cr_buffer_clear(&c->request);
    rc = store_handshake_encode(how, nonce, &c->request);
    if (rc == 0) rc = store_client_send(c, deadline_ms);
    if (rc < 0) return store_client_fail_shake(c, rc, err);
    struct store_answer a = {0};
    store_answer_begin(&a, store_handshake_reply(how), 0);
    rc = store_client_receive(c, &a, deadline_ms);
    if (rc == 0 && !store_handshake_accepts(how, nonce, a.number)) rc = -EPROTO;
    store_answer_done(&a);
    return rc < 0 ? store_client_fail_shake(c, rc, err) : 0;
}
