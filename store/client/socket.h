/* One TCP connection with deadlines: poll(2) and non-blocking calls. It raises no signal
 * (MSG_NOSIGNAL), and its descriptor is close-on-exec from birth: this code lives in other people's
 * processes. */
#ifndef STORE_CLIENT_SOCKET_H
#define STORE_CLIENT_SOCKET_H

#include "base/address.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct store_socket {
    int fd;             /* -1 = not connected */
    bool probably_more; /* the last receive filled its room: the next one does not poll first */
    char peer[CR_ADDRESS_MAX];
};

/* Resolves the name and tries each of its addresses once, in order. Returns 0 or the error of the
 * last address:
 *   -ECONNREFUSED, -ECONNRESET, -ETIMEDOUT, -ENOENT (unknown name), -EHOSTUNREACH, -ENETUNREACH:
 *               a later try may succeed
 *   others      a later try will fail, too: -EACCES, -EMFILE, … */
int store_socket_connect(struct store_socket *s, const char *host, uint16_t port,
                         int64_t deadline_ms, struct cr_error *err);

/* Sends everything; changes iov. Returns 0, -ETIMEDOUT, -EPIPE, -ECONNRESET … */
int store_socket_send(struct store_socket *s, struct iovec *iov, int iov_count,
                      int64_t deadline_ms);

/* Receives 1 to `room` bytes. Returns their number, or -ETIMEDOUT, -ECONNRESET (also when the peer
 * closed) … */
int64_t store_socket_receive(struct store_socket *s, void *at, size_t room, int64_t deadline_ms);

void store_socket_close(struct store_socket *s);

#endif
