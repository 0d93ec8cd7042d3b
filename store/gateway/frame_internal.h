/* The frames in the two streams of a trunk. A frame is: u32 id, u8 kind, u32 length, and `length`
 * bytes. Numbers are little-endian.
 *
 * A frame from the gateway carries one complete request, except FRAME_END. The gateway chooses its
 * id, which says what the reply belongs to: a worker, a wait, a connection that watches keys, or
 * the gateway's own PING. The reply has the id of its request. */
#ifndef STORE_GATEWAY_FRAME_INTERNAL_H
#define STORE_GATEWAY_FRAME_INTERNAL_H

#include "store/gateway/trunk_internal.h"
#include "store/wire/wire.h"

#include <errno.h>

#define FRAME_HEADER ((size_t) 9)

/* Kinds of the frames that a gateway sends. The flags FRAME_OWN and FRAME_ONCE are added to
 * FRAME_MODERN or FRAME_LEGACY. */
#define FRAME_MODERN 0x01u /* a request with the opcodes of the modern dialect */
#define FRAME_LEGACY 0x02u /* a request with the opcodes of the legacy dialect */
#define FRAME_END    0x03u /* the gate ends the own session of this id; no bytes */
#define FRAME_OWN    0x10u /* flag: the gate carries out the request in an own session of this id */
#define FRAME_ONCE   0x20u /* flag, only together with FRAME_OWN: the gate ends the own session
                            * after the first reply of that session */

/* Kinds of the frames that a gate sends. */
#define FRAME_REPLY  0x01u /* the reply to a request in the shared session */
#define FRAME_OWNED  0x02u /* output of the own session of this id: the answer to a wait; or, for a
                            * connection that watches keys, replies and pushes */
#define FRAME_ONE    0x03u /* an element of a queue has answered the wait for one worker; for the
                            * other workers the wait goes on */
#define FRAME_FAILED 0x04u /* the request could not be carried out; the bytes are the reason */

struct frame {
    uint32_t id, kind;
    size_t len;
    const uint8_t *bytes;
};

/* Reads the frame at the start of data[0..len). Returns the frame's size in bytes, header included;
 * 0 if the frame is not complete; or -EMSGSIZE if its length field is above `max`. */
static inline int64_t frame_read(const char *data, size_t len, size_t max, struct frame *out) {
    if (len < FRAME_HEADER) return 0;
    out->id = store_load_u32(data);
    out->kind = (uint8_t) data[4];
    out->len = store_load_u32(data + 5);
    out->bytes = (const uint8_t *) data + FRAME_HEADER;
    if (out->len > max) return -EMSGSIZE;
    return len - FRAME_HEADER < out->len ? 0 : (int64_t) (FRAME_HEADER + out->len);
}

/* Appends the header of a frame to the trunk. The caller must then append the frame's `len` bytes.
 * Returns 0 or -ENOMEM. */
static inline int frame_begin(struct trunk *t, uint32_t id, uint32_t kind, size_t len) {
    uint8_t header[FRAME_HEADER];
    store_put_u32(header, id);
    header[4] = (uint8_t) kind;
    store_put_u32(header + 5, (uint32_t) len);
    return trunk_put(t, header, sizeof(header));
}

static inline int frame_put(struct trunk *t, uint32_t id, uint32_t kind, const void *data,
                            size_t len) {
    int rc = frame_begin(t, id, kind, len);
    return rc < 0 ? rc : trunk_put(t, data, len);
}

#endif
