/* The relay takes the workers' stdout and stderr to log files and to the console. Which way a
 * worker's stream takes depends on the job's options:
 *
 *   neither redirected nor teed   stdout: the worker inherits ours, so its output does not pass
 *                                 through this process. stderr: is passed on byte by byte as it
 *                                 comes, and its last bytes are kept for the failure report. If our
 *                                 stdout and stderr are one terminal, pipe or file, the worker
 *                                 writes both to one pipe, so that their order is kept
 *   redirected                    the worker writes its log file itself
 *   teed                          the bytes pass through us: to the log file as they come, and to
 *                                 the console line by line, each line whole and after a prefix. If
 *                                 the console is slow, its lines are read from the log file later,
 *                                 so the worker is not delayed
 *   hidden from the console       stdout: goes to /dev/null. stderr: only its last bytes are kept
 *
 * If the job asks for it, the launcher's own log (base/log.h) goes to stderr through the same
 * queue. So logging never waits for a reader of stderr, and a log line never splits a worker's
 * line.
 *
 * If our stderr is a terminal, the workers' stderr is a terminal, too (a pseudo terminal), because
 * programs draw progress bars on terminals only. Source: torchrun's --redirects, --tee,
 * --local-ranks-filter and --duplicate-*-filters. */
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
    /* by local rank: which streams are redirected, and which are teed, as masks of LOG_RELAY_STDOUT
     * and LOG_RELAY_STDERR; NULL = no stream of any worker */
    const uint8_t *redirects, *tee;
    /* limit of each log file in bytes, of which the first and the last part are kept (log_file.h);
     * 0 = none. With a limit redirected streams pass through us, too */
    uint64_t log_max_size;
    /* by local rank: 0 = the worker's output is not shown on the console; NULL = all is shown */
    const uint8_t *console;
    const char *role;
    /* template of the prefix of teed lines (base/template.h); NULL or "" = the default */
    const char *prefix_template;
    /* NULL-terminated lists of strings, or NULL. A teed line that contains one of these strings is
     * also written to the attempt's filtered_*.log. */
    char *const *stdout_filters, *const *stderr_filters;
    bool carries_log; /* the launcher's own log goes through the relay */
};

/* Opens a relay. `logs` must stay valid until the relay is closed. `on_flushed` runs when a
 * log_relay_flush() is done. Returns 0, or a negative errno and sets err to a text that says what
 * failed. */
int log_relay_open(uv_loop_t *loop, const struct log_relay_options *options,
                   const struct log_dir *logs, void (*on_flushed)(void *arg), void *arg,
                   struct log_relay **out, struct cr_error *err);

/* Begins an attempt: releases the streams of the last attempt together with the last bytes that
 * were kept of their stderr, and opens the attempt's filtered files. The streams of kept workers
 * stay as they are. */
int log_relay_begin(struct log_relay *r, struct cr_error *err);

/* Opens the stdout and stderr of a worker that is about to be started, and stores the worker's
 * descriptors in fds[0] and fds[1]; -1 = the worker inherits ours. When the worker was started, or
 * could not be started, call log_relay_started(), which closes our copies of the descriptors. */
int log_relay_prepare(struct log_relay *r, uint32_t local_rank, uint32_t rank, int fds[2],
                      struct cr_error *err);
void log_relay_started(int fds[2]);

/* Reads what a dead worker left in its pipes. It reads at most as much as a pipe can hold, because
 * the worker's children may still write into the pipe and would keep it busy. */
void log_relay_drain(struct log_relay *r, uint32_t local_rank);

/* Sets whether the worker's streams and files stay open when the attempt ends. Those of a kept
 * worker have to stay open, because its process goes on and writes to them. */
void log_relay_keep(struct log_relay *r, uint32_t local_rank, bool keep);

/* Call this when a kept worker has got another rank: its prefix, which may contain the rank, is
 * made again. */
void log_relay_rename(struct log_relay *r, uint32_t local_rank, uint32_t rank);

/* Call this when all processes of the attempt are gone, except kept workers. It reads what is left
 * in the pipes and closes the streams. */
void log_relay_end(struct log_relay *r);

/* Appends the last bytes of the stderr of a worker that was started in `attempt`. Returns 0 or
 * -ENOMEM. */
int log_relay_last_words(const struct log_relay *r, struct log_attempt attempt,
                         uint32_t local_rank, struct cr_buffer *out);

/* Whether these last bytes are those of stdout and stderr together. */
bool log_relay_is_mixed(const struct log_relay *r, uint32_t local_rank);

/* Makes on_flushed run on the loop once the console has taken all output, or can no longer be
 * written. */
void log_relay_flush(struct log_relay *r);

/* Discards the output that the console has not taken yet. Call this when the user does not want to
 * wait for it. */
void log_relay_give_up(struct log_relay *r);

/* Closes the relay and frees it; afterwards on_close runs on the loop, unless it is NULL. */
void log_relay_close(struct log_relay *r, void (*on_close)(void *arg));

#endif
