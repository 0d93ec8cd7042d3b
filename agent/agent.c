/* The agent's shell: carries out the actions that the node (agent/node/node.h) requests, and opens
 * and closes the agent's parts. agent_events.c turns exits, packets of workers, messages of the
 * rendezvous and timers into events of the node. The node makes all decisions.
 *
 * A struct agent owns the nursery (processes), the rendezvous, the workers' channels, the log
 * folder, the output relay and the case file. All code runs on the loop's thread. The agent ends in
 * this order: the node requests its action `finish`; the output is drained and the console flushed;
 * the handles are closed; on_done runs. */
#include "agent/agent_internal.h"

#include "base/hash.h"
#include "base/time/clock.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Limit of the node's log lines in 10 s: LINES_MIN, plus LINES_PER_WORKER for each worker. The
 * limit grows with the number of workers, because the node logs a line for each worker that has
 * written a flight record. See do_log(). */
#define LINES_MIN        100
#define LINES_PER_WORKER 4
/* Time in ms that is kept for the agent's own end after its last process is gone: to send its last
 * messages to other nodes, and to close everything. */
#define OWN_END_MS 1000

#define DO_NOT_REQUEUE 93 /* exit code with which a worker says that a restart is of no use */

struct event_source agent_event_source(const struct agent *a) {
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

void agent_set_fence(struct agent *a) {
    enum group_state state = a->node.group.state;
    if (a->open_parts > 0) return; /* the nursery is closing */
    bool has_ranks = state == GROUP_RUNNING || state == GROUP_WAITING || state == GROUP_STOPPING;
    nursery_set_fence(a->nursery, has_ranks ? a->lease_end_ms : CR_FOREVER);
}

void agent_arm_timer(struct agent *a) {
    agent_set_fence(a);
    int64_t deadline_ms = node_deadline(&a->node);
    if (deadline_ms == a->timer_ms) return;
    a->timer_ms = deadline_ms;
    if (deadline_ms == CR_FOREVER) {
        (void) uv_timer_stop(&a->timer);
        return;
    }
    uv_update_time(a->loop); /* uv_timer_start() counts from the loop's cached time, which may be
                              * old */
    (void) uv_timer_start(&a->timer, on_timer, (uint64_t) cr_time_left_ms(deadline_ms), 0);
}

static void on_timer(uv_timer_t *timer) {
    struct agent *a = timer->data;
    node_tick(&a->node, cr_monotonic_ms());
    agent_arm_timer(a);
}

/* ---- closing the agent's objects after the job's end ---- */

static void on_part_closed(void *arg) {
    struct agent *a = arg;
    if (--a->open_parts > 0) return;
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

/* Runs when the output relay is closed. A closed relay no longer carries the log, so this makes the
 * log write its lines to stderr itself. The log must not wait for a full stderr, because this
 * process may host other jobs, and run on for a long time. */
static void on_relay_closed(void *arg) {
    struct agent *a = arg;
    if (a->job->carries_log) {
        cr_log_never_wait();
        cr_log_drain();
    }
    on_part_closed(a);
}

static void on_timer_closed(uv_handle_t *handle) { on_part_closed(handle->data); }

/* Removes the log folders if nothing is in them. The nursery takes descriptors of the removed
 * folders, so that closing them, which may wait for a disk, does not delay the job's end. */
static void remove_empty_logs(struct agent *a) {
    struct log_dir_removed removed = {.count = 0};
    if (a->job->log_dir != NULL || a->result.outcome != AGENT_SUCCEEDED) return;
    log_dir_remove_empty(&a->logs, &removed);
    if (a->nursery != NULL) nursery_pass_on(a->nursery, removed.fds, removed.count);
    for (size_t i = 0; i < removed.count; i++) (void) close(removed.fds[i]);
}

static void close_parts(struct agent *a) {
    remove_empty_logs(a);
    a->open_parts = 1 + (a->status != NULL) + (a->nursery != NULL) + (a->rendezvous != NULL) +
                    (a->relay != NULL) + (a->watchdog != NULL) + (a->channels != NULL) +
                    (a->hang != NULL) + (a->health != NULL) + (a->paired != NULL) +
                    (a->trainjob != NULL) +
                    (a->case_file.xids != NULL);
    /* nursery_close() is called before the parts below are closed, because it kills the warden
     * without waiting for its death: the warden dies while the loop closes these parts. */
    preload_close(&a->preload);
    if (a->nursery != NULL) nursery_close(a->nursery, on_part_closed);
    if (a->status != NULL) status_server_close(a->status, on_part_closed, a);
    if (a->rendezvous != NULL) rendezvous_close(a->rendezvous, on_rendezvous_closed);
    if (a->relay != NULL) log_relay_close(a->relay, on_relay_closed);
    if (a->watchdog != NULL) watchdog_close(a->watchdog, on_part_closed);
    if (a->channels != NULL) worker_channels_close(a->channels, on_part_closed);
    if (a->hang != NULL) hang_close(a->hang, on_part_closed);
    if (a->health != NULL) health_close(a->health, on_part_closed, a);
    if (a->paired != NULL) paired_close(a->paired, on_part_closed, a);
    if (a->case_file.xids != NULL) xid_watch_close(a->case_file.xids, on_part_closed, a);
    a->case_file.xids = NULL;
    if (a->trainjob != NULL) trainjob_close(a->trainjob, on_part_closed);
    if (answers_close(&a->answers, on_part_closed, a)) a->open_parts++;
    uv_close((uv_handle_t *) &a->timer, on_timer_closed);
    if (suspension_watch_close(&a->suspension, on_part_closed)) a->open_parts++;
}

/* Runs when the console has taken the workers' last output. Closes the relay, the watchdog, the
 * channels and the timer. When these are closed, on_done runs and prints the verdict, so the
 * verdict stands below the workers' output. */
static void on_flushed(void *arg) { close_parts(arg); }

/* ---- the node's actions on processes ---- */

static struct attempt attempt_of(struct agent *a) {
    return (struct attempt){.job = a->job, .round = &a->round, .logs = &a->logs,
                            .relay = a->relay, .channels = a->channels, .nursery = a->nursery,
                            .case_file = &a->case_file, .processes = a->processes,
                            .events = agent_event_source(a),
                            .fork_server = a->preload.server};
}

static int do_start(void *arg, bool *starts) {
    struct agent *a = arg;
    agent_set_fence(a);
    struct attempt attempt = attempt_of(a);
    int rc = attempt_start(&attempt, starts, &a->error);
    if (rc == 0 && a->hang != NULL) hang_begin(a->hang);
    if (rc == 0) preload_begin(&a->preload, a->nursery, a->job);
    return rc;
}

/* Starts one worker again, while the other workers run on, and logs why. The line names the
 * worker's role, because the programs of a job can have different rules for failures. */
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

/* Call this if none of this node's workers has failed. Returns why this node stops its workers. */
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
    if (a->node.group.ending != GROUP_GOES_ON) preload_release(&a->preload);
    /* if services still run, all processes are ended, because what a service has started ends with
     * the service */
    bool stops_services = a->node.group.living > 0;
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

/* Joins the next round. If the job has a health check, only begins the check; on_health() joins
 * when the result is there. */
static void do_join(void *arg) {
    struct agent *a = arg;
    if (a->health == NULL) {
        rendezvous_join(a->rendezvous, node_parked_workers(&a->node));
        return;
    }
    a->joins = true;
    health_begin(a->health, a->rounds);
}

/* Call this if the job has one node only and this node is not fit. Ends the job, because no other
 * node can take this node's place. */
static void end_unfit(struct agent *a, const char *why) {
    health_stop(a->health);
    (void) cr_fail(&a->error, -EIO, "this node is not fit for the job: %s", why);
    a->is_unfit = true;
    node_end(&a->node, cr_monotonic_ms(), RENDEZVOUS_LOST);
}

static void warn_unfit(const struct agent *a, const char *why) {
    cr_warn("host '%s' is not fit for the job: %s; it gets no place in a round, and is checked "
            "again from time to time", a->host, why);
}

/* Runs when a health check is over. `why` says why this node is not fit, or is "" if it is fit.
 * Passes the result to the rendezvous, and joins the next round if the join has waited for this
 * check. If the node is not fit and the job has one node only, ends the job instead. */
static void on_health(void *arg, const char *why) {
    struct agent *a = arg;
    if (a->open_parts > 0 || a->node.group.state != GROUP_JOINING) {
        health_stop(a->health);
        return;
    }
    history_health(&a->history, why);
    if (why[0] != '\0' && a->job->rendezvous.max_nodes == 1) {
        end_unfit(a, why);
    } else {
        if (why[0] != '\0' && a->joins) warn_unfit(a, why);
        rendezvous_set_unfit(a->rendezvous, why);
        if (a->joins) rendezvous_join(a->rendezvous, node_parked_workers(&a->node));
        a->joins = false;
    }
    agent_arm_timer(a);
}

/* Logs the first failure of a round as soon as it is known. The failure report comes later: only
 * when all workers have ended, which may take as long as their grace. If other workers run, the
 * line is a warning. If none runs, the failure report follows at once, so the line is an info. */
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

/* Call this if workers failed, but the job ends for another reason. Logs a warning about the
 * failure. */
static void warn_of_failure(struct agent *a) {
    struct cr_buffer line = {0};
    case_file_write_line(&a->case_file, &line);
    cr_warn("%s", text_of(&line));
    cr_buffer_done(&line);
}

static void end_history(struct agent *a) {
    history_end(&a->history, outcome_words[a->result.outcome]);
    cycle_info_end(&a->cycle_info);
    history_write_summary(&a->history, a->rounds > 0 && a->round.group_rank == 0, &a->summary);
    a->result.summary = a->summary.len > 0 ? a->summary.data : NULL;
}

/* Returns the cause of the job's failure: the cause of the first failure on any node. */
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
        bool is_lost = a->node.group.ending == GROUP_LOST && !a->is_unfit;
        a->result.cause = is_lost ? AGENT_CAUSE_RENDEZVOUS : AGENT_CAUSE_MACHINE;
    }
}

/* Writes verdict.json. Exception: if the job succeeded and the user gave no --log-dir, this removes
 * the file, so that the temporary log folder can be removed. */
static void end_verdict(struct agent *a) {
    bool is_wanted = a->job->log_dir != NULL || a->result.outcome != AGENT_SUCCEEDED;
    if (!is_wanted) {
        case_file_remove_verdict(&a->case_file);
        return;
    }
    case_file_form_verdict(&a->case_file, outcome_words[a->result.outcome], a->error.text);
    case_file_save_verdict(&a->case_file);
}

static void do_finish(void *arg) {
    struct agent *a = arg;
    const struct worker_group *group = &a->node.group;
    log_relay_end(a->relay);
    a->result.outcome = outcomes[group->ending];
    end_history(a);
    a->result.signal = group->signal;
    a->result.workers_started = a->rounds > 0;
    if (a->trainjob != NULL && a->result.outcome == AGENT_SUCCEEDED) trainjob_done(a->trainjob);
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
    events_agent_ended(agent_event_source(a), &a->round, as_planned,
                       cr_monotonic_ms() - a->began_ms);
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
    if (a->open_parts > 0) { /* the agent is closing, and the relay may be freed already */
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
    agent_arm_timer(a);
}

void agent_notice(struct agent *a, enum rendezvous_change_kind kind, int64_t left_ms,
                  const char *why) {
    node_notice(&a->node, cr_monotonic_ms(), kind, left_ms, why);
    agent_arm_timer(a);
}

void agent_dump(struct agent *a, const char *why) {
    rendezvous_inquire(a->rendezvous);
    node_dump(&a->node, cr_monotonic_ms(), why);
    agent_arm_timer(a);
}

void agent_resized(struct agent *a) {
    if (a->open_parts > 0) return;
    log_relay_resize(a->relay);
    for (uint32_t i = 0; i < agent_worker_count(a); i++) {
        /* not by worker_signal(), which would record the signal as one that stops the worker */
        if (a->processes[i] != NULL) (void) kill(-worker_pid(a->processes[i]), SIGWINCH);
    }
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

/* Adds one program to a hash (base/hash.h), and returns the new hash. The hash covers the program's
 * name without its folder, and the program's arguments, each with its NUL. */
static uint64_t add_to_digest(uint64_t hash, char *const *argv) {
    const char *slash = strrchr(argv[0], '/');
    for (char *const *arg = argv; *arg != NULL; arg++) {
        const char *text = arg == argv && slash != NULL ? slash + 1 : *arg;
        hash = cr_hash_add(hash, text, strlen(text) + 1);
    }
    return hash;
}

/* Returns a hash of the job's programs. The hash is never 0. */
static uint64_t digest_of(const struct agent_job *job) {
    uint64_t hash = add_to_digest(CR_HASH_BEGIN, job->argv);
    for (uint32_t i = 1; i < job->program_count; i++) {
        hash = add_to_digest(hash, job->programs[i].argv);
    }
    return hash != 0 ? hash : 1;
}

static bool has_rules(const struct agent *a) {
    return a->hang != NULL && hang_needs_lines(a->hang);
}

static int open_relay(struct agent *a, struct cr_error *err) {
    const struct agent_job *job = a->job;
    _Static_assert(AGENT_STREAM_OUT == LOG_RELAY_STDOUT && AGENT_STREAM_ERR == LOG_RELAY_STDERR,
                   "the masks go from one to the other as they are");
    const struct log_relay_options options = {.workers = agent_worker_count(a),
                                              .redirects = job->redirects,
                                              .tee = job->tee,
                                              .log_max_size = job->log_max_size,
                                              .console = job->console,
                                              .role = job->rendezvous.role,
                                              .roles = a->roles,
                                              .prefix_template = job->log_line_prefix_template,
                                              .stdout_filters = job->duplicate_stdout_filters,
                                              .stderr_filters = job->duplicate_stderr_filters,
                                              .folds = job->folds_lines,
                                              .is_json = job->is_log_json,
                                              .on_line = has_rules(a) ? agent_on_line : NULL,
                                              .on_line_arg = a,
                                              .carries_log = job->carries_log};
    return log_relay_open(a->loop, &options, &a->logs, on_flushed, a, &a->relay, err);
}

static int open_status(struct agent *a, struct cr_error *err) {
    struct status_source source = agent_status_source;
    source.arg = a;
    if (a->job->status_addr == NULL) return 0;
    int rc = status_serve(a->loop, a->job->status_addr, &source, &a->status, err);
    if (rc == 0) cr_info("the status address is %s", status_server_address(a->status));
    return rc;
}

/* Returns how long, in ms, this agent waits after SIGKILL for the end of its workers. The
 * coordinator waits stop_limit_ms for a node. The grace before SIGKILL, this wait, a health check
 * and the agent's own end must not take longer together. */
static int64_t give_up_ms(const struct agent_job *job) {
    int64_t grace_ms = job->stop_timeout_ms > job->shutdown_timeout_ms ? job->stop_timeout_ms
                                                                       : job->shutdown_timeout_ms;
    bool checks = job->health_command != NULL || job->health_builtin != 0;
    int64_t ms = job->rendezvous.stop_limit_ms - grace_ms - OWN_END_MS -
                 (checks ? job->health_timeout_ms : 0);
    return ms > OWN_END_MS ? ms : OWN_END_MS;
}

static int open_health(struct agent *a, struct cr_error *err) {
    const struct agent_job *job = a->job;
    if (job->health_command == NULL && job->health_builtin == 0) return 0;
    a->health_options = (struct health_options){
        .what = "health check", .builtin = job->health_builtin, .command = job->health_command,
        .timeout_ms = job->health_timeout_ms, .workers = agent_worker_count(a),
        .segments = job->health_segments, .service = job->health_service,
        .folder = a->logs.path[0] != '\0' ? a->logs.path : "/tmp",
        .addr = job->rendezvous.local_addr};
    a->health = health_open(a->loop, &a->health_options, on_health, a);
    return a->health != NULL ? 0 : cr_fail(err, -ENOMEM, "cannot check this node: no memory left");
}

/* Runs when this node's part of a paired test is over. */
static void on_paired(void *arg, uint64_t id, const char *why) {
    struct agent *a = arg;
    if (a->open_parts > 0 || a->rendezvous == NULL) return;
    if (why[0] != '\0') cr_warn("the paired test of host '%s' has failed: %s", a->host, why);
    rendezvous_paired(a->rendezvous, id, why);
}

static int open_paired(struct agent *a, struct cr_error *err) {
    const struct agent_job *job = a->job;
    if (job->pair_command == NULL) return 0;
    return paired_open(a->loop, job->pair_command, job->pair_timeout_ms, agent_worker_count(a),
                       job->rendezvous.ports, on_paired, a, &a->paired, err);
}

static int open_hang(struct agent *a, struct cr_error *err) {
    const struct agent_job *job = a->job;
    const struct hang_options options = {.limit_ms = job->hang_timeout_ms,
                                         .notice_ms = job->hang_notice_ms,
                                         .only_output = job->hang_when_silent,
                                         .hang_rules = job->hang_rules,
                                         .value_rules = job->value_rules,
                                         .workers = agent_worker_count(a)};
    bool rules = job->hang_rules != NULL || job->value_rules != NULL;
    if (job->hang_timeout_ms == 0 && job->hang_notice_ms == 0 && !rules) return 0;
    return hang_open(a->loop, &options, &agent_hang_calls, a, &a->hang, err);
}

/* Opens the objects that the agent owns. The nursery is first, because it forks its warden, and a
 * fork takes longer the more memory the process has. The log folder comes after the objects that
 * open sockets, so that no empty folder is left if a port is in use. */
static int open_parts(struct agent *a, struct cr_error *err) {
    const struct agent_job *job = a->job;
    struct nursery_events events = agent_nursery_events;
    events.give_up_ms = give_up_ms(job);
    int rc = history_open(&a->history, job, &a->case_file, a->host, err);
    if (rc == 0) rc = nursery_open(a->loop, &events, a, &a->nursery, err);
    if (rc == 0) {
        rc = worker_channels_open(a->loop, agent_worker_count(a), job->step_timeout_ms,
                                  &agent_channel_events, a, &a->channels, err);
    }
    if (rc == 0) rc = open_hang(a, err);
    if (rc == 0) rc = open_paired(a, err);
    if (rc == 0) {
        struct rendezvous_options options = job->rendezvous;
        options.digest = digest_of(job);
        options.watches = a->hang != NULL ? hang_reasons(a->hang) : 0;
        options.pair_port = a->paired != NULL ? paired_port(a->paired) : 0;
        options.pair_timeout_ms = job->pair_timeout_ms;
        rc = rendezvous_open(a->loop, &options, &agent_rendezvous_events, a, &a->rendezvous, err);
        a->answers.rendezvous = a->rendezvous;
    }
    if (rc == 0 && job->timer_file != NULL) {
        rc = watchdog_open(a->loop, job->timer_file, &agent_watchdog_events, a, &a->watchdog, err);
    }
    if (rc == 0) a->case_file.xids = xid_watch_open(a->loop);
    if (rc == 0) rc = log_dir_open(&a->logs, job->log_dir, job->rendezvous.run_id, err);
    if (rc == 0) rc = open_health(a, err);
    if (rc == 0 && a->logs.path[0] != '\0') cr_info("logs are in '%s'", a->logs.path);
    if (rc == 0) rc = open_relay(a, err);
    a->case_file.relay = a->relay;
    a->history.relay = a->relay;
    if (rc == 0) rc = open_status(a, err);
    if (rc == 0 && job->trainjob.url != NULL) {
        a->trainjob = trainjob_open(a->loop, &job->trainjob, agent_read_progress, a);
    }
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

/* Initialises those fields of the agent for which no handle of the loop has to be opened. */
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
    a->cycle_info.folder = job->cycle_info_dir;
    a->cycle_info.run_id = job->rendezvous.run_id;
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
    suspension_watch_open(&a->suspension, loop, agent_on_resumed, a);
    int rc = open_parts(a, err);
    if (rc < 0) {
        a->failed_start = 1;
        close_parts(a);
        return rc;
    }
    *out = a;
    preload_begin(&a->preload, a->nursery, job); /* before the join, so that a spare node imports
                                                  * the modules while it waits */
    do_join(a);
    return 0;
}
