/* Keeps the last bytes of a stream, in a ring of fixed size, for the failure report. Pure: no
 * I/O. */
#ifndef AGENT_LAST_BYTES_H
#define AGENT_LAST_BYTES_H

#include "base/buffer.h"

#include <stdbool.h>

#define LAST_BYTES_MAX 16384 /* the most bytes of a stream that are kept */

/* Zero-initialise a struct last_bytes. The ring is allocated when the first byte is added, because
 * most streams never have one. */
struct last_bytes {
    char *data;   /* the ring of LAST_BYTES_MAX bytes; NULL until the first byte is added */
    size_t total; /* bytes added so far; the next byte goes to data[total % LAST_BYTES_MAX] */
    bool lost;    /* true if the ring could not be allocated; then no bytes are kept */
};

void last_bytes_add(struct last_bytes *l, const char *data, size_t len);

/* Appends the last LAST_BYTES_MAX bytes of the stream to `out`, or all bytes if there were fewer.
 * Returns 0; or -ENOMEM if memory is short now, or was short when the ring had to be allocated. */
int last_bytes_copy(const struct last_bytes *l, struct cr_buffer *out);

void last_bytes_done(struct last_bytes *l);

#endif
