/* What still has to be sent to one client: bytes, with references to big values in between.
 *
 *     bytes:   [ replies ……… | ……… replies ……… | … ]
 *                        ▲ value         ▲ value          each chunk has its place in `bytes`
 *
 * Small values are copied into the bytes. A value of STORE_REFERENCE_MIN bytes or more is
 * shared with the key space and sent from where it lies. Pure: the server turns the output into
 * iovecs. */
#ifndef STORE_KEYSPACE_OUTPUT_H
#define STORE_KEYSPACE_OUTPUT_H

#include "base/buffer.h"
#include "store/keyspace/value.h"

#include <sys/uio.h>

#define STORE_REFERENCE_MIN 16384u

struct store_chunk {
    size_t at; /* the value comes behind bytes[0..at) */
    struct store_value *value;
};

/* Zero-initialise. */
struct store_output {
    struct cr_buffer bytes;
    size_t bytes_sent;
    struct store_chunk *chunks;
    uint32_t chunk_count, chunk_cap, chunks_sent;
    uint32_t chunk_offset; /* bytes sent of the first unsent chunk's value */
    size_t pending;        /* bytes not sent yet, values included */
};

/* These append. They return 0, or -ENOMEM with the reply cut short: the connection is lost then. */
int store_output_bytes(struct store_output *o, const void *data, size_t len);
int store_output_u8(struct store_output *o, uint8_t v);
int store_output_u64(struct store_output *o, uint64_t v);
/* The length of a value as u64 and its bytes; NULL is an empty value. */
int store_output_value(struct store_output *o, struct store_value *v);

/* How many bytes store_output_value() would copy, approximately. */
static inline size_t store_output_copies(const struct store_value *v) {
    return 8 + (v == NULL || v->len >= STORE_REFERENCE_MIN ? 0 : v->len);
}

/* The value whose bytes come next, with *offset bytes of it already sent; NULL if other bytes come
 * next. */
struct store_value *store_output_front(const struct store_output *o, size_t *offset);

/* Fills up to `max` iovecs with what comes next, and returns how many. With `lending` it stops in
 * front of a value that can be lent. */
int store_output_iov(const struct store_output *o, struct iovec *iov, int max, bool lending);

/* The first n bytes were sent. When all were, the offsets start at 0 again and the memory is
 * kept. */
void store_output_sent(struct store_output *o, size_t n);

void store_output_done(struct store_output *o);

#endif
