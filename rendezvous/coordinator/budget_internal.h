/* How many restarts a job has left. Pure.
 *
 * A failure costs one restart, and one round costs one restart at most: when two workers of a round
 * fail, the second one has failed in a round that was over already. */
#ifndef RENDEZVOUS_BUDGET_INTERNAL_H
#define RENDEZVOUS_BUDGET_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

struct budget {
    uint32_t max_restarts, restart_count;
    bool charged; /* for the current round */
};

void budget_begin_round(struct budget *b);
/* A worker failed in the current round. Returns false if the budget is spent: then the job ends. */
bool budget_charge(struct budget *b);
/* A node remembers so many restarts, from before this coordinator began. */
void budget_remember(struct budget *b, uint32_t restarts);

#endif
