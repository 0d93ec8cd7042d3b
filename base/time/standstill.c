/* Computes how long this process stood still; see base/time/standstill.h. */
#include "base/time/standstill.h"

int64_t cr_standstill_ms(int64_t late_ms) {
    return late_ms >= CR_STANDSTILL_LEAST_MS ? late_ms + CR_STANDSTILL_LEAST_MS : 0;
}
