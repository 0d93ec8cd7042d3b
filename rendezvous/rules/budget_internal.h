/* Counts what has gone wrong in a job, by kind, and decides whether the job may go on, and when.
 * Pure.
 *
 * Two kinds cost something. A failed worker costs one restart of --max-restarts; charge.c decides
 * whether a round costs a restart. A round that ends because a node is gone costs one loss of
 * max_losses. A round costs at most one restart and at most one loss. Further, standing.c counts
 * for each host the nodes that are lost soon after they have joined. */
#ifndef RENDEZVOUS_BUDGET_INTERNAL_H
#define RENDEZVOUS_BUDGET_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

struct budget {
    uint32_t max_restarts;
    uint32_t spent;         /* restarts that were charged, and neither refunded nor refilled */
    /* The restart count that nodes get. It never shrinks: after a refund it stays larger than
     * `spent` + `refilled` until the next charge. */
    uint32_t restart_count;
    uint32_t refilled;      /* restarts that were charged and then given back by a refill */

    bool limits_losses;     /* true: max_losses applies; false: losses never end the job */
    uint32_t max_losses;    /* how many rounds may end because a node is gone */
    uint32_t losses;        /* rounds that have ended because a node is gone */
    uint64_t rounds_lost;   /* number of the last round in `losses`, plus 1; 0 = there was none */

    int64_t refill_ms;      /* a round that runs this long refills the budget; 0 = none does */
    int64_t backoff_ms;     /* wait before the next round after a charged failure; 0 = none */
    uint32_t in_row;        /* charged failures since the last refill or long round */
};

bool budget_is_left(const struct budget *b);
/* Charges one restart; budget_is_left() must be true. */
void budget_charge(struct budget *b);
/* Takes back the last charge. */
void budget_refund(struct budget *b);
/* Call this when a node reports that the job has had `restarts` restarts. If that is more than
 * restart_count, an earlier coordinator has charged them, and restart_count and `spent` become
 * `restarts`. If the budget can be refilled, some of these restarts may have been given back, so at
 * most max_restarts of them count as spent. */
void budget_remember(struct budget *b, uint32_t restarts);

/* Call this when a round has ended by a failure after it has run for ran_ms. A round that has run
 * for refill_ms refills the budget. A round that has run for refill_ms, or for BUDGET_CALM_MS if
 * refill_ms is 0, also ends a series of failures, so that back-off begins anew. */
#define BUDGET_CALM_MS INT64_C(300000)
void budget_progress(struct budget *b, int64_t ran_ms);
/* Returns for how many ms the next round must wait after a failure that is about to be charged:
 * backoff_ms after the first failure of a series, twice as long after each further failure, but at
 * most BUDGET_BACKOFF_MAX_MS, unless backoff_ms itself is longer. */
#define BUDGET_BACKOFF_MAX_MS INT64_C(300000)
int64_t budget_backoff(const struct budget *b);

/* Counts a loss. Call this when the round with the number `round` has ended because a node is gone.
 * A second call for the same round counts nothing. */
void budget_lost(struct budget *b, uint64_t round);
/* Returns whether more rounds have ended by the loss of a node than max_losses allows. */
bool budget_is_out_of_losses(const struct budget *b);

#endif
