/* `crun top` becomes `crun-agent top`, which follows a job in a terminal. */
#ifndef LAUNCHER_TOP_H
#define LAUNCHER_TOP_H

#include "base/error.h"

#include <stdbool.h>

/* Returns whether the command line is the command `crun top`. It is not if the program was called
 * by another name, such as torchrun; nor if the current folder has a file `top`, which torchrun
 * would run as the program. `called` is the name by which crun was called. */
bool top_is_meant(const char *called, char *const *words);

/* Executes crun-agent, which lies beside this program or in PATH. Returns only if that fails: a
 * negative errno, and sets err. */
int top_execute(char **words, struct cr_error *err);

#endif
