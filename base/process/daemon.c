/* Functions for the start and the end of a program: implements base/process/daemon.h. */
#include "base/process/daemon.h"

#include "base/cleanup.h"
#include "base/log/log.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

void cr_notify(const char *state) {
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (path == NULL || (path[0] != '/' && path[0] != '@')) return;
    size_t len = strlen(path);
    if (len >= sizeof(address.sun_path)) return;
    memcpy(address.sun_path, path, len);
    if (path[0] == '@') address.sun_path[0] = '\0';
    CR_AUTO_FD int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return;
    socklen_t size = (socklen_t) (offsetof(struct sockaddr_un, sun_path) + len);
    const struct sockaddr *to = (const struct sockaddr *) &address;
    if (sendto(fd, state, strlen(state), MSG_NOSIGNAL, to, size) < 0)
        cr_warn("cannot notify '%s': %s", path, strerror(errno));
}

void cr_raise_descriptor_limit(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0) return;
    limit.rlim_cur = limit.rlim_max;
    (void) setrlimit(RLIMIT_NOFILE, &limit); /* on failure the program runs with the old limit */
}

void cr_keep_standard_files(void) {
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF) (void) open("/dev/null", O_RDWR);
    }
}

void cr_die_by(int signum) {
    sigset_t set;
    (void) signal(signum, SIG_DFL);
    (void) sigemptyset(&set);
    (void) sigaddset(&set, signum);
    (void) sigprocmask(SIG_UNBLOCK, &set, NULL);
    (void) raise(signum);
}
