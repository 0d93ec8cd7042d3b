/* Finds the address at which other ranks can reach this host: the address from which the kernel
 * would send packets to the store. All ranks use the store, so this address is on a network that
 * the hosts share.
 *
 * On the store's own host, this can be a loopback address although there are other hosts: for
 * example, Debian writes "127.0.1.1 <host name>" into /etc/hosts. In that case, the address of the
 * first interface that is up is used. */
#include "worker_runtime/runtime/runtime.h"

#include "base/cleanup.h"
#include "base/network/address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

static bool is_loopback(const struct sockaddr_storage *a) {
    if (a->ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *) a;
        return ntohl(in->sin_addr.s_addr) >> 24 == 127;
    }
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *) a;
    return IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr);
}

static void format_host(const struct sockaddr_storage *a, char out[RT_ADDRESS_MAX]) {
    const void *host = a->ss_family == AF_INET
                           ? (const void *) &((const struct sockaddr_in *) a)->sin_addr
                           : (const void *) &((const struct sockaddr_in6 *) a)->sin6_addr;
    (void) inet_ntop(a->ss_family, host, out, RT_ADDRESS_MAX);
}

/* Sets *own to the local address from which the kernel would send packets to `to`. connect() on a
 * datagram socket sends no packet: it only makes the kernel choose a route and a local address. */
static int route_towards(const struct sockaddr_storage *to, socklen_t to_len,
                         struct sockaddr_storage *own, struct cr_error *err) {
    CR_AUTO_FD int fd = socket(to->ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    socklen_t len = sizeof(*own);
    if (fd < 0 || connect(fd, (const struct sockaddr *) to, to_len) < 0 ||
        getsockname(fd, (struct sockaddr *) own, &len) < 0) {
        return cr_fail_errno(err, "find this host's address towards the store");
    }
    return 0;
}

static void prefer_interface(struct sockaddr_storage *own) {
    struct ifaddrs *list = NULL;
    /* If getifaddrs() fails, *own stays a loopback address, which ranks on other hosts cannot
     * reach. */
    if (getifaddrs(&list) < 0) return;
    for (const struct ifaddrs *i = list; i != NULL; i = i->ifa_next) {
        if (i->ifa_addr == NULL || i->ifa_addr->sa_family != AF_INET) continue;
        if ((i->ifa_flags & IFF_LOOPBACK) != 0 || (i->ifa_flags & IFF_UP) == 0) continue;
        memcpy(own, i->ifa_addr, sizeof(struct sockaddr_in));
        break;
    }
    freeifaddrs(list);
}

int rt_bind_address(const struct crunrt *rt, char out[RT_ADDRESS_MAX], struct cr_error *err) {
    const struct worker_place *p = &rt->place;
    struct sockaddr_storage to, own = {.ss_family = AF_INET};
    socklen_t to_len = 0;
    bool one_node = p->local_world_size >= p->world_size;
    int rc = 0;
    if (p->file[0] != '\0') { /* the store is a file and has no address, so loopback is used */
        ((struct sockaddr_in *) &own)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    } else {
        rc = cr_address_resolve(p->master_addr, p->master_port, &to, &to_len, err);
        if (rc == 0) rc = route_towards(&to, to_len, &own, err);
        /* If the number of nodes is unknown, a loopback address is kept. */
        if (p->local_world_size < 0) one_node = true;
    }
    if (rc < 0) return rc;
    if (is_loopback(&own) && !one_node) prefer_interface(&own);
    format_host(&own, out);
    return 0;
}
