/* Converts the options of crun into a job on several hosts (--hosts, --hostfile), and the option
 * --world-size into a number of workers per host. Pure: the text of the hostfile and the
 * environment are parameters. */
#ifndef LAUNCHER_HOSTS_OPTIONS_H
#define LAUNCHER_HOSTS_OPTIONS_H

#include "launcher/hosts/hosts.h"
#include "launcher/options/table.h"

/* A job on several hosts, with the memory for its lists and texts. */
struct hosts_choice {
    struct hosts_job job;
    struct hosts_list list;
    struct hosts_block *memory;
    char nproc[16]; /* value of --nproc-per-node, computed from --world-size */
};

/* Returns true if --hosts, --hostfile or --on is given, so that crun starts the job on other
 * hosts. */
static inline bool hosts_are_given(const struct options *o) {
    return o->value[OPTION_HOSTS] != NULL || o->value[OPTION_HOSTFILE] != NULL ||
           o->value[OPTION_ON] != NULL;
}

/* Call this if hosts_are_given() is false. If --world-size is given, sets --nproc-per-node to its
 * value. Refuses options that are only for a job on several hosts. Returns 0; or -EINVAL, and sets
 * err. */
int hosts_fill_one_node(struct options *options, struct hosts_choice *out, struct cr_error *err);

/* Fills in out->job. `hostfile` is the text of the hostfile, or NULL. `environment` is the list of
 * this process's variables. `run_id` becomes the job's id if the user gives no --rdzv-id. All
 * parameters must stay valid as long as *out is used. Returns 0; or a negative errno, and sets err.
 * Call hosts_choice_done() in both cases. */
int hosts_describe(const struct options *options, const char *hostfile, char *const *environment,
                   const char *run_id, struct hosts_choice *out, struct cr_error *err);

void hosts_choice_done(struct hosts_choice *choice);

#endif
