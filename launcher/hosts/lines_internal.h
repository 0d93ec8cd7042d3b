/* Puts the host's name in front of each line of the hosts' output. Pure.
 *
 * The bytes of each stream (a host's stdout or stderr) arrive in pieces that may end within a line.
 * Whole lines are written at once. The rest is kept until its line is complete, or until
 * hosts_lines_flush() is called because nothing has arrived for a while: a prompt has no newline.
 * If another stream writes after such an incomplete line, that line is ended with a newline. */
#ifndef LAUNCHER_HOSTS_LINES_H
#define LAUNCHER_HOSTS_LINES_H

#include "base/buffer.h"

#include <stdbool.h>
#include <stdint.h>

#define HOSTS_LINE_MAX ((size_t) 64 << 10) /* most bytes of an incomplete line that are kept */

/* One stream of one host. */
struct hosts_stream {
    struct cr_buffer kept; /* the incomplete last line, not written yet */
};

/* All streams that are written to one descriptor of the starter. */
struct hosts_lines {
    struct hosts_stream *streams; /* [hosts]; owned by the caller, who sets it to 0 */
    const char *const *prefixes;  /* [hosts]: text in front of each line */
    int64_t open;                 /* host that has written part of a line; -1 if none has */
};

/* Processes bytes of a host, and appends to `out` what is to be written. Returns 0 or -ENOMEM. */
int hosts_lines_add(struct hosts_lines *l, uint32_t host, const char *data, size_t len,
                    struct cr_buffer *out);

/* Appends the incomplete line of the host to `out`, without a newline. Returns 0 or -ENOMEM. */
int hosts_lines_flush(struct hosts_lines *l, uint32_t host, struct cr_buffer *out);

/* Call this before something else is written, and at the end: if the last line was written without
 * its newline, appends the newline to `out`. Returns 0 or -ENOMEM. */
int hosts_lines_end(struct hosts_lines *l, struct cr_buffer *out);

#endif
