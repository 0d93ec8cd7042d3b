/* Puts the host's name in front of each line of the hosts' output. Pure.
 *
 * The bytes of each stream (a host's stdout or stderr) arrive in pieces that can end within a line.
 * Complete lines are written at once. The bytes of an incomplete line are kept until the line is
 * complete, or until hosts_lines_flush() is called because nothing has arrived for a while: a
 * prompt, for example, has no newline. If another stream writes after such an incomplete line, a
 * newline is written in between. */
#ifndef LAUNCHER_HOSTS_LINES_H
#define LAUNCHER_HOSTS_LINES_H

#include "base/buffer.h"

#include <stdbool.h>
#include <stdint.h>

#define HOSTS_LINE_MAX ((size_t) 64 << 10) /* when this many bytes are kept, they are written */

/* One stream of one host. */
struct hosts_stream {
    struct cr_buffer kept; /* the bytes of an incomplete line that are not written yet */
};

/* All streams whose lines go to one descriptor of the starter. */
struct hosts_lines {
    struct hosts_stream *streams; /* [hosts]; owned by the caller, who sets it to 0 */
    const char *const *prefixes;  /* [hosts]: text in front of each line */
    int64_t open;                 /* host whose incomplete line ends the text that was written; -1
                                   * if that text ends with a complete line */
};

/* Appends to `out` the complete lines that the next bytes of the host give, and keeps the rest.
 * Returns 0 or -ENOMEM. */
int hosts_lines_add(struct hosts_lines *l, uint32_t host, const char *data, size_t len,
                    struct cr_buffer *out);

/* Appends the kept bytes of the host's incomplete line to `out`, without a newline. Returns 0 or
 * -ENOMEM. */
int hosts_lines_flush(struct hosts_lines *l, uint32_t host, struct cr_buffer *out);

/* Call this before other text is written to the same descriptor, and when all output is written. If
 * the last line was incomplete, appends a newline to `out`. Returns 0 or -ENOMEM. */
int hosts_lines_end(struct hosts_lines *l, struct cr_buffer *out);

#endif
