/* Notices that this process stood still: it was stopped (SIGSTOP, a suspended Slurm job, a
 * debugger), or the machine was. A late timer shows that. The clocks do not, because they go on
 * while processes are stopped. */
#ifndef CR_STANDSTILL_H
#define CR_STANDSTILL_H

#include <stdint.h>

/* A timer that fires late by so much (ms) or more shows a standstill. */
#define CR_STANDSTILL_LEAST_MS 200

/* Call this when a timer has fired late_ms too late, before anything is decided by a time limit.
 * Returns how many ms to leave out of all time limits, or 0 if this process has not stood still.
 * The result is longer than late_ms by CR_STANDSTILL_LEAST_MS: in a turn of the loop timers come
 * before input, so what other processes have written meanwhile is still to be read. */
int64_t cr_standstill_ms(int64_t late_ms);

#endif
