/* Paired tests between nodes (--pair-check): before a round forms, the nodes that have not passed a
 * test are paired, and the two nodes of each pair test the network between them.
 *
 *   PAIR to both nodes of each pair ─► PAIRED from each node ─► the next tests, or the round
 *
 * All tests that are begun at a time have one id. A test has failed if one of its two nodes says
 * so, or does not answer in time. rules/pairs.c decides who is tested with whom, and which nodes
 * are at fault. Such a node becomes UNFIT, and is tested again only if the other nodes are too few.
 * A node keeps what it has passed until a worker of it fails, or until it joins anew. */
#include "rendezvous/coordinator/coordinator_internal.h"

#include "base/memory.h"
#include "base/time/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ANSWER_MS INT64_C(5000)  /* how long after the test's time limit an answer may come */
#define AGAIN_MS  INT64_C(10000) /* from a node's UNFIT to its next test, at the soonest */

/* ---- seats ---- */

void pairs_seat_made(struct coordinator_seat *s, const struct rdzv_join *join) {
    bool makes_tests = join->pair_port > 0 && join->pair_port <= UINT16_MAX &&
                       join->pair_timeout_ms > 0 && join->pair_timeout_ms <= RDZV_INTERVAL_MAX_MS;
    if (!makes_tests) return;
    s->pair = calloc(1, sizeof(*s->pair));
    if (s->pair == NULL) return;
    s->pair->node.id = join->instance;
    s->pair->port = (uint16_t) join->pair_port;
    s->pair->timeout_ms = join->pair_timeout_ms;
}

/* Ends the node's part in the test that runs, without a result. */
static void drop_test(struct coordinator *c, struct coordinator_seat *s) {
    if (!s->pair->is_answered) c->pairs.awaited--;
    s->pair->partner = NULL;
}

void pairs_seat_gone(struct coordinator *c, struct coordinator_seat *s) {
    if (s->pair == NULL || s->pair->partner == NULL) return;
    drop_test(c, s->pair->partner);
    drop_test(c, s);
}

void pairs_distrust(struct coordinator_seat *s) {
    if (s->pair != NULL) pairs_forget(&s->pair->node);
}

/* ---- the tests ---- */

static void send_pair(struct coordinator *c, struct coordinator_seat *s,
                      struct coordinator_seat *partner, uint32_t rank) {
    const struct coordinator_seat *first = rank == 0 ? s : partner;
    struct rdzv_message m = {.type = RDZV_PAIR};
    m.pair = (struct rdzv_pair){.id = c->pairs.id, .rank = rank, .host = partner->host,
                                .addr = partner->addr, .port = first->pair->port};
    s->pair->partner = partner;
    s->pair->is_answered = false;
    s->pair->why[0] = '\0';
    c->pairs.awaited++;
    seat_send(c, s, &m);
}

static void begin_test(struct coordinator *c, int64_t now_ms, struct coordinator_seat *a,
                       struct coordinator_seat *b) {
    int64_t a_ms = a->pair->timeout_ms, b_ms = b->pair->timeout_ms;
    int64_t until_ms = now_ms + (a_ms > b_ms ? a_ms : b_ms) + ANSWER_MS;
    if (until_ms > c->pairs.until_ms) c->pairs.until_ms = until_ms;
    send_pair(c, a, b, 0);
    send_pair(c, b, a, 1);
}

/* Notes the result when both nodes have answered. If only one of them has named a reason, it is the
 * reason for both. */
static void conclude(struct coordinator *c, struct coordinator_seat *s) {
    struct coordinator_seat *other = s->pair->partner;
    struct seat_pair *a = s->pair, *b = other->pair;
    bool passed = a->why[0] == '\0' && b->why[0] == '\0';
    if (!a->is_answered || !b->is_answered) return;
    a->partner = b->partner = NULL;
    pairs_note(&a->node, &b->node, passed);
    if (passed) return;
    if (a->why[0] == '\0') memcpy(a->why, b->why, sizeof(a->why));
    if (b->why[0] == '\0') memcpy(b->why, a->why, sizeof(b->why));
    (void) snprintf(a->with, sizeof(a->with), "%s", other->host);
    (void) snprintf(b->with, sizeof(b->with), "%s", s->host);
    coordinator_log(c, CR_LOG_WARN, "the paired test of '%.200s' and '%.200s' has failed: %s",
                    s->host, other->host, a->why);
}

static void note_answer(struct coordinator *c, struct coordinator_seat *s, const char *why) {
    c->pairs.awaited--;
    s->pair->is_answered = true;
    (void) snprintf(s->pair->why, sizeof(s->pair->why), "%s", why);
    conclude(c, s);
}

void pairs_got(struct coordinator *c, struct coordinator_seat *s, const struct rdzv_paired *m) {
    bool is_awaited = s->pair != NULL && s->pair->partner != NULL && !s->pair->is_answered;
    if (is_awaited && m->id == c->pairs.id) note_answer(c, s, m->why);
}

void pairs_tick(struct coordinator *c, int64_t now_ms) {
    if (c->pairs.awaited == 0 || now_ms < c->pairs.until_ms) return;
    for (uint32_t i = 0; i < c->seat_count; i++) {
        struct coordinator_seat *s = c->seats[i];
        bool is_late = s->pair != NULL && s->pair->partner != NULL && !s->pair->is_answered;
        if (is_late) note_answer(c, s, "it has not answered within the time of the paired test");
    }
    coordinator_reconcile(c, now_ms);
}

/* ---- nodes that are not fit ---- */

/* Makes the node UNFIT. What its tests have shown is forgotten, so that the node can be tested with
 * the same nodes again later. */
static void turn_out(struct coordinator *c, int64_t now_ms, struct coordinator_seat *s,
                     enum pairs_verdict verdict) {
    struct seat_pair *p = s->pair;
    char why[SEAT_UNFIT_MAX], name[SEAT_NAME_MAX];
    if (verdict == PAIRS_UNCLEAR) {
        (void) snprintf(why, sizeof(why), "its paired test with '%.40s' has failed, and no third "
                        "node is there to show which of them is at fault: %.100s", p->with, p->why);
    } else {
        (void) snprintf(why, sizeof(why), "its paired tests have failed, the last one with "
                        "'%.60s': %.140s", p->with, p->why);
    }
    p->is_out = true;
    p->lacks_third = verdict == PAIRS_UNCLEAR;
    p->again_ms = now_ms + AGAIN_MS;
    pairs_forget(&p->node);
    if (s->group_rank >= 0) c->members_changed = true;
    seat_set_unfit(c, s, why, now_ms);
    seat_name(s, name);
    coordinator_log(c, CR_LOG_WARN, "%s is not fit and gets no place in a round: %s", name, why);
}

bool pairs_made_unfit(const struct coordinator_seat *s) {
    return s->state == SEAT_UNFIT && s->pair != NULL && s->pair->is_out;
}

/* Returns whether a node waits that has failed in no test, and has passed none since it joined or
 * since a worker of it failed; it can show which of two nodes is at fault. A node that has
 * failed before cannot: if it counted, nodes that fail with each other would be tested again at
 * once. */
static bool has_third(const struct coordinator *c) {
    for (uint32_t i = 0; i < c->seat_count; i++) {
        const struct coordinator_seat *s = c->seats[i];
        bool waits = s->state == SEAT_JOINED && s->pair != NULL;
        bool has_failed = waits && s->pair->with[0] != '\0';
        if (waits && !has_failed && s->pair->node.state == PAIRS_UNTESTED) return true;
    }
    return false;
}

void pairs_recall(struct coordinator *c, int64_t now_ms) {
    if (c->in_state[SEAT_UNFIT] == 0 || c->in_state[SEAT_JOINED] >= c->min_nodes) return;
    bool third = has_third(c);
    for (uint32_t i = 0; i < c->seat_count; i++) {
        struct coordinator_seat *s = c->seats[i];
        bool is_due = pairs_made_unfit(s) &&
                      (now_ms >= s->pair->again_ms || (third && s->pair->lacks_third));
        if (!is_due) continue;
        s->pair->is_out = false;
        seat_set_unfit(c, s, "", now_ms);
    }
}

int64_t pairs_deadline(const struct coordinator *c, int64_t now_ms) {
    int64_t first_ms = c->pairs.awaited > 0 ? c->pairs.until_ms : CR_FOREVER;
    if (c->phase != COORDINATOR_FORMING || c->in_state[SEAT_UNFIT] == 0) return first_ms;
    for (uint32_t i = 0; i < c->seat_count; i++) {
        const struct seat_pair *p = c->seats[i]->pair;
        bool is_due_later = p != NULL && p->is_out && p->again_ms > now_ms;
        if (is_due_later && p->again_ms < first_ms) first_ms = p->again_ms;
    }
    return first_ms;
}

/* ---- before a round ---- */

/* The nodes that can be tested now; `seats` and `nodes` have the same order. */
struct candidates {
    struct coordinator_seat **seats;
    struct pairs_node **nodes;
    enum pairs_verdict *verdicts;
    bool *used;
    struct pairs_pair *pairs;
    size_t count;
};

static bool collect(const struct coordinator *c, struct candidates *k) {
    size_t room = c->seat_count;
    k->seats = calloc(room, sizeof(*k->seats));
    k->nodes = calloc(room, sizeof(*k->nodes));
    k->verdicts = calloc(room, sizeof(*k->verdicts));
    k->used = calloc(room, sizeof(*k->used));
    k->pairs = calloc(room, sizeof(*k->pairs));
    if (k->seats == NULL || k->nodes == NULL || k->verdicts == NULL || k->used == NULL ||
        k->pairs == NULL) return false;
    for (uint32_t i = 0; i < c->seat_count; i++) {
        struct coordinator_seat *s = c->seats[i];
        if (s->state != SEAT_JOINED || s->pair == NULL) continue;
        k->seats[k->count] = s;
        k->nodes[k->count++] = &s->pair->node;
    }
    return true;
}

static void free_candidates(const struct candidates *k) {
    free(k->seats);
    free(k->nodes);
    free(k->verdicts);
    free(k->used);
    free(k->pairs);
}

/* Makes the nodes UNFIT that are at fault. Returns their number. */
static size_t make_unfit(struct coordinator *c, int64_t now_ms, const struct candidates *k) {
    size_t turned_out = 0;
    for (size_t i = 0; i < k->count; i++) k->verdicts[i] = pairs_judge(k->nodes, k->count, i);
    for (size_t i = 0; i < k->count; i++) {
        if (k->verdicts[i] == PAIRS_FIT) continue;
        turn_out(c, now_ms, k->seats[i], k->verdicts[i]);
        turned_out++;
    }
    return turned_out;
}

static bool begin_tests(struct coordinator *c, int64_t now_ms, const struct candidates *k) {
    size_t n = pairs_plan(k->nodes, k->count, k->used, k->pairs);
    if (n == 0) return false;
    /* The ids of two coordinators differ, so that a late PAIRED that was meant for one coordinator
     * is no answer to the tests of another one. */
    c->pairs.id = (c->pairs.id != 0 ? c->pairs.id : c->id) + 1;
    c->pairs.until_ms = 0;
    coordinator_log(c, CR_LOG_INFO, "paired tests between nodes begin: %zu pair%s", n,
                    n == 1 ? "" : "s");
    for (size_t i = 0; i < n; i++) {
        begin_test(c, now_ms, k->seats[k->pairs[i].a], k->seats[k->pairs[i].b]);
    }
    coordinator_wake_by(c, c->pairs.until_ms);
    return true;
}

static bool makes_tests(const struct coordinator *c) {
    for (uint32_t i = 0; i < c->seat_count; i++) {
        if (c->seats[i]->pair != NULL) return true;
    }
    return false;
}

bool pairs_allow_round(struct coordinator *c, int64_t now_ms) {
    struct candidates k = {0};
    bool allowed = false;
    if (c->pairs.awaited > 0) return false;
    if (!makes_tests(c)) return true;
    if (!collect(c, &k)) {
        coordinator_log(c, CR_LOG_WARN, "the paired tests are left out: no memory left");
        allowed = true;
    } else if (make_unfit(c, now_ms, &k) > 0) {
        coordinator_wake_by(c, now_ms + AGAIN_MS);
        free_candidates(&k);
        coordinator_reconcile_forming(c, now_ms); /* the other nodes may be enough for a round */
        return false;
    } else {
        allowed = !begin_tests(c, now_ms, &k);
    }
    free_candidates(&k);
    return allowed;
}
