/* Changes with notice, and workers that stay while others are stopped.
 *
 * A change is announced by the rendezvous, or wanted by this node itself (it is to go away). Workers
 * that count their steps (crunrt_step) are frozen at their next step until it is known after how many
 * steps all of the job's workers stop; contract/channel.h has the argument why none runs past that.
 * Programs that know nothing of this are stopped when the change takes place, as ever.
 *
 * A worker that can go on in its process (crunrt_can_rejoin, or one that is in crunrt_rejoin already)
 * is spared when its round ends. It has the usual grace to say that it waits for the next round. */
#include "agent/agent_internal.h"

#include "base/clock.h"
#include "base/log.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define PATIENCE_MS     1000 /* the failure that broke a worker's group is on its way to us */
#define DUMP_PATIENCE_MS 1000

static int lives(const struct worker *w) { return w->process != NULL; }

static struct worker_says what_says(const struct agent *a, const struct worker *w) {
    struct worker_says says;
    worker_channels_look(a->links, w->local_rank, &says);
    return says;
}

/* ---- a change ---- */

static int wants_to_take_part(const struct worker_says *says) {
    return says->connected && says->step > 0 && says->answer != CHANNEL_NOW;
}

/* Frozen first, then asked how far it is. Returns the step that it has begun at most, or -1. */
static int64_t freeze(struct agent *a, struct worker *w, const struct channel_packet *p,
                      int64_t *needs_ms) {
    struct worker_says says = what_says(a, w);
    if (!wants_to_take_part(&says)) return -1;
    if (worker_channels_send(a->links, w->local_rank, p) < 0) return -1;
    says = what_says(a, w);
    w->takes_part = 1;
    if (says.needs_ms > *needs_ms) *needs_ms = says.needs_ms;
    return (int64_t) says.step;
}

static void tell_if_ready(struct agent *a) {
    if (!a->change.is_set || a->change.told_ready) return;
    for (uint32_t i = 0; i < worker_count(a); i++) {
        const struct worker *w = &a->workers[i];
        if (w->takes_part && lives(w) && !w->made_way) return;
    }
    a->change.told_ready = 1;
    rendezvous_change_ready(a->rendezvous, a->change.id);
}

void change_announced(struct agent *a, const struct rendezvous_change *change) {
    struct channel_packet p = {.type = CHANNEL_CHANGE,
                            .id = change->id,
                            .change = {.kind = (uint32_t) change->kind,
                                         .left_ms = change->left_ms}};
    (void) snprintf(p.text, sizeof(p.text), "%s", change->why);
    int64_t step = -1, needs_ms = 0;
    a->change = (struct change){.id = change->id};
    if (a->group.state == GROUP_RUNNING) {
        for (uint32_t i = 0; i < worker_count(a); i++) {
            struct worker *w = &a->workers[i];
            int64_t at = lives(w) && !w->parked ? freeze(a, w, &p, &needs_ms) : -1;
            if (at > step) step = at;
        }
    }
    cr_info("a change is coming: %s; %s", change->why,
            step < 0 ? "no worker here counts steps" : "the workers are asked to stop together");
    rendezvous_change_answer(a->rendezvous, change->id, step, needs_ms);
}

void change_set(struct agent *a, uint64_t id, uint64_t step, int64_t left_ms) {
    struct channel_packet p = {.type = CHANNEL_STOP_AT, .id = id,
                            .stop_at = {.step = step, .left_ms = left_ms}};
    if (id != a->change.id) return;
    a->change.is_set = 1;
    cr_info("the change takes place after step %" PRIu64, step);
    for (uint32_t i = 0; i < worker_count(a); i++) {
        struct worker *w = &a->workers[i];
        if (w->takes_part && lives(w)) (void) worker_channels_send(a->links, i, &p);
    }
    tell_if_ready(a);
}

void change_made_way(struct agent *a, struct worker *w) {
    w->made_way = 1;
    tell_if_ready(a);
}

int change_was_reason(const struct agent *a, const struct worker *w) {
    struct worker_says says = what_says(a, w);
    return w->takes_part && a->change.is_set && says.stopped_for == a->change.id;
}

void change_over(struct agent *a) { a->change = (struct change){0}; }

/* ---- workers that stay ---- */

static void let_stay(struct agent *a, struct worker *w, int stays) {
    w->stays = stays;
    worker_keep(w->process, stays);
    log_relay_keep(a->relay, w->local_rank, stays);
}

int only_parked_live(const struct agent *a) {
    for (uint32_t i = 0; i < worker_count(a); i++) {
        const struct worker *w = &a->workers[i];
        if (lives(w) && (!w->parked || worker_is_dead(w->process))) return 0;
    }
    return 1;
}

static void on_stay_over(uv_timer_t *timer) {
    struct agent *a = timer->data;
    int late = 0;
    for (uint32_t i = 0; i < worker_count(a); i++) {
        struct worker *w = &a->workers[i];
        if (!lives(w) || !w->stays || w->parked) continue;
        cr_warn("local rank %u was left alive to go on in its process and did not call "
                "crunrt_rejoin() in time; it is ended", i);
        let_stay(a, w, 0);
        late = 1;
    }
    if (!late) return;
    a->nursery_is_empty = 0;
    nursery_end(a->nursery, SIGKILL, 0);
}

void stop_workers(struct agent *a, int signum, int64_t grace_ms) {
    int may_stay = a->group.ending == GROUP_GOES_ON && !a->leaving.given, waits = 0;
    struct channel_packet over = {.type = CHANNEL_OVER};
    (void) snprintf(over.text, sizeof(over.text), "round %" PRIu64 " is over", a->round.round);
    for (uint32_t i = 0; i < worker_count(a); i++) {
        struct worker *w = &a->workers[i];
        if (!lives(w)) continue;
        int stays = may_stay && (w->parked || what_says(a, w).can_rejoin);
        if (stays && !w->parked) stays = worker_channels_send(a->links, i, &over) == 0;
        if (stays && !w->parked) waits = 1;
        if (stays != w->stays) let_stay(a, w, stays);
    }
    (void) uv_timer_stop(&a->patience);
    (void) uv_timer_stop(&a->stay);
    if (waits && grace_ms != CR_FOREVER) {
        (void) uv_timer_start(&a->stay, on_stay_over, grace_ms > 0 ? (uint64_t) grace_ms : 0, 0);
    }
    a->nursery_is_empty = 0;
    nursery_end(a->nursery, signum, grace_ms);
}

/* The grace that the others got is theirs, too, or begins now if those are gone. */
void stop_stayers(struct agent *a) {
    int64_t left = a->group.kill_at_ms - cr_monotonic_ms();
    int any = 0;
    for (uint32_t i = 0; i < worker_count(a); i++) {
        struct worker *w = &a->workers[i];
        if (!lives(w) || !w->stays) continue;
        any = 1;
        let_stay(a, w, 0);
        if (!a->nursery_is_empty) worker_signal(w->process, SIGTERM);
    }
    if (!any || !a->nursery_is_empty) return;
    a->nursery_is_empty = 0;
    nursery_end(a->nursery, SIGTERM, left > 0 ? left : 0);
}

/* ---- what workers say ---- */

static void on_patience_over(uv_timer_t *timer) {
    struct agent *a = timer->data;
    uint32_t i = 0;
    while (i < worker_count(a) - 1 && !a->workers[i].parked) i++;
    (void) snprintf(a->broken, sizeof(a->broken),
                    "rank %u (local rank %u) on %s gave up its process groups and called "
                    "crunrt_rejoin(), though no worker had failed; its own messages say why",
                    a->round.first_rank + i, i, a->host);
    agent_step(a, GROUP_EVENT_BROKEN, 0, 0);
}

static void on_ready(void *arg, uint32_t local_rank, uint64_t change_id) {
    struct agent *a = arg;
    struct worker *w = &a->workers[local_rank];
    if (lives(w) && w->takes_part && change_id == a->change.id) change_made_way(a, w);
}

static void on_rejoin(void *arg, uint32_t local_rank) {
    struct agent *a = arg;
    struct worker *w = &a->workers[local_rank];
    int running = a->group.state == GROUP_RUNNING;
    if (!lives(w) || w->parked || (!running && a->group.state != GROUP_STOPPING)) return;
    if (!running && !w->stays) return; /* too late: it was told to end */
    w->parked = 1;
    int for_change = change_was_reason(a, w);
    if (running && !for_change && !uv_is_active((uv_handle_t *) &a->patience)) {
        (void) uv_timer_start(&a->patience, on_patience_over, PATIENCE_MS, 0);
    }
    agent_step(a, GROUP_EVENT_PARKED, 0, 0);
    if (for_change) change_made_way(a, w);
    agent_look_if_empty(a);
}

/* ---- flight records ---- */

/* Not by worker_signal: to the verdict it is a failure of its own, no victim of ours. */
static void kill_hung(const struct worker *w) { (void) kill(-worker_pid(w->process), SIGKILL); }

static void on_dump_over(uv_timer_t *timer) {
    struct agent *a = timer->data;
    for (uint32_t i = 0; i < worker_count(a); i++) {
        if (lives(&a->workers[i]) && a->workers[i].hung_ms > 0) kill_hung(&a->workers[i]);
    }
}

static void on_dumped(void *arg, uint32_t local_rank, uint64_t dump_id, const char *path) {
    struct agent *a = arg;
    struct worker *w = &a->workers[local_rank];
    if (dump_id == 0 || dump_id > a->dumps) return;
    cr_warn("rank %u has written its flight record%s%s", a->round.first_rank + local_rank,
            path[0] != '\0' ? " to " : "", path);
    if (w->hung_ms > 0 && lives(w)) kill_hung(w);
}

/* The record first: it says in which operation it hangs. */
static void on_hung(void *arg, uint32_t local_rank, uint64_t step, int64_t ms) {
    struct agent *a = arg;
    struct worker *w = &a->workers[local_rank];
    if (!lives(w) || w->parked || a->group.state != GROUP_RUNNING) return;
    cr_warn("rank %u has made no step for %g s, after step %" PRIu64 "; it is ended",
            a->round.first_rank + local_rank, (double) ms / 1000, step);
    w->hung_ms = ms;
    w->hung_step = step;
    if (worker_channels_ask_dump(a->links, local_rank, ++a->dumps) < 0) {
        kill_hung(w);
    } else if (!uv_is_active((uv_handle_t *) &a->dump)) {
        (void) uv_timer_start(&a->dump, on_dump_over, DUMP_PATIENCE_MS, 0);
    }
}

void agent_dump(struct agent *a, const char *why) {
    uint32_t asked = 0;
    a->dumps++;
    for (uint32_t i = 0; i < worker_count(a); i++) {
        if (!lives(&a->workers[i])) continue;
        asked += worker_channels_ask_dump(a->links, i, a->dumps) == 0 ? 1 : 0;
    }
    cr_warn("%s: %u of %u workers are asked for their flight records", why, asked, worker_count(a));
}

const struct worker_channel_events agent_channel_events = {
    .on_ready = on_ready, .on_rejoin = on_rejoin, .on_dumped = on_dumped, .on_hung = on_hung};

/* ---- this node goes away ---- */

static const char *const kind_names[] = {"", "a change", "leaving", "preemption", "maintenance"};

static void on_leave_deadline(uv_timer_t *timer) {
    struct agent *a = timer->data;
    cr_warn("the time of the notice is over");
    agent_step(a, GROUP_EVENT_LEAVE, 0, 0);
}

void agent_notice(struct agent *a, enum rendezvous_change_kind kind, int64_t left_ms,
                  const char *why) {
    if (a->leaving.given || a->group.state == GROUP_ENDED) return;
    if (kind < RENDEZVOUS_CHANGE_LEAVE || kind > RENDEZVOUS_CHANGE_MAINTENANCE) {
        kind = RENDEZVOUS_CHANGE_LEAVE;
    }
    a->leaving.given = 1;
    (void) snprintf(a->leaving.why, sizeof(a->leaving.why), "%s: %s", kind_names[kind], why);
    cr_warn("this node leaves the job within %g s: %s", (double) left_ms / 1000, a->leaving.why);
    if (a->group.state != GROUP_RUNNING && a->group.state != GROUP_WAITING) {
        agent_step(a, GROUP_EVENT_LEAVE, 0, 0);
        return;
    }
    (void) uv_timer_start(&a->leaving.deadline, on_leave_deadline,
                          left_ms > 0 ? (uint64_t) left_ms : 0, 0);
    rendezvous_notice(a->rendezvous, kind, left_ms, a->leaving.why);
}

/* ---- timers ---- */

static uv_timer_t *timer_at(struct agent *a, int i) {
    uv_timer_t *const timers[CHANGE_TIMERS] = {&a->patience, &a->stay, &a->dump,
                                               &a->leaving.deadline};
    return timers[i];
}

void change_timers_init(struct agent *a) {
    for (int i = 0; i < CHANGE_TIMERS; i++) {
        (void) uv_timer_init(a->loop, timer_at(a, i));
        timer_at(a, i)->data = a;
    }
}

void change_timers_close(struct agent *a, uv_close_cb on_closed) {
    for (int i = 0; i < CHANGE_TIMERS; i++) uv_close((uv_handle_t *) timer_at(a, i), on_closed);
}
