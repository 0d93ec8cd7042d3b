/* Reads the clocks and computes deadlines; base/time/clock.h declares the functions. */
#include "base/time/clock.h"

#include <limits.h>
#include <stdio.h>
#include <time.h>

static int64_t read_clock(clockid_t id) {
    struct timespec ts;
    (void) clock_gettime(id, &ts); /* cannot fail for CLOCK_MONOTONIC and CLOCK_REALTIME */
    return (int64_t) ts.tv_sec * CR_NS_PER_S + ts.tv_nsec;
}

int64_t cr_monotonic_ns(void) { return read_clock(CLOCK_MONOTONIC); }
int64_t cr_monotonic_ms(void) { return read_clock(CLOCK_MONOTONIC) / CR_NS_PER_MS; }
int64_t cr_wall_ns(void) { return read_clock(CLOCK_REALTIME); }

void cr_utc_text(char out[CR_UTC_TEXT_MAX], int64_t wall_ns, int decimals) {
    time_t seconds = (time_t) (wall_ns / CR_NS_PER_S);
    int64_t fraction = wall_ns % CR_NS_PER_S;
    struct tm utc;
    char time[24] = ""; /* stays empty for a year with more than 8 digits */
    for (int i = decimals; i < 9; i++) fraction /= 10;
    (void) gmtime_r(&seconds, &utc);
    (void) strftime(time, sizeof(time), "%Y-%m-%dT%H:%M:%S", &utc);
    (void) snprintf(out, CR_UTC_TEXT_MAX, "%s.%0*dZ", time, decimals, (int) fraction);
}

int64_t cr_deadline_ms(int64_t timeout_ms) {
    if (timeout_ms < 0) timeout_ms = 0;
    int64_t now = cr_monotonic_ms();
    return timeout_ms > CR_FOREVER - now ? CR_FOREVER : now + timeout_ms;
}

int64_t cr_time_left_ms(int64_t deadline_ms) {
    if (deadline_ms == CR_FOREVER) return CR_FOREVER;
    int64_t left = deadline_ms - cr_monotonic_ms();
    return left > 0 ? left : 0;
}

int cr_poll_timeout(int64_t deadline_ms) {
    if (deadline_ms == CR_FOREVER) return -1;
    int64_t left = cr_time_left_ms(deadline_ms);
    if (left == 0) return 0;
    /* One millisecond is added, so that rounding cannot make poll(2) return before the deadline. */
    return left >= INT_MAX ? INT_MAX : (int) left + 1;
}
