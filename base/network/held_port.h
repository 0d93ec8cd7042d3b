/* A free TCP port that is kept for a program that will listen at it later. */
#ifndef CR_HELD_PORT_H
#define CR_HELD_PORT_H

#include "base/network/port_range.h"

#include <stdint.h>

/* Binds a socket to a free port of all addresses of this machine (IPv6 and IPv4, or IPv4 alone if
 * IPv6 is not there): to one of `ports`, or to any if `ports` has none. The socket does not listen.
 * While it is open, the kernel gives this port to no other program; but a program that sets
 * SO_REUSEADDR, as servers usually do, can bind the port and listen at it. Returns the socket,
 * which the caller closes, and stores the port in *port; or returns a negative errno. */
int cr_hold_port(struct cr_port_range ports, uint16_t *port);

#endif
