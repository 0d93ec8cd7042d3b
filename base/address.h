/* Socket addresses: numeric text for what we publish, and name resolution. Host and port as users type
 * them are in base/endpoint.h, which this header includes. */
#ifndef CR_ADDRESS_H
#define CR_ADDRESS_H

#include "base/endpoint.h"
#include "base/error.h"

#include <stdint.h>
#include <sys/socket.h>

#define CR_ADDRESS_MAX 80  /* "[v6%scope]:port", NUL included */

/* Numeric "1.2.3.4:80" or "[::1]:80"; v4-mapped addresses are written as v4. Never asks DNS. */
void cr_address_format(const struct sockaddr *addr, char out[CR_ADDRESS_MAX]);

/* The first stream address of host:port (numeric ones are taken as they are; IPv4 is preferred
 * when both exist, since most training fabrics number that way).
 * Returns 0, or -ENOENT with a text that names the host and the resolver's reason. */
int cr_address_resolve(const char *host, uint16_t port, struct sockaddr_storage *out,
                       socklen_t *len, struct cr_error *err);

#endif
