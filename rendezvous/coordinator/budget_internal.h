/* Counts the restarts of a job, and how many it has left. Pure.
 *
 * A failed worker costs one restart. One round costs one restart at most: the first failure ends
 * the round, so further workers that fail in it are part of the same restart. */
#ifndef RENDEZVOUS_BUDGET_INTERNAL_H
#define RENDEZVOUS_BUDGET_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

struct budget {
    uint32_t max_restarts, restart_count;
    bool charged; /* the current round has cost a restart already */
};

void budget_begin_round(struct budget *b);
/* Call this when a worker has failed in the current round. Returns false if no restart is left, so
 * that the job must end. */
bool budget_charge(struct budget *b);
/* Call this when a node reports that the job has had `restarts` restarts. A new coordinator learns
 * in this way what its predecessor has counted. */
void budget_remember(struct budget *b, uint32_t restarts);

#endif
