/* Decides when a node that waits says so: first after 5 s, later at growing intervals, so that a
 * short wait is silent and a long one does not fill the log. Pure. */
#ifndef CR_WAITING_H
#define CR_WAITING_H

#include <stdint.h>

/* Returns the time, in ms after the start of the wait, of the line number `line` (counted from 0):
 * 5 s, 15 s, 35 s, 75 s, and every 60 s from then on. */
int64_t cr_waiting_line_ms(uint32_t line);

#endif
