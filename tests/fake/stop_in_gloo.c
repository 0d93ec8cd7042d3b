/* A library for LD_PRELOAD: it stops the process with SIGSTOP when Gloo calls connect() or accept()
 * for the first time. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>

static int is_from_gloo(const void *caller) {
    Dl_info info;
    return dladdr(caller, &info) != 0 && strstr(info.dli_fname, "libgloo") != NULL;
}

int connect(int fd, const struct sockaddr *to, socklen_t len) {
    int (*real)(int, const struct sockaddr *, socklen_t) = NULL;
    *(void **) &real = dlsym(RTLD_NEXT, "connect");
    int type = 0;
    socklen_t size = sizeof(type);
    /* Only TCP sockets count, because Gloo also connects a UDP socket to find its own address. */
    (void) getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size);
    if (type == SOCK_STREAM && is_from_gloo(__builtin_return_address(0))) (void) raise(SIGSTOP);
    return real(fd, to, len);
}

int accept(int fd, struct sockaddr *from, socklen_t *len) {
    int (*real)(int, struct sockaddr *, socklen_t *) = NULL;
    *(void **) &real = dlsym(RTLD_NEXT, "accept");
    if (is_from_gloo(__builtin_return_address(0))) (void) raise(SIGSTOP);
    return real(fd, from, len);
}
