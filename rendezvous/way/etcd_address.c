/* Finds the address that a node publishes in etcd: see etcd_address_internal.h. */
#include "rendezvous/way/etcd_address_internal.h"

#include "base/cleanup.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

bool etcd_address_is_loopback(const char *host) {
    return strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0 ||
           strcmp(host, "localhost") == 0 || strncmp(host, "::ffff:127.", 11) == 0;
}

/* Writes the address of `sa` if another host can connect to it: IPv4, or IPv6 without a scope. */
static bool write_usable(const struct sockaddr *sa, char out[RDZV_ADDR_MAX]) {
    const struct sockaddr_in *in = (const struct sockaddr_in *) (const void *) sa;
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *) (const void *) sa;
    char text[RDZV_ADDR_MAX];
    if (sa == NULL) return false;
    if (sa->sa_family == AF_INET) {
        if (inet_ntop(AF_INET, &in->sin_addr, text, sizeof(text)) == NULL) return false;
    } else if (sa->sa_family == AF_INET6 && !IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr)) {
        if (inet_ntop(AF_INET6, &in6->sin6_addr, text, sizeof(text)) == NULL) return false;
    } else {
        return false;
    }
    if (etcd_address_is_loopback(text)) return false;
    memcpy(out, text, sizeof(text));
    return true;
}

/* Finds the source address of packets to other networks: connecting a UDP socket chooses it from
 * the routes and sends nothing. 192.0.2.1 is an address for documentation; no host has it. */
static bool find_by_route(char out[RDZV_ADDR_MAX]) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9)};
    struct sockaddr_storage own = {0};
    socklen_t len = sizeof(own);
    CR_AUTO_FD int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || inet_pton(AF_INET, "192.0.2.1", &to.sin_addr) != 1) return false;
    if (connect(fd, (const struct sockaddr *) &to, sizeof(to)) < 0) return false;
    if (getsockname(fd, (struct sockaddr *) &own, &len) < 0) return false;
    return write_usable((const struct sockaddr *) &own, out);
}

static bool find_by_interface(sa_family_t family, char out[RDZV_ADDR_MAX]) {
    struct ifaddrs *interfaces = NULL;
    bool found = false;
    if (getifaddrs(&interfaces) < 0) return false;
    for (const struct ifaddrs *i = interfaces; i != NULL && !found; i = i->ifa_next) {
        if ((i->ifa_flags & IFF_UP) == 0 || i->ifa_addr == NULL) continue;
        if (i->ifa_addr->sa_family == family) found = write_usable(i->ifa_addr, out);
    }
    freeifaddrs(interfaces);
    return found;
}

void etcd_address_to_publish(const char *own_end, char out[RDZV_ADDR_MAX]) {
    if (own_end[0] != '\0' && !etcd_address_is_loopback(own_end)) {
        (void) snprintf(out, RDZV_ADDR_MAX, "%s", own_end);
        return;
    }
    if (find_by_route(out) || find_by_interface(AF_INET, out) || find_by_interface(AF_INET6, out))
        return;
    (void) snprintf(out, RDZV_ADDR_MAX, "%s", own_end[0] != '\0' ? own_end : "127.0.0.1");
}
