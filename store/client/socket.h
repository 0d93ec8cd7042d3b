/* One TCP connection, used with deadlines: poll(2) and non-blocking calls, no thread, no libuv, no
 * signal (MSG_NOSIGNAL), close-on-exec from birth. Lives in other people's processes. */
#ifndef STORE_CLIENT_SOCKET_H
#define STORE_CLIENT_SOCKET_H

#include "base/address.h"
#include "base/error.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct store_link {
    int fd;  /* -1 = not connected */
    int hot; /* the last read filled its room: more is likely there */
    char peer[CR_ADDRESS_MAX];
};

/* Resolves and tries every address in order, once. Returns 0 or:
 *   -ECONNREFUSED, -ECONNRESET, -ETIMEDOUT, -ENOENT (unknown name), -EHOSTUNREACH, -ENETUNREACH
 *               the reason of the last address; a later try may do better
 *   others      will not get better: -EACCES, -EMFILE, … */
int store_link_dial(struct store_link *l, const char *host, uint16_t port, int64_t deadline_ms,
                    struct cr_error *err);

/* Options of every connection, ours on a loop too: no delay, and a peer whose host died is found. */
void store_link_prepare(int fd);

/* A port of the ephemeral range that nobody listens on may connect to itself: simultaneous open.
 * Such a connection is no server. */
int store_link_is_own_end(int fd);

/* Sends all; changes iov. 0, -ETIMEDOUT, -EPIPE, -ECONNRESET… */
int store_link_send(struct store_link *l, struct iovec *iov, int iov_count, int64_t deadline_ms);

/* Receives 1 to `room` bytes. > 0, -ETIMEDOUT, -ECONNRESET (also when the peer closed)… */
int64_t store_link_receive(struct store_link *l, void *at, size_t room, int64_t deadline_ms);

/* Closes with FIN. */
void store_link_close(struct store_link *l);

#endif
