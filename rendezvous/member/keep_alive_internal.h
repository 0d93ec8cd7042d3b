/* A member's lease: when it has to send the next beat, and when it must stop its workers because
 * the coordinator does not answer (the fence). Pure.
 *
 * The lease is counted from the moment at which the newest answered beat was *sent*. The
 * coordinator counts it from the moment at which it received that beat, which is later. So the
 * lease always ends at the member first, and the workers are gone before the coordinator gives
 * their ranks to other nodes. */
#ifndef RENDEZVOUS_KEEP_ALIVE_INTERNAL_H
#define RENDEZVOUS_KEEP_ALIVE_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

struct keep_alive {
    int64_t interval_ms, lease_ms;
    /* time at which the newest answered beat was sent; before the first answer, the time at which
     * the node connected. The lease is counted from it. */
    int64_t acked_ms;
    int64_t beat_ms;  /* when the next beat is due; CR_FOREVER = no beats are sent */
    bool has_lease;   /* the lease counts, so there is a fence */
};

/* Sets the keep-alive interval, and the lease to `intervals` such intervals. The time of the next
 * beat changes only with the next keep_alive_plan(). */
void keep_alive_set(struct keep_alive *k, int64_t interval_ms, uint32_t intervals);

/* keep_alive_start() begins a lease for a new connection. After keep_alive_stop() no beat is due,
 * and there is no fence. */
void keep_alive_start(struct keep_alive *k, int64_t now_ms);
void keep_alive_stop(struct keep_alive *k);
/* Call this when the connection is gone, but the lease still counts: no beat is due until the next
 * keep_alive_plan(), and the fence stays. */
void keep_alive_suspend(struct keep_alive *k);

/* Call this when a beat is sent at now_ms. It computes when the next beat is due. */
void keep_alive_plan(struct keep_alive *k, int64_t now_ms);
/* Makes the next beat due at now_ms, unless no beats are sent. */
void keep_alive_hasten(struct keep_alive *k, int64_t now_ms);

/* Call this when the answer to the beat that was sent at sent_ms has come. If a newer beat was
 * answered already, or if sent_ms is later than now_ms, it does nothing. */
void keep_alive_answered(struct keep_alive *k, int64_t sent_ms, int64_t now_ms);

/* Returns the fence: when the member must begin to stop its workers if no beat is answered before.
 * That is after 5/6 of the lease, so that the last sixth is left for stopping them. CR_FOREVER if
 * keep_alive_stop() was called. */
int64_t keep_alive_fence(const struct keep_alive *k);
/* Returns how much time is left of the lease; 0 if it is over. */
int64_t keep_alive_left(const struct keep_alive *k, int64_t now_ms);

#endif
