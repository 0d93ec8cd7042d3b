/* Blocking TCP with deadlines: implements base/network/connect.h. */
#include "base/network/connect.h"

#include "base/cleanup.h"
#include "base/time/clock.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

int cr_wait_ready(int fd, short events, int64_t deadline_ms) {
    for (;;) {
        struct pollfd p = {.fd = fd, .events = events};
        int n = poll(&p, 1, cr_poll_timeout(deadline_ms));
        if (n > 0) return 0;
        if (n < 0 && errno != EINTR) return -errno;
        if (deadline_ms != CR_FOREVER && cr_monotonic_ms() >= deadline_ms) return -ETIMEDOUT;
    }
}

/* Returns 1 if a socket is connected to itself, else 0. This happens if a socket connects to a
 * local port of the ephemeral range at which no server listens: the kernel may give the socket this
 * port as its own. cr_connect() reports such a connection as refused. */
static int is_connected_to_itself(int fd) {
    struct sockaddr_storage own = {0}, peer = {0};
    socklen_t own_len = sizeof(own), peer_len = sizeof(peer);
    if (getsockname(fd, (struct sockaddr *) &own, &own_len) < 0) return 0;
    if (getpeername(fd, (struct sockaddr *) &peer, &peer_len) < 0) return 0;
    return own_len == peer_len && memcmp(&own, &peer, own_len) == 0;
}

static int wait_connected(int fd, int64_t deadline_ms) {
    int failed = 0, rc = cr_wait_ready(fd, POLLOUT, deadline_ms);
    socklen_t len = sizeof(failed);
    if (rc < 0) return rc;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &len) < 0) return -errno;
    return -failed;
}

int cr_connect(const struct sockaddr *addr, socklen_t len, int64_t deadline_ms, int *out_fd) {
    CR_AUTO_FD int fd = socket(addr->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return -errno;
    if (connect(fd, addr, len) < 0) {
        if (errno != EINPROGRESS && errno != EINTR) return -errno;
        int rc = wait_connected(fd, deadline_ms);
        if (rc < 0) return rc;
    }
    if (is_connected_to_itself(fd)) return -ECONNREFUSED;
    *out_fd = cr_take_fd(&fd);
    return 0;
}
