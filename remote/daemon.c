/* The daemon: accepts connections. For each TCP connection it starts a session. On its local socket
 * it gives each user the user's key. Implements remote_serve() of remote.h.
 *
 * The daemon reads no byte of a connection. All that it keeps about a session is a pipe, and only
 * during the session's greeting, in which the caller authenticates and sends its command. So the
 * daemon can end and be started again at any time without an effect on running sessions. Without
 * connections, it sleeps in poll(2). */
#include "remote/remote.h"

#include "base/cleanup.h"
#include "base/log/log.h"
#include "base/log/log_limit.h"
#include "base/network/address.h"
#include "base/process/daemon.h"
#include "base/time/clock.h"
#include "remote/key_internal.h"
#include "remote/session_internal.h"
#include "rendezvous/secure/secure.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define BACKLOG       512
#define GREETINGS_MAX 256 /* largest number of sessions that still wait for their caller's command;
                           * further connections wait in the kernel */
#define PER_HOST_MAX  64  /* largest number of such sessions whose callers are on one host, so that
                           * no host can keep out others */
#define PAUSE_MS      1000 /* time in ms for which no connection is accepted after one could not be
                            * served */
#define LOCAL_S       10   /* longest time in s for handing out a key */

/* A session whose greeting is not over. */
struct greeting {
    int fd; /* the read end of the session's pipe; -1 for a free entry */
    struct cr_ip from; /* the caller's host, as find_host() stores it; all zero for the local
                           * socket */
    char peer[CR_ADDRESS_MAX];
};

struct daemon {
    const struct remote_daemon *options;
    char port[8];
    int tcp, local, signals; /* descriptors */
    struct greeting greetings[GREETINGS_MAX];
    size_t greeting_count;
    int64_t paused_until_ms; /* time before which no connection is accepted; 0 if there is no
                              * pause */
    struct cr_log_limit refusals;
};

/* ---- listening ---- */

static int listen_tcp(struct daemon *d, uint16_t *port, struct cr_error *err) {
    const struct cr_endpoint *at = &d->options->listen;
    struct sockaddr_storage address;
    socklen_t len;
    int on = 1, off = 0;
    int rc = cr_address_resolve(at->host, at->port, &address, &len, err);
    if (rc < 0) return rc;
    CR_AUTO_FD int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return cr_fail_errno(err, "cannot open a socket");
    (void) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (address.ss_family == AF_INET6) {
        (void) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    }
    if (bind(fd, (struct sockaddr *) &address, len) < 0 || listen(fd, BACKLOG) < 0 ||
        getsockname(fd, (struct sockaddr *) &address, &len) < 0) {
        return cr_fail_errno(err, "cannot listen on '%s' port %u", at->host, at->port);
    }
    *port = cr_address_port((struct sockaddr *) &address);
    d->tcp = cr_take_fd(&fd);
    return 0;
}

/* Removes the socket that an earlier daemon has left at the path. A file that is no socket
 * stays. */
static void remove_old_socket(const char *path) {
    struct stat st;
    if (lstat(path, &st) == 0 && S_ISSOCK(st.st_mode)) (void) unlink(path);
}

static int listen_local(struct daemon *d, struct cr_error *err) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *path = d->options->socket, *slash = strrchr(path, '/');
    if (strlen(path) >= sizeof(address.sun_path)) {
        return cr_fail(err, -ENAMETOOLONG, "the path of the socket '%.300s' is too long", path);
    }
    memcpy(address.sun_path, path, strlen(path) + 1);
    if (slash != NULL && slash != path) {
        char folder[sizeof(address.sun_path)];
        (void) snprintf(folder, sizeof(folder), "%.*s", (int) (slash - path), path);
        (void) mkdir(folder, 0755);
    }
    remove_old_socket(path);
    CR_AUTO_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *) &address, sizeof(address)) < 0 ||
        chmod(path, 0666) < 0 || listen(fd, BACKLOG) < 0) {
        return cr_fail_errno(err, "cannot listen on '%.300s'; give another --socket", path);
    }
    d->local = cr_take_fd(&fd);
    return 0;
}

static int open_signals(struct daemon *d, struct cr_error *err) {
    sigset_t set;
    (void) sigemptyset(&set);
    (void) sigaddset(&set, SIGTERM);
    (void) sigaddset(&set, SIGINT);
    (void) sigprocmask(SIG_BLOCK, &set, NULL);
    (void) signal(SIGCHLD, SIG_IGN); /* the kernel reaps the sessions */
    (void) signal(SIGPIPE, SIG_IGN);
    d->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return d->signals < 0 ? cr_fail_errno(err, "cannot wait for signals") : 0;
}

/* Call this when the daemon starts. It checks that the token file can be used, so that a mistake is
 * reported at once. Returns 0; or a negative errno, and sets err. */
static int check_token_file(const char *path, struct cr_error *err) {
    struct secure_ring *ring = NULL;
    int rc = secure_ring_open(path, &ring, err);
    secure_ring_close(ring);
    return rc;
}

/* ---- sessions ---- */

static _Noreturn void become_session(const struct daemon *d, int fd, int report_fd) {
    const char *const argv[SESSION_WORDS + 1] = {REMOTE_SESSION_NAME, d->options->token_file,
                                                 d->options->socket, d->port, NULL};
    /* First moves the connection to a number above SESSION_REPORT_FD: its present number may be
     * SESSION_REPORT_FD, which dup2() below replaces. */
    CR_AUTO_FD int connection = fcntl(fd, F_DUPFD_CLOEXEC, SESSION_REPORT_FD + 1);
    if (connection < 0 || dup2(report_fd, SESSION_REPORT_FD) < 0) _exit(1);
    if (report_fd == SESSION_REPORT_FD) (void) fcntl(report_fd, F_SETFD, 0);
    if (dup2(connection, STDIN_FILENO) < 0) _exit(1);
    (void) execv("/proc/self/exe", (char *const *) (uintptr_t) argv);
    _exit(1);
}

/* Runs in a child process: writes the key of the user at the other end of the local connection `fd`
 * to that connection. A child process does this, because the user database may be slow. Unlike a
 * session, the child does not execute crun-agent anew, because it reads nothing that the user could
 * write. */
static _Noreturn void hand_out_key(const struct daemon *d, int fd, int report_fd) {
    struct cr_error err = {0};
    (void) alarm(LOCAL_S);
    int rc = key_hand_out(fd, d->options->token_file, &err);
    if (rc < 0) (void) !write(report_fd, err.text, strlen(err.text));
    _exit(rc < 0 ? 1 : 0);
}

static struct greeting *find_free(struct daemon *d) {
    struct greeting *g = d->greetings;
    while (g->fd >= 0) g++;
    return g;
}

static int start_session(struct daemon *d, int fd, const struct cr_ip *from, const char *peer,
                         bool is_local) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0) return -errno;
    CR_AUTO_FD int read_end = ends[0];
    CR_AUTO_FD int write_end = ends[1];
    pid_t pid = fork();
    if (pid < 0) return -errno;
    if (pid == 0 && is_local) hand_out_key(d, fd, write_end);
    if (pid == 0) become_session(d, fd, write_end);
    struct greeting *g = find_free(d);
    *g = (struct greeting){.fd = cr_take_fd(&read_end), .from = *from};
    (void) snprintf(g->peer, sizeof(g->peer), "%s", peer);
    d->greeting_count++;
    return 0;
}

/* Call this when the pipe of a session is readable. A text in the pipe is the reason why the
 * session refuses its caller; the function logs it. The end of the pipe means that the greeting is
 * over. */
static void read_report(struct daemon *d, struct greeting *g) {
    char text[CR_ERROR_TEXT_MAX];
    ssize_t n = read(g->fd, text, sizeof(text) - 1);
    if (n < 0 && errno == EINTR) return;
    if (n > 0) {
        text[n] = '\0';
        cr_log_limited(&d->refusals, CR_LOG_WARN, "refused %s: %s", g->peer, text);
        return; /* the end of the pipe will be read later */
    }
    cr_close_fd(&g->fd);
    d->greeting_count--;
}

/* Stores in *out the part of the address that counts as one host: an IPv4 address; or the first 64
 * bits of an IPv6 address, because one host can have all addresses that begin with these bits. */
static void find_host(const struct sockaddr_storage *address, struct cr_ip *out) {
    *out = (struct cr_ip){{0}};
    (void) cr_address_ip((const struct sockaddr *) address, out);
    if (!cr_ip_is_v4(out)) memset(out->bytes + 8, 0, 8);
}

static size_t count_from(const struct daemon *d, const struct cr_ip *from) {
    size_t n = 0;
    for (size_t i = 0; i < GREETINGS_MAX; i++) {
        const struct greeting *g = &d->greetings[i];
        if (g->fd >= 0 && memcmp(&g->from, from, sizeof(*from)) == 0) n++;
    }
    return n;
}

static void accept_one(struct daemon *d, int listener) {
    struct sockaddr_storage address = {0};
    socklen_t len = sizeof(address);
    struct cr_ip from;
    char peer[CR_ADDRESS_MAX] = "a local process";
    CR_AUTO_FD int fd = accept4(listener, (struct sockaddr *) &address, &len, SOCK_CLOEXEC);
    if (fd < 0 && (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED)) return;
    int rc = fd < 0 ? -errno : 0;
    if (listener == d->tcp) cr_address_format((struct sockaddr *) &address, peer);
    find_host(&address, &from);
    if (rc == 0 && listener == d->tcp && count_from(d, &from) >= PER_HOST_MAX) {
        cr_log_limited(&d->refusals, CR_LOG_WARN, "refused %s: %d connections of this host have "
                       "not authenticated yet", peer, PER_HOST_MAX);
        return;
    }
    if (rc == 0) rc = start_session(d, fd, &from, peer, listener == d->local);
    if (rc == 0) return;
    cr_log_limited(&d->refusals, CR_LOG_ERROR, "cannot serve %s: %s", peer, strerror(-rc));
    d->paused_until_ms = cr_deadline_ms(PAUSE_MS);
}

/* ---- the loop ---- */

/* Waits until poll(2) reports something, and handles it. Returns false if SIGTERM or SIGINT has
 * come. */
static bool turn(struct daemon *d) {
    enum { SIGNALS, TCP, LOCAL, FIRST, COUNT = FIRST + GREETINGS_MAX };
    struct pollfd fds[COUNT];
    if (d->paused_until_ms != 0 && cr_time_left_ms(d->paused_until_ms) == 0) d->paused_until_ms = 0;
    bool accepts = d->paused_until_ms == 0 && d->greeting_count < GREETINGS_MAX;
    fds[SIGNALS] = (struct pollfd){.fd = d->signals, .events = POLLIN};
    fds[TCP] = (struct pollfd){.fd = accepts ? d->tcp : -1, .events = POLLIN};
    fds[LOCAL] = (struct pollfd){.fd = accepts ? d->local : -1, .events = POLLIN};
    for (int i = 0; i < GREETINGS_MAX; i++) {
        fds[FIRST + i] = (struct pollfd){.fd = d->greetings[i].fd, .events = POLLIN};
    }
    int timeout = d->paused_until_ms != 0 ? cr_poll_timeout(d->paused_until_ms) : -1;
    if (poll(fds, COUNT, timeout) < 0) return true;
    for (int i = 0; i < GREETINGS_MAX; i++) {
        if (fds[FIRST + i].revents != 0) read_report(d, &d->greetings[i]);
    }
    if (fds[TCP].revents != 0) accept_one(d, d->tcp);
    if (fds[LOCAL].revents != 0 && d->greeting_count < GREETINGS_MAX) accept_one(d, d->local);
    return fds[SIGNALS].revents == 0;
}

int remote_serve(const struct remote_daemon *options, void (*on_ready)(uint16_t port),
                 struct cr_error *err) {
    struct daemon d = {.options = options, .tcp = -1, .local = -1, .signals = -1,
                       .refusals = {.about = "callers of this daemon"}};
    uint16_t port = 0;
    for (int i = 0; i < GREETINGS_MAX; i++) d.greetings[i].fd = -1;
    int rc = check_token_file(options->token_file, err);
    if (rc == 0) rc = open_signals(&d, err);
    if (rc == 0) rc = listen_tcp(&d, &port, err);
    if (rc == 0) rc = listen_local(&d, err);
    if (rc == 0) {
        (void) snprintf(d.port, sizeof(d.port), "%u", port);
        on_ready(port);
        while (turn(&d)) continue;
        cr_notify("STOPPING=1");
    }
    for (int i = 0; i < GREETINGS_MAX; i++) cr_close_fd(&d.greetings[i].fd);
    cr_close_fd(&d.tcp);
    cr_close_fd(&d.local);
    cr_close_fd(&d.signals);
    cr_log_limit_end(&d.refusals);
    return rc;
}
