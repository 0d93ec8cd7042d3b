/* The settings of the job, which are those of its first node. The settings of each later node are
 * compared with them; each difference is named in a log line of the coordinator and in ACCEPTED to
 * the node. */
#include "rendezvous/coordinator/coordinator_internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* largest number of warnings about different settings in one run; without this limit, nodes could
 * fill the log */
#define WARNINGS_MAX 20

void settings_take(struct coordinator *c, const struct rdzv_join *j) {
    c->min_nodes = j->min_nodes;
    c->max_nodes = j->max_nodes;
    c->budget.max_restarts = j->max_restarts;
    c->budget.limits_losses = j->loss_limit != 0;
    c->budget.max_losses = j->loss_limit != 0 ? j->loss_limit - 1 : 0;
    c->budget.backoff_ms = j->restart_backoff_ms;
    c->budget.refill_ms = j->restart_refill_ms;
    c->standings.rules = (struct standing_rules){
        .flap_limit = j->flap_limit, .flap_window_ms = j->flap_window_ms,
        .flap_refusal_ms = j->flap_refusal_ms, .aside_after = j->aside_after,
        .aside_ms = j->aside_ms};
    c->fixed_ranks = j->fixed_ranks != 0;
    c->store_gateway = j->store_gateway != 0;
    c->join_timeout_ms = j->join_timeout_ms;
    c->last_call_timeout_ms = j->last_call_timeout_ms;
    c->skips_last_call = j->skips_last_call != 0;
    c->interval_ms = j->keep_alive_interval_ms;
    c->lease_ms = c->interval_ms * j->keep_alive_max_attempt;
    c->notice_ms = j->change_notice_ms;
    c->ranks.slow_percent = j->slow_percent;
    c->ranks.slow_ms = j->slow_ms;
    c->ranks.notice_ms = j->slow_notice_ms;
    c->digest = j->digest;
    c->warnings = 0;
    (void) snprintf(c->digest_role, sizeof(c->digest_role), "%s", j->role);
}

/* A list of differences, separated by commas. */
struct differences {
    char *text;
    size_t len;
};

static void add(struct differences *d, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void add(struct differences *d, const char *fmt, ...) {
    /* another item has up to 99 bytes; leave it out if there is no room for so many */
    if (d->len + 100 > RDZV_TEXT_MAX) return;
    if (d->len > 0) d->len += (size_t) snprintf(d->text + d->len, RDZV_TEXT_MAX - d->len, ", ");
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(d->text + d->len, RDZV_TEXT_MAX - d->len, fmt, ap);
    va_end(ap);
    if (n > 0) d->len += (size_t) n;
}

static void add_time(struct differences *d, const char *name, int64_t node_ms, int64_t job_ms) {
    if (node_ms == job_ms) return;
    add(d, "%s=%g (the job: %g)", name, (double) node_ms / 1000, (double) job_ms / 1000);
}

static void add_sizes(struct differences *d, const struct coordinator *c,
                      const struct rdzv_join *j) {
    if (j->min_nodes != c->min_nodes || j->max_nodes != c->max_nodes) {
        add(d, "--nnodes=%" PRIu32 ":%" PRIu32 " (the job: %" PRIu32 ":%" PRIu32 ")", j->min_nodes,
            j->max_nodes, c->min_nodes, c->max_nodes);
    }
    if (j->max_restarts != c->budget.max_restarts) {
        add(d, "--max-restarts=%" PRIu32 " (the job: %" PRIu32 ")", j->max_restarts,
            c->budget.max_restarts);
    }
    if ((j->fixed_ranks != 0) != c->fixed_ranks) add(d, "--rdzv-backend");
}

/* Returns whether the node differs from the first node in program or arguments. Nodes of another
 * role are not compared, because each role may have a program of its own. */
static bool is_other_program(const struct coordinator *c, const struct rdzv_join *j) {
    return j->digest != 0 && c->digest != 0 && j->digest != c->digest &&
           strcmp(j->role, c->digest_role) == 0;
}

void settings_compare(struct coordinator *c, const struct rdzv_join *j,
                      char text[RDZV_TEXT_MAX]) {
    struct differences d = {.text = text};
    text[0] = '\0';
    add_sizes(&d, c, j);
    add_time(&d, "join_timeout", j->join_timeout_ms, c->join_timeout_ms);
    add_time(&d, "last_call_timeout", j->last_call_timeout_ms, c->last_call_timeout_ms);
    add_time(&d, "keep_alive_interval", j->keep_alive_interval_ms, c->interval_ms);
    add_time(&d, "lease", j->keep_alive_interval_ms * j->keep_alive_max_attempt, c->lease_ms);
    add_time(&d, "change_notice", j->change_notice_ms, c->notice_ms);
    if (is_other_program(c, j)) add(&d, "another program, or other arguments");
    if (d.len == 0 || c->warnings++ >= WARNINGS_MAX) return;
    coordinator_log(c, CR_LOG_WARN,
                    "node '%.200s' (process %" PRIu64 ") differs from the job's first node, whose "
                    "settings count: %s%s", j->host, j->pid, text,
                    c->warnings == WARNINGS_MAX ? "; no more nodes are compared" : "");
}
