/* The times of the lines of a node that waits: see base/waiting.h. */
#include "base/waiting.h"

#define FIRST_MS   INT64_C(5000)
#define LONGEST_MS INT64_C(60000)
#define GROWING    UINT32_C(4) /* lines whose intervals are twice as long as the one before */

int64_t cr_waiting_line_ms(uint32_t line) {
    uint32_t growing = line < GROWING ? line : GROWING - 1;
    /* 5 s + 10 s + … : the sum of the first n + 1 powers of 2 is 2^(n + 1) - 1 */
    int64_t grown_ms = FIRST_MS * ((INT64_C(2) << growing) - 1);
    return grown_ms + (int64_t) (line - growing) * LONGEST_MS;
}
