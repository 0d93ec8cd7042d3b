/* Cuts a stream of bytes into lines. "\n", "\r\n" and a single "\r" end a line, because torchrun
 * reads logs with Python's universal newlines: every step of a progress bar becomes a line. All
 * other bytes are passed as they are. A line longer than LINE_MAX_LEN is passed in pieces of that
 * length. Pure. */
#ifndef AGENT_LINE_SPLITTER_H
#define AGENT_LINE_SPLITTER_H

#include "base/buffer.h"

#include <stdbool.h>

#define LINE_MAX_LEN ((size_t) 64 * 1024)

/* Zero-initialise. */
struct line_splitter {
    struct cr_buffer partial; /* a line whose end has not come yet */
    bool after_cr;            /* the last byte was a "\r": a "\n" next belongs to it */
};

/* Gets a line without its end; borrowed. A negative result ends the feeding. */
typedef int (*line_fn)(void *arg, const char *line, size_t len);

/* Returns 0, -ENOMEM, or what on_line returned below 0. */
int line_splitter_feed(struct line_splitter *s, const char *data, size_t len, line_fn on_line,
                       void *arg);

/* The stream has ended: passes what is left as a line. Returns as line_splitter_feed(). */
int line_splitter_end(struct line_splitter *s, line_fn on_line, void *arg);

void line_splitter_done(struct line_splitter *s);

#endif
