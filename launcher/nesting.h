/* Whether this crun may run where it was started.
 *
 * A worker may start a crun of its own. A program that starts crun on itself, such as the wrapper
 *
 *     #!/bin/sh
 *     exec crun --nproc-per-node=8 "$0"
 *
 * does so in each worker anew, and the machine is full within a minute. So crun looks at its
 * ancestors and refuses
 *
 *   - to be what one of them is already: the same arguments in the same folder, or
 *   - to be nested more than twice, which ends the programs that change an argument each time.
 *
 * The ancestors are asked, and no variable is left in the workers' environment, because that
 * would travel along with a job that a worker submits (sbatch), which is nested in nothing. An
 * ancestor is a crun if it has our executable and our name: an emulator may be the executable of
 * all processes. What cannot be read (another user's process) is taken for no crun. */
#ifndef LAUNCHER_NESTING_H
#define LAUNCHER_NESTING_H

#include "base/error.h"

/* `proc` is "/proc"; `program` is what the text is to name. 0, or -ELOOP with a text. */
int nesting_check(const char *proc, const char *program, struct cr_error *err);

#endif
