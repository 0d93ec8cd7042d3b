/* crun-agent why: shows where the workers of a job are, and which rank differs from the others. */
#include "operator/operator_internal.h"

#include "base/buffer.h"
#include "base/text/text.h"
#include "inspect/inspect.h"
#include "inspect/inspector.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOOK_TIMEOUT_MS 10000 /* longest time in ms for inspecting the workers of this host */

enum { JOB, NODE, JSON, TOKEN, HELP, OPTION_COUNT };

static const struct cr_option options[OPTION_COUNT] = {
    [JOB] = {.name = "job",
             .value_name = "ID",
             .help = "the job: what its nodes have as --rdzv-id (default: all jobs found)"},
    [NODE] = {.name = "node",
              .value_name = "HOST",
              .default_value = "",
              .help = "with HOST:PORT: only the workers on nodes of this host name"},
    [JSON] = {.name = "json", .help = "a line of JSON on stdout for each rank"},
    [TOKEN] = OPERATOR_OPTION_TOKEN,
    [HELP] = CR_OPTION_HELP,
};

/* Inspects the workers on this host: those of the job `run_id`, or all if it is NULL. Stores the
 * rows, malloc'ed, in *rows. Returns 0; or a negative errno, and sets err. */
static int look_here(const char *run_id, struct inspect_row **rows, size_t *count,
                     struct cr_error *err) {
    char host[INSPECT_HOST_MAX] = "";
    int rc = inspect_find(run_id, rows, count, err);
    if (rc < 0) return rc;
    if (*count == 0) {
        free(*rows);
        return cr_fail(err, -ESRCH, "no worker%s%.200s was found on this host; give HOST:PORT of "
                                    "the job's coordinator, or become the user who runs the job",
                       run_id != NULL ? " of the job " : "", run_id != NULL ? run_id : "");
    }
    (void) gethostname(host, sizeof(host) - 1);
    for (size_t i = 0; i < *count; i++) memcpy((*rows)[i].host, host, sizeof(host));
    inspect_look(*rows, *count, LOOK_TIMEOUT_MS);
    return 0;
}

/* ---- workers of other hosts, through their coordinator ---- */

#define ROWS_MAX ((size_t) 1 << 18) /* largest number of ranks of a job that are shown */

struct gathered {
    struct inspect_row *rows;
    size_t count, cap;
    int64_t *ranks; /* [ROWS_MAX]; take_row() stores the ranks of one message here */
    int rc;         /* first error, or 0 */
};

static int reserve(struct gathered *g, size_t more) {
    if (g->count + more <= g->cap) return 0;
    size_t cap = 2 * g->cap + more;
    struct inspect_row *rows = realloc(g->rows, cap * sizeof(*rows));
    if (rows == NULL) return -ENOMEM;
    g->rows = rows;
    g->cap = cap;
    return 0;
}

static void copy(char *out, size_t cap, const char *text) {
    (void) cr_text_copy(out, cap, text, strlen(text));
}

/* Adds a row for each rank of the message. Replaces unprintable bytes in its texts, because texts
 * of other hosts may contain any bytes. */
static void take_row(void *arg, const struct rdzv_row *m) {
    struct gathered *g = arg;
    struct inspect_row row;
    int64_t n = inspect_read_ranks(m->ranks, g->ranks, ROWS_MAX - g->count);
    if (g->rc == 0) g->rc = n < 0 ? (int) n : reserve(g, (size_t) n);
    if (g->rc < 0) return;
    inspect_row_init(&row, (int64_t) m->pid);
    if (cr_text_printable_len(m->state, strlen(m->state)) == 1) row.state = m->state[0];
    copy(row.host, sizeof(row.host), m->host);
    copy(row.program, sizeof(row.program), m->program);
    copy(row.kernel, sizeof(row.kernel), m->kernel);
    copy(row.operation, sizeof(row.operation), m->operation);
    copy(row.python, sizeof(row.python), m->python);
    copy(row.native, sizeof(row.native), m->native);
    copy(row.note, sizeof(row.note), m->note);
    for (int64_t i = 0; i < n; i++) {
        row.rank = g->ranks[i];
        if (i > 0) row.pid = 0; /* the message has the pid of the first rank only */
        g->rows[g->count++] = row;
    }
}

/* Requests an inspection of a job's workers from the coordinator at `where`: on all nodes, or only
 * on the nodes of `host` if it is not NULL. Stores the rows, malloc'ed, in *rows. Returns 0; or a
 * negative errno, and sets err. */
static int look_everywhere(const struct cr_endpoint *where, const char *run_id, const char *host,
                           struct inspect_row **rows, size_t *count, struct cr_error *err) {
    struct gathered g = {.ranks = calloc(ROWS_MAX, sizeof(*g.ranks))};
    struct rendezvous_inspected nodes;
    int rc = g.ranks == NULL ? cr_fail(err, -ENOMEM, "no memory left") : 0;
    if (rc == 0) {
        rc = rendezvous_inspect(where, OPERATOR_TIMEOUT_MS, run_id, host, take_row, &g, &nodes,
                                err);
    }
    if (rc == 0 && g.rc < 0) rc = cr_fail(err, g.rc, "cannot keep the rows: too many ranks, or no "
                                                     "memory left");
    free(g.ranks);
    if (rc < 0) {
        free(g.rows);
        return rc;
    }
    if (nodes.answered < nodes.asked) {
        (void) fprintf(stderr, "crun-agent why: %u of %u nodes did not answer in time\n",
                       nodes.asked - nodes.answered, nodes.asked);
    }
    *rows = g.rows;
    *count = g.count;
    return 0;
}

/* ---- the command ---- */

/* Callback of qsort(): sorts rows by the ids of their jobs. */
static int compare_jobs(const void *a, const void *b) {
    return strcmp(((const struct inspect_row *) a)->job, ((const struct inspect_row *) b)->job);
}

/* Returns how many rows at the beginning of `rows` belong to the same job as the first row. The
 * rows must be sorted by job. */
static size_t count_of_job(const struct inspect_row *rows, size_t count) {
    size_t n = 0;
    while (n < count && compare_jobs(&rows[0], &rows[n]) == 0) n++;
    return n;
}

/* Appends the report about the workers of one job to `out`, or the rows as JSON if as_json is true.
 * Returns 0 or a negative errno. */
static int write_job(struct cr_buffer *out, struct inspect_row *rows, size_t count, bool as_json) {
    struct inspect_group *groups = NULL;
    size_t group_count;
    if (!as_json) return inspect_write_report(out, rows, count, "  ");
    int rc = inspect_fold(rows, count, &groups, &group_count); /* sorts the rows */
    free(groups);
    for (size_t i = 0; rc == 0 && i < count; i++) rc = inspect_row_write(out, &rows[i]);
    return rc;
}

/* Writes the rows to stdout, job by job. If there are several jobs, each report begins with the id
 * of its job. Ranks of different jobs are never compared with each other. */
static int show(struct inspect_row *rows, size_t count, bool as_json) {
    struct cr_buffer text = {0};
    int rc = 0;
    if (count > 1) qsort(rows, count, sizeof(*rows), compare_jobs);
    size_t first = 0, n = count_of_job(rows, count);
    bool has_several = n < count;
    do {
        if (has_several && !as_json) {
            rc = cr_buffer_printf(&text, "%sjob %s: ", first > 0 ? "\n" : "", rows[first].job);
        }
        if (rc == 0) rc = write_job(&text, rows + first, n, as_json);
        first += n;
        n = count_of_job(rows + first, count - first);
    } while (rc == 0 && first < count);
    if (rc == 0) (void) fwrite(text.data, 1, text.len, stdout);
    cr_buffer_done(&text);
    return rc;
}

static int run(const struct cr_command *command, const struct cr_command_line *line) {
    struct cr_error err = {0};
    struct inspect_row *rows = NULL;
    size_t count = 0;
    int rc;
    if (line->argument_count == 0) {
        rc = look_here(line->value[JOB], &rows, &count, &err);
    } else if (line->value[JOB] == NULL) {
        return cr_complain_usage(command->name, "--job is missing: which job is meant?");
    } else {
        struct cr_endpoint where;
        int status = operator_read_where(command, line, &where);
        if (status != 0) return status;
        rc = look_everywhere(&where, line->value[JOB], line->value[NODE], &rows, &count, &err);
    }
    if (rc == 0) {
        rc = show(rows, count, line->value[JSON] != NULL);
        free(rows);
        if (rc < 0) (void) cr_fail(&err, rc, "cannot write the rows: no memory left");
    }
    if (rc < 0) cr_complain(command->name, "%s", err.text);
    return rc < 0 ? CR_EXIT_FAILED : 0;
}

const struct cr_command operator_why = {
    .name = "crun-agent why",
    .summary = "show where each worker waits, and which rank differs",
    .arguments = "[HOST:PORT]",
    .description =
        "Looks into the workers of a job, on all nodes if the coordinator's HOST:PORT is given, "
        "else into those on this host, whether crun or torchrun runs them. Shows for each rank: "
        "the "
        "state of its process, where it waits in the kernel, its stack, its Python stack if py-spy "
        "is in PATH, and the collective operation that it is in, if it uses crun's worker runtime. "
        "Equal ranks are shown once; the rank that differs from the majority comes first. A "
        "worker's main thread is stopped for some milliseconds.",
    .options = options,
    .option_count = OPTION_COUNT,
    .max_arguments = 1,
    .run = run,
};
