/* The counts of a job's restarts and losses. */
#include "rendezvous/rules/budget_internal.h"

#include "base/assert.h"

bool budget_is_left(const struct budget *b) { return b->spent < b->max_restarts; }

void budget_charge(struct budget *b) {
    CR_ASSERT(budget_is_left(b));
    b->spent++;
    b->in_row++;
    if (b->spent + b->refilled > b->restart_count) b->restart_count = b->spent + b->refilled;
}

void budget_refund(struct budget *b) {
    CR_ASSERT(b->spent > 0);
    b->spent--;
    if (b->in_row > 0) b->in_row--;
}

void budget_remember(struct budget *b, uint32_t restarts) {
    if (restarts <= b->restart_count) return;
    b->restart_count = b->spent = restarts;
    b->refilled = 0;
    if (b->refill_ms == 0 || restarts <= b->max_restarts) return;
    b->refilled = restarts - b->max_restarts;
    b->spent = b->max_restarts;
}

void budget_progress(struct budget *b, int64_t ran_ms) {
    bool refills = b->refill_ms > 0 && ran_ms >= b->refill_ms;
    if (refills) {
        b->refilled += b->spent;
        b->spent = 0;
    }
    if (refills || (b->refill_ms == 0 && ran_ms >= BUDGET_CALM_MS)) b->in_row = 0;
}

int64_t budget_backoff(const struct budget *b) {
    int64_t wait_ms = b->backoff_ms;
    if (wait_ms == 0) return 0;
    for (uint32_t i = 0; i < b->in_row && wait_ms < BUDGET_BACKOFF_MAX_MS; i++) wait_ms *= 2;
    return wait_ms > BUDGET_BACKOFF_MAX_MS && b->backoff_ms <= BUDGET_BACKOFF_MAX_MS
               ? BUDGET_BACKOFF_MAX_MS
               : wait_ms;
}

void budget_lost(struct budget *b, uint64_t round) {
    if (b->rounds_lost == round + 1) return;
    b->rounds_lost = round + 1;
    b->losses++;
}

bool budget_is_out_of_losses(const struct budget *b) {
    return b->limits_losses && b->losses > b->max_losses;
}
