/* `crun top` becomes `crun-agent top`, which follows a job in a terminal. */
#ifndef LAUNCHER_TOP_H
#define LAUNCHER_TOP_H

#include "base/error.h"

#include <stdbool.h>

/* Returns whether the command line begins with `crun top` and means the command. It does not if the
 * program was called by another name, such as torchrun, or if there is a file `top` in the current
 * folder: torchrun would run that file. `called` is the name by which crun was called. */
bool top_is_meant(const char *called, char *const *words);

/* Executes crun-agent, which lies beside this program or in PATH. Returns only if that fails: a
 * negative errno, and sets err. */
int top_execute(char **words, struct cr_error *err);

#endif
