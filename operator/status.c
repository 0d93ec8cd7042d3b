/* crun-agent status: prints a coordinator's list of jobs and their nodes, as text or as JSON. */
#include "operator/operator_internal.h"

#include "base/text/text.h"
#include "status/json_text.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* ---- as text ---- */

/* Prints a text that came from another host. A byte that is not part of a printable character is
 * written as \xNN, because a control character could change the terminal. */
static void print_text(const char *text) {
    char piece[CR_TEXT_PIECE_MAX];
    size_t left = strlen(text), len = 0;
    while (left > 0) {
        size_t taken = cr_text_piece(text, left, piece, &len);
        (void) fwrite(piece, 1, len, stdout);
        text += taken;
        left -= taken;
    }
}

static void print_job(void *arg, const struct rdzv_status_job *j) {
    ++*(int *) arg;
    (void) printf("job '");
    print_text(j->run_id);
    (void) printf("': %s, round %" PRId64 ", %" PRIu32 " of %" PRIu32 ":%" PRIu32
                  " nodes, %" PRIu32 " workers, restart %" PRIu32 " of %" PRIu32,
                  rendezvous_phase_name(j->phase), (int64_t) j->rounds - 1, j->nodes, j->min_nodes,
                  j->max_nodes, j->world_size, j->restart_count, j->max_restarts);
    if (j->losses > 0) (void) printf(", %" PRIu32 " rounds lost nodes", j->losses);
    if (j->losses > 0 && j->loss_limit > 0) (void) printf(" of %" PRIu32, j->loss_limit - 1);
    if (j->backoff_ms > 0) (void) printf(", backs off for %.1f s", (double) j->backoff_ms / 1000);
    if (j->awaited > 0) (void) printf(", %" PRIu32 " awaited", j->awaited);
    if (j->why[0] != '\0') (void) printf("; last: ");
    print_text(j->why);
    if (j->slow[0] != '\0') (void) printf("; slow: ");
    print_text(j->slow);
    (void) printf("\n");
}

static void print_node(void *arg, const struct rdzv_status_node *n) {
    (void) arg;
    (void) printf("  ");
    print_text(n->host);
    (void) printf(" (");
    print_text(n->addr);
    (void) printf(", process %" PRIu64 "): %s", n->pid, rendezvous_state_name(n->state));
    if (n->group_rank >= 0) {
        (void) printf(", group rank %" PRId64 ", ranks %" PRIu32 "-%" PRIu32, n->group_rank,
                      n->first_rank, n->first_rank + n->local_world_size - 1);
    }
    (void) printf(", role ");
    print_text(n->role);
    (void) printf(", heard %.1f s ago", n->silent_ms < 0 ? 0.0 : (double) n->silent_ms / 1000);
    if (n->unfit[0] != '\0') (void) printf(", not fit: ");
    print_text(n->unfit);
    (void) printf("\n");
}

static void print_time(const char *what, int64_t left_ms) {
    if (left_ms > 0) (void) printf(", %s for %.1f s", what, (double) left_ms / 1000);
}

static void print_host(void *arg, const struct rdzv_status_host *h) {
    (void) arg;
    (void) printf("  host ");
    print_text(h->host);
    (void) printf(": %" PRIu32 " short lives, %" PRIu32 " failures began there", h->short_lives,
                  h->failures);
    print_time("slowed", h->slowed_ms);
    print_time("refused", h->refused_ms);
    print_time("set aside", h->aside_ms);
    (void) printf("\n");
}

static int show_text(const struct cr_endpoint *where, struct cr_error *err) {
    static const struct rendezvous_status_events events = {
        .on_job = print_job, .on_node = print_node, .on_host = print_host};
    int jobs = 0;
    int rc = rendezvous_status(where, OPERATOR_TIMEOUT_MS, &events, &jobs, err);
    if (rc == 0 && jobs == 0) (void) printf("no jobs\n");
    return rc;
}

/* ---- as JSON ---- */

struct answer {
    json_t *jobs;
    bool incomplete; /* true if a job or a node could not be added to `jobs` */
};

static void add(struct answer *a, json_t *list, json_t *item) {
    /* json_array_append_new() also fails if `list` or `item` is NULL */
    if (json_array_append_new(list, item) < 0) a->incomplete = true;
}

static void add_job(void *arg, const struct rdzv_status_job *j) {
    struct answer *a = arg;
    json_t *job = json_pack(
        "{s:o, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:I, s:I, s:I, s:f, s:o, s:[], "
        "s:[]}",
        "id",
        status_json_text(j->run_id),
        "phase", rendezvous_phase_name(j->phase), "round", (json_int_t) j->rounds - 1, "restarts",
        (json_int_t) j->restart_count, "max_restarts", (json_int_t) j->max_restarts, "min_nodes",
        (json_int_t) j->min_nodes, "max_nodes", (json_int_t) j->max_nodes, "group_world_size",
        (json_int_t) j->group_world_size, "world_size", (json_int_t) j->world_size, "awaited",
        (json_int_t) j->awaited, "why", status_json_text(j->why),
        "restarts_spent", (json_int_t) j->spent, "losses", (json_int_t) j->losses, "max_losses",
        (json_int_t) j->loss_limit - 1, "backoff_s", (double) j->backoff_ms / 1000, "slow",
        status_json_text(j->slow), "members",
        "hosts");
    add(a, a->jobs, job);
}

/* Adds a node to the last job of the list. This is the job of the node, because the coordinator
 * sends each job before the nodes of that job. */
static void add_node(void *arg, const struct rdzv_status_node *n) {
    struct answer *a = arg;
    json_t *node = json_pack(
        "{s:o, s:o, s:I, s:o, s:s, s:I, s:I, s:I, s:f, s:o}", "host", status_json_text(n->host),
        "addr", status_json_text(n->addr), "pid", (json_int_t) n->pid, "role",
        status_json_text(n->role),
        "state",
        rendezvous_state_name(n->state),
        "group_rank", (json_int_t) n->group_rank, "first_rank", (json_int_t) n->first_rank,
        "local_world_size", (json_int_t) n->local_world_size, "heard_s_ago",
        n->silent_ms < 0 ? 0.0 : (double) n->silent_ms / 1000, "unfit", status_json_text(n->unfit));
    /* NULL if no job was received before this node; then add() sets a->incomplete */
    json_t *job = json_array_get(a->jobs, json_array_size(a->jobs) - 1);
    add(a, json_object_get(job, "members"), node);
}

/* Adds a host to the last job of the list, as add_node() adds a node. */
static void add_host(void *arg, const struct rdzv_status_host *h) {
    struct answer *a = arg;
    json_t *host = json_pack(
        "{s:o, s:I, s:I, s:f, s:f, s:f}", "host", status_json_text(h->host), "short_lives",
        (json_int_t) h->short_lives, "failures", (json_int_t) h->failures, "slowed_s",
        (double) h->slowed_ms / 1000, "refused_s", (double) h->refused_ms / 1000, "aside_s",
        (double) h->aside_ms / 1000);
    json_t *job = json_array_get(a->jobs, json_array_size(a->jobs) - 1);
    add(a, json_object_get(job, "hosts"), host);
}

static int show_json(const struct cr_endpoint *where, struct cr_error *err) {
    static const struct rendezvous_status_events events = {
        .on_job = add_job, .on_node = add_node, .on_host = add_host};
    json_auto_t *jobs = json_array();
    struct answer a = {.jobs = jobs};
    int rc = rendezvous_status(where, OPERATOR_TIMEOUT_MS, &events, &a, err);
    if (rc < 0) return rc;
    json_auto_t *answer = a.incomplete ? NULL : json_pack("{s:O}", "jobs", jobs);
    if (answer == NULL || json_dumpf(answer, stdout, JSON_INDENT(2)) < 0) {
        return cr_fail(err, -ENOMEM, "cannot write the answer as JSON: no memory left");
    }
    (void) printf("\n");
    return 0;
}

/* ---- the command line ---- */

enum { JSON, TOKEN, HELP, OPTION_COUNT };

static const struct cr_option options[OPTION_COUNT] = {
    [JSON] = {.name = "json", .help = "one JSON object on stdout"},
    [TOKEN] = OPERATOR_OPTION_TOKEN,
    [HELP] = CR_OPTION_HELP,
};

static int run(const struct cr_command *command, const struct cr_command_line *line) {
    struct cr_endpoint where;
    struct cr_error err = {0};
    int status = operator_read_where(command, line, &where);
    if (status != 0) return status;
    int rc = line->value[JSON] != NULL ? show_json(&where, &err) : show_text(&where, &err);
    if (rc < 0) cr_complain(command->name, "%s", err.text);
    return rc < 0 ? CR_EXIT_FAILED : 0;
}

const struct cr_command operator_status = {
    .name = "crun-agent status",
    .summary = "show the jobs of a coordinator, with their rounds and nodes",
    .arguments = "HOST:PORT",
    .description =
        "Asks the coordinator at HOST:PORT, a crun-agent or a crun that hosts its job, for its "
        "jobs: phase, round, restarts, how many nodes are awaited; for each node its ranks, its "
        "state, and how long ago it was last heard of; and the hosts on which nodes were lost soon "
        "after they had joined, or on which failures began.",
    .options = options,
    .option_count = OPTION_COUNT,
    .min_arguments = 1,
    .max_arguments = 1,
    .run = run,
};
