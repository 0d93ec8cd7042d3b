/* Starts and reaps a child process: see child_internal.h. */
#include "launcher/hosts/child_internal.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { READ_END, WRITE_END };

/* The descriptors of all pipes between parent and child; -1 for each end that is not open. */
struct pipes {
    int in[2], out[2], err[2];
    int report[2]; /* a successful exec closes this pipe; if exec fails, the child writes its errno
                    * into it */
};

static void close_pipes(struct pipes *p) {
    int *const all[] = {p->in, p->out, p->err, p->report};
    for (size_t i = 0; i < CR_ARRAY_LEN(all); i++) {
        cr_close_fd(&all[i][READ_END]);
        cr_close_fd(&all[i][WRITE_END]);
    }
}

/* Opens a pseudo terminal: the child's ends of in, out and err are its slave, and this process's
 * ends of in and out are its master. */
static int open_pty(struct pipes *p, const struct winsize *size) {
    char name[64];
    int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    p->out[READ_END] = master;
    bool ok = master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0 &&
              ptsname_r(master, name, sizeof(name)) == 0 &&
              (size->ws_col == 0 || ioctl(master, TIOCSWINSZ, size) == 0);
    if (ok) p->in[WRITE_END] = fcntl(master, F_DUPFD_CLOEXEC, 0);
    if (ok) p->in[READ_END] = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (ok) p->out[WRITE_END] = fcntl(p->in[READ_END], F_DUPFD_CLOEXEC, 0);
    if (ok) p->err[WRITE_END] = fcntl(p->in[READ_END], F_DUPFD_CLOEXEC, 0);
    return ok && p->in[WRITE_END] >= 0 && p->err[WRITE_END] >= 0 ? 0 : -errno;
}

static int open_pipes(struct pipes *p, enum child_input input, const struct winsize *size) {
    *p = (struct pipes){.in = {-1, -1}, .out = {-1, -1}, .err = {-1, -1}, .report = {-1, -1}};
    if (input == CHILD_PTY) return pipe2(p->report, O_CLOEXEC) < 0 ? -errno : open_pty(p, size);
    bool ok = pipe2(p->out, O_CLOEXEC) == 0 && pipe2(p->err, O_CLOEXEC) == 0 &&
              pipe2(p->report, O_CLOEXEC) == 0;
    if (ok && input == CHILD_PIPE) {
        ok = pipe2(p->in, O_CLOEXEC) == 0;
    } else if (ok) {
        p->in[READ_END] = open("/dev/null", O_RDONLY | O_CLOEXEC);
        ok = p->in[READ_END] >= 0;
    }
    return ok ? 0 : -errno;
}

/* ---- in the child, between fork and exec ---- */

static void reset_signals(void) {
    sigset_t none;
    for (int signum = 1; signum < NSIG; signum++) (void) signal(signum, SIG_DFL);
    (void) sigemptyset(&none);
    (void) sigprocmask(SIG_SETMASK, &none, NULL);
}

static _Noreturn void run_child(const struct child *c, const struct pipes *p,
                                const char *const *argv, bool has_pty, int kept_fd,
                                pid_t parent) {
    (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* If the parent died before prctl(), the kernel will send no signal, so the child ends here. */
    if (getppid() != parent) _exit(127);
    (void) setsid();
    reset_signals();
    bool ok = dup2(p->in[READ_END], 0) >= 0 && dup2(p->out[WRITE_END], 1) >= 0 &&
              dup2(p->err[WRITE_END], 2) >= 0;
    if (ok && has_pty) ok = ioctl(0, TIOCSCTTY, 0) == 0;
    if (ok && kept_fd >= 0) ok = fcntl(kept_fd, F_SETFD, 0) >= 0;
    /* Closing all other descriptors tells the parent by the report pipe that the child runs, and
     * gives up this copy of the parent's ends of other pipes. Linux before 5.9 cannot do it in one
     * call; there, argv[0] is executed, which does the same as `run`. */
    if (ok && c->run != NULL && syscall(SYS_close_range, 3U, ~0U, 0U) == 0) _exit(c->run(argv));
    if (ok) (void) execvp(argv[0], (char *const *) (uintptr_t) argv);
    int error = errno;
    (void) !write(p->report[WRITE_END], &error, sizeof(error));
    _exit(127);
}

/* ---- in the parent ---- */

static void on_closed(uv_handle_t *handle) {
    struct child *c = handle->data;
    int how = 0;
    while (waitpid(c->pid, &how, 0) < 0 && errno == EINTR) continue;
    c->pid = 0;
    cr_close_fd(&c->pidfd);
    c->on_exit(c->arg, WIFSIGNALED(how) ? 128 + WTERMSIG(how) : WEXITSTATUS(how));
}

static void on_dead(uv_poll_t *poll, int status, int events) {
    (void) status, (void) events;
    uv_close((uv_handle_t *) poll, on_closed);
}

/* Waits until the child has executed its program or has failed. Returns 0, or the negative errno of
 * the child's failure. */
static int await_exec(struct pipes *p) {
    int error = 0;
    cr_close_fd(&p->report[WRITE_END]);
    ssize_t n;
    while ((n = read(p->report[READ_END], &error, sizeof(error))) < 0 && errno == EINTR) continue;
    return n == (ssize_t) sizeof(error) && error > 0 ? -error : 0;
}

static int watch(struct child *c, uv_loop_t *loop) {
    c->pidfd = (int) syscall(SYS_pidfd_open, c->pid, 0);
    int rc = c->pidfd < 0 ? -errno : uv_poll_init(loop, &c->poll, c->pidfd);
    if (rc < 0) {
        cr_close_fd(&c->pidfd);
        return rc;
    }
    c->poll.data = c;
    return uv_poll_start(&c->poll, UV_READABLE, on_dead);
}

static int fork_child(struct child *c, struct pipes *p, const char *const *argv, bool has_pty,
                      int kept_fd) {
    pid_t parent = getpid();
    c->pid = fork();
    if (c->pid < 0) {
        c->pid = 0;
        return -errno;
    }
    if (c->pid == 0) run_child(c, p, argv, has_pty, kept_fd, parent);
    return await_exec(p);
}

static void reap(struct child *c) {
    if (c->pid == 0) return;
    (void) kill(c->pid, SIGKILL);
    while (waitpid(c->pid, NULL, 0) < 0 && errno == EINTR) continue;
    c->pid = 0;
}

int child_start(struct child *c, uv_loop_t *loop, const char *const *argv, enum child_input input,
                const struct winsize *size, int kept_fd, struct child_pipes *pipes,
                struct cr_error *err) {
    struct pipes p;
    c->pidfd = -1;
    int rc = open_pipes(&p, input, size);
    if (rc == 0) rc = fork_child(c, &p, argv, input == CHILD_PTY, kept_fd);
    if (rc == 0) rc = watch(c, loop);
    if (rc < 0) {
        reap(c);
        close_pipes(&p);
        return cr_fail(err, rc, "cannot start '%.200s': %s", argv[0], strerror(-rc));
    }
    *pipes = (struct child_pipes){.in = cr_take_fd(&p.in[WRITE_END]),
                                  .out = cr_take_fd(&p.out[READ_END]),
                                  .err = cr_take_fd(&p.err[READ_END])};
    close_pipes(&p);
    return 0;
}

void child_kill(struct child *c, int signum) {
    if (c->pid > 0) (void) syscall(SYS_pidfd_send_signal, c->pidfd, signum, NULL, 0);
}
