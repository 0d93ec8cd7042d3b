/* Records facts about the workers' ends, and gathers the evidence for a verdict. Gathering reads
 * files, so it is done only when a line or a report is to be written. */
#include "agent/record/case_file.h"

#include "agent/evidence/evidence.h"
#include "agent/verdict/verdict.h"
#include "base/files/private_file.h"
#include "base/log/log.h"
#include "base/text/text.h"
#include "base/time/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* ---- recording rounds, starts and ends of workers ---- */

int case_file_init(struct case_file *c, const struct agent_job *job, const char *host,
                   const struct log_dir *logs) {
    *c = (struct case_file){.job = job, .host = host, .logs = logs, .group_rank = -1};
    c->workers = calloc(job->rendezvous.local_world_size, sizeof(*c->workers));
    c->kernel = calloc(1, sizeof(*c->kernel));
    return c->workers != NULL && c->kernel != NULL ? 0 : -ENOMEM;
}

void case_file_done(struct case_file *c) {
    if (c->kernel != NULL) kernel_log_close(c->kernel);
    free(c->kernel);
    free(c->workers);
    cr_buffer_done(&c->inspection);
    cr_buffer_done(&c->verdict);
    failures_clear(&c->failures);
    *c = (struct case_file){0};
}

void case_file_begin_round(struct case_file *c, const struct rendezvous_round *round) {
    c->round = round->round;
    c->group_rank = round->group_rank;
    if (c->xids != NULL) xid_watch_read(c->xids, c->kernel);
    kernel_log_begin(c->kernel); /* removes what was read of the last round */
    failures_clear(&c->failures);
    c->first_rank = round->first_rank;
    c->restarts = round->restart_count;
    c->max_restarts = round->max_restarts;
    c->oom_kills = oom_kill_count();
    c->has_oom_kills = false;
    c->broken[0] = '\0';
    c->quiet_ms = 0;
    c->behind[0] = '\0';
    case_file_drop_inspection(c);
}

void case_file_begin_worker(struct case_file *c, uint32_t local_rank) {
    c->workers[local_rank] = (struct case_worker){.attempt = c->logs->attempt};
}

void case_file_add_exit(struct case_file *c, uint32_t local_rank, const struct worker_exit *how) {
    c->workers[local_rank].has_ended = true;
    c->workers[local_rank].how = *how;
    c->has_oom_kills = false;
}

/* Stores in *c that the round cannot go on although no worker has failed: the time, the kind of the
 * failure, and the rank and the process that have caused it. */
static void note_broken(struct case_file *c, const char *kind, uint32_t rank, int64_t pid) {
    c->broken_kind = kind;
    c->broken_rank = rank;
    c->broken_pid = pid;
    c->broken_ns = cr_wall_ns();
}

void case_file_add_broken(struct case_file *c, uint32_t local_rank) {
    note_broken(c, "gave up", c->first_rank + local_rank, 0);
    (void) snprintf(c->broken, sizeof(c->broken),
                    "rank %u (local rank %u) on %s gave up its process groups and called "
                    "crunrt_rejoin(), though no worker had failed; its own messages say why",
                    c->first_rank + local_rank, local_rank, c->host);
}

void case_file_add_behind(struct case_file *c, const char *what) {
    (void) snprintf(c->behind, sizeof(c->behind), "%s", what);
}

void case_file_add_bad_value(struct case_file *c, uint32_t local_rank, int64_t pid,
                             const char *what) {
    note_broken(c, "value", c->first_rank + local_rank, pid);
    (void) snprintf(c->broken, sizeof(c->broken), "rank %u (local rank %u) on %s has failed: %s",
                    c->first_rank + local_rank, local_rank, c->host, what);
}

void case_file_add_hang(struct case_file *c, int64_t quiet_ms, uint32_t rank, int64_t pid,
                        const char *what) {
    note_broken(c, "hang", rank, pid);
    c->quiet_ms = quiet_ms;
    (void) snprintf(c->broken, sizeof(c->broken), "%s", what);
}

void case_file_drop_inspection(struct case_file *c) {
    cr_buffer_done(&c->inspection); /* frees the text, so that string_of() does not find it */
}

void case_file_add_inspection(struct case_file *c, const char *lines) {
    /* if memory is short, lines are missing */
    (void) cr_buffer_printf(&c->inspection, "%s", lines);
}

/* ---- gathering the evidence for a verdict ---- */

/* Memory to which one struct verdict_worker points. */
struct evidence {
    char error_path[LOG_PATH_MAX], folder[LOG_PATH_MAX];
    struct cr_buffer last_output;
};

/* The input of the verdict, with one element for each worker that did not end well. */
struct gathered {
    struct verdict verdict;
    struct verdict_worker *workers;
    struct evidence *evidence;
};

/* Returns whether the verdict must list the worker. A worker that crun stopped is listed as a
 * victim, even if it ended with status 0 after SIGTERM. */
static bool did_not_end_well(const struct case_worker *w) {
    return w->has_ended && (w->how.exit_code != 0 || w->how.signal_sent != 0);
}

static const char *names_of_logs(const struct agent_job *job, uint32_t local_rank) {
    static const char *const names[] = {"", "stdout.log", "stderr.log", "stdout.log, stderr.log"};
    unsigned mask = 0;
    if (job->redirects != NULL) mask |= job->redirects[local_rank];
    if (job->tee != NULL) mask |= job->tee[local_rank];
    return names[mask & 3];
}

/* Returns ENOSPC if the file system of the log folder is full, else 0. The agent checks this,
 * because a worker whose stderr is redirected into that folder cannot report the error. */
static int folder_error(const struct log_dir *logs) {
    struct statvfs fs;
    if (logs->path[0] == '\0' || statvfs(logs->path, &fs) < 0) return 0;
    return fs.f_blocks > 0 && fs.f_bavail == 0 ? ENOSPC : 0;
}

/* An error of a GPU that names no process is taken as evidence of a failure if it came in the time
 * from GPU_BEFORE_NS before the failure to GPU_AFTER_NS after it. */
#define GPU_BEFORE_NS (60 * CR_NS_PER_S)
#define GPU_AFTER_NS  (5 * CR_NS_PER_S)

/* Returns the line about a GPU that is evidence of a failure at the time wall_ns, or NULL. */
static const struct kernel_log_line *gpu_line(const struct kernel_log *kernel, int64_t wall_ns) {
    int64_t ns = wall_ns - cr_wall_ns() + cr_monotonic_ns();
    return kernel_log_of_gpus(kernel, ns - GPU_BEFORE_NS, ns + GPU_AFTER_NS);
}

static void add_kernel_line(const struct kernel_log *kernel, struct verdict_worker *v) {
    const struct kernel_log_line *line = kernel_log_of(kernel, v->pid);
    if (line == NULL && v->signal_sent == 0) line = gpu_line(kernel, v->died_ns);
    if (line == NULL) return;
    v->kernel_line = line->text;
    v->oom_killed = line->kind == KERNEL_LOG_OOM;
}

static void describe(const struct case_file *c, uint32_t local_rank, struct verdict_worker *v,
                     struct evidence *e) {
    const struct case_worker *w = &c->workers[local_rank];
    *v = (struct verdict_worker){.rank = c->first_rank + local_rank,
                                 .local_rank = local_rank,
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
    log_dir_path(c->logs, w->attempt, local_rank, "error.json", e->error_path);
    log_dir_path(c->logs, w->attempt, local_rank, "", e->folder);
    if (e->error_path[0] != '\0') error_file_read(&v->error, e->error_path);
    int rc = log_relay_last_words(c->relay, w->attempt, local_rank, &e->last_output);
    v->error_path = e->error_path;
    v->log_folder = e->folder[0] != '\0' ? e->folder : NULL;
    v->log_names = names_of_logs(c->job, local_rank);
    if (rc == 0) v->last_words = e->last_output.data != NULL ? e->last_output.data : "";
    v->last_words_len = rc == 0 ? e->last_output.len : 0;
    if (v->last_words_len == 0) v->last_words_error = folder_error(c->logs);
    v->last_words_mixed = log_relay_is_mixed(c->relay, local_rank);
}

/* Returns how many out-of-memory kills there were in this round. Between a failure and the restart
 * this function is called seven times, and reading the kernel's counters takes 20 system calls. The
 * kernel counts a kill before the victim dies. So the counters are read again only if a worker has
 * ended since they were read. */
static uint64_t oom_kills_since(struct case_file *c) {
    if (!c->has_oom_kills) {
        uint64_t now = oom_kill_count();
        c->oom_kills_since = now > c->oom_kills ? now - c->oom_kills : 0;
        c->has_oom_kills = true;
    }
    return c->oom_kills_since;
}

static void read_logs(struct case_file *c) {
    kernel_log_read(c->kernel);
    if (c->xids != NULL) xid_watch_read(c->xids, c->kernel);
}

/* Gathers the evidence. If memory is short, *g has no worker, as if all workers had ended well. */
static void gather(struct case_file *c, struct gathered *g) {
    uint32_t workers = c->job->rendezvous.local_world_size, count = 0;
    for (uint32_t i = 0; i < workers; i++) count += did_not_end_well(&c->workers[i]) ? 1 : 0;
    *g = (struct gathered){.workers = calloc(count, sizeof(*g->workers)),
                           .evidence = calloc(count, sizeof(*g->evidence))};
    read_logs(c);
    if (g->workers == NULL || g->evidence == NULL) count = 0;
    size_t n = 0;
    for (uint32_t i = 0; n < count; i++) {
        if (!did_not_end_well(&c->workers[i])) continue;
        describe(c, i, &g->workers[n], &g->evidence[n]);
        add_kernel_line(c->kernel, &g->workers[n]);
        n++;
    }
    g->verdict = (struct verdict){.title = c->job->title,
                                  .host = c->host,
                                  .workers = g->workers,
                                  .count = n,
                                  .restarts = c->restarts,
                                  .max_restarts = c->max_restarts,
                                  .behind = c->behind,
                                  .oom_kills = oom_kills_since(c)};
}

static void gathered_done(struct gathered *g) {
    for (size_t i = 0; i < g->verdict.count; i++) {
        error_record_done(&g->workers[i].error);
        cr_buffer_done(&g->evidence[i].last_output);
    }
    free(g->workers);
    free(g->evidence);
}

static const struct verdict_worker *first_failure(const struct gathered *g) {
    return &g->workers[verdict_first(g->workers, g->verdict.count)];
}

/* ---- failures, for verdict.json and for other nodes ---- */

#define LAST_WORDS_MAX 1000 /* length in bytes to which a failure's last words are cut */

/* The texts to which the pointers of a struct rendezvous_failure point. Zero-initialise; free with
 * texts_done(). */
struct texts {
    struct cr_buffer what, message, last_words;
};

static void texts_done(struct texts *t) {
    cr_buffer_done(&t->what);
    cr_buffer_done(&t->message);
    cr_buffer_done(&t->last_words);
}

static const char *string_of(const struct cr_buffer *b) { return b->data != NULL ? b->data : ""; }

/* Returns the last lines of a text: as many whole ones as fit into LAST_WORDS_MAX bytes. If the
 * last line alone is longer, returns the last LAST_WORDS_MAX bytes. */
static const char *last_part(const struct cr_buffer *b) {
    if (b->len <= LAST_WORDS_MAX) return string_of(b);
    const char *from = b->data + (b->len - LAST_WORDS_MAX), *line = strchr(from, '\n');
    return line != NULL ? line + 1 : from;
}

static int write_texts(const struct verdict *v, const struct verdict_worker *w, struct texts *t) {
    int rc = verdict_line(&t->what, v, w);
    if (rc == 0 && w->error.message != NULL) {
        rc = cr_text_append(&t->message, w->error.message, strcspn(w->error.message, "\n"), "");
    }
    if (rc == 0 && w->last_words != NULL) {
        rc = last_lines_append(&t->last_words, w->last_words, w->last_words_len, "");
    }
    if (rc == 0) rc = cr_buffer_append(&t->what, "", 1);
    if (rc == 0) rc = cr_buffer_append(&t->message, "", 1);
    return rc == 0 ? cr_buffer_append(&t->last_words, "", 1) : rc;
}

/* Returns the part of a line of verdict_line() that names the cause. */
static const char *cause_of(const char *line) {
    const char *cause = strstr(line, ": ");
    return cause != NULL ? cause + 2 : line;
}

static int make_failure(const struct case_file *c, const struct verdict *v,
                        const struct verdict_worker *w, struct texts *t,
                        struct rendezvous_failure *out) {
    bool is_oom = w->oom_killed || v->oom_kills > 0;
    int rc = write_texts(v, w, t);
    *out = (struct rendezvous_failure){
        .round = c->round, .rank = w->rank, .local_rank = w->local_rank, .pid = w->pid,
        .exit_code = w->exit_code, .died_ns = w->died_ns, .offset_error_ns = -1, .host = c->host,
        .kind = failure_kind(w, is_oom), .what = cause_of(string_of(&t->what)),
        .message = string_of(&t->message), .last_words = last_part(&t->last_words),
        .kernel = w->kernel_line != NULL ? w->kernel_line : "",
        .log_folder = w->log_folder != NULL ? w->log_folder : ""};
    return rc;
}

/* Returns a failure whose text says why the round cannot go on although no worker has ended. */
static struct rendezvous_failure make_broken(const struct case_file *c) {
    const struct kernel_log_line *line = gpu_line(c->kernel, c->broken_ns);
    return (struct rendezvous_failure){
        .round = c->round, .rank = c->broken_rank, .local_rank = c->broken_rank - c->first_rank,
        .pid = c->broken_pid, .died_ns = c->broken_ns, .offset_error_ns = -1, .host = c->host,
        .kind = c->broken_kind, .what = c->broken, .message = "", .last_words = "",
        .kernel = line != NULL ? line->text : "", .log_folder = c->logs->path};
}

void case_file_pass_first(struct case_file *c,
                          void (*take)(void *arg, const struct rendezvous_failure *failure),
                          void *arg) {
    struct gathered g;
    struct texts t = {0};
    struct rendezvous_failure failure;
    if (c->broken[0] != '\0') {
        read_logs(c);
        failure = make_broken(c);
        take(arg, &failure);
        return;
    }
    gather(c, &g);
    if (g.verdict.count > 0 &&
        make_failure(c, &g.verdict, first_failure(&g), &t, &failure) == 0) {
        take(arg, &failure);
    }
    texts_done(&t);
    gathered_done(&g);
}

void case_file_add_failure(struct case_file *c, const struct rendezvous_failure *failure) {
    if (failure->round == c->round) (void) failures_add(&c->failures, failure);
}

/* Returns whether the end of a worker counts as a failure. It does if the worker is no victim. The
 * end of a victim counts only if the verdict names this victim as the first failure, and another
 * worker of this node has failed by itself. */
static bool counts_as_failure(const struct case_file *c, const struct gathered *g,
                              const struct verdict_worker *w) {
    if (!verdict_is_victim(w)) return true;
    if (c->broken[0] != '\0' || w != first_failure(g)) return false;
    for (size_t i = 0; i < g->verdict.count; i++) {
        if (!verdict_is_victim(&g->workers[i])) return true;
    }
    return false;
}

/* Adds the failures of this node's workers to c->failures. */
static int add_failures(struct case_file *c, const struct gathered *g) {
    int rc = 0;
    if (c->broken[0] != '\0') {
        const struct rendezvous_failure broken = make_broken(c);
        rc = failures_add(&c->failures, &broken);
    }
    for (size_t i = 0; rc == 0 && i < g->verdict.count; i++) {
        const struct verdict_worker *w = &g->workers[i];
        struct rendezvous_failure failure;
        struct texts t = {0};
        if (!counts_as_failure(c, g, w)) continue;
        rc = make_failure(c, &g->verdict, w, &t, &failure);
        if (rc == 0) rc = failures_add(&c->failures, &failure);
        texts_done(&t);
    }
    return rc;
}

void case_file_add_own_failures(struct case_file *c) {
    struct gathered g;
    gather(c, &g);
    if (add_failures(c, &g) < 0) cr_warn("cannot note the failures of workers: no memory left");
    gathered_done(&g);
}

static bool find_verdict(const struct case_file *c, char out[LOG_PATH_MAX]) {
    if (c->logs->path[0] == '\0') return false;
    return snprintf(out, LOG_PATH_MAX, "%s/" VERDICT_JSON_NAME, c->logs->path) < LOG_PATH_MAX;
}

void case_file_form_verdict(struct case_file *c, const char *outcome, const char *reason) {
    struct gathered g;
    cr_buffer_clear(&c->verdict);
    c->verdict_rc = 0;
    if (c->logs->path[0] == '\0') return;
    gather(c, &g);
    const struct verdict_json v = {
        .job = c->job->rendezvous.run_id, .title = c->job->title, .host = c->host,
        .outcome = outcome, .reason = reason, .group_rank = c->group_rank,
        .round = c->group_rank < 0 ? -1 : (int64_t) c->round, .restarts = c->restarts,
        .max_restarts = c->max_restarts, .failures = &c->failures, .workers = g.workers,
        .worker_count = g.verdict.count, .inspection = string_of(&c->inspection),
        .kernel = c->kernel, .now_ns = cr_wall_ns()};
    c->verdict_rc = verdict_json_text(&v, &c->verdict);
    c->verdict_level = c->failures.count > 0 ? CR_LOG_WARN : CR_LOG_INFO;
    gathered_done(&g);
}

void case_file_save_verdict(struct case_file *c) {
    char path[LOG_PATH_MAX];
    if ((c->verdict.len == 0 && c->verdict_rc == 0) || !find_verdict(c, path)) return;
    int rc = c->verdict_rc < 0 ? c->verdict_rc : verdict_json_save(&c->verdict, path);
    if (rc < 0) cr_log(c->verdict_level, "cannot write '%s': %s", path, strerror(-rc));
    cr_buffer_clear(&c->verdict);
    c->verdict_rc = 0;
}

void case_file_remove_verdict(const struct case_file *c) {
    char path[LOG_PATH_MAX];
    if (find_verdict(c, path)) (void) unlink(path);
}

/* ---- writing the report ---- */

/* If crun's parent has set a path for crun's own error file, copies the error record of the worker
 * that failed first to that path. */
static void copy_error_file(const struct case_file *c, const struct gathered *g) {
    const struct verdict_worker *first = first_failure(g);
    const char *path = c->job->own_error_file;
    struct cr_buffer line = {0};
    if (path == NULL || !first->error.present) return;
    int rc = verdict_line(&line, &g->verdict, first);
    if (rc == 0) rc = cr_buffer_append(&line, "", 1);
    if (rc == 0) rc = error_file_pass_on(&first->error, line.data, first->exit_code, path);
    if (rc < 0) cr_warn("cannot write the error file '%s': %s", path, strerror(-rc));
    cr_buffer_done(&line);
}

/* If the job has a failures_file, writes the list of failed workers to it: one line "<rank> <local
 * rank> <pid> <exit code> <error file>" for each, the first failure first. Victims are left out,
 * unless one of them failed first. */
static void list_failures(const struct case_file *c, const struct gathered *g) {
    if (c->job->failures_file == NULL) return;
    size_t first = verdict_first(g->workers, g->verdict.count);
    int fd = cr_private_open(c->job->failures_file, O_WRONLY | O_CREAT | O_TRUNC);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    int rc = fd < 0 ? fd : file == NULL ? -errno : 0;
    if (file == NULL && fd >= 0) (void) close(fd);
    for (size_t i = 0; file != NULL && i < g->verdict.count; i++) {
        size_t k = i == 0 ? first : i <= first ? i - 1 : i;
        const struct verdict_worker *w = &g->workers[k];
        if (i > 0 && verdict_is_victim(w)) continue;
        (void) fprintf(file, "%u %u %d %d %s\n", w->rank, w->local_rank, (int) w->pid,
                       w->exit_code, w->error.present ? w->error_path : "");
    }
    if (file != NULL && fclose(file) != 0) rc = -errno;
    if (rc < 0) cr_warn("cannot write the list of failures '%s': %s", c->job->failures_file,
                        strerror(-rc));
}

/* Call this if the first failure of the round was on another node. Appends what that node has sent
 * about it: the message, the kernel's line, and the last lines that the worker had written. */
static int write_words_of_another(const struct case_file *c, struct cr_buffer *out) {
    const struct rendezvous_failure *f = c->failures.list;
    if (c->failures.count == 0) return 0;
    int rc = f->message[0] != '\0' ? cr_buffer_printf(out, "  message: %s\n", f->message) : 0;
    if (rc == 0 && f->kernel[0] != '\0') rc = cr_buffer_printf(out, "  kernel: %s\n", f->kernel);
    if (rc == 0 && f->last_words[0] != '\0') {
        rc = cr_buffer_printf(out, "  its last lines:\n");
        if (rc == 0) rc = last_lines_append(out, f->last_words, strlen(f->last_words), "    | ");
    }
    return rc;
}

const char *case_file_write_report(struct case_file *c, uint32_t failures,
                                   const struct cr_error *reason, struct cr_buffer *out) {
    struct gathered g;
    gather(c, &g);
    int rc = 0;
    if (c->broken[0] != '\0') {
        rc = cr_buffer_printf(out, "crun: %s\n", c->broken);
        if (rc == 0 && c->inspection.len > 0) {
            rc = cr_buffer_append(out, c->inspection.data, c->inspection.len);
        }
    } else if (g.verdict.count > 0 && (failures > 0 || reason->code == 0)) {
        rc = verdict_report(out, &g.verdict);
        copy_error_file(c, &g);
        list_failures(c, &g);
    } else {
        rc = cr_buffer_printf(out, "crun: the job failed%s: %s\n",
                              failures > 0 ? "" : " on another node",
                              reason->text[0] != '\0' ? reason->text : "no reason was given");
        if (rc == 0 && failures == 0) rc = write_words_of_another(c, out);
    }
    if (rc == 0) rc = cr_buffer_append(out, "", 1);
    gathered_done(&g);
    return rc == 0 ? out->data : "crun: workers failed; no memory for the report\n";
}

static void write_line(struct case_file *c, bool with_last_line, struct cr_buffer *out) {
    struct gathered g;
    gather(c, &g);
    int rc = -ENOMEM;
    if (c->broken[0] != '\0') {
        rc = cr_buffer_printf(out, "%s", c->broken);
    } else if (g.verdict.count > 0) {
        const struct verdict_worker *first = first_failure(&g);
        rc = verdict_line(out, &g.verdict, first);
        if (rc == 0 && with_last_line) rc = verdict_last_line(out, first);
    }
    if (rc == 0) rc = cr_buffer_append(out, "", 1);
    if (rc < 0) cr_buffer_clear(out);
    gathered_done(&g);
}

void case_file_write_line(struct case_file *c, struct cr_buffer *out) {
    write_line(c, false, out);
}

void case_file_write_first_word(struct case_file *c, struct cr_buffer *out) {
    write_line(c, true, out);
}
