/* Encodes and decodes the messages. The code for each message is generated from its list in
 * message.h. The decoder checks the length before every read, because the bytes come from the
 * network. */
#include "rendezvous/protocol/message.h"

#include "base/assert.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

const char *rdzv_message_name(unsigned type) {
    switch (type) {
#define M(NAME, name, wire, since)                                                                 \
    case wire: return #NAME;
        RDZV_MESSAGES(M)
#undef M
    default: return "?";
    }
}

uint32_t rdzv_message_since(enum rdzv_message_type type) {
    switch (type) {
#define M(NAME, name, wire, since)                                                                 \
    case RDZV_##NAME: return (since);
        RDZV_MESSAGES(M)
#undef M
    }
    return RDZV_VERSION_MIN;
}

#define F(type, name) to->name = from->name;
#define V(since)
void rdzv_join_of_resume(const struct rdzv_resume *from, struct rdzv_join *to) {
    RDZV_JOIN_FIELDS(F, V)
}

void rdzv_resume_of_join(const struct rdzv_join *from, struct rdzv_resume *to) {
    RDZV_JOIN_FIELDS(F, V)
}
#undef V
#undef F

/* ---- encoding: each frame is built on the stack, and appended to the output as a whole ---- */

#define EMPTY_TEXT ((size_t) 3) /* bytes of an empty text: its length and NUL */

struct writer {
    char data[RDZV_FRAME_MAX];
    size_t len;
    /* least number of bytes that the fields after the current one need, if all texts are empty */
    size_t reserved;
};

static void put_bytes(struct writer *w, const void *data, size_t len) {
    /* the frame always has room, because put_text() leaves room for the fields that follow */
    CR_ASSERT(len <= sizeof(w->data) - w->len);
    memcpy(w->data + w->len, data, len);
    w->len += len;
}

/* Always inlined: callers give a constant number of bytes, so the compiler replaces the loop by one
 * store. */
static inline __attribute__((always_inline)) void put_number(struct writer *w, uint64_t value,
                                                             unsigned bytes) {
    unsigned char *at = (unsigned char *) w->data + w->len;
    CR_ASSERT(bytes <= sizeof(w->data) - w->len);
    for (unsigned i = 0; i < bytes; i++) at[i] = (unsigned char) (value >> (8 * (bytes - 1 - i)));
    w->len += bytes;
}

static void put_u32(struct writer *w, uint32_t v) { put_number(w, v, 4); }
static void put_u64(struct writer *w, uint64_t v) { put_number(w, v, 8); }
static void put_i64(struct writer *w, int64_t v) { put_number(w, (uint64_t) v, 8); }

/* Appends a text. Cuts the text if it is longer than RDZV_TEXT_MAX - 1 bytes, or longer than the
 * room that is left in the frame. Room can be short because a message may have more texts of that
 * length than a frame can hold: a ROW, for example, has nine texts. */
static void put_text(struct writer *w, const char *text) {
    size_t room = sizeof(w->data) - w->len - w->reserved - EMPTY_TEXT;
    size_t max = room < RDZV_TEXT_MAX - 1 ? room : RDZV_TEXT_MAX - 1;
    size_t len = text != NULL ? strnlen(text, max) : 0;
    put_number(w, len + 1, 2);
    if (len > 0) put_bytes(w, text, len);
    put_bytes(w, "", 1);
}

/* LEAST_OF_NAME is the least number of bytes of all fields of the message NAME. It is computed as
 * the size of a struct that contains, for each field, an array with the field's least number of
 * bytes. */
#define LEAST_u32         4
#define LEAST_u64         8
#define LEAST_i64         8
#define LEAST_text        EMPTY_TEXT
#define LEAST(type, name) char name[LEAST_##type];
#define NOTHING(since)
#define M(NAME, name, wire, since)                                                                 \
    LEAST_OF_##NAME = sizeof(struct { RDZV_##NAME##_FIELDS(LEAST, NOTHING) }),
enum { RDZV_MESSAGES(M) };
#undef M

/* The fields of every message fit into a frame if its texts are empty. */
#define M(NAME, name, wire, since)                                                                 \
    _Static_assert(5 + LEAST_OF_##NAME <= RDZV_FRAME_MAX, "too many fields");
RDZV_MESSAGES(M)
#undef M

int rdzv_message_encode(const struct rdzv_message *m, uint32_t version, struct cr_buffer *out) {
    struct writer w;
    w.len = 4;
    w.reserved = 0;
    put_number(&w, m->type, 1);
    switch (m->type) {
#define F(type, name)                                                                              \
    w.reserved -= LEAST_##type;                                                                    \
    put_##type(&w, body->name);
#define V(since)                                                                                   \
    if (version < (since)) break;
#define M(NAME, name, wire, since)                                                                 \
    case RDZV_##NAME: {                                                                            \
        const struct rdzv_##name *body = &m->name;                                                 \
        w.reserved = LEAST_OF_##NAME;                                                              \
        RDZV_##NAME##_FIELDS(F, V) break;                                                          \
    }
        RDZV_MESSAGES(M)
#undef M
#undef V
#undef F
    }
    size_t total = w.len;
    w.len = 0;
    put_u32(&w, (uint32_t) (total - 4));
    return cr_buffer_append(out, w.data, total);
}

/* ---- decoding: every read is checked; the first error is kept ---- */

struct reader {
    const char *data;
    size_t len, at;
    /* true if the frame has ended just before the fields of a later version: all fields that are
     * not read yet become 0 or "" */
    bool absent;
    const char *wrong; /* text of the first error; NULL = no error yet */
};

/* Always inlined: callers give a constant number of bytes, so the compiler replaces the loop by one
 * load. */
static inline __attribute__((always_inline)) uint64_t get_number(struct reader *r,
                                                                 unsigned bytes) {
    if (r->absent) return 0;
    if (r->wrong == NULL && r->len - r->at < bytes) r->wrong = "it is too short";
    if (r->wrong != NULL) return 0;
    const unsigned char *at = (const unsigned char *) r->data + r->at;
    uint64_t value = 0;
    for (unsigned i = 0; i < bytes; i++) value |= (uint64_t) at[i] << (8 * (bytes - 1 - i));
    r->at += bytes;
    return value;
}

static uint32_t get_u32(struct reader *r) { return (uint32_t) get_number(r, 4); }
static uint64_t get_u64(struct reader *r) { return get_number(r, 8); }
static int64_t get_i64(struct reader *r) { return (int64_t) get_number(r, 8); }

static const char *get_text(struct reader *r) {
    size_t len = (size_t) get_number(r, 2);
    if (r->absent || r->wrong != NULL) return "";
    const char *text = r->data + r->at;
    if (len == 0 || len > RDZV_TEXT_MAX) {
        r->wrong = "a text has a bad length";
    } else if (len > r->len - r->at) {
        r->wrong = "it is too short";
    } else if (memchr(text, '\0', len) != text + len - 1) {
        r->wrong = "a text does not end where it must";
    }
    if (r->wrong != NULL) return "";
    r->at += len;
    return text;
}

/* Call this where the fields of a later version begin. If the frame ends here, its sender has an
 * older version, so all fields that are not read yet become 0 or "". */
static void begin_version(struct reader *r) {
    if (r->at == r->len) r->absent = true;
}

static int frame_fail(struct cr_error *err, unsigned type, const char *why) {
    return cr_fail(err, -EPROTO, "cannot understand a %s message (type %u): %s",
                   rdzv_message_name(type), type, why);
}

int64_t rdzv_frame_size(const char *data, size_t len) {
    struct reader r = {.data = data, .len = len};
    if (len < 4) return 0;
    size_t rest = get_u32(&r);
    if (rest < 1 || rest > RDZV_FRAME_MAX - 4) return -EPROTO;
    return len - 4 < rest ? 0 : (int64_t) rest + 4;
}

int rdzv_message_decode(const char *data, size_t len, struct rdzv_message *m, size_t *used,
                        struct cr_error *err) {
    *used = 0;
    struct reader r = {.data = data, .len = len};
    int64_t size = rdzv_frame_size(data, len);
    if (size == 0) return 0;
    unsigned rest = get_u32(&r);
    if (size < 0) {
        return cr_fail(err, -EPROTO, "cannot understand a message of %u bytes (limit %zu)", rest,
                       RDZV_FRAME_MAX - 4);
    }
    r.len = (size_t) size;
    unsigned type = (unsigned) get_number(&r, 1);
    switch (type) {
#define F(type_, name) body->name = get_##type_(&r);
#define V(since)       begin_version(&r);
#define M(NAME, name, wire, since)                                                                 \
    case wire: {                                                                                   \
        m->type = RDZV_##NAME;                                                                     \
        struct rdzv_##name *body = &m->name;                                                       \
        RDZV_##NAME##_FIELDS(F, V) break;                                                          \
    }
        RDZV_MESSAGES(M)
#undef M
#undef V
#undef F
    default: return frame_fail(err, type, "this build does not know it");
    }
    if (r.wrong != NULL) return frame_fail(err, type, r.wrong);
    *used = r.len;
    return 0;
}

/* ---- the frames of a buffer ---- */

struct taking {
    rdzv_take_fn take;
    void *arg;
    struct cr_error *err;
    int stopped; /* the positive value that `take` has returned; 0 = none yet */
};

static int64_t take_frame(void *arg, const char *data, size_t len) {
    struct taking *t = arg;
    struct rdzv_message m;
    size_t used = 0;
    if (t->stopped > 0) return 0;
    int rc = rdzv_message_decode(data, len, &m, &used, t->err);
    if (rc < 0 || used == 0) return rc;
    rc = t->take(t->arg, &m, t->err);
    if (rc < 0) return rc;
    t->stopped = rc;
    return (int64_t) used;
}

int rdzv_messages_take(struct cr_buffer *in, rdzv_take_fn take, void *arg, struct cr_error *err) {
    struct taking t = {.take = take, .arg = arg, .err = err};
    int rc = cr_buffer_take_frames(in, take_frame, &t);
    return rc < 0 ? rc : t.stopped;
}
