/* What is executed for each worker: an executable, or Python with a script.
 *
 *   --run-path             PYTHON -u -c <bootstrap> PROGRAM args   (beats --no-python)
 *   --no-python            PROGRAM args, found through PATH
 *   --module               PYTHON -u -m PROGRAM args
 *   otherwise, by what PROGRAM is
 *     *.py                 PYTHON -u PROGRAM args, whatever its mode bits
 *     ELF, or a script whose #! line names something other than Python
 *                          or the launcher: PROGRAM args
 *     anything else        PYTHON -u PROGRAM args, as torchrun does (a Python script without
 *                          suffix, a folder or archive with a __main__)
 *     no such file, no '/' PROGRAM args, found through PATH
 *
 * A script whose #! line starts crun or torchrun is given to Python: executing it would start crun
 * again.
 *
 * PYTHON is $PYTHON_EXEC, else python3, else python from PATH. A program that cannot be run is
 * reported here, before anything is started. */
#ifndef LAUNCHER_PROGRAM_H
#define LAUNCHER_PROGRAM_H

#include "base/error.h"

struct program_request {
    const char *program; /* as typed */
    char *const *args;   /* NULL-terminated */
    int module, no_python, run_path;
    const char *python_exec; /* $PYTHON_EXEC, or NULL */
    const char *path;        /* $PATH, or NULL for the usual folders */
    const char *self;        /* a path of our own executable, or NULL */
};

struct program {
    char **argv;       /* NULL-terminated; freed by program_done() */
    const char *title; /* the program as typed, for reports; belongs to the request */
};

/* Returns 0; or -ENOENT, -EACCES, -ENOEXEC, -EISDIR, -EINVAL, -ELOOP with a text that names the
 * program and the remedy. */
int program_resolve(const struct program_request *request, struct program *out,
                    struct cr_error *err);
void program_done(struct program *p);

#endif
