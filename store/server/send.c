/* Writes a connection's output to its socket: small replies from the output's buffer, big values
 * directly from the memory where the key space holds them. */
#include "store/server/server_internal.h"

#include <errno.h>
#include <sys/socket.h>

#define IOVECS_MAX 64

/* Approximate limit of the bytes that one call of store_send_pending() sends. Without this limit, a
 * client that reads as fast as the server sends would make all other clients wait. */
#define SEND_TURN ((size_t) 4 << 20)

/* If the next byte of the output belongs to a value that can be lent, sends bytes of this value
 * without a copy. Otherwise, or if the kernel does not support lending, sends bytes with a copy, up
 * to the beginning of the next value in the output that can be lent. Returns the number of bytes
 * sent, or -1 and sets errno, as send() does. */
static ssize_t send_chunks(struct store_connection *c) {
    const struct store_output *out = &c->session.out;
    size_t offset;
    bool lending = true;
    struct store_value *v = store_output_front(out, &offset);
    if (v != NULL && store_value_lendable(v)) {
        ssize_t n = store_lend(c->space->server, c->fd, v, offset);
        if (n != 0) return n;
        lending = false;
    }
    struct iovec iov[IOVECS_MAX];
    struct msghdr message = {.msg_iov = iov};
    message.msg_iovlen = (size_t) store_output_iov(out, iov, IOVECS_MAX, lending);
    size_t len = 0;
    for (size_t i = 0; i < message.msg_iovlen; i++) len += iov[i].iov_len;
    return sendmsg(c->fd, &message, MSG_NOSIGNAL | (len < out->pending ? MSG_MORE : 0));
}

int store_send_pending(struct store_connection *c) {
    struct store_output *out = &c->session.out;
    size_t before = out->pending;
    while (out->pending > 0 && before - out->pending < SEND_TURN) {
        const char *next = out->bytes.data + out->bytes_sent;
        ssize_t n =
            out->chunk_count > 0 ? send_chunks(c) : send(c->fd, next, out->pending, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -errno;
        c->space->bytes_out += (uint64_t) n;
        store_output_sent(out, (size_t) n);
    }
    return 0;
}
