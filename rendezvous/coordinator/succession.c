/* When the coordinator is lost: who takes over, and which coordinator may decide.
 *
 * If the coordinator runs in the launcher of a node, and the round has three nodes or more, ROUND
 * names heirs. When the coordinator is lost, the nodes stop their workers and join the first heir
 * that serves them. That heir may form the next round once more than half of the round's nodes have
 * joined it (electorate_internal.h). The lost coordinator may still run, cut off from the others.
 * It may decide only until so many nodes are silent that these could have elected an heir; then it
 * stops its round.
 *
 * When a round forms, its electorate replaces that of the round before. But nodes that have not
 * received the new ROUND may still elect an heir as nodes of the old round. So the old electorate
 * counts as well until too few such nodes are left; then the new round is settled. Until it is
 * settled, no further round forms, and an heir of the new round may decide only while the nodes of
 * the old electorate cannot elect another one. */
#include "rendezvous/coordinator/coordinator_internal.h"

#include "base/time/clock.h"

#include <inttypes.h>
#include <string.h>

/* A round with fewer nodes has no heirs: if the coordinator's node is lost, the nodes that are left
 * are not more than half of the round, so they cannot elect an heir. */
#define GROUP_MIN 3
/* A coordinator without the majority sends its nodes away every AWAY_LEASES leases, and ends the
 * job after END_LEASES leases. END_LEASES is the sum of AWAY_LEASES and the four leases for which a
 * node that was sent away searches for a coordinator (member/succession.c). */
#define AWAY_LEASES 2
#define END_LEASES  6

void coordinator_set_own(struct coordinator *c, uint64_t instance) {
    c->succession.own_instance = instance;
}

void coordinator_allow_heirs(struct coordinator *c) { c->succession.allows_heirs = true; }

void coordinator_is_heir(struct coordinator *c) { c->succession.is_heir = true; }

bool succession_may_decide(const struct coordinator *c) {
    return c->may_form && !c->succession.lacks_majority;
}

/* ---- which ballots are held ---- */

static void hold_ballots(struct coordinator *c, const struct coordinator_seat *s) {
    struct coordinator_succession *u = &c->succession;
    int64_t until_ms = s->confirmed_ms + c->lease_ms;
    if (s->confirmed_ms == COORDINATOR_NEVER) return;
    electorate_hold(&u->now, s->ballot, until_ms);
    electorate_hold(&u->before, s->ballot_before, until_ms);
}

void succession_heard(struct coordinator *c, int64_t now_ms, struct coordinator_seat *s,
                      int64_t heard_at_ms, uint64_t rounds_seen) {
    struct coordinator_succession *u = &c->succession;
    if (heard_at_ms > now_ms) heard_at_ms = now_ms;
    if (heard_at_ms > 0 && heard_at_ms > s->confirmed_ms) s->confirmed_ms = heard_at_ms;
    hold_ballots(c, s);
    if (u->before.rounds_seen == 0 || rounds_seen <= u->before.rounds_seen) return;
    electorate_hold(&u->before, s->ballot_before, CR_FOREVER);
    if (electorate_is_closed(&u->before)) electorate_end(&u->before);
}

/* ---- the ballots of a node that joins ---- */

static bool is_same_round(const struct seat_vote *a, const struct seat_vote *b) {
    return a->rounds_seen == b->rounds_seen && a->formed_by == b->formed_by;
}

/* Gives the seat the ballots that its node has in the electorates of this coordinator. */
static void claim_ballots(struct coordinator *c, struct coordinator_seat *s) {
    struct coordinator_succession *u = &c->succession;
    const struct seat_vote *v = &s->vote;
    s->ballot = s->ballot_before = -1;
    if (v->rank < 0) return;
    if (electorate_is_of(&u->now, v->rounds_seen, v->formed_by)) {
        s->ballot = electorate_claim(&u->now, v->rank, s->instance);
    }
    if (electorate_is_of(&u->before, v->rounds_seen, v->formed_by)) {
        s->ballot_before = electorate_claim(&u->before, v->rank, s->instance);
    } else if (s->ballot >= 0 && electorate_is_of(&u->before, v->before_seen, v->before_by)) {
        s->ballot_before = electorate_claim(&u->before, v->before_rank, s->instance);
        electorate_hold(&u->before, s->ballot_before, CR_FOREVER); /* it has a later round */
    }
    /* before_seen is 0 if the node knows that its last round is settled; in that case the
     * electorate of the round before is not needed */
    if (s->ballot >= 0 && v->before_seen == 0 && !c->has_formed) electorate_end(&u->before);
}

/* Begins two electorates: that of the round that the node of `j` was in, which an earlier
 * coordinator has formed, and that of the round before it. This coordinator may decide only after
 * it has won both. If memory is short, the electorate of the round has no ballots, and cannot be
 * won. */
static void begin_foreign(struct coordinator *c, const struct rdzv_join *j) {
    struct coordinator_succession *u = &c->succession;
    electorate_end(&u->before);
    electorate_end(&u->now);
    u->old_leader = (int64_t) j->leader - 1;
    bool has_before = j->before_size > 0 && j->before_size <= RDZV_NODES_MAX;
    if ((has_before && electorate_begin(&u->before, j->before_seen, j->before_by, j->before_size,
                                        false) < 0) ||
        electorate_begin(&u->now, j->rounds_seen, j->formed_by, j->last_group_size, false) < 0) {
        u->now.rounds_seen = j->rounds_seen;
        u->now.formed_by = j->formed_by;
    }
    for (uint32_t i = 0; i < c->seat_count; i++) {
        claim_ballots(c, c->seats[i]);
        hold_ballots(c, c->seats[i]);
    }
}

/* Two coordinators may each have formed a round of the same number, and nodes of both may come to
 * this coordinator. Returns whether more of the nodes with a seat were in the round of `v` than in
 * the round of the current electorate; false if this coordinator has won that electorate or has
 * formed a round. */
static bool is_larger_rival(const struct coordinator *c, const struct seat_vote *v) {
    const struct electorate *e = &c->succession.now;
    uint32_t here = 0, there = 0;
    if (c->has_formed || e->is_won || v->rounds_seen != e->rounds_seen) return false;
    if (v->formed_by == e->formed_by) return false;
    for (uint32_t i = 0; i < c->seat_count; i++) {
        const struct seat_vote *other = &c->seats[i]->vote;
        if (other->rank < 0) continue;
        here += electorate_is_of(e, other->rounds_seen, other->formed_by) ? 1 : 0;
        there += is_same_round(other, v) ? 1 : 0;
    }
    return there > here;
}

static struct seat_vote vote_of(const struct rdzv_join *j) {
    bool has_heirs = j->heirs > 0 && j->last_group_size >= GROUP_MIN &&
                     j->last_group_size <= RDZV_NODES_MAX && j->last_rank >= 0;
    return (struct seat_vote){
        .rounds_seen = j->rounds_seen, .formed_by = j->formed_by,
        .before_seen = j->before_seen, .before_by = j->before_by,
        .rank = has_heirs ? j->last_rank : -1,
        .before_rank = has_heirs ? (int64_t) j->before_place - 1 : -1};
}

void succession_seat_new(struct coordinator *c, int64_t now_ms, struct coordinator_seat *s,
                         const struct rdzv_join *j) {
    struct coordinator_succession *u = &c->succession;
    /* true: the node's last round is newer than all rounds that this coordinator knows, so an
     * earlier coordinator has formed it */
    bool is_newer = j->rounds_seen > u->now.rounds_seen &&
                    j->rounds_seen >= c->next_round + (c->has_formed ? 1 : 0);
    s->vote = vote_of(j);
    s->confirmed_ms = COORDINATOR_NEVER;
    s->heir_port = j->heir_port <= UINT16_MAX ? (uint16_t) j->heir_port : 0;
    if (s->vote.rank >= 0 && (is_newer || is_larger_rival(c, &s->vote))) begin_foreign(c, j);
    claim_ballots(c, s);
    u->check_ms = 0;
    succession_heard(c, now_ms, s, j->heard_at_ms, j->rounds_seen);
}

void succession_seat_gone(struct coordinator *c, const struct coordinator_seat *s) {
    struct coordinator_succession *u = &c->succession;
    u->check_ms = 0;
    if (s->is_ended) {
        electorate_void(&u->now, s->ballot);
        electorate_void(&u->before, s->ballot_before);
    } else {
        electorate_release(&u->now, s->ballot);
        electorate_release(&u->before, s->ballot_before);
    }
}

/* ---- the heirs that ROUND names ---- */

static const struct coordinator_seat *seat_of_rank(const struct coordinator *c, int64_t rank) {
    for (uint32_t i = 0; i < c->seat_count; i++) {
        if (c->seats[i]->group_rank == rank) return c->seats[i];
    }
    return NULL;
}

/* Chooses the heirs: nodes whose JOIN has named a port at which they would host, in the order of
 * their group ranks. Considers only the first RDZV_HEIRS_MAX + 8 ranks, because seat_of_rank()
 * searches all seats for each rank. */
static void choose_heirs(struct coordinator *c) {
    struct coordinator_succession *u = &c->succession;
    u->heirs = (struct rdzv_heirs){.count = 0};
    u->leader = -1;
    for (uint32_t i = 0; u->own_instance != 0 && i < c->seat_count; i++) {
        const struct coordinator_seat *s = c->seats[i];
        if (s->group_rank >= 0 && s->instance == u->own_instance) u->leader = s->group_rank;
    }
    if (!u->allows_heirs || c->fixed_ranks || c->group_size < GROUP_MIN) return;
    for (int64_t rank = 0; rank < RDZV_HEIRS_MAX + 8 && rank < (int64_t) c->group_size; rank++) {
        const struct coordinator_seat *s = seat_of_rank(c, rank);
        if (s == NULL || rank == u->leader || s->heir_port == 0 || s->addr[0] == '\0') continue;
        rdzv_heirs_add(&u->heirs, (uint32_t) rank, s->addr, s->heir_port);
    }
}

/* Begins the electorate of the round that has just formed; the electorate that was the current one
 * becomes u->before. */
static void begin_own(struct coordinator *c) {
    struct coordinator_succession *u = &c->succession;
    electorate_end(&u->before);
    u->before = u->now;
    u->now = (struct electorate){.rounds_seen = 0};
    for (uint32_t i = 0; i < c->seat_count; i++) {
        struct coordinator_seat *s = c->seats[i];
        s->ballot_before = s->ballot;
        s->ballot = -1;
        s->asked_to_yield = false;
    }
    if (u->heirs.count == 0) return;
    if (electorate_begin(&u->now, c->round + 1, c->formed_by, c->group_size, true) < 0) {
        u->heirs.count = 0; /* without memory, the round has no heirs */
        return;
    }
    for (uint32_t i = 0; i < c->seat_count; i++) {
        struct coordinator_seat *s = c->seats[i];
        s->ballot = electorate_claim(&u->now, s->group_rank, s->instance);
        /* a node that never sends heard_at_ms is of an older build and can join no heir, so its
         * ballot is void */
        if (s->confirmed_ms == COORDINATOR_NEVER) electorate_void(&u->now, s->ballot);
        hold_ballots(c, s);
    }
}

void succession_round_formed(struct coordinator *c) {
    struct coordinator_succession *u = &c->succession;
    choose_heirs(c);
    begin_own(c);
    rdzv_heirs_write(&u->heirs, u->heirs_text);
    u->old_leader = -1;
    u->check_ms = 0;
}

void succession_tell_spare(struct coordinator *c, const struct coordinator_seat *s) {
    struct rdzv_message m = {.type = RDZV_SPARE};
    if (c->phase != COORDINATOR_RUNNING || !seat_awaits_round(s) || c->is_rebuilt) return;
    if (!c->succession.allows_heirs) return;
    m.spare.heirs = c->succession.heirs_text;
    seat_send(c, s, &m);
}

/* ---- nodes of the round before that wait beside the last one ---- */

/* Returns whether the node can be asked to give up its vote in the electorate of the round before.
 * A node that is in no round and waits takes no part in the last round, so it never shows by itself
 * that it knows of that round. */
static bool can_yield(const struct coordinator *c, const struct coordinator_seat *s) {
    if (!seat_awaits_round(s) || s->peer == NULL) return false;
    return electorate_is_open(&c->succession.before, s->ballot_before);
}

/* Most nodes of the round before may wait as spares beside the last round: they were lost and have
 * joined again, or are not fit, or are set aside. Then that round is not settled when it ends. So
 * the waiting nodes are asked to give up their votes, if that settles it. Only in this case: a node
 * that has given up its vote elects no heir if this coordinator is lost in the meantime. An heir
 * that has formed no round yet does the same for the last round of its nodes. */
void succession_settle_with_spares(struct coordinator *c) {
    struct coordinator_succession *u = &c->succession;
    struct rdzv_message m = {.type = RDZV_SPARE};
    uint32_t yielding = 0;
    if (u->before.rounds_seen == 0 || !succession_may_decide(c)) return;
    for (uint32_t i = 0; i < c->seat_count; i++) yielding += can_yield(c, c->seats[i]) ? 1 : 0;
    if (!electorate_can_close(&u->before, yielding)) return;
    m.spare.heirs = u->heirs_text;
    m.spare.yields = c->has_formed ? c->round + 1 : u->now.rounds_seen;
    for (uint32_t i = 0; i < c->seat_count; i++) {
        struct coordinator_seat *s = c->seats[i];
        if (s->asked_to_yield || !can_yield(c, s)) continue;
        s->asked_to_yield = true;
        seat_send(c, s, &m);
    }
}

/* ---- what follows from the majority ---- */

/* Stops the round. The nodes that this coordinator still reaches get a short time to stop their
 * workers. A node that it does not reach stops its workers at its own fence. */
static void majority_is_lost(struct coordinator *c, int64_t now_ms) {
    coordinator_set_why(c, "this coordinator no longer hears half of the %" PRIu32 " nodes of "
                        "round %" PRIu64 ", so another node may take over",
                        c->succession.now.size, c->round);
    coordinator_log(c, CR_LOG_WARN, "%s", c->why);
    c->members_changed = true;
    if (c->phase != COORDINATOR_FORMING) {
        coordinator_stop_round(c, now_ms);
        return;
    }
    /* nodes that are stopping their workers already get STOP again, now with the short time
     * limit */
    for (uint32_t i = 0; i < c->seat_count; i++) {
        struct coordinator_seat *s = c->seats[i];
        if (s->state == SEAT_STOPPING || s->state == SEAT_LEAVING) coordinator_send_stop(c, s);
    }
}

void coordinator_send_away(struct coordinator *c) {
    if (c->seat_count == 0) return;
    coordinator_log(c, CR_LOG_WARN, "closes the connections of its nodes, which may find a "
                    "coordinator that reaches more than half of the nodes");
    c->stands_by = c->has_formed;
    while (c->seat_count > 0) {
        struct coordinator_seat *s = c->seats[0];
        if (s->peer != NULL) c->actions->hang_up(c->arg, s->peer);
        seat_remove(c, s);
    }
    /* A coordinator that has formed no round knows of the job only what its nodes have told it.
     * These nodes are gone now, so it discards the job. */
    if (!c->has_formed) incarnation_discard(c);
}

/* Returns whether the job is older than this coordinator, and no node of the job's last round has
 * joined yet. For an heir, the job is always older. For any other coordinator, spares show that the
 * job is older: they name an incarnation, but were in no round. */
static bool is_foreign_run(const struct coordinator *c) {
    const struct coordinator_succession *u = &c->succession;
    if (c->has_formed || u->now.rounds_seen != 0) return false;
    return u->is_heir || (u->allows_heirs && c->incarnation != 0 && !c->is_drawn);
}

void succession_expire(struct coordinator *c, int64_t now_ms) {
    coordinator_expire_right(c, now_ms);
    if (!c->succession.lacks_majority) succession_check(c, now_ms);
}

void succession_check(struct coordinator *c, int64_t now_ms) {
    struct coordinator_succession *u = &c->succession;
    bool is_over = c->phase == COORDINATOR_ENDED || c->phase == COORDINATOR_EMPTY;
    if (is_over || (!u->lacks_majority && now_ms < u->check_ms)) return;
    bool may = electorate_may_decide(&u->now, now_ms);
    if (!electorate_may_decide(&u->before, now_ms)) may = false;
    if (is_foreign_run(c)) may = false;
    u->check_ms = CR_FOREVER;
    if (may && u->now.rounds_seen != 0) u->check_ms = electorate_until(&u->now, now_ms);
    if (may && u->before.rounds_seen != 0) {
        int64_t until_ms = electorate_until(&u->before, now_ms);
        if (until_ms < u->check_ms) u->check_ms = until_ms;
    }
    bool was_lacking = u->lacks_majority;
    u->lacks_majority = !may;
    if (may == was_lacking) {
        coordinator_log(c, CR_LOG_DEBUG, "%s", may ? "may decide: no other coordinator can have "
                                                     "been elected" : "lacks the majority");
    }
    if (!may && !was_lacking) {
        u->lacks_since_ms = now_ms;
        u->away_ms = now_ms + AWAY_LEASES * c->lease_ms;
    }
    if (!may && !was_lacking && c->has_formed) majority_is_lost(c, now_ms);
    coordinator_wake_by(c, succession_deadline(c));
}

void succession_tick(struct coordinator *c, int64_t now_ms) {
    struct coordinator_succession *u = &c->succession;
    bool is_over = c->phase == COORDINATOR_ENDED || c->phase == COORDINATOR_EMPTY;
    if (is_over || !u->lacks_majority || now_ms < u->away_ms) return;
    u->away_ms = now_ms + AWAY_LEASES * c->lease_ms;
    bool may_end = c->has_formed || (is_foreign_run(c) && !u->is_heir);
    if (may_end && now_ms >= u->lacks_since_ms + END_LEASES * c->lease_ms) {
        coordinator_set_why(c, "too few nodes of the job's last round are left to go on: half of "
                            "them or more are silent, and no other node has taken over");
        coordinator_end_job(c, RENDEZVOUS_LOST);
    } else if (!is_foreign_run(c) || u->is_heir) {
        coordinator_send_away(c);
    }
}

int64_t succession_deadline(const struct coordinator *c) {
    const struct coordinator_succession *u = &c->succession;
    if (c->phase == COORDINATOR_ENDED || c->phase == COORDINATOR_EMPTY) return CR_FOREVER;
    if (u->lacks_majority && c->seat_count == 0) return CR_FOREVER;
    if (u->lacks_majority) return u->away_ms;
    return u->now.rounds_seen + u->before.rounds_seen > 0 ? u->check_ms : CR_FOREVER;
}

uint64_t succession_settled(const struct coordinator *c) {
    const struct coordinator_succession *u = &c->succession;
    return u->before.rounds_seen == 0 && c->has_formed ? u->now.rounds_seen : 0;
}

bool succession_may_form(const struct coordinator *c) {
    return c->succession.before.rounds_seen == 0;
}

bool succession_all_are_back(const struct coordinator *c, int64_t now_ms) {
    const struct electorate *e = &c->succession.now;
    uint32_t back = 0;
    if (e->rounds_seen == 0 || e->rounds_seen != c->next_round || c->has_formed) return false;
    for (uint32_t i = 0; i < e->size; i++) {
        bool is_old_leader = (int64_t) i == c->succession.old_leader;
        const struct ballot *b = &e->ballots[i];
        back += b->is_void || is_old_leader || b->held_until_ms > now_ms ? 1 : 0;
    }
    return back == e->size;
}

enum coordinator_claim coordinator_hear_epoch(struct coordinator *c, int64_t now_ms) {
    struct coordinator_succession *u = &c->succession;
    if (c->phase == COORDINATOR_ENDED || !c->has_formed) return COORDINATOR_SERVES;
    u->check_ms = 0;
    succession_check(c, now_ms);
    if (!u->lacks_majority) return COORDINATOR_SERVES;
    coordinator_send_away(c);
    return COORDINATOR_IS_SUPERSEDED;
}

void succession_forget(struct coordinator *c) {
    struct coordinator_succession *u = &c->succession;
    electorate_end(&u->now);
    electorate_end(&u->before);
    *u = (struct coordinator_succession){.allows_heirs = u->allows_heirs, .is_heir = u->is_heir,
                                         .own_instance = u->own_instance,
                                         .leader = -1, .old_leader = -1};
}
