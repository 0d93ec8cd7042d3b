/* Formats socket addresses as text and resolves host names; base/network/address.h declares the
 * functions. */
#include "base/network/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

static void format_v4(const void *address, unsigned port, char out[CR_ADDRESS_MAX]) {
    char host[INET_ADDRSTRLEN];
    (void) inet_ntop(AF_INET, address, host, sizeof(host));
    (void) snprintf(out, CR_ADDRESS_MAX, "%s:%u", host, port);
}

static void format_v6(const struct sockaddr_in6 *in6, char out[CR_ADDRESS_MAX]) {
    char host[INET6_ADDRSTRLEN];
    unsigned port = ntohs(in6->sin6_port);
    if (IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr)) {
        format_v4(&in6->sin6_addr.s6_addr[12], port, out);
        return;
    }
    (void) inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof(host));
    (void) snprintf(out, CR_ADDRESS_MAX, "[%s]:%u", host, port);
}

void cr_address_format(const struct sockaddr *addr, char out[CR_ADDRESS_MAX]) {
    if (addr->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *) (const void *) addr;
        format_v4(&in->sin_addr, ntohs(in->sin_port), out);
    } else if (addr->sa_family == AF_INET6) {
        format_v6((const struct sockaddr_in6 *) (const void *) addr, out);
    } else {
        (void) snprintf(out, CR_ADDRESS_MAX, "(address family %d)", addr->sa_family);
    }
}

uint16_t cr_address_port(const struct sockaddr *addr) {
    const struct sockaddr_in *in = (const struct sockaddr_in *) (const void *) addr;
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *) (const void *) addr;
    if (addr->sa_family == AF_INET) return ntohs(in->sin_port);
    return addr->sa_family == AF_INET6 ? ntohs(in6->sin6_port) : 0;
}

bool cr_address_ip(const struct sockaddr *addr, struct cr_ip *out) {
    const struct sockaddr_in *in = (const struct sockaddr_in *) (const void *) addr;
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *) (const void *) addr;
    if (addr->sa_family == AF_INET) {
        *out = (struct cr_ip){.bytes = {[10] = 0xff, [11] = 0xff}};
        memcpy(out->bytes + 12, &in->sin_addr, 4);
    } else if (addr->sa_family == AF_INET6) {
        memcpy(out->bytes, &in6->sin6_addr, sizeof(out->bytes));
    }
    return addr->sa_family == AF_INET || addr->sa_family == AF_INET6;
}

/* Returns the first IPv4 address of the list; if the list has none, its first address. */
static const struct addrinfo *prefer_v4(const struct addrinfo *list) {
    for (const struct addrinfo *a = list; a != NULL; a = a->ai_next) {
        if (a->ai_family == AF_INET) return a;
    }
    return list;
}

int cr_address_resolve(const char *host, uint16_t port, struct sockaddr_storage *out,
                       socklen_t *len, struct cr_error *err) {
    char service[8];
    (void) snprintf(service, sizeof(service), "%u", port);
    struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *list = NULL;
    int rc = getaddrinfo(host, service, &hints, &list);
    if (rc != 0) {
        const char *why = rc == EAI_SYSTEM ? strerror(errno) : gai_strerror(rc);
        return cr_fail(err, -ENOENT, "cannot resolve host '%s': %s; check the name", host, why);
    }
    const struct addrinfo *pick = prefer_v4(list);
    memcpy(out, pick->ai_addr, pick->ai_addrlen);
    *len = pick->ai_addrlen;
    freeaddrinfo(list);
    return 0;
}
