/* The workers of a job with several programs: implements agent/attempt/role.h. */
#include "agent/attempt/role.h"

#include <string.h>

const struct agent_program *agent_program_of(const struct agent_job *job, uint32_t local_rank) {
    uint32_t first = 0;
    for (uint32_t i = 0; i < job->program_count; i++) {
        first += job->programs[i].workers;
        if (local_rank < first) return &job->programs[i];
    }
    return NULL;
}

/* Counts the workers of this node that have the role `name`: all of them, or only those with a
 * local rank below `end`. Several programs may have the same role. */
static uint32_t count_role(const struct agent_job *job, const char *name, uint32_t end) {
    uint32_t first = 0, count = 0;
    for (uint32_t i = 0; i < job->program_count && first < end; i++) {
        const struct agent_program *p = &job->programs[i];
        uint32_t these = p->workers < end - first ? p->workers : end - first;
        if (strcmp(p->role, name) == 0) count += these;
        first += p->workers;
    }
    return count;
}

struct agent_role agent_role_of(const struct agent_job *job, const struct rendezvous_round *round,
                                uint32_t local_rank) {
    const struct agent_program *p = agent_program_of(job, local_rank);
    uint32_t node_workers = job->rendezvous.local_world_size;
    if (job->program_count <= 1) {
        return (struct agent_role){.name = job->rendezvous.role,
                                   .rank = round->first_role_rank + local_rank,
                                   .world_size = round->role_world_size,
                                   .argv = job->argv};
    }
    uint32_t of_role = count_role(job, p->role, node_workers);
    uint32_t nodes = round->role_world_size / node_workers;
    uint32_t nodes_before = round->first_role_rank / node_workers;
    return (struct agent_role){.name = p->role,
                               .rank = nodes_before * of_role +
                                       count_role(job, p->role, local_rank),
                               .world_size = nodes * of_role,
                               .argv = p->argv};
}

struct node_policy agent_policy_of(const struct agent_job *job, uint32_t local_rank) {
    static const enum node_on_failure policies[] = {[AGENT_RESTARTS_ALL] = NODE_RESTARTS_ALL,
                                                    [AGENT_RESTARTS_ALONE] = NODE_RESTARTS_ALONE,
                                                    [AGENT_ENDS_JOB] = NODE_ENDS_JOB};
    const struct agent_program *p = agent_program_of(job, local_rank);
    if (p == NULL) return (struct node_policy){0};
    return (struct node_policy){.on_failure = policies[p->on_failure],
                                .restarts = p->restarts,
                                .is_service = p->is_service};
}
