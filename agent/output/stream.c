/* Takes the bytes of one stream from its pipe to the log file, to the filtered file, and to the
 * console. */
#include "agent/output/log_relay_internal.h"
#include "base/cleanup.h"
#include "base/log/log.h"
#include "base/time/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/uio.h>
#include <unistd.h>

/* limit of the bytes that one stream_drain() reads: the size of the largest pipe that Linux allows
 * by default (pipe-max-size) */
#define DRAIN_MAX ((size_t) 1024 * 1024)

const char *const stream_file_names[WHICH_COUNT] = {"stdout.log", "stderr.log"};
const char *const stream_filtered_names[WHICH_COUNT] = {"filtered_stdout.log",
                                                        "filtered_stderr.log"};

/* ---- writing to files ---- */

static void warn_of_file(struct log_relay *r, const char *name, uint32_t local_rank, int rc) {
    if (r->warned_of_file) return;
    r->warned_of_file = true;
    cr_warn("cannot write %s of local rank %u any more: %s; the job goes on, but this log, and "
            "each other log that cannot be written, stays incomplete",
            name, local_rank, strerror(-rc));
}

void relay_warn_of_memory(struct log_relay *r) {
    if (r->warned_of_memory) return;
    r->warned_of_memory = true;
    cr_warn("no memory left for the workers' output: lines are missing on the console");
}

static struct log_file *file_of(const struct stream *s) {
    return s->tail != NULL ? s->tail->file : s->file;
}

int stream_join_input(struct stream *s, enum input input) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = s};
    for (int i = 0; i < INPUT_COUNT; i++) {
        (void) epoll_ctl(s->relay->inputs[i].epoll_fd, EPOLL_CTL_DEL, s->fd, NULL);
    }
    int epoll_fd = s->relay->inputs[input].epoll_fd;
    return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, s->fd, &event) < 0 ? -errno : 0;
}

/* Appends to the stream's log file, if it has one. Returns the number of bytes written. After an
 * error nothing more is written to the file, and further bytes of a teed stream go to the console
 * only. */
static size_t write_file(struct stream *s, const char *data, size_t len) {
    struct log_file *file = file_of(s);
    if (file == NULL || s->is_file_broken) return 0;
    uint64_t before = file->end;
    int rc = log_file_append(file, data, len);
    if (rc < 0) {
        warn_of_file(s->relay, stream_file_names[s->which], s->local_rank, rc);
        s->is_file_broken = true;
        if (s->fd >= 0 && s->tail != NULL) (void) stream_join_input(s, DIRECT);
    }
    return (size_t) (file->end - before);
}

static bool contains_any(const char *line, size_t len, char *const *texts) {
    for (; *texts != NULL; texts++) {
        if (memmem(line, len, *texts, strlen(*texts)) != NULL) return true;
    }
    return false;
}

/* Writes the line to the filtered file if it contains one of the texts of the job's filters. */
static void write_filtered_line(struct stream *s, const struct line *line) {
    struct log_relay *r = s->relay;
    char *const *texts = s->which == OUT ? r->options.stdout_filters : r->options.stderr_filters;
    char newline = '\n';
    if (!contains_any(line->data, line->len, texts)) return;
    struct iovec parts[] = {{s->tail->prefix, strlen(s->tail->prefix)},
                            {(char *) line->data, line->len},
                            {&newline, 1}};
    size_t whole = parts[0].iov_len + line->len + 1;
    if (writev(r->filtered_fds[s->which], parts, CR_ARRAY_LEN(parts)) == (ssize_t) whole) return;
    warn_of_file(r, stream_filtered_names[s->which], s->local_rank, -errno);
    cr_close_fd(&r->filtered_fds[s->which]);
}

static void write_filtered(struct stream *s, const char *data, size_t len) {
    struct line line;
    int rc = 0;
    while (s->relay->filtered_fds[s->which] >= 0 &&
           (rc = line_splitter_next(&s->filtered, &data, &len, &line)) != 0) {
        if (rc > 0) write_filtered_line(s, &line);
    }
}

static void end_filtered(struct stream *s) {
    struct line line;
    if (s->tail == NULL || s->relay->filtered_fds[s->which] < 0) return;
    if (line_splitter_end(&s->filtered, &line) > 0) write_filtered_line(s, &line);
}

/* ---- passing a stream's bytes on ---- */

/* Passes the lines of these bytes to options.on_line. If memory is short, a line that comes in
 * several pieces is lost. */
static void pass_lines(struct stream *s, const char *data, size_t len) {
    const struct log_relay_options *o = &s->relay->options;
    struct line line;
    int rc;
    while ((rc = line_splitter_next(&s->watched, &data, &len, &line)) != 0) {
        if (rc > 0) o->on_line(o->on_line_arg, s->local_rank, line.data, line.len);
    }
}

static void end_lines(struct stream *s) {
    const struct log_relay_options *o = &s->relay->options;
    struct line line;
    if (o->on_line == NULL || line_splitter_end(&s->watched, &line) == 0) return;
    o->on_line(o->on_line_arg, s->local_rank, line.data, line.len);
    line_splitter_done(&s->watched);
    s->watched = (struct line_splitter){0};
}

static void write_plain(struct stream *s, const char *data, size_t len) {
    struct log_relay *r = s->relay;
    if (plain_lines_has(s)) {
        plain_lines_feed(s, data, len);
        return;
    }
    if (r->console[s->which] == r->live.console) live_line_hide(&r->live);
    console_write(r->console[s->which], data, len);
}

static void pass_on(struct stream *s, const char *data, size_t len) {
    s->last_ns = cr_monotonic_ns();
    if (s->first_ns == 0) s->first_ns = s->last_ns;
    s->relay->passed += len;
    if (s->which == ERR) last_bytes_add(&s->last, data, len);
    if (s->relay->options.on_line != NULL) pass_lines(s, data, len);
    size_t filed = write_file(s, data, len);
    if (s->tail != NULL) {
        write_filtered(s, data, len);
        tail_feed(s->tail, data, filed, len);
    } else if (!s->hidden) {
        write_plain(s, data, len);
    }
}

/* ---- reading from the pipe ---- */

/* size in bytes of a pipe that is new, and number of reads that must find it full before it is made
 * larger */
#define USUAL_PIPE ((size_t) 64 * 1024)
#define FULL_READS 16
/* number of pipes that a relay makes larger, and their size in bytes: 16 pipes of 256 KiB take
 * 4 MiB of the kernel's limit for all pipes of a user (pipe-user-pages-soft, 64 MiB) */
#define LARGE_PIPES 16
#define LARGE_PIPE  ((int) STREAM_READ_MAX)

/* Call this after a read of `n` bytes. When FULL_READS reads have found the worker's pipe full,
 * makes the pipe larger, so that the worker and crun wake each other less often. */
static void enlarge_pipe(struct stream *s, size_t n) {
    if (n < USUAL_PIPE || s->full_reads == FULL_READS) return;
    if (++s->full_reads < FULL_READS || s->relay->large_pipes == LARGE_PIPES) return;
    if (fcntl(s->fd, F_SETPIPE_SZ, LARGE_PIPE) > 0) s->relay->large_pipes++;
}

ssize_t stream_read(struct stream *s) {
    for (;;) {
        ssize_t n = read(s->fd, s->relay->chunk, STREAM_READ_MAX);
        if (n > 0) enlarge_pipe(s, (size_t) n);
        if (n > 0) pass_on(s, s->relay->chunk, (size_t) n);
        if (n > 0) return n;
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return 0;
        /* the stream has ended: read() returns 0 for a pipe, and fails with EIO for a pseudo
         * terminal */
        stream_close(s);
        return -1;
    }
}

void stream_drain(struct stream *s) {
    size_t left = DRAIN_MAX;
    while (s->fd >= 0) {
        ssize_t n = stream_read(s);
        if (n <= 0 || (size_t) n >= left) return;
        left -= (size_t) n;
    }
}

void stream_close(struct stream *s) {
    end_filtered(s);
    end_lines(s);
    if (s->tail == NULL && s->file == NULL && !s->hidden) plain_lines_end(s);
    if (s->tail != NULL) tail_end(s->tail);
    s->tail = NULL;
    log_file_free(s->file);
    s->file = NULL;
    cr_close_fd(&s->fd); /* closing the descriptor also removes it from the epoll */
}

void stream_clear(struct stream *s) {
    stream_close(s);
    last_bytes_done(&s->last);
    line_splitter_done(&s->filtered);
    line_splitter_done(&s->plain);
    line_splitter_done(&s->watched);
    cr_buffer_done(&s->plain_update);
    s->filtered = s->plain = s->watched = (struct line_splitter){0};
    s->last = (struct last_bytes){0};
    s->is_file_broken = s->mixed = false;
    s->first_ns = s->last_ns = 0;
}
