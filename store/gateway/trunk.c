/* Implements trunk_internal.h. */
#include "store/gateway/trunk_internal.h"

#include "store/wire/wire.h"

#include <errno.h>
#include <string.h>

/* Number of bytes that an end may receive without sending a segment. After them it sends an empty
 * segment, which acknowledges the bytes, so that the other end can free them. */
#define REPORT_AFTER ((uint64_t) 64 << 10)

int trunk_put(struct trunk *t, const void *data, size_t len) {
    return cr_buffer_append(&t->kept, data, len);
}

static uint64_t end_of(const struct trunk *t) {
    return t->acknowledged + (t->kept.len - t->kept_at);
}

static int append_segment(struct trunk *t, const char *data, uint32_t len) {
    uint8_t header[TRUNK_HEADER];
    store_put_u32(header, len);
    store_put_u64(header + 4, t->received);
    if (cr_buffer_reserve(&t->out, sizeof(header) + len) < 0) return -ENOMEM;
    (void) cr_buffer_append(&t->out, header, sizeof(header));
    (void) cr_buffer_append(&t->out, data, len);
    t->sent += len;
    t->reported = t->received;
    return 0;
}

int trunk_pump(struct trunk *t) {
    while (t->sent < end_of(t)) {
        uint64_t left = end_of(t) - t->sent;
        uint32_t len = left < TRUNK_SEGMENT_MAX ? (uint32_t) left : TRUNK_SEGMENT_MAX;
        const char *data = t->kept.data + t->kept_at + (t->sent - t->acknowledged);
        if (append_segment(t, data, len) < 0) return -ENOMEM;
    }
    return t->received - t->reported < REPORT_AFTER ? 0 : append_segment(t, NULL, 0);
}

/* Call this when the other end reports that it has received the own stream up to the position
 * `received`. Drops the kept bytes before this position. The bytes that are left are moved only
 * when at least half of the memory is free, so each byte is moved once at most on average. Returns
 * 0, or -EPROTO if the position is beyond the sent bytes or before acknowledged ones. */
static int acknowledge(struct trunk *t, uint64_t received) {
    if (received > t->sent || received < t->acknowledged) return -EPROTO;
    t->kept_at += (size_t) (received - t->acknowledged);
    t->acknowledged = received;
    if (t->kept_at * 2 < t->kept.len) return 0;
    cr_buffer_consume(&t->kept, t->kept_at);
    t->kept_at = 0;
    return 0;
}

/* Copies bytes of a segment's header. If the header is complete, drops the bytes that it
 * acknowledges. Returns how many bytes were copied, or -EPROTO. */
static int64_t take_header(struct trunk *t, const char *data, size_t len) {
    size_t n = TRUNK_HEADER - t->header_len;
    if (n > len) n = len;
    memcpy(t->header + t->header_len, data, n);
    t->header_len += n;
    if (t->header_len < TRUNK_HEADER) return (int64_t) n;
    t->header_len = 0;
    t->segment_left = store_load_u32(t->header);
    if (t->segment_left > TRUNK_SEGMENT_MAX) return -EPROTO;
    int rc = acknowledge(t, store_load_u64(t->header + 4));
    return rc < 0 ? rc : (int64_t) n;
}

static int64_t take_stream(struct trunk *t, const char *data, size_t len, struct cr_buffer *in) {
    size_t n = len < t->segment_left ? len : t->segment_left;
    if (cr_buffer_append(in, data, n) < 0) return -ENOMEM;
    t->segment_left -= n;
    t->received += n;
    return (int64_t) n;
}

int trunk_receive(struct trunk *t, const void *data, size_t len, struct cr_buffer *in) {
    for (size_t at = 0; at < len;) {
        const char *next = (const char *) data + at;
        int64_t n = t->segment_left > 0 ? take_stream(t, next, len - at, in)
                                        : take_header(t, next, len - at);
        if (n < 0) return (int) n;
        at += (size_t) n;
    }
    return 0;
}

int trunk_resume(struct trunk *t, uint64_t received) {
    if (received < t->acknowledged || received > end_of(t)) return -EPROTO;
    /* Sending goes on at the position `received`, up to which the other end has everything.
     * acknowledge() fails only for a position beyond t->sent, so it cannot fail here. */
    t->sent = received;
    (void) acknowledge(t, received);
    cr_buffer_clear(&t->out);
    t->header_len = t->segment_left = 0;
    return 0;
}

void trunk_done(struct trunk *t) {
    cr_buffer_done(&t->kept);
    cr_buffer_done(&t->out);
}
