/* Implements bind_port.h. */
#include "base/network/bind_port.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <sys/random.h>

static void set_port(struct sockaddr_storage *at, uint16_t port) {
    if (at->ss_family == AF_INET6) ((struct sockaddr_in6 *) at)->sin6_port = htons(port);
    else ((struct sockaddr_in *) at)->sin_port = htons(port);
}

static int set_reuse(int fd, int is_on) {
    return setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &is_on, sizeof(is_on)) < 0 ? -errno : 0;
}

static int bind_in_range(int fd, struct sockaddr_storage *at, socklen_t len,
                         struct cr_port_range ports, uint32_t start) {
    uint32_t count = cr_port_range_count(ports);
    int rc = -EADDRINUSE;
    for (uint32_t i = 0; i < count && rc == -EADDRINUSE; i++) {
        set_port(at, (uint16_t) (ports.first + (start + i) % count));
        rc = bind(fd, (const struct sockaddr *) at, len) < 0 ? -errno : 0;
    }
    return rc;
}

/* Without SO_REUSEADDR, bind(2) fails at a port that another socket has, also if that socket does
 * not listen yet; so two programs that look for a port at the same time get different ones. But it
 * also fails at ports where connections have ended in the last minute. So if all ports fail, this
 * tries them once more, with SO_REUSEADDR. */
int cr_bind_port(int fd, struct sockaddr_storage *at, socklen_t len, struct cr_port_range ports) {
    uint32_t start = 0;
    if (cr_port_range_count(ports) == 0) {
        set_port(at, 0);
        if (bind(fd, (const struct sockaddr *) at, len) < 0) return -errno;
        if (getsockname(fd, (struct sockaddr *) at, &len) < 0) return -errno;
        return set_reuse(fd, true);
    }
    (void) getrandom(&start, sizeof(start), GRND_NONBLOCK);
    start %= cr_port_range_count(ports);
    int rc = set_reuse(fd, false);
    if (rc == 0) rc = bind_in_range(fd, at, len, ports, start);
    bool is_bound = rc == 0;
    if (rc == 0 || rc == -EADDRINUSE) rc = set_reuse(fd, true);
    if (rc == 0 && !is_bound) rc = bind_in_range(fd, at, len, ports, start);
    return rc;
}
