/* The implementation of member.h, in this order: making and freeing, connecting, losing the
 * connection, the agent's calls, the coordinator's messages, time. */
#include "rendezvous/member/member.h"

#include "base/assert.h"
#include "base/time/clock.h"
#include "rendezvous/member/member_internal.h"
#include "rendezvous/types.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* number of leases for which a node tries to reach the coordinator to which MOVED has sent it */
#define MOVED_LEASES 2

/* longest time in ms for which FAILED is not sent yet, because the result of an inquiry is still to
 * come. The report on the failure can name the rank for which others waited only if the result
 * comes before the round ends, and FAILED ends the round. */
#define HELD_MS INT64_C(200)

const char *member_state_name(enum member_state s) {
    switch (s) {
#define S(name)                                                                                    \
    case MEMBER_##name: return #name;
        MEMBER_STATES(S)
#undef S
    }
    return "?";
}

enum member_state member_state(const struct member *m) { return m->state; }
uint64_t member_round(const struct member *m) { return m->round; }

const char *member_addr(const struct member *m) { return m->set.self.addr; }

bool member_leader_at(const struct member *m, const char **addr, uint16_t *port) {
    *addr = m->at.addr;
    *port = m->at.port;
    return m->connected;
}

/* ---- making and freeing ---- */

static void settings_done(struct member_settings *s) {
    free((void *) (uintptr_t) s->where);
    free((void *) (uintptr_t) s->facts);
    free((void *) (uintptr_t) s->self.host);
    free((void *) (uintptr_t) s->self.addr);
    free((void *) (uintptr_t) s->self.role);
}

static int settings_copy(struct member_settings *to, const struct member_settings *from) {
    *to = *from;
    to->where = strdup(from->where);
    to->facts = strdup(from->facts != NULL ? from->facts : "");
    to->advice = from->advice != NULL ? from->advice : "";
    to->self.host = strdup(from->self.host);
    to->self.addr = strdup(from->self.addr);
    to->self.role = strdup(from->self.role);
    if (to->where != NULL && to->facts != NULL && to->self.host != NULL && to->self.addr != NULL &&
        to->self.role != NULL) {
        return 0;
    }
    settings_done(to);
    return -ENOMEM;
}

struct member *member_new(const struct member_settings *settings,
                          const struct member_actions *actions, void *arg) {
    struct member *m = calloc(1, sizeof(*m));
    if (m == NULL) return NULL;
    if (settings_copy(&m->set, settings) < 0) {
        free(m);
        return NULL;
    }
    m->actions = actions;
    m->arg = arg;
    m->last_rank = -1;
    m->resumed_ms = MEMBER_NEVER;
    succession_init(&m->succession);
    m->held_ms = CR_FOREVER;
    m->connecting.jitter = settings->self.instance;
    connecting_stop(&m->connecting);
    keep_alive_set(&m->keep_alive, settings->self.keep_alive_interval_ms,
                   settings->self.keep_alive_max_attempt);
    keep_alive_stop(&m->keep_alive);
    return m;
}

void member_free(struct member *m) {
    if (m == NULL) return;
    settings_done(&m->set);
    free(m);
}

/* ---- changing the state ---- */

/* Sets the state, and logs the change. No other function writes `state`. */
static void enter(struct member *m, enum member_state next, const char *why) {
    char text[300];
    if (m->state == next) return;
    (void) snprintf(text, sizeof(text), "member: %s -> %s (%.200s)", member_state_name(m->state),
                    member_state_name(next), why);
    m->actions->log(m->arg, CR_LOG_DEBUG, text);
    m->state = next;
}

/* Call this when the connection is gone, or the job has ended: no result of an inquiry will come.
 * If FAILED still waits for such a result, FAILED is not sent any more; RESUME reports the failure
 * (owes_failure). */
static void forget_inquiry(struct member *m) {
    m->awaits_behind = m->joins_later = false;
    m->held_ms = CR_FOREVER;
}

/* Ends the job on this node, and calls on_end unless the node is leaving. Callers must return right
 * after this call, because the agent may call the member again from inside on_end. */
static void end(struct member *m, int outcome, const char *why) {
    bool was_leaving = m->state == MEMBER_LEAVING;
    bool has_connection = m->connected || connecting_is_trying(&m->connecting);
    enter(m, MEMBER_ENDED, why);
    if (has_connection) m->actions->hang_up(m->arg);
    m->connected = m->resumes = false;
    forget_inquiry(m);
    keep_alive_stop(&m->keep_alive);
    connecting_stop(&m->connecting);
    if (!was_leaving) m->actions->on_end(m->arg, outcome, why);
}

/* ---- connecting ---- */

void member_aim(struct member *m, const struct rdzv_heir *to) {
    bool is_same = m->aim.port == to->port && strcmp(m->aim.addr, to->addr) == 0;
    m->aim = *to;
    if (!is_same && m->actions->aim != NULL) m->actions->aim(m->arg, m->aim.addr, m->aim.port);
}

void member_try(struct member *m, int64_t now_ms, int64_t limit_ms) {
    connecting_try(&m->connecting, now_ms, limit_ms);
    m->actions->connect(m->arg);
}

/* Returns the coordinator that the node tries if it tries no heir. Before the node may vote, that
 * is the coordinator of the newest WELCOME (`at`), which may still count the node as one of its
 * own. After that it is the coordinator that has formed the node's last round (`home`). */
static const struct rdzv_heir *last_resort(const struct member *m, int64_t now_ms) {
    return succession_may_vote(&m->succession, now_ms) ? &m->home : &m->at;
}

/* Tries once to connect. A node in a round tries its coordinator only, in order to resume. A node
 * whose workers are gone may join an heir. */
static void try_next(struct member *m, int64_t now_ms) {
    const struct rdzv_heir *aim = &m->at;
    int64_t limit_ms = m->keep_alive.lease_ms;
    if (m->state == MEMBER_CONNECTING) {
        const struct rdzv_heir *heir = succession_next(&m->succession, now_ms);
        aim = heir != NULL ? heir : last_resort(m, now_ms);
    }
    if (succession_is_on(&m->succession)) limit_ms = limit_ms / 3 + 1;
    member_aim(m, aim);
    member_try(m, now_ms, limit_ms);
}

/* Returns for how many ms this node tries to connect until it gives up. */
static int64_t patience_of(const struct member *m, int64_t now_ms) {
    int64_t wait_ms = m->had_coordinator ? member_wait_ms(m) : m->set.connect_timeout_ms;
    int64_t search_ms = succession_is_on(&m->succession) ? m->succession.until_ms - now_ms : 0;
    return search_ms > wait_ms ? search_ms : wait_ms;
}

static void start_connecting(struct member *m, int64_t now_ms, const char *why) {
    enter(m, MEMBER_CONNECTING, why);
    connecting_begin(&m->connecting, now_ms, patience_of(m, now_ms));
    try_next(m, now_ms);
}

/* Writes to `text` the error of a node that has never reached its coordinator: which addresses were
 * tried with what result, and what the user can do. `why` is the result of the last try. */
static void describe_vain_tries(const struct member *m, const char *why, char text[RDZV_TEXT_MAX]) {
    const char *tries = m->actions->tries != NULL ? m->actions->tries(m->arg) : "";
    (void) snprintf(text, RDZV_TEXT_MAX,
                    "cannot reach the rendezvous at '%.120s' within %g s: %.400s; %.100s%s%.300s",
                    m->set.where, (double) m->set.connect_timeout_ms / 1000,
                    tries[0] != '\0' ? tries : why, m->set.advice,
                    m->set.facts[0] != '\0' ? " " : "", m->set.facts);
}

static void give_up(struct member *m, const char *why) {
    char text[RDZV_TEXT_MAX];
    if (!m->had_coordinator) {
        describe_vain_tries(m, why, text);
    } else if (m->succession.is_beside && succession_has_heirs(&m->succession)) {
        (void) snprintf(text, sizeof(text),
                        "lost the coordinator at '%.200s' (%.300s) while this node was a spare, "
                        "and no other node has taken over: more than half of the running round's "
                        "nodes have to reach each other for that; last try: %.200s",
                        m->set.where, m->lost_why, why);
    } else if (succession_has_heirs(&m->succession)) {
        (void) snprintf(text, sizeof(text),
                        "lost the coordinator at '%.200s' (%.300s), and no other node has taken "
                        "over: more than half of the %" PRIu32 " nodes of round %" PRIu64
                        " have to reach each other for that; last try: %.200s",
                        m->set.where, m->lost_why, m->group_size, m->round, why);
    } else {
        (void) snprintf(
            text, sizeof(text),
            "lost the coordinator at '%.200s' (%.300s), and it did not come back: %.200s; "
            "coordinator_wait=SECONDS in --rdzv-conf waits longer",
            m->set.where, m->lost_why, why);
    }
    end(m, RENDEZVOUS_LOST, text);
}

void member_give_up(struct member *m, const char *why) {
    char text[RDZV_TEXT_MAX];
    if (m->state != MEMBER_CONNECTING) return;
    /* the connection is closed already, so end() need not close it */
    connecting_stop(&m->connecting);
    (void) snprintf(text, sizeof(text),
                    "cannot take part in the rendezvous at '%.200s': %.600s; start all nodes with "
                    "crun, or all with torchrun, or give crun another --rdzv-endpoint",
                    m->set.where, why);
    end(m, RENDEZVOUS_LOST, text);
}

/* Plans the next try. If the series of tries is over, gives up, but only in state CONNECTING: in
 * all other states the node is in a round, and the fence stops its workers. */
static void try_failed(struct member *m, int64_t now_ms, const char *why) {
    if (connecting_failed(&m->connecting, now_ms)) return;
    if (m->state == MEMBER_CONNECTING) give_up(m, why);
}

static void send_join(struct member *m, const char *why) {
    struct rdzv_message msg = {.type = RDZV_JOIN};
    member_fill_join(m, &msg.join);
    enter(m, MEMBER_JOINING, why);
    m->actions->send(m->arg, &msg);
}

void member_set_addr(struct member *m, const char *addr) {
    char *copy = m->set.self.addr[0] == '\0' ? strdup(addr) : NULL;
    if (copy == NULL) return;
    free((void *) (uintptr_t) m->set.self.addr);
    m->set.self.addr = copy;
}

void member_set_unfit(struct member *m, const char *why) {
    bool was_unfit = m->unfit[0] != '\0', is_same = strcmp(m->unfit, why) == 0;
    (void) snprintf(m->unfit, sizeof(m->unfit), "%s", why);
    bool waits = m->state == MEMBER_JOINING && m->connected && !m->joins_later;
    if (waits && was_unfit && !is_same) send_join(m, "the health check has another result");
}

/* A coordinator of an older version would give this node a place in a round although the node is
 * not fit, so the job ends on this node. */
static void end_unfit(struct member *m) {
    char text[RDZV_TEXT_MAX];
    (void) snprintf(text, sizeof(text),
                    "this node is not fit: %.256s; the coordinator at '%.200s' is of an older "
                    "version, which cannot keep the node as a spare",
                    m->unfit, m->set.where);
    end(m, RENDEZVOUS_LOST, text);
}

static void join_when_welcomed(struct member *m, int64_t now_ms) {
    if (m->unfit[0] != '\0' && !m->knows_unfit) {
        end_unfit(m);
        return;
    }
    if (m->owes_failure && m->can_resume) member_send_resume(m, now_ms);
    m->resumes = false;
    keep_alive_start(&m->keep_alive, now_ms);
    if (m->set.local) keep_alive_stop(&m->keep_alive);
    send_join(m, "welcomed");
}

static void stop_workers(struct member *m, int64_t now_ms, const char *why);

void member_welcomed(struct member *m, int64_t now_ms, const struct rdzv_welcome *welcome) {
    if (!connecting_is_trying(&m->connecting)) return;
    connecting_stop(&m->connecting);
    m->connected = m->had_coordinator = true;
    m->at = m->aim;
    m->heard_ms = now_ms;
    m->heard_at_ms = welcome->at_ms;
    succession_found(&m->succession, now_ms);
    m->can_resume = welcome->version >= RDZV_VERSION_RESUME;
    m->knows_unfit = welcome->version >= RDZV_VERSION_UNFIT;
    m->can_inquire = welcome->version >= RDZV_VERSION_INQUIRY;
    m->knows_hangs = welcome->version >= RDZV_VERSION_HANG;
    m->knows_pairs = welcome->version >= RDZV_VERSION_PAIRS;
    m->in_launcher = welcome->in_launcher != 0;
    m->last_coordinator = m->coordinator;
    m->coordinator = welcome->coordinator;
    m->connections++;
    if (m->state == MEMBER_CONNECTING) join_when_welcomed(m, now_ms);
    else if (m->can_resume) member_send_resume(m, now_ms);
    else stop_workers(m, now_ms, "the new coordinator is of an older version");
}

/* ---- losing the connection ---- */

/* Makes the agent stop the workers before the lease ends, because after the lease the coordinator
 * may give their ranks to other nodes. */
static void stop_workers(struct member *m, int64_t now_ms, const char *why) {
    char text[RDZV_TEXT_MAX];
    int64_t left_ms = keep_alive_left(&m->keep_alive, now_ms);
    m->resumes = false;
    keep_alive_stop(&m->keep_alive);
    (void) snprintf(text, sizeof(text), "lost the coordinator at '%.200s': %.500s", m->set.where,
                    why);
    if (m->state != MEMBER_LEAVING) enter(m, MEMBER_STOPPING, why);
    m->actions->on_stop(m->arg, left_ms, text);
}

static void note_loss(struct member *m, int64_t now_ms, enum rendezvous_loss how,
                      const char *why) {
    m->leader_ended = how == RENDEZVOUS_CLOSED;
    bool is_new = succession_lost(&m->succession, now_ms, how, m->heard_ms,
                                  m->keep_alive.lease_ms, member_wait_ms(m));
    if (is_new) (void) snprintf(m->lost_why, sizeof(m->lost_why), "%s", why);
}

/* Call this when the connection is gone. A node that waits for a round connects again at once. The
 * workers of a node in a round go on if the node may resume; otherwise they are stopped. */
static void cut_off(struct member *m, int64_t now_ms, enum rendezvous_loss how, const char *why) {
    m->connected = false;
    note_loss(m, now_ms, how, why);
    forget_inquiry(m);
    switch (m->state) {
    case MEMBER_JOINING:
        keep_alive_stop(&m->keep_alive);
        if (succession_is_over(&m->succession, now_ms, how)) give_up(m, why);
        else start_connecting(m, now_ms, why);
        break;
    case MEMBER_RUNNING:
    case MEMBER_SUCCEEDED:
    case MEMBER_FAILED:
    case MEMBER_STOPPING:
        if (member_may_resume(m, how)) member_begin_resuming(m, now_ms);
        else stop_workers(m, now_ms, why);
        break;
    case MEMBER_LEAVING: stop_workers(m, now_ms, why); break;
    case MEMBER_IDLE:
    case MEMBER_CONNECTING:
    case MEMBER_ENDED: break;
    }
}

void member_moved(struct member *m, int64_t now_ms, const char *addr, uint16_t port) {
    m->at = (struct rdzv_heir){.port = port};
    (void) snprintf(m->at.addr, sizeof(m->at.addr), "%s", addr);
    m->home = m->at;
    (void) connecting_extend(&m->connecting, now_ms + MOVED_LEASES * m->keep_alive.lease_ms);
}

void member_disconnected(struct member *m, int64_t now_ms, enum rendezvous_loss how,
                         const char *why) {
    if (m->connected) cut_off(m, now_ms, how, why);
    else if (connecting_is_trying(&m->connecting)) try_failed(m, now_ms, why);
}

/* ---- the agent's calls ---- */

/* Call this if the agent joins again before the node has its connection back. The member goes on to
 * connect. It will send JOIN; before that, it sends RESUME only if it still has to report a
 * failure. */
static void join_while_resuming(struct member *m, int64_t now_ms) {
    m->resumes = false;
    keep_alive_stop(&m->keep_alive);
    enter(m, MEMBER_CONNECTING, "join");
    if (connecting_extend(&m->connecting, now_ms + patience_of(m, now_ms))) return;
    start_connecting(m, now_ms, "join");
}

static void send_failed(struct member *m) {
    struct rdzv_message msg = {.type = RDZV_FAILED};
    msg.failed = (struct rdzv_failed){.round = m->round, .what = m->what,
                                      .blame = (uint32_t) m->blame};
    m->held_ms = CR_FOREVER;
    if (m->connected) m->actions->send(m->arg, &msg);
}

/* Call this when the result of an inquiry has come, or will not come in time. If FAILED has waited
 * for it, sends FAILED; if the agent has called member_join() in that time, also sends JOIN. */
static void send_held(struct member *m) {
    m->awaits_behind = false;
    if (m->held_ms != CR_FOREVER) send_failed(m);
    if (m->joins_later) send_join(m, "join");
    m->joins_later = false;
}

void member_join(struct member *m, int64_t now_ms, uint32_t kept) {
    /* the job is over for this node, or the node leaves, so there is nothing to join */
    if (m->state == MEMBER_ENDED || m->state == MEMBER_LEAVING) return;
    m->kept = kept;
    CR_ASSERT(m->state == MEMBER_IDLE || m->state == MEMBER_STOPPING || m->state == MEMBER_FAILED);
    m->joins_later = m->connected && m->held_ms != CR_FOREVER;
    if (m->joins_later) enter(m, MEMBER_JOINING, "join, once the failure is reported");
    else if (m->connected) send_join(m, "join");
    else if (m->resumes) join_while_resuming(m, now_ms);
    else start_connecting(m, now_ms, "join");
}

void member_failed(struct member *m, int64_t now_ms, uint64_t round, const char *what,
                   enum rendezvous_blame blame) {
    if (m->state != MEMBER_RUNNING || round != m->round) return;
    (void) snprintf(m->what, sizeof(m->what), "%s", what);
    m->blame = blame;
    m->owes_failure = true;
    enter(m, MEMBER_FAILED, what);
    if (m->awaits_behind && m->connected) m->held_ms = now_ms + HELD_MS;
    else send_failed(m);
}

void member_succeeded(struct member *m, int64_t now_ms, uint64_t round) {
    (void) now_ms;
    if (m->state != MEMBER_RUNNING || round != m->round) return;
    struct rdzv_message msg = {.type = RDZV_SUCCEEDED};
    msg.succeeded.round = round;
    enter(m, MEMBER_SUCCEEDED, "all workers of this node ended well");
    if (m->connected) m->actions->send(m->arg, &msg);
}

/* Sends CHANGE_ANSWER if the round still runs. If the round is over, so is the change. */
void member_change_answer(struct member *m, uint64_t id, int64_t step, int64_t needs_ms) {
    struct rdzv_message msg = {.type = RDZV_CHANGE_ANSWER};
    msg.change_answer = (struct rdzv_change_answer){.id = id, .step = step, .needs_ms = needs_ms};
    if (id == m->change.id) {
        m->change.has_answered = true;
        m->change.step = step;
        m->change.needs_ms = needs_ms;
    }
    if (m->state == MEMBER_RUNNING && m->connected) m->actions->send(m->arg, &msg);
}

void member_change_ready(struct member *m, uint64_t id) {
    struct rdzv_message msg = {.type = RDZV_CHANGE_READY};
    msg.change_ready.id = id;
    if (id == m->change.id) m->change.is_ready = true;
    if (m->state == MEMBER_RUNNING && m->connected) m->actions->send(m->arg, &msg);
}

void member_notice(struct member *m, int64_t now_ms, uint32_t kind, int64_t left_ms,
                   const char *why) {
    struct rdzv_message msg = {.type = RDZV_NOTICE};
    msg.notice = (struct rdzv_notice){.kind = kind, .left_ms = left_ms, .why = why};
    bool in_round = m->state == MEMBER_RUNNING || m->state == MEMBER_SUCCEEDED;
    m->notice = (struct member_notice){.is_given = in_round, .kind = kind,
                                       .until_ms = now_ms + left_ms};
    (void) snprintf(m->notice.why, sizeof(m->notice.why), "%s", why);
    if (in_round && m->connected) m->actions->send(m->arg, &msg);
}

void member_failure(struct member *m, const struct rdzv_failure *failure) {
    struct rdzv_message msg = {.type = RDZV_FAILURE};
    msg.failure = *failure;
    if (m->connected) m->actions->send(m->arg, &msg);
}

void member_inquire(struct member *m) {
    struct rdzv_message msg = {.type = RDZV_INQUIRE};
    msg.inquire.round = m->round;
    if (m->state != MEMBER_RUNNING || !m->connected || !m->can_inquire) return;
    m->awaits_behind = true;
    m->actions->send(m->arg, &msg);
}

void member_progress(struct member *m, const struct rdzv_progress *progress) {
    struct rdzv_message msg = {.type = RDZV_PROGRESS};
    msg.progress = *progress;
    if (m->connected && m->can_inquire) m->actions->send(m->arg, &msg);
}

void member_rank(struct member *m, const struct rdzv_rank *rank) {
    struct rdzv_message msg = {.type = RDZV_RANK};
    msg.rank = *rank;
    if (m->connected) m->actions->send(m->arg, &msg);
}

void member_send_quiet(struct member *m) {
    struct rdzv_message msg = {.type = RDZV_QUIET};
    /* a node whose workers have ended well may have written the lines that the rules want, which a
     * new coordinator has to know */
    bool in_round = m->state == MEMBER_RUNNING || m->state == MEMBER_SUCCEEDED;
    bool is_wanted = in_round && m->quiet.is_given && m->knows_hangs;
    if (!is_wanted || !m->connected) return;
    msg.quiet = (struct rdzv_quiet){.round = m->round, .silent = m->quiet.silent,
                                    .broken = m->quiet.broken, .quiet_ms = m->quiet.quiet_ms,
                                    .what = m->quiet.what};
    m->actions->send(m->arg, &msg);
}

bool member_quiet(struct member *m, const struct rdzv_quiet *quiet) {
    struct member_quiet *q = &m->quiet;
    if (!m->knows_hangs) return false;
    bool is_new = !q->is_given || q->silent != quiet->silent || q->broken != quiet->broken;
    if (m->state != MEMBER_RUNNING || !is_new) return true;
    *q = (struct member_quiet){.is_given = true, .silent = quiet->silent,
                               .broken = quiet->broken, .quiet_ms = quiet->quiet_ms};
    (void) snprintf(q->what, sizeof(q->what), "%s", quiet->what);
    member_send_quiet(m);
    return true;
}

void member_row(struct member *m, const struct rdzv_row *row) {
    struct rdzv_message msg = {.type = RDZV_ROW};
    msg.row = *row;
    if (m->connected) m->actions->send(m->arg, &msg);
}

void member_inspected(struct member *m, uint64_t id, uint32_t rows) {
    struct rdzv_message msg = {.type = RDZV_INSPECTED};
    msg.inspected = (struct rdzv_inspected){.id = id, .rows = rows};
    if (m->connected) m->actions->send(m->arg, &msg);
}

void member_paired(struct member *m, uint64_t id, const char *why) {
    struct rdzv_message msg = {.type = RDZV_PAIRED};
    msg.paired = (struct rdzv_paired){.id = id, .why = why};
    bool is_wanted = m->state == MEMBER_JOINING && m->knows_pairs;
    if (is_wanted && m->connected) m->actions->send(m->arg, &msg);
}

void member_leave(struct member *m, int64_t now_ms, const char *why) {
    (void) now_ms;
    if (m->state == MEMBER_ENDED || m->state == MEMBER_LEAVING) return;
    send_held(m);
    if (connecting_is_trying(&m->connecting)) m->actions->hang_up(m->arg);
    connecting_stop(&m->connecting);
    m->resumes = false;
    enter(m, MEMBER_LEAVING, why);
    if (!m->connected) return;
    struct rdzv_message msg = {.type = RDZV_LEAVE};
    msg.leave.why = why;
    m->actions->send(m->arg, &msg);
}

/* ---- the coordinator's messages ---- */

static void warn_of_other_settings(struct member *m, const char *differs) {
    char text[RDZV_TEXT_MAX];
    (void) snprintf(text, sizeof(text),
                    "this node differs from the job's first node, whose settings count: %.800s; "
                    "give all nodes the same",
                    differs);
    m->actions->log(m->arg, CR_LOG_WARN, text);
}

static int got_accepted(struct member *m, int64_t now_ms, const struct rdzv_accepted *a,
                        struct cr_error *err) {
    int64_t interval_ms = a->keep_alive_interval_ms;
    uint32_t attempts = a->keep_alive_max_attempt;
    if (interval_ms < 1 || interval_ms > RDZV_INTERVAL_MAX_MS || attempts < 1 ||
        attempts > RDZV_ATTEMPTS_MAX) {
        return cr_fail(err, -EPROTO,
                       "the coordinator sent a bad lease: %" PRId64 " ms, %" PRIu32 " times",
                       interval_ms, attempts);
    }
    if (a->incarnation != 0) m->incarnation = a->incarnation;
    if (a->differs[0] != '\0') warn_of_other_settings(m, a->differs);
    keep_alive_set(&m->keep_alive, interval_ms, attempts);
    if (m->resumed_ms != MEMBER_NEVER) keep_alive_answered(&m->keep_alive, m->resumed_ms, now_ms);
    m->resumed_ms = MEMBER_NEVER;
    if (!m->set.local) keep_alive_plan(&m->keep_alive, now_ms);
    return 0;
}

static void got_round(struct member *m, const struct rdzv_round *r) {
    if (m->state != MEMBER_JOINING) return;
    m->round = r->round;
    m->rounds_seen = r->round + 1;
    m->restarts_seen = r->restart_count;
    m->last_rank = r->group_rank;
    m->first_rank = r->first_rank;
    m->world_size = r->world_size;
    m->group_size = r->group_world_size;
    m->owes_failure = m->awaits_behind = false;
    m->change = (struct member_change){.id = 0};
    m->notice = (struct member_notice){.is_given = false};
    m->quiet.is_given = false;
    m->incarnation = r->incarnation;
    m->home = m->at;
    succession_begin_round(&m->succession, r, m->coordinator);
    enter(m, MEMBER_RUNNING, "ROUND");
    m->actions->on_round(m->arg, r);
}

/* Handles SPARE: if this coordinator is lost, the node searches among the heirs in SPARE. */
static void got_spare(struct member *m, int64_t now_ms, const struct rdzv_spare *spare) {
    if (m->state != MEMBER_JOINING) return;
    m->home = m->at;
    /* an heir that has formed no round does not know the heirs of the last round */
    if (spare->heirs[0] != '\0' || spare->yields == 0) {
        succession_begin_beside(&m->succession, spare->heirs);
    }
    if (spare->yields <= m->rounds_seen || spare->yields > RDZV_ROUNDS_SEEN_MAX) return;
    m->yielded_to = spare->yields;
    keep_alive_hasten(&m->keep_alive, now_ms); /* the coordinator waits for the answer */
}

/* Handles STOP. After a failure the coordinator may wait until each node has shown, by a beat for
 * example, that it knows of the end of the round; then a beat is due at once. */
static void got_stop(struct member *m, int64_t now_ms, const struct rdzv_stop *s) {
    if (s->round != m->round) return;
    if (s->is_unawaited == 0) keep_alive_hasten(&m->keep_alive, now_ms);
    /* After STOP, RESUME need not report this node's failure even if FAILED was lost: only the
     * first failure of a round counts. Exceptions are the failure of a worker that was killed, and
     * a failure that ends the job; their blame is not RENDEZVOUS_OWN. */
    if (m->blame == RENDEZVOUS_OWN) m->owes_failure = false;
    int64_t lease_ms = m->old_lease_ms > now_ms ? m->old_lease_ms - now_ms : 0;
    int64_t limit_ms = s->is_late != 0 ? lease_ms : s->limit_ms > 0 ? s->limit_ms : CR_FOREVER;
    bool is_stopping = m->state == MEMBER_FAILED || m->state == MEMBER_STOPPING ||
                       m->state == MEMBER_LEAVING;
    bool in_round = m->state == MEMBER_RUNNING || m->state == MEMBER_SUCCEEDED;
    /* a node that stops its workers already needs only the time limit of STOP */
    if (!in_round && (!is_stopping || limit_ms == CR_FOREVER)) return;
    if (m->state != MEMBER_LEAVING) enter(m, MEMBER_STOPPING, s->why);
    m->actions->on_stop(m->arg, limit_ms, s->why);
}

/* Passes CHANGE to the agent. When a node has resumed, its coordinator may send the same CHANGE and
 * CHANGE_AT again; the agent gets each of them once. */
static void got_change(struct member *m, const struct rdzv_change *c) {
    if (m->state != MEMBER_RUNNING || c->round != m->round || c->id == m->change.id) return;
    m->change = (struct member_change){.id = c->id};
    m->actions->on_change(m->arg, c);
}

static void got_change_at(struct member *m, const struct rdzv_change_at *at) {
    if (m->state != MEMBER_RUNNING || at->id != m->change.id || m->change.is_set) return;
    m->change.is_set = true;
    m->actions->on_change_at(m->arg, at);
}

/* Handles GOODBYE: the process of the coordinator will end. It may be started again, or an heir
 * takes over. If member_wait_ms() is 0 and there is no heir, the job ends for this node with the
 * reason in GOODBYE. */
static void got_goodbye(struct member *m, int64_t now_ms, const struct rdzv_goodbye *g) {
    if (member_wait_ms(m) == 0 && !succession_has_heirs(&m->succession)) {
        end(m, RENDEZVOUS_LOST, g->why);
        return;
    }
    m->actions->hang_up(m->arg);
    cut_off(m, now_ms, RENDEZVOUS_CLOSED, g->why);
    m->leader_ended = false; /* the workers of the coordinator's node may still run */
}

/* Logs why the node waits for a round. If the node does not wait any more, the message is late and
 * ignored. */
static void got_waiting(struct member *m, const struct rdzv_waiting *w) {
    char text[RDZV_TEXT_MAX], left[60] = "";
    if (m->state != MEMBER_JOINING) return;
    if (m->actions->show_waiting != NULL &&
        m->actions->show_waiting(m->arg, w->what, w->waited_ms, w->left_ms)) {
        return;
    }
    if (w->left_ms >= 0) {
        (void) snprintf(left, sizeof(left), ", %.0f s left", (double) w->left_ms / 1000);
    }
    (void) snprintf(text, sizeof(text), "waiting %.850s (%.0f s so far%s)", w->what,
                    (double) w->waited_ms / 1000, left);
    m->actions->log(m->arg, CR_LOG_WARN, text);
}

static void got_end(struct member *m, const struct rdzv_end *e) {
    bool known = e->outcome == RENDEZVOUS_SUCCEEDED || e->outcome == RENDEZVOUS_FAILED;
    end(m, known ? (int) e->outcome : RENDEZVOUS_LOST, e->why);
}

static void got_refused(struct member *m, const struct rdzv_refused *r) {
    char why[RDZV_TEXT_MAX];
    (void) snprintf(why, sizeof(why), "the coordinator at '%.200s' refuses this node: %.700s",
                    m->set.where, r->why);
    end(m, RENDEZVOUS_LOST, why);
}

static void got_behind(struct member *m, const struct rdzv_behind *behind) {
    send_held(m);
    m->actions->on_behind(m->arg, behind);
}

static void got_pair(struct member *m, const struct rdzv_pair *pair) {
    if (m->state != MEMBER_JOINING) return;
    if (m->actions->on_pair != NULL) m->actions->on_pair(m->arg, pair);
    else member_paired(m, pair->id, "this node makes no paired tests");
}

static void got_hung(struct member *m, const struct rdzv_hung *hung) {
    if (m->state != MEMBER_RUNNING || hung->round != m->round) return;
    if (m->actions->on_hung != NULL) m->actions->on_hung(m->arg, hung);
}

int member_receive(struct member *m, int64_t now_ms, const struct rdzv_message *msg,
                   struct cr_error *err) {
    /* Before WELCOME, only a final REFUSED counts. Any other message without a connection was
     * received before this end closed the connection; it is ignored. */
    bool is_refusal = msg->type == RDZV_REFUSED && connecting_is_trying(&m->connecting);
    if (!m->connected && !is_refusal) return 0;
    m->heard_ms = now_ms;
    bool is_for_leaving = msg->type == RDZV_BEAT_ACK || msg->type == RDZV_STOP;
    if (m->state == MEMBER_LEAVING && !is_for_leaving) return 0;
    switch ((unsigned) msg->type) {
    case RDZV_ACCEPTED: return got_accepted(m, now_ms, &msg->accepted, err);
    case RDZV_ROUND: got_round(m, &msg->round); return 0;
    case RDZV_STOP: got_stop(m, now_ms, &msg->stop); return 0;
    case RDZV_END: got_end(m, &msg->end); return 0;
    case RDZV_BEAT_ACK:
        keep_alive_answered(&m->keep_alive, msg->beat_ack.sent_ms, now_ms);
        if (msg->beat_ack.at_ms > m->heard_at_ms) m->heard_at_ms = msg->beat_ack.at_ms;
        succession_settle(&m->succession, msg->beat_ack.settled, m->coordinator);
        return 0;
    case RDZV_CHANGE: got_change(m, &msg->change); return 0;
    case RDZV_CHANGE_AT: got_change_at(m, &msg->change_at); return 0;
    case RDZV_ASK_NOTICE: m->actions->on_notice(m->arg, &msg->ask_notice); return 0;
    case RDZV_WAITING: got_waiting(m, &msg->waiting); return 0;
    case RDZV_SPARE: got_spare(m, now_ms, &msg->spare); return 0;
    case RDZV_ASK_DUMP: m->actions->on_dump(m->arg, msg->ask_dump.why); return 0;
    case RDZV_FAILURE: m->actions->on_failure(m->arg, &msg->failure); return 0;
    case RDZV_ASK_PROGRESS:
        m->actions->on_ask_progress(m->arg, msg->ask_progress.inquiry);
        return 0;
    case RDZV_ASK_RANKS:
        if (m->actions->on_ask_ranks == NULL) return 0;
        m->actions->on_ask_ranks(m->arg, msg->ask_ranks.round);
        return 0;
    case RDZV_PAIR: got_pair(m, &msg->pair); return 0;
    case RDZV_HUNG: got_hung(m, &msg->hung); return 0;
    case RDZV_BEHIND: got_behind(m, &msg->behind); return 0;
    case RDZV_ASK_INSPECT:
        m->actions->on_inspect(m->arg, msg->ask_inspect.id, msg->ask_inspect.why);
        return 0;
    case RDZV_NODES:
        if (m->actions->on_nodes != NULL) m->actions->on_nodes(m->arg, &msg->nodes);
        return 0;
    case RDZV_REFUSED: got_refused(m, &msg->refused); return 0;
    case RDZV_GOODBYE: got_goodbye(m, now_ms, &msg->goodbye); return 0;
    default:
        return cr_fail(err, -EPROTO, "a coordinator must not send a %s message",
                       rdzv_message_name((unsigned) msg->type));
    }
}

/* ---- beats, the fence and timers ---- */

static void send_beat(struct member *m, int64_t now_ms) {
    struct rdzv_message beat = {.type = RDZV_BEAT};
    bool in_round = m->state == MEMBER_RUNNING || m->state == MEMBER_SUCCEEDED;
    beat.beat = (struct rdzv_beat){.sent_ms = now_ms,
                                   .rounds_over = 1 + m->rounds_seen - (in_round ? 1 : 0),
                                   .heard_at_ms = m->heard_at_ms,
                                   .rounds_seen = m->yielded_to > m->rounds_seen
                                                      ? m->yielded_to
                                                      : m->rounds_seen};
    keep_alive_plan(&m->keep_alive, now_ms);
    m->actions->send(m->arg, &beat);
}

/* Call this at the fence of a connected node. If there are heirs, sends ABANDON to the coordinator,
 * which may still receive messages: without ABANDON, the coordinator would take the end of the
 * connection for the end of this process. */
static void give_up_coordinator(struct member *m, int64_t now_ms, const char *why) {
    struct rdzv_message msg = {.type = RDZV_ABANDON};
    note_loss(m, now_ms, RENDEZVOUS_BROKEN, why);
    msg.abandon.why = why;
    if (succession_is_on(&m->succession)) m->actions->send(m->arg, &msg);
}

static void fence(struct member *m, int64_t now_ms) {
    char why[100];
    (void) snprintf(why, sizeof(why), "it has not answered for %" PRId64 " ms",
                    now_ms - m->keep_alive.acked_ms);
    if (m->connected) give_up_coordinator(m, now_ms, why);
    if (m->connected || connecting_is_trying(&m->connecting)) m->actions->hang_up(m->arg);
    connecting_stop(&m->connecting);
    m->connected = false;
    forget_inquiry(m);
    if (m->state != MEMBER_JOINING) {
        stop_workers(m, now_ms, why);
        return;
    }
    keep_alive_stop(&m->keep_alive);
    start_connecting(m, now_ms, why);
}

static void take_over(struct member *m) {
    m->actions->log(m->arg, CR_LOG_WARN,
                    "this node is ready to take over as the coordinator, if more than half of the "
                    "round's nodes join it");
    if (m->actions->lead != NULL) m->actions->lead(m->arg, succession_epoch(&m->succession));
}

void member_tick(struct member *m, int64_t now_ms) {
    if (m->state == MEMBER_ENDED) return;
    if (now_ms >= m->held_ms) send_held(m);
    if (now_ms >= keep_alive_fence(&m->keep_alive)) {
        fence(m, now_ms);
    } else if (now_ms >= m->keep_alive.beat_ms) {
        send_beat(m, now_ms);
    } else if (now_ms >= m->connecting.until_ms) {
        m->actions->hang_up(m->arg);
        try_failed(m, now_ms, "no answer");
    } else if (now_ms >= m->connecting.retry_ms) {
        try_next(m, now_ms);
    }
    if (m->state == MEMBER_ENDED || m->state == MEMBER_LEAVING) return;
    if (succession_takes_over(&m->succession, now_ms)) take_over(m);
}

void member_stood_still(struct member *m, int64_t now_ms, int64_t slept_ms) {
    keep_alive_slept(&m->keep_alive, slept_ms);
    member_tick(m, now_ms);
}

int64_t member_lease_end_ms(const struct member *m) { return keep_alive_end(&m->keep_alive); }

int64_t member_gives_up_ms(const struct member *m) { return m->connecting.give_up_ms; }

static int64_t min_ms(int64_t a, int64_t b) { return a < b ? a : b; }

int64_t member_deadline(const struct member *m) {
    int64_t connecting = min_ms(m->connecting.until_ms, m->connecting.retry_ms);
    if (m->state != MEMBER_ENDED && m->state != MEMBER_LEAVING) {
        connecting = min_ms(connecting, m->succession.lead_ms);
    }
    connecting = min_ms(connecting, m->held_ms);
    return min_ms(connecting, min_ms(m->keep_alive.beat_ms, keep_alive_fence(&m->keep_alive)));
}
