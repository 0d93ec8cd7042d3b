/* Counts the restarts of a job: see budget_internal.h. */
#include "rendezvous/coordinator/budget_internal.h"

void budget_begin_round(struct budget *b) { b->charged = false; }

bool budget_charge(struct budget *b) {
    if (b->charged) return true;
    if (b->restart_count >= b->max_restarts) return false;
    b->restart_count++;
    b->charged = true;
    return true;
}

void budget_remember(struct budget *b, uint32_t restarts) {
    if (restarts > b->restart_count) b->restart_count = restarts;
}
