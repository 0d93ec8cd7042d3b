/* Starts and reaps a child process: see child_internal.h. */
#include "launcher/hosts/child_internal.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { READ_END, WRITE_END };

/* The ends of all pipes between parent and child; -1 for a pipe that is not open. */
struct pipes {
    int in[2], out[2], err[2];
    int report[2]; /* closed by exec; before that, the child writes its errno into it */
};

static void close_pipes(struct pipes *p) {
    int *const all[] = {p->in, p->out, p->err, p->report};
    for (size_t i = 0; i < CR_ARRAY_LEN(all); i++) {
        cr_close_fd(&all[i][READ_END]);
        cr_close_fd(&all[i][WRITE_END]);
    }
}

static int open_pipes(struct pipes *p, bool has_input) {
    *p = (struct pipes){.in = {-1, -1}, .out = {-1, -1}, .err = {-1, -1}, .report = {-1, -1}};
    bool ok = pipe2(p->out, O_CLOEXEC) == 0 && pipe2(p->err, O_CLOEXEC) == 0 &&
              pipe2(p->report, O_CLOEXEC) == 0;
    if (ok && has_input) {
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

static _Noreturn void run_child(const struct pipes *p, const char *const *argv, int kept_fd,
                                pid_t parent) {
    (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* if the parent died before prctl(), no signal will come */
    if (getppid() != parent) _exit(127);
    (void) setsid();
    reset_signals();
    bool ok = dup2(p->in[READ_END], 0) >= 0 && dup2(p->out[WRITE_END], 1) >= 0 &&
              dup2(p->err[WRITE_END], 2) >= 0;
    if (ok && kept_fd >= 0) ok = fcntl(kept_fd, F_SETFD, 0) >= 0;
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

/* Waits until the child has executed its program. Returns 0 or the child's negative errno. */
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

static int fork_child(struct child *c, struct pipes *p, const char *const *argv, int kept_fd) {
    pid_t parent = getpid();
    c->pid = fork();
    if (c->pid < 0) {
        c->pid = 0;
        return -errno;
    }
    if (c->pid == 0) run_child(p, argv, kept_fd, parent);
    return await_exec(p);
}

static void reap(struct child *c) {
    if (c->pid == 0) return;
    (void) kill(c->pid, SIGKILL);
    while (waitpid(c->pid, NULL, 0) < 0 && errno == EINTR) continue;
    c->pid = 0;
}

int child_start(struct child *c, uv_loop_t *loop, const char *const *argv, bool has_input,
                int kept_fd, struct child_pipes *pipes, struct cr_error *err) {
    struct pipes p;
    c->pidfd = -1;
    int rc = open_pipes(&p, has_input);
    if (rc == 0) rc = fork_child(c, &p, argv, kept_fd);
    if (rc == 0) rc = watch(c, loop);
    if (rc < 0) {
        reap(c);
        close_pipes(&p);
        return cr_fail(err, rc, "cannot start '%.200s': %s", argv[0], strerror(-rc));
    }
    *pipes = (struct child_pipes){.in = has_input ? cr_take_fd(&p.in[WRITE_END]) : -1,
                                  .out = cr_take_fd(&p.out[READ_END]),
                                  .err = cr_take_fd(&p.err[READ_END])};
    close_pipes(&p);
    return 0;
}

void child_kill(struct child *c, int signum) {
    if (c->pid > 0) (void) syscall(SYS_pidfd_send_signal, c->pidfd, signum, NULL, 0);
}
