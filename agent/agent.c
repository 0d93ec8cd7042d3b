/* The shell around worker_group: turns what happens into its events, and does what it answers.
 *
 * One object owns the nursery (processes), the rendezvous, the workers' links, the log folder, the
 * output relay, and one record a worker. Everything runs on the loop's thread. It ends in this order:
 * the group has ended, the output is drained and the console flushed, the rendezvous has said
 * good-bye, the handles are closed, on_done. */
#include "agent/agent_internal.h"

#include "agent/report/report.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *text_of(const struct cr_buffer *b) {
    return b->len > 0 ? b->data : "a worker failed";
}

/* ---- the end ---- */

static void on_part_closed(void *arg) {
    struct agent *a = arg;
    if (--a->open_parts > 0) return;
    log_dir_done(&a->logs);
    if (a->failed_start) {
        agent_free(a);
        return;
    }
    void (*on_done)(void *, const struct agent_result *) = a->on_done;
    on_done(a->arg, &a->result); /* may free the agent */
}

static void on_timer_closed(uv_handle_t *handle) { on_part_closed(handle->data); }

static void close_parts(struct agent *a) {
    a->open_parts = (a->nursery != NULL) + (a->rendezvous != NULL) + (a->relay != NULL) +
                    (a->watchdog != NULL) + (a->links != NULL) + CHANGE_TIMERS;
    /* The nursery first, so that its warden dies while the store's thread is stopped. */
    if (a->nursery != NULL) nursery_close(a->nursery, on_part_closed);
    if (a->rendezvous != NULL) rendezvous_close(a->rendezvous, on_part_closed);
    if (a->relay != NULL) log_relay_close(a->relay, on_part_closed);
    if (a->watchdog != NULL) watchdog_close(a->watchdog, on_part_closed);
    if (a->links != NULL) worker_channels_close(a->links, on_part_closed);
    change_timers_close(a, on_timer_closed);
}

/* The last words of the workers stand before the verdict on them. */
static void on_flushed(void *arg) { close_parts(arg); }

static const enum agent_outcome outcomes[] = {
    [GROUP_GOES_ON] = AGENT_ERROR,     [GROUP_SUCCEEDED] = AGENT_SUCCEEDED,
    [GROUP_FAILED] = AGENT_FAILED,     [GROUP_LOST] = AGENT_ERROR,
    [GROUP_UNSTARTED] = AGENT_ERROR,   [GROUP_SIGNALED] = AGENT_SIGNALED,
    [GROUP_LEFT] = AGENT_LEFT,
};

/* The job ends for another reason, but a worker had failed before: that must not be lost. */
static void warn_of_failure(struct agent *a) {
    struct cr_buffer what = {0};
    case_write_first(a, &what);
    cr_warn("%s", text_of(&what));
    cr_buffer_done(&what);
}

static void finish(struct agent *a) {
    log_relay_end(a->relay);
    a->result.outcome = outcomes[a->group.ending];
    a->result.signal = a->group.signal;
    a->result.workers_started = a->rounds > 0;
    if (a->group.ending == GROUP_LEFT) {
        (void) cr_fail(&a->error, -ECANCELED, "this node has left the job: %s", a->leaving.why);
    }
    a->result.error = a->error;
    if (a->result.outcome == AGENT_FAILED) case_write_report(a);
    else if (a->group.failures > 0) warn_of_failure(a);
    events_agent_ended(event_source(a), &a->round,
                       a->result.outcome == AGENT_SUCCEEDED || a->result.outcome == AGENT_FAILED,
                       cr_monotonic_ms() - a->began_ms);
    log_relay_flush(a->relay);
}

/* ---- doing what the group's policy answers ---- */

static void tell_failed(struct agent *a) {
    struct cr_buffer what = {0};
    case_write_first(a, &what);
    cr_info("%s", text_of(&what));
    rendezvous_failed(a->rendezvous, a->round.round, text_of(&what));
    cr_buffer_done(&what);
}

static void act(struct agent *a, const struct group_actions *todo) {
    if (todo->tell_failed) tell_failed(a);
    if (todo->tell_succeeded) rendezvous_succeeded(a->rendezvous, a->round.round);
    if (todo->leave) rendezvous_leave(a->rendezvous);
    if (todo->end_signal != 0) stop_workers(a, todo->end_signal, todo->end_grace_ms);
    if (todo->join) rendezvous_join(a->rendezvous);
    if (todo->start) {
        uint32_t running;
        if (attempt_start(a, &running) < 0) agent_step(a, GROUP_EVENT_START_FAILED, running, 0);
    }
    if (todo->finish) finish(a);
}

void agent_step(struct agent *a, enum group_event_type type, uint32_t count, int64_t ms) {
    struct group_event event = {.type = type, .count = count, .ms = ms,
                                .now_ms = cr_monotonic_ms()};
    enum group_state before = a->group.state;
    struct group_actions todo = worker_group_step(&a->group, &event);
    if (a->group.state != before) {
        cr_debug("worker group: %s -> %s", group_state_name(before),
                 group_state_name(a->group.state));
    }
    act(a, &todo);
    if (a->group.state == GROUP_STOPPING && a->group.ending != GROUP_GOES_ON) stop_stayers(a);
}

/* A node that has given notice does not come back. */
void agent_look_if_empty(struct agent *a) {
    if (!a->nursery_is_empty || a->group.state != GROUP_STOPPING || !only_parked_live(a)) return;
    (void) uv_timer_stop(&a->stay);
    change_over(a);
    if (a->leaving.given) agent_step(a, GROUP_EVENT_LEAVE, 0, 0);
    if (only_parked_live(a) && a->nursery_is_empty) agent_step(a, GROUP_EVENT_EMPTY, 0, 0);
}

/* ---- what happens: processes ---- */

static enum group_event_type event_of_exit(const struct agent *a, struct worker *w) {
    int parked = w->parked;
    w->parked = w->stays = 0;
    if (parked) return GROUP_EVENT_PARKED_GONE;
    if (w->how.exit_code != 0) return GROUP_EVENT_EXIT_BAD;
    if (!change_was_reason(a, w)) return GROUP_EVENT_EXIT_OK;
    w->made_way = 1;
    return GROUP_EVENT_EXIT_READY;
}

static void on_exit_of(void *arg, struct worker_process *process, const struct worker_exit *how) {
    struct agent *a = arg;
    struct worker *w = worker_arg(process);
    w->process = NULL;
    w->ended = 1;
    w->how = *how;
    log_relay_drain(a->relay, w->local_rank);
    log_relay_keep(a->relay, w->local_rank, 0);
    if (a->watchdog != NULL) watchdog_forget(a->watchdog, how->pid);
    events_worker_ended(event_source(a), &a->round, w->local_rank, how,
                        cr_monotonic_ms() - a->began_ms);
    agent_step(a, event_of_exit(a, w), how->exit_code != 0 && how->signal_sent != 0 ? 1 : 0, 0);
    if (w->made_way) change_made_way(a, w);
    agent_look_if_empty(a);
}

/* A failure of its own making, though the signal is from us: it asked for it. */
static void on_timer_expired(void *arg, pid_t pid) {
    struct agent *a = arg;
    for (uint32_t i = 0; i < worker_count(a); i++) {
        struct worker *w = &a->workers[i];
        if (w->process != NULL && worker_pid(w->process) == pid) w->timer_expired = 1;
    }
}

static void on_empty(void *arg) {
    struct agent *a = arg;
    a->nursery_is_empty = 1;
    log_relay_end(a->relay);
    agent_look_if_empty(a);
}

static const struct nursery_events nursery_events = {.on_exit = on_exit_of, .on_empty = on_empty};

/* ---- what happens: rendezvous ---- */

/* Workers that we stopped because of another node's failure are victims, not news. */
static void say_restarted(struct agent *a, const struct rendezvous_round *round) {
    struct cr_buffer what = {0};
    if (round->restart_count == a->round.restart_count) return;
    if (a->group.failures > 0) case_write_first(a, &what);
    cr_warn("%s; restart %u of %u", what.len > 0 ? what.data : "a worker failed on another node",
            round->restart_count, a->job->max_restarts);
    cr_buffer_done(&what);
}

static void on_round(void *arg, const struct rendezvous_round *round) {
    struct agent *a = arg;
    if (a->rounds > 0) say_restarted(a, round);
    a->round = *round;
    a->rounds++;
    cr_error_clear(&a->error);
    events_round(event_source(a), round, cr_monotonic_ms() - a->began_ms);
    agent_step(a, GROUP_EVENT_ROUND, worker_count(a), 0);
}

static void on_stop(void *arg, int64_t grace_max_ms, const char *why) {
    struct agent *a = arg;
    cr_warn("round %llu is over: %s; stopping the workers", (unsigned long long) a->round.round, why);
    agent_step(a, a->leaving.given ? GROUP_EVENT_LEAVE : GROUP_EVENT_STOP, 0, grace_max_ms);
}

static void on_end(void *arg, enum rendezvous_outcome outcome, const struct cr_error *err) {
    struct agent *a = arg;
    if (a->error.code == 0) a->error = *err;
    switch (outcome) {
    case RENDEZVOUS_SUCCEEDED: agent_step(a, GROUP_EVENT_END_OK, 0, 0); return;
    case RENDEZVOUS_FAILED: agent_step(a, GROUP_EVENT_END_FAILED, 0, 0); return;
    case RENDEZVOUS_LOST: agent_step(a, GROUP_EVENT_END_LOST, 0, 0); return;
    }
}

static void on_change(void *arg, const struct rendezvous_change *change) {
    change_announced(arg, change);
}

static void on_change_at(void *arg, uint64_t id, uint64_t step, int64_t left_ms) {
    change_set(arg, id, step, left_ms);
}

static void on_notice(void *arg, enum rendezvous_change_kind kind, int64_t left_ms,
                      const char *why) {
    agent_notice(arg, kind, left_ms, why);
}

static void on_dump(void *arg, const char *why) { agent_dump(arg, why); }

static const struct rendezvous_events rendezvous_events = {
    .on_round = on_round,         .on_stop = on_stop,     .on_end = on_end,   .on_change = on_change,
    .on_change_at = on_change_at, .on_notice = on_notice, .on_dump = on_dump,
};

/* ---- the face ---- */

int agent_claim_process(struct cr_error *err) { return nursery_claim_process(err); }

void agent_signal(struct agent *a, int signum) {
    if (a->group.state == GROUP_ENDED) {
        log_relay_give_up(a->relay); /* all that we still wait for is the console */
        return;
    }
    if (a->group.signals > 0) log_relay_give_up(a->relay);
    agent_step(a, GROUP_EVENT_SIGNAL, (uint32_t) signum, 0);
}

void agent_free(struct agent *a) {
    if (a == NULL) return;
    cr_buffer_done(&a->report);
    free(a->workers);
    free(a);
}

static int open_relay(struct agent *a, struct cr_error *err) {
    const struct agent_job *job = a->job;
    _Static_assert(AGENT_STREAM_OUT == LOG_RELAY_STDOUT && AGENT_STREAM_ERR == LOG_RELAY_STDERR,
                   "the masks go from one to the other as they are");
    const struct log_relay_options options = {.workers = worker_count(a),
                                              .redirects = job->redirects,
                                              .tee = job->tee,
                                              .console = job->console,
                                              .role = job->rendezvous.role,
                                              .prefix_template = job->log_line_prefix_template,
                                              .stdout_filters = job->duplicate_stdout_filters,
                                              .stderr_filters = job->duplicate_stderr_filters,
                                              .carries_log = job->carries_log};
    return log_relay_open(a->loop, &options, &a->logs, on_flushed, a, &a->relay, err);
}

/* The nursery first, for it forks; the log folder last, so that a refused port leaves none behind. */
static int open_parts(struct agent *a, struct cr_error *err) {
    int rc = nursery_open(a->loop, &nursery_events, a, &a->nursery, err);
    if (rc == 0) {
        rc = worker_channels_open(a->loop, worker_count(a), a->job->step_timeout_ms,
                               &agent_channel_events, a, &a->links, err);
    }
    if (rc == 0) {
        rc = rendezvous_open(a->loop, &a->job->rendezvous, &rendezvous_events, a, &a->rendezvous,
                             err);
    }
    if (rc == 0 && a->job->timer_file != NULL) {
        rc = watchdog_open(a->loop, a->job->timer_file, on_timer_expired, a, &a->watchdog, err);
    }
    if (rc == 0) rc = log_dir_open(&a->logs, a->job->log_dir, a->job->rendezvous.run_id, err);
    return rc < 0 ? rc : open_relay(a, err);
}

int agent_start(uv_loop_t *loop, const struct agent_job *job,
                void (*on_done)(void *arg, const struct agent_result *result), void *arg,
                struct agent **out, struct cr_error *err) {
    uint32_t count = job->rendezvous.local_world_size;
    if (count < 1 || count > AGENT_WORKERS_MAX) {
        return cr_fail(err, -EINVAL, "cannot run %u workers on one node; the number is 1 to %d", count,
                       AGENT_WORKERS_MAX);
    }
    struct agent *a = calloc(1, sizeof(*a));
    if (a != NULL) a->workers = calloc(count, sizeof(*a->workers));
    if (a == NULL || a->workers == NULL) {
        free(a);
        return cr_fail(err, -ENOMEM, "cannot start the agent: no memory left");
    }
    a->loop = loop;
    a->job = job;
    a->on_done = on_done;
    a->arg = arg;
    a->logs.fd = a->logs.attempt_fd = -1;
    a->began_ms = cr_monotonic_ms();
    if (gethostname(a->host, sizeof(a->host) - 1) < 0) strcpy(a->host, "localhost");
    worker_group_init(&a->group, job->stop_timeout_ms, job->shutdown_timeout_ms);
    change_timers_init(a);
    int rc = open_parts(a, err);
    if (rc < 0) {
        a->failed_start = 1;
        close_parts(a);
        return rc;
    }
    *out = a;
    rendezvous_join(a->rendezvous);
    return 0;
}
