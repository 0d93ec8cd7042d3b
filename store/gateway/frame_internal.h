/* The frames in the two streams of a trunk: u32 id, u8 kind, u32 length, and `length` bytes.
 *
 * A frame of the gateway has one complete request, and its id names the one who asks: a worker, a
 * wait, or a connection that watches. The reply has the same id. Numbers are little-endian. */
#ifndef STORE_GATEWAY_FRAME_INTERNAL_H
#define STORE_GATEWAY_FRAME_INTERNAL_H

#include "store/gateway/trunk_internal.h"
#include "store/wire/wire.h"

#include <errno.h>

#define FRAME_HEADER ((size_t) 9)

/* Kinds of frames of the gateway. The two flags belong to FRAME_MODERN and FRAME_LEGACY. */
#define FRAME_MODERN 0x01u /* a request with the opcodes of the modern dialect */
#define FRAME_LEGACY 0x02u /* a request with the opcodes of the legacy dialect */
#define FRAME_END    0x03u /* the id's own session ends; no bytes */
#define FRAME_OWN    0x10u /* flag: the request is carried out in a session of this id only */
#define FRAME_ONCE   0x20u /* flag, with FRAME_OWN: the session ends with its first reply */

/* Kinds of frames of the store. */
#define FRAME_REPLY  0x01u /* the reply to a request in the shared session */
#define FRAME_OWNED  0x02u /* output of the id's own session: the end of its wait, or a push */
#define FRAME_ONE    0x03u /* an element of a queue has answered the wait, which goes on */
#define FRAME_FAILED 0x04u /* the request could not be carried out; the bytes are the reason */

struct frame {
    uint32_t id, kind;
    size_t len;
    const uint8_t *bytes;
};

/* Reads the frame at the start of data[0..len). Returns the frame's size in bytes; 0 if it is not
 * complete; or -EMSGSIZE if its bytes are more than `max`. */
static inline int64_t frame_read(const char *data, size_t len, size_t max, struct frame *out) {
    if (len < FRAME_HEADER) return 0;
    out->id = store_load_u32(data);
    out->kind = (uint8_t) data[4];
    out->len = store_load_u32(data + 5);
    out->bytes = (const uint8_t *) data + FRAME_HEADER;
    if (out->len > max) return -EMSGSIZE;
    return len - FRAME_HEADER < out->len ? 0 : (int64_t) (FRAME_HEADER + out->len);
}

/* Appends the header of a frame to the trunk; the caller appends `len` bytes. Returns 0 or
 * -ENOMEM. */
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
