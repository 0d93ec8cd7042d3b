/* The keeper of a job: starts crun, sends it the signals that clients request, and writes its exit
 * status to a file.
 *
 * crun itself writes its output to the file `console`, so a keeper that is stopped or slow delays
 * nothing. Clients send input to the keeper, which writes it into a pipe. The pipe stays open when
 * a client detaches, so that a later client can send more. If the keeper is killed, the kernel
 * sends SIGTERM to crun, which ends the job. */
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

#define CLIENTS_MAX 128
#define EXIT_LOST   1

struct client {
    int fd; /* -1 for a free entry */
    char *input; /* memory of KEEPER_INPUT_MAX bytes; NULL if the client has not sent input yet */
    size_t from, to; /* the bytes input[from..to) are still to be written to the job's stdin */
};

struct keeper {
    const char *folder, *id;
    pid_t pid; /* crun */
    int pidfd, listen_fd;
    int input_fd; /* write end of crun's stdin; -1 if crun gets no input, or no further input */
    struct client clients[CLIENTS_MAX];
};

/* Signals that the keeper ignores: those that a terminal sends, those that the system sends at the
 * end of a login, and SIGPIPE. In crun they have their default actions. */
static const int ignored[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE};

static void set_ignored(void (*handler)(int)) {
    for (size_t i = 0; i < CR_ARRAY_LEN(ignored); i++) (void) signal(ignored[i], handler);
}

static void become_crun(const struct keeper *k, char **words, int input) {
    sigset_t none;
    if (input >= 0 && dup2(input, STDIN_FILENO) < 0) _exit(EXIT_LOST);
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

static int start(struct keeper *k, char **words, bool takes_input) {
    int ends[2] = {-1, -1};
    if (takes_input && (pipe2(ends, O_CLOEXEC) < 0 || fcntl(ends[1], F_SETFL, O_NONBLOCK) < 0)) {
        return -errno;
    }
    CR_AUTO_FD int read_end = ends[0];
    k->input_fd = ends[1];
    k->pid = fork();
    if (k->pid == 0) become_crun(k, words, read_end);
    if (k->pid < 0) return -errno;
    k->pidfd = (int) syscall(SYS_pidfd_open, k->pid, 0);
    return k->pidfd < 0 ? -errno : 0;
}

/* Returns true if the process at the other end of the connection belongs to the job's user or to
 * root. */
static bool may_command(int fd) {
    struct ucred peer;
    socklen_t len = sizeof(peer);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0) return false;
    return peer.uid == geteuid() || peer.uid == 0;
}

/* ---- input ---- */

/* Permits the client to send one packet of input, if the job still takes input. */
static void give_credit(const struct keeper *k, const struct client *c) {
    struct keeper_packet p = {.type = KEEPER_CREDIT, .number = KEEPER_INPUT_MAX};
    if (k->input_fd >= 0) (void) send(c->fd, &p, sizeof(p), MSG_NOSIGNAL);
}

/* Writes the client's input to the job's stdin. If all of it is written, the client may send more.
 * If the job has closed its stdin, the input is dropped, and no client may send input any more. */
static void write_input(struct keeper *k, struct client *c) {
    ssize_t n = write(k->input_fd, c->input + c->from, c->to - c->from);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n < 0) cr_close_fd(&k->input_fd);
    c->from = n < 0 ? c->to : c->from + (size_t) n;
    if (c->from == c->to) give_credit(k, c);
}

/* Handles a packet KEEPER_INPUT. Returns false if the client was not permitted to send it, because
 * its last input is not written yet, or if there is no memory for it. */
static bool take_input(struct keeper *k, struct client *c, const char *bytes, size_t len) {
    if (c->from < c->to) return false;
    if (len == 0) cr_close_fd(&k->input_fd);
    if (k->input_fd < 0) return true; /* the job takes no more input */
    if (c->input == NULL) c->input = malloc(KEEPER_INPUT_MAX);
    if (c->input == NULL) return false;
    memcpy(c->input, bytes, len);
    c->from = 0;
    c->to = len;
    write_input(k, c);
    return true;
}

/* ---- clients ---- */

static void close_client(struct client *c) {
    cr_close_fd(&c->fd);
    free(c->input);
    *c = (struct client){.fd = -1};
}

static struct client *find_free(struct keeper *k) {
    for (int i = 0; i < CLIENTS_MAX; i++) {
        if (k->clients[i].fd < 0) return &k->clients[i];
    }
    return NULL;
}

static void accept_client(struct keeper *k) {
    const struct keeper_packet full = {.type = KEEPER_FULL, .number = CLIENTS_MAX};
    CR_AUTO_FD int fd = accept4(k->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0 || !may_command(fd)) return;
    struct client *c = find_free(k);
    if (c == NULL) {
        (void) send(fd, &full, sizeof(full), MSG_NOSIGNAL);
        return;
    }
    c->fd = cr_take_fd(&fd);
    give_credit(k, c);
}

static bool send_signal(const struct keeper *k, const struct keeper_packet *p) {
    if (p->number < 1 || p->number >= NSIG) return false;
    (void) syscall(SYS_pidfd_send_signal, k->pidfd, (int) p->number, NULL, 0);
    return true;
}

/* Reads a packet of the client. Closes the connection if the client has closed it or the packet is
 * malformed. */
static void read_client(struct keeper *k, struct client *c) {
    union {
        struct keeper_packet p;
        char bytes[1 + KEEPER_INPUT_MAX];
    } packet;
    ssize_t n = recv(c->fd, &packet, sizeof(packet), 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    bool is_good = false;
    if (n == (ssize_t) sizeof(packet.p) && packet.p.type == KEEPER_SIGNAL) {
        is_good = send_signal(k, &packet.p);
    } else if (n > 0 && packet.bytes[0] == KEEPER_INPUT) {
        is_good = take_input(k, c, packet.bytes + 1, (size_t) n - 1);
    }
    if (!is_good) close_client(c);
}

/* Returns a connected client whose input is not completely written yet, or NULL. Input of a client
 * that has closed its connection is dropped. */
static struct client *find_giver(struct keeper *k) {
    for (int i = 0; i < CLIENTS_MAX; i++) {
        struct client *c = &k->clients[i];
        if (c->fd >= 0 && c->from < c->to) return c;
    }
    return NULL;
}

/* Serves clients until crun has ended. Returns crun's exit status, or 128 + the signal that ended
 * crun. */
static int serve(struct keeper *k) {
    enum { CRUN, LISTEN, INPUT, CLIENT, COUNT = CLIENT + CLIENTS_MAX };
    struct pollfd fds[COUNT];
    int status = 0;
    for (;;) {
        struct client *giver = find_giver(k);
        fds[INPUT] = (struct pollfd){.fd = giver != NULL ? k->input_fd : -1, .events = POLLOUT};
        fds[CRUN] = (struct pollfd){.fd = k->pidfd, .events = POLLIN};
        fds[LISTEN] = (struct pollfd){.fd = k->listen_fd, .events = POLLIN};
        for (int i = 0; i < CLIENTS_MAX; i++) {
            fds[CLIENT + i] = (struct pollfd){.fd = k->clients[i].fd, .events = POLLIN};
        }
        if (poll(fds, COUNT, -1) < 0) continue;
        if (fds[CRUN].revents != 0 && waitpid(k->pid, &status, WNOHANG) == k->pid) break;
        if (fds[INPUT].revents != 0) write_input(k, giver);
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
        int fd = k->clients[i].fd;
        if (fd >= 0) (void) send(fd, &p, sizeof(p), MSG_NOSIGNAL);
    }
}

/* Detaches this process from the terminal: makes it the leader of a new Unix session, and opens
 * /dev/null as its standard files. Sets a process name that is not crun's: otherwise the keeper
 * would count as one of the nested cruns, whose number is limited (launcher/nesting.h). */
static void leave_terminal(void) {
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    (void) setsid();
    (void) prctl(PR_SET_NAME, "crun-keeper");
    for (int fd = 0; null >= 0 && fd <= STDERR_FILENO; fd++) (void) dup2(null, fd);
    set_ignored(SIG_IGN);
}

void keeper_run(const char *folder, const char *id, char **words, bool takes_input, int ready_fd) {
    struct keeper k = {.folder = folder, .id = id, .pidfd = -1, .input_fd = -1};
    for (int i = 0; i < CLIENTS_MAX; i++) k.clients[i].fd = -1;
    leave_terminal();
    /* Make the file before the keeper reports that it is ready, because a client then opens it. */
    int console = kept_open(folder, id, "console", O_WRONLY | O_CREAT);
    cr_close_fd(&console);
    k.listen_fd = kept_socket(folder, id, 1);
    if (k.listen_fd < 0 || start(&k, words, takes_input) < 0) _exit(EXIT_LOST);
    if (write(ready_fd, "r", 1) == 1) (void) close(ready_fd);
    int status = serve(&k);
    (void) kept_write_status(folder, id, status);
    tell_clients(&k, status);
    _exit(0);
}
