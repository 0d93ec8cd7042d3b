/* The output of one client: the bytes that are still to be sent to it, with references to big
 * values in between.
 *
 *     bytes:   [ replies ……… | ……… replies ……… | … ]
 *                        ▲ value         ▲ value          each chunk has a position in `bytes`
 *
 * Small values are copied into `bytes`. A value of STORE_REFERENCE_MIN bytes or more is shared with
 * the key space and sent from the memory where it lies. Pure: it makes no system call; the server
 * asks for iovecs and sends them. */
#ifndef STORE_KEYSPACE_OUTPUT_H
#define STORE_KEYSPACE_OUTPUT_H

#include "base/buffer.h"
#include "store/keyspace/value.h"

#include <sys/uio.h>

#define STORE_REFERENCE_MIN 16384u

struct store_chunk {
    size_t at; /* the value is sent after bytes[0..at) */
    struct store_value *value;
};

/* The output of one client. Zero-initialise; end it with store_output_done(). */
struct store_output {
    struct cr_buffer bytes;
    size_t bytes_sent;
    struct store_chunk *chunks;
    uint32_t chunk_count, chunk_cap, chunks_sent;
    uint32_t chunk_offset; /* bytes that were sent of the value of the first unsent chunk */
    size_t pending;        /* bytes that are not sent yet, those of values included */
};

/* The following functions append to the output. They return 0 or -ENOMEM. After -ENOMEM a reply may
 * be incomplete, so the caller must close the connection. */
int store_output_bytes(struct store_output *o, const void *data, size_t len);
int store_output_u8(struct store_output *o, uint8_t v);
int store_output_u64(struct store_output *o, uint64_t v);
/* Appends the length of a value as u64, then its bytes. NULL stands for an empty value. */
int store_output_value(struct store_output *o, struct store_value *v);

/* Returns how many bytes store_output_value() would copy into `bytes`, approximately. */
static inline size_t store_output_copies(const struct store_value *v) {
    return 8 + (v == NULL || v->len >= STORE_REFERENCE_MIN ? 0 : v->len);
}

/* If the bytes to send next are those of a value, returns the value and sets *offset to how many of
 * its bytes were sent already. Otherwise returns NULL. */
struct store_value *store_output_front(const struct store_output *o, size_t *offset);

/* Fills up to `max` iovecs with the bytes to send next, and returns how many it filled. If
 * `lending` is true, it stops in front of a value that can be lent. */
int store_output_iov(const struct store_output *o, struct iovec *iov, int max, bool lending);

/* Call this after the first n bytes of the output have been sent. Once all bytes are sent, the
 * output is empty again and keeps its memory. */
void store_output_sent(struct store_output *o, size_t n);

void store_output_done(struct store_output *o);

#endif
