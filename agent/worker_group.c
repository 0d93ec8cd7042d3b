/* A table of small named actions, one for each state and event: `nop` is visible, no case can hide.
 * Time is only compared, never asked for. */
#include "agent/worker_group.h"

#include "base/assert.h"
#include "base/clock.h"

#include <signal.h>

struct step {
    struct worker_group *g;
    const struct group_event *event;
    struct group_actions do_;
};

static const char *const state_names[] = {
#define X(name) #name,
    GROUP_STATES(X)
#undef X
};

const char *group_state_name(enum group_state state) { return state_names[state]; }

void worker_group_init(struct worker_group *g, int64_t stop_timeout_ms,
                       int64_t shutdown_timeout_ms) {
    *g = (struct worker_group){.state = GROUP_JOINING,
                               .stop_timeout_ms = stop_timeout_ms,
                               .shutdown_timeout_ms = shutdown_timeout_ms};
}

/* ---- parts ---- */

static void end_all(struct step *s, int signum, int64_t grace_ms) {
    s->g->state = GROUP_STOPPING;
    s->g->kill_at_ms = grace_ms == CR_FOREVER || s->event->now_ms > CR_FOREVER - grace_ms
                           ? CR_FOREVER
                           : s->event->now_ms + grace_ms;
    s->do_.end_signal = signum;
    s->do_.end_grace_ms = grace_ms;
}

static void finish(struct step *s) {
    s->g->state = GROUP_ENDED;
    s->do_.finish = 1;
}

/* The first end that is known stands. */
static void decide(struct step *s, enum group_ending ending) {
    if (s->g->ending == GROUP_GOES_ON) s->g->ending = ending;
}

static void leave(struct step *s) {
    if (!s->g->rendezvous_over) s->do_.leave = 1;
    s->g->rendezvous_over = 1;
}

static enum group_ending ending_of(enum group_event_type type) {
    if (type == GROUP_EVENT_END_OK) return GROUP_SUCCEEDED;
    return type == GROUP_EVENT_END_FAILED ? GROUP_FAILED : GROUP_LOST;
}

static int64_t shorter(int64_t a, int64_t b) { return a < b ? a : b; }

static void count_exit(struct step *s) {
    CR_ASSERT(s->g->living > 0);
    s->g->living--;
}

/* ---- actions ---- */

static void nop(struct step *s) { (void) s; }

static void bug(struct step *s) {
    (void) s;
    CR_ASSERT(0 && "an event that this state cannot see");
}

static void start(struct step *s) {
    s->g->state = GROUP_RUNNING;
    s->g->living = s->event->count;
    s->g->parked = s->g->made_way = s->g->failures = 0;
    s->do_.start = 1;
}

static void give_up_start(struct step *s) {
    s->g->living = s->event->count;
    decide(s, GROUP_UNSTARTED);
    leave(s);
    end_all(s, SIGTERM, s->g->stop_timeout_ms);
}

static void one_ended_well(struct step *s) {
    count_exit(s);
    if (s->g->living + s->g->parked + s->g->made_way > 0) return; /* the round is to end otherwise */
    s->g->state = GROUP_WAITING;
    s->do_.tell_succeeded = 1;
}

static void one_failed(struct step *s) {
    count_exit(s);
    s->g->failures++;
    s->do_.tell_failed = 1;
    end_all(s, SIGTERM, s->g->stop_timeout_ms);
}

static void made_way(struct step *s) {
    count_exit(s);
    s->g->made_way++;
}

static void one_parked(struct step *s) {
    count_exit(s);
    s->g->parked++;
}

static void parked_gone(struct step *s) {
    CR_ASSERT(s->g->parked > 0);
    s->g->parked--;
}

static void round_broken(struct step *s) {
    s->g->failures++;
    s->do_.tell_failed = 1;
    end_all(s, SIGTERM, s->g->stop_timeout_ms);
}

/* One that failed of itself just before our signal is a failure still. */
static void one_ended_stopping(struct step *s) {
    count_exit(s);
    if (s->event->type == GROUP_EVENT_EXIT_BAD && s->event->count == 0) s->g->failures++;
}

static void stop_for_next_round(struct step *s) {
    end_all(s, SIGTERM, shorter(s->g->stop_timeout_ms, s->event->ms));
}

/* We are cut off and our lease runs out: whoever is left has less time now. */
static void hasten(struct step *s) {
    if (s->event->ms == CR_FOREVER) return;
    if (s->g->kill_at_ms - s->event->now_ms > s->event->ms) end_all(s, SIGTERM, s->event->ms);
}

static void stop_for_good(struct step *s) {
    decide(s, ending_of(s->event->type));
    s->g->rendezvous_over = 1;
    end_all(s, SIGTERM, s->event->type == GROUP_EVENT_END_OK ? s->g->shutdown_timeout_ms
                                                             : s->g->stop_timeout_ms);
}

static void note_end(struct step *s) {
    decide(s, ending_of(s->event->type));
    s->g->rendezvous_over = 1;
}

/* With nobody to stop this is the end. */
static void stop_parked(struct step *s) {
    if (s->g->parked > 0) end_all(s, SIGTERM, s->g->stop_timeout_ms);
    else finish(s);
}

static void end_now(struct step *s) {
    note_end(s);
    stop_parked(s);
}

static void note_leave(struct step *s) {
    decide(s, GROUP_LEFT);
    leave(s);
}

static void leave_before_start(struct step *s) {
    note_leave(s);
    stop_parked(s);
}

static void stop_and_leave(struct step *s) {
    note_leave(s);
    end_all(s, SIGTERM, s->g->stop_timeout_ms);
}

static void next(struct step *s) {
    CR_ASSERT(s->g->living == 0);
    if (s->g->ending != GROUP_GOES_ON) {
        finish(s);
    } else {
        s->g->state = GROUP_JOINING;
        s->do_.join = 1;
    }
}

static void note_signal(struct step *s) {
    if (s->g->signals++ == 0) s->g->signal = (int) s->event->count;
    decide(s, GROUP_SIGNALED);
    leave(s);
}

static void signal_before_start(struct step *s) {
    note_signal(s);
    if (s->g->parked > 0) end_all(s, (int) s->event->count, s->g->shutdown_timeout_ms);
    else finish(s);
}

/* The first goes on to the workers as it is; the next ones begin the stop anew with SIGTERM. */
static void signal_workers(struct step *s) {
    note_signal(s);
    end_all(s, s->g->signals == 1 ? (int) s->event->count : SIGTERM, s->g->shutdown_timeout_ms);
}

static void (*const table[GROUP_STATE_COUNT][GROUP_EVENT_COUNT])(struct step *) = {
    /* clang-format off */
    [GROUP_JOINING] = {
        [GROUP_EVENT_ROUND] = start,            [GROUP_EVENT_START_FAILED] = bug,
        [GROUP_EVENT_EXIT_OK] = bug,            [GROUP_EVENT_EXIT_BAD] = bug,
        [GROUP_EVENT_EMPTY] = nop,              [GROUP_EVENT_STOP] = nop,
        [GROUP_EVENT_END_OK] = end_now,         [GROUP_EVENT_END_FAILED] = end_now,
        [GROUP_EVENT_END_LOST] = end_now,       [GROUP_EVENT_SIGNAL] = signal_before_start,
        [GROUP_EVENT_EXIT_READY] = bug,         [GROUP_EVENT_PARKED] = bug,
        [GROUP_EVENT_PARKED_GONE] = parked_gone,[GROUP_EVENT_BROKEN] = bug,
        [GROUP_EVENT_LEAVE] = leave_before_start,
    },
    [GROUP_RUNNING] = {
        [GROUP_EVENT_ROUND] = nop,              [GROUP_EVENT_START_FAILED] = give_up_start,
        [GROUP_EVENT_EXIT_OK] = one_ended_well, [GROUP_EVENT_EXIT_BAD] = one_failed,
        [GROUP_EVENT_EMPTY] = nop,              [GROUP_EVENT_STOP] = stop_for_next_round,
        [GROUP_EVENT_END_OK] = stop_for_good,   [GROUP_EVENT_END_FAILED] = stop_for_good,
        [GROUP_EVENT_END_LOST] = stop_for_good, [GROUP_EVENT_SIGNAL] = signal_workers,
        [GROUP_EVENT_EXIT_READY] = made_way,    [GROUP_EVENT_PARKED] = one_parked,
        [GROUP_EVENT_PARKED_GONE] = parked_gone,[GROUP_EVENT_BROKEN] = round_broken,
        [GROUP_EVENT_LEAVE] = stop_and_leave,
    },
    [GROUP_WAITING] = {
        [GROUP_EVENT_ROUND] = nop,              [GROUP_EVENT_START_FAILED] = bug,
        [GROUP_EVENT_EXIT_OK] = bug,            [GROUP_EVENT_EXIT_BAD] = bug,
        [GROUP_EVENT_EMPTY] = nop,              [GROUP_EVENT_STOP] = stop_for_next_round,
        [GROUP_EVENT_END_OK] = stop_for_good,   [GROUP_EVENT_END_FAILED] = stop_for_good,
        [GROUP_EVENT_END_LOST] = stop_for_good, [GROUP_EVENT_SIGNAL] = signal_workers,
        [GROUP_EVENT_EXIT_READY] = bug,         [GROUP_EVENT_PARKED] = bug,
        [GROUP_EVENT_PARKED_GONE] = bug,        [GROUP_EVENT_BROKEN] = bug,
        [GROUP_EVENT_LEAVE] = stop_and_leave,
    },
    [GROUP_STOPPING] = {
        [GROUP_EVENT_ROUND] = nop,              [GROUP_EVENT_START_FAILED] = bug,
        [GROUP_EVENT_EXIT_OK] = one_ended_stopping, [GROUP_EVENT_EXIT_BAD] = one_ended_stopping,
        [GROUP_EVENT_EMPTY] = next,             [GROUP_EVENT_STOP] = hasten,
        [GROUP_EVENT_END_OK] = note_end,        [GROUP_EVENT_END_FAILED] = note_end,
        [GROUP_EVENT_END_LOST] = note_end,      [GROUP_EVENT_SIGNAL] = signal_workers,
        [GROUP_EVENT_EXIT_READY] = made_way,    [GROUP_EVENT_PARKED] = one_parked,
        [GROUP_EVENT_PARKED_GONE] = parked_gone,[GROUP_EVENT_BROKEN] = nop,
        [GROUP_EVENT_LEAVE] = note_leave,
    },
    [GROUP_ENDED] = {
        [GROUP_EVENT_ROUND] = nop,              [GROUP_EVENT_START_FAILED] = bug,
        [GROUP_EVENT_EXIT_OK] = bug,            [GROUP_EVENT_EXIT_BAD] = bug,
        [GROUP_EVENT_EMPTY] = nop,              [GROUP_EVENT_STOP] = nop,
        [GROUP_EVENT_END_OK] = nop,             [GROUP_EVENT_END_FAILED] = nop,
        [GROUP_EVENT_END_LOST] = nop,           [GROUP_EVENT_SIGNAL] = nop,
        [GROUP_EVENT_EXIT_READY] = bug,         [GROUP_EVENT_PARKED] = bug,
        [GROUP_EVENT_PARKED_GONE] = bug,        [GROUP_EVENT_BROKEN] = nop,
        [GROUP_EVENT_LEAVE] = nop,
    },
    /* clang-format on */
};

struct group_actions worker_group_step(struct worker_group *g, const struct group_event *event) {
    struct step s = {.g = g, .event = event};
    table[g->state][event->type](&s);
    return s.do_;
}
