/* Handles the JOIN of a node: checks it, and gives the node a seat. A JOIN comes from the network,
 * so every number in it is checked before it is used. */
#include "rendezvous/coordinator/coordinator_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define TIMEOUT_MAX_MS (INT64_C(1000) * 86400000)

_Static_assert((uint64_t) RDZV_NODES_MAX * RDZV_LOCAL_WORLD_MAX <= INT32_MAX,
               "the rank of a worker may not fit into an int");

int coordinator_refuse(struct coordinator *c, void *peer, const char *fmt, ...) {
    char why[RDZV_TEXT_MAX];
    va_list ap;
    va_start(ap, fmt);
    (void) vsnprintf(why, sizeof(why), fmt, ap);
    va_end(ap);
    struct rdzv_message m = {.type = RDZV_REFUSED};
    m.refused = (struct rdzv_refused){
        .version_min = RDZV_VERSION_MIN, .version_max = RDZV_VERSION_MAX, .why = why};
    c->actions->send(c->arg, peer, &m);
    return -EINVAL;
}

/* ---- checks of a JOIN that do not depend on the job ---- */

static int check_sizes(struct coordinator *c, void *peer, const struct rdzv_join *j) {
    if (j->min_nodes < 1 || j->min_nodes > j->max_nodes || j->max_nodes > RDZV_NODES_MAX) {
        return coordinator_refuse(c, peer, "cannot join with %" PRIu32 ":%" PRIu32 " nodes",
                                  j->min_nodes, j->max_nodes);
    }
    if (j->local_world_size < 1 || j->local_world_size > RDZV_LOCAL_WORLD_MAX) {
        return coordinator_refuse(c, peer, "cannot join with %" PRIu32 " workers",
                                  j->local_world_size);
    }
    if (j->store_port > UINT16_MAX) {
        return coordinator_refuse(c, peer, "cannot join with a store at port %" PRIu32,
                                  j->store_port);
    }
    return 0;
}

static int refuse_node_rank(struct coordinator *c, void *peer, int64_t rank, uint32_t nodes) {
    return coordinator_refuse(c, peer,
                  "cannot join as node rank %" PRId64 ": the job has node ranks 0 to %" PRIu32,
                  rank, nodes - 1);
}

/* Checks the node rank and the number of nodes in a JOIN with fixed ranks. In every round each node
 * rank must occur once. Therefore the number of nodes must be fixed, too, and the node rank must be
 * smaller than that number. */
static int check_fixed_ranks(struct coordinator *c, void *peer, const struct rdzv_join *j) {
    if (j->fixed_ranks == 0) return 0;
    if (j->min_nodes != j->max_nodes) {
        return coordinator_refuse(c, peer,
                      "cannot join with fixed ranks and %" PRIu32 ":%" PRIu32
                      " nodes: fixed ranks need one number of nodes", j->min_nodes, j->max_nodes);
    }
    if (j->node_rank < 0 || j->node_rank >= j->max_nodes) {
        return refuse_node_rank(c, peer, j->node_rank, j->max_nodes);
    }
    return 0;
}

static bool is_timeout(int64_t ms, int64_t min_ms) { return ms >= min_ms && ms <= TIMEOUT_MAX_MS; }

static int check_times(struct coordinator *c, void *peer, const struct rdzv_join *j) {
    bool ok = is_timeout(j->join_timeout_ms, 1) && is_timeout(j->last_call_timeout_ms, 0) &&
              is_timeout(j->change_notice_ms, 0) && is_timeout(j->stop_limit_ms, 0) &&
              is_timeout(j->restart_backoff_ms, 0) && is_timeout(j->restart_refill_ms, 0) &&
              is_timeout(j->flap_window_ms, 0) && is_timeout(j->flap_refusal_ms, 0) &&
              is_timeout(j->aside_ms, 0) && is_timeout(j->slow_ms, 0) &&
              is_timeout(j->slow_notice_ms, 0) &&
              j->keep_alive_interval_ms >= 1 &&
              j->keep_alive_interval_ms <= RDZV_INTERVAL_MAX_MS && j->keep_alive_max_attempt >= 1 &&
              j->keep_alive_max_attempt <= RDZV_ATTEMPTS_MAX;
    return ok ? 0 : coordinator_refuse(c, peer, "cannot join with such timeouts");
}

/* Checks the numbers of rounds and restarts in the JOIN, because they may become the coordinator's
 * own counts. A number of rounds above RDZV_ROUNDS_SEEN_MAX is accepted only if this coordinator
 * has counted as many rounds itself. */
static int check_memories(struct coordinator *c, void *peer, const struct rdzv_join *j) {
    bool is_first = c->phase == COORDINATOR_EMPTY;
    uint64_t budget = is_first ? j->max_restarts : c->budget.max_restarts;
    /* if the budget is refilled, the job may have had more restarts than the budget, but not more
     * restarts than rounds, because each restart has ended a round */
    if ((is_first ? j->restart_refill_ms : c->budget.refill_ms) > 0) budget += j->rounds_seen;
    if (j->rounds_seen > RDZV_ROUNDS_SEEN_MAX && j->rounds_seen > c->next_round) {
        return coordinator_refuse(c, peer,
                      "cannot join after %" PRIu64 " rounds: no job has more than %" PRIu64,
                      j->rounds_seen, RDZV_ROUNDS_SEEN_MAX);
    }
    if (j->restarts_seen > budget) {
        return coordinator_refuse(c, peer,
                      "cannot join after %" PRIu32 " restarts: the job has at most %" PRIu64
                      "; give every node the same --max-restarts",
                      j->restarts_seen, budget);
    }
    return 0;
}

static int check_join(struct coordinator *c, void *peer, const struct rdzv_join *j) {
    int rc = check_sizes(c, peer, j);
    if (rc == 0) rc = check_fixed_ranks(c, peer, j);
    if (rc == 0) rc = check_times(c, peer, j);
    if (rc == 0) rc = check_memories(c, peer, j);
    return rc;
}

/* ---- checks of a JOIN against the job and its other nodes ---- */

static int refuse_second_node(struct coordinator *c, void *peer,
                              const struct coordinator_seat *first) {
    return coordinator_refuse(c, peer,
                              "cannot join as node rank %" PRId64 ": '%.200s' (process %" PRIu64
                              ") has it; give every node a --node-rank of its own",
                              first->node_rank, first->host, first->pid);
}

/* Returns whether the node that sent JOIN may wait for the node rank of the seat `s`. It may if it
 * is on the same host and no other node waits for this rank: the host may have lost power and be up
 * again before the lease of its old node is over. */
static bool may_succeed(const struct coordinator_seat *s, const struct rdzv_join *j) {
    return !s->local && s->next == NULL && s->waits_for == NULL && strcmp(s->host, j->host) == 0;
}

/* If ranks are fixed in this job, checks the node rank against the job's number of nodes, which may
 * differ from that in this JOIN, and against the other nodes' ranks. Returns 0, and sets *first to
 * the seat that the node has to wait for, or to NULL. Otherwise refuses the node and returns a
 * negative errno. */
static int check_node_rank(struct coordinator *c, void *peer, const struct rdzv_join *j,
                           struct coordinator_seat **first) {
    *first = NULL;
    if (!c->fixed_ranks) return 0;
    if (j->node_rank < 0 || j->node_rank >= c->max_nodes) {
        return refuse_node_rank(c, peer, j->node_rank, c->max_nodes);
    }
    struct coordinator_seat *s = seat_table_find(&c->by_node_rank, (uint64_t) j->node_rank);
    if (s == NULL) return 0;
    if (may_succeed(s, j)) {
        *first = s;
        return 0;
    }
    return refuse_second_node(c, peer, s);
}

/* Refuses a node that differs from the job in --store-gateway, and returns a negative errno. A
 * store serves either gateways only, or no gateways. So the workers of such a node could not use
 * the stores of other nodes, or the workers of other nodes could not use the store of such a
 * node. */
static int check_gateway(struct coordinator *c, void *peer, const struct rdzv_join *j) {
    if ((j->store_gateway != 0) == c->store_gateway) return 0;
    const char *node = c->store_gateway ? "without" : "with";
    const char *job = c->store_gateway ? "with" : "without";
    coordinator_log(c, CR_LOG_WARN,
                    "node '%.200s' (process %" PRIu64 ") is refused, because it was started %s "
                    "--store-gateway, and this job %s it: give it to all nodes, or to none",
                    j->host, j->pid, node, job);
    return coordinator_refuse(c, peer,
                              "cannot join %s --store-gateway, because the job was started %s it: "
                              "give it to all nodes, or to none", node, job);
}

/* ---- two nodes with one node rank ---- */

void coordinator_refuse_next(struct coordinator *c, struct coordinator_seat *s) {
    struct coordinator_seat *next = s->next;
    (void) refuse_second_node(c, next->peer, s);
    c->actions->hang_up(c->arg, next->peer);
    seat_remove(c, next);
}

/* Removes the seat that the same launcher has from an older connection, and returns 0: a launcher
 * may connect again before the coordinator notices that the old connection is dead. If this JOIN is
 * itself from an older connection and arrives late, refuses it and returns a negative errno. */
static int replace_old_seat(struct coordinator *c, int64_t now_ms, void *peer,
                            const struct rdzv_join *j) {
    struct coordinator_seat *s = seat_table_find(&c->by_instance, j->instance);
    if (s == NULL) return 0;
    if (s->connection >= j->connection) {
        return coordinator_refuse(c, peer, "this node has a newer connection");
    }
    /* the launcher of `s` is not gone, so the second node that waits for its node rank is
     * refused */
    if (s->next != NULL) coordinator_refuse_next(c, s);
    if (s->peer != NULL) c->actions->hang_up(c->arg, s->peer);
    charge_node_gone(c, s->heard_ms, s);
    coordinator_take_seat(c, now_ms, s, "was lost", "it has a new connection");
    return 0;
}

/* ---- giving the node a seat ---- */

static void take_settings(struct coordinator *c, int64_t now_ms, const struct rdzv_join *j) {
    settings_take(c, j);
    c->members_changed = true;
    incarnation_begin(c, j);
    forming_wait_for_older_round(c, now_ms);
    coordinator_start_forming(c, now_ms, "the first node joins");
}

void joining_accept(struct coordinator *c, void *peer, const char *differs) {
    struct rdzv_message m = {.type = RDZV_ACCEPTED};
    m.accepted = (struct rdzv_accepted){
        .keep_alive_interval_ms = c->interval_ms,
        .keep_alive_max_attempt = (uint32_t) (c->lease_ms / c->interval_ms),
        .incarnation = incarnation_to_tell(c), .differs = differs};
    c->actions->send(c->arg, peer, &m);
}

/* Sends END to a node that joins after the end of the job. The text names two cases: a late node of
 * this job, and a node of the next job with the same run id. The coordinator does not know which
 * case this is, because in both cases the node was in no round of this job. */
static int refuse_after_the_end(struct coordinator *c, void *peer, const struct rdzv_join *j) {
    char why[RDZV_TEXT_MAX];
    (void) snprintf(why, sizeof(why),
                    "job '%.64s' has ended and takes no more nodes: %.600s; to run it again, start "
                    "it %g s (close_timeout) after that end, or with another --rdzv-id",
                    c->run_id, c->why, (double) j->close_timeout_ms / 1000);
    coordinator_log(c, CR_LOG_WARN,
                    "node '%.200s' (process %" PRIu64 ") is refused, because the job has ended: it "
                    "came late, or is of another job of the same --rdzv-id", j->host, j->pid);
    coordinator_send_end(c, peer, RENDEZVOUS_LOST, why);
    return -EPERM;
}

int joining_admit(struct coordinator *c, int64_t now_ms, void *peer, const struct rdzv_join *j,
                  struct coordinator_seat **first) {
    if (check_join(c, peer, j) < 0) return -EINVAL;
    if (replace_old_seat(c, now_ms, peer, j) < 0) return -ESTALE;
    if (c->phase == COORDINATOR_ENDED) return refuse_after_the_end(c, peer, j);
    if (incarnation_check(c, peer, j) < 0) return -ESTALE;
    /* The calls above may have removed the last seat. In that case the settings of this JOIN are
     * those of the job, so its numbers are checked again, against these settings. */
    if (check_memories(c, peer, j) < 0) return -EINVAL;
    if (c->phase == COORDINATOR_EMPTY) take_settings(c, now_ms, j);
    if (check_gateway(c, peer, j) < 0) return -EINVAL;
    if (check_node_rank(c, peer, j, first) < 0) return -EEXIST;
    char why[RDZV_TEXT_MAX];
    if (aside_refuses(c, now_ms, j->host, why) > 0) return coordinator_refuse(c, peer, "%s", why);
    if (c->seat_count >= RDZV_NODES_MAX) {
        return coordinator_refuse(c, peer, "cannot join: the job has %" PRIu32 " nodes already",
                                  c->seat_count);
    }
    return 0;
}

void joining_failed(struct coordinator *c, int64_t now_ms) {
    incarnation_end_if_empty(c);
    coordinator_reconcile(c, now_ms);
}

struct coordinator_seat *joining_seat(struct coordinator *c, int64_t now_ms, void *peer, bool local,
                                      const struct rdzv_join *join,
                                      struct coordinator_seat *first) {
    struct coordinator_seat *s = seat_new(c, now_ms, peer, local, join);
    if (s == NULL) {
        (void) coordinator_refuse(c, peer, "the coordinator is out of memory");
        joining_failed(c, now_ms);
        return NULL;
    }
    char differs[RDZV_TEXT_MAX];
    s->counts_life = join->rounds_seen == 0 || join->last_coordinator == c->id;
    if (first != NULL) seat_queue(c, s, first, now_ms);
    seat_join(c, s, join, now_ms);
    aside_place(c, now_ms, s);
    incarnation_take_memories(c, join);
    settings_compare(c, join, differs);
    joining_accept(c, peer, differs);
    return s;
}

struct coordinator_seat *coordinator_join(struct coordinator *c, int64_t now_ms, void *peer,
                                          bool local, const struct rdzv_join *join) {
    succession_expire(c, now_ms);
    struct coordinator_seat *s = resuming_join(c, now_ms, peer, join);
    if (s != NULL) return s;
    struct coordinator_seat *first = NULL;
    if (joining_admit(c, now_ms, peer, join, &first) < 0) {
        joining_failed(c, now_ms);
        return NULL;
    }
    resuming_heard_of_round(c, now_ms, join);
    s = joining_seat(c, now_ms, peer, local, join, first);
    if (s == NULL) return NULL;
    coordinator_log(c, CR_LOG_INFO,
                    "node '%.200s' (%.60s, process %" PRIu64 ") joined: %" PRIu32
                    " waiting, %" PRIu32 ":%" PRIu32 " wanted",
                    s->host, s->addr, s->pid, c->in_state[SEAT_JOINED], c->min_nodes, c->max_nodes);
    succession_tell_spare(c, s);
    coordinator_reconcile(c, now_ms);
    return s;
}
