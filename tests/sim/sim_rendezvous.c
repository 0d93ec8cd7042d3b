/* The rendezvous under a seeded simulator: the real coordinator, the real members, the real codec; a
 * virtual clock and a virtual network that delays, cuts and loses; nodes that crash, lose power,
 * stall, leave, come late; clocks that run apart; workers that fail, succeed and die slowly; changes
 * with notice, whose answers come late or never.
 *
 * After every step the invariants of check_step() must hold, at every round those of check_round(),
 * and when the faults have stopped the job must come to rest within a bound (check_calm). A failing
 * seed is printed; --seed S replays it, --verbose step by step.
 *
 *     sim_rendezvous [--seed S] [--schedules N] [--seconds-max T] [--verbose] */
#include "base/assert.h"
#include "base/buffer.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/parse.h"
#include "rendezvous/coordinator/coordinator.h"
#include "rendezvous/member/member.h"
#include "rendezvous/rendezvous.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NODES_MAX  7
#define ROUNDS_MAX 512
#define INTERVAL   100 /* ms; lease = 300 */
#define ATTEMPTS   3
#define LEASE      (INTERVAL * ATTEMPTS)
#define LAST_CALL  200
#define JOIN_TIME  4000
#define STOP_MAX   450  /* longest time that workers take to die of SIGTERM: beyond the lease */
#define KILL_TIME  5    /* after SIGKILL, or the death of their agent */
#define CHAOS_TIME 12000
#define NOTICE_MAX 1500 /* longest notice of a change */
#define NEEDS_MAX  400  /* what workers ask for beyond it */
#define CHANGES_MAX 2048
/* Longest way to rest: a stalled round's leases, the slowest stop, last call, reconnecting, two changes. */
#define CALM_TIME  (STOP_MAX + 4 * LEASE + LAST_CALL + 3000 + 2 * (NOTICE_MAX + NEEDS_MAX + STOP_MAX))

/* ---- the world ---- */

enum event_type {
    EV_TICK_NODE, EV_TICK_HOST, EV_ARRIVE, EV_CLOSED, EV_LINKED, EV_REFUSED,
    EV_WORKERS_END, EV_WORKERS_GONE, EV_ANSWER, EV_READY, EV_TIME_TO_GO, EV_NODE_UP, EV_HOST_UP, EV_CUT_ENDS, EV_STALL_ENDS, EV_FAULT
};
static const char *const event_names[] = {
    "tick node", "tick host", "arrive", "closed", "linked", "refused", "workers end",
    "workers gone", "answer", "ready", "time to go", "node up", "host up", "cut ends", "stall ends", "fault"};

enum { TO_HOST = 0, TO_NODE = 1, HOST = -1 };

struct conn {
    struct conn *next;
    int node, node_inc, host_inc;
    int node_end, host_end;  /* 1 = this end is open */
    int linked;              /* the node was told */
    int expired;             /* the coordinator hung up by itself */
    int64_t last_arrival[2];
    struct coordinator_seat *seat;
};

struct event {
    int64_t at;
    uint64_t seq;
    enum event_type type;
    int node, inc, dir, gen, flag;
    struct conn *conn;
    struct cr_buffer bytes;
};

enum agent_state { A_NONE, A_JOINED, A_RUN, A_SUCCEEDED, A_STOPPING, A_LEAVING, A_END };

struct node {
    int up, inc, cut, member_dead;
    int64_t stalled_until, resumed_at;
    int64_t offset, ppm;
    struct member *member;
    struct conn *conn;
    enum agent_state agent;
    int workers;             /* 1 = some are alive */
    int record;              /* index of the round they belong to */
    int workers_gen;
    int64_t gone_at;
    int outcome;
    uint64_t round;
    uint32_t group_rank;
    int64_t round_at;        /* its workers have begun then */
    uint64_t change;         /* id of the change announced in this round; 0 = none */
    int64_t answer;          /* the step that was told; -1 = any time, -2 = nothing yet */
    int was_set;             /* CHANGE_AT has come */
    int is_going;            /* has given notice: leaves after the next stop */
    int64_t tick_at;         /* the next EV_TICK_NODE that is under way */
    struct event *held;      /* events that wait for a stall or a cut to end */
    size_t held_count, held_cap;
};

struct round_record {
    int host_inc;
    uint64_t round;
    int64_t formed_at;
    uint32_t restart_count, group, world;
    uint16_t port;
    uint32_t first[NODES_MAX], count[NODES_MAX];
    unsigned seen, succeeded; /* bits by group rank */
};

/* What became known of one change. */
struct change_record {
    int host_inc;
    uint64_t id, step; /* step 0: not set yet */
    int64_t top_answer;
};

static struct world {
    uint64_t rng, seed;
    int64_t now;
    uint64_t seq;
    struct event *heap;
    size_t heap_len, heap_cap;
    struct conn *conns;
    struct node nodes[NODES_MAX];
    int node_count, min_nodes, max_nodes, max_restarts;
    int host_up, host_inc, host_with_node; /* -1: a process of its own */
    int64_t host_stalled_until, host_offset, host_ppm, host_tick_at;
    struct event *host_held;
    size_t host_held_count, host_held_cap;
    struct coordinator *coordinator;
    struct round_record rounds[ROUNDS_MAX];
    int round_count;
    uint32_t top_restarts;
    uint32_t failures;       /* told by members so far */
    struct change_record changes[CHANGES_MAX];
    int change_count;
    int64_t change_until;    /* host's clock: the open change is over by then; CR_FOREVER: none open */
    int64_t notice_ms;       /* job setting */
    int calm;        /* the faults have stopped */
    int wait_ms;     /* coordinator_wait */
    int verbose, failed;
    uint64_t steps, total_rounds, total_steps, total_changes, total_set;
} w;

static void violation(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void violation(const char *fmt, ...) {
    if (w.failed) return;
    w.failed = 1;
    (void) printf("seed %" PRIu64 ": at %" PRId64 " ms: ", w.seed, w.now);
    va_list ap;
    va_start(ap, fmt);
    (void) vprintf(fmt, ap);
    va_end(ap);
    (void) printf("\n");
}

static void story(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void story(const char *fmt, ...) {
    if (!w.verbose) return;
    (void) printf("%6" PRId64 "  ", w.now);
    va_list ap;
    va_start(ap, fmt);
    (void) vprintf(fmt, ap);
    va_end(ap);
    (void) printf("\n");
}

static uint64_t rnd64(void) {
    uint64_t z = (w.rng += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}
static int64_t rnd(int64_t below) { return (int64_t) (rnd64() % (uint64_t) below); }
static int chance(int percent) { return rnd(100) < percent; }

/* ---- clocks ---- */

static int64_t local_time(int64_t offset, int64_t ppm) {
    return offset + w.now + w.now * ppm / 1000000;
}

/* The first moment at which a clock shows `when` or later. */
static int64_t global_time(int64_t when, int64_t offset, int64_t ppm) {
    int64_t t = (when - offset) * 1000000 / (1000000 + ppm);
    while (offset + t + t * ppm / 1000000 < when) t++;
    return t > w.now ? t : w.now;
}

static int64_t node_now(const struct node *n) { return local_time(n->offset, n->ppm); }
static int64_t host_now(void) { return local_time(w.host_offset, w.host_ppm); }

/* ---- events ---- */

static int before(const struct event *a, const struct event *b) {
    return a->at != b->at ? a->at < b->at : a->seq < b->seq;
}

static void push_with_seq(struct event e) {
    if (w.heap_len == w.heap_cap) {
        w.heap_cap = w.heap_cap ? 2 * w.heap_cap : 256;
        w.heap = realloc(w.heap, w.heap_cap * sizeof(*w.heap));
        CR_ASSERT(w.heap != NULL);
    }
    size_t i = w.heap_len++;
    while (i > 0 && before(&e, &w.heap[(i - 1) / 2])) {
        w.heap[i] = w.heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    w.heap[i] = e;
}

static void push(struct event e) {
    e.seq = w.seq++;
    push_with_seq(e);
}

static struct event pop(void) {
    struct event top = w.heap[0], last = w.heap[--w.heap_len];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= w.heap_len) break;
        if (child + 1 < w.heap_len && before(&w.heap[child + 1], &w.heap[child])) child++;
        if (!before(&w.heap[child], &last)) break;
        w.heap[i] = w.heap[child];
        i = child;
    }
    if (w.heap_len > 0) w.heap[i] = last;
    return top;
}

static void hold(struct event **list, size_t *count, size_t *cap, struct event e) {
    if (*count == *cap) {
        *cap = *cap ? 2 * *cap : 8;
        *list = realloc(*list, *cap * sizeof(**list));
        CR_ASSERT(*list != NULL);
    }
    (*list)[(*count)++] = e;
}

/* What was held happens now, in its order. */
static void release(struct event *list, size_t *count) {
    size_t n = *count;
    *count = 0;
    for (size_t i = 0; i < n; i++) {
        struct event e = list[i];
        e.at = w.now;
        push_with_seq(e); /* before what was sent after it */
    }
}

static int64_t network_delay(void) {
    if (chance(90)) return rnd(4);
    return chance(80) ? rnd(30) : rnd(w.calm ? 60 : 250);
}

/* ---- connections ---- */

static void arm_node(int i) {
    struct node *n = &w.nodes[i];
    if (!n->up || n->member == NULL) return;
    int64_t d = member_deadline(n->member);
    if (d == CR_FOREVER) return;
    int64_t at = global_time(d, n->offset, n->ppm);
    if (n->tick_at <= at) return;
    n->tick_at = at;
    push((struct event){.at = at, .type = EV_TICK_NODE, .node = i, .inc = n->inc});
}

static void arm_host(void) {
    if (!w.host_up) return;
    int64_t d = coordinator_deadline(w.coordinator);
    if (d == CR_FOREVER) return;
    int64_t at = global_time(d, w.host_offset, w.host_ppm);
    if (w.host_tick_at <= at) return;
    w.host_tick_at = at;
    push((struct event){.at = at, .type = EV_TICK_HOST, .node = HOST, .inc = w.host_inc});
}

static int is_local(const struct conn *c) { return c->node == w.host_with_node; }

static void in_order(struct conn *c, int dir, struct event e) {
    int64_t at = w.now + (is_local(c) ? 0 : network_delay());
    if (at < c->last_arrival[dir]) at = c->last_arrival[dir];
    c->last_arrival[dir] = at;
    e.at = at;
    e.conn = c;
    e.dir = dir;
    e.node = dir == TO_HOST ? HOST : c->node;
    e.inc = dir == TO_HOST ? c->host_inc : c->node_inc;
    push(e);
}

static void transmit(struct conn *c, int dir, const struct rdzv_message *m) {
    struct event e = {.type = EV_ARRIVE};
    CR_ASSERT(rdzv_message_encode(m, &e.bytes) == 0);
    in_order(c, dir, e);
}

/* One end closes: the other hears of it behind what was sent. */
static void close_end(struct conn *c, int dir) {
    int *end = dir == TO_HOST ? &c->node_end : &c->host_end;
    if (!*end) return;
    *end = 0;
    in_order(c, dir, (struct event){.type = EV_CLOSED});
}

/* ---- changes ---- */

static struct change_record *find_change(int host_inc, uint64_t id) {
    for (int i = w.change_count; i-- > 0;) {
        if (w.changes[i].host_inc == host_inc && w.changes[i].id == id) return &w.changes[i];
    }
    return NULL;
}

/* Only nodes that are let in may be kept waiting for what the workers need. */
static void note_change(const struct rdzv_change *m) {
    int soft = m->kind == RENDEZVOUS_CHANGE_JOIN;
    if (find_change(w.host_inc, m->id) != NULL) return;
    CR_ASSERT(w.change_count < CHANGES_MAX);
    w.changes[w.change_count++] =
        (struct change_record){.host_inc = w.host_inc, .id = m->id, .top_answer = -1};
    w.change_until = host_now() + m->left_ms + (soft ? NEEDS_MAX : 0);
    w.total_changes++;
    story("host: change %" PRIu64 ", %" PRId64 " ms: %s", m->id, m->left_ms, m->why);
}

/* All are told one step, and only when everybody has said how far it is. */
static void note_change_set(const struct rdzv_change_at *m) {
    struct change_record *r = find_change(w.host_inc, m->id);
    if (r == NULL) {
        violation("change %" PRIu64 " is set, but was never announced", m->id);
    } else if (r->step == 0) {
        r->step = m->step;
        w.total_set++;
        if (m->step != (uint64_t) r->top_answer + 1) {
            violation("change %" PRIu64 " is set to step %" PRIu64 ", the furthest is at %" PRId64,
                      m->id, m->step, r->top_answer);
        }
    } else if (r->step != m->step) {
        violation("change %" PRIu64 " has two steps, %" PRIu64 " and %" PRIu64, m->id, r->step, m->step);
    }
}

/* ---- the coordinator's shell ---- */

static void host_send(void *arg, void *peer, const struct rdzv_message *m) {
    (void) arg;
    struct conn *c = peer;
    if (m->type == RDZV_CHANGE) note_change(&m->change);
    if (m->type == RDZV_CHANGE_AT) note_change_set(&m->change_at);
    if (m->type == RDZV_STOP) w.change_until = CR_FOREVER;
    if (c->host_end) transmit(c, TO_NODE, m);
}

static void host_hang_up(void *arg, void *peer) {
    (void) arg;
    struct conn *c = peer;
    c->seat = NULL;
    c->expired = 1;
    close_end(c, TO_NODE);
}

static int host_open_store(void *arg, uint64_t round, struct coordinator_store *out,
                           struct cr_error *err) {
    (void) arg;
    (void) err;
    CR_ASSERT(w.round_count < ROUNDS_MAX);
    struct round_record *r = &w.rounds[w.round_count++];
    *r = (struct round_record){.host_inc = w.host_inc, .round = round, .formed_at = w.now,
                               .port = (uint16_t) (1000 + w.round_count)};
    (void) snprintf(out->addr, sizeof(out->addr), "10.0.0.1");
    out->port = r->port;
    w.total_rounds++;
    w.change_until = CR_FOREVER;
    story("host: ROUND %" PRIu64 " (record %d)", round, w.round_count - 1);
    /* Whom the coordinator gave up for silence has no workers left, unless it is asleep itself. */
    for (int i = 0; i < w.node_count; i++) {
        struct node *n = &w.nodes[i];
        if (!n->workers || n->conn == NULL || !n->conn->expired || n->agent == A_END) continue;
        if (n->stalled_until != 0 || w.now < n->resumed_at + KILL_TIME) continue;
        if (n->conn->host_inc != w.host_inc) continue;
        violation("round %" PRIu64 " forms while workers of silent node %d run", round, i);
    }
    return 0;
}

static void host_log(void *arg, enum cr_log_level level, const char *text) {
    (void) arg;
    (void) level;
    story("host: %s", text);
}

static int host_wants_log(void *arg, enum cr_log_level level) {
    (void) arg;
    (void) level;
    return w.verbose;
}

static const struct coordinator_actions host_actions = {
    .send = host_send, .hang_up = host_hang_up, .open_store = host_open_store, .log = host_log,
    .wants_log = host_wants_log};

static void host_got(struct conn *c, const struct rdzv_message *m) {
    struct cr_error err = {0};
    if (c->seat != NULL) {
        if (coordinator_receive(w.coordinator, host_now(), c->seat, m, &err) < 0) {
            violation("the coordinator refuses node %d: %s", c->node, err.text);
        }
    } else if (m->type == RDZV_JOIN && !c->expired) {
        struct rdzv_message welcome = {.type = RDZV_WELCOME};
        transmit(c, TO_NODE, &welcome);
        c->seat = coordinator_join(w.coordinator, host_now(), c, is_local(c), &m->join);
        if (c->seat == NULL) host_hang_up(NULL, c);
    }
}

static void host_starts(void) {
    w.host_up = 1;
    w.host_inc++;
    w.host_stalled_until = 0;
    w.host_tick_at = w.change_until = CR_FOREVER;
    w.coordinator = coordinator_new("job", &host_actions, NULL);
    story("host: up (%d)", w.host_inc);
}

static void host_dies(int silently) {
    if (!w.host_up) return;
    story("host: dies%s", silently ? " without a word" : "");
    w.host_up = 0;
    w.change_until = CR_FOREVER;
    for (struct conn *c = w.conns; c != NULL; c = c->next) {
        if (c->host_inc != w.host_inc) continue;
        if (silently) c->host_end = 0;
        else close_end(c, TO_NODE);
        c->seat = NULL;
    }
    coordinator_free(w.coordinator);
    w.coordinator = NULL;
}

/* ---- the agents ---- */

static void kill_workers(int i, int64_t within) {
    struct node *n = &w.nodes[i];
    int64_t at = w.now + within;
    if (n->gone_at != 0 && n->gone_at <= at) return; /* dying faster already */
    n->gone_at = at;
    push((struct event){.at = at, .type = EV_WORKERS_GONE, .node = i, .inc = n->inc,
                        .gen = ++n->workers_gen});
}

static void node_connect(void *arg) {
    struct node *n = arg;
    int i = (int) (n - w.nodes);
    struct conn *c = calloc(1, sizeof(*c));
    CR_ASSERT(c != NULL);
    c->next = w.conns;
    w.conns = c;
    c->node = i;
    c->node_inc = n->inc;
    c->host_inc = w.host_inc;
    n->conn = c;
    push((struct event){.at = w.now + (is_local(c) ? 0 : network_delay()), .node = i, .inc = n->inc,
                        .conn = c, .type = w.host_up ? EV_LINKED : EV_REFUSED});
}

static void node_send(void *arg, const struct rdzv_message *m) {
    struct node *n = arg;
    if (n->conn != NULL && n->conn->node_end) transmit(n->conn, TO_HOST, m);
}

static void node_hang_up(void *arg) {
    struct node *n = arg;
    if (n->conn == NULL) return;
    if (!n->conn->linked) n->conn->node = n->conn->node; /* a late EV_LINKED is ignored */
    close_end(n->conn, TO_HOST);
    n->conn->linked = -1;
}

static struct round_record *find_record(const struct node *n, const struct rdzv_round *r) {
    for (int i = w.round_count; i-- > 0;) {
        struct round_record *rec = &w.rounds[i];
        if (rec->host_inc == n->conn->host_inc && rec->round == r->round) return rec;
    }
    return NULL;
}

/* What one member is told must fit what all others were told. */
static void check_round(int i, const struct rdzv_round *r) {
    struct round_record *rec = find_record(&w.nodes[i], r);
    if (rec == NULL) {
        violation("node %d is told of a round that was never formed", i);
        return;
    }
    w.nodes[i].record = (int) (rec - w.rounds);
    if (rec->seen == 0) {
        rec->restart_count = r->restart_count;
        rec->group = r->group_world_size;
        rec->world = r->world_size;
        if (r->restart_count < w.top_restarts && rec->host_inc == 1) violation("restarts run backwards");
        if (r->restart_count > w.top_restarts) w.top_restarts = r->restart_count;
    }
    if (rec->restart_count != r->restart_count || rec->group != r->group_world_size ||
        rec->world != r->world_size || rec->port != r->master_port) {
        violation("node %d has another view of round %" PRIu64, i, r->round);
    }
    if ((int) rec->group < w.min_nodes || (int) rec->group > w.max_nodes) {
        violation("round %" PRIu64 " has %u nodes", r->round, rec->group);
    }
    if (r->restart_count > (uint32_t) w.max_restarts) violation("the budget is exceeded");
    if (r->restart_count > w.failures) violation("a restart is charged without a failure");
    if (r->group_rank >= rec->group || (rec->seen & 1U << r->group_rank)) {
        violation("group rank %u is given twice", r->group_rank);
        return;
    }
    rec->seen |= 1U << r->group_rank;
    rec->first[r->group_rank] = r->first_rank;
    rec->count[r->group_rank] = (uint32_t) i + 1; /* node i has i + 1 workers */
    uint32_t next = 0;
    if (rec->seen != (1U << rec->group) - 1) return;
    for (uint32_t g = 0; g < rec->group; g++) {
        if (rec->first[g] != next) violation("ranks of round %" PRIu64 " are not contiguous", r->round);
        next += rec->count[g];
    }
    if (next != rec->world) violation("ranks do not fill the world");
}

static void node_round(void *arg, const struct rdzv_round *r) {
    struct node *n = arg;
    int i = (int) (n - w.nodes);
    story("node %d: round %" PRIu64 ", group rank %u of %u, restart %u", i, r->round,
          r->group_rank, r->group_world_size, r->restart_count);
    if (n->agent != A_JOINED || n->workers) violation("node %d gets a round it did not wait for", i);
    check_round(i, r);
    n->agent = A_RUN;
    n->round = r->round;
    n->group_rank = r->group_rank;
    n->workers = 1;
    n->gone_at = 0;
    n->round_at = w.now;
    n->change = 0;
    n->answer = -2;
    n->was_set = 0;
    int64_t life = 20 + rnd(6000);
    push((struct event){.at = w.now + life, .type = EV_WORKERS_END, .node = i, .inc = n->inc,
                        .gen = n->workers_gen, .flag = chance(30)});
}

static void node_stop(void *arg, int64_t grace_max_ms, const char *why) {
    struct node *n = arg;
    int i = (int) (n - w.nodes);
    story("node %d: stop within %" PRId64 ": %s", i, grace_max_ms == CR_FOREVER ? -1 : grace_max_ms, why);
    int bounded = grace_max_ms != CR_FOREVER;
    if (n->agent != A_RUN && n->agent != A_SUCCEEDED && !(bounded && (n->agent == A_STOPPING || n->agent == A_LEAVING))) {
        violation("node %d is stopped in agent state %d", i, n->agent);
    }
    if (n->agent != A_LEAVING) n->agent = A_STOPPING;
    int64_t within = rnd(STOP_MAX);
    if (bounded && within > grace_max_ms) within = grace_max_ms + rnd(KILL_TIME);
    if (!n->workers) within = 0;
    kill_workers(i, within);
}

static void node_end(void *arg, int outcome, const char *why) {
    struct node *n = arg;
    int i = (int) (n - w.nodes);
    story("node %d: end %d: %s", i, outcome, why);
    if (n->agent == A_END || n->agent == A_LEAVING || n->agent == A_NONE) {
        violation("node %d ends twice", i);
    }
    if (outcome == RENDEZVOUS_SUCCEEDED && n->record >= 0 && n->agent == A_SUCCEEDED) {
        struct round_record *rec = &w.rounds[n->record];
        if (rec->succeeded != (1U << rec->group) - 1) {
            violation("node %d: success, but only %x of %u succeeded", i, rec->succeeded, rec->group);
        }
    }
    n->agent = A_END;
    n->outcome = outcome;
    if (n->workers) kill_workers(i, rnd(STOP_MAX));
}

/* Answers now, later or never. */
static void node_change(void *arg, const struct rdzv_change *m) {
    struct node *n = arg;
    int i = (int) (n - w.nodes);
    story("node %d: change %" PRIu64, i, m->id);
    if (n->agent != A_RUN || m->round != n->round) violation("node %d hears of a change it has no part in", i);
    if (n->change != 0) violation("node %d hears of two changes in one round", i);
    n->change = m->id;
    if (chance(5)) return;
    int64_t wait = chance(80) ? 0 : rnd(NOTICE_MAX);
    push((struct event){.at = w.now + wait, .type = EV_ANSWER, .node = i, .inc = n->inc,
                        .gen = (int) m->id});
}

/* Odd nodes make a step in 20 ms, even ones in 7; every fourth program counts none. */
static void answer(struct event *e) {
    struct node *n = &w.nodes[e->node];
    if (n->agent != A_RUN || n->change != (uint64_t) e->gen) return;
    n->answer = e->node % 4 == 3 ? -1 : (w.now - n->round_at) / (e->node % 2 ? 20 : 7);
    int64_t needs_ms = chance(70) ? 0 : rnd(NEEDS_MAX);
    struct change_record *r = n->conn->linked == 1 ? find_change(n->conn->host_inc, n->change) : NULL;
    if (r != NULL && n->answer > r->top_answer) r->top_answer = n->answer;
    story("node %d: is at step %" PRId64, e->node, n->answer);
    member_change_answer(n->member, n->change, n->answer, needs_ms);
}

static void node_change_at(void *arg, const struct rdzv_change_at *m) {
    struct node *n = arg;
    int i = (int) (n - w.nodes);
    story("node %d: change %" PRIu64 " after step %" PRIu64, i, m->id, m->step);
    if (n->agent != A_RUN || m->id != n->change || n->answer < 0 || n->was_set) {
        violation("node %d is told of a step it has not to make", i);
    }
    if (m->step <= (uint64_t) n->answer) {
        violation("node %d is to stop after step %" PRIu64 ", but is in step %" PRId64, i, m->step,
                  n->answer + 1);
    }
    n->was_set = 1;
    if (chance(10)) return; /* its worker hangs */
    push((struct event){.at = w.now + rnd(chance(80) ? 100 : NOTICE_MAX), .type = EV_READY, .node = i,
                        .inc = n->inc, .gen = (int) m->id});
}

static void ready(struct event *e) {
    struct node *n = &w.nodes[e->node];
    if (n->agent != A_RUN || n->change != (uint64_t) e->gen) return;
    story("node %d: ready", e->node);
    member_change_ready(n->member, n->change);
}

static void give_notice(int i, uint32_t kind, int64_t left_ms) {
    struct node *n = &w.nodes[i];
    if (n->is_going || n->agent != A_RUN || i == w.host_with_node) return;
    story("node %d: goes within %" PRId64 " ms", i, left_ms);
    n->is_going = 1;
    push((struct event){.at = w.now + left_ms, .type = EV_TIME_TO_GO, .node = i, .inc = n->inc});
    member_notice(n->member, kind, left_ms, "notice");
}

static void node_notice(void *arg, const struct rdzv_ask_notice *m) {
    const struct node *n = arg;
    give_notice((int) (n - w.nodes), m->kind, m->left_ms);
}

static void node_dump(void *arg, const char *why) {
    (void) arg;
    (void) why;
}

static const struct member_actions node_actions = {
    .connect = node_connect, .send = node_send, .hang_up = node_hang_up, .log = host_log,
    .on_round = node_round, .on_stop = node_stop, .on_end = node_end,
    .on_change = node_change, .on_change_at = node_change_at, .on_notice = node_notice,
    .on_dump = node_dump};

static void node_starts(int i) {
    struct node *n = &w.nodes[i];
    char host[16];
    (void) snprintf(host, sizeof(host), "n%d", i);
    n->inc++;
    n->up = 1;
    n->stalled_until = n->resumed_at = 0;
    n->agent = A_JOINED;
    n->record = -1;
    n->conn = NULL;
    n->gone_at = 0;
    n->tick_at = CR_FOREVER;
    struct member_settings s = {
        .where = "host", .local = i == w.host_with_node,
        .connect_timeout_ms = 20000, .coordinator_wait_ms = w.wait_ms,
        .self = {.host = host, .addr = host, .pid = (uint64_t) n->inc, .instance = rnd64(),
                 .role = i % 2 ? "odd" : "even", .node_rank = -1,
                 .local_world_size = (uint32_t) i + 1, .min_nodes = (uint32_t) w.min_nodes,
                 .max_nodes = (uint32_t) w.max_nodes, .max_restarts = (uint32_t) w.max_restarts,
                 .join_timeout_ms = JOIN_TIME, .last_call_timeout_ms = LAST_CALL,
                 .close_timeout_ms = 1000, .keep_alive_interval_ms = INTERVAL,
                 .keep_alive_max_attempt = ATTEMPTS, .change_notice_ms = w.notice_ms}};
    n->is_going = 0;
    n->member = member_new(&s, &node_actions, n);
    story("node %d: up (%d)", i, n->inc);
    member_join(n->member, node_now(n));
}

/* The agent is gone; its workers follow it within KILL_TIME. */
static void node_dies(int i, int silently) {
    struct node *n = &w.nodes[i];
    if (!n->up) return;
    story("node %d: dies%s", i, silently ? " without a word" : "");
    n->up = 0;
    if (n->conn != NULL) {
        if (silently) n->conn->node_end = 0;
        else close_end(n->conn, TO_HOST);
    }
    member_free(n->member);
    n->member = NULL;
    n->agent = A_NONE;
    if (n->workers) {
        n->gone_at = 0;
        if (silently) n->workers = 0; /* power is off */
        else kill_workers(i, rnd(KILL_TIME));
    }
    if (i == w.host_with_node) host_dies(silently);
}

/* ---- faults ---- */

static void stall_host(int64_t until) {
    w.host_stalled_until = until;
    story("host: stalls until %" PRId64, until);
    push((struct event){.at = until, .type = EV_STALL_ENDS, .node = HOST, .inc = w.host_inc});
}

static void inject(void) {
    int i = (int) rnd(w.node_count);
    struct node *n = &w.nodes[i];
    int64_t back = w.now + 50 + rnd(3000);
    switch (rnd(12)) {
    case 0:
    case 1:
        if (!n->up) break;
        node_dies(i, (int) rnd(2));
        push((struct event){.at = back, .type = EV_NODE_UP, .node = i});
        if (i == w.host_with_node) push((struct event){.at = back, .type = EV_HOST_UP, .node = i});
        break;
    case 2:
        if (n->cut || i == w.host_with_node) break;
        n->cut = 1;
        story("node %d: cut off", i);
        push((struct event){.at = w.now + 10 + rnd(1500), .type = EV_CUT_ENDS, .node = i});
        break;
    case 3:
        if (!n->up || n->stalled_until != 0) break;
        if (i == w.host_with_node && (!w.host_up || w.host_stalled_until != 0)) break;
        n->stalled_until = w.now + 10 + rnd(1200);
        story("node %d: stalls until %" PRId64, i, n->stalled_until);
        push((struct event){.at = n->stalled_until, .type = EV_STALL_ENDS, .node = i, .inc = n->inc});
        if (i == w.host_with_node) stall_host(n->stalled_until); /* one process */
        break;
    case 4:
        if (!w.host_up || w.host_stalled_until != 0 || w.host_with_node >= 0) break;
        stall_host(w.now + 10 + rnd(1200));
        break;
    case 5: /* a reset in the middle */
        if (n->conn == NULL || !n->conn->linked || !n->conn->node_end) break;
        story("node %d: connection reset", i);
        in_order(n->conn, TO_NODE, (struct event){.type = EV_CLOSED});
        in_order(n->conn, TO_HOST, (struct event){.type = EV_CLOSED});
        break;
    case 6:
        if (w.host_with_node >= 0 || !w.host_up || !chance(30)) break;
        host_dies((int) rnd(2));
        push((struct event){.at = w.now + 20 + rnd(1500), .type = EV_HOST_UP, .node = -1});
        break;
    case 7:
        if (!n->up || n->agent == A_END || n->agent == A_LEAVING || i == w.host_with_node) break;
        if (n->stalled_until != 0 || !chance(40)) break;
        story("node %d: leaves", i);
        member_leave(n->member, node_now(n), "signal");
        n->agent = A_LEAVING;
        kill_workers(i, n->workers ? rnd(STOP_MAX) : 0);
        break;
    case 8:
        if (n->up && n->stalled_until == 0) give_notice(i, 2 + (uint32_t) rnd(3), rnd(NOTICE_MAX));
        break;
    case 9: { /* an operator */
        char host[16];
        (void) snprintf(host, sizeof(host), "n%d", i);
        struct rdzv_operate o = {.run_id = "job", .host = host, .kind = chance(30) ? 0 : 3,
                                 .left_ms = rnd(NOTICE_MAX), .why = "an operator"};
        if (w.host_up && w.host_stalled_until == 0) (void) coordinator_operate(w.coordinator, &o);
        break;
    }
    default: /* a finished node's launcher is started again */
        if (n->up && n->agent == A_END && !n->workers && i != w.host_with_node) {
            node_dies(i, 0);
            push((struct event){.at = back, .type = EV_NODE_UP, .node = i});
        }
        break;
    }
}

/* ---- steps ---- */

static void deliver(struct event *e) {
    struct conn *c = e->conn;
    struct rdzv_message m;
    struct cr_error err = {0};
    size_t used = 0;
    CR_ASSERT(rdzv_message_decode(e->bytes.data, e->bytes.len, &m, &used, &err) == 0);
    CR_ASSERT(used == e->bytes.len);
    if (e->dir == TO_HOST) {
        if (w.host_up && c->host_inc == w.host_inc && c->host_end) host_got(c, &m);
        return;
    }
    struct node *n = &w.nodes[c->node];
    if (!n->up || n->inc != c->node_inc || n->conn != c || !c->node_end) return;
    if (m.type == RDZV_WELCOME) {
        member_welcomed(n->member);
    } else if (member_receive(n->member, node_now(n), &m, &err) < 0) {
        violation("node %d refuses the coordinator: %s", c->node, err.text);
    }
}

static void closed(struct event *e) {
    struct conn *c = e->conn;
    if (e->dir == TO_HOST) {
        if (!w.host_up || c->host_inc != w.host_inc || !c->host_end) return;
        close_end(c, TO_NODE);
        struct coordinator_seat *seat = c->seat;
        c->seat = NULL;
        if (seat != NULL) coordinator_lost(w.coordinator, host_now(), seat, "connection closed");
        return;
    }
    struct node *n = &w.nodes[c->node];
    if (!n->up || n->inc != c->node_inc || n->conn != c || !c->node_end) return;
    close_end(c, TO_HOST);
    member_disconnected(n->member, node_now(n), "connection closed");
}

static void linked(struct event *e) {
    struct node *n = &w.nodes[e->node];
    struct conn *c = e->conn;
    if (n->conn != c || c->linked != 0) return;
    if (!w.host_up || c->host_inc != w.host_inc) {
        c->linked = -1;
        member_disconnected(n->member, node_now(n), "connection refused");
        return;
    }
    c->linked = c->node_end = c->host_end = 1;
    member_connected(n->member, node_now(n));
}

static void succeed(int i) {
    struct node *n = &w.nodes[i];
    story("node %d: workers succeed", i);
    n->agent = A_SUCCEEDED;
    n->workers = 0;
    w.rounds[n->record].succeeded |= 1U << n->group_rank;
    member_succeeded(n->member, node_now(n), n->round);
}

static void workers_end(struct event *e) {
    struct node *n = &w.nodes[e->node];
    if (e->gen != n->workers_gen || n->agent != A_RUN || w.calm) return;
    if (e->flag) {
        story("node %d: workers fail", e->node);
        n->agent = A_STOPPING;
        w.failures++;
        member_failed(n->member, node_now(n), n->round, "rank 0: exit code 1");
        kill_workers(e->node, rnd(STOP_MAX));
    } else {
        succeed(e->node);
    }
}

static void workers_gone(struct event *e) {
    struct node *n = &w.nodes[e->node];
    if (e->gen != n->workers_gen) return;
    story("node %d: workers are gone", e->node);
    n->workers = 0;
    n->gone_at = 0;
    if (!n->up) return;
    if (n->agent == A_STOPPING && n->is_going) {
        member_leave(n->member, node_now(n), "notice");
        n->agent = A_LEAVING;
    }
    if (n->agent == A_STOPPING) {
        n->agent = A_JOINED;
        member_join(n->member, node_now(n));
    } else if (n->agent == A_LEAVING) {
        node_dies(e->node, 0);
        if (!w.calm) push((struct event){.at = w.now + 100 + rnd(2000), .type = EV_NODE_UP, .node = e->node});
    }
}

/* The notice is over: it goes, whatever the others do. */
static void time_to_go(struct event *e) {
    struct node *n = &w.nodes[e->node];
    if (n->agent != A_RUN && n->agent != A_SUCCEEDED && n->agent != A_JOINED) return;
    story("node %d: its time is over", e->node);
    member_leave(n->member, node_now(n), "notice");
    n->agent = A_LEAVING;
    kill_workers(e->node, n->workers ? rnd(STOP_MAX) : 0);
}

/* Events of a process that is stopped, or behind a cut, wait. Workers die without their agent's help
 * once they were sent SIGKILL; for the others the agent must run. Returns 1 if the event waits. */
static int held_back(struct event *e) {
    if (e->type == EV_ARRIVE || e->type == EV_CLOSED || e->type == EV_LINKED || e->type == EV_REFUSED) {
        struct node *n = &w.nodes[e->conn->node];
        if (n->cut) {
            hold(&n->held, &n->held_count, &n->held_cap, *e);
            return 1;
        }
    }
    if (e->type >= EV_NODE_UP) return 0;
    if (e->node == HOST) {
        if (!w.host_up || e->inc != w.host_inc || w.host_stalled_until == 0) return 0;
        hold(&w.host_held, &w.host_held_count, &w.host_held_cap, *e);
        return 1;
    }
    struct node *n = &w.nodes[e->node];
    if (!n->up || e->inc != n->inc || n->stalled_until == 0) return 0;
    hold(&n->held, &n->held_count, &n->held_cap, *e);
    return 1;
}

static void step(struct event *e) {
    struct node *n = e->node >= 0 ? &w.nodes[e->node] : NULL;
    int stale = n != NULL && (!n->up || e->inc != n->inc);
    switch (e->type) {
    case EV_TICK_NODE:
        if (stale) break;
        if (n->tick_at <= w.now) n->tick_at = CR_FOREVER;
        member_tick(n->member, node_now(n));
        break;
    case EV_TICK_HOST:
        if (!w.host_up || e->inc != w.host_inc) break;
        if (w.host_tick_at <= w.now) w.host_tick_at = CR_FOREVER;
        coordinator_tick(w.coordinator, host_now());
        break;
    case EV_ARRIVE: deliver(e); break;
    case EV_CLOSED: closed(e); break;
    case EV_LINKED:
        if (!stale) linked(e);
        break;
    case EV_REFUSED:
        if (!stale && n->conn == e->conn && e->conn->linked == 0) {
            e->conn->linked = -1;
            member_disconnected(n->member, node_now(n), "connection refused");
        }
        break;
    case EV_WORKERS_END:
        if (!stale) workers_end(e);
        break;
    case EV_WORKERS_GONE: workers_gone(e); break;
    case EV_ANSWER:
        if (!stale) answer(e);
        break;
    case EV_READY:
        if (!stale) ready(e);
        break;
    case EV_TIME_TO_GO:
        if (!stale) time_to_go(e);
        break;
    case EV_NODE_UP:
        if (!n->up) node_starts(e->node);
        break;
    case EV_HOST_UP:
        if (!w.host_up) host_starts();
        break;
    case EV_CUT_ENDS:
        story("node %d: reachable again", e->node);
        n->cut = 0;
        release(n->held, &n->held_count);
        break;
    case EV_STALL_ENDS:
        if (e->node == HOST) {
            if (!w.host_up || e->inc != w.host_inc) break;
            story("host: goes on");
            w.host_stalled_until = 0;
            coordinator_tick(w.coordinator, host_now()); /* libuv: timers before input */
            release(w.host_held, &w.host_held_count);
        } else if (!stale) {
            story("node %d: goes on", e->node);
            n->resumed_at = w.now;
            n->stalled_until = 0;
            member_tick(n->member, node_now(n));
            release(n->held, &n->held_count);
        }
        break;
    case EV_FAULT:
        if (!w.calm) inject();
        break;
    }
    if (n != NULL) arm_node(e->node);
    if (e->conn != NULL && e->node == HOST) arm_node(e->conn->node);
    arm_host();
}

/* Whatever the answers: a change is over when its time is up. */
static void check_change(void) {
    struct coordinator_view v;
    if (!w.host_up || w.host_stalled_until != 0 || w.change_until == CR_FOREVER) return;
    if (host_now() <= w.change_until + KILL_TIME) return;
    coordinator_look(w.coordinator, &v);
    if (v.phase == COORDINATOR_RUNNING) {
        violation("a change is not over %" PRId64 " ms after its time", host_now() - w.change_until);
    }
    w.change_until = CR_FOREVER;
}

/* No worker runs in a superseded round beyond its lease, unless its agent is asleep. */
static void check_step(void) {
    check_change();
    for (int i = 0; i < w.node_count; i++) {
        const struct node *n = &w.nodes[i];
        if (!n->workers || n->record < 0 || n->record + 1 >= w.round_count) continue;
        if (n->agent == A_END) continue; /* told that all is over; nothing new starts for it */
        if (n->stalled_until != 0 || w.now < n->resumed_at + 2 * KILL_TIME) continue;
        int64_t since = w.rounds[n->record + 1].formed_at;
        if (w.now > since + LEASE + LEASE / 10 + KILL_TIME) {
            violation("node %d runs record %d, superseded for %" PRId64 " ms", i, n->record,
                      w.now - since);
        }
    }
}

/* ---- one schedule ---- */

/* When the faults have stopped for CALM_TIME: one round that all take part in who can, or the end. */
static void check_calm(void) {
    struct coordinator_view v;
    if (!w.host_up) return;
    coordinator_look(w.coordinator, &v);
    int live = 0, running = 0;
    for (int i = 0; i < w.node_count; i++) {
        const struct node *n = &w.nodes[i];
        if (!n->up || n->agent == A_END) continue;
        live++;
        if (n->agent == A_RUN || n->agent == A_SUCCEEDED) running++;
    }
    if (v.phase == COORDINATOR_ENDED) {
        if (live > 0) violation("the job has ended, but %d nodes do not know", live);
        return;
    }
    if (live < w.min_nodes) return;
    int want = live < w.max_nodes ? live : w.max_nodes;
    /* A job that has begun to end well takes nobody in. */
    int ending = v.phase == COORDINATOR_RUNNING && w.rounds[w.round_count - 1].succeeded != 0;
    if (v.phase != COORDINATOR_RUNNING || (running != want && !ending)) {
        violation("no rest: phase %s, %d of %d nodes run (%d wanted)",
                  coordinator_phase_name(v.phase), running, live, want);
    }
}

static void everyone_is_well_again(void) {
    story("---- calm ----");
    w.calm = 1;
    for (int i = 0; i < w.node_count; i++) {
        struct node *n = &w.nodes[i];
        if (n->cut) push((struct event){.at = w.now, .type = EV_CUT_ENDS, .node = i});
        if (n->up && n->stalled_until != 0) {
            n->stalled_until = w.now;
            push((struct event){.at = w.now, .type = EV_STALL_ENDS, .node = i, .inc = n->inc});
        }
    }
    if (w.host_up && w.host_stalled_until != 0) {
        w.host_stalled_until = w.now;
        push((struct event){.at = w.now, .type = EV_STALL_ENDS, .node = HOST, .inc = w.host_inc});
    }
    if (!w.host_up) push((struct event){.at = w.now, .type = EV_HOST_UP, .node = -1});
}

/* In calm, the workers run until they are told to end well: then all nodes must hear of success. */
static void finish(void) {
    for (int i = 0; i < w.node_count; i++) {
        if (w.nodes[i].up && w.nodes[i].agent == A_RUN) succeed(i);
    }
}

static void check_finished(void) {
    struct coordinator_view v;
    if (!w.host_up) return;
    coordinator_look(w.coordinator, &v);
    for (int i = 0; i < w.node_count; i++) {
        const struct node *n = &w.nodes[i];
        if (!n->up || n->agent == A_END || v.phase == COORDINATOR_EMPTY) continue;
        if (v.phase == COORDINATOR_FORMING && n->agent == A_JOINED) continue; /* too few nodes */
        violation("all have succeeded, but node %d does not know", i);
    }
}

static void run_until(int64_t end) {
    while (!w.failed && w.heap_len > 0 && w.heap[0].at <= end) {
        struct event e = pop();
        w.now = e.at;
        if (held_back(&e)) continue;
        if (w.verbose && e.type == EV_ARRIVE) {
            story("%s %d: %s", event_names[e.type], e.node,
                  rdzv_message_name((unsigned char) e.bytes.data[4]));
        }
        step(&e);
        cr_buffer_done(&e.bytes);
        check_step();
        w.steps++;
    }
    w.now = end;
}

static void clean_up(void) {
    for (size_t i = 0; i < w.heap_len; i++) cr_buffer_done(&w.heap[i].bytes);
    w.heap_len = 0;
    for (int i = 0; i < NODES_MAX; i++) {
        struct node *n = &w.nodes[i];
        for (size_t k = 0; k < n->held_count; k++) cr_buffer_done(&n->held[k].bytes);
        member_free(n->member);
        struct event *held = n->held;
        size_t cap = n->held_cap;
        *n = (struct node){.held = held, .held_cap = cap};
    }
    for (size_t k = 0; k < w.host_held_count; k++) cr_buffer_done(&w.host_held[k].bytes);
    w.host_held_count = 0;
    coordinator_free(w.coordinator);
    w.coordinator = NULL;
    while (w.conns != NULL) {
        struct conn *c = w.conns;
        w.conns = c->next;
        free(c);
    }
    w.round_count = w.change_count = 0;
}

static int64_t random_ppm(void) { return rnd(40001) - 20000; } /* clocks run up to 2 % apart */

static int run_schedule(uint64_t seed) {
    w.seed = w.rng = seed;
    w.now = 0;
    w.failed = w.calm = 0;
    w.host_up = w.host_inc = 0;
    w.top_restarts = w.failures = 0;
    w.change_until = CR_FOREVER;
    w.notice_ms = chance(30) ? 0 : 1 + rnd(NOTICE_MAX);
    w.node_count = 1 + (int) rnd(NODES_MAX);
    w.max_nodes = 1 + (int) rnd(w.node_count);
    w.min_nodes = 1 + (int) rnd(w.max_nodes);
    w.max_restarts = (int) rnd(6);
    w.host_with_node = chance(40) ? (int) rnd(w.node_count) : -1;
    w.wait_ms = chance(70) ? 10000 : 0;
    w.host_offset = rnd(100000);
    w.host_ppm = random_ppm();
    story("---- %d nodes, %d:%d, %d restarts, host %d ----", w.node_count, w.min_nodes, w.max_nodes,
          w.max_restarts, w.host_with_node);
    push((struct event){.at = 0, .type = EV_HOST_UP, .node = -1});
    for (int i = 0; i < w.node_count; i++) {
        w.nodes[i].offset = rnd(100000);
        w.nodes[i].ppm = random_ppm();
        push((struct event){.at = chance(70) ? rnd(100) : rnd(4000), .type = EV_NODE_UP, .node = i});
    }
    if (w.host_with_node >= 0) { /* one process has one clock */
        w.nodes[w.host_with_node].offset = w.host_offset;
        w.nodes[w.host_with_node].ppm = w.host_ppm;
    }
    int faults = (int) rnd(30);
    for (int i = 0; i < faults; i++) push((struct event){.at = rnd(CHAOS_TIME), .type = EV_FAULT, .node = -1});

    run_until(CHAOS_TIME);
    everyone_is_well_again();
    run_until(CHAOS_TIME + 4000); /* who was to come back has come back */
    run_until(CHAOS_TIME + 4000 + CALM_TIME);
    if (!w.failed) check_calm();
    finish();
    run_until(CHAOS_TIME + 4000 + CALM_TIME + 500);
    if (!w.failed) check_finished();
    int failed = w.failed;
    w.total_steps += w.steps;
    w.steps = 0;
    clean_up();
    return failed;
}

int main(int argc, char **argv) {
    int64_t seed = -1, schedules = 20000, seconds_max = 600;
    for (int i = 1; i < argc; i++) {
        int64_t *into = strcmp(argv[i], "--seed") == 0          ? &seed
                        : strcmp(argv[i], "--schedules") == 0   ? &schedules
                        : strcmp(argv[i], "--seconds-max") == 0 ? &seconds_max
                                                                : NULL;
        if (strcmp(argv[i], "--verbose") == 0) {
            w.verbose = 1;
        } else if (into == NULL || i + 1 == argc || cr_parse_i64(argv[++i], 0, INT64_MAX, into) < 0) {
            (void) fprintf(stderr, "usage: sim_rendezvous [--seed S] [--schedules N] "
                                   "[--seconds-max T] [--verbose]\n");
            return 2;
        }
    }
    cr_log_setup("sim", CR_LOG_WARN);
    if (seed >= 0) return run_schedule((uint64_t) seed);

    int64_t started = cr_monotonic_ms(), done = 0;
    int failures = 0;
    for (; done < schedules && cr_monotonic_ms() - started < seconds_max * 1000; done++) {
        failures += run_schedule((uint64_t) done);
        if (failures >= 10) break;
    }
    (void) printf("%" PRId64 " schedules, %" PRIu64 " steps, %" PRIu64 " rounds, %" PRIu64
                  " changes (%" PRIu64 " with a step), %d failed, %" PRId64 " ms\n",
                  done, w.total_steps, w.total_rounds, w.total_changes, w.total_set, failures, cr_monotonic_ms() - started);
    if (failures > 0) (void) printf("replay one with: make sim SEED=<seed>\n");
    free(w.heap);
    free(w.host_held);
    for (int i = 0; i < NODES_MAX; i++) free(w.nodes[i].held);
    return failures > 0 || done == 0;
}
