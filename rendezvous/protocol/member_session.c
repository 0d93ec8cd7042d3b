/* The member's end of a connection to the coordinator. */
#include "rendezvous/protocol/member_session.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>

const char *member_session_state_name(enum member_session_state s) {
    switch (s) {
#define S(name)                                                                                    \
    case MEMBER_SESSION_##name: return #name;
        MEMBER_SESSION_STATES(S)
#undef S
    }
    return "?";
}

/* Enters the state `next` and logs the change. No other function writes `state`. */
static void enter(struct member_session *s, enum member_session_state next, const char *why) {
    char text[300];
    if (s->state == next) return;
    (void) snprintf(text, sizeof(text), "session with the coordinator: %s -> %s (%.200s)",
                    member_session_state_name(s->state), member_session_state_name(next), why);
    s->actions->log(s->arg, CR_LOG_DEBUG, text);
    s->state = next;
}

void member_session_init(struct member_session *s, const struct member_session_actions *actions,
                         void *arg) {
    *s = (struct member_session){.actions = actions, .arg = arg, .version = RDZV_VERSION_MIN};
}

void member_session_done(struct member_session *s) {
    cr_buffer_done(&s->in);
    cr_buffer_done(&s->out);
}

int member_session_send(struct member_session *s, const struct rdzv_message *m) {
    if (s->version < rdzv_message_since(m->type)) return 0; /* the coordinator would hang up */
    return rdzv_message_encode(m, s->version, &s->out);
}

void member_session_close(struct member_session *s, const char *why) {
    enter(s, MEMBER_SESSION_CLOSED, why);
    cr_buffer_clear(&s->in);
}

static void break_off(struct member_session *s, const char *why) {
    member_session_close(s, why);
    s->actions->on_broken(s->arg, why);
}

int member_session_open(struct member_session *s, const char *run_id) {
    struct rdzv_message hello = {.type = RDZV_HELLO};
    hello.hello = (struct rdzv_hello){.version_min = RDZV_VERSION_MIN,
                                      .version_max = RDZV_VERSION_MAX,
                                      .software = "crun " CRUN_VERSION,
                                      .run_id = run_id,
                                      .epoch = s->epoch};
    cr_buffer_clear(&s->in);
    cr_buffer_clear(&s->out);
    s->opened++;
    s->version = RDZV_VERSION_MIN;
    enter(s, MEMBER_SESSION_GREETING, "connected");
    int rc = cr_buffer_append(&s->out, RDZV_MAGIC, RDZV_MAGIC_LEN);
    return rc == 0 ? member_session_send(s, &hello) : rc;
}

/* ---- the greeting ---- */

static void got_welcome(struct member_session *s, const struct rdzv_welcome *w) {
    char why[160];
    if (w->epoch < s->epoch) {
        (void) snprintf(why, sizeof(why),
                        "it has epoch %" PRIu64 ", but epoch %" PRIu64 " has taken over", w->epoch,
                        s->epoch);
        break_off(s, why);
        return;
    }
    if (w->version < RDZV_VERSION_MIN || w->version > RDZV_VERSION_MAX) {
        (void) snprintf(why, sizeof(why),
                        "it chose protocol version %" PRIu32 ", which was not offered", w->version);
        break_off(s, why);
        return;
    }
    s->epoch = w->epoch;
    s->version = w->version;
    enter(s, MEMBER_SESSION_WELCOMED, "WELCOME");
    s->actions->on_welcome(s->arg, w);
}

/* If the REFUSED is not final, closes the session, so that the node can try another coordinator,
 * and returns true. If it is final (its epoch is 0), returns false; the caller passes the message
 * to the member, which ends the job on this node. */
static bool refused_for_now(struct member_session *s, const struct rdzv_refused *r) {
    char why[RDZV_TEXT_MAX + 100];
    if (r->epoch == 0) return false;
    (void) snprintf(why, sizeof(why),
                    "refused: %s; a coordinator of epoch %" PRIu64 " or later is needed", r->why,
                    r->epoch);
    break_off(s, why);
    return true;
}

/* Handles MOVED: the node has to connect to another host. */
static void got_moved(struct member_session *s, const struct rdzv_moved *m) {
    char why[RDZV_TEXT_MAX];
    bool is_known = m->addr[0] != '\0' && m->port >= 1 && m->port <= UINT16_MAX;
    (void) snprintf(why, sizeof(why), "the coordinator of this job is at %.200s port %" PRIu32,
                    m->addr, m->port);
    if (is_known && s->actions->on_moved != NULL) {
        s->actions->on_moved(s->arg, m->addr, (uint16_t) m->port);
    }
    break_off(s, why);
}

/* ---- received bytes and messages ---- */

/* Handles one received message. An action may close the session and open it again for another
 * connection. In that case returns -ECANCELED, because the rest of the input belongs to the old
 * connection and is discarded. */
static int got_message(void *arg, const struct rdzv_message *m, struct cr_error *err) {
    struct member_session *s = arg;
    uint64_t opened = s->opened;
    int rc = 0;
    if (m->type == RDZV_REFUSED && refused_for_now(s, &m->refused)) return -ECANCELED;
    if (s->state == MEMBER_SESSION_WELCOMED || m->type == RDZV_REFUSED) {
        rc = s->actions->on_message(s->arg, m, err);
    } else if (m->type == RDZV_WELCOME) {
        got_welcome(s, &m->welcome);
    } else if (m->type == RDZV_MOVED) {
        got_moved(s, &m->moved);
    } else {
        rc = cr_fail(err, -EPROTO, "a %s message came before WELCOME",
                     rdzv_message_name((unsigned) m->type));
    }
    if (s->opened != opened || s->state == MEMBER_SESSION_CLOSED) return -ECANCELED;
    return rc;
}

void member_session_receive(struct member_session *s, const char *data, size_t len) {
    struct cr_error err = {0};
    if (s->state == MEMBER_SESSION_CLOSED) return;
    if (cr_buffer_append(&s->in, data, len) < 0) {
        break_off(s, "out of memory");
        return;
    }
    if (rdzv_messages_take(&s->in, got_message, s, &err) == -EPROTO) break_off(s, err.text);
}
