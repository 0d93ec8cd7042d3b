/* One TCP connection with deadlines. A call that cannot go on waits in poll(2) until its deadline.
 * TCP keep-alive detects that the server's host is dead, so that even a wait without a deadline
 * ends. */
#include "store/client/probe.h"
#include "store/client/socket.h"

#include "base/cleanup.h"
#include "base/network/connect.h"
#include "base/time/clock.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define KEEPALIVE_IDLE_S     60
#define KEEPALIVE_INTERVAL_S 15
#define KEEPALIVE_PROBES     4
/* time in ms within which the server must acknowledge sent bytes (TCP_USER_TIMEOUT); on Linux this
 * also replaces TCP_KEEPCNT, the number of unanswered keep-alive probes after which a connection is
 * closed */
#define UNSENT_MAX_MS        120000

/* ---- connecting ---- */

static void set_option(int fd, int level, int option, int value) {
    /* errors are ignored, because the connection also works without the option */
    (void) setsockopt(fd, level, option, &value, sizeof(value));
}

static void set_options(int fd) {
    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S);
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S);
    set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_PROBES);
    set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, UNSENT_MAX_MS);
}

static int connect_one(const struct addrinfo *to, int64_t deadline_ms, int *out_fd) {
    int rc = cr_connect(to->ai_addr, to->ai_addrlen, deadline_ms, out_fd);
    if (rc == 0) set_options(*out_fd);
    return rc;
}

static int64_t share_of(int64_t deadline_ms, size_t addresses_left) {
    int64_t left = cr_time_left_ms(deadline_ms);
    return left == 0 ? deadline_ms : cr_deadline_ms(store_address_time_ms(left, addresses_left));
}

static int connect_any(struct store_socket *s, const struct addrinfo *list, int64_t deadline_ms) {
    size_t left = 0;
    for (const struct addrinfo *a = list; a != NULL; a = a->ai_next) left++;
    int best = -ENOENT;
    for (const struct addrinfo *a = list; a != NULL; a = a->ai_next, left--) {
        int rc = connect_one(a, share_of(deadline_ms, left), &s->fd);
        if (rc == 0) {
            cr_address_format(a->ai_addr, s->peer);
            return 0;
        }
        if (best == -ENOENT || !store_worth_retry(best)) best = rc;
    }
    return best;
}

int store_socket_connect(struct store_socket *s, const char *host, uint16_t port,
                         int64_t deadline_ms, struct cr_error *err) {
    s->fd = -1;
    s->probably_more = false;
    char service[8];
    (void) snprintf(service, sizeof(service), "%u", port);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *list = NULL;
    int rc = getaddrinfo(host, service, &hints, &list);
    if (rc == EAI_MEMORY) return cr_fail(err, -ENOMEM, "out of memory");
    if (rc != 0) {
        const char *why = rc == EAI_SYSTEM ? strerror(errno) : gai_strerror(rc);
        return cr_fail(err, -ENOENT, "cannot resolve the name: %s", why);
    }
    rc = connect_any(s, list, deadline_ms);
    freeaddrinfo(list);
    if (rc < 0) return cr_fail(err, rc, "%s", strerror(-rc));
    return 0;
}

/* ---- bytes ---- */

static void advance(struct iovec **iov, int *count, size_t n) {
    while (*count > 0 && n >= (*iov)->iov_len) {
        n -= (*iov)->iov_len;
        (*iov)++;
        (*count)--;
    }
    if (*count > 0) {
        (*iov)->iov_base = (char *) (*iov)->iov_base + n;
        (*iov)->iov_len -= n;
    }
}

int store_socket_send(struct store_socket *s, struct iovec *iov, int iov_count,
                      int64_t deadline_ms) {
    advance(&iov, &iov_count, 0); /* drops empty iovecs at the beginning of the array */
    while (iov_count > 0) {
        struct msghdr m = {.msg_iov = iov, .msg_iovlen = (size_t) iov_count};
        ssize_t n = sendmsg(s->fd, &m, MSG_NOSIGNAL);
        if (n >= 0) {
            advance(&iov, &iov_count, (size_t) n);
            continue;
        }
        if (errno == EINTR) continue;
        if (errno != EAGAIN) return -errno;
        int rc = cr_wait_ready(s->fd, POLLOUT, deadline_ms);
        if (rc < 0) return rc;
    }
    return 0;
}

int64_t store_socket_receive(struct store_socket *s, void *at, size_t room, int64_t deadline_ms) {
    for (;;) {
        if (!s->probably_more) {
            int rc = cr_wait_ready(s->fd, POLLIN, deadline_ms);
            if (rc < 0) return rc;
        }
        ssize_t n = recv(s->fd, at, room, 0);
        s->probably_more = n == (ssize_t) room && room > 8;
        if (n > 0) return n;
        if (n == 0) return -ECONNRESET;
        if (errno != EINTR && errno != EAGAIN) return -errno;
    }
}

void store_socket_close(struct store_socket *s) { cr_close_fd(&s->fd); }
