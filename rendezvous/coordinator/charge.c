/* Decides whether a failed round costs a restart.
 *
 * A worker also fails when a node is gone: its peers in that node do not answer any more. The
 * report of such a failure may arrive before the loss of the node is noticed, so the first FAILED
 * of a round only opens the decision. All nodes are stopped at once. If a node of the round leaves
 * or is lost within a lease after the failure, that node explains the failure, and the round costs
 * nothing.
 *
 * The decision costs no time. While the budget has a restart left, it is made when the next round
 * forms, because by then every node of the failed round has joined again or is gone. If the budget
 * is spent, the job ends as soon as every node has sent something since the failure; members send a
 * beat at once when they are stopped. A node that sends nothing is waited for until its lease is
 * over. */
#include "rendezvous/coordinator/coordinator_internal.h"

#include <inttypes.h>
#include <stdio.h>

static bool was_in_round(const struct coordinator_seat *s) {
    return s->state == SEAT_RUNNING || s->state == SEAT_SUCCEEDED;
}

void charge_open(struct coordinator *c, int64_t now_ms, struct coordinator_seat *failed,
                 const char *what) {
    c->charge = (struct coordinator_charge){.open = true, .failed_ms = now_ms};
    (void) snprintf(c->charge.what, sizeof(c->charge.what), "%s", what);
    for (uint32_t i = 0; i < c->seat_count; i++) {
        struct coordinator_seat *s = c->seats[i];
        s->unheard = s != failed && !s->local && was_in_round(s);
        if (s->unheard) c->charge.unheard++;
    }
}

bool charge_heard(struct coordinator *c, struct coordinator_seat *s) {
    if (!s->unheard) return false;
    s->unheard = false;
    return --c->charge.unheard == 0;
}

void charge_node_gone(struct coordinator *c, int64_t since_ms, const struct coordinator_seat *s) {
    if (!c->charge.open || c->charge.excused || s->group_rank < 0) return;
    if (since_ms > c->charge.failed_ms + c->lease_ms) return;
    c->charge.excused = true;
    coordinator_log(c, CR_LOG_INFO,
                    "round %" PRIu64 " costs no restart, because its node '%.200s' is gone; the "
                    "failure was: %.500s",
                    c->round, s->host, c->charge.what);
}

void charge_settle(struct coordinator *c) {
    if (!c->charge.open || c->charge.excused || budget_is_left(&c->budget)) return;
    if (c->charge.unheard > 0) return;
    coordinator_set_why(c, "%s", c->charge.what);
    c->charge.open = false;
    coordinator_end_job(c, RENDEZVOUS_FAILED);
}

void charge_close(struct coordinator *c) {
    if (c->charge.open && !c->charge.excused) budget_charge(&c->budget);
    c->charge.open = false;
}
