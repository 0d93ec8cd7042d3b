/* Decides what each worker executes: PROGRAM itself, or Python with PROGRAM as its script.
 *
 *   --run-path             PYTHON -u -c <bootstrap> PROGRAM args   (beats --no-python)
 *   --no-python            PROGRAM args, found through PATH
 *   --module               PYTHON -u -m PROGRAM args
 *   none of these, and PROGRAM is
 *     *.py                 PYTHON -u PROGRAM args, whatever its mode bits
 *     ELF, or a script whose #! line names something other than Python
 *                          or the launcher: PROGRAM args
 *     anything else        PYTHON -u PROGRAM args, as torchrun does (a Python script without
 *                          suffix, a folder or archive with a __main__)
 *     no such file, no '/' PROGRAM args, found through PATH
 *
 * A script whose #! line names crun or torchrun is run by Python, because to execute that script
 * would start crun again.
 *
 * PYTHON is the first of these that exists:
 *
 *   - $PYTHON_EXEC
 *   - the Python of the environment in whose bin folder crun was called. An environment is a
 *     virtual one (it has a pyvenv.cfg) or one of conda (it has a conda-meta). A torchrun in such a
 *     folder also runs the Python of its environment, whether the environment is activated or not.
 *   - python3 from PATH, or else python. That is the Python of an activated environment.
 *
 * If the program cannot be run, this is reported here, before any worker starts. */
#ifndef LAUNCHER_PROGRAM_H
#define LAUNCHER_PROGRAM_H

#include "base/error.h"

struct program_request {
    const char *program; /* PROGRAM as the user typed it */
    char *const *args;   /* arguments of PROGRAM; NULL-terminated */
    int module, no_python, run_path; /* 1 if the option with the field's name is given, else 0 */
    const char *python_exec; /* $PYTHON_EXEC, or NULL */
    const char *path;        /* $PATH; if NULL, DEFAULT_PATH of program.c is used */
    const char *self;        /* path of crun's own executable, with which interpreters are compared;
                              * NULL = unknown */
    const char *called;      /* argv[0]: how crun was called; NULL = unknown */
};

struct program {
    char **argv;       /* NULL-terminated; freed by program_done() */
    const char *title; /* name of the program in failure reports; points to request->program */
};

/* Fills in *out. Returns 0; or a negative errno such as -ENOENT, -EACCES, -EISDIR, -EINVAL or
 * -ELOOP, and sets err to a text that names the program and the remedy. */
int program_resolve(const struct program_request *request, struct program *out,
                    struct cr_error *err);
void program_done(struct program *p);

#endif
