/* A session: the process that serves one connection of the daemon. Implements remote_session_main()
 * of remote.h.
 *
 * A session has three states, one after the other:
 *
 *     greeting: the caller authenticates as a user, and sends its command   at most GREETING_MS
 *     this process becomes that user, for good
 *     the command runs, as a child in a Unix session of its own             any time
 *
 * In the first state this process may be root; of the caller's bytes, it then handles only what
 * rendezvous/secure and message.c parse. If the connection ends before the command, this process
 * ends, too: the command then sees the end of its stdin and gets SIGKILL (PR_SET_PDEATHSIG). */
#include "remote/remote.h"

#include "base/cleanup.h"
#include "base/log/log.h"
#include "base/network/address.h"
#include "base/network/connect.h"
#include "base/time/clock.h"
#include "remote/account_internal.h"
#include "remote/session_internal.h"
#include "remote/wire_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define GREETING_MS 10000 /* longest time in ms from the start of the session to the caller's
                           * command */
#define FLUSH_MS    10000 /* longest time in ms that the session tries to send its last message */
#define SHELL       "/bin/sh"

enum { IN, OUT, ERR, PIPES };

struct session {
    const struct session_settings *settings;
    struct wire wire;
    struct account account;
    char *command;
    unsigned protocol; /* the caller's REMOTE_PROTOCOL, if it is not this program's; otherwise 0 */
    char peer[CR_ADDRESS_MAX];
    pid_t pid; /* process id of the shell that runs the command */
    int pidfd;
    int pipe[PIPES];       /* this process's ends of the pipes that are the command's stdin, stdout
                            * and stderr; -1 if closed */
    struct cr_buffer input; /* bytes for the command's stdin */
    bool input_ended;      /* true if the caller has sent the end of the input */
};

/* ---- the greeting ---- */

static int64_t take_command(void *arg, const char *data, size_t len) {
    struct session *s = arg;
    struct remote_frame frame;
    int64_t size = remote_get(data, len, &frame);
    if (size <= 0) return size;
    if (s->command != NULL) return 0; /* the messages after the command are input, which
                                       * run_command() takes */
    if (frame.type == REMOTE_COMMAND && frame.len > 0 && frame.data[0] != REMOTE_PROTOCOL) {
        s->protocol = (unsigned char) frame.data[0];
        return -EPROTONOSUPPORT;
    }
    s->command = remote_get_command(&frame);
    return s->command != NULL ? size : -EPROTO;
}

/* Waits until the caller has authenticated and sent its command. Returns 0; or a negative errno,
 * and sets err. */
static int await_command(struct session *s, struct cr_error *err) {
    int64_t deadline_ms = cr_deadline_ms(GREETING_MS);
    struct wire *w = &s->wire;
    int rc = 0;
    while (rc == 0 && s->command == NULL) {
        rc = cr_wait_ready(w->fd, wire_events(w, true), deadline_ms);
        if (rc == 0) rc = wire_read(w);
        if (rc == 0) rc = wire_flush(w);
        if (rc == 0 && secure_tunnel_state(w->tunnel) == SECURE_FAILED) {
            return cr_fail(err, -EACCES, "%s",
                           secure_failure_text(secure_tunnel_failure(w->tunnel), true));
        }
        if (rc == 0 && secure_tunnel_is_open(w->tunnel)) {
            rc = (int) cr_buffer_take_frames(secure_tunnel_in(w->tunnel), take_command, s);
        }
        if (rc == 0 && s->command == NULL && w->has_ended) rc = -ECONNRESET;
    }
    return rc == 0 || s->protocol != 0 ? rc
                                       : cr_fail(err, rc, "no command came: %s", strerror(-rc));
}

/* Sends the last message of the session. Gives up if the connection fails, or if the caller has not
 * taken all bytes within FLUSH_MS. */
static void send_last(struct session *s, enum remote_message type, const void *data, size_t len) {
    int64_t deadline_ms = cr_deadline_ms(FLUSH_MS);
    int rc = wire_put(&s->wire, type, data, len);
    while (rc == 0 && wire_queued(&s->wire) > 0) {
        rc = cr_wait_ready(s->wire.fd, POLLOUT, deadline_ms);
        if (rc == 0) rc = wire_flush(&s->wire);
    }
}

static int refuse_protocol(struct session *s, struct cr_error *err) {
    (void) cr_fail(err, -EPROTONOSUPPORT, "crun-agent " CRUN_VERSION " does not know version %u of "
                   "the messages, which the caller uses; install the same version on both hosts",
                   s->protocol);
    send_last(s, REMOTE_REFUSED, err->text, strlen(err->text));
    return err->code;
}

/* Makes this process run as the user who has authenticated. If that is not possible, sends the
 * reason to the caller. Returns 0; or a negative errno, and sets err. */
static int become_caller(struct session *s, struct cr_error *err) {
    const struct secure_tunnel *tunnel = s->wire.tunnel;
    int rc = 0;
    if (secure_tunnel_role(tunnel) != SECURE_USER) {
        rc = cr_fail(err, -EACCES, "the key of a job or an operator runs no commands");
    }
    if (rc == 0) rc = account_of_identity(secure_tunnel_run_id(tunnel), &s->account, err);
    if (rc == 0) rc = account_become(&s->account, err);
    if (rc < 0) send_last(s, REMOTE_REFUSED, err->text, strlen(err->text));
    return rc;
}

/* Authenticates the caller and makes this process run as the caller's user. After this function,
 * the memory of this process contains no secret except the keys of this one connection. Returns 0;
 * or a negative errno, and sets err. */
static int greet(struct session *s, struct cr_error *err) {
    struct secure_ring *ring = NULL;
    int rc = secure_ring_open(s->settings->token_file, &ring, err);
    if (rc == 0) rc = secure_accept(secure_ring_keys(ring), &s->wire.tunnel, err);
    if (rc == 0) rc = await_command(s, err);
    if (rc < 0 && s->protocol != 0) rc = refuse_protocol(s, err);
    secure_ring_close(ring);
    return rc == 0 ? become_caller(s, err) : rc;
}

/* ---- the command ---- */

/* Writes the environment variables of the command into `out`, each as NAME=VALUE with a NUL, and
 * their addresses into `list`, which ends with NULL. */
static void describe_environment(const struct session *s, char *out, size_t size, char **list) {
    struct sockaddr_storage own;
    socklen_t len = sizeof(own);
    char here[CR_ADDRESS_MAX] = "";
    const struct account *a = &s->account;
    if (getsockname(s->wire.fd, (struct sockaddr *) &own, &len) == 0) {
        cr_address_format((struct sockaddr *) &own, here);
    }
    const char *const values[][2] = {
        {"HOME", a->home}, {"USER", a->name}, {"LOGNAME", a->name}, {"SHELL", a->shell},
        {"PATH", a->uid == 0 ? "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
                             : "/usr/local/bin:/usr/bin:/bin"},
        {"CRUN_CALLED_FROM", s->peer}, {"CRUN_CALLED_AT", here},
        {"CRUN_AGENT_SOCKET", s->settings->socket}, {"CRUN_AGENT_PORT", s->settings->port}};
    size_t at = 0, n = 0;
    for (size_t i = 0; i < CR_ARRAY_LEN(values) && at < size; i++) {
        list[n++] = out + at;
        at += (size_t) snprintf(out + at, size - at, "%s=%s", values[i][0], values[i][1]) + 1;
    }
    list[n] = NULL;
}

static _Noreturn void run_shell(const struct session *s, const int ends[PIPES], pid_t parent) {
    char memory[3 * ACCOUNT_PATH_MAX + 2048], *environment[16];
    char *argv[] = {(char *) (uintptr_t) "sh", (char *) (uintptr_t) "-c", s->command, NULL};
    describe_environment(s, memory, sizeof(memory), environment);
    (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(REMOTE_FAILED); /* the session died before prctl(), so its death
                                                    * sends no signal */
    (void) setsid();
    (void) signal(SIGPIPE, SIG_DFL);
    for (int i = 0; i < PIPES; i++) {
        if (dup2(ends[i], i) < 0) _exit(REMOTE_FAILED);
    }
    if (chdir(s->account.home) < 0 && chdir("/") < 0) _exit(REMOTE_FAILED);
    (void) umask(022);
    (void) execve(SHELL, argv, environment);
    _exit(127);
}

static int open_pipes(struct session *s, int theirs[PIPES]) {
    for (int i = 0; i < PIPES; i++) {
        int ends[2];
        if (pipe2(ends, O_CLOEXEC) < 0) return -errno;
        s->pipe[i] = ends[i == IN ? 1 : 0];
        theirs[i] = ends[i == IN ? 0 : 1];
        if (fcntl(s->pipe[i], F_SETFL, O_NONBLOCK) < 0) return -errno;
    }
    return 0;
}

static int start_command(struct session *s) {
    int theirs[PIPES] = {-1, -1, -1};
    pid_t parent = getpid();
    int rc = open_pipes(s, theirs);
    if (rc == 0) {
        s->pid = fork();
        if (s->pid == 0) run_shell(s, theirs, parent);
        if (s->pid < 0) rc = -errno;
    }
    for (int i = 0; i < PIPES; i++) cr_close_fd(&theirs[i]);
    if (rc < 0) return rc;
    s->pidfd = (int) syscall(SYS_pidfd_open, s->pid, 0);
    return s->pidfd < 0 ? -errno : 0;
}

/* ---- carrying bytes ---- */

static int64_t take_input(void *arg, const char *data, size_t len) {
    struct session *s = arg;
    struct remote_frame frame;
    int64_t size = remote_get(data, len, &frame);
    if (size <= 0) return size;
    if (frame.type != REMOTE_INPUT) return -EPROTO;
    if (frame.len == 0) s->input_ended = true;
    /* if the command has closed its stdin, its input is dropped */
    int rc = s->pipe[IN] < 0 ? 0 : cr_buffer_append(&s->input, frame.data, frame.len);
    return rc < 0 ? rc : size;
}

static int take_frames(struct session *s) {
    int rc = (int) cr_buffer_take_frames(secure_tunnel_in(s->wire.tunnel), take_input, s);
    if (rc == 0 && s->input_ended && s->input.len == 0) cr_close_fd(&s->pipe[IN]);
    return rc;
}

static int receive(struct session *s) {
    int rc = wire_read(&s->wire);
    if (rc == 0) rc = take_frames(s);
    if (rc == 0 && secure_tunnel_state(s->wire.tunnel) == SECURE_FAILED) rc = -EPROTO;
    return rc == 0 && s->wire.has_ended ? -ECONNRESET : rc;
}

static void give_input(struct session *s) {
    ssize_t n = write(s->pipe[IN], s->input.data, s->input.len);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    cr_buffer_consume(&s->input, n < 0 ? s->input.len : (size_t) n);
    if (n < 0 || (s->input_ended && s->input.len == 0)) cr_close_fd(&s->pipe[IN]);
}

/* Reads once from the pipe of the command's stdout or stderr, and queues the bytes for the caller.
 * Returns 1 if it has read bytes, 0 if there were none, or a negative errno. */
static int take_output(struct session *s, int which) {
    static char bytes[16384];
    ssize_t n = read(s->pipe[which], bytes, sizeof(bytes));
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    if (n <= 0) {
        cr_close_fd(&s->pipe[which]);
        return 0;
    }
    int rc = wire_put(&s->wire, which == OUT ? REMOTE_OUT : REMOTE_ERR, bytes, (size_t) n);
    return rc < 0 ? rc : 1;
}

/* Waits until poll(2) reports something, and handles it. Returns 1 if the command has ended, 0 if
 * it has not, or a negative errno. */
static int turn(struct session *s) {
    enum { WIRE, COMMAND, TO_IN, FROM_OUT, FROM_ERR, COUNT };
    bool has_room = wire_queued(&s->wire) < WIRE_QUEUE_MAX;
    bool reads = s->input.len < WIRE_QUEUE_MAX;
    struct pollfd fds[COUNT] = {
        [WIRE] = {.fd = s->wire.fd, .events = wire_events(&s->wire, reads)},
        [COMMAND] = {.fd = s->pidfd, .events = POLLIN},
        [TO_IN] = {.fd = s->input.len > 0 ? s->pipe[IN] : -1, .events = POLLOUT},
        [FROM_OUT] = {.fd = has_room ? s->pipe[OUT] : -1, .events = POLLIN},
        [FROM_ERR] = {.fd = has_room ? s->pipe[ERR] : -1, .events = POLLIN}};
    int rc = 0;
    if (poll(fds, COUNT, -1) < 0) return errno == EINTR ? 0 : -errno;
    if (fds[FROM_OUT].revents != 0) rc = take_output(s, OUT);
    if (rc >= 0 && fds[FROM_ERR].revents != 0) rc = take_output(s, ERR);
    if (rc >= 0 && fds[TO_IN].revents != 0) give_input(s);
    if (rc >= 0) rc = wire_flush(&s->wire);
    if (rc == 0 && (fds[WIRE].revents & (POLLIN | POLLHUP | POLLERR))) {
        if (reads) rc = receive(s);
        else if (fds[WIRE].revents & (POLLHUP | POLLERR)) rc = -ECONNRESET;
    }
    return rc == 0 && fds[COMMAND].revents != 0 ? 1 : rc;
}

/* Call this when the command has ended. The function sends the output that is left in the pipes,
 * and the exit status. It does not wait for the end of the pipes, because a process that the
 * command has left behind may keep them open. */
static void finish(struct session *s) {
    int how = 0;
    while (waitpid(s->pid, &how, 0) < 0 && errno == EINTR) continue;
    unsigned char status =
        (unsigned char) (WIFSIGNALED(how) ? 128 + WTERMSIG(how) : WEXITSTATUS(how));
    for (int i = OUT; i <= ERR; i++) {
        while (s->pipe[i] >= 0 && take_output(s, i) > 0) continue;
    }
    send_last(s, REMOTE_ENDED, &status, 1);
}

static int run_command(struct session *s, struct cr_error *err) {
    cr_info("'%s' at %s runs: %s", s->account.name, s->peer, s->command);
    int rc = start_command(s);
    if (rc < 0) {
        (void) cr_fail(err, rc, "cannot start a process as '%s': %s", s->account.name,
                       strerror(-rc));
        send_last(s, REMOTE_REFUSED, err->text, strlen(err->text));
        return rc;
    }
    rc = take_frames(s); /* handles input that came together with the command */
    while (rc == 0) rc = turn(s);
    if (rc > 0) finish(s);
    else cr_info("'%s' at %s: the connection has ended: %s", s->account.name, s->peer,
                 strerror(-rc));
    return 0;
}

/* ---- the process ---- */

static void reset_signals(void) {
    sigset_t none;
    (void) sigemptyset(&none);
    (void) sigprocmask(SIG_SETMASK, &none, NULL);
    for (int signum = 1; signum < NSIG; signum++) (void) signal(signum, SIG_DFL);
    (void) signal(SIGPIPE, SIG_IGN);
}

/* Reports to the daemon, by closing the pipe *fd, that the greeting is over. If `why` is not NULL,
 * the session refuses the caller for this reason, and first writes it into the pipe. */
static void report(int *fd, const char *why) {
    if (why != NULL) (void) !write(*fd, why, strlen(why));
    cr_close_fd(fd);
}

static int serve_caller(const struct session_settings *settings, int *report_fd) {
    struct session s = {.settings = settings, .wire = {.fd = STDIN_FILENO}, .pidfd = -1,
                        .pipe = {-1, -1, -1}};
    struct sockaddr_storage peer;
    socklen_t len = sizeof(peer);
    struct cr_error err = {0};
    (void) fcntl(STDIN_FILENO, F_SETFD, FD_CLOEXEC);
    wire_set_up(s.wire.fd);
    if (getpeername(s.wire.fd, (struct sockaddr *) &peer, &len) == 0) {
        cr_address_format((struct sockaddr *) &peer, s.peer);
    }
    int rc = greet(&s, &err);
    report(report_fd, rc < 0 ? err.text : NULL);
    if (rc == 0) rc = run_command(&s, &err);
    if (rc == -EPERM || rc == -EAGAIN) cr_warn("%s: %s", s.peer, err.text);
    wire_close(&s.wire);
    cr_buffer_done(&s.input);
    free(s.command);
    return rc < 0 ? 1 : 0;
}

int remote_session_main(int argc, char **argv) {
    struct session_settings settings;
    int report_fd = SESSION_REPORT_FD;
    struct sockaddr_storage own;
    socklen_t len = sizeof(own);
    cr_log_setup("crun-agent", cr_log_parse_level(getenv("LOGLEVEL"), CR_LOG_WARN));
    if (argc != SESSION_WORDS || getsockname(STDIN_FILENO, (struct sockaddr *) &own, &len) < 0) {
        return 2; /* a user, not the daemon, has started this process */
    }
    settings = (struct session_settings){argv[1], argv[2], argv[3]};
    reset_signals();
    (void) fcntl(report_fd, F_SETFD, FD_CLOEXEC);
    return serve_caller(&settings, &report_fd);
}
