/* Tells the runs of one run id apart.
 *
 * Each run of a job has an incarnation: a number that the coordinator draws when the first node
 * joins. Nodes learn it once a round has formed, and name it in every later JOIN. A number that is
 * drawn later is larger.
 *
 * A coordinator that is new, because its predecessor was lost, knows nothing of the job. Until it
 * has formed a round, it takes over the incarnation that nodes name in JOIN; if they name different
 * ones, the largest. From these nodes it also takes over the numbers of rounds and restarts, and
 * the ranks. A node of another incarnation is refused, because it runs an earlier job of the same
 * run id, perhaps with another program.
 *
 * When the last node is gone and the job has not ended, the coordinator discards all that it knows
 * of the job but the number of its rounds. So the next run begins with its own settings and a full
 * budget. If nodes of the discarded run join again, their JOINs contain all that the run needs to
 * go on, except the number of the next round: a node that was a spare, or whose ROUND was lost,
 * knows the incarnation and no round. So the coordinator remembers that number, because it must not
 * form two rounds of one run under the same number.
 *
 * A coordinator in the launcher of a node discards nothing once there was a round. If all nodes are
 * gone there, even the launcher's own node, this process has stood still for a while, and the other
 * nodes have joined another coordinator. The next node that joins here may be a new one, which must
 * not begin a run of its own. */
#include "rendezvous/coordinator/coordinator_internal.h"

#include "base/time/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* If the run was discarded, its rounds go on with the number that the next one would have had. */
static void recall_discarded(struct coordinator *c) {
    for (size_t i = 0; i < DISCARDED_MAX && c->incarnation != 0; i++) {
        const struct discarded_run *d = &c->discarded[i];
        if (d->run == c->incarnation && c->next_round < d->rounds) c->next_round = d->rounds;
    }
}

/* Notes the present run, of which this coordinator has formed a round, as the last one that was
 * discarded. It takes the place of its own earlier entry, or of the oldest one. */
static void note_discarded(struct coordinator *c) {
    size_t i = 0;
    while (i < DISCARDED_MAX - 1 && c->discarded[i].run != c->incarnation) i++;
    memmove(&c->discarded[1], &c->discarded[0], i * sizeof(c->discarded[0]));
    c->discarded[0] = (struct discarded_run){.run = c->incarnation, .rounds = c->next_round};
}

void incarnation_begin(struct coordinator *c, const struct rdzv_join *j) {
    c->is_drawn = j->incarnation == 0;
    c->incarnation = j->incarnation;
    if (c->is_drawn && c->actions->draw != NULL) c->incarnation = c->actions->draw(c->arg);
    recall_discarded(c);
}

static int refuse_other_run(struct coordinator *c, void *peer, const struct rdzv_join *j) {
    coordinator_log(c, CR_LOG_WARN,
                    "node '%.200s' (process %" PRIu64 ") is refused: it was started for an earlier "
                    "run of this job", j->host, j->pid);
    (void) coordinator_refuse(c, peer,
                              "this node was started for an earlier run of job '%.64s', and "
                              "another run has begun since; start this node again if it shall be "
                              "part of the new run", c->run_id);
    return -ESTALE;
}

/* Call this when a node of a later run joins. The nodes of the earlier run get END and lose their
 * seats; nodes without an incarnation keep their seats. */
static void send_older_nodes_away(struct coordinator *c) {
    c->next_round = 0;
    c->budget.restart_count = c->budget.spent = c->budget.refilled = 0;
    for (uint32_t i = c->seat_count; i-- > 0;) {
        struct coordinator_seat *s = i < c->seat_count ? c->seats[i] : NULL;
        if (s == NULL || s->incarnation == 0) continue;
        if (s->peer != NULL) {
            coordinator_send_end(c, s->peer, RENDEZVOUS_LOST, "another run of this job has begun");
            c->actions->hang_up(c->arg, s->peer);
        }
        seat_remove(c, s); /* no round needs to be stopped: this coordinator has formed none */
    }
    resuming_forget(c);
    if (c->phase == COORDINATOR_REBUILDING) {
        coordinator_start_forming(c, c->forming_ms, "another run has begun");
    }
    incarnation_end_if_empty(c);
}

int incarnation_check(struct coordinator *c, void *peer, const struct rdzv_join *j) {
    if (c->phase == COORDINATOR_EMPTY) return 0;
    if (j->incarnation == 0 || j->incarnation == c->incarnation) return 0;
    if (c->has_formed) return refuse_other_run(c, peer, j);
    if (!c->is_drawn && j->incarnation < c->incarnation) return refuse_other_run(c, peer, j);
    if (!c->is_drawn) send_older_nodes_away(c);
    c->incarnation = j->incarnation;
    c->is_drawn = false;
    recall_discarded(c);
    return 0;
}

uint64_t incarnation_to_tell(const struct coordinator *c) {
    return c->has_formed || !c->is_drawn ? c->incarnation : 0;
}

/* Takes over the numbers of rounds and restarts in the node's JOIN, if they are larger than the
 * coordinator's own. A node of protocol version 2 names no incarnation, so it may be of another
 * run, and its numbers are ignored once this coordinator has formed a round. */
void incarnation_take_memories(struct coordinator *c, const struct rdzv_join *j) {
    if (j->incarnation == 0 && c->has_formed) return;
    if (j->rounds_seen > c->next_round) c->next_round = j->rounds_seen;
    budget_remember(&c->budget, j->restarts_seen);
}

void incarnation_end_if_empty(struct coordinator *c) {
    bool may_return = c->keeps_job && (c->has_formed || c->succession.now.rounds_seen != 0);
    if (c->seat_count > 0 || c->stands_by || may_return) return;
    if (c->phase == COORDINATOR_EMPTY || c->phase == COORDINATOR_ENDED) return;
    incarnation_discard(c);
}

void incarnation_discard(struct coordinator *c) {
    if (c->has_formed) note_discarded(c);
    coordinator_enter(c, COORDINATOR_EMPTY, "its last node is gone");
    coordinator_log(c, CR_LOG_INFO, "the last node is gone; the next one begins a new run");
    for (uint32_t i = 0; i < c->departed_count; i++) free(c->departed[i]);
    free(c->departed);
    c->departed = NULL;
    c->departed_count = 0;
    c->change.open = c->charge.open = c->charge.charged = false;
    c->budget = (struct budget){0};
    standings_forget(&c->standings);
    c->backoff_until_ms = 0;
    c->round = c->next_round = c->incarnation = c->formed_by = 0;
    resuming_forget(c);
    succession_forget(c);
    c->retires = c->stands_by = false;
    c->has_formed = c->had_stopping = false;
    c->group_size = c->world_size = c->gone_after_success = 0;
    c->last_call_ms = c->store_retry.first_ms = COORDINATOR_NEVER;
    c->wake_ms = CR_FOREVER;
}
