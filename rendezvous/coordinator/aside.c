/* Handles hosts on which something goes wrong again and again (standing.c): notes what happens on
 * each host, and keeps the nodes of a host out of rounds while the host is slowed or set aside.
 *
 *   JOIN ──► refused, while the host is refused
 *        ──► ASIDE ── the host is slowed or set aside no longer ──────────────────► JOINED
 *                  └─ the host is set aside, but too few other nodes wait ────────► JOINED */
#include "rendezvous/coordinator/coordinator_internal.h"

#include "base/time/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static double seconds(int64_t ms) { return (double) ms / 1000; }

/* ---- what happens on a host ---- */

static void log_change(struct coordinator *c, enum standing_change change, const char *host) {
    const struct standing *s = standings_find(&c->standings, host);
    const struct standing_rules *r = &c->standings.rules;
    if (change == STANDING_SAME || s == NULL) return;
    if (change == STANDING_ASIDE) {
        coordinator_log(c, CR_LOG_WARN,
                        "host '%.200s' is set aside for %g s, because %" PRIu32 " failures began "
                        "there; it takes part only if the other nodes are too few; crun-agent "
                        "admit ends this", host, seconds(r->aside_ms), s->failures);
        return;
    }
    char what[80];
    if (change == STANDING_REFUSED) {
        (void) snprintf(what, sizeof(what), "its nodes are refused for %g s",
                        seconds(r->flap_refusal_ms));
    } else {
        (void) snprintf(what, sizeof(what), "its next node waits %g s",
                        seconds(s->slowed_until_ms - s->event_ms));
    }
    coordinator_log(c, CR_LOG_WARN,
                    "nodes of host '%.200s' were lost %" PRIu32 " times in a row within %g s of "
                    "joining: %s; crun-agent admit ends this",
                    host, s->short_lives, seconds(r->flap_window_ms), what);
}

/* Call this when a host has been slowed or set aside. Puts those seats of the host into the state
 * ASIDE that are JOINED and were made at since_ms or later, except the seat `gone`. Seats that are
 * ASIDE already get the new time limit. */
static void place_others(struct coordinator *c, int64_t now_ms, const char *host, int64_t since_ms,
                         const struct coordinator_seat *gone) {
    for (uint32_t i = 0; i < c->seat_count; i++) {
        struct coordinator_seat *s = c->seats[i];
        if (s == gone || s->joined_ms < since_ms || strcmp(s->host, host) != 0) continue;
        aside_place(c, now_ms, s);
    }
}

void aside_node_gone(struct coordinator *c, int64_t now_ms, int64_t since_ms,
                     const struct coordinator_seat *s) {
    /* If the node was waiting for a round, its end does not count as a short life: it ends no
     * round, and the node's process may still run, because perhaps only its connection was lost. */
    bool was_in_round = s->group_rank >= 0 && s->state != SEAT_SUCCEEDED && !seat_waits(s);
    /* If this coordinator lacks the majority, or the node had another coordinator before, nothing
     * is counted: the time for which the seat existed is not the time for which the node lived. */
    if (!was_in_round || s->gave_notice || !s->counts_life || c->succession.lacks_majority) return;
    enum standing_change change = standings_lost(&c->standings, now_ms, s->host, c->round,
                                                 since_ms - s->joined_ms);
    log_change(c, change, s->host);
    if (change == STANDING_SLOWED) place_others(c, now_ms, s->host, s->joined_ms, s);
}

/* ---- seats that wait in the state ASIDE ---- */

/* Returns the time until which the node of this seat is kept out of rounds; 0 = the node is not
 * kept out. Sets *may_recall to true if the node takes part in spite of that when too few other
 * nodes wait. A node that was in the last round is not kept out because its host is slowed: then
 * another node of the host has made the host flap. */
static int64_t out_until(const struct coordinator *c, int64_t now_ms,
                         const struct coordinator_seat *seat, bool *may_recall) {
    const struct standing *s = standings_find(&c->standings, seat->host);
    *may_recall = true;
    if (s == NULL) return 0;
    if (s->slowed_until_ms > now_ms && seat->group_rank < 0) {
        *may_recall = false;
        return s->slowed_until_ms;
    }
    return s->aside_until_ms > now_ms ? s->aside_until_ms : 0;
}

bool aside_comes_last(const struct coordinator *c, int64_t now_ms,
                      const struct coordinator_seat *s) {
    bool may_recall;
    return c->standings.count > 0 && out_until(c, now_ms, s, &may_recall) != 0;
}

void aside_place(struct coordinator *c, int64_t now_ms, struct coordinator_seat *s) {
    bool is_waiting = s->state == SEAT_JOINED || s->state == SEAT_ASIDE, may_recall;
    if (c->standings.count == 0 || !is_waiting) return;
    int64_t until_ms = out_until(c, now_ms, s, &may_recall);
    if (until_ms == 0) return;
    s->aside_until_ms = until_ms;
    s->may_recall = may_recall;
    coordinator_wake_by(c, until_ms);
    if (s->state == SEAT_ASIDE) return;
    seat_enter(c, s, SEAT_ASIDE, now_ms);
    if (s->group_rank >= 0) c->members_changed = true;
}

int64_t aside_deadline(const struct coordinator *c) {
    int64_t first_ms = CR_FOREVER;
    if (c->in_state[SEAT_ASIDE] == 0) return first_ms;
    for (uint32_t i = 0; i < c->seat_count; i++) {
        const struct coordinator_seat *s = c->seats[i];
        if (s->state == SEAT_ASIDE && s->aside_until_ms < first_ms) first_ms = s->aside_until_ms;
    }
    return first_ms;
}

void aside_release(struct coordinator *c, int64_t now_ms) {
    if (c->in_state[SEAT_ASIDE] == 0) return;
    for (uint32_t i = 0; i < c->seat_count; i++) {
        struct coordinator_seat *s = c->seats[i];
        if (s->state != SEAT_ASIDE) continue;
        if (now_ms >= s->aside_until_ms) seat_enter(c, s, SEAT_JOINED, now_ms);
    }
}

void aside_recall(struct coordinator *c, int64_t now_ms) {
    if (c->in_state[SEAT_ASIDE] == 0 || c->in_state[SEAT_JOINED] >= c->min_nodes) return;
    for (uint32_t i = 0; i < c->seat_count; i++) {
        struct coordinator_seat *s = c->seats[i];
        if (s->state != SEAT_ASIDE || !s->may_recall) continue;
        seat_enter(c, s, SEAT_JOINED, now_ms);
        coordinator_log(c, CR_LOG_INFO,
                        "host '%.200s' is set aside, but takes part: the other nodes are fewer "
                        "than %" PRIu32, s->host, c->min_nodes);
    }
}

void aside_count_failure(struct coordinator *c, int64_t now_ms) {
    struct coordinator_charge *charge = &c->charge;
    if (!charge->open || charge->excused || charge->is_counted || c->hang.is_unblamed) return;
    charge->is_counted = true;
    enum standing_change change = standings_failed(&c->standings, now_ms, charge->host);
    log_change(c, change, charge->host);
    if (change == STANDING_ASIDE) place_others(c, now_ms, charge->host, 0, NULL);
}

/* ---- nodes that join, and operators ---- */

int64_t aside_refuses(const struct coordinator *c, int64_t now_ms, const char *host,
                      char why[RDZV_TEXT_MAX]) {
    const struct standing *s = standings_find(&c->standings, host);
    if (s == NULL || s->refused_until_ms <= now_ms) return 0;
    (void) snprintf(why, RDZV_TEXT_MAX,
                    "nodes of host '%.200s' were lost %" PRIu32 " times in a row within %g s of "
                    "joining, so they are refused for another %g s; see what ends them, or let "
                    "them in with: crun-agent admit",
                    host, s->short_lives, seconds(c->standings.rules.flap_window_ms),
                    seconds(s->refused_until_ms - now_ms));
    return s->refused_until_ms - now_ms;
}

void aside_describe(const struct coordinator *c, int64_t now_ms, const struct coordinator_seat *s,
                    char *out, size_t room) {
    const struct standing *h = standings_find(&c->standings, s->host);
    if (h == NULL || s->may_recall) {
        (void) snprintf(out, room,
                        "because %" PRIu32 " failures began on this host: it is set aside for "
                        "another %g s, unless the other nodes are too few",
                        h == NULL ? 0 : h->failures, seconds(s->aside_until_ms - now_ms));
    } else {
        (void) snprintf(out, room,
                        "because nodes of this host were lost %" PRIu32 " times in a row soon "
                        "after they had joined: it may take part again in %g s",
                        h->short_lives, seconds(s->aside_until_ms - now_ms));
    }
}

uint32_t coordinator_admit(struct coordinator *c, int64_t now_ms, const char *host) {
    if (!standings_admit(&c->standings, host)) return 0;
    coordinator_log(c, CR_LOG_WARN, "an operator admits host '%.200s': what happened there is "
                    "forgotten", host);
    for (uint32_t i = 0; i < c->seat_count; i++) {
        struct coordinator_seat *s = c->seats[i];
        bool is_meant = s->state == SEAT_ASIDE && strcmp(s->host, host) == 0;
        if (is_meant) seat_enter(c, s, SEAT_JOINED, now_ms);
    }
    coordinator_reconcile(c, now_ms);
    return 1;
}

void coordinator_visit_hosts(const struct coordinator *c, int64_t now_ms,
                             void (*visit)(void *arg, const struct host_view *host), void *arg) {
    for (uint32_t i = 0; i < c->standings.count; i++) {
        const struct standing *s = &c->standings.hosts[i];
        struct host_view v = {.host = s->host, .short_lives = s->short_lives,
                              .failures = s->failures};
        if (s->slowed_until_ms > now_ms) v.slowed_ms = s->slowed_until_ms - now_ms;
        if (s->refused_until_ms > now_ms) v.refused_ms = s->refused_until_ms - now_ms;
        if (s->aside_until_ms > now_ms) v.aside_ms = s->aside_until_ms - now_ms;
        visit(arg, &v);
    }
}
