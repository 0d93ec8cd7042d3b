/* The case file: what is known about the end of each worker, so that the verdict (agent/report) can
 * tell which one failed first and why. The agent notes facts when they happen; the case file adds
 * error files and the last output when the verdict is needed. */
#ifndef AGENT_CASE_FILE_H
#define AGENT_CASE_FILE_H

#include "agent/agent_job.h"
#include "agent/output/log_relay.h"
#include "agent/process/nursery.h"
#include "base/buffer.h"

#include <stdbool.h>

/* What is known of one worker. A worker that stays alive keeps its record over several rounds. */
struct case_worker {
    bool has_ended;
    struct worker_exit how; /* once it has ended */
    uint32_t attempt;       /* in which its process was started: names its log folder */
    int64_t started_ns;     /* wall clock: when it got its place in the round */
    bool timer_expired;     /* its own timer was over (watchdog.h), so it was sent a signal */
    int64_t hung_ms;        /* it was killed for making no step for so long; 0 = it was not … */
    uint64_t hung_step;     /* … after this step */
};

struct case_file {
    const struct agent_job *job;
    const char *host;
    const struct log_dir *logs;
    struct log_relay *relay;
    struct case_worker *workers; /* by local rank */
    uint32_t first_rank, restarts; /* of the round */
    uint64_t oom_kills;            /* that our memory cgroup had counted before the round */
    char broken[512]; /* the round ended because of this, although no worker failed; or "" */
};

/* The pointers are borrowed. 0 or -ENOMEM. */
int case_file_init(struct case_file *c, const struct agent_job *job, const char *host,
                   const struct log_dir *logs);
void case_file_done(struct case_file *c); /* a zeroed one is fine */

/* A round begins; records of its workers are begun anew one by one. */
void case_file_begin_round(struct case_file *c, const struct rendezvous_round *round);
void case_file_begin_worker(struct case_file *c, uint32_t local_rank);

void case_file_add_exit(struct case_file *c, uint32_t local_rank, const struct worker_exit *how);
/* This worker gave up the round though none had failed. */
void case_file_add_broken(struct case_file *c, uint32_t local_rank);

/* Appends one line about the first failure and a NUL. Appends nothing if there is none to tell of,
 * or no memory. */
void case_file_write_line(const struct case_file *c, struct cr_buffer *out);

/* Writes the failure report, NUL-terminated, and copies the first failure's error file to where our
 * own parent wants it. `failures`: of this node's workers in this round. `reason`: what the
 * rendezvous says of a failure elsewhere. Returns the text, borrowed until `out` changes. */
const char *case_file_write_report(const struct case_file *c, uint32_t failures,
                                   const struct cr_error *reason, struct cr_buffer *out);

#endif
