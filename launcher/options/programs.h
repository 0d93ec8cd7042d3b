/* Splits and parses the command line of a job with several programs:
 *
 *     crun --nproc-per-node=2 trainer.py ARGS : --nproc-per-node=6 --role=rollout rollout.py ARGS
 *
 * Each node runs all of these programs. A word ":" ends the arguments of a program if the next word
 * is --nproc-per-node (-ppn, -n), --role, --on-failure or --service. Any other ":" is an argument
 * of the program, as in torchrun. Each program can have these four options and -m, --no-python and
 * --run-path for itself, so they may stand behind a ":". All other options describe the job, and
 * stand before the first program.
 *
 * Pure. */
#ifndef LAUNCHER_PROGRAMS_H
#define LAUNCHER_PROGRAMS_H

#include "base/program/command_line.h"

#include <stdbool.h>

#define PROGRAMS_MAX 16 /* largest number of programs of one job */

/* The options and arguments of a program behind a ":". The texts point into the words of the
 * command line. */
struct program_line {
    const char *nproc, *role, *on_failure;
    bool is_service, module, no_python, run_path;
    const char *program; /* as the user typed it */
    char *const *args;   /* arguments of the program; NULL-terminated */
};

/* Cuts the words of the first program from a command line: replaces by NULL the first ":" in
 * `words` that the options of a further program follow. Returns the words behind this ":", or NULL
 * if there is none. */
char **programs_split(char **words);

/* Parses the words of one program behind a ":", up to the next such ":" or to NULL; may change
 * their order. Sets *next to the result of programs_split() for `words`. `number` is 2 for the
 * second program and so on; it stands in error texts. Returns 0; or -EINVAL, and sets err. */
int programs_parse(char **words, unsigned number, struct program_line *out, char ***next,
                   struct cr_error *err);

#endif
