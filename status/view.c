/* Shows a snapshot as lines for a terminal: implements view.h. */
#include "status/view.h"

#include "base/text/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_MAX_BYTES 1024

/* ---- reading ---- */

static const char *text_of(const json_t *object, const char *name, const char *fallback) {
    const char *text = json_string_value(json_object_get(object, name));
    return text != NULL ? text : fallback;
}

static double number_of(const json_t *object, const char *name) {
    return json_number_value(json_object_get(object, name)); /* 0 if it is no number */
}

static long long int_of(const json_t *object, const char *name, long long fallback) {
    const json_t *value = json_object_get(object, name);
    return json_is_integer(value) ? json_integer_value(value) : fallback;
}

static const json_t *find_job(const json_t *snapshot, const char *run_id) {
    const json_t *jobs = json_object_get(snapshot, "jobs"), *job;
    size_t i;
    json_array_foreach(jobs, i, job) {
        bool is_meant = run_id == NULL ? json_object_get(job, "ranks") != NULL
                                       : strcmp(text_of(job, "id", ""), run_id) == 0;
        if (is_meant) return job;
    }
    return run_id == NULL ? json_array_get(jobs, 0) : NULL;
}

const json_t *status_view_job(const struct status_view *v) {
    return find_job(v->snapshot, v->run_id);
}

static const json_t *rank_of(const json_t *job, long long number) {
    size_t i;
    const json_t *rank;
    json_array_foreach(json_object_get(job, "ranks"), i, rank) {
        if (int_of(rank, "rank", -1) == number) return rank;
    }
    return NULL;
}

/* Returns the worker's steps per second since the earlier snapshot. If there is no earlier
 * snapshot, or if it shows another round or another process of this rank, returns the rank's
 * average in this round; or -1 if the average is not known. */
static double rate_of(const struct status_view *v, const json_t *job, const json_t *rank) {
    const json_t *old = v->before != NULL ? find_job(v->before, text_of(job, "id", "")) : NULL;
    const json_t *was = rank_of(old, int_of(rank, "rank", -1));
    double passed = number_of(v->snapshot, "monotonic_s") - number_of(v->before, "monotonic_s");
    long long now = int_of(rank, "step", -1), then = int_of(was, "step", 0);
    bool is_same = was != NULL && int_of(was, "pid", 0) == int_of(rank, "pid", -1) &&
                   int_of(old, "round", 0) == int_of(job, "round", -1);
    if (is_same && passed > 0 && now >= then) return (double) (now - then) / passed;
    const json_t *average = json_object_get(rank, "steps_per_s");
    return json_is_number(average) ? json_number_value(average) : -1;
}

/* ---- sorting: the rank that is furthest behind comes first ---- */

static int compare_ranks(const void *a, const void *b) {
    const json_t *x = *(const json_t *const *) a, *y = *(const json_t *const *) b;
    long long by_behind = int_of(y, "behind", 0) - int_of(x, "behind", 0);
    long long by_rank = int_of(x, "rank", 0) - int_of(y, "rank", 0);
    return by_behind != 0 ? (by_behind > 0 ? 1 : -1) : by_rank > 0 ? 1 : by_rank < 0 ? -1 : 0;
}

/* Returns the ranks of the job in the order of the table, malloc'ed; the odd rank comes first. */
static const json_t **sorted_ranks(const json_t *job, size_t *count) {
    const json_t *ranks = json_object_get(job, "ranks");
    *count = json_array_size(ranks);
    const json_t **list = calloc(*count + 1, sizeof(*list));
    if (list == NULL) return NULL;
    for (size_t i = 0; i < *count; i++) list[i] = json_array_get(ranks, i);
    qsort(list, *count, sizeof(*list), compare_ranks);
    const json_t *odd = rank_of(job, int_of(json_object_get(job, "odd"), "rank", -1));
    for (size_t i = 0; odd != NULL && i < *count; i++) {
        if (list[i] != odd) continue;
        memmove(list + 1, list, i * sizeof(*list));
        list[0] = odd;
    }
    return list;
}

const json_t *status_view_rank(const struct status_view *v) {
    size_t count;
    const json_t **list = sorted_ranks(status_view_job(v), &count);
    const json_t *rank = list != NULL && v->selected < count ? list[v->selected] : NULL;
    free(list);
    return rank;
}

/* ---- numbers for people ---- */

static void write_seconds(char out[16], const json_t *value) {
    double s = json_number_value(value);
    if (!json_is_number(value)) (void) snprintf(out, 16, "-");
    else if (s < 10) (void) snprintf(out, 16, "%.1fs", s);
    else if (s < 1000) (void) snprintf(out, 16, "%.0fs", s);
    else if (s < 36000) (void) snprintf(out, 16, "%.0fm", s / 60);
    else (void) snprintf(out, 16, "%.0fh", s / 3600);
}

static void write_bytes(char out[16], const json_t *value) {
    static const char units[] = "BKMGT";
    double n = json_number_value(value);
    size_t i = 0;
    for (; n >= 1000 && i < 4; i++) n /= 1024;
    if (!json_is_number(value)) (void) snprintf(out, 16, "-");
    else (void) snprintf(out, 16, n < 10 && i > 0 ? "%.1f%c" : "%.0f%c", n, units[i]);
}

/* ---- lines ---- */

struct writer {
    struct cr_buffer *out;
    const struct status_view *v;
    size_t lines; /* number of lines so far */
    int rc;
};

static bool is_full(const struct writer *w) {
    size_t foot = w->v->footer != NULL ? 1 : 0;
    return w->v->rows > 0 && w->lines + foot >= w->v->rows;
}

/* Appends a line, and cuts it after v->columns characters. `style` is an escape sequence, or "".
 * The text may come from other programs, so bytes that are no printable characters are written as
 * \xNN. */
static void put_text(struct writer *w, const char *style, const char *text, size_t len) {
    bool has_style = w->v->has_escapes && style[0] != '\0';
    size_t width = 0;
    w->lines++;
    if (w->rc == 0 && has_style) w->rc = cr_buffer_append(w->out, style, strlen(style));
    while (w->rc == 0 && len > 0 && width < w->v->columns) {
        char piece[CR_TEXT_PIECE_MAX];
        size_t made = 0, taken = cr_text_piece(text, len, piece, &made);
        size_t wide = taken == made ? 1 : made; /* an escaped byte becomes several characters */
        if (width + wide > w->v->columns) break;
        w->rc = cr_buffer_append(w->out, piece, made);
        width += wide;
        text += taken;
        len -= taken;
    }
    if (w->rc == 0 && has_style) w->rc = cr_buffer_append(w->out, "\033[0m", 4);
    if (w->rc == 0) w->rc = cr_buffer_append(w->out, "\n", 1);
}

static void put(struct writer *w, const char *style, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static void put(struct writer *w, const char *style, const char *fmt, ...) {
    char text[LINE_MAX_BYTES];
    va_list ap;
    if (is_full(w)) return;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    size_t len = n < 0 ? 0 : (size_t) n < sizeof(text) ? (size_t) n : sizeof(text) - 1;
    put_text(w, style, text, len);
}

/* Writes the first line: which rank holds the job up. */
static void put_verdict(struct writer *w, const json_t *job) {
    const json_t *odd = json_object_get(job, "odd"), *ranks = json_object_get(job, "ranks");
    long long rank = int_of(odd, "rank", -1), slowest = int_of(job, "slowest", -1);
    const char *slow = text_of(job, "slow", "");
    if (json_is_object(odd) && rank >= 0) {
        put(w, "\033[1;31m", "rank %lld: %s", rank, text_of(odd, "why", ""));
    } else if (json_is_object(odd)) {
        put(w, "\033[1;31m", "%s", text_of(odd, "why", ""));
    } else if (slow[0] != '\0') {
        put(w, "\033[1;33m", "slow: %s", slow);
    } else if (ranks == NULL) {
        put(w, "\033[1m", "the ranks are on other nodes: run this on one of them");
    } else if (slowest >= 0) {
        put(w, "\033[1;32m", "all ranks keep up; the slowest is rank %lld", slowest);
    } else {
        put(w, "\033[1;32m", "no rank holds the job up, as far as can be seen (no steps counted)");
    }
}

static void put_job(struct writer *w, const json_t *job) {
    const char *title = text_of(job, "title", ""), *phase = text_of(job, "phase", "?");
    long long awaited = int_of(job, "awaited", 0);
    put(w, "", "job '%s'%s%s  %s, round %lld, restarts %lld of %lld", text_of(job, "id", "?"),
        title[0] != '\0' ? "  " : "", title, text_of(job, "group_state", phase),
        int_of(job, "round", -1), int_of(job, "restarts", 0), int_of(job, "max_restarts", 0));
    put(w, awaited > 0 ? "\033[1;33m" : "", "nodes %lld of %lld:%lld, ranks %lld%s",
        int_of(job, "nodes_in_round", 0), int_of(job, "min_nodes", 0), int_of(job, "max_nodes", 0),
        int_of(job, "world_size", 0), awaited > 0 ? ", more nodes are awaited" : "");
}

/* Writes one line: the effective time; and, of the last interruption, each part that took a
 * millisecond or more. */
static void put_time(struct writer *w, const json_t *job) {
    static const char *const lost[] = {"detect", "stop", "rendezvous", "spawn", "first_step"};
    const json_t *ledger = json_object_get(job, "ledger"), *rows = json_object_get(ledger, "rows");
    const json_t *row = json_array_get(rows, json_array_size(rows) - 1);
    const json_t *parts = json_object_get(row, "parts_s");
    char text[160] = "";
    size_t n = 0;
    if (ledger == NULL) {
        put(w, "", "%s", text_of(job, "why", ""));
        return;
    }
    for (size_t i = 0; i < sizeof(lost) / sizeof(lost[0]); i++) {
        if (number_of(parts, lost[i]) < 0.001) continue;
        n += (size_t) snprintf(text + n, sizeof(text) - n, "%s %s %.3f", n > 0 ? "," : ":", lost[i],
                               number_of(parts, lost[i]));
    }
    put(w, "", "work %.1f %% of %.0f s; last: %s%s", 100 * number_of(ledger, "effective"),
        number_of(ledger, "wall_s"), text_of(row, "cause", "?"), text);
}

/* ---- the tables ---- */

static void put_rank(struct writer *w, const json_t *job, const json_t *rank, bool is_selected) {
    char age[16], output[16], memory[16], step[24] = "-", rate[16] = "-", behind[24] = "-";
    double steps_per_s = rate_of(w->v, job, rank);
    write_seconds(age, json_object_get(rank, "step_age_s"));
    write_seconds(output, json_object_get(rank, "output_age_s"));
    write_bytes(memory, json_object_get(rank, "rss_bytes"));
    if (int_of(rank, "step", -1) >= 0) {
        (void) snprintf(step, sizeof(step), "%lld", int_of(rank, "step", 0));
        (void) snprintf(behind, sizeof(behind), "%lld", int_of(rank, "behind", 0));
    }
    if (steps_per_s >= 0) (void) snprintf(rate, sizeof(rate), "%.2f", steps_per_s);
    bool is_odd = rank == rank_of(job, int_of(json_object_get(job, "odd"), "rank", -1));
    put(w, is_selected ? "\033[7m" : is_odd ? "\033[31m" : "",
        "%5lld %7lld %-8.8s%1.1s %8s %6s %6s %5s %5s %5s  %s", int_of(rank, "rank", -1),
        int_of(rank, "pid", 0), text_of(rank, "state", "?"), text_of(rank, "kernel_state", ""),
        step, rate, behind, age, output, memory,
        text_of(rank, "last_line", text_of(rank, "wait_channel", "")));
}

/* Returns the index of the first row to show. It is chosen so that the selected row is on the
 * screen. */
static size_t first_shown(const struct writer *w, size_t selected, size_t count) {
    size_t foot = w->v->footer != NULL ? 1 : 0, used = w->lines + foot;
    size_t room = w->v->rows == 0 ? count : w->v->rows > used ? w->v->rows - used : 0;
    return selected < room || room == 0 ? 0 : selected - room + 1;
}

static void put_ranks(struct writer *w, const json_t *job, struct status_view *v) {
    size_t count;
    const json_t **list = sorted_ranks(job, &count);
    if (list == NULL || count == 0) {
        v->selected = 0;
        free(list);
        return;
    }
    if (v->selected >= count) v->selected = count - 1;
    put(w, "\033[2m", "%5s %7s %-9s %8s %6s %6s %5s %5s %5s  %s", "rank", "pid", "state", "step",
        "step/s", "behind", "age", "out", "mem", "last line");
    for (size_t i = first_shown(w, v->selected, count); i < count && !is_full(w); i++) {
        put_rank(w, job, list[i], v->has_escapes && i == v->selected);
    }
    free(list);
}

static void put_nodes(struct writer *w, const json_t *job) {
    const json_t *nodes = json_object_get(job, "nodes"), *node;
    size_t i;
    if (json_array_size(nodes) < (json_object_get(job, "ranks") != NULL ? 2u : 1u)) return;
    put(w, "\033[2m", "%5s  %-20s %7s  %-10s %-13s %s", "node", "host", "pid", "state", "ranks",
        "heard");
    json_array_foreach(nodes, i, node) {
        char heard[16], ranks[40] = "-";
        long long first = int_of(node, "first_rank", 0), group = int_of(node, "group_rank", -1);
        write_seconds(heard, json_object_get(node, "heard_s_ago"));
        if (group >= 0) {
            (void) snprintf(ranks, sizeof(ranks), "%lld-%lld", first,
                            first + int_of(node, "workers", 1) - 1);
        }
        put(w, "", "%5lld  %-20.20s %7lld  %-10.10s %-13.13s %s", group, text_of(node, "host", "?"),
            int_of(node, "pid", 0), text_of(node, "state", "?"), ranks, heard);
    }
}

int status_view(struct cr_buffer *out, struct status_view *v) {
    struct writer w = {.out = out, .v = v};
    const json_t *job = status_view_job(v);
    if (job == NULL) {
        put(&w, "\033[1m", "there is no such job%s%s", v->run_id != NULL ? ": " : "",
            v->run_id != NULL ? v->run_id : "");
    } else {
        put_verdict(&w, job);
        put_job(&w, job);
        put_time(&w, job);
        put_nodes(&w, job);
        put_ranks(&w, job, v);
    }
    if (v->footer != NULL) put_text(&w, "\033[2m", v->footer, strlen(v->footer));
    return w.rc;
}
