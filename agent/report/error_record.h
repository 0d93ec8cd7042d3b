/* What a worker wrote about its own failure, parsed. Pure.
 *
 * torch's @record and libcrunrt write one of these forms:
 *
 *   {"message": {"message": "…", "extraInfo": {"py_callstack": "…", "timestamp": "<seconds>"}}}
 *   {"message": "…", "timestamp": <seconds>}
 *
 * Workers may die while they write, and may write anything. Parsing therefore never fails: a record
 * that cannot be understood has a `flaw` and the raw bytes, which the report shows. */
#ifndef AGENT_ERROR_RECORD_H
#define AGENT_ERROR_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct error_record {
    bool present;        /* there is an error file */
    char *message;       /* or NULL; a value that is not a text, as compact JSON */
    char *traceback;     /* py_callstack, or NULL */
    int64_t timestamp_s; /* as stated in the record; -1 if it states none */
    int64_t mtime_ns;    /* of the file, or 0 */
    const char *flaw;    /* why it cannot be understood, a static text, or NULL */
    char *raw;           /* its bytes, raw_len of them and a NUL; NULL if memory is short */
    size_t raw_len;
};

/* Parses `len` bytes into *r, which is overwritten; copies what it keeps. */
void error_record_parse(struct error_record *r, const char *data, size_t len);

void error_record_done(struct error_record *r);

#endif
