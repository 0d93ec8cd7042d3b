/* The live line is the last line of a terminal. It shows one text that is rewritten in place: a
 * progress bar of a worker, or what crun waits for. All other lines on the terminal appear above
 * it.
 *
 * Several sources may have a text: each worker's stream, and crun. The live line shows the text of
 * one of them, the owner. Another source becomes the owner when the owner has not changed its text
 * for LIVE_LINE_OWNED_MS, so that two progress bars do not overwrite each other. */
#ifndef AGENT_LIVE_LINE_H
#define AGENT_LIVE_LINE_H

#include "agent/output/console.h"

#include <stdbool.h>
#include <stdint.h>

#define LIVE_LINE_OWNED_MS 1000

struct live_line {
    struct console *console; /* the terminal; if it is NULL, the functions draw nothing */
    const void *owner;       /* the source whose text is shown; NULL if there is none */
    struct cr_buffer text;   /* the owner's text */
    int64_t changed_ms;      /* time in ms at which the owner last set its text */
    bool is_drawn;           /* true while the text stands in the terminal's last line */
};

/* Makes `owner` the owner of the live line and `text` its text. Does nothing if the live line has
 * another owner that has set its text less than LIVE_LINE_OWNED_MS ago. The text must not contain a
 * line end. */
void live_line_set(struct live_line *l, const void *owner, const char *text, size_t len,
                   int64_t now_ms);

/* Removes the text if `owner` is the owner. */
void live_line_clear(struct live_line *l, const void *owner);

/* live_line_hide() erases the live line from the terminal, and live_line_show() draws it again.
 * Call them before and after whole lines are written to the terminal. */
void live_line_hide(struct live_line *l);
void live_line_show(struct live_line *l);

void live_line_done(struct live_line *l);

/* Returns how many bytes of `text` fit in `columns` columns. Colours (SGR sequences) take no
 * column; each other character takes one. */
size_t live_line_fit(const char *text, size_t len, size_t columns);

/* Appends `text` to `out`, but no control characters, and of the escape sequences only colours,
 * because the others move the cursor. A tab becomes a blank. Returns 0 or -ENOMEM. */
int live_line_clean(struct cr_buffer *out, const char *text, size_t len);

#endif
