/* libFuzzer target: a hostile coordinator against one member. The coordinator sends any messages
 * that the codec can encode, in any order; connections are made and lost; the agent calls the
 * member's functions, also from inside the callbacks that the member makes. The target checks that
 * the member uses a connection only while there is one, and that it makes no callback after it has
 * reported the end. After a few ticks with the current time, the member's deadline must lie in the
 * future.
 *
 * Input: u8 local, u8 connect timeout, u8 coordinator wait (all as in rdzv_input.h), then a
 * sequence of events: u8 what, and an argument for some of them. what % 8 is 0: the time advances
 * to the member's deadline; 1: the time advances by a u8 (see rdzv_input.h); 2: WELCOME comes on a
 * new connection, of a version and a host that a u8 selects; 3: the connection is lost, and a u8
 * selects how; 4: the agent makes the call that a u8 selects; 5 to 7: the coordinator sends a
 * message. Each callback of the member reads one byte of the input, which selects the function of
 * the member that the agent calls inside this callback. */
#include "base/time/clock.h"
#include "rendezvous/member/member.h"
#include "tests/lib/rdzv_input.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define STEPS_MAX 4096
#define DAY_MS    UINT64_C(86400000)

struct node {
    struct member *member;
    struct input in;
    int64_t now_ms;
    int connecting, linked;
    int calling; /* not 0 during a call of the agent in which the member must not call back */
    int leaving, ended;
};

/* ---- the agent's calls ---- */

static void join(struct node *n) {
    enum member_state s = member_state(n->member);
    int has_workers = s == MEMBER_CONNECTING || s == MEMBER_JOINING || s == MEMBER_RUNNING ||
                      s == MEMBER_SUCCEEDED;
    if (!has_workers) member_join(n->member, n->now_ms, 0);
}

static void leave(struct node *n) {
    n->leaving = 1;
    member_leave(n->member, n->now_ms, "signal 15");
}

static void agent_calls(struct node *n) {
    struct input *in = &n->in;
    uint64_t round = member_round(n->member);
    uint8_t which = input_byte(in);
    if (n->ended) return;
    n->calling++;
    switch (which % 8) {
    case 0: break;
    case 1: join(n); break;
    case 2: member_failed(n->member, n->now_ms, round, input_text(in), round & 1); break;
    case 3: member_succeeded(n->member, n->now_ms, round); break;
    case 4: member_change_answer(n->member, input_u64(in), input_i64(in), input_i64(in)); break;
    case 5: member_change_ready(n->member, input_u64(in)); break;
    case 6:
        member_notice(n->member, n->now_ms, input_u32(in), input_u32(in), input_text(in));
        break;
    default: leave(n);
    }
    n->calling--;
}

/* ---- the member's upcalls ---- */

static void on_connect(void *arg) {
    struct node *n = arg;
    CR_ASSERT(!n->connecting && !n->linked && !n->ended && !n->leaving);
    n->connecting = 1;
}

static void on_send(void *arg, const struct rdzv_message *m) {
    struct cr_buffer frame = {0};
    struct rdzv_message heard;
    const struct node *n = arg;
    CR_ASSERT(n->linked && !n->ended);
    cross_the_wire(m, &frame, &heard);
    cr_buffer_done(&frame);
}

static void on_hang_up(void *arg) {
    struct node *n = arg;
    CR_ASSERT(n->connecting || n->linked);
    n->connecting = n->linked = 0;
}

static void upcall(struct node *n) {
    CR_ASSERT(!n->calling && !n->ended && !n->leaving);
    agent_calls(n);
}

static void on_round(void *arg, const struct rdzv_round *round) {
    struct node *n = arg;
    CR_ASSERT(member_state(n->member) == MEMBER_RUNNING);
    CR_ASSERT(member_round(n->member) == round->round);
    CR_ASSERT(strlen(round->master_addr) < RDZV_TEXT_MAX);
    upcall(n);
}

static void on_stop(void *arg, int64_t grace_max_ms, const char *why) {
    struct node *n = arg;
    CR_ASSERT(grace_max_ms >= 0 && strlen(why) < RDZV_TEXT_MAX);
    if (!n->leaving) upcall(n);
    /* after member_leave(), the member reports a stop only to shorten the grace */
    else CR_ASSERT(!n->calling && grace_max_ms < CR_FOREVER);
}

static void on_end(void *arg, int outcome, const char *why) {
    struct node *n = arg;
    CR_ASSERT(outcome >= 0 && outcome <= 2 && strlen(why) < RDZV_TEXT_MAX);
    CR_ASSERT(!n->calling && !n->ended && !n->leaving && !n->connecting && !n->linked);
    n->ended = 1;
}

static void on_change(void *arg, const struct rdzv_change *change) {
    (void) change;
    upcall(arg);
}

static void on_change_at(void *arg, const struct rdzv_change_at *at) {
    (void) at;
    upcall(arg);
}

static void on_notice(void *arg, const struct rdzv_ask_notice *notice) {
    (void) notice;
    upcall(arg);
}

static void on_inspect(void *arg, uint64_t id, const char *why) {
    (void) arg, (void) id;
    CR_ASSERT(why != NULL);
}

static void on_failure(void *arg, const struct rdzv_failure *failure) {
    (void) arg;
    CR_ASSERT(failure->what != NULL && failure->log_folder != NULL);
}

static void on_dump(void *arg, const char *why) {
    (void) why;
    upcall(arg);
}

static void on_ask_progress(void *arg, uint64_t inquiry) {
    (void) inquiry;
    upcall(arg);
}

static void on_behind(void *arg, const struct rdzv_behind *behind) {
    CR_ASSERT(strlen(behind->what) < RDZV_TEXT_MAX);
    upcall(arg);
}

static void on_log(void *arg, enum cr_log_level level, const char *text) {
    (void) arg;
    (void) level;
    CR_ASSERT(strlen(text) < RDZV_TEXT_MAX);
}

static const struct member_actions actions = {
    .connect = on_connect, .send = on_send, .hang_up = on_hang_up, .log = on_log,
    .on_round = on_round, .on_stop = on_stop, .on_end = on_end, .on_change = on_change,
    .on_change_at = on_change_at, .on_notice = on_notice, .on_dump = on_dump,
    .on_inspect = on_inspect, .on_ask_progress = on_ask_progress, .on_behind = on_behind,
    .on_failure = on_failure};

/* ---- events: time, connections, messages ---- */

static void link_up(struct node *n) {
    if (!n->connecting) return;
    n->connecting = 0;
    n->linked = 1;
    uint8_t which = input_byte(&n->in);
    struct rdzv_welcome welcome = {.version = 3 - which % 2, .in_launcher = which / 2 % 2};
    member_welcomed(n->member, n->now_ms, &welcome);
}

static void link_down(struct node *n, const char *why) {
    if (!n->connecting && !n->linked) return;
    n->connecting = n->linked = 0;
    enum rendezvous_loss how =
        input_byte(&n->in) % 2 == 0 ? RENDEZVOUS_BROKEN : RENDEZVOUS_CLOSED;
    member_disconnected(n->member, n->now_ms, how, why);
}

static void hear(struct node *n) {
    struct cr_error err = {0};
    struct cr_buffer frame = {0};
    struct rdzv_message said, m;
    input_message(&n->in, &said);
    cross_the_wire(&said, &frame, &m);
    /* before WELCOME, the member's session gives the member no message but REFUSED */
    bool is_heard = n->linked || (n->connecting && m.type == RDZV_REFUSED);
    if (is_heard && member_receive(n->member, n->now_ms, &m, &err) < 0) link_down(n, err.text);
    cr_buffer_done(&frame);
}

static void pass(struct node *n, int until_deadline) {
    int64_t deadline = member_deadline(n->member);
    int rest = 8;
    uint64_t longest_ms = 1000 * DAY_MS;
    if (!until_deadline) n->now_ms += (int64_t) (input_number(&n->in) % longest_ms);
    else if (deadline > n->now_ms && deadline != CR_FOREVER) n->now_ms = deadline;
    do member_tick(n->member, n->now_ms);
    while (member_deadline(n->member) <= n->now_ms && rest-- > 0);
    CR_ASSERT(member_deadline(n->member) > n->now_ms);
}

static void step(struct node *n) {
    switch (input_byte(&n->in) % 8) {
    case 0: pass(n, 1); break;
    case 1: pass(n, 0); break;
    case 2: link_up(n); break;
    case 3: link_down(n, "the connection was closed"); break;
    case 4: agent_calls(n); break;
    default: hear(n);
    }
}

static struct member *new_member(struct node *n) {
    struct member_settings s = {
        .where = "n0:29400", .local = input_byte(&n->in) % 2,
        .connect_timeout_ms = input_byte(&n->in), .coordinator_wait_ms = input_byte(&n->in),
        .self = {.host = "n1", .addr = "", .role = "default", .instance = 9, .node_rank = -1,
                 .local_world_size = 1, .min_nodes = 1, .max_nodes = 2,
                 .keep_alive_interval_ms = 50, .keep_alive_max_attempt = 3}};
    return member_new(&s, &actions, n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct node n = {.in = {data, size}, .now_ms = 1000};
    n.member = new_member(&n);
    if (n.member == NULL) abort();
    for (int i = 0; i < STEPS_MAX && n.in.left > 0; i++) {
        step(&n);
        CR_ASSERT(n.ended == (member_state(n.member) == MEMBER_ENDED));
        CR_ASSERT(!n.leaving || n.ended || member_state(n.member) == MEMBER_LEAVING);
    }
    member_free(n.member);
    return 0;
}
