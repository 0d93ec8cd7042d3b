/* One epoll for all pipes of the group, watched by one handle of the loop: starting a worker costs a
 * pipe and one epoll_ctl, and an idle group costs nothing.
 *
 * A console that does not keep up stops the reading of all pipes until it does; then the kernel's pipe
 * buffers fill and the workers that write wait, as they would without us. Files never wait. */
#include "agent/output/log_relay.h"

#include "agent/output/console.h"
#include "agent/output/last_bytes.h"
#include "agent/output/line_splitter.h"
#include "base/template.h"
#include "base/cleanup.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <pty.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>

#define READ_SIZE   ((size_t) 64 * 1024)
#define DRAIN_MAX   ((size_t) 1024 * 1024) /* what a dead worker can have left: a pipe's most */
#define WAKE_EVENTS 64                     /* streams read a turn of the loop */

static const char default_prefix[] = "[${role_name}${local_rank}]:";

enum which { OUT, ERR, WHICH_COUNT };

static const char *const file_names[WHICH_COUNT] = {"stdout.log", "stderr.log"};
static const char *const filtered_names[WHICH_COUNT] = {"filtered_stdout.log",
                                                        "filtered_stderr.log"};

struct stream {
    struct log_relay *relay;
    enum which which;
    uint32_t local_rank;
    int fd;       /* our end, or -1 */
    int file_fd;  /* of a teed stream, or -1 */
    int teed;     /* lines with a prefix; else bytes as they come */
    int silent;   /* kept off the console */
    int kept;     /* its worker goes on: neither the end of an attempt nor the next one's begin ends it */
    char *prefix; /* of a teed stream */
    struct line_splitter lines;
    struct last_bytes last;
};

struct log_relay {
    uv_loop_t *loop;
    struct log_relay_options options;
    const struct log_dir *logs;
    struct console consoles[WHICH_COUNT];
    struct console *console[WHICH_COUNT]; /* the same one twice if both streams lead to one place */
    int console_count;
    struct stream *streams; /* [2 * local_world_size] */
    size_t stream_count;
    int filtered_fds[WHICH_COUNT];
    int epoll_fd;
    uv_poll_t poll;
    int paused;
    int warned; /* of a log that cannot be written; once says it all */
    int stderr_is_terminal;
    int flushing;
    uv_idle_t flush_turn; /* on_flushed never runs inside a call */
    int has_log;          /* the process' log comes to us … */
    uv_async_t log_ready; /* … and has lines of other threads */
    pthread_t thread;     /* the loop's */
    struct cr_buffer lines; /* with their prefixes, being put together; written in one go */
    char *chunk;           /* READ_SIZE */
    void (*on_flushed)(void *arg);
    void (*on_close)(void *arg);
    void *arg;
    int open_handles;
};

/* ---- where a stream's bytes go ---- */

static void warn_of_file(struct log_relay *r, const char *name, uint32_t local_rank) {
    if (r->warned) return;
    r->warned = 1;
    cr_warn("cannot write %s of local rank %u any more: %s; the job goes on, without the rest of "
            "this log and of any other that cannot be written",
            name, local_rank, strerror(errno));
}

static void write_file(struct stream *s, const char *data, size_t len) {
    while (len > 0 && s->file_fd >= 0) {
        ssize_t n = write(s->file_fd, data, len);
        if (n >= 0) {
            data += n;
            len -= (size_t) n;
        } else if (errno != EINTR) {
            warn_of_file(s->relay, file_names[s->which], s->local_rank);
            cr_close_fd(&s->file_fd);
        }
    }
}

static int holds_any(const char *line, size_t len, char *const *filters) {
    for (; *filters != NULL; filters++) {
        if (memmem(line, len, *filters, strlen(*filters)) != NULL) return 1;
    }
    return 0;
}

static void write_filtered(struct stream *s, const char *line, size_t len, const char *whole,
                           size_t whole_len) {
    struct log_relay *r = s->relay;
    char *const *filters = s->which == OUT ? r->options.stdout_filters
                                           : r->options.stderr_filters;
    if (r->filtered_fds[s->which] < 0 || !holds_any(line, len, filters)) return;
    if (write(r->filtered_fds[s->which], whole, whole_len) == (ssize_t) whole_len) return;
    warn_of_file(r, filtered_names[s->which], s->local_rank);
    cr_close_fd(&r->filtered_fds[s->which]);
}

static int on_line(void *arg, const char *line, size_t len) {
    struct stream *s = arg;
    struct cr_buffer *lines = &s->relay->lines;
    if (s->silent) return 0;
    size_t start = lines->len, prefix_len = strlen(s->prefix), whole_len = prefix_len + len + 1;
    int rc = cr_buffer_reserve(lines, whole_len);
    if (rc < 0) return rc;
    (void) cr_buffer_append(lines, s->prefix, prefix_len); /* these fit */
    (void) cr_buffer_append(lines, line, len);
    (void) cr_buffer_append(lines, "\n", 1);
    write_filtered(s, line, len, lines->data + start, whole_len);
    return 0;
}

/* Whole lines only: no line of one rank is ever broken by another's. */
static void write_lines(struct stream *s) {
    struct log_relay *r = s->relay;
    console_write(r->console[s->which], r->lines.data, r->lines.len);
    cr_buffer_clear(&r->lines);
}

static void take(struct stream *s, const char *data, size_t len) {
    if (s->which == ERR) last_bytes_add(&s->last, data, len);
    write_file(s, data, len);
    if (s->teed) {
        (void) line_splitter_feed(&s->lines, data, len, on_line, s); /* no memory: a line is lost */
        write_lines(s);
    } else if (!s->silent) {
        console_write(s->relay->console[s->which], data, len);
    }
}

/* ---- the process' log ---- */

/* In the thread that logs, under the log's lock. */
static void on_log(void *arg, struct cr_buffer *kept) {
    struct log_relay *r = arg;
    if (kept->len == 0) return;
    if (!pthread_equal(pthread_self(), r->thread)) {
        (void) uv_async_send(&r->log_ready);
        return;
    }
    if (console_is_full(r->console[ERR])) return; /* on_console_room() comes back to it */
    console_write(r->console[ERR], kept->data, kept->len);
    cr_buffer_done(kept);
}

static void on_log_ready(uv_async_t *async) {
    (void) async;
    cr_log_drain();
}

static int divert_log(struct log_relay *r) {
    int rc = uv_async_init(r->loop, &r->log_ready, on_log_ready);
    if (rc < 0) return rc;
    r->open_handles++;
    r->has_log = 1;
    r->thread = pthread_self();
    cr_log_divert(on_log, r);
    return 0;
}

/* What comes now is for cr_log_flush(). */
static void leave_log(struct log_relay *r) {
    if (r->has_log) cr_log_divert(NULL, NULL);
}

/* ---- reading ---- */

static void close_stream(struct stream *s) {
    if (s->teed && s->fd >= 0) {
        (void) line_splitter_end(&s->lines, on_line, s);
        write_lines(s);
    }
    cr_close_fd(&s->fd); /* leaves the epoll by itself */
    cr_close_fd(&s->file_fd);
}

/* Bytes read, 0 when there are none for now, -1 when the stream has ended. */
static ssize_t read_once(struct stream *s) {
    for (;;) {
        ssize_t n = read(s->fd, s->relay->chunk, READ_SIZE);
        if (n > 0) take(s, s->relay->chunk, (size_t) n);
        if (n > 0) return n;
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return 0;
        close_stream(s); /* end of file; a pseudo terminal says EIO */
        return -1;
    }
}

static void on_readable(uv_poll_t *poll, int status, int events) {
    (void) status, (void) events;
    struct log_relay *r = poll->data;
    struct epoll_event ready[WAKE_EVENTS];
    int count = epoll_wait(r->epoll_fd, ready, WAKE_EVENTS, 0);
    for (int i = 0; i < count; i++) (void) read_once(ready[i].data.ptr);
    if (console_is_full(r->console[OUT]) || console_is_full(r->console[ERR])) {
        r->paused = 1;
        (void) uv_poll_stop(&r->poll);
    }
}

static int watch(struct log_relay *r, struct stream *s) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = s};
    return epoll_ctl(r->epoll_fd, EPOLL_CTL_ADD, s->fd, &event) < 0 ? -errno : 0;
}

static int all_flushed(const struct log_relay *r) {
    return console_is_flushed(r->console[OUT]) && console_is_flushed(r->console[ERR]);
}

static void on_flush_turn(uv_idle_t *idle) {
    struct log_relay *r = idle->data;
    (void) uv_idle_stop(idle);
    if (!r->flushing || !all_flushed(r)) return;
    r->flushing = 0;
    leave_log(r);
    r->on_flushed(r->arg);
}

static void on_console_room(void *arg) {
    struct log_relay *r = arg;
    if (r->has_log) cr_log_drain();
    if (r->paused && console_has_room(r->console[OUT]) && console_has_room(r->console[ERR])) {
        r->paused = 0;
        (void) uv_poll_start(&r->poll, UV_READABLE, on_readable);
    }
    if (r->flushing) (void) uv_idle_start(&r->flush_turn, on_flush_turn);
}

/* ---- opening and closing ---- */

static void on_handle_closed(uv_handle_t *handle) {
    struct log_relay *r = handle->data;
    if (--r->open_handles > 0) return;
    void (*on_close)(void *) = r->on_close;
    void *arg = r->arg;
    for (size_t i = 0; i < r->stream_count; i++) {
        close_stream(&r->streams[i]);
        line_splitter_done(&r->streams[i].lines);
        last_bytes_done(&r->streams[i].last);
        free(r->streams[i].prefix);
    }
    cr_buffer_done(&r->lines);
    free(r->chunk);
    free(r->streams);
    free(r);
    if (on_close != NULL) on_close(arg);
}

static void close_handle(struct log_relay *r, uv_handle_t *handle) {
    handle->data = r;
    uv_close(handle, on_handle_closed);
}

static int allocate(uv_loop_t *loop, const struct log_relay_options *options,
                    struct log_relay **out) {
    size_t count = (size_t) options->workers * WHICH_COUNT;
    struct log_relay *r = calloc(1, sizeof(*r));
    if (r == NULL) return -ENOMEM;
    *r = (struct log_relay){.loop = loop, .options = *options, .stream_count = count, .epoll_fd = -1,
                            .filtered_fds = {-1, -1}};
    r->streams = calloc(count, sizeof(*r->streams));
    r->chunk = malloc(READ_SIZE);
    if (r->streams == NULL || r->chunk == NULL) {
        free(r->streams);
        free(r->chunk);
        free(r);
        return -ENOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        r->streams[i] = (struct stream){.relay = r, .which = (enum which)(i % WHICH_COUNT),
                                        .local_rank = (uint32_t) (i / WHICH_COUNT),
                                        .fd = -1, .file_fd = -1};
    }
    *out = r;
    return 0;
}

/* 2>&1 into a pipe or on a terminal: one queue, or else what one could write of a line only in part
 * would be broken by the other. (Two descriptors of one file have offsets of their own.) */
static int is_one_place(void) {
    struct stat out, err;
    if (fstat(STDOUT_FILENO, &out) < 0 || fstat(STDERR_FILENO, &err) < 0) return 0;
    return !S_ISREG(out.st_mode) && out.st_dev == err.st_dev && out.st_ino == err.st_ino;
}

static int open_console(struct log_relay *r, int stream_fd) {
    int rc = console_open(&r->consoles[r->console_count], r->loop, stream_fd, on_console_room, r);
    if (rc < 0) return rc;
    r->console_count++;
    r->open_handles++;
    return 0;
}

static int open_handles(struct log_relay *r) {
    r->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (r->epoll_fd < 0) return -errno;
    int rc = uv_poll_init(r->loop, &r->poll, r->epoll_fd);
    if (rc < 0) return rc;
    r->open_handles++;
    r->poll.data = r;
    (void) uv_idle_init(r->loop, &r->flush_turn);
    r->flush_turn.data = r;
    r->open_handles++;
    rc = open_console(r, STDOUT_FILENO);
    if (rc == 0 && !is_one_place()) rc = open_console(r, STDERR_FILENO);
    r->console[OUT] = &r->consoles[0];
    r->console[ERR] = &r->consoles[r->console_count > 1 ? 1 : 0];
    if (rc == 0 && r->options.carries_log) rc = divert_log(r);
    if (rc == 0) rc = uv_poll_start(&r->poll, UV_READABLE, on_readable);
    return rc;
}

int log_relay_open(uv_loop_t *loop, const struct log_relay_options *options,
                   const struct log_dir *logs, void (*on_flushed)(void *arg), void *arg, struct log_relay **out,
                   struct cr_error *err) {
    struct log_relay *r = NULL;
    int rc = allocate(loop, options, &r);
    if (rc < 0) return cr_fail(err, rc, "no memory left for the workers' output");
    r->logs = logs;
    r->on_flushed = on_flushed;
    r->arg = arg;
    r->stderr_is_terminal = isatty(STDERR_FILENO);
    rc = open_handles(r);
    if (rc == 0) {
        *out = r;
        return 0;
    }
    (void) cr_fail(err, rc, "cannot watch the workers' output: %s", strerror(-rc));
    log_relay_close(r, NULL);
    return rc;
}

void log_relay_close(struct log_relay *r, void (*on_close)(void *arg)) {
    r->on_close = on_close;
    leave_log(r);
    if (r->has_log) close_handle(r, (uv_handle_t *) &r->log_ready);
    for (int i = 0; i < r->console_count; i++) {
        r->consoles[i].poll.data = r;
        console_close(&r->consoles[i], on_handle_closed);
    }
    for (int w = 0; w < WHICH_COUNT; w++) cr_close_fd(&r->filtered_fds[w]);
    if (r->open_handles == 0) { /* not even the first: nothing will call back */
        uv_idle_init(r->loop, &r->flush_turn);
        r->open_handles = 1;
        close_handle(r, (uv_handle_t *) &r->flush_turn);
    } else {
        close_handle(r, (uv_handle_t *) &r->poll);
        close_handle(r, (uv_handle_t *) &r->flush_turn);
    }
    cr_close_fd(&r->epoll_fd);
}

/* ---- an attempt ---- */

static int has_logs(const struct log_relay *r) { return r->logs->path[0] != '\0'; }

static int open_filtered(struct log_relay *r, enum which w, struct cr_error *err) {
    char *const *filters = w == OUT ? r->options.stdout_filters
                                    : r->options.stderr_filters;
    cr_close_fd(&r->filtered_fds[w]);
    if (filters == NULL || filters[0] == NULL || !has_logs(r)) return 0;
    return log_dir_create(r->logs, -1, filtered_names[w], &r->filtered_fds[w], err);
}

int log_relay_begin(struct log_relay *r, struct cr_error *err) {
    for (size_t i = 0; i < r->stream_count; i++) {
        if (r->streams[i].kept) continue;
        close_stream(&r->streams[i]);
        last_bytes_done(&r->streams[i].last);
        line_splitter_done(&r->streams[i].lines);
        r->streams[i].lines = (struct line_splitter){0};
        r->streams[i].last = (struct last_bytes){0};
    }
    int rc = open_filtered(r, OUT, err);
    return rc < 0 ? rc : open_filtered(r, ERR, err);
}

/* A terminal for the worker's stderr that changes no byte. */
static int open_terminal(int *ours, int *theirs) {
    struct termios mode;
    struct winsize size = {0};
    (void) ioctl(STDERR_FILENO, TIOCGWINSZ, &size);
    if (tcgetattr(STDERR_FILENO, &mode) < 0) return -errno;
    cfmakeraw(&mode);
    if (openpty(ours, theirs, NULL, &mode, &size) < 0) return -errno;
    (void) fcntl(*ours, F_SETFD, FD_CLOEXEC);
    (void) fcntl(*theirs, F_SETFD, FD_CLOEXEC);
    return 0;
}

static int open_channel(struct log_relay *r, struct stream *s, int *theirs) {
    int ends[2];
    if (s->which == ERR && r->stderr_is_terminal && open_terminal(&s->fd, theirs) == 0) {
        (void) fcntl(s->fd, F_SETFL, O_NONBLOCK);
        return watch(r, s);
    }
    if (pipe2(ends, O_CLOEXEC) < 0) return -errno;
    s->fd = ends[0];
    *theirs = ends[1];
    (void) fcntl(s->fd, F_SETFL, O_NONBLOCK); /* ours only: the worker's end blocks */
    return watch(r, s);
}

static int make_prefix(struct log_relay *r, struct stream *s, uint32_t rank) {
    char local[16], global[16], host[256] = "";
    (void) gethostname(host, sizeof(host) - 1);
    (void) snprintf(local, sizeof(local), "%u", s->local_rank);
    (void) snprintf(global, sizeof(global), "%u", rank);
    const struct template_variable variables[] = {
        {"role_name", r->options.role},
        {"local_rank", local},
        {"rank", global},
        {"hostname", host},
    };
    const char *text = r->options.prefix_template;
    struct cr_buffer b = {0};
    int rc = template_expand(&b, text != NULL && text[0] != '\0' ? text : default_prefix, variables,
                             CR_ARRAY_LEN(variables));
    if (rc == 0) rc = cr_buffer_append(&b, "", 1);
    if (rc < 0) {
        cr_buffer_done(&b);
        return rc;
    }
    free(s->prefix);
    s->prefix = b.data;
    return 0;
}

static int prepare_stream(struct log_relay *r, struct stream *s, uint32_t rank, int *theirs,
                          struct cr_error *err) {
    uint8_t bit = s->which == OUT ? LOG_RELAY_STDOUT : LOG_RELAY_STDERR;
    int logs = has_logs(r);
    int redirected = logs && r->options.redirects != NULL && (r->options.redirects[s->local_rank] & bit);
    s->teed = logs && r->options.tee != NULL && (r->options.tee[s->local_rank] & bit);
    s->silent = logs && r->options.console != NULL && !r->options.console[s->local_rank];
    if (redirected && !s->teed) {
        return log_dir_create(r->logs, s->local_rank, file_names[s->which], theirs, err);
    }
    int rc = 0;
    if (s->teed) rc = log_dir_create(r->logs, s->local_rank, file_names[s->which], &s->file_fd, err);
    if (rc < 0) return rc;
    if (s->teed) rc = make_prefix(r, s, rank);
    if (rc == 0 && !s->teed && s->which == OUT) {
        if (!s->silent) return 0; /* inherited */
        *theirs = open("/dev/null", O_WRONLY | O_CLOEXEC);
        rc = *theirs < 0 ? -errno : 0;
    } else if (rc == 0) {
        rc = open_channel(r, s, theirs);
    }
    if (rc == 0) return 0;
    return cr_fail(err, rc, "cannot open the %s of local rank %u: %s",
                   s->which == OUT ? "stdout" : "stderr", s->local_rank, strerror(-rc));
}

int log_relay_prepare(struct log_relay *r, uint32_t local_rank, uint32_t rank, int fds[2],
                      struct cr_error *err) {
    fds[OUT] = fds[ERR] = -1;
    int rc = 0;
    for (int w = 0; rc == 0 && w < WHICH_COUNT; w++) {
        rc = prepare_stream(r, &r->streams[local_rank * WHICH_COUNT + (uint32_t) w], rank, &fds[w],
                            err);
    }
    if (rc < 0) log_relay_started(fds);
    return rc;
}

void log_relay_started(int fds[2]) {
    cr_close_fd(&fds[OUT]);
    cr_close_fd(&fds[ERR]);
}

/* ---- the end of workers ---- */

static void drain_stream(struct stream *s) {
    size_t left = DRAIN_MAX;
    while (s->fd >= 0) {
        ssize_t n = read_once(s);
        if (n <= 0 || (size_t) n >= left) return;
        left -= (size_t) n;
    }
}

void log_relay_drain(struct log_relay *r, uint32_t local_rank) {
    for (uint32_t w = 0; w < WHICH_COUNT; w++) drain_stream(&r->streams[local_rank * WHICH_COUNT + w]);
}

void log_relay_keep(struct log_relay *r, uint32_t local_rank, bool keep) {
    for (uint32_t w = 0; w < WHICH_COUNT; w++) r->streams[local_rank * WHICH_COUNT + w].kept = keep;
}

/* Without memory for it the old one stays. */
void log_relay_rename(struct log_relay *r, uint32_t local_rank, uint32_t rank) {
    for (uint32_t w = 0; w < WHICH_COUNT; w++) {
        struct stream *s = &r->streams[local_rank * WHICH_COUNT + w];
        if (s->teed) (void) make_prefix(r, s, rank);
    }
}

void log_relay_end(struct log_relay *r) {
    for (size_t i = 0; i < r->stream_count; i++) {
        if (r->streams[i].kept) continue;
        drain_stream(&r->streams[i]);
        close_stream(&r->streams[i]);
    }
    for (int w = 0; w < WHICH_COUNT; w++) cr_close_fd(&r->filtered_fds[w]);
}

static int read_tail(const char *path, struct cr_buffer *out) {
    struct stat st;
    CR_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) return 0;
    off_t from = st.st_size > LAST_BYTES_MAX ? st.st_size - LAST_BYTES_MAX : 0;
    int rc = cr_buffer_reserve(out, LAST_BYTES_MAX);
    if (rc < 0) return rc;
    ssize_t n = pread(fd, out->data + out->len, LAST_BYTES_MAX, from);
    if (n > 0) out->len += (size_t) n;
    return 0;
}

int log_relay_last_words(const struct log_relay *r, uint32_t attempt, uint32_t local_rank,
                         struct cr_buffer *out) {
    const struct stream *s = &r->streams[local_rank * WHICH_COUNT + ERR];
    int redirected = has_logs(r) && r->options.redirects != NULL &&
                     (r->options.redirects[local_rank] & LOG_RELAY_STDERR);
    if (!redirected || s->teed) return last_bytes_copy(&s->last, out);
    char path[LOG_PATH_MAX];
    log_dir_path(r->logs, attempt, local_rank, file_names[ERR], path);
    return read_tail(path, out);
}

/* ---- the console at the end ---- */

void log_relay_flush(struct log_relay *r) {
    r->flushing = 1;
    if (all_flushed(r)) (void) uv_idle_start(&r->flush_turn, on_flush_turn);
}

void log_relay_give_up(struct log_relay *r) {
    for (int i = 0; i < r->console_count; i++) {
        if (!console_is_flushed(&r->consoles[i])) console_kill(&r->consoles[i]);
    }
    on_console_room(r);
}
