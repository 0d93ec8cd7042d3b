/* Handles the events of the agent's parts: processes, the timer file, the watch for a hang, the
 * rendezvous, the workers' channels and the status address. Each handler records its event where it
 * belongs (case file, history, log) and passes it to the node, which decides what to do. Then the
 * handler sets the node's timer anew. */
#include "agent/agent_internal.h"

#include "base/time/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* longest notice in ms that crun-agent top can give */
#define NOTICE_MAX_MS (INT64_C(1000) * 3600 * 24)

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

static void send_rank(void *arg, const struct rendezvous_rank *rank) {
    rendezvous_rank(((struct agent *) arg)->rendezvous, rank);
}

/* Answers the message ASK_RANKS: sends the coordinator what each worker of this node does, so that
 * the coordinator can show the workers of all nodes in its snapshots. Sends nothing if `round` is
 * not the current round. */
static void on_ask_ranks(void *arg, uint64_t round) {
    struct agent *a = arg;
    struct node_status s = status_of(a);
    if (a->rounds > 0 && a->round.round == round) node_status_report(&s, send_rank, a);
}

static const char *why_not_ready(void *arg) {
    struct node_status s = status_of(arg);
    return node_status_why_not_ready(&s);
}

const struct status_source agent_status_source = {.snapshot = snapshot,
                                                  .why_not_ready = why_not_ready};

/* ---- the status for TrainJob ---- */

void agent_read_progress(void *arg, struct trainjob_progress *out) {
    const struct agent *a = arg;
    struct worker_steps steps;
    *out = (struct trainjob_progress){.leads = a->rounds > 0 && a->round.group_rank == 0,
                                      .round = a->round.round,
                                      .restarts = a->round.restart_count,
                                      .workers = a->round.world_size};
    for (uint32_t i = 0; i < agent_worker_count(a); i++) {
        worker_channels_read_steps(a->channels, i, &steps);
        bool is_behind = out->steps == 0 || steps.count < out->steps;
        if (!steps.connected || steps.count == 0 || !is_behind) continue;
        double took_s = (double) (cr_monotonic_ns() - steps.first_ns) / 1e9;
        out->steps = steps.count;
        out->steps_per_s = took_s > 0 ? (double) (steps.count - 1) / took_s : 0;
    }
}

/* ---- events of processes, passed to the node ---- */

/* Requests an inquiry if the ended worker is the first one of this node that failed in this round,
 * and if it was waiting in an operation of a process group. Reason: another rank that has not
 * entered the operation may be the cause of the failure. */
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
    if (slot == NULL) { /* it was no worker, but the fork server */
        preload_ended(&a->preload);
        return;
    }
    uint32_t local_rank = (uint32_t) (slot - a->processes);
    *slot = NULL;
    case_file_add_exit(&a->case_file, local_rank, how);
    history_worker_ended(&a->history, local_rank, how);
    log_relay_drain(a->relay, local_rank);
    if (a->watchdog != NULL) watchdog_forget(a->watchdog, how->pid);
    if (a->hang != NULL) hang_worker_ended(a->hang, local_rank);
    events_worker_ended(agent_event_source(a), &a->round, local_rank, how,
                        cr_monotonic_ms() - a->began_ms);
    inquire_after(a, local_rank, how);
    node_worker_exited(&a->node, cr_monotonic_ms(), local_rank, how->exit_code, how->signal_sent);
    agent_arm_timer(a);
}

static void on_empty(void *arg) {
    struct agent *a = arg;
    log_relay_end(a->relay);
    history_gone(&a->history);
    cycle_info_end(&a->cycle_info);
    node_processes_gone(&a->node, cr_monotonic_ms());
    agent_arm_timer(a);
}

/* Logs a warning about a process that SIGKILL does not end. */
static void on_stuck(void *arg, const struct worker_process *w, const struct nursery_stuck *how) {
    struct agent *a = arg;
    char who[64] = "a process that a worker has started", where[128] = "";
    if (w != NULL && worker_arg(w) != NULL) {
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

/* Ends this agent although processes are left that SIGKILL does not end. This node cannot run
 * another round, because these processes may hold the GPU, the port or the files that the round
 * needs. */
static void on_unkillable(void *arg, unsigned count) {
    struct agent *a = arg;
    struct cr_error err;
    (void) cr_fail(&err, -EBUSY,
                   "cannot end %u process(es) of host '%s': they live on after SIGKILL; crun ends "
                   "without them; do not use this host before they are gone", count, a->host);
    /* If the job has no other reason to end, the agent ends with this error, which the launcher
     * prints. Otherwise the error is only logged. */
    if (a->node.group.ending == GROUP_GOES_ON) a->error = err;
    else cr_warn("%s", err.text);
    nursery_abandon(a->nursery);
    preload_ended(&a->preload); /* the nursery has killed the server, too */
    for (uint32_t i = 0; i < agent_worker_count(a); i++) a->processes[i] = NULL;
    node_processes_unkillable(&a->node, cr_monotonic_ms());
    agent_arm_timer(a);
}

/* Runs when the warden has ended workers because the lease is over. Tells the rendezvous, which
 * ends the round on this node. This callback runs before on_exit runs for these workers: otherwise
 * their deaths would count as failures of the workers. */
static void on_fenced(void *arg) {
    struct agent *a = arg;
    cr_warn("this process stood still until its lease was over (was it stopped or frozen?); the "
            "warden has ended the workers, because other nodes may run with their ranks");
    rendezvous_stood_still(a->rendezvous, 0);
    agent_arm_timer(a);
}

void agent_on_resumed(void *arg, int64_t slept_ms) {
    struct agent *a = arg;
    if (a->open_parts > 0) return;
    cr_warn("this machine was suspended for %.1f s", (double) slept_ms / 1000);
    rendezvous_stood_still(a->rendezvous, slept_ms);
    agent_arm_timer(a);
}

const struct nursery_events agent_nursery_events = {.on_exit = on_exit_of,
                                                     .on_empty = on_empty,
                                                     .on_stuck = on_stuck,
                                                     .on_unkillable = on_unkillable,
                                                     .on_fenced = on_fenced};

static bool is_ours(void *arg, pid_t pid) {
    (void) arg;
    return nursery_is_descendant(pid);
}

/* Records that a worker's timer has expired. The worker itself has set this timer, so its death
 * counts as its own failure. */
static void on_timer_expired(void *arg, pid_t pid) {
    struct agent *a = arg;
    for (uint32_t i = 0; i < agent_worker_count(a); i++) {
        if (a->processes[i] == NULL || worker_pid(a->processes[i]) != pid) continue;
        a->case_file.workers[i].timer_expired = true;
    }
}

const struct watchdog_events agent_watchdog_events = {.is_ours = is_ours,
                                                       .on_expired = on_timer_expired};

/* ---- the watch for a hang ---- */

static bool do_sample(void *arg, int64_t *cpu_ms, uint64_t *output) {
    struct agent *a = arg;
    if (a->node.group.state != GROUP_RUNNING || a->node.group.living == 0) return false;
    for (uint32_t i = 0; i < agent_worker_count(a); i++) {
        cpu_ms[i] = a->processes[i] != NULL ? worker_cpu_ms(a->processes[i]) : 0;
    }
    *output = log_relay_output(a->relay);
    return true;
}

static size_t do_list(void *arg, struct inspect_row *rows) {
    struct agent *a = arg;
    size_t count = 0;
    for (uint32_t i = 0; i < agent_worker_count(a); i++) {
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
static void on_hang(void *arg, const struct hang_report *report) {
    struct agent *a = arg;
    case_file_add_hang(&a->case_file, report->quiet_ms, report->rank, report->pid, report->what);
    case_file_drop_inspection(&a->case_file);
    case_file_add_inspection(&a->case_file, report->lines);
    node_hung(&a->node, cr_monotonic_ms());
    if (a->round.restart_count < a->round.max_restarts) {
        /* a restart is left, so no failure report follows that would show the inspection; log it
         * here */
        cr_log_text(a->case_file.inspection.data, a->case_file.inspection.len);
    }
    agent_arm_timer(a);
}

/* Logs that the workers may hang. Only the node with group rank 0 logs it, so that a job of 1000
 * nodes writes one line. */
static void on_quiet(void *arg, int64_t quiet_ms) {
    struct agent *a = arg;
    if (a->round.group_rank != 0) return;
    cr_warn("no worker of host '%s' has written output or used the processor for %g s; "
            "'crun-agent why --job %s' shows where each one is; with --hang-timeout crun ends a "
            "round that hangs", a->host, (double) quiet_ms / 1000, a->job->rendezvous.run_id);
}

/* Ends the round because of a value that a worker has written. */
static void on_bad_value(void *arg, uint32_t local_rank, const char *what) {
    struct agent *a = arg;
    pid_t pid = a->processes[local_rank] != NULL ? worker_pid(a->processes[local_rank]) : 0;
    case_file_add_bad_value(&a->case_file, local_rank, pid, what);
    node_broken(&a->node, cr_monotonic_ms());
    agent_arm_timer(a);
}

void agent_on_line(void *arg, uint32_t local_rank, const char *line, size_t len) {
    struct agent *a = arg;
    hang_line(a->hang, local_rank, line, len);
}

static bool do_tell(void *arg, const struct rendezvous_quiet *quiet) {
    return rendezvous_quiet(((struct agent *) arg)->rendezvous, quiet);
}

/* Collects the pieces of the coordinator's report that the job hangs. When the last piece is there,
 * reports the failure, if that is this node's task. */
static void on_job_hung(void *arg, const struct rendezvous_hung *hung) {
    struct agent *a = arg;
    if (a->hang == NULL) return;
    if (!a->is_hung_told) case_file_drop_inspection(&a->case_file);
    a->is_hung_told = !hung->is_last;
    case_file_add_inspection(&a->case_file, hung->lines);
    if (!hung->is_last || !hung->decides) return;
    const struct cr_buffer *lines = &a->case_file.inspection;
    const struct hang_report report = {.quiet_ms = hung->quiet_ms, .rank = hung->rank,
                                       .reasons = hung->reasons, .pid = hung->pid,
                                       .what = hung->what,
                                       .lines = lines->data != NULL ? lines->data : ""};
    if (!hang_decided(a->hang, &report)) case_file_drop_inspection(&a->case_file);
    agent_arm_timer(a);
}

static uint32_t do_first_rank(void *arg) { return ((struct agent *) arg)->round.first_rank; }

const struct hang_calls agent_hang_calls = {
    .sample = do_sample, .list = do_list, .first_rank = do_first_rank, .tell = do_tell,
    .on_hang = on_hang, .on_quiet = on_quiet,
    .on_bad_value = on_bad_value};

static void on_failure(void *arg, const struct rendezvous_failure *failure) {
    struct agent *a = arg;
    case_file_add_failure(&a->case_file, failure);
}

static void on_inspect(void *arg, uint64_t id, const char *why) {
    struct agent *a = arg;
    struct inspect_row *rows = calloc(agent_worker_count(a), sizeof(*rows));
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
        case_file_form_verdict(&a->case_file, "restarted", NULL);
    }
    if (a->rounds > 0) warn_of_restart(a, round);
    if (a->paired != NULL) paired_stop(a->paired);
    a->round = *round;
    a->rounds++;
    cr_error_clear(&a->error);
    a->change = LEDGER_BY_NODES;
    events_round(agent_event_source(a), round, cr_monotonic_ms() - a->began_ms);
    history_round(&a->history, round);
    if (round->group_rank == 0) {
        cycle_info_begin(&a->cycle_info, a->rendezvous, round, a->host, a->logs.path);
    }
    node_round(&a->node, cr_monotonic_ms(), round);
    if (a->node.group.state == GROUP_RUNNING) history_started(&a->history, round);
    /* Saves the verdict about the last round. It is saved only now, after the workers of the new
     * round have started, so that they do not wait for the file system. */
    case_file_save_verdict(&a->case_file);
    if (a->trainjob != NULL) trainjob_round(a->trainjob);
    agent_arm_timer(a);
}

static void on_stop(void *arg, int64_t grace_max_ms, const char *why) {
    struct agent *a = arg;
    cr_warn("round %llu is over: %s; stopping the workers", (unsigned long long) a->round.round,
            why);
    node_stop(&a->node, cr_monotonic_ms(), grace_max_ms);
    agent_arm_timer(a);
}

static void on_end(void *arg, enum rendezvous_outcome outcome, const struct cr_error *err) {
    struct agent *a = arg;
    if (a->error.code == 0) a->error = *err;
    node_end(&a->node, cr_monotonic_ms(), outcome);
    agent_arm_timer(a);
}

/* Returns the ledger's cause for a change of this kind. */
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
    agent_arm_timer(a);
}

static void on_change_at(void *arg, uint64_t id, uint64_t step, int64_t left_ms) {
    struct agent *a = arg;
    node_change_at(&a->node, cr_monotonic_ms(), id, step, left_ms);
    agent_arm_timer(a);
}

static void on_lease(void *arg, int64_t until_ms) {
    struct agent *a = arg;
    /* CR_FOREVER means that this node is cut off and its member has no lease any more. The workers
     * must still end at the end of the last lease, so lease_end_ms stays as it is. */
    if (until_ms == CR_FOREVER && a->node.group.lease_ms != CR_FOREVER) return;
    a->lease_end_ms = until_ms;
    agent_set_fence(a);
}

static void on_notice(void *arg, enum rendezvous_change_kind kind, int64_t left_ms,
                      const char *why) {
    agent_notice(arg, kind, left_ms, why);
}

static void on_dump(void *arg, const char *why) {
    struct agent *a = arg;
    node_dump(&a->node, cr_monotonic_ms(), why);
    agent_arm_timer(a);
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
    for (uint32_t i = 0; a->rounds > 0 && i < agent_worker_count(a); i++) {
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

static void on_pair(void *arg, const struct rendezvous_pair *pair) {
    struct agent *a = arg;
    const struct paired_test test = {.id = pair->id, .rank = pair->rank, .host = pair->host,
                                     .addr = pair->addr, .port = pair->port};
    if (a->paired != NULL) paired_begin(a->paired, &test, a->rounds);
}

const struct rendezvous_events agent_rendezvous_events = {
    .on_round = on_round,         .on_stop = on_stop,     .on_end = on_end,
    .on_change = on_change,       .on_change_at = on_change_at,
    .on_ask_progress = on_ask_progress, .on_behind = on_behind, .on_ask_ranks = on_ask_ranks,
    .on_notice = on_notice,       .on_dump = on_dump,     .on_inspect = on_inspect,
    .on_failure = on_failure,     .on_lease = on_lease,
    .on_hung = on_job_hung,       .on_pair = on_pair,
};

/* ---- events of the workers' channels, passed to the node ---- */

static void on_connected(void *arg, uint32_t local_rank) {
    struct agent *a = arg;
    node_worker_connected(&a->node, cr_monotonic_ms(), local_rank);
    agent_arm_timer(a);
}

static void on_ready(void *arg, uint32_t local_rank, uint64_t change_id) {
    struct agent *a = arg;
    node_worker_ready(&a->node, cr_monotonic_ms(), local_rank, change_id);
    agent_arm_timer(a);
}

static void on_rejoin(void *arg, uint32_t local_rank) {
    struct agent *a = arg;
    node_worker_rejoin(&a->node, cr_monotonic_ms(), local_rank);
    agent_arm_timer(a);
}

static void on_dumped(void *arg, uint32_t local_rank, uint64_t dump_id, const char *path) {
    struct agent *a = arg;
    node_worker_dumped(&a->node, cr_monotonic_ms(), local_rank, dump_id, path);
    agent_arm_timer(a);
}

static void on_hung(void *arg, uint32_t local_rank, uint64_t step, int64_t ms) {
    struct agent *a = arg;
    rendezvous_inquire(a->rendezvous);
    node_worker_hung(&a->node, cr_monotonic_ms(), local_rank, step, ms);
    a->case_file.workers[local_rank].hung_ms = a->node.workers[local_rank].hung_ms;
    a->case_file.workers[local_rank].hung_step = a->node.workers[local_rank].hung_step;
    agent_arm_timer(a);
}

const struct worker_channel_events agent_channel_events = {
    .on_connected = on_connected, .on_ready = on_ready,   .on_rejoin = on_rejoin,
    .on_dumped = on_dumped,       .on_hung = on_hung,     .on_look = on_look};
