/* Fills in the options that the user did not give from what the cluster's scheduler says.
 *
 * Options and PET_* variables win, each on its own: --nnodes from the command line is combined with
 * the node rank from Slurm. What cannot be meant is refused with a text that names both sides, for
 * example --nnodes=8 in a step of 4 nodes, or a launcher per node of which each would train alone.
 *
 * The user decides where nodes meet by --standalone, --rdzv-endpoint, --master-addr or
 * --master-port. Such a command line is complete for torchrun, so it keeps torchrun's meaning: one
 * worker per node unless --nproc-per-node is given, and nothing is refused, because several steps
 * or launchers started by hand may form one job. Only the number of nodes and the node rank are
 * taken from the scheduler if they are not given. */
#ifndef LAUNCHER_SCHEDULER_OPTIONS_H
#define LAUNCHER_SCHEDULER_OPTIONS_H

#include "launcher/options.h"
#include "launcher/scheduler/scheduler.h"

#define SCHEDULER_LINE_MAX 1024

/* What is to be done besides running the job of these options. */
enum scheduler_plan {
    SCHEDULER_RUN, /* run the job */
    SCHEDULER_SELF_START /* start this command line on every node by srun, and run nothing here */
};

/* The result of scheduler_fill(). The texts that `options` points to live here. */
struct scheduler_choice {
    enum scheduler_plan plan;
    uint32_t nodes;          /* SCHEDULER_SELF_START: number of nodes */
    bool one_task_leads;     /* of the tasks on this node, one runs the job, the others wait */
    bool is_shown;           /* `line` shall be shown to the user */
    char line[SCHEDULER_LINE_MAX]; /* what was taken from the scheduler */
    char nnodes[16], nproc[16], node_rank[24], endpoint[CR_HOST_MAX + 16];
    char run_id[SCHEDULER_TEXT_MAX], conf[SCHEDULER_LINE_MAX];
};

/* Fills options that were not given, and sets their source to CR_FROM_SCHEDULER. `process_one` is
 * whether this process is the first of a container (pid 1). The facts and the choice must live as
 * long as the options. Returns 0; or -EINVAL, and sets err. */
int scheduler_fill(const struct scheduler_facts *facts, bool process_one, struct options *options,
                   struct scheduler_choice *out, struct cr_error *err);

#endif
