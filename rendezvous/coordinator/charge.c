/* Decides whether a failed round costs a restart.
 *
 * A worker also fails when a node is gone, because its peers on that node do not answer any more.
 * The report of such a failure may arrive before the loss of the node is noticed, so the first
 * FAILED of a round only opens the decision. All nodes are stopped at once. If a node of the round
 * leaves or is lost within a lease after the failure, or is lost without a sign that it has heard
 * of the failure, that node explains the failure, and the round costs nothing.
 *
 * The decision costs almost no time. While the budget has a restart left, it is made when the next
 * round forms, because by then every node of the failed round has joined again or is gone. If the
 * budget is spent, the job ends as soon as every node of the round has shown that it knows of the
 * round's end: members send a beat when they are stopped, which takes one round trip. A node that
 * sends nothing is waited for until its lease is over.
 *
 * A worker that was killed from outside is perhaps the first sign that its whole node is being
 * ended. The node has KILLED_MS to leave or to be lost. The next round does not wait for that, so
 * the failure is charged and, if the node goes in time, refunded. */
#include "rendezvous/coordinator/coordinator_internal.h"

#include <inttypes.h>
#include <stdio.h>

/* How long after a worker was killed its node may go, in ms. Tools that end a node send signals to
 * its processes one after the other, which takes a few ms. */
#define KILLED_MS INT64_C(200)

static bool was_in_round(const struct coordinator_seat *s) {
    return s->state == SEAT_RUNNING || s->state == SEAT_SUCCEEDED;
}

void charge_open(struct coordinator *c, int64_t now_ms, struct coordinator_seat *failed,
                 const struct rdzv_failed *f) {
    c->charge = (struct coordinator_charge){
        .open = true, .failed_ms = now_ms, .killed_until_ms = COORDINATOR_NEVER,
        /* the store of the round was on the host of the earlier coordinator and is lost */
        .excused = c->is_rebuilt};
    (void) snprintf(c->charge.what, sizeof(c->charge.what), "%s", f->what);
    for (uint32_t i = 0; i < c->seat_count; i++) {
        struct coordinator_seat *s = c->seats[i];
        s->is_killed = false;
        s->unheard = s != failed && !s->local && was_in_round(s);
        if (s->unheard) c->charge.unheard++;
    }
    charge_killed(c, now_ms, failed, f);
}

void charge_killed(struct coordinator *c, int64_t now_ms, struct coordinator_seat *s,
                   const struct rdzv_failed *f) {
    /* with a single node there is no other one that could go on without it */
    if (!c->charge.open || f->round != c->round || f->is_killed == 0 || c->seat_count == 1) return;
    s->is_killed = true;
    c->charge.killed_until_ms = now_ms + KILLED_MS;
    coordinator_wake_by(c, c->charge.killed_until_ms);
}

/* Whether a node that has sent this message knows that the last round is over. Other messages may
 * have been under way when the round was stopped, and their node may be gone since. Beats of
 * protocol version 2 do not say what the node knows. */
static bool knows_of_end(const struct coordinator *c, const struct rdzv_message *m) {
    if (m->type == RDZV_BEAT) return m->beat.rounds_over == 0 || m->beat.rounds_over > c->round + 1;
    return m->type == RDZV_JOIN || m->type == RDZV_FAILED || m->type == RDZV_LEAVE;
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
    coordinator_log(c, CR_LOG_INFO,
                    "a failure costs no restart, because node '%.200s' is gone; the failure was: "
                    "%.500s", s->host, c->charge.what);
}

void charge_node_gone(struct coordinator *c, int64_t since_ms, const struct coordinator_seat *s) {
    if (c->charge.excused) return;
    if (c->charge.open) {
        bool in_time = since_ms <= c->charge.failed_ms + c->lease_ms;
        if (s->unheard || (s->group_rank >= 0 && in_time)) excuse(c, s);
    } else if (c->charge.charged && s->is_killed && since_ms <= c->charge.killed_until_ms) {
        budget_refund(&c->budget);
        excuse(c, s);
    }
}

/* Whether a node whose worker was killed may still go and so excuse the failure. If the end of that
 * time is noticed late, this process was stopped or slow, and the node's LEAVE may wait in the
 * socket, so the time begins again. */
static bool awaits_killed_node(struct coordinator *c, int64_t now_ms) {
    if (c->charge.killed_until_ms == COORDINATOR_NEVER) return false;
    if (now_ms >= c->charge.killed_until_ms + KILLED_MS) {
        c->charge.killed_until_ms = now_ms + KILLED_MS;
        coordinator_wake_by(c, c->charge.killed_until_ms);
    }
    return now_ms < c->charge.killed_until_ms;
}

bool charge_allows_round(struct coordinator *c, int64_t now_ms) {
    if (!c->charge.open || c->charge.excused || budget_is_left(&c->budget)) return true;
    if (c->charge.unheard > 0 || awaits_killed_node(c, now_ms)) return false;
    c->charge.open = false;
    coordinator_set_why(c, "%s", c->charge.what);
    coordinator_end_job(c, RENDEZVOUS_FAILED);
    return false;
}

void charge_close(struct coordinator *c) {
    if (c->charge.open && !c->charge.excused) {
        budget_charge(&c->budget);
        c->charge.charged = true;
    }
    c->charge.open = false;
}
