/* Decides whether a failed round costs a restart.
 *
 * If a node is gone, workers on other nodes fail, too, because the workers of that node do not
 * answer them any more. The report of such a failure may arrive before the coordinator notices that
 * the node is lost, so the first FAILED of a round only opens the decision. All nodes are stopped
 * at once. If a node of the round leaves or is lost within a lease after the failure, or leaves or
 * is lost without an earlier sign that it has heard of the failure, that node explains the failure,
 * and the round costs nothing.
 *
 * An open decision delays the job by almost nothing. While the budget has a restart left, the
 * decision is made when the next round forms, because by then every node of the failed round has
 * joined again or is gone. If the budget is spent, the job ends as soon as every node of the round
 * has shown that it knows of the round's end: STOP then asks members to send a beat at once, which
 * takes one round trip. A node that sends nothing is waited for until its lease is over.
 *
 * If a worker was killed from outside, its whole node may be about to end. If the node leaves or is
 * lost within KILLED_MS, it excuses the failure. While the budget has a restart left, the next
 * round does not wait for that: the failure is charged, and the charge is refunded if the node goes
 * in time.
 *
 * A failure that is final ends the job like a failure with a spent budget, even if restarts are
 * left. It is final if the program of the worker has --on-failure=end. A failure may be final and
 * that of a killed worker: then, too, the end of the job waits KILLED_MS for the worker's node. */
#include "rendezvous/coordinator/coordinator_internal.h"

#include <inttypes.h>
#include <stdio.h>

/* A node excuses the failure if it leaves or is lost within this time, in ms, after one of its
 * workers was killed. Tools that end a node send signals to its processes one after the other,
 * which takes a few ms. */
#define KILLED_MS INT64_C(200)

static bool was_in_round(const struct coordinator_seat *s) {
    return s->state == SEAT_RUNNING || s->state == SEAT_SUCCEEDED;
}

void charge_open(struct coordinator *c, int64_t now_ms, struct coordinator_seat *failed,
                 const struct rdzv_failed *f) {
    c->charge = (struct coordinator_charge){
        .open = true, .failed_ms = now_ms, .killed_until_ms = COORDINATOR_NEVER,
        /* a failure of a rebuilt round is excused, because the store of that round may have been
         * lost with the earlier coordinator */
        .excused = c->is_rebuilt};
    c->charge.round = c->round;
    (void) snprintf(c->charge.what, sizeof(c->charge.what), "%s", f->what);
    (void) snprintf(c->charge.host, sizeof(c->charge.host), "%s", failed->host);
    for (uint32_t i = 0; i < c->seat_count; i++) {
        struct coordinator_seat *s = c->seats[i];
        s->is_killed = false;
        s->unheard = s != failed && !s->local && was_in_round(s);
        if (s->unheard) c->charge.unheard++;
    }
    charge_note_blame(c, now_ms, failed, f);
}

void charge_note_blame(struct coordinator *c, int64_t now_ms, struct coordinator_seat *s,
                   const struct rdzv_failed *f) {
    if (!c->charge.open || f->round != c->round) return;
    bool is_both = f->blame == RENDEZVOUS_FINAL_KILLED;
    if (f->blame == RENDEZVOUS_FINAL || is_both) c->charge.is_final = true;
    /* KILLED is ignored if the job has one node: if that node goes, no node is left to go on */
    if ((f->blame != RENDEZVOUS_KILLED && !is_both) || c->seat_count == 1) return;
    s->is_killed = true;
    c->charge.killed_until_ms = now_ms + KILLED_MS;
    coordinator_wake_by(c, c->charge.killed_until_ms);
}

/* Returns whether this message shows that its node knows of the end of the last round. JOIN and
 * FAILED show it. A beat shows it by rounds_over; a beat of protocol version 2 lacks this field and
 * always counts. Any other message, LEAVE included, shows nothing: the node may have sent it before
 * the round was stopped. */
static bool knows_of_end(const struct coordinator *c, const struct rdzv_message *m) {
    if (m->type == RDZV_BEAT) return m->beat.rounds_over == 0 || m->beat.rounds_over > c->round + 1;
    return m->type == RDZV_JOIN || m->type == RDZV_FAILED;
}

void charge_forget(struct coordinator *c, struct coordinator_seat *s) {
    if (s->unheard) c->charge.unheard--;
    s->unheard = false;
}

bool charge_heard(struct coordinator *c, struct coordinator_seat *s, const struct rdzv_message *m) {
    if (!s->unheard || !knows_of_end(c, m)) return false;
    charge_forget(c, s);
    return c->charge.unheard == 0;
}

static void excuse(struct coordinator *c, const struct coordinator_seat *s) {
    c->charge.excused = true;
    c->backoff_until_ms = 0;
    if (c->charge.is_counted) standings_excused(&c->standings, c->charge.host);
    coordinator_log(c, CR_LOG_INFO,
                    "a failure costs no restart, because node '%.200s' is gone; the failure was: "
                    "%.500s", s->host, c->charge.what);
}

void charge_node_gone(struct coordinator *c, int64_t since_ms, const struct coordinator_seat *s) {
    if (c->charge.excused) return;
    if (c->charge.open) {
        bool in_time = since_ms <= c->charge.failed_ms + c->lease_ms;
        if (!s->unheard && (s->group_rank < 0 || !in_time)) return;
        excuse(c, s);
        budget_lost(&c->budget, c->charge.round);
    } else if (c->charge.charged && s->is_killed && since_ms <= c->charge.killed_until_ms) {
        budget_refund(&c->budget);
        excuse(c, s);
    }
}

/* Returns true until KILLED_MS after a worker was killed, because the worker's node may leave or be
 * lost until then, which excuses the failure. If this function is called more than KILLED_MS after
 * the end of that time, this process was stopped or slow, and a LEAVE of the node may be unread in
 * the socket. In that case the time begins again. */
static bool awaits_killed_node(struct coordinator *c, int64_t now_ms) {
    if (c->charge.killed_until_ms == COORDINATOR_NEVER) return false;
    if (now_ms >= c->charge.killed_until_ms + KILLED_MS) {
        c->charge.killed_until_ms = now_ms + KILLED_MS;
        coordinator_wake_by(c, c->charge.killed_until_ms);
    }
    return now_ms < c->charge.killed_until_ms;
}

bool charge_awaits_nodes(const struct coordinator *c) {
    if (!c->charge.open || c->charge.excused) return false;
    return c->charge.is_final || !budget_is_left(&c->budget);
}

bool charge_allows_round(struct coordinator *c, int64_t now_ms) {
    if (!charge_awaits_nodes(c)) return true;
    if (c->charge.unheard > 0 || awaits_killed_node(c, now_ms)) return false;
    c->charge.open = false;
    coordinator_set_why(c, "%s", c->charge.what);
    coordinator_end_job(c, RENDEZVOUS_FAILED);
    return false;
}

void charge_close(struct coordinator *c) {
    bool is_due = c->charge.open && !c->charge.excused;
    if (is_due && (c->charge.is_final || !budget_is_left(&c->budget))) return;
    if (is_due) {
        budget_charge(&c->budget);
        c->charge.charged = true;
    }
    c->charge.open = false;
}
