/* Compares the ancestors of this process, which are found in /proc, with this process. */
#include "launcher/nesting.h"

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/parse.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NESTED_MAX    2    /* largest number of ancestors that may be cruns */
#define ANCESTORS_MAX 1000 /* most ancestors that are checked; without a limit, the search might not
                            * end, because reused process ids could make the parents form a
                            * circle */
#define PATH_SIZE     512
#define PROCESS_SIZE  32

static void make_path(char out[PATH_SIZE], const char *proc, const char *process,
                      const char *name) {
    (void) snprintf(out, PATH_SIZE, "%s/%s/%s", proc, process, name);
}

/* ---- comparing another process with this one ---- */

static int has_same_file(const char *proc, const char *process, const char *link) {
    char path[PATH_SIZE];
    struct stat own, other;
    make_path(path, proc, "self", link);
    if (stat(path, &own) != 0) return 0;
    make_path(path, proc, process, link);
    return stat(path, &other) == 0 && own.st_dev == other.st_dev && own.st_ino == other.st_ino;
}

/* Appends the contents of /proc/<process>/<name> and a NUL to `out`. The function reads until the
 * end of the file, because stat(2) reports no size for files in /proc. Returns 0 or a negative
 * errno. */
static int read_all(struct cr_buffer *out, const char *proc, const char *process,
                    const char *name) {
    char path[PATH_SIZE];
    make_path(path, proc, process, name);
    CR_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -errno;
    for (;;) {
        if (cr_buffer_reserve(out, 4096) < 0) return -ENOMEM;
        ssize_t n = read(fd, out->data + out->len, out->cap - out->len - 1);
        if (n < 0) return -errno;
        out->data[out->len += (size_t) n] = '\0';
        if (n == 0) return 0;
    }
}

/* Returns 1 if /proc/self/<name> and /proc/<process>/<name> have the same contents, else 0. If
 * `is_argv` is 1, the file is an argv ("cmdline"), and its first word is not compared: the same
 * crun can be started by its path or by its name. */
static int has_same_text(const char *proc, const char *process, const char *name, int is_argv) {
    struct cr_buffer own = {0}, other = {0};
    int is_same = 0;
    if (read_all(&own, proc, "self", name) == 0 && read_all(&other, proc, process, name) == 0) {
        size_t i = is_argv ? strlen(own.data) : 0;
        size_t k = is_argv ? strlen(other.data) : 0;
        is_same = own.len - i == other.len - k &&
                  memcmp(own.data + i, other.data + k, own.len - i) == 0;
    }
    cr_buffer_done(&own);
    cr_buffer_done(&other);
    return is_same;
}

static int is_crun(const char *proc, const char *process) {
    return has_same_file(proc, process, "exe") && has_same_text(proc, process, "comm", 0);
}

static int is_like_us(const char *proc, const char *process) {
    return has_same_file(proc, process, "cwd") && has_same_text(proc, process, "cmdline", 1);
}

/* ---- the ancestors ---- */

/* Replaces the pid in `process` by the pid of the parent. Returns 1; or 0 if the process has no
 * parent or its stat file cannot be read. */
static int go_to_parent(const char *proc, char process[PROCESS_SIZE]) {
    struct cr_buffer text = {0};
    int64_t parent = 0;
    if (read_all(&text, proc, process, "stat") == 0) {
        char *at = strrchr(text.data, ')'); /* the line is "pid (name) state parent …" */
        if (at != NULL && strlen(at) > 4) {
            at[4 + strcspn(at + 4, " ")] = '\0';
            if (cr_parse_i64(at + 4, 0, INT32_MAX, &parent) < 0) parent = 0;
        }
    }
    cr_buffer_done(&text);
    (void) snprintf(process, PROCESS_SIZE, "%d", (int) parent);
    return parent > 0;
}

static int fail_same(const char *program, const char *process, struct cr_error *err) {
    return cr_fail(err, -ELOOP,
                   "cannot run '%.200s': a crun with the same arguments in the same folder (pid "
                   "%s) has started this one through its workers, and so it would go on without "
                   "end; let the workers start the program instead of crun (a Python script behind "
                   "a wrapper of crun needs a name in .py), or, if this is meant, give one of the "
                   "two another argument",
                   program, process);
}

static int fail_depth(const char *program, struct cr_error *err) {
    return cr_fail(err, -ELOOP,
                   "cannot run '%.200s': %d cruns are around this one already, each started by a "
                   "worker of the next, as when a program starts crun on itself without end; let "
                   "the workers start the program instead of crun",
                   program, NESTED_MAX + 1);
}

int nesting_check(const char *proc, const char *program, struct cr_error *err) {
    char process[PROCESS_SIZE] = "self";
    int enclosing = 0;
    for (int i = 0; i < ANCESTORS_MAX && go_to_parent(proc, process); i++) {
        if (!is_crun(proc, process)) continue;
        if (is_like_us(proc, process)) return fail_same(program, process, err);
        if (++enclosing > NESTED_MAX) return fail_depth(program, err);
    }
    return 0;
}
