/* Turns the options of crun into a job on several hosts (--hosts, --hostfile), and the option
 * --world-size into workers per host. Pure: the text of a hostfile and the environment are
 * parameters. */
#ifndef LAUNCHER_HOSTS_OPTIONS_H
#define LAUNCHER_HOSTS_OPTIONS_H

#include "launcher/hosts/hosts.h"
#include "launcher/options/table.h"

/* A job with the memory for its lists and texts. */
struct hosts_choice {
    struct hosts_job job;
    struct hosts_list list;
    struct hosts_block *memory;
    char nproc[16]; /* value of --nproc-per-node that follows from --world-size */
};

/* Returns true if --hosts or --hostfile is given, so that crun starts the job on other hosts. */
static inline bool hosts_are_given(const struct options *o) {
    return o->value[OPTION_HOSTS] != NULL || o->value[OPTION_HOSTFILE] != NULL;
}

/* Call this if the options name no hosts. If --world-size is given, replaces it by
 * --nproc-per-node. Refuses options that have a meaning only with hosts. Returns 0; or -EINVAL, and
 * sets err. */
int hosts_fill_one_node(struct options *options, struct hosts_choice *out, struct cr_error *err);

/* Describes the job. `hostfile` is the text of the file of --hostfile, or NULL. `environment` is
 * the list of this process's variables. `run_id` is used if the user gives no --rdzv-id.
 * Everything must live as long as *out. Returns 0; or a negative errno, and sets err. Call
 * hosts_choice_done() in both cases. */
int hosts_describe(const struct options *options, const char *hostfile, char *const *environment,
                   const char *run_id, struct hosts_choice *out, struct cr_error *err);

void hosts_choice_done(struct hosts_choice *choice);

#endif
