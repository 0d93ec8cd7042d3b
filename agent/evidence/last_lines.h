/* Formats the last lines of a worker's output for people to read on a terminal. Pure: no I/O. */
#ifndef AGENT_LAST_LINES_H
#define AGENT_LAST_LINES_H

#include "base/buffer.h"

#define LAST_LINES_MAX 20  /* largest number of lines that are shown */
#define LAST_LINE_LEN  400 /* length in bytes at which a line is cut */

/* Appends the last LAST_LINES_MAX lines of `data`, each with `indent` before it and a newline after
 * it. Blank lines at the end are left out. Of a line with carriage returns, only the part after the
 * last one is appended, because a terminal would overwrite the rest. Control bytes other than tabs,
 * and bytes that are not UTF-8, become \xNN. Returns 0 or -ENOMEM. */
int last_lines_append(struct cr_buffer *out, const char *data, size_t len, const char *indent);

#endif
