/* The command line of a job with several programs:
 *
 *     crun --nproc-per-node=2 trainer.py ARGS : --nproc-per-node=6 --role=rollout rollout.py ARGS
 *
 * Each node runs all of these programs. A word ":" ends the arguments of a program if the next word
 * is --nproc-per-node (-ppn, -n), --role, --on-failure or --service. Any other ":" is an argument,
 * so a program that takes a ":" is called as torchrun calls it. Behind a ":" stand only options
 * that each program has for itself; all other options describe the job and stand before the first
 * program.
 *
 * Pure. */
#ifndef LAUNCHER_PROGRAMS_H
#define LAUNCHER_PROGRAMS_H

#include "base/program/command_line.h"

#include <stdbool.h>

#define PROGRAMS_MAX 16 /* most programs of one job */

/* The options and words of a program behind a ":". The texts point into the words. */
struct program_line {
    const char *nproc, *role, *on_failure;
    bool is_service, module, no_python, run_path;
    const char *program; /* as the user typed it */
    char *const *args;   /* arguments of the program; NULL-terminated */
};

/* Ends `words` at the first ":" that stands before the options of a further program. Returns the
 * words behind this ":", or NULL if there is none. */
char **programs_split(char **words);

/* Parses one further program. `words` are the words behind its ":", whose order changes. They end
 * at NULL or at the ":" of the next program; *next is what programs_split() returns for them.
 * `number` is 2 for the second program and so on, for error texts. Returns 0; or -EINVAL, and sets
 * err. */
int programs_parse(char **words, unsigned number, struct program_line *out, char ***next,
                   struct cr_error *err);

#endif
