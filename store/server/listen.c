/* Listens and accepts. A space has one listening socket; if no host is given, the socket accepts
 * IPv4 and IPv6. */
#include "store/server/server_internal.h"

#include "base/cleanup.h"
#include "base/log/log.h"
#include "base/network/address.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* length of the queue of connections that wait for accept(). The kernel reduces the length to
 * net.core.somaxconn, which the administrator of the machine can raise. */
#define BACKLOG 65535

/* ---- binding ---- */

/* If a client's host is dead, the kernel closes the connection after about USER_TIMEOUT_MS. If the
 * client has sent no packet for KEEPALIVE_IDLE_S seconds, the kernel sends a keep-alive probe every
 * KEEPALIVE_INTERVAL_S seconds. On Linux, TCP_USER_TIMEOUT replaces TCP_KEEPCNT: the
 * connection is closed when the client has been silent for USER_TIMEOUT_MS, however many probes
 * were sent. KEEPALIVE_PROBES gives the same time, 60 s + 6 * 10 s. The kernel also closes the
 * connection if sent data stays unacknowledged, or the client's receive window stays closed, for
 * USER_TIMEOUT_MS. */
#define KEEPALIVE_IDLE_S     60
#define KEEPALIVE_INTERVAL_S 10
#define KEEPALIVE_PROBES     6
#define USER_TIMEOUT_MS      120000

#define ACCEPTS_MAX 1024 /* how many connections a space accepts at most in one turn of the loop */
#define RESUME_MS   200  /* pause in ms before a space tries to accept again, if no descriptor was
                          * left */

/* Sets the options of a listening socket. Accepted sockets inherit the options, so they need not be
 * set for each client. SO_REUSEADDR lets their port be used again as soon as they are closed. */
static int set_options(int fd) {
    const struct {
        int level, name, value;
    } options[] = {
        {SOL_SOCKET, SO_REUSEADDR, 1},
        {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_NODELAY, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S},
        {IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S},
        {IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_PROBES},
        {IPPROTO_TCP, TCP_USER_TIMEOUT, USER_TIMEOUT_MS},
    };
    for (size_t i = 0; i < CR_ARRAY_LEN(options); i++) {
        if (setsockopt(fd, options[i].level, options[i].name, &options[i].value, sizeof(int)) < 0) {
            return -errno;
        }
    }
    return 0;
}

/* Which ports a socket may be bound to. */
enum port_choice {
    PORT_UNUSED, /* only a port that no socket has: none that another program holds without
                  * listening (base/network/held_port.h), and none of connections that have ended in
                  * the last minute */
    PORT_ANY,    /* any port at which nobody listens */
};

static int open_socket(const union store_peer *address, socklen_t len, bool dual_stack,
                       enum port_choice choice, int *out) {
    const int on = 1, off = 0;
    CR_AUTO_FD int fd =
        socket(address->sa.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return -errno;
    if (dual_stack && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) < 0)
        return -errno;
    if (choice == PORT_ANY && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0)
        return -errno;
    if (bind(fd, &address->sa, len) < 0) return -errno;
    int rc = set_options(fd);
    if (rc < 0) return rc;
    if (listen(fd, BACKLOG) < 0) return -errno;
    *out = cr_take_fd(&fd);
    return 0;
}

/* Listens on all interfaces, by IPv6 and IPv4, or by IPv4 only if the machine has no IPv6. If the
 * port is in use for IPv6, the function returns -EADDRINUSE. It does not listen by IPv4 only in
 * this case, because clients that connect by IPv6 would reach another server. */
static int open_everywhere(uint16_t port, enum port_choice choice, int *fd) {
    union store_peer any = {
        .v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = IN6ADDR_ANY_INIT}};
    int rc = open_socket(&any, sizeof(any.v6), true, choice, fd);
    if (rc == 0 || rc == -EADDRINUSE || rc == -EACCES) return rc;
    any = (union store_peer){.v4 = {.sin_family = AF_INET, .sin_port = htons(port)}};
    return open_socket(&any, sizeof(any.v4), false, choice, fd);
}

static int open_at(const char *host, uint16_t port, enum port_choice choice, int *fd,
                   struct cr_error *err) {
    struct sockaddr_storage found;
    socklen_t len;
    int rc = cr_address_resolve(host, port, &found, &len, err);
    if (rc < 0) return rc;
    union store_peer address = {0};
    memcpy(&address, &found, len < sizeof(address) ? len : sizeof(address));
    return open_socket(&address, len, false, choice, fd);
}

static const char *listen_remedy(int code) {
    switch (code) {
    case -EADDRNOTAVAIL: return "; give an address of this machine, or none for all";
    case -EACCES: return "; ports below 1024 are for root, give a larger one";
    /* Any other error has no remedy here. For -EADDRINUSE, the caller of store_server_open() adds
     * what the user can do, because only that caller knows the name of the option for the port. */
    default: return "";
    }
}

static int open_port(const char *host, uint16_t port, enum port_choice choice, int *fd,
                     struct cr_error *err) {
    bool everywhere = host == NULL || host[0] == '\0';
    struct cr_error why = {0};
    int rc = everywhere ? open_everywhere(port, choice, fd)
                        : open_at(host, port, choice, fd, &why);
    if (why.code < 0) return cr_fail(err, rc, "%s", why.text);
    if (rc == 0) return 0;
    return cr_fail(err, rc, "cannot listen on '%s:%u': %s%s", everywhere ? "*" : host, port,
                   strerror(-rc), listen_remedy(rc));
}

/* Listens on a free port of options.ports. Each call begins with the port after the one that was
 * opened last, so that a port is used again as late as possible: workers of an earlier round must
 * not find the store of a later one at the port that they know. First it tries to find a port that
 * is not used at all, because with SO_REUSEADDR it could take one that another crun holds for a
 * paired test. */
static int open_in_range(struct store_server *server, const char *host, int *fd,
                         struct cr_error *err) {
    const struct cr_port_range range = server->options.ports;
    uint32_t count = cr_port_range_count(range);
    for (uint32_t i = 0; i < 2 * count; i++) {
        struct cr_error why = {0};
        uint32_t number = atomic_fetch_add(&server->next_port, 1) % count;
        int rc = open_port(host, (uint16_t) (range.first + number),
                           i < count ? PORT_UNUSED : PORT_ANY, fd, &why);
        if (rc == 0) return 0;
        if (rc != -EADDRINUSE) return cr_fail(err, rc, "%s", why.text);
    }
    return cr_fail(err, -EADDRNOTAVAIL,
                   "cannot listen on '%s': all ports from %u to %u are in use; give a larger "
                   "--port-range", host == NULL || host[0] == '\0' ? "*" : host, range.first,
                   range.last);
}

int store_listen(struct store_server *server, const char *host, uint16_t port, int *fd,
                 uint16_t *bound_port, char address[80], struct cr_error *err) {
    bool chooses = port == 0 && cr_port_range_count(server->options.ports) > 0;
    int rc = chooses ? open_in_range(server, host, fd, err)
                     : open_port(host, port, PORT_ANY, fd, err);
    if (rc < 0) return rc;
    union store_peer bound;
    socklen_t len = sizeof(bound);
    if (getsockname(*fd, &bound.sa, &len) < 0) {
        rc = cr_fail_errno(err, "cannot read the address of the listening socket");
        cr_close_fd(fd);
        return rc;
    }
    cr_address_format(&bound.sa, address);
    *bound_port = cr_address_port(&bound.sa);
    return 0;
}

/* ---- accepting ---- */

static void on_readable(uv_poll_t *poll, int status, int events);

static void on_resume(uv_timer_t *timer) {
    store_listener_resume(CR_CONTAINER_OF(timer, struct store_space, resume));
}

/* Makes the space accept no connections for some time, because accept4() has failed and no
 * descriptor is left. New clients then wait in the kernel's queue. The space accepts again when a
 * client's descriptor is closed (on_descriptor_free), and after RESUME_MS, because other code of
 * this process may have closed a descriptor. */
static void pause_accept(struct store_space *space, int error) {
    char text[160];
    (void) snprintf(text, sizeof(text),
                    "cannot accept on '%s': %s; will try again when a descriptor is free",
                    space->address, strerror(error));
    store_server_log(space->server, NULL, text);
    space->paused = true;
    (void) uv_poll_stop(&space->poll);
    (void) uv_timer_start(&space->resume, on_resume, RESUME_MS, 0);
}

void store_listener_resume(struct store_space *space) {
    if (!space->paused || space->closing) return;
    space->paused = false;
    (void) uv_timer_stop(&space->resume);
    (void) uv_poll_start(&space->poll, UV_READABLE, on_readable);
}

static bool out_of_descriptors(int error) {
    return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

static void on_readable(uv_poll_t *poll, int status, int events) {
    (void) status, (void) events; /* not needed, because accept4() reports errors */
    struct store_space *space = CR_CONTAINER_OF(poll, struct store_space, poll);
    for (int i = 0; i < ACCEPTS_MAX && !space->paused; i++) {
        union store_peer peer;
        socklen_t len = sizeof(peer);
        int fd = accept4(space->fd, &peer.sa, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            store_connection_open(space, fd, &peer);
        } else if (out_of_descriptors(errno)) {
            pause_accept(space, errno);
        } else if (errno != ECONNABORTED && errno != EINTR) {
            /* EAGAIN means that the queue of connections is empty. Any other error concerns a
             * single connection; if more connections wait, libuv calls this function again. */
            return;
        }
    }
}

void store_listener_turn_away(struct store_space *space) {
    int fd;
    while ((fd = accept4(space->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        store_close_softly(fd);
    }
}

int store_listener_attach(struct store_space *space) {
    uv_loop_t *loop = &space->server->loop;
    int rc = uv_poll_init(loop, &space->poll, space->fd);
    if (rc < 0) return rc;
    (void) uv_timer_init(loop, &space->resume);
    (void) uv_idle_init(loop, &space->waking);
    space->poll.data = space->resume.data = space->waking.data = space;
    space->users = 3;
    space->restricted = space->server->options.restricted;
    space->waits = space->restricted && space->server->magic_count == 0;
    if (!space->waits) (void) uv_poll_start(&space->poll, UV_READABLE, on_readable);
    return 0;
}

void store_listener_begin(struct store_space *space) {
    if (!space->waits) return;
    space->waits = false;
    (void) uv_poll_start(&space->poll, UV_READABLE, on_readable);
}
