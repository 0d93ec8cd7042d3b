/* Reads the clocks and computes deadlines. A deadline is a time of the monotonic clock in
 * milliseconds. The wall clock can be set back, so it is used only for times that people or other
 * programs write or read. */
#ifndef CR_CLOCK_H
#define CR_CLOCK_H

#include <stdint.h>

#define CR_NS_PER_MS INT64_C(1000000)
#define CR_NS_PER_S  INT64_C(1000000000)

#define CR_FOREVER INT64_MAX /* as a timeout in ms: without a limit; as a deadline: never */

int64_t cr_monotonic_ns(void);
int64_t cr_monotonic_ms(void);
int64_t cr_wall_ns(void); /* nanoseconds since 1970, UTC */

#define CR_UTC_TEXT_MAX 40 /* size in bytes of a buffer for cr_utc_text(), with room for a NUL */
/* Writes a time of the wall clock in UTC as in RFC 3339, with `decimals` (1 to 9) decimals of the
 * second: "2026-11-22T09:30:00.125Z" with 3. The last decimals are cut off, not rounded. */
void cr_utc_text(char out[CR_UTC_TEXT_MAX], int64_t wall_ns, int decimals);

/* Returns the deadline that is timeout_ms from now. A timeout of CR_FOREVER gives the deadline
 * CR_FOREVER; a negative timeout counts as 0. */
int64_t cr_deadline_ms(int64_t timeout_ms);

/* Returns the milliseconds until the deadline, 0 if it has passed. For the deadline CR_FOREVER it
 * returns CR_FOREVER. */
int64_t cr_time_left_ms(int64_t deadline_ms);

/* Returns the timeout argument for a poll(2) that shall wait until the deadline: -1 (no limit) for
 * CR_FOREVER, 0 if the deadline has passed, else the milliseconds until the deadline, at most
 * INT_MAX. These milliseconds are rounded up, so that poll(2) does not return before the
 * deadline. */
int cr_poll_timeout(int64_t deadline_ms);

#endif
