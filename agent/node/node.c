/* The decisions of one node: implements node.h. The parts of this file, from top to bottom: the two
 * functions that write a worker's state; changes with notice; stopping and keeping workers;
 * starting a round; feed(), which passes an event to the worker group; and the events. */
#include "agent/node/node.h"

#include "base/assert.h"
#include "base/time/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- names of states, and log lines ---- */

#define X_NAME(name, limit) #name,
#define X_LIMIT(name, limit) limit,
static const char *const worker_names[] = {WORKER_STATES(X_NAME)};
static const char *const worker_limits[] = {WORKER_STATES(X_LIMIT)};
static const char *const part_names[] = {PART_STATES(X_NAME)};
static const char *const part_limits[] = {PART_STATES(X_LIMIT)};
#undef X_NAME
#undef X_LIMIT

const char *worker_state_name(enum worker_state state) { return worker_names[state]; }
const char *worker_state_limit(enum worker_state state) { return worker_limits[state]; }
const char *part_state_name(enum part_state state) { return part_names[state]; }
const char *part_state_limit(enum part_state state) { return part_limits[state]; }

static void say(const struct node *n, enum cr_log_level level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static void say(const struct node *n, enum cr_log_level level, const char *fmt, ...) {
    char text[512];
    if (level < n->log_level) return;
    va_list ap;
    va_start(ap, fmt);
    (void) vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    n->actions->log(n->arg, level, text);
}

/* ---- the state of one worker; node_init() and node_done() ---- */

static uint32_t index_of(const struct node *n, const struct node_worker *w) {
    return (uint32_t) (w - n->workers);
}

static bool lives(const struct node_worker *w) { return w->state != WORKER_ABSENT; }

static bool is_kept(enum worker_state state) {
    return state == WORKER_KEPT || state == WORKER_PARKED;
}

/* Sets a worker's state; no other function writes the state. The action stop() must spare workers
 * in the states KEPT and PARKED, and no others. So this function requests the action `keep` when a
 * worker enters or leaves these two states. */
static void worker_enter(struct node *n, struct node_worker *w, enum worker_state next,
                         int64_t until_ms) {
    enum worker_state before = w->state;
    w->until_ms = until_ms;
    if (before == next) return;
    say(n, CR_LOG_DEBUG, "worker %u: %s -> %s", index_of(n, w), worker_names[before],
        worker_names[next]);
    w->state = next;
    if (is_kept(before) != is_kept(next)) {
        n->actions->keep(n->arg, index_of(n, w), is_kept(next));
    }
}

/* Sets a worker's part in the announced change; no other function writes it. */
static void worker_take_part(struct node *n, struct node_worker *w, enum part_state next) {
    if (w->part == next) return;
    say(n, CR_LOG_DEBUG, "worker %u, change %" PRIu64 ": %s -> %s", index_of(n, w), n->change.id,
        part_names[w->part], part_names[next]);
    w->part = next;
}

static void read_page(const struct node *n, const struct node_worker *w,
                      struct worker_progress *out) {
    n->actions->read_page(n->arg, index_of(n, w), out);
}

static int send_packet(const struct node *n, const struct node_worker *w,
                       const struct channel_packet *p) {
    return n->actions->send_packet(n->arg, index_of(n, w), p);
}

int node_init(struct node *n, const struct node_settings *settings,
              const struct node_actions *actions, void *arg) {
    CR_ASSERT(settings->workers > 0);
    *n = (struct node){.actions = actions,
                       .arg = arg,
                       .log_level = settings->log_level,
                       .workers = calloc(settings->workers, sizeof(*n->workers)),
                       .starts = calloc(settings->workers, sizeof(*n->starts)),
                       .worker_count = settings->workers,
                       .notice.until_ms = CR_FOREVER,
                       .patience_until_ms = CR_FOREVER};
    if (n->workers == NULL || n->starts == NULL) {
        node_done(n);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < n->worker_count; i++) {
        n->workers[i].until_ms = CR_FOREVER;
        if (settings->policies != NULL) n->workers[i].policy = settings->policies[i];
    }
    worker_group_init(&n->group, settings->stop_timeout_ms, settings->shutdown_timeout_ms);
    return 0;
}

void node_done(struct node *n) {
    free(n->workers);
    free(n->starts);
    *n = (struct node){0};
}

static int64_t after(int64_t now_ms, int64_t wait_ms) {
    if (wait_ms < 0) return now_ms;
    return wait_ms < CR_FOREVER - now_ms ? now_ms + wait_ms : CR_FOREVER;
}

/* ---- a change with notice ---- */

static bool has_begun(const struct worker_progress *p) {
    return p->step > 0 || p->counts_from_start;
}

/* Returns whether the worker is told of the change. A worker that has connected, but has made no
 * step yet, is told, too: the other ranks may have made the first step already, and it must not
 * make more steps than they do. A service that counts no steps is not told. */
static bool is_told(const struct node_worker *w, const struct worker_progress *p) {
    if (!p->connected || p->answer == CHANNEL_NOW) return false;
    return has_begun(p) || !w->policy.is_service;
}

/* Returns the packet that announces the change, with the time that is left now. */
static struct channel_packet announcement(const struct node *n, int64_t now_ms) {
    struct channel_packet p = n->change.announcement;
    p.change.left_ms = n->change.until_ms > now_ms ? n->change.until_ms - now_ms : 0;
    return p;
}

/* Freezes a worker: sends it the announcement of the change, and reads its step after that. A
 * worker that makes a step after this reading sees the announcement in that step and waits in it,
 * so it makes at most one step more than is read here (contract/channel.h). Returns the step that
 * was read; or -1 if the worker has not begun to count steps, or is not told of the change. */
static int64_t freeze(struct node *n, struct node_worker *w, int64_t now_ms, int64_t *needs_ms) {
    struct worker_progress progress;
    struct channel_packet p = announcement(n, now_ms);
    read_page(n, w, &progress);
    if (!is_told(w, &progress)) return -1;
    if (send_packet(n, w, &p) < 0) return -1;
    read_page(n, w, &progress);
    worker_take_part(n, w, PART_FROZEN);
    if (progress.needs_ms > *needs_ms) *needs_ms = progress.needs_ms;
    return has_begun(&progress) ? (int64_t) progress.step : -1;
}

static bool is_awaited(const struct node_worker *w) {
    return lives(w) && (w->part == PART_FROZEN || w->part == PART_AGREED ||
                        w->part == PART_EXPECTED);
}

/* If no worker still has to make the agreed step, reports to the rendezvous that the node is
 * ready. */
static void report_if_ready(struct node *n) {
    if (n->group.state != GROUP_RUNNING) return; /* the round is already ending */
    if (!n->change.is_set || n->change.reported_ready) return;
    for (uint32_t i = 0; i < n->worker_count; i++) {
        if (is_awaited(&n->workers[i])) return;
    }
    n->change.reported_ready = true;
    n->actions->change_ready(n->arg, n->change.id);
}

static void worker_is_ready(struct node *n, struct node_worker *w) {
    worker_take_part(n, w, PART_READY);
    report_if_ready(n);
}

/* Returns whether the worker has made the agreed step and stopped after it. If the worker has
 * ended, its page is gone, but read_page() still gives the last value of stopped_for. */
static bool stopped_for_change(const struct node *n, const struct node_worker *w) {
    struct worker_progress progress;
    if (w->part == PART_READY) return true;
    if (!n->change.is_set) return false;
    read_page(n, w, &progress);
    return progress.stopped_for == n->change.id;
}

/* Sends the agreed step to a frozen worker. The node waits until the worker has made that step. It
 * does not wait for a worker that has made no step, if others have made several: such a worker
 * makes other steps than they do, or none, and only goes on for as long as the round lasts. */
static void release(struct node *n, struct node_worker *w) {
    struct worker_progress progress;
    read_page(n, w, &progress);
    bool makes_steps = !progress.connected || has_begun(&progress) || n->change.is_early;
    bool is_awaited_for = makes_steps && progress.answer != CHANNEL_NOW;
    worker_take_part(n, w, is_awaited_for ? PART_AGREED : PART_NONE);
    /* If sending fails, the worker does not learn the agreed step and may never become ready. In
     * that case the rendezvous ends the round when the time for the change is over. */
    (void) send_packet(n, w, &n->change.agreed);
}

/* Call this when the agreed step is known and a worker connects for which this node waits. Sends it
 * the announcement of the change and the agreed step. If the worker has nothing to save
 * (CHANNEL_NOW) or cannot be reached, it takes no part, so it may be stopped at any time. */
static void include_late_worker(struct node *n, struct node_worker *w, int64_t now_ms) {
    struct worker_progress progress;
    struct channel_packet change = announcement(n, now_ms), agreed = n->change.agreed;
    agreed.stop_at.left_ms = change.change.left_ms;
    worker_take_part(n, w, PART_NONE);
    read_page(n, w, &progress);
    if (progress.answer == CHANNEL_NOW) return;
    if (send_packet(n, w, &change) < 0 || send_packet(n, w, &agreed) < 0) return;
    worker_take_part(n, w, PART_AGREED);
}

/* Call this when the change is early. Workers that still import modules have not connected yet, and
 * the frozen workers can make their next step only together with them. So this node waits for these
 * workers, too. Services and workers with nothing to save take no part. */
static void expect_late_workers(struct node *n) {
    for (uint32_t i = 0; i < n->worker_count; i++) {
        struct node_worker *w = &n->workers[i];
        struct worker_progress progress;
        if (w->state != WORKER_RUNNING || w->part != PART_NONE || w->policy.is_service) continue;
        read_page(n, w, &progress);
        if (!progress.connected) worker_take_part(n, w, PART_EXPECTED);
    }
}

static void forget_change(struct node *n) {
    for (uint32_t i = 0; i < n->worker_count; i++) {
        worker_take_part(n, &n->workers[i], PART_NONE);
    }
    n->change.id = 0;
    n->change.is_set = n->change.is_early = n->change.reported_ready = false;
}

/* ---- stopping workers, and keeping those that can go on ---- */

/* Returns whether workers can be kept for the next round. A node that leaves, or whose job ends,
 * has no next round. */
static bool may_keep(const struct node *n) {
    return n->group.ending == GROUP_GOES_ON && !n->notice.given;
}

/* If the worker can rejoin, sends it OVER, so that it parks within the grace, and returns true.
 * Returns false if the worker cannot rejoin, or if its channel does not work. */
static bool keep_running_worker(struct node *n, struct node_worker *w) {
    struct worker_progress progress;
    struct channel_packet over = {.type = CHANNEL_OVER};
    read_page(n, w, &progress);
    if (!progress.can_rejoin) return false;
    (void) snprintf(over.text, sizeof(over.text), "round %" PRIu64 " is over", n->round);
    return send_packet(n, w, &over) == 0;
}

/* Moves a running or kept worker to the state KEPT if it can go on in the next round, else to
 * STOPPING. Leaves other workers in their states; a hung worker is killed sooner than the others
 * anyway. */
static void stop_worker(struct node *n, struct node_worker *w) {
    bool keeps = may_keep(n);
    switch (w->state) {
    case WORKER_RUNNING:
        if (keeps && keep_running_worker(n, w)) {
            worker_enter(n, w, WORKER_KEPT, n->group.kill_at_ms);
        } else {
            worker_enter(n, w, WORKER_STOPPING, CR_FOREVER);
        }
        return;
    case WORKER_KEPT:
        if (keeps) worker_enter(n, w, WORKER_KEPT, n->group.kill_at_ms);
        else worker_enter(n, w, WORKER_STOPPING, CR_FOREVER);
        return;
    case WORKER_PARKED:
    case WORKER_ABSENT:
    case WORKER_STARTING:
    case WORKER_HUNG:
    case WORKER_STOPPING:
    case WORKER_STATE_COUNT: return;
    }
}

/* Turns a parked worker into one that is being stopped. The event UNPARKED only changes the group's
 * counts (one parked worker less, one living worker more) and requests no action, so the result of
 * worker_group_step() is not used. */
static void unpark(struct node *n, int64_t now_ms, struct node_worker *w) {
    struct group_event event = {.type = GROUP_EVENT_UNPARKED,
                                .is_service = w->policy.is_service,
                                .now_ms = now_ms};
    worker_enter(n, w, WORKER_STOPPING, CR_FOREVER);
    (void) worker_group_step(&n->group, &event);
}

static void stop_processes(struct node *n, int signum, int64_t grace_ms) {
    n->processes_gone = false;
    n->actions->stop(n->arg, signum, grace_ms);
}

static void stop_workers(struct node *n, int64_t now_ms, int signum, int64_t grace_ms) {
    for (uint32_t i = 0; i < n->worker_count; i++) {
        struct node_worker *w = &n->workers[i];
        stop_worker(n, w);
        if (w->state == WORKER_PARKED && !may_keep(n)) unpark(n, now_ms, w);
    }
    n->patience_until_ms = CR_FOREVER;
    stop_processes(n, signum, grace_ms);
}

/* Stops the kept workers, too, with the rest of the grace. Call this when the end of the job
 * becomes known while workers are being stopped, because there is no next round for the kept
 * workers. If only kept workers are left, the action stop() stops them. If other processes are
 * left, stop() would signal these processes once more. So in that case each kept worker gets its
 * own SIGTERM here, and node_tick() kills it when the grace is over. */
static void stop_kept_workers(struct node *n, int64_t now_ms) {
    int64_t kill_at_ms = n->group.kill_at_ms;
    bool any = false;
    for (uint32_t i = 0; i < n->worker_count; i++) {
        struct node_worker *w = &n->workers[i];
        if (!is_kept(w->state)) continue;
        any = true;
        if (w->state == WORKER_PARKED) unpark(n, now_ms, w);
        worker_enter(n, w, WORKER_STOPPING, n->processes_gone ? CR_FOREVER : kill_at_ms);
        if (!n->processes_gone) n->actions->signal(n->arg, i, SIGTERM);
    }
    if (!any || !n->processes_gone) return;
    if (kill_at_ms == CR_FOREVER) stop_processes(n, SIGTERM, CR_FOREVER);
    else stop_processes(n, SIGTERM, kill_at_ms > now_ms ? kill_at_ms - now_ms : 0);
}

/* ---- starting a round ---- */

/* Lets a parked worker run in the new round. If the action hand_over() failed, the worker does not
 * know the new round: this function kills the worker, and the worker counts as failed whatever its
 * exit code is. The exit code may be 0, because the worker may already have ended without a report
 * of its end. */
static void go_on(struct node *n, struct node_worker *w) {
    worker_enter(n, w, WORKER_RUNNING, CR_FOREVER);
    if (w->is_unreached) n->actions->signal(n->arg, index_of(n, w), SIGKILL);
}

/* Starts the round: parked workers go on in their processes, the other workers are started. Sets
 * *running to the number of workers that are alive. Returns true if all workers are alive and the
 * action `start` did not fail. */
static bool start_workers(struct node *n, uint32_t *running) {
    n->is_broken = n->is_hung = n->is_killed = n->is_final = false;
    for (uint32_t i = 0; i < n->worker_count; i++) {
        struct node_worker *w = &n->workers[i];
        w->hung_ms = 0;
        w->restarts = 0;
        worker_take_part(n, w, PART_NONE);
        n->starts[i] = w->state == WORKER_ABSENT;
        if (n->starts[i]) worker_enter(n, w, WORKER_STARTING, CR_FOREVER);
        /* hand_over() is called for the parked workers before the other workers are started,
         * because a parked worker may be able to go on without waiting for the other workers */
        if (w->state == WORKER_PARKED) w->is_unreached = n->actions->hand_over(n->arg, i) < 0;
    }
    int rc = n->actions->start(n->arg, n->starts);
    *running = 0;
    for (uint32_t i = 0; i < n->worker_count; i++) {
        struct node_worker *w = &n->workers[i];
        if (w->state == WORKER_PARKED) go_on(n, w);
        else worker_enter(n, w, n->starts[i] ? WORKER_RUNNING : WORKER_ABSENT, CR_FOREVER);
        *running += lives(w) ? 1 : 0;
    }
    return rc == 0 && *running == n->worker_count;
}

/* ---- feed(): passes an event to the worker group, and carries out its actions ---- */

static void step(struct node *n, const struct group_event *event);

static uint32_t count_services(const struct node *n, bool living_only) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < n->worker_count; i++) {
        const struct node_worker *w = &n->workers[i];
        count += w->policy.is_service && (!living_only || lives(w)) ? 1 : 0;
    }
    return count;
}

static enum rendezvous_blame blame_of(const struct node *n) {
    if (n->is_final) return n->is_killed ? RENDEZVOUS_FINAL_KILLED : RENDEZVOUS_FINAL;
    return n->is_killed ? RENDEZVOUS_KILLED : RENDEZVOUS_OWN;
}

/* Executes the actions in *todo. Stops the workers before it reports their failure: gathering the
 * evidence for the report takes time, and the workers can end in that time. */
static void act(struct node *n, int64_t now_ms, const struct group_actions *todo) {
    enum rendezvous_blame blame = blame_of(n);
    if (todo->report_succeeded) n->actions->succeeded(n->arg, n->round);
    if (todo->leave) n->actions->leave(n->arg);
    if (todo->stop_signal != 0) stop_workers(n, now_ms, todo->stop_signal, todo->stop_grace_ms);
    if (todo->report_failed) n->actions->failed(n->arg, n->round, blame);
    if (todo->join) n->actions->join(n->arg);
    if (todo->start) {
        uint32_t running;
        if (!start_workers(n, &running)) {
            struct group_event event = {.type = GROUP_EVENT_START_FAILED,
                                        .count = running,
                                        .services = count_services(n, true),
                                        .ms = CR_FOREVER,
                                        .now_ms = now_ms};
            step(n, &event);
        }
    }
    if (todo->finish) n->actions->finish(n->arg);
}

static void step(struct node *n, const struct group_event *event) {
    enum group_state before = n->group.state;
    struct group_actions todo = worker_group_step(&n->group, event);
    if (n->group.state != before) {
        say(n, CR_LOG_DEBUG, "worker group: %s -> %s", group_state_name(before),
            group_state_name(n->group.state));
    }
    act(n, event->now_ms, &todo);
    if (n->group.state == GROUP_STOPPING && n->group.ending != GROUP_GOES_ON) {
        stop_kept_workers(n, event->now_ms);
    }
}

static void feed(struct node *n, int64_t now_ms, enum group_event_type type, uint32_t count,
                 int64_t ms) {
    struct group_event event = {.type = type, .count = count, .ms = ms, .now_ms = now_ms};
    step(n, &event);
}

uint32_t node_parked_workers(const struct node *n) { return n->group.parked; }

/* Returns whether all workers that are left are parked and alive. If a parked worker is dead, but
 * its exit is not reported yet, returns false, because that worker cannot be in the next round. */
static bool only_parked_live(const struct node *n) {
    for (uint32_t i = 0; i < n->worker_count; i++) {
        const struct node_worker *w = &n->workers[i];
        if (!lives(w)) continue;
        if (w->state != WORKER_PARKED || n->actions->is_dead(n->arg, i)) return false;
    }
    return true;
}

/* If no worker is left to stop, makes the node join the next round; or leave, if it has given
 * notice. Call this when a worker has ended or parked, or when node_processes_gone() was called. */
static void check_stop_complete(struct node *n, int64_t now_ms) {
    if (n->group.state != GROUP_STOPPING || !n->processes_gone || !only_parked_live(n)) return;
    forget_change(n);
    if (n->notice.given) feed(n, now_ms, GROUP_EVENT_LEAVE, 0, CR_FOREVER);
    if (n->processes_gone && only_parked_live(n)) feed(n, now_ms, GROUP_EVENT_EMPTY, 0, CR_FOREVER);
}

/* ---- events: the rendezvous ---- */

void node_round(struct node *n, int64_t now_ms, const struct rendezvous_round *round) {
    struct group_event event = {.type = GROUP_EVENT_ROUND,
                                .count = n->worker_count,
                                .services = count_services(n, false),
                                .ms = CR_FOREVER,
                                .now_ms = now_ms};
    n->round = round->round;
    n->first_rank = round->first_rank;
    step(n, &event);
}

void node_stop(struct node *n, int64_t now_ms, int64_t grace_max_ms) {
    feed(n, now_ms, n->notice.given ? GROUP_EVENT_LEAVE : GROUP_EVENT_STOP, 0, grace_max_ms);
}

void node_end(struct node *n, int64_t now_ms, enum rendezvous_outcome outcome) {
    enum group_event_type type = outcome == RENDEZVOUS_SUCCEEDED ? GROUP_EVENT_END_OK
                                 : outcome == RENDEZVOUS_FAILED  ? GROUP_EVENT_END_FAILED
                                                                 : GROUP_EVENT_END_LOST;
    feed(n, now_ms, type, 0, CR_FOREVER);
}

/* Returns whether the worker takes part in a change. The agreed step is the largest reported step
 * plus one, and must not be smaller than the step of any worker. A hung worker may have made more
 * steps than all others, so its step has to be reported, too. */
static bool may_take_part(const struct node_worker *w) {
    return w->state == WORKER_RUNNING || w->state == WORKER_HUNG;
}

void node_change(struct node *n, int64_t now_ms, const struct rendezvous_change *change) {
    struct channel_packet p = {.type = CHANNEL_CHANGE,
                               .id = change->id,
                               .change = {.kind = (uint32_t) change->kind,
                                          .left_ms = change->left_ms}};
    int64_t step_made = -1, needs_ms = 0;
    (void) snprintf(p.text, sizeof(p.text), "%s", change->why);
    forget_change(n);
    n->change.id = change->id;
    n->change.announcement = p;
    n->change.until_ms = after(now_ms, change->left_ms);
    for (uint32_t i = 0; n->group.state == GROUP_RUNNING && i < n->worker_count; i++) {
        struct node_worker *w = &n->workers[i];
        int64_t at = may_take_part(w) ? freeze(n, w, now_ms, &needs_ms) : -1;
        if (at > step_made) step_made = at;
    }
    say(n, CR_LOG_INFO, "a change is coming: %s; %s", change->why,
        step_made < 0 ? "no worker here counts steps" : "the workers are asked to stop together");
    n->actions->change_answer(n->arg, change->id, step_made, needs_ms);
}

void node_change_at(struct node *n, int64_t now_ms, uint64_t id, uint64_t agreed_step,
                    int64_t left_ms) {
    struct channel_packet p = {.type = CHANNEL_STOP_AT,
                               .id = id,
                               .stop_at = {.step = agreed_step, .left_ms = left_ms}};
    if (id == 0 || id != n->change.id) return;
    n->change.is_set = true;
    n->change.is_early = rendezvous_step_is_early(agreed_step);
    n->change.agreed = p;
    n->change.until_ms = after(now_ms, left_ms);
    say(n, CR_LOG_INFO, "the change takes place after step %" PRIu64, agreed_step);
    for (uint32_t i = 0; i < n->worker_count; i++) {
        if (lives(&n->workers[i]) && n->workers[i].part == PART_FROZEN) release(n, &n->workers[i]);
    }
    if (n->change.is_early) expect_late_workers(n);
    report_if_ready(n);
}

/* ---- events: processes ---- */

/* Returns whether the exit code is a signal by which a whole node may be ended, for example by a
 * shutdown, a batch system or the OOM killer. */
static bool ends_nodes(int exit_code) {
    return exit_code == -SIGTERM || exit_code == -SIGINT || exit_code == -SIGHUP ||
           exit_code == -SIGKILL;
}

/* Call this when a worker has failed by itself. If the worker's policy allows it, starts the worker
 * once more in the same round and returns true. Otherwise returns false. */
static bool restart_alone(struct node *n, struct node_worker *w) {
    bool is_running = n->group.state == GROUP_RUNNING || n->group.state == GROUP_WAITING;
    if (!is_running || w->policy.on_failure != NODE_RESTARTS_ALONE) return false;
    if (w->state != WORKER_RUNNING && w->state != WORKER_HUNG) return false;
    if (w->restarts == w->policy.restarts) return false;
    w->restarts++;
    w->hung_ms = 0;
    worker_enter(n, w, WORKER_STARTING, CR_FOREVER);
    bool is_started = n->actions->restart(n->arg, index_of(n, w)) == 0;
    worker_enter(n, w, WORKER_RUNNING, CR_FOREVER);
    if (!is_started) return false;
    worker_take_part(n, w, PART_NONE); /* the new process has not seen the announced change */
    report_if_ready(n);
    return true;
}

void node_worker_exited(struct node *n, int64_t now_ms, uint32_t worker, int exit_code,
                        int signal_sent) {
    struct node_worker *w = &n->workers[worker];
    bool was_parked = w->state == WORKER_PARKED;
    struct group_event event = {.type = GROUP_EVENT_EXIT_OK,
                                .is_service = w->policy.is_service,
                                .ms = CR_FOREVER,
                                .now_ms = now_ms};
    CR_ASSERT(lives(w));
    if (exit_code != 0 && signal_sent == 0 && restart_alone(n, w)) return;
    if (was_parked) {
        event.type = GROUP_EVENT_PARKED_GONE;
    } else if (exit_code != 0 || w->is_unreached) {
        event.type = GROUP_EVENT_EXIT_BAD;
        event.after_our_signal = signal_sent != 0;
        n->is_killed = signal_sent == 0 && w->state != WORKER_HUNG && ends_nodes(exit_code);
        n->is_final = signal_sent == 0 && w->policy.on_failure == NODE_ENDS_JOB;
    } else if (stopped_for_change(n, w)) {
        event.type = GROUP_EVENT_EXIT_READY;
        worker_take_part(n, w, PART_READY);
    }
    w->is_unreached = false;
    worker_enter(n, w, WORKER_ABSENT, CR_FOREVER);
    step(n, &event);
    report_if_ready(n);
    check_stop_complete(n, now_ms);
}

void node_processes_gone(struct node *n, int64_t now_ms) {
    n->processes_gone = true;
    check_stop_complete(n, now_ms);
}

/* Ends the node although processes are left that SIGKILL does not end (node.h). First puts kept and
 * parked workers into the state STOPPING, because this node has no next round in which they could
 * go on. */
void node_processes_unkillable(struct node *n, int64_t now_ms) {
    for (uint32_t i = 0; i < n->worker_count; i++) {
        struct node_worker *w = &n->workers[i];
        if (w->state == WORKER_PARKED) unpark(n, now_ms, w);
        if (w->state == WORKER_KEPT) worker_enter(n, w, WORKER_STOPPING, CR_FOREVER);
        w->until_ms = CR_FOREVER;
    }
    forget_change(n);
    feed(n, now_ms, GROUP_EVENT_UNKILLABLE, 0, CR_FOREVER);
}

/* ---- events: what workers report ---- */

void node_worker_connected(struct node *n, int64_t now_ms, uint32_t worker) {
    struct node_worker *w = &n->workers[worker];
    int64_t needs_ms = 0;
    if (n->change.id == 0 || n->group.state != GROUP_RUNNING || !may_take_part(w)) return;
    if (!n->change.is_set) {
        (void) freeze(n, w, now_ms, &needs_ms);
        return;
    }
    if (!is_awaited(w)) return;
    include_late_worker(n, w, now_ms);
    report_if_ready(n);
}

void node_worker_ready(struct node *n, int64_t now_ms, uint32_t worker, uint64_t change_id) {
    struct node_worker *w = &n->workers[worker];
    (void) now_ms;
    if (is_awaited(w) && change_id == n->change.id) worker_is_ready(n, w);
}

/* Call this when a worker has called crunrt_rejoin(). A running or kept worker becomes parked. For
 * a worker in another state, such as one that is being stopped, the call does nothing. */
void node_worker_rejoin(struct node *n, int64_t now_ms, uint32_t worker) {
    struct node_worker *w = &n->workers[worker];
    if (w->state != WORKER_RUNNING && w->state != WORKER_KEPT) return;
    /* in WAITING only services are left: a service that calls crunrt_rejoin() waits there for the
     * end of the job */
    if (n->group.state == GROUP_WAITING) return;
    bool for_change = stopped_for_change(n, w);
    bool unasked = w->state == WORKER_RUNNING && !for_change;
    if (unasked && n->patience_until_ms == CR_FOREVER) {
        n->patience_until_ms = after(now_ms, NODE_PATIENCE_MS);
        n->gave_up = worker;
    }
    worker_enter(n, w, WORKER_PARKED, CR_FOREVER);
    struct group_event event = {.type = GROUP_EVENT_PARKED,
                                .is_service = w->policy.is_service,
                                .ms = CR_FOREVER,
                                .now_ms = now_ms};
    step(n, &event);
    if (for_change) worker_is_ready(n, w);
    check_stop_complete(n, now_ms);
}

static void kill_hung(struct node *n, struct node_worker *w) {
    worker_enter(n, w, WORKER_HUNG, CR_FOREVER);
    n->actions->kill_hung(n->arg, index_of(n, w));
}

static void say_dumped(const struct node *n, uint32_t rank, const char *path) {
    if (path[0] != '\0') {
        say(n, CR_LOG_WARN, "rank %u has written its flight record to %s", rank, path);
    } else {
        say(n, CR_LOG_WARN, "rank %u could not write its flight record: it has no path for the "
            "file (CRUNRT_FLIGHT_FILE), or writing failed", rank);
    }
}

void node_worker_dumped(struct node *n, int64_t now_ms, uint32_t worker, uint64_t dump_id,
                        const char *path) {
    struct node_worker *w = &n->workers[worker];
    (void) now_ms;
    if (dump_id == 0 || dump_id > n->dumps) return;
    say_dumped(n, n->first_rank + worker, path);
    if (w->state == WORKER_HUNG) kill_hung(n, w);
}

/* Call this when a worker hangs. The node requests the worker's flight record before it kills the
 * worker, because the record shows in which operation the worker hangs. */
void node_worker_hung(struct node *n, int64_t now_ms, uint32_t worker, uint64_t step_made,
                      int64_t ms) {
    struct node_worker *w = &n->workers[worker];
    if (w->state != WORKER_RUNNING) return;
    say(n, CR_LOG_WARN, "rank %u has made no step for %g s, after step %" PRIu64 "; it is killed",
        n->first_rank + worker, (double) ms / 1000, step_made);
    w->hung_ms = ms;
    w->hung_step = step_made;
    worker_enter(n, w, WORKER_HUNG, after(now_ms, NODE_DUMP_MS));
    if (n->actions->ask_dump(n->arg, worker, ++n->dumps) < 0) kill_hung(n, w);
}

void node_broken(struct node *n, int64_t now_ms) {
    if (n->group.state != GROUP_RUNNING) return;
    n->is_killed = n->is_final = false;
    feed(n, now_ms, GROUP_EVENT_BROKEN, 0, CR_FOREVER);
}

void node_hung(struct node *n, int64_t now_ms) {
    if (n->group.state == GROUP_RUNNING) n->is_hung = true;
    node_broken(n, now_ms);
}

/* ---- events: signals, notices and requests for dumps ---- */

void node_signal(struct node *n, int64_t now_ms, int signum) {
    feed(n, now_ms, GROUP_EVENT_SIGNAL, (uint32_t) signum, CR_FOREVER);
}

void node_notice(struct node *n, int64_t now_ms, enum rendezvous_change_kind kind,
                 int64_t left_ms, const char *why) {
    if (n->notice.given || n->group.state == GROUP_ENDED) return;
    if (!cr_change_kind_is_leave((uint32_t) kind)) kind = RENDEZVOUS_CHANGE_LEAVE;
    n->notice.given = true;
    (void) snprintf(n->notice.why, sizeof(n->notice.why), "%s: %s",
                    cr_change_kind_phrase((uint32_t) kind), why);
    say(n, CR_LOG_WARN, "this node leaves the job within %g s: %s", (double) left_ms / 1000,
        n->notice.why);
    if (n->group.state != GROUP_RUNNING && n->group.state != GROUP_WAITING) {
        feed(n, now_ms, GROUP_EVENT_LEAVE, 0, CR_FOREVER);
        return;
    }
    n->notice.until_ms = after(now_ms, left_ms);
    n->actions->notice(n->arg, kind, left_ms, n->notice.why);
}

void node_dump(struct node *n, int64_t now_ms, const char *why) {
    uint32_t asked = 0;
    (void) now_ms;
    n->dumps++;
    for (uint32_t i = 0; i < n->worker_count; i++) {
        if (lives(&n->workers[i]) && n->actions->ask_dump(n->arg, i, n->dumps) == 0) asked++;
    }
    say(n, CR_LOG_WARN, "%s: %u of %u workers are asked for their flight records", why, asked,
        n->worker_count);
}

/* ---- events: time ---- */

static void leave_now(struct node *n, int64_t now_ms) {
    n->notice.until_ms = CR_FOREVER;
    say(n, CR_LOG_WARN, "the time of this node's notice is over; the node leaves the job now");
    feed(n, now_ms, GROUP_EVENT_LEAVE, 0, CR_FOREVER);
}

/* Ends the round as broken. Call this when NODE_PATIENCE_MS have passed since a worker parked
 * without a reason, and no failure was reported on any node in that time: that worker has left the
 * round, so the round cannot succeed. */
static void break_round(struct node *n, int64_t now_ms) {
    n->patience_until_ms = CR_FOREVER;
    n->is_broken = n->group.state == GROUP_RUNNING;
    n->is_killed = n->is_final = false;
    feed(n, now_ms, GROUP_EVENT_BROKEN, 0, CR_FOREVER);
}

static void say_not_parked(const struct node *n, const struct node_worker *w) {
    say(n, CR_LOG_WARN, "local rank %u was left alive to go on in its process and did not call "
        "crunrt_rejoin() in time; it is killed", index_of(n, w));
}

/* Kills workers whose time is over: kept workers that have not parked, and workers that
 * stop_kept_workers() has signalled. Uses the action stop(), because that also ends the processes
 * that these workers have started. */
static void kill_late_workers(struct node *n, int64_t now_ms) {
    bool any = false;
    for (uint32_t i = 0; i < n->worker_count; i++) {
        struct node_worker *w = &n->workers[i];
        if (now_ms < w->until_ms) continue;
        if (w->state != WORKER_KEPT && w->state != WORKER_STOPPING) continue;
        if (w->state == WORKER_KEPT) say_not_parked(n, w);
        worker_enter(n, w, WORKER_STOPPING, CR_FOREVER);
        any = true;
    }
    if (any) stop_processes(n, SIGKILL, 0);
}

void node_tick(struct node *n, int64_t now_ms) {
    if (now_ms >= n->notice.until_ms) leave_now(n, now_ms);
    if (now_ms >= n->patience_until_ms) break_round(n, now_ms);
    kill_late_workers(n, now_ms);
    for (uint32_t i = 0; i < n->worker_count; i++) {
        struct node_worker *w = &n->workers[i];
        if (w->state == WORKER_HUNG && now_ms >= w->until_ms) kill_hung(n, w);
    }
}

int64_t node_deadline(const struct node *n) {
    int64_t first = n->notice.until_ms < n->patience_until_ms ? n->notice.until_ms
                                                              : n->patience_until_ms;
    for (uint32_t i = 0; i < n->worker_count; i++) {
        if (n->workers[i].until_ms < first) first = n->workers[i].until_ms;
    }
    return first;
}
