/* Formats the last lines of a worker's output for people to read on a terminal. Pure: no I/O. */
#ifndef AGENT_LAST_LINES_H
#define AGENT_LAST_LINES_H

#include "base/buffer.h"

#define LAST_LINES_MAX 20  /* most lines that are shown */
#define LAST_LINE_LEN  400 /* most bytes of a line that are shown */

/* Appends the last lines of `data`, each with `indent` before it and a newline after it. Of a line
 * with carriage returns, it shows only the part after the last one, because a terminal would
 * overwrite the rest. It leaves out blank lines at the end. Control bytes other than tabs, and
 * bytes that are not UTF-8, become \xNN. Returns 0 or -ENOMEM. */
int last_lines_append(struct cr_buffer *out, const char *data, size_t len, const char *indent);

#endif
