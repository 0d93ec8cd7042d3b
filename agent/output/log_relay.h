/* The relay takes the workers' stdout and stderr to log files and to the console. The job's options
 * decide which way the bytes of a stream take:
 *
 *   neither redirected nor teed   stdout: the worker inherits the launcher's stdout, so its output
 *                                 does not pass through the launcher. stderr: is passed on byte by
 *                                 byte as it comes, and its last bytes are kept for the failure
 *                                 report. If the launcher's stdout and stderr are one terminal,
 *                                 pipe or file, the worker writes both to one pipe, so that their
 *                                 order is kept
 *   redirected                    the worker writes its log file itself
 *   teed                          the launcher reads the bytes and writes them to the log file as
 *                                 they come, and to the console line by line, each line whole and
 *                                 after a prefix. If the console is slow, its lines are read from
 *                                 the log file later, so the worker is not delayed
 *   hidden from the console       stdout: goes to /dev/null. stderr: only its last bytes are kept
 *
 * If the option carries_log is true, the launcher's own log (base/log/log.h) goes to stderr through
 * the relay, too. So logging never waits for a reader of stderr, and a log line never splits a
 * worker's line.
 *
 * If the launcher's stderr is a terminal, the workers' stderr is a terminal, too (a pseudo
 * terminal), because programs draw progress bars on terminals only. Source: torchrun's --redirects,
 * --tee, --local-ranks-filter and --duplicate-*-filters. */
#ifndef AGENT_LOG_RELAY_H
#define AGENT_LOG_RELAY_H

#include "agent/output/log_dir.h"
#include "base/buffer.h"
#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct log_relay;

#define LOG_RELAY_STDOUT 1u
#define LOG_RELAY_STDERR 2u

/* The options of a relay. All pointers must stay valid until the relay is closed. */
struct log_relay_options {
    uint32_t workers;
    /* for each local rank: the streams that are redirected, and the streams that are teed, as masks
     * of LOG_RELAY_STDOUT and LOG_RELAY_STDERR. `redirects` is NULL if no stream of any worker is
     * redirected, `tee` is NULL if none is teed */
    const uint8_t *redirects, *tee;
    /* size limit of each log file in bytes; 0 = no limit. A file with a limit keeps the beginning
     * and the end of its stream (log_file.h). If there is a limit, redirected streams pass through
     * the launcher, too */
    uint64_t log_max_size;
    /* for each local rank: 0 if the output of the worker is not shown on the console; NULL if the
     * output of all workers is shown */
    const uint8_t *console;
    const char *role;
    /* the role of each worker, indexed by local rank; NULL if all workers have the role `role` */
    const char *const *roles;
    /* template of the prefix of teed lines (base/text/template.h); if it is NULL or "", the default
     * template is used */
    const char *prefix_template;
    /* NULL-terminated lists of strings, or NULL. A teed line that contains one of these strings is
     * also written to the attempt's filtered_*.log. */
    char *const *stdout_filters, *const *stderr_filters;
    /* Called with each line that a worker writes to its stdout or stderr, without its line end; a
     * line of more than 64 KiB comes in pieces. An update of a progress bar is a line. NULL if
     * nobody needs the lines. If it is not NULL, all output of the workers passes through the
     * launcher, because the launcher sees no other output. */
    void (*on_line)(void *arg, uint32_t local_rank, const char *line, size_t len);
    void *on_line_arg;
    bool folds;   /* true if equal teed lines of several workers are shown once (fold.h) */
    bool is_json; /* true if a teed line is written to the console as a JSON object */
    bool carries_log; /* true if the launcher's own log goes through the relay */
};

/* Opens a relay. `logs` must stay valid until the relay is closed. After a log_relay_flush(),
 * on_flushed runs when the console has taken all output. Returns 0; or a negative errno, and sets
 * err to a text that says what failed. */
int log_relay_open(uv_loop_t *loop, const struct log_relay_options *options,
                   const struct log_dir *logs, void (*on_flushed)(void *arg), void *arg,
                   struct log_relay **out, struct cr_error *err);

/* Begins an attempt. Releases the streams of the previous attempt, with the last bytes of their
 * stderr, except the streams of kept workers. Opens the filtered files of the new attempt. Returns
 * 0; or a negative errno, and sets err. */
int log_relay_begin(struct log_relay *r, struct cr_error *err);

/* Opens the stdout and stderr of a worker that is about to be started, and stores the worker's
 * descriptors in fds[0] and fds[1]; -1 = the worker inherits the launcher's stream. Returns 0; or a
 * negative errno, and sets err. After it has returned 0, call log_relay_started() as soon as the
 * worker is started or has failed to start: that closes the launcher's copies of the
 * descriptors. */
int log_relay_prepare(struct log_relay *r, uint32_t local_rank, uint32_t rank, int fds[2],
                      struct cr_error *err);
void log_relay_started(int fds[2]);

/* Call this when the launcher's terminal has another size. Gives this size to the workers' pseudo
 * terminals. */
void log_relay_resize(struct log_relay *r);

/* Reads what a dead worker left in its pipes. It reads at most as much as a pipe can hold.
 * Otherwise it might never end, because the worker's children may still write into the pipe. */
void log_relay_drain(struct log_relay *r, uint32_t local_rank);

/* Sets whether the worker's streams and log files stay open when the attempt ends. They must stay
 * open if the worker is kept, because its process writes to them in the next attempt, too. */
void log_relay_keep(struct log_relay *r, uint32_t local_rank, bool keep);

/* Call this before log_relay_prepare() for a worker that is started again in a running attempt. It
 * reads what the dead process left in its pipes, and closes its streams. */
void log_relay_release(struct log_relay *r, uint32_t local_rank);

/* Call this when a kept worker has got another rank. Makes the prefix of its lines once more,
 * because the prefix may contain the rank, and sets the times of log_relay_look() to 0. */
void log_relay_rename(struct log_relay *r, uint32_t local_rank, uint32_t rank);

/* Call this when all processes of the attempt are gone, except kept workers. Reads what is left in
 * the pipes of the dead workers and closes their streams. */
void log_relay_end(struct log_relay *r);

/* Appends to `out` the last bytes of the stderr of a worker that was started in `attempt`. Returns
 * 0 or -ENOMEM. */
int log_relay_last_words(const struct log_relay *r, struct log_attempt attempt,
                         uint32_t local_rank, struct cr_buffer *out);

/* Appends to `out` the last bytes of one stream of the worker: of its stdout, if stdout goes to a
 * log file that was written later than stderr; otherwise of its stderr. Returns 0 or -ENOMEM. */
int log_relay_last_output(const struct log_relay *r, struct log_attempt attempt,
                          uint32_t local_rank, struct cr_buffer *out);

/* The times (ns, monotonic clock) at which the launcher read a worker's first and last output in
 * this round; 0 if it read none. Output that does not pass through the launcher, such as a
 * redirected stream, does not count. */
struct log_relay_look {
    int64_t first_ns, last_ns;
};
void log_relay_look(const struct log_relay *r, uint32_t local_rank, struct log_relay_look *out);

/* Returns true if the worker's stdout and stderr are one pipe: log_relay_last_words() then appends
 * the last bytes of both together. */
bool log_relay_is_mixed(const struct log_relay *r, uint32_t local_rank);

/* Returns a number that grows when a worker of the current attempt writes output that passes
 * through the launcher or goes to a log file. Other output, to an inherited stdout or to /dev/null,
 * does not change the number. */
uint64_t log_relay_output(const struct log_relay *r);

/* Call this at the end of the job. Makes on_flushed run on the loop when the console has taken all
 * output, or can no longer be written. */
void log_relay_flush(struct log_relay *r);

/* Call this when the user does not want to wait for output that the console has not taken yet.
 * Discards that output, and all later output to the same console. */
void log_relay_give_up(struct log_relay *r);

/* Closes the relay. The loop then frees it and calls on_close, unless on_close is NULL. */
void log_relay_close(struct log_relay *r, void (*on_close)(void *arg));

#endif
