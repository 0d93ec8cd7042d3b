/* The rules of coordinator.h, top to bottom: seats, sending, ending, stopping a round, forming one,
 * then the events. reconcile() is the story: it looks at what is true and takes the next step. */
#include "rendezvous/coordinator/coordinator.h"

#include "base/assert.h"
#include "base/memory.h"
#include "base/clock.h"
#include "rendezvous/coordinator/assignment.h"
#include "rendezvous/types.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define NEVER         (-1)
#define SEAT_NAME_MAX 320

/* Least time that a node gets to stop its workers; more than any grace in use. */
#define STOP_LIMIT_MS INT64_C(120000)

_Static_assert((uint64_t) RDZV_NODES_MAX * RDZV_LOCAL_WORLD_MAX <= INT32_MAX,
               "the rank of a worker may not fit into an int");

/* Where a node of the round stands with the announced change. */
enum seat_change {
    CHANGE_NONE,  /* it was not asked */
    CHANGE_ASKED, /* has not answered yet */
    CHANGE_RUNS,  /* will be ready after the step */
    CHANGE_READY, /* may be stopped */
    SEAT_CHANGE_COUNT
};

/* The change that is announced, if any. */
struct change {
    int open, set; /* set: the step is known */
    uint64_t id;
    int is_hard;      /* nodes go away: no worker can have more time */
    int64_t notice_ms; /* answers until then may ask for more time */
    int64_t until_ms;  /* then it takes place regardless */
    int64_t step;     /* the furthest worker's so far; -1 = nobody counts */
};

struct coordinator_seat {
    void *peer;
    uint32_t index; /* in coordinator.seats */
    enum seat_state state;
    int local;
    char *host, *addr, *role;
    uint64_t pid, instance, connection;
    int64_t node_rank;
    uint32_t local_world_size;
    int64_t group_rank; /* in the last round of this coordinator; -1: was not in it */
    int64_t old_rank;   /* an earlier one, as the node tells it; -1 = none */
    uint32_t first_rank;
    int64_t since_ms;     /* in this state since */
    int64_t heard_ms;     /* last sign of life */
    int64_t suspected_ms; /* silent for a lease when we looked then; NEVER = not suspected */
    enum seat_change change;
};

struct coordinator {
    const struct coordinator_actions *actions;
    void *arg;
    char *run_id;

    /* settings, from the job's first node */
    uint32_t min_nodes, max_nodes, max_restarts;
    int fixed_ranks;
    int64_t join_timeout_ms, last_call_timeout_ms, interval_ms, lease_ms, notice_ms;

    enum coordinator_phase phase;
    uint64_t round;        /* the last one formed; counts once group_size is not 0 */
    uint64_t next_round;   /* number of the next one */
    uint32_t restart_count;
    int64_t forming_ms;    /* since when we form a round with nobody to wait for */
    int someone_stopping;  /* a node was still stopping its workers when we last looked */
    int64_t last_call_ms;  /* when last call ends; NEVER = the minimum is not reached */
    int changed;           /* a node came or went since the last round was formed */
    uint32_t group_size;   /* nodes and workers of the last round */
    uint32_t world_size;
    struct change change;
    uint32_t gone_well;    /* nodes of this round that succeeded and have hung up since */
    int outcome;           /* ENDED */
    char why[RDZV_TEXT_MAX]; /* why the round was stopped or the job ended */

    struct coordinator_seat **seats;
    uint32_t seat_count, seat_cap;
    uint32_t in_state[SEAT_STATE_COUNT], in_change[SEAT_CHANGE_COUNT];
    char **departed; /* by group rank: host that held it last, if nobody holds it now */
    uint32_t departed_count;
    int64_t wake_ms; /* coordinator_deadline */
};

const char *coordinator_phase_name(enum coordinator_phase p) {
    switch (p) {
#define P(name)                                                                                    \
    case COORDINATOR_##name: return #name;
        COORDINATOR_PHASES(P)
#undef P
    }
    return "?";
}

const char *seat_state_name(enum seat_state s) {
    switch (s) {
#define S(name)                                                                                    \
    case SEAT_##name: return #name;
        SEAT_STATES(S)
#undef S
    case SEAT_STATE_COUNT: break;
    }
    return "?";
}

struct coordinator *coordinator_new(const char *run_id, const struct coordinator_actions *actions,
                                    void *arg) {
    struct coordinator *c = calloc(1, sizeof(*c));
    if (c == NULL) return NULL;
    c->run_id = strdup(run_id);
    if (c->run_id == NULL) {
        free(c);
        return NULL;
    }
    c->actions = actions;
    c->arg = arg;
    c->last_call_ms = NEVER;
    c->wake_ms = CR_FOREVER;
    return c;
}

static void seat_free(struct coordinator_seat *s) {
    free(s->host);
    free(s->addr);
    free(s->role);
    free(s);
}

void coordinator_free(struct coordinator *c) {
    if (c == NULL) return;
    for (uint32_t i = 0; i < c->seat_count; i++) seat_free(c->seats[i]);
    for (uint32_t i = 0; i < c->departed_count; i++) free(c->departed[i]);
    free(c->departed);
    free(c->seats);
    free(c->run_id);
    free(c);
}

/* ---- saying things ---- */

static void say(struct coordinator *c, enum cr_log_level level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static void say(struct coordinator *c, enum cr_log_level level, const char *fmt, ...) {
    char text[RDZV_TEXT_MAX];
    int n = snprintf(text, sizeof(text), "job '%.64s': ", c->run_id);
    va_list ap;
    va_start(ap, fmt);
    (void) vsnprintf(text + n, sizeof(text) - (size_t) n, fmt, ap);
    va_end(ap);
    c->actions->log(c->arg, level, text);
}

static void set_why(struct coordinator *c, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

static void set_why(struct coordinator *c, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    (void) vsnprintf(c->why, sizeof(c->why), fmt, ap);
    va_end(ap);
}

static void send_stop(struct coordinator *c, struct coordinator_seat *s) {
    struct rdzv_message m = {.type = RDZV_STOP};
    m.stop = (struct rdzv_stop){.round = c->round, .why = c->why};
    c->actions->send(c->arg, s->peer, &m);
}

static void send_end(struct coordinator *c, void *peer, int outcome, const char *why) {
    struct rdzv_message m = {.type = RDZV_END};
    m.end = (struct rdzv_end){.outcome = (uint32_t) outcome, .why = why};
    c->actions->send(c->arg, peer, &m);
}

static void send_refused(struct coordinator *c, void *peer, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static void send_refused(struct coordinator *c, void *peer, const char *fmt, ...) {
    char why[RDZV_TEXT_MAX];
    va_list ap;
    va_start(ap, fmt);
    (void) vsnprintf(why, sizeof(why), fmt, ap);
    va_end(ap);
    struct rdzv_message m = {.type = RDZV_REFUSED};
    m.refused = (struct rdzv_refused){
        .version_min = RDZV_VERSION_MIN, .version_max = RDZV_VERSION_MAX, .why = why};
    c->actions->send(c->arg, peer, &m);
}

static void wake_by(struct coordinator *c, int64_t when_ms) {
    if (when_ms < c->wake_ms) c->wake_ms = when_ms;
}

/* ---- seats ---- */

/* The only writer of a seat's part in a change. */
static void seat_take_part(struct coordinator *c, struct coordinator_seat *s, enum seat_change next) {
    c->in_change[s->change]--;
    c->in_change[next]++;
    s->change = next;
}

/* The only writer of a seat's state. Who does not run any more has no part in a change. */
static void seat_enter(struct coordinator *c, struct coordinator_seat *s, enum seat_state next,
                       int64_t now_ms) {
    seat_take_part(c, s, CHANGE_NONE);
    c->in_state[s->state]--;
    c->in_state[next]++;
    s->state = next;
    s->since_ms = now_ms;
}

static int seat_copy_texts(struct coordinator_seat *s, const struct rdzv_join *join) {
    s->host = strdup(join->host);
    s->addr = strdup(join->addr);
    s->role = strdup(join->role);
    return s->host != NULL && s->addr != NULL && s->role != NULL ? 0 : -ENOMEM;
}

static struct coordinator_seat *seat_new(struct coordinator *c, int64_t now_ms, void *peer,
                                         int local, const struct rdzv_join *join) {
    if (c->seat_count == c->seat_cap) {
        uint32_t cap = c->seat_cap != 0 ? 2 * c->seat_cap : 8;
        struct coordinator_seat **grown = realloc(c->seats, cap * sizeof(*grown));
        if (grown == NULL) return NULL;
        c->seats = grown;
        c->seat_cap = cap;
    }
    struct coordinator_seat *s = calloc(1, sizeof(*s));
    if (s == NULL) return NULL;
    *s = (struct coordinator_seat){
        .peer = peer, .index = c->seat_count, .state = SEAT_JOINED, .local = local,
        .pid = join->pid, .instance = join->instance, .connection = join->connection, .node_rank = join->node_rank,
        .local_world_size = join->local_world_size, .group_rank = -1, .old_rank = join->last_rank,
        .since_ms = now_ms, .heard_ms = now_ms, .suspected_ms = NEVER};
    if (seat_copy_texts(s, join) < 0) {
        seat_free(s);
        return NULL;
    }
    c->seats[c->seat_count++] = s;
    c->in_state[SEAT_JOINED]++;
    c->in_change[CHANGE_NONE]++;
    if (!local) wake_by(c, now_ms + c->lease_ms);
    return s;
}

/* Several nodes may have one host name. */
static void name_seat(const struct coordinator_seat *s, char out[SEAT_NAME_MAX]) {
    (void) snprintf(out, SEAT_NAME_MAX, "node '%.200s' (%.60s, process %" PRIu64 ")", s->host, s->addr,
                    s->pid);
}

/* Remembers who held the rank, so that the same host may have it back. */
static void note_departed(struct coordinator *c, const struct coordinator_seat *s) {
    if (s->group_rank < 0 || (uint64_t) s->group_rank >= c->departed_count) return;
    free(c->departed[s->group_rank]);
    c->departed[s->group_rank] = strdup(s->host); /* NULL only costs the stickiness */
}

static void seat_remove(struct coordinator *c, struct coordinator_seat *s) {
    note_departed(c, s);
    c->in_state[s->state]--;
    c->in_change[s->change]--;
    c->seats[s->index] = c->seats[--c->seat_count];
    c->seats[s->index]->index = s->index;
    seat_free(s);
}

/* ---- ending, stopping ---- */

/* The only way into ENDED; c->why says why. Seats stay until their nodes hang up. */
static void end_job(struct coordinator *c, enum rendezvous_outcome outcome) {
    CR_ASSERT(c->phase != COORDINATOR_ENDED);
    c->phase = COORDINATOR_ENDED;
    c->change.open = 0;
    c->outcome = (int) outcome;
    c->wake_ms = CR_FOREVER;
    for (uint32_t i = 0; i < c->seat_count; i++) {
        send_end(c, c->seats[i]->peer, (int) outcome, c->why);
    }
    say(c, CR_LOG_DEBUG, "ended after %" PRIu64 " rounds: %s", c->next_round,
        outcome == RENDEZVOUS_SUCCEEDED ? "succeeded" : c->why);
}

static void start_forming(struct coordinator *c, int64_t now_ms) {
    c->phase = COORDINATOR_FORMING;
    c->forming_ms = now_ms;
    c->last_call_ms = NEVER;
    wake_by(c, now_ms + c->join_timeout_ms);
}

/* Ends the running round for c->why; its nodes are to stop their workers and join again. */
static void stop_round(struct coordinator *c, int64_t now_ms) {
    say(c, CR_LOG_DEBUG, "round %" PRIu64 " is over: %s", c->round, c->why);
    c->change.open = 0;
    for (uint32_t i = 0; i < c->seat_count; i++) {
        struct coordinator_seat *s = c->seats[i];
        if (s->state != SEAT_RUNNING && s->state != SEAT_SUCCEEDED) continue;
        send_stop(c, s);
        seat_enter(c, s, SEAT_STOPPING, now_ms);
    }
    start_forming(c, now_ms);
}

/* ---- changes with notice ---- */

static void send_change(struct coordinator *c, struct coordinator_seat *s, uint32_t kind,
                        int64_t left_ms) {
    struct rdzv_message m = {.type = RDZV_CHANGE};
    m.change = (struct rdzv_change){.round = c->round, .id = c->change.id, .kind = kind,
                                    .left_ms = left_ms, .why = c->why};
    c->actions->send(c->arg, s->peer, &m);
}

/* c->why says why. */
static void announce_change(struct coordinator *c, int64_t now_ms, uint32_t kind, int64_t left_ms) {
    c->change = (struct change){.open = 1,
                                .id = c->change.id + 1,
                                .is_hard = kind != RENDEZVOUS_CHANGE_JOIN,
                                .notice_ms = now_ms + left_ms,
                                .until_ms = now_ms + left_ms,
                                .step = -1};
    say(c, CR_LOG_INFO, "round %" PRIu64 " is to end within %g s: %s", c->round,
        (double) left_ms / 1000, c->why);
    for (uint32_t i = 0; i < c->seat_count; i++) {
        struct coordinator_seat *s = c->seats[i];
        if (s->state != SEAT_RUNNING) continue;
        seat_take_part(c, s, CHANGE_ASKED);
        send_change(c, s, kind, left_ms);
    }
    wake_by(c, c->change.until_ms);
}

/* No worker has begun more than one step beyond the furthest that was told. */
static void set_change(struct coordinator *c, int64_t now_ms) {
    struct rdzv_message m = {.type = RDZV_CHANGE_AT};
    m.change_at = (struct rdzv_change_at){.id = c->change.id,
                                          .step = (uint64_t) c->change.step + 1,
                                          .left_ms = c->change.until_ms - now_ms};
    c->change.set = 1;
    for (uint32_t i = 0; i < c->seat_count; i++) {
        struct coordinator_seat *s = c->seats[i];
        if (s->change == CHANGE_RUNS) c->actions->send(c->arg, s->peer, &m);
    }
}

static void reconcile_change(struct coordinator *c, int64_t now_ms) {
    int time_is_up = now_ms >= c->change.until_ms;
    if (!c->change.set && !time_is_up && c->in_change[CHANGE_ASKED] > 0) return;
    uint32_t running = c->in_change[CHANGE_RUNS];
    if (running > 0 && !c->change.set && !time_is_up) set_change(c, now_ms);
    if (running > 0 && !time_is_up) return;
    if (c->in_state[SEAT_JOINED] > 0) c->changed = 1; /* else who wanted to join has gone again */
    stop_round(c, now_ms);
}

static void node_answered(struct coordinator *c, int64_t now_ms, struct coordinator_seat *s,
                          const struct rdzv_change_answer *a) {
    struct change *change = &c->change;
    if (!change->open || a->id != change->id || s->change != CHANGE_ASKED) return;
    seat_take_part(c, s, a->step < 0 ? CHANGE_READY : CHANGE_RUNS);
    if (a->step < 0) return;
    if (a->step > change->step && a->step < INT64_MAX) change->step = a->step;
    int64_t needs_ms = a->needs_ms < c->join_timeout_ms ? a->needs_ms : c->join_timeout_ms;
    if (change->is_hard || now_ms > change->notice_ms) return; /* late ones add to no extension */
    if (now_ms + needs_ms <= change->until_ms) return;
    change->until_ms = now_ms + needs_ms;
    wake_by(c, change->until_ms);
}

static void node_is_ready(struct coordinator *c, struct coordinator_seat *s, uint64_t id) {
    if (c->change.open && id == c->change.id && s->change == CHANGE_RUNS) {
        seat_take_part(c, s, CHANGE_READY);
    }
}

/* ---- forming a round ---- */

/* Nodes of the last round before spares, then first come, first served. */
static int compare_claim(const void *pa, const void *pb) {
    const struct coordinator_seat *const *a = pa, *const *b = pb;
    int a_had = (*a)->group_rank >= 0, b_had = (*b)->group_rank >= 0;
    if (a_had != b_had) return b_had - a_had;
    if ((*a)->since_ms != (*b)->since_ms) return (*a)->since_ms < (*b)->since_ms ? -1 : 1;
    return (*a)->instance < (*b)->instance ? -1 : (*a)->instance > (*b)->instance;
}

static uint32_t choose_seats(struct coordinator *c, struct coordinator_seat **chosen) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->seat_count; i++) {
        if (c->seats[i]->state == SEAT_JOINED) chosen[n++] = c->seats[i];
    }
    if (n <= c->max_nodes) return n;
    qsort(chosen, n, sizeof(*chosen), compare_claim);
    return c->max_nodes;
}

static void describe_seat(const struct coordinator_seat *s, struct assignment_node *out) {
    *out = (struct assignment_node){
        .owner = NULL, .host = s->host, .addr = s->addr, .role = s->role,
        .pid = s->pid, .instance = s->instance, .node_rank = s->node_rank,
        .kept_rank = s->group_rank, .old_rank = s->old_rank,
        .local_world_size = s->local_world_size};
}

static void log_assignment(struct coordinator *c, const struct assignment_node *nodes, uint32_t n,
                           const struct assignment_summary *sum) {
    char text[RDZV_TEXT_MAX - 200];
    size_t len = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < n && len + 100 < sizeof(text); i++) {
        const struct assignment_node *a = &nodes[i];
        int add = snprintf(text + len, sizeof(text) - len, " %" PRIu32 "=%.60s(%" PRIu32 "-%" PRIu32 ")",
                           a->group_rank, a->host, a->first_rank,
                           a->first_rank + a->local_world_size - 1);
        if (add > 0) len += (size_t) add;
        if (i + 1 < n && len + 100 >= sizeof(text)) (void) snprintf(text + len, sizeof(text) - len, " …");
    }
    say(c, CR_LOG_INFO,
        "round %" PRIu64 ": %" PRIu32 " nodes, %" PRIu32 " workers, restart %" PRIu32
        "; nodes kept %" PRIu32 ", returned %" PRIu32 ", moved %" PRIu32 ", new %" PRIu32 ":%s",
        c->round, n, sum->world_size, c->restart_count, sum->kept, sum->returned,
        sum->moved, sum->fresh, text);
}

static void send_round(struct coordinator *c, const struct assignment_node *a, uint32_t nodes,
                       const struct assignment_summary *sum, const struct coordinator_store *store) {
    const struct coordinator_seat *s = a->owner;
    struct rdzv_message m = {.type = RDZV_ROUND};
    m.round = (struct rdzv_round){
        .round = c->round, .restart_count = c->restart_count,
        .group_rank = a->group_rank, .group_world_size = nodes,
        .first_rank = a->first_rank, .world_size = sum->world_size,
        .first_role_rank = a->first_role_rank, .role_world_size = a->role_world_size,
        .master_addr = store->addr, .master_port = store->port};
    c->actions->send(c->arg, s->peer, &m);
}

/* Room for the group ranks below n. */
static int departed_reserve(struct coordinator *c, uint32_t n) {
    if (n <= c->departed_count) return 0;
    char **grown = realloc(c->departed, n * sizeof(*grown));
    if (grown == NULL) return -ENOMEM;
    memset(grown + c->departed_count, 0, (n - c->departed_count) * sizeof(*grown));
    c->departed = grown;
    c->departed_count = n;
    return 0;
}

/* The seats take what the assignment says; everybody else has no rank any more. */
static void seat_the_round(struct coordinator *c, struct assignment_node *nodes, uint32_t n,
                           int64_t now_ms) {
    for (uint32_t i = 0; i < c->seat_count; i++) c->seats[i]->group_rank = -1;
    for (uint32_t i = 0; i < n; i++) {
        struct coordinator_seat *s = nodes[i].owner;
        s->group_rank = s->old_rank = nodes[i].group_rank;
        s->first_rank = nodes[i].first_rank;
        seat_enter(c, s, SEAT_RUNNING, now_ms);
        free(c->departed[nodes[i].group_rank]);
        c->departed[nodes[i].group_rank] = NULL;
    }
}

static void find_next_wake(struct coordinator *c);

static void form_round(struct coordinator *c, int64_t now_ms) {
    struct cr_error err = {0};
    struct coordinator_store store = {.addr = ""};
    struct assignment_summary sum;
    CR_AUTO_FREE struct coordinator_seat **chosen = calloc(c->seat_count, sizeof(*chosen));
    CR_AUTO_FREE struct assignment_node *nodes = calloc(c->seat_count, sizeof(*nodes));
    if (chosen == NULL || nodes == NULL) goto no_memory;

    uint32_t n = choose_seats(c, chosen);
    CR_ASSERT(n >= c->min_nodes && n <= c->max_nodes);
    for (uint32_t i = 0; i < n; i++) {
        describe_seat(chosen[i], &nodes[i]);
        nodes[i].owner = chosen[i];
    }
    if (assignment_make(nodes, n, c->departed, c->departed_count, c->fixed_ranks, &sum) < 0 ||
        departed_reserve(c, nodes[n - 1].group_rank + 1) < 0) {
        goto no_memory;
    }
    if (c->actions->open_store(c->arg, c->next_round, &store, &err) < 0) {
        set_why(c, "cannot open the store of round %" PRIu64 ": %.900s", c->next_round, err.text);
        end_job(c, RENDEZVOUS_LOST);
        return;
    }
    c->phase = COORDINATOR_RUNNING;
    c->round = c->next_round++;
    c->changed = 0;
    c->gone_well = 0;
    c->group_size = n;
    c->world_size = sum.world_size;
    seat_the_round(c, nodes, n, now_ms);
    for (uint32_t i = 0; i < n; i++) send_round(c, &nodes[i], n, &sum, &store);
    log_assignment(c, nodes, n, &sum);
    find_next_wake(c);
    return;

no_memory:
    set_why(c, "cannot form a round: the coordinator is out of memory");
    end_job(c, RENDEZVOUS_LOST);
}

/* Looks at what is true while a round is being formed, and takes the next step if there is one. */
static void reconcile_forming(struct coordinator *c, int64_t now_ms) {
    uint32_t waiting = c->in_state[SEAT_JOINED];
    int someone_stopping = c->in_state[SEAT_STOPPING] + c->in_state[SEAT_LEAVING] > 0;
    if (c->someone_stopping && !someone_stopping) c->forming_ms = now_ms; /* nodes wait from now */
    c->someone_stopping = someone_stopping;
    wake_by(c, now_ms + c->join_timeout_ms);

    if (waiting < c->min_nodes) {
        c->last_call_ms = NEVER;
        return;
    }
    if (c->last_call_ms == NEVER) c->last_call_ms = now_ms + c->last_call_timeout_ms;
    if (someone_stopping) return; /* they will be back */
    int all_back = c->group_size > 0 && !c->changed && waiting >= c->group_size;
    if (waiting >= c->max_nodes || all_back || now_ms >= c->last_call_ms) form_round(c, now_ms);
    else wake_by(c, c->last_call_ms);
}

static void node_waits_to_be_let_in(struct coordinator *c, int64_t now_ms) {
    if (c->change.open) return;
    set_why(c, "%" PRIu32 " more node(s) joined", c->in_state[SEAT_JOINED]);
    if (c->notice_ms > 0) {
        announce_change(c, now_ms, RENDEZVOUS_CHANGE_JOIN, c->notice_ms);
        return;
    }
    c->changed = 1;
    stop_round(c, now_ms);
}

static void reconcile(struct coordinator *c, int64_t now_ms) {
    if (c->phase == COORDINATOR_RUNNING) {
        if (c->in_state[SEAT_SUCCEEDED] + c->gone_well == c->group_size) {
            set_why(c, "all workers ended well");
            end_job(c, RENDEZVOUS_SUCCEEDED);
        } else if (c->in_state[SEAT_JOINED] > 0 && c->group_size < c->max_nodes &&
                   c->in_state[SEAT_SUCCEEDED] + c->gone_well == 0) {
            node_waits_to_be_let_in(c, now_ms);
        }
    }
    if (c->phase == COORDINATOR_RUNNING && c->change.open) reconcile_change(c, now_ms);
    if (c->phase == COORDINATOR_FORMING) reconcile_forming(c, now_ms);
}

/* ---- events: joining ---- */

static void take_settings(struct coordinator *c, const struct rdzv_join *j, int64_t now_ms) {
    c->min_nodes = j->min_nodes;
    c->max_nodes = j->max_nodes;
    c->max_restarts = j->max_restarts;
    c->fixed_ranks = j->fixed_ranks != 0;
    c->join_timeout_ms = j->join_timeout_ms;
    c->last_call_timeout_ms = j->last_call_timeout_ms;
    c->interval_ms = j->keep_alive_interval_ms;
    c->lease_ms = c->interval_ms * j->keep_alive_max_attempt;
    c->notice_ms = j->change_notice_ms;
    c->changed = 1;
    start_forming(c, now_ms);
}

static int check_sizes(struct coordinator *c, void *peer, const struct rdzv_join *j) {
    if (j->min_nodes < 1 || j->min_nodes > j->max_nodes || j->max_nodes > RDZV_NODES_MAX) {
        send_refused(c, peer, "cannot join with %" PRIu32 ":%" PRIu32 " nodes", j->min_nodes, j->max_nodes);
        return -EINVAL;
    }
    if (j->local_world_size < 1 || j->local_world_size > RDZV_LOCAL_WORLD_MAX) {
        send_refused(c, peer, "cannot join with %" PRIu32 " workers", j->local_world_size);
        return -EINVAL;
    }
    return 0;
}

static void refuse_node_rank(struct coordinator *c, void *peer, int64_t rank, uint32_t nodes) {
    send_refused(c, peer,
                 "cannot join as node rank %" PRId64 ": the job has node ranks 0 to %" PRIu32, rank,
                 nodes - 1);
}

/* With fixed ranks a round has each node rank once, which takes one number of nodes. */
static int check_fixed(struct coordinator *c, void *peer, const struct rdzv_join *j) {
    if (j->fixed_ranks == 0) return 0;
    if (j->min_nodes != j->max_nodes) {
        send_refused(c, peer,
                     "cannot join with fixed ranks and %" PRIu32 ":%" PRIu32
                     " nodes: fixed ranks need one number of nodes",
                     j->min_nodes, j->max_nodes);
        return -EINVAL;
    }
    if (j->node_rank < 0 || j->node_rank >= j->max_nodes) {
        refuse_node_rank(c, peer, j->node_rank, j->max_nodes);
        return -EINVAL;
    }
    return 0;
}

static int check_times(struct coordinator *c, void *peer, const struct rdzv_join *j) {
    const int64_t longest_ms = INT64_C(1000) * 86400000;
    if (j->join_timeout_ms < 1 || j->join_timeout_ms > longest_ms ||
        j->last_call_timeout_ms < 0 || j->last_call_timeout_ms > longest_ms ||
        j->change_notice_ms < 0 || j->change_notice_ms > longest_ms ||
        j->keep_alive_interval_ms < 1 || j->keep_alive_interval_ms > RDZV_INTERVAL_MAX_MS ||
        j->keep_alive_max_attempt < 1 || j->keep_alive_max_attempt > RDZV_ATTEMPTS_MAX) {
        send_refused(c, peer, "cannot join with such timeouts");
        return -EINVAL;
    }
    return 0;
}

/* What a node remembers may become ours. More rounds than the bound are believed only if we have
 * counted as many ourselves. */
static int check_memories(struct coordinator *c, void *peer, const struct rdzv_join *j) {
    uint32_t budget = c->phase == COORDINATOR_EMPTY ? j->max_restarts : c->max_restarts;
    if (j->rounds_seen > RDZV_ROUNDS_SEEN_MAX && j->rounds_seen > c->next_round) {
        send_refused(c, peer, "cannot join after %" PRIu64 " rounds: no job has more than %" PRIu64,
                     j->rounds_seen, RDZV_ROUNDS_SEEN_MAX);
        return -ERANGE;
    }
    if (j->restarts_seen > budget) {
        send_refused(c, peer, "cannot join after %" PRIu32 " restarts: the job has at most %" PRIu32
                     "; give every node the same --max-restarts", j->restarts_seen, budget);
        return -ERANGE;
    }
    return 0;
}

/* Everything a JOIN can say wrongly. Returns 0, or refuses. */
static int check_join(struct coordinator *c, void *peer, const struct rdzv_join *j) {
    int rc = check_sizes(c, peer, j);
    if (rc == 0) rc = check_fixed(c, peer, j);
    if (rc == 0) rc = check_times(c, peer, j);
    if (rc == 0) rc = check_memories(c, peer, j);
    return rc;
}

/* The job's settings may be other than those that the node brings. */
static int check_node_rank(struct coordinator *c, void *peer, const struct rdzv_join *j) {
    if (!c->fixed_ranks) return 0;
    if (j->node_rank < 0 || j->node_rank >= c->max_nodes) {
        refuse_node_rank(c, peer, j->node_rank, c->max_nodes);
        return -EINVAL;
    }
    for (uint32_t i = 0; i < c->seat_count; i++) {
        const struct coordinator_seat *s = c->seats[i];
        if (s->node_rank != j->node_rank) continue;
        send_refused(c, peer,
                     "cannot join as node rank %" PRId64 ": '%.200s' (process %" PRIu64 ") has it; give "
                     "every node a --node-rank of its own",
                     j->node_rank, s->host, s->pid);
        return -EEXIST;
    }
    return 0;
}

/* A launcher that lost its connection is back before we noticed: the old one is dead. What arrives
 * late over an older connection than the one we know must not end the newer one. */
static int replace_old_seat(struct coordinator *c, int64_t now_ms, void *peer,
                            const struct rdzv_join *j) {
    for (uint32_t i = 0; i < c->seat_count; i++) {
        struct coordinator_seat *s = c->seats[i];
        if (s->instance != j->instance || s->local) continue;
        if (s->connection >= j->connection) {
            send_refused(c, peer, "this node has a newer connection");
            return -ESTALE;
        }
        c->actions->hang_up(c->arg, s->peer);
        coordinator_lost(c, now_ms, s, "it connected anew");
        break;
    }
    return 0;
}

/* What a node remembers counts when the coordinator itself is new. */
static void take_memories(struct coordinator *c, const struct rdzv_join *j) {
    if (j->rounds_seen > c->next_round) c->next_round = j->rounds_seen;
    if (j->restarts_seen > c->restart_count) c->restart_count = j->restarts_seen;
}

static void warn_of_other_settings(struct coordinator *c, const struct rdzv_join *j) {
    if (j->min_nodes == c->min_nodes && j->max_nodes == c->max_nodes &&
        j->max_restarts == c->max_restarts) {
        return;
    }
    say(c, CR_LOG_WARN,
        "node '%.200s' asks for %" PRIu32 ":%" PRIu32 " nodes and %" PRIu32
        " restarts, the job's first node asked for %" PRIu32 ":%" PRIu32 " and %" PRIu32 ", which counts",
        j->host, j->min_nodes, j->max_nodes, j->max_restarts, c->min_nodes, c->max_nodes,
        c->max_restarts);
}

static void welcome(struct coordinator *c, void *peer) {
    struct rdzv_message m = {.type = RDZV_ACCEPTED};
    m.accepted = (struct rdzv_accepted){
        .keep_alive_interval_ms = c->interval_ms,
        .keep_alive_max_attempt = (uint32_t) (c->lease_ms / c->interval_ms)};
    c->actions->send(c->arg, peer, &m);
}

struct coordinator_seat *coordinator_join(struct coordinator *c, int64_t now_ms, void *peer,
                                          int local, const struct rdzv_join *join) {
    if (check_join(c, peer, join) < 0) return NULL;
    if (replace_old_seat(c, now_ms, peer, join) < 0) return NULL;
    if (c->phase == COORDINATOR_ENDED) {
        char why[RDZV_TEXT_MAX];
        (void) snprintf(why, sizeof(why), "job '%.64s' has ended and takes no more nodes: %.800s",
                        c->run_id, c->why);
        send_end(c, peer, RENDEZVOUS_LOST, why);
        return NULL;
    }
    if (c->phase == COORDINATOR_EMPTY) take_settings(c, join, now_ms);
    else warn_of_other_settings(c, join);
    if (check_node_rank(c, peer, join) < 0) return NULL;
    if (c->seat_count >= RDZV_NODES_MAX) {
        send_refused(c, peer, "cannot join: the job has %" PRIu32 " nodes already", c->seat_count);
        return NULL;
    }
    struct coordinator_seat *s = seat_new(c, now_ms, peer, local, join);
    if (s == NULL) {
        send_refused(c, peer, "cannot join: the coordinator is out of memory");
        return NULL;
    }
    take_memories(c, join);
    welcome(c, peer);
    say(c, CR_LOG_INFO, "node '%.200s' (%.60s, process %" PRIu64 ") joined: %" PRIu32 " waiting, %" PRIu32
        ":%" PRIu32 " wanted", s->host, s->addr, s->pid, c->in_state[SEAT_JOINED], c->min_nodes,
        c->max_nodes);
    reconcile(c, now_ms);
    return s;
}

/* ---- events: what seated nodes say ---- */

static void node_failed(struct coordinator *c, int64_t now_ms, struct coordinator_seat *s,
                        const struct rdzv_failed *f) {
    if (c->phase != COORDINATOR_RUNNING || f->round != c->round ||
        s->state != SEAT_RUNNING) {
        return; /* the round was over already: one round costs one restart */
    }
    seat_enter(c, s, SEAT_STOPPING, now_ms);
    set_why(c, "%s", f->what);
    if (c->restart_count >= c->max_restarts) {
        end_job(c, RENDEZVOUS_FAILED);
        return;
    }
    c->restart_count++;
    stop_round(c, now_ms);
}

static void node_succeeded(struct coordinator *c, int64_t now_ms, struct coordinator_seat *s,
                           const struct rdzv_succeeded *m) {
    if (c->phase != COORDINATOR_RUNNING || m->round != c->round) return;
    if (s->state == SEAT_RUNNING) seat_enter(c, s, SEAT_SUCCEEDED, now_ms);
}

/* A seat is empty from now on, for whatever reason. */
static void seat_vacate(struct coordinator *c, int64_t now_ms, struct coordinator_seat *s,
                        const char *how, const char *why) {
    int had_round = s->state != SEAT_JOINED || s->group_rank >= 0;
    int was_running = s->state == SEAT_RUNNING, was_done = s->state == SEAT_SUCCEEDED;
    char name[SEAT_NAME_MAX];
    name_seat(s, name);
    seat_remove(c, s);
    if (c->phase == COORDINATOR_ENDED) return;
    say(c, had_round ? CR_LOG_INFO : CR_LOG_DEBUG, "%s %s: %s", name, how, why);
    if (c->phase == COORDINATOR_RUNNING && was_done) {
        c->gone_well++;
    } else if (c->phase == COORDINATOR_RUNNING && was_running) {
        c->changed = 1;
        set_why(c, "%s %s: %s", name, how, why);
        stop_round(c, now_ms);
    } else if (c->phase == COORDINATOR_FORMING && had_round) {
        c->changed = 1;
    }
    reconcile(c, now_ms);
}

/* Its workers may still run: the next round waits until it has hung up. */
static void node_leaves(struct coordinator *c, int64_t now_ms, struct coordinator_seat *s,
                        const char *why) {
    int was_running = s->state == SEAT_RUNNING;
    if (c->phase == COORDINATOR_ENDED || s->state == SEAT_SUCCEEDED) return;
    if (s->state == SEAT_LEAVING) return; /* saying it again gives it no more time */
    seat_enter(c, s, SEAT_LEAVING, now_ms);
    if (s->group_rank >= 0) c->changed = 1;
    if (c->phase != COORDINATOR_RUNNING || !was_running) return;
    char name[SEAT_NAME_MAX];
    name_seat(s, name);
    set_why(c, "%s leaves: %s", name, why);
    stop_round(c, now_ms);
}

/* Of two changes at a time the first stays, but it must be over when the second has to be. */
static void node_gives_notice(struct coordinator *c, int64_t now_ms, struct coordinator_seat *s,
                              const struct rdzv_notice *n) {
    const int64_t longest_ms = INT64_C(1000) * 86400000;
    int64_t left_ms = n->left_ms < 0 ? 0 : n->left_ms < longest_ms ? n->left_ms : longest_ms;
    int known = n->kind >= RENDEZVOUS_CHANGE_LEAVE && n->kind <= RENDEZVOUS_CHANGE_MAINTENANCE;
    if (c->phase != COORDINATOR_RUNNING || s->state != SEAT_RUNNING) return;
    if (c->change.open) {
        c->change.is_hard = 1;
        if (now_ms + left_ms < c->change.until_ms) c->change.until_ms = now_ms + left_ms;
        wake_by(c, c->change.until_ms);
        return;
    }
    char name[SEAT_NAME_MAX];
    name_seat(s, name);
    set_why(c, "%s leaves: %s", name, n->why);
    announce_change(c, now_ms, known ? n->kind : RENDEZVOUS_CHANGE_LEAVE, left_ms);
}

int coordinator_receive(struct coordinator *c, int64_t now_ms, struct coordinator_seat *seat,
                        const struct rdzv_message *m, struct cr_error *err) {
    seat->heard_ms = now_ms;
    seat->suspected_ms = NEVER;
    switch ((unsigned) m->type) {
    case RDZV_JOIN:
        if (c->phase == COORDINATOR_ENDED) return 0; /* crossed with END */
        if (seat->state != SEAT_STOPPING) {
            return cr_fail(err, -EPROTO, "refuse a JOIN from a node that is %s",
                           seat_state_name(seat->state));
        }
        seat_enter(c, seat, SEAT_JOINED, now_ms);
        break;
    case RDZV_FAILED: node_failed(c, now_ms, seat, &m->failed); break;
    case RDZV_SUCCEEDED: node_succeeded(c, now_ms, seat, &m->succeeded); break;
    case RDZV_BEAT: {
        struct rdzv_message ack = {.type = RDZV_BEAT_ACK};
        ack.beat_ack.sent_ms = m->beat.sent_ms;
        c->actions->send(c->arg, seat->peer, &ack);
        return 0;
    }
    case RDZV_LEAVE: node_leaves(c, now_ms, seat, m->leave.why); break;
    case RDZV_CHANGE_ANSWER: node_answered(c, now_ms, seat, &m->change_answer); break;
    case RDZV_CHANGE_READY: node_is_ready(c, seat, m->change_ready.id); break;
    case RDZV_NOTICE: node_gives_notice(c, now_ms, seat, &m->notice); break;
    default:
        return cr_fail(err, -EPROTO, "refuse a %s message from a node",
                       rdzv_message_name((unsigned) m->type));
    }
    reconcile(c, now_ms);
    return 0;
}

void coordinator_lost(struct coordinator *c, int64_t now_ms, struct coordinator_seat *seat,
                      const char *why) {
    seat_vacate(c, now_ms, seat, "was lost", why);
}

/* ---- events: time ---- */

/* Appends the hosts that are here, for a message that says who did not come. */
static void list_hosts(const struct coordinator *c, char *out, size_t room) {
    size_t len = 0;
    for (uint32_t i = 0; i < c->seat_count && len + 80 < room; i++) {
        const struct coordinator_seat *s = c->seats[i];
        int add = s->node_rank >= 0
                      ? snprintf(out + len, room - len, "%s%.60s (node rank %" PRId64 ")",
                                 i == 0 ? "" : ", ", s->host, s->node_rank)
                      : snprintf(out + len, room - len, "%s%.60s", i == 0 ? "" : ", ", s->host);
        if (add > 0) len += (size_t) add;
    }
    if (c->seat_count == 0) (void) snprintf(out, room, "none");
}

/* The limit of a node that waits for a round, or whose workers will not end. */
static void join_timed_out(struct coordinator *c, int64_t now_ms, struct coordinator_seat *s) {
    char here[600] = "", why[RDZV_TEXT_MAX];
    list_hosts(c, here, sizeof(here));
    if (s->state != SEAT_JOINED) {
        (void) snprintf(why, sizeof(why), "its workers could not be stopped for %" PRId64 " s",
                        (now_ms - s->since_ms) / 1000);
    } else {
        (void) snprintf(why, sizeof(why),
                        "the rendezvous timed out after %g s: %" PRIu32 " of at least %" PRIu32
                        " nodes came: %s; start the missing ones, or raise join_timeout in --rdzv-conf",
                        (double) c->join_timeout_ms / 1000, c->in_state[SEAT_JOINED], c->min_nodes, here);
    }
    send_end(c, s->peer, RENDEZVOUS_LOST, why);
    c->actions->hang_up(c->arg, s->peer);
    seat_vacate(c, now_ms, s, "was sent away", "its time is up");
}

static int64_t max_ms(int64_t a, int64_t b) { return a > b ? a : b; }

static int64_t confirm_ms(const struct coordinator *c) { return c->lease_ms / 8 + 1; }

/* When this seat's next time limit is, CR_FOREVER if it has none. */
static int64_t seat_join_limit(const struct coordinator *c, const struct coordinator_seat *s) {
    if (c->phase != COORDINATOR_FORMING) return CR_FOREVER;
    int stopping = s->state == SEAT_STOPPING || s->state == SEAT_LEAVING;
    if (stopping) return s->since_ms + max_ms(c->join_timeout_ms, STOP_LIMIT_MS);
    if (s->state != SEAT_JOINED || c->someone_stopping) return CR_FOREVER;
    return max_ms(s->since_ms, c->forming_ms) + c->join_timeout_ms;
}

static int64_t seat_lease_limit(const struct coordinator *c, const struct coordinator_seat *s) {
    if (s->local) return CR_FOREVER;
    if (s->suspected_ms != NEVER) return s->suspected_ms + confirm_ms(c);
    return s->heard_ms + c->lease_ms;
}

/* A silent node is judged in two steps, so that what it sent while we did not run is read first; a
 * second look that itself comes late counts as a first one. Returns 1 when the node is lost. */
static int lease_is_over(struct coordinator *c, struct coordinator_seat *s, int64_t now_ms) {
    if (now_ms < seat_lease_limit(c, s)) return 0;
    int late = s->suspected_ms != NEVER && now_ms > s->suspected_ms + 2 * confirm_ms(c);
    if (s->suspected_ms == NEVER || late) {
        s->suspected_ms = now_ms;
        return 0;
    }
    return 1;
}

static void lease_expired(struct coordinator *c, int64_t now_ms, struct coordinator_seat *s) {
    char why[100];
    (void) snprintf(why, sizeof(why), "nothing heard from it for %" PRId64 " ms",
                    now_ms - s->heard_ms);
    c->actions->hang_up(c->arg, s->peer);
    coordinator_lost(c, now_ms, s, why);
}

static void find_next_wake(struct coordinator *c) {
    c->wake_ms = CR_FOREVER;
    if (c->phase == COORDINATOR_ENDED) return;
    for (uint32_t i = 0; i < c->seat_count; i++) {
        wake_by(c, seat_join_limit(c, c->seats[i]));
        wake_by(c, seat_lease_limit(c, c->seats[i]));
    }
    if (c->phase == COORDINATOR_FORMING && c->last_call_ms != NEVER && !c->someone_stopping) {
        wake_by(c, c->last_call_ms);
    }
    if (c->change.open) wake_by(c, c->change.until_ms);
}

void coordinator_tick(struct coordinator *c, int64_t now_ms) {
    if (now_ms < c->wake_ms) return;
    /* Last call first: a node whose time to join ends in the same moment is in the round. */
    reconcile(c, now_ms);
    for (uint32_t i = c->seat_count; i-- > 0 && c->phase != COORDINATOR_ENDED;) {
        if (i >= c->seat_count) continue; /* seats move when one is vacated */
        struct coordinator_seat *s = c->seats[i];
        if (lease_is_over(c, s, now_ms)) lease_expired(c, now_ms, s);
        else if (now_ms >= seat_join_limit(c, s)) join_timed_out(c, now_ms, s);
    }
    find_next_wake(c);
}

int64_t coordinator_deadline(const struct coordinator *c) { return c->wake_ms; }

uint32_t coordinator_operate(struct coordinator *c, const struct rdzv_operate *what) {
    struct rdzv_message m = {.type = RDZV_ASK_DUMP};
    uint32_t asked = 0;
    if (what->kind == 0) m.ask_dump.why = what->why;
    else {
        m.type = RDZV_ASK_NOTICE;
        m.ask_notice = (struct rdzv_ask_notice){
            .kind = what->kind, .left_ms = what->left_ms, .why = what->why};
    }
    for (uint32_t i = 0; c->phase != COORDINATOR_ENDED && i < c->seat_count; i++) {
        struct coordinator_seat *s = c->seats[i];
        if (what->host[0] != '\0' && strcmp(what->host, s->host) != 0) continue;
        c->actions->send(c->arg, s->peer, &m);
        asked++;
    }
    return asked;
}

void coordinator_abandon(struct coordinator *c, int64_t now_ms, const char *why) {
    (void) now_ms;
    if (c->phase == COORDINATOR_ENDED) return;
    set_why(c, "%s", why);
    end_job(c, RENDEZVOUS_LOST);
}

/* ---- what there is to see ---- */

void coordinator_look(const struct coordinator *c, struct coordinator_view *out) {
    *out = (struct coordinator_view){
        .phase = c->phase, .next_round = c->next_round, .restart_count = c->restart_count,
        .max_restarts = c->max_restarts, .min_nodes = c->min_nodes, .max_nodes = c->max_nodes,
        .group_world_size = c->group_size, .world_size = c->world_size, .seats = c->seat_count,
        .outcome = c->outcome, .why = c->why};
    memcpy(out->in_state, c->in_state, sizeof(out->in_state));
    if (c->phase != COORDINATOR_FORMING) return;
    /* Who stops its workers is awaited; so is whoever is missing to the minimum. */
    uint32_t stopping = c->in_state[SEAT_STOPPING], here = c->in_state[SEAT_JOINED] + stopping;
    out->awaited = stopping + (here < c->min_nodes ? c->min_nodes - here : 0);
}

void coordinator_visit(const struct coordinator *c,
                       void (*visit)(void *arg, const struct seat_view *seat), void *arg) {
    for (uint32_t i = 0; i < c->seat_count; i++) {
        const struct coordinator_seat *s = c->seats[i];
        struct seat_view view = {.host = s->host, .addr = s->addr, .role = s->role, .pid = s->pid,
                                 .local = s->local, .state = s->state, .group_rank = s->group_rank,
                                 .local_world_size = s->local_world_size,
                                 .first_rank = s->first_rank, .heard_ms = s->heard_ms};
        visit(arg, &view);
    }
}
