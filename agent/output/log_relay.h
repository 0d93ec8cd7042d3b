/* The workers' output: what goes straight to a file or to our own streams, and what passes through us.
 *
 *   neither redirected nor teed   stdout: inherited. stderr: passed on byte for byte as it comes, while
 *                                 its last words are remembered for the report
 *   redirected                    the worker writes its file itself
 *   teed                          through us, to the file byte for byte and to the console line by
 *                                 line, each line whole and behind its prefix
 *   kept off the console          stdout: /dev/null. stderr: remembered only
 *
 * If the job says so, the launcher's own log goes the same way to stderr: it never waits either, and it
 * never breaks a worker's line.
 *
 * Where our stderr is a terminal the worker's is one, too (a pseudo terminal), so that progress bars
 * look as they do without us. Source: torchrun's --redirects, --tee, --local-ranks-filter and
 * --duplicate-*-filters. */
#ifndef AGENT_LOG_RELAY_H
#define AGENT_LOG_RELAY_H

#include "agent/agent.h"
#include "agent/output/log_dir.h"
#include "base/buffer.h"

struct log_relay;

/* `job` and `logs` are borrowed. `on_flushed` runs when a log_relay_flush() is done. */
int log_relay_open(uv_loop_t *loop, const struct agent_job *job, const struct log_dir *logs,
                   void (*on_flushed)(void *arg), void *arg, struct log_relay **out,
                   struct cr_error *err);

/* A new attempt: forgets the last one's words, opens the attempt's filtered files. */
int log_relay_begin(struct log_relay *r, struct cr_error *err);

/* The descriptors to start a worker with, -1 = inherit ours; to be given to log_relay_started()
 * once the worker has them (or could not be started). */
int log_relay_prepare(struct log_relay *r, uint32_t local_rank, uint32_t rank, int fds[2],
                      struct cr_error *err);
void log_relay_started(int fds[2]);

/* A worker died: reads what it left in the pipes (a bounded amount: its children may go on). */
void log_relay_drain(struct log_relay *r, uint32_t local_rank);

/* The worker goes on in its process when the attempt ends (keep 1), and so do its streams and files;
 * 0 takes that back. */
void log_relay_keep(struct log_relay *r, uint32_t local_rank, int keep);

/* A kept worker has another rank now, which its prefix may show. */
void log_relay_rename(struct log_relay *r, uint32_t local_rank, uint32_t rank);

/* All processes of the attempt are gone: reads all that is left and closes the streams. */
void log_relay_end(struct log_relay *r);

/* Appends the end of the stderr of a worker that was started in `attempt`. 0 or -ENOMEM. */
int log_relay_last_words(const struct log_relay *r, uint32_t attempt, uint32_t local_rank,
                         struct cr_buffer *out);

/* Calls on_flushed, on the loop, once the console has taken everything or is beyond hope. */
void log_relay_flush(struct log_relay *r);

/* Gives up on a console that does not take what we have (the user wants out). */
void log_relay_give_up(struct log_relay *r);

/* Frees once its handles are closed. NULL is not accepted. */
void log_relay_close(struct log_relay *r, void (*on_close)(void *arg));

#endif
