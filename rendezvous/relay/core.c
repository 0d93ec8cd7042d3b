/* One trunk of a relay: see core_internal.h. */
#include "rendezvous/relay/core_internal.h"

#include "base/time/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define BIT(place) (UINT64_C(1) << (place))
#define TYPE_AT    4 /* offset of a frame's type, after its length */

/* ---- the end ---- */

static const char *state_name(enum relay_state state) {
    static const char *const names[] = {
#define S(name) #name,
        RELAY_STATES(S)
#undef S
    };
    return names[state];
}

/* Enters a state, and logs that. No other function writes `state`; clear_place() keeps it. */
static void enter(struct relay *r, struct relay_place *p, enum relay_state state) {
    cr_trace(&r->trace, "place %u: %s -> %s", (unsigned) (p - r->places), state_name(p->state),
             state_name(state));
    if (p->state == RELAY_FREE && state != RELAY_FREE) r->used++;
    if (p->state != RELAY_FREE && state == RELAY_FREE) r->used--;
    p->state = state;
}

/* Makes the shell close a member's connection once the bytes that are queued for the member are
 * sent. `is_broken`: with a reset, so that the member may resume. */
static void end_member(struct relay_place *p, bool is_broken) {
    p->ends = true;
    p->is_broken = is_broken;
    p->is_kept = p->is_asked = false;
}

void relay_trunk_lost(struct relay *r, const char *why) {
    if (r->is_over) return;
    r->is_over = true;
    r->answer_by_ms = CR_FOREVER;
    (void) snprintf(r->why, sizeof(r->why), "%s", why);
    for (uint32_t i = 0; i < RDZV_RELAY_PLACES; i++) {
        if (r->places[i].state == RELAY_ATTACHED) end_member(&r->places[i], true);
    }
}

static void send_up(struct relay *r, const struct rdzv_message *m) {
    if (r->is_over) return;
    if (rdzv_message_encode(m, RDZV_VERSION_MAX, &r->out) < 0) relay_trunk_lost(r, "out of memory");
}

int relay_open(struct relay *r, int64_t now_ms, const char *run_id) {
    struct rdzv_message m = {.type = RDZV_RELAY};
    *r = (struct relay){.gather_ms = RELAY_GATHER_MS, .hold_at_ms = now_ms + RELAY_IDLE_MS,
                        .answer_by_ms = now_ms + RELAY_ANSWER_MS};
    m.relay = (struct rdzv_relay){.version_min = RDZV_VERSION_RELAY,
                                  .version_max = RDZV_VERSION_MAX,
                                  .software = "crun " CRUN_VERSION,
                                  .run_id = run_id};
    int rc = cr_buffer_append(&r->out, RDZV_MAGIC, RDZV_MAGIC_LEN);
    return rc == 0 ? rdzv_message_encode(&m, RDZV_VERSION_MIN, &r->out) : rc;
}

static void clear_place(struct relay_place *p) {
    cr_buffer_done(&p->in);
    cr_buffer_done(&p->out);
    enum relay_state state = p->state;
    *p = (struct relay_place){.state = state};
}

void relay_done(struct relay *r) {
    for (uint32_t i = 0; i < RDZV_RELAY_PLACES; i++) clear_place(&r->places[i]);
    rdzv_trunk_done(&r->in);
    cr_buffer_done(&r->out);
}

/* ---- members ---- */

int relay_attach(struct relay *r, const char *addr) {
    struct rdzv_message m = {.type = RDZV_ATTACH};
    if (r->is_over) return -1;
    for (uint32_t i = 0; i < RDZV_RELAY_PLACES; i++) {
        if (r->places[i].state != RELAY_FREE) continue;
        enter(r, &r->places[i], RELAY_ATTACHED);
        m.attach = (struct rdzv_attach){.place = i, .addr = addr};
        send_up(r, &m);
        return (int) i;
    }
    return -1;
}

static void send_detach(struct relay *r, uint32_t place, bool is_broken) {
    struct rdzv_message m = {.type = RDZV_DETACH};
    m.detach = (struct rdzv_detach){.place = place, .is_broken = is_broken};
    send_up(r, &m);
}

void relay_lost(struct relay *r, uint32_t place, enum rendezvous_loss how) {
    struct relay_place *p = &r->places[place];
    bool is_detached = p->is_detached;
    if (p->state != RELAY_ATTACHED) return;
    clear_place(p);
    enter(r, p, is_detached || r->is_over ? RELAY_FREE : RELAY_LEAVING);
    send_detach(r, place, how == RENDEZVOUS_BROKEN);
}

/* Returns whether the BEAT has to be sent to the coordinator, not a HOLD in its place. A HOLD does
 * not carry rounds_over and rounds_seen. So the BEAT is sent if it is the member's first one, or if
 * one of these two numbers differs from that in the member's previous BEAT. */
static bool says_more(const struct relay_place *p, const struct rdzv_beat *b) {
    return !p->has_beat || b->rounds_over != p->beat.rounds_over ||
           b->rounds_seen != p->beat.rounds_seen;
}

static void keep_beat(struct relay *r, int64_t now_ms, struct relay_place *p,
                      const struct rdzv_beat *b) {
    p->beat = *b;
    p->is_kept = true;
    if (r->hold_at_ms > now_ms + r->gather_ms) r->hold_at_ms = now_ms + r->gather_ms;
}

static int pass_up(struct relay *r, uint32_t place, const char *frame, size_t len) {
    struct rdzv_message via = {.type = RDZV_VIA, .via = {.place = place}};
    send_up(r, &via);
    return r->is_over ? -ECANCELED : cr_buffer_append(&r->out, frame, len);
}

struct sender {
    struct relay *relay;
    int64_t now_ms;
    uint32_t place;
};

static int64_t take_frame(void *arg, const char *data, size_t len) {
    const struct sender *s = arg;
    struct relay_place *p = &s->relay->places[s->place];
    struct rdzv_message m;
    size_t used;
    int64_t size = rdzv_frame_size(data, len);
    if (size <= 0) return size;
    if (data[TYPE_AT] == RDZV_BEAT && p->version > 0 &&
        rdzv_message_decode(data, (size_t) size, &m, &used, NULL) == 0) {
        bool is_news = says_more(p, &m.beat);
        if (!is_news) {
            keep_beat(s->relay, s->now_ms, p, &m.beat);
            return size;
        }
        p->beat = m.beat;
        p->has_beat = true;
    }
    int rc = pass_up(s->relay, s->place, data, (size_t) size);
    return rc < 0 ? rc : size;
}

void relay_receive(struct relay *r, int64_t now_ms, uint32_t place, const char *data, size_t len) {
    struct relay_place *p = &r->places[place];
    struct sender s = {.relay = r, .now_ms = now_ms, .place = place};
    if (p->state != RELAY_ATTACHED || p->ends || r->is_over) return;
    int rc = cr_buffer_append(&p->in, data, len);
    if (rc == 0) rc = cr_buffer_take_frames(&p->in, take_frame, &s);
    if (rc < 0) end_member(p, true);
}

/* ---- the trunk ---- */

static void send_down(struct relay_place *p, const char *frame, size_t len) {
    if (p->ends) return;
    if (cr_buffer_append(&p->out, frame, len) < 0) end_member(p, true);
}

/* Notes the protocol version in a member's WELCOME, and the job's keep-alive interval in its
 * ACCEPTED. Ignores all other frames. */
static void look_at(struct relay *r, struct relay_place *p, const char *frame, size_t len) {
    struct rdzv_message m;
    size_t used;
    if (frame[TYPE_AT] != RDZV_WELCOME && frame[TYPE_AT] != RDZV_ACCEPTED) return;
    if (rdzv_message_decode(frame, len, &m, &used, NULL) < 0) return;
    if (m.type == RDZV_WELCOME) p->version = m.welcome.version;
    if (m.type == RDZV_ACCEPTED && m.accepted.keep_alive_interval_ms > 0)
        r->gather_ms = m.accepted.keep_alive_interval_ms / 8 + 1;
}

static int on_frame(void *arg, uint32_t place, const char *frame, size_t len,
                    struct cr_error *err) {
    struct relay *r = arg;
    struct relay_place *p = &r->places[place];
    if (p->state == RELAY_FREE) return cr_fail(err, -EPROTO, "no member is at place %u", place);
    if (p->state == RELAY_LEAVING) return 0;
    look_at(r, p, frame, len);
    send_down(p, frame, len);
    return 0;
}

static int got_detach(struct relay *r, const struct rdzv_detach *d, struct cr_error *err) {
    if (d->place >= RDZV_RELAY_PLACES || r->places[d->place].state == RELAY_FREE)
        return cr_fail(err, -EPROTO, "no member is at place %u", d->place);
    struct relay_place *p = &r->places[d->place];
    if (p->state == RELAY_LEAVING) {
        enter(r, p, RELAY_FREE);
        return 0;
    }
    /* DETACH is not answered here: relay_lost() answers it, once the shell has closed the member's
     * connection */
    end_member(p, d->is_broken != 0);
    p->is_detached = true;
    return 0;
}

/* Call this when the host has answered a HOLD. Answers each BEAT in whose place that HOLD was
 * sent. */
static void got_ack(struct relay *r, const struct rdzv_beat_ack *ack) {
    struct rdzv_message m = {.type = RDZV_BEAT_ACK, .beat_ack = *ack};
    r->answer_by_ms = CR_FOREVER;
    for (uint32_t i = 0; i < RDZV_RELAY_PLACES; i++) {
        struct relay_place *p = &r->places[i];
        if (!p->is_asked) continue;
        p->is_asked = false;
        m.beat_ack.sent_ms = p->asked_ms;
        if (p->state == RELAY_ATTACHED && !p->ends &&
            rdzv_message_encode(&m, p->version, &p->out) < 0)
            end_member(p, true);
    }
}

static int on_message(void *arg, const struct rdzv_message *m, struct cr_error *err) {
    struct relay *r = arg;
    switch ((unsigned) m->type) {
    case RDZV_WELCOME:
        r->is_welcome = true;
        r->answer_by_ms = CR_FOREVER;
        return 0;
    case RDZV_DETACH: return got_detach(r, &m->detach, err);
    case RDZV_BEAT_ACK: return got_ack(r, &m->beat_ack), 0;
    case RDZV_REFUSED:
        return cr_fail(err, -ECONNREFUSED, "the coordinator refuses the relay: %.150s",
                       m->refused.why);
    default: break;
    }
    return cr_fail(err, -EPROTO, "a %s message is not for a relay",
                   rdzv_message_name((unsigned) m->type));
}

void relay_trunk_receive(struct relay *r, const char *data, size_t len) {
    static const struct rdzv_trunk_actions actions = {on_frame, on_message};
    struct cr_error err = {0};
    if (r->is_over) return;
    if (rdzv_trunk_receive(&r->in, data, len, &actions, r, &err) < 0) relay_trunk_lost(r, err.text);
}

/* ---- time ---- */

static void send_hold(struct relay *r, int64_t now_ms) {
    struct rdzv_message m = {.type = RDZV_HOLD};
    m.hold = (struct rdzv_hold){.sent_ms = now_ms, .heard_at_ms = INT64_MAX};
    for (uint32_t i = 0; i < RDZV_RELAY_PLACES; i++) {
        struct relay_place *p = &r->places[i];
        if (!p->is_kept) continue;
        p->is_kept = false;
        p->is_asked = true;
        p->asked_ms = p->beat.sent_ms;
        m.hold.places |= BIT(i);
        if (p->beat.heard_at_ms < m.hold.heard_at_ms) m.hold.heard_at_ms = p->beat.heard_at_ms;
    }
    if (m.hold.places == 0) m.hold.heard_at_ms = 0;
    send_up(r, &m);
    r->hold_at_ms = now_ms + RELAY_IDLE_MS;
    r->answer_by_ms = now_ms + RELAY_ANSWER_MS;
}

void relay_tick(struct relay *r, int64_t now_ms) {
    if (r->is_over) return;
    if (now_ms >= r->answer_by_ms) relay_trunk_lost(r, "the coordinator does not answer");
    else if (r->answer_by_ms == CR_FOREVER && now_ms >= r->hold_at_ms) send_hold(r, now_ms);
}

int64_t relay_deadline(const struct relay *r) {
    if (r->is_over) return CR_FOREVER;
    return r->answer_by_ms != CR_FOREVER ? r->answer_by_ms : r->hold_at_ms;
}
