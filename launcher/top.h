/* `crun top` executes `crun-agent top`, which shows a running job in a terminal. */
#ifndef LAUNCHER_TOP_H
#define LAUNCHER_TOP_H

#include "base/error.h"

#include <stdbool.h>

/* Returns true if the command line is the command `crun top`. `called` is the name by which crun
 * was called: if it is another one, such as torchrun, the result is false. It is also false if the
 * current folder has a file `top`, because torchrun would run this file as the program. */
bool top_is_meant(const char *called, char *const *words);

/* Executes crun-agent, which is searched in the folder of this program and in PATH. Does not return
 * on success. On failure, returns a negative errno and sets err. */
int top_execute(char **words, struct cr_error *err);

#endif
