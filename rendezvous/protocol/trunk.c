/* Splits the bytes of a trunk into frames of members and messages of the relay: see trunk.h. */
#include "rendezvous/protocol/trunk.h"

#include <errno.h>

void rdzv_trunk_done(struct rdzv_trunk *t) { cr_buffer_done(&t->in); }

struct receipt {
    struct rdzv_trunk *trunk;
    const struct rdzv_trunk_actions *actions;
    void *arg;
    struct cr_error *err;
};

static int take_message(const struct receipt *r, const char *data, size_t len) {
    struct rdzv_message m;
    size_t used = 0;
    int rc = rdzv_message_decode(data, len, &m, &used, r->err);
    if (rc < 0) return rc;
    if (m.type != RDZV_VIA) return r->actions->on_message(r->arg, &m, r->err);
    if (m.via.place >= RDZV_RELAY_PLACES)
        return cr_fail(r->err, -EPROTO, "a VIA names place %u, which does not exist", m.via.place);
    r->trunk->has_via = true;
    r->trunk->via = m.via.place;
    return 0;
}

static int64_t take_frame(void *arg, const char *data, size_t len) {
    const struct receipt *r = arg;
    struct rdzv_trunk *t = r->trunk;
    int64_t size = rdzv_frame_size(data, len);
    if (size < 0) return cr_fail(r->err, (int) size, "a frame on a trunk has a wrong length");
    if (size == 0) return 0;
    bool is_members = t->has_via;
    t->has_via = false;
    int rc = is_members ? r->actions->on_frame(r->arg, t->via, data, (size_t) size, r->err)
                        : take_message(r, data, (size_t) size);
    return rc < 0 ? rc : size;
}

int rdzv_trunk_receive(struct rdzv_trunk *t, const char *data, size_t len,
                       const struct rdzv_trunk_actions *actions, void *arg, struct cr_error *err) {
    struct receipt r = {.trunk = t, .actions = actions, .arg = arg, .err = err};
    if (cr_buffer_append(&t->in, data, len) < 0) return cr_fail(err, -ENOMEM, "out of memory");
    int rc = cr_buffer_take_frames(&t->in, take_frame, &r);
    if (t->in.len == 0) cr_buffer_done(&t->in);
    return rc;
}

int rdzv_trunk_wrap(uint32_t place, struct cr_buffer *frames, struct cr_buffer *out) {
    struct rdzv_message via = {.type = RDZV_VIA, .via = {.place = place}};
    size_t at = 0;
    int rc = 0;
    for (int64_t size; rc == 0 && at < frames->len; at += (size_t) size) {
        size = rdzv_frame_size(frames->data + at, frames->len - at);
        if (size <= 0) break;
        rc = rdzv_message_encode(&via, RDZV_VERSION_MAX, out);
        if (rc == 0) rc = cr_buffer_append(out, frames->data + at, (size_t) size);
    }
    cr_buffer_clear(frames);
    return rc;
}
