/* Computes when a node that waits logs its lines: implements base/time/waiting.h. */
#include "base/time/waiting.h"

#define FIRST_MS   INT64_C(5000)
#define LONGEST_MS INT64_C(60000)
#define GROWING    UINT32_C(4) /* number of lines at the beginning, which come at doubling
                                * intervals: 5, 10, 20, 40 s */

int64_t cr_waiting_line_ms(uint32_t line) {
    uint32_t growing = line < GROWING ? line : GROWING - 1;
    /* the sum of the intervals 5 s * 2^0 to 5 s * 2^n is 5 s * (2^(n + 1) - 1) */
    int64_t grown_ms = FIRST_MS * ((INT64_C(2) << growing) - 1);
    return grown_ms + (int64_t) (line - growing) * LONGEST_MS;
}
