/* The output of one client: the bytes that are to be sent to it, and, between them, references to
 * big values. A reference and its position in `bytes` are called a chunk.
 *
 *     bytes:   [ replies ……… | ……… replies ……… | … ]
 *                            ▲ chunk           ▲ chunk
 *
 * A small value is copied into `bytes`. A value of STORE_REFERENCE_MIN bytes or more is not copied:
 * the output and the key space share it. Pure: no system call; the server asks for iovecs and sends
 * them. */
#ifndef STORE_KEYSPACE_OUTPUT_H
#define STORE_KEYSPACE_OUTPUT_H

#include "base/buffer.h"
#include "store/keyspace/value.h"

#include <sys/uio.h>

#define STORE_REFERENCE_MIN 16384u

struct store_chunk {
    size_t at; /* position in `bytes`: the value is sent after bytes[0..at) */
    struct store_value *value;
};

/* The output of one client. Zero-initialise; end it with store_output_done(). */
struct store_output {
    struct cr_buffer bytes;
    size_t bytes_sent;
    struct store_chunk *chunks;
    uint32_t chunk_count, chunk_cap, chunks_sent;
    uint32_t chunk_offset; /* number of bytes of the first unsent chunk's value that have been
                            * sent */
    size_t pending;        /* number of unsent bytes, values included */
};

/* The following functions append to the output. They return 0 or -ENOMEM. After -ENOMEM the caller
 * must close the connection, because a part of a reply may be missing in the output. */
int store_output_bytes(struct store_output *o, const void *data, size_t len);
int store_output_u8(struct store_output *o, uint8_t v);
int store_output_u64(struct store_output *o, uint64_t v);
/* Appends the length of a value as u64, then its bytes. If `v` is NULL, it appends an empty
 * value. */
int store_output_value(struct store_output *o, struct store_value *v);

/* Returns approximately how many bytes store_output_value() would append to `bytes`. */
static inline size_t store_output_copies(const struct store_value *v) {
    return 8 + (v == NULL || v->len >= STORE_REFERENCE_MIN ? 0 : v->len);
}

/* If the next byte to send belongs to a value that is not copied into `bytes`, returns this value,
 * and sets *offset to the number of its bytes that have been sent. Otherwise returns NULL. */
struct store_value *store_output_front(const struct store_output *o, size_t *offset);

/* Fills up to `max` iovecs with the bytes to send next, and returns how many iovecs it has filled.
 * If `lending` is true, the last iovec ends before the first value that can be lent to the
 * kernel. */
int store_output_iov(const struct store_output *o, struct iovec *iov, int max, bool lending);

/* Removes the next n bytes from the output. Call this when they have been sent. Once all bytes are
 * sent, the output is empty again and keeps its memory. */
void store_output_sent(struct store_output *o, size_t n);

void store_output_done(struct store_output *o);

#endif
