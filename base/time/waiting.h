/* Decides when a node that waits logs a line about it: first after 5 s, and after that at growing
 * intervals, so that a short wait is silent and a long wait does not fill the log. Pure. */
#ifndef CR_WAITING_H
#define CR_WAITING_H

#include <stdint.h>

/* Returns when the line number `line` (counted from 0) is due, in ms after the start of the wait:
 * after 5 s, 15 s, 35 s, 75 s, then every 60 s. */
int64_t cr_waiting_line_ms(uint32_t line);

#endif
