/* Finds out which cluster scheduler started this launcher, and what the scheduler's environment
 * variables say about the job: the number of nodes, the rank of this node, the address of node 0,
 * the number of workers per node, and the end of the job's time. With these facts "crun train.py"
 * needs no options under a scheduler.
 *
 * The code is pure: it reads environment variables and two small files through the functions of
 * `struct scheduler_world`, and it executes no program. (It expands lists of nodes itself, because
 * containers often lack scontrol.) Each scheduler has a finder, a function in the table of
 * scheduler.c. */
#ifndef LAUNCHER_SCHEDULER_H
#define LAUNCHER_SCHEDULER_H

#include "base/error.h"
#include "base/network/endpoint.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SCHEDULER_TEXT_MAX 256 /* bytes of a text in the facts, with its NUL; longer texts are
                                * cut */

/* Variable by which crun, when it starts itself by srun, passes the value of SLURM_TASKS_PER_NODE
 * to the crun of each node, if the nodes are to start different numbers of workers. */
#define SCHEDULER_LAYOUT "CRUN_SLURM_TASKS_PER_NODE"

/* The environment and the files that the finders read. Tests use a recorded environment. */
struct scheduler_world {
    void *arg; /* first parameter of both functions */
    /* Returns an environment variable, or NULL if it is not set. */
    const char *(*lookup)(void *arg, const char *name);
    /* Reads the first `cap` - 1 bytes of a file into `out` and appends a NUL. Returns 0, or a
     * negative errno. */
    int (*read_file)(void *arg, const char *path, char *out, size_t cap);
    const char *host_name; /* this node's host name, as gethostname(2) returns it */
};

/* The nodes on which the scheduler starts this command line. */
enum scheduler_start {
    SCHEDULER_STARTS_EACH_NODE, /* on each node, once per node or once per task */
    SCHEDULER_STARTS_FIRST_NODE /* only on the first node: in a batch script or a shell */
};

struct scheduler_facts {
    const char *name; /* name of the scheduler, such as "Slurm"; NULL if no scheduler was
                       * recognised */
    enum scheduler_start start;
    uint32_t nodes;    /* number of nodes; 0 = unknown */
    int64_t node_rank; /* from 0 to nodes - 1; -1 = unknown */
    char head[CR_HOST_MAX]; /* host name or address of node 0; "" = unknown */
    uint16_t port;     /* port at which the nodes meet, the same on all nodes; 0 = unknown */
    uint32_t workers;  /* workers that this node shall start; 0 = unknown */
    char layout[SCHEDULER_TEXT_MAX]; /* workers of all nodes, such as "2(x3),1", if they differ;
                                      * otherwise "" */
    uint32_t tasks;    /* number of times that the scheduler starts this command line on this
                        * node */
    uint32_t task;     /* this process's number among the `tasks`, from 0 to tasks - 1 */
    char job_id[SCHEDULER_TEXT_MAX]; /* id of the job, the same on all nodes and different for each
                                      * job; "" = unknown */
    char hosts[SCHEDULER_TEXT_MAX];  /* the nodes, as the scheduler lists them; "" = unknown */
    int64_t end_s;     /* end of the job's time in seconds since 1970; 0 = unknown */
    bool term_is_notice; /* true if a SIGTERM means that SIGKILL follows after a grace period */

    /* names of the variables from which the facts `nodes`, `node_rank`, `head`, `workers` and
     * `end_s` come; NULL if the fact is unknown */
    const char *nodes_from, *rank_from, *head_from, *workers_from, *end_from;
    /* for error texts: a command such as "pbsdsh -u", with which the user can start this command
     * line on each node; NULL if no such command is needed */
    const char *remedy;
};

/* Recognises the scheduler and stores the facts in *out. If no scheduler is recognised, sets
 * out->name to NULL. Returns 0 in both cases. If the value of a variable or the contents of a file
 * are unusable, returns a negative errno, and sets err to a text that names the variable. */
int scheduler_find(const struct scheduler_world *world, struct scheduler_facts *out,
                   struct cr_error *err);

/* Writes a line about the facts, such as "from Slurm: 4 nodes (SLURM_STEP_NUM_NODES), this is 2
 * (SLURM_NODEID), gpu[001-004], …", and a NUL to `out`. A line that does not fit into `cap` bytes
 * is cut. */
void scheduler_describe(const struct scheduler_facts *facts, char *out, size_t cap);

#endif
