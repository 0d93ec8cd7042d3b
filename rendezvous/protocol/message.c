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

void rdzv_join_of_resume(const struct rdzv_resume *resume, struct rdzv_join *out) {
#define F(type, name) out->name = resume->name;
#define V(since)
    RDZV_JOIN_FIELDS(F, V)
#undef V
#undef F
}

/* ---- encoding: a frame is built on the stack and appended at once ---- */

struct writer {
    char data[RDZV_FRAME_MAX];
    size_t len;
};

static void put_bytes(struct writer *w, const void *data, size_t len) {
    /* true for every message: see the _Static_assert below */
    CR_ASSERT(len <= sizeof(w->data) - w->len);
    memcpy(w->data + w->len, data, len);
    w->len += len;
}

static void put_number(struct writer *w, uint64_t value, unsigned bytes) {
    char be[8];
    for (unsigned i = 0; i < bytes; i++) be[i] = (char) (value >> (8 * (bytes - 1 - i)));
    put_bytes(w, be, bytes);
}

static void put_u32(struct writer *w, uint32_t v) { put_number(w, v, 4); }
static void put_u64(struct writer *w, uint64_t v) { put_number(w, v, 8); }
static void put_i64(struct writer *w, int64_t v) { put_number(w, (uint64_t) v, 8); }

static void put_text(struct writer *w, const char *text) {
    size_t len = text != NULL ? strnlen(text, RDZV_TEXT_MAX - 1) : 0;
    put_number(w, len + 1, 2);
    if (len > 0) put_bytes(w, text, len);
    put_bytes(w, "", 1);
}

/* No message has more than five texts and 400 bytes of numbers, so every message fits into a
 * frame. */
_Static_assert(5 + 5 * (RDZV_TEXT_MAX + 2) + 400 <= RDZV_FRAME_MAX, "a message may not fit");

int rdzv_message_encode(const struct rdzv_message *m, uint32_t version, struct cr_buffer *out) {
    struct writer w;
    w.len = 4;
    put_number(&w, m->type, 1);
    switch (m->type) {
#define F(type, name) put_##type(&w, body->name);
#define V(since)                                                                                   \
    if (version < (since)) break;
#define M(NAME, name, wire, since)                                                                 \
    case RDZV_##NAME: {                                                                            \
        const struct rdzv_##name *body = &m->name;                                                 \
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
    /* true: the frame has ended where a version's fields begin; the rest is 0 or "" */
    bool absent;
    const char *wrong; /* text of the first error; NULL = no error yet */
};

static uint64_t get_number(struct reader *r, unsigned bytes) {
    if (r->absent) return 0;
    if (r->wrong == NULL && r->len - r->at < bytes) r->wrong = "it is too short";
    if (r->wrong != NULL) return 0;
    uint64_t value = 0;
    for (unsigned i = 0; i < bytes; i++) value = value << 8 | (unsigned char) r->data[r->at++];
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

int rdzv_message_decode(const char *data, size_t len, struct rdzv_message *m, size_t *used,
                        struct cr_error *err) {
    *used = 0;
    struct reader r = {.data = data, .len = len};
    if (len < 4) return 0;
    size_t frame = get_u32(&r);
    if (frame < 1 || frame > RDZV_FRAME_MAX - 4) {
        return cr_fail(err, -EPROTO, "cannot understand a message of %zu bytes (limit %zu)", frame,
                       RDZV_FRAME_MAX - 4);
    }
    if (len - 4 < frame) return 0;
    r.len = 4 + frame;
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
