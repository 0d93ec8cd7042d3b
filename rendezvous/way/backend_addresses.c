/* Finds out whether a host is this machine. It compares addresses, never names, because a machine
 * can have several names. */
#include "rendezvous/way/way.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

static int to_text(const struct sockaddr *sa, char out[RDZV_ADDR_MAX]) {
    if (sa == NULL) return 0;
    if (sa->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *) (const void *) sa;
        return inet_ntop(AF_INET, &in->sin_addr, out, RDZV_ADDR_MAX) != NULL;
    }
    if (sa->sa_family != AF_INET6) return 0;
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *) (const void *) sa;
    if (IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr)) {
        return inet_ntop(AF_INET, &in6->sin6_addr.s6_addr[12], out, RDZV_ADDR_MAX) != NULL;
    }
    return inet_ntop(AF_INET6, &in6->sin6_addr, out, RDZV_ADDR_MAX) != NULL;
}

static int is_loopback(const char *addr) {
    return strncmp(addr, "127.", 4) == 0 || strcmp(addr, "::1") == 0;
}

/* Returns whether this machine has the address. All of 127.0.0.0/8 belongs to the machine, but
 * getifaddrs() lists only 127.0.0.1, so loopback addresses are checked separately. */
static int is_ours(const char *addr, const struct ifaddrs *interfaces) {
    char own[RDZV_ADDR_MAX];
    if (is_loopback(addr)) return 1;
    for (const struct ifaddrs *i = interfaces; i != NULL; i = i->ifa_next) {
        if (to_text(i->ifa_addr, own) && strcmp(own, addr) == 0) return 1;
    }
    return 0;
}

static void append(char *text, size_t room, const char *what) {
    size_t len = strlen(text);
    if (len + strlen(what) + 1 < room) memcpy(text + len, what, strlen(what) + 1);
}

static void describe(const char *host, const struct addrinfo *found,
                     const struct ifaddrs *interfaces, struct backend_addresses *out) {
    char addr[RDZV_ADDR_MAX];
    const char *comma = "";
    (void) snprintf(out->text, sizeof(out->text), "'%.200s' resolves to ", host);
    for (const struct addrinfo *a = found; a != NULL; a = a->ai_next) {
        if (!to_text(a->ai_addr, addr)) continue;
        append(out->text, sizeof(out->text), comma);
        append(out->text, sizeof(out->text), addr);
        comma = ", ";
    }
    append(out->text, sizeof(out->text), "; this node has ");
    comma = "";
    for (const struct ifaddrs *i = interfaces; i != NULL; i = i->ifa_next) {
        if (!to_text(i->ifa_addr, addr)) continue;
        append(out->text, sizeof(out->text), comma);
        append(out->text, sizeof(out->text), addr);
        comma = ", ";
    }
}

/* Replaces `kept` by `addr` if `kept` is empty, or if `kept` is IPv6 and `addr` is IPv4. */
static void prefer_v4(char kept[RDZV_ADDR_MAX], const char addr[RDZV_ADDR_MAX]) {
    bool is_v4 = strchr(addr, ':') == NULL;
    if (kept[0] == '\0' || (is_v4 && strchr(kept, ':') != NULL)) memcpy(kept, addr, RDZV_ADDR_MAX);
}

int backend_look_up(const char *host, struct backend_addresses *out, struct cr_error *err) {
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    struct ifaddrs *interfaces = NULL;
    char addr[RDZV_ADDR_MAX];
    *out = (struct backend_addresses){.first = ""};
    int rc = getaddrinfo(host, NULL, &hints, &found);
    if (rc != 0) {
        const char *why = rc == EAI_SYSTEM ? strerror(errno) : gai_strerror(rc);
        return cr_fail(err, -ENOENT,
                       "cannot resolve the host '%s': %s; check the name, or give an address", host,
                       why);
    }
    /* on error `interfaces` stays NULL, and only loopback addresses count as ours */
    (void) getifaddrs(&interfaces);
    for (const struct addrinfo *a = found; a != NULL; a = a->ai_next) {
        if (!to_text(a->ai_addr, addr)) continue;
        prefer_v4(out->first, addr);
        if (is_ours(addr, interfaces)) prefer_v4(out->local, addr);
    }
    out->is_loopback = is_loopback(out->first);
    describe(host, found, interfaces, out);
    if (interfaces != NULL) freeifaddrs(interfaces);
    freeaddrinfo(found);
    if (out->first[0] != '\0') return 0;
    return cr_fail(err, -ENOENT, "the host '%s' has no IPv4 or IPv6 address", host);
}
