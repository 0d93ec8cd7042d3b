/* The error file of torch's @record: the JSON object in which a failed process states its cause.
 *
 *   {"message": {"message": "…", "extraInfo": {"py_callstack": "…", "timestamp": "<seconds>"}}}
 *
 * Launcher, agent and worker runtime write it with these functions alone. They need no JSON
 * library, because the worker runtime lives in other people's processes. Source: torch's
 * distributed/elastic/multiprocessing/errors/error_handler.py. */
#ifndef CR_ERROR_JSON_H
#define CR_ERROR_JSON_H

#include "base/buffer.h"

#include <stdint.h>

/* The text around the values, for a signal handler that must not allocate: HEAD, the message,
 * STACK, the call stack, TIME, the seconds since 1970, TAIL. The first two values are JSON strings
 * with their quotes, the third is digits. */
#define CR_ERROR_JSON_HEAD  "{\"message\": {\"message\": "
#define CR_ERROR_JSON_STACK ", \"extraInfo\": {\"py_callstack\": "
#define CR_ERROR_JSON_TIME  ", \"timestamp\": \""
#define CR_ERROR_JSON_TAIL  "\"}}}\n"

#define CR_ERROR_JSON_TEXT_MAX ((size_t) 64 * 1024) /* bytes of each text; the rest is cut off */

/* Appends `text` as a JSON string with its quotes. A byte that is not part of a valid UTF-8
 * character becomes U+FFFD. Pure. Returns 0 or -ENOMEM. */
int cr_json_string_append(struct cr_buffer *out, const char *text);

/* Appends one error record, a line with its newline. `seconds` since 1970, as people read it.
 * Pure. Returns 0 or -ENOMEM. */
int cr_error_json_append(struct cr_buffer *out, const char *message, const char *call_stack,
                         int64_t seconds);

/* Replaces the file at `path` by `data`. The data is written to a new file beside it, which is then
 * renamed, so that no reader sees half of it; where the folder does not allow a new file, `path`
 * itself is written. Returns 0 or a negative errno. */
int cr_error_json_write_file(const char *path, const char *data, size_t len);

#endif
