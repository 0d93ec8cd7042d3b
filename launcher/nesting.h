/* Refuses to run where crun would start itself without end.
 *
 * A worker may start another crun. But a program that starts crun on itself, such as the wrapper
 *
 *     #!/bin/sh
 *     exec crun --nproc-per-node=8 "$0"
 *
 * does it again in each worker, and within a minute the machine has no room for processes. So crun
 * looks at its ancestors and refuses to run
 *
 *   - if one of them is a crun with the same arguments in the same folder, or
 *   - if more than two of them are cruns, which stops programs that change an argument each time.
 *
 * It looks at /proc instead of leaving a mark in the workers' environment: a job that a worker
 * submits to a scheduler inherits the environment, but does not run inside of this job. An
 * ancestor counts as a crun if its executable and its name are ours; the executable alone would
 * not do, because under an emulator it is the same for all processes. A process that we may not
 * read counts as none. */
#ifndef LAUNCHER_NESTING_H
#define LAUNCHER_NESTING_H

#include "base/error.h"

/* `proc` is "/proc" except in tests; `program` is named in the text. Returns 0, or -ELOOP with a
 * text. */
int nesting_check(const char *proc, const char *program, struct cr_error *err);

#endif
