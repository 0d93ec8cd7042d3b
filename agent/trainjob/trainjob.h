/* Reports the job's status to Kubeflow's TrainJob: how far the training is, how long it may take,
 * and a few metrics, as TrainJob's status server takes them (its proposal 2779 and the type
 * TrainerStatus of trainer.kubeflow.org/v1alpha1). docs/schedulers.md says what a user sees.
 *
 * Only the node with group rank 0 reports: when a round begins, in the interval of the options, and
 * once more when the job has succeeded. A report that fails costs a warning; it never fails the
 * job. This header does not include libuv, so that the pure code of this chamber can include it. */
#ifndef AGENT_TRAINJOB_H
#define AGENT_TRAINJOB_H

#include "agent/agent_job.h"

#include <stdbool.h>
#include <stdint.h>

struct uv_loop_s;
struct trainjob;

/* What this node knows about the job now. */
struct trainjob_progress {
    bool leads; /* true if this node has group rank 0 in the current round */
    uint64_t round;
    uint32_t restarts, workers; /* restarts of the job so far; number of workers in the round */
    /* number of steps in this round of the worker of this node that has made the fewest; 0 if no
     * worker of this node counts its steps */
    uint64_t steps;
    double steps_per_s; /* average of that worker in this round; 0 if it is not known yet */
    bool is_done;       /* true if the job has succeeded */
};

/* Starts the reporter. `options` must stay valid until on_close. `read` is called before each
 * report, with `arg`. Returns NULL, and logs a warning, if no report can be sent: the URL is
 * unusable, or memory is short. */
struct trainjob *trainjob_open(struct uv_loop_s *loop, const struct agent_trainjob *options,
                               void (*read)(void *arg, struct trainjob_progress *out), void *arg);

/* Call this when a round has begun. If this node leads the round, this sends a report, and sends
 * further ones in the interval of the options. Otherwise this node sends no report in the round. */
void trainjob_round(struct trainjob *t);

/* Call this when the job has succeeded. Sends the last report, if this node leads the round. */
void trainjob_done(struct trainjob *t);

/* Closes the reporter and frees it. If the last report is under way, this first waits for its
 * answer, for 3 s at most. */
void trainjob_close(struct trainjob *t, void (*on_close)(void *arg));

#endif
