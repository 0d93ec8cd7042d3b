/* When a member tries to connect, and when it gives up. Pure.
 *
 * All attempts together have a time limit. A single attempt may take one lease. Between two
 * attempts the member waits, at first 10 to 20 ms, then up to 1 s. */
#ifndef RENDEZVOUS_ATTEMPTS_INTERNAL_H
#define RENDEZVOUS_ATTEMPTS_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

/* Each time is CR_FOREVER when it does not apply. */
struct attempts {
    int64_t give_up_ms; /* no attempt starts after that */
    int64_t until_ms;   /* the attempt under way ends then */
    int64_t retry_ms;   /* the next attempt starts then */
    int64_t backoff_ms;
    uint64_t jitter;    /* state of a small random generator; any start value */
};

void attempts_stop(struct attempts *a);
/* A new series with the time limit `patience_ms`. One attempt is always made. */
void attempts_begin(struct attempts *a, int64_t now_ms, int64_t patience_ms);
/* One attempt starts now, and may take `limit_ms`. */
void attempts_start(struct attempts *a, int64_t now_ms, int64_t limit_ms);
/* The attempt has led to a connection. The series goes on until attempts_stop(): a connection
 * that the other end closes at once counts as one more failure. */
void attempts_connected(struct attempts *a);
/* The attempt failed. Returns whether there is time for another one; it is due at retry_ms. */
bool attempts_failed(struct attempts *a, int64_t now_ms);

bool attempts_is_trying(const struct attempts *a);

#endif
