/* Opens the socket of a status address: implements listen_internal.h. */
#include "status/listen_internal.h"

#include "base/cleanup.h"
#include "base/network/address.h"
#include "base/network/endpoint.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define UNIX_PREFIX     "unix:"
#define UNIX_PREFIX_LEN 5
#define BACKLOG         64

static int fail_listen(const char *address, struct cr_error *err) {
    int code = errno;
    return cr_fail(err, -code, "cannot listen at the status address '%.200s': %s", address,
                   strerror(code));
}

/* ---- unix:PATH ---- */

/* Returns whether a process answers at the socket file. */
static bool is_in_use(const struct sockaddr_un *to) {
    CR_AUTO_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return true;
    return connect(fd, (const struct sockaddr *) to, sizeof(*to)) == 0 || errno != ECONNREFUSED;
}

static int listen_unix(const char *address, struct status_listener *out, struct cr_error *err) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    const char *path = address + UNIX_PREFIX_LEN;
    if (path[0] == '\0' || strlen(path) >= sizeof(at.sun_path)) {
        return cr_fail(err, -EINVAL, "the status address '%.200s' needs a path of 1 to %zu bytes",
                       address, sizeof(at.sun_path) - 1);
    }
    memcpy(at.sun_path, path, strlen(path) + 1);
    CR_AUTO_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return fail_listen(address, err);
    struct stat st;
    bool is_socket = lstat(path, &st) == 0 && S_ISSOCK(st.st_mode);
    if (is_socket && !is_in_use(&at)) (void) unlink(path);
    mode_t mask = umask(0177); /* umask() changes the mask of all threads, but no other thread
                                * creates files while this process starts */
    int rc = bind(fd, (struct sockaddr *) &at, sizeof(at));
    (void) umask(mask);
    if (rc < 0 || listen(fd, BACKLOG) < 0) return fail_listen(address, err);
    (void) snprintf(out->address, sizeof(out->address), "%s", address);
    out->fd = cr_take_fd(&fd);
    return 0;
}

/* ---- HOST:PORT ---- */

static void note_address(struct status_listener *out) {
    struct sockaddr_storage own;
    socklen_t len = sizeof(own);
    char text[CR_ADDRESS_MAX];
    if (getsockname(out->fd, (struct sockaddr *) &own, &len) < 0) return;
    cr_address_format((struct sockaddr *) &own, text);
    (void) snprintf(out->address, sizeof(out->address), "http://%s/", text);
}

static int listen_tcp(const char *address, struct status_listener *out, struct cr_error *err) {
    struct cr_endpoint endpoint;
    struct sockaddr_storage at;
    socklen_t len;
    int yes = 1;
    int rc = cr_endpoint_parse(address, 0, &endpoint, err);
    if (rc == 0) rc = cr_address_resolve(endpoint.host, endpoint.port, &at, &len, err);
    if (rc < 0) return rc;
    CR_AUTO_FD int fd = socket(at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return fail_listen(address, err);
    (void) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (bind(fd, (struct sockaddr *) &at, len) < 0 || listen(fd, BACKLOG) < 0) {
        return fail_listen(address, err);
    }
    out->fd = cr_take_fd(&fd);
    note_address(out);
    return 0;
}

int status_listen(const char *address, struct status_listener *out, struct cr_error *err) {
    *out = (struct status_listener){.fd = -1};
    if (strncmp(address, UNIX_PREFIX, UNIX_PREFIX_LEN) == 0) return listen_unix(address, out, err);
    return listen_tcp(address, out, err);
}

void status_listener_remove(const struct status_listener *l) {
    bool is_unix = strncmp(l->address, UNIX_PREFIX, UNIX_PREFIX_LEN) == 0;
    if (is_unix) (void) unlink(l->address + UNIX_PREFIX_LEN);
}
