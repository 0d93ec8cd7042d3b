/* Clocks, deadlines and time left. Deadlines and durations use the monotonic clock; the wall
 * clock is only for times that people read. */
#ifndef CR_CLOCK_H
#define CR_CLOCK_H

#include <stdint.h>

#define CR_NS_PER_MS INT64_C(1000000)
#define CR_NS_PER_S  INT64_C(1000000000)

#define CR_FOREVER INT64_MAX /* a timeout or a deadline that never comes */

int64_t cr_monotonic_ns(void);
int64_t cr_monotonic_ms(void);
int64_t cr_wall_ns(void); /* since 1970, UTC */

/* Now plus timeout_ms. CR_FOREVER stays CR_FOREVER, and a negative timeout counts as 0. */
int64_t cr_deadline_ms(int64_t timeout_ms);

/* Milliseconds until a deadline; 0 once it is past. CR_FOREVER stays CR_FOREVER. */
int64_t cr_time_left_ms(int64_t deadline_ms);

/* Milliseconds until a deadline as poll(2) takes them: -1 for CR_FOREVER, 0 once it is past, at
 * most INT_MAX. Rounded up, so that the wait does not end before the deadline. */
int cr_poll_timeout(int64_t deadline_ms);

#endif
