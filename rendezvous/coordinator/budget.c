/* Counts the restarts of a job: see budget_internal.h. */
#include "rendezvous/coordinator/budget_internal.h"

#include "base/assert.h"

bool budget_is_left(const struct budget *b) { return b->restart_count < b->max_restarts; }

void budget_charge(struct budget *b) {
    CR_ASSERT(budget_is_left(b));
    b->restart_count++;
}

void budget_remember(struct budget *b, uint32_t restarts) {
    if (restarts > b->restart_count) b->restart_count = restarts;
}
