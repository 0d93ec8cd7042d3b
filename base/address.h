/* Socket addresses: their numeric text, and the resolution of host names. HOST:PORT as users type
 * it is in base/endpoint.h, which this header includes. */
#ifndef CR_ADDRESS_H
#define CR_ADDRESS_H

#include "base/endpoint.h"
#include "base/error.h"

#include <stdint.h>
#include <sys/socket.h>

#define CR_ADDRESS_MAX 80 /* bytes of "[v6%scope]:port", NUL included */

/* Writes "1.2.3.4:80" or "[::1]:80"; an IPv4 address that is mapped into IPv6 is written as IPv4.
 * Does not ask the resolver. */
void cr_address_format(const struct sockaddr *addr, char out[CR_ADDRESS_MAX]);

/* Finds the address of host:port for a stream socket. A numeric host is used as it is. A name
 * that has IPv4 and IPv6 addresses gives its first IPv4 address, because most training networks
 * use IPv4. Returns 0, or -ENOENT with a text that names the host and the resolver's reason. */
int cr_address_resolve(const char *host, uint16_t port, struct sockaddr_storage *out,
                       socklen_t *len, struct cr_error *err);

#endif
