/* The last bytes of a stream, in a ring of fixed size. Pure. */
#ifndef AGENT_LAST_BYTES_H
#define AGENT_LAST_BYTES_H

#include "base/buffer.h"

#include <stdbool.h>

#define LAST_BYTES_MAX 16384 /* kept of a stream */

/* Zero-initialise. Memory is taken with the first byte, because most streams stay silent. */
struct last_bytes {
    char *data;   /* LAST_BYTES_MAX bytes, or NULL */
    size_t total; /* bytes added so far; the next one goes to total % LAST_BYTES_MAX */
    bool lost;    /* there was no memory for the ring: no bytes are kept from then on */
};

void last_bytes_add(struct last_bytes *l, const char *data, size_t len);

/* Appends the last LAST_BYTES_MAX bytes, or as many as there were. Returns 0; or -ENOMEM, also if
 * there was no memory when they were added. */
int last_bytes_copy(const struct last_bytes *l, struct cr_buffer *out);

void last_bytes_done(struct last_bytes *l);

#endif
