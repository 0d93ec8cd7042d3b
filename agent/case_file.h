/* The case file collects what is known about the end of each worker, so that the verdict
 * (agent/report) can state which worker failed first and why. The agent records facts in it when
 * they happen. Error files and the last output are read only when a verdict is needed. */
#ifndef AGENT_CASE_FILE_H
#define AGENT_CASE_FILE_H

#include "agent/agent_job.h"
#include "agent/output/log_relay.h"
#include "agent/process/nursery.h"
#include "base/buffer.h"

#include <stdbool.h>

/* The record of one worker. A worker that stays alive keeps its record over several rounds. */
struct case_worker {
    bool has_ended;
    struct worker_exit how; /* set if has_ended */
    struct log_attempt attempt; /* the attempt that started its process */
    /* when the worker was started, or got its ranks in a later round; wall clock, ns since 1970 */
    int64_t started_ns;
    bool timer_expired; /* a timer that the worker had set expired (watchdog.h), which ended it */
    /* if the worker was killed as hung: for how many ms it had made no step; else 0 */
    int64_t hung_ms;
    uint64_t hung_step; /* the last step that the worker made; valid if hung_ms > 0 */
};

struct case_file {
    const struct agent_job *job;
    const char *host;
    const struct log_dir *logs;
    struct log_relay *relay;
    struct case_worker *workers; /* by local rank */
    /* copied from the current round's struct rendezvous_round */
    uint32_t first_rank, restarts, max_restarts;
    uint64_t oom_kills;            /* the memory cgroup's count of kills when the round began */
    /* why the round ended, if a worker gave it up although none had failed; else "" */
    char broken[512];
};

/* Initialises a case file. The pointers must stay valid until case_file_done(). Returns 0 or
 * -ENOMEM. */
int case_file_init(struct case_file *c, const struct agent_job *job, const char *host,
                   const struct log_dir *logs);
/* frees what the case file owns; a zeroed case file is allowed, too */
void case_file_done(struct case_file *c);

/* Call the first function when a round begins, and the second one for each worker that is started
 * in it, which clears that worker's record. */
void case_file_begin_round(struct case_file *c, const struct rendezvous_round *round);
void case_file_begin_worker(struct case_file *c, uint32_t local_rank);

void case_file_add_exit(struct case_file *c, uint32_t local_rank, const struct worker_exit *how);
/* Records that this worker called crunrt_rejoin() although no worker had failed. */
void case_file_add_broken(struct case_file *c, uint32_t local_rank);

/* Appends one line about the first failure and a NUL. Appends nothing if no worker failed, or if
 * memory is short. */
void case_file_write_line(const struct case_file *c, struct cr_buffer *out);

/* Writes the failure report to `out` and returns it as a string, which is valid until `out`
 * changes. Also copies the error file of the first failure to the job's own_error_file. `failures`:
 * how many of this node's workers failed in this round. `reason`: the rendezvous's text about a
 * failure on another node. */
const char *case_file_write_report(const struct case_file *c, uint32_t failures,
                                   const struct cr_error *reason, struct cr_buffer *out);

#endif
