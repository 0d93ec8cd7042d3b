/* First the order of the failures, then their text, then the report. */
#include "agent/report/verdict.h"

#include "agent/output/last_lines.h"
#include "base/assert.h"
#include "base/clock.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define BORDER_MAX 60 /* torchrun's */

/* The kernel stamps files with the time of its last tick, up to 10 ms ago: an error file must be
 * older than a death by more than that to have come first. */
#define FILE_CLOCK_LAG_NS (10 * CR_NS_PER_MS)

/* A process that is killed closes its files some time before its death can be seen; on a busy machine
 * a peer that notices may be dead by then. Whoever ends with an exit status this shortly before a crash
 * has most likely ended because of it, for nobody crashes of another's silence. */
#define CRASH_LEAD_NS (20 * CR_NS_PER_MS)

/* ---- which was first ---- */

static int has_file(const struct verdict_worker *w) { return w->error.present; }

/* When the error was written down. The stated time has whole seconds: the file's own time refines it
 * where the two agree; else the second's end, so that rounding never beats an earlier death. */
static int64_t written_ns(const struct verdict_worker *w) {
    const struct error_file *e = &w->error;
    if (e->timestamp_s < 0 || e->mtime_ns / CR_NS_PER_S == e->timestamp_s) return e->mtime_ns;
    return (e->timestamp_s + 1) * CR_NS_PER_S - 1;
}

static int64_t clamp(int64_t value, int64_t low, int64_t high) {
    if (value > high) return high;
    return value < low ? low : value;
}

/* Times of death as the order of death wants them, whatever the wall clock did. */
static int64_t death_ns(const struct verdict_worker *workers, size_t count,
                        const struct verdict_worker *w) {
    int64_t latest = w->died_ns;
    for (size_t i = 0; i < count; i++) {
        if (workers[i].order < w->order && workers[i].died_ns > latest) latest = workers[i].died_ns;
    }
    return latest;
}

/* By a signal that tells of a fault of its own; SIGABRT does not, libraries abort when peers are gone. */
static int has_crashed(const struct verdict_worker *w) {
    static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGSYS, SIGKILL};
    if (w->signal_sent != 0) return 0;
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
        if (w->exit_code == -signals[i]) return 1;
    }
    return 0;
}

struct moment {
    int64_t ns;
    int64_t stated_s; /* breaks a tie between two that are both out of range */
    uint64_t order;
};

static struct moment moment_of(const struct verdict *all, const struct verdict_worker *w) {
    int64_t started = w->started_ns;
    for (size_t i = 0; i < all->count; i++) {
        if (all->workers[i].started_ns < started) started = all->workers[i].started_ns;
    }
    int64_t died = death_ns(all->workers, all->count, w);
    struct moment m = {.ns = died, .stated_s = INT64_MAX, .order = w->order};
    if (has_crashed(w)) m.ns = clamp(died - CRASH_LEAD_NS, started, died);
    if (!has_file(w)) return m;
    m.ns = clamp(written_ns(w) + FILE_CLOCK_LAG_NS, started, m.ns);
    if (w->error.timestamp_s >= 0) m.stated_s = w->error.timestamp_s;
    return m;
}

static int is_before(const struct moment *a, const struct moment *b) {
    if (a->ns != b->ns) return a->ns < b->ns;
    if (a->stated_s != b->stated_s) return a->stated_s < b->stated_s;
    return a->order < b->order;
}

/* Of those that failed of themselves, the time of the first death; INT64_MAX if there is none. */
static int64_t first_death_ns(const struct verdict_worker *workers, size_t count) {
    int64_t first = INT64_MAX;
    for (size_t i = 0; i < count; i++) {
        int64_t died = death_ns(workers, count, &workers[i]);
        if (workers[i].signal_sent == 0 && died < first) first = died;
    }
    return first;
}

/* One that we stopped may have been the culprit: it wrote its error down, and then hung. */
static int is_candidate(const struct verdict_worker *w, int64_t first_death) {
    if (w->signal_sent == 0 || first_death == INT64_MAX) return 1;
    return has_file(w) && w->error.mtime_ns + FILE_CLOCK_LAG_NS < first_death;
}

size_t verdict_first(const struct verdict_worker *workers, size_t count) {
    const struct verdict all = {.workers = workers, .count = count};
    int64_t first_death = first_death_ns(workers, count);
    size_t best = count;
    struct moment best_moment = {0};
    CR_ASSERT(count > 0);
    for (size_t i = 0; i < count; i++) {
        if (!is_candidate(&workers[i], first_death)) continue;
        struct moment m = moment_of(&all, &workers[i]);
        if (best < count && !is_before(&m, &best_moment)) continue;
        best = i;
        best_moment = m;
    }
    CR_ASSERT(best < count);
    return best;
}

int verdict_is_victim(const struct verdict_worker *w) { return w->signal_sent != 0; }

/* ---- of what ---- */

#define TRY(call)                                                                                  \
    do {                                                                                           \
        int rc_ = (call);                                                                          \
        if (rc_ < 0) return rc_;                                                                   \
    } while (0)

static const char *signal_name(int signum) {
    const char *name = sigabbrev_np(signum);
    return name != NULL ? name : "?";
}

static int write_signal(struct cr_buffer *out, int signum) {
    char what[64] = "unknown";
    const char *text = sigdescr_np(signum);
    if (text != NULL) (void) snprintf(what, sizeof(what), "%s", text);
    if (what[0] >= 'A' && what[0] <= 'Z' && what[1] >= 'a') what[0] = (char) (what[0] + 32);
    return cr_buffer_printf(out, "%d (SIG%s, %s)", signum, signal_name(signum), what);
}

static int write_exit_code(struct cr_buffer *out, int code) {
    TRY(cr_buffer_printf(out, "exit code %d", code));
    if (code == 126) return cr_buffer_printf(out, " (a shell's: found but not executable)");
    if (code == 127) return cr_buffer_printf(out, " (a shell's: command not found; or a shared library is missing)");
    if (code <= 128 || sigabbrev_np(code - 128) == NULL) return 0;
    TRY(cr_buffer_printf(out, " (a shell's: killed by signal "));
    TRY(write_signal(out, code - 128));
    return cr_buffer_printf(out, ")");
}

int verdict_cause(struct cr_buffer *out, const struct verdict_worker *w) {
    if (w->exit_code >= 0) return write_exit_code(out, w->exit_code);
    TRY(cr_buffer_printf(out, "killed by signal "));
    TRY(write_signal(out, -w->exit_code));
    return w->core_dumped ? cr_buffer_printf(out, ", core dumped") : 0;
}

/* Signal 9 alone proves nothing; with the cgroup's counter it is at least consistent. */
static int write_sender(struct cr_buffer *out, const struct verdict *v,
                     const struct verdict_worker *w) {
    if (w->hung_ms > 0 && w->exit_code < 0) {
        return cr_buffer_printf(out, ", sent by crun: it had made no step for %g s, after step %" PRIu64,
                                (double) w->hung_ms / 1000, w->hung_step);
    }
    if (w->timer_expired && w->exit_code < 0) {
        return cr_buffer_printf(out, ", sent by crun's timer watchdog: a timer that it had set was over");
    }
    if (w->exit_code != -SIGKILL || verdict_is_victim(w)) return 0;
    if (v->oom_kills == 0) return cr_buffer_printf(out, ", not sent by crun");
    return cr_buffer_printf(out,
                            ", consistent with out of memory: the memory cgroup counted %" PRIu64
                            " out-of-memory kill%s during this attempt",
                            v->oom_kills, v->oom_kills == 1 ? "" : "s");
}

int verdict_line(struct cr_buffer *out, const struct verdict *v, const struct verdict_worker *w) {
    TRY(cr_buffer_printf(out, "rank %u (local rank %u, pid %d) on %s failed first: ", w->rank,
                         w->local_rank, (int) w->pid, v->host));
    if (verdict_is_victim(w)) {
        return cr_buffer_printf(out,
                                "it wrote its error file before any worker ended, and had not ended "
                                "itself when crun stopped it with SIG%s",
                                signal_name(w->signal_sent));
    }
    TRY(verdict_cause(out, w));
    return write_sender(out, v, w);
}

/* ---- the evidence ---- */

static size_t first_line_len(const char *text) {
    size_t len = strcspn(text, "\n");
    return len > LAST_LINE_LEN ? LAST_LINE_LEN : len;
}

static int write_error(struct cr_buffer *out, const struct verdict_worker *w) {
    const struct error_file *e = &w->error;
    if (!e->present) return 0;
    if (e->flaw != NULL) {
        TRY(cr_buffer_printf(out, "  its error file could not be understood: %s; it says:\n",
                             e->flaw));
        return last_lines_write(out, e->raw, e->raw_len, "    | ");
    }
    if (e->message == NULL) return 0;
    TRY(cr_buffer_printf(out, "  message: "));
    TRY(last_lines_escape(out, e->message, first_line_len(e->message)));
    return cr_buffer_append(out, "\n", 1);
}

static int write_last_words(struct cr_buffer *out, const struct verdict_worker *w) {
    if (w->last_words == NULL) return 0;
    if (w->last_words_len == 0) return cr_buffer_printf(out, "  it wrote nothing to stderr\n");
    TRY(cr_buffer_printf(out, "  last lines of its stderr:\n"));
    return last_lines_write(out, w->last_words, w->last_words_len, "    | ");
}

static int write_files(struct cr_buffer *out, const struct verdict_worker *w) {
    if (w->log_folder == NULL || w->log_names[0] == '\0') return 0;
    TRY(cr_buffer_printf(out, "  its files: "));
    TRY(last_lines_escape(out, w->log_folder, strlen(w->log_folder)));
    return cr_buffer_printf(out, " (%s)\n", w->log_names);
}

/* ---- the others ---- */

static int write_later_failures(struct cr_buffer *out, const struct verdict *v, size_t first) {
    size_t shown = 0, more = 0;
    for (size_t i = 0; i < v->count; i++) {
        const struct verdict_worker *w = &v->workers[i];
        if (i == first || verdict_is_victim(w)) continue;
        if (shown == 8) {
            more++;
            continue;
        }
        TRY(cr_buffer_printf(out, "%s rank %u: ", shown++ == 0 ? "  failed later:" : ",", w->rank));
        TRY(verdict_cause(out, w));
    }
    if (more > 0) TRY(cr_buffer_printf(out, ", and %zu more", more));
    return shown > 0 ? cr_buffer_append(out, "\n", 1) : 0;
}

static int is_stopped_by(const struct verdict *v, size_t i, size_t first, int signum) {
    return i < v->count && i != first && v->workers[i].signal_sent == signum;
}

/* "ranks 0, 2-7 (SIGTERM)" for one signal of ours. */
static int write_stopped_by(struct cr_buffer *out, const struct verdict *v, size_t first, int signum,
                            int *groups) {
    size_t shown = 0;
    for (size_t i = 0; i < v->count; i++) {
        if (!is_stopped_by(v, i, first, signum)) continue;
        size_t last = i;
        while (is_stopped_by(v, last + 1, first, signum) &&
               v->workers[last + 1].rank == v->workers[last].rank + 1) {
            last++;
        }
        const char *before = shown > 0 ? ", " : (*groups)++ == 0 ? "  stopped by crun: rank " : "; rank ";
        TRY(cr_buffer_printf(out, "%s%u", before, v->workers[i].rank));
        if (last > i) TRY(cr_buffer_printf(out, "-%u", v->workers[last].rank));
        shown++;
        i = last;
    }
    return shown > 0 ? cr_buffer_printf(out, " (SIG%s)", signal_name(signum)) : 0;
}

static int write_victims(struct cr_buffer *out, const struct verdict *v, size_t first) {
    int groups = 0;
    for (int signum = NSIG - 1; signum > 0; signum--) {
        TRY(write_stopped_by(out, v, first, signum, &groups));
    }
    return groups > 0 ? cr_buffer_append(out, "\n", 1) : 0;
}

static int write_evidence(struct cr_buffer *out, const struct verdict *v, size_t first) {
    const struct verdict_worker *w = &v->workers[first];
    TRY(write_error(out, w));
    TRY(write_last_words(out, w));
    TRY(write_files(out, w));
    TRY(write_later_failures(out, v, first));
    TRY(write_victims(out, v, first));
    if (v->max_restarts == 0) return 0;
    return cr_buffer_printf(out, "  restarts: %u of %u used\n", v->restarts, v->max_restarts);
}

/* ---- torchrun's box: tools parse it ---- */

/* Every line after the first is moved in by two blanks, as torchrun does. */
static int write_indented(struct cr_buffer *out, const char *text) {
    for (;;) {
        size_t len = strcspn(text, "\n");
        TRY(last_lines_escape(out, text, len));
        text += len;
        if (*text == '\0') return 0;
        TRY(cr_buffer_printf(out, "\n  "));
        text++;
    }
}

static int write_box_traceback(struct cr_buffer *out, const struct verdict_worker *w) {
    const struct error_file *e = &w->error;
    if (e->traceback != NULL) return write_indented(out, e->traceback);
    if (e->message != NULL) return write_indented(out, e->message);
    if (e->flaw != NULL) return cr_buffer_printf(out, "unreadable error file: %s", e->flaw);
    if (w->exit_code < 0) {
        const char *name = sigabbrev_np(-w->exit_code);
        return cr_buffer_printf(out, "Signal %d (%s%s) received by PID %d", -w->exit_code,
                                name != NULL ? "SIG" : "", name != NULL ? name : "<N/A>",
                                (int) w->pid);
    }
    return cr_buffer_printf(
        out, "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html");
}

/* The stated time if it can be true, else the time of death. */
static int write_time(struct cr_buffer *out, const struct verdict_worker *w) {
    time_t when = (time_t) (w->died_ns / CR_NS_PER_S);
    int64_t stated = w->error.timestamp_s;
    if (has_file(w) && stated >= w->started_ns / CR_NS_PER_S && stated <= when) when = (time_t) stated;
    struct tm tm;
    char text[64];
    if (localtime_r(&when, &tm) == NULL) return 0;
    (void) strftime(text, sizeof(text), "%Y-%m-%d_%H:%M:%S", &tm);
    return cr_buffer_printf(out, "%s", text);
}

static int write_block(struct cr_buffer *out, const struct verdict *v, size_t index, size_t number) {
    const struct verdict_worker *w = &v->workers[index];
    const char *path = w->error.present ? w->error_path : "<N/A>";
    TRY(cr_buffer_printf(out, "[%zu]:\n  time      : ", number));
    TRY(write_time(out, w));
    TRY(cr_buffer_printf(out, "\n  host      : %s\n  rank      : %u (local_rank: %u)\n", v->host,
                         w->rank, w->local_rank));
    TRY(cr_buffer_printf(out, "  exitcode  : %d (pid: %d)\n  error_file: ", w->exit_code,
                         (int) w->pid));
    TRY(last_lines_escape(out, path, strlen(path)));
    TRY(cr_buffer_printf(out, "\n  traceback : "));
    TRY(write_box_traceback(out, w));
    return cr_buffer_append(out, "\n", 1);
}

/* Listed are the failures; the number of one is its place among them. */
static int write_blocks(struct cr_buffer *others, struct cr_buffer *root, const struct verdict *v,
                        size_t first) {
    size_t number = 0;
    for (size_t i = 0; i < v->count; i++) {
        if (i != first && verdict_is_victim(&v->workers[i])) continue;
        TRY(write_block(i == first ? root : others, v, i, number));
        number++;
    }
    if (others->len == 0) return cr_buffer_printf(others, "  <NO_OTHER_FAILURES>\n");
    return 0;
}

static size_t longest_line(const char *text, size_t len) {
    size_t longest = 0;
    for (size_t at = 0; at < len;) {
        const char *lf = memchr(text + at, '\n', len - at);
        size_t line = (lf == NULL ? len : (size_t) (lf - text)) - at;
        if (line > longest) longest = line;
        at += line + 1;
    }
    return longest > BORDER_MAX ? BORDER_MAX : longest;
}

static int write_box(struct cr_buffer *out, const struct verdict *v, const struct cr_buffer *title,
                     const struct cr_buffer *others, const struct cr_buffer *root) {
    static const char border[] = "============================================================";
    static const char rule[] = "------------------------------------------------------------";
    _Static_assert(sizeof(border) == BORDER_MAX + 1 && sizeof(rule) == BORDER_MAX + 1, "width");
    int wide = (int) longest_line(root->data, root->len);
    int other = (int) longest_line(others->data, others->len);
    int name = (int) longest_line(title->data, title->len);
    if (other > wide) wide = other;
    if (name > wide) wide = name;
    (void) v;
    return cr_buffer_printf(out,
                            "%.*s\n%.*s\n%.*s\nFailures:\n%.*s%.*s\n"
                            "Root Cause (first observed failure):\n%.*s%.*s\n",
                            wide, border, (int) title->len, title->data, wide, rule,
                            (int) others->len, others->data, wide, rule, (int) root->len,
                            root->data, wide, border);
}

int verdict_report(struct cr_buffer *out, const struct verdict *v) {
    size_t first = verdict_first(v->workers, v->count);
    TRY(cr_buffer_printf(out, "crun: "));
    TRY(verdict_line(out, v, &v->workers[first]));
    TRY(cr_buffer_append(out, "\n", 1));
    TRY(write_evidence(out, v, first));
    struct cr_buffer title = {0}, others = {0}, root = {0};
    int rc = last_lines_escape(&title, v->title, strlen(v->title));
    if (rc == 0) rc = cr_buffer_printf(&title, " FAILED");
    if (rc == 0) rc = write_blocks(&others, &root, v, first);
    if (rc == 0) rc = write_box(out, v, &title, &others, &root);
    cr_buffer_done(&title);
    cr_buffer_done(&others);
    cr_buffer_done(&root);
    return rc;
}
