/* Decides when a member tries to connect to the coordinator, and when it gives up. Pure.
 *
 * A series of tries has a time limit, and each try has a time limit of its own. Between two tries
 * the member waits: at first 10 to 20 ms, and longer after each try, up to 1 s. */
#ifndef RENDEZVOUS_CONNECTING_INTERNAL_H
#define RENDEZVOUS_CONNECTING_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

/* State of one series of tries. A time that does not apply at present is CR_FOREVER. */
struct connecting {
    int64_t give_up_ms; /* end of the series: no try starts after this time */
    int64_t until_ms;   /* time at which the current try fails */
    int64_t retry_ms;   /* time at which the next try starts */
    int64_t backoff_ms;
    uint64_t jitter;    /* state of a random number generator; may begin with any value */
};

void connecting_stop(struct connecting *c);
/* Begins a series of tries with the time limit `patience_ms`. If that is 0, the series has one
 * try. */
void connecting_begin(struct connecting *c, int64_t now_ms, int64_t patience_ms);
/* Sets the time limit of a try; call this when the try starts. The try fails after `limit_ms`, at
 * the end of the series, or when the other end closes the connection before WELCOME. The try has
 * succeeded when WELCOME comes; in that case call connecting_stop(). */
void connecting_try(struct connecting *c, int64_t now_ms, int64_t limit_ms);
/* Call this when a try has failed. If there is time for another try, sets retry_ms and returns
 * true. If the series is over, returns false. */
bool connecting_failed(struct connecting *c, int64_t now_ms);

/* Makes the present series last until `until_ms`, unless it ends later anyway, and returns true.
 * Returns false if there is no series. */
bool connecting_extend(struct connecting *c, int64_t until_ms);

bool connecting_is_trying(const struct connecting *c);

#endif
