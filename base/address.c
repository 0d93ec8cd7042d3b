#include "base/address.h"

#include "base/parse.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

static int host_is_well_formed(const char *host, size_t len) {
    if (len == 0 || len >= CR_HOST_MAX) return 0;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char) host[i];
        if (!isalnum(c) && c != '_' && c != '.' && c != ':' && c != '-' && c != '%') return 0;
    }
    return 1;
}

/* A host with colons is an IPv6 address, perhaps with a scope: "::1" must not become host ":". */
static int host_is_plausible(const char *host, size_t len) {
    char text[CR_HOST_MAX];
    struct in6_addr addr;
    if (!host_is_well_formed(host, len)) return 0;
    memcpy(text, host, len);
    text[len] = '\0';
    if (strchr(text, ':') == NULL) return 1;
    text[strcspn(text, "%")] = '\0';
    return inet_pton(AF_INET6, text, &addr) == 1;
}

int cr_endpoint_parse(const char *text, uint16_t default_port, struct cr_endpoint *out,
                      struct cr_error *err) {
    while (isspace((unsigned char) *text)) text++;
    size_t len = strlen(text);
    while (len > 0 && isspace((unsigned char) text[len - 1])) len--;
    if (len == 0) return cr_endpoint_parse("localhost", default_port, out, err);

    const char *host = text;
    size_t host_len = len;
    int64_t port = default_port;
    const char *colon = memrchr(text, ':', len);
    int bare_v6 = text[0] == '[' && text[len - 1] == ']';
    if (colon != NULL && !bare_v6) {
        char digits[8] = "";
        size_t n = len - (size_t) (colon + 1 - text);
        if (n < sizeof(digits)) memcpy(digits, colon + 1, n);
        if (n == 0 || n > 5 || !isdigit((unsigned char) digits[0]) ||
            cr_parse_i64(digits, 0, 65535, &port) < 0) {
            return cr_fail(err, -EINVAL,
                           "the port of endpoint '%s' must be a number from 0 to 65535%s", text,
                           memchr(text, ':', (size_t) (colon - text)) == NULL
                               ? "" : "; IPv6 stands in brackets: [ADDRESS]:PORT");
        }
        host_len = (size_t) (colon - text);
    }
    if (host_len >= 2 && host[0] == '[' && host[host_len - 1] == ']') {
        host++;
        host_len -= 2;
    }
    if (!host_is_plausible(host, host_len)) {
        return cr_fail(err, -EINVAL,
                       "the host of endpoint '%s' is not a host name or address; write HOST:PORT, "
                       "and IPv6 as [ADDRESS]:PORT",
                       text);
    }
    memcpy(out->host, host, host_len);
    out->host[host_len] = '\0';
    out->port = (uint16_t) port;
    return 0;
}

void cr_address_format(const struct sockaddr *addr, char out[CR_ADDRESS_MAX]) {
    char host[INET6_ADDRSTRLEN];
    if (addr->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *) (const void *) addr;
        (void) inet_ntop(AF_INET, &in->sin_addr, host, sizeof(host));
        (void) snprintf(out, CR_ADDRESS_MAX, "%s:%u", host, ntohs(in->sin_port));
        return;
    }
    if (addr->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *) (const void *) addr;
        unsigned port = ntohs(in6->sin6_port);
        if (IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr)) {
            (void) inet_ntop(AF_INET, &in6->sin6_addr.s6_addr[12], host, sizeof(host));
            (void) snprintf(out, CR_ADDRESS_MAX, "%s:%u", host, port);
            return;
        }
        (void) inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof(host));
        (void) snprintf(out, CR_ADDRESS_MAX, "[%s]:%u", host, port);
        return;
    }
    (void) snprintf(out, CR_ADDRESS_MAX, "(address family %d)", addr->sa_family);
}

int cr_address_resolve(const char *host, uint16_t port, struct sockaddr_storage *out,
                       socklen_t *len, struct cr_error *err) {
    char service[8];
    (void) snprintf(service, sizeof(service), "%u", port);
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICSERV};
    struct addrinfo *list = NULL;
    int rc = getaddrinfo(host, service, &hints, &list);
    if (rc != 0) {
        const char *why = rc == EAI_SYSTEM ? strerror(errno) : gai_strerror(rc);
        return cr_fail(err, -ENOENT, "cannot resolve host '%s': %s; check the name", host, why);
    }
    const struct addrinfo *pick = list;
    for (const struct addrinfo *a = list; a != NULL; a = a->ai_next) {
        if (a->ai_family == AF_INET) {
            pick = a;
            break;
        }
    }
    memcpy(out, pick->ai_addr, pick->ai_addrlen);
    *len = pick->ai_addrlen;
    freeaddrinfo(list);
    return 0;
}
