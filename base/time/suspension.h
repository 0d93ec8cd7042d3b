/* Computes how long this machine was suspended (put to sleep). The monotonic clock, by which all
 * time limits are measured, does not run during a suspension; the boot-time clock does. So the
 * difference of the two clocks grows by the time of a suspension. */
#ifndef CR_SUSPENSION_H
#define CR_SUSPENSION_H

#include <stdint.h>

/* Shortest time in ms that counts as a suspension. The two clocks are read one after the other, so
 * their difference is not exact. */
#define CR_SUSPENSION_LEAST_MS 100

struct cr_suspension {
    int64_t ahead_ns; /* time in ns by which the boot-time clock is ahead of the monotonic clock */
};

/* Stores the present difference of the clocks. */
void cr_suspension_init(struct cr_suspension *s, int64_t boottime_ns, int64_t monotonic_ns);

/* Returns for how many ms the machine was suspended since the last call of this function or of
 * cr_suspension_init(); 0 if it was not, or for less than CR_SUSPENSION_LEAST_MS. */
int64_t cr_suspension_passed_ms(struct cr_suspension *s, int64_t boottime_ns,
                                int64_t monotonic_ns);

#endif
