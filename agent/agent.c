/* The agent's shell: turns exits, packets of workers, messages of the rendezvous, timers and
 * signals into events of the node (agent/node/node.h), and carries out the actions that the node
 * requests. The node makes all decisions.
 *
 * One object owns the nursery (processes), the rendezvous, the workers' channels, the log folder,
 * the output relay and the case file. All code runs on the loop's thread. The agent ends in this
 * order: the node requests its action `finish`; the output is drained and the console flushed; the
 * handles are closed; on_done runs. */
#include "agent/agent.h"

#include "agent/answers.h"
#include "agent/attempt.h"
#include "agent/case_file.h"
#include "agent/hang.h"
#include "agent/history.h"
#include "agent/status.h"
#include "agent/node/node.h"
#include "agent/role.h"
#include "agent/output/log_relay.h"
#include "agent/process/nursery.h"
#include "agent/report/report.h"
#include "agent/suspension.h"
#include "agent/watchdog/watchdog.h"
#include "agent/worker_channel.h"
#include "base/clock.h"
#include "base/log_limit.h"
#include "rendezvous/rendezvous.h"
#include "status/status.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Most log lines of the node (agent/node/) in 10 s, see do_log(): LINES_MIN, and LINES_PER_WORKER
 * more for each worker, because the node logs a line for each worker that has written a flight
 * record. */
#define LINES_MIN        100
#define LINES_PER_WORKER 4
/* Time in ms that the agent needs for its own end, after its last process is gone: to send its last
 * messages to other nodes, and to close everything. */
#define OWN_END_MS 1000

#define DO_NOT_REQUEUE 93 /* exit code with which a worker says that a restart is of no use */
#define NOTICE_MAX_MS (INT64_C(1000) * 3600 * 24)

struct agent {
    uv_loop_t *loop;
    const struct agent_job *job;
    char host[256];
    struct node node;
    uv_timer_t timer; /* libuv timer for the next node_tick(), which is due at node_deadline() */
    /* time at which the timer expires (ms, monotonic clock); CR_FOREVER if the timer is stopped */
    int64_t timer_ms;

    struct rendezvous_round round;     /* the current round; between two rounds, the last one */
    const char **roles; /* [number of workers], by local rank: roles; NULL if all have one role */
    int rounds;                        /* number of rounds that this agent has begun */
    struct worker_process **processes; /* [number of workers], by local rank; NULL for a worker that
                                        * is not started or has ended */
    /* this pointer and the pointers below are NULL until their objects are opened */
    struct nursery *nursery;
    struct rendezvous *rendezvous;
    struct worker_channels *channels;
    struct log_dir logs;
    struct log_relay *relay;
    struct watchdog *watchdog; /* NULL if the job has no timer file */
    struct suspension_watch suspension;
    struct hang *hang; /* NULL if the job has no hang timeout */
    struct answers answers;
    struct case_file case_file;
    struct cr_log_limit node_lines; /* log lines that workers can cause */
    struct history history;
    struct status_server *status; /* NULL if the job has no status address */
    enum ledger_cause change; /* kind of the change that was announced last in this round */

    /* time (ms, monotonic clock) at which this node's lease ends: the warden then ends the workers,
     * because other nodes may get their ranks; CR_FOREVER if no other node can get them */
    int64_t lease_end_ms;
    int64_t began_ms;
    /* why workers could not be started, or why the rendezvous has ended the job */
    struct cr_error error;
    struct cr_buffer report, summary;
    struct agent_result result;
    int open_parts; /* while the agent closes: number of its parts (nursery, timer …) that are not
                     * closed yet; else 0 */
    int failed_start;
    void (*on_done)(void *arg, const struct agent_result *result);
    void *arg;
};

static uint32_t worker_count(const struct agent *a) {
    return a->job->rendezvous.local_world_size;
}

/* Returns the fields that all events of this agent (agent/report/events.h) have in common. */
static struct event_source event_source(const struct agent *a) {
    return (struct event_source){.enabled = a->job->console_events,
                                 .run_id = a->job->rendezvous.run_id,
                                 .role = a->job->rendezvous.role,
                                 .backend = a->job->rendezvous.backend,
                                 .entry_point = a->job->title,
                                 .host = a->host};
}

static const char *text_of(const struct cr_buffer *b) {
    return b->len > 0 ? b->data : "a worker failed";
}

/* ---- the node's timer ---- */

static void on_timer(uv_timer_t *timer);

/* Sets the time at which the warden ends the workers if this process stands still. While workers
 * may have ranks, this is the end of this node's lease; otherwise there is no such time. */
static void set_fence(struct agent *a) {
    enum group_state state = a->node.group.state;
    if (a->open_parts > 0) return; /* the nursery is closing */
    bool has_ranks = state == GROUP_RUNNING || state == GROUP_WAITING || state == GROUP_STOPPING;
    nursery_set_fence(a->nursery, has_ranks ? a->lease_end_ms : CR_FOREVER);
}

/* Starts the timer for the node's next deadline. Call this at the end of every callback that passes
 * an event to the node. */
static void arm_timer(struct agent *a) {
    set_fence(a);
    int64_t deadline_ms = node_deadline(&a->node);
    if (deadline_ms == a->timer_ms) return;
    a->timer_ms = deadline_ms;
    if (deadline_ms == CR_FOREVER) {
        (void) uv_timer_stop(&a->timer);
        return;
    }
    uv_update_time(a->loop); /* a libuv timer counts from the loop's time, which may be old */
    (void) uv_timer_start(&a->timer, on_timer, (uint64_t) cr_time_left_ms(deadline_ms), 0);
}

static void on_timer(uv_timer_t *timer) {
    struct agent *a = timer->data;
    node_tick(&a->node, cr_monotonic_ms());
    arm_timer(a);
}

/* ---- closing the agent's objects after the job's end ---- */

static void on_part_closed(void *arg) {
    struct agent *a = arg;
    if (--a->open_parts > 0) return;
    bool is_wanted = a->job->log_dir != NULL || a->result.outcome != AGENT_SUCCEEDED;
    if (!is_wanted) log_dir_remove_empty(&a->logs);
    log_dir_done(&a->logs);
    if (a->failed_start) {
        agent_free(a);
        return;
    }
    void (*on_done)(void *, const struct agent_result *) = a->on_done;
    on_done(a->arg, &a->result); /* on_done may free the agent */
}

static void on_rendezvous_closed(void *arg) {
    struct agent *a = arg;
    a->rendezvous = NULL;
    on_part_closed(a);
}

/* A closed relay no longer carries the log. From now on the log writes its lines to stderr itself,
 * without waiting: a launcher that hosts other jobs may still run for a long time. */
static void on_relay_closed(void *arg) {
    struct agent *a = arg;
    if (a->job->carries_log) {
        cr_log_never_wait();
        cr_log_drain();
    }
    on_part_closed(a);
}

static void on_timer_closed(uv_handle_t *handle) { on_part_closed(handle->data); }

static void close_parts(struct agent *a) {
    a->open_parts = 1 + (a->status != NULL) + (a->nursery != NULL) + (a->rendezvous != NULL) +
                    (a->relay != NULL) + (a->watchdog != NULL) + (a->channels != NULL) +
                    (a->hang != NULL);
    /* The nursery is closed first: nursery_close() kills the warden without waiting for its death.
     * The warden dies while the store's thread is being stopped, so the wait for its death, at the
     * end, is short. */
    if (a->nursery != NULL) nursery_close(a->nursery, on_part_closed);
    if (a->status != NULL) status_server_close(a->status, on_part_closed, a);
    if (a->rendezvous != NULL) rendezvous_close(a->rendezvous, on_rendezvous_closed);
    if (a->relay != NULL) log_relay_close(a->relay, on_relay_closed);
    if (a->watchdog != NULL) watchdog_close(a->watchdog, on_part_closed);
    if (a->channels != NULL) worker_channels_close(a->channels, on_part_closed);
    if (a->hang != NULL) hang_close(a->hang, on_part_closed);
    if (answers_close(&a->answers, on_part_closed, a)) a->open_parts++;
    uv_close((uv_handle_t *) &a->timer, on_timer_closed);
    if (suspension_watch_close(&a->suspension, on_part_closed)) a->open_parts++;
}

/* Runs when the console has taken the workers' last output. Closes the relay, the watchdog, the
 * channels and the timer. After that, on_done runs and prints the verdict, so the verdict stands
 * below the workers' output. */
static void on_flushed(void *arg) { close_parts(arg); }

/* ---- the node's actions on processes ---- */

static struct attempt attempt_of(struct agent *a) {
    return (struct attempt){.job = a->job, .round = &a->round, .logs = &a->logs,
                            .relay = a->relay, .channels = a->channels, .nursery = a->nursery,
                            .case_file = &a->case_file, .processes = a->processes,
                            .events = event_source(a)};
}

static int do_start(void *arg, bool *starts) {
    struct agent *a = arg;
    set_fence(a);
    struct attempt attempt = attempt_of(a);
    int rc = attempt_start(&attempt, starts, &a->error);
    if (rc == 0 && a->hang != NULL) hang_begin(a->hang);
    return rc;
}

/* Starts one worker again and logs why. Only the workers of its program go on as before, so the
 * line names the role. */
static int do_restart(void *arg, uint32_t worker) {
    struct agent *a = arg;
    struct cr_buffer line = {0};
    struct cr_error err = {0};
    struct attempt attempt = attempt_of(a);
    const struct node_worker *w = &a->node.workers[worker];
    case_file_write_line(&a->case_file, &line);
    cr_warn("%s; only this worker, of the role '%s', is started again (%u of %u)", text_of(&line),
            agent_role_of(a->job, &a->round, worker).name, w->restarts, w->policy.restarts);
    int rc = attempt_restart(&attempt, worker, &err);
    if (rc < 0) cr_warn("cannot start local rank %u again: %s", worker, err.text);
    else history_worker_restarted(&a->history, worker, w->restarts);
    cr_buffer_done(&line);
    return rc;
}

static int do_hand_over(void *arg, uint32_t worker) {
    struct attempt attempt = attempt_of(arg);
    return attempt_hand_over(&attempt, worker);
}

/* Returns why this node stops its workers. Call this if none of them has failed. */
static enum ledger_cause cause_of_stop(const struct agent *a) {
    if (a->node.group.signals > 0) return LEDGER_BY_SIGNAL;
    if (a->node.group.ending == GROUP_LEFT || a->node.group.ending == GROUP_GOES_ON) {
        return a->change;
    }
    return LEDGER_BY_END;
}

static void do_stop(void *arg, int signum, int64_t grace_ms) {
    struct agent *a = arg;
    if (a->node.group.ending != GROUP_SUCCEEDED) {
        history_broken(&a->history, a->node.group.failures, cause_of_stop(a));
    }
    static const enum nursery_spares spares[] = {[AGENT_LEFTOVERS_DETACHED] =
                                                     NURSERY_SPARES_DETACHED,
                                                 [AGENT_LEFTOVERS_END] = NURSERY_SPARES_NOTHING,
                                                 [AGENT_LEFTOVERS_KEEP] = NURSERY_SPARES_ALL};
    bool stops_services = a->node.group.living > 0; /* a service's own children end with it */
    if (a->node.group.ending == GROUP_SUCCEEDED && !stops_services) {
        nursery_end_well(a->nursery, signum, grace_ms, spares[a->job->leftovers]);
    } else {
        nursery_end(a->nursery, signum, grace_ms);
    }
}

static void do_keep(void *arg, uint32_t worker, bool keep) {
    struct agent *a = arg;
    if (a->processes[worker] != NULL) worker_keep(a->processes[worker], keep);
    log_relay_keep(a->relay, worker, keep);
}

static void do_signal(void *arg, uint32_t worker, int signum) {
    struct agent *a = arg;
    worker_signal(a->processes[worker], signum);
}

/* Kills a hung worker. worker_signal() is not used here, because it would record the signal as sent
 * by crun. The verdict would then list the worker as a victim, although it failed by hanging. */
static void do_kill_hung(void *arg, uint32_t worker) {
    struct agent *a = arg;
    (void) kill(-worker_pid(a->processes[worker]), SIGKILL);
}

static bool do_is_dead(void *arg, uint32_t worker) {
    struct agent *a = arg;
    return worker_is_dead(a->processes[worker]);
}

/* ---- the node's actions on channels ---- */

static int do_send_packet(void *arg, uint32_t worker, const struct channel_packet *packet) {
    struct agent *a = arg;
    return worker_channels_send(a->channels, worker, packet);
}

static int do_ask_dump(void *arg, uint32_t worker, uint64_t dump_id) {
    struct agent *a = arg;
    return worker_channels_ask_dump(a->channels, worker, dump_id);
}

static void do_read_page(void *arg, uint32_t worker, struct worker_progress *out) {
    struct agent *a = arg;
    worker_channels_read_page(a->channels, worker, out);
}

/* ---- the node's calls of the rendezvous ---- */

static void do_join(void *arg) {
    struct agent *a = arg;
    rendezvous_join(a->rendezvous);
}

/* Logs the first failure of a round as soon as it is known. The failure report comes only when all
 * workers have ended, which may take as long as their grace. If no other worker runs, the report
 * comes at once, so this line is only an info. */
static void report_at_once(struct agent *a) {
    struct cr_buffer line = {0};
    case_file_write_first_word(&a->case_file, &line);
    bool others_run = a->node.group.living > 0 || a->round.group_world_size > 1;
    if (!others_run) {
        cr_info("%s", text_of(&line));
    } else {
        cr_warn("%s; stopping the other workers, which have %g s to end", text_of(&line),
                (double) a->job->stop_timeout_ms / 1000);
    }
    cr_buffer_done(&line);
}

static void pass_failure(void *arg, const struct rendezvous_failure *failure) {
    struct agent *a = arg;
    rendezvous_failure(a->rendezvous, failure);
}

static void do_failed(void *arg, uint64_t round, enum rendezvous_blame blame) {
    struct agent *a = arg;
    struct cr_buffer line = {0};
    if (a->node.is_broken) case_file_add_broken(&a->case_file, a->node.gave_up);
    report_at_once(a);
    case_file_pass_first(&a->case_file, pass_failure, a);
    case_file_write_line(&a->case_file, &line);
    rendezvous_failed(a->rendezvous, round, text_of(&line), blame);
    cr_buffer_done(&line);
}

static void do_succeeded(void *arg, uint64_t round) {
    struct agent *a = arg;
    history_done(&a->history);
    rendezvous_succeeded(a->rendezvous, round);
}

static void do_leave(void *arg) {
    struct agent *a = arg;
    rendezvous_leave(a->rendezvous);
}

static void do_notice(void *arg, enum rendezvous_change_kind kind, int64_t left_ms,
                      const char *why) {
    struct agent *a = arg;
    rendezvous_notice(a->rendezvous, kind, left_ms, why);
}

static void do_change_answer(void *arg, uint64_t id, int64_t step, int64_t needs_ms) {
    struct agent *a = arg;
    rendezvous_change_answer(a->rendezvous, id, step, needs_ms);
}

static void do_change_ready(void *arg, uint64_t id) {
    struct agent *a = arg;
    rendezvous_change_ready(a->rendezvous, id);
}

/* ---- the node's actions finish and log ---- */

static const enum agent_outcome outcomes[] = {
    [GROUP_GOES_ON] = AGENT_ERROR,   [GROUP_SUCCEEDED] = AGENT_SUCCEEDED,
    [GROUP_FAILED] = AGENT_FAILED,   [GROUP_LOST] = AGENT_ERROR,
    [GROUP_UNSTARTED] = AGENT_ERROR, [GROUP_SIGNALED] = AGENT_SIGNALED,
    [GROUP_LEFT] = AGENT_LEFT,       [GROUP_STUCK] = AGENT_ERROR,
};

static const char *const outcome_words[] = {[AGENT_SUCCEEDED] = "succeeded",
                                            [AGENT_FAILED] = "failed",
                                            [AGENT_SIGNALED] = "signaled",
                                            [AGENT_LEFT] = "left",
                                            [AGENT_ERROR] = "error"};

/* Logs a warning about the failure. Call this if workers failed, but the job ends for another
 * reason. */
static void warn_of_failure(struct agent *a) {
    struct cr_buffer line = {0};
    case_file_write_line(&a->case_file, &line);
    cr_warn("%s", text_of(&line));
    cr_buffer_done(&line);
}

static void end_history(struct agent *a) {
    history_end(&a->history, outcome_words[a->result.outcome]);
    history_write_summary(&a->history, a->rounds > 0 && a->round.group_rank == 0, &a->summary);
    a->result.summary = a->summary.len > 0 ? a->summary.data : NULL;
}

/* Returns the cause of the job's failure, which is that of the first failure on any node. */
static enum agent_cause cause_of_failure(const struct agent *a) {
    const struct rendezvous_failure *first = a->case_file.failures.list;
    bool may_restart = a->round.max_restarts > 0;
    if (a->case_file.failures.count > 0) {
        if (strcmp(first->kind, "oom") == 0) return AGENT_CAUSE_OOM;
        if (strcmp(first->kind, "hang") == 0) return AGENT_CAUSE_HANG;
        int64_t code = strcmp(first->kind, "exit") == 0 ? first->exit_code : 0;
        if (code == DO_NOT_REQUEUE || code == 126 || code == 127) return AGENT_CAUSE_NO_REQUEUE;
    }
    return may_restart ? AGENT_CAUSE_BUDGET : AGENT_CAUSE_WORKER;
}

static void end_cause(struct agent *a) {
    if (a->result.outcome == AGENT_FAILED) {
        case_file_add_own_failures(&a->case_file);
        a->result.cause = cause_of_failure(a);
    } else if (a->result.outcome == AGENT_ERROR) {
        bool is_lost = a->node.group.ending == GROUP_LOST;
        a->result.cause = is_lost ? AGENT_CAUSE_RENDEZVOUS : AGENT_CAUSE_MACHINE;
    }
}

/* Writes verdict.json. But if the job succeeded and the user gave no --log-dir, removes the file,
 * so that the temporary log folder can be removed. */
static void end_verdict(struct agent *a) {
    bool is_wanted = a->job->log_dir != NULL || a->result.outcome != AGENT_SUCCEEDED;
    if (!is_wanted) case_file_remove_verdict(&a->case_file);
    else case_file_write_verdict(&a->case_file, outcome_words[a->result.outcome], a->error.text);
}

static void do_finish(void *arg) {
    struct agent *a = arg;
    const struct worker_group *group = &a->node.group;
    log_relay_end(a->relay);
    a->result.outcome = outcomes[group->ending];
    end_history(a);
    a->result.signal = group->signal;
    a->result.workers_started = a->rounds > 0;
    if (group->ending == GROUP_LEFT) {
        (void) cr_fail(&a->error, -ECANCELED, "this node has left the job: %s",
                       a->node.notice.why);
    }
    a->result.error = a->error;
    if (a->result.outcome == AGENT_FAILED) {
        a->result.report =
            case_file_write_report(&a->case_file, group->failures, &a->error, &a->report);
    } else if (group->failures > 0) {
        warn_of_failure(a);
    }
    end_cause(a);
    end_verdict(a);
    bool as_planned =
        a->result.outcome == AGENT_SUCCEEDED || a->result.outcome == AGENT_FAILED;
    events_agent_ended(event_source(a), &a->round, as_planned, cr_monotonic_ms() - a->began_ms);
    log_relay_flush(a->relay);
}

/* Logs a line of the node. Packets of workers can cause any number of such lines, so their rate is
 * limited. Lines of the level debug are not limited. */
static void do_log(void *arg, enum cr_log_level level, const char *text) {
    struct agent *a = arg;
    if (level == CR_LOG_DEBUG) cr_debug("%s", text);
    else cr_log_limited(&a->node_lines, level, "%s", text);
}

static const struct node_actions node_actions = {
    .start = do_start,
    .restart = do_restart,
    .hand_over = do_hand_over,
    .stop = do_stop,
    .keep = do_keep,
    .signal = do_signal,
    .kill_hung = do_kill_hung,
    .is_dead = do_is_dead,
    .send_packet = do_send_packet,
    .ask_dump = do_ask_dump,
    .read_page = do_read_page,
    .join = do_join,
    .failed = do_failed,
    .succeeded = do_succeeded,
    .leave = do_leave,
    .notice = do_notice,
    .change_answer = do_change_answer,
    .change_ready = do_change_ready,
    .finish = do_finish,
    .log = do_log,
};

/* ---- the status address ---- */

static struct node_status status_of(struct agent *a) {
    return (struct node_status){.job = a->job,
                                .round = a->rounds > 0 ? &a->round : NULL,
                                .node = &a->node,
                                .processes = a->processes,
                                .rendezvous = a->rendezvous,
                                .channels = a->channels,
                                .relay = a->relay,
                                .case_file = &a->case_file,
                                .history = &a->history};
}

static json_t *snapshot(void *arg) {
    struct node_status s = status_of(arg);
    return node_status_snapshot(&s);
}

/* Carries out the order of a crun-agent top that runs on this host. Returns the snapshot as
 * malloc'ed text, or NULL if memory is short. */
static char *on_look(void *arg, enum channel_order order, int64_t left_ms) {
    if (order == CHANNEL_ORDER_DUMP) agent_dump(arg, "crun-agent top");
    if (order == CHANNEL_ORDER_NOTICE && left_ms >= 0 && left_ms <= NOTICE_MAX_MS) {
        agent_notice(arg, RENDEZVOUS_CHANGE_LEAVE, left_ms, "crun-agent top");
    }
    json_auto_t *now = snapshot(arg);
    return now != NULL ? json_dumps(now, JSON_COMPACT | JSON_REAL_PRECISION(14)) : NULL;
}

static const char *why_not_ready(void *arg) {
    struct node_status s = status_of(arg);
    return node_status_why_not_ready(&s);
}

static int open_status(struct agent *a, struct cr_error *err) {
    const struct status_source source = {snapshot, why_not_ready, a};
    if (a->job->status_addr == NULL) return 0;
    int rc = status_serve(a->loop, a->job->status_addr, &source, &a->status, err);
    if (rc == 0) cr_info("the status address is %s", status_server_address(a->status));
    return rc;
}

/* ---- events of processes, passed to the node ---- */

/* Requests an inquiry if the worker that has ended is the first one of this node that failed in
 * this round, and was waiting in an operation of a process group: then another rank, which has not
 * entered the operation, may be the cause. */
static void inquire_after(struct agent *a, uint32_t local_rank, const struct worker_exit *how) {
    struct progress groups[CHANNEL_GROUPS_MAX];
    bool is_first = a->node.group.state == GROUP_RUNNING && a->node.group.failures == 0;
    if (!is_first || how->exit_code == 0 || how->signal_sent != 0) return;
    size_t count = worker_channels_read_groups(a->channels, local_rank, groups);
    for (size_t i = 0; i < count; i++) {
        if (groups[i].state < PROGRESS_COLLECTIVE) continue;
        rendezvous_inquire(a->rendezvous);
        return;
    }
}

static void on_exit_of(void *arg, struct worker_process *process, const struct worker_exit *how) {
    struct agent *a = arg;
    struct worker_process **slot = worker_arg(process);
    uint32_t local_rank = (uint32_t) (slot - a->processes);
    *slot = NULL;
    case_file_add_exit(&a->case_file, local_rank, how);
    history_worker_ended(&a->history, local_rank, how);
    log_relay_drain(a->relay, local_rank);
    if (a->watchdog != NULL) watchdog_forget(a->watchdog, how->pid);
    events_worker_ended(event_source(a), &a->round, local_rank, how,
                        cr_monotonic_ms() - a->began_ms);
    inquire_after(a, local_rank, how);
    node_worker_exited(&a->node, cr_monotonic_ms(), local_rank, how->exit_code, how->signal_sent);
    arm_timer(a);
}

static void on_empty(void *arg) {
    struct agent *a = arg;
    log_relay_end(a->relay);
    history_gone(&a->history);
    node_processes_gone(&a->node, cr_monotonic_ms());
    arm_timer(a);
}

/* Logs a warning about a process that SIGKILL does not end. */
static void on_stuck(void *arg, const struct worker_process *w, const struct nursery_stuck *how) {
    struct agent *a = arg;
    char who[64] = "a process that a worker has started", where[128] = "";
    if (w != NULL) {
        uint32_t local_rank = (uint32_t) ((struct worker_process **) worker_arg(w) - a->processes);
        (void) snprintf(who, sizeof(who), "rank %u (local rank %u)",
                        a->round.first_rank + local_rank, local_rank);
    }
    if (how->wait_channel[0] != '\0') {
        (void) snprintf(where, sizeof(where), ", waiting in the kernel in %s", how->wait_channel);
    }
    cr_warn("cannot kill %s, pid %d (%s): it lives %.1f s after SIGKILL, in state %c%s; look for a "
            "file system, GPU or other device that does not answer, or a frozen cgroup",
            who, (int) how->pid, how->name, (double) how->since_ms / 1000, how->state, where);
}

/* Returns how long, in ms, this agent waits after SIGKILL for the end of its workers. The grace
 * before SIGKILL, this wait and the agent's own end take stop_limit_ms together, because the
 * coordinator waits no longer for a node. */
static int64_t give_up_ms(const struct agent_job *job) {
    int64_t grace_ms = job->stop_timeout_ms > job->shutdown_timeout_ms ? job->stop_timeout_ms
                                                                       : job->shutdown_timeout_ms;
    int64_t ms = job->rendezvous.stop_limit_ms - grace_ms - OWN_END_MS;
    return ms > OWN_END_MS ? ms : OWN_END_MS;
}

/* Ends this agent although processes are left that SIGKILL does not end. This node cannot run
 * another round, because these processes may hold the GPU, the port or the files that the round
 * needs. */
static void on_unkillable(void *arg, unsigned count) {
    struct agent *a = arg;
    struct cr_error err;
    (void) cr_fail(&err, -EBUSY,
                   "cannot end %u process(es) of host '%s': they live on after SIGKILL; crun ends "
                   "without them; do not use this host before they are gone", count, a->host);
    /* if no other end of the job is known, the agent ends with this error, and the launcher prints
     * it; otherwise the error is only logged */
    if (a->node.group.ending == GROUP_GOES_ON) a->error = err;
    else cr_warn("%s", err.text);
    nursery_abandon(a->nursery);
    for (uint32_t i = 0; i < worker_count(a); i++) a->processes[i] = NULL;
    node_processes_unkillable(&a->node, cr_monotonic_ms());
    arm_timer(a);
}

/* Runs before on_exit of the workers that the warden has ended at the end of the lease. The
 * rendezvous must stop the round before on_exit runs: otherwise the deaths of these workers would
 * count as their failures. */
static void on_fenced(void *arg) {
    struct agent *a = arg;
    cr_warn("this process stood still until its lease was over (was it stopped or frozen?); the "
            "warden has ended the workers, because other nodes may run with their ranks");
    rendezvous_stood_still(a->rendezvous, 0);
    arm_timer(a);
}

/* Runs when this machine was suspended. The clock of the rendezvous did not run during the
 * suspension, so this function passes its length: the lease may be over, and other nodes may run
 * with the ranks of this node's workers. */
static void on_resumed(void *arg, int64_t slept_ms) {
    struct agent *a = arg;
    if (a->open_parts > 0) return;
    cr_warn("this machine was suspended for %.1f s", (double) slept_ms / 1000);
    rendezvous_stood_still(a->rendezvous, slept_ms);
    arm_timer(a);
}

static const struct nursery_events nursery_events = {.on_exit = on_exit_of,
                                                     .on_empty = on_empty,
                                                     .on_stuck = on_stuck,
                                                     .on_unkillable = on_unkillable,
                                                     .on_fenced = on_fenced};

/* Records that a worker's timer has expired. The worker set the timer itself, so its death counts
 * as its own failure. */
static bool is_ours(void *arg, pid_t pid) {
    (void) arg;
    return nursery_is_descendant(pid);
}

static void on_timer_expired(void *arg, pid_t pid) {
    struct agent *a = arg;
    for (uint32_t i = 0; i < worker_count(a); i++) {
        if (a->processes[i] == NULL || worker_pid(a->processes[i]) != pid) continue;
        a->case_file.workers[i].timer_expired = true;
    }
}

static const struct watchdog_events watchdog_events = {.is_ours = is_ours,
                                                       .on_expired = on_timer_expired};
/* ---- the watch for a hang ---- */

static bool do_sample(void *arg, int64_t *cpu_ms, uint64_t *output) {
    struct agent *a = arg;
    if (a->node.group.state != GROUP_RUNNING || a->node.group.living == 0) return false;
    for (uint32_t i = 0; i < worker_count(a); i++) {
        cpu_ms[i] = a->processes[i] != NULL ? worker_cpu_ms(a->processes[i]) : 0;
    }
    *output = log_relay_output(a->relay);
    return true;
}

static size_t do_list(void *arg, struct inspect_row *rows) {
    struct agent *a = arg;
    size_t count = 0;
    for (uint32_t i = 0; i < worker_count(a); i++) {
        struct inspect_row *row = &rows[count];
        if (a->processes[i] == NULL) continue;
        inspect_row_init(row, worker_pid(a->processes[i]));
        row->rank = a->round.first_rank + i;
        row->local_rank = i;
        (void) snprintf(row->host, sizeof(row->host), "%.*s", (int) sizeof(row->host) - 1, a->host);
        count++;
    }
    return count;
}

/* Ends the round because the workers hang, and stores the inspection for the failure report. */
static void on_hang(void *arg, int64_t quiet_ms, struct inspect_row *rows, size_t count) {
    struct agent *a = arg;
    case_file_add_hang(&a->case_file, quiet_ms, rows, count);
    node_hung(&a->node, cr_monotonic_ms());
    if (a->round.restart_count < a->round.max_restarts) {
        /* a restart is left, so no failure report follows; log the inspection here instead */
        cr_log_text(a->case_file.inspection.data, a->case_file.inspection.len);
    }
    arm_timer(a);
}

static const struct hang_calls hang_calls = {
    .sample = do_sample, .list = do_list, .on_hang = on_hang};

static void on_failure(void *arg, const struct rendezvous_failure *failure) {
    struct agent *a = arg;
    case_file_add_failure(&a->case_file, failure);
}

static void on_inspect(void *arg, uint64_t id, const char *why) {
    struct agent *a = arg;
    struct inspect_row *rows = calloc(worker_count(a), sizeof(*rows));
    cr_info("the workers are inspected: %s", why);
    answers_add(&a->answers, a->loop, id, rows, rows != NULL ? do_list(a, rows) : 0);
    free(rows);
}

/* ---- events of the rendezvous, passed to the node ---- */

/* If the round is a restart, logs a warning with the first failure on this node. If no worker
 * failed on this node, the warning says that a worker failed on another node. */
static void warn_of_restart(struct agent *a, const struct rendezvous_round *round) {
    struct cr_buffer line = {0};
    if (round->restart_count == a->round.restart_count) return;
    if (a->node.group.failures > 0) case_file_write_line(&a->case_file, &line);
    cr_warn("%s; restart %u of %u", line.len > 0 ? line.data : "a worker failed on another node",
            round->restart_count, round->max_restarts);
    cr_buffer_done(&line);
}

static void on_round(void *arg, const struct rendezvous_round *round) {
    struct agent *a = arg;
    if (a->rounds > 0 && round->restart_count != a->round.restart_count) {
        case_file_add_own_failures(&a->case_file);
        case_file_write_verdict(&a->case_file, "restarted", NULL);
    }
    if (a->rounds > 0) warn_of_restart(a, round);
    a->round = *round;
    a->rounds++;
    cr_error_clear(&a->error);
    a->change = LEDGER_BY_NODES;
    events_round(event_source(a), round, cr_monotonic_ms() - a->began_ms);
    history_round(&a->history, round);
    node_round(&a->node, cr_monotonic_ms(), round);
    if (a->node.group.state == GROUP_RUNNING) history_started(&a->history, round);
    arm_timer(a);
}

static void on_stop(void *arg, int64_t grace_max_ms, const char *why) {
    struct agent *a = arg;
    cr_warn("round %llu is over: %s; stopping the workers", (unsigned long long) a->round.round,
            why);
    node_stop(&a->node, cr_monotonic_ms(), grace_max_ms);
    arm_timer(a);
}

static void on_end(void *arg, enum rendezvous_outcome outcome, const struct cr_error *err) {
    struct agent *a = arg;
    if (a->error.code == 0) a->error = *err;
    node_end(&a->node, cr_monotonic_ms(), outcome);
    arm_timer(a);
}

/* Returns the word of the ledger for a change of this kind. */
static enum ledger_cause cause_of_change(enum rendezvous_change_kind kind) {
    switch (kind) {
    case RENDEZVOUS_CHANGE_JOIN: return LEDGER_BY_JOIN;
    case RENDEZVOUS_CHANGE_LEAVE: return LEDGER_BY_LEAVE;
    case RENDEZVOUS_CHANGE_PREEMPTION: return LEDGER_BY_PREEMPTION;
    case RENDEZVOUS_CHANGE_MAINTENANCE: return LEDGER_BY_MAINTENANCE;
    }
    return LEDGER_BY_NODES;
}

static void on_change(void *arg, const struct rendezvous_change *change) {
    struct agent *a = arg;
    a->change = cause_of_change(change->kind);
    node_change(&a->node, cr_monotonic_ms(), change);
    arm_timer(a);
}

static void on_change_at(void *arg, uint64_t id, uint64_t step, int64_t left_ms) {
    struct agent *a = arg;
    node_change_at(&a->node, cr_monotonic_ms(), id, step, left_ms);
    arm_timer(a);
}

static void on_lease(void *arg, int64_t until_ms) {
    struct agent *a = arg;
    /* when this node is cut off, its member has no lease any more and passes CR_FOREVER; the time
     * at which the workers must end stays as it is */
    if (until_ms == CR_FOREVER && a->node.group.lease_ms != CR_FOREVER) return;
    a->lease_end_ms = until_ms;
    set_fence(a);
}

static void on_notice(void *arg, enum rendezvous_change_kind kind, int64_t left_ms,
                      const char *why) {
    agent_notice(arg, kind, left_ms, why);
}

static void on_dump(void *arg, const char *why) {
    struct agent *a = arg;
    node_dump(&a->node, cr_monotonic_ms(), why);
    arm_timer(a);
}

static enum rendezvous_progress_state state_of(const struct progress *p) {
    static const enum rendezvous_progress_state states[] = {
        [PROGRESS_IDLE] = RENDEZVOUS_IDLE,
        [PROGRESS_OPEN] = RENDEZVOUS_OPEN,
        [PROGRESS_COLLECTIVE] = RENDEZVOUS_WAITS_COLLECTIVE,
        [PROGRESS_MESSAGE] = RENDEZVOUS_WAITS_MESSAGE,
        [PROGRESS_MAKING] = RENDEZVOUS_WAITS_MAKING,
    };
    return states[p->state];
}

/* Answers an inquiry: reports in which operations of process groups the workers are. Reads this
 * from the workers' pages, and sends nothing to a worker. */
static void on_ask_progress(void *arg, uint64_t inquiry) {
    struct agent *a = arg;
    struct progress groups[CHANNEL_GROUPS_MAX];
    int64_t now_ns = cr_monotonic_ns();
    for (uint32_t i = 0; a->rounds > 0 && i < worker_count(a); i++) {
        size_t count = worker_channels_read_groups(a->channels, i, groups);
        for (size_t k = 0; k < count; k++) {
            const struct progress *p = &groups[k];
            struct rendezvous_progress out = {
                .rank = a->round.first_rank + i, .group = p->number, .name = p->name,
                .op = progress_kind_name(p->kind), .place = p->place, .size = p->size,
                .state = state_of(p), .begun = p->begun, .seq = p->seq, .peer = p->peer};
            if (p->since_ns > 0 && p->since_ns < now_ns)
                out.since_ms = (now_ns - p->since_ns) / CR_NS_PER_MS;
            rendezvous_progress(a->rendezvous, inquiry, &out);
        }
    }
    rendezvous_progress(a->rendezvous, inquiry, NULL);
}

static void on_behind(void *arg, bool is_found, const char *what) {
    struct agent *a = arg;
    if (is_found) case_file_add_behind(&a->case_file, what);
    cr_warn("%s", what);
}

static const struct rendezvous_events rendezvous_events = {
    .on_round = on_round,         .on_stop = on_stop,     .on_end = on_end,
    .on_change = on_change,       .on_change_at = on_change_at,
    .on_ask_progress = on_ask_progress, .on_behind = on_behind,
    .on_notice = on_notice,       .on_dump = on_dump,     .on_inspect = on_inspect,
    .on_failure = on_failure,     .on_lease = on_lease,
};

/* ---- events of the workers' channels, passed to the node ---- */

static void on_ready(void *arg, uint32_t local_rank, uint64_t change_id) {
    struct agent *a = arg;
    node_worker_ready(&a->node, cr_monotonic_ms(), local_rank, change_id);
    arm_timer(a);
}

static void on_rejoin(void *arg, uint32_t local_rank) {
    struct agent *a = arg;
    node_worker_rejoin(&a->node, cr_monotonic_ms(), local_rank);
    arm_timer(a);
}

static void on_dumped(void *arg, uint32_t local_rank, uint64_t dump_id, const char *path) {
    struct agent *a = arg;
    node_worker_dumped(&a->node, cr_monotonic_ms(), local_rank, dump_id, path);
    arm_timer(a);
}

static void on_hung(void *arg, uint32_t local_rank, uint64_t step, int64_t ms) {
    struct agent *a = arg;
    rendezvous_inquire(a->rendezvous);
    node_worker_hung(&a->node, cr_monotonic_ms(), local_rank, step, ms);
    a->case_file.workers[local_rank].hung_ms = a->node.workers[local_rank].hung_ms;
    a->case_file.workers[local_rank].hung_step = a->node.workers[local_rank].hung_step;
    arm_timer(a);
}

static const struct worker_channel_events channel_events = {
    .on_ready = on_ready, .on_rejoin = on_rejoin, .on_dumped = on_dumped, .on_hung = on_hung,
    .on_look = on_look};

/* ---- the calls of agent.h ---- */

int agent_claim_process(struct cr_error *err) { return nursery_claim_process(err); }

static void warn_of_haste(const struct agent *a) {
    int64_t left_ms = a->node.group.kill_at_ms - cr_monotonic_ms();
    if (left_ms > 0) {
        cr_warn("the workers are killed in %.1f s; the next signal kills them at once",
                (double) left_ms / 1000);
    }
}

static void give_up_console(struct agent *a) {
    a->result.gives_up_console = true;
    log_relay_give_up(a->relay);
}

void agent_signal(struct agent *a, int signum) {
    if (a->open_parts > 0) { /* the agent is closing; the relay may be freed already */
        if (a->rendezvous != NULL) rendezvous_hasten_close(a->rendezvous);
        return;
    }
    if (a->node.group.state == GROUP_ENDED) {
        /* All processes are gone; the agent only waits until the console has taken their last
         * output. The signal means that the agent must end at once, so this output is discarded. */
        give_up_console(a);
        return;
    }
    node_signal(&a->node, cr_monotonic_ms(), signum);
    if (a->node.group.is_hastened) {
        give_up_console(a);
        warn_of_haste(a);
    }
    arm_timer(a);
}

void agent_notice(struct agent *a, enum rendezvous_change_kind kind, int64_t left_ms,
                  const char *why) {
    node_notice(&a->node, cr_monotonic_ms(), kind, left_ms, why);
    arm_timer(a);
}

void agent_dump(struct agent *a, const char *why) {
    rendezvous_inquire(a->rendezvous);
    node_dump(&a->node, cr_monotonic_ms(), why);
    arm_timer(a);
}

void agent_free(struct agent *a) {
    if (a == NULL) return;
    cr_log_limit_end(&a->node_lines);
    cr_buffer_done(&a->report);
    cr_buffer_done(&a->summary);
    history_close(&a->history);
    case_file_done(&a->case_file);
    node_done(&a->node);
    free(a->processes);
    free(a->roles);
    free(a);
}

/* Adds a program to a hash (FNV-1a): its name without its folder, and its arguments, each with its
 * NUL. */
static uint64_t add_to_digest(uint64_t hash, char *const *argv) {
    const char *slash = strrchr(argv[0], '/');
    for (char *const *arg = argv; *arg != NULL; arg++) {
        const char *text = arg == argv && slash != NULL ? slash + 1 : *arg;
        for (size_t i = 0; i <= strlen(text); i++) {
            hash = (hash ^ (unsigned char) text[i]) * UINT64_C(1099511628211);
        }
    }
    return hash;
}

/* Returns a hash of the job's programs. The hash is never 0. */
static uint64_t digest_of(const struct agent_job *job) {
    uint64_t hash = add_to_digest(UINT64_C(14695981039346656037), job->argv);
    for (uint32_t i = 1; i < job->program_count; i++) {
        hash = add_to_digest(hash, job->programs[i].argv);
    }
    return hash != 0 ? hash : 1;
}

static int open_relay(struct agent *a, struct cr_error *err) {
    const struct agent_job *job = a->job;
    _Static_assert(AGENT_STREAM_OUT == LOG_RELAY_STDOUT && AGENT_STREAM_ERR == LOG_RELAY_STDERR,
                   "the masks go from one to the other as they are");
    const struct log_relay_options options = {.workers = worker_count(a),
                                              .redirects = job->redirects,
                                              .tee = job->tee,
                                              .log_max_size = job->log_max_size,
                                              .console = job->console,
                                              .role = job->rendezvous.role,
                                              .roles = a->roles,
                                              .prefix_template = job->log_line_prefix_template,
                                              .stdout_filters = job->duplicate_stdout_filters,
                                              .stderr_filters = job->duplicate_stderr_filters,
                                              .is_json = job->is_log_json,
                                              .carries_log = job->carries_log};
    return log_relay_open(a->loop, &options, &a->logs, on_flushed, a, &a->relay, err);
}

/* Opens the objects that the agent owns. The nursery is first, because it forks its warden, and a
 * fork takes longer the more memory the process has. The log folder comes after the objects that
 * open sockets, so that no empty folder is left if a port is in use. */
static int open_parts(struct agent *a, struct cr_error *err) {
    const struct agent_job *job = a->job;
    struct nursery_events events = nursery_events;
    events.give_up_ms = give_up_ms(job);
    int rc = history_open(&a->history, job, &a->case_file, a->host, err);
    if (rc == 0) rc = nursery_open(a->loop, &events, a, &a->nursery, err);
    if (rc == 0) {
        rc = worker_channels_open(a->loop, worker_count(a), job->step_timeout_ms, &channel_events,
                                  a, &a->channels, err);
    }
    if (rc == 0) {
        struct rendezvous_options options = job->rendezvous;
        options.digest = digest_of(job);
        rc = rendezvous_open(a->loop, &options, &rendezvous_events, a, &a->rendezvous, err);
        a->answers.rendezvous = a->rendezvous;
    }
    if (rc == 0 && job->timer_file != NULL) {
        rc = watchdog_open(a->loop, job->timer_file, &watchdog_events, a, &a->watchdog, err);
    }
    if (rc == 0 && job->hang_timeout_ms > 0) {
        rc = hang_open(a->loop, job->hang_timeout_ms, job->hang_when_silent, worker_count(a),
                       &hang_calls, a, &a->hang, err);
    }
    if (rc == 0) rc = log_dir_open(&a->logs, job->log_dir, job->rendezvous.run_id, err);
    if (rc == 0 && a->logs.path[0] != '\0') cr_info("logs are in '%s'", a->logs.path);
    if (rc == 0) rc = open_relay(a, err);
    a->case_file.relay = a->relay;
    a->history.relay = a->relay;
    if (rc == 0) rc = open_status(a, err);
    a->history.channels = a->channels;
    return rc;
}

/* Initialises the node, and the roles of its workers if the job has several programs. Returns 0 or
 * -ENOMEM. */
static int init_node(struct agent *a, struct node_settings *settings) {
    if (a->job->program_count == 0) return node_init(&a->node, settings, &node_actions, a);
    struct node_policy *policies = calloc(settings->workers, sizeof(*policies));
    a->roles = calloc(settings->workers, sizeof(*a->roles));
    int rc = policies != NULL && a->roles != NULL ? 0 : -ENOMEM;
    for (uint32_t i = 0; rc == 0 && i < settings->workers; i++) {
        policies[i] = agent_policy_of(a->job, i);
        a->roles[i] = agent_program_of(a->job, i)->role;
    }
    settings->policies = policies;
    if (rc == 0) rc = node_init(&a->node, settings, &node_actions, a);
    free(policies);
    return rc;
}

/* Initialises the fields that need no handle of the loop. */
static int agent_init(struct agent *a, uv_loop_t *loop, const struct agent_job *job) {
    struct node_settings settings = {
        .workers = job->rendezvous.local_world_size,
        .stop_timeout_ms = job->stop_timeout_ms,
        .shutdown_timeout_ms = job->shutdown_timeout_ms,
        .log_level = cr_log_enabled(CR_LOG_DEBUG) ? CR_LOG_DEBUG : CR_LOG_INFO};
    a->loop = loop;
    a->job = job;
    a->logs.fd = a->logs.attempt_fd = -1;
    a->began_ms = cr_monotonic_ms();
    a->node_lines.about = "the workers";
    a->node_lines.max = LINES_MIN + LINES_PER_WORKER * settings.workers;
    a->timer_ms = a->lease_end_ms = CR_FOREVER;
    if (gethostname(a->host, sizeof(a->host) - 1) < 0) strcpy(a->host, "localhost");
    a->processes = calloc(settings.workers, sizeof(struct worker_process *));
    if (a->processes == NULL) return -ENOMEM;
    int rc = init_node(a, &settings);
    return rc < 0 ? rc : case_file_init(&a->case_file, job, a->host, &a->logs);
}

int agent_start(uv_loop_t *loop, const struct agent_job *job,
                void (*on_done)(void *arg, const struct agent_result *result), void *arg,
                struct agent **out, struct cr_error *err) {
    uint32_t count = job->rendezvous.local_world_size;
    if (count < 1 || count > AGENT_WORKERS_MAX) {
        return cr_fail(err, -EINVAL, "cannot run %u workers on one node; the number is 1 to %d",
                       count, AGENT_WORKERS_MAX);
    }
    struct agent *a = calloc(1, sizeof(*a));
    if (a == NULL || agent_init(a, loop, job) < 0) {
        agent_free(a);
        return cr_fail(err, -ENOMEM, "cannot start the agent: no memory left");
    }
    a->on_done = on_done;
    a->arg = arg;
    (void) uv_timer_init(loop, &a->timer);
    a->timer.data = a;
    suspension_watch_open(&a->suspension, loop, on_resumed, a);
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
