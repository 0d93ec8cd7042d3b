/* One TCP connection, and functions with deadlines for it. The socket is non-blocking; the
 * functions wait in poll(2). This code also runs in worker processes. Therefore sending never
 * causes SIGPIPE (MSG_NOSIGNAL), and the socket's descriptor is close-on-exec. */
#ifndef STORE_CLIENT_SOCKET_H
#define STORE_CLIENT_SOCKET_H

#include "base/error.h"
#include "base/network/address.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct store_socket {
    int fd;             /* -1 = not connected */
    /* true if the last receive filled its buffer: more bytes have probably arrived, so the next
     * store_socket_receive() calls recv() without poll() before it */
    bool probably_more;
    char peer[CR_ADDRESS_MAX];
};

/* Resolves the name and tries each of its addresses once, in order. Returns 0 if one succeeds.
 * Otherwise returns the error of one address, preferably an error after which a later attempt may
 * succeed:
 *   -ECONNREFUSED, -ECONNRESET, -ETIMEDOUT, -ENOENT (unknown name), -EHOSTUNREACH, -ENETUNREACH:
 *               a later attempt may succeed
 *   others      a later attempt will fail, too: -EACCES, -EMFILE, … */
int store_socket_connect(struct store_socket *s, const char *host, uint16_t port,
                         int64_t deadline_ms, struct cr_error *err);

/* Sends all bytes of the iovecs, and overwrites the iovecs. Returns 0, -ETIMEDOUT, -EPIPE,
 * -ECONNRESET or another negative errno. */
int store_socket_send(struct store_socket *s, struct iovec *iov, int iov_count,
                      int64_t deadline_ms);

/* Receives 1 to `room` bytes. Returns their number, -ETIMEDOUT, -ECONNRESET (also if the server has
 * closed the connection) or another negative errno. */
int64_t store_socket_receive(struct store_socket *s, void *at, size_t room, int64_t deadline_ms);

void store_socket_close(struct store_socket *s);

#endif
