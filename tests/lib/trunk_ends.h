/* The host's end of a trunk, with the session of its relay, for a unit test and a fuzz target: what
 * the test sends as the relay arrives at this end. A file that includes this header defines
 * attach(), the action that opens the session of a node. */
#ifndef TESTS_TRUNK_ENDS_H
#define TESTS_TRUNK_ENDS_H

#include "base/assert.h"
#include "base/memory.h"
#include "rendezvous/host/trunk_end_internal.h"

/* A node behind the relay, at the host's end. */
struct trunk_node {
    struct trunk_member member;
    struct host_session session;
    bool marked; /* true: an action has reported the node, so trunk_end_flush() has to be called */
};

static struct trunk_end end;
static struct host_session relay; /* the session of the relay */
static int64_t now_ms;
static const struct host_session_terms terms = {.leads = true, .close_timeout_ms = 1000};

static void on_log(void *arg, enum cr_log_level level, const char *text) {
    (void) arg, (void) level, (void) text;
}

static int on_hello(void *arg, const struct rdzv_hello *h, struct cr_error *err) {
    (void) arg, (void) h, (void) err;
    return 0;
}

/* ---- struct trunk_end_actions ---- */

static struct trunk_member *attach(void *arg, uint32_t place, const char *addr);

static struct trunk_node *trunk_node_of(struct trunk_member *m) {
    return CR_CONTAINER_OF(m, struct trunk_node, member);
}

static void lost(void *arg, struct trunk_member *m, enum rendezvous_loss how, const char *why) {
    struct trunk_node *n = trunk_node_of(m);
    (void) arg;
    n->marked = true;
    host_session_lost(&n->session, now_ms, how, why);
}

static void changed(void *arg, struct trunk_member *m) {
    (void) arg;
    trunk_node_of(m)->marked = true;
}

/* ---- the relay ---- */

static int on_relay(void *arg, const struct rdzv_relay *r, struct cr_error *err) {
    static const struct trunk_end_actions actions = {
        .attach = attach, .lost = lost, .changed = changed};
    (void) arg, (void) r, (void) err;
    trunk_end_init(&end, &relay, &actions, NULL);
    return 0;
}

static int on_trunk(void *arg, const char *data, size_t len, struct cr_error *err) {
    (void) arg;
    return trunk_end_receive(&end, now_ms, data, len, err);
}

/* Passes the message to the host as if the relay had sent it. If `place` is not -1, the message is
 * of the member at that place. */
static void send_up(int place, const struct rdzv_message *m) {
    struct cr_buffer b = {0};
    struct rdzv_message via = {.type = RDZV_VIA, .via = {.place = (uint32_t) place}};
    if (place >= 0) CR_ASSERT(rdzv_message_encode(&via, RDZV_VERSION_MAX, &b) == 0);
    CR_ASSERT(rdzv_message_encode(m, RDZV_VERSION_MAX, &b) == 0);
    host_session_receive(&relay, now_ms, b.data, b.len);
    cr_buffer_done(&b);
}

/* Opens the relay's session, and lets the relay begin the trunk. */
static void open_relay(void) {
    static const struct host_session_actions actions = {
        .on_relay = on_relay, .on_trunk = on_trunk, .log = on_log};
    struct rdzv_message m = {.type = RDZV_RELAY};
    host_session_open(&relay, now_ms, false, &terms, &actions, NULL);
    host_session_receive(&relay, now_ms, RDZV_MAGIC, RDZV_MAGIC_LEN);
    m.relay = (struct rdzv_relay){.version_min = RDZV_VERSION_MIN, .version_max = RDZV_VERSION_MAX,
                                  .software = "test", .run_id = "job"};
    send_up(-1, &m);
}

/* Lets the member at the place send HELLO and JOIN. */
static void send_join(int place) {
    struct rdzv_message m = {.type = RDZV_HELLO};
    m.hello = (struct rdzv_hello){.version_min = RDZV_VERSION_MIN, .version_max = RDZV_VERSION_MAX,
                                  .software = "test", .run_id = "job"};
    send_up(place, &m);
    m = (struct rdzv_message){.type = RDZV_JOIN};
    m.join = (struct rdzv_join){.host = "n", .addr = "", .role = "", .unfit = ""};
    send_up(place, &m);
}

#endif
