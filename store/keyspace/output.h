/* What still has to be sent to one client: bytes, with big values in between by reference.
 *
 *     bytes:   [ replies ……… | ……… replies ……… | … ]
 *                        ▲ value         ▲ value          each chunk knows the place in `bytes`
 *
 * Small values are copied into the bytes; one from STORE_REFERENCE_MIN on is shared with the key
 * space and goes from there to the kernel. Pure: the server turns it into iovecs. */
#ifndef STORE_KEYSPACE_OUTPUT_H
#define STORE_KEYSPACE_OUTPUT_H

#include "base/buffer.h"
#include "store/wire/wire.h"

#include <sys/uio.h>

#define STORE_REFERENCE_MIN 16384u

struct store_chunk {
    size_t at; /* comes after bytes[0..at) */
    struct store_value *value;
};

/* Zero-initialise. */
struct store_output {
    struct cr_buffer bytes;
    size_t bytes_sent;
    struct store_chunk *chunks;
    uint32_t chunk_count, chunk_cap, chunks_sent;
    uint32_t chunk_offset; /* sent of the first unsent chunk's value */
    size_t pending;        /* bytes not yet sent, values included */
};

/* Appending: 0 or -ENOMEM, which leaves a reply cut short: the connection is then lost. */
int store_output_bytes(struct store_output *o, const void *data, size_t len);
int store_output_u8(struct store_output *o, uint8_t v);
int store_output_u64(struct store_output *o, uint64_t v);
/* u64 length and the bytes; NULL is an empty value. */
int store_output_value(struct store_output *o, struct store_value *v);

/* What that adds to the memory in use, about. */
static inline size_t store_output_copies(const struct store_value *v) {
    return 8 + (v == NULL || v->len >= STORE_REFERENCE_MIN ? 0 : v->len);
}

/* The value whose bytes come next, *offset of which are sent; NULL: other bytes come next. */
struct store_value *store_output_front(const struct store_output *o, size_t *offset);

/* Fills up to `max` iovecs with what comes next, when lending only up to a value that can be lent;
 * returns how many. */
int store_output_iov(const struct store_output *o, struct iovec *iov, int max, int lending);

/* The first n bytes are gone. All gone: offsets start again at 0 and the memory is kept. */
void store_output_sent(struct store_output *o, size_t n);

void store_output_done(struct store_output *o);

#endif
