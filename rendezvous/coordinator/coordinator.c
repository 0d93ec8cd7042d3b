/* Implements coordinator.h: the phases, the messages of nodes with a seat, and
 * coordinator_reconcile(). After each event that function decides whether a round begins or ends,
 * or the job ends. coordinator_internal.h lists what is in the other files. */
#include "rendezvous/coordinator/coordinator.h"

#include "base/assert.h"
#include "base/time/clock.h"
#include "rendezvous/coordinator/coordinator_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct coordinator *coordinator_new(const char *run_id, const struct coordinator_actions *actions,
                                    void *arg) {
    struct coordinator *c = calloc(1, sizeof(*c));
    if (c == NULL) return NULL;
    c->run_id = strdup(run_id);
    if (c->run_id == NULL) {
        free(c);
        return NULL;
    }
    c->actions = actions;
    c->arg = arg;
    c->may_form = true;
    c->right_until_ms = CR_FOREVER;
    c->last_call_ms = c->store_retry.first_ms = COORDINATOR_NEVER;
    c->wake_ms = CR_FOREVER;
    succession_forget(c);
    return c;
}

void coordinator_free(struct coordinator *c) {
    if (c == NULL) return;
    seats_free(c);
    resuming_forget(c);
    succession_forget(c);
    standings_forget(&c->standings);
    free(c->inquiry.entries);
    hang_done(c);
    free(c->run_id);
    free(c);
}

void coordinator_identify(struct coordinator *c, uint64_t id) { c->id = id; }

/* ---- texts and messages ---- */

void coordinator_log(struct coordinator *c, enum cr_log_level level, const char *fmt, ...) {
    char text[RDZV_TEXT_MAX];
    if (c->actions->wants_log != NULL && !c->actions->wants_log(c->arg, level)) return;
    int n = snprintf(text, sizeof(text), "job '%.64s': ", c->run_id);
    va_list ap;
    va_start(ap, fmt);
    (void) vsnprintf(text + n, sizeof(text) - (size_t) n, fmt, ap);
    va_end(ap);
    c->actions->log(c->arg, level, text);
}

void coordinator_set_why(struct coordinator *c, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    (void) vsnprintf(c->why, sizeof(c->why), fmt, ap);
    va_end(ap);
}

/* Returns the longest time in ms for which a node may stop its workers; 0 = STOP sets no limit. If
 * this coordinator lacks the majority, an heir may form a round after a quarter of a lease, so the
 * limit is an eighth of a lease. If this coordinator has lost the right to form rounds, another
 * leader may be elected; the new leader waits before its first round until the workers have had one
 * lease to stop (forming.c), so the limit is one lease. */
static int64_t limit_of_stop(const struct coordinator *c) {
    if (c->succession.lacks_majority) return c->lease_ms / 8 + 1;
    return c->may_form ? 0 : c->lease_ms;
}

void coordinator_send_stop(struct coordinator *c, struct coordinator_seat *s) {
    struct rdzv_message m = {.type = RDZV_STOP};
    m.stop = (struct rdzv_stop){.round = c->round, .why = c->why, .limit_ms = limit_of_stop(c),
                                .is_unawaited = charge_awaits_nodes(c) ||
                                                        !succession_may_decide(c) ? 0 : 1};
    seat_send(c, s, &m);
}

void coordinator_send_end(struct coordinator *c, void *peer, int outcome, const char *why) {
    struct rdzv_message m = {.type = RDZV_END};
    m.end = (struct rdzv_end){.outcome = (uint32_t) outcome, .why = why};
    c->actions->send(c->arg, peer, &m);
}

/* ---- the phases ---- */

void coordinator_enter(struct coordinator *c, enum coordinator_phase next, const char *why) {
    CR_ASSERT(c->phase != COORDINATOR_ENDED);
    coordinator_log(c, CR_LOG_DEBUG, "%s -> %s (%.200s)", coordinator_phase_name(c->phase),
                    coordinator_phase_name(next), why);
    c->phase = next;
}

void coordinator_start_forming(struct coordinator *c, int64_t now_ms, const char *why) {
    coordinator_enter(c, COORDINATOR_FORMING, why);
    c->forming_ms = now_ms;
    c->gave_up = 0;
    c->last_call_ms = COORDINATOR_NEVER;
    coordinator_wake_by(c, now_ms + c->join_timeout_ms);
}

void coordinator_stop_round(struct coordinator *c, int64_t now_ms) {
    if (c->phase == COORDINATOR_RUNNING) budget_progress(&c->budget, now_ms - c->round_ms);
    c->change.open = false;
    for (uint32_t i = 0; i < c->seat_count; i++) {
        struct coordinator_seat *s = c->seats[i];
        if (s->state != SEAT_RUNNING && s->state != SEAT_SUCCEEDED) continue;
        coordinator_send_stop(c, s);
        seat_enter(c, s, SEAT_STOPPING, now_ms);
    }
    coordinator_start_forming(c, now_ms, c->why);
}

void coordinator_end_job(struct coordinator *c, enum rendezvous_outcome outcome) {
    coordinator_enter(c, COORDINATOR_ENDED, c->why);
    c->change.open = false;
    c->outcome = (int) outcome;
    c->wake_ms = CR_FOREVER;
    for (uint32_t i = 0; i < c->seat_count; i++) {
        if (c->seats[i]->peer == NULL) continue; /* this node gets END when it resumes */
        coordinator_send_end(c, c->seats[i]->peer, (int) outcome, c->why);
    }
}

/* ---- coordinator_reconcile() ---- */

static void nodes_wait_to_be_let_in(struct coordinator *c, int64_t now_ms) {
    if (c->change.open || !succession_may_decide(c)) return;
    coordinator_set_why(c, "%" PRIu32 " more node(s) joined", c->in_state[SEAT_JOINED]);
    if (c->notice_ms > 0) {
        coordinator_announce(c, now_ms, RENDEZVOUS_CHANGE_JOIN, c->notice_ms);
        return;
    }
    c->members_changed = true;
    coordinator_stop_round(c, now_ms);
}

static void reconcile_running(struct coordinator *c, int64_t now_ms) {
    uint32_t succeeded = c->in_state[SEAT_SUCCEEDED] + c->gone_after_success;
    if (succeeded == c->group_size) {
        coordinator_set_why(c, "all workers ended well");
        coordinator_end_job(c, RENDEZVOUS_SUCCEEDED);
    } else if (c->in_state[SEAT_JOINED] > 0 && c->group_size < c->max_nodes && succeeded == 0) {
        nodes_wait_to_be_let_in(c, now_ms);
    }
}

void coordinator_reconcile(struct coordinator *c, int64_t now_ms) {
    c->is_held = false;
    coordinator_expire_right(c, now_ms);
    succession_check(c, now_ms);
    aside_release(c, now_ms);
    if (c->phase == COORDINATOR_REBUILDING) resuming_reconcile(c, now_ms);
    if (c->phase == COORDINATOR_RUNNING) reconcile_running(c, now_ms);
    if (c->phase == COORDINATOR_RUNNING && c->change.open) coordinator_reconcile_change(c, now_ms);
    if (c->phase == COORDINATOR_FORMING) coordinator_reconcile_forming(c, now_ms);
}

/* ---- the messages of nodes with a seat ---- */

/* Notes a further failure of a round that is over. If it is the first one that has to end the job,
 * sends STOP again, now to get the nodes' signs that they know of the end of the round. */
static void got_late_failure(struct coordinator *c, int64_t now_ms, struct coordinator_seat *failed,
                             const struct rdzv_failed *f) {
    bool was_awaited = charge_awaits_nodes(c);
    charge_note_blame(c, now_ms, failed, f);
    if (was_awaited || !charge_awaits_nodes(c)) return;
    for (uint32_t i = 0; i < c->seat_count; i++) {
        struct coordinator_seat *s = c->seats[i];
        if (s->unheard && s->state == SEAT_STOPPING && s->peer != NULL) coordinator_send_stop(c, s);
    }
}

/* Handles FAILED. If the round has failed already, a further FAILED counts only if its blame says
 * that the failure is final, or that the worker was killed from outside (charge.c). A failure in an
 * older round is ignored, because that round is over already. */
static void got_failed(struct coordinator *c, int64_t now_ms, struct coordinator_seat *s,
                       const struct rdzv_failed *f) {
    if (c->phase == COORDINATOR_FORMING) got_late_failure(c, now_ms, s, f);
    if (c->phase != COORDINATOR_RUNNING || f->round != c->round || s->state != SEAT_RUNNING) return;
    seat_enter(c, s, SEAT_STOPPING, now_ms);
    coordinator_set_why(c, "%s", f->what);
    pairs_distrust(s);
    budget_progress(&c->budget, now_ms - c->round_ms);
    c->backoff_until_ms = c->is_rebuilt ? 0 : now_ms + budget_backoff(&c->budget);
    charge_open(c, now_ms, s, f);
    (void) charge_allows_round(c, now_ms);
    if (c->phase != COORDINATOR_RUNNING) return;
    coordinator_stop_round(c, now_ms);
    /* coordinator_stop_round() has sent no STOP to the node of `s`, because its seat was STOPPING
     * already. But if this coordinator may not decide, the node has to get the time limit in STOP,
     * so STOP is sent here. */
    if (!succession_may_decide(c)) coordinator_send_stop(c, s);
}

static void got_succeeded(struct coordinator *c, int64_t now_ms, struct coordinator_seat *s,
                          const struct rdzv_succeeded *m) {
    if (c->phase != COORDINATOR_RUNNING || m->round != c->round) return;
    if (s->state == SEAT_RUNNING) seat_enter(c, s, SEAT_SUCCEEDED, now_ms);
}

/* Handles LEAVE. The node's workers may still run, so the next round waits until the node has
 * closed its connection, unless the node waited for a round and so has no workers. A second LEAVE
 * is ignored, because it would begin the time limit for stopping the workers again. */
static void got_leave(struct coordinator *c, int64_t now_ms, struct coordinator_seat *s,
                      const char *why) {
    bool was_running = s->state == SEAT_RUNNING;
    char name[SEAT_NAME_MAX];
    if (c->phase == COORDINATOR_ENDED || s->state == SEAT_SUCCEEDED) return;
    if (s->state == SEAT_LEAVING) return;
    s->left_idle = s->state == SEAT_JOINED || s->state == SEAT_QUEUED || s->state == SEAT_ASIDE;
    if (s->left_idle) c->left_idle++;
    pairs_seat_gone(c, s);
    seat_enter(c, s, SEAT_LEAVING, now_ms);
    s->is_ended = true;
    aside_node_gone(c, now_ms, now_ms, s);
    charge_node_gone(c, now_ms, s);
    charge_forget(c, s);
    if (s->group_rank >= 0) c->members_changed = true;
    if (c->phase != COORDINATOR_RUNNING || !was_running) return;
    seat_name(s, name);
    coordinator_set_why(c, "%s leaves: %s", name, why);
    budget_lost(&c->budget, c->round);
    coordinator_stop_round(c, now_ms);
    /* The node needs no STOP to stop its workers: it does so because it leaves. But if this
     * coordinator may not decide, the node has to get the time limit in STOP, so STOP is sent
     * here. */
    if (!succession_may_decide(c)) coordinator_send_stop(c, s);
}

static int got_join_again(struct coordinator *c, int64_t now_ms, struct coordinator_seat *s,
                          const struct rdzv_join *join, struct cr_error *err) {
    /* the node sent this JOIN before it received END, so the JOIN is ignored */
    if (c->phase == COORDINATOR_ENDED) return 0;
    if (s->state == SEAT_RUNNING && s->missed_round) {
        resuming_repeat_round(c, now_ms, s);
        return 0;
    }
    /* a node may send JOIN again if it has stopped its workers, or if it is not fit: in that case
     * it sends JOIN when the result of its health check changes */
    if (s->state != SEAT_STOPPING && !s->is_unfit) {
        return cr_fail(err, -EPROTO, "a JOIN message came from a node that is %s",
                       seat_state_name(s->state));
    }
    s->store_port = join->store_port <= UINT16_MAX ? (uint16_t) join->store_port : 0;
    seat_join(c, s, join, now_ms);
    aside_place(c, now_ms, s);
    succession_tell_spare(c, s);
    succession_heard(c, now_ms, s, join->heard_at_ms, join->rounds_seen);
    return 0;
}

static void answer_beat(struct coordinator *c, int64_t now_ms, struct coordinator_seat *s,
                        const struct rdzv_beat *b) {
    struct rdzv_message ack = {.type = RDZV_BEAT_ACK};
    ack.beat_ack.sent_ms = b->sent_ms;
    ack.beat_ack.at_ms = now_ms > 0 ? now_ms : 1;
    ack.beat_ack.settled = succession_settled(c);
    seat_send(c, s, &ack);
}

/* Returns whether a BEAT may change what is due. It may if this coordinator lacks the majority, or
 * if its last round is not settled, because a BEAT makes ballots of its node held. */
static bool needs_beats(const struct coordinator *c) {
    return c->succession.lacks_majority || !succession_may_form(c);
}

int coordinator_receive(struct coordinator *c, int64_t now_ms, struct coordinator_seat *seat,
                        const struct rdzv_message *m, struct cr_error *err) {
    int rc = 0;
    bool needs_it, all_heard = charge_heard(c, seat, m);
    succession_expire(c, now_ms);
    if (seat->next != NULL) coordinator_refuse_next(c, seat);
    seat->heard_ms = now_ms;
    seat->suspected_ms = COORDINATOR_NEVER;
    if (c->phase == COORDINATOR_REBUILDING) resuming_hear(c, now_ms, seat, m);
    switch ((unsigned) m->type) {
    case RDZV_BEAT:
        needs_it = needs_beats(c);
        succession_heard(c, now_ms, seat, m->beat.heard_at_ms, m->beat.rounds_seen);
        answer_beat(c, now_ms, seat, &m->beat);
        /* if neither is true, the beat makes nothing due, so coordinator_reconcile() need not
         * run */
        if (!all_heard && !needs_it) return 0;
        break;
    case RDZV_ABANDON: seat->abandons = true; return 0;
    case RDZV_JOIN: rc = got_join_again(c, now_ms, seat, &m->join, err); break;
    case RDZV_FAILED: got_failed(c, now_ms, seat, &m->failed); break;
    case RDZV_SUCCEEDED:
        got_succeeded(c, now_ms, seat, &m->succeeded);
        hang_node_succeeded(c, seat);
        hang_judge(c, now_ms);
        break;
    case RDZV_LEAVE: got_leave(c, now_ms, seat, m->leave.why); break;
    case RDZV_CHANGE_ANSWER: coordinator_got_answer(c, now_ms, seat, &m->change_answer); break;
    case RDZV_CHANGE_READY: coordinator_got_ready(c, seat, m->change_ready.id); break;
    case RDZV_NOTICE: coordinator_got_notice(c, now_ms, seat, &m->notice); break;
    case RDZV_INQUIRE:
        if (m->inquire.round == c->round) coordinator_inquire(c, now_ms);
        break;
    case RDZV_PROGRESS:
        inquiry_got_progress(c, seat, &m->progress);
        if (!all_heard) return 0;
        break;
    case RDZV_QUIET: hang_got_quiet(c, seat, &m->quiet, now_ms); break;
    case RDZV_PAIRED: pairs_got(c, seat, &m->paired); break;
    case RDZV_ROW: hang_got_row(c, seat, &m->row); break;
    case RDZV_INSPECTED: hang_got_inspected(c, seat, m->inspected.id); break;
    case RDZV_RANK:
        ranks_got(c, seat, &m->rank, now_ms);
        if (!all_heard) return 0;
        break;
    default:
        rc = cr_fail(err, -EPROTO, "a node must not send a %s message",
                     rdzv_message_name((unsigned) m->type));
    }
    if (rc == 0) coordinator_reconcile(c, now_ms);
    return rc;
}

/* ---- nodes whose connection is gone ---- */

/* Frees the seat. If all workers of the node had ended well, the round goes on without the node,
 * which is still counted as succeeded. If its workers were running, the round is stopped. */
void coordinator_take_seat(struct coordinator *c, int64_t now_ms, struct coordinator_seat *s,
                           const char *how, const char *why) {
    bool had_round = !seat_waits(s) || s->group_rank >= 0;
    enum seat_state was = s->state;
    char name[SEAT_NAME_MAX];
    seat_name(s, name);
    seat_remove(c, s);
    if (c->phase == COORDINATOR_ENDED) return;
    coordinator_log(c, had_round ? CR_LOG_INFO : CR_LOG_DEBUG, "%s %s: %s", name, how, why);
    if (c->phase == COORDINATOR_RUNNING && was == SEAT_SUCCEEDED) {
        c->gone_after_success++;
        hang_judge(c, now_ms);
        hang_tick(c, now_ms);
    } else if (c->phase == COORDINATOR_RUNNING && was == SEAT_RUNNING) {
        c->members_changed = true;
        coordinator_set_why(c, "%s %s: %s", name, how, why);
        budget_lost(&c->budget, c->round);
        coordinator_stop_round(c, now_ms);
    } else if (c->phase == COORDINATOR_FORMING && had_round) {
        c->members_changed = true;
    }
}

void coordinator_vacate(struct coordinator *c, int64_t now_ms, struct coordinator_seat *s,
                        const char *how, const char *why) {
    coordinator_take_seat(c, now_ms, s, how, why);
    incarnation_end_if_empty(c);
    coordinator_reconcile(c, now_ms);
}

void coordinator_count_lost(struct coordinator *c, int64_t now_ms,
                            const struct coordinator_seat *s) {
    /* heard_ms is passed, because the node may have been gone since its last message */
    aside_node_gone(c, now_ms, s->heard_ms, s);
    charge_node_gone(c, s->heard_ms, s);
}

void coordinator_lost(struct coordinator *c, int64_t now_ms, struct coordinator_seat *seat,
                      const char *why) {
    coordinator_expire_right(c, now_ms);
    coordinator_count_lost(c, now_ms, seat);
    seat->is_ended = !seat->abandons;
    coordinator_vacate(c, now_ms, seat, "was lost", why);
}

/* ---- orders of operators and of the host ---- */

uint32_t coordinator_operate(struct coordinator *c, int64_t now_ms,
                             const struct rdzv_operate *what) {
    struct rdzv_message m = {.type = RDZV_ASK_DUMP};
    uint32_t asked = 0;
    m.ask_dump.why = what->why;
    if (what->kind != 0) {
        m.type = RDZV_ASK_NOTICE;
        m.ask_notice = (struct rdzv_ask_notice){
            .kind = what->kind, .left_ms = what->left_ms, .why = what->why};
    }
    for (uint32_t i = 0; c->phase != COORDINATOR_ENDED && i < c->seat_count; i++) {
        struct coordinator_seat *s = c->seats[i];
        if (what->host[0] != '\0' && strcmp(what->host, s->host) != 0) continue;
        seat_send(c, s, &m);
        asked++;
    }
    if (what->kind == 0 && asked > 0) coordinator_inquire(c, now_ms);
    return asked;
}

uint32_t coordinator_inspect(struct coordinator *c, const char *host, uint64_t id,
                             const char *why) {
    struct rdzv_message m = {.type = RDZV_ASK_INSPECT};
    uint32_t asked = 0;
    m.ask_inspect = (struct rdzv_ask_inspect){.id = id, .why = why};
    for (uint32_t i = 0; c->phase != COORDINATOR_ENDED && i < c->seat_count; i++) {
        struct coordinator_seat *s = c->seats[i];
        if (s->peer == NULL || (host[0] != '\0' && strcmp(host, s->host) != 0)) continue;
        seat_send(c, s, &m);
        asked++;
    }
    return asked;
}

void coordinator_keep_job(struct coordinator *c) { c->keeps_job = true; }
void coordinator_retire(struct coordinator *c) { c->retires = true; }

void coordinator_follows_another(struct coordinator *c) { c->follows_another = true; }

void coordinator_expire_right(struct coordinator *c, int64_t now_ms) {
    if (!c->may_form || now_ms < c->right_until_ms) return;
    c->may_form = false;
    coordinator_log(c, CR_LOG_DEBUG, "the right to form rounds has ended");
}

void coordinator_may_form(struct coordinator *c, int64_t now_ms, int64_t until_ms) {
    bool may_form = now_ms < until_ms;
    c->right_until_ms = until_ms;
    if (c->may_form == may_form) return;
    c->may_form = may_form;
    if (may_form) c->stands_by = false;
    coordinator_log(c, CR_LOG_DEBUG, "may %sform rounds", may_form ? "" : "not ");
    if (c->phase != COORDINATOR_ENDED) coordinator_reconcile(c, now_ms);
}

void coordinator_stand_by(struct coordinator *c) {
    c->stands_by = true;
    charge_close(c);
    c->charge.killed_until_ms = COORDINATOR_NEVER;
}

void coordinator_goodbye(struct coordinator *c, const char *why) {
    struct rdzv_message m = {.type = RDZV_GOODBYE};
    m.goodbye.why = why;
    if (c->phase == COORDINATOR_ENDED) return;
    for (uint32_t i = c->seat_count; i-- > 0;) {
        struct coordinator_seat *s = c->seats[i];
        if (s->local) continue;
        seat_send(c, s, &m);
        if (s->peer != NULL) c->actions->hang_up(c->arg, s->peer);
        seat_remove(c, s);
    }
    coordinator_set_why(c, "%s", why);
    coordinator_end_job(c, RENDEZVOUS_LOST);
}
