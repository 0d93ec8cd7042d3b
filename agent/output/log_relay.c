/* Reads the streams of all workers and writes them to the console.
 *
 * All pipes of the worker group are in two epolls, and the loop watches each epoll with one handle.
 * So a stream costs only a pipe and one epoll_ctl, and costs nothing while it has no output. The
 * first epoll has the streams with a log file, and those hidden from the console. While the console
 * has no room, these streams are not read, for at most PATIENCE_MS. After that they are always read
 * and their tails lag (struct tail), until all tails have caught up. The second epoll has the
 * streams whose bytes go only to the console. While the console is full, these streams are not
 * read: the kernel's pipe buffers fill, and workers that write to them have to wait, as they would
 * if they wrote to the console themselves. */
#include "agent/output/log_relay_internal.h"
#include "base/cleanup.h"
#include "base/log/log.h"
#include "base/time/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* In one iteration of the loop, at most BATCHES_MAX times EVENTS_MAX streams of one epoll are
 * read. */
#define EVENTS_MAX  8
#define BATCHES_MAX 8
/* longest time in ms for which streams with a log file wait for the console */
#define PATIENCE_MS 20
/* limit of how often lagging tails write in one iteration of the loop, all tails together */
#define LAGGING_MAX 16

/* ---- the log lines of this process ---- */

/* The log calls this function when it has lines to be written, in the thread that logs and under
 * the log's lock (base/log/log.h). In the loop's thread the function writes the lines to stderr. In
 * any other thread it only wakes the loop: on_log_ready() then makes the log call it in the loop's
 * thread. */
static void on_log(void *arg, struct cr_buffer *kept) {
    struct log_relay *r = arg;
    if (kept->len == 0) return;
    if (!pthread_equal(pthread_self(), r->thread)) {
        (void) uv_async_send(&r->log_ready);
        return;
    }
    /* the lines stay in `kept`; on_turn() writes them when the console has room */
    if (relay_console_is_busy(r, ERR)) return;
    relay_write_lines(r, ERR, kept->data, kept->len);
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
    r->carries_log = true;
    r->thread = pthread_self();
    cr_log_divert(on_log, r);
    return 0;
}

/* If this relay writes the lines of the log, makes the log stop calling the relay. Lines that are
 * logged after this call are kept in memory until main calls cr_log_flush(). */
static void give_log_back(struct log_relay *r) {
    if (r->carries_log) cr_log_divert(NULL, NULL);
}

/* ---- reading the streams ---- */

/* Returns whether the streams that are read by on_direct_readable() have to wait. They have to if a
 * console is full, if a tail holds a console, or if bytes that could not be written to a log file
 * are not on the console yet. */
static bool is_blocked(const struct log_relay *r) {
    const struct tail *t;
    if (relay_console_is_busy(r, OUT) || relay_console_is_busy(r, ERR)) return true;
    TAILQ_FOREACH(t, &r->lagging, entry) {
        if (t->unfiled.len > 0) return true;
    }
    return false;
}

/* Returns whether the streams that are read by on_buffered_readable() have to wait. They wait while
 * a console has no room, for at most PATIENCE_MS, so that no tail begins to lag: a tail that lags
 * reads all bytes a second time, from the log file, which costs as much as the rest of the
 * relaying. If a tail lags already, they do not wait. */
static bool should_wait(const struct log_relay *r) {
    if (r->is_impatient || !TAILQ_EMPTY(&r->lagging)) return false;
    return !console_has_room(r->console[OUT]) || !console_has_room(r->console[ERR]);
}

static bool has_to_wait(const struct log_relay *r, enum input input) {
    return input == DIRECT ? is_blocked(r) : should_wait(r);
}

static void on_patience_timer(uv_timer_t *timer);

static void pause_input(struct log_relay *r, enum input input) {
    r->inputs[input].paused = true;
    (void) uv_poll_stop(&r->inputs[input].poll);
    if (input == DIRECT) return;
    uv_update_time(r->loop);
    (void) uv_timer_start(&r->patience_timer, on_patience_timer, PATIENCE_MS, 0);
}

/* Reads the streams that are readable, a few at a time, until none is left or the streams have to
 * wait for the console. The kernel puts each stream that it has reported at the end of its list, so
 * no stream is passed over. */
static void read_input(struct log_relay *r, enum input input) {
    struct epoll_event ready[EVENTS_MAX];
    int count = EVENTS_MAX;
    for (int n = 0; n < BATCHES_MAX && count == EVENTS_MAX && !has_to_wait(r, input); n++) {
        count = epoll_wait(r->inputs[input].epoll_fd, ready, EVENTS_MAX, 0);
        for (int i = 0; i < count; i++) (void) stream_read(ready[i].data.ptr);
    }
    if (has_to_wait(r, input)) pause_input(r, input);
}

static void on_buffered_readable(uv_poll_t *poll, int status, int events) {
    (void) status, (void) events;
    read_input(poll->data, BUFFERED);
}

static void on_direct_readable(uv_poll_t *poll, int status, int events) {
    (void) status, (void) events;
    read_input(poll->data, DIRECT);
}

static void resume_buffered(struct log_relay *r) {
    struct inputs *in = &r->inputs[BUFFERED];
    if (!in->paused || should_wait(r)) return;
    in->paused = false;
    (void) uv_timer_stop(&r->patience_timer);
    (void) uv_poll_start(&in->poll, UV_READABLE, on_buffered_readable);
}

/* Runs when the console has had no room for PATIENCE_MS. The streams with a log file no longer
 * wait for the console, until all tails have caught up. */
static void on_patience_timer(uv_timer_t *timer) {
    struct log_relay *r = timer->data;
    r->is_impatient = true;
    resume_buffered(r);
}

/* ---- going on when the console has room ---- */

static bool all_flushed(const struct log_relay *r) {
    return console_is_flushed(r->console[OUT]) && console_is_flushed(r->console[ERR]) &&
           TAILQ_EMPTY(&r->lagging);
}

/* Finds the first lagging tail that can write, moves it to the end of the list and lets it write.
 * Returns true; or false if no tail can write. */
static bool catch_up(struct log_relay *r) {
    struct tail *t;
    TAILQ_FOREACH(t, &r->lagging, entry) {
        if (tail_can_write(t)) break;
    }
    if (t == NULL) return false;
    TAILQ_REMOVE(&r->lagging, t, entry);
    TAILQ_INSERT_TAIL(&r->lagging, t, entry);
    tail_catch_up(t);
    return true;
}

static void resume_direct(struct log_relay *r) {
    struct inputs *in = &r->inputs[DIRECT];
    if (!in->paused || is_blocked(r)) return;
    if (!console_has_room(r->console[OUT]) || !console_has_room(r->console[ERR])) return;
    in->paused = false;
    (void) uv_poll_start(&in->poll, UV_READABLE, on_direct_readable);
}

/* Does the work that had to wait for the console: first writes the log lines, because they are few
 * and urgent; next lets the lagging tails write, one after the other; finally resumes reading the
 * streams that have no place but the console. */
static void on_turn(uv_idle_t *idle) {
    struct log_relay *r = idle->data;
    bool goes_on = true;
    if (r->carries_log) cr_log_drain();
    for (int i = 0; i < LAGGING_MAX && goes_on; i++) goes_on = catch_up(r);
    if (TAILQ_EMPTY(&r->lagging)) r->is_impatient = false;
    resume_direct(r);
    resume_buffered(r);
    if (goes_on) return;
    if (r->flushing) folded_lines_write(r, true);
    (void) uv_idle_stop(idle);
    if (!r->flushing || !all_flushed(r)) return;
    r->flushing = false;
    waiting_line_close(r);
    give_log_back(r);
    r->on_flushed(r->arg);
}

static void on_console_room(void *arg) { relay_schedule_turn(arg); }

/* ---- updates of progress bars ---- */

static void on_update_timer(uv_timer_t *timer) {
    struct log_relay *r = timer->data;
    int64_t now_ms = cr_monotonic_ms(), due_ms = CR_FOREVER;
    for (size_t i = 0; i < r->stream_count; i++) {
        if (r->streams[i].tail == NULL) continue;
        int64_t tail_ms = tail_write_update(r->streams[i].tail, now_ms);
        if (tail_ms < due_ms) due_ms = tail_ms;
    }
    relay_arm_updates(r, due_ms);
}

void relay_arm_updates(struct log_relay *r, int64_t due_ms) {
    if (due_ms == CR_FOREVER || r->is_closing) return;
    if (uv_is_active((uv_handle_t *) &r->update_timer)) return;
    int64_t left_ms = due_ms - cr_monotonic_ms();
    uv_update_time(r->loop);
    (void) uv_timer_start(&r->update_timer, on_update_timer, left_ms > 0 ? (uint64_t) left_ms : 0,
                          0);
}

/* ---- opening the relay ---- */

static void relay_free_memory(struct log_relay *r) {
    free(r->streams);
    free(r->chunk);
    free(r->spare);
    free(r->spare_lines);
    free(r->ranks);
    free(r->locals);
    free(r);
}

static struct log_relay *relay_new(uv_loop_t *loop, const struct log_relay_options *options) {
    size_t count = (size_t) options->workers * WHICH_COUNT;
    struct log_relay *r = calloc(1, sizeof(*r));
    if (r == NULL) return NULL;
    *r = (struct log_relay){.loop = loop,
                            .options = *options,
                            .stream_count = count,
                            .inputs = {{.epoll_fd = -1}, {.epoll_fd = -1}},
                            .on_turn = on_turn,
                            .filtered_fds = {-1, -1},
                            .streams = calloc(count, sizeof(*r->streams)),
                            .ranks = calloc(options->workers + (size_t) 1, sizeof(*r->ranks)),
                            .locals = calloc(options->workers + (size_t) 1, sizeof(*r->locals)),
                            .chunk = malloc(STREAM_READ_MAX),
                            .spare = malloc(STREAM_READ_MAX),
                            .spare_lines = malloc(STREAM_READ_MAX)};
    TAILQ_INIT(&r->lagging);
    if (r->streams == NULL || r->chunk == NULL || r->spare == NULL || r->spare_lines == NULL ||
        r->ranks == NULL || r->locals == NULL || folded_lines_open(r) < 0) {
        relay_free_memory(r);
        return NULL;
    }
    for (uint32_t i = 0; i < options->workers; i++) r->locals[i] = i;
    for (size_t i = 0; i < count; i++) {
        r->streams[i] = (struct stream){.relay = r,
                                        .which = (enum which)(i % WHICH_COUNT),
                                        .local_rank = (uint32_t) (i / WHICH_COUNT),
                                        .fd = -1};
    }
    return r;
}

/* Returns whether stdout and stderr of this process are one open file, with one common offset. Used
 * for regular files only. If kcmp(2) is not available, returns true only if both are open for
 * appending. */
static bool is_one_file(void) {
    long rc = syscall(SYS_kcmp, getpid(), getpid(), KCMP_FILE, STDOUT_FILENO, STDERR_FILENO);
    if (rc >= 0) return rc == 0;
    return (fcntl(STDOUT_FILENO, F_GETFL) & fcntl(STDERR_FILENO, F_GETFL) & O_APPEND) != 0;
}

/* Returns whether stdout and stderr are the same pipe, terminal or open file. If they are, both use
 * one struct console. With two of them, one could write its output into the middle of a line that
 * the other has written in part. */
static bool is_one_place(void) {
    struct stat out, err;
    if (fstat(STDOUT_FILENO, &out) < 0 || fstat(STDERR_FILENO, &err) < 0) return false;
    if (out.st_dev != err.st_dev || out.st_ino != err.st_ino) return false;
    return !S_ISREG(out.st_mode) || is_one_file();
}

/* Returns whether a reader can see in which order the bytes of stdout and stderr come. That is so
 * if both are the same pipe, terminal or file, unless this is a device without a reader, such as
 * /dev/null. */
static bool has_order(void) {
    struct stat st;
    if (fstat(STDOUT_FILENO, &st) < 0 || !is_one_place()) return false;
    return !S_ISCHR(st.st_mode) || isatty(STDOUT_FILENO);
}

static int open_console(struct log_relay *r, int stream_fd) {
    int rc = console_open(&r->consoles[r->console_count], r->loop, stream_fd, on_console_room, r);
    if (rc < 0) return rc;
    r->console_count++;
    r->open_handles++;
    return 0;
}

static int open_consoles(struct log_relay *r) {
    int rc = open_console(r, STDOUT_FILENO);
    if (rc == 0 && !is_one_place()) rc = open_console(r, STDERR_FILENO);
    r->console[OUT] = &r->consoles[0];
    r->console[ERR] = &r->consoles[r->console_count > 1 ? 1 : 0];
    return rc;
}

static int open_inputs(struct log_relay *r, enum input input) {
    struct inputs *in = &r->inputs[input];
    in->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (in->epoll_fd < 0) return -errno;
    int rc = uv_poll_init(r->loop, &in->poll, in->epoll_fd);
    if (rc < 0) return rc;
    in->poll.data = r;
    r->open_handles++;
    return uv_poll_start(&in->poll, UV_READABLE,
                         input == DIRECT ? on_direct_readable : on_buffered_readable);
}

/* Returns whether there is a live line: stderr is a terminal that can erase a line, and lines are
 * not written as JSON. */
static bool has_live_line(const struct log_relay *r) {
    const char *kind = getenv("TERM");
    if (!r->stderr_is_terminal || r->options.is_json) return false;
    return kind != NULL && strcmp(kind, "dumb") != 0;
}

static int open_handles(struct log_relay *r) {
    (void) uv_idle_init(r->loop, &r->turn);
    (void) uv_timer_init(r->loop, &r->wait_timer);
    (void) uv_timer_init(r->loop, &r->update_timer);
    (void) uv_timer_init(r->loop, &r->fold_timer);
    (void) uv_timer_init(r->loop, &r->patience_timer);
    r->turn.data = r->wait_timer.data = r->update_timer.data = r->fold_timer.data = r;
    r->patience_timer.data = r;
    r->open_handles += 5;
    int rc = open_inputs(r, BUFFERED);
    if (rc == 0) rc = open_inputs(r, DIRECT);
    if (rc == 0) rc = open_consoles(r);
    if (rc == 0 && has_live_line(r)) r->live.console = r->console[ERR];
    if (rc == 0 && r->options.carries_log) rc = divert_log(r);
    if (rc == 0) waiting_line_open(r);
    return rc;
}

int log_relay_open(uv_loop_t *loop, const struct log_relay_options *options,
                   const struct log_dir *logs, void (*on_flushed)(void *arg), void *arg,
                   struct log_relay **out, struct cr_error *err) {
    struct log_relay *r = relay_new(loop, options);
    if (r == NULL) return cr_fail(err, -ENOMEM, "no memory left for the workers' output");
    r->logs = logs;
    r->on_flushed = on_flushed;
    r->arg = arg;
    r->stderr_is_terminal = isatty(STDERR_FILENO);
    r->keeps_order = has_order();
    int rc = open_handles(r);
    if (rc == 0) {
        *out = r;
        return 0;
    }
    (void) cr_fail(err, rc, "cannot watch the workers' output: %s", strerror(-rc));
    log_relay_close(r, NULL);
    return rc;
}

/* ---- closing the relay ---- */

static void relay_free(struct log_relay *r) {
    for (size_t i = 0; i < r->stream_count; i++) stream_clear(&r->streams[i]);
    while (!TAILQ_EMPTY(&r->lagging)) tail_free(TAILQ_FIRST(&r->lagging));
    for (int w = 0; w < WHICH_COUNT; w++) cr_close_fd(&r->filtered_fds[w]);
    for (int i = 0; i < INPUT_COUNT; i++) cr_close_fd(&r->inputs[i].epoll_fd);
    cr_buffer_done(&r->lines);
    cr_buffer_done(&r->wait_text);
    folded_lines_close(r);
    relay_free_memory(r);
}

static void on_handle_closed(uv_handle_t *handle) {
    struct log_relay *r = handle->data;
    if (--r->open_handles > 0) return;
    void (*on_close)(void *) = r->on_close;
    void *arg = r->arg;
    relay_free(r);
    if (on_close != NULL) on_close(arg);
}

static void close_handle(struct log_relay *r, uv_handle_t *handle) {
    handle->data = r;
    uv_close(handle, on_handle_closed);
}

void log_relay_close(struct log_relay *r, void (*on_close)(void *arg)) {
    r->on_close = on_close;
    r->is_closing = true;
    waiting_line_close(r);
    give_log_back(r);
    live_line_done(&r->live);
    close_handle(r, (uv_handle_t *) &r->wait_timer);
    close_handle(r, (uv_handle_t *) &r->update_timer);
    close_handle(r, (uv_handle_t *) &r->fold_timer);
    close_handle(r, (uv_handle_t *) &r->patience_timer);
    if (r->carries_log) close_handle(r, (uv_handle_t *) &r->log_ready);
    for (int i = 0; i < r->console_count; i++) {
        console_kill(&r->consoles[i]);
        r->consoles[i].poll.data = r;
        console_close(&r->consoles[i], on_handle_closed);
    }
    for (int i = 0; i < INPUT_COUNT; i++) {
        if (r->inputs[i].poll.data != NULL) close_handle(r, (uv_handle_t *) &r->inputs[i].poll);
    }
    close_handle(r, (uv_handle_t *) &r->turn);
}

/* ---- how much was written ---- */

uint64_t log_relay_output(const struct log_relay *r) {
    uint64_t sum = r->passed;
    for (size_t i = 0; i < r->stream_count; i++) {
        const struct stream *s = &r->streams[i];
        char path[LOG_PATH_MAX];
        struct stat st;
        if (!stream_is_redirected(s)) continue;
        log_dir_path(r->logs, r->logs->attempt, s->local_rank, stream_file_names[s->which], path);
        if (stat(path, &st) == 0) sum += (uint64_t) st.st_size;
    }
    return sum;
}

/* ---- beginning an attempt ---- */

static int open_filtered(struct log_relay *r, enum which w, struct cr_error *err) {
    char *const *texts = w == OUT ? r->options.stdout_filters : r->options.stderr_filters;
    cr_close_fd(&r->filtered_fds[w]);
    if (texts == NULL || texts[0] == NULL || !has_logs(r)) return 0;
    return log_dir_create(r->logs, -1, stream_filtered_names[w], &r->filtered_fds[w], err);
}

int log_relay_begin(struct log_relay *r, struct cr_error *err) {
    for (size_t i = 0; i < r->stream_count; i++) {
        if (!r->streams[i].kept) stream_clear(&r->streams[i]);
    }
    int rc = open_filtered(r, OUT, err);
    return rc < 0 ? rc : open_filtered(r, ERR, err);
}

/* Gives the worker one pipe for stdout and stderr if both go to the console unchanged, and if the
 * launcher's stdout and stderr are the same pipe, terminal or file. With two pipes, lines of stdout
 * and lines of stderr could overtake each other. Returns 0; or a negative errno, and sets err. */
static int join_streams(struct log_relay *r, uint32_t local_rank, int fds[2],
                        struct cr_error *err) {
    struct stream *s = stream_of(r, local_rank, ERR);
    if (!r->keeps_order || !stream_is_plain(stream_of(r, local_rank, OUT))) return 0;
    if (!stream_is_plain(s)) return 0;
    stream_close(stream_of(r, local_rank, OUT)); /* options.on_line may have opened it */
    cr_close_fd(&fds[OUT]);
    fds[OUT] = fcntl(fds[ERR], F_DUPFD_CLOEXEC, 3);
    if (fds[OUT] < 0) return cr_fail_errno(err, "cannot open the stdout of rank %u", local_rank);
    s->mixed = true;
    return 0;
}

int log_relay_prepare(struct log_relay *r, uint32_t local_rank, uint32_t rank, int fds[2],
                      struct cr_error *err) {
    fds[OUT] = fds[ERR] = -1;
    int rc = stream_open(stream_of(r, local_rank, OUT), rank, &fds[OUT], err);
    if (rc == 0) rc = stream_open(stream_of(r, local_rank, ERR), rank, &fds[ERR], err);
    if (rc == 0) rc = join_streams(r, local_rank, fds, err);
    if (rc < 0) log_relay_started(fds);
    return rc;
}

void log_relay_started(int fds[2]) {
    cr_close_fd(&fds[OUT]);
    cr_close_fd(&fds[ERR]);
}

/* ---- draining, keeping and renaming a worker's streams ---- */

void log_relay_drain(struct log_relay *r, uint32_t local_rank) {
    stream_drain(stream_of(r, local_rank, OUT));
    stream_drain(stream_of(r, local_rank, ERR));
}

void log_relay_keep(struct log_relay *r, uint32_t local_rank, bool keep) {
    stream_of(r, local_rank, OUT)->kept = keep;
    stream_of(r, local_rank, ERR)->kept = keep;
}

void log_relay_release(struct log_relay *r, uint32_t local_rank) {
    log_relay_drain(r, local_rank);
    stream_clear(stream_of(r, local_rank, OUT));
    stream_clear(stream_of(r, local_rank, ERR));
}

static void rename_stream(struct stream *s, uint32_t rank) {
    s->first_ns = s->last_ns = 0;
    if (stream_make_prefix(s, rank) == 0) return;
    cr_warn("no memory left: the lines of local rank %u keep the old prefix '%s'", s->local_rank,
            s->tail->prefix);
}

void log_relay_rename(struct log_relay *r, uint32_t local_rank, uint32_t rank) {
    rename_stream(stream_of(r, local_rank, OUT), rank);
    rename_stream(stream_of(r, local_rank, ERR), rank);
}

void log_relay_end(struct log_relay *r) {
    for (size_t i = 0; i < r->stream_count; i++) {
        if (r->streams[i].kept) continue;
        stream_drain(&r->streams[i]);
        stream_close(&r->streams[i]);
    }
    folded_lines_write(r, true);
    for (int w = 0; w < WHICH_COUNT; w++) cr_close_fd(&r->filtered_fds[w]);
}

/* ---- last words ---- */

/* Appends the last LAST_BYTES_MAX bytes of a file to `out`. The worker may have removed or replaced
 * the file; a missing file, and one that is not a regular file, counts as empty. Returns 0 or
 * -ENOMEM. */
static int read_end_of_file(const char *path, struct cr_buffer *out) {
    struct stat st;
    CR_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) return 0;
    off_t from = st.st_size > LAST_BYTES_MAX ? st.st_size - LAST_BYTES_MAX : 0;
    int rc = cr_buffer_reserve(out, LAST_BYTES_MAX);
    if (rc < 0) return rc;
    ssize_t n = pread(fd, out->data + out->len, LAST_BYTES_MAX, from);
    if (n > 0) out->len += (size_t) n;
    return 0;
}

int log_relay_last_words(const struct log_relay *r, struct log_attempt attempt,
                         uint32_t local_rank, struct cr_buffer *out) {
    const struct stream *s = &r->streams[local_rank * WHICH_COUNT + ERR];
    char path[LOG_PATH_MAX];
    if (!stream_is_redirected(s)) return last_bytes_copy(&s->last, out);
    log_dir_path(r->logs, attempt, local_rank, stream_file_names[ERR], path);
    return read_end_of_file(path, out);
}

/* Returns the time (ns, wall clock) at which a worker's log file was last written; 0 if the file is
 * empty or there is no file. */
static int64_t file_time(const struct log_relay *r, struct log_attempt attempt, uint32_t local_rank,
                         int which) {
    char path[LOG_PATH_MAX];
    struct stat st;
    log_dir_path(r->logs, attempt, local_rank, stream_file_names[which], path);
    if (path[0] == '\0' || stat(path, &st) < 0 || st.st_size == 0) return 0;
    return (int64_t) st.st_mtim.tv_sec * CR_NS_PER_S + st.st_mtim.tv_nsec;
}

int log_relay_last_output(const struct log_relay *r, struct log_attempt attempt,
                          uint32_t local_rank, struct cr_buffer *out) {
    const struct stream *err = &r->streams[local_rank * WHICH_COUNT + ERR];
    char path[LOG_PATH_MAX];
    int64_t out_ns = file_time(r, attempt, local_rank, OUT);
    int64_t err_ns = stream_is_redirected(err) ? file_time(r, attempt, local_rank, ERR) : 0;
    if (err->last_ns != 0) err_ns = cr_wall_ns() - (cr_monotonic_ns() - err->last_ns);
    if (err_ns >= out_ns) return log_relay_last_words(r, attempt, local_rank, out);
    log_dir_path(r->logs, attempt, local_rank, stream_file_names[OUT], path);
    return read_end_of_file(path, out);
}

void log_relay_look(const struct log_relay *r, uint32_t local_rank, struct log_relay_look *out) {
    *out = (struct log_relay_look){0};
    for (int w = 0; w < WHICH_COUNT; w++) {
        const struct stream *s = &r->streams[local_rank * WHICH_COUNT + (uint32_t) w];
        if (s->first_ns == 0) continue;
        if (out->first_ns == 0 || s->first_ns < out->first_ns) out->first_ns = s->first_ns;
        if (s->last_ns > out->last_ns) out->last_ns = s->last_ns;
    }
}

bool log_relay_is_mixed(const struct log_relay *r, uint32_t local_rank) {
    return r->streams[local_rank * WHICH_COUNT + ERR].mixed;
}

/* ---- flushing the console at the job's end ---- */

void log_relay_flush(struct log_relay *r) {
    r->flushing = true;
    relay_schedule_turn(r);
}

void log_relay_give_up(struct log_relay *r) {
    for (int i = 0; i < r->console_count; i++) {
        if (!console_is_flushed(&r->consoles[i])) console_kill(&r->consoles[i]);
    }
    relay_schedule_turn(r);
}
