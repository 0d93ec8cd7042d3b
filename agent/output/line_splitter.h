/* Cuts a sequence of bytes into lines. "\n", "\r\n" and a single "\r" end a line, because torchrun
 * reads logs with Python's universal newlines: each update of a progress bar becomes a line. All
 * other bytes are passed unchanged. A line longer than LINE_MAX_LEN is passed in pieces of that
 * length. Pure: no I/O. */
#ifndef AGENT_LINE_SPLITTER_H
#define AGENT_LINE_SPLITTER_H

#include "base/buffer.h"

#include <stdbool.h>

#define LINE_MAX_LEN ((size_t) 64 * 1024)

/* The state of a splitter; zero-initialise it. */
struct line_splitter {
    struct cr_buffer partial; /* a line whose end has not come yet */
    bool after_cr; /* the last byte was a "\r", so a "\n" that comes next belongs to it */
};

/* Receives one line without its line end. `line` is valid during the call only. If the function
 * returns a negative number, line_splitter_feed() stops and returns that number. */
typedef int (*line_fn)(void *arg, const char *line, size_t len);

/* Adds bytes, and calls on_line for each line that is complete. Returns 0, -ENOMEM, or the negative
 * result of on_line. */
int line_splitter_feed(struct line_splitter *s, const char *data, size_t len, line_fn on_line,
                       void *arg);

/* Call this when the input has ended: passes the bytes after the last line end, if any, as a line.
 * Returns as line_splitter_feed() does. */
int line_splitter_end(struct line_splitter *s, line_fn on_line, void *arg);

void line_splitter_done(struct line_splitter *s);

#endif
