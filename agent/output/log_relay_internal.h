/* Declares the parts of the output relay. A file calls only files that stand below it in this list:
 *
 *   log_relay.c     all streams and the console: reading, pausing, flushing, opening, closing
 *   stream_open.c   opens a worker's stream and chooses the way of its bytes
 *   stream.c        takes a stream's bytes to its file, to the filtered file and to the console
 *   console.c, line_splitter.c, last_bytes.c, log_dir.c */
#ifndef AGENT_LOG_RELAY_INTERNAL_H
#define AGENT_LOG_RELAY_INTERNAL_H

#include "agent/output/console.h"
#include "agent/output/last_bytes.h"
#include "agent/output/line_splitter.h"
#include "agent/output/log_relay.h"

#include <pthread.h>

enum which { OUT, ERR, WHICH_COUNT };

/* One stream: the stdout or stderr of one worker. */
struct stream {
    struct log_relay *relay;
    enum which which;
    uint32_t local_rank;
    int fd;       /* our end of its pipe or terminal, or -1 */
    int file_fd;  /* descriptor of a teed stream's log file, or -1 */
    bool teed;    /* true = goes to the console as lines with a prefix; false = as bytes */
    bool hidden;  /* the stream is not shown on the console */
    bool kept;    /* stays open when the attempt ends, because its worker is kept */
    char *prefix; /* prefix of the lines of a teed stream */
    struct line_splitter lines;
    struct last_bytes last; /* the last bytes; used for stderr only */
};

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
    int epoll_fd;                  /* contains all pipes of the workers */
    uv_poll_t poll;
    bool paused;             /* no pipe is read at present, because the console is full */
    bool warned_of_file;     /* the user was warned that a log file cannot be written */
    bool warned_of_memory;   /* the user was warned that output was lost for lack of memory */
    bool stderr_is_terminal; /* our own stderr is a terminal */
    bool flushing;
    uv_idle_t flush_turn;   /* runs on_flushed from the loop, so that it never runs inside a call */
    bool carries_log;       /* the launcher's own log goes through this relay */
    uv_async_t log_ready;   /* another thread wakes the loop when it has written log lines */
    pthread_t thread;       /* the loop's thread */
    struct cr_buffer lines; /* teed lines with their prefixes, collected for one write */
    char *chunk;            /* buffer of STREAM_READ_MAX bytes for reading from a pipe */
    void (*on_flushed)(void *arg);
    void (*on_close)(void *arg);
    void *arg;
    int open_handles;
};

#define STREAM_READ_MAX ((size_t) 64 * 1024) /* bytes of one read */

static inline struct stream *stream_of(struct log_relay *r, uint32_t local_rank, enum which w) {
    return &r->streams[local_rank * WHICH_COUNT + w];
}

static inline bool has_logs(const struct log_relay *r) { return r->logs->path[0] != '\0'; }

extern const char *const stream_file_names[WHICH_COUNT];
extern const char *const stream_filtered_names[WHICH_COUNT];

/* ---- stream.c ---- */

/* Reads once from the stream and passes the bytes on. Returns how many bytes it read; 0: there are
 * none now; -1: the stream has ended and is closed. */
ssize_t stream_read(struct stream *s);

/* Reads what is in the pipe, at most as much as a pipe can hold. */
void stream_drain(struct stream *s);

/* Closes the stream. Writes a last line that has no newline yet. */
void stream_close(struct stream *s);

/* Closes the stream and releases its memory, so that it can be opened again. */
void stream_clear(struct stream *s);

/* ---- stream_open.c ---- */

/* Opens a stream for a worker that is about to be started. Stores the worker's descriptor in
 * *theirs, or -1 if the worker inherits ours. Returns 0, or a negative errno and sets err to a text
 * that names the stream. */
int stream_open(struct stream *s, uint32_t rank, int *theirs, struct cr_error *err);

/* Makes the prefix of a teed stream for a worker with this rank. Returns 0 or -ENOMEM. */
int stream_make_prefix(struct stream *s, uint32_t rank);

/* Whether the worker writes this stream's log file itself. */
bool stream_is_redirected(const struct stream *s);

#endif
