/* What crun does if a scheduler has started it: it reads the scheduler's variables, starts itself
 * on all nodes of a Slurm allocation, and lets one of several tasks of a node run the job. */
#ifndef LAUNCHER_SCHEDULER_START_H
#define LAUNCHER_SCHEDULER_START_H

#include "base/buffer.h"
#include "launcher/options/options.h"
#include "launcher/scheduler/scheduler.h"

/* Stores in *facts what the variables of this process's scheduler say; `lookup` returns a variable.
 * In three cases it reads nothing and sets facts->name to NULL: if --scheduler=none is given; if
 * crun runs under the name torchrun without --scheduler; and if crun runs inside a worker of
 * torchrun or crun (TORCHELASTIC_RUN_ID is set), because the variables of a worker describe the
 * launcher that started the worker. Returns 0; or a negative errno, and sets err. */
int scheduler_read(const struct options *options, const char *argv0, cr_getenv_fn lookup,
                   struct scheduler_facts *facts, struct cr_error *err);

/* Appends the text of --scheduler=show: the line about the scheduler, and the command line that
 * results from the options. Returns 0 or -ENOMEM. */
int scheduler_write(const struct options *options, const struct scheduler_choice *choice,
                    struct cr_buffer *out);

/* Replaces this process by srun, which starts the command line `argv` on each node. Does not return
 * on success. On failure, returns a negative errno and sets err. */
int scheduler_self_start(const struct scheduler_choice *choice, char *const *argv,
                         struct cr_error *err);

/* Lets one of the tasks of this node run the job. Returns 0 if this task is to run it. If another
 * task runs it, waits until that task has ended, stores its exit status in *status and returns 1.
 * On error, returns a negative errno and sets err. */
int scheduler_lead(const struct scheduler_facts *facts, int *status, struct cr_error *err);

#endif
