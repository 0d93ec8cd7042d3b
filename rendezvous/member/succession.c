/* Decides what a node does when its coordinator is lost: see succession_internal.h. */
#include "rendezvous/member/succession_internal.h"

#include "base/time/clock.h"

/* for how many leases a node searches for a coordinator, counted from the time at which it may
 * vote. This is enough for two votes: an heir that gets no majority sends its nodes away after two
 * leases. */
#define SEARCH_LEASES 4
/* if a coordinator has served this node for more than this number of leases, it has a majority: an
 * heir without a majority sends its nodes away after two leases */
#define KEPT_LEASES   3

void succession_init(struct succession *s) {
    *s = (struct succession){.own = -1, .may_vote_ms = CR_FOREVER, .lead_ms = CR_FOREVER,
                             .until_ms = CR_FOREVER};
}

void succession_begin_round(struct succession *s, const struct rdzv_round *r,
                            uint64_t coordinator) {
    succession_init(s);
    rdzv_heirs_read(r->heirs, &s->heirs);
    s->leader = r->leader;
    s->round = r->round;
    s->coordinator = coordinator;
    s->before_seen = r->before_seen;
    s->before_size = r->before_size;
    s->before_place = r->before_place;
    s->before_by = r->before_by;
    for (uint32_t i = 0; i < s->heirs.count; i++) {
        if (s->heirs.heir[i].rank == r->group_rank) s->own = (int) i;
    }
}

void succession_begin_beside(struct succession *s, const char *heirs) {
    s->is_beside = true;
    rdzv_heirs_read(heirs, &s->beside);
}

/* Returns the heirs among which this node searches. */
static const struct rdzv_heirs *searched(const struct succession *s) {
    return s->is_beside ? &s->beside : &s->heirs;
}

bool succession_has_heirs(const struct succession *s) { return searched(s)->count > 0; }

void succession_settle(struct succession *s, uint64_t settled, uint64_t coordinator) {
    if (settled != s->round + 1 || coordinator != s->coordinator) return;
    s->before_seen = s->before_by = 0;
    s->before_size = s->before_place = 0;
}

bool succession_lost(struct succession *s, int64_t now_ms, enum rendezvous_loss how,
                     int64_t heard_ms, int64_t lease_ms, int64_t wait_ms) {
    int64_t search_ms = SEARCH_LEASES * lease_ms;
    int64_t free_ms = how == RENDEZVOUS_CLOSED ? now_ms : heard_ms + lease_ms + lease_ms / 4 + 1;
    bool is_heir = s->own >= 0 && !s->is_beside;
    if (now_ms > s->found_ms + KEPT_LEASES * lease_ms) s->until_ms = CR_FOREVER;
    if (!succession_has_heirs(s)) {
        bool is_first = s->until_ms == CR_FOREVER;
        if (is_first) s->until_ms = free_ms + (search_ms > wait_ms ? search_ms : wait_ms);
        return true;
    }
    s->is_lost = true;
    s->may_vote_ms = free_ms;
    s->lead_ms = is_heir ? s->may_vote_ms + s->own * (lease_ms / 2) : CR_FOREVER;
    bool is_new = s->until_ms == CR_FOREVER;
    /* If this node has lost an heir, it tries the candidates after that heir next. Exception: if
     * this node is the first heir and its own host has sent it away, it tries the old coordinator,
     * and then its own host again. Otherwise two heirs that have served at the same time, each
     * alone, would each join the other one. */
    bool is_first = is_heir && s->own == 0 && s->next == 1;
    if (!is_new && is_first) s->next = s->heirs.count;
    if (!is_new) return false;
    s->next = 0;
    s->back_ms = s->may_vote_ms + lease_ms / 2;
    s->until_ms = s->may_vote_ms + (search_ms > wait_ms ? search_ms : wait_ms);
    return true;
}

void succession_found(struct succession *s, int64_t now_ms) {
    s->is_lost = false;
    s->found_ms = now_ms;
    s->may_vote_ms = s->lead_ms = CR_FOREVER;
}

bool succession_is_over(const struct succession *s, int64_t now_ms, enum rendezvous_loss how) {
    bool is_sent_away = how == RENDEZVOUS_CLOSED && s->is_beside;
    return (succession_is_on(s) || is_sent_away) && now_ms >= s->until_ms;
}

bool succession_is_on(const struct succession *s) {
    return s->is_lost && succession_has_heirs(s);
}

bool succession_may_vote(const struct succession *s, int64_t now_ms) {
    return succession_is_on(s) && now_ms >= s->may_vote_ms;
}

const struct rdzv_heir *succession_next(struct succession *s, int64_t now_ms) {
    const struct rdzv_heirs *heirs = searched(s);
    if (!succession_may_vote(s, now_ms)) return NULL;
    if (s->next >= heirs->count && now_ms < s->back_ms) s->next = 0;
    uint32_t i = s->next;
    s->next = i < heirs->count ? i + 1 : 0;
    return i < heirs->count ? &heirs->heir[i] : NULL;
}

bool succession_takes_over(struct succession *s, int64_t now_ms) {
    if (!s->is_lost || now_ms < s->lead_ms) return false;
    s->lead_ms = CR_FOREVER;
    return true;
}

uint64_t succession_epoch(const struct succession *s) {
    return (s->round + 1) << 8 | (uint64_t) (s->own + 1);
}
