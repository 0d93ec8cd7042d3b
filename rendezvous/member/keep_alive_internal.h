/* A member's lease: when the member has to send the next beat, and when it must stop its workers
 * because the coordinator does not answer (the fence). Pure.
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
    /* The lease is counted from this time: when the newest answered beat was sent, or, before the
     * first answer, when the node connected. */
    int64_t acked_ms;
    int64_t beat_ms;  /* time at which the next beat is due; CR_FOREVER = none is due */
    bool has_lease;   /* true: the lease runs, so there is a fence */
};

/* Sets the keep-alive interval, and the lease to `intervals` times that. The time at which the next
 * beat is due stays as it is until keep_alive_plan() is called. */
void keep_alive_set(struct keep_alive *k, int64_t interval_ms, uint32_t intervals);

/* keep_alive_start() begins a lease at now_ms, when a new connection is made. After
 * keep_alive_stop() no beat is due, and there is no fence. */
void keep_alive_start(struct keep_alive *k, int64_t now_ms);
void keep_alive_stop(struct keep_alive *k);
/* Call this when the connection is gone, but the lease still runs. No beat is due until
 * keep_alive_plan() is called; the fence stays. */
void keep_alive_suspend(struct keep_alive *k);

/* Call this when a beat is sent at now_ms. Computes when the next beat is due. */
void keep_alive_plan(struct keep_alive *k, int64_t now_ms);
/* Makes the next beat due at now_ms. Does nothing if no beat is due at any time. */
void keep_alive_hasten(struct keep_alive *k, int64_t now_ms);

/* Call this when the answer to the beat that was sent at sent_ms has come: the lease is now counted
 * from sent_ms. Does nothing if a newer beat was answered already, or if sent_ms is later than
 * now_ms. */
void keep_alive_answered(struct keep_alive *k, int64_t sent_ms, int64_t now_ms);

/* Returns the fence: the time at which the member must begin to stop its workers if no beat is
 * answered before. At the fence 5/6 of the lease are over; the last sixth is for stopping the
 * workers. Returns CR_FOREVER after keep_alive_stop(). */
int64_t keep_alive_fence(const struct keep_alive *k);
/* Counts a suspension of this machine of slept_ms ms as a part of the lease. The clock has not
 * counted this time, so without this call the lease would end too late. */
void keep_alive_slept(struct keep_alive *k, int64_t slept_ms);
/* Returns the time at which the workers must be gone even if this process stands still; CR_FOREVER
 * after keep_alive_stop(). The time is 17/16 of a lease after acked_ms. It is later than one lease,
 * at whose end the member itself stops the workers, and earlier than 9/8 of a lease, when the
 * coordinator gives up the node. */
int64_t keep_alive_end(const struct keep_alive *k);
/* Returns how much time is left of the lease, in ms; 0 if the lease is over. */
int64_t keep_alive_left(const struct keep_alive *k, int64_t now_ms);

#endif
