/* The parts of the output relay. A file calls only files that stand below it in this list:
 *
 *   log_relay.c     all streams and the console: reading, pausing, flushing, opening, closing
 *   stream_open.c   opens a worker's stream: which way its bytes go
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

/* The stdout or stderr of one worker. */
struct stream {
    struct log_relay *relay;
    enum which which;
    uint32_t local_rank;
    int fd;       /* our end of its pipe or terminal, or -1 */
    int file_fd;  /* the log file of a teed stream, or -1 */
    bool teed;    /* goes to the console as lines with a prefix; else as bytes */
    bool hidden;  /* from the console */
    bool kept;    /* its worker goes on when the attempt ends */
    char *prefix; /* of a teed stream */
    struct line_splitter lines;
    struct last_bytes last; /* of stderr */
};

struct log_relay {
    uv_loop_t *loop;
    struct log_relay_options options;
    const struct log_dir *logs;
    struct console consoles[WHICH_COUNT];
    struct console *console[WHICH_COUNT]; /* both the same if stdout and stderr share a queue */
    int console_count;
    struct stream *streams; /* [2 * workers]; see stream_of() */
    size_t stream_count;
    int filtered_fds[WHICH_COUNT]; /* the attempt's filtered files, or -1 */
    int epoll_fd;                  /* of all pipes */
    uv_poll_t poll;
    bool paused;             /* the console is full: no pipe is read */
    bool warned_of_file;     /* a log file cannot be written; said once for all files */
    bool warned_of_memory;   /* output was lost because memory was short; said once */
    bool stderr_is_terminal; /* ours */
    bool flushing;
    uv_idle_t flush_turn;   /* runs on_flushed from the loop, never from inside a call */
    bool carries_log;       /* the process's log comes here … */
    uv_async_t log_ready;   /* … and other threads have written lines */
    pthread_t thread;       /* the loop's */
    struct cr_buffer lines; /* teed lines with their prefixes, until they are written at once */
    char *chunk;            /* STREAM_READ_MAX bytes */
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

/* Reads once and passes the bytes on. Returns how many; 0: there are none now; -1: the stream has
 * ended and is closed. */
ssize_t stream_read(struct stream *s);

/* Reads what is in the pipe, up to the most that a pipe can hold. */
void stream_drain(struct stream *s);

/* Closes it; a last line without a newline is written. */
void stream_close(struct stream *s);

/* Releases everything; the stream can be opened again. */
void stream_clear(struct stream *s);

/* ---- stream_open.c ---- */

/* Opens a stream for a worker that is about to be started. *theirs is the worker's end, or -1: it
 * inherits ours. Returns 0, or a negative errno with a text. */
int stream_open(struct stream *s, uint32_t rank, int *theirs, struct cr_error *err);

/* Makes the prefix of a teed stream again, for another rank. Returns 0 or -ENOMEM. */
int stream_make_prefix(struct stream *s, uint32_t rank);

/* Whether the worker writes the file of its stderr itself. */
bool stream_is_redirected(const struct stream *s);

#endif
