/* What the files of launcher/scheduler share: functions that read variables, and one finder per
 * scheduler.
 *
 * A function that reads a variable returns 1 if the value is stored, 0 if the variable is not set,
 * and a negative errno if the value cannot be used; then err names the variable and its value. */
#ifndef LAUNCHER_SCHEDULER_FIND_INTERNAL_H
#define LAUNCHER_SCHEDULER_FIND_INTERNAL_H

#include "launcher/scheduler/scheduler.h"

/* ---- variables.c ---- */

/* Returns the variable's value, or NULL if it is not set or empty. */
const char *fact_text(const struct scheduler_world *w, const char *name);
/* Reads a whole number of at least `min` that fits into an int64_t. */
int fact_number(const struct scheduler_world *w, const char *name, int64_t min, int64_t *out,
                struct cr_error *err);
/* Reads the number of nodes, this node's rank, or the number of workers per node from the variable
 * `name`, and stores the value and the name in *f. */
int fact_nodes(const struct scheduler_world *w, const char *name, struct scheduler_facts *f,
               struct cr_error *err);
int fact_rank(const struct scheduler_world *w, const char *name, struct scheduler_facts *f,
              struct cr_error *err);
int fact_workers(const struct scheduler_world *w, const char *name, struct scheduler_facts *f,
                 struct cr_error *err);
/* Copies `text` to `out`, cut to `cap` bytes with its NUL. */
void fact_copy(char *out, size_t cap, const char *text);

/* Returns a port between 15000 and 31383, computed from the job's id: all nodes get the same port,
 * and two jobs on one host most likely get different ports. The range is below the ports that Linux
 * gives to outgoing connections (32768 and up). */
uint16_t fact_port_of(const char *job_id);

/* ---- host_list.c ---- */

/* Copies the first host of a list to `out` (CR_HOST_MAX bytes). The hosts are separated by commas,
 * blanks or newlines; brackets are expanded as in Slurm: "gpu[001-004,7],login" begins with
 * "gpu001". Returns 0; or -EINVAL if the list is empty, malformed or has too long a name. */
int host_list_first(const char *list, char out[CR_HOST_MAX]);
/* Returns the number of hosts in a list without brackets. */
uint32_t host_list_count(const char *list);
/* Returns the position of `host`, from 0, in a list without brackets; or -1. Names are compared up
 * to their first dot. */
int64_t host_list_find(const char *list, const char *host);

/* ---- one finder per scheduler ---- */

/* A finder returns 1 and fills in *f if its scheduler started this launcher; 0 if not; or a
 * negative errno, with err set. Before the call *f must say that nothing is known. */
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
