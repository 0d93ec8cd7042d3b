/* The count of a job's restarts. */
#include "rendezvous/rules/budget_internal.h"

#include "base/assert.h"

bool budget_is_left(const struct budget *b) { return b->spent < b->max_restarts; }

void budget_charge(struct budget *b) {
    CR_ASSERT(budget_is_left(b));
    b->spent++;
    if (b->spent > b->restart_count) b->restart_count = b->spent;
}

void budget_refund(struct budget *b) {
    CR_ASSERT(b->spent > 0);
    b->spent--;
}

void budget_remember(struct budget *b, uint32_t restarts) {
    if (restarts > b->restart_count) b->restart_count = b->spent = restarts;
}
