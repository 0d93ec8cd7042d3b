/* Keeps a round going while the node has no connection to its coordinator.
 *
 * A lost connection is not a lost node: the workers go on until the fence, because the coordinator
 * gives their ranks to no other node before the lease ends. While the workers go on, the member
 * connects again. After WELCOME it sends RESUME, which says what the node does in its round.
 * Messages that were sent just before the connection was lost may have been lost with it, so the
 * member repeats what still counts. A failure or a success is part of RESUME; an answer to a change
 * and a notice follow RESUME. The coordinator ignores what it knows already. */
#include "base/time/clock.h"
#include "rendezvous/member/member_internal.h"

#include <stdio.h>

/* Default of coordinator_wait for a coordinator that is not in a launcher, in ms. Restarting or
 * upgrading such a coordinator takes seconds. */
#define DEFAULT_WAIT_MS INT64_C(60000)

int64_t member_wait_ms(const struct member *m) {
    if (m->set.coordinator_wait_ms >= 0) return m->set.coordinator_wait_ms;
    return m->can_resume && !m->in_launcher ? DEFAULT_WAIT_MS : 0;
}

/* A broken connection can be made again. If the coordinator has closed the connection, its process
 * has ended; in that case the workers go on only if the member waits for a coordinator to come
 * back. By default the member does not wait if the coordinator was in the launcher of a node. */
bool member_may_resume(const struct member *m, enum rendezvous_loss how) {
    if (!m->can_resume || m->set.local) return false;
    return how == RENDEZVOUS_BROKEN || member_wait_ms(m) > 0;
}

void member_begin_resuming(struct member *m, int64_t now_ms) {
    int64_t left_ms = keep_alive_fence(&m->keep_alive) - now_ms;
    char text[RDZV_TEXT_MAX];
    (void) snprintf(text, sizeof(text),
                    "lost the connection to the coordinator at '%.200s': %.300s; the workers go on "
                    "and it is tried again, for %g s at most",
                    m->set.where, m->lost_why, (double) (left_ms > 0 ? left_ms : 0) / 1000);
    m->actions->log(m->arg, CR_LOG_WARN, text);
    m->resumes = true;
    keep_alive_suspend(&m->keep_alive);
    member_aim(m, &m->at);
    connecting_begin(&m->connecting, now_ms, left_ms > 0 ? left_ms : 0);
    member_try(m, now_ms, m->keep_alive.lease_ms / 3 + 1);
}

void member_fill_join(const struct member *m, struct rdzv_join *join) {
    *join = m->set.self;
    join->connection = m->connections;
    join->rounds_seen = m->rounds_seen;
    join->restarts_seen = m->restarts_seen;
    join->last_rank = m->last_rank;
    join->incarnation = m->incarnation;
    join->last_group_size = m->group_size;
    join->last_coordinator = m->last_coordinator;
    join->heard_at_ms = m->heard_at_ms;
    join->heirs = m->yielded_to > m->rounds_seen ? 0 : m->succession.heirs.count;
    join->leader = m->succession.leader;
    join->leader_ended = m->leader_ended;
    join->before_seen = m->succession.before_seen;
    join->before_size = m->succession.before_size;
    join->before_place = m->succession.before_place;
    join->unfit = m->unfit;
    join->before_by = m->succession.before_by;
    join->kept = 1 + m->kept;
    join->formed_by = m->succession.coordinator;
}

/* ---- RESUME, and what is repeated after it ---- */

static uint32_t part_of(const struct member *m) {
    switch (m->state) {
    case MEMBER_RUNNING: return RDZV_PART_RUNS;
    case MEMBER_SUCCEEDED: return RDZV_PART_SUCCEEDED;
    case MEMBER_STOPPING: return RDZV_PART_STOPS;
    /* CONNECTING: after a failure the node has stopped its workers, and it wants to join again */
    case MEMBER_FAILED:
    case MEMBER_CONNECTING: return RDZV_PART_FAILED;
    case MEMBER_IDLE:
    case MEMBER_JOINING:
    case MEMBER_LEAVING:
    case MEMBER_ENDED: break;
    }
    return RDZV_PART_STOPS;
}

static void repeat_change(const struct member *m) {
    const struct member_change *c = &m->change;
    struct rdzv_message msg = {.type = RDZV_CHANGE_ANSWER};
    if (!c->has_answered || m->state != MEMBER_RUNNING) return;
    msg.change_answer =
        (struct rdzv_change_answer){.id = c->id, .step = c->step, .needs_ms = c->needs_ms};
    m->actions->send(m->arg, &msg);
    if (!c->is_ready) return;
    msg = (struct rdzv_message){.type = RDZV_CHANGE_READY};
    msg.change_ready.id = c->id;
    m->actions->send(m->arg, &msg);
}

static void repeat_notice(const struct member *m, int64_t now_ms) {
    const struct member_notice *n = &m->notice;
    struct rdzv_message msg = {.type = RDZV_NOTICE};
    if (!n->is_given || m->state != MEMBER_RUNNING) return;
    msg.notice = (struct rdzv_notice){
        .kind = n->kind, .left_ms = n->until_ms > now_ms ? n->until_ms - now_ms : 0, .why = n->why};
    m->actions->send(m->arg, &msg);
}

void member_send_resume(struct member *m, int64_t now_ms) {
    struct rdzv_join join;
    struct rdzv_message msg = {.type = RDZV_RESUME};
    member_fill_join(m, &join);
    rdzv_resume_of_join(&join, &msg.resume);
    msg.resume.part = part_of(m);
    msg.resume.first_rank = m->first_rank;
    msg.resume.world_size = m->world_size;
    msg.resume.change = m->change.id;
    msg.resume.what = msg.resume.part == RDZV_PART_FAILED ? m->what : "";
    msg.resume.blame = (uint32_t) m->blame;
    m->resumes = false;
    m->resumed_ms = now_ms;
    m->old_lease_ms = now_ms + keep_alive_left(&m->keep_alive, now_ms);
    m->actions->send(m->arg, &msg);
    keep_alive_plan(&m->keep_alive, now_ms);
    repeat_notice(m, now_ms);
    repeat_change(m);
    member_send_quiet(m);
}
