/* Cuts a stream of bytes into lines. "\n", "\r\n" and a lone "\r" end one (torchrun reads logs with
 * universal newlines, so that every step of a progress bar becomes a line). Any other byte passes as
 * it is. A line longer than LINE_MAX_LEN comes in pieces of that length. Pure. */
#ifndef AGENT_LINE_SPLITTER_H
#define AGENT_LINE_SPLITTER_H

#include "base/buffer.h"

#define LINE_MAX_LEN ((size_t) 64 * 1024)

struct line_splitter {
    struct cr_buffer partial; /* of a line whose end has not come yet */
    int after_cr;             /* a "\n" right now belongs to the "\r" before it */
};

/* Without its end; borrowed. What it returns below 0 ends the feeding with that code. */
typedef int (*line_fn)(void *arg, const char *line, size_t len);

/* 0, -ENOMEM, or what `on_line` returned. */
int line_splitter_feed(struct line_splitter *s, const char *data, size_t len, line_fn on_line,
                       void *arg);

/* The stream has ended: what is left is a line too. */
int line_splitter_end(struct line_splitter *s, line_fn on_line, void *arg);

void line_splitter_done(struct line_splitter *s);

#endif
