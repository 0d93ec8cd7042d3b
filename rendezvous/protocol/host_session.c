/* The coordinator's end of a connection. The functions come in this order: change of state, sending
 * and refusing, received messages in the order of the protocol, time. */
#include "rendezvous/protocol/host_session.h"

#include "base/time/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define OUT_OF_MEMORY "the coordinator is out of memory"

const char *host_session_state_name(enum host_session_state s) {
    switch (s) {
#define S(name)                                                                                    \
    case HOST_SESSION_##name: return #name;
        HOST_SESSION_STATES(S)
#undef S
    }
    return "?";
}

/* Returns the time at which the state `next` must have ended if it begins at now_ms; CR_FOREVER if
 * it has no time limit. */
static int64_t limit_of(const struct host_session *s, enum host_session_state next,
                        int64_t now_ms) {
    if (s->local) return CR_FOREVER;
    switch (next) {
    case HOST_SESSION_MAGIC: return now_ms + SESSION_GREETING_MS;
    case HOST_SESSION_HELLO:
    case HOST_SESSION_JOIN: return s->limit_ms;
    case HOST_SESSION_INSPECTING: return now_ms + SESSION_INSPECT_MS;
    case HOST_SESSION_RELAYING: return now_ms + SESSION_RELAY_MS;
    case HOST_SESSION_ENDING: return now_ms + s->terms->close_timeout_ms;
    case HOST_SESSION_CLOSING: return now_ms + SESSION_LINGER_MS;
    case HOST_SESSION_SEATED:
    case HOST_SESSION_CLOSED:
    case HOST_SESSION_NEW: break;
    }
    return CR_FOREVER;
}

/* Enters the state `next`, and sets its time limit. No other function writes `state`; only
 * take_trunk() also writes `limit_ms`. */
static void enter(struct host_session *s, int64_t now_ms, enum host_session_state next,
                  const char *why) {
    char text[300];
    (void) snprintf(text, sizeof(text), "session: %s -> %s (%.200s)",
                    host_session_state_name(s->state), host_session_state_name(next), why);
    s->actions->log(s->arg, CR_LOG_DEBUG, text);
    s->limit_ms = limit_of(s, next, now_ms);
    s->state = next;
}

void host_session_open(struct host_session *s, int64_t now_ms, bool local,
                       const struct host_session_terms *terms,
                       const struct host_session_actions *actions, void *arg) {
    *s = (struct host_session){.terms = terms, .actions = actions, .arg = arg, .local = local,
                               .version = RDZV_VERSION_MIN};
    enter(s, now_ms, HOST_SESSION_MAGIC, "opened");
}

void host_session_done(struct host_session *s) {
    cr_buffer_done(&s->in);
    cr_buffer_done(&s->out);
}

void host_session_shrink(struct host_session *s) {
    if (s->in.len == 0) cr_buffer_done(&s->in);
    if (s->out.len == 0) cr_buffer_done(&s->out);
}

static bool takes_input(const struct host_session *s) { return s->state < HOST_SESSION_CLOSING; }

/* ---- sending ---- */

/* Does what takes the place of GOODBYE if the connection's version has no such message. A host in a
 * launcher is not expected to come back, so it sends the node END. Any other host sends nothing. */
static void send_old_goodbye(struct host_session *s, int64_t now_ms, const char *why) {
    struct rdzv_message m = {.type = RDZV_END};
    m.end = (struct rdzv_end){.outcome = RENDEZVOUS_LOST, .why = why};
    if (s->terms->in_launcher) host_session_send(s, now_ms, &m);
}

void host_session_send(struct host_session *s, int64_t now_ms, const struct rdzv_message *m) {
    if (!takes_input(s)) return;
    if (m->type == RDZV_GOODBYE && s->version < RDZV_VERSION_RESUME) {
        send_old_goodbye(s, now_ms, m->goodbye.why);
        return;
    }
    if (s->version < rdzv_message_since(m->type)) return;
    if (rdzv_message_encode(m, s->version, &s->out) < 0) {
        /* Memory is short, so the node does not get this message. Members can handle a lost
         * connection, but not a lost message, so the connection is closed. When the session is
         * CLOSED, on_lost is called. */
        enter(s, now_ms, HOST_SESSION_CLOSING, "out of memory");
    } else if (m->type == RDZV_END && s->state == HOST_SESSION_SEATED) {
        enter(s, now_ms, HOST_SESSION_ENDING, "the job has ended");
    }
}

void host_session_hang_up(struct host_session *s, int64_t now_ms) {
    s->seated = false;
    if (takes_input(s)) enter(s, now_ms, HOST_SESSION_CLOSING, "hung up");
}

static void vacate(struct host_session *s, enum rendezvous_loss how, const char *why) {
    if (!s->seated) return;
    s->seated = false;
    s->actions->on_lost(s->arg, s->version < RDZV_VERSION_RESUME ? RENDEZVOUS_CLOSED : how, why);
}

/* Sends REFUSED, which is the last message of a session, and frees the seat if the node has one.
 * `epoch` is the smallest epoch of a coordinator that the node may try next; 0 = the refusal is
 * final. */
static void refuse(struct host_session *s, int64_t now_ms, uint64_t epoch, const char *why) {
    struct rdzv_message m = {.type = RDZV_REFUSED};
    m.refused = (struct rdzv_refused){.version_min = RDZV_VERSION_MIN,
                                      .version_max = RDZV_VERSION_MAX,
                                      .epoch = epoch, .why = why};
    host_session_send(s, now_ms, &m);
    if (takes_input(s)) enter(s, now_ms, HOST_SESSION_CLOSING, why);
    vacate(s, RENDEZVOUS_CLOSED, why);
}

/* ---- the greeting ---- */

/* Sets the connection's version to the largest one that both builds support, and returns true. If
 * both builds support no common version, refuses the connection and returns false. */
static bool choose_version(struct host_session *s, int64_t now_ms, const char *software,
                           uint32_t min, uint32_t max) {
    char why[512];
    if (min <= RDZV_VERSION_MAX && max >= RDZV_VERSION_MIN) {
        s->version = max < RDZV_VERSION_MAX ? max : RDZV_VERSION_MAX;
        return true;
    }
    (void) snprintf(why, sizeof(why),
                    "the node ('%.100s') speaks rendezvous protocol %" PRIu32 " to %" PRIu32
                    ", the coordinator ('crun " CRUN_VERSION "') %d to %d; use builds that overlap",
                    software, min, max, RDZV_VERSION_MIN, RDZV_VERSION_MAX);
    refuse(s, now_ms, 0, why);
    return false;
}

/* Refuses a node because of its epoch. `epoch` is the epoch of this host for the node's job. The
 * node will look for another coordinator, and accept none with a smaller epoch than the one in
 * REFUSED. */
static void refuse_epoch(struct host_session *s, int64_t now_ms, uint64_t epoch,
                         uint64_t obeyed) {
    char why[200];
    if (s->terms->leads && obeyed > epoch) {
        (void) snprintf(why, sizeof(why),
                        "this coordinator has epoch %" PRIu64
                        ", the node has obeyed epoch %" PRIu64,
                        epoch, obeyed);
    } else {
        (void) snprintf(why, sizeof(why),
                        "this node is not the elected coordinator (its epoch was %" PRIu64 ")",
                        epoch);
    }
    refuse(s, now_ms, obeyed > epoch ? obeyed : epoch + 1, why);
}

/* Sends MOVED, which names the host that leads the node's job, and closes the session. */
static void redirect(struct host_session *s, int64_t now_ms,
                     const struct host_session_verdict *v) {
    struct rdzv_message m = {.type = RDZV_MOVED};
    m.moved = (struct rdzv_moved){.epoch = v->epoch, .addr = v->addr, .port = v->port};
    host_session_send(s, now_ms, &m);
    if (takes_input(s)) enter(s, now_ms, HOST_SESSION_CLOSING, "another host leads the job");
}

/* Returns true if this host may serve a node, and sets *epoch to the epoch of the coordinator that
 * serves it. That epoch is not smaller than the largest one that the node has obeyed. Otherwise
 * refuses or redirects the node, and returns false. */
static bool check_epoch(struct host_session *s, int64_t now_ms, const struct rdzv_hello *h,
                        uint64_t *epoch) {
    const struct host_session_terms *t = s->terms;
    struct host_session_verdict v = {.serves = t->leads && h->epoch <= t->epoch,
                                     .epoch = t->epoch};
    if (t->leads && s->actions->judge != NULL) v = s->actions->judge(s->arg, h);
    *epoch = v.epoch;
    if (v.serves) return true;
    if (v.addr != NULL && s->version >= RDZV_VERSION_HEIRS) redirect(s, now_ms, &v);
    else refuse_epoch(s, now_ms, v.epoch, h->epoch);
    return false;
}

static void got_hello(struct host_session *s, int64_t now_ms, const struct rdzv_hello *h) {
    struct cr_error err = {0};
    uint64_t epoch = 0;
    if (!choose_version(s, now_ms, h->software, h->version_min, h->version_max)) return;
    if (!check_epoch(s, now_ms, h, &epoch)) return;
    if (s->terms->closing != NULL) {
        refuse(s, now_ms, s->terms->comes_again ? s->terms->epoch + 1 : 0, s->terms->closing);
        return;
    }
    int rc = s->actions->on_hello(s->arg, h, &err);
    if (rc < 0) {
        refuse(s, now_ms, rc == -EAGAIN ? s->terms->epoch + 1 : 0, err.text);
        return;
    }
    struct rdzv_message m = {.type = RDZV_WELCOME};
    m.welcome = (struct rdzv_welcome){.version = s->version, .epoch = epoch,
                                      .in_launcher = s->terms->in_launcher,
                                      .coordinator = s->terms->coordinator,
                                      .at_ms = now_ms > 0 ? now_ms : 1};
    host_session_send(s, now_ms, &m);
    if (takes_input(s)) enter(s, now_ms, HOST_SESSION_JOIN, h->software);
}

static void got_status(struct host_session *s, int64_t now_ms, const struct rdzv_status *q) {
    if (!choose_version(s, now_ms, "status", q->version_min, q->version_max)) return;
    s->actions->on_status(s->arg);
    host_session_hang_up(s, now_ms);
}

static void got_operate(struct host_session *s, int64_t now_ms, const struct rdzv_operate *o) {
    struct cr_error err = {0};
    if (!choose_version(s, now_ms, "operator", o->version_min, o->version_max)) return;
    int rc = s->actions->on_operate(s->arg, o, &err);
    if (rc < 0) refuse(s, now_ms, 0, err.text);
    else if (rc == 0) host_session_hang_up(s, now_ms);
    else if (takes_input(s)) enter(s, now_ms, HOST_SESSION_INSPECTING, "the answer comes later");
}

static void got_leads(struct host_session *s, int64_t now_ms, const struct rdzv_leads *l) {
    if (!choose_version(s, now_ms, "host", l->version_min, l->version_max)) return;
    if (s->actions->on_leads != NULL) s->actions->on_leads(s->arg, l);
    host_session_hang_up(s, now_ms);
}

static void got_relay(struct host_session *s, int64_t now_ms, const struct rdzv_relay *r) {
    struct cr_error err = {0};
    if (!choose_version(s, now_ms, r->software, r->version_min, r->version_max)) return;
    if (s->actions->on_relay == NULL || s->version < RDZV_VERSION_RELAY) {
        refuse(s, now_ms, 0, "this host serves no relays");
        return;
    }
    if (s->actions->on_relay(s->arg, r, &err) < 0) {
        refuse(s, now_ms, 0, err.text);
        return;
    }
    struct rdzv_message m = {.type = RDZV_WELCOME};
    m.welcome = (struct rdzv_welcome){.version = s->version, .at_ms = now_ms > 0 ? now_ms : 1};
    host_session_send(s, now_ms, &m);
    if (takes_input(s)) enter(s, now_ms, HOST_SESSION_RELAYING, r->software);
}

/* Handles JOIN. The session is SEATED before on_join is called, because on_join may send END, and
 * END changes the state only in SEATED. If on_join fails, the node has no seat, and the session
 * closes. */
static void got_join(struct host_session *s, int64_t now_ms, const struct rdzv_join *join) {
    enter(s, now_ms, HOST_SESSION_SEATED, join->host);
    s->seated = true;
    if (s->actions->on_join(s->arg, join) < 0) host_session_hang_up(s, now_ms);
}

static void got_resume(struct host_session *s, int64_t now_ms, const struct rdzv_resume *resume) {
    enter(s, now_ms, HOST_SESSION_SEATED, resume->host);
    s->seated = true;
    if (s->actions->on_resume(s->arg, resume) < 0) host_session_hang_up(s, now_ms);
}

static void got_seated(struct host_session *s, int64_t now_ms, const struct rdzv_message *m) {
    struct cr_error err = {0};
    if (s->actions->on_message(s->arg, m, &err) < 0) refuse(s, now_ms, 0, err.text);
}

static void refuse_out_of_order(struct host_session *s, int64_t now_ms, unsigned type,
                                const char *expected) {
    char why[100];
    (void) snprintf(why, sizeof(why), "a %s message came before %s", rdzv_message_name(type),
                    expected);
    refuse(s, now_ms, 0, why);
}

static void got_first(struct host_session *s, int64_t now_ms, const struct rdzv_message *m) {
    switch ((unsigned) m->type) {
    case RDZV_HELLO: got_hello(s, now_ms, &m->hello); break;
    case RDZV_STATUS: got_status(s, now_ms, &m->status); break;
    case RDZV_OPERATE: got_operate(s, now_ms, &m->operate); break;
    case RDZV_LEADS: got_leads(s, now_ms, &m->leads); break;
    case RDZV_RELAY: got_relay(s, now_ms, &m->relay); break;
    default: refuse_out_of_order(s, now_ms, (unsigned) m->type, "HELLO");
    }
}

/* ---- received bytes and messages ---- */

struct arrival {
    struct host_session *session;
    int64_t now_ms;
};

static int got_message(void *arg, const struct rdzv_message *m, struct cr_error *err) {
    const struct arrival *a = arg;
    struct host_session *s = a->session;
    (void) err;
    switch (s->state) {
    case HOST_SESSION_HELLO: got_first(s, a->now_ms, m); break;
    case HOST_SESSION_JOIN:
        if (m->type == RDZV_JOIN) got_join(s, a->now_ms, &m->join);
        else if (m->type == RDZV_RESUME) got_resume(s, a->now_ms, &m->resume);
        else refuse_out_of_order(s, a->now_ms, (unsigned) m->type, "JOIN");
        break;
    case HOST_SESSION_SEATED:
    case HOST_SESSION_ENDING: got_seated(s, a->now_ms, m); break;
    case HOST_SESSION_INSPECTING:
        refuse_out_of_order(s, a->now_ms, (unsigned) m->type, "the answer to OPERATE");
        break;
    case HOST_SESSION_NEW:
    case HOST_SESSION_MAGIC:
    case HOST_SESSION_RELAYING:
    case HOST_SESSION_CLOSING:
    case HOST_SESSION_CLOSED: break;
    }
    if (s->state == HOST_SESSION_RELAYING) return 1; /* take_trunk() handles the rest */
    /* -ECANCELED if the session is closing: the rest of the input is not handled */
    return takes_input(s) ? 0 : -ECANCELED;
}

/* Checks the first bytes of a connection. If they are not RDZV_MAGIC, the other end is neither a
 * node nor an operator, so the session closes without an answer. */
static void take_magic(struct host_session *s, int64_t now_ms) {
    if (s->in.len < RDZV_MAGIC_LEN) return;
    if (memcmp(s->in.data, RDZV_MAGIC, RDZV_MAGIC_LEN) != 0) {
        enter(s, now_ms, HOST_SESSION_CLOSING, "another protocol");
        return;
    }
    cr_buffer_consume(&s->in, RDZV_MAGIC_LEN);
    enter(s, now_ms, HOST_SESSION_HELLO, "magic number");
}

/* Passes all received bytes of a relay's trunk to the action on_trunk. If that fails, refuses the
 * trunk. */
static void take_trunk(struct host_session *s, int64_t now_ms) {
    struct cr_error err = {0};
    struct cr_buffer in = s->in;
    s->in = (struct cr_buffer){0};
    s->limit_ms = limit_of(s, s->state, now_ms);
    int rc = s->actions->on_trunk(s->arg, in.data, in.len, &err);
    cr_buffer_done(&in);
    if (rc < 0) refuse(s, now_ms, 0, err.text);
}

void host_session_receive(struct host_session *s, int64_t now_ms, const char *data, size_t len) {
    struct arrival a = {.session = s, .now_ms = now_ms};
    struct cr_error err = {0};
    if (!takes_input(s)) return;
    if (cr_buffer_append(&s->in, data, len) < 0) {
        refuse(s, now_ms, 0, OUT_OF_MEMORY);
        return;
    }
    if (s->state == HOST_SESSION_MAGIC) take_magic(s, now_ms);
    if (s->state == HOST_SESSION_MAGIC || !takes_input(s)) return;
    if (s->state != HOST_SESSION_RELAYING &&
        rdzv_messages_take(&s->in, got_message, &a, &err) == -EPROTO)
        refuse(s, now_ms, 0, err.text);
    if (s->state == HOST_SESSION_RELAYING && s->in.len > 0) take_trunk(s, now_ms);
}

/* ---- the end of the connection, and the time limits ---- */

void host_session_lost(struct host_session *s, int64_t now_ms, enum rendezvous_loss how,
                       const char *why) {
    if (s->state == HOST_SESSION_CLOSED) return;
    enter(s, now_ms, HOST_SESSION_CLOSED, why);
    vacate(s, how, why);
}

void host_session_tick(struct host_session *s, int64_t now_ms) {
    if (now_ms < s->limit_ms) return;
    /* an inspection may end without all rows: the operator uses the rows that have come */
    if (s->state == HOST_SESSION_INSPECTING) {
        host_session_hang_up(s, now_ms);
        return;
    }
    host_session_lost(s, now_ms, RENDEZVOUS_CLOSED, "it did not answer in time");
}

int64_t host_session_deadline(const struct host_session *s) { return s->limit_ms; }
