/* Host and port as users type them. Includes no socket header, so that code without I/O can use
 * it. */
#ifndef CR_ENDPOINT_H
#define CR_ENDPOINT_H

#include "base/error.h"

#include <stdint.h>

#define CR_HOST_MAX 256 /* bytes of a host name, NUL included */

struct cr_endpoint {
    char host[CR_HOST_MAX]; /* without brackets */
    uint16_t port;          /* 0 = none given and no default */
};

/* Parses torchrun's endpoint grammar: "host", "host:port", "[v6]", "[v6]:port". The port is what
 * follows the last ':'. Empty text means localhost. The host may hold letters, digits, '_', '.',
 * ':' and '-'. `default_port` is used if no port is given. Returns 0 or -EINVAL with a text that
 * names the endpoint and what is wrong with it. */
int cr_endpoint_parse(const char *text, uint16_t default_port, struct cr_endpoint *out,
                      struct cr_error *err);

#endif
