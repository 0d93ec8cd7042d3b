/* What crun does if a scheduler has started it: crun reads the scheduler's variables, starts itself
 * on all nodes of a Slurm allocation, and lets one of several tasks of a node run the job. */
#ifndef LAUNCHER_SCHEDULER_START_H
#define LAUNCHER_SCHEDULER_START_H

#include "base/buffer.h"
#include "launcher/options/options.h"
#include "launcher/scheduler/scheduler.h"

/* Reads what the scheduler of this process says; `lookup` returns its variables. Nothing is read,
 * and facts->name is NULL, in three cases: --scheduler=none is given; crun runs under the name
 * torchrun and --scheduler is not given; or crun runs inside a worker of torchrun or crun
 * (TORCHELASTIC_RUN_ID is set), where the scheduler's variables describe the launcher that started
 * the worker. Returns 0; or a negative errno, and sets err. */
int scheduler_read(const struct options *options, const char *argv0, cr_getenv_fn lookup,
                   struct scheduler_facts *facts, struct cr_error *err);

/* For --scheduler=show: appends the line about the scheduler, and the command line that results
 * from the options. Returns 0 or -ENOMEM. */
int scheduler_write(const struct options *options, const struct scheduler_choice *choice,
                    struct cr_buffer *out);

/* Replaces this process by an srun that starts the command line `argv` on each node. The function
 * returns only if this fails; then it returns a negative errno and sets err. */
int scheduler_self_start(const struct scheduler_choice *choice, char *const *argv,
                         struct cr_error *err);

/* Lets one of the tasks of this node run the job. Returns 0 if this process is to run the job. If
 * another task leads, waits until it has ended, stores its exit status in *status and returns 1. On
 * error, returns a negative errno and sets err. */
int scheduler_lead(const struct scheduler_facts *facts, int *status, struct cr_error *err);

#endif
