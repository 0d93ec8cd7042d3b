/* What a worker wrote about its own failure, in the file that TORCHELASTIC_ERROR_FILE names.
 *
 *   {"message": {"message": "…", "extraInfo": {"py_callstack": "…", "timestamp": "<seconds>"}}}
 *   {"message": "…", "timestamp": <seconds>}
 *
 * Workers die while they write, and write what they like: whatever is in the file, reading it never
 * fails the report. What is no JSON is shown as it is. */
#ifndef AGENT_ERROR_FILE_H
#define AGENT_ERROR_FILE_H

#include "base/buffer.h"

#include <stdint.h>

#define ERROR_FILE_MAX ((size_t) 1 << 20) /* bytes read of one */

struct error_file {
    int present;
    char *message;       /* one text, or NULL */
    char *traceback;     /* py_callstack, or NULL */
    int64_t timestamp_s; /* as stated; -1 if it states none */
    int64_t mtime_ns;    /* of the file, or 0 */
    const char *flaw;    /* static: why it could not be understood, or NULL */
    char *raw;           /* the bytes, for passing on; raw_len of them */
    size_t raw_len;
};

/* Parses `len` bytes (copies what it keeps). Pure. Only memory can fail it: -ENOMEM. */
int error_file_parse(struct error_file *e, const char *data, size_t len);

/* Reads the file; one that is absent, no regular file or unreadable counts as not present. */
void error_file_read(struct error_file *e, const char *path);

void error_file_done(struct error_file *e);

/* Hands the worker's file on to whoever started us: the same JSON, with message.errorCode = the
 * worker's exit code (first form only, unless it is 0). One that is not JSON becomes a record of
 * `fallback`. Replaces what is there. 0 or a negative errno. */
int error_file_pass_on(const struct error_file *e, const char *fallback, int exit_code,
                       const char *path);

#endif
