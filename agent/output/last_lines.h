/* The last words of a stream, for people: a bounded memory of its last bytes, and the last lines of
 * any bytes with what a terminal must not see escaped. Pure. */
#ifndef AGENT_LAST_LINES_H
#define AGENT_LAST_LINES_H

#include "base/buffer.h"

#define LAST_BYTES_MAX 16384 /* kept of a stream */
#define LAST_LINES_MAX 20    /* shown of it */
#define LAST_LINE_LEN  400   /* bytes shown of one line */

/* Zero-initialise. Takes memory with the first byte only: most streams stay silent. */
struct last_bytes {
    char *data; /* LAST_BYTES_MAX, a ring */
    size_t total;
};

void last_bytes_add(struct last_bytes *l, const char *data, size_t len); /* out of memory: forgets */
int last_bytes_copy(const struct last_bytes *l, struct cr_buffer *out);   /* appends; 0 or -ENOMEM */
void last_bytes_done(struct last_bytes *l);

/* Appends the last lines of `data`, each after `indent`, each ended by a newline. Of what a "\r"
 * wrote over, only the last state; trailing blank lines are left out. Control bytes and bytes that
 * are not UTF-8 become \xNN. 0 or -ENOMEM. */
int last_lines_write(struct cr_buffer *out, const char *data, size_t len, const char *indent);

/* Appends one text with control bytes (newlines too) and bytes that are not UTF-8 as \xNN. */
int last_lines_escape(struct cr_buffer *out, const char *data, size_t len);

#endif
