/* Formats a socket address as numeric text ("1.2.3.4:80"), takes out its parts, and resolves a
 * host name to a socket address. To parse the HOST:PORT that users type, use
 * base/network/endpoint.h, which this header includes. */
#ifndef CR_ADDRESS_H
#define CR_ADDRESS_H

#include "base/error.h"
#include "base/network/endpoint.h"
#include "base/network/network.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#define CR_ADDRESS_MAX 80 /* room for the longest formatted address, "[v6]:port", with its NUL */

/* Writes an IPv4 address as "1.2.3.4:80" and an IPv6 address as "[::1]:80". An IPv4 address that is
 * mapped into IPv6 is written as IPv4. For any other kind of address the text is "(address family
 * N)". The function never asks DNS for a name, so it cannot block. */
void cr_address_format(const struct sockaddr *addr, char out[CR_ADDRESS_MAX]);

/* Resolves `host` and `port` for a stream socket, and stores the address in *out and its size in
 * bytes in *len. If a name has both IPv4 and IPv6 addresses, its first IPv4 address is taken,
 * because most training networks use IPv4. The function blocks while it waits for DNS. Returns 0.
 * If the host cannot be resolved, returns -ENOENT and sets err to a text that names the host and
 * the resolver's reason. */
int cr_address_resolve(const char *host, uint16_t port, struct sockaddr_storage *out,
                       socklen_t *len, struct cr_error *err);

/* Returns the port of an IPv4 or IPv6 address; 0 for any other kind of address. */
uint16_t cr_address_port(const struct sockaddr *addr);

/* Stores the IPv4 or IPv6 address without its port in *out. Returns false, and leaves *out
 * unchanged, for any other kind of address. */
bool cr_address_ip(const struct sockaddr *addr, struct cr_ip *out);

#endif
