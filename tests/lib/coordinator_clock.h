/* The virtual clock of unit tests that drive a coordinator. */
#ifndef TESTS_COORDINATOR_CLOCK_H
#define TESTS_COORDINATOR_CLOCK_H

#include "rendezvous/coordinator/coordinator.h"

/* Calls coordinator_tick() at each deadline of the coordinator until the time end_ms, which is
 * included, and sets *now_ms to end_ms. */
static inline void coordinator_run_until(struct coordinator *c, int64_t *now_ms, int64_t end_ms) {
    while (coordinator_deadline(c) <= end_ms) {
        if (coordinator_deadline(c) > *now_ms) *now_ms = coordinator_deadline(c);
        coordinator_tick(c, *now_ms);
    }
    *now_ms = end_ms;
}

#endif
