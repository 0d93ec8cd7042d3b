/* An error record is what a worker wrote about its own failure, parsed. Pure: no I/O.
 *
 * torch's @record and libcrunrt write one of these forms:
 *
 *   {"message": {"message": "…", "extraInfo": {"py_callstack": "…", "timestamp": "<seconds>"}}}
 *   {"message": "…", "timestamp": <seconds>}
 *
 * A worker may die while it writes, and a program may write anything else into the file. Parsing
 * therefore never fails: a record that cannot be understood has a `flaw`, and keeps the raw bytes,
 * which the failure report shows. */
#ifndef AGENT_ERROR_RECORD_H
#define AGENT_ERROR_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct error_record {
    bool present; /* true if the worker has written an error file */
    /* the message, or NULL; a JSON value that is no string is given as compact JSON */
    char *message;
    char *traceback;     /* the value of py_callstack, or NULL */
    int64_t timestamp_s; /* time that the record states, in seconds since 1970; -1 if it states
                          * none */
    int64_t mtime_ns;    /* modification time of the file in ns since 1970; 0 if unknown */
    const char *flaw; /* why the record cannot be understood (static text); NULL if it can */
    char *raw;        /* the raw_len bytes of the file and a NUL; NULL if memory is short */
    size_t raw_len;
};

/* Parses `len` bytes into *r, whose old content is overwritten and not freed. Keeps no pointer to
 * `data`. */
void error_record_parse(struct error_record *r, const char *data, size_t len);

void error_record_done(struct error_record *r);

#endif
