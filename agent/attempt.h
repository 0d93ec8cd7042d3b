/* Starting a round's workers: log folders, streams, environments, then all processes at once. A
 * parked worker gets the new round in its process instead. */
#ifndef AGENT_ATTEMPT_H
#define AGENT_ATTEMPT_H

#include "agent/agent_job.h"
#include "agent/case_file.h"
#include "agent/output/log_relay.h"
#include "agent/process/nursery.h"
#include "agent/report/report.h"
#include "agent/worker_channel.h"

#include <stdbool.h>

/* All that a start needs. Everything is borrowed. */
struct attempt {
    const struct agent_job *job;
    const struct rendezvous_round *round;
    struct log_dir *logs;
    struct log_relay *relay;
    struct worker_channels *channels;
    struct nursery *nursery;
    struct case_file *case_file;
    struct event_source events;
    struct worker_process **processes; /* by local rank; NULL for those without one. A worker's
                                          worker_arg() is its place in this list */
};

/* Starts every worker i with starts[i]; clears starts[i] for those that could not be started. The
 * others are parked, and their logs go on. Returns 0, or a negative errno with a text. */
int attempt_start(const struct attempt *a, bool *starts, struct cr_error *err);

/* Gives a parked worker its place in the round. Returns 0, or a negative errno: its channel is
 * broken, so that it cannot learn of the round. */
int attempt_hand_over(const struct attempt *a, uint32_t local_rank);

#endif
