/* Implements held_port.h. */
#include "base/network/held_port.h"

#include "base/cleanup.h"
#include "base/network/address.h"
#include "base/network/bind_port.h"

#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>

static int hold(int family, struct cr_port_range ports, uint16_t *port) {
    struct sockaddr_storage any = {.ss_family = (sa_family_t) family};
    socklen_t len = family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    int off = 0;
    CR_AUTO_FD int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -errno;
    if (family == AF_INET6) (void) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    int rc = cr_bind_port(fd, &any, len, ports);
    if (rc < 0) return rc;
    *port = cr_address_port((struct sockaddr *) &any);
    return cr_take_fd(&fd);
}

int cr_hold_port(struct cr_port_range ports, uint16_t *port) {
    int fd = hold(AF_INET6, ports, port);
    return fd >= 0 || fd == -EADDRINUSE ? fd : hold(AF_INET, ports, port);
}
