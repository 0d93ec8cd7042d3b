/* Finds out which program of the job a worker runs, and computes the worker's numbers within its
 * role. Pure. */
#ifndef AGENT_ROLE_H
#define AGENT_ROLE_H

#include "agent/agent_job.h"
#include "agent/node/node.h"

/* Returns the program of the worker, or NULL if the job has no list of programs. */
const struct agent_program *agent_program_of(const struct agent_job *job, uint32_t local_rank);

/* A worker's place among the workers of its role. */
struct agent_role {
    const char *name;
    uint32_t rank, world_size;
    char *const *argv; /* what the worker executes */
};

/* Returns the place of a worker of this node in the round. Nodes with the same rendezvous role have
 * the same programs, so each of them has as many workers of a role as this node. */
struct agent_role agent_role_of(const struct agent_job *job, const struct rendezvous_round *round,
                                uint32_t local_rank);

/* Returns the rules for the worker: what crun does when the worker fails, how often it may be
 * restarted alone, and whether the job waits for its end. */
struct node_policy agent_policy_of(const struct agent_job *job, uint32_t local_rank);

#endif
