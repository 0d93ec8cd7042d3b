/* Tests of program_resolve(): what is executed for each kind of file that a user may give as
 * PROGRAM. The test creates such files in a temporary folder. */
#include "launcher/program.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/crun-program-XXXXXX";
static struct program p;
static struct cr_error err;

static void make(const char *name, const void *bytes, size_t len, mode_t mode) {
    FILE *f = fopen(name, "wb");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(bytes, 1, len, f), len);
    (void) fclose(f);
    ck_assert_int_eq(chmod(name, mode), 0);
}

#define MAKE(name, text, mode) make(name, text, sizeof(text) - 1, mode)

static void setup(void) {
    ck_assert_ptr_nonnull(mkdtemp(folder));
    ck_assert_int_eq(chdir(folder), 0);
    ck_assert_int_eq(mkdir("bin", 0755), 0);
    MAKE("bin/python3", "#!/bin/sh\n", 0755);
    MAKE("bin/mypython", "#!/bin/sh\n", 0755);
    MAKE("bin/tool", "\177ELF....", 0755);
    MAKE("bin/noexec", "\177ELF....", 0644);
}

static void teardown(void) {
    program_done(&p);
    char command[128];
    ck_assert_int_eq(chdir("/"), 0);
    (void) snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    ck_assert_int_eq(system(command), 0);
}

static int resolve(const char *program, struct program_request r) {
    static char *args[] = {(char *) "a", (char *) "-b", NULL};
    program_done(&p);
    cr_error_clear(&err);
    r.program = program;
    r.args = args;
    if (r.path == NULL) r.path = "nowhere:bin";
    return program_resolve(&r, &p, &err);
}

#define RESOLVE(program, ...)                                                                      \
    resolve(program, (struct program_request){.args = NULL, ##__VA_ARGS__})

/* Returns the resolved argv as one line. */
static const char *line(void) {
    static char text[4096];
    text[0] = '\0';
    for (char **arg = p.argv; *arg != NULL; arg++) {
        (void) snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s",
                        arg == p.argv ? "" : " ", *arg);
    }
    return text;
}

#define RUNS(program, expected)                                                                    \
    do {                                                                                           \
        int rc_ = RESOLVE(program);                                                                \
        ck_assert_msg(rc_ == 0, "%s: %s", program, err.text);                                      \
        ck_assert_str_eq(line(), expected);                                                        \
    } while (0)

#define FAILS(code_, needle)                                                                       \
    do {                                                                                           \
        ck_assert_int_eq(err.code, code_);                                                         \
        ck_assert_msg(strstr(err.text, needle) != NULL, "'%s' not in: %s", needle, err.text);      \
    } while (0)

START_TEST(python_scripts) {
    MAKE("train.py", "print(1)\n", 0644);
    MAKE("trainx.py", "#!/bin/sh\n", 0755);
    RUNS("train.py", "bin/python3 -u train.py a -b");
    /* as in torchrun, a file with the suffix .py is run by Python, whatever its #! line says */
    RUNS("trainx.py", "bin/python3 -u trainx.py a -b");
    ck_assert_str_eq(p.title, "trainx.py");
    MAKE("script", "#!/usr/bin/env -S python3 -O\n", 0755);
    RUNS("script", "bin/python3 -u script a -b");
    /* the script needs no execute permission, because Python reads it */
    MAKE("script2", "#! /usr/bin/python3.11\n", 0644);
    RUNS("./script2", "bin/python3 -u ./script2 a -b");
    MAKE("text", "print(2)\n", 0644);
    RUNS("text", "bin/python3 -u text a -b");
    MAKE("empty", "", 0644);
    RUNS("empty", "bin/python3 -u empty a -b");
    MAKE("zipped", "PK\003\004\0\0\0", 0644);
    RUNS("zipped", "bin/python3 -u zipped a -b");
    MAKE("m.pyc", "\xa7\r\r\n\0\0\0\0", 0644);
    RUNS("m.pyc", "bin/python3 -u m.pyc a -b");
    ck_assert_int_eq(mkdir("package", 0755), 0);
    MAKE("package/__main__.py", "", 0644);
    RUNS("package", "bin/python3 -u package a -b");
    RUNS("-", "bin/python3 -u - a -b"); /* Python reads the program from stdin */
}
END_TEST

START_TEST(executables) {
    MAKE("prog", "\177ELF\2\1\1", 0755);
    RUNS("prog", "prog a -b");
    RUNS("./prog", "./prog a -b");
    MAKE("run.sh", "#!/bin/sh\n", 0755);
    RUNS("run.sh", "run.sh a -b");
    MAKE("env.pl", "#!/usr/bin/env FOO=1 perl\n", 0755);
    RUNS("env.pl", "env.pl a -b");
    MAKE("foreign", "MZ\0\0\0\0", 0755);
    RUNS("foreign", "foreign a -b");
    RUNS("tool", "bin/tool a -b"); /* tool is found through PATH */
    MAKE("-x", "#!/bin/sh\n", 0755);
    RUNS("-x", "./-x a -b");
    MAKE("-y", "print(1)\n", 0644);
    RUNS("-y", "bin/python3 -u ./-y a -b");
}
END_TEST

/* A script whose #! line names the launcher must be run by Python. If the launcher executed the
 * script, the script would start the launcher, and so on without end. */
START_TEST(scripts_that_start_the_launcher) {
    static const char *const heads[] = {
        "#!/usr/bin/env crun\n", "#!/usr/bin/env torchrun\n", "#! /usr/local/bin/torchrun\n",
        "#!crun\n", "#!/usr/bin/env -S crun --nproc-per-node=2\n",
        "#!/usr/bin/env -Scrun --nproc-per-node=2\n", "#!/usr/bin/env -vS crun --standalone\r\n",
        "#!/usr/bin/env -i -S A=1 B=2 /opt/bin/crun\n", "#!/usr/bin/env -S -u RANK crun\n",
        "#!/usr/bin/env -S -C /tmp --unset RANK crun\n", "#!/usr/bin/env -S -uRANK crun\n",
        "#!/usr/bin/env --split-string=crun --standalone\n",
        "#!/usr/bin/env -S 'crun' --no-python\n", "#!/usr/bin/env -S \"A=1\" env crun",
        "#!linked\n", "#!./linked -x\n", "#!/usr/bin/env -S in-path --nproc-per-node=2\n"};
    MAKE("own", "\177ELF....", 0755);
    ck_assert_int_eq(symlink("own", "linked"), 0);
    ck_assert_int_eq(link("own", "bin/in-path"), 0);
    for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
        make("train", heads[i], strlen(heads[i]), 0755);
        ck_assert_msg(RESOLVE("train", .self = "own") == 0, "%s: %s", heads[i], err.text);
        ck_assert_msg(strcmp(line(), "bin/python3 -u train a -b") == 0, "%s: %s", heads[i], line());
    }
    MAKE("bin/tool-of-crun", "#!/usr/bin/env crun\n", 0755); /* in a folder of PATH */
    RUNS("tool-of-crun", "bin/python3 -u bin/tool-of-crun a -b");
    ck_assert_int_lt(RESOLVE("tool-of-crun", .no_python = 1), 0);
    FAILS(-ELOOP, "cannot run 'tool-of-crun' as an executable: its #! line starts the launcher");
}
END_TEST

START_TEST(scripts_that_only_look_like_it) {
    static const char *const heads[] = {
        "#!/bin/sh crun\n", "#!/usr/bin/env -S sh crun\n", "#!/usr/bin/env -S -u crun sh\n",
        "#!/usr/bin/env -S --chdir crun sh\n", "#!/usr/bin/env crun=1 sh\n",
        "#!/bin/sh\ncrun\n", "#!/usr/bin/env crun-store\n", "#!/usr/bin/env\n",
        "#!/usr/bin/env -S\n", "#!other\n"};
    MAKE("own", "\177ELF....", 0755);
    MAKE("other", "\177ELF....", 0755);
    for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
        make("tool", heads[i], strlen(heads[i]), 0755);
        ck_assert_msg(RESOLVE("tool", .self = "own") == 0, "%s: %s", heads[i], err.text);
        ck_assert_msg(strcmp(line(), "tool a -b") == 0, "%s: %s", heads[i], line());
    }
    /* PROGRAM is the launcher itself, which is allowed */
    ck_assert_int_eq(RESOLVE("own", .self = "own"), 0);
    ck_assert_str_eq(line(), "own a -b");
}
END_TEST

START_TEST(what_cannot_run_is_told_apart) {
    MAKE("prog", "\177ELF\2\1\1", 0644);
    ck_assert_int_lt(RESOLVE("prog"), 0);
    FAILS(-EACCES, "not executable; try: chmod +x 'prog'");
    MAKE("run.sh", "#!/bin/bash -e\n", 0644);
    ck_assert_int_lt(RESOLVE("run.sh"), 0);
    FAILS(-EACCES, "chmod +x 'run.sh'");
    MAKE("blob", "\1\2\0\4", 0644);
    ck_assert_int_lt(RESOLVE("blob"), 0);
    FAILS(-EACCES, "chmod +x 'blob'");
    ck_assert_int_lt(RESOLVE("missing"), 0);
    FAILS(-ENOENT, "neither a file in the current folder nor a program in PATH");
    ck_assert_int_lt(RESOLVE("noexec"), 0);
    FAILS(-ENOENT, "'noexec'");
    ck_assert_int_lt(RESOLVE("./missing"), 0);
    FAILS(-ENOENT, "no such file");
    ck_assert_int_lt(RESOLVE("missing.py"), 0);
    FAILS(-ENOENT, "no such file");
    ck_assert_int_lt(RESOLVE("bin/tool/x"), 0);
    FAILS(-ENOENT, "no such file");
    ck_assert_int_lt(RESOLVE("bin"), 0);
    FAILS(-EISDIR, "folder without a __main__.py");
    ck_assert_int_lt(RESOLVE(""), 0);
    FAILS(-ENOENT, "''");
    char longest[6000];
    memset(longest, 'x', sizeof(longest));
    longest[sizeof(longest) - 1] = '\0';
    ck_assert_int_lt(RESOLVE(longest), 0);
    FAILS(-ENAMETOOLONG, "File name too long; check the path");
}
END_TEST

START_TEST(a_script_without_its_interpreter) {
    MAKE("moved", "#! /no/such/interpreter -x\n", 0755);
    ck_assert_int_lt(RESOLVE("./moved"), 0);
    FAILS(-ENOENT, "cannot run './moved': the interpreter '/no/such/interpreter' that its #! line");
    /* A file that is found through PATH is executed and not run by Python. So the missing
     * interpreter in its #! line is an error. */
    MAKE("bin/venv-tool", "#!/no/such/venv/bin/python\n", 0755);
    ck_assert_int_lt(RESOLVE("venv-tool"), 0);
    FAILS(-ENOENT, "cannot run 'venv-tool': the interpreter '/no/such/venv/bin/python'");
    ck_assert_int_lt(RESOLVE("venv-tool", .no_python = 1), 0);
    FAILS(-ENOENT, "/no/such/venv/bin/python");
    MAKE("windows", "#!/bin/sh\r\necho hi\r\n", 0755);
    ck_assert_int_lt(RESOLVE("./windows"), 0);
    FAILS(-ENOENT, "its #! line, '/bin/sh', ends in a carriage return, as on Windows; try: sed -i");
    MAKE("data", "", 0644);
    /* the kernel takes "data" in a #! line as a file of the current folder, here the empty file */
    MAKE("by-data", "#!data\n", 0755);
    ck_assert_int_lt(RESOLVE("./by-data"), 0);
    FAILS(-EACCES, "'data'");
    MAKE("bare", "#!\n", 0755);
    RUNS("bare", "bare a -b"); /* crun executes the file, and the kernel refuses it */
}
END_TEST

START_TEST(which_python) {
    MAKE("train.py", "", 0644);
    ck_assert_int_eq(RESOLVE("train.py", .python_exec = "mypython"), 0);
    ck_assert_str_eq(p.argv[0], "bin/mypython");
    ck_assert_int_eq(RESOLVE("train.py", .python_exec = "/bin/echo"), 0);
    ck_assert_str_eq(p.argv[0], "/bin/echo");
    ck_assert_int_eq(RESOLVE("train.py", .python_exec = ""), 0);
    ck_assert_str_eq(p.argv[0], "bin/python3");
    ck_assert_int_lt(RESOLVE("train.py", .python_exec = "nopython"), 0);
    FAILS(-ENOENT, "PYTHON_EXEC: cannot find 'nopython'");
    ck_assert_int_lt(RESOLVE("train.py", .python_exec = "/no/python"), 0);
    FAILS(-ENOENT,
          "PYTHON_EXEC: cannot run '/no/python': No such file or directory; check the path");
    ck_assert_int_lt(RESOLVE("train.py", .path = "empty"), 0);
    FAILS(-ENOENT, "set PYTHON_EXEC");
    ck_assert_int_eq(mkdir("old", 0755), 0);
    MAKE("old/python", "", 0755);
    ck_assert_int_eq(RESOLVE("train.py", .path = "empty:old"), 0);
    ck_assert_str_eq(p.argv[0], "old/python");
    MAKE("python3", "", 0755);
    /* an empty entry of PATH is the current folder */
    ck_assert_int_eq(RESOLVE("train.py", .path = "x::bin"), 0);
    ck_assert_str_eq(p.argv[0], "./python3");
}
END_TEST

START_TEST(modes) {
    ck_assert_int_eq(RESOLVE("pkg.mod", .module = 1), 0);
    ck_assert_str_eq(line(), "bin/python3 -u -m pkg.mod a -b");
    ck_assert_int_eq(RESOLVE("tool", .no_python = 1), 0);
    ck_assert_str_eq(line(), "bin/tool a -b");
    MAKE("here", "\177ELF", 0755);
    /* the file "here" is in the current folder, but execvp() searches only the folders in PATH */
    ck_assert_int_lt(RESOLVE("here", .no_python = 1), 0);
    FAILS(-ENOENT, "cannot find 'here' in PATH");
    ck_assert_int_eq(RESOLVE("./here", .no_python = 1), 0);
    MAKE("train.py", "", 0644);
    ck_assert_int_lt(RESOLVE("./train.py", .no_python = 1), 0);
    FAILS(-EACCES, "chmod +x");
    ck_assert_int_lt(RESOLVE("./bin", .no_python = 1), 0);
    FAILS(-EISDIR, "folder");
    ck_assert_int_lt(RESOLVE("x", .no_python = 1, .module = 1), 0);
    FAILS(-EINVAL,
          "Don't use both the '--no-python' flag and the '--module' flag at the same time");
    ck_assert_int_eq(RESOLVE("train.py", .run_path = 1, .no_python = 1, .module = 1), 0);
    ck_assert_str_eq(p.argv[1], "-u");
    ck_assert_str_eq(p.argv[2], "-c");
    /* the agent replaces $local_rank and the like in arguments, so this argument must have no
     * '$' */
    ck_assert_ptr_null(strchr(p.argv[3], '$'));
    ck_assert_str_eq(p.argv[4], "train.py");
    ck_assert_str_eq(p.argv[5], "a");
    ck_assert_int_lt(RESOLVE("absent.py", .run_path = 1), 0);
    FAILS(-ENOENT, "no such file");
}
END_TEST

/* Checks that the first word of the resolved argv is `python`. */
#define PYTHON_IS(python)                                                                          \
    do {                                                                                           \
        char want_[256];                                                                           \
        (void) snprintf(want_, sizeof(want_), "%s -u train.py a -b", python);                      \
        ck_assert_str_eq(line(), want_);                                                           \
    } while (0)

START_TEST(python_of_the_environment) {
    MAKE("train.py", "pass\n", 0644);
    ck_assert_int_eq(mkdir("venv", 0755) | mkdir("venv/bin", 0755) | mkdir("links", 0755), 0);
    MAKE("venv/bin/python", "#!/bin/sh\n", 0755);
    MAKE("venv/bin/crun", "\177ELF....", 0755);
    ck_assert_int_eq(symlink("../venv/bin/crun", "links/torchrun"), 0);
    ck_assert_int_eq(symlink("torchrun", "links/again"), 0);
    ck_assert_int_eq(RESOLVE("train.py", .called = "venv/bin/crun"), 0);
    PYTHON_IS("bin/python3"); /* a folder without pyvenv.cfg is no virtual environment of Python */

    MAKE("venv/pyvenv.cfg", "", 0644);
    ck_assert_int_eq(RESOLVE("train.py", .called = "venv/bin/crun"), 0);
    PYTHON_IS("venv/bin/python");
    MAKE("venv/bin/python3", "#!/bin/sh\n", 0755);
    ck_assert_int_eq(RESOLVE("train.py", .called = "venv/bin/crun"), 0);
    PYTHON_IS("venv/bin/python3");
    ck_assert_int_eq(RESOLVE("train.py", .called = "links/again"), 0);
    PYTHON_IS("links/../venv/bin/python3");
    ck_assert_int_eq(RESOLVE("train.py", .called = "crun", .path = "bin:venv/bin"), 0);
    PYTHON_IS("venv/bin/python3");
    ck_assert_int_eq(RESOLVE("train.py", .called = "elsewhere/crun"), 0);
    PYTHON_IS("bin/python3");
    ck_assert_int_eq(RESOLVE("train.py", .called = "venv/bin/crun", .python_exec = "mypython"), 0);
    PYTHON_IS("bin/mypython");

    ck_assert_int_eq(unlink("venv/pyvenv.cfg") | mkdir("venv/conda-meta", 0755), 0);
    ck_assert_int_eq(RESOLVE("train.py", .called = "venv/bin/crun"), 0);
    PYTHON_IS("venv/bin/python3");
}
END_TEST

int main(void) {
    Suite *s = suite_create("program");
    TCase *t = tcase_create("resolve");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, python_scripts);
    tcase_add_test(t, executables);
    tcase_add_test(t, scripts_that_start_the_launcher);
    tcase_add_test(t, scripts_that_only_look_like_it);
    tcase_add_test(t, what_cannot_run_is_told_apart);
    tcase_add_test(t, a_script_without_its_interpreter);
    tcase_add_test(t, which_python);
    tcase_add_test(t, modes);
    tcase_add_test(t, python_of_the_environment);
    suite_add_tcase(s, t);
    return run_suite(s);
}
