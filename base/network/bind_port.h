/* Binds a TCP socket to a free port, which may have to be one of a range (--port-range). */
#ifndef CR_BIND_PORT_H
#define CR_BIND_PORT_H

#include "base/network/port_range.h"

#include <sys/socket.h>

/* Binds `fd` to the address *at with a free port: one of `ports`, which are tried in an order that
 * begins at a random port; or one that the kernel chooses, if `ports` has none. Stores the port in
 * *at, an IPv4 or IPv6 address. Sets SO_REUSEADDR, so a program that sets it, too, can listen at
 * the port while `fd` does not listen. Returns 0; or a negative errno: -EADDRINUSE if no port of
 * the range is free. */
int cr_bind_port(int fd, struct sockaddr_storage *at, socklen_t len, struct cr_port_range ports);

#endif
