/* Sends WAITING to nodes that wait for a round. The message says why they wait: which nodes are
 * here, which are missing, and how long the wait may still take. Each node gets the first WAITING
 * after 5 s, and further ones at growing intervals (base/time/waiting.h). */
#include "rendezvous/coordinator/coordinator_internal.h"

#include "base/buffer.h"
#include "base/memory.h"
#include "base/time/clock.h"
#include "base/time/waiting.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LISTED_RANKS 8 /* largest number of missing node ranks that a text names */

/* ---- the texts ---- */

void coordinator_list_hosts(const struct coordinator *c, char *out, size_t room) {
    size_t len = 0;
    uint32_t i = 0;
    (void) snprintf(out, room, "none");
    for (; i < c->seat_count && len + 100 < room; i++) {
        const struct coordinator_seat *s = c->seats[i];
        const char *comma = len == 0 ? "" : ", ";
        if (s->state == SEAT_QUEUED) continue; /* another seat has its node rank */
        const char *unfit = s->is_unfit ? " (not fit: crun-agent status says why)" : "";
        int add = s->node_rank >= 0
                      ? snprintf(out + len, room - len, "%s%.60s (node rank %" PRId64 ")%s", comma,
                                 s->host, s->node_rank, unfit)
                      : snprintf(out + len, room - len, "%s%.60s%s", comma, s->host, unfit);
        if (add > 0) len += (size_t) add;
    }
    if (i < c->seat_count) (void) snprintf(out + len, room - len, ", …");
}

/* Returns an array with one element for each node rank: 1 if a node has the rank, else 0. The
 * caller frees it. Returns NULL when memory is short. */
static unsigned char *mark_ranks(const struct coordinator *c) {
    unsigned char *here = calloc(c->max_nodes, 1);
    for (uint32_t i = 0; here != NULL && i < c->seat_count; i++) {
        int64_t rank = c->seats[i]->node_rank;
        if (rank >= 0 && rank < c->max_nodes) here[rank] = 1;
    }
    return here;
}

void coordinator_list_missing(const struct coordinator *c, char *out, size_t room) {
    size_t len = 0;
    uint32_t listed = 0;
    CR_AUTO_FREE unsigned char *here = c->fixed_ranks ? mark_ranks(c) : NULL;
    out[0] = '\0';
    for (uint32_t rank = 0; here != NULL && rank < c->max_nodes; rank++) {
        if (here[rank]) continue;
        bool is_last = listed++ == LISTED_RANKS;
        int add = is_last ? snprintf(out + len, room - len, ", …")
                          : snprintf(out + len, room - len, "%s %" PRIu32,
                                     len == 0 ? "; missing: node rank" : ",", rank);
        if (add > 0) len += (size_t) add;
        if (is_last || len >= room) return;
    }
}

static void describe_forming(const struct coordinator *c, char *out, size_t room) {
    char here[400], missing[120];
    const char *other = NULL;
    uint32_t stopping = seats_stopping(c);
    if (c->actions->other_waiting != NULL) other = c->actions->other_waiting(c->arg);
    coordinator_list_hosts(c, here, sizeof(here));
    coordinator_list_missing(c, missing, sizeof(missing));
    int len = snprintf(out, room, "for more nodes: %" PRIu32 " of %s%" PRIu32 " are here: %s%s",
                       c->in_state[SEAT_JOINED], c->min_nodes < c->max_nodes ? "at least " : "",
                       c->min_nodes, here, missing);
    if (len > 0 && stopping > 0 && (size_t) len < room) {
        len += snprintf(out + len, room - (size_t) len,
                        "; %" PRIu32 " of them still stop their workers", stopping);
    }
    if (len > 0 && other != NULL && (size_t) len < room) {
        (void) snprintf(out + len, room - (size_t) len,
                        "; nodes of job '%.100s' wait at the same endpoint, is one --rdzv-id "
                        "wrong?", other);
    } else if (len > 0 && (size_t) len < room && c->seat_count < c->min_nodes) {
        (void) snprintf(out + len, room - (size_t) len,
                        "; start the others with the same endpoint and --rdzv-id");
    }
}

/* Returns whether nodes that wait are spares: a round runs, and it has max_nodes nodes. */
static bool is_spare(const struct coordinator *c) {
    return c->phase == COORDINATOR_RUNNING && c->group_size >= c->max_nodes;
}

static void describe(const struct coordinator *c, char *out, size_t room) {
    if (is_spare(c)) {
        (void) snprintf(out, room,
                        "as a spare: the round has all of its %" PRIu32
                        " nodes, and this node takes the place of one that is lost", c->group_size);
    } else if (c->phase == COORDINATOR_RUNNING) {
        (void) snprintf(out, room, "for the end of the round that runs without this node");
    } else if (c->pairs.awaited > 0) {
        (void) snprintf(out, room, "for the paired tests between the nodes (--pair-check)");
    } else if (c->in_state[SEAT_JOINED] >= c->min_nodes && c->last_call_ms != COORDINATOR_NEVER) {
        (void) snprintf(out, room,
                        "for more nodes: %" PRIu32 " are here, which is enough, but up to %" PRIu32
                        " may come", c->in_state[SEAT_JOINED], c->max_nodes);
    } else {
        describe_forming(c, out, room);
    }
}

/* ---- sending WAITING ---- */

int64_t coordinator_waiting_due(const struct coordinator *c, const struct coordinator_seat *s) {
    bool is_out = pairs_made_unfit(s);
    bool waits = s->state == SEAT_JOINED || s->state == SEAT_ASIDE || is_out;
    if (!waits || c->phase == COORDINATOR_ENDED) return CR_FOREVER;
    if (is_out) return s->since_ms + (s->told == 0 ? 0 : cr_waiting_line_ms(s->told));
    if (s->state == SEAT_ASIDE && s->told == 0) return s->since_ms;
    if (s->state == SEAT_ASIDE) return s->since_ms + cr_waiting_line_ms(s->told);
    if (is_spare(c) && s->told_spare) return CR_FOREVER;
    return s->since_ms + cr_waiting_line_ms(s->told);
}

static void tell(struct coordinator *c, struct coordinator_seat *s, int64_t now_ms,
                 const char *what) {
    struct rdzv_message m = {.type = RDZV_WAITING};
    int64_t until_ms = coordinator_state_limit(c, s);
    if (c->phase == COORDINATOR_FORMING && c->last_call_ms != COORDINATOR_NEVER) {
        until_ms = c->last_call_ms;
    }
    if (s->state == SEAT_UNFIT) {
        if (s->told == 0) s->told = 1;
        until_ms = coordinator_state_limit(c, s);
    }
    m.waiting = (struct rdzv_waiting){.waited_ms = now_ms - s->since_ms, .left_ms = -1,
                                      .what = what};
    if (until_ms != CR_FOREVER) m.waiting.left_ms = until_ms > now_ms ? until_ms - now_ms : 0;
    if (s->state == SEAT_ASIDE) {
        if (s->told == 0) s->told = 1;
        m.waiting.left_ms = s->aside_until_ms > now_ms ? s->aside_until_ms - now_ms : 0;
    }
    /* `told` becomes the number of the next message whose time has not passed. Earlier messages are
     * left out, for example those of the time in which a node was a spare. */
    while (s->since_ms + cr_waiting_line_ms(s->told) <= now_ms) s->told++;
    s->told_spare = s->state == SEAT_JOINED && is_spare(c);
    c->actions->send(c->arg, s->peer, &m);
}

void coordinator_tell_waiting(struct coordinator *c, int64_t now_ms) {
    char what[RDZV_TEXT_MAX];
    bool is_written = false; /* true: `what` has the text, which is the same for all nodes */
    for (uint32_t i = 0; i < c->seat_count; i++) {
        struct coordinator_seat *s = c->seats[i];
        if (now_ms < coordinator_waiting_due(c, s)) continue;
        if (s->state == SEAT_ASIDE) {
            char own[RDZV_TEXT_MAX];
            aside_describe(c, now_ms, s, own, sizeof(own));
            tell(c, s, now_ms, own);
            continue;
        }
        if (s->state == SEAT_UNFIT) {
            char own[RDZV_TEXT_MAX];
            (void) snprintf(own, sizeof(own), "without a place, because this node is not fit: %s",
                            seat_unfit(s));
            tell(c, s, now_ms, own);
            continue;
        }
        if (!is_written) describe(c, what, sizeof(what));
        is_written = true;
        tell(c, s, now_ms, what);
    }
}
