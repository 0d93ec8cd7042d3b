/* Cuts a sequence of bytes into lines. "\n", "\r\n" and a single "\r" end a line, because torchrun
 * reads logs with Python's universal newlines: each update of a progress bar becomes a line. All
 * other bytes are passed unchanged.
 *
 * A splitter keeps at most LINE_MAX_LEN bytes of a line whose end has not come yet. A longer line
 * is passed in pieces of that length; or, if `skips_long` is set, it is not kept at all, and only
 * its place in the input is passed, so that the owner can read it from a file. Pure: no I/O. */
#ifndef AGENT_LINE_SPLITTER_H
#define AGENT_LINE_SPLITTER_H

#include "base/buffer.h"

#include <stdbool.h>
#include <stdint.h>

#define LINE_MAX_LEN ((size_t) 64 * 1024)

/* The state of a splitter. Zero-initialise it; the owner may then set skips_long. */
struct line_splitter {
    struct cr_buffer partial; /* a line whose end has not come yet */
    bool after_cr;   /* the last byte was a "\r": a "\n" that comes next belongs to the same line
                      * end */
    bool skips_long; /* lines longer than LINE_MAX_LEN are not kept */
    bool is_long;    /* the current line is longer than LINE_MAX_LEN and is not kept */
    bool was_given;  /* `partial` is the line that was returned last; the next call clears it */
    uint64_t at;     /* number of bytes taken from the input so far */
    uint64_t from;   /* offset in the input of the first byte of the current line */
};

/* A line, without its line end. */
struct line {
    const char *data; /* valid until the next call for the same splitter; NULL if is_long */
    size_t len;
    uint64_t from, to; /* the line's offsets in the input: [from, to) */
    bool is_long;      /* the line was not kept, see skips_long */
    bool is_update;    /* a "\r" ended the line: a progress bar will overwrite it */
};

/* Takes bytes from *data until a line is complete or all *len bytes are taken, and moves *data and
 * *len behind the bytes taken. Returns 1 and fills in *line; 0 if all bytes were taken and no line
 * was completed; or -ENOMEM if bytes of the current line are lost. */
int line_splitter_next(struct line_splitter *s, const char **data, size_t *len, struct line *line);

/* Call this when the input has ended. If bytes follow the last line end, it stores them as a line
 * in *line and returns 1; else it returns 0. */
int line_splitter_end(struct line_splitter *s, struct line *line);

void line_splitter_done(struct line_splitter *s);

#endif
