/* Searches the ancestors of this process in /proc, and compares each of them with this process. */
#include "launcher/nesting.h"

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/files/read_file.h"
#include "base/text/parse.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NESTED_MAX    2    /* largest number of ancestors that may be cruns */
#define ANCESTORS_MAX 1000 /* largest number of ancestors that are checked. A limit is needed
                            * because process ids are reused: while the parents are read one by one,
                            * they can seem to form a circle. */
#define PATH_SIZE     512
#define PROCESS_SIZE  32
#define STAT_SIZE     1024 /* more bytes than /proc/PID/stat has */

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

/* Appends the contents of /proc/<process>/<name> and a NUL to `out`. Reads until the end of the
 * file, because stat(2) reports no size for files in /proc. Returns 0 or a negative errno. */
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

/* Returns 1 if this process and the other one have the same arguments, else 0. The first words of
 * the two command lines may differ, because the same crun can be started by its path or by its
 * name. */
static int has_same_arguments(const char *proc, const char *process) {
    struct cr_buffer own = {0}, other = {0};
    int is_same = 0;
    if (read_all(&own, proc, "self", "cmdline") == 0 &&
        read_all(&other, proc, process, "cmdline") == 0) {
        size_t i = strlen(own.data), k = strlen(other.data);
        is_same = own.len - i == other.len - k &&
                  memcmp(own.data + i, other.data + k, own.len - i) == 0;
    }
    cr_buffer_done(&own);
    cr_buffer_done(&other);
    return is_same;
}

static int is_like_us(const char *proc, const char *process) {
    return has_same_file(proc, process, "cwd") && has_same_arguments(proc, process);
}

/* ---- the ancestors ---- */

/* What the file /proc/PID/stat says about a process. */
struct process {
    char text[STAT_SIZE];
    const char *name; /* the process name (comm), within `text` */
    int64_t parent;   /* 0 if the process has no parent, or if the file cannot be read */
};

/* Reads the stat file of a process: "pid (name) state parent …". The name ends at the last ')' of
 * the file, because the name itself may contain any byte. */
static void read_process(const char *proc, const char *pid, struct process *out) {
    char path[PATH_SIZE];
    out->name = "";
    out->parent = 0;
    make_path(path, proc, pid, "stat");
    if (cr_read_file(path, out->text, sizeof(out->text)) <= 0) return;
    char *begin = strchr(out->text, '('), *end = strrchr(out->text, ')');
    if (begin == NULL || end == NULL || end < begin || strlen(end) <= 4) return;
    end[4 + strcspn(end + 4, " ")] = '\0';
    if (cr_parse_i64(end + 4, 0, INT32_MAX, &out->parent) < 0) out->parent = 0;
    *end = '\0';
    out->name = begin + 1;
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
    struct process own, ancestor;
    int enclosing = 0;
    read_process(proc, "self", &own);
    ancestor.parent = own.parent;
    for (int i = 0; i < ANCESTORS_MAX && ancestor.parent > 0; i++) {
        char pid[PROCESS_SIZE];
        (void) snprintf(pid, sizeof(pid), "%d", (int) ancestor.parent);
        read_process(proc, pid, &ancestor);
        bool is_crun = strcmp(ancestor.name, own.name) == 0 && has_same_file(proc, pid, "exe");
        if (!is_crun) continue;
        if (is_like_us(proc, pid)) return fail_same(program, pid, err);
        if (++enclosing > NESTED_MAX) return fail_depth(program, err);
    }
    return 0;
}
