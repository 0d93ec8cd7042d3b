/* Applies the agent's packets to the state of the worker's round. Pure. */
#include "worker_runtime/channel/packet.h"

#include "base/time/clock.h"

#define AGENT_LATE_MS INT64_C(5000)

static int64_t later_ms(int64_t now_ms, int64_t left_ms) {
    if (left_ms < 0) return now_ms;
    return left_ms > CR_FOREVER - now_ms ? CR_FOREVER : now_ms + left_ms;
}

void round_state_receive(struct round_state *s, const struct channel_packet *p, int64_t now_ms) {
    switch (p->type) {
    case CHANNEL_CHANGE: /* a second CHANGE replaces the first one, so the agreed step is unknown
                          * again */
        s->change = *p;
        s->stop_at = 0;
        s->change_until_ms = later_ms(now_ms, p->change.left_ms);
        return;
    case CHANNEL_STOP_AT:
        if (s->change.type == 0 || p->id != s->change.id) return;
        s->stop_at = p->stop_at.step;
        s->change_until_ms = later_ms(now_ms, p->stop_at.left_ms);
        return;
    case CHANNEL_OVER: s->is_over = true; return;
    case CHANNEL_REFUSED: s->is_refused = true; return;
    default: return;
    }
}

bool round_state_is_frozen(const struct round_state *s) {
    return s->change.type != 0 && s->stop_at == 0 && !s->is_over;
}

bool round_state_must_stop(const struct round_state *s) {
    return s->stop_at != 0 && s->steps >= s->stop_at;
}

int64_t round_state_wait_until_ms(const struct round_state *s) {
    return round_state_is_frozen(s) ? later_ms(s->change_until_ms, AGENT_LATE_MS) : 0;
}
