/* Decides what a worker group does. A table at the end of the file has one entry for each state and
 * event, so that no case can be left out: a function that changes the state and requests actions,
 * `nop` if the event has no effect, or `bug` if the event cannot happen in the state. */
#include "agent/node/worker_group.h"

#include "base/assert.h"
#include "base/time/clock.h"

#include <signal.h>

struct step {
    struct worker_group *g;
    const struct group_event *event;
    struct group_actions todo;
};

static const char *const state_names[] = {
#define X(name, limit) #name,
    GROUP_STATES(X)
#undef X
};

static const char *const state_limits[] = {
#define X(name, limit) limit,
    GROUP_STATES(X)
#undef X
};

const char *group_state_name(enum group_state state) { return state_names[state]; }
const char *group_state_limit(enum group_state state) { return state_limits[state]; }

void worker_group_init(struct worker_group *g, int64_t stop_timeout_ms,
                       int64_t shutdown_timeout_ms) {
    *g = (struct worker_group){.state = GROUP_JOINING,
                               .stop_timeout_ms = stop_timeout_ms,
                               .shutdown_timeout_ms = shutdown_timeout_ms,
                               .lease_ms = CR_FOREVER};
}

/* ---- helpers of the actions ---- */

/* Sets the group's state; no other function writes it. */
static void enter(struct step *s, enum group_state next) { s->g->state = next; }

static int64_t shorter(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t after(int64_t now_ms, int64_t ms) {
    return now_ms > CR_FOREVER - ms ? CR_FOREVER : now_ms + ms;
}

/* Stops all workers: requests `signum` now and SIGKILL after grace_ms. If this node is cut off, the
 * workers get SIGKILL at the end of the node's lease at the latest. */
static void stop_all(struct step *s, int signum, int64_t grace_ms) {
    int64_t now_ms = s->event->now_ms;
    if (s->g->lease_ms != CR_FOREVER) {
        int64_t rest_ms = s->g->lease_ms > now_ms ? s->g->lease_ms - now_ms : 0;
        grace_ms = shorter(grace_ms, rest_ms);
    }
    enter(s, GROUP_STOPPING);
    s->g->kill_at_ms = after(now_ms, grace_ms);
    s->todo.stop_signal = signum;
    s->todo.stop_grace_ms = grace_ms;
}

/* The `ms` of the events STOP and LEAVE is CR_FOREVER, unless this node is cut off: in that case it
 * is the rest of the node's lease, and this function stores when the lease ends. */
static void note_lease(struct step *s) {
    if (s->event->ms == CR_FOREVER) return;
    s->g->lease_ms = shorter(s->g->lease_ms, after(s->event->now_ms, s->event->ms));
}

static void end(struct step *s) {
    enter(s, GROUP_ENDED);
    s->todo.finish = true;
}

/* Stores how the job ends. If an ending was stored before, that one stays. */
static void note_ending(struct step *s, enum group_ending ending) {
    if (s->g->ending == GROUP_GOES_ON) s->g->ending = ending;
}

static void leave_rendezvous(struct step *s) {
    if (!s->g->rendezvous_over) s->todo.leave = true;
    s->g->rendezvous_over = true;
}

static enum group_ending ending_of(enum group_event_type type) {
    if (type == GROUP_EVENT_END_OK) return GROUP_SUCCEEDED;
    return type == GROUP_EVENT_END_FAILED ? GROUP_FAILED : GROUP_LOST;
}

static void count_exit(struct step *s) {
    CR_ASSERT(s->g->living > 0);
    s->g->living--;
    if (!s->event->is_service) return;
    CR_ASSERT(s->g->services > 0);
    s->g->services--;
}

/* ---- the actions, to which the table of transitions points ---- */

static void nop(struct step *s) { (void) s; }

static void bug(struct step *s) {
    (void) s;
    CR_ASSERT(0 && "an event that this state cannot see");
}

static void start(struct step *s) {
    enter(s, GROUP_RUNNING);
    s->g->living = s->event->count;
    s->g->services = s->event->services;
    s->g->parked = s->g->ended_early = s->g->failures = 0;
    s->todo.start = true;
}

static void give_up_start(struct step *s) {
    s->g->living = s->event->count;
    s->g->services = s->event->services;
    note_ending(s, GROUP_UNSTARTED);
    leave_rendezvous(s);
    stop_all(s, SIGTERM, s->g->stop_timeout_ms);
}

static void worker_ended_well(struct step *s) {
    count_exit(s);
    if (s->g->living > s->g->services || s->g->parked + s->g->ended_early > 0) return;
    enter(s, GROUP_WAITING);
    s->todo.report_succeeded = true;
}

static void round_failed(struct step *s) {
    s->g->failures++;
    s->todo.report_failed = true;
    stop_all(s, SIGTERM, s->g->stop_timeout_ms);
}

static void worker_failed(struct step *s) {
    count_exit(s);
    round_failed(s);
}

static void worker_ended_for_change(struct step *s) {
    count_exit(s);
    s->g->ended_early++;
}

static void worker_parked(struct step *s) {
    count_exit(s);
    s->g->parked++;
}

static void worker_unparked(struct step *s) {
    CR_ASSERT(s->g->parked > 0);
    s->g->parked--;
    s->g->living++;
    s->g->services += s->event->is_service ? 1 : 0;
}

static void parked_gone(struct step *s) {
    CR_ASSERT(s->g->parked > 0);
    s->g->parked--;
}

/* Counts a parked worker that has ended by itself in a running round. A round succeeds only if all
 * its workers end well without parking, so this round cannot succeed any more. */
static void parked_gone_early(struct step *s) {
    parked_gone(s);
    s->g->ended_early++;
}

/* Counts a worker that has ended while the group is being stopped. If the worker failed by itself,
 * just before crun's signal, its end also counts as a failure of the round. */
static void worker_ended_stopping(struct step *s) {
    count_exit(s);
    if (s->event->type == GROUP_EVENT_EXIT_BAD && !s->event->after_our_signal) s->g->failures++;
}

static void stop_for_next_round(struct step *s) {
    note_lease(s);
    stop_all(s, SIGTERM, s->g->stop_timeout_ms);
}

/* Handles a further STOP or LEAVE that comes while the group is being stopped. If this node is cut
 * off and its lease ends before the grace, shortens the grace to the rest of the lease. */
static void hasten(struct step *s) {
    if (s->event->ms == CR_FOREVER) return;
    note_lease(s);
    if (s->g->kill_at_ms > s->g->lease_ms) stop_all(s, SIGTERM, s->g->stop_timeout_ms);
}

static void note_end(struct step *s) {
    note_ending(s, ending_of(s->event->type));
    s->g->rendezvous_over = true;
}

static void stop_for_good(struct step *s) {
    note_end(s);
    stop_all(s, SIGTERM, s->event->type == GROUP_EVENT_END_OK ? s->g->shutdown_timeout_ms
                                                              : s->g->stop_timeout_ms);
}

/* Call this between two rounds, when only parked workers can be alive. Stops them; or ends the
 * group if there are none. */
static void stop_parked(struct step *s, int signum, int64_t grace_ms) {
    if (s->g->parked > 0) stop_all(s, signum, grace_ms);
    else end(s);
}

static void end_between_rounds(struct step *s) {
    note_end(s);
    stop_parked(s, SIGTERM, s->g->stop_timeout_ms);
}

static void note_leave(struct step *s) {
    note_ending(s, GROUP_LEFT);
    leave_rendezvous(s);
}

static void leave_between_rounds(struct step *s) {
    note_leave(s);
    stop_parked(s, SIGTERM, s->g->stop_timeout_ms);
}

static void stop_and_leave(struct step *s) {
    note_leave(s);
    stop_for_next_round(s);
}

/* Leaves the rendezvous while the group is being stopped. If this node is cut off, the end of its
 * lease limits the grace. */
static void leave_while_stopping(struct step *s) {
    note_leave(s);
    hasten(s);
}

static void go_on_or_end(struct step *s) {
    CR_ASSERT(s->g->living == 0);
    if (s->g->ending != GROUP_GOES_ON) {
        end(s);
    } else {
        enter(s, GROUP_JOINING);
        /* A lease limits workers that have ranks, because after its end other nodes may run workers
         * with the same ranks. Now only parked workers are left, which have no ranks. */
        s->g->lease_ms = CR_FOREVER;
        s->todo.join = true;
    }
}

/* Ends the group although processes are left that SIGKILL does not end. The group leaves the
 * rendezvous, so that the other nodes form their next round without this node. */
static void give_up_stop(struct step *s) {
    note_ending(s, GROUP_STUCK);
    leave_rendezvous(s);
    end(s);
}

static void note_signal(struct step *s) {
    if (s->g->signals++ == 0) s->g->signal = (int) s->event->count;
    note_ending(s, GROUP_SIGNALED);
    leave_rendezvous(s);
}

static void signal_between_rounds(struct step *s) {
    note_signal(s);
    stop_parked(s, (int) s->event->count, s->g->shutdown_timeout_ms);
}

/* Stops the workers with the first signal that the launcher receives. Each further signal to the
 * launcher stops them with SIGTERM: the first further signal shortens the rest of the grace to
 * GROUP_HASTE_MS at most, and the next one ends the grace. But a signal within GROUP_REPEAT_MS of
 * the first one leaves the grace as it is, because it may be a copy of the first: a terminal and a
 * parent process often both deliver one ^C. */
static void signal_workers(struct step *s) {
    struct worker_group *g = s->g;
    int64_t now_ms = s->event->now_ms;
    note_signal(s);
    if (g->signals == 1) {
        g->signaled_ms = now_ms;
        stop_all(s, (int) s->event->count, g->shutdown_timeout_ms);
        return;
    }
    int64_t rest_ms = g->kill_at_ms > now_ms ? g->kill_at_ms - now_ms : 0;
    if (now_ms - g->signaled_ms >= GROUP_REPEAT_MS) {
        rest_ms = g->is_hastened ? 0 : shorter(rest_ms, GROUP_HASTE_MS);
        g->is_hastened = true;
    }
    stop_all(s, SIGTERM, rest_ms);
}

#define E(name) [GROUP_EVENT_##name]

static void (*const table[GROUP_STATE_COUNT][GROUP_EVENT_COUNT])(struct step *) = {
    /* clang-format off */
    [GROUP_JOINING] = {
        E(ROUND)       = start,               E(START_FAILED) = bug,
        E(EXIT_OK)     = bug,                 E(EXIT_BAD)     = bug,
        E(EXIT_READY)  = bug,                 E(PARKED)       = bug,
        E(UNPARKED)    = bug,                 E(PARKED_GONE)  = parked_gone,
        E(BROKEN)      = bug,                 E(EMPTY)        = nop,
        E(STOP)        = nop,                 E(END_OK)       = end_between_rounds,
        E(END_FAILED)  = end_between_rounds,  E(END_LOST)     = end_between_rounds,
        E(LEAVE)       = leave_between_rounds, E(SIGNAL)      = signal_between_rounds,
        E(UNKILLABLE)  = bug,
    },
    [GROUP_RUNNING] = {
        E(ROUND)       = nop,                 E(START_FAILED) = give_up_start,
        E(EXIT_OK)     = worker_ended_well,   E(EXIT_BAD)     = worker_failed,
        E(EXIT_READY)  = worker_ended_for_change, E(PARKED)   = worker_parked,
        E(UNPARKED)    = bug,                 E(PARKED_GONE)  = parked_gone_early,
        E(BROKEN)      = round_failed,        E(EMPTY)        = nop,
        E(STOP)        = stop_for_next_round, E(END_OK)       = stop_for_good,
        E(END_FAILED)  = stop_for_good,       E(END_LOST)     = stop_for_good,
        E(LEAVE)       = stop_and_leave,      E(SIGNAL)       = signal_workers,
        E(UNKILLABLE)  = bug,
    },
    [GROUP_WAITING] = {
        E(ROUND)       = nop,                 E(START_FAILED) = bug,
        E(EXIT_OK)     = count_exit,          E(EXIT_BAD)     = count_exit,
        E(EXIT_READY)  = count_exit,          E(PARKED)       = bug,
        E(UNPARKED)    = bug,                 E(PARKED_GONE)  = bug,
        E(BROKEN)      = bug,                 E(EMPTY)        = nop,
        E(STOP)        = stop_for_next_round, E(END_OK)       = stop_for_good,
        E(END_FAILED)  = stop_for_good,       E(END_LOST)     = stop_for_good,
        E(LEAVE)       = stop_and_leave,      E(SIGNAL)       = signal_workers,
        E(UNKILLABLE)  = bug,
    },
    [GROUP_STOPPING] = {
        E(ROUND)       = nop,                 E(START_FAILED) = bug,
        E(EXIT_OK)     = worker_ended_stopping, E(EXIT_BAD)   = worker_ended_stopping,
        E(EXIT_READY)  = worker_ended_for_change, E(PARKED)   = worker_parked,
        E(UNPARKED)    = worker_unparked,     E(PARKED_GONE)  = parked_gone,
        E(BROKEN)      = nop,                 E(EMPTY)        = go_on_or_end,
        E(STOP)        = hasten,              E(END_OK)       = note_end,
        E(END_FAILED)  = note_end,            E(END_LOST)     = note_end,
        E(LEAVE)       = leave_while_stopping, E(SIGNAL)      = signal_workers,
        E(UNKILLABLE)  = give_up_stop,
    },
    [GROUP_ENDED] = {
        E(ROUND)       = nop,                 E(START_FAILED) = bug,
        E(EXIT_OK)     = bug,                 E(EXIT_BAD)     = bug,
        E(EXIT_READY)  = bug,                 E(PARKED)       = bug,
        E(UNPARKED)    = bug,                 E(PARKED_GONE)  = bug,
        E(BROKEN)      = nop,                 E(EMPTY)        = nop,
        E(STOP)        = nop,                 E(END_OK)       = nop,
        E(END_FAILED)  = nop,                 E(END_LOST)     = nop,
        E(LEAVE)       = nop,                 E(SIGNAL)       = nop,
        E(UNKILLABLE)  = bug,
    },
    /* clang-format on */
};

struct group_actions worker_group_step(struct worker_group *g, const struct group_event *event) {
    struct step s = {.g = g, .event = event};
    table[g->state][event->type](&s);
    return s.todo;
}
