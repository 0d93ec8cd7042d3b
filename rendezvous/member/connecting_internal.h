/* Decides when a member tries to connect to the coordinator, and when it gives up. Pure.
 *
 * A series of tries has a time limit, and each try has one of its own. Between two tries the member
 * waits: at first 10 to 20 ms, and longer after each try, up to 1 s. */
#ifndef RENDEZVOUS_CONNECTING_INTERNAL_H
#define RENDEZVOUS_CONNECTING_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

/* State of one series of tries. A time that does not apply at present is CR_FOREVER. */
struct connecting {
    int64_t give_up_ms; /* no try starts after this time */
    int64_t until_ms;   /* time at which the current try fails */
    int64_t retry_ms;   /* time at which the next try starts */
    int64_t backoff_ms;
    uint64_t jitter;    /* state of a random number generator; any start value will do */
};

void connecting_stop(struct connecting *c);
/* Begins a series with the time limit `patience_ms`. Even if that is 0, the caller makes one
 * try. */
void connecting_begin(struct connecting *c, int64_t now_ms, int64_t patience_ms);
/* Call this when a try starts. It fails after `limit_ms` or at the end of the series, and succeeds
 * with WELCOME (the caller calls connecting_stop()). A connection that the other end closes before
 * WELCOME is a failed try. */
void connecting_try(struct connecting *c, int64_t now_ms, int64_t limit_ms);
/* Call this when a try has failed. Returns true and sets retry_ms if there is time for another try;
 * returns false if the series is over. */
bool connecting_failed(struct connecting *c, int64_t now_ms);

/* Call this to let a series go on until `until_ms` if it would end earlier. Returns false if there
 * is no series. */
bool connecting_extend(struct connecting *c, int64_t until_ms);

bool connecting_is_trying(const struct connecting *c);

#endif
