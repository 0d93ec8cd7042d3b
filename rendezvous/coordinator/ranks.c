/* What the workers of all nodes do now, for snapshots and for the rule about slow ranks.
 *
 * The coordinator sends ASK_RANKS to the nodes of the round, and each node answers with one RANK
 * for each worker. While somebody looks at snapshots, it asks every second, or less often in a job
 * of more than 1000 ranks. If the job has the rule (slow_percent > 0), it asks once in each window.
 * Otherwise it never asks. A second after the end of a window, the steps that each rank has made
 * since the window before are compared (rules/slow.c). Nodes older than protocol version 7 do not
 * answer. */
#include "rendezvous/coordinator/coordinator_internal.h"

#include "base/time/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* how long the coordinator asks the nodes after somebody has looked at a snapshot */
#define WATCH_MS     INT64_C(60000)
/* The time between two ASK_RANKS for snapshots is ASK_MS, and ASK_MS longer for each
 * RANKS_PER_ASK_MS ranks of the job; at most it is FRESH_MS / 2. */
#define ASK_MS       INT64_C(1000)
#define RANKS_PER_ASK_MS 1024
#define ANSWER_MS    INT64_C(1000)  /* how long nodes may take to answer at the end of a window */
#define FRESH_MS     INT64_C(15000) /* age in ms from which on the RANK of a worker is not shown */
#define NAMED_MAX    8              /* largest number of slow ranks that a line names */

/* ---- asking ---- */

static void ask(struct coordinator *c) {
    struct rdzv_message m = {.type = RDZV_ASK_RANKS};
    m.ask_ranks.round = c->round;
    for (uint32_t i = 0; i < c->seat_count; i++) {
        if (c->seats[i]->state == SEAT_RUNNING) seat_send(c, c->seats[i], &m);
    }
}

static int64_t ask_interval_ms(const struct coordinator *c) {
    int64_t interval_ms = ASK_MS * (1 + c->world_size / RANKS_PER_ASK_MS);
    return interval_ms < FRESH_MS / 2 ? interval_ms : FRESH_MS / 2;
}

void coordinator_watch_ranks(struct coordinator *c, int64_t now_ms) {
    bool is_watched = now_ms < c->ranks.watch_until_ms;
    c->ranks.watch_until_ms = now_ms + WATCH_MS;
    if (is_watched || c->phase != COORDINATOR_RUNNING) return;
    c->ranks.ask_ms = now_ms;
    coordinator_wake_by(c, now_ms);
}

void ranks_round_begins(struct coordinator *c, int64_t now_ms) {
    c->ranks.window_ms = c->ranks.slow_percent > 0 ? now_ms + c->ranks.slow_ms : CR_FOREVER;
    c->ranks.judge_ms = CR_FOREVER;
    c->ranks.ask_ms = now_ms < c->ranks.watch_until_ms ? now_ms + ASK_MS : CR_FOREVER;
    c->ranks.slow[0] = '\0';
    coordinator_wake_by(c, ranks_deadline(c));
}

/* ---- answers ---- */

static void keep_text(char *out, size_t room, const char *text) {
    (void) snprintf(out, room, "%s", text);
}

void ranks_got(struct coordinator *c, struct coordinator_seat *s, const struct rdzv_rank *r,
               int64_t now_ms) {
    bool is_mine = r->round == c->round && s->group_rank >= 0 && seat_has_rank(s, r->rank);
    if (!is_mine) return;
    if (s->reports == NULL) s->reports = calloc(s->local_world_size, sizeof(*s->reports));
    if (s->reports == NULL) return;
    struct rank_report *report = &s->reports[r->rank - s->first_rank];
    if (report->seen_ms == 0 || report->round != r->round) report->has_before = false;
    report->round = r->round;
    report->seen_ms = now_ms > 0 ? now_ms : 1;
    report->rank = *r;
    keep_text(report->state, sizeof(report->state), r->state);
    keep_text(report->kernel_state, sizeof(report->kernel_state), r->kernel_state);
    keep_text(report->last_line, sizeof(report->last_line), r->last_line);
}

void coordinator_visit_ranks(const struct coordinator *c, int64_t now_ms,
                             void (*visit)(void *arg, const struct rank_view *rank), void *arg) {
    for (uint32_t i = 0; i < c->seat_count; i++) {
        const struct coordinator_seat *s = c->seats[i];
        for (uint32_t k = 0; s->reports != NULL && k < s->local_world_size; k++) {
            const struct rank_report *report = &s->reports[k];
            int64_t age_ms = now_ms - report->seen_ms;
            if (report->seen_ms == 0 || report->round != c->round || age_ms > FRESH_MS) continue;
            struct rank_view view = {.host = s->host, .age_ms = age_ms, .rank = report->rank};
            view.rank.state = report->state;
            view.rank.kernel_state = report->kernel_state;
            view.rank.last_line = report->last_line;
            visit(arg, &view);
        }
    }
}

/* ---- the rule about slow ranks ---- */

/* Writes to `out` how many steps each rank of the seat has made in the window that has ended, and
 * notes the steps so far for the next window. Leaves out a rank that counts no steps, that has not
 * answered since `since_ms`, or whose steps at the begin of the window are not known. Returns the
 * number of entries. */
static size_t take_steps(struct coordinator_seat *s, int64_t since_ms, struct slow_entry *out) {
    size_t count = 0;
    for (uint32_t k = 0; s->reports != NULL && k < s->local_world_size; k++) {
        struct rank_report *report = &s->reports[k];
        uint64_t steps = report->rank.steps;
        if (report->seen_ms < since_ms || steps == 0) continue;
        if (report->has_before && steps >= report->steps_before) {
            out[count++] = (struct slow_entry){report->rank.rank, steps - report->steps_before};
        }
        report->steps_before = steps;
        report->has_before = true;
    }
    return count;
}

static struct coordinator_seat *seat_of_rank(const struct coordinator *c, uint32_t rank) {
    for (uint32_t i = 0; i < c->seat_count; i++) {
        struct coordinator_seat *s = c->seats[i];
        if (s->reports != NULL && s->group_rank >= 0 && seat_has_rank(s, rank)) return s;
    }
    return NULL;
}

/* Writes the line about slow ranks to c->ranks.slow: each slow rank, its host and its steps per
 * second, and the steps per second of the median rank. */
static void describe(struct coordinator *c, const struct slow_entry *slow, size_t count,
                     uint64_t median) {
    char *out = c->ranks.slow;
    size_t room = sizeof(c->ranks.slow), len = 0;
    double window_s = (double) c->ranks.slow_ms / 1000;
    for (size_t i = 0; i < count && i < NAMED_MAX; i++) {
        const struct coordinator_seat *s = seat_of_rank(c, slow[i].rank);
        int add = snprintf(out + len, room - len, "%srank %" PRIu32 " on %.60s (%.2f)",
                           i > 0 ? ", " : "", slow[i].rank, s != NULL ? s->host : "?",
                           (double) slow[i].made / window_s);
        if (add > 0) len += (size_t) add;
    }
    (void) snprintf(out + len, room - len,
                    "%s: less than %" PRIu32 " %% of the steps a second of the median rank (%.2f)",
                    count > NAMED_MAX ? ", …" : "", c->ranks.slow_percent,
                    (double) median / window_s);
}

/* Returns whether the job goes on if one node of the round leaves: a spare takes its place, or the
 * other nodes are enough. */
static bool can_spare_a_node(const struct coordinator *c) {
    return c->in_state[SEAT_JOINED] > 0 || c->group_size > c->min_nodes;
}

/* Requests that the node of the slowest rank gives notice, if slow_notice is set and the job can go
 * on without the node. Requests this of only one node in a window, because the slowest rank may be
 * the reason why the ranks of other nodes are slow. */
static void give_notice(struct coordinator *c, uint32_t rank) {
    struct coordinator_seat *s = seat_of_rank(c, rank);
    struct rdzv_message m = {.type = RDZV_ASK_NOTICE};
    bool may_leave = s != NULL && !s->gave_notice && can_spare_a_node(c);
    if (c->ranks.notice_ms <= 0 || !may_leave) return;
    m.ask_notice = (struct rdzv_ask_notice){.kind = RENDEZVOUS_CHANGE_MAINTENANCE,
                                            .left_ms = c->ranks.notice_ms, .why = c->ranks.slow};
    seat_send(c, s, &m);
}

static void judge(struct coordinator *c, int64_t since_ms) {
    uint64_t median = 0;
    size_t count = 0;
    struct slow_entry *entries = calloc(c->world_size + (size_t) 1, sizeof(*entries));
    if (entries == NULL) return;
    for (uint32_t i = 0; i < c->seat_count; i++) {
        struct coordinator_seat *s = c->seats[i];
        bool fits = s->group_rank >= 0 && count + s->local_world_size <= c->world_size;
        if (fits) count += take_steps(s, since_ms, entries + count);
    }
    size_t slow = slow_find(entries, count, c->ranks.slow_percent, &median);
    bool was_slow = c->ranks.slow[0] != '\0';
    c->ranks.slow[0] = '\0';
    if (slow > 0) {
        describe(c, entries, slow, median);
        coordinator_log(c, CR_LOG_WARN, "slow: %s", c->ranks.slow);
        give_notice(c, entries[0].rank);
    } else if (was_slow) {
        coordinator_log(c, CR_LOG_INFO, "no rank is slow any more");
    }
    free(entries);
}

/* ---- time ---- */

int64_t ranks_deadline(const struct coordinator *c) {
    const struct coordinator_ranks *r = &c->ranks;
    if (c->phase != COORDINATOR_RUNNING) return CR_FOREVER;
    int64_t when_ms = r->ask_ms < r->window_ms ? r->ask_ms : r->window_ms;
    return when_ms < r->judge_ms ? when_ms : r->judge_ms;
}

void ranks_tick(struct coordinator *c, int64_t now_ms) {
    struct coordinator_ranks *r = &c->ranks;
    if (now_ms < ranks_deadline(c)) return;
    if (now_ms >= r->judge_ms) {
        r->judge_ms = CR_FOREVER;
        judge(c, r->asked_ms);
    }
    bool ends_window = now_ms >= r->window_ms;
    if (ends_window || now_ms >= r->ask_ms) ask(c);
    if (ends_window) {
        r->asked_ms = now_ms;
        r->judge_ms = now_ms + ANSWER_MS;
        r->window_ms = now_ms + (r->slow_ms > 2 * ANSWER_MS ? r->slow_ms : 2 * ANSWER_MS);
    }
    if (now_ms >= r->ask_ms) {
        r->ask_ms = now_ms < r->watch_until_ms ? now_ms + ask_interval_ms(c) : CR_FOREVER;
    }
}
