/* Writes a snapshot as metrics: status_metrics() of snapshot.h. Pure: no I/O.
 *
 * The two formats differ little. In OpenMetrics a counter's family is named without "_total", a
 * family has a UNIT, and the text ends with "# EOF"; in the older format of Prometheus the TYPE
 * line of a counter has its full name, and there is no type "info". */
#include "status/snapshot.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct writer {
    struct cr_buffer *out;
    bool is_open; /* true: OpenMetrics; false: the older format of Prometheus */
    int rc;
};

enum kind { GAUGE, COUNTER, INFO };

struct family {
    const char *name; /* without "crun_", "_total" and "_info" */
    enum kind kind;
    const char *unit; /* the last word of the name, or NULL */
    const char *help;
};

struct label {
    const char *name, *value;
};

static void put(struct writer *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void put(struct writer *w, const char *fmt, ...) {
    va_list ap;
    if (w->rc < 0) return;
    va_start(ap, fmt);
    w->rc = cr_buffer_vprintf(w->out, fmt, ap);
    va_end(ap);
}

static const char *suffix_of(enum kind kind) {
    return kind == COUNTER ? "_total" : kind == INFO ? "_info" : "";
}

static void put_head(struct writer *w, const struct family *f) {
    static const char *const open_types[] = {"gauge", "counter", "info"};
    static const char *const old_types[] = {"gauge", "counter", "gauge"};
    const char *suffix = w->is_open ? "" : suffix_of(f->kind);
    put(w, "# HELP crun_%s%s %s\n", f->name, suffix, f->help);
    put(w, "# TYPE crun_%s%s %s\n", f->name, suffix,
        (w->is_open ? open_types : old_types)[f->kind]);
    if (w->is_open && f->unit != NULL) put(w, "# UNIT crun_%s %s\n", f->name, f->unit);
}

static void put_label_value(struct writer *w, const char *text) {
    for (; *text != '\0'; text++) {
        if (*text == '\n') put(w, "\\n");
        else if (*text == '"' || *text == '\\') put(w, "\\%c", *text);
        else put(w, "%c", *text);
    }
}

/* Writes one sample of a family: its name, its labels and `value`. `labels` ends with a label whose
 * name is NULL. */
static void put_sample(struct writer *w, const struct family *f, const struct label *labels,
                       double value) {
    put(w, "crun_%s%s{", f->name, suffix_of(f->kind));
    for (size_t i = 0; labels[i].name != NULL; i++) {
        put(w, "%s%s=\"", i > 0 ? "," : "", labels[i].name);
        put_label_value(w, labels[i].value != NULL ? labels[i].value : "");
        put(w, "\"");
    }
    if (isfinite(value)) put(w, "} %.12g\n", value);
    else put(w, "} NaN\n");
}

/* ---- reading the snapshot ---- */

static const json_t *jobs_of(const json_t *snapshot) { return json_object_get(snapshot, "jobs"); }

static const char *id_of(const json_t *job) {
    return json_string_value(json_object_get(job, "id"));
}

/* ---- families with one sample for each job ---- */

static const struct {
    struct family family;
    const char *field;
} of_jobs[] = {
    {{"round", GAUGE, NULL, "Number of the current round, from 0."}, "round"},
    {{"restarts", COUNTER, NULL, "Restarts of the job so far."}, "restarts"},
    {{"restarts_max", GAUGE, NULL, "Restarts that the job may use."}, "max_restarts"},
    {{"nodes", GAUGE, NULL, "Nodes of the current round."}, "nodes_in_round"},
    {{"nodes_min", GAUGE, NULL, "Fewest nodes with which a round begins."}, "min_nodes"},
    {{"nodes_max", GAUGE, NULL, "Most nodes of a round."}, "max_nodes"},
    {{"nodes_awaited", GAUGE, NULL, "Nodes that are missing before a round can begin."},
     "awaited"},
    {{"world_size", GAUGE, NULL, "Workers of the current round, on all nodes."}, "world_size"},
};

static void put_jobs(struct writer *w, const json_t *snapshot) {
    for (size_t k = 0; k < sizeof(of_jobs) / sizeof(of_jobs[0]); k++) {
        size_t i;
        const json_t *job;
        put_head(w, &of_jobs[k].family);
        json_array_foreach(jobs_of(snapshot), i, job) {
            const json_t *value = json_object_get(job, of_jobs[k].field);
            const struct label labels[] = {{"job", id_of(job)}, {NULL, NULL}};
            double number = json_number_value(value);
            if (!json_is_number(value)) continue;
            put_sample(w, &of_jobs[k].family, labels, number > 0 ? number : 0);
        }
    }
}

/* ---- families with one sample for each rank ---- */

static const struct {
    struct family family;
    const char *field;
} of_ranks[] = {
    {{"rank_steps", GAUGE, NULL, "Steps that the worker has made in this round."}, "step"},
    {{"rank_steps_per_second", GAUGE, NULL, "Steps a second, on average over this round."},
     "steps_per_s"},
    {{"rank_behind_steps", GAUGE, "steps", "Steps behind the first rank."}, "behind"},
    {{"rank_step_age_seconds", GAUGE, "seconds", "Time since the last step."}, "step_age_s"},
    {{"rank_output_age_seconds", GAUGE, "seconds", "Time since the last output that crun saw."},
     "output_age_s"},
    {{"rank_resident_bytes", GAUGE, "bytes", "Resident memory of the worker."}, "rss_bytes"},
    {{"rank_cpu_seconds", COUNTER, "seconds", "CPU time of the worker."}, "cpu_s"},
    {{"rank_uninterruptible", GAUGE, NULL, "1 if the worker is in an uninterruptible sleep."},
     "uninterruptible"},
};

static void put_rank(struct writer *w, size_t family, const json_t *job, const json_t *rank) {
    const json_t *value = json_object_get(rank, of_ranks[family].field);
    char number[24];
    const struct label labels[] = {{"job", id_of(job)}, {"rank", number}, {NULL, NULL}};
    (void) snprintf(number, sizeof(number), "%lld",
                    (long long) json_integer_value(json_object_get(rank, "rank")));
    if (!json_is_number(value) && !json_is_boolean(value)) return;
    put_sample(w, &of_ranks[family].family, labels,
               json_is_number(value) ? json_number_value(value) : json_is_true(value));
}

static void put_ranks(struct writer *w, const json_t *snapshot) {
    for (size_t k = 0; k < sizeof(of_ranks) / sizeof(of_ranks[0]); k++) {
        size_t i, j;
        const json_t *job, *rank;
        put_head(w, &of_ranks[k].family);
        json_array_foreach(jobs_of(snapshot), i, job) {
            json_array_foreach(json_object_get(job, "ranks"), j, rank) put_rank(w, k, job, rank);
        }
    }
}

static void put_states(struct writer *w, const json_t *snapshot) {
    static const struct family f = {"workers", GAUGE, NULL, "Workers of this node, by state."};
    static const char *const states[] = {"absent", "starting", "running", "hung",
                                         "kept",   "parked",   "stopping"};
    size_t i, j;
    const json_t *job, *rank;
    put_head(w, &f);
    json_array_foreach(jobs_of(snapshot), i, job) {
        const json_t *ranks = json_object_get(job, "ranks");
        for (size_t k = 0; ranks != NULL && k < sizeof(states) / sizeof(states[0]); k++) {
            const struct label labels[] = {{"job", id_of(job)}, {"state", states[k]}, {NULL, NULL}};
            double count = 0;
            json_array_foreach(ranks, j, rank) {
                const char *state = json_string_value(json_object_get(rank, "state"));
                if (state != NULL && strcmp(state, states[k]) == 0) count++;
            }
            put_sample(w, &f, labels, count);
        }
    }
}

/* ---- the ledger ---- */

static void put_parts(struct writer *w, const struct family *f, const json_t *job,
                      const json_t *parts) {
    const char *part;
    json_t *value;
    /* json_object_foreach() takes a pointer that is not const, but changes nothing */
    json_object_foreach((json_t *) parts, part, value) {
        const struct label labels[] = {{"job", id_of(job)}, {"part", part}, {NULL, NULL}};
        put_sample(w, f, labels, json_number_value(value));
    }
}

static void put_times(struct writer *w, const json_t *snapshot) {
    static const struct family sum = {"time_seconds", COUNTER, "seconds",
                                      "Time of this node, by what it was spent for."};
    static const struct family last = {"last_round_seconds", GAUGE, "seconds",
                                       "Time since the last round was broken, by part."};
    size_t i;
    const json_t *job;
    put_head(w, &sum);
    json_array_foreach(jobs_of(snapshot), i, job) {
        const json_t *ledger = json_object_get(job, "ledger");
        put_parts(w, &sum, job, json_object_get(ledger, "parts_s"));
    }
    put_head(w, &last);
    json_array_foreach(jobs_of(snapshot), i, job) {
        const json_t *rows = json_object_get(json_object_get(job, "ledger"), "rows");
        const json_t *row = json_array_get(rows, json_array_size(rows) - 1);
        put_parts(w, &last, job, json_object_get(row, "parts_s"));
    }
}

static void put_causes(struct writer *w, const json_t *snapshot) {
    static const struct {
        struct family family;
        const char *field;
    } families[] = {
        {{"rounds", COUNTER, NULL, "Rounds, and ends of the job, by what broke the one before."},
         "count"},
        {{"lost_seconds", COUNTER, "seconds", "Time that was neither work nor wait, by cause."},
         "lost_s"}};
    for (size_t k = 0; k < 2; k++) {
        size_t i;
        const json_t *job;
        put_head(w, &families[k].family);
        json_array_foreach(jobs_of(snapshot), i, job) {
            json_t *causes = json_object_get(json_object_get(job, "ledger"), "causes"), *value;
            const char *cause;
            json_object_foreach(causes, cause, value) {
                const struct label labels[] = {{"job", id_of(job)}, {"cause", cause}, {NULL, NULL}};
                put_sample(w, &families[k].family, labels,
                           json_number_value(json_object_get(value, families[k].field)));
            }
        }
    }
}

static void put_ratio(struct writer *w, const json_t *snapshot) {
    static const struct family f = {"effective_time_ratio", GAUGE, "ratio",
                                    "Work, divided by the wall time of this node."};
    size_t i;
    const json_t *job;
    put_head(w, &f);
    json_array_foreach(jobs_of(snapshot), i, job) {
        const json_t *ratio = json_object_get(json_object_get(job, "ledger"), "effective");
        const struct label labels[] = {{"job", id_of(job)}, {NULL, NULL}};
        if (ratio != NULL) put_sample(w, &f, labels, json_number_value(ratio));
    }
}

/* ---- about crun ---- */

static void put_build(struct writer *w, const json_t *snapshot) {
    static const struct family f = {"build", INFO, NULL, "The version of crun, and its host."};
    const struct label labels[] = {
        {"version", json_string_value(json_object_get(snapshot, "crun"))},
        {"host", json_string_value(json_object_get(snapshot, "host"))},
        {NULL, NULL}};
    put_head(w, &f);
    put_sample(w, &f, labels, 1);
}

int status_metrics(struct cr_buffer *out, const json_t *snapshot, bool is_open) {
    struct writer w = {.out = out, .is_open = is_open};
    put_build(&w, snapshot);
    put_jobs(&w, snapshot);
    put_ratio(&w, snapshot);
    put_times(&w, snapshot);
    put_causes(&w, snapshot);
    put_states(&w, snapshot);
    put_ranks(&w, snapshot);
    if (is_open) put(&w, "# EOF\n");
    return w.rc;
}
