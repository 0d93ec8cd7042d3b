/* Host and port: parsing what users type, and numeric text for what we publish. */
#ifndef CR_ADDRESS_H
#define CR_ADDRESS_H

#include "base/error.h"

#include <stdint.h>
#include <sys/socket.h>

#define CR_HOST_MAX    256 /* bytes of a host name, NUL included */
#define CR_ADDRESS_MAX 80  /* "[v6%scope]:port", NUL included */

struct cr_endpoint {
    char host[CR_HOST_MAX]; /* without brackets */
    uint16_t port;          /* 0 = none given and no default */
};

/* Parses torchrun's endpoint grammar: "host", "host:port", "[v6]", "[v6]:port"; the port is what
 * follows the last ':'; empty text means localhost. The host may hold letters, digits, '_', '.',
 * ':' and '-'. `default_port` fills in for a missing one.
 * Returns 0 or -EINVAL with a text that names the endpoint and what is wrong with it. */
int cr_endpoint_parse(const char *text, uint16_t default_port, struct cr_endpoint *out,
                      struct cr_error *err);

/* Numeric "1.2.3.4:80" or "[::1]:80"; v4-mapped addresses are written as v4. Never asks DNS. */
void cr_address_format(const struct sockaddr *addr, char out[CR_ADDRESS_MAX]);

/* The first stream address of host:port (numeric ones are taken as they are; IPv4 is preferred
 * when both exist, since most training fabrics number that way).
 * Returns 0, or -ENOENT with a text that names the host and the resolver's reason. */
int cr_address_resolve(const char *host, uint16_t port, struct sockaddr_storage *out,
                       socklen_t *len, struct cr_error *err);

#endif
