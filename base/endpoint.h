/* HOST:PORT as users type it. This header includes no socket header, so that code without I/O can
 * use it. */
#ifndef CR_ENDPOINT_H
#define CR_ENDPOINT_H

#include "base/error.h"

#include <stdint.h>

#define CR_HOST_MAX 256 /* bytes of a host name, NUL included */

struct cr_endpoint {
    char host[CR_HOST_MAX]; /* without brackets */
    uint16_t port;          /* 0: none was given and there is no default */
};

/* Parses torchrun's grammar: "host", "host:port", "[v6]" or "[v6]:port"; blanks around it are
 * ignored. What follows the last ':' is the port, so "fe80::1%eth0:80" has port 80. Empty text is
 * "localhost". A host consists of letters, digits, '_', '.', '-', and for IPv6 ':' and '%'.
 * Without a port, `default_port` is used.
 *
 * Returns 0, or -EINVAL with a text that names the endpoint and what is wrong with it. */
int cr_endpoint_parse(const char *text, uint16_t default_port, struct cr_endpoint *out,
                      struct cr_error *err);

#endif
