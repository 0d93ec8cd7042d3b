#include "agent/watchdog/watchdog.h"

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINE_MAX_LEN ((size_t) PIPE_BUF) /* a longer one could not have been written whole */

struct request {
    pid_t pid;
    const char *scope;
    double expires_s; /* wall clock; negative: take the timer back */
    int signum;       /* 0 or less: only say so */
};

struct armed {
    pid_t pid;
    char *scope;
    int64_t expires_ms; /* wall clock */
    int signum;
    LIST_ENTRY(armed) link;
};

LIST_HEAD(armed_list, armed);

struct watchdog {
    char *path;
    int fd;
    uv_poll_t poll;
    uv_timer_t timer;
    int open_handles;
    struct armed_list timers;
    size_t timer_count;
    struct cr_buffer input;
    void (*on_expired)(void *arg, pid_t pid);
    void (*on_close)(void *arg);
    void *arg;
};

static int64_t wall_ms(void) { return cr_wall_ns() / CR_NS_PER_MS; }

static void on_timer(uv_timer_t *timer);

/* ---- the timers ---- */

static void drop(struct watchdog *w, struct armed *t) {
    LIST_REMOVE(t, link);
    w->timer_count--;
    free(t->scope);
    free(t);
}

static struct armed *find(struct watchdog *w, const struct request *r) {
    struct armed *t = LIST_FIRST(&w->timers);
    LIST_FOREACH(t, &w->timers, link) {
        if (t->pid == r->pid && strcmp(t->scope, r->scope) == 0) return t;
    }
    return NULL;
}

static struct armed *add(struct watchdog *w, const struct request *r) {
    struct armed *t = w->timer_count < WATCHDOG_TIMERS_MAX ? calloc(1, sizeof(*t)) : NULL;
    if (t != NULL) t->scope = strdup(r->scope);
    if (t == NULL || t->scope == NULL) {
        cr_warn("cannot keep the timer '%s' of process %d: too many, or no memory left", r->scope,
                (int) r->pid);
        free(t);
        return NULL;
    }
    t->pid = r->pid;
    LIST_INSERT_HEAD(&w->timers, t, link);
    w->timer_count++;
    return t;
}

static void apply(struct watchdog *w, const struct request *r) {
    struct armed *t = find(w, r);
    if (r->expires_s < 0) {
        if (t != NULL) drop(w, t);
        return;
    }
    if (t == NULL) t = add(w, r);
    if (t == NULL) return;
    t->expires_ms = r->expires_s > 9e12 ? INT64_MAX : (int64_t) (r->expires_s * 1000);
    t->signum = r->signum;
}

/* The loop's timer runs to the earliest; with none it stands still. */
static void arm(struct watchdog *w) {
    struct armed *t = LIST_FIRST(&w->timers);
    int64_t first = INT64_MAX, now = wall_ms();
    LIST_FOREACH(t, &w->timers, link) {
        if (t->expires_ms < first) first = t->expires_ms;
    }
    if (first == INT64_MAX) (void) uv_timer_stop(&w->timer);
    else (void) uv_timer_start(&w->timer, on_timer, first > now ? (uint64_t) (first - now) : 0, 0);
}

void watchdog_forget(struct watchdog *w, pid_t pid) {
    struct armed *t, *next;
    int dropped = 0;
    for (t = LIST_FIRST(&w->timers); t != NULL; t = next) {
        next = LIST_NEXT(t, link);
        if (t->pid != pid) continue;
        drop(w, t);
        dropped = 1;
    }
    if (dropped) arm(w);
}

/* Of what is over, the earliest with a signal; else the earliest at all. */
static struct armed *find_expired(struct watchdog *w, int64_t now) {
    struct armed *t = LIST_FIRST(&w->timers), *best = NULL;
    LIST_FOREACH(t, &w->timers, link) {
        if (t->expires_ms > now) continue;
        if (best == NULL || (t->signum > 0) > (best->signum > 0) ||
            ((t->signum > 0) == (best->signum > 0) && t->expires_ms < best->expires_ms)) {
            best = t;
        }
    }
    return best;
}

static void expire(struct watchdog *w, struct armed *t) {
    cr_warn("the timer '%s' of process %d is over%s", t->scope, (int) t->pid,
            t->signum > 0 ? ": sending it its signal" : "");
    pid_t pid = t->pid;
    int signum = t->signum;
    if (signum <= 0) {
        drop(w, t);
        return;
    }
    watchdog_forget(w, pid);
    w->on_expired(w->arg, pid);
    if (kill(pid, signum) < 0 && errno != ESRCH) {
        cr_warn("cannot send signal %d to process %d: %s", signum, (int) pid, strerror(errno));
    }
}

static void on_timer(uv_timer_t *timer) {
    struct watchdog *w = timer->data;
    struct armed *t;
    int64_t now = wall_ms();
    while ((t = find_expired(w, now)) != NULL) expire(w, t);
    arm(w);
}

/* ---- the pipe ---- */

static void take_line(struct watchdog *w, const char *line, size_t len) {
    json_auto_t *root = json_loadb(line, len, 0, NULL);
    const json_t *pid = json_object_get(root, "pid");
    const json_t *scope = json_object_get(root, "scope_id");
    const json_t *expires = json_object_get(root, "expiration_time");
    const json_t *signum = json_object_get(root, "signal");
    json_int_t number = json_integer_value(pid);
    if (!json_is_integer(pid) || number <= 1 || number > INT_MAX || number == getpid() ||
        !json_is_string(scope) || !json_is_number(expires) || !json_is_integer(signum) ||
        json_integer_value(signum) >= NSIG) {
        cr_warn("a line in the timer pipe '%s' is no request; it is ignored", w->path);
        return;
    }
    struct request r = {.pid = (pid_t) number, .scope = json_string_value(scope),
                        .expires_s = json_number_value(expires),
                        .signum = (int) json_integer_value(signum)};
    apply(w, &r);
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
    if (w->input.len > LINE_MAX_LEN) cr_buffer_clear(&w->input);
}

static void on_readable(uv_poll_t *poll, int status, int events) {
    struct watchdog *w = poll->data;
    (void) status, (void) events;
    if (cr_buffer_reserve(&w->input, LINE_MAX_LEN) < 0) return;
    ssize_t n = read(w->fd, w->input.data + w->input.len, LINE_MAX_LEN);
    if (n <= 0) return;
    w->input.len += (size_t) n;
    take_lines(w);
    arm(w);
}

/* ---- opening and closing ---- */

/* Read and write, so that it never ends when a client closes it. */
static int open_pipe(const char *path, int *fd, struct cr_error *err) {
    if (unlink(path) < 0 && errno != ENOENT) {
        return cr_fail_errno(err, "cannot remove what is at the timer pipe's place '%s'", path);
    }
    if (mkfifo(path, 0600) < 0) {
        return cr_fail_errno(err, "cannot create the timer pipe '%s'", path);
    }
    *fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    return *fd >= 0 ? 0 : cr_fail_errno(err, "cannot open the timer pipe '%s'", path);
}

int watchdog_open(uv_loop_t *loop, const char *path, void (*on_expired)(void *arg, pid_t pid),
                  void *arg, struct watchdog **out, struct cr_error *err) {
    struct watchdog *w = calloc(1, sizeof(*w));
    if (w != NULL) w->path = strdup(path);
    if (w == NULL || w->path == NULL) {
        free(w);
        return cr_fail(err, -ENOMEM, "cannot open the timer pipe '%s': no memory left", path);
    }
    w->fd = -1;
    w->on_expired = on_expired;
    w->arg = arg;
    int rc = open_pipe(path, &w->fd, err);
    if (rc == 0) {
        rc = uv_poll_init(loop, &w->poll, w->fd);
        if (rc < 0) (void) cr_fail(err, rc, "cannot watch the timer pipe '%s'", path);
    }
    if (rc < 0) {
        cr_close_fd(&w->fd);
        free(w->path);
        free(w);
        return rc;
    }
    (void) uv_timer_init(loop, &w->timer);
    w->poll.data = w->timer.data = w;
    w->open_handles = 2;
    (void) uv_poll_start(&w->poll, UV_READABLE, on_readable);
    *out = w;
    return 0;
}

static void on_handle_closed(uv_handle_t *handle) {
    struct watchdog *w = handle->data;
    if (--w->open_handles > 0) return;
    void (*on_close)(void *) = w->on_close;
    void *arg = w->arg;
    while (!LIST_EMPTY(&w->timers)) drop(w, LIST_FIRST(&w->timers));
    cr_close_fd(&w->fd);
    cr_buffer_done(&w->input);
    free(w->path);
    free(w);
    if (on_close != NULL) on_close(arg);
}

void watchdog_close(struct watchdog *w, void (*on_close)(void *arg)) {
    w->on_close = on_close;
    (void) unlink(w->path);
    uv_close((uv_handle_t *) &w->poll, on_handle_closed);
    uv_close((uv_handle_t *) &w->timer, on_handle_closed);
}
