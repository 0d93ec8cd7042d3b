/* The keeper of a job: starts crun, passes signals of clients on to it, and notes its exit status.
 *
 * crun writes its output itself, to the file `console`. So a keeper that is stopped or slow delays
 * nothing. If the keeper is killed, crun gets SIGTERM and ends the job. */
#include "base/cleanup.h"
#include "base/memory.h"
#include "launcher/keeper/jobs_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CLIENTS_MAX 16
#define EXIT_LOST   1

struct keeper {
    const char *folder, *id;
    pid_t pid; /* crun */
    int pidfd, listen_fd;
    int clients[CLIENTS_MAX]; /* -1 for a free entry */
};

/* Signals that a terminal or the end of a login sends; the keeper ignores them, crun does not. */
static const int ignored[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE};

static void set_ignored(void (*handler)(int)) {
    for (size_t i = 0; i < CR_ARRAY_LEN(ignored); i++) (void) signal(ignored[i], handler);
}

static void become_crun(const struct keeper *k, char **words) {
    sigset_t none;
    int console = kept_open(k->folder, k->id, "console", O_WRONLY | O_CREAT | O_APPEND);
    (void) sigemptyset(&none);
    (void) sigprocmask(SIG_SETMASK, &none, NULL);
    set_ignored(SIG_DFL);
    (void) prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (console < 0 || dup2(console, STDOUT_FILENO) < 0 || dup2(console, STDERR_FILENO) < 0) {
        _exit(EXIT_LOST);
    }
    (void) execv("/proc/self/exe", words);
    _exit(EXIT_LOST);
}

static int start(struct keeper *k, char **words) {
    k->pid = fork();
    if (k->pid == 0) become_crun(k, words);
    if (k->pid < 0) return -errno;
    k->pidfd = (int) syscall(SYS_pidfd_open, k->pid, 0);
    return k->pidfd < 0 ? -errno : 0;
}

/* Returns whether the process at the other end of the connection belongs to the job's user or to
 * root. */
static bool may_command(int fd) {
    struct ucred peer;
    socklen_t len = sizeof(peer);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0) return false;
    return peer.uid == geteuid() || peer.uid == 0;
}

static void accept_client(struct keeper *k) {
    int fd = accept4(k->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return;
    for (int i = 0; i < CLIENTS_MAX && may_command(fd); i++) {
        if (k->clients[i] >= 0) continue;
        k->clients[i] = fd;
        return;
    }
    (void) close(fd);
}

static void read_client(struct keeper *k, int *fd) {
    struct keeper_packet p;
    ssize_t n = recv(*fd, &p, sizeof(p), 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n != (ssize_t) sizeof(p) || p.type != KEEPER_SIGNAL || p.number < 1 || p.number >= NSIG) {
        cr_close_fd(fd);
        return;
    }
    (void) syscall(SYS_pidfd_send_signal, k->pidfd, (int) p.number, NULL, 0);
}

/* Waits until crun has ended, and serves clients meanwhile. Returns the exit status, which is 128
 * plus the signal if one has ended crun. */
static int serve(struct keeper *k) {
    enum { CRUN, LISTEN, CLIENT, COUNT = CLIENT + CLIENTS_MAX };
    struct pollfd fds[COUNT];
    int status = 0;
    for (;;) {
        fds[CRUN] = (struct pollfd){.fd = k->pidfd, .events = POLLIN};
        fds[LISTEN] = (struct pollfd){.fd = k->listen_fd, .events = POLLIN};
        for (int i = 0; i < CLIENTS_MAX; i++) {
            fds[CLIENT + i] = (struct pollfd){.fd = k->clients[i], .events = POLLIN};
        }
        if (poll(fds, COUNT, -1) < 0) continue;
        if (fds[CRUN].revents != 0 && waitpid(k->pid, &status, WNOHANG) == k->pid) break;
        for (int i = 0; i < CLIENTS_MAX; i++) {
            if (fds[CLIENT + i].revents != 0) read_client(k, &k->clients[i]);
        }
        if (fds[LISTEN].revents != 0) accept_client(k);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void tell_clients(struct keeper *k, int status) {
    struct keeper_packet p = {.type = KEEPER_ENDED, .number = status};
    for (int i = 0; i < CLIENTS_MAX; i++) {
        if (k->clients[i] >= 0) (void) send(k->clients[i], &p, sizeof(p), MSG_NOSIGNAL);
    }
}

/* Leaves the terminal: begins a session of its own, and opens /dev/null as the standard files. The
 * name of the process differs from crun's, because crun refuses to run inside too many cruns
 * (launcher/nesting.h). */
static void leave_terminal(void) {
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    (void) setsid();
    (void) prctl(PR_SET_NAME, "crun-keeper");
    for (int fd = 0; null >= 0 && fd <= STDERR_FILENO; fd++) (void) dup2(null, fd);
    set_ignored(SIG_IGN);
}

void keeper_run(const char *folder, const char *id, char **words, int ready_fd) {
    struct keeper k = {.folder = folder, .id = id, .pidfd = -1};
    for (int i = 0; i < CLIENTS_MAX; i++) k.clients[i] = -1;
    leave_terminal();
    /* a client that is told that the keeper is ready opens this file */
    int console = kept_open(folder, id, "console", O_WRONLY | O_CREAT);
    cr_close_fd(&console);
    k.listen_fd = kept_socket(folder, id, 1);
    if (k.listen_fd < 0 || start(&k, words) < 0) _exit(EXIT_LOST);
    if (write(ready_fd, "r", 1) == 1) (void) close(ready_fd);
    int status = serve(&k);
    (void) kept_write_status(folder, id, status);
    tell_clients(&k, status);
    _exit(0);
}
