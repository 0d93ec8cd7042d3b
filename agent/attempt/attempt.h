/* Starts the workers of a round: prepares log folders, streams and environments, and starts all
 * processes at once. A parked worker is not started; it gets the new round in its process. */
#ifndef AGENT_ATTEMPT_H
#define AGENT_ATTEMPT_H

#include "agent/agent_job.h"
#include "agent/attempt/role.h"
#include "agent/channel/worker_channel.h"
#include "agent/output/log_relay.h"
#include "agent/process/nursery.h"
#include "agent/record/record.h"
#include "agent/report/report.h"

#include <stdbool.h>

/* What is needed to start workers. The pointers must be valid while a function below runs. */
struct attempt {
    const struct agent_job *job;
    const struct rendezvous_round *round;
    struct log_dir *logs;
    struct log_relay *relay;
    struct worker_channels *channels;
    struct nursery *nursery;
    struct fork_server *fork_server; /* starts workers if it can; NULL if there is none */
    struct case_file *case_file;
    struct event_source events;
    /* by local rank; NULL if the worker has no process. worker_arg() of a worker points to its
     * element of this array */
    struct worker_process **processes;
};

/* Starts each worker i for which starts[i] is true. The other workers are parked, and keep their
 * log files. Sets starts[i] to false for each worker that could not be started. Returns 0; or a
 * negative errno, and sets err to a text that says what failed. */
int attempt_start(const struct attempt *a, bool *starts, struct cr_error *err);

/* Starts the worker `local_rank`, which has ended, again in the same round. First ends the
 * processes that it has left in its Unix process group. The new process appends to the log files of
 * the old one. Returns 0; or a negative errno, and sets err to a text that says what failed. */
int attempt_restart(const struct attempt *a, uint32_t local_rank, struct cr_error *err);

/* Sends a parked worker its ranks in the new round. Returns 0; or a negative errno if its channel
 * is broken, so that the worker does not learn of the round. */
int attempt_hand_over(const struct attempt *a, uint32_t local_rank);

#endif
