/* One end of the connection between a caller and a session: implements wire_internal.h. */
#include "remote/wire_internal.h"

#include "base/cleanup.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#define IDLE_S     10    /* time in s without a byte after which the kernel sends a keep-alive
                          * probe */
#define INTERVAL_S 5     /* time in s between two keep-alive probes */
#define PROBES     3     /* number of unanswered probes after which the kernel ends the
                          * connection */
#define UNACKED_MS 25000 /* longest time in ms for which sent bytes may stay unacknowledged */

void wire_set_up(int fd) {
    const struct {
        int level, name, value;
    } options[] = {
        {IPPROTO_TCP, TCP_NODELAY, 1},       {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, IDLE_S}, {IPPROTO_TCP, TCP_KEEPINTVL, INTERVAL_S},
        {IPPROTO_TCP, TCP_KEEPCNT, PROBES},  {IPPROTO_TCP, TCP_USER_TIMEOUT, UNACKED_MS}};
    for (size_t i = 0; i < CR_ARRAY_LEN(options); i++) {
        (void) setsockopt(fd, options[i].level, options[i].name, &options[i].value, sizeof(int));
    }
}

int wire_read(struct wire *w) {
    static char bytes[REMOTE_PAYLOAD_MAX];
    ssize_t n = recv(w->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (n < 0) return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    if (n == 0) w->has_ended = true;
    secure_tunnel_receive(w->tunnel, bytes, (size_t) n);
    return 0;
}

int wire_flush(struct wire *w) {
    struct cr_buffer *out = secure_tunnel_out(w->tunnel);
    if (out->len == 0) return 0;
    ssize_t n = send(w->fd, out->data, out->len, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0) return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    cr_buffer_consume(out, (size_t) n);
    return 0;
}

int wire_put(struct wire *w, enum remote_message type, const void *data, size_t len) {
    struct cr_buffer frame = {0};
    int rc = remote_put(&frame, type, data, len);
    if (rc == 0) rc = secure_tunnel_send(w->tunnel, frame.data, frame.len);
    cr_buffer_done(&frame);
    return rc;
}

size_t wire_queued(const struct wire *w) { return secure_tunnel_out(w->tunnel)->len; }

short wire_events(const struct wire *w, bool reads) {
    return (short) ((reads ? POLLIN : 0) | (wire_queued(w) > 0 ? POLLOUT : 0));
}

void wire_close(struct wire *w) {
    cr_close_fd(&w->fd);
    secure_tunnel_free(w->tunnel);
    w->tunnel = NULL;
}
