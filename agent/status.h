/* Makes the snapshot of a node: what its job and its workers do now (docs/status.md). Nothing is
 * collected beforehand: the workers' pages and /proc are read when a snapshot is made. */
#ifndef AGENT_STATUS_H
#define AGENT_STATUS_H

#include "agent/agent_job.h"
#include "agent/channel/worker_channel.h"
#include "agent/node/node.h"
#include "agent/output/log_relay.h"
#include "agent/process/nursery.h"
#include "agent/record/record.h"
#include "rendezvous/rendezvous.h"

#include <jansson.h>

/* What a snapshot is made from. The pointers must be valid during the calls below. */
struct node_status {
    const struct agent_job *job;
    const struct rendezvous_round *round; /* NULL before the first round */
    const struct node *node;
    struct worker_process *const *processes; /* by local rank; NULL for a worker without process */
    struct rendezvous *rendezvous;           /* NULL if the rendezvous is closed */
    const struct worker_channels *channels;
    const struct log_relay *relay;
    const struct case_file *case_file;
    struct history *history;
};

/* Returns a new snapshot, or NULL if memory is short. */
json_t *node_status_snapshot(const struct node_status *s);

/* Calls `take` for each worker of this node that is in the round, with what a snapshot says of the
 * worker. This node sends it to the coordinator, which shows it in the snapshots of the hosting
 * node. The texts are valid until `take` returns. */
void node_status_report(const struct node_status *s,
                        void (*take)(void *arg, const struct rendezvous_rank *rank), void *arg);

/* Returns NULL if this node's workers are started; otherwise why they are not. */
const char *node_status_why_not_ready(const struct node_status *s);

#endif
