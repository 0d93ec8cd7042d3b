/* The end of a round with notice, because a node waits to join, or because a node has given notice
 * that it leaves.
 *
 *   announced: CHANGE to all nodes ───── all have answered ──────► set: CHANGE_AT, one agreed step
 *        │                                                               │ all are ready,
 *        │ no worker counts steps, or the time is up                     │ or the time is up
 *        └───────────────────────────► STOP ◄────────────────────────────┘
 * If a worker fails or a node is lost before the STOP, the round is stopped at once, and the change
 * is void. */
#include "rendezvous/coordinator/coordinator_internal.h"

#define NOTICE_MAX_MS (INT64_C(1000) * 86400000)

/* ---- announcing a change ---- */

static void send_change(struct coordinator *c, struct coordinator_seat *s, uint32_t kind,
                        int64_t left_ms) {
    struct rdzv_message m = {.type = RDZV_CHANGE};
    m.change = (struct rdzv_change){.round = c->round, .id = c->change.id, .kind = kind,
                                    .left_ms = left_ms, .why = c->why};
    seat_send(c, s, &m);
}

void coordinator_announce(struct coordinator *c, int64_t now_ms, uint32_t kind, int64_t left_ms) {
    c->change = (struct coordinator_change){.open = true,
                                            .kind = kind,
                                            .is_hard = kind != RENDEZVOUS_CHANGE_JOIN,
                                            .id = c->change.id + 1,
                                            .notice_ms = now_ms + left_ms,
                                            .until_ms = now_ms + left_ms,
                                            .step = -1};
    coordinator_log(c, CR_LOG_INFO, "round %llu will end within %g s: %s",
                    (unsigned long long) c->round, (double) left_ms / 1000, c->why);
    for (uint32_t i = 0; i < c->seat_count; i++) {
        struct coordinator_seat *s = c->seats[i];
        if (s->state != SEAT_RUNNING) continue;
        seat_take_part(c, s, CHANGE_ASKED);
        send_change(c, s, kind, left_ms);
    }
    coordinator_wake_by(c, c->change.until_ms);
}

/* Call this if a second change comes while one is announced. The announced change goes on, but it
 * must be over by until_ms, the deadline of the second change. */
static void hasten(struct coordinator *c, int64_t until_ms) {
    c->change.is_hard = true;
    if (until_ms < c->change.until_ms) c->change.until_ms = until_ms;
    coordinator_wake_by(c, c->change.until_ms);
}

void coordinator_got_notice(struct coordinator *c, int64_t now_ms, struct coordinator_seat *s,
                            const struct rdzv_notice *n) {
    int64_t left_ms = n->left_ms < 0 ? 0 : n->left_ms < NOTICE_MAX_MS ? n->left_ms : NOTICE_MAX_MS;
    char name[SEAT_NAME_MAX];
    s->gave_notice = true;
    if (c->phase != COORDINATOR_RUNNING || s->state != SEAT_RUNNING) return;
    if (c->change.open) {
        hasten(c, now_ms + left_ms);
        return;
    }
    seat_name(s, name);
    coordinator_set_why(c, "%s leaves: %s", name, n->why);
    coordinator_announce(
        c, now_ms, cr_change_kind_is_leave(n->kind) ? n->kind : RENDEZVOUS_CHANGE_LEAVE, left_ms);
}

/* ---- the nodes' answers ---- */

/* Makes the change last at least needs_ms from now, or join_timeout if that is shorter: a worker
 * may need this time, for example to save a checkpoint after the agreed step. Does nothing if a
 * node leaves, because that node cannot wait, or if the answer comes after the end of the
 * notice. */
static void extend(struct coordinator *c, int64_t now_ms, int64_t needs_ms) {
    struct coordinator_change *change = &c->change;
    if (needs_ms > c->join_timeout_ms) needs_ms = c->join_timeout_ms;
    if (change->is_hard || now_ms > change->notice_ms) return;
    if (now_ms + needs_ms <= change->until_ms) return;
    change->until_ms = now_ms + needs_ms;
    coordinator_wake_by(c, change->until_ms);
}

void coordinator_got_answer(struct coordinator *c, int64_t now_ms, struct coordinator_seat *s,
                            const struct rdzv_change_answer *a) {
    struct coordinator_change *change = &c->change;
    if (!change->open || a->id != change->id || s->change != CHANGE_ASKED) return;
    seat_take_part(c, s, a->step < 0 ? CHANGE_READY : CHANGE_RUNS);
    if (a->step < 0) return;
    if (a->step > change->step && a->step < INT64_MAX) change->step = a->step;
    extend(c, now_ms, a->needs_ms);
}

void coordinator_got_ready(struct coordinator *c, struct coordinator_seat *s, uint64_t id) {
    if (c->change.open && id == c->change.id && s->change == CHANGE_RUNS) {
        seat_take_part(c, s, CHANGE_READY);
    }
}

/* ---- coordinator_reconcile_change() ---- */

static uint64_t agreed_step(const struct coordinator *c) { return (uint64_t) c->change.step + 1; }

/* Sends the agreed step to a node that has answered. A node that has answered that none of its
 * workers counts steps needs it, too: its workers hold at their first step until they know it, and
 * others may need them. */
static void send_step(struct coordinator *c, int64_t now_ms, const struct coordinator_seat *s) {
    struct rdzv_message m = {.type = RDZV_CHANGE_AT};
    m.change_at = (struct rdzv_change_at){.id = c->change.id,
                                          .step = agreed_step(c),
                                          .left_ms = c->change.until_ms - now_ms};
    if (s->change == CHANGE_RUNS || s->change == CHANGE_READY) seat_send(c, s, &m);
}

/* Call this when the change is early. A node whose workers have made no step, or still import
 * modules, has answered that none of its workers counts steps. But the workers of all nodes make
 * the next step together and save after it, so this round waits for that node, too. The node
 * reports at once that it is ready if it has no worker to wait for. */
static void include_late_nodes(struct coordinator *c) {
    for (uint32_t i = 0; i < c->seat_count; i++) {
        struct coordinator_seat *s = c->seats[i];
        if (s->state != SEAT_RUNNING || s->change != CHANGE_READY) continue;
        seat_take_part(c, s, CHANGE_RUNS);
    }
}

/* Sends the agreed step to the nodes. The agreed step is one more than the step of the furthest
 * worker: that worker may have begun one more step before it was frozen, and no worker has begun a
 * later one. */
static void set_step(struct coordinator *c, int64_t now_ms) {
    c->change.is_set = true;
    if (rendezvous_step_is_early(agreed_step(c))) include_late_nodes(c);
    for (uint32_t i = 0; i < c->seat_count; i++) send_step(c, now_ms, c->seats[i]);
}

void coordinator_repeat_change(struct coordinator *c, int64_t now_ms, struct coordinator_seat *s) {
    int64_t left_ms = c->change.until_ms - now_ms;
    if (!c->change.open || c->phase != COORDINATOR_RUNNING) return;
    if (s->change == CHANGE_ASKED) send_change(c, s, c->change.kind, left_ms > 0 ? left_ms : 0);
    if (c->change.is_set) send_step(c, now_ms, s);
}

void coordinator_reconcile_change(struct coordinator *c, int64_t now_ms) {
    bool time_is_up = now_ms >= c->change.until_ms;
    uint32_t running = c->in_change[CHANGE_RUNS];
    if (!c->change.is_set && !time_is_up && c->in_change[CHANGE_ASKED] > 0) return;
    if (running > 0 && !c->change.is_set && !time_is_up) set_step(c, now_ms);
    if (running > 0 && !time_is_up) return;
    /* If members_changed is true, the next round forms only after its last call, which lets further
     * nodes come. If the node that wanted to join is gone, members_changed stays as it is, so that
     * the next round forms as soon as the nodes of this round are back. */
    if (c->in_state[SEAT_JOINED] > 0) c->members_changed = true;
    coordinator_stop_round(c, now_ms);
}
