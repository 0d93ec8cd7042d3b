/* What the files of launcher/scheduler share: readers of variables, and one function per scheduler.
 *
 * A reader returns 0 if the variable is not set, 1 if it was stored, and a negative errno (with
 * err set to a text that names the variable and its value) if the value cannot be used. */
#ifndef LAUNCHER_SCHEDULER_FIND_INTERNAL_H
#define LAUNCHER_SCHEDULER_FIND_INTERNAL_H

#include "launcher/scheduler/scheduler.h"

/* ---- variables.c ---- */

/* Returns the variable's value, or NULL if it is not set or empty. */
const char *fact_text(const struct scheduler_world *w, const char *name);
/* Reads a whole number of at least `min` that fits into an int64_t. */
int fact_number(const struct scheduler_world *w, const char *name, int64_t min, int64_t *out,
                struct cr_error *err);
/* Reads the number of nodes, this node's rank or the workers per node, and stores the name of the
 * variable beside it. */
int fact_nodes(const struct scheduler_world *w, const char *name, struct scheduler_facts *f,
               struct cr_error *err);
int fact_rank(const struct scheduler_world *w, const char *name, struct scheduler_facts *f,
              struct cr_error *err);
int fact_workers(const struct scheduler_world *w, const char *name, struct scheduler_facts *f,
                 struct cr_error *err);
/* Copies `text`, cut to the room of `out`. */
void fact_copy(char *out, size_t cap, const char *text);

/* Chooses a port between 15000 and 31383 from the job's id. All nodes compute the same port, and
 * two jobs on one host have different ports with high probability. The range is below the ports
 * that Linux gives to outgoing connections (32768 and up). */
uint16_t fact_port_of(const char *job_id);

/* ---- host_list.c ---- */

/* Copies the first host of a list to `out` (CR_HOST_MAX bytes). The hosts are separated by commas,
 * blanks or newlines; brackets are expanded as in Slurm: "gpu[001-004,7],login" begins with
 * "gpu001". Returns 0; or -EINVAL if the list is empty, malformed or has too long a name. */
int host_list_first(const char *list, char out[CR_HOST_MAX]);
/* Returns how many hosts a list without brackets has. */
uint32_t host_list_count(const char *list);
/* Returns the position, from 0, of `host` in a list without brackets, or -1. A name matches if it
 * is equal up to the first dot of either. */
int64_t host_list_find(const char *list, const char *host);

/* ---- one function per scheduler ---- */

/* A finder returns 1 and fills in *f if its scheduler started this launcher, 0 if it did not, or a
 * negative errno and a text in err. On entry *f says that nothing is known. */
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
