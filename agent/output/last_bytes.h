/* Keeps the last bytes of a stream for the failure report, in a ring buffer of fixed size. Pure: no
 * I/O. */
#ifndef AGENT_LAST_BYTES_H
#define AGENT_LAST_BYTES_H

#include "base/buffer.h"

#include <stdbool.h>

#define LAST_BYTES_MAX 16384 /* number of bytes of a stream that are kept */

/* Zero-initialise a struct last_bytes. The ring buffer is allocated when the first byte is added,
 * because most streams never have a byte. */
struct last_bytes {
    char *data;   /* the ring buffer, LAST_BYTES_MAX bytes; NULL until the first byte is added */
    size_t total; /* bytes added so far; the next byte goes to data[total % LAST_BYTES_MAX] */
    bool lost;    /* true if the ring buffer could not be allocated, so that no bytes are kept */
};

void last_bytes_add(struct last_bytes *l, const char *data, size_t len);

/* Appends the last LAST_BYTES_MAX bytes of the stream to `out`, or all bytes if there were fewer.
 * Returns 0; or -ENOMEM if memory is short now, or was short when the first byte was added. */
int last_bytes_copy(const struct last_bytes *l, struct cr_buffer *out);

void last_bytes_done(struct last_bytes *l);

#endif
