/* libFuzzer target: the host's end of a trunk (rendezvous/host/trunk_end.c), with a real session
 * for the relay and for each node behind it. The relay sends any bytes and any messages, the
 * coordinator hangs up, and time passes. After each event the target checks that only whole frames
 * were queued for the relay, that a member is at its place exactly as long as its session is not
 * over, and that no node is left when the trunk is lost.
 *
 * Input: a sequence of events: u8 what, u8 n. what % 8 is 0: the relay sends ATTACH for place n; 1:
 * the next n bytes arrive; 2: the next message arrives for the member at place n % 4; 3: the next
 * message arrives for the host itself; 4: n * 50 ms pass; 5: the relay sends DETACH for place n; 6:
 * the coordinator hangs up on the member at place n % 4; 7: the member at place n % 4 sends HELLO
 * and JOIN. */
#include "base/time/clock.h"
#include "tests/lib/rdzv_input.h"
#include "tests/lib/trunk_ends.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define STEPS_MAX 2048

struct node {
    struct trunk_node at;
    struct node *next;
};

static struct node *nodes;

/* ---- the nodes ---- */

static int on_join(void *arg, const struct rdzv_join *j) {
    (void) arg, (void) j;
    return 0;
}

static int on_resume(void *arg, const struct rdzv_resume *r) {
    (void) arg, (void) r;
    return 0;
}

/* Answers each BEAT, as a coordinator does. */
static int on_node_message(void *arg, const struct rdzv_message *m, struct cr_error *err) {
    struct node *n = arg;
    struct rdzv_message ack = {.type = RDZV_BEAT_ACK, .beat_ack = {.at_ms = now_ms}};
    (void) err;
    if (m->type != RDZV_BEAT || trunk_end_keeps(&n->at.member, &ack)) return 0;
    host_session_send(&n->at.session, now_ms, &ack);
    return 0;
}

static void on_lost(void *arg, enum rendezvous_loss how, const char *why) {
    (void) arg, (void) how, (void) why;
}

static void on_status(void *arg) { (void) arg; }

static int on_operate(void *arg, const struct rdzv_operate *o, struct cr_error *err) {
    (void) arg, (void) o, (void) err;
    return 0;
}

static const struct host_session_actions node_actions = {
    .on_hello = on_hello, .on_join = on_join, .on_resume = on_resume,
    .on_message = on_node_message, .on_lost = on_lost, .on_status = on_status,
    .on_operate = on_operate, .log = on_log};

static struct trunk_member *attach(void *arg, uint32_t place, const char *addr) {
    struct node *n = calloc(1, sizeof(*n));
    (void) arg, (void) place, (void) addr;
    CR_ASSERT(n != NULL);
    n->next = nodes;
    nodes = n;
    n->at.member.session = &n->at.session;
    host_session_open(&n->at.session, now_ms, false, &terms, &node_actions, n);
    return &n->at.member;
}

/* ---- the end of an event, and the checks ---- */

/* Flushes the marked nodes, as host_end_event() does, and frees those whose sessions are over. */
static void flush(void) {
    for (struct node **at = &nodes; *at != NULL;) {
        struct node *n = *at;
        bool is_over = false;
        if (n->at.marked && trunk_end_flush(&n->at.member, now_ms, &is_over) < 0) abort();
        n->at.marked = false;
        if (!is_over) {
            at = &n->next;
            continue;
        }
        *at = n->next;
        host_session_done(&n->at.session);
        free(n);
    }
}

static void check(void) {
    struct cr_buffer *out = &relay.out;
    uint32_t members = 0;
    for (size_t at = 0; at < out->len;) {
        int64_t frame = rdzv_frame_size(out->data + at, out->len - at);
        CR_ASSERT(frame > 0);
        at += (size_t) frame;
    }
    cr_buffer_clear(out);
    for (const struct node *n = nodes; n != NULL; n = n->next) {
        CR_ASSERT(n->at.session.state < HOST_SESSION_CLOSING);
        CR_ASSERT(n->at.member.trunk == &end && end.members[n->at.member.place] == &n->at.member);
        members++;
    }
    for (uint32_t p = 0; p < RDZV_RELAY_PLACES; p++) members -= end.members[p] != NULL ? 1 : 0;
    CR_ASSERT(members == 0 && trunk_end_has_members(&end) == (nodes != NULL));
    CR_ASSERT((end.leaving & end.left) == 0 && !end.holds);
}

/* Ends the trunk as relays.c does when the relay's session is over. */
static void end_trunk(void) {
    host_session_lost(&relay, now_ms, RENDEZVOUS_BROKEN, "the end");
    trunk_end_lost(&end, "the end");
    flush();
    CR_ASSERT(nodes == NULL && !trunk_end_has_members(&end));
    CR_ASSERT(trunk_end_deadline(&end) == CR_FOREVER);
}

static void hang_up(uint32_t place) {
    if (end.members[place] == NULL) return;
    struct trunk_node *n = trunk_node_of(end.members[place]);
    host_session_hang_up(&n->session, now_ms);
    n->marked = true;
}

static void step(struct input *in) {
    uint8_t what = input_byte(in) % 8, n = input_byte(in);
    size_t len = n < in->left ? n : in->left;
    struct rdzv_message m = {.type = RDZV_ATTACH};
    m.attach = (struct rdzv_attach){.place = n, .addr = "10.0.0.1"};
    if (what == 1) {
        host_session_receive(&relay, now_ms, (const char *) in->data, len);
        in->data += len;
        in->left -= len;
    }
    if (what == 2 || what == 3) input_message(in, &m);
    if (what == 5) {
        m.type = RDZV_DETACH;
        m.detach = (struct rdzv_detach){.place = n, .is_broken = n % 2};
    }
    if (what == 0 || what == 2 || what == 3 || what == 5) send_up(what == 2 ? n % 4 : -1, &m);
    if (what == 4) now_ms += n * 50;
    if (what == 6) hang_up(n % 4);
    if (what == 7) send_join(n % 4);
    if (host_session_deadline(&relay) <= now_ms) host_session_tick(&relay, now_ms);
    if (trunk_end_deadline(&end) <= now_ms) trunk_end_tick(&end, now_ms);
    flush();
    check();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct input in = {.data = data, .left = size};
    now_ms = 1000;
    open_relay();
    CR_ASSERT(relay.state == HOST_SESSION_RELAYING);
    cr_buffer_clear(&relay.out);
    for (int i = 0; i < STEPS_MAX && in.left > 0 && relay.state == HOST_SESSION_RELAYING; i++) {
        step(&in);
    }
    end_trunk();
    trunk_end_done(&end);
    host_session_done(&relay);
    return 0;
}
