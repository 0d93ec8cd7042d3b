/* Chooses the program that each worker executes, and its arguments: implements
 * launcher/program.h. */
#include "launcher/program.h"

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/files/error_json.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEAD_MAX     256 /* bytes that are read from the start of a file; Linux reads the same
                          * number to find a #! line */
#define DEFAULT_PATH "/usr/local/bin:/usr/bin:/bin"

/* The Python program of --run-path. It runs the script argv[1] as __main__; the words after argv[1]
 * are the script's arguments. If an exception other than SystemExit and KeyboardInterrupt ends the
 * script, the program writes an error record (base/files/error_json.h) into the error file. The
 * text must not contain '$', because the agent expands '$' in all arguments of a worker
 * (base/text/template.h). */
static const char run_path_bootstrap[] =
    "import faulthandler, json, os, runpy, sys, time, traceback\n"
    "faulthandler.enable()\n"
    "sys.argv = sys.argv[1:]\n"
    "try:\n"
    "    runpy.run_path(sys.argv[0], run_name='__main__')\n"
    "except Exception as e:\n"
    "    path = os.environ.get('TORCHELASTIC_ERROR_FILE')\n"
    "    if path:\n"
    "        with open(path, 'w') as f:\n"
    "            f.write('''" CR_ERROR_JSON_HEAD "'''\n"
    "                    + json.dumps(f'{type(e).__name__}: {e}')\n"
    "                    + '''" CR_ERROR_JSON_STACK "'''\n"
    "                    + json.dumps(traceback.format_exc())\n"
    "                    + '''" CR_ERROR_JSON_TIME "''' + str(int(time.time()))\n"
    "                    + '''" CR_ERROR_JSON_TAIL "''')\n"
    "    raise\n";

enum program_kind { KIND_EXECUTABLE, KIND_PYTHON, KIND_ABSENT };

/* ---- finding an executable in PATH ---- */

static int is_executable_file(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

static int fail_no_memory(struct cr_error *err) {
    return cr_fail(err, -ENOMEM, "no memory left to find the program");
}

/* Searches the folders of `path`, which has the form of $PATH, for an executable file `name`; an
 * empty entry of `path` means the current folder. Sets *out to the file's path, which the caller
 * frees, or to NULL if there is no such file. Returns 0; or -ENOMEM, and sets err. */
static int search_path(const char *name, const char *path, char **out, struct cr_error *err) {
    if (path == NULL) path = DEFAULT_PATH;
    for (;;) {
        int n = (int) strcspn(path, ":");
        *out = n == 0 ? cr_asprintf("./%s", name) : cr_asprintf("%.*s/%s", n, path, name);
        if (*out == NULL) return fail_no_memory(err);
        if (is_executable_file(*out)) return 0;
        free(*out);
        *out = NULL;
        if (path[n] == '\0') return 0;
        path += n + 1;
    }
}

static int fail_path(const char *program, struct cr_error *err) {
    int code = -errno;
    return cr_fail(err, code, "cannot run '%.200s': %s; check the path%s", program, strerror(-code),
                   code == -EACCES ? ", and who may enter the folders on it" : "");
}

/* Finds an executable as execvp(3) does: a name with a slash is a path; a name without one is
 * searched in the folders of `path`. Returns the file's path, which the caller frees; or NULL, and
 * sets err. */
static char *find_executable(const char *name, const char *path, struct cr_error *err) {
    struct stat st;
    if (strchr(name, '/') == NULL) {
        char *file = NULL;
        if (search_path(name, path, &file, err) == 0 && file == NULL) {
            (void) cr_fail(err, -ENOENT,
                           "cannot find '%.200s' in PATH; check the name, or write it with a path, "
                           "such as './%.100s'",
                           name, name);
        }
        return file;
    }
    if (stat(name, &st) != 0) {
        (void) fail_path(name, err);
    } else if (S_ISDIR(st.st_mode)) {
        (void) cr_fail(err, -EISDIR, "cannot run '%.200s': it is a folder; name a program", name);
    } else if (access(name, X_OK) != 0) {
        (void) cr_fail(err, -EACCES, "cannot run '%.200s': not executable; try: chmod +x '%.200s'",
                       name, name);
    } else {
        char *copy = strdup(name);
        if (copy == NULL) (void) fail_no_memory(err);
        return copy;
    }
    return NULL;
}

/* ---- finding Python ---- */

#define LINKS_MAX 40 /* largest number of symbolic links, each pointing to the next one, that are
                      * followed; Linux has the same limit */

/* Returns the length of the part of `path` that names the folder, with its slash; 0 if `path` has
 * no slash. */
static int folder_len(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash == NULL ? 0 : (int) (slash - path) + 1;
}

/* Looks for an executable file `name` in the folder in which the file `beside` is. Returns its
 * path, which the caller frees; or NULL if there is no such file. */
static char *file_beside(const char *beside, const char *name) {
    char *file = cr_asprintf("%.*s%s", folder_len(beside), beside, name);
    if (file != NULL && is_executable_file(file)) return file;
    free(file);
    return NULL;
}

/* Returns 1 if `file` is in the bin folder of a Python environment (a virtual one or one of conda),
 * else 0. */
static int is_in_environment(const char *file) {
    static const char *const marks[] = {"pyvenv.cfg", "conda-meta"};
    for (size_t i = 0; i < CR_ARRAY_LEN(marks); i++) {
        CR_AUTO_FREE char *mark = cr_asprintf("%.*s../%s", folder_len(file), file, marks[i]);
        if (mark != NULL && access(mark, F_OK) == 0) return 1;
    }
    return 0;
}

/* Returns the path to which the symbolic link `file` points, which the caller frees; or NULL if
 * `file` is no symbolic link. */
static char *follow_link(const char *file) {
    char target[4096];
    ssize_t n = readlink(file, target, sizeof(target));
    if (n <= 0 || n == (ssize_t) sizeof(target)) return NULL;
    int is_absolute = target[0] == '/';
    return cr_asprintf("%.*s%.*s", is_absolute ? 0 : folder_len(file), file, (int) n, target);
}

/* Returns the path of the Python in the environment from whose bin folder crun was called; the
 * caller frees it. Returns NULL if there is none. If crun was called through symbolic links, checks
 * the folder of each link, and then the folder of the file itself. */
static char *find_own_python(const struct program_request *r) {
    char *file = NULL, *python = NULL;
    if (r->called == NULL || r->called[0] == '\0') return NULL;
    if (strchr(r->called, '/') != NULL) file = strdup(r->called);
    else (void) search_path(r->called, r->path, &file, NULL);
    for (int i = 0; i < LINKS_MAX && file != NULL && python == NULL; i++) {
        if (is_in_environment(file)) {
            python = file_beside(file, "python3");
            if (python == NULL) python = file_beside(file, "python");
        }
        char *next = follow_link(file);
        free(file);
        file = next;
    }
    free(file);
    return python;
}

static char *find_python(const struct program_request *r, struct cr_error *err) {
    if (r->python_exec != NULL && r->python_exec[0] != '\0') {
        char *file = find_executable(r->python_exec, r->path, err);
        if (file == NULL) (void) cr_wrap(err, "PYTHON_EXEC");
        return file;
    }
    char *file = find_own_python(r);
    if (file != NULL) return file;
    int rc = search_path("python3", r->path, &file, err);
    if (rc == 0 && file == NULL) rc = search_path("python", r->path, &file, err);
    if (rc == 0 && file == NULL) {
        (void) cr_fail(err, -ENOENT,
                       "cannot run '%.200s': it needs Python, and PATH has neither python3 nor "
                       "python; set PYTHON_EXEC to an interpreter",
                       r->program);
    }
    return file;
}

/* ---- classifying the file of the program ---- */

static int ends_with(const char *text, const char *suffix) {
    size_t n = strlen(text), m = strlen(suffix);
    return n > m && strcmp(text + n - m, suffix) == 0;
}

static const char *last_part(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

/* Reads `word`, an option of env(1) in a #! line. Sets *takes_next to 1 if the next word is the
 * value of this option, else to 0. If `word` also contains the first word of the command, as
 * "-Spython3" does, returns that part of `word`, else NULL. */
static char *read_env_option(char *word, int *takes_next) {
    *takes_next = strcmp(word, "--unset") == 0 || strcmp(word, "--chdir") == 0;
    if (strncmp(word, "--split-string=", 15) == 0) return word + 15;
    if (word[1] == '-') return NULL;
    size_t n = strcspn(word, "uCS"); /* env's options with a value: -u, -C, -S */
    if (word[n] == 'S' && word[n + 1] != '\0') return word + n + 1;
    *takes_next = (word[n] == 'u' || word[n] == 'C') && word[n + 1] == '\0';
    return NULL;
}

/* Returns the interpreter that a #! line names, or NULL if it names none. It is the first word of
 * the line. But if that word is env(1), it is the program that env would start: the first word that
 * is no option, no value of an option and no assignment. The result points into `line`, which is
 * changed. */
static const char *interpreter_of(char *line) {
    static const char blanks[] = " \t\"'"; /* quotes can surround the words of env -S, so they are
                                            * skipped as blanks are */
    char *save = NULL;
    int is_value = 0;
    line[strcspn(line, "\r\n")] = '\0';
    char *word = strtok_r(line + 2, blanks, &save);
    if (word == NULL || strcmp(last_part(word), "env") != 0) return word;
    while ((word = strtok_r(NULL, blanks, &save)) != NULL) {
        int skip = is_value;
        is_value = 0;
        if (!skip && word[0] == '-') word = read_env_option(word, &is_value);
        if (skip || word == NULL || strchr(word, '=') != NULL) continue;
        if (strcmp(last_part(word), "env") != 0) return word;
    }
    return NULL;
}

static int is_python(const char *interpreter) {
    const char *name = last_part(interpreter);
    return strncmp(name, "python", 6) == 0 || strncmp(name, "pypy", 4) == 0;
}

static int is_same_file(const char *a, const char *b) {
    struct stat x, y;
    return a != NULL && b != NULL && stat(a, &x) == 0 && stat(b, &y) == 0 &&
           x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* Returns 1 if the interpreter is crun or torchrun, else 0. It is if it has one of these names, or
 * if it is the same file as the running executable, for example a link to that file. An interpreter
 * without a slash is looked up in two ways: as a path, as the kernel does, and in PATH, as env(1)
 * does. */
static int is_launcher(const char *interpreter, const struct program_request *r) {
    const char *name = last_part(interpreter);
    if (strcmp(name, "crun") == 0 || strcmp(name, "torchrun") == 0) return 1;
    if (is_same_file(interpreter, r->self)) return 1;
    CR_AUTO_FREE char *file = NULL;
    if (name == interpreter) (void) search_path(name, r->path, &file, NULL);
    return is_same_file(file, r->self);
}

/* Returns 1 if a script with the #! line `head` is run by Python, 0 if it is executed. Python runs
 * the script if the line names Python, crun or torchrun. In the last two cases, to execute the
 * script would start crun again and again; and torchrun runs every script with Python. */
static int is_for_python(const char *head, const struct program_request *r) {
    char line[HEAD_MAX + 1];
    memcpy(line, head, sizeof(line));
    const char *interpreter = interpreter_of(line);
    return interpreter != NULL && (is_python(interpreter) || is_launcher(interpreter, r));
}

/* Reads the first bytes of a regular file, at most HEAD_MAX, into head[] and appends a NUL. Returns
 * the number of bytes, or -1 if the file is not regular or cannot be read. */
static ssize_t read_head(const char *file, char head[HEAD_MAX + 1]) {
    struct stat st;
    int is_regular = stat(file, &st) == 0 && S_ISREG(st.st_mode);
    CR_AUTO_FD int fd = is_regular ? open(file, O_RDONLY | O_CLOEXEC) : -1;
    ssize_t len = fd < 0 ? -1 : read(fd, head, HEAD_MAX);
    head[len < 0 ? 0 : len] = '\0';
    return len;
}

/* Returns 1 if `file` is a script whose #! line names crun or torchrun, so that to execute it would
 * start crun again; else 0. */
static int starts_launcher(const char *file, const struct program_request *r) {
    char head[HEAD_MAX + 1];
    if (read_head(file, head) < 3 || memcmp(head, "#!", 2) != 0) return 0;
    const char *interpreter = interpreter_of(head);
    return interpreter != NULL && is_launcher(interpreter, r);
}

static int fail_mode(const char *program, struct cr_error *err) {
    return cr_fail(err, -EACCES, "cannot run '%.200s': not executable; try: chmod +x '%.200s'",
                   program, program);
}

/* Decides whether a file without the suffix .py is executed or run by Python. `head` has the first
 * `len` bytes of the file. ELF files, scripts for other interpreters, and files in an unknown
 * binary format are executed; all others are run by Python. Returns 0; or -EACCES, and sets err, if
 * a file that must be executed has no execute permission. */
static int classify_head(const struct program_request *r, const char *head, size_t len,
                         enum program_kind *kind, struct cr_error *err) {
    const char *program = r->program;
    int executable = access(program, X_OK) == 0;
    int is_elf = len >= 4 && memcmp(head, "\177ELF", 4) == 0;
    int is_script = len >= 2 && memcmp(head, "#!", 2) == 0;
    int is_archive = len >= 4 && memcmp(head, "PK\003\004", 4) == 0;
    int is_binary = memchr(head, '\0', len) != NULL;

    *kind = KIND_PYTHON;
    if (is_elf || (is_script && !is_for_python(head, r))) {
        if (!executable) return fail_mode(program, err);
        *kind = KIND_EXECUTABLE;
    } else if (is_binary && !is_archive && !ends_with(program, ".pyc")) {
        /* binfmt_misc can perhaps execute a file in an unknown format */
        if (!executable) return fail_mode(program, err);
        *kind = KIND_EXECUTABLE;
    }
    return 0;
}

static int classify_folder(const char *program, enum program_kind *kind, struct cr_error *err) {
    CR_AUTO_FREE char *main_file = cr_asprintf("%s/__main__.py", program);
    if (main_file == NULL) return fail_no_memory(err);
    if (access(main_file, R_OK) != 0) {
        return cr_fail(err, -EISDIR,
                       "cannot run '%.200s': it is a folder without a __main__.py; name a program",
                       program);
    }
    *kind = KIND_PYTHON;
    return 0;
}

static int classify(const struct program_request *r, enum program_kind *kind,
                    struct cr_error *err) {
    const char *program = r->program;
    struct stat st;
    if (stat(program, &st) != 0) {
        if (errno == ENOENT || errno == ENOTDIR) return *kind = KIND_ABSENT, 0;
        return fail_path(program, err);
    }
    if (S_ISDIR(st.st_mode)) return classify_folder(program, kind, err);
    *kind = KIND_PYTHON;
    /* A file that is not regular may be a pipe. Its bytes are not read here, because they can be
     * read only once and Python must read them. */
    if (ends_with(program, ".py") || !S_ISREG(st.st_mode)) return 0;

    char head[HEAD_MAX + 1] = "";
    CR_AUTO_FD int fd = open(program, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == EACCES && access(program, X_OK) == 0) {
        /* The user may execute the file but not read it, so Python could not run it. */
        *kind = KIND_EXECUTABLE;
        return 0;
    }
    ssize_t len = fd < 0 ? -1 : read(fd, head, HEAD_MAX);
    if (len < 0) {
        return cr_fail(err, -errno, "cannot read '%.200s': %s; make it readable: chmod +r '%.200s'",
                       program, strerror(errno), program);
    }
    return classify_head(r, head, (size_t) len, kind, err);
}

static int fail_absent(const char *program, struct cr_error *err) {
    if (strchr(program, '/') != NULL || ends_with(program, ".py")) {
        return cr_fail(err, -ENOENT,
                       "cannot run '%.200s': no such file; check the path, relative ones start at "
                       "the current folder",
                       program);
    }
    return cr_fail(err, -ENOENT,
                   "cannot run '%.200s': neither a file in the current folder nor a program in "
                   "PATH; check the name, or use -m if it is a Python module",
                   program);
}

/* ---- the worker's argv ---- */

static int copy(char **argv, size_t *n, const char *text) {
    argv[*n] = strdup(text);
    return argv[*n] != NULL ? ++*n, 1 : 0;
}

/* Makes out->argv from `first`, the words of `prefix` (up to the first NULL) and the arguments of
 * the request. Takes ownership of `first`, also on error. Returns 0; or -ENOMEM, and sets err, also
 * if `first` is NULL because the caller could not allocate it. */
static int build(struct program *out, char *first, const char *const prefix[4],
                 const struct program_request *r, struct cr_error *err) {
    size_t n = 0, count = 6;
    while (r->args[count - 6] != NULL) count++;
    char **argv = first == NULL ? NULL : calloc(count + 1, sizeof(*argv));
    if (argv == NULL) {
        free(first);
        return cr_fail(err, -ENOMEM, "no memory left for the program's arguments");
    }
    argv[n++] = first;
    int complete = 1;
    for (size_t i = 0; i < 4 && prefix[i] != NULL; i++) complete &= copy(argv, &n, prefix[i]);
    for (char *const *arg = r->args; *arg != NULL; arg++) complete &= copy(argv, &n, *arg);
    out->argv = argv;
    out->title = r->program;
    if (complete) return 0;
    program_done(out);
    return cr_fail(err, -ENOMEM, "no memory left for the program's arguments");
}

static int build_python(struct program *out, const char *const prefix[4],
                        const struct program_request *r, struct cr_error *err) {
    struct cr_error reason = {0};
    char *python = find_python(r, &reason);
    if (python == NULL) return cr_fail(err, reason.code, "%s", reason.text);
    return build(out, python, prefix, r, err);
}

/* Checks that the interpreter in a script's #! line exists. If it did not, the kernel would say to
 * each worker only "No such file", as if the script were missing. If the script cannot be read,
 * returns 0: the kernel reports the error later. */
static int check_interpreter(const char *program, const char *file, struct cr_error *err) {
    char head[HEAD_MAX + 1];
    ssize_t len = read_head(file, head);
    if (len < 3 || memcmp(head, "#!", 2) != 0) return 0;

    char *name = head + 2 + strspn(head + 2, " \t");
    char *end = name + strcspn(name, " \t\n");
    if (end == head + len || end == name) return 0; /* the line is longer than HEAD_MAX, or names no
                                                     * interpreter */
    *end = '\0';
    if (access(name, X_OK) == 0) return 0;
    int code = -errno;
    if (end[-1] == '\r') {
        end[-1] = '\0';
        return cr_fail(err, code,
                       "cannot run '%.200s': its #! line, '%.200s', ends in a carriage return, as "
                       "on Windows; try: sed -i 's/\\r$//' '%.200s'",
                       program, name, file);
    }
    return cr_fail(err, code,
                   "cannot run '%.200s': the interpreter '%.200s' that its #! line names: %s; "
                   "correct the line, or install the interpreter",
                   program, name, strerror(-code));
}

static int build_executable(struct program *out, char *file, const struct program_request *r,
                            struct cr_error *err) {
    int rc = file == NULL ? 0 : check_interpreter(r->program, file, err);
    if (rc < 0) {
        free(file);
        return rc;
    }
    return build(out, file, (const char *const[4]){NULL}, r, err);
}

static int resolve_by_kind(struct program *out, const struct program_request *r,
                           struct cr_error *err) {
    enum program_kind kind = KIND_PYTHON;
    /* With the PROGRAM "-", Python reads the script from stdin. A file with this name must be given
     * as "./-". */
    int reads_stdin = strcmp(r->program, "-") == 0;
    int rc = reads_stdin ? 0 : classify(r, &kind, err);
    if (rc < 0) return rc;
    if (kind != KIND_ABSENT) {
        /* Python would read a file name such as "-x" as an option, so Python is given "./-x". */
        int is_like_option = r->program[0] == '-' && !reads_stdin;
        CR_AUTO_FREE char *path = cr_asprintf("%s%s", is_like_option ? "./" : "", r->program);
        if (path == NULL) return fail_no_memory(err);
        return kind == KIND_PYTHON ? build_python(out, (const char *const[4]){"-u", path}, r, err)
                                   : build_executable(out, strdup(path), r, err);
    }

    CR_AUTO_FREE char *file = NULL;
    int is_name = strchr(r->program, '/') == NULL && r->program[0] != '\0';
    if (is_name) rc = search_path(r->program, r->path, &file, err);
    if (rc < 0) return rc;
    if (file == NULL) return fail_absent(r->program, err);
    if (starts_launcher(file, r)) {
        return build_python(out, (const char *const[4]){"-u", file}, r, err);
    }
    return build_executable(out, strdup(file), r, err);
}

static int resolve_no_python(struct program *out, const struct program_request *r,
                             struct cr_error *err) {
    struct cr_error reason = {0};
    char *file = find_executable(r->program, r->path, &reason);
    if (file == NULL) return cr_fail(err, reason.code, "%s", reason.text);
    if (!starts_launcher(file, r)) return build_executable(out, file, r, err);
    free(file);
    return cr_fail(err, -ELOOP,
                   "cannot run '%.200s' as an executable: its #! line starts the launcher, so that "
                   "each worker would be one more; leave out --no-python, and Python runs it",
                   r->program);
}

int program_resolve(const struct program_request *r, struct program *out, struct cr_error *err) {
    if (r->run_path) {
        enum program_kind kind;
        int rc = classify(r, &kind, err);
        if (rc == 0 && kind == KIND_ABSENT) rc = fail_absent(r->program, err);
        if (rc < 0) return rc;
        return build_python(out, (const char *const[4]){"-u", "-c", run_path_bootstrap, r->program},
                            r, err);
    }
    if (r->no_python && r->module) {
        return cr_fail(err, -EINVAL,
                       "Don't use both the '--no-python' flag and the '--module' flag at the same "
                       "time; a module needs Python");
    }
    if (r->no_python) return resolve_no_python(out, r, err);
    if (r->module) return build_python(out, (const char *const[4]){"-u", "-m", r->program}, r, err);
    return resolve_by_kind(out, r, err);
}

void program_done(struct program *p) {
    if (p->argv == NULL) return;
    for (char **arg = p->argv; *arg != NULL; arg++) free(*arg);
    free(p->argv);
    p->argv = NULL;
}
