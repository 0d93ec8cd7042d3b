/* Completes the options of crun from what the cluster's scheduler says.
 *
 * An option that the user gave, also by a PET_* variable, is kept. Each other option is completed
 * independently: --nnodes from the command line can be combined with a node rank from Slurm.
 * Combinations that cannot be meant are refused with a text that names both sides, for example
 * --nnodes=8 in a Slurm step of 4 nodes, or several nodes of which each would train alone.
 *
 * With --standalone, --rdzv-endpoint, --master-addr or --master-port the user says where the nodes
 * meet. If one of these is given, the command line has the same meaning as in torchrun: one worker
 * per node unless --nproc-per-node is given, and nothing is refused, because launchers of several
 * steps may form one job. Only the number of nodes and the node rank are taken from the scheduler,
 * if they are not given. */
#ifndef LAUNCHER_SCHEDULER_OPTIONS_H
#define LAUNCHER_SCHEDULER_OPTIONS_H

#include "launcher/options/table.h"
#include "launcher/scheduler/scheduler.h"

#define SCHEDULER_LINE_MAX 1024

/* What crun does with the completed options. */
enum scheduler_plan {
    SCHEDULER_RUN, /* run the job */
    SCHEDULER_SELF_START /* start this command line on every node by srun; run no worker in this
                          * process */
};

/* The result of scheduler_fill(). The completed options point to the texts in it. */
struct scheduler_choice {
    enum scheduler_plan plan;
    uint32_t nodes;          /* number of nodes on which srun starts crun */
    bool one_task_leads;     /* true if one of several tasks on this node runs the job and the
                              * others wait */
    bool is_shown;           /* true if `line` is to be shown to the user */
    char line[SCHEDULER_LINE_MAX]; /* for the user: what was taken from the scheduler */
    char nnodes[16], nproc[16], node_rank[24], endpoint[CR_HOST_MAX + 16];
    char run_id[SCHEDULER_TEXT_MAX], conf[SCHEDULER_LINE_MAX];
};

/* Completes the options that were not given, and sets their source to CR_FROM_SCHEDULER.
 * `process_one` is true if this process has pid 1, as the first process of a container does.
 * `facts` and *out must live as long as the options. Returns 0; or -EINVAL, and sets err. */
int scheduler_fill(const struct scheduler_facts *facts, bool process_one, struct options *options,
                   struct scheduler_choice *out, struct cr_error *err);

#endif
