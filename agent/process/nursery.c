/* The nursery's state machine; nursery_internal.h has a picture of its states. Callbacks of the
 * loop call or schedule nursery_turn(), which checks the state of all processes and does whatever
 * is due. So no harm is done if an event comes late, is merged with another or is lost. */
#include "agent/process/nursery_internal.h"
#include "agent/system/system.h"
#include "base/assert.h"
#include "base/log/log.h"
#include "base/time/clock.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>

#define RETRY_MAX_MS 32 /* longest interval between two checks of undecided children, in ms */
/* ms after which undecided children are left to the warden, which kills them; longer than
 * UNDECIDED_MS in orphans.c */
#define UNDECIDED_MAX_MS 2000

static void on_turn(uv_timer_t *timer);
static void on_retry(uv_timer_t *timer);
static void on_stuck_due(uv_timer_t *timer);

/* ---- the state of the nursery ---- */

void nursery_enter(struct nursery *n, enum nursery_state next) {
    static const char *const names[] = {
#define NURSERY_STATE(state, name, limit) name,
        NURSERY_STATES(NURSERY_STATE)
#undef NURSERY_STATE
    };
    static const char *const limits[] = {
#define NURSERY_STATE(state, name, limit) limit,
        NURSERY_STATES(NURSERY_STATE)
#undef NURSERY_STATE
    };
    cr_debug("nursery: %s -> %s (%s)", names[n->state], names[next], limits[next]);
    n->state = next;
}

static bool is_ending(const struct nursery *n) {
    return n->state == NURSERY_ENDING || n->state == NURSERY_KILLING;
}

static int signal_of(const struct nursery *n) {
    return n->state == NURSERY_KILLING ? SIGKILL : n->end_signal;
}

void nursery_schedule_turn(struct nursery *n) {
    if (n->state != NURSERY_CLOSING) (void) uv_timer_start(&n->turn, on_turn, 0, 0);
}

/* ---- finding and killing processes of the nursery ---- */

static bool has_living(const struct nursery *n, bool kept) {
    const struct worker_process *w;
    TAILQ_FOREACH(w, &n->living, entry) {
        if (w->kept == kept) return true;
    }
    return false;
}

/* If the warden has ended the workers at the fence, calls on_fenced, once. */
static void report_fenced(struct nursery *n) {
    if (n->fenced_reported || !n->roster->fenced || n->events.on_fenced == NULL) return;
    n->fenced_reported = true;
    n->events.on_fenced(n->arg);
}

static void collect(struct nursery *n) {
    if (deaths_collect(n)) nursery_schedule_turn(n);
}

/* Returns whether undecided children have to be checked once more. Normally a child is undecided
 * for UNDECIDED_MS at most. But if memory is short, orphans_signal() cannot note the time, and the
 * checks might never end. So after UNDECIDED_MAX_MS this function returns false and leaves the
 * undecided children to the warden, which kills them when the nursery is closed. */
static bool may_look_again(struct nursery *n) {
    int64_t now_ms = cr_monotonic_ms();
    if (n->undecided_since_ms == 0) n->undecided_since_ms = now_ms;
    if (now_ms - n->undecided_since_ms < UNDECIDED_MAX_MS) return true;
    if (!n->warden_takes_over) {
        cr_warn("cannot look for the processes that the workers left: out of memory; they are "
                "killed when this process ends");
    }
    n->warden_takes_over = true;
    return false;
}

static void stop_looking_again(struct nursery *n) {
    n->retry_ms = 0;
    n->undecided_since_ms = 0;
    (void) uv_timer_stop(&n->retry);
}

/* Signals the orphans; `below_living` means the same as for orphans_signal(). If there are
 * undecided children, starts the timer that checks them once more: after 1 ms, 2 ms, 4 ms and so
 * on. Returns how many living orphans and undecided children there are; undecided children that
 * were left to the warden are not counted. */
static size_t signal_orphans(struct nursery *n, bool below_living) {
    struct orphans_found found = orphans_signal(n, signal_of(n), below_living);
    if (found.undecided == 0 || !may_look_again(n)) {
        stop_looking_again(n);
        return found.alive;
    }
    n->retry_ms = n->retry_ms == 0 ? 1 : 2 * n->retry_ms;
    if (n->retry_ms > RETRY_MAX_MS) n->retry_ms = RETRY_MAX_MS;
    (void) uv_timer_start(&n->retry, on_retry, n->retry_ms, 0);
    return found.alive + found.undecided;
}

static bool is_spared(void *arg, pid_t pid) { return orphans_spare(arg, pid); }

/* If nursery_end_well() spares processes, moves them out of the cgroup, because killing the cgroup
 * would end them and they would prevent its removal. */
static void release_spared(struct nursery *n) {
    if (n->spares != NURSERY_SPARES_NOTHING) cgroup_release(&n->cgroup, is_spared, n);
}

/* Kills all processes in the cgroup. Does nothing while a kept worker lives, because a write to
 * cgroup.kill would kill that worker, too. */
static void kill_cgroup(struct nursery *n) {
    if (has_living(n, true)) return;
    release_spared(n);
    cgroup_kill(&n->cgroup);
    n->cgroup_killed = true;
}

/* Watches the cgroup for its next change. Returns true; or false if the cgroup is empty now or
 * cannot be watched. */
static bool watch_cgroup(struct nursery *n) {
    nursery_unwatch(n, &n->cgroup_events_fd);
    n->cgroup_events_fd = cgroup_events_open(&n->cgroup);
    if (n->cgroup_events_fd >= 0 &&
        nursery_watch(n, n->cgroup_events_fd, EPOLLPRI, &n->watched_cgroup) == 0 &&
        cgroup_events_populated(n->cgroup_events_fd)) {
        return true;
    }
    nursery_unwatch(n, &n->cgroup_events_fd);
    return false;
}

/* Returns true if the cgroup has processes that are neither workers nor known orphans, and watches
 * the cgroup for its next change. While a kept worker lives, returns false: its descendants are in
 * the cgroup, too, and cannot be distinguished from unknown processes. */
static bool has_unknown_processes(struct nursery *n) {
    if (has_living(n, true)) return false;
    release_spared(n);
    if (n->cgroup.fd < 0 || !cgroup_populated(&n->cgroup) || !watch_cgroup(n)) return false;
    if (n->state == NURSERY_KILLING) kill_cgroup(n);
    return true;
}

/* ---- nursery_turn() ---- */

void nursery_set_fence(struct nursery *n, int64_t fence_ms) {
    warden_set_fence(&n->warden, n->roster, fence_ms);
}

static void become_empty(struct nursery *n) {
    nursery_enter(n, NURSERY_OPEN);
    n->fenced_reported = n->roster->fenced = false;
    (void) uv_timer_stop(&n->grace);
    (void) uv_timer_stop(&n->stuck);
    orphans_forget(n);
    if (n->cgroup_killed) cgroup_renew(&n->cgroup);
    n->cgroup_killed = false;
    n->spares = NURSERY_SPARES_NOTHING;
    n->past_count = 0;
    n->events.on_empty(n->arg);
}

static void nursery_turn(struct nursery *n) {
    if (n->state == NURSERY_CLOSING) return;
    report_fenced(n);
    (void) deaths_collect(n);
    (void) uv_timer_stop(&n->turn);
    deaths_deliver(n); /* on_exit may call nursery_end() or nursery_close() */
    if (!is_ending(n) || has_living(n, false)) return;
    if (signal_orphans(n, false) > 0) return;
    if (has_unknown_processes(n)) return;
    become_empty(n);
}

static void on_turn(uv_timer_t *timer) { nursery_turn(timer->data); }

/* Checks undecided children once more. nursery_turn() signals orphans only when no worker is left
 * to end. While workers are left, this function signals the orphans itself. */
static void on_retry(uv_timer_t *timer) {
    struct nursery *n = timer->data;
    if (is_ending(n) && has_living(n, false))
        (void) signal_orphans(n, false);
    else
        nursery_turn(n);
}

void nursery_on_deaths(uv_poll_t *poll, int status, int events) {
    struct nursery *n = poll->data;
    (void) status, (void) events;
    if (n->state == NURSERY_CLOSING) nursery_go_on_closing(n);
    else nursery_turn(n);
}

/* Records the deaths of workers, and then reaps orphans. After the recording, a dead child that
 * waitid(2) reports is either an orphan, or a child that another part of this process has started
 * and will wait for. In the second case waitid reports no other dead child until that part has
 * waited for its child, so orphans_reap_hidden() finds the dead orphans in /proc. */
void nursery_on_sigchld(uv_signal_t *handle, int signum) {
    struct nursery *n = handle->data;
    (void) signum;
    if (n->state == NURSERY_CLOSING) return;
    collect(n);
    while (n->adopts && !orphans_reap()) {
        uint64_t before = n->deaths_seen;
        /* waitid may have reported a worker that died after the last collect() */
        collect(n);
        if (n->deaths_seen != before) continue;
        orphans_reap_hidden();
        break;
    }
    nursery_turn(n);
}

/* ---- nursery_end() ---- */

static bool may_give_up(const struct nursery *n) {
    return n->events.on_unkillable != NULL && !n->unkillable_said;
}

/* Starts the timer for the next report of stuck processes, or for on_unkillable if that is due
 * before the report. */
static void arm_stuck(struct nursery *n, int64_t since_ms) {
    int64_t next_ms = n->stuck_report_ms;
    if (may_give_up(n) && n->events.give_up_ms < next_ms) next_ms = n->events.give_up_ms;
    uint64_t wait_ms = next_ms > since_ms ? (uint64_t) (next_ms - since_ms) : 0;
    (void) uv_timer_start(&n->stuck, on_stuck_due, wait_ms, 0);
}

/* Runs when on_stuck or on_unkillable is due. Calls nursery_turn() first, which may find that all
 * processes have died in the meantime. After each report, the time from SIGKILL to the next report
 * is twice as long. */
static void on_stuck_due(uv_timer_t *timer) {
    struct nursery *n = timer->data;
    nursery_turn(n);
    if (n->state != NURSERY_KILLING) return;
    int64_t since_ms = cr_monotonic_ms() - n->killed_ms;
    bool gives_up = may_give_up(n) && since_ms >= n->events.give_up_ms;
    unsigned count = since_ms >= n->stuck_report_ms || gives_up ? stuck_report(n, since_ms) : 0;
    while (n->stuck_report_ms <= since_ms) n->stuck_report_ms *= 2;
    n->unkillable_said |= gives_up;
    arm_stuck(n, since_ms);
    if (gives_up) n->events.on_unkillable(n->arg, count);
}

static void kill_all(struct nursery *n) {
    struct worker_process *w;
    if (!uv_is_active((uv_handle_t *) &n->stuck)) {
        n->killed_ms = cr_monotonic_ms();
        n->stuck_report_ms = NURSERY_STUCK_MS;
        n->unkillable_said = false;
        arm_stuck(n, 0);
    }
    nursery_enter(n, NURSERY_KILLING);
    collect(n);
    kill_cgroup(n);
    TAILQ_FOREACH(w, &n->living, entry) {
        if (!w->kept) worker_send(w, SIGKILL);
    }
    (void) signal_orphans(n, true);
}

static void on_grace_over(uv_timer_t *timer) {
    struct nursery *n = timer->data;
    kill_all(n);
    nursery_schedule_turn(n);
}

static void ask_to_end(struct worker_process *w, int signum) {
    worker_send(w, signum);
    (void) kill(-w->how.pid, SIGCONT); /* a stopped process handles the signal only after SIGCONT */
}

static void ask_all_to_end(struct nursery *n, int signum) {
    struct worker_process *w;
    nursery_enter(n, NURSERY_ENDING);
    n->end_signal = signum;
    collect(n);
    TAILQ_FOREACH(w, &n->living, entry) {
        if (!w->kept) ask_to_end(w, signum);
    }
    /* Orphans are signalled here only if a worker is left to end. Otherwise nursery_turn(), which
     * begin_end() schedules, signals them. */
    if (has_living(n, false)) (void) signal_orphans(n, false);
}

static void begin_end(struct nursery *n, int signum, int64_t grace_ms) {
    CR_ASSERT(n->state != NURSERY_CLOSING);
    ask_all_to_end(n, signum);
    if (grace_ms <= 0)
        kill_all(n);
    else
        (void) uv_timer_start(&n->grace, on_grace_over, (uint64_t) grace_ms, 0);
    nursery_schedule_turn(n);
}

void nursery_end(struct nursery *n, int signum, int64_t grace_ms) {
    n->spares = NURSERY_SPARES_NOTHING;
    begin_end(n, signum, grace_ms);
}

void nursery_end_well(struct nursery *n, int signum, int64_t grace_ms,
                      enum nursery_spares spares) {
    n->spares = spares;
    begin_end(n, signum, grace_ms);
}

/* ---- nursery_abandon() ---- */

/* Frees the record of a worker that SIGKILL does not end. The worker's pid stays in the roster,
 * because by that pid the warden recognises the processes of the worker's Unix session. */
static void forget_worker(struct nursery *n, struct worker_process *w) {
    known_children_forget(w->how.pid);
    nursery_unwatch(n, &w->pidfd);
    TAILQ_REMOVE(&n->living, w, entry);
    free(w);
}

void nursery_abandon(struct nursery *n) {
    struct worker_process *w;
    CR_ASSERT(n->state == NURSERY_KILLING && TAILQ_EMPTY(&n->dead));
    cgroup_kill(&n->cgroup);
    while ((w = TAILQ_FIRST(&n->living)) != NULL) {
        worker_send(w, SIGKILL);
        forget_worker(n, w);
    }
    (void) uv_timer_stop(&n->stuck);
    stop_looking_again(n);
    orphans_forget(n);
    n->warden_takes_over = true;
    nursery_enter(n, NURSERY_OPEN);
}

/* ---- the functions for one worker ---- */

pid_t worker_pid(const struct worker_process *w) { return w->how.pid; }
void *worker_arg(const struct worker_process *w) { return w->arg; }
void worker_keep(struct worker_process *w, bool keep) { w->kept = keep; }

bool worker_is_dead(struct worker_process *w) {
    const struct worker_process *dead;
    collect(w->nursery);
    TAILQ_FOREACH(dead, &w->nursery->dead, entry) {
        if (dead == w) return true;
    }
    return false;
}

void worker_signal(struct worker_process *w, int signum) {
    if (!worker_is_dead(w)) worker_send(w, signum);
}
