/* When a member tries to connect, and when it gives up. Pure.
 *
 * All tries of a series together have a time limit. One try may take one lease. Between two
 * tries the member waits, at first 10 to 20 ms, then up to 1 s. */
#ifndef RENDEZVOUS_CONNECTING_INTERNAL_H
#define RENDEZVOUS_CONNECTING_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

/* Each time is CR_FOREVER when it does not apply. */
struct connecting {
    int64_t give_up_ms; /* no try starts after that */
    int64_t until_ms;   /* the try under way ends then */
    int64_t retry_ms;   /* the next try starts then */
    int64_t backoff_ms;
    uint64_t jitter;    /* state of a small random generator; any start value */
};

void connecting_stop(struct connecting *c);
/* Begins a series with the time limit `patience_ms`. At least one try is made. */
void connecting_begin(struct connecting *c, int64_t now_ms, int64_t patience_ms);
/* One try starts now, and may take `limit_ms`. */
void connecting_try(struct connecting *c, int64_t now_ms, int64_t limit_ms);
/* The try has led to a connection. The series goes on until connecting_stop(): a connection that
 * the other end closes at once counts as one more failure. */
void connecting_connected(struct connecting *c);
/* The try failed. Returns whether there is time for another one; it is due at retry_ms. */
bool connecting_failed(struct connecting *c, int64_t now_ms);

bool connecting_is_trying(const struct connecting *c);

#endif
