/* A member's lease: when to send the next beat, and when the member must fence itself. Pure.
 *
 * The lease counts from the moment at which the newest answered beat was *sent*. The coordinator
 * counts from the moment at which it received that beat, which is later. So this end's lease is
 * always over first, and the workers are gone before the coordinator gives their ranks away. */
#ifndef RENDEZVOUS_KEEP_ALIVE_INTERNAL_H
#define RENDEZVOUS_KEEP_ALIVE_INTERNAL_H

#include <stdint.h>

struct keep_alive {
    int64_t interval_ms, lease_ms;
    int64_t acked_ms; /* when the newest answered beat was sent; at first: when we connected */
    int64_t beat_ms;  /* when the next beat is due; CR_FOREVER = stopped */
};

/* The lease is so many intervals long. Takes effect with the next beat. */
void keep_alive_set(struct keep_alive *k, int64_t interval_ms, uint32_t intervals);

/* Stopped: no beat is due, and there is no fence. */
void keep_alive_start(struct keep_alive *k, int64_t now_ms);
void keep_alive_stop(struct keep_alive *k);

/* Plans the beat after the one that is sent now. */
void keep_alive_plan(struct keep_alive *k, int64_t now_ms);

/* The beat of `sent_ms` was answered. An old answer, or one from the future, changes nothing. */
void keep_alive_answered(struct keep_alive *k, int64_t sent_ms, int64_t now_ms);

/* When the workers must begin to end: after 5/6 of the lease; the rest is for ending them.
 * CR_FOREVER if stopped. */
int64_t keep_alive_fence(const struct keep_alive *k);
/* What is left of the lease; 0 if it is over. */
int64_t keep_alive_left(const struct keep_alive *k, int64_t now_ms);

#endif
