/* Declares what only the files of launcher/scheduler use: functions that read variables, and one
 * finder for each scheduler.
 *
 * A function that reads a variable returns 1 if it has stored the value; 0 if the variable is not
 * set; or, if the value is unusable, a negative errno, and sets err to a text that names the
 * variable and the value. */
#ifndef LAUNCHER_SCHEDULER_FIND_INTERNAL_H
#define LAUNCHER_SCHEDULER_FIND_INTERNAL_H

#include "launcher/scheduler/scheduler.h"

/* ---- variables.c ---- */

/* Returns the value of the variable `name`, or NULL if the variable is not set or is empty. */
const char *fact_text(const struct scheduler_world *w, const char *name);
/* Reads a whole number of at least `min` into *out. */
int fact_number(const struct scheduler_world *w, const char *name, int64_t min, int64_t *out,
                struct cr_error *err);
/* Each of these functions reads a number from the variable `name`: the number of nodes, this node's
 * rank, or the number of workers per node. They store the number and the variable's name in *f. For
 * fact_workers(), the value "0" means that the node has no GPU: the function then stores nothing
 * and returns 0. */
int fact_nodes(const struct scheduler_world *w, const char *name, struct scheduler_facts *f,
               struct cr_error *err);
int fact_rank(const struct scheduler_world *w, const char *name, struct scheduler_facts *f,
              struct cr_error *err);
int fact_workers(const struct scheduler_world *w, const char *name, struct scheduler_facts *f,
                 struct cr_error *err);
/* Copies `text` to `out`, cut to `cap` - 1 bytes, and appends a NUL. */
void fact_copy(char *out, size_t cap, const char *text);

/* Returns a port between 15000 and 31383 for the job. The port is computed from the job's id, so
 * all nodes of a job get the same port, and two jobs on one host most likely get different ports.
 * The range is below the ports that Linux gives to outgoing connections (32768 and up). */
uint16_t fact_port_of(const char *job_id);

/* ---- host_list.c ---- */

/* Copies the first host of a list to `out`. Hosts are separated by commas, blanks or newlines.
 * Brackets mean the same as in Slurm's lists: the first host of "gpu[001-004,7],login" is "gpu001".
 * Returns 0; or -EINVAL if the list is empty or malformed, or if the name does not fit into
 * `out`. */
int host_list_first(const char *list, char out[CR_HOST_MAX]);
/* Returns the number of hosts in a list without brackets. */
uint32_t host_list_count(const char *list);
/* Returns the position of `host`, counted from 0, in a list without brackets; -1 if `host` is not
 * in the list. Of two names, only the parts before the first dot are compared. */
int64_t host_list_find(const char *list, const char *host);

/* ---- one finder per scheduler ---- */

/* A finder returns 1, and stores facts in *f, if its scheduler has started this launcher; 0 if it
 * has not; or a negative errno, and sets err. The caller has set all facts in *f to unknown. */
typedef int (*scheduler_find_fn)(const struct scheduler_world *w, struct scheduler_facts *f,
                                 struct cr_error *err);

int find_slurm(const struct scheduler_world *w, struct scheduler_facts *f, struct cr_error *err);
int find_open_mpi(const struct scheduler_world *w, struct scheduler_facts *f,
                  struct cr_error *err);
int find_mpich(const struct scheduler_world *w, struct scheduler_facts *f, struct cr_error *err);
int find_flux(const struct scheduler_world *w, struct scheduler_facts *f, struct cr_error *err);
int find_pbs(const struct scheduler_world *w, struct scheduler_facts *f, struct cr_error *err);
int find_lsf(const struct scheduler_world *w, struct scheduler_facts *f, struct cr_error *err);
int find_sagemaker(const struct scheduler_world *w, struct scheduler_facts *f,
                   struct cr_error *err);
int find_skypilot(const struct scheduler_world *w, struct scheduler_facts *f,
                  struct cr_error *err);
int find_dstack(const struct scheduler_world *w, struct scheduler_facts *f, struct cr_error *err);
int find_kubernetes(const struct scheduler_world *w, struct scheduler_facts *f,
                    struct cr_error *err);

#endif
