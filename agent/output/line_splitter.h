/* Cuts a sequence of bytes into lines. "\n", "\r\n" and a single "\r" end a line, as in Python's
 * universal newlines, with which torchrun reads logs; so each update of a progress bar becomes a
 * line. All other bytes are passed unchanged.
 *
 * A splitter keeps at most LINE_MAX_LEN bytes of a line whose end has not come yet. If `skips_long`
 * is false, a longer line is passed in pieces of LINE_MAX_LEN bytes. If `skips_long` is true, a
 * longer line is not kept: only its offsets in the input are passed, and the owner can read the
 * line from a file. Pure: no I/O. */
#ifndef AGENT_LINE_SPLITTER_H
#define AGENT_LINE_SPLITTER_H

#include "base/buffer.h"

#include <stdbool.h>
#include <stdint.h>

#define LINE_MAX_LEN ((size_t) 64 * 1024)

/* The state of a splitter. Zero-initialise it; the owner may then set skips_long. */
struct line_splitter {
    struct cr_buffer partial; /* the kept bytes of a line whose end has not come yet */
    bool after_cr;   /* true if the last byte taken was a "\r": a "\n" after it belongs to the same
                      * line end */
    /* True if an input ended with "\r" and the next one began with "\n". Both are one line end, so
     * the line that was returned for the "\r" was an ordinary line, although its is_update is true.
     * The caller has to set was_pair to false again. */
    bool was_pair;
    bool skips_long; /* true if lines longer than LINE_MAX_LEN are passed as offsets only (struct
                      * line, is_long) */
    bool is_long;    /* true if the current line is longer than LINE_MAX_LEN and is not kept */
    /* true if `partial` is the line that was returned last; the next call empties `partial` */
    bool was_given;
    uint64_t at;     /* number of bytes taken from the input so far */
    uint64_t from;   /* offset in the input of the first byte of the current line */
};

/* A line, without its line end. */
struct line {
    const char *data; /* valid until the next call for the same splitter, while the input is not
                       * changed; NULL if is_long */
    size_t len;
    uint64_t from, to; /* the line's offsets in the input: [from, to) */
    bool is_long;      /* true if the line was too long to be kept, so that only its offsets are
                        * known */
    /* true if a "\r" ended the line, as it ends an update of a progress bar. If the "\r" was the
     * last byte of the input, the next call may find its "\n" and set was_pair */
    bool is_update;
};

/* Takes bytes from *data until a line is complete or all *len bytes are taken. Increases *data, and
 * decreases *len, by the number of bytes taken. Returns 1 and fills in *line if a line is complete;
 * 0 if all bytes were taken and no line was completed; or -ENOMEM if all bytes were taken, but
 * could not be kept and are lost. */
int line_splitter_next(struct line_splitter *s, const char **data, size_t *len, struct line *line);

/* Takes the whole lines at the beginning of `data` in one call, at most LINE_MAX_LEN bytes. This is
 * possible only if the first line did not begin in an earlier input, and if each line ends with a
 * single "\n". Returns the number of bytes taken; 0 if the caller has to take the next line by
 * line_splitter_next(). */
size_t line_splitter_take_whole(struct line_splitter *s, const char *data, size_t len);

/* Call this when the input has ended. If bytes follow the last line end, it stores them as a line
 * in *line and returns 1; else it returns 0. */
int line_splitter_end(struct line_splitter *s, struct line *line);

void line_splitter_done(struct line_splitter *s);

#endif
