/* Opens a worker's stream: chooses what the worker gets as its stdout or stderr (file, pipe,
 * terminal, /dev/null), and makes the prefix of its lines. */
#include "agent/output/log_relay_internal.h"
#include "base/cleanup.h"
#include "base/text/template.h"
#include "base/text/text.h"

#include <errno.h>
#include <fcntl.h>
#include <pty.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

static const char default_prefix[] = "[${role_name}${local_rank}]:";

/* ---- how the job's options apply to a stream ---- */

static bool is_set(const uint8_t *masks, const struct stream *s) {
    unsigned bit = s->which == OUT ? LOG_RELAY_STDOUT : LOG_RELAY_STDERR;
    return masks != NULL && (masks[s->local_rank] & bit) != 0;
}

/* Returns whether the stream goes to the console with a prefix before each line. If the job writes
 * log files, the stream goes to a log file, too. */
static bool is_teed(const struct stream *s) { return is_set(s->relay->options.tee, s); }

static bool is_in_file_only(const struct stream *s) {
    return has_logs(s->relay) && is_set(s->relay->options.redirects, s) && !is_teed(s);
}

/* Returns whether also a redirected stream has to pass through the launcher: its file has a size
 * limit, which a worker that writes its own file would not obey; or its lines are needed. */
static bool is_needed(const struct stream *s) {
    return s->relay->options.log_max_size > 0 || s->relay->options.on_line != NULL;
}

bool stream_is_redirected(const struct stream *s) {
    return !is_needed(s) && is_in_file_only(s);
}

/* Returns whether the launcher writes the stream's log file. */
static bool is_written_by_us(const struct stream *s) {
    if (!has_logs(s->relay)) return false;
    return is_teed(s) || (is_needed(s) && is_in_file_only(s));
}

bool stream_is_plain(const struct stream *s) {
    return s->tail == NULL && s->file == NULL && !s->hidden && !stream_is_redirected(s);
}

static bool is_hidden(const struct stream *s) {
    const struct log_relay_options *o = &s->relay->options;
    if (is_in_file_only(s)) return true;
    return has_logs(s->relay) && o->console != NULL && o->console[s->local_rank] == 0;
}

static const char *role_of(const struct stream *s) {
    const struct log_relay_options *o = &s->relay->options;
    return o->roles != NULL ? o->roles[s->local_rank] : o->role;
}

/* Makes the part of a line's JSON object that is the same for all lines of the stream. */
static int make_json_head(struct stream *s, const char *host, uint32_t rank) {
    static const char *const names[] = {"stdout", "stderr"};
    struct cr_buffer b = {0};
    int rc = cr_buffer_printf(&b, "\"host\":");
    if (rc == 0) rc = cr_json_string_append(&b, host);
    if (rc == 0) rc = cr_buffer_printf(&b, ",\"role\":");
    if (rc == 0) rc = cr_json_string_append(&b, role_of(s));
    if (rc == 0) {
        rc = cr_buffer_printf(&b, ",\"rank\":%u,\"local_rank\":%u,\"stream\":\"%s\",\"line\":",
                              rank, s->local_rank, names[s->which]);
    }
    if (rc < 0) {
        cr_buffer_done(&b);
        return rc;
    }
    free(s->tail->json_head);
    s->tail->json_head = b.data;
    s->tail->lines.skips_long = false; /* a long line becomes several objects */
    return 0;
}

int stream_prefix(struct stream *s, const char *local_rank, const char *rank,
                  struct cr_buffer *out) {
    char host[256] = "";
    const struct log_relay_options *o = &s->relay->options;
    (void) gethostname(host, sizeof(host) - 1);
    const struct template_variable variables[] = {{"role_name", role_of(s)},
                                                  {"local_rank", local_rank},
                                                  {"rank", rank},
                                                  {"hostname", host}};
    bool is_default = o->prefix_template == NULL || o->prefix_template[0] == '\0';
    return template_expand(out, is_default ? default_prefix : o->prefix_template, variables,
                           CR_ARRAY_LEN(variables));
}

int stream_make_prefix(struct stream *s, uint32_t rank) {
    char local[16], global[16], host[256] = "";
    if (s->tail == NULL) return 0;
    s->relay->ranks[s->local_rank] = rank;
    (void) gethostname(host, sizeof(host) - 1);
    int made = s->relay->options.is_json ? make_json_head(s, host, rank) : 0;
    if (made < 0) return made;
    (void) snprintf(local, sizeof(local), "%u", s->local_rank);
    (void) snprintf(global, sizeof(global), "%u", rank);
    struct cr_buffer b = {0};
    int rc = stream_prefix(s, local, global, &b);
    if (rc == 0) rc = cr_buffer_append(&b, "", 1);
    if (rc < 0) {
        cr_buffer_done(&b);
        return rc;
    }
    free(s->tail->prefix);
    s->tail->prefix = b.data;
    return 0;
}

/* ---- the kinds of descriptor that a worker can get for a stream ---- */

/* Opens a pseudo terminal that has the size of the launcher's terminal. The pseudo terminal is in
 * raw mode, so it passes every byte unchanged. Returns 0 or a negative errno. */
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

void log_relay_resize(struct log_relay *r) {
    struct winsize size = {0};
    if (!r->stderr_is_terminal || ioctl(STDERR_FILENO, TIOCGWINSZ, &size) < 0) return;
    for (size_t i = 0; i < r->stream_count; i++) {
        /* fails without effect for a stream that is a pipe */
        if (r->streams[i].fd >= 0) (void) ioctl(r->streams[i].fd, TIOCSWINSZ, &size);
    }
}

static int open_pipe(int *ours, int *theirs) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0) return -errno;
    *ours = ends[0];
    *theirs = ends[1];
    return 0;
}

/* Returns whether the worker gets a pseudo terminal for this stream. A stream that also goes to a
 * file is a pipe, because on a terminal programs write colours and progress bars of the full
 * width. */
static bool wants_terminal(const struct stream *s) {
    return s->which == ERR && s->relay->stderr_is_terminal && s->tail == NULL && s->file == NULL;
}

/* Opens a pipe or pseudo terminal from the worker to the launcher. The worker's end blocks: a
 * worker that writes into a full pipe waits, as it would without crun. Returns 0 or a negative
 * errno. */
static int open_through_us(struct stream *s, int *theirs) {
    bool terminal = wants_terminal(s) && open_terminal(&s->fd, theirs) == 0;
    int rc = terminal ? 0 : open_pipe(&s->fd, theirs);
    if (rc < 0) return rc;
    (void) fcntl(s->fd, F_SETFL, O_NONBLOCK);
    bool has_place = (s->tail != NULL && !s->is_file_broken) || s->file != NULL || s->hidden;
    return stream_join_input(s, has_place ? BUFFERED : DIRECT);
}

static int open_null(int *theirs) {
    *theirs = open("/dev/null", O_WRONLY | O_CLOEXEC);
    return *theirs < 0 ? -errno : 0;
}

static int open_untouched(struct stream *s, int *theirs) {
    /* every stderr passes through the launcher, which keeps its last bytes for the failure
     * report */
    if (s->which == ERR || s->relay->options.on_line != NULL) return open_through_us(s, theirs);
    return s->hidden ? open_null(theirs) : 0;
}

static int fail(const struct stream *s, int rc, struct cr_error *err) {
    return cr_fail(err, rc, "cannot open the %s of local rank %u: %s",
                   s->which == OUT ? "stdout" : "stderr", s->local_rank, strerror(-rc));
}

/* Creates the log file of a stream; and the tail, if the stream is shown on the console. Returns 0;
 * or a negative errno, and sets err. */
static int open_file(struct stream *s, struct cr_error *err) {
    int fd = -1;
    struct log_file *file = NULL;
    uint64_t max = s->relay->options.log_max_size;
    int rc = log_dir_create(s->relay->logs, s->local_rank, stream_file_names[s->which], &fd, err);
    if (rc < 0) return rc;
    CR_AUTO_FD int folder = max > 0 ? log_dir_open_worker(s->relay->logs, s->local_rank) : -1;
    rc = log_file_new(fd, folder < 0 ? 0 : max, folder, stream_file_names[s->which], &file);
    if (rc == 0 && s->hidden) s->file = file;
    if (rc == 0 && !s->hidden) {
        s->tail = tail_new(s->relay, s->which, file);
        if (s->tail == NULL) return fail(s, -ENOMEM, err);
        s->tail->local_rank = s->local_rank;
    }
    return rc < 0 ? fail(s, rc, err) : 0;
}

/* Call this for a teed stream if the job writes no log files. Makes the stream's tail, which takes
 * the lines from memory only. Returns 0; or a negative errno, and sets err. */
static int open_without_file(struct stream *s, struct cr_error *err) {
    struct log_file *none = NULL;
    int rc = log_file_new(-1, 0, -1, "", &none);
    if (rc == 0) s->tail = tail_new(s->relay, s->which, none);
    if (s->tail == NULL) return fail(s, -ENOMEM, err);
    s->tail->local_rank = s->local_rank;
    s->tail->lines.skips_long = false; /* without a file, a long line is written in pieces */
    s->is_file_broken = true;
    return 0;
}

/* Opens a stream whose bytes the launcher cuts into lines or writes to a log file. */
static int open_with_lines(struct stream *s, uint32_t rank, int *theirs, struct cr_error *err) {
    int rc = is_written_by_us(s) ? open_file(s, err) : open_without_file(s, err);
    if (rc < 0) return rc;
    rc = stream_make_prefix(s, rank);
    if (rc == 0) rc = open_through_us(s, theirs);
    return rc < 0 ? fail(s, rc, err) : 0;
}

int stream_open(struct stream *s, uint32_t rank, int *theirs, struct cr_error *err) {
    const struct log_dir *logs = s->relay->logs;
    const char *name = stream_file_names[s->which];
    s->hidden = is_hidden(s);
    if (stream_is_redirected(s)) return log_dir_create(logs, s->local_rank, name, theirs, err);
    bool has_lines = is_written_by_us(s) || (is_teed(s) && !s->hidden);
    if (has_lines) return open_with_lines(s, rank, theirs, err);
    int rc = open_untouched(s, theirs);
    return rc < 0 ? fail(s, rc, err) : 0;
}
