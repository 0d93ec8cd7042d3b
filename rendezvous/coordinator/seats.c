/* The list of seats: one for each node, from its JOIN until the node is gone. This file also counts
 * the seats in each state, because coordinator_reconcile() needs these counts after every event. */
#include "rendezvous/coordinator/coordinator_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void seat_name(const struct coordinator_seat *s, char out[SEAT_NAME_MAX]) {
    (void) snprintf(out, SEAT_NAME_MAX, "node '%.200s' (%.60s, process %" PRIu64 ")", s->host,
                    s->addr, s->pid);
}

void seat_take_part(struct coordinator *c, struct coordinator_seat *s, enum seat_change next) {
    c->in_change[s->change]--;
    c->in_change[next]++;
    s->change = next;
}

void seat_enter(struct coordinator *c, struct coordinator_seat *s, enum seat_state next,
                int64_t now_ms) {
    coordinator_log(c, CR_LOG_DEBUG, "node '%.200s' (process %" PRIu64 "): %s -> %s", s->host,
                    s->pid, seat_state_name(s->state), seat_state_name(next));
    seat_take_part(c, s, CHANGE_NONE);
    c->in_state[s->state]--;
    c->in_state[next]++;
    s->state = next;
    s->missed_round = false;
    s->since_ms = now_ms;
    s->told = 0;
    s->told_spare = false;
    coordinator_wake_by(c, coordinator_waiting_due(c, s));
}

uint32_t seats_stopping(const struct coordinator *c) {
    return c->in_state[SEAT_STOPPING] + c->in_state[SEAT_LEAVING] - c->left_idle;
}

bool seat_awaits_round(const struct coordinator_seat *s) {
    return s->state == SEAT_JOINED || s->state == SEAT_ASIDE || s->state == SEAT_UNFIT;
}

bool seat_waits(const struct coordinator_seat *s) { return seat_awaits_round(s) || s->left_idle; }

void seat_send(struct coordinator *c, const struct coordinator_seat *s,
               const struct rdzv_message *m) {
    if (s->peer != NULL) c->actions->send(c->arg, s->peer, m);
}

/* ---- adding a seat ---- */

static int reserve(struct coordinator *c) {
    if (c->seat_count < c->seat_cap) return 0;
    uint32_t cap = c->seat_cap != 0 ? 2 * c->seat_cap : 8;
    struct coordinator_seat **grown = realloc(c->seats, cap * sizeof(*grown));
    if (grown == NULL) return -ENOMEM;
    c->seats = grown;
    c->seat_cap = cap;
    return 0;
}

static void seat_free(struct coordinator_seat *s) {
    free(s->unfit);
    free(s->reports);
    hang_seat_done(s);
    free(s->pair);
    free(s);
}

static struct coordinator_seat *seat_make(int64_t now_ms, void *peer, bool local,
                                          const struct rdzv_join *join) {
    size_t host_len = strlen(join->host) + 1, addr_len = strlen(join->addr) + 1;
    size_t role_len = strlen(join->role) + 1;
    /* one allocation for the seat and its texts: three more would cost 50 bytes a node */
    struct coordinator_seat *s = malloc(sizeof(*s) + host_len + addr_len + role_len);
    if (s == NULL) return NULL;
    *s = (struct coordinator_seat){
        .peer = peer, .state = SEAT_JOINED, .local = local,
        .pid = join->pid, .instance = join->instance, .connection = join->connection,
        .incarnation = join->incarnation,
        .node_rank = join->node_rank, .local_world_size = join->local_world_size,
        .store_port = (uint16_t) join->store_port,
        .group_rank = -1, .old_rank = join->last_rank,
        .stop_limit_ms = join->stop_limit_ms,
        .joined_ms = now_ms, .since_ms = now_ms, .heard_ms = now_ms,
        .suspected_ms = COORDINATOR_NEVER};
    hang_seat_made(s, join->watches);
    pairs_seat_made(s, join);
    s->host = memcpy(s->texts, join->host, host_len);
    s->addr = memcpy(s->texts + host_len, join->addr, addr_len);
    s->role = memcpy(s->texts + host_len + addr_len, join->role, role_len);
    return s;
}

const char *seat_unfit(const struct coordinator_seat *s) {
    if (!s->is_unfit) return "";
    return s->unfit != NULL ? s->unfit : "the reason is not known: memory was short";
}

/* Notes whether the node is fit, as its JOIN says. */
static void note_health(struct coordinator_seat *s, const char *unfit) {
    s->is_unfit = unfit != NULL && unfit[0] != '\0';
    free(s->unfit);
    s->unfit = s->is_unfit ? strndup(unfit, SEAT_UNFIT_MAX - 1) : NULL;
}

/* Returns the state of a node that waits for a round and is not QUEUED: UNFIT or JOINED. */
static enum seat_state free_state(const struct coordinator_seat *s) {
    return s->is_unfit ? SEAT_UNFIT : SEAT_JOINED;
}

void seat_set_unfit(struct coordinator *c, struct coordinator_seat *s, const char *why,
                    int64_t now_ms) {
    note_health(s, why);
    seat_enter(c, s, free_state(s), now_ms);
}

void seat_join(struct coordinator *c, struct coordinator_seat *s, const struct rdzv_join *join,
               int64_t now_ms) {
    char name[SEAT_NAME_MAX];
    bool was_unfit = s->is_unfit;
    note_health(s, join->unfit);
    if (s->pair != NULL) s->pair->is_out = false;
    s->kept = join->kept <= s->local_world_size + 1 ? join->kept : 0;
    seat_name(s, name);
    if (s->is_unfit) {
        coordinator_log(c, CR_LOG_WARN, "%s is not fit and gets no place in a round: %s", name,
                        seat_unfit(s));
    } else if (was_unfit) {
        coordinator_log(c, CR_LOG_INFO, "%s has passed its health check now", name);
    }
    bool is_new_state = s->state != SEAT_QUEUED && s->state != free_state(s);
    if (is_new_state) seat_enter(c, s, free_state(s), now_ms);
}

void seat_queue(struct coordinator *c, struct coordinator_seat *s, struct coordinator_seat *first,
                int64_t now_ms) {
    first->next = s;
    s->waits_for = first;
    seat_enter(c, s, SEAT_QUEUED, now_ms);
}

/* Call this when `s` is removed. If `s` waits for another seat, that seat has no second node any
 * more. If a second node waits for `s`, its seat becomes JOINED; or ASIDE, because the loss of `s`
 * may have slowed their host. */
static void leave_queue(struct coordinator *c, struct coordinator_seat *s) {
    if (s->waits_for != NULL) s->waits_for->next = NULL;
    if (s->next == NULL) return;
    s->next->waits_for = NULL;
    if (s->next->state != SEAT_QUEUED) return;
    seat_enter(c, s->next, free_state(s->next), s->next->heard_ms);
    aside_place(c, s->next->heard_ms, s->next);
}

static void unindex_seat(struct coordinator *c, const struct coordinator_seat *s) {
    seat_table_remove(&c->by_instance, s->instance, s);
    seat_table_remove(&c->by_node_rank, (uint64_t) s->node_rank, s);
}

static int index_seat(struct coordinator *c, struct coordinator_seat *s) {
    int rc = s->local ? 0 : seat_table_add(&c->by_instance, s->instance, s);
    if (rc == 0 && c->fixed_ranks) {
        rc = seat_table_add(&c->by_node_rank, (uint64_t) s->node_rank, s);
    }
    if (rc < 0) unindex_seat(c, s);
    return rc;
}

struct coordinator_seat *seat_new(struct coordinator *c, int64_t now_ms, void *peer, bool local,
                                  const struct rdzv_join *join) {
    struct coordinator_seat *s = reserve(c) == 0 ? seat_make(now_ms, peer, local, join) : NULL;
    if (s == NULL) return NULL;
    if (index_seat(c, s) < 0) {
        seat_free(s);
        return NULL;
    }
    s->index = c->seat_count;
    c->seats[c->seat_count++] = s;
    c->in_state[SEAT_JOINED]++;
    c->in_change[CHANGE_NONE]++;
    if (!local) coordinator_wake_by(c, now_ms + c->lease_ms);
    coordinator_wake_by(c, coordinator_waiting_due(c, s));
    succession_seat_new(c, now_ms, s, join);
    return s;
}

/* ---- removing a seat ---- */

/* Notes which host the removed seat's group rank was on, so that a node of that host can get the
 * rank back. If memory is short, the host is not noted, and the node gets any free rank. */
static void note_departed(struct coordinator *c, const struct coordinator_seat *s) {
    if (s->group_rank < 0 || (uint64_t) s->group_rank >= c->departed_count) return;
    free(c->departed[s->group_rank]);
    c->departed[s->group_rank] = strdup(s->host);
}

void seat_remove(struct coordinator *c, struct coordinator_seat *s) {
    note_departed(c, s);
    pairs_seat_gone(c, s);
    charge_forget(c, s);
    succession_seat_gone(c, s);
    if (s->peer == NULL) c->suspended--;
    if (s->left_idle) c->left_idle--;
    unindex_seat(c, s);
    leave_queue(c, s);
    c->in_state[s->state]--;
    c->in_change[s->change]--;
    c->seats[s->index] = c->seats[--c->seat_count];
    c->seats[s->index]->index = s->index;
    seat_free(s);
}

void seats_free(struct coordinator *c) {
    for (uint32_t i = 0; i < c->seat_count; i++) seat_free(c->seats[i]);
    for (uint32_t i = 0; i < c->departed_count; i++) free(c->departed[i]);
    free(c->departed);
    free(c->seats);
    seat_table_done(&c->by_instance);
    seat_table_done(&c->by_node_rank);
}
