/* Computes from two clocks how long this machine was suspended. */
#include "base/time/suspension.h"

#include "base/time/clock.h"

void cr_suspension_init(struct cr_suspension *s, int64_t boottime_ns, int64_t monotonic_ns) {
    s->ahead_ns = boottime_ns - monotonic_ns;
}

int64_t cr_suspension_passed_ms(struct cr_suspension *s, int64_t boottime_ns,
                                int64_t monotonic_ns) {
    int64_t ahead_ns = boottime_ns - monotonic_ns;
    int64_t passed_ms = (ahead_ns - s->ahead_ns) / CR_NS_PER_MS;
    if (passed_ms < CR_SUSPENSION_LEAST_MS) return 0;
    s->ahead_ns = ahead_ns;
    return passed_ms;
}
