/* Sets the options that the user has not given from what the scheduler says about the job:
 * implements scheduler_options.h. The parts of this file are: which combinations are refused, the
 * nodes, where the nodes meet, the workers, and the signals. */
#include "launcher/options/scheduler_options.h"

#include "launcher/options/values.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The parameters of scheduler_fill(), which it passes to the functions below. */
struct filler {
    const struct scheduler_facts *facts;
    struct options *options;
    struct scheduler_choice *out;
    struct cr_error *err;
    uint32_t min_nodes, max_nodes; /* from --nnodes; if that is not given, from the scheduler */
    bool user_meets;               /* true if the user has said where the nodes meet */
};

static bool is_given(const struct filler *f, enum option_id id) {
    return f->options->source[id] != CR_FROM_DEFAULT;
}

static void fill(struct filler *f, enum option_id id, const char *text) {
    f->options->value[id] = text;
    f->options->source[id] = CR_FROM_SCHEDULER;
}

static const char *label(const struct filler *f, enum option_id id, char out[CR_OPTION_LABEL_MAX]) {
    return option_label(f->options, id, out);
}

/* ---- refusing combinations that cannot be meant ---- */

static int refuse_alone(struct filler *f) {
    char name[CR_OPTION_LABEL_MAX];
    const struct scheduler_facts *s = f->facts;
    return cr_fail(f->err, -EINVAL,
                   "%s=%s, but %s starts crun on %" PRIu32 " nodes (%s), each of which would train "
                   "alone; leave --nnodes out, or give --standalone if that is meant",
                   label(f, OPTION_NNODES, name), f->options->value[OPTION_NNODES], s->name,
                   s->nodes, s->nodes_from);
}

static int refuse_too_many(struct filler *f) {
    char name[CR_OPTION_LABEL_MAX];
    const struct scheduler_facts *s = f->facts;
    return cr_fail(f->err, -EINVAL,
                   "%s=%s, but %s gives %" PRIu32 " nodes (%s), so the job could never start; "
                   "leave --nnodes out, or request more nodes",
                   label(f, OPTION_NNODES, name), f->options->value[OPTION_NNODES], s->name,
                   s->nodes, s->nodes_from);
}

static int refuse_rank(struct filler *f) {
    char name[CR_OPTION_LABEL_MAX];
    const struct scheduler_facts *s = f->facts;
    return cr_fail(f->err, -EINVAL,
                   "%s=%s, but %s calls this node %" PRId64 " (%s); leave --node-rank out",
                   label(f, OPTION_NODE_RANK, name), f->options->value[OPTION_NODE_RANK], s->name,
                   s->node_rank, s->rank_from);
}

static int refuse_first_node_only(struct filler *f) {
    const struct scheduler_facts *s = f->facts;
    return cr_fail(f->err, -EINVAL,
                   "%s gives this job %" PRIu32 " nodes (%s), but crun runs on the first only; "
                   "start it on each: %s crun ..., or give --standalone for this node alone",
                   s->name, s->nodes, s->nodes_from, s->remedy);
}

static int refuse_unknown_head(struct filler *f) {
    return cr_fail(f->err, -EINVAL,
                   "%s starts crun on %" PRIu32 " nodes, but does not say where node 0 is; give "
                   "--rdzv-endpoint=HOST:PORT with the host of node 0",
                   f->facts->name, f->max_nodes);
}

static int refuse_unknown_nodes(struct filler *f) {
    return cr_fail(f->err, -EINVAL,
                   "this is node %" PRId64 " (%s), so the job has more than one node, but %s does "
                   "not say how many; give --nnodes, or PET_NNODES in the pod",
                   f->facts->node_rank, f->facts->rank_from, f->facts->name);
}

/* ---- the nodes ---- */

/* Sets the number of nodes from --nnodes; if this option is not given, from the scheduler. */
static int fill_nodes(struct filler *f) {
    const struct scheduler_facts *s = f->facts;
    if (is_given(f, OPTION_NNODES)) {
        struct cr_error ignored = {0}; /* an error is ignored here, because job_build() reports a
                                        * malformed --nnodes */
        if (value_nnodes(f->options->value[OPTION_NNODES], &f->min_nodes, &f->max_nodes,
                         &ignored) < 0) {
            f->user_meets = true;
        }
        return 0;
    }
    f->min_nodes = f->max_nodes = 1;
    if (s->nodes == 0 && s->node_rank > 0 && !f->user_meets) return refuse_unknown_nodes(f);
    if (s->nodes <= 1 || f->options->value[OPTION_STANDALONE] != NULL) return 0;
    if (f->user_meets && s->start == SCHEDULER_STARTS_FIRST_NODE) return 0;
    f->min_nodes = f->max_nodes = s->nodes;
    (void) snprintf(f->out->nnodes, sizeof(f->out->nnodes), "%" PRIu32, s->nodes);
    fill(f, OPTION_NNODES, f->out->nnodes);
    return 0;
}

static int check_nodes(struct filler *f) {
    const struct scheduler_facts *s = f->facts;
    if (f->user_meets || s->nodes == 0) return 0;
    bool each = s->start == SCHEDULER_STARTS_EACH_NODE;
    if (each && s->nodes > 1 && f->max_nodes == 1) return refuse_alone(f);
    if (f->min_nodes > s->nodes) return refuse_too_many(f);
    return 0;
}

static int fill_rank(struct filler *f) {
    const struct scheduler_facts *s = f->facts;
    if (s->node_rank < 0 || f->max_nodes == 1) return 0;
    if (s->start == SCHEDULER_STARTS_FIRST_NODE) return 0;
    (void) snprintf(f->out->node_rank, sizeof(f->out->node_rank), "%" PRId64, s->node_rank);
    if (!is_given(f, OPTION_NODE_RANK)) {
        /* If this node's rank is not below --nnodes, --node-rank is left out: the node is a spare,
         * and gets its rank from the coordinator when it takes the place of a lost node. */
        if (s->node_rank < f->max_nodes) fill(f, OPTION_NODE_RANK, f->out->node_rank);
        return 0;
    }
    bool differs = strcmp(f->options->value[OPTION_NODE_RANK], f->out->node_rank) != 0;
    return differs && !f->user_meets && s->nodes > 1 ? refuse_rank(f) : 0;
}

/* ---- where the nodes meet ---- */

/* Appends is_host to --rdzv-conf: true on node 0, so that it hosts the rendezvous. Without is_host,
 * each node would compare its own addresses with that of the endpoint to find out whether it is the
 * host. That fails on node 0 if it cannot resolve the name that the scheduler has for it. */
static void fill_is_host(struct filler *f) {
    const char *conf = f->options->value[OPTION_RDZV_CONF];
    if (f->facts->node_rank < 0 || strstr(conf, "is_host") != NULL) return;
    int n = snprintf(f->out->conf, sizeof(f->out->conf), "%s%sis_host=%d", conf,
                     conf[0] != '\0' ? "," : "", f->facts->node_rank == 0);
    if (n > 0 && (size_t) n < sizeof(f->out->conf)) fill(f, OPTION_RDZV_CONF, f->out->conf);
}

static int fill_meeting(struct filler *f) {
    const struct scheduler_facts *s = f->facts;
    if (f->user_meets || f->max_nodes == 1) return 0;
    if (is_given(f, OPTION_RDZV_BACKEND) &&
        strncmp(f->options->value[OPTION_RDZV_BACKEND], "etcd", 4) == 0) {
        return 0; /* nodes meet at etcd, whose address only the user knows */
    }
    if (s->head[0] == '\0' || s->port == 0) return refuse_unknown_head(f);
    (void) snprintf(f->out->endpoint, sizeof(f->out->endpoint),
                    strchr(s->head, ':') != NULL ? "[%s]:%u" : "%s:%u", s->head,
                    (unsigned) s->port);
    fill(f, OPTION_RDZV_ENDPOINT, f->out->endpoint);
    if (!is_given(f, OPTION_RDZV_BACKEND)) fill(f, OPTION_RDZV_BACKEND, "c10d");
    if (!is_given(f, OPTION_RDZV_ID) && s->job_id[0] != '\0') {
        (void) snprintf(f->out->run_id, sizeof(f->out->run_id), "%s", s->job_id);
        fill(f, OPTION_RDZV_ID, f->out->run_id);
    }
    if (strcmp(f->options->value[OPTION_RDZV_BACKEND], "c10d") == 0) fill_is_host(f);
    return 0;
}

/* ---- workers, signals and the plan ---- */

static void fill_workers(struct filler *f) {
    const struct scheduler_facts *s = f->facts;
    if (s->workers == 0 || is_given(f, OPTION_NPROC) || f->user_meets) return;
    /* The crun that srun starts on each node finds that node's number itself. */
    f->out->has_layout = f->out->plan == SCHEDULER_SELF_START && s->layout[0] != '\0';
    if (f->out->has_layout) return;
    (void) snprintf(f->out->nproc, sizeof(f->out->nproc), "%" PRIu32, s->workers);
    fill(f, OPTION_NPROC, f->out->nproc);
}

/* If this process is process 1 of a container, makes SIGTERM a preemption signal: a SIGTERM that
 * such a process gets means that SIGKILL follows after the grace period, so the workers should save
 * before the node leaves. Changes nothing if the user has given --preemption-signals or
 * --signals-to-handle. */
static void fill_signals(struct filler *f, bool process_one) {
    if (!f->facts->term_is_notice || !process_one) return;
    if (is_given(f, OPTION_PREEMPTION_SIGNALS) || is_given(f, OPTION_SIGNALS)) return;
    fill(f, OPTION_PREEMPTION_SIGNALS, "SIGTERM,SIGUSR1");
}

/* Decides whether crun must start itself on the other nodes. It must if the scheduler runs this
 * command line only on the first node, the job has several nodes, and the user has not said where
 * they meet. Under Slurm, crun then does this by srun. Under another scheduler, the function fails
 * with a text that says how the user can start crun on all nodes. */
static int make_plan(struct filler *f) {
    const struct scheduler_facts *s = f->facts;
    f->out->plan = SCHEDULER_RUN;
    f->out->one_task_leads = s->tasks > 1 && !f->user_meets;
    if (s->start == SCHEDULER_STARTS_EACH_NODE || f->user_meets || f->max_nodes == 1) return 0;
    if (strncmp(s->remedy, "srun", 4) != 0) return refuse_first_node_only(f);
    f->out->plan = SCHEDULER_SELF_START;
    f->out->nodes = f->max_nodes < s->nodes ? f->max_nodes : s->nodes;
    return 0;
}

int scheduler_fill(const struct scheduler_facts *facts, bool process_one, struct options *options,
                   struct scheduler_choice *out, struct cr_error *err) {
    struct filler f = {.facts = facts, .options = options, .out = out, .err = err};
    *out = (struct scheduler_choice){.plan = SCHEDULER_RUN};
    if (facts->name == NULL) return 0;
    f.user_meets = is_given(&f, OPTION_STANDALONE) || is_given(&f, OPTION_RDZV_ENDPOINT) ||
                   is_given(&f, OPTION_MASTER_ADDR) || is_given(&f, OPTION_MASTER_PORT);
    int rc = fill_nodes(&f);
    if (rc == 0) rc = check_nodes(&f);
    if (rc == 0) rc = make_plan(&f);
    if (rc == 0) rc = fill_rank(&f);
    if (rc == 0 && out->plan == SCHEDULER_RUN) rc = fill_meeting(&f);
    if (rc < 0) return rc;
    fill_workers(&f);
    fill_signals(&f, process_one);
    scheduler_describe(facts, out->line, sizeof(out->line));
    out->is_shown = f.max_nodes > 1 && facts->node_rank <= 0 && !f.user_meets;
    return 0;
}
