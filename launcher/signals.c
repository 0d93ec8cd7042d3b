/* Receives signals through a signalfd: see launcher/signals.h. */
#include "launcher/signals.h"

#include "base/cleanup.h"
#include "base/text/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define COMM_MAX 16 /* bytes of a process's name in Linux, with its NUL */

/* ---- the sender ---- */

/* Writes the name of a process to `out`, with escapes for characters that are not printable.
 * Returns false if the process has ended. */
static bool read_comm(pid_t pid, char out[4 * COMM_MAX]) {
    char path[64], name[COMM_MAX];
    (void) snprintf(path, sizeof(path), "/proc/%d/comm", (int) pid);
    CR_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, name, sizeof(name));
    if (n <= 0) return false;
    if (name[n - 1] == '\n') n--;
    (void) cr_text_copy(out, 4 * COMM_MAX, name, (size_t) n);
    return true;
}

static void describe(const struct signalfd_siginfo *info, char out[SIGNAL_SENDER_MAX]) {
    char comm[4 * COMM_MAX];
    int signum = (int) info->ssi_signo;
    pid_t pid = (pid_t) info->ssi_pid;
    if (info->ssi_code > 0) {
        (void) snprintf(out, SIGNAL_SENDER_MAX, "%s",
                        signum == SIGHUP                        ? "the end of the terminal"
                        : signum == SIGINT || signum == SIGQUIT ? "the terminal's keyboard"
                                                                : "the kernel");
    } else if (pid == 0) {
        (void) snprintf(out, SIGNAL_SENDER_MAX, "a process outside of this pid namespace");
    } else if (read_comm(pid, comm)) {
        (void) snprintf(out, SIGNAL_SENDER_MAX, "pid %d (%.40s, uid %u)", (int) pid, comm,
                        info->ssi_uid);
    } else {
        (void) snprintf(out, SIGNAL_SENDER_MAX, "pid %d (has ended, uid %u)", (int) pid,
                        info->ssi_uid);
    }
}

/* ---- receiving ---- */

static void on_readable(uv_poll_t *poll, int status, int events) {
    struct signals *s = poll->data;
    struct signalfd_siginfo info;
    char sender[SIGNAL_SENDER_MAX];
    (void) status, (void) events;
    /* the callback may call signals_close(), which sets s->fd to -1 */
    while (s->fd >= 0 && read(s->fd, &info, sizeof(info)) == (ssize_t) sizeof(info)) {
        describe(&info, sender);
        s->on_signal(s->arg, (int) info.ssi_signo, sender);
    }
}

static void do_nothing(int signum) { (void) signum; }

/* Gives each signal of the set its default action, because an ignored signal never reaches a
 * signalfd. The default action of SIGWINCH is to ignore it, and POSIX lets a kernel drop such a
 * signal although it is blocked, so SIGWINCH gets a handler. Call this while the signals are
 * blocked, so that none of these actions is executed. */
static void stop_ignoring(const sigset_t *set) {
    for (int signum = 1; signum < NSIG; signum++) {
        if (sigismember(set, signum) != 1) continue;
        (void) signal(signum, signum == SIGWINCH ? do_nothing : SIG_DFL);
    }
}

int signals_open(struct signals *s, uv_loop_t *loop, const sigset_t *set,
                 void (*on_signal)(void *arg, int signum, const char *sender), void *arg,
                 struct cr_error *err) {
    *s = (struct signals){.fd = -1, .set = *set, .on_signal = on_signal, .arg = arg};
    (void) sigprocmask(SIG_BLOCK, set, NULL);
    stop_ignoring(set);
    s->fd = signalfd(-1, set, SFD_NONBLOCK | SFD_CLOEXEC);
    int rc = s->fd < 0 ? -errno : uv_poll_init(loop, &s->poll, s->fd);
    if (rc < 0) {
        (void) sigprocmask(SIG_UNBLOCK, set, NULL);
        cr_close_fd(&s->fd);
        return cr_fail(err, rc, "cannot receive signals: %s", uv_strerror(rc));
    }
    s->poll.data = s;
    uv_unref((uv_handle_t *) &s->poll);
    return uv_poll_start(&s->poll, UV_READABLE, on_readable);
}

void signals_close(struct signals *s) {
    if (s->fd < 0) return;
    uv_close((uv_handle_t *) &s->poll, NULL);
    cr_close_fd(&s->fd);
    (void) sigprocmask(SIG_UNBLOCK, &s->set, NULL);
}
