/* Declares the parts of the output relay. A file calls only files that stand below it in this list:
 *
 *   log_relay.c     all streams and the console: reading, pausing, flushing, opening, closing
 *   stream_open.c   opens a worker's stream and chooses the way of its bytes
 *   stream.c        takes a stream's bytes to its file, to the filtered file and to the console
 *   tail.c          brings the lines of a teed stream to the console
 *   console.c, line_splitter.c, last_bytes.c, log_file.c, log_dir.c */
#ifndef AGENT_LOG_RELAY_INTERNAL_H
#define AGENT_LOG_RELAY_INTERNAL_H

#include "agent/output/console.h"
#include "agent/output/last_bytes.h"
#include "agent/output/line_splitter.h"
#include "agent/output/log_file.h"
#include "agent/output/log_relay.h"

#include <pthread.h>
#include <sys/queue.h>

enum which { OUT, ERR, WHICH_COUNT };

/* A tail brings the lines of one teed stream to the console: each line whole, after a prefix. The
 * stream's log file is its buffer. While the console keeps up, lines are taken from the bytes that
 * were just read from the worker. While the console does not keep up, the tail lags behind: as soon
 * as there is room, it reads the log file from the offset that the console has reached. So a
 * console that is slow, or that nobody reads, never delays a worker whose output goes to a file.
 * A line that is longer than LINE_MAX_LEN is copied from the file to the console in several turns.
 * In the meantime the tail holds the console: nothing else is written to it.
 * If the file cannot be written any more (a full disk), bytes are kept in memory, and the relay
 * does not read the worker's pipe before the console has taken them. */
struct tail {
    struct log_relay *relay;
    enum which which;
    struct log_file *file;  /* owned by the tail */
    char *prefix;
    struct line_splitter lines; /* lines.at is the offset in the stream that the console has
                                 * reached */
    bool is_lagging;            /* the tail is in the relay's list of lagging tails */
    bool has_ended;             /* the stream is over; the tail frees itself after its last line */
    struct cr_buffer unfiled;   /* bytes that could not be appended to the file */
    bool holds_console;         /* the bytes [copy_at, copy_to) are being copied from the file */
    uint64_t copy_at, copy_to;
    TAILQ_ENTRY(tail) entry;
};
TAILQ_HEAD(tail_list, tail);

/* One stream: the stdout or stderr of one worker. */
struct stream {
    struct log_relay *relay;
    enum which which;
    uint32_t local_rank;
    int fd;       /* the launcher's end of the stream's pipe or terminal, or -1 */
    bool hidden;  /* the stream is not shown on the console */
    bool mixed;   /* true: a stderr into which the worker's stdout goes, too */
    bool kept;    /* stays open when the attempt ends, because its worker is kept */
    /* the log file that the launcher writes, unless a tail owns it; else NULL */
    struct log_file *file;
    struct tail *tail;        /* brings a teed stream to the console; NULL = the stream goes to the
                               * console as bytes */
    bool is_file_broken;      /* the log file could not be written; it is not tried again */
    struct line_splitter filtered; /* cuts the stream into the lines of the filtered file */
    struct last_bytes last;   /* the last bytes; used for stderr only */
};

/* The pipes of a group of streams, in an epoll that the loop watches with one handle. */
struct inputs {
    int epoll_fd;
    uv_poll_t poll;
    bool paused; /* no pipe of the group is read at present */
};

/* BUFFERED: streams with a log file, which are always read. DIRECT: streams whose bytes have no
 * other place than the console, so they are not read while the console is full. */
enum input { BUFFERED, DIRECT, INPUT_COUNT };

struct log_relay {
    uv_loop_t *loop;
    struct log_relay_options options;
    const struct log_dir *logs;
    struct console consoles[WHICH_COUNT];
    /* both point to one console if stdout and stderr share a queue */
    struct console *console[WHICH_COUNT];
    int console_count;
    struct stream *streams; /* 2 per worker; see stream_of() */
    size_t stream_count;
    int filtered_fds[WHICH_COUNT]; /* descriptors of the attempt's filtered files, or -1 */
    struct inputs inputs[INPUT_COUNT];
    bool is_held[WHICH_COUNT];  /* by index in consoles[]: true while a tail writes a long line to
                                 * that console */
    struct tail_list lagging;
    uv_idle_t turn;             /* runs on_turn() from the loop, never inside a call */
    uv_idle_cb on_turn;
    bool is_closing;
    bool warned_of_file;     /* the user was warned that a log file cannot be written */
    bool warned_of_memory;   /* the user was warned that output was lost for lack of memory */
    bool stderr_is_terminal; /* the launcher's own stderr is a terminal */
    bool keeps_order;        /* the launcher's stdout and stderr are one terminal, pipe or file */
    bool flushing;
    bool carries_log;       /* the launcher's own log goes through this relay */
    uv_async_t log_ready;   /* another thread wakes the loop when it has written log lines */
    pthread_t thread;       /* the loop's thread */
    struct cr_buffer lines; /* teed lines with their prefixes, collected for one write */
    /* buffers of STREAM_READ_MAX bytes each: for reading from a pipe, and from log files */
    char *chunk, *spare, *spare_lines;
    void (*on_flushed)(void *arg);
    void (*on_close)(void *arg);
    void *arg;
    int open_handles;
};

#define STREAM_READ_MAX ((size_t) 64 * 1024) /* bytes of one read */

static inline struct stream *stream_of(struct log_relay *r, uint32_t local_rank, enum which w) {
    return &r->streams[local_rank * WHICH_COUNT + w];
}

/* Makes the relay continue in the loop's next iteration with what had to wait. */
static inline void relay_schedule_turn(struct log_relay *r) {
    if (!r->is_closing) (void) uv_idle_start(&r->turn, r->on_turn);
}

/* While a tail holds the console, only that tail writes to it. */
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

/* Warns once that lines are missing on the console. */
void relay_warn_of_memory(struct log_relay *r);

static inline bool has_logs(const struct log_relay *r) { return r->logs->path[0] != '\0'; }

extern const char *const stream_file_names[WHICH_COUNT];
extern const char *const stream_filtered_names[WHICH_COUNT];

/* ---- tail.c ---- */

/* Makes a tail, which owns `file` from now on. Returns the tail; or NULL if memory is short, and
 * frees `file`. */
struct tail *tail_new(struct log_relay *r, enum which which, struct log_file *file);

/* Call this with the next `len` bytes of the stream, of which the first `filed` are in the file; if
 * `filed` is less than `len`, the file cannot be written any more. It writes the lines to the
 * console, or lets the tail lag. */
void tail_feed(struct tail *t, const char *data, size_t filed, size_t len);

/* Call this when the stream has ended. The tail frees itself, at once if it does not lag. */
void tail_end(struct tail *t);

/* Returns whether the console has room for lines of this tail. */
bool tail_can_write(const struct tail *t);

/* Writes more lines of a lagging tail to the console, for which tail_can_write() must be true.
 * Afterwards the tail may be freed. */
void tail_catch_up(struct tail *t);

void tail_free(struct tail *t);

/* ---- stream.c ---- */

/* Reads once from the stream and passes the bytes on. Returns how many bytes it read; 0: there are
 * none now; -1: the stream has ended and is closed. */
ssize_t stream_read(struct stream *s);

/* Reads what is in the pipe, at most as much as a pipe can hold. */
void stream_drain(struct stream *s);

/* Lets another group of inputs read the stream. Returns 0 or a negative errno. */
int stream_join_input(struct stream *s, enum input input);

/* Closes the stream. A last line that has no newline yet is written, too. */
void stream_close(struct stream *s);

/* Closes the stream and releases its memory, so that it can be opened again. */
void stream_clear(struct stream *s);

/* ---- stream_open.c ---- */

/* Opens a stream for a worker that is about to be started. Stores the worker's descriptor in
 * *theirs, or -1 if the worker inherits the launcher's stream. Returns 0, or a negative errno and
 * sets err to a text that names the stream. */
int stream_open(struct stream *s, uint32_t rank, int *theirs, struct cr_error *err);

/* Makes the prefix of a teed stream for a worker with this rank. Does nothing if no lines of the
 * stream go to the console. Returns 0 or -ENOMEM. */
int stream_make_prefix(struct stream *s, uint32_t rank);

/* Returns whether the worker writes this stream's log file itself. */
bool stream_is_redirected(const struct stream *s);

/* Returns whether the stream goes to the console as bytes, and to no other place. */
bool stream_is_plain(const struct stream *s);

#endif
