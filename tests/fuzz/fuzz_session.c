/* libFuzzer target: one end of a session between member and coordinator; the input selects which.
 * This end receives any bytes in pieces of any size, time passes, the owner of the session closes
 * the session, and a member connects again while it handles a message.
 *
 * Input: u8 end (even: the coordinator's, odd: the member's), u8 epoch of this end, then a sequence
 * of events: u8 what, u8 n. what % 8 is 0 to 4: the next n bytes of the input arrive; 5: n * 100 ms
 * pass; 6: the owner acts; 7: the connection is lost, or opens again. */
#include "base/assert.h"
#include "base/time/clock.h"
#include "rendezvous/protocol/protocol.h"
#include "tests/lib/rdzv_input.h"

#include <errno.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define STEPS_MAX 4096

/* ---- checks of what an end sends: whole messages, and none after REFUSED ---- */

static void check_out(const struct cr_buffer *out, size_t at, bool may_refuse) {
    struct rdzv_message m = {.type = RDZV_HELLO};
    size_t used;
    while (at < out->len) {
        CR_ASSERT(m.type != RDZV_REFUSED);
        CR_ASSERT(rdzv_message_decode(out->data + at, out->len - at, &m, &used, NULL) == 0);
        CR_ASSERT(used > 0);
        CR_ASSERT(may_refuse || m.type != RDZV_REFUSED);
        at += used;
    }
}

/* ---- the coordinator's end ---- */

struct host {
    struct host_session session;
    struct host_session_terms terms;
    int64_t now_ms;
    bool seated; /* true once on_join() was called and the JOIN was accepted */
    uint32_t messages;
};

static int on_hello(void *arg, const struct rdzv_hello *h, struct cr_error *err) {
    const struct host *host = arg;
    CR_ASSERT(host->terms.leads && h->epoch <= host->terms.epoch);
    return h->run_id[0] == '\0' ? cr_fail(err, -ENOMEM, "no room") : 0;
}

static int on_join(void *arg, const struct rdzv_join *j) {
    struct host *host = arg;
    struct rdzv_message m = {.type = RDZV_END};
    CR_ASSERT(!host->seated);
    host->seated = j->fixed_ranks % 2 == 0;
    m.end.why = "over";
    if (!host->seated) host_session_send(&host->session, host->now_ms, &m);
    return host->seated ? 0 : -EACCES;
}

static int on_resume(void *arg, const struct rdzv_resume *r) {
    struct rdzv_join j;
    rdzv_join_of_resume(r, &j);
    return on_join(arg, &j);
}

static int on_message(void *arg, const struct rdzv_message *m, struct cr_error *err) {
    struct host *host = arg;
    CR_ASSERT(host->seated);
    host->messages++;
    return m->type >= RDZV_WELCOME ? cr_fail(err, -EPROTO, "not from a node") : 0;
}

static void on_lost(void *arg, enum rendezvous_loss how, const char *why) {
    struct host *host = arg;
    CR_ASSERT(host->seated && why[0] != '\0');
    CR_ASSERT(how == RENDEZVOUS_CLOSED || host->session.version >= RDZV_VERSION_RESUME);
    host->seated = false;
}

static void on_status(void *arg) {
    struct host *host = arg;
    struct rdzv_message m = {.type = RDZV_STATUS_DONE};
    host_session_send(&host->session, host->now_ms, &m);
}

static int on_operate(void *arg, const struct rdzv_operate *o, struct cr_error *err) {
    (void) arg;
    return o->kind == 0 ? 0 : cr_fail(err, -ENOENT, "there is no job '%s'", o->run_id);
}

static void on_log(void *arg, enum cr_log_level level, const char *text) {
    (void) arg;
    (void) level;
    CR_ASSERT(strlen(text) < RDZV_TEXT_MAX);
}

static const struct host_session_actions host_actions = {
    .on_hello = on_hello, .on_join = on_join, .on_resume = on_resume,
    .on_message = on_message, .on_lost = on_lost, .on_status = on_status,
    .on_operate = on_operate, .log = on_log};

static void host_acts(struct host *host, uint8_t n) {
    struct rdzv_message m = {.type = n % 2 == 0 ? RDZV_END : RDZV_BEAT_ACK};
    m.end.why = "over";
    if (n % 4 == 3) {
        host_session_hang_up(&host->session, host->now_ms);
        host->seated = false;
    } else if (host->seated) {
        host_session_send(&host->session, host->now_ms, &m);
    }
}

static void check_host(const struct host *host) {
    const struct host_session *s = &host->session;
    CR_ASSERT(s->seated == host->seated);
    CR_ASSERT(!host->seated || s->state >= HOST_SESSION_SEATED);
    CR_ASSERT(s->state != HOST_SESSION_CLOSED || host_session_deadline(s) == CR_FOREVER);
    CR_ASSERT(host_session_deadline(s) > host->now_ms);
    check_out(&s->out, 0, s->state >= HOST_SESSION_CLOSING);
}

static void run_host(struct input *in) {
    struct host host = {.now_ms = 1000};
    host.terms = (struct host_session_terms){.epoch = input_byte(in), .close_timeout_ms = 30000};
    host.terms.leads = host.terms.epoch != 13;
    host_session_open(&host.session, host.now_ms, false, &host.terms, &host_actions, &host);
    for (int i = 0; i < STEPS_MAX && in->left > 0; i++) {
        uint8_t what = input_byte(in) % 8, n = input_byte(in);
        size_t len = n < in->left ? n : in->left;
        if (what == 5) {
            host.now_ms += n * 100;
            host_session_tick(&host.session, host.now_ms);
        } else if (what == 6) {
            host_acts(&host, n);
        } else if (what == 7) {
            host_session_lost(&host.session, host.now_ms,
                              n % 2 == 0 ? RENDEZVOUS_CLOSED : RENDEZVOUS_BROKEN,
                              "its connection is gone");
        } else {
            host_session_receive(&host.session, host.now_ms, (const char *) in->data, len);
            in->data += len;
            in->left -= len;
        }
        check_host(&host);
    }
    host_session_done(&host.session);
}

/* ---- the member's end ---- */

struct node {
    struct member_session session;
    uint64_t epoch;
    bool welcomed, open;
};

static void open_node(struct node *n) {
    n->welcomed = false;
    n->open = true;
    member_session_open(&n->session, "job");
}

static void on_welcome(void *arg, const struct rdzv_welcome *w) {
    (void) w;
    struct node *n = arg;
    CR_ASSERT(n->open && !n->welcomed && n->session.epoch >= n->epoch);
    n->epoch = n->session.epoch;
    n->welcomed = true;
}

static int on_node_message(void *arg, const struct rdzv_message *m, struct cr_error *err) {
    struct node *n = arg;
    CR_ASSERT(n->open && (n->welcomed || m->type == RDZV_REFUSED));
    if (m->type == RDZV_STOP) { /* the member connects again while it handles this message */
        member_session_close(&n->session, "test");
        open_node(n);
    }
    return m->type < RDZV_WELCOME ? cr_fail(err, -EPROTO, "not from a coordinator") : 0;
}

static void on_broken(void *arg, const char *why) {
    struct node *n = arg;
    CR_ASSERT(n->open && why[0] != '\0' && n->session.state == MEMBER_SESSION_CLOSED);
    n->open = false;
}

static const struct member_session_actions node_actions = {
    .on_welcome = on_welcome, .on_message = on_node_message, .on_broken = on_broken, .log = on_log};

static void run_node(struct input *in) {
    struct node n = {.epoch = input_byte(in)};
    member_session_init(&n.session, &node_actions, &n);
    n.session.epoch = n.epoch;
    open_node(&n);
    for (int i = 0; i < STEPS_MAX && in->left > 0; i++) {
        uint8_t what = input_byte(in) % 8, count = input_byte(in);
        size_t len = count < in->left ? count : in->left;
        if (what == 7 && n.open) {
            member_session_close(&n.session, "the connection was closed");
            n.open = false;
        } else if (what == 7) {
            open_node(&n);
        } else {
            member_session_receive(&n.session, (const char *) in->data, len);
            in->data += len;
            in->left -= len;
        }
        CR_ASSERT(n.open == (n.session.state != MEMBER_SESSION_CLOSED));
        CR_ASSERT(n.open == false || n.welcomed == (n.session.state == MEMBER_SESSION_WELCOMED));
        check_out(&n.session.out, RDZV_MAGIC_LEN, false);
    }
    member_session_done(&n.session);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct input in = {data, size};
    if (input_byte(&in) % 2 == 0) run_host(&in);
    else run_node(&in);
    return 0;
}
