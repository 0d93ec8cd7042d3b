/* Forms rounds: decides when a round begins and with which nodes, and sends ROUND to each of them.
 * assignment.c decides the ranks. */
#include "rendezvous/coordinator/coordinator_internal.h"

#include "base/assert.h"
#include "base/memory.h"
#include "rendezvous/rules/rules.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STORE_PATIENCE_MS    INT64_C(60000)
#define STORE_BACKOFF_MIN_MS INT64_C(100)
#define STORE_BACKOFF_MAX_MS INT64_C(5000)

/* ---- choosing the nodes ---- */

/* Decides which of two waiting nodes comes first if more than max_nodes wait. Nodes of hosts that
 * are set aside come last. Of the others, nodes of the last round come before spares. Of two nodes
 * of the same kind, the one that has waited longer comes first. A coordinator that has taken over
 * knows the nodes of the last round by their ballots. */
static int compare_claim(const void *pa, const void *pb) {
    const struct coordinator_seat *const *a = pa, *const *b = pb;
    int a_was_in = (*a)->was_in, b_was_in = (*b)->was_in;
    if ((*a)->comes_last != (*b)->comes_last) return (*a)->comes_last ? 1 : -1;
    if (a_was_in != b_was_in) return b_was_in - a_was_in;
    if ((*a)->since_ms != (*b)->since_ms) return (*a)->since_ms < (*b)->since_ms ? -1 : 1;
    return (*a)->instance < (*b)->instance ? -1 : (*a)->instance > (*b)->instance;
}

static uint32_t choose_seats(struct coordinator *c, int64_t now_ms,
                             struct coordinator_seat **chosen) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->seat_count; i++) {
        struct coordinator_seat *s = c->seats[i];
        s->was_in = s->group_rank >= 0 || (!c->has_formed && s->ballot >= 0);
        s->comes_last = aside_comes_last(c, now_ms, s);
        if (s->state == SEAT_JOINED) chosen[n++] = s;
    }
    if (n <= c->max_nodes) return n;
    qsort(chosen, n, sizeof(*chosen), compare_claim);
    return c->max_nodes;
}

static void describe_seat(struct coordinator_seat *s, struct assignment_node *out) {
    *out = (struct assignment_node){
        .owner = s, .host = s->host, .addr = s->addr, .role = s->role,
        .pid = s->pid, .instance = s->instance, .node_rank = s->node_rank,
        .kept_rank = s->group_rank, .old_rank = s->old_rank,
        .local_world_size = s->local_world_size};
}

/* ---- making the round ---- */

/* The data of a round while it is being formed. */
struct forming {
    struct assignment_node *nodes; /* sorted by group rank after assign() */
    uint32_t count;
    struct assignment_summary sum;
    struct coordinator_store store;
};

int coordinator_reserve_departed(struct coordinator *c, uint32_t n) {
    if (n <= c->departed_count) return 0;
    char **grown = realloc(c->departed, n * sizeof(*grown));
    if (grown == NULL) return -ENOMEM;
    memset(grown + c->departed_count, 0, (n - c->departed_count) * sizeof(*grown));
    c->departed = grown;
    c->departed_count = n;
    return 0;
}

static int assign(struct coordinator *c, int64_t now_ms, struct forming *f) {
    CR_AUTO_FREE struct coordinator_seat **chosen = calloc(c->seat_count, sizeof(*chosen));
    f->nodes = calloc(c->seat_count, sizeof(*f->nodes));
    if (chosen == NULL || f->nodes == NULL) return -ENOMEM;
    f->count = choose_seats(c, now_ms, chosen);
    CR_ASSERT(f->count >= c->min_nodes && f->count <= c->max_nodes);
    for (uint32_t i = 0; i < f->count; i++) describe_seat(chosen[i], &f->nodes[i]);
    int rc = assignment_make(f->nodes, f->count, c->departed, c->departed_count, c->fixed_ranks,
                             &f->sum);
    return rc < 0 ? rc : coordinator_reserve_departed(c, f->nodes[f->count - 1].group_rank + 1);
}

/* Returns 1 plus the number of workers that go on in their processes in the new round; or 0 if a
 * node has not said how many it keeps. */
static uint32_t count_kept(const struct forming *f) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < f->count; i++) {
        const struct coordinator_seat *s = f->nodes[i].owner;
        if (s->kept == 0) return 0;
        sum += s->kept - 1;
    }
    return sum + 1;
}

/* Stores the new ranks in the seats. A node that is not in the new round gets group rank -1. */
static void give_ranks(struct coordinator *c, const struct forming *f, int64_t now_ms) {
    for (uint32_t i = 0; i < c->seat_count; i++) c->seats[i]->group_rank = -1;
    for (uint32_t i = 0; i < f->count; i++) {
        const struct assignment_node *a = &f->nodes[i];
        struct coordinator_seat *s = a->owner;
        s->group_rank = s->old_rank = a->group_rank;
        s->first_rank = a->first_rank;
        s->first_role_rank = a->first_role_rank;
        s->role_world_size = a->role_world_size;
        seat_enter(c, s, SEAT_RUNNING, now_ms);
        free(c->departed[a->group_rank]);
        c->departed[a->group_rank] = NULL;
    }
}

/* Returns whether the node of `s` has the store of the round. */
static bool has_store(const struct coordinator *c, const struct coordinator_seat *s) {
    return s->group_rank == 0 && s->store_port != 0 && s->store_port == c->store.port;
}

void coordinator_send_round(struct coordinator *c, const struct coordinator_seat *s) {
    bool prepares = s->group_rank == 0 && s->peer != NULL && c->actions->prepare_store != NULL;
    if (prepares) c->actions->prepare_store(c->arg, s->peer, c->round, has_store(c, s));
    struct rdzv_message m = {.type = RDZV_ROUND};
    m.round = (struct rdzv_round){
        .round = c->round, .restart_count = c->budget.restart_count,
        .group_rank = (uint32_t) s->group_rank, .group_world_size = c->group_size,
        .first_rank = s->first_rank, .world_size = c->world_size,
        .first_role_rank = s->first_role_rank, .role_world_size = s->role_world_size,
        .master_addr = c->store.addr, .master_port = c->store.port,
        .max_restarts = c->budget.max_restarts,
        .kept = c->kept, .incarnation = c->incarnation, .heirs = c->succession.heirs_text,
        .leader = (uint32_t) (c->succession.leader + 1)};
    if (c->succession.before.rounds_seen != 0) {
        m.round.before_seen = c->succession.before.rounds_seen;
        m.round.before_size = c->succession.before.size;
        m.round.before_place = (uint32_t) (s->ballot_before + 1);
        m.round.before_by = c->succession.before.formed_by;
    }
    seat_send(c, s, &m);
}

/* Writes the group rank, host and ranks of each node, as " 0=n1(0-7) 1=n2(8-15)". If `text` is too
 * small for all nodes, it ends with an ellipsis. */
static void describe_ranks(const struct forming *f, char *text, size_t room) {
    size_t len = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < f->count; i++) {
        const struct assignment_node *a = &f->nodes[i];
        if (len + 100 >= room) {
            (void) snprintf(text + len, room - len, " …");
            return;
        }
        int add = snprintf(text + len, room - len, " %" PRIu32 "=%.60s(%" PRIu32 "-%" PRIu32 ")",
                           a->group_rank, a->host, a->first_rank,
                           a->first_rank + a->local_world_size - 1);
        if (add > 0) len += (size_t) add;
    }
}

static void log_assignment(struct coordinator *c, const struct forming *f) {
    char text[RDZV_TEXT_MAX - 200];
    describe_ranks(f, text, sizeof(text));
    coordinator_log(c, CR_LOG_INFO,
                    "round %" PRIu64 ": %" PRIu32 " nodes, %" PRIu32 " workers, restart %" PRIu32
                    "; nodes kept %" PRIu32 ", returned %" PRIu32 ", moved %" PRIu32
                    ", new %" PRIu32 ":%s",
                    c->round, f->count, f->sum.world_size, c->budget.restart_count, f->sum.kept,
                    f->sum.returned, f->sum.moved, f->sum.fresh, text);
}

static void admit_nodes(struct coordinator *c, const struct forming *f) {
    if (c->actions->admit == NULL) return;
    for (uint32_t i = 0; i < f->count; i++) {
        const struct coordinator_seat *s = f->nodes[i].owner;
        c->actions->admit(c->arg, s->peer);
    }
}

static void begin_round(struct coordinator *c, const struct forming *f, int64_t now_ms) {
    coordinator_enter(c, COORDINATOR_RUNNING, "the round forms");
    c->round = c->next_round++;
    c->formed_by = c->id;
    c->members_changed = false;
    c->round_ms = now_ms;
    ranks_round_begins(c, now_ms);
    hang_round_begins(c);
    c->backoff_until_ms = 0;
    c->has_formed = true;
    c->gone_after_success = 0;
    c->group_size = f->count;
    c->world_size = f->sum.world_size;
    c->store = f->store;
    c->is_rebuilt = false;
    charge_close(c);
    c->kept = count_kept(f);
    give_ranks(c, f, now_ms);
    succession_round_formed(c);
    admit_nodes(c, f);
    for (uint32_t i = 0; i < f->count; i++) coordinator_send_round(c, f->nodes[i].owner);
    for (uint32_t i = 0; i < c->seat_count; i++) succession_tell_spare(c, c->seats[i]);
    log_assignment(c, f);
    coordinator_find_deadline(c, now_ms);
}

/* Chooses the store of the round. If the node with group rank 0 offers a store, that one is chosen:
 * programs of rank 0 open ports of their own at MASTER_ADDR, which is the store's address.
 * Otherwise a store is opened on the coordinator's host. f->nodes is sorted by group rank. Returns
 * 0, or a negative errno and a text in err. */
static int choose_store(struct coordinator *c, struct forming *f, struct cr_error *err) {
    const struct coordinator_seat *first = f->nodes[0].owner;
    if (first->store_port == 0) {
        return c->actions->open_store(c->arg, c->next_round, &f->store, err);
    }
    if (c->actions->close_store != NULL) c->actions->close_store(c->arg);
    (void) snprintf(f->store.addr, sizeof(f->store.addr), "%s", first->addr);
    f->store.port = first->store_port;
    return 0;
}

/* Plans the next try to open the store. Descriptors, memory or ports are often lacking for a short
 * time only, so the job ends only if all tries fail for STORE_PATIENCE_MS. */
static void store_failed(struct coordinator *c, int64_t now_ms, const char *why) {
    struct store_retry *r = &c->store_retry;
    if (r->first_ms == COORDINATOR_NEVER) {
        *r = (struct store_retry){.first_ms = now_ms, .backoff_ms = STORE_BACKOFF_MIN_MS};
        coordinator_log(c, CR_LOG_WARN, "cannot open the store of round %" PRIu64 ", trying again "
                        "for %d s: %.600s", c->next_round, (int) (STORE_PATIENCE_MS / 1000), why);
    }
    if (now_ms - r->first_ms >= STORE_PATIENCE_MS) {
        coordinator_set_why(c, "cannot open the store of round %" PRIu64 ": %.900s", c->next_round,
                            why);
        coordinator_end_job(c, RENDEZVOUS_LOST);
        return;
    }
    r->next_ms = now_ms + r->backoff_ms;
    if (2 * r->backoff_ms <= STORE_BACKOFF_MAX_MS) r->backoff_ms *= 2;
    coordinator_wake_by(c, r->next_ms);
}

static void form_round(struct coordinator *c, int64_t now_ms) {
    struct cr_error err = {0};
    struct forming f = {.store = {.addr = ""}};
    if (assign(c, now_ms, &f) < 0) {
        coordinator_set_why(c, "cannot form a round: the coordinator is out of memory");
        coordinator_end_job(c, RENDEZVOUS_LOST);
    } else if (choose_store(c, &f, &err) < 0) {
        store_failed(c, now_ms, err.text);
    } else {
        c->store_retry = (struct store_retry){.first_ms = COORDINATOR_NEVER};
        begin_round(c, &f, now_ms);
    }
    free(f.nodes);
}

/* ---- coordinator_reconcile_forming(): decides when the round forms ---- */

/* Call this if a round is due, but the coordinator has no right to form it. Decides at once what
 * the last failure costs, because all nodes of the last round have joined again or are gone. */
static void hold(struct coordinator *c) {
    charge_close(c);
    c->is_held = !c->charge.open;
}

/* Sets the time before which no round forms. The earlier leader may still run a round if it lost
 * only its connection to etcd. When a node leaves that round for this coordinator, the earlier
 * leader notices within 9/8 of a lease, and gives its other nodes one lease to stop their workers
 * (limit_ms of STOP). So after twice 9/8 of a lease no worker of that round lives. */
void forming_wait_for_older_round(struct coordinator *c, int64_t now_ms) {
    if (!c->follows_another || c->has_formed) return;
    c->quiet_until_ms = now_ms + 2 * (c->lease_ms + c->lease_ms / 8 + 1);
    coordinator_log(c, CR_LOG_INFO,
                    "a round of an earlier leader may still run; the next one begins in %g s at "
                    "the soonest",
                    (double) (c->quiet_until_ms - now_ms) / 1000);
}

/* Returns how long the coordinator waits for more nodes once min_nodes wait. If skips_last_call is
 * set, it waits only before the first round of a run: a node that comes back later is let in with
 * notice, so the other nodes need not wait for it. */
static int64_t last_call(const struct coordinator *c) {
    bool is_first = !c->has_formed && c->succession.now.rounds_seen == 0;
    return c->skips_last_call && !is_first ? 0 : c->last_call_timeout_ms;
}

/* Ends the job if more rounds have ended by the loss of a node than max_losses allows. Returns
 * whether it has ended the job. */
static bool ends_for_losses(struct coordinator *c) {
    char why[RDZV_TEXT_MAX];
    if (!budget_is_out_of_losses(&c->budget) || !succession_may_decide(c)) return false;
    (void) snprintf(why, sizeof(why), "%.800s", c->why);
    coordinator_set_why(c, "nodes were lost in %" PRIu32 " rounds, and --rdzv-conf=max_losses "
                        "allows %" PRIu32 "; the last one: %s", c->budget.losses,
                        c->budget.max_losses, why);
    coordinator_end_job(c, RENDEZVOUS_FAILED);
    return true;
}

/* Returns true if the next round has to wait, because the job backs off after a failure. */
static bool backs_off(struct coordinator *c, int64_t now_ms) {
    if (now_ms >= c->backoff_until_ms) return false;
    coordinator_wake_by(c, c->backoff_until_ms);
    return true;
}

void coordinator_reconcile_forming(struct coordinator *c, int64_t now_ms) {
    bool has_stopping = seats_stopping(c) > 0;
    /* join_timeout counts from the time at which the last node has stopped its workers. So it
     * limits only how long nodes wait for each other. */
    if (c->had_stopping && !has_stopping) c->forming_ms = now_ms;
    c->had_stopping = has_stopping;
    if (!c->succession.lacks_majority && !charge_allows_round(c, now_ms)) return;
    if (ends_for_losses(c)) return;
    if (!has_stopping && succession_may_form(c)) {
        aside_count_failure(c, now_ms);
        aside_recall(c, now_ms);
        pairs_recall(c, now_ms);
    }
    uint32_t waiting = c->in_state[SEAT_JOINED];
    if (c->store_retry.first_ms != COORDINATOR_NEVER && now_ms < c->store_retry.next_ms) return;
    coordinator_wake_by(c, now_ms + c->join_timeout_ms);
    if (waiting < c->min_nodes) {
        c->last_call_ms = COORDINATOR_NEVER;
        return;
    }
    if (c->last_call_ms == COORDINATOR_NEVER) c->last_call_ms = now_ms + last_call(c);
    /* no round forms before all nodes have stopped their workers, the last round is settled, and
     * nodes of an earlier coordinator's round have had their time to resume */
    if (!has_stopping && !succession_may_form(c)) succession_settle_with_spares(c);
    if (has_stopping || !succession_may_form(c)) return;
    if (resuming_must_wait(c, now_ms)) {
        coordinator_wake_by(c, resuming_until(c, now_ms));
        return;
    }
    bool all_back = c->group_size > 0 && !c->members_changed && waiting >= c->group_size;
    bool is_due = waiting >= c->max_nodes || all_back || now_ms >= c->last_call_ms;
    if (c->retires || backs_off(c, now_ms)) return;
    if (!is_due) coordinator_wake_by(c, c->last_call_ms);
    else if (!succession_may_decide(c)) hold(c);
    else if (pairs_allow_round(c, now_ms)) form_round(c, now_ms);
}
