/* The finder of Slurm. It recognises crun in a step that srun started, and in the batch script or
 * shell of an allocation.
 *
 * The variables are described in srun(1) and sbatch(1), "OUTPUT ENVIRONMENT VARIABLES".
 * SLURM_LAUNCH_NODE_IPADDR is not used as the address of node 0: it is the address of the host
 * where srun runs, which is often a login node. */
#include "base/text/parse.h"
#include "launcher/scheduler/find_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Steps with this number or a higher one are special: Slurm uses these numbers for the batch
 * script, an interactive shell and external processes, which srun did not start. */
#define SLURM_FIRST_SPECIAL_STEP INT64_C(0xfffffff0)

static bool is_srun_step(const struct scheduler_world *w) {
    int64_t step = -1;
    const char *text = fact_text(w, "SLURM_STEP_ID");
    return text != NULL && cr_parse_i64(text, 0, SLURM_FIRST_SPECIAL_STEP - 1, &step) == 0 &&
           fact_text(w, "SLURM_STEP_NODELIST") != NULL && fact_text(w, "SLURM_PROCID") != NULL;
}

/* Reads the first entry of a list of task counts, as SLURM_TASKS_PER_NODE has it: "2(x3),1" means
 * three nodes with 2 tasks each, then one node with 1 task. Stores the entry's two numbers, and
 * sets *text to the next entry, or to NULL if there is none. Returns false if there is no valid
 * entry. */
static bool next_counts(const char **text, long long *tasks, long long *nodes) {
    char *end;
    if (*text == NULL || **text < '0' || **text > '9') return false;
    *tasks = strtoll(*text, &end, 10);
    *nodes = 1;
    if (strncmp(end, "(x", 2) == 0) {
        *nodes = strtoll(end + 2, &end, 10);
        if (*end == ')') end++;
    }
    *text = *end == ',' ? end + 1 : NULL;
    return *tasks > 0 && *tasks < INT32_MAX;
}

/* Returns the number of tasks on the node with the given rank. Returns 1 if the list is NULL or
 * malformed, or does not have this node. */
static uint32_t tasks_on_node(const char *list, int64_t rank) {
    long long tasks = 0, nodes = 0;
    while (next_counts(&list, &tasks, &nodes)) {
        if (rank < nodes) return (uint32_t) tasks;
        rank -= nodes;
    }
    return 1;
}

/* Returns the largest number of tasks on one node; 1 if the list is NULL or malformed. */
static uint32_t most_tasks(const char *list) {
    long long tasks = 0, nodes = 0, most = 1;
    while (next_counts(&list, &tasks, &nodes)) {
        if (tasks > most) most = tasks;
    }
    return (uint32_t) most;
}

/* Makes the number of tasks on this node its number of workers. `name` is the variable that has the
 * list of task counts. */
static int take_tasks_as_workers(const struct scheduler_world *w, const char *name,
                                 struct scheduler_facts *f) {
    const char *list = fact_text(w, name);
    f->workers = tasks_on_node(list, f->node_rank);
    f->workers_from = name;
    if (strchr(list, ',') != NULL) fact_copy(f->layout, sizeof(f->layout), list);
    return 1;
}

static int read_hosts(const struct scheduler_world *w, const char *name, struct scheduler_facts *f,
                      struct cr_error *err) {
    const char *list = fact_text(w, name);
    if (list == NULL) return 0;
    if (host_list_first(list, f->head) < 0) {
        return cr_fail(err, -EINVAL, "%s='%.200s' is not a list of nodes", name, list);
    }
    fact_copy(f->hosts, sizeof(f->hosts), list);
    f->head_from = name;
    return 1;
}

/* Stores the job's id and the end of its time. The id contains how often the job was requeued, so
 * that nodes of the requeued job never meet nodes that still run from the time before. */
static int read_job(const struct scheduler_world *w, struct scheduler_facts *f,
                    struct cr_error *err) {
    const char *job = fact_text(w, "SLURM_JOB_ID"), *step = fact_text(w, "SLURM_STEP_ID");
    const char *requeued = fact_text(w, "SLURM_RESTART_COUNT");
    (void) snprintf(f->job_id, sizeof(f->job_id), "slurm-%s%s%s%s%s", job, step != NULL ? "." : "",
                    step != NULL ? step : "", requeued != NULL ? "-requeue" : "",
                    requeued != NULL ? requeued : "");
    int rc = fact_number(w, "SLURM_JOB_END_TIME", 1, &f->end_s, err);
    if (rc > 0) f->end_from = "SLURM_JOB_END_TIME";
    return rc < 0 ? rc : 0;
}

/* Makes each task a node of its own. It is used with --gpus-per-task, where each task can use only
 * its own GPUs: so the node of a task gets one worker for each of these GPUs. In
 * SLURM_GPUS_PER_TASK, a type may stand before the number of GPUs: "a100:2". */
static int take_tasks_as_nodes(const struct scheduler_world *w, struct scheduler_facts *f,
                               struct cr_error *err) {
    const char *gpus = fact_text(w, "SLURM_GPUS_PER_TASK"), *colon = strrchr(gpus, ':');
    int64_t count = 0;
    int rc = fact_nodes(w, "SLURM_NTASKS", f, err);
    if (rc >= 0) rc = fact_rank(w, "SLURM_PROCID", f, err);
    if (cr_parse_i64(colon != NULL ? colon + 1 : gpus, 1, UINT16_MAX, &count) == 0) {
        f->workers = (uint32_t) count;
        f->workers_from = "SLURM_GPUS_PER_TASK";
    }
    return rc;
}

/* Stores the facts about tasks and workers of this node. If --gpus-per-task is given and there are
 * several tasks, each task becomes a node of its own. Otherwise all tasks of a node can use the
 * same GPUs: one of the tasks starts all workers, and the others wait (launcher/task_leader.h). */
static int read_tasks(const struct scheduler_world *w, struct scheduler_facts *f,
                      struct cr_error *err) {
    int64_t local = 0;
    const char *list = fact_text(w, "SLURM_STEP_TASKS_PER_NODE");
    uint32_t tasks = tasks_on_node(list, f->node_rank);
    if (tasks > 1 && fact_text(w, "SLURM_GPUS_PER_TASK") != NULL) {
        return take_tasks_as_nodes(w, f, err);
    }
    int rc = fact_number(w, "SLURM_LOCALID", 0, &local, err);
    if (rc < 0) return rc;
    f->tasks = tasks;
    f->task = (uint32_t) local;
    /* If another node has several tasks, and so starts one worker for each, this node does, too,
     * although it has only one. */
    if (most_tasks(list) > 1) return take_tasks_as_workers(w, "SLURM_STEP_TASKS_PER_NODE", f);
    rc = fact_workers(w, "SLURM_GPUS_ON_NODE", f, err);
    if (rc != 0 || fact_text(w, SCHEDULER_LAYOUT) == NULL) return rc;
    return take_tasks_as_workers(w, SCHEDULER_LAYOUT, f);
}

static int find_step(const struct scheduler_world *w, struct scheduler_facts *f,
                     struct cr_error *err) {
    f->start = SCHEDULER_STARTS_EACH_NODE;
    int rc = fact_nodes(w, "SLURM_STEP_NUM_NODES", f, err);
    if (rc == 0) rc = fact_nodes(w, "SLURM_NNODES", f, err);
    if (rc >= 0) rc = fact_rank(w, "SLURM_NODEID", f, err);
    if (rc >= 0) rc = read_hosts(w, "SLURM_STEP_NODELIST", f, err);
    if (rc >= 0) rc = read_job(w, f, err);
    return rc < 0 ? rc : read_tasks(w, f, err);
}

static int find_allocation(const struct scheduler_world *w, struct scheduler_facts *f,
                           struct cr_error *err) {
    f->start = SCHEDULER_STARTS_FIRST_NODE;
    f->remedy = "srun --ntasks-per-node=1";
    f->node_rank = 0;
    int rc = fact_nodes(w, "SLURM_JOB_NUM_NODES", f, err);
    if (rc == 0) rc = fact_nodes(w, "SLURM_NNODES", f, err);
    if (rc >= 0) rc = read_hosts(w, "SLURM_JOB_NODELIST", f, err);
    if (rc >= 0) rc = read_job(w, f, err);
    if (rc >= 0) rc = fact_workers(w, "SLURM_GPUS_ON_NODE", f, err);
    if (rc == 0) rc = fact_workers(w, "SLURM_NTASKS_PER_NODE", f, err);
    /* Slurm sets SLURM_NTASKS only if the user asks for tasks; it always sets
     * SLURM_TASKS_PER_NODE. */
    bool has_tasks = fact_text(w, "SLURM_NTASKS") != NULL &&
                     fact_text(w, "SLURM_TASKS_PER_NODE") != NULL;
    return rc == 0 && has_tasks ? take_tasks_as_workers(w, "SLURM_TASKS_PER_NODE", f) : rc;
}

int find_slurm(const struct scheduler_world *w, struct scheduler_facts *f, struct cr_error *err) {
    if (fact_text(w, "SLURM_JOB_ID") == NULL) return 0;
    f->name = "Slurm";
    if (fact_text(w, "SLURM_HET_SIZE") != NULL) {
        return cr_fail(err, -EINVAL,
                       "SLURM_HET_SIZE='%.20s': crun cannot tell how the components of a "
                       "heterogeneous job belong together; give --scheduler=none, --nnodes, "
                       "--node-rank and --rdzv-endpoint",
                       fact_text(w, "SLURM_HET_SIZE"));
    }
    int rc = is_srun_step(w) ? find_step(w, f, err) : find_allocation(w, f, err);
    return rc < 0 ? rc : 1;
}
