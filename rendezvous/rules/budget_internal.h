/* Counts the restarts of a job, and how many it has left. Pure.
 *
 * A failed worker costs one restart. A round costs one restart at most: the first failure ends the
 * round, and later failures of its workers cost nothing more. charge.c decides whether a round
 * costs a restart. */
#ifndef RENDEZVOUS_BUDGET_INTERNAL_H
#define RENDEZVOUS_BUDGET_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

struct budget {
    uint32_t max_restarts;
    uint32_t spent;         /* restarts that were charged and not refunded */
    /* The restart count that nodes get. It never shrinks: after a refund it stays larger than
     * `spent` until the next charge. */
    uint32_t restart_count;
};

bool budget_is_left(const struct budget *b);
/* Charges one restart; budget_is_left() must be true. */
void budget_charge(struct budget *b);
/* Takes back the last charge. */
void budget_refund(struct budget *b);
/* Call this when a node reports that the job has had `restarts` restarts. If that is more than this
 * coordinator has counted, an earlier coordinator has charged them, and both counts become
 * `restarts`. */
void budget_remember(struct budget *b, uint32_t restarts);

#endif
