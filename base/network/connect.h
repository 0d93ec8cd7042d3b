/* Blocking TCP with deadlines, for programs and libraries without an event loop. The functions
 * wait in poll(2); a signal does not end the wait. Deadlines are those of base/time/clock.h. */
#ifndef CR_CONNECT_H
#define CR_CONNECT_H

#include <stdint.h>
#include <sys/socket.h>

/* Waits until `fd` is ready for one of `events` (POLLIN, POLLOUT) or has failed. Returns 0 in both
 * cases: if `fd` has failed, the caller's next read or write reports it. Returns -ETIMEDOUT if the
 * deadline has passed, or another negative errno if poll(2) fails. */
int cr_wait_ready(int fd, short events, int64_t deadline_ms);

/* Connects to `addr` and stores a non-blocking, close-on-exec descriptor in *out_fd, which the
 * caller closes. Returns 0; or a negative errno such as -ECONNREFUSED, or -ETIMEDOUT if the
 * deadline has passed. */
int cr_connect(const struct sockaddr *addr, socklen_t len, int64_t deadline_ms, int *out_fd);

#endif
