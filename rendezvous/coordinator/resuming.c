/* Nodes whose connection was lost while their round goes on, and the rebuilding of a running round
 * by a new coordinator.
 *
 * A seat is *suspended* while its node has no connection: nothing can be sent to the node, and its
 * lease runs. The node connects again and sends RESUME. If RESUME comes before the lease ends, the
 * node gets its seat back, and the coordinator repeats what may have been lost with the connection.
 * If not, the node is lost like any silent node.
 *
 * A new coordinator knows nothing about the job. If a node shows that it was in a round of an
 * earlier coordinator, other nodes of that round may still have workers that run:
 *
 *   EMPTY or FORMING ── first RESUME ──► REBUILDING ── all nodes of the round resume ──► RUNNING
 *                                            │ one of them stops, or a lease is over
 *                                            └──────────── STOP sent ──────────────────► FORMING
 *
 * A new coordinator that has heard of an earlier round forms no round for 9/8 of a lease, because a
 * node that it has not heard of may still have workers with the ranks that the new round would give
 * to other nodes. It need not wait that long if all nodes of one earlier round have sent RESUME.
 * That round is the newest one: a later round would have begun without a node only after that node
 * had stopped its workers, or after its lease. A node that sends JOIN does not count for this,
 * because it may have been a spare when the newest round began. */
#include "rendezvous/coordinator/coordinator_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- suspending a seat, and giving it back ---- */

static bool has_place(const struct coordinator_seat *s) {
    return s->state == SEAT_RUNNING || s->state == SEAT_SUCCEEDED || s->state == SEAT_STOPPING;
}

void coordinator_suspend(struct coordinator *c, int64_t now_ms, struct coordinator_seat *seat,
                         const char *why) {
    char name[SEAT_NAME_MAX];
    if (seat->local || !has_place(seat)) {
        /* `abandons` keeps coordinator_lost() from counting the node's process as ended: the
         * process may still run, and join another coordinator */
        seat->abandons = true;
        coordinator_lost(c, now_ms, seat, why);
        return;
    }
    seat_name(seat, name);
    coordinator_log(c, CR_LOG_INFO, "%s has lost its connection and may resume: %s", name, why);
    seat->peer = NULL;
    c->suspended++;
    hang_connection_lost(c);
}

/* Gives the seat to a new connection of the same node. */
static void take_seat_back(struct coordinator *c, int64_t now_ms, struct coordinator_seat *s,
                           void *peer, const struct rdzv_join *j) {
    char name[SEAT_NAME_MAX];
    /* this node is not gone, so the second node that waits for its node rank is refused */
    if (s->next != NULL) coordinator_refuse_next(c, s);
    if (s->peer != NULL) c->actions->hang_up(c->arg, s->peer);
    else c->suspended--;
    hang_connection_lost(c);
    pairs_seat_gone(c, s); /* a paired test ends with the connection */
    s->peer = peer;
    s->connection = j->connection;
    s->heard_ms = now_ms;
    s->suspected_ms = COORDINATOR_NEVER;
    s->abandons = false;
    succession_heard(c, now_ms, s, j->heard_at_ms, j->rounds_seen);
    seat_name(s, name);
    coordinator_log(c, CR_LOG_INFO, "%s has resumed on a new connection", name);
    joining_accept(c, peer, "");
}

static struct coordinator_seat *find_instance(const struct coordinator *c, uint64_t instance) {
    struct coordinator_seat *s = seat_table_find(&c->by_instance, instance);
    return s != NULL && !s->local ? s : NULL;
}

/* Returns whether the running round was formed with this node, but the node has not received ROUND:
 * it knows of earlier rounds only. */
static bool has_missed_round(const struct coordinator *c, const struct coordinator_seat *s,
                             uint64_t rounds_seen) {
    bool is_own = c->store.port != 0; /* not the round of an earlier coordinator */
    return is_own && c->phase == COORDINATOR_RUNNING && s->state == SEAT_RUNNING &&
           rounds_seen <= c->round;
}

/* Returns whether another coordinator has formed a round with this node after the last round of
 * this coordinator: a round with a larger number, or another round with the same number. */
static bool was_elsewhere(const struct coordinator *c, const struct rdzv_join *j) {
    bool is_other = j->formed_by != 0 && c->formed_by != 0 && j->formed_by != c->formed_by;
    if (c->group_size == 0 || j->rounds_seen <= c->round) return false;
    return j->rounds_seen > c->round + 1 || is_other;
}

void resuming_repeat_round(struct coordinator *c, int64_t now_ms, struct coordinator_seat *s) {
    s->missed_round = false;
    coordinator_send_round(c, s);
    coordinator_repeat_change(c, now_ms, s);
    hang_judge(c, now_ms);
}

struct coordinator_seat *resuming_join(struct coordinator *c, int64_t now_ms, void *peer,
                                       const struct rdzv_join *j) {
    struct coordinator_seat *s = find_instance(c, j->instance);
    if (c->phase == COORDINATOR_ENDED || s == NULL || s->connection >= j->connection) return NULL;
    if (was_elsewhere(c, j)) return NULL;
    if (s->state == SEAT_STOPPING) {
        struct cr_error err = {0};
        struct rdzv_message m = {.type = RDZV_JOIN, .join = *j};
        take_seat_back(c, now_ms, s, peer, j);
        (void) coordinator_receive(c, now_ms, s, &m, &err);
        return s;
    }
    if (!has_missed_round(c, s, j->rounds_seen)) return NULL;
    take_seat_back(c, now_ms, s, peer, j);
    resuming_repeat_round(c, now_ms, s);
    return s;
}

/* ---- a new coordinator that hears of an earlier round ---- */

static bool all_counted(const struct coordinator_rebuild *r) {
    return r->group_size > 0 && r->counted == r->group_size;
}

int64_t resuming_until(const struct coordinator *c, int64_t now_ms) {
    const struct coordinator_rebuild *r = &c->rebuild;
    if (all_counted(r) || succession_all_are_back(c, now_ms)) return 0;
    return r->until_ms > c->quiet_until_ms ? r->until_ms : c->quiet_until_ms;
}

bool resuming_must_wait(const struct coordinator *c, int64_t now_ms) {
    return now_ms < resuming_until(c, now_ms);
}

/* Notes that the node with group rank `rank` of the earlier round has resumed. Returns true if no
 * node with this rank has resumed before. Returns false if one has, if the rank does not exist, or
 * if memory is short; without memory the next round waits until r->until_ms. */
static bool count_rank(struct coordinator_rebuild *r, int64_t rank) {
    if (rank < 0 || (uint64_t) rank >= r->group_size) return false;
    if (r->is_counted == NULL) r->is_counted = calloc(r->group_size, sizeof(*r->is_counted));
    if (r->is_counted == NULL || r->is_counted[rank]) return false;
    r->is_counted[rank] = true;
    r->counted++;
    return true;
}

/* Ends the earlier round that is being rebuilt, because it cannot go on. */
static void end_round(struct coordinator *c, int64_t now_ms) {
    c->rebuild.is_over = true;
    c->members_changed = true;
    coordinator_stop_round(c, now_ms);
}

/* Call this with a JOIN that names a later round than all JOINs before it. If the nodes of an
 * earlier round have begun to resume, that round is not the newest one, so it is ended, and no
 * other round is rebuilt in its place: the round of this JOIN is over, too. */
static void begin_later_round(struct coordinator *c, int64_t now_ms, const struct rdzv_join *j) {
    struct coordinator_rebuild *r = &c->rebuild;
    r->rounds_seen = j->rounds_seen;
    r->formed_by = j->formed_by;
    r->group_size = j->last_group_size <= RDZV_NODES_MAX ? j->last_group_size : 0;
    r->is_over = r->has_change = false;
    r->counted = 0;
    free(r->is_counted);
    r->is_counted = NULL;
    if (c->phase != COORDINATOR_REBUILDING) return;
    coordinator_set_why(c, "a later round has begun");
    end_round(c, now_ms);
}

void resuming_heard_of_round(struct coordinator *c, int64_t now_ms, const struct rdzv_join *j) {
    struct coordinator_rebuild *r = &c->rebuild;
    bool is_new = c->group_size == 0; /* this coordinator has neither formed nor rebuilt a round */
    bool had_another = j->last_coordinator != 0 && j->last_coordinator != c->id;
    if (!is_new || (j->rounds_seen == 0 && !had_another)) return;
    if (r->until_ms == 0) {
        r->until_ms = now_ms + c->lease_ms + c->lease_ms / 8 + 1;
        coordinator_wake_by(c, r->until_ms);
        coordinator_log(c, CR_LOG_INFO,
                        "the job had an earlier coordinator; its nodes have %g s to come back",
                        (double) (r->until_ms - now_ms) / 1000);
    }
    if (j->rounds_seen > r->rounds_seen) begin_later_round(c, now_ms, j);
}

/* Returns true if the node that sent RESUME was in the newest earlier round, and is the first one
 * to resume with its rank; in that case counts the rank. If two coordinators have formed rounds of
 * that number, the round that the first node names counts. A node of protocol version 3 does not
 * name the coordinator that has formed its round, so only number and size of its round are
 * compared. */
static bool is_of_newest_round(struct coordinator *c, int64_t now_ms, const struct rdzv_join *j) {
    struct coordinator_rebuild *r = &c->rebuild;
    if (c->group_size != 0 && !resuming_must_wait(c, now_ms)) return false;
    if (j->rounds_seen != r->rounds_seen || j->last_group_size != r->group_size) return false;
    if (r->formed_by == 0) r->formed_by = j->formed_by;
    if (j->formed_by != 0 && j->formed_by != r->formed_by) return false;
    /* If the process of the earlier coordinator has ended, the node in that process has ended, too.
     * The rank of that node counts as resumed, because nobody need wait for the node. */
    if (j->leader_ended != 0) (void) count_rank(r, (int64_t) j->leader - 1);
    return count_rank(r, j->last_rank);
}

/* ---- REBUILDING ---- */

static uint32_t count_running(const struct coordinator *c) {
    return c->in_state[SEAT_RUNNING] + c->in_state[SEAT_SUCCEEDED];
}

/* Makes the earlier coordinator's round the running round of this coordinator. */
static void adopt_round(struct coordinator *c, int64_t now_ms, const char *why) {
    coordinator_enter(c, COORDINATOR_RUNNING, why);
    c->group_size = c->rebuild.group_size;
    c->formed_by = c->rebuild.formed_by;
    c->store = (struct coordinator_store){.port = 0};
    c->world_size = c->rebuild.world_size;
    c->members_changed = false;
    c->gone_after_success = 0;
    c->round_ms = now_ms;
    ranks_round_begins(c, now_ms);
    c->is_rebuilt = c->has_formed = true;
    c->is_drawn = false;
    /* if memory is short, nodes that are lost later do not get their ranks back */
    (void) coordinator_reserve_departed(c, c->group_size);
    hang_connection_lost(c);
    hang_judge(c, now_ms);
}

void resuming_reconcile(struct coordinator *c, int64_t now_ms) {
    struct coordinator_rebuild *r = &c->rebuild;
    if (count_running(c) == r->group_size && !r->has_change && !r->is_over) {
        adopt_round(c, now_ms, "all nodes of the round have resumed");
        coordinator_log(c, CR_LOG_INFO, "round %" PRIu64 " goes on: all %" PRIu32
                        " nodes have resumed", c->round, c->group_size);
        coordinator_find_deadline(c, now_ms);
        return;
    }
    bool is_over = r->has_change || r->is_over || all_counted(r) ||
                   seats_stopping(c) > 0;
    if (!is_over && now_ms < r->until_ms) {
        coordinator_wake_by(c, r->until_ms);
        return;
    }
    if (r->has_change) {
        coordinator_set_why(c, "a change was announced before the coordinator was lost");
    } else {
        coordinator_set_why(c,
                            "the coordinator was lost, and %" PRIu32 " of the %" PRIu32
                            " nodes of round %" PRIu64 " have come back",
                            count_running(c), r->group_size, c->round);
    }
    end_round(c, now_ms);
}

/* ---- RESUME ---- */

static void refuse_resume(struct coordinator *c, void *peer, const char *why) {
    struct rdzv_message m = {.type = RDZV_REFUSED};
    m.refused = (struct rdzv_refused){
        .version_min = RDZV_VERSION_MIN, .version_max = RDZV_VERSION_MAX, .why = why};
    c->actions->send(c->arg, peer, &m);
}

static void send_stop(struct coordinator *c, const struct coordinator_seat *s, uint64_t round,
                      bool is_late, const char *why) {
    struct rdzv_message m = {.type = RDZV_STOP};
    m.stop = (struct rdzv_stop){.round = round, .why = why, .is_late = is_late};
    seat_send(c, s, &m);
}

void resuming_hear(struct coordinator *c, int64_t now_ms, struct coordinator_seat *s,
                   const struct rdzv_message *m) {
    if (s->state != SEAT_RUNNING) return;
    if (m->type == RDZV_FAILED && m->failed.round == c->round) {
        adopt_round(c, now_ms, "a worker has failed in the round");
    } else if (m->type == RDZV_SUCCEEDED && m->succeeded.round == c->round) {
        seat_enter(c, s, SEAT_SUCCEEDED, now_ms);
    }
}

/* Handles what RESUME says about what the node does in its round. The node may have said the same
 * before, by FAILED, SUCCEEDED or a beat, but this message was lost with the connection. So this
 * function does what coordinator_receive() does with such a message. */
static void hear_part(struct coordinator *c, int64_t now_ms, struct coordinator_seat *s,
                      const struct rdzv_resume *r) {
    struct cr_error err = {0};
    struct rdzv_message m = {.type = RDZV_FAILED};
    m.failed =
        (struct rdzv_failed){.round = c->round, .what = r->what, .blame = r->blame};
    if (r->part == RDZV_PART_SUCCEEDED) {
        m = (struct rdzv_message){.type = RDZV_SUCCEEDED};
        m.succeeded.round = c->round;
    }
    if (r->part == RDZV_PART_FAILED || r->part == RDZV_PART_SUCCEEDED) {
        (void) coordinator_receive(c, now_ms, s, &m, &err);
        return;
    }
    if (r->part != RDZV_PART_STOPS) return;
    /* this beat says that the node knows of the end of the round */
    m = (struct rdzv_message){.type = RDZV_BEAT};
    m.beat.rounds_over = c->round + 2;
    (void) coordinator_receive(c, now_ms, s, &m, &err);
    if (s->state == SEAT_RUNNING) {
        seat_enter(c, s, SEAT_STOPPING, now_ms);
        coordinator_set_why(c, "node '%.200s' has stopped its workers", s->host);
        if (c->phase == COORDINATOR_RUNNING) end_round(c, now_ms);
    }
}

/* Gives a node its seat back, and repeats the messages that the node may have missed. */
static struct coordinator_seat *resume_seat(struct coordinator *c, int64_t now_ms, void *peer,
                                            struct coordinator_seat *s,
                                            const struct rdzv_resume *r) {
    struct rdzv_join j;
    rdzv_join_of_resume(r, &j);
    take_seat_back(c, now_ms, s, peer, &j);
    /* the node sends JOIN next */
    if (seat_awaits_round(s)) seat_enter(c, s, SEAT_STOPPING, now_ms);
    bool was_running = s->state == SEAT_RUNNING || s->state == SEAT_SUCCEEDED;
    hear_part(c, now_ms, s, r);
    if (c->phase == COORDINATOR_ENDED) return s;
    bool has_workers = r->part == RDZV_PART_RUNS || r->part == RDZV_PART_SUCCEEDED;
    if (s->state == SEAT_STOPPING && !was_running && has_workers)
        send_stop(c, s, c->round, false, c->why);
    coordinator_repeat_change(c, now_ms, s);
    hang_judge(c, now_ms);
    coordinator_reconcile(c, now_ms);
    return s;
}

/* Gives a seat to a node that resumes in a round that is over for this coordinator, and sends the
 * node STOP. Other nodes may have the node's ranks already. Therefore STOP is marked as late: the
 * workers get no more time than what is left of the lease that the node had when it sent RESUME. */
static struct coordinator_seat *stop_stranger(struct coordinator *c, int64_t now_ms, void *peer,
                                              const struct rdzv_join *j) {
    struct coordinator_seat *s = joining_seat(c, now_ms, peer, false, j, NULL);
    if (s == NULL) return NULL;
    seat_enter(c, s, SEAT_STOPPING, now_ms);
    send_stop(c, s, j->rounds_seen - 1, true,
              "its round has ended while the node was not connected");
    coordinator_reconcile(c, now_ms);
    return s;
}

/* Call this in a new coordinator that has got a RESUME from a node of the newest earlier round that
 * it knows of. Gives the node a seat in the state RUNNING, with the ranks that the node had in that
 * round. */
static struct coordinator_seat *rebuild(struct coordinator *c, int64_t now_ms, void *peer,
                                        const struct rdzv_resume *r, const struct rdzv_join *j) {
    struct coordinator_seat *s = joining_seat(c, now_ms, peer, false, j, NULL);
    if (s == NULL) return NULL;
    s->group_rank = j->last_rank;
    s->first_rank = r->first_rank;
    seat_enter(c, s, SEAT_RUNNING, now_ms);
    c->round = j->rounds_seen - 1;
    c->rebuild.world_size = r->world_size;
    if (r->change != 0) c->rebuild.has_change = true;
    if (c->phase == COORDINATOR_FORMING)
        coordinator_enter(c, COORDINATOR_REBUILDING, "a node has resumed");
    hear_part(c, now_ms, s, r);
    coordinator_reconcile(c, now_ms);
    return s;
}

/* Returns whether the node reports a failure in an earlier round than the last one, because the
 * node has missed the last one. That earlier round is over, so the failure counts for nothing. */
static bool failed_earlier(const struct coordinator *c, const struct coordinator_seat *s,
                           const struct rdzv_resume *r, const struct rdzv_join *j) {
    if (r->part != RDZV_PART_FAILED || was_elsewhere(c, j)) return false;
    return s->state == SEAT_STOPPING || has_missed_round(c, s, j->rounds_seen);
}

struct coordinator_seat *coordinator_resume(struct coordinator *c, int64_t now_ms, void *peer,
                                            const struct rdzv_resume *r) {
    struct rdzv_join j;
    rdzv_join_of_resume(r, &j);
    succession_expire(c, now_ms);
    struct coordinator_seat *s = find_instance(c, j.instance);
    if (j.rounds_seen == 0 || j.last_rank < 0 || j.last_rank >= (int64_t) j.last_group_size ||
        j.last_group_size > RDZV_NODES_MAX) {
        refuse_resume(c, peer, "cannot resume without a round");
        return NULL;
    }
    if (s != NULL && s->connection >= j.connection) {
        refuse_resume(c, peer, "this node has a newer connection");
        return NULL;
    }
    if (s != NULL && c->phase == COORDINATOR_ENDED) {
        take_seat_back(c, now_ms, s, peer, &j);
        coordinator_send_end(c, peer, c->outcome, c->why);
        return s;
    }
    bool is_same = s != NULL && c->group_size + c->rebuild.group_size > 0 &&
                   j.rounds_seen == c->round + 1 && s->group_rank >= 0 && !was_elsewhere(c, &j);
    if (is_same && s->state != SEAT_LEAVING)
        return resume_seat(c, now_ms, peer, s, r);
    if (s != NULL && failed_earlier(c, s, r, &j)) {
        /* The node's JOIN follows RESUME. */
        take_seat_back(c, now_ms, s, peer, &j);
        s->missed_round = s->state == SEAT_RUNNING;
        return s;
    }
    struct coordinator_seat *first = NULL;
    if (joining_admit(c, now_ms, peer, &j, &first) < 0) {
        joining_failed(c, now_ms);
        return NULL;
    }
    if (first != NULL) {
        refuse_resume(c, peer, "another node has its node rank");
        joining_failed(c, now_ms);
        return NULL;
    }
    resuming_heard_of_round(c, now_ms, &j);
    if (r->part == RDZV_PART_FAILED) {
        /* This failure may be old: a node that has failed may have been a spare since then. So the
         * node does not count as a node of the newest round. But if the node's last round is the
         * newest round, that round has failed, so it is over, and other nodes that resume in it are
         * stopped. */
        if (j.rounds_seen == c->rebuild.rounds_seen) c->rebuild.is_over = true;
        return stop_stranger(c, now_ms, peer, &j);
    }
    bool is_counted = is_of_newest_round(c, now_ms, &j);
    if (is_counted && c->group_size == 0) return rebuild(c, now_ms, peer, r, &j);
    return stop_stranger(c, now_ms, peer, &j);
}

void resuming_forget(struct coordinator *c) {
    free(c->rebuild.is_counted);
    c->rebuild = (struct coordinator_rebuild){.until_ms = 0};
    c->store = (struct coordinator_store){.port = 0};
    c->is_rebuilt = false;
}
