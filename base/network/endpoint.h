/* Parses HOST:PORT as users type it. base/network/address.h resolves the host. This header includes
 * no socket header, so that pure code can include it. */
#ifndef CR_ENDPOINT_H
#define CR_ENDPOINT_H

#include "base/error.h"

#include <stdint.h>

#define CR_HOST_MAX 256 /* bytes of a host name, NUL included */

struct cr_endpoint {
    char host[CR_HOST_MAX]; /* host name or address; an IPv6 address without brackets */
    uint16_t port;          /* port in the text; if the text has no port, the default_port of
                             * cr_endpoint_parse() */
};

/* Parses an endpoint as torchrun does: "host", "host:port", "[v6]" or "[v6]:port". White space
 * around the endpoint is ignored; an empty text means "localhost". The text after the last ':' is
 * the port, even if an IPv6 address has no brackets, so "fe80::1%eth0:80" has port 80. If there is
 * no port, out->port is `default_port`. A host consists of letters, digits, '_', '.' and '-'; an
 * IPv6 address also has ':' and '%'.
 *
 * Returns 0; or -EINVAL, and sets err to a text that quotes the endpoint and names the mistake. */
int cr_endpoint_parse(const char *text, uint16_t default_port, struct cr_endpoint *out,
                      struct cr_error *err);

#endif
