/* The shell around worker_group: turns what happens into its events, and does what it answers.
 *
 * One object owns the nursery (processes), the rendezvous, the log folder, the output relay, and one
 * record a worker. Everything runs on the loop's thread. It ends in this order: the group has ended,
 * the output is drained and the console flushed, the rendezvous has said good-bye, the handles are
 * closed, on_done. */
#include "agent/agent.h"

#include "agent/environment.h"
#include "agent/events.h"
#include "agent/log_dir.h"
#include "agent/log_relay.h"
#include "agent/oom.h"
#include "agent/verdict.h"
#include "agent/watchdog.h"
#include "agent/worker_group.h"
#include "agent/worker_process.h"
#include "base/assert.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

/* A worker of the current attempt, or of the last one until the next begins. */
struct worker {
    struct agent *agent;
    uint32_t local_rank;
    struct worker_process *process; /* NULL: not started, or ended */
    int started, ended;
    int timer_expired; /* the watchdog sent it a signal */
    int64_t started_ns;
    struct worker_exit how; /* once ended */
};

struct agent {
    uv_loop_t *loop;
    const struct agent_job *job;
    char host[256];
    struct worker_group group;
    struct rendezvous_round round; /* the current one, or the last */
    int rounds;
    struct worker *workers;  /* [local_world_size] */
    struct nursery *nursery; /* NULL until opened */
    struct rendezvous *rendezvous;
    struct log_dir logs;
    struct log_relay *relay;
    struct watchdog *watchdog; /* NULL: nobody asked for one */
    uint64_t oom_kills; /* counted before the attempt */
    int64_t began_ms;
    struct cr_error error; /* of a start that failed, or the rendezvous' last words */
    struct cr_buffer report;
    struct agent_result result;
    int open_parts; /* nursery, rendezvous, relay, watchdog: still to be closed */
    int failed_start;
    void (*on_done)(void *arg, const struct agent_result *result);
    void *arg;
};

static uint32_t worker_count(const struct agent *a) { return a->job->rendezvous.local_world_size; }

/* ---- the verdict on an attempt ---- */

/* What verdict.h borrows from, for one worker. */
struct evidence {
    char error_path[LOG_PATH_MAX], folder[LOG_PATH_MAX];
    const char *log_names;
    struct cr_buffer words;
};

struct case_file {
    struct verdict verdict;
    struct verdict_worker *workers;
    struct evidence *evidence;
};

/* Failed, or was stopped by us: one that answers SIGTERM with status 0 is a victim, too. */
static int did_not_end_well(const struct worker *w) {
    return w->ended && (w->how.exit_code != 0 || w->how.signal_sent != 0);
}

static const char *names_of_logs(const struct agent *a, uint32_t local_rank) {
    static const char *const names[] = {"", "stdout.log", "stderr.log", "stdout.log, stderr.log"};
    unsigned mask = 0;
    if (a->job->redirects != NULL) mask |= a->job->redirects[local_rank];
    if (a->job->tee != NULL) mask |= a->job->tee[local_rank];
    return names[mask & 3];
}

static void describe(struct agent *a, const struct worker *w, struct verdict_worker *v,
                     struct evidence *e) {
    *v = (struct verdict_worker){.rank = a->round.first_rank + w->local_rank,
                                 .local_rank = w->local_rank,
                                 .pid = w->how.pid,
                                 .exit_code = w->how.exit_code,
                                 .core_dumped = w->how.core_dumped,
                                 .signal_sent = w->how.signal_sent,
                                 .timer_expired = w->timer_expired,
                                 .order = w->how.order,
                                 .started_ns = w->started_ns,
                                 .died_ns = w->how.died_wall_ns};
    log_dir_path(&a->logs, w->local_rank, "error.json", e->error_path);
    log_dir_path(&a->logs, w->local_rank, "", e->folder);
    if (e->error_path[0] != '\0') error_file_read(&v->error, e->error_path);
    if (log_relay_last_words(a->relay, w->local_rank, &e->words) < 0) cr_buffer_clear(&e->words);
    v->error_path = e->error_path;
    v->log_folder = e->folder[0] != '\0' ? e->folder : NULL;
    v->log_names = names_of_logs(a, w->local_rank);
    v->last_words = e->words.data != NULL ? e->words.data : "";
    v->last_words_len = e->words.len;
}

static void case_close(struct case_file *c) {
    for (size_t i = 0; i < c->verdict.count; i++) {
        error_file_done(&c->workers[i].error);
        cr_buffer_done(&c->evidence[i].words);
    }
    free(c->workers);
    free(c->evidence);
}

/* The attempt's workers that did not end well; none if memory is short or there are none. */
static void case_open(struct agent *a, struct case_file *c) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < worker_count(a); i++) count += did_not_end_well(&a->workers[i]) ? 1 : 0;
    *c = (struct case_file){.workers = calloc(count, sizeof(*c->workers)),
                            .evidence = calloc(count, sizeof(*c->evidence))};
    if (c->workers == NULL || c->evidence == NULL) count = 0;
    size_t n = 0;
    for (uint32_t i = 0; n < count; i++) {
        if (!did_not_end_well(&a->workers[i])) continue;
        describe(a, &a->workers[i], &c->workers[n], &c->evidence[n]);
        n++;
    }
    uint64_t oom_kills = oom_kill_count();
    c->verdict = (struct verdict){.title = a->job->title,
                                  .host = a->host,
                                  .workers = c->workers,
                                  .count = n,
                                  .restarts = a->round.restart_count,
                                  .max_restarts = a->job->max_restarts,
                                  .oom_kills = oom_kills > a->oom_kills ? oom_kills - a->oom_kills
                                                                        : 0};
}

/* What the first one wrote about itself goes on to whoever started us. */
static void pass_on_error_file(const struct agent *a, const struct verdict *v,
                               const struct verdict_worker *first) {
    struct cr_buffer line = {0};
    if (a->job->own_error_file == NULL || !first->error.present) return;
    int rc = verdict_line(&line, v, first);
    if (rc == 0) rc = cr_buffer_append(&line, "", 1);
    if (rc == 0) {
        rc = error_file_pass_on(&first->error, line.data, first->exit_code, a->job->own_error_file);
    }
    if (rc < 0) {
        cr_warn("cannot write the error file '%s': %s", a->job->own_error_file, strerror(-rc));
    }
    cr_buffer_done(&line);
}

static void write_report(struct agent *a) {
    struct case_file c;
    case_open(a, &c);
    int rc = 0;
    if (c.verdict.count > 0 && (a->group.failures > 0 || a->error.code == 0)) {
        rc = verdict_report(&a->report, &c.verdict);
        pass_on_error_file(a, &c.verdict,
                           &c.workers[verdict_first(c.workers, c.verdict.count)]);
    } else {
        rc = cr_buffer_printf(&a->report, "crun: the job failed on another node: %s\n",
                              a->error.text[0] != '\0' ? a->error.text : "no reason was given");
    }
    if (rc == 0) rc = cr_buffer_append(&a->report, "", 1);
    a->result.report = rc == 0 ? a->report.data : "crun: workers failed; no memory for the report\n";
    case_close(&c);
}

/* One line about the first failure so far, for the log and for the other nodes. */
static void write_first_failure(struct agent *a, struct cr_buffer *out) {
    struct case_file c;
    case_open(a, &c);
    int rc = -ENOMEM;
    if (c.verdict.count > 0) {
        rc = verdict_line(out, &c.verdict, &c.workers[verdict_first(c.workers, c.verdict.count)]);
    }
    if (rc == 0) rc = cr_buffer_append(out, "", 1);
    if (rc < 0) cr_buffer_clear(out);
    case_close(&c);
}

static const char *text_of(const struct cr_buffer *b) {
    return b->len > 0 ? b->data : "a worker failed";
}

/* The job ends for another reason, but a worker had failed before: that must not be lost. */
static void warn_of_failure(struct agent *a) {
    struct cr_buffer what = {0};
    write_first_failure(a, &what);
    cr_warn("%s", text_of(&what));
    cr_buffer_done(&what);
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

static void close_parts(struct agent *a) {
    a->open_parts = (a->nursery != NULL) + (a->rendezvous != NULL) + (a->relay != NULL) +
                    (a->watchdog != NULL);
    CR_ASSERT(a->open_parts > 0);
    /* The nursery first, so that its warden dies while the store's thread is stopped. */
    if (a->nursery != NULL) nursery_close(a->nursery, on_part_closed);
    if (a->rendezvous != NULL) rendezvous_close(a->rendezvous, on_part_closed);
    if (a->relay != NULL) log_relay_close(a->relay, on_part_closed);
    if (a->watchdog != NULL) watchdog_close(a->watchdog, on_part_closed);
}

/* The last words of the workers stand before the verdict on them. */
static void on_flushed(void *arg) { close_parts(arg); }

static const enum agent_outcome outcomes[] = {
    [GROUP_GOES_ON] = AGENT_ERROR,     [GROUP_SUCCEEDED] = AGENT_SUCCEEDED,
    [GROUP_FAILED] = AGENT_FAILED,     [GROUP_LOST] = AGENT_ERROR,
    [GROUP_UNSTARTED] = AGENT_ERROR,   [GROUP_SIGNALED] = AGENT_SIGNALED,
};

static void finish(struct agent *a) {
    log_relay_end(a->relay);
    a->result.outcome = outcomes[a->group.ending];
    a->result.signal = a->group.signal;
    a->result.workers_started = a->rounds > 0;
    a->result.error = a->error;
    if (a->result.outcome == AGENT_FAILED) write_report(a);
    else if (a->group.failures > 0) warn_of_failure(a);
    events_agent_ended(a->job, &a->round, a->host, a->result.outcome,
                       cr_monotonic_ms() - a->began_ms);
    log_relay_flush(a->relay);
}

/* ---- starting workers ---- */

/* What the workers of an attempt are started with, until all of them are. */
struct starts {
    struct agent *agent;
    struct environment shared, *each;
    struct worker_spawn *how;
    void **workers;
    struct worker_process **processes;
    int (*fds)[2];
    uint32_t prepared;
};

static int starts_init(struct starts *s, struct agent *a) {
    uint32_t count = worker_count(a);
    *s = (struct starts){.agent = a,
                         .each = calloc(count, sizeof(*s->each)),
                         .how = calloc(count, sizeof(*s->how)),
                         .workers = calloc(count, sizeof(*s->workers)),
                         .processes = calloc(count, sizeof(*s->processes)),
                         .fds = calloc(count, sizeof(*s->fds))};
    int rc = environment_init(&s->shared, environ, a->job, &a->round);
    if (rc == 0 && s->each != NULL && s->how != NULL && s->workers != NULL &&
        s->processes != NULL && s->fds != NULL) {
        return 0;
    }
    return cr_fail(&a->error, -ENOMEM, "cannot start the workers: no memory left");
}

static void starts_done(struct starts *s) {
    for (uint32_t i = 0; i < s->prepared; i++) {
        log_relay_started(s->agent->relay, s->fds[i]);
        environment_done(&s->each[i]);
    }
    environment_done(&s->shared);
    free(s->each);
    free(s->how);
    free(s->workers);
    free(s->processes);
    free(s->fds);
}

static int prepare_worker(struct starts *s, struct worker *w) {
    struct agent *a = s->agent;
    struct environment *e = &s->each[w->local_rank];
    struct worker_spawn *how = &s->how[w->local_rank];
    int *fds = s->fds[w->local_rank];
    char error_path[LOG_PATH_MAX];
    log_dir_path(&a->logs, w->local_rank, "error.json", error_path);
    *how = (struct worker_spawn){.path = a->job->argv[0], .stdin_fd = -1};
    s->workers[w->local_rank] = w;
    int rc = environment_copy(&s->shared, e);
    if (rc < 0) return cr_fail(&a->error, rc, "cannot start the workers: no memory left");
    fds[0] = fds[1] = -1;
    s->prepared++;
    rc = environment_for(e, w->local_rank, error_path, &how->envp, &a->error);
    if (rc == 0) rc = environment_arguments(e, w->local_rank, &how->argv, &a->error);
    if (rc == 0) {
        rc = log_relay_prepare(a->relay, w->local_rank, a->round.first_rank + w->local_rank, fds,
                               &a->error);
    }
    how->stdout_fd = fds[0];
    how->stderr_fd = fds[1];
    w->started_ns = cr_wall_ns();
    return rc;
}

/* Returns how many workers run; fewer than all: a->error says why. */
static uint32_t start_prepared(struct starts *s) {
    struct agent *a = s->agent;
    size_t failed;
    uint32_t started = 0;
    (void) worker_spawn_all(a->nursery, s->how, s->workers, worker_count(a), s->processes, &failed,
                            &a->error);
    for (uint32_t i = 0; i < worker_count(a); i++) {
        struct worker *w = &a->workers[i];
        w->process = s->processes[i];
        w->started = w->process != NULL;
        started += w->started ? 1 : 0;
        if (w->started && a->job->console_events) {
            events_worker_started(a->job, &a->round, a->host, i, worker_pid(w->process));
        }
    }
    return started;
}

static uint32_t start_workers(struct agent *a) {
    struct starts s;
    for (uint32_t i = 0; i < worker_count(a); i++) {
        a->workers[i] = (struct worker){.agent = a, .local_rank = i};
    }
    a->oom_kills = oom_kill_count();
    if (log_dir_begin(&a->logs, a->round.restart_count, worker_count(a), &a->error) < 0) return 0;
    if (log_relay_begin(a->relay, &a->error) < 0) return 0;
    int rc = starts_init(&s, a);
    for (uint32_t i = 0; rc == 0 && i < worker_count(a); i++) rc = prepare_worker(&s, &a->workers[i]);
    uint32_t started = rc == 0 ? start_prepared(&s) : 0;
    starts_done(&s);
    return started;
}

/* ---- doing what the group's policy answers ---- */

static void step(struct agent *a, enum group_event_type type, uint32_t count, int64_t ms);

static void tell_failed(struct agent *a) {
    struct cr_buffer what = {0};
    write_first_failure(a, &what);
    cr_info("%s", text_of(&what));
    rendezvous_failed(a->rendezvous, a->round.round, text_of(&what));
    cr_buffer_done(&what);
}

static void act(struct agent *a, const struct group_actions *todo) {
    if (todo->tell_failed) tell_failed(a);
    if (todo->tell_succeeded) rendezvous_succeeded(a->rendezvous, a->round.round);
    if (todo->leave) rendezvous_leave(a->rendezvous);
    if (todo->end_signal != 0) nursery_end(a->nursery, todo->end_signal, todo->end_grace_ms);
    if (todo->join) rendezvous_join(a->rendezvous);
    if (todo->start) {
        uint32_t started = start_workers(a);
        if (started < worker_count(a)) step(a, GROUP_EVENT_START_FAILED, started, 0);
    }
    if (todo->finish) finish(a);
}

static void step(struct agent *a, enum group_event_type type, uint32_t count, int64_t ms) {
    struct group_event event = {.type = type, .count = count, .ms = ms,
                                .now_ms = cr_monotonic_ms()};
    enum group_state before = a->group.state;
    struct group_actions todo = worker_group_step(&a->group, &event);
    if (a->group.state != before) {
        cr_debug("worker group: %s -> %s", group_state_name(before),
                 group_state_name(a->group.state));
    }
    act(a, &todo);
}

/* ---- what happens: processes ---- */

static void on_exit_of(void *arg, struct worker_process *process, const struct worker_exit *how) {
    struct agent *a = arg;
    struct worker *w = worker_arg(process);
    w->process = NULL;
    w->ended = 1;
    w->how = *how;
    log_relay_drain(a->relay, w->local_rank);
    if (a->watchdog != NULL) watchdog_forget(a->watchdog, how->pid);
    if (a->job->console_events) {
        events_worker_ended(a->job, &a->round, a->host, w->local_rank, how,
                            cr_monotonic_ms() - a->began_ms);
    }
    if (how->exit_code == 0) step(a, GROUP_EVENT_EXIT_OK, 0, 0);
    else step(a, GROUP_EVENT_EXIT_BAD, how->signal_sent != 0 ? 1 : 0, 0);
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
    log_relay_end(a->relay);
    step(a, GROUP_EVENT_EMPTY, 0, 0);
}

static const struct nursery_events nursery_events = {.on_exit = on_exit_of, .on_empty = on_empty};

/* ---- what happens: rendezvous ---- */

/* Workers that we stopped because of another node's failure are victims, not news. */
static void say_restarted(struct agent *a, const struct rendezvous_round *round) {
    struct cr_buffer what = {0};
    if (round->restart_count == a->round.restart_count) return;
    if (a->group.failures > 0) write_first_failure(a, &what);
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
    events_round(a->job, round, a->host, cr_monotonic_ms() - a->began_ms);
    step(a, GROUP_EVENT_ROUND, worker_count(a), 0);
}

static void on_stop(void *arg, int64_t grace_max_ms, const char *why) {
    struct agent *a = arg;
    cr_warn("round %llu is over: %s; stopping the workers", (unsigned long long) a->round.round, why);
    step(a, GROUP_EVENT_STOP, 0, grace_max_ms);
}

static void on_end(void *arg, enum rendezvous_outcome outcome, const struct cr_error *err) {
    struct agent *a = arg;
    if (a->error.code == 0) a->error = *err;
    switch (outcome) {
    case RENDEZVOUS_SUCCEEDED: step(a, GROUP_EVENT_END_OK, 0, 0); return;
    case RENDEZVOUS_FAILED: step(a, GROUP_EVENT_END_FAILED, 0, 0); return;
    case RENDEZVOUS_LOST: step(a, GROUP_EVENT_END_LOST, 0, 0); return;
    }
}

static const struct rendezvous_events rendezvous_events = {
    .on_round = on_round, .on_stop = on_stop, .on_end = on_end};

/* ---- the face ---- */

void agent_signal(struct agent *a, int signum) {
    if (a->group.state == GROUP_ENDED) {
        log_relay_give_up(a->relay); /* all that we still wait for is the console */
        return;
    }
    if (a->group.signals > 0) log_relay_give_up(a->relay);
    step(a, GROUP_EVENT_SIGNAL, (uint32_t) signum, 0);
}

void agent_free(struct agent *a) {
    if (a == NULL) return;
    cr_buffer_done(&a->report);
    free(a->workers);
    free(a);
}

/* The nursery first, for it forks; the log folder last, so that a refused port leaves none behind. */
static int open_parts(struct agent *a, struct cr_error *err) {
    int rc = nursery_open(a->loop, &nursery_events, a, &a->nursery, err);
    if (rc == 0) {
        rc = rendezvous_open(a->loop, &a->job->rendezvous, &rendezvous_events, a, &a->rendezvous,
                             err);
    }
    if (rc == 0 && a->job->timer_file != NULL) {
        rc = watchdog_open(a->loop, a->job->timer_file, on_timer_expired, a, &a->watchdog, err);
    }
    if (rc == 0) rc = log_dir_open(&a->logs, a->job->log_dir, a->job->rendezvous.run_id, err);
    if (rc == 0) {
        rc = log_relay_open(a->loop, a->job, &a->logs, on_flushed, a, &a->relay, err);
    }
    return rc;
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
    int rc = open_parts(a, err);
    if (rc < 0) {
        a->failed_start = 1;
        if (a->nursery != NULL || a->rendezvous != NULL) close_parts(a);
        else agent_free(a);
        return rc;
    }
    *out = a;
    rendezvous_join(a->rendezvous);
    return 0;
}
