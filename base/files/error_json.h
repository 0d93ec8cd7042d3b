/* Writes torch's error file. Torch's @record stores in this file, as one JSON object, why a process
 * failed. If another launcher runs crun as its worker, that launcher reads the error file of crun.
 *
 *   {"message": {"message": "…", "extraInfo": {"py_callstack": "…", "timestamp": "<seconds>"}}}
 *
 * Launcher, agent and worker runtime all write error files with these functions. The functions use
 * no JSON library, because the worker runtime is linked into user programs, which should not get
 * another dependency. The format is that of torch's
 * distributed/elastic/multiprocessing/errors/error_handler.py. */
#ifndef CR_ERROR_JSON_H
#define CR_ERROR_JSON_H

#include "base/text/text.h"

#include <stdint.h>

/* The constant parts of an error record, for code that must not allocate, such as a signal handler.
 * Such code writes the record piece by piece: HEAD, the message, STACK, the call stack, TIME, the
 * seconds since 1970, TAIL. Message and call stack are JSON strings with their quotes, the seconds
 * are plain digits. */
#define CR_ERROR_JSON_HEAD  "{\"message\": {\"message\": "
#define CR_ERROR_JSON_STACK ", \"extraInfo\": {\"py_callstack\": "
#define CR_ERROR_JSON_TIME  ", \"timestamp\": \""
#define CR_ERROR_JSON_TAIL  "\"}}}\n"

/* longest message, and longest call stack, in bytes; a longer one is cut */
#define CR_ERROR_JSON_TEXT_MAX CR_JSON_STRING_MAX

/* Appends one error record as a line with its newline. `seconds` is the time of the failure in
 * seconds since 1970. Pure. Returns 0 or -ENOMEM. */
int cr_error_json_append(struct cr_buffer *out, const char *message, const char *call_stack,
                         int64_t seconds);

/* Replaces the contents of the file `path` by data[0..len). The function writes a new file in the
 * same folder and renames the new file to `path`. A rename replaces a file in one step, so a reader
 * sees either the old or the new contents. If the new file cannot be written or renamed, for
 * example because the folder is not writable, the function overwrites `path` in place; a reader may
 * then see incomplete contents. Returns 0 or a negative errno. */
int cr_error_json_write_file(const char *path, const char *data, size_t len);

#endif
