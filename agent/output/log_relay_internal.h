/* Declares the parts of the output relay. A file calls only files that stand below it in this list:
 *
 *   log_relay.c     all streams and the console: reading, pausing, flushing, opening, closing
 *   stream_open.c   opens a worker's stream and chooses what the worker writes to
 *   stream.c        takes a stream's bytes to its file, to the filtered file and to the console
 *   tail.c          brings the lines of a teed stream to the console
 *   folded_lines.c  shows equal lines of several workers once, by fold.c
 *   plain_lines.c   brings the lines of a plain stream to a terminal that several workers share
 *   waiting_line.c  shows what crun waits for
 *   live_line.c     the last line of a terminal, which is rewritten in place
 *   console.c, line_splitter.c, last_bytes.c, log_file.c, log_dir.c */
#ifndef AGENT_LOG_RELAY_INTERNAL_H
#define AGENT_LOG_RELAY_INTERNAL_H

#include "agent/output/console.h"
#include "agent/output/fold.h"
#include "agent/output/last_bytes.h"
#include "agent/output/line_splitter.h"
#include "agent/output/live_line.h"
#include "agent/output/log_file.h"
#include "agent/output/log_relay.h"

#include <pthread.h>
#include <sys/queue.h>

enum which { OUT, ERR, WHICH_COUNT };

/* A tail brings the lines of one teed stream to the console: each line whole, after a prefix. The
 * stream's log file is its buffer. While the console keeps up, lines are taken from the bytes that
 * were just read from the worker. While the console does not keep up, the tail lags behind:
 * whenever the console has room, the tail reads more lines from the log file, from the offset on
 * that the console has reached. So a console that is slow, or that nobody reads, never delays a
 * worker whose output goes to a file.
 *
 * A line that is longer than LINE_MAX_LEN is copied from the file to the console in several pieces.
 * During the copying the tail holds the console: nothing else is written to the console.
 *
 * Lines that end with "\r" are updates of a progress bar. On a terminal they are shown in its live
 * line. Elsewhere an update is a line of its own, but at most once in UPDATE_MS, because a bar
 * makes ten updates a second. A newer line replaces an update that is not shown yet.
 *
 * If the file cannot be written any more (a full disk), further bytes of the stream are kept in
 * memory, and the relay reads the worker's pipe only when the console has taken them. */
struct tail {
    struct log_relay *relay;
    enum which which;
    uint32_t local_rank;    /* local rank of the stream's worker */
    struct log_file *file;  /* owned by the tail */
    char *prefix;
    /* the text with which each JSON object on the console begins, up to the place of the line
     * itself; NULL if lines are not written as JSON */
    char *json_head;
    /* cuts the stream into lines; lines.at is the offset in the stream that the console has
     * reached */
    struct line_splitter lines;
    bool is_lagging;            /* true if the tail is in the relay's list of lagging tails */
    bool has_ended;             /* true if the stream has ended; the tail frees itself after its
                                 * last line */
    struct cr_buffer unfiled;   /* bytes that could not be appended to the log file */
    bool holds_console;         /* true while the bytes [copy_at, copy_to) of the stream, one long
                                 * line, are copied from the file to the console */
    uint64_t copy_at, copy_to;
    struct cr_buffer update;    /* the newest update of a progress bar */
    bool has_update;            /* true if `update` was not written as a line yet */
    int64_t update_ms;          /* time at which an update was last written as a line, in ms */
    TAILQ_ENTRY(tail) entry;
};
TAILQ_HEAD(tail_list, tail);

#define UPDATE_MS    5000              /* shortest time in ms between two lines of a progress bar */
#define UPDATE_NEVER (-(INT64_C(1) << 40)) /* value of update_ms before the first update */

/* One stream: the stdout or stderr of one worker. */
struct stream {
    struct log_relay *relay;
    enum which which;
    uint32_t local_rank;
    int fd;       /* the launcher's end of the stream's pipe or terminal, or -1 */
    bool hidden;  /* true if the stream is not shown on the console */
    bool mixed;   /* true if this is a stderr and the worker's stdout goes into the same pipe */
    bool kept;    /* true if the stream stays open when the attempt ends, because its worker is
                   * kept */
    /* the log file that the launcher writes for this stream; NULL if there is none, or if `tail`
     * owns the log file */
    struct log_file *file;
    /* brings the lines of a teed stream to the console; NULL if the stream is not teed, or is
     * hidden */
    struct tail *tail;
    bool is_file_broken;      /* true if nothing is written to the log file: a write to it has
                               * failed, or the job writes no log files */
    struct line_splitter filtered; /* cuts a teed stream into lines, which are searched for the
                                    * texts of the filters */
    struct line_splitter watched;  /* cuts the stream into lines for options.on_line */
    /* for a stream whose bytes go only to a terminal that several workers share (plain_lines.c):
     * `plain` cuts it into lines, and `plain_update` is the newest update of its progress bar */
    struct line_splitter plain;
    struct cr_buffer plain_update;
    uint32_t full_reads; /* number of reads that found the pipe full; counts up to FULL_READS */
    struct last_bytes last;   /* the last bytes of the stream; used for stderr only */
    /* times (ns, monotonic clock) at which the launcher read the stream's first and last bytes in
     * this round; 0 if it read none */
    int64_t first_ns, last_ns;
};

/* The pipes of some of the streams, in an epoll that the loop watches with one handle. */
struct inputs {
    int epoll_fd;
    uv_poll_t poll;
    bool paused; /* true if none of these pipes is read at present */
};

/* BUFFERED: streams that have a log file or are hidden from the console; they wait for the console
 * for at most 20 ms, and after that only when all tails have caught up.
 * DIRECT: streams whose bytes go only to the console; they are not read while the console is
 * full. */
enum input { BUFFERED, DIRECT, INPUT_COUNT };

struct log_relay {
    uv_loop_t *loop;
    struct log_relay_options options;
    const struct log_dir *logs;
    struct console consoles[WHICH_COUNT];
    /* the console for stdout and the one for stderr; both elements point to the same console if the
     * launcher's stdout and stderr are one terminal, pipe or file */
    struct console *console[WHICH_COUNT];
    int console_count;
    struct stream *streams; /* two for each worker; see stream_of() */
    size_t stream_count;
    /* descriptors of filtered_stdout.log and filtered_stderr.log, which get the teed lines that
     * contain a text of the job's filters; -1 = not open */
    int filtered_fds[WHICH_COUNT];
    struct inputs inputs[INPUT_COUNT];
    bool is_held[WHICH_COUNT];  /* element i is true while a tail writes a long line to
                                 * consoles[i] */
    struct fold *fold;          /* NULL if lines are not folded */
    uint32_t *ranks, *locals;   /* [workers]: rank and local rank of each worker */
    uv_timer_t fold_timer;      /* fires when the oldest line must be taken out of the fold */
    struct live_line live;      /* the last line of the terminal that is stderr */
    struct cr_buffer wait_text; /* what crun waits for (cr_log_waiting) */
    /* when the wait began, and when it ends at the latest (ms, monotonic clock); wait_until_ms is
     * -1 if the wait has no limit */
    int64_t wait_since_ms, wait_until_ms;
    uv_timer_t wait_timer;      /* redraws wait_text every second */
    /* fires when the next update of a progress bar has to be written as a line */
    uv_timer_t update_timer;
    uint32_t large_pipes; /* number of workers' pipes that were made larger than usual */
    struct tail_list lagging;
    /* fires when the streams with a log file have waited long enough for the console */
    uv_timer_t patience_timer;
    /* true if the streams with a log file do not wait for the console, because patience_timer has
     * fired; false again when all tails have caught up */
    bool is_impatient;
    uv_idle_t turn;             /* calls on_turn() in each iteration of the loop, as long as there
                                 * is work to do */
    uv_idle_cb on_turn;
    bool is_closing;
    bool warned_of_file;     /* true if the user was warned that a log file cannot be written */
    /* true if the user was warned that output was lost for lack of memory */
    bool warned_of_memory;
    bool stderr_is_terminal; /* true if the launcher's own stderr is a terminal */
    /* true if the launcher's stdout and stderr are one terminal, pipe or file, where a reader sees
     * the order of their bytes */
    bool keeps_order;
    bool flushing;
    uint64_t passed; /* number of bytes read from all workers so far */
    bool carries_log;       /* true if the launcher's own log goes through this relay */
    uv_async_t log_ready;   /* wakes the loop when another thread has written log lines */
    pthread_t thread;       /* the loop's thread */
    struct cr_buffer lines; /* teed lines with their prefixes, collected for one write to the
                             * console */
    /* buffers of STREAM_READ_MAX bytes each: `chunk` for bytes read from a pipe, `spare` for pieces
     * of a long line and `spare_lines` for lines, both read from a log file */
    char *chunk, *spare, *spare_lines;
    void (*on_flushed)(void *arg);
    void (*on_close)(void *arg);
    void *arg;
    int open_handles;
};

#define STREAM_READ_MAX ((size_t) 256 * 1024) /* largest size of one read in bytes */

static inline struct stream *stream_of(struct log_relay *r, uint32_t local_rank, enum which w) {
    return &r->streams[local_rank * WHICH_COUNT + w];
}

/* Makes the relay continue, in the loop's next iteration, with the work that had to wait for the
 * console. */
static inline void relay_schedule_turn(struct log_relay *r) {
    if (!r->is_closing) (void) uv_idle_start(&r->turn, r->on_turn);
}

/* Call this when a tail begins to copy a long line: no other tail writes to the console before
 * relay_release_console(). */
static inline void relay_hold_console(struct log_relay *r, int which) {
    r->is_held[r->console[which] - r->consoles] = true;
}

static inline void relay_release_console(struct log_relay *r, int which) {
    r->is_held[r->console[which] - r->consoles] = false;
    relay_schedule_turn(r);
}

static inline bool relay_console_is_busy(const struct log_relay *r, int which) {
    return r->is_held[r->console[which] - r->consoles] || console_is_full(r->console[which]);
}

/* Writes whole lines to a console. If the console is the terminal with the live line, the lines
 * appear above the live line. */
static inline void relay_write_lines(struct log_relay *r, int which, const char *data, size_t len) {
    bool has_live_line = r->console[which] == r->live.console;
    if (has_live_line) live_line_hide(&r->live);
    console_write(r->console[which], data, len);
    if (has_live_line) live_line_show(&r->live);
}

/* Logs a warning that lines are missing on the console. A relay logs it once: further calls do
 * nothing. */
void relay_warn_of_memory(struct log_relay *r);

static inline bool has_logs(const struct log_relay *r) { return r->logs->path[0] != '\0'; }

extern const char *const stream_file_names[WHICH_COUNT];
extern const char *const stream_filtered_names[WHICH_COUNT];

/* ---- tail.c ---- */

/* Makes a tail. The tail owns `file` from now on. Returns the tail; or NULL if memory is short, and
 * frees `file`. */
struct tail *tail_new(struct log_relay *r, enum which which, struct log_file *file);

/* Takes the next `len` bytes of the stream, of which the first `filed` are in the log file. If
 * `filed` is less than `len`, the file cannot be written any more. Writes the lines to the console
 * if it has room; otherwise lets the tail lag. */
void tail_feed(struct tail *t, const char *data, size_t filed, size_t len);

/* Call this when the stream has ended, and do not use the tail afterwards: it frees itself when its
 * last line is written, which may happen in this call. */
void tail_end(struct tail *t);

/* Returns whether this tail may write to the console: the console has room, and no other tail holds
 * it. */
bool tail_can_write(const struct tail *t);

/* Call this only if tail_can_write() is true. Writes more lines of a lagging tail to the console.
 * If the stream has ended and this was its last line, frees the tail. */
void tail_catch_up(struct tail *t);

void tail_free(struct tail *t);

/* If the tail has an update of a progress bar that was not written as a line yet, if the update is
 * due and if the console has room, writes it as a line. Returns the time (ms, monotonic clock) at
 * which to call this again; CR_FOREVER if no update is left to be written, or if the console is a
 * terminal, where updates are shown in the live line. */
int64_t tail_write_update(struct tail *t, int64_t now_ms);

/* ---- folded_lines.c ---- */

/* Opens the fold if equal lines of several workers have to be folded (--fold); otherwise does
 * nothing. Returns 0 or -ENOMEM. */
int folded_lines_open(struct log_relay *r);
void folded_lines_close(struct log_relay *r);
/* Adds a line of a tail to the fold. The line is lost if memory is short. */
void folded_lines_add(struct tail *t, const char *line, size_t len);
/* Takes lines out of the fold, the oldest first, and writes them to the console: all lines if `all`
 * is true, otherwise only lines that no further worker can join. While a tail copies a long line to
 * a console, writes nothing and tries again later. */
void folded_lines_write(struct log_relay *r, bool all);

/* ---- plain_lines.c ---- */

/* Returns whether the bytes of this stream go through plain_lines_feed(). They do if several
 * workers write to the terminal that is crun's stderr: otherwise their progress bars would
 * overwrite each other. */
bool plain_lines_has(const struct stream *s);
/* Takes the next bytes of the stream. Writes its whole lines to the terminal, and shows its
 * unfinished last line in the terminal's live line. */
void plain_lines_feed(struct stream *s, const char *data, size_t len);
/* Call this when the stream has ended. Writes the unfinished line. */
void plain_lines_end(struct stream *s);

/* ---- waiting_line.c ---- */

/* From now on, the live line of the terminal shows what crun waits for. Does nothing if there is no
 * live line, or if the launcher's log does not go through this relay. */
void waiting_line_open(struct log_relay *r);
/* From now on, the live line no longer shows what crun waits for. Does not close wait_timer. */
void waiting_line_close(struct log_relay *r);

/* ---- log_relay.c ---- */

/* Makes tail_write_update() run for all tails at due_ms at the latest. Does nothing if due_ms is
 * CR_FOREVER. */
void relay_arm_updates(struct log_relay *r, int64_t due_ms);

/* ---- stream.c ---- */

/* Reads once from the stream and passes the bytes on. Returns the number of bytes read; 0 if there
 * are none now; -1 if the stream has ended and was closed. */
ssize_t stream_read(struct stream *s);

/* Reads what is in the pipe now and passes it on. Reads at most as much as a pipe can hold. */
void stream_drain(struct stream *s);

/* Moves the stream to the epoll of `input`, so that it is read under the rule of that input.
 * Returns 0 or a negative errno. */
int stream_join_input(struct stream *s, enum input input);

/* Closes the stream. If it ends with a line that has no newline, that line is written, too. */
void stream_close(struct stream *s);

/* Closes the stream and releases its memory. After that it can be opened for another worker
 * process. */
void stream_clear(struct stream *s);

/* ---- stream_open.c ---- */

/* Opens a stream for a worker that is about to be started. Stores the worker's descriptor in
 * *theirs, or -1 if the worker inherits the launcher's stream. Returns 0, or a negative errno and
 * sets err to a text that names the stream. */
int stream_open(struct stream *s, uint32_t rank, int *theirs, struct cr_error *err);

/* Makes the prefix of the lines of a teed stream, for a worker with this rank. Does nothing if no
 * lines of the stream go to the console. Returns 0 or -ENOMEM. */
int stream_make_prefix(struct stream *s, uint32_t rank);

/* Appends the prefix of a worker's lines to `out`. `local_rank` and `rank` are the texts that the
 * prefix shows for these numbers; for a folded line each is a set such as "0-3,6". Returns 0 or
 * -ENOMEM. */
int stream_prefix(struct stream *s, const char *local_rank, const char *rank,
                  struct cr_buffer *out);

/* Returns whether the worker writes this stream's log file itself. */
bool stream_is_redirected(const struct stream *s);

/* Returns whether the bytes of the stream go to the console unchanged, and to no log file. */
bool stream_is_plain(const struct stream *s);

#endif
