/* Recognises that a job has come to rest after its last fault: one round has all nodes that can be
 * in it, or the job has ended, and nothing is under way except heartbeats. A schedule whose job is
 * at rest is cut short, because only further heartbeats would follow. */
#include "tests/sim/world.h"

/* How long in milliseconds a job must have been at rest before its schedule is cut short. This is
 * more than six leases, so that leases end, electorates are settled, and nodes that were sent away
 * come back within this time. */
#define REST_TIME 2000
/* One of so many schedules is never cut short. */
#define WHOLE_EVERY 16

/* Returns whether events of this type are queued again and again in a job at rest. */
static bool is_routine(enum event_type type) {
    return type == EV_NODE_TIMER || type == EV_HOST_TIMER || type == EV_SESSION_TIMER ||
           type == EV_BYTES || type == EV_KNOCK || type == EV_RELAY_TIMER ||
           type == EV_TRUNK_TIMER;
}

/* Returns whether an event is queued or kept that may begin something other than a heartbeat, for
 * example the death of a worker, or the start of a node. */
static bool is_busy(const struct world *w) {
    for (size_t i = 0; i < w->heap_len; i++) {
        if (!is_routine(w->pool[w->heap[i].index].type)) return true;
    }
    for (int i = 0; i < w->node_count; i++) {
        if (w->nodes[i].held.count > 0) return true;
    }
    for (int i = 0; i < HOSTS_MAX; i++) {
        if (w->hosts[i].held.count > 0) return true;
    }
    for (int i = 0; i < RELAYS_MAX; i++) {
        if (w->relays[i].held.count > 0) return true;
    }
    return w->pair_cut.held.count > 0;
}

static bool is_any_up(const struct world *w) {
    for (int i = 0; i < w->node_count; i++) {
        if (w->nodes[i].up) return true;
    }
    return false;
}

/* Returns how many nodes run in the newest round of the host `h`; -1 if a node neither runs in that
 * round nor waits for a round. */
static int count_running(const struct world *w, const struct host *h) {
    int running = 0;
    for (int i = 0; i < w->node_count; i++) {
        const struct sim_node *n = &w->nodes[i];
        enum member_state state = n->up ? member_state(n->member) : MEMBER_ENDED;
        if (!n->up) continue;
        if (n->conn == NULL || n->conn->host != h || !host_serves(n->conn)) return -1;
        if (state != MEMBER_RUNNING && state != MEMBER_JOINING) return -1;
        if (state == MEMBER_RUNNING && n->node.group.state != GROUP_RUNNING) return -1;
        if (state == MEMBER_RUNNING && !check_is_last_round(h, n->record)) return -1;
        running += state == MEMBER_RUNNING ? 1 : 0;
    }
    return running;
}

static bool is_at_rest(const struct world *w) {
    struct coordinator_view v;
    const struct host *h = &w->hosts[w->leader];
    if (w->has_two_runs || is_busy(w)) return false;
    if (!is_any_up(w)) return true;
    if (!h->up || h->change_until != CR_FOREVER) return false;
    jobs_look(h, &v);
    /* without an event EV_HEALED in the queue, such a node has failed in its paired tests */
    uint32_t unfit = w->kind == PAIR_TESTS ? 0 : v.in_state[SEAT_UNFIT];
    uint32_t busy = v.in_state[SEAT_ASIDE] + unfit + v.in_state[SEAT_STOPPING] +
                    v.in_state[SEAT_LEAVING] + v.in_state[SEAT_QUEUED] +
                    v.in_state[SEAT_SUCCEEDED] + v.suspended;
    if (v.phase != COORDINATOR_RUNNING || busy > 0 || v.lacks_majority) return false;
    int running = count_running(w, h);
    if (running != (int) v.in_state[SEAT_RUNNING]) return false;
    return running == (int) v.group_world_size &&
           (v.in_state[SEAT_JOINED] == 0 || v.group_world_size >= v.max_nodes);
}

bool rest_is_reached(const struct world *w, struct rest *rest) {
    bool at_rest = w->seed % WHOLE_EVERY != 5 && is_at_rest(w);
    bool is_same = rest->newest == w->conns && rest->rounds == w->history.round_count &&
                   rest->changes == w->history.change_count;
    rest->newest = w->conns;
    rest->rounds = w->history.round_count;
    rest->changes = w->history.change_count;
    if (!at_rest || !is_same) rest->since = w->now;
    return w->now >= rest->since + REST_TIME;
}
