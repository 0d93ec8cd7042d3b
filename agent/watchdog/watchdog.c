/* Connects the set of timers (timers.h) with the system: reads requests from the named pipe, runs
 * the loop's timer, and sends signals. */
#include "agent/watchdog/watchdog.h"

#include "agent/watchdog/timers.h"
#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/log/log_limit.h"
#include "base/time/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Longest line in bytes that is accepted. A write(2) of more than PIPE_BUF bytes to a pipe is not
 * atomic, so another worker's line could come between two pieces of a longer line. */
#define LINE_BYTES_MAX ((size_t) PIPE_BUF)

struct watchdog {
    char *path;
    int fd;
    uv_poll_t poll;
    uv_timer_t timer;
    int open_handles;
    struct timers timers;
    struct cr_log_limit lines; /* log lines that workers cause */
    struct cr_buffer input; /* bytes received of a line whose end has not come yet */
    struct watchdog_events events;
    void (*on_close)(void *arg);
    void *arg;
};

/* ---- expiration ---- */

static int64_t wall_ms(void) { return cr_wall_ns() / CR_NS_PER_MS; }

static void on_timer(uv_timer_t *timer);

/* Starts the loop's timer for the earliest expiration, or stops it if no timer is set. */
static void arm(struct watchdog *w) {
    int64_t next = timers_next_ms(&w->timers), now = wall_ms();
    if (next == INT64_MAX)
        (void) uv_timer_stop(&w->timer);
    else
        (void) uv_timer_start(&w->timer, on_timer, next > now ? (uint64_t) (next - now) : 0, 0);
}

void watchdog_forget(struct watchdog *w, pid_t pid) {
    if (timers_forget(&w->timers, pid)) arm(w);
}

/* Sends the signal if the process belongs to this job. Opens a pidfd first and checks the process
 * after that, so that the signal cannot reach a later process with the same pid. */
static void send_signal(struct watchdog *w, pid_t pid, int signum) {
    /* the process gets only one signal, so its other timers are removed */
    (void) timers_forget(&w->timers, pid);
    CR_AUTO_FD int fd = (int) syscall(SYS_pidfd_open, pid, 0);
    if (fd < 0 && errno == ESRCH) return;
    if (!w->events.is_ours(w->arg, pid)) {
        cr_log_limited(&w->lines, CR_LOG_WARN,
                       "process %d is not a process of this job, so it gets no signal", (int) pid);
        return;
    }
    w->events.on_expired(w->arg, pid);
    if (fd >= 0 && syscall(SYS_pidfd_send_signal, fd, signum, NULL, 0) == 0) return;
    if (errno == ESRCH) return;
    cr_log_limited(&w->lines, CR_LOG_WARN, "cannot send signal %d to process %d: %s", signum,
                   (int) pid, strerror(errno));
}

static void on_timer(uv_timer_t *timer) {
    struct watchdog *w = timer->data;
    int64_t now = wall_ms();
    struct timer *t;
    while ((t = timers_take_expired(&w->timers, now)) != NULL) {
        cr_log_limited(&w->lines, CR_LOG_WARN, "the timer '%s' of process %d has expired%s",
                       t->scope, (int) t->pid,
                       t->signum > 0 ? "; it is sent the signal that it asked for" : "");
        if (t->signum > 0) send_signal(w, t->pid, t->signum);
        timer_free(t);
    }
    arm(w);
}

/* ---- reading requests from the pipe ---- */

static void take_line(struct watchdog *w, const char *line, size_t len) {
    struct timer_request r = {0};
    int rc = timer_request_parse(&r, line, len);
    if (rc == 0 && r.pid == getpid()) rc = -EINVAL;
    if (rc == 0) {
        rc = timers_apply(&w->timers, &r);
        if (rc < 0) {
            cr_log_limited(&w->lines, CR_LOG_WARN, "cannot set the timer '%s' of process %d: %s",
                           r.scope, (int) r.pid,
                           rc == -ENOSPC ? "too many timers are set" : "no memory left");
        }
    } else if (rc == -ENOMEM) {
        cr_log_limited(&w->lines, CR_LOG_WARN,
                       "cannot read a line of the timer pipe '%s': no memory left", w->path);
    } else {
        cr_log_limited(&w->lines, CR_LOG_WARN,
                       "a line in the timer pipe '%s' is not a request; the line is ignored",
                       w->path);
    }
    timer_request_done(&r);
}

static void take_lines(struct watchdog *w) {
    size_t at = 0;
    for (;;) {
        const char *line = w->input.data + at;
        const char *end = memchr(line, '\n', w->input.len - at);
        if (end == NULL) break;
        take_line(w, line, (size_t) (end - line));
        at += (size_t) (end + 1 - line);
    }
    cr_buffer_consume(&w->input, at);
    if (w->input.len > LINE_BYTES_MAX) cr_buffer_clear(&w->input);
}

static void on_readable(uv_poll_t *poll, int status, int events) {
    struct watchdog *w = poll->data;
    (void) status, (void) events;
    /* If memory is short, nothing is read now. The pipe stays readable, so the loop calls this
     * function again. */
    if (cr_buffer_reserve(&w->input, LINE_BYTES_MAX) < 0) return;
    ssize_t n = read(w->fd, w->input.data + w->input.len, LINE_BYTES_MAX);
    if (n <= 0) return;
    w->input.len += (size_t) n;
    take_lines(w);
    arm(w);
}

/* ---- opening and closing ---- */

/* Creates the pipe and opens it for reading and writing. The launcher keeps a writing end open,
 * because otherwise the pipe would report its end whenever the last worker closes the pipe. */
static int open_pipe(const char *path, int *fd, struct cr_error *err) {
    if (unlink(path) < 0 && errno != ENOENT) {
        return cr_fail_errno(err, "cannot remove the file at the timer pipe's path '%s'", path);
    }
    if (mkfifo(path, 0600) < 0) {
        return cr_fail_errno(err, "cannot create the timer pipe '%s'", path);
    }
    *fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
    if (*fd < 0) return cr_fail_errno(err, "cannot open the timer pipe '%s'", path);
    /* If other users may write to the folder, one of them may have replaced the pipe by another
     * file since mkfifo(). So check that the open file is a pipe of this user that no other user
     * may open. */
    struct stat st;
    bool is_own = fstat(*fd, &st) == 0 && S_ISFIFO(st.st_mode) && st.st_uid == geteuid() &&
                  (st.st_mode & 077) == 0;
    if (is_own) return 0;
    return cr_fail(err, -EPERM,
                   "the timer pipe '%s' was replaced by somebody else; set TORCHELASTIC_TIMER_FILE "
                   "to a path in a folder of your own", path);
}

static void watchdog_free(struct watchdog *w) {
    cr_log_limit_end(&w->lines);
    timers_done(&w->timers);
    cr_close_fd(&w->fd);
    cr_buffer_done(&w->input);
    free(w->path);
    free(w);
}

static int start_handles(struct watchdog *w, uv_loop_t *loop, struct cr_error *err) {
    int rc = uv_poll_init(loop, &w->poll, w->fd);
    if (rc < 0) return cr_fail(err, rc, "cannot watch the timer pipe '%s'", w->path);
    (void) uv_timer_init(loop, &w->timer);
    w->poll.data = w->timer.data = w;
    w->open_handles = 2;
    (void) uv_poll_start(&w->poll, UV_READABLE, on_readable);
    return 0;
}

int watchdog_open(uv_loop_t *loop, const char *path, const struct watchdog_events *events,
                  void *arg, struct watchdog **out, struct cr_error *err) {
    struct watchdog *w = calloc(1, sizeof(*w));
    if (w != NULL) w->path = strdup(path);
    if (w == NULL || w->path == NULL) {
        free(w);
        return cr_fail(err, -ENOMEM, "cannot open the timer pipe '%s': no memory left", path);
    }
    w->fd = -1;
    w->lines.about = "the workers' timers";
    w->events = *events;
    w->arg = arg;
    int rc = open_pipe(path, &w->fd, err);
    if (rc == 0) rc = start_handles(w, loop, err);
    if (rc < 0)
        watchdog_free(w);
    else
        *out = w;
    return rc;
}

static void on_handle_closed(uv_handle_t *handle) {
    struct watchdog *w = handle->data;
    if (--w->open_handles > 0) return;
    void (*on_close)(void *) = w->on_close;
    void *arg = w->arg;
    watchdog_free(w);
    if (on_close != NULL) on_close(arg);
}

void watchdog_close(struct watchdog *w, void (*on_close)(void *arg)) {
    w->on_close = on_close;
    (void) unlink(w->path);
    uv_close((uv_handle_t *) &w->poll, on_handle_closed);
    uv_close((uv_handle_t *) &w->timer, on_handle_closed);
}
