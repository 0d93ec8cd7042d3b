/* Finds out whether a host is this machine. It compares addresses, never names, because a machine
 * can have several names. */
#include "rendezvous/dial/addresses_internal.h"

#include "base/cleanup.h"
#include "base/network/address.h"
#include "rendezvous/dial/race_internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

/* ---- kinds of addresses ---- */

static bool to_text(const struct sockaddr *sa, char out[RDZV_ADDR_MAX]) {
    struct cr_ip ip;
    if (sa == NULL || !cr_address_ip(sa, &ip)) return false;
    cr_ip_format(&ip, out);
    return true;
}

bool addr_is_loopback(const char *addr) {
    return strncmp(addr, "127.", 4) == 0 || strcmp(addr, "::1") == 0;
}

bool addr_is_any(const char *host) {
    return strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0;
}

static bool is_numeric(const char *host) {
    struct in6_addr binary;
    return inet_pton(AF_INET, host, &binary) == 1 || inet_pton(AF_INET6, host, &binary) == 1;
}

static bool is_written_loopback(const char *host) {
    return strcasecmp(host, "localhost") == 0 || (is_numeric(host) && addr_is_loopback(host));
}

/* ---- this machine's addresses ---- */

/* Returns whether this machine has the address. All of 127.0.0.0/8 belongs to the machine, but
 * getifaddrs() lists only 127.0.0.1, so loopback addresses are checked separately. */
static bool is_ours(const char *addr, const struct ifaddrs *interfaces) {
    char own[RDZV_ADDR_MAX];
    if (addr_is_loopback(addr) || addr_is_any(addr)) return true;
    for (const struct ifaddrs *i = interfaces; i != NULL; i = i->ifa_next) {
        if (to_text(i->ifa_addr, own) && strcmp(own, addr) == 0) return true;
    }
    return false;
}

/* Finds the address from which this machine sends to an address beyond its own networks: connecting
 * a UDP socket makes the kernel choose a route, and sends nothing. `to` is an address that is
 * reserved for documentation, so no network has it. */
static bool find_route_source(int family, const char *to, char out[RDZV_ADDR_MAX]) {
    struct sockaddr_storage addr = {.ss_family = (sa_family_t) family};
    struct sockaddr_in *in = (struct sockaddr_in *) &addr;
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *) &addr;
    socklen_t len = family == AF_INET ? sizeof(*in) : sizeof(*in6);
    CR_AUTO_FD int fd = socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    void *bytes = family == AF_INET ? (void *) &in->sin_addr : (void *) &in6->sin6_addr;
    if (fd < 0 || inet_pton(family, to, bytes) != 1) return false;
    in->sin_port = htons(9); /* sin6_port has the same offset */
    if (connect(fd, (struct sockaddr *) &addr, len) < 0) return false;
    if (getsockname(fd, (struct sockaddr *) &addr, &len) < 0) return false;
    return to_text((struct sockaddr *) &addr, out) && !addr_is_loopback(out);
}

/* Finds the address of the first interface that is up and not loopback. IPv6 link-local addresses
 * (fe80:) are left out, because another machine can use one only together with the name of its own
 * interface. */
static bool find_interface(const struct ifaddrs *interfaces, int family, char out[RDZV_ADDR_MAX]) {
    for (const struct ifaddrs *i = interfaces; i != NULL; i = i->ifa_next) {
        if (i->ifa_addr == NULL || i->ifa_addr->sa_family != family) continue;
        if ((i->ifa_flags & IFF_UP) == 0 || (i->ifa_flags & IFF_LOOPBACK) != 0) continue;
        if (to_text(i->ifa_addr, out) && strncmp(out, "fe80:", 5) != 0) return true;
    }
    return false;
}

static void find_machine(const struct ifaddrs *interfaces, char out[RDZV_ADDR_MAX]) {
    if (find_route_source(AF_INET, "192.0.2.1", out)) return;
    if (find_interface(interfaces, AF_INET, out)) return;
    if (find_route_source(AF_INET6, "2001:db8::1", out)) return;
    if (find_interface(interfaces, AF_INET6, out)) return;
    (void) snprintf(out, RDZV_ADDR_MAX, "127.0.0.1");
}

void addr_of_machine(char out[RDZV_ADDR_MAX]) {
    struct ifaddrs *interfaces = NULL;
    (void) getifaddrs(&interfaces);
    find_machine(interfaces, out);
    if (interfaces != NULL) freeifaddrs(interfaces);
}

void addr_list_own(char *out, size_t room) {
    struct ifaddrs *interfaces = NULL;
    char addr[RDZV_ADDR_MAX];
    size_t len = 0;
    out[0] = '\0';
    if (getifaddrs(&interfaces) < 0) return;
    for (const struct ifaddrs *i = interfaces; i != NULL; i = i->ifa_next) {
        if (!to_text(i->ifa_addr, addr) || addr_is_loopback(addr)) continue;
        if (len + strlen(addr) + 2 > room) break;
        if (len > 0) out[len++] = ' ';
        len = (size_t) (stpcpy(out + len, addr) - out);
    }
    freeifaddrs(interfaces);
}

/* ---- looking up a host ---- */

static void append(char *text, size_t room, const char *what) {
    size_t len = strlen(text);
    if (len + strlen(what) + 1 < room) memcpy(text + len, what, strlen(what) + 1);
}

static void describe(const char *host, const struct addrinfo *found,
                     const struct ifaddrs *interfaces, struct host_addresses *out) {
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

/* Replaces `kept` by `addr` if `kept` is empty or `addr` is better. An address that is not loopback
 * is better than a loopback address, because other machines can use it; among the others, IPv4 is
 * better than IPv6. */
static void prefer_reachable(char kept[RDZV_ADDR_MAX], const char addr[RDZV_ADDR_MAX]) {
    if (kept[0] == '\0' || addr_is_loopback(kept) == addr_is_loopback(addr)) {
        prefer_v4(kept, addr);
    } else if (addr_is_loopback(kept)) {
        memcpy(kept, addr, RDZV_ADDR_MAX);
    }
}

static void compare(const char *host, const struct addrinfo *found, struct host_addresses *out) {
    struct ifaddrs *interfaces = NULL;
    char addr[RDZV_ADDR_MAX];
    /* on error `interfaces` stays NULL, and only loopback addresses count as this machine's */
    (void) getifaddrs(&interfaces);
    for (const struct addrinfo *a = found; a != NULL; a = a->ai_next) {
        if (!to_text(a->ai_addr, addr)) continue;
        prefer_v4(out->first, addr);
        if (is_ours(addr, interfaces)) prefer_reachable(out->local, addr);
    }
    for (const struct addrinfo *a = found; a != NULL && out->local[0] != '\0'; a = a->ai_next) {
        if (!to_text(a->ai_addr, addr) || is_ours(addr, interfaces)) continue;
        out->has_others = true;
        if (race_compare(addr, out->local) < 0) out->before_local++;
    }
    out->is_loopback = addr_is_loopback(out->first);
    out->is_written_loopback = is_written_loopback(host);
    out->is_any = addr_is_any(host);
    out->is_numeric = is_numeric(host);
    find_machine(interfaces, out->machine);
    describe(host, found, interfaces, out);
    if (interfaces != NULL) freeifaddrs(interfaces);
}

int addr_look_up(const char *host, struct host_addresses *out, struct cr_error *err) {
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    *out = (struct host_addresses){.first = ""};
    int rc = getaddrinfo(host, NULL, &hints, &found);
    if (rc != 0) {
        const char *why = rc == EAI_SYSTEM ? strerror(errno) : gai_strerror(rc);
        return cr_fail(err, -ENOENT,
                       "cannot resolve the host '%s': %s; check the name, or give an address", host,
                       why);
    }
    compare(host, found, out);
    freeaddrinfo(found);
    if (out->first[0] != '\0') return 0;
    return cr_fail(err, -ENOENT, "the host '%s' has no IPv4 or IPv6 address", host);
}

int addr_choose_listen(const char *host, char bind[RDZV_ADDR_MAX], struct cr_error *err) {
    struct host_addresses found;
    bind[0] = '\0';
    if (host[0] == '\0' || strcmp(host, "::") == 0) return 0;
    int rc = addr_look_up(host, &found, err);
    if (rc < 0 || (found.is_loopback && !found.is_written_loopback)) return rc;
    memcpy(bind, found.first, RDZV_ADDR_MAX);
    return 0;
}
