/* Sets the options of crun that the user has not given to what the cluster's scheduler says.
 *
 * An option that the user gave, also by a variable PET_*, is kept. Each other option is set
 * independently of the rest: --nnodes from the command line can be combined with a node rank from
 * Slurm. A combination that makes no sense is refused with a text that names both sides, for
 * example --nnodes=8 in a Slurm step of 4 nodes, or several nodes of which each would train alone.
 *
 * With --standalone, --rdzv-endpoint, --master-addr or --master-port, the user says where the nodes
 * meet. If one of these is given, the command line has the same meaning as in torchrun: there is
 * one worker per node unless --nproc-per-node is given, and nothing is refused, because launchers
 * of several steps may form one job. Only the number of nodes and the node rank, if they are not
 * given, are taken from the scheduler. */
#ifndef LAUNCHER_SCHEDULER_OPTIONS_H
#define LAUNCHER_SCHEDULER_OPTIONS_H

#include "launcher/options/table.h"
#include "launcher/scheduler/scheduler.h"

#define SCHEDULER_LINE_MAX 1024

/* What crun does after the options are set. */
enum scheduler_plan {
    SCHEDULER_RUN, /* run the job */
    SCHEDULER_SELF_START /* start this command line on every node by srun; run no worker in this
                          * process */
};

/* The result of scheduler_fill(). The options that it has set point to the texts in this struct. */
struct scheduler_choice {
    enum scheduler_plan plan;
    uint32_t nodes;          /* number of nodes on which srun starts crun */
    bool has_layout;         /* true if srun is to start different numbers of workers on the nodes,
                              * which SLURM_TASKS_PER_NODE has */
    bool one_task_leads;     /* true if several tasks run on this node; one of them runs the job and
                              * the others wait */
    bool is_shown;           /* true if `line` is to be shown to the user */
    char line[SCHEDULER_LINE_MAX]; /* for the user: what was taken from the scheduler */
    char nnodes[16], nproc[16], node_rank[24], endpoint[CR_HOST_MAX + 16];
    char run_id[SCHEDULER_TEXT_MAX], conf[SCHEDULER_LINE_MAX];
};

/* Sets the options that the user has not given, and sets the source of each to CR_FROM_SCHEDULER.
 * `process_one` is true if this process has pid 1, as the first process of a container has. `facts`
 * and *out must stay valid as long as the options are used. Returns 0; or -EINVAL, and sets err. */
int scheduler_fill(const struct scheduler_facts *facts, bool process_one, struct options *options,
                   struct scheduler_choice *out, struct cr_error *err);

#endif
