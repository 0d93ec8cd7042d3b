#include "rendezvous/member/member.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "rendezvous/types.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RETRY_MIN_MS INT64_C(20)
#define RETRY_MAX_MS INT64_C(1000)

struct member {
    struct member_settings set; /* texts are ours */
    const struct member_actions *actions;
    void *arg;

    enum member_state state;
    int linked;
    int welcomed;    /* over this connection: it is a coordinator that wants us */
    int linked_once; /* there was a coordinator once */
    uint64_t links; /* connections so far */
    uint64_t epoch; /* newest coordinator we have obeyed */

    /* the last round we were in */
    uint64_t round;
    uint64_t rounds_seen;
    uint32_t restarts_seen;
    int64_t last_rank;

    /* connecting; all CR_FOREVER when it does not apply */
    int64_t give_up_ms;  /* no attempt starts after that */
    int64_t attempt_ms;  /* the attempt under way ends then */
    int64_t retry_ms;    /* the next attempt starts then */
    int64_t backoff_ms;
    uint64_t jitter;     /* state of a small generator */

    /* keeping alive */
    int64_t interval_ms, lease_ms;
    int64_t acked_ms; /* when we sent the newest beat that was answered */
    int64_t beat_ms;  /* the next beat is due then */

    char lost_why[512]; /* how the connection was lost */
};

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

static void settings_done(struct member_settings *s) {
    free((void *) (uintptr_t) s->run_id);
    free((void *) (uintptr_t) s->where);
    free((void *) (uintptr_t) s->facts);
    free((void *) (uintptr_t) s->self.host);
    free((void *) (uintptr_t) s->self.addr);
    free((void *) (uintptr_t) s->self.role);
}

static int settings_copy(struct member_settings *to, const struct member_settings *from) {
    *to = *from;
    to->run_id = strdup(from->run_id);
    to->where = strdup(from->where);
    to->facts = strdup(from->facts != NULL ? from->facts : "");
    to->self.host = strdup(from->self.host);
    to->self.addr = strdup(from->self.addr);
    to->self.role = strdup(from->self.role);
    if (to->run_id != NULL && to->where != NULL && to->facts != NULL && to->self.host != NULL &&
        to->self.addr != NULL && to->self.role != NULL) {
        return 0;
    }
    settings_done(to);
    return -ENOMEM;
}

static void use_keep_alive(struct member *m, int64_t interval_ms, uint32_t attempts) {
    m->interval_ms = interval_ms;
    m->lease_ms = interval_ms * attempts;
}

static void forget_connecting(struct member *m) {
    m->give_up_ms = m->attempt_ms = m->retry_ms = CR_FOREVER;
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
    m->jitter = settings->self.instance;
    m->beat_ms = CR_FOREVER;
    forget_connecting(m);
    use_keep_alive(m, settings->self.keep_alive_interval_ms,
                   settings->self.keep_alive_max_attempt);
    return m;
}

void member_free(struct member *m) {
    if (m == NULL) return;
    settings_done(&m->set);
    free(m);
}

/* The only writer of m->state. */
static void enter(struct member *m, enum member_state next) {
    if (m->state == next) return;
    cr_debug("member: %s -> %s", member_state_name(m->state), member_state_name(next));
    m->state = next;
}

/* Last thing that a function does: the agent may call us again from inside. */
static void end(struct member *m, int outcome, const char *why) {
    enum member_state was = m->state;
    int was_connecting = m->attempt_ms != CR_FOREVER;
    enter(m, MEMBER_ENDED);
    if (m->linked || was_connecting) m->actions->hang_up(m->arg);
    m->linked = 0;
    m->beat_ms = CR_FOREVER;
    forget_connecting(m);
    if (was != MEMBER_LEAVING) m->actions->on_end(m->arg, outcome, why);
}

/* ---- connecting ---- */

/* 50 % to 100 % of `ms`, so that many nodes do not come back in step (splitmix64). */
static int64_t jittered(struct member *m, int64_t ms) {
    uint64_t z = (m->jitter += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return ms / 2 + (int64_t) ((z ^ z >> 31) % (uint64_t) (ms / 2 + 1));
}

static void start_attempt(struct member *m, int64_t now_ms) {
    m->retry_ms = CR_FOREVER;
    m->attempt_ms = now_ms + m->lease_ms;
    if (m->give_up_ms > now_ms && m->give_up_ms < m->attempt_ms) m->attempt_ms = m->give_up_ms;
    m->actions->connect(m->arg);
}

static void start_linking(struct member *m, int64_t now_ms) {
    int64_t patience = m->linked_once ? m->set.coordinator_wait_ms : m->set.connect_timeout_ms;
    enter(m, MEMBER_LINKING);
    m->give_up_ms = now_ms + patience;
    m->backoff_ms = RETRY_MIN_MS;
    start_attempt(m, now_ms);
}

static void give_up(struct member *m, const char *why) {
    char text[RDZV_TEXT_MAX];
    if (!m->linked_once) {
        (void) snprintf(text, sizeof(text),
                        "cannot reach the rendezvous at '%.200s' within %g"
                        " s: %.200s; is the node that hosts it up, and the address right?%s%.500s",
                        m->set.where, (double) m->set.connect_timeout_ms / 1000, why,
                        m->set.facts[0] != '\0' ? " " : "", m->set.facts);
    } else {
        (void) snprintf(text, sizeof(text),
                        "lost the coordinator at '%.200s' (%.300s), and it did not come back: %.200s; "
                        "coordinator_wait=SECONDS in --rdzv-conf waits longer",
                        m->set.where, m->lost_why, why);
    }
    end(m, RENDEZVOUS_LOST, text);
}

static void attempt_failed(struct member *m, int64_t now_ms, const char *why) {
    m->attempt_ms = CR_FOREVER;
    int64_t wait = jittered(m, m->backoff_ms);
    if (now_ms + wait > m->give_up_ms) {
        give_up(m, why);
        return;
    }
    m->retry_ms = now_ms + wait;
    m->backoff_ms = 2 * m->backoff_ms < RETRY_MAX_MS ? 2 * m->backoff_ms : RETRY_MAX_MS;
}

/* A third of the lease at most, so that one lost beat does not matter. */
static void plan_beat(struct member *m, int64_t now_ms) {
    int64_t third = m->lease_ms / 3 > 0 ? m->lease_ms / 3 : 1;
    m->beat_ms = m->set.local ? CR_FOREVER
                              : now_ms + (m->interval_ms < third ? m->interval_ms : third);
}

static void send_join(struct member *m) {
    struct rdzv_message msg = {.type = RDZV_JOIN};
    msg.join = m->set.self;
    msg.join.link = m->links;
    msg.join.rounds_seen = m->rounds_seen;
    msg.join.restarts_seen = m->restarts_seen;
    msg.join.last_rank = m->last_rank;
    enter(m, MEMBER_JOINING);
    m->actions->send(m->arg, &msg);
}

void member_set_addr(struct member *m, const char *addr) {
    char *copy = m->set.self.addr[0] == '\0' ? strdup(addr) : NULL;
    if (copy == NULL) return;
    free((void *) (uintptr_t) m->set.self.addr);
    m->set.self.addr = copy;
}

void member_linked(struct member *m, int64_t now_ms) {
    if (m->state != MEMBER_LINKING) return;
    m->attempt_ms = CR_FOREVER; /* but it is not a success before WELCOME */
    m->welcomed = 0;
    m->linked = 1;
    m->links++;
    m->acked_ms = now_ms;
    plan_beat(m, now_ms);
    struct rdzv_message hello = {.type = RDZV_HELLO};
    hello.hello = (struct rdzv_hello){
        .version_min = RDZV_VERSION_MIN, .version_max = RDZV_VERSION_MAX,
        .software = "crun " CRUN_VERSION, .run_id = m->set.run_id, .epoch = m->epoch};
    m->actions->send(m->arg, &hello);
    send_join(m);
}

/* ---- losing the connection ---- */

static void cut_off(struct member *m, int64_t now_ms, const char *why) {
    int64_t grace = m->acked_ms + m->lease_ms - now_ms;
    if (grace < 0) grace = 0;
    m->linked = 0;
    if (m->welcomed) m->linked_once = 1;
    m->beat_ms = CR_FOREVER;
    (void) snprintf(m->lost_why, sizeof(m->lost_why), "%s", why);
    switch (m->state) {
    case MEMBER_JOINING:
        if (m->welcomed) {
            start_linking(m, now_ms);
        } else { /* somebody took the call and hung up: no reason to hurry */
            enter(m, MEMBER_LINKING);
            attempt_failed(m, now_ms, why);
        }
        break;
    case MEMBER_RUNNING:
    case MEMBER_SUCCEEDED:
    case MEMBER_FAILED:
    case MEMBER_STOPPING:
    case MEMBER_LEAVING: {
        char text[RDZV_TEXT_MAX];
        (void) snprintf(text, sizeof(text), "lost the coordinator at '%.200s': %.500s",
                        m->set.where, why);
        if (m->state != MEMBER_LEAVING) enter(m, MEMBER_STOPPING);
        m->actions->on_stop(m->arg, grace, text);
        break;
    }
    case MEMBER_IDLE:
    case MEMBER_LINKING:
    case MEMBER_ENDED: break;
    }
}

void member_unlinked(struct member *m, int64_t now_ms, const char *why) {
    if (m->state == MEMBER_LINKING) attempt_failed(m, now_ms, why);
    else if (m->linked) cut_off(m, now_ms, why);
}

/* ---- what the agent says ---- */

void member_join(struct member *m, int64_t now_ms) {
    if (m->state == MEMBER_ENDED || m->state == MEMBER_LEAVING) return; /* crossed with the end */
    CR_ASSERT(m->state == MEMBER_IDLE || m->state == MEMBER_STOPPING || m->state == MEMBER_FAILED);
    if (m->linked) send_join(m);
    else start_linking(m, now_ms);
}

void member_failed(struct member *m, int64_t now_ms, uint64_t round, const char *what) {
    (void) now_ms;
    if (m->state != MEMBER_RUNNING || round != m->round) return;
    struct rdzv_message msg = {.type = RDZV_FAILED};
    msg.failed = (struct rdzv_failed){.round = round, .what = what};
    enter(m, MEMBER_FAILED);
    m->actions->send(m->arg, &msg);
}

void member_succeeded(struct member *m, int64_t now_ms, uint64_t round) {
    (void) now_ms;
    if (m->state != MEMBER_RUNNING || round != m->round) return;
    struct rdzv_message msg = {.type = RDZV_SUCCEEDED};
    msg.succeeded.round = round;
    enter(m, MEMBER_SUCCEEDED);
    m->actions->send(m->arg, &msg);
}

/* A change is void once its round is over: what is said of it then goes nowhere. */
void member_change_answer(struct member *m, uint64_t id, int64_t step, int64_t needs_ms) {
    struct rdzv_message msg = {.type = RDZV_CHANGE_ANSWER};
    msg.change_answer = (struct rdzv_change_answer){.id = id, .step = step, .needs_ms = needs_ms};
    if (m->state == MEMBER_RUNNING && m->linked) m->actions->send(m->arg, &msg);
}

void member_change_ready(struct member *m, uint64_t id) {
    struct rdzv_message msg = {.type = RDZV_CHANGE_READY};
    msg.change_ready.id = id;
    if (m->state == MEMBER_RUNNING && m->linked) m->actions->send(m->arg, &msg);
}

void member_notice(struct member *m, uint32_t kind, int64_t left_ms, const char *why) {
    struct rdzv_message msg = {.type = RDZV_NOTICE};
    msg.notice = (struct rdzv_notice){.kind = kind, .left_ms = left_ms, .why = why};
    int in_round = m->state == MEMBER_RUNNING || m->state == MEMBER_SUCCEEDED;
    if (in_round && m->linked) m->actions->send(m->arg, &msg);
}

void member_leave(struct member *m, int64_t now_ms, const char *why) {
    (void) now_ms;
    if (m->state == MEMBER_ENDED || m->state == MEMBER_LEAVING) return;
    if (m->attempt_ms != CR_FOREVER) m->actions->hang_up(m->arg);
    forget_connecting(m);
    enter(m, MEMBER_LEAVING);
    if (!m->linked) return;
    struct rdzv_message msg = {.type = RDZV_LEAVE};
    msg.leave.why = why;
    m->actions->send(m->arg, &msg);
}

/* ---- what the coordinator says ---- */

static void got_welcome(struct member *m, int64_t now_ms, const struct rdzv_welcome *w) {
    if (w->epoch >= m->epoch) {
        m->epoch = w->epoch;
        m->welcomed = 1;
        forget_connecting(m);
        return;
    }
    char why[160];
    (void) snprintf(why, sizeof(why),
                    "it has epoch %" PRIu64 ", but epoch %" PRIu64 " has taken over", w->epoch,
                    m->epoch);
    m->actions->hang_up(m->arg);
    cut_off(m, now_ms, why);
}

static int got_accepted(struct member *m, int64_t now_ms, const struct rdzv_accepted *a,
                        struct cr_error *err) {
    int64_t interval_ms = a->keep_alive_interval_ms;
    uint32_t attempts = a->keep_alive_max_attempt;
    if (interval_ms < 1 || interval_ms > RDZV_INTERVAL_MAX_MS || attempts < 1 ||
        attempts > RDZV_ATTEMPTS_MAX) {
        return cr_fail(err, -EPROTO,
                       "refuse a keep-alive interval of %" PRId64 " ms, %" PRIu32 " times",
                       interval_ms, attempts);
    }
    use_keep_alive(m, interval_ms, attempts);
    plan_beat(m, now_ms);
    return 0;
}

static void got_round(struct member *m, const struct rdzv_round *r) {
    if (m->state != MEMBER_JOINING) return;
    m->linked_once = 1;
    m->round = r->round;
    m->rounds_seen = r->round + 1;
    m->restarts_seen = r->restart_count;
    m->last_rank = r->group_rank;
    enter(m, MEMBER_RUNNING);
    m->actions->on_round(m->arg, r);
}

static void got_stop(struct member *m, const struct rdzv_stop *s) {
    if (s->round != m->round) return;
    if (m->state != MEMBER_RUNNING && m->state != MEMBER_SUCCEEDED) return;
    enter(m, MEMBER_STOPPING);
    m->actions->on_stop(m->arg, CR_FOREVER, s->why);
}

static void got_change(struct member *m, const struct rdzv_change *c) {
    if (m->state == MEMBER_RUNNING && c->round == m->round) m->actions->on_change(m->arg, c);
}

static void got_change_at(struct member *m, const struct rdzv_change_at *at) {
    if (m->state == MEMBER_RUNNING) m->actions->on_change_at(m->arg, at);
}

static void got_end(struct member *m, const struct rdzv_end *e) {
    int known = e->outcome == RENDEZVOUS_SUCCEEDED || e->outcome == RENDEZVOUS_FAILED;
    end(m, known ? (int) e->outcome : RENDEZVOUS_LOST, e->why);
}

static void got_refused(struct member *m, const struct rdzv_refused *r) {
    char why[RDZV_TEXT_MAX];
    (void) snprintf(why, sizeof(why), "the coordinator at '%.200s' refuses this node: %.700s",
                    m->set.where, r->why);
    end(m, RENDEZVOUS_LOST, why);
}

int member_receive(struct member *m, int64_t now_ms, const struct rdzv_message *msg,
                   struct cr_error *err) {
    if (!m->linked) return 0; /* we have hung up already */
    if (m->state == MEMBER_LEAVING && msg->type != RDZV_BEAT_ACK) return 0;
    switch ((unsigned) msg->type) {
    case RDZV_WELCOME: got_welcome(m, now_ms, &msg->welcome); return 0;
    case RDZV_ACCEPTED: return got_accepted(m, now_ms, &msg->accepted, err);
    case RDZV_ROUND: got_round(m, &msg->round); return 0;
    case RDZV_STOP: got_stop(m, &msg->stop); return 0;
    case RDZV_END: got_end(m, &msg->end); return 0;
    case RDZV_BEAT_ACK:
        if (msg->beat_ack.sent_ms > m->acked_ms && msg->beat_ack.sent_ms <= now_ms) {
            m->acked_ms = msg->beat_ack.sent_ms;
        }
        return 0;
    case RDZV_CHANGE: got_change(m, &msg->change); return 0;
    case RDZV_CHANGE_AT: got_change_at(m, &msg->change_at); return 0;
    case RDZV_ASK_NOTICE: m->actions->on_notice(m->arg, &msg->ask_notice); return 0;
    case RDZV_ASK_DUMP: m->actions->on_dump(m->arg, msg->ask_dump.why); return 0;
    case RDZV_REFUSED: got_refused(m, &msg->refused); return 0;
    default:
        return cr_fail(err, -EPROTO, "refuse a %s message from a coordinator",
                       rdzv_message_name((unsigned) msg->type));
    }
}

/* ---- time ---- */

/* Five sixths of the lease: the rest is for ending the workers. */
static int64_t fence_limit(const struct member *m) {
    if (!m->linked || m->set.local) return CR_FOREVER;
    return m->acked_ms + m->lease_ms - m->lease_ms / 6;
}

static void send_beat(struct member *m, int64_t now_ms) {
    struct rdzv_message beat = {.type = RDZV_BEAT};
    beat.beat.sent_ms = now_ms;
    plan_beat(m, now_ms);
    m->actions->send(m->arg, &beat);
}

void member_tick(struct member *m, int64_t now_ms) {
    if (m->state == MEMBER_ENDED) return;
    if (now_ms >= fence_limit(m)) {
        char why[100];
        (void) snprintf(why, sizeof(why), "it has not answered for %" PRId64 " ms",
                        now_ms - m->acked_ms);
        m->actions->hang_up(m->arg);
        cut_off(m, now_ms, why);
    } else if (m->linked && now_ms >= m->beat_ms) {
        send_beat(m, now_ms);
    } else if (now_ms >= m->attempt_ms) {
        m->actions->hang_up(m->arg);
        attempt_failed(m, now_ms, "no answer");
    } else if (now_ms >= m->retry_ms) {
        start_attempt(m, now_ms);
    }
}

static int64_t min_ms(int64_t a, int64_t b) { return a < b ? a : b; }

int64_t member_deadline(const struct member *m) {
    int64_t connecting = min_ms(m->attempt_ms, m->retry_ms);
    return min_ms(connecting, min_ms(m->beat_ms, fence_limit(m)));
}
