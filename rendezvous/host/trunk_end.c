/* The host's end of a trunk: see trunk_end_internal.h. */
#include "rendezvous/host/trunk_end_internal.h"

#include "base/time/clock.h"

#include <errno.h>

#define BIT(place) (UINT64_C(1) << (place))

void trunk_end_init(struct trunk_end *t, struct host_session *session,
                    const struct trunk_end_actions *actions, void *arg) {
    *t = (struct trunk_end){.actions = actions, .arg = arg, .session = session};
}

void trunk_end_done(struct trunk_end *t) { rdzv_trunk_done(&t->in); }

/* ---- what comes on the trunk ---- */

/* The arguments of trunk_end_receive(), for the functions that handle one frame. */
struct arrival {
    struct trunk_end *trunk;
    int64_t now_ms;
};

static int got_attach(const struct arrival *in, const struct rdzv_attach *a, struct cr_error *err) {
    struct trunk_end *t = in->trunk;
    bool is_free = a->place < RDZV_RELAY_PLACES && t->members[a->place] == NULL &&
                   (t->leaving & BIT(a->place)) == 0;
    if (!is_free) return cr_fail(err, -EPROTO, "the relay's place %u is not free", a->place);
    struct trunk_member *m = t->actions->attach(t->arg, a->place, a->addr);
    if (m == NULL) return cr_fail(err, -ENOMEM, "the coordinator is out of memory");
    m->trunk = t;
    m->place = a->place;
    t->members[a->place] = m;
    host_session_receive(m->session, in->now_ms, RDZV_MAGIC, RDZV_MAGIC_LEN);
    t->actions->changed(t->arg, m);
    return 0;
}

static int got_detach(const struct arrival *in, const struct rdzv_detach *d, struct cr_error *err) {
    struct trunk_end *t = in->trunk;
    struct trunk_member *m = d->place < RDZV_RELAY_PLACES ? t->members[d->place] : NULL;
    if (m != NULL) {
        /* trunk_end_flush() sends DETACH later, and then clears the bit */
        t->left |= BIT(d->place);
        t->actions->lost(t->arg, m, d->is_broken ? RENDEZVOUS_BROKEN : RENDEZVOUS_CLOSED,
                         d->is_broken ? "its connection to the relay was lost"
                                      : "its connection was closed");
        return 0;
    }
    if (d->place >= RDZV_RELAY_PLACES || (t->leaving & BIT(d->place)) == 0)
        return cr_fail(err, -EPROTO, "the relay has no member at place %u", d->place);
    t->leaving &= ~BIT(d->place);
    return 0;
}

/* HOLD names the members that have sent a beat to the relay. Handles the beat of one of them, `m`,
 * as if `m` had sent BEAT now. */
static int beat_for(const struct arrival *in, struct trunk_member *m, const struct rdzv_hold *h,
                    struct cr_buffer *frame) {
    struct rdzv_message beat = {.type = RDZV_BEAT};
    beat.beat = (struct rdzv_beat){.sent_ms = h->sent_ms, .rounds_over = m->rounds_over,
                                   .heard_at_ms = h->heard_at_ms, .rounds_seen = m->rounds_seen};
    cr_buffer_clear(frame);
    if (rdzv_message_encode(&beat, m->session->version, frame) < 0) return -ENOMEM;
    host_session_receive(m->session, in->now_ms, frame->data, frame->len);
    in->trunk->actions->changed(in->trunk->arg, m);
    return 0;
}

static int got_hold(const struct arrival *in, const struct rdzv_hold *h, struct cr_error *err) {
    struct trunk_end *t = in->trunk;
    struct rdzv_message m = {.type = RDZV_BEAT_ACK};
    struct cr_buffer frame = {0};
    int rc = 0;
    t->ack = (struct rdzv_beat_ack){.at_ms = in->now_ms > 0 ? in->now_ms : 1};
    t->holds = true;
    for (uint32_t p = 0; p < RDZV_RELAY_PLACES && rc == 0; p++) {
        struct trunk_member *member = t->members[p];
        bool has_beat = (h->places & BIT(p)) != 0 && member != NULL && member->session->seated;
        if (has_beat) rc = beat_for(in, member, h, &frame);
    }
    t->holds = false;
    cr_buffer_done(&frame);
    if (rc < 0) return cr_fail(err, rc, "the coordinator is out of memory");
    m.beat_ack = t->ack;
    m.beat_ack.sent_ms = h->sent_ms;
    host_session_send(t->session, in->now_ms, &m);
    return 0;
}

static int on_frame(void *arg, uint32_t place, const char *frame, size_t len,
                    struct cr_error *err) {
    const struct arrival *in = arg;
    struct trunk_end *t = in->trunk;
    struct trunk_member *m = t->members[place];
    /* the relay has sent the frame before it has got the DETACH of this end */
    if (m == NULL && (t->leaving & BIT(place)) != 0) return 0;
    if (m == NULL) return cr_fail(err, -EPROTO, "the relay has no member at place %u", place);
    host_session_receive(m->session, in->now_ms, frame, len);
    t->actions->changed(t->arg, m);
    return 0;
}

static int on_message(void *arg, const struct rdzv_message *m, struct cr_error *err) {
    switch ((unsigned) m->type) {
    case RDZV_ATTACH: return got_attach(arg, &m->attach, err);
    case RDZV_DETACH: return got_detach(arg, &m->detach, err);
    case RDZV_HOLD: return got_hold(arg, &m->hold, err);
    default: break;
    }
    return cr_fail(err, -EPROTO, "a relay must not send %s",
                   rdzv_message_name((unsigned) m->type));
}

int trunk_end_receive(struct trunk_end *t, int64_t now_ms, const char *data, size_t len,
                      struct cr_error *err) {
    static const struct rdzv_trunk_actions actions = {on_frame, on_message};
    struct arrival in = {.trunk = t, .now_ms = now_ms};
    return rdzv_trunk_receive(&t->in, data, len, &actions, &in, err);
}

bool trunk_end_keeps(struct trunk_member *m, const struct rdzv_message *message) {
    if (message->type != RDZV_BEAT_ACK || m->trunk == NULL || !m->trunk->holds) return false;
    m->trunk->ack = message->beat_ack;
    return true;
}

/* ---- what goes to the relay ---- */

int trunk_end_push(struct trunk_member *m) {
    struct cr_buffer *out = &m->session->out;
    struct trunk_end *t = m->trunk;
    int rc = 0;
    if (t == NULL || t->session->state != HOST_SESSION_RELAYING) cr_buffer_clear(out);
    else rc = rdzv_trunk_wrap(m->place, out, &t->session->out);
    host_session_shrink(m->session);
    return rc;
}

static void send_detach(struct trunk_member *m, int64_t now_ms) {
    struct trunk_end *t = m->trunk;
    struct rdzv_message detach = {.type = RDZV_DETACH, .detach = {.place = m->place}};
    host_session_send(t->session, now_ms, &detach);
    t->members[m->place] = NULL;
    if ((t->left & BIT(m->place)) == 0) t->leaving |= BIT(m->place);
    t->left &= ~BIT(m->place);
    m->trunk = NULL;
}

int trunk_end_flush(struct trunk_member *m, int64_t now_ms, bool *is_over) {
    int rc = trunk_end_push(m);
    *is_over = rc == 0 && m->session->state >= HOST_SESSION_CLOSING;
    if (!*is_over) return rc;
    /* all bytes are queued for the relay already, so the session can end at once */
    host_session_lost(m->session, now_ms, RENDEZVOUS_CLOSED, "closed");
    if (m->trunk != NULL) send_detach(m, now_ms);
    return 0;
}

void trunk_end_lost(struct trunk_end *t, const char *why) {
    for (uint32_t p = 0; p < RDZV_RELAY_PLACES; p++) {
        struct trunk_member *m = t->members[p];
        if (m == NULL) continue;
        t->members[p] = NULL;
        m->trunk = NULL;
        t->actions->lost(t->arg, m, RENDEZVOUS_BROKEN, why);
    }
}

/* ---- time ---- */

void trunk_end_tick(struct trunk_end *t, int64_t now_ms) {
    for (uint32_t p = 0; p < RDZV_RELAY_PLACES; p++) {
        struct trunk_member *m = t->members[p];
        if (m == NULL) continue;
        host_session_tick(m->session, now_ms);
        if (m->session->state >= HOST_SESSION_CLOSING) t->actions->changed(t->arg, m);
    }
}

int64_t trunk_end_deadline(const struct trunk_end *t) {
    int64_t first_ms = CR_FOREVER;
    for (uint32_t p = 0; p < RDZV_RELAY_PLACES; p++) {
        const struct trunk_member *m = t->members[p];
        int64_t when_ms = m != NULL ? host_session_deadline(m->session) : CR_FOREVER;
        if (when_ms < first_ms) first_ms = when_ms;
    }
    return first_ms;
}

bool trunk_end_has_members(const struct trunk_end *t) {
    for (uint32_t p = 0; p < RDZV_RELAY_PLACES; p++) {
        if (t->members[p] != NULL) return true;
    }
    return false;
}
