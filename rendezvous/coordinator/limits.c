/* All time limits: each node's lease, the time to join, the time to stop workers, and the next
 * deadline of the coordinator. */
#include "rendezvous/coordinator/coordinator_internal.h"

#include "base/time/clock.h"

#include <inttypes.h>
#include <stdio.h>

/* shortest time limit, in ms, to stop the workers of a node whose JOIN names no limit; longer than
 * usual graces */
#define STOP_LIMIT_MS INT64_C(120000)

void coordinator_wake_by(struct coordinator *c, int64_t when_ms) {
    if (when_ms < c->wake_ms) c->wake_ms = when_ms;
}

int64_t coordinator_deadline(const struct coordinator *c) { return c->wake_ms; }

/* ---- the time to join, and to stop workers ---- */

static int64_t max_ms(int64_t a, int64_t b) { return a > b ? a : b; }

/* Returns how long the node may take to stop its workers, in ms: the limit in the node's JOIN. If
 * the JOIN names no limit (protocol version 2), it is join_timeout, but at least STOP_LIMIT_MS. */
static int64_t stop_limit(const struct coordinator *c, const struct coordinator_seat *s) {
    return s->stop_limit_ms > 0 ? s->stop_limit_ms : max_ms(c->join_timeout_ms, STOP_LIMIT_MS);
}

int64_t coordinator_state_limit(const struct coordinator *c, const struct coordinator_seat *s) {
    if (c->phase != COORDINATOR_FORMING) return CR_FOREVER;
    if (s->state == SEAT_STOPPING || s->state == SEAT_LEAVING) {
        return s->since_ms + stop_limit(c, s);
    }
    bool waits = s->state == SEAT_JOINED || s->state == SEAT_UNFIT;
    if (!waits || c->had_stopping) return CR_FOREVER;
    return max_ms(max_ms(s->since_ms, c->forming_ms), c->backoff_until_ms) + c->join_timeout_ms;
}

static void describe_timeout(const struct coordinator *c, const struct coordinator_seat *s,
                             int64_t now_ms, char why[RDZV_TEXT_MAX]) {
    char here[500], missing[120], gone[64] = "";
    if (s->state == SEAT_UNFIT) {
        (void) snprintf(why, RDZV_TEXT_MAX, "this node is not fit, and was not for %g s: %s",
                        (double) c->join_timeout_ms / 1000, seat_unfit(s));
        return;
    }
    if (s->state != SEAT_JOINED) {
        (void) snprintf(why, RDZV_TEXT_MAX, "its workers could not be stopped for %" PRId64 " s",
                        (now_ms - s->since_ms) / 1000);
        return;
    }
    coordinator_list_hosts(c, here, sizeof(here));
    coordinator_list_missing(c, missing, sizeof(missing));
    if (c->gave_up > 0) {
        (void) snprintf(gone, sizeof(gone), ", and %" PRIu32 " that gave up before", c->gave_up);
    }
    (void) snprintf(why, RDZV_TEXT_MAX,
                    "the rendezvous timed out after %g s: %" PRIu32 " of at least %" PRIu32
                    " nodes came: %s%s%s; start the missing ones with the same endpoint and "
                    "--rdzv-id, or raise join_timeout in --rdzv-conf",
                    (double) c->join_timeout_ms / 1000, c->in_state[SEAT_JOINED] + c->gave_up,
                    c->min_nodes, here, gone, missing);
}

static void time_is_up(struct coordinator *c, int64_t now_ms, struct coordinator_seat *s) {
    char why[RDZV_TEXT_MAX];
    describe_timeout(c, s, now_ms, why);
    if (s->state == SEAT_JOINED) c->gave_up++;
    if (s->peer != NULL) {
        coordinator_send_end(c, s->peer, RENDEZVOUS_LOST, why);
        c->actions->hang_up(c->arg, s->peer);
    }
    if (s->state != SEAT_JOINED) { /* its workers were not stopped in time, or it is not fit */
        coordinator_log(c, CR_LOG_WARN, "node '%.200s' (process %" PRIu64 ") is left out: %.300s",
                        s->host, s->pid, why);
    }
    coordinator_take_seat(c, now_ms, s, "was sent away", "its time is up");
}

/* ---- the lease ---- */

static int64_t confirm_ms(const struct coordinator *c) { return c->lease_ms / 8 + 1; }

static int64_t lease_limit(const struct coordinator *c, const struct coordinator_seat *s) {
    if (s->local) return CR_FOREVER;
    if (s->suspected_ms != COORDINATOR_NEVER) return s->suspected_ms + confirm_ms(c);
    return s->heard_ms + c->lease_ms;
}

/* Returns whether a silent node is lost, which takes two checks. The first check after the end of
 * the lease only notes the time. The second check, an eighth of the lease later, decides: if this
 * process was stopped or slow, the node's messages were waiting in the socket, and they were read
 * between the two checks. If the second check comes late, this process was slow again, so that
 * check counts as a first one. */
static bool lease_is_over(struct coordinator *c, struct coordinator_seat *s, int64_t now_ms) {
    if (now_ms < lease_limit(c, s)) return false;
    bool is_first = s->suspected_ms == COORDINATOR_NEVER;
    if (is_first || now_ms > s->suspected_ms + 2 * confirm_ms(c)) {
        s->suspected_ms = now_ms;
        return false;
    }
    return true;
}

static void lease_expired(struct coordinator *c, int64_t now_ms, struct coordinator_seat *s) {
    char why[100];
    (void) snprintf(why, sizeof(why), "nothing heard from it for %" PRId64 " ms",
                    now_ms - s->heard_ms);
    if (s->peer != NULL) c->actions->hang_up(c->arg, s->peer);
    coordinator_count_lost(c, now_ms, s);
    s->is_ended = false; /* the node's process may still run, with another coordinator */
    coordinator_take_seat(c, now_ms, s, "was lost", why);
}

/* Frees the seats of all nodes whose time is over, and calls coordinator_reconcile() only after
 * that: otherwise a round could form with another node whose time is over, too. */
static void check_seats(struct coordinator *c, int64_t now_ms) {
    uint32_t had = c->seat_count;
    for (uint32_t i = c->seat_count; i-- > 0;) {
        struct coordinator_seat *s = c->seats[i];
        if (lease_is_over(c, s, now_ms)) lease_expired(c, now_ms, s);
        else if (now_ms >= coordinator_state_limit(c, s)) time_is_up(c, now_ms, s);
    }
    if (c->seat_count == had) return;
    incarnation_end_if_empty(c);
    coordinator_reconcile(c, now_ms);
}

/* ---- coordinator_tick() and the next deadline ---- */

/* Calls coordinator_wake_by() if when_ms is still to come. If when_ms has passed, the coordinator
 * has tried already what was due at that time, and can try it again only after another event. */
static void wake_after(struct coordinator *c, int64_t now_ms, int64_t when_ms) {
    if (when_ms > now_ms) coordinator_wake_by(c, when_ms);
}

static void find_forming_deadline(struct coordinator *c, int64_t now_ms) {
    if (c->phase != COORDINATOR_FORMING) return;
    wake_after(c, now_ms, resuming_until(c, now_ms));
    if (!c->had_stopping && !c->is_held && !resuming_must_wait(c, now_ms) &&
        c->last_call_ms != COORDINATOR_NEVER) {
        wake_after(c, now_ms, c->last_call_ms);
    }
    if (c->store_retry.first_ms != COORDINATOR_NEVER) wake_after(c, now_ms, c->store_retry.next_ms);
    wake_after(c, now_ms, c->backoff_until_ms);
}

void coordinator_find_deadline(struct coordinator *c, int64_t now_ms) {
    c->wake_ms = CR_FOREVER;
    if (c->phase == COORDINATOR_ENDED) return;
    for (uint32_t i = 0; i < c->seat_count; i++) {
        coordinator_wake_by(c, coordinator_state_limit(c, c->seats[i]));
        coordinator_wake_by(c, lease_limit(c, c->seats[i]));
        coordinator_wake_by(c, coordinator_waiting_due(c, c->seats[i]));
    }
    find_forming_deadline(c, now_ms);
    if (c->change.open) coordinator_wake_by(c, c->change.until_ms);
    if (c->charge.open) wake_after(c, now_ms, c->charge.killed_until_ms);
    wake_after(c, now_ms, c->rebuild.until_ms);
    coordinator_wake_by(c, aside_deadline(c));
    coordinator_wake_by(c, succession_deadline(c));
    if (c->inquiry.is_open) coordinator_wake_by(c, c->inquiry.until_ms);
    if (c->hang.is_open) coordinator_wake_by(c, c->hang.until_ms);
    coordinator_wake_by(c, ranks_deadline(c));
    wake_after(c, now_ms, pairs_deadline(c, now_ms));
}

void coordinator_tick(struct coordinator *c, int64_t now_ms) {
    if (now_ms < c->wake_ms) return;
    /* Reconcile before the time limits are checked: if the last call ends at the same time as a
     * node's join_timeout, the round forms with that node. */
    coordinator_reconcile(c, now_ms);
    succession_tick(c, now_ms);
    coordinator_tell_waiting(c, now_ms);
    inquiry_tick(c, now_ms);
    hang_tick(c, now_ms);
    pairs_tick(c, now_ms);
    ranks_tick(c, now_ms);
    if (c->phase != COORDINATOR_ENDED) check_seats(c, now_ms);
    coordinator_find_deadline(c, now_ms);
}
