/* What crun does because a scheduler started it: reads the real environment for the finder, starts
 * itself on all nodes of a Slurm allocation, and lets one of several tasks of a node lead. */
#ifndef LAUNCHER_SCHEDULER_START_H
#define LAUNCHER_SCHEDULER_START_H

#include "base/buffer.h"
#include "launcher/scheduler_options.h"

/* Reads what the scheduler of this process says. Nothing is read, and facts->name is NULL, if
 * --scheduler=none is given, inside a worker of torchrun or crun (TORCHELASTIC_RUN_ID is set: its
 * variables of the scheduler belong to the launcher that started the worker), and by default if
 * crun runs under the name torchrun. Returns 0, or -EINVAL and a text in err. */
int scheduler_read(const struct options *options, const char *argv0, struct scheduler_facts *facts,
                   struct cr_error *err);

/* Appends the line about the scheduler and the command line that results from the options, for
 * --scheduler=show. Returns 0 or -ENOMEM. */
int scheduler_write(const struct options *options, const struct scheduler_choice *choice,
                    struct cr_buffer *out);

/* Replaces this process by an srun that starts the command line `argv` on each of the nodes. It
 * returns only if that fails: a negative errno, and a text in err. */
int scheduler_self_start(const struct scheduler_choice *choice, char *const *argv,
                         struct cr_error *err);

/* Lets one of the tasks of this node lead. Returns 0 if this process shall run the job, 1 if the
 * leader has run it (*status is its exit status), or a negative errno and a text in err. */
int scheduler_lead(const struct scheduler_facts *facts, int *status, struct cr_error *err);

#endif
