/* Detects that crun starts itself again and again without end, so that crun can refuse to run.
 *
 * A worker may start another crun. But if a program starts crun on itself, as in
 *
 *     #!/bin/sh
 *     exec crun --nproc-per-node=8 "$0"
 *
 * each worker of this program starts crun again, and within a minute the machine can start no more
 * processes. So crun checks its ancestors and refuses to run
 *
 *   - if one of them is a crun with the same arguments in the same folder, or
 *   - if more than two of them are cruns, because a program may change an argument each time.
 *
 * The ancestors are found in /proc. A mark in the workers' environment would not be reliable: a job
 * that a worker submits to a scheduler inherits the environment, but does not run inside this job.
 * An ancestor counts as a crun if both its executable and its process name (comm) are those of this
 * process. The process name is compared because under an emulator all processes have the same
 * executable. An ancestor whose files in /proc cannot be read does not count as a crun. */
#ifndef LAUNCHER_NESTING_H
#define LAUNCHER_NESTING_H

#include "base/error.h"

/* Checks the ancestors of this process. `proc` is "/proc" except in tests. `program` is the job's
 * program, for the error text. Returns 0; or -ELOOP, and sets err, if crun must not run. */
int nesting_check(const char *proc, const char *program, struct cr_error *err);

#endif
