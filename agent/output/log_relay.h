/* The workers' output. Depending on the job, a stream of a worker
 *
 *   neither redirected nor teed   stdout: is inherited from us, so it does not pass through this
 *                                 process. stderr: is passed on byte by byte as it comes, and its
 *                                 end is remembered for the failure report
 *   redirected                    goes to the worker's log file, which the worker writes itself
 *   teed                          passes through us: to the log file byte by byte, and to the
 *   console
 *                                 line by line, each line whole and after a prefix
 *   hidden from the console       stdout: goes to /dev/null. stderr: is only remembered
 *
 * If the job asks for it, the process's own log (base/log.h) goes to stderr through the same
 * queue: it never waits for a reader, and it never breaks a worker's line.
 *
 * If our stderr is a terminal, the workers' stderr is one too (a pseudo terminal), because programs
 * draw progress bars on terminals only. Source: torchrun's --redirects, --tee, --local-ranks-filter
 * and --duplicate-*-filters. */
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

/* Everything is borrowed until the relay is closed. */
struct log_relay_options {
    uint32_t workers;
    const uint8_t *redirects, *tee; /* [workers] masks of LOG_RELAY_STDOUT and _STDERR; or NULL */
    const uint8_t *console; /* [workers] 0 = hidden from the console; NULL = none is hidden */
    const char *role;
    const char *prefix_template; /* of teed lines (base/template.h); NULL or "" = the default */
    /* Lines that contain one of these texts are copied to the attempt's filtered_*.log.
     * NULL-terminated, or NULL. */
    char *const *stdout_filters, *const *stderr_filters;
    bool carries_log; /* the process's own log goes through the relay */
};

/* `logs` is borrowed. `on_flushed` runs when a log_relay_flush() is done.
 * Returns 0, or a negative errno with a text. */
int log_relay_open(uv_loop_t *loop, const struct log_relay_options *options,
                   const struct log_dir *logs, void (*on_flushed)(void *arg), void *arg,
                   struct log_relay **out, struct cr_error *err);

/* Begins an attempt: forgets what the streams of the last one wrote, except those of kept workers,
 * and opens the attempt's filtered files. */
int log_relay_begin(struct log_relay *r, struct cr_error *err);

/* Opens the stdout and stderr of a worker that is about to be started: fds[0] and fds[1], -1 =
 * inherit ours. log_relay_started() closes them once the worker has them, or could not be
 * started. */
int log_relay_prepare(struct log_relay *r, uint32_t local_rank, uint32_t rank, int fds[2],
                      struct cr_error *err);
void log_relay_started(int fds[2]);

/* Reads what a dead worker left in its pipes, up to the most that a pipe can hold: its children may
 * still write. */
void log_relay_drain(struct log_relay *r, uint32_t local_rank);

/* With keep = true the worker's streams and files stay open when the attempt ends, because the
 * worker goes on in its process. keep = false takes that back. */
void log_relay_keep(struct log_relay *r, uint32_t local_rank, bool keep);

/* A kept worker has another rank now, which its prefix may show. */
void log_relay_rename(struct log_relay *r, uint32_t local_rank, uint32_t rank);

/* All processes of the attempt are gone, except kept workers: reads what is left and closes the
 * streams. */
void log_relay_end(struct log_relay *r);

/* Appends the end of the stderr of a worker that was started in `attempt`. Returns 0 or -ENOMEM. */
int log_relay_last_words(const struct log_relay *r, uint32_t attempt, uint32_t local_rank,
                         struct cr_buffer *out);

/* Makes on_flushed run, on the loop, once the console has taken everything or cannot be written. */
void log_relay_flush(struct log_relay *r);

/* Discards what the console has not taken: the user does not want to wait for it. */
void log_relay_give_up(struct log_relay *r);

/* Closes the relay and frees it; on_close (may be NULL) runs on the loop when that is done. */
void log_relay_close(struct log_relay *r, void (*on_close)(void *arg));

#endif
