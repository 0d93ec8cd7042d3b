/* The last lines of a worker's output, written for people to read on a terminal. Pure. */
#ifndef AGENT_LAST_LINES_H
#define AGENT_LAST_LINES_H

#include "base/buffer.h"

#define LAST_LINES_MAX 20  /* lines shown */
#define LAST_LINE_LEN  400 /* bytes shown of one line */

/* Appends the last lines of `data`, each after `indent` and ended by a newline. A carriage return
 * moves to the start of the line on a terminal, so only what follows the last one is shown.
 * Trailing blank lines are left out. Control bytes other than tabs, and bytes that are not UTF-8,
 * become \xNN. Returns 0 or -ENOMEM. */
int last_lines_append(struct cr_buffer *out, const char *data, size_t len, const char *indent);

#endif
