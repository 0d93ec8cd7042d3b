/* Blocking TCP with deadlines, for programs and libraries without an event loop. Waiting is
 * poll(2); a signal does not end it. */
#ifndef CR_CONNECT_H
#define CR_CONNECT_H

#include <stdint.h>
#include <sys/socket.h>

/* Waits until `fd` is ready for one of `events` (POLLIN, POLLOUT), or has an error that the next
 * call on it returns. Returns 0, -ETIMEDOUT, or another negative errno. */
int cr_wait_ready(int fd, short events, int64_t deadline_ms);

/* Connects to `addr`. *out_fd gets a descriptor that is non-blocking and close-on-exec.
 * Returns 0, -ECONNREFUSED, -ETIMEDOUT, or another negative errno. */
int cr_connect(const struct sockaddr *addr, socklen_t len, int64_t deadline_ms, int *out_fd);

#endif
