/* Who failed, and what is known about it: gathers for verdict.h what an attempt has left behind. */
#include "agent/agent_internal.h"

#include "agent/report/report.h"
#include "base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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
                                 .hung_ms = w->hung_ms,
                                 .hung_step = w->hung_step,
                                 .order = w->how.order,
                                 .started_ns = w->started_ns,
                                 .died_ns = w->how.died_wall_ns};
    log_dir_path(&a->logs, w->attempt, w->local_rank, "error.json", e->error_path);
    log_dir_path(&a->logs, w->attempt, w->local_rank, "", e->folder);
    if (e->error_path[0] != '\0') error_file_read(&v->error, e->error_path);
    int rc = log_relay_last_words(a->relay, w->attempt, w->local_rank, &e->words);
    if (rc == 0) v->last_words = e->words.data != NULL ? e->words.data : "";
    v->last_words_len = rc == 0 ? e->words.len : 0;
    v->error_path = e->error_path;
    v->log_folder = e->folder[0] != '\0' ? e->folder : NULL;
    v->log_names = names_of_logs(a, w->local_rank);
}

static void case_close(struct case_file *c) {
    for (size_t i = 0; i < c->verdict.count; i++) {
        error_record_done(&c->workers[i].error);
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

void case_write_report(struct agent *a) {
    struct case_file c;
    case_open(a, &c);
    int rc = 0;
    if (a->broken[0] != '\0') {
        rc = cr_buffer_printf(&a->report, "crun: %s\n", a->broken);
    } else if (c.verdict.count > 0 && (a->group.failures > 0 || a->error.code == 0)) {
        rc = verdict_report(&a->report, &c.verdict);
        pass_on_error_file(a, &c.verdict,
                           &c.workers[verdict_first(c.workers, c.verdict.count)]);
    } else {
        rc = cr_buffer_printf(&a->report, "crun: the job failed%s: %s\n",
                              a->group.failures > 0 ? "" : " on another node",
                              a->error.text[0] != '\0' ? a->error.text : "no reason was given");
    }
    if (rc == 0) rc = cr_buffer_append(&a->report, "", 1);
    a->result.report = rc == 0 ? a->report.data : "crun: workers failed; no memory for the report\n";
    case_close(&c);
}

void case_write_first(struct agent *a, struct cr_buffer *out) {
    struct case_file c;
    case_open(a, &c);
    int rc = -ENOMEM;
    if (a->broken[0] != '\0') {
        rc = cr_buffer_printf(out, "%s", a->broken);
    } else if (c.verdict.count > 0) {
        rc = verdict_line(out, &c.verdict, &c.workers[verdict_first(c.workers, c.verdict.count)]);
    }
    if (rc == 0) rc = cr_buffer_append(out, "", 1);
    if (rc < 0) cr_buffer_clear(out);
    case_close(&c);
}
