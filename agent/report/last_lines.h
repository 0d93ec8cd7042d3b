/* Formats the last lines of a worker's output for people to read on a terminal. Pure: no I/O. */
#ifndef AGENT_LAST_LINES_H
#define AGENT_LAST_LINES_H

#include "base/buffer.h"

#define LAST_LINES_MAX 20  /* how many lines are shown */
#define LAST_LINE_LEN  400 /* how many bytes of a line are shown */

/* Appends the last lines of `data`, each preceded by `indent` and ended by a newline. Of a line
 * with carriage returns only the part after the last carriage return is shown, because a terminal
 * would overwrite the rest. Trailing blank lines are left out. Control bytes other than tabs, and
 * bytes that are not UTF-8, become \xNN. Returns 0 or -ENOMEM. */
int last_lines_append(struct cr_buffer *out, const char *data, size_t len, const char *indent);

#endif
