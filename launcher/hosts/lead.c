/* When a job on several hosts starts, and how it ends: see lead_internal.h. */
#include "launcher/hosts/lead_internal.h"

#include "base/time/clock.h"

void lead_init(struct lead *l, uint8_t *states, uint32_t hosts, uint32_t min_nodes,
               int64_t last_call_ms) {
    *l = (struct lead){.states = states, .hosts = hosts, .min_nodes = min_nodes,
                       .last_call_ms = last_call_ms, .enough_ms = CR_FOREVER,
                       .short_ms = CR_FOREVER};
    l->count[LEAD_STARTING] = hosts;
}

static void set_state(struct lead *l, uint32_t host, enum lead_state state) {
    l->count[l->states[host]]--;
    l->states[host] = (uint8_t) state;
    l->count[state]++;
}

static bool is_over(const struct lead *l, uint32_t host) {
    return l->states[host] == LEAD_ENDED || l->states[host] == LEAD_LOST;
}

/* Returns true if the job can still have min_nodes nodes. Hosts that are lost, and hosts whose
 * launcher has failed, do not count. */
static bool has_enough(const struct lead *l) {
    uint32_t gone = l->count[LEAD_LOST] + l->count[LEAD_ENDED] - l->succeeded;
    return l->hosts - gone >= l->min_nodes;
}

void lead_ready(struct lead *l, uint32_t host, int64_t now_ms) {
    if (l->states[host] != LEAD_STARTING) return;
    set_state(l, host, LEAD_READY);
    bool is_enough = l->count[LEAD_READY] >= l->min_nodes;
    if (is_enough && l->enough_ms == CR_FOREVER) l->enough_ms = now_ms;
}

void lead_ended(struct lead *l, uint32_t host, int status, int64_t now_ms) {
    if (is_over(l, host)) return;
    set_state(l, host, LEAD_ENDED);
    if (status == 0) l->succeeded++;
    else if (l->status == 0) l->status = status;
    if (has_enough(l) || l->short_ms <= now_ms) return;
    l->short_ms = status == LEAD_USAGE ? now_ms : now_ms + LEAD_GRACE_MS;
}

void lead_lost(struct lead *l, uint32_t host, int64_t now_ms) {
    if (is_over(l, host)) return;
    set_state(l, host, LEAD_LOST);
    if (has_enough(l)) return;
    l->short_ms = now_ms;
    /* The job fails because of the lost host, so its status is 1, unless a launcher has failed
     * before. The status of a launcher that is stopped later, because of this loss, does not
     * count. */
    if (l->status == 0) l->status = 1;
}

/* Returns whether it is time to start the launchers. */
static bool is_time_to_begin(const struct lead *l, int64_t now_ms) {
    if (l->min_nodes == l->hosts) return l->states[0] == LEAD_READY;
    if (l->count[LEAD_READY] < l->min_nodes) return false;
    return l->count[LEAD_STARTING] == 0 || now_ms >= l->enough_ms + l->last_call_ms;
}

/* Returns true if the job is over: all hosts have ended or are lost, or all launchers that were
 * started have ended. In the second case, hosts in the state STARTING are not waited for. */
static bool is_finished(const struct lead *l) {
    if (l->count[LEAD_ENDED] + l->count[LEAD_LOST] == l->hosts) return true;
    if (!l->has_begun || l->count[LEAD_RUNNING] > 0 || l->count[LEAD_ENDED] == 0) return false;
    return l->is_stopping || l->count[LEAD_READY] == 0;
}

enum lead_action lead_next(const struct lead *l, int64_t now_ms) {
    if (is_finished(l)) return LEAD_FINISH;
    bool has_workers = l->had_enough || l->count[LEAD_ENDED] > 0;
    if (l->short_ms <= now_ms && !has_workers) return LEAD_GIVE_UP;
    if (l->short_ms <= now_ms) return l->is_stopping ? LEAD_WAIT : LEAD_STOP;
    if (l->has_begun) return l->count[LEAD_READY] > 0 ? LEAD_GO : LEAD_WAIT;
    return is_time_to_begin(l, now_ms) ? LEAD_GO : LEAD_WAIT;
}

int64_t lead_deadline(const struct lead *l) {
    if (l->short_ms != CR_FOREVER) return l->is_stopping ? CR_FOREVER : l->short_ms;
    if (l->has_begun || l->enough_ms == CR_FOREVER || l->min_nodes == l->hosts) return CR_FOREVER;
    return l->enough_ms + l->last_call_ms;
}

void lead_went(struct lead *l) {
    l->has_begun = true;
    for (uint32_t i = 0; i < l->hosts; i++) {
        if (l->states[i] == LEAD_READY) set_state(l, i, LEAD_RUNNING);
    }
    if (l->count[LEAD_RUNNING] >= l->min_nodes) l->had_enough = true;
}

void lead_stopped(struct lead *l) { l->is_stopping = true; }

uint32_t lead_hosting(const struct lead *l) {
    uint32_t host = 0;
    while (host + 1 < l->hosts && l->states[host] != LEAD_READY) host++;
    return host;
}

int lead_status(const struct lead *l) {
    if (l->succeeded >= l->min_nodes) return 0;
    return l->status != 0 ? l->status : 1;
}
