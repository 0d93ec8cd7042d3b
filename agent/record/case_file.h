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
#include "base/log/log.h"

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
    struct xid_watch *xids;        /* reports errors of GPUs; NULL if none is open */
    struct failures failures;      /* failures that nodes have reported in this round */
    uint64_t oom_kills;            /* out-of-memory kills that the memory cgroup had counted when
                                    * the round began */
    uint64_t oom_kills_since;      /* out-of-memory kills that the memory cgroup has counted since
                                    * the round began; valid if has_oom_kills */
    bool has_oom_kills;            /* true if oom_kills_since is up to date: no worker has ended
                                    * since it was counted */
    struct cr_buffer verdict; /* text of verdict.json that has been formed and not been saved */
    int verdict_rc;           /* 0; or -ENOMEM if that text could not be formed */
    enum cr_log_level verdict_level; /* level at which an error of saving that text is logged */
    /* result of the round's last inquiry, which names the rank that others wait for; "" if there
     * was no inquiry */
    char behind[512];
    /* why the round could not go on although no worker had ended: a worker called crunrt_rejoin()
     * without a reason, a worker has written a bad value, or the workers hung; "" if none of these
     * has happened */
    char broken[1000];
    /* "hang" if the workers hung, "value" after a bad value, "gave up" if a worker parked without a
     * reason; valid if `broken` is not "" */
    const char *broken_kind;
    uint32_t broken_rank;          /* the rank that `broken` names */
    int64_t broken_pid, broken_ns; /* pid of broken_rank, 0 if unknown; and the time at which
                                    * `broken` was set, in ns since 1970 by the wall clock */
    int64_t quiet_ms;              /* if the workers hung in this round: for how many ms they had
                                    * been quiet; else 0 */
    struct cr_buffer inspection; /* lines of text that say where the workers hung; empty if they did
                                  * not hang */
};

/* Initialises a case file. `job`, `host` and `logs` must stay valid until case_file_done(). Returns
 * 0 or -ENOMEM. */
int case_file_init(struct case_file *c, const struct agent_job *job, const char *host,
                   const struct log_dir *logs);
/* Frees what the case file owns; the case file may also be all zeros. */
void case_file_done(struct case_file *c);

/* Call case_file_begin_round() when a round begins: it stores the numbers of the round, and clears
 * the failures of the round before. Then call case_file_begin_worker() for each worker that is
 * started in the round: it clears the worker's record. */
void case_file_begin_round(struct case_file *c, const struct rendezvous_round *round);
void case_file_begin_worker(struct case_file *c, uint32_t local_rank);

void case_file_add_exit(struct case_file *c, uint32_t local_rank, const struct worker_exit *how);
/* Records that the worker `local_rank` called crunrt_rejoin() although no worker had failed. */
void case_file_add_broken(struct case_file *c, uint32_t local_rank);

/* Records the result of an inquiry (rendezvous/rendezvous.h). */
void case_file_add_behind(struct case_file *c, const char *what);
/* Records that the workers have hung for quiet_ms milliseconds. `what` is a line that names the
 * reason and the odd rank, whose process is `pid` (0 if unknown). The failure is this node's, even
 * if the rank belongs to another node. */
void case_file_add_hang(struct case_file *c, int64_t quiet_ms, uint32_t rank, int64_t pid,
                        const char *what);
/* Forgets the lines that say where the workers hung. */
void case_file_drop_inspection(struct case_file *c);
/* Appends to the lines that say where the workers of the job hung. */
void case_file_add_inspection(struct case_file *c, const char *lines);
/* Records that the worker `local_rank`, with this pid (0 if it has ended), has written a bad value;
 * `what` says which rule it has broken. */
void case_file_add_bad_value(struct case_file *c, uint32_t local_rank, int64_t pid,
                             const char *what);

/* Appends one line about the first failure, and a NUL. Appends nothing if no worker failed or
 * memory is short. */
void case_file_write_line(struct case_file *c, struct cr_buffer *out);

/* Appends the line of case_file_write_line() with the worker's message or last line of output, and
 * a NUL. The agent logs this text at once, while other workers still run. Appends nothing if no
 * worker failed or memory is short. */
void case_file_write_first_word(struct case_file *c, struct cr_buffer *out);

/* Calls `take` with the first failure on this node; `take` sends it to the other nodes. Does not
 * call `take` if there is no failure or memory is short. */
void case_file_pass_first(struct case_file *c,
                          void (*take)(void *arg, const struct rendezvous_failure *failure),
                          void *arg);
/* Records a failure that a node has reported; a failure of another round is ignored. */
void case_file_add_failure(struct case_file *c, const struct rendezvous_failure *failure);
/* Adds the failures of this node's workers to c->failures. Call this when the round is over. */
void case_file_add_own_failures(struct case_file *c);
/* Forms the text of verdict.json if the job has a log folder. `outcome` is a word of
 * docs/verdict.md, `reason` one line or NULL. */
void case_file_form_verdict(struct case_file *c, const char *outcome, const char *reason);
/* Writes the text of case_file_form_verdict() into the job's log folder. Does nothing if there is
 * no text. May be called after the next round has begun, so that its workers need not wait for the
 * file system. */
void case_file_save_verdict(struct case_file *c);
/* Removes verdict.json, which an earlier round may have left. */
void case_file_remove_verdict(const struct case_file *c);

/* Writes the failure report to `out` and returns it as a string, which is valid until `out`
 * changes. If the report is a verdict on this node's workers, also copies the error record of the
 * worker that failed first to the job's own_error_file, and writes the job's failures_file.
 * `failures` is the number of this node's workers that failed in this round; `reason` is the
 * rendezvous's text about a failure on another node. */
const char *case_file_write_report(struct case_file *c, uint32_t failures,
                                   const struct cr_error *reason, struct cr_buffer *out);

#endif
