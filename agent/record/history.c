/* Notes what happens to a node: implements history.h. */
#include "agent/record/history.h"

#include "base/log/log.h"
#include "base/time/clock.h"
#include "status/json_text.h"

#include <errno.h>

static uint32_t worker_count(const struct history *h) {
    return h->job->rendezvous.local_world_size;
}

/* ---- the event log ---- */

/* Writes to the event log those rows of the ledger that are complete and are not in the log yet.
 * The last row is complete only if is_last is true. */
static void log_rows(struct history *h, bool is_last) {
    uint64_t end = h->ledger.row_count - (is_last ? 0 : 1);
    for (; h->rows_logged < end; h->rows_logged++) {
        const struct ledger_row *row = ledger_row(&h->ledger, h->rows_logged);
        if (row == NULL || h->log == NULL) continue;
        event_log_write(h->log, "round_accounted", ledger_row_json(&h->ledger, row));
    }
}

static void note(struct history *h, struct ledger_event event) {
    ledger_step(&h->ledger, &event, cr_monotonic_ns());
    log_rows(h, event.type == LEDGER_EVENT_END);
}

static void log_round(struct history *h, const char *event, const struct rendezvous_round *r) {
    if (h->log == NULL) return;
    event_log_write(h->log, event,
                    json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:i}", "round",
                              (json_int_t) r->round, "restart", (json_int_t) r->restart_count,
                              "max_restarts", (json_int_t) r->max_restarts, "node",
                              (json_int_t) r->group_rank, "nodes", (json_int_t) r->group_world_size,
                              "first_rank", (json_int_t) r->first_rank, "world_size",
                              (json_int_t) r->world_size, "master_addr",
                              status_json_text(r->master_addr), "master_port",
                              (int) r->master_port));
}

/* ---- what is known of the first step ---- */

/* Returns the time (ns, monotonic clock) at which the last of the workers that count steps made its
 * first step; 0 if none has made one. */
static int64_t first_step_ns(struct history *h) {
    int64_t latest = 0;
    for (uint32_t i = 0; h->channels != NULL && i < worker_count(h); i++) {
        struct worker_steps steps;
        worker_channels_read_steps(h->channels, i, &steps);
        if (steps.first_ns > latest) latest = steps.first_ns;
    }
    return latest;
}

static int64_t first_output_ns(const struct history *h) {
    int64_t first = 0;
    for (uint32_t i = 0; h->relay != NULL && i < worker_count(h); i++) {
        struct log_relay_look look;
        log_relay_look(h->relay, i, &look);
        if (look.first_ns != 0 && (first == 0 || look.first_ns < first)) first = look.first_ns;
    }
    return first;
}

static struct ledger_event find_sign(struct history *h) {
    struct ledger_event e = {.type = LEDGER_EVENT_SIGN, .sign = LEDGER_SIGN_STEP};
    e.since_ns = first_step_ns(h);
    if (e.since_ns != 0) {
        h->counts_steps = true;
        return e;
    }
    e.sign = h->counts_steps ? LEDGER_SIGN_AWAITED : LEDGER_SIGN_OUTPUT;
    if (!h->counts_steps) e.since_ns = first_output_ns(h);
    if (e.sign == LEDGER_SIGN_OUTPUT && e.since_ns == 0) e.sign = LEDGER_SIGN_UNKNOWN;
    return e;
}

static void note_sign(struct history *h) {
    if (h->ledger.phase == LEDGER_IN_RUN) note(h, find_sign(h));
}

/* ---- what happens ---- */

int history_open(struct history *h, const struct agent_job *job, const struct case_file *case_file,
                 const char *host, struct cr_error *err) {
    *h = (struct history){.job = job, .case_file = case_file};
    int64_t now_ns = cr_monotonic_ns();
    ledger_init(&h->ledger, now_ns);
    if (job->event_log == NULL) return 0;
    int rc = event_log_open(job->event_log, job->rendezvous.run_id, host, now_ns, &h->log, err);
    if (rc < 0) return rc;
    event_log_write(h->log, "job_started",
                    json_pack("{s:s, s:o, s:I, s:I}", "version", CRUN_VERSION, "program",
                              status_json_text(job->title), "workers",
                              (json_int_t) worker_count(h), "max_restarts",
                              (json_int_t) job->max_restarts));
    return 0;
}

void history_close(struct history *h) {
    event_log_close(h->log);
    h->log = NULL;
}

void history_round(struct history *h, const struct rendezvous_round *round) {
    note(h, (struct ledger_event){.type = LEDGER_EVENT_ROUND,
                                  .round = round->round,
                                  .restart_count = round->restart_count});
    log_round(h, "round_began", round);
}

void history_started(struct history *h, const struct rendezvous_round *round) {
    note(h, (struct ledger_event){.type = LEDGER_EVENT_STARTED});
    log_round(h, "workers_started", round);
}

void history_health(struct history *h, const char *why) {
    event_log_write(h->log, "health_checked",
                    json_pack("{s:b, s:o}", "fit", why[0] == '\0', "why", status_json_text(why)));
}

void history_worker_ended(struct history *h, uint32_t local_rank, const struct worker_exit *how) {
    if (h->log == NULL) return;
    event_log_write(h->log, "worker_ended",
                    json_pack("{s:I, s:I, s:i, s:i, s:i, s:b}", "rank",
                              (json_int_t) h->case_file->first_rank + local_rank, "local_rank",
                              (json_int_t) local_rank, "pid", (int) how->pid, "exit_code",
                              how->exit_code, "signal_sent", how->signal_sent, "core_dumped",
                              how->core_dumped));
}

void history_worker_restarted(struct history *h, uint32_t local_rank, uint32_t restarts) {
    if (h->log == NULL) return;
    event_log_write(h->log, "worker_restarted",
                    json_pack("{s:I, s:I, s:I}", "rank",
                              (json_int_t) h->case_file->first_rank + local_rank, "local_rank",
                              (json_int_t) local_rank, "restarts", (json_int_t) restarts));
}

/* Returns the event for the first failure of this node in the round. since_ns is the time at which
 * the work ended. If the workers hung, this is when they became quiet. For a worker that was killed
 * because it made no step, it is the time of its last step. For any other worker, it is the time of
 * its death. */
static struct ledger_event find_failure(const struct history *h) {
    struct ledger_event e = {.type = LEDGER_EVENT_BROKEN,
                             .cause = LEDGER_BY_FAILURE,
                             .since_ns = cr_monotonic_ns()};
    if (h->case_file->quiet_ms > 0) { /* the work ended when the workers became quiet */
        e.cause = LEDGER_BY_HANG;
        e.since_ns -= h->case_file->quiet_ms * CR_NS_PER_MS;
        return e;
    }
    for (uint32_t i = 0; i < worker_count(h); i++) {
        const struct case_worker *w = &h->case_file->workers[i];
        if (!w->has_ended || w->how.exit_code == 0 || w->how.signal_sent != 0) continue;
        struct worker_steps steps = {0};
        if (w->hung_ms > 0) worker_channels_read_steps(h->channels, i, &steps);
        int64_t ended_ns = w->hung_ms > 0 ? steps.last_ns : w->how.died_monotonic_ns;
        if (ended_ns > e.since_ns) continue;
        e.since_ns = ended_ns;
        e.cause = w->hung_ms > 0 ? LEDGER_BY_HANG : LEDGER_BY_FAILURE;
    }
    return e;
}

void history_broken(struct history *h, uint32_t failures, enum ledger_cause cause) {
    struct ledger_event e = {
        .type = LEDGER_EVENT_BROKEN, .cause = cause, .since_ns = cr_monotonic_ns()};
    uint64_t rows = h->ledger.row_count;
    if (failures > 0) e = find_failure(h);
    note_sign(h);
    note(h, e);
    if (h->log == NULL || h->ledger.row_count == rows) return;
    double detect_s =
        (double) ledger_row(&h->ledger, rows)->part_ns[LEDGER_DETECT] / (double) CR_NS_PER_S;
    event_log_write(h->log, "round_broken",
                    json_pack("{s:s, s:f}", "cause", ledger_cause_word(e.cause), "detect_s",
                              detect_s));
}

void history_done(struct history *h) {
    note_sign(h);
    note(h, (struct ledger_event){.type = LEDGER_EVENT_DONE});
    if (h->log != NULL) event_log_write(h->log, "workers_succeeded", json_object());
}

void history_gone(struct history *h) {
    note(h, (struct ledger_event){.type = LEDGER_EVENT_GONE});
    if (h->log != NULL) event_log_write(h->log, "workers_gone", json_object());
}

void history_end(struct history *h, const char *outcome) {
    if (h->ledger.phase == LEDGER_ENDED) return;
    note_sign(h);
    note(h, (struct ledger_event){.type = LEDGER_EVENT_END});
    if (h->log == NULL) return;
    json_t *fields = ledger_json(&h->ledger);
    (void) json_object_set_new(fields, "outcome", json_string(outcome));
    (void) json_object_del(fields, "rows"); /* each row has had a line of its own */
    event_log_write(h->log, "job_ended", fields);
}

void history_read(struct history *h, struct ledger *out) {
    note_sign(h);
    ledger_read(&h->ledger, cr_monotonic_ns(), out);
}

void history_write_summary(const struct history *h, bool is_first_node, struct cr_buffer *out) {
    bool is_wanted = h->job->summary == AGENT_SUMMARY_ALWAYS;
    if (h->job->summary == AGENT_SUMMARY_AUTO) {
        is_wanted = is_first_node && h->ledger.round_count > 1 && cr_log_enabled(CR_LOG_WARN);
    }
    if (is_wanted && ledger_text(out, &h->ledger) < 0) cr_buffer_clear(out);
}
