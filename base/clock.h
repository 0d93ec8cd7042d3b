/* Clocks. Monotonic for every deadline and duration; wall time only for what people read. */
#ifndef CR_CLOCK_H
#define CR_CLOCK_H

#include <stdint.h>

#define CR_NS_PER_MS INT64_C(1000000)
#define CR_NS_PER_S  INT64_C(1000000000)

#define CR_FOREVER INT64_MAX /* a timeout or deadline that never comes */

int64_t cr_monotonic_ns(void);
int64_t cr_monotonic_ms(void);
int64_t cr_wall_ns(void); /* since 1970, UTC */

/* now + timeout_ms, saturating: CR_FOREVER stays CR_FOREVER; negative counts as 0. */
int64_t cr_deadline_ms(int64_t timeout_ms);

/* Milliseconds until a deadline: 0 when past; CR_FOREVER stays CR_FOREVER. */
int64_t cr_time_left_ms(int64_t deadline_ms);

/* Milliseconds until a deadline as poll(2) wants them: -1 for CR_FOREVER, 0 when past, rounded so
 * that a wait never ends before the deadline, capped at INT_MAX. */
int cr_poll_timeout(int64_t deadline_ms);

#endif
