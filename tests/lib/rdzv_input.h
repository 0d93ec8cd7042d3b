/* Makes rendezvous messages from a fuzzer's input, and encodes and decodes each with crun's own
 * codec. Each input byte makes one field, so that changing one byte changes one field only. The
 * field of a small byte has the byte's value; the largest byte values stand for numbers at which
 * sums, casts and table sizes typically go wrong. */
#ifndef TESTS_RDZV_INPUT_H
#define TESTS_RDZV_INPUT_H

#include "base/assert.h"
#include "rendezvous/protocol/message.h"

struct input {
    const uint8_t *data;
    size_t left;
};

/* Returns the next byte of the input, or 0 at the end of the input. */
static inline uint8_t input_byte(struct input *in) {
    if (in->left == 0) return 0;
    in->left--;
    return *in->data++;
}

static inline uint64_t input_number(struct input *in) {
    static const uint64_t edges[] = {
        UINT64_MAX, UINT64_MAX - 1, INT64_MAX, INT64_MAX - 1, (uint64_t) INT64_MIN,
        UINT32_MAX, UINT64_C(1) << 32, INT32_MAX, UINT64_C(1) << 62, 65537, 65536, 65535, 32767,
        1000, 5000, 60000, 86400000, 86400001, 86400000000};
    uint8_t byte = input_byte(in);
    size_t from_end = (size_t) (UINT8_MAX - byte);
    return from_end < sizeof(edges) / sizeof(edges[0]) ? edges[from_end] : byte;
}

static inline uint32_t input_u32(struct input *in) { return (uint32_t) input_number(in); }
static inline uint64_t input_u64(struct input *in) { return input_number(in); }
static inline int64_t input_i64(struct input *in) { return (int64_t) input_number(in); }

/* Returns the text that the next input byte selects: a host name with a number, a text with a
 * printf conversion such as %s, or the longest text that is allowed. */
static inline const char *input_text(struct input *in) {
    static char longest[RDZV_TEXT_MAX];
    static const char *const texts[] = {"", "a", "b", "n2", "n10", "n010", "%s%n", longest};
    for (size_t i = 0; i + 1 < sizeof(longest); i++) longest[i] = 'x';
    return texts[input_byte(in) % (sizeof(texts) / sizeof(texts[0]))];
}

static inline enum rdzv_message_type input_type(struct input *in) {
    static const uint8_t types[] = {
#define M(NAME, name, wire, since) (wire),
        RDZV_MESSAGES(M)
#undef M
    };
    return (enum rdzv_message_type) types[input_byte(in) % sizeof(types)];
}

static inline void input_message(struct input *in, struct rdzv_message *m) {
    m->type = input_type(in);
    switch (m->type) {
#define F(type, name) body->name = input_##type(in);
#define V(version)
#define M(NAME, name, wire, since)                                                                 \
    case RDZV_##NAME: {                                                                            \
        struct rdzv_##name *body = &m->name;                                                       \
        RDZV_##NAME##_FIELDS(F, V) break;                                                          \
    }
        RDZV_MESSAGES(M)
#undef M
#undef V
#undef F
    }
}

/* Encodes `m` into `frame` and decodes it into `out`, as if it had been sent. The texts of `out`
 * point into `frame`, which the caller frees. */
static inline void cross_the_wire(const struct rdzv_message *m, struct cr_buffer *frame,
                                  struct rdzv_message *out) {
    size_t used = 0;
    if (rdzv_message_encode(m, RDZV_VERSION_MAX, frame) < 0) abort();
    CR_ASSERT(rdzv_message_decode(frame->data, frame->len, out, &used, NULL) == 0);
    CR_ASSERT(used == frame->len && out->type == m->type);
}

#endif
