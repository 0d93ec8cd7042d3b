/* The case file: what the agent knows about the end of each worker. From it the verdict
 * (agent/verdict) states which worker failed first and why. The agent records facts when they
 * happen; error files and last output are read only when a verdict is needed. */
#ifndef AGENT_CASE_FILE_H
#define AGENT_CASE_FILE_H

#include "agent/agent_job.h"
#include "agent/evidence/evidence.h"
#include "agent/output/log_relay.h"
#include "agent/process/nursery.h"
#include "agent/verdict/verdict.h"
#include "base/buffer.h"
#include "inspect/inspect.h"

#include <stdbool.h>

/* The record of one worker. A worker that stays alive over several rounds keeps its record. */
struct case_worker {
    bool has_ended;
    struct worker_exit how; /* how the worker ended; valid if has_ended */
    struct log_attempt attempt; /* the attempt that started the worker's process */
    /* time at which the worker was started, or got its ranks in a later round; wall clock, in ns
     * since 1970 */
    int64_t started_ns;
    /* true if the watchdog (watchdog.h) ended the worker, because a timer that the worker had set
     * had expired */
    bool timer_expired;
    /* if the worker was killed as hung: the time in ms for which it had made no step; else 0 */
    int64_t hung_ms;
    uint64_t hung_step; /* the last step that the worker made; valid if hung_ms > 0 */
};

struct case_file {
    const struct agent_job *job;
    const char *host;
    const struct log_dir *logs;
    struct log_relay *relay;
    struct case_worker *workers; /* [number of workers], by local rank */
    /* first_rank, restart_count and max_restarts of the current round */
    uint32_t first_rank, restarts, max_restarts;
    uint64_t round;
    int64_t group_rank;            /* -1 before the first round */
    struct kernel_log *kernel;     /* what the kernel has logged since the round began */
    struct failures failures;      /* failures that nodes have reported in this round */
    uint64_t oom_kills;            /* out-of-memory kills that the memory cgroup had counted when
                                    * the round began */
    /* result of the round's last inquiry, which names the rank that others wait for; "" if there
     * was no inquiry */
    char behind[512];
    /* why the round could not go on although no worker had failed: a worker parked without a
     * reason, or the workers hung; "" if neither is known */
    char broken[768];
    const char *broken_kind;       /* "hang" or "gave up"; valid if `broken` is not "" */
    uint32_t broken_rank;          /* the rank that `broken` names */
    int64_t broken_pid, broken_ns; /* pid of that rank, 0 if unknown; and when `broken` was set, in
                                    * ns since 1970 by the wall clock */
    int64_t quiet_ms;              /* if the workers hung: for how many ms they had been quiet; else
                                    * 0 */
    struct cr_buffer inspection; /* lines of text that say where the workers hung; empty if they did
                                  * not hang */
};

/* Initialises a case file. The pointers must stay valid until case_file_done(). Returns 0 or
 * -ENOMEM. */
int case_file_init(struct case_file *c, const struct agent_job *job, const char *host,
                   const struct log_dir *logs);
/* Frees what the case file owns; the case file may also be all zeros. */
void case_file_done(struct case_file *c);

/* Call case_file_begin_round() when a round begins, and case_file_begin_worker() for each worker
 * that is started in that round. case_file_begin_worker() clears the worker's record. */
void case_file_begin_round(struct case_file *c, const struct rendezvous_round *round);
void case_file_begin_worker(struct case_file *c, uint32_t local_rank);

void case_file_add_exit(struct case_file *c, uint32_t local_rank, const struct worker_exit *how);
/* Records that this worker called crunrt_rejoin() although no worker had failed. */
void case_file_add_broken(struct case_file *c, uint32_t local_rank);

/* Records the result of an inquiry (rendezvous/rendezvous.h). */
void case_file_add_behind(struct case_file *c, const char *what);
/* Records that all workers of this node were quiet for quiet_ms, and what an inspection has found
 * out about them, `rows`. Changes the order of `rows`. */
void case_file_add_hang(struct case_file *c, int64_t quiet_ms, struct inspect_row *rows,
                        size_t count);

/* Appends one line about the first failure, and a NUL. Appends nothing if no worker failed or
 * memory is short. */
void case_file_write_line(const struct case_file *c, struct cr_buffer *out);

/* Appends the line of case_file_write_line() with the worker's message or last line of output, and
 * a NUL. The agent logs this text at once, while other workers still run. Appends nothing if no
 * worker failed or memory is short. */
void case_file_write_first_word(const struct case_file *c, struct cr_buffer *out);

/* Calls `take` with the first failure on this node, to be sent to the other nodes. Does not call
 * `take` if there is no failure or memory is short. */
void case_file_pass_first(const struct case_file *c,
                          void (*take)(void *arg, const struct rendezvous_failure *failure),
                          void *arg);
/* Records a failure that a node has reported; a failure of another round is ignored. */
void case_file_add_failure(struct case_file *c, const struct rendezvous_failure *failure);
/* Adds the failures of this node's workers to c->failures. Call this when the round is over. */
void case_file_add_own_failures(struct case_file *c);
/* Writes verdict.json into the job's log folder if the job has one. `outcome` is a word of
 * docs/verdict.md, `reason` one line or NULL. */
void case_file_write_verdict(struct case_file *c, const char *outcome, const char *reason);
/* Removes verdict.json, which an earlier round may have left. */
void case_file_remove_verdict(const struct case_file *c);

/* Writes the failure report to `out` and returns it as a string, which is valid until `out`
 * changes. If the report has a verdict, also copies the error file of the worker that failed first
 * to the job's own_error_file, and writes the job's failures_file. `failures` is the number of this
 * node's workers that failed in this round; `reason` is the rendezvous's text about a failure on
 * another node. */
const char *case_file_write_report(const struct case_file *c, uint32_t failures,
                                   const struct cr_error *reason, struct cr_buffer *out);

#endif
