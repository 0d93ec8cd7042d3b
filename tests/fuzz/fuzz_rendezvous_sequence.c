/* libFuzzer target: hostile nodes against one coordinator. The nodes join with any settings, send
 * any messages that the codec can encode, in any order, connect and disconnect, and time passes.
 * The target checks that the coordinator has as many nodes as this file has counted, that every
 * round gives each rank to one node, and that there are no more restarts than the budget allows.
 * After a few ticks with the current time, the coordinator's deadline must lie in the future.
 *
 * Input: a sequence of events: u8 what, and an argument for some of them. what % 8 is the node;
 * what / 8 % 8 is what happens: 0: the time advances to the coordinator's deadline; 1: the time
 * advances by a u8 (see rdzv_input.h); 2: the node's connection is lost, and an odd u8 means that
 * the node may resume; 3: the node's shell does what a u8 selects in shell_acts(); 4 to 7: the node
 * sends a message. */
#include "base/time/clock.h"
#include "rendezvous/coordinator/coordinator.h"
#include "tests/lib/rdzv_input.h"

#include <errno.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define NODES     8
#define STEPS_MAX 4096
#define DAY_MS    INT64_C(86400000)

struct node {
    struct coordinator_seat *seat; /* NULL if the node has no seat */
    uint32_t workers;
};

/* What the coordinator has sent about the newest round. */
struct told {
    struct rdzv_round first; /* as sent to the first node of the round */
    uint32_t nodes, workers;
    uint32_t ranks; /* bit mask of the group ranks that were sent to a node */
};

struct world {
    struct coordinator *coordinator;
    struct node nodes[NODES];
    struct told told;
    uint64_t rounds; /* number of rounds so far, or fewer */
    int64_t now_ms;
    int store_fails;
};

/* ---- what the coordinator sends ---- */

static void check_complete(const struct told *t) {
    CR_ASSERT(t->nodes == t->first.group_world_size && t->workers == t->first.world_size);
}

/* Call this when the coordinator sends a new round to the first of the round's nodes. It checks
 * that the previous round was sent to all of its nodes, and begins the record of the new round. */
static void begin_told(struct world *w, const struct rdzv_round *r) {
    check_complete(&w->told);
    CR_ASSERT(r->round >= w->rounds);
    w->rounds = r->round + 1;
    w->told = (struct told){.first = *r};
}

static void check_round(struct world *w, const struct node *n, const struct rdzv_round *r) {
    struct told *t = &w->told;
    if (r->round >= w->rounds) begin_told(w, r);
    bool is_repeated = (t->ranks & 1u << r->group_rank) != 0; /* its node has resumed */
    if (is_repeated) return;
    CR_ASSERT(r->round == t->first.round && r->restart_count == t->first.restart_count);
    CR_ASSERT(r->group_world_size == t->first.group_world_size);
    CR_ASSERT(r->world_size == t->first.world_size);
    CR_ASSERT(r->group_rank < r->group_world_size && r->group_world_size <= NODES);
    CR_ASSERT(r->first_rank + n->workers <= r->world_size);
    CR_ASSERT(r->first_role_rank + n->workers <= r->role_world_size);
    CR_ASSERT(r->role_world_size <= r->world_size);
    t->ranks |= 1u << r->group_rank;
    t->workers += n->workers;
    t->nodes++;
}

/* Checks that the values of ACCEPTED are in the ranges that a member accepts. This check is needed
 * because a member in the coordinator's own process does not check them. */
static void check_accepted(const struct rdzv_accepted *a) {
    CR_ASSERT(a->keep_alive_interval_ms >= 1 && a->keep_alive_interval_ms <= DAY_MS);
    CR_ASSERT(a->keep_alive_max_attempt >= 1 && a->keep_alive_max_attempt <= 1000);
}

static void on_send(void *arg, void *peer, const struct rdzv_message *m) {
    struct cr_buffer frame = {0};
    struct rdzv_message heard;
    cross_the_wire(m, &frame, &heard);
    if (heard.type == RDZV_ROUND) check_round(arg, peer, &heard.round);
    if (heard.type == RDZV_ACCEPTED) check_accepted(&heard.accepted);
    if (heard.type == RDZV_CHANGE) CR_ASSERT(heard.change.left_ms >= 0);
    if (heard.type == RDZV_CHANGE_AT) CR_ASSERT(heard.change_at.left_ms >= 0);
    cr_buffer_done(&frame);
}

static void on_hang_up(void *arg, void *peer) {
    struct node *n = peer;
    (void) arg;
    CR_ASSERT(n->seat != NULL);
    n->seat = NULL;
}

static int on_open_store(void *arg, uint64_t round, struct coordinator_store *out,
                         struct cr_error *err) {
    const struct world *w = arg;
    CR_ASSERT(round >= w->rounds);
    if (w->store_fails) return cr_fail(err, -EMFILE, "no store today");
    *out = (struct coordinator_store){.addr = "10.0.0.1", .port = 7000};
    return 0;
}

static void on_log(void *arg, enum cr_log_level level, const char *text) {
    (void) arg;
    (void) level;
    CR_ASSERT(strlen(text) < RDZV_TEXT_MAX);
}

static const struct coordinator_actions actions = {
    .send = on_send, .hang_up = on_hang_up, .open_store = on_open_store, .log = on_log};

/* ---- what the nodes send and do ---- */

static void lose(struct world *w, struct node *n, const char *why) {
    struct coordinator_seat *seat = n->seat;
    n->seat = NULL;
    if (seat != NULL) coordinator_lost(w->coordinator, w->now_ms, seat, why);
}

static void suspend(struct world *w, struct node *n) {
    struct coordinator_seat *seat = n->seat;
    n->seat = NULL;
    if (seat != NULL) coordinator_suspend(w->coordinator, w->now_ms, seat, "reset");
}

/* Node 0 joins as the node in the coordinator's own process, all others as remote nodes. */
static void join(struct world *w, struct node *n, const struct rdzv_join *j) {
    n->workers = j->local_world_size;
    n->seat = coordinator_join(w->coordinator, w->now_ms, n, n == w->nodes, j);
}

/* Sends the message that the input describes. A node without a seat can only send JOIN or RESUME:
 * without a seat, the shell passes no other message to the coordinator. */
static void send(struct world *w, struct node *n, struct input *in) {
    struct cr_error err = {0};
    struct cr_buffer frame = {0};
    struct rdzv_message said, m;
    input_message(in, &said);
    cross_the_wire(&said, &frame, &m);
    if (n->seat != NULL) {
        int rc = coordinator_receive(w->coordinator, w->now_ms, n->seat, &m, &err);
        if (rc < 0) lose(w, n, err.text);
    } else if (m.type == RDZV_JOIN) {
        join(w, n, &m.join);
    } else if (m.type == RDZV_RESUME && n != w->nodes) {
        n->workers = m.resume.local_world_size;
        n->seat = coordinator_resume(w->coordinator, w->now_ms, n, &m.resume);
    }
    cr_buffer_done(&frame);
}

static void shell_acts(struct world *w, struct input *in) {
    struct rdzv_operate o = {.run_id = "job"};
    switch (input_byte(in) % 4) {
    case 0: w->store_fails = !w->store_fails; break;
    case 1: coordinator_goodbye(w->coordinator, input_text(in)); break;
    default:
        o.host = input_text(in), o.why = input_text(in);
        o.kind = input_u32(in), o.left_ms = input_i64(in);
        CR_ASSERT(coordinator_operate(w->coordinator, w->now_ms, &o) <= NODES);
    }
}

/* Calls coordinator_tick() until the coordinator's deadline lies in the future. One call does not
 * always suffice, because handling one node's deadline can set a deadline for another node. Checks
 * that 4 * NODES calls suffice. */
static void tick(struct world *w) {
    int rest = 4 * NODES;
    do coordinator_tick(w->coordinator, w->now_ms);
    while (coordinator_deadline(w->coordinator) <= w->now_ms && rest-- > 0);
    CR_ASSERT(coordinator_deadline(w->coordinator) > w->now_ms);
}

static void pass(struct world *w, struct input *in, int until_deadline) {
    int64_t deadline = coordinator_deadline(w->coordinator);
    if (!until_deadline) w->now_ms += (int64_t) (input_number(in) % (uint64_t) (1000 * DAY_MS));
    else if (deadline > w->now_ms && deadline != CR_FOREVER) w->now_ms = deadline;
    tick(w);
}

static void step(struct world *w, struct input *in) {
    uint8_t what = input_byte(in);
    struct node *n = &w->nodes[what % NODES];
    switch (what / NODES % 8) {
    case 0: pass(w, in, 1); break;
    case 1: pass(w, in, 0); break;
    case 2:
        if (input_byte(in) % 2 == 0) lose(w, n, "its connection was closed");
        else suspend(w, n);
        break;
    case 3: shell_acts(w, in); break;
    default: send(w, n, in);
    }
}

/* ---- invariants, checked after each event ---- */

static void check(struct world *w) {
    struct coordinator_view v;
    uint32_t seats = 0, in_states = 0;
    coordinator_look(w->coordinator, &v);
    for (int i = 0; i < NODES; i++) seats += w->nodes[i].seat != NULL;
    for (int i = 0; i < SEAT_STATE_COUNT; i++) in_states += v.in_state[i];
    CR_ASSERT(v.seats == seats + v.suspended && in_states == v.seats);
    check_complete(&w->told);
    if (v.phase == COORDINATOR_EMPTY) { /* no job: the coordinator's next round is round 0 */
        CR_ASSERT(seats == 0 && v.next_round == 0);
        w->rounds = 0;
        w->told = (struct told){.nodes = 0};
    }
    /* v.restart_count may be larger than v.max_restarts, if a refill has given restarts back */
    CR_ASSERT(v.spent <= v.max_restarts);
    CR_ASSERT(v.next_round >= w->rounds && v.next_round <= (UINT64_C(1) << 32) + STEPS_MAX);
    if (v.phase == COORDINATOR_ENDED) CR_ASSERT(coordinator_deadline(w->coordinator) == CR_FOREVER);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct input in = {data, size};
    struct world w = {.now_ms = 1000};
    w.coordinator = coordinator_new("job", &actions, &w);
    if (w.coordinator == NULL) abort();
    for (int i = 0; i < STEPS_MAX && in.left > 0; i++) {
        step(&w, &in);
        check(&w);
    }
    coordinator_free(w.coordinator);
    return 0;
}
