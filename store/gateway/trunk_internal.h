/* A trunk: two streams of bytes, one in each direction, between a gateway and a store, which go on
 * when the connection below them is replaced.
 *
 * Each end keeps the bytes that it has sent until the other end has acknowledged them. When a
 * connection is lost, the ends make a new one, report to each other how many bytes of the streams
 * they have received, and send the missing bytes again. So each byte arrives exactly once.
 *
 * On a connection, the streams are sent in segments: u32 length, u64 number of bytes of the other
 * stream that the sender has received so far, and `length` bytes. Numbers are little-endian. Pure:
 * no socket, no clock. */
#ifndef STORE_GATEWAY_TRUNK_INTERNAL_H
#define STORE_GATEWAY_TRUNK_INTERNAL_H

#include "base/buffer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TRUNK_HEADER      ((size_t) 12)        /* bytes of a segment's header */
#define TRUNK_SEGMENT_MAX ((uint32_t) 1 << 20) /* longest segment in bytes, header excluded */

/* One end of a trunk. Zero-initialise it; end it with trunk_done(). */
struct trunk {
    struct cr_buffer kept; /* bytes of the own stream; those before `kept_at` are acknowledged */
    size_t kept_at;
    uint64_t acknowledged; /* position of kept.data[kept_at] in the own stream */
    uint64_t sent;         /* position in the own stream up to which segments for this connection
                            * exist */
    uint64_t received;     /* number of bytes of the other stream that have arrived */
    uint64_t reported;     /* value of `received` in the last segment that was sent */
    struct cr_buffer out;  /* segments to send on the connection; the owner removes what it sends */
    uint8_t header[TRUNK_HEADER]; /* header of the segment that is being received */
    size_t header_len;            /* number of bytes of `header` that have arrived */
    size_t segment_left;          /* number of bytes of this segment, without its header, that are
                                   * missing */
};

/* Returns the number of bytes that this end holds: bytes that are not acknowledged, and segments
 * that the owner has not sent yet. */
static inline size_t trunk_held(const struct trunk *t) {
    return t->kept.len - t->kept_at + t->out.len;
}

/* Appends bytes to the own stream. Returns 0 or -ENOMEM. */
int trunk_put(struct trunk *t, const void *data, size_t len);
/* Appends segments with all unsent bytes of the own stream to `out`. If there are none, but many
 * bytes have arrived since the last segment, appends an empty segment, which tells the other end
 * how many bytes have arrived. Returns 0 or -ENOMEM. */
int trunk_pump(struct trunk *t);
/* Handles bytes that have arrived on the connection, and appends the bytes of the other stream to
 * `in`. Returns 0; -EPROTO if the other end acknowledges bytes that were not sent, or sends too
 * long a segment; or -ENOMEM. After an error, the connection must be closed. */
int trunk_receive(struct trunk *t, const void *data, size_t len, struct cr_buffer *in);
/* Makes the trunk go on over a new connection. Call this when the other end has reported there that
 * it has received `received` bytes of the own stream. trunk_pump() then sends the bytes after
 * these. Returns 0, or -EPROTO if this end does not have the missing bytes any more. */
int trunk_resume(struct trunk *t, uint64_t received);
void trunk_done(struct trunk *t);

#endif
