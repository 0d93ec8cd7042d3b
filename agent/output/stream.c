/* Takes the bytes of one stream from its pipe to the log file, to the filtered file, and to the
 * console. */
#include "agent/output/log_relay_internal.h"
#include "base/cleanup.h"
#include "base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Linux's default for the largest pipe (pipe-max-size), in bytes */
#define DRAIN_MAX ((size_t) 1024 * 1024)

const char *const stream_file_names[WHICH_COUNT] = {"stdout.log", "stderr.log"};
const char *const stream_filtered_names[WHICH_COUNT] = {"filtered_stdout.log",
                                                        "filtered_stderr.log"};

/* ---- writing to files ---- */

static void warn_of_file(struct log_relay *r, const char *name, uint32_t local_rank) {
    if (r->warned_of_file) return;
    r->warned_of_file = true;
    cr_warn("cannot write %s of local rank %u any more: %s; the job goes on, but this log, and "
            "each other log that cannot be written, stays incomplete",
            name, local_rank, strerror(errno));
}

static void warn_of_memory(struct log_relay *r) {
    if (r->warned_of_memory) return;
    r->warned_of_memory = true;
    cr_warn("no memory left for the workers' output: lines are missing on the console");
}

static void write_file(struct stream *s, const char *data, size_t len) {
    while (len > 0 && s->file_fd >= 0) {
        ssize_t n = write(s->file_fd, data, len);
        if (n >= 0) {
            data += n;
            len -= (size_t) n;
        } else if (errno != EINTR) {
            warn_of_file(s->relay, stream_file_names[s->which], s->local_rank);
            cr_close_fd(&s->file_fd);
        }
    }
}

static bool contains_any(const char *line, size_t len, char *const *texts) {
    for (; *texts != NULL; texts++) {
        if (memmem(line, len, *texts, strlen(*texts)) != NULL) return true;
    }
    return false;
}

/* Writes the line to the filtered file if it contains one of the job's texts. `whole` is the line
 * with its prefix and newline. */
static void write_filtered(struct stream *s, const char *line, size_t len, const char *whole,
                           size_t whole_len) {
    struct log_relay *r = s->relay;
    char *const *texts = s->which == OUT ? r->options.stdout_filters : r->options.stderr_filters;
    if (r->filtered_fds[s->which] < 0 || !contains_any(line, len, texts)) return;
    if (write(r->filtered_fds[s->which], whole, whole_len) == (ssize_t) whole_len) return;
    warn_of_file(r, stream_filtered_names[s->which], s->local_rank);
    cr_close_fd(&r->filtered_fds[s->which]);
}

/* ---- writing to the console ---- */

static int on_line(void *arg, const char *line, size_t len) {
    struct stream *s = arg;
    struct cr_buffer *lines = &s->relay->lines;
    if (s->hidden) return 0;
    size_t start = lines->len, prefix_len = strlen(s->prefix), whole_len = prefix_len + len + 1;
    int rc = cr_buffer_reserve(lines, whole_len);
    if (rc < 0) return rc;
    /* cannot fail, because the memory was reserved above */
    (void) cr_buffer_append(lines, s->prefix, prefix_len);
    (void) cr_buffer_append(lines, line, len);
    (void) cr_buffer_append(lines, "\n", 1);
    write_filtered(s, line, len, lines->data + start, whole_len);
    return 0;
}

/* Writes the lines that on_line() has collected. They are whole lines, so no other worker's output
 * can appear within a line. */
static void write_lines(struct stream *s) {
    struct log_relay *r = s->relay;
    console_write(r->console[s->which], r->lines.data, r->lines.len);
    cr_buffer_clear(&r->lines);
}

static void pass_on(struct stream *s, const char *data, size_t len) {
    if (s->which == ERR) last_bytes_add(&s->last, data, len);
    write_file(s, data, len);
    if (s->teed) {
        if (line_splitter_feed(&s->lines, data, len, on_line, s) < 0) warn_of_memory(s->relay);
        write_lines(s);
    } else if (!s->hidden) {
        console_write(s->relay->console[s->which], data, len);
    }
}

/* ---- reading from the pipe ---- */

ssize_t stream_read(struct stream *s) {
    for (;;) {
        ssize_t n = read(s->fd, s->relay->chunk, STREAM_READ_MAX);
        if (n > 0) pass_on(s, s->relay->chunk, (size_t) n);
        if (n > 0) return n;
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return 0;
        stream_close(s); /* a pipe has ended; a pseudo terminal reports its end as the error EIO */
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
    if (s->teed && s->fd >= 0) {
        if (line_splitter_end(&s->lines, on_line, s) < 0) warn_of_memory(s->relay);
        write_lines(s);
    }
    cr_close_fd(&s->fd); /* closing also removes the descriptor from the epoll */
    cr_close_fd(&s->file_fd);
}

void stream_clear(struct stream *s) {
    stream_close(s);
    last_bytes_done(&s->last);
    line_splitter_done(&s->lines);
    free(s->prefix);
    s->prefix = NULL;
    s->lines = (struct line_splitter){0};
    s->last = (struct last_bytes){0};
}
