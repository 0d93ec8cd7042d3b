/* Reads the clocks and computes deadlines. A deadline is a time of the monotonic clock in
 * milliseconds. The wall clock, which may be set back, is only used for times that people read. */
#ifndef CR_CLOCK_H
#define CR_CLOCK_H

#include <stdint.h>

#define CR_NS_PER_MS INT64_C(1000000)
#define CR_NS_PER_S  INT64_C(1000000000)

#define CR_FOREVER INT64_MAX /* timeout or deadline, in ms, that never ends */

int64_t cr_monotonic_ns(void);
int64_t cr_monotonic_ms(void);
int64_t cr_wall_ns(void); /* nanoseconds since 1970, UTC */

/* Returns the deadline that is timeout_ms from now. A timeout of CR_FOREVER gives the deadline
 * CR_FOREVER; a negative timeout counts as 0. */
int64_t cr_deadline_ms(int64_t timeout_ms);

/* Returns the milliseconds until the deadline, 0 if it has passed. For the deadline CR_FOREVER it
 * returns CR_FOREVER. */
int64_t cr_time_left_ms(int64_t deadline_ms);

/* Returns the timeout argument for a poll(2) that shall wait until the deadline: -1 (no limit) for
 * CR_FOREVER, 0 if the deadline has passed, at most INT_MAX. It is rounded up, so that the wait
 * does not end before the deadline. */
int cr_poll_timeout(int64_t deadline_ms);

#endif
