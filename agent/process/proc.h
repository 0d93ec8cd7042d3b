/* Reading /proc with system calls alone, without the heap: may be used between fork and exec, and
 * in the warden. The exception is proc_children(). */
#ifndef AGENT_PROC_H
#define AGENT_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PROC_PATH_MAX 64 /* bytes of "/proc/PID/task/PID/children", NUL included */

/* ---- the names in a folder, one after another ---- */

struct proc_dir {
    int fd;
    long at, got; /* bytes of `room` that were handed out already, and that are filled */
    _Alignas(8) char room[2048];
};
int proc_dir_open(struct proc_dir *d, int at_fd, const char *path); /* 0 or a negative errno */
const char *proc_dir_next(struct proc_dir *d); /* NULL at the end; valid until the next call */
void proc_dir_close(struct proc_dir *d);

/* ---- names and files ---- */

/* The number that a name of digits only stands for; -1 for any other name. */
int proc_parse_pid(const char *name);

/* Writes "/proc/<pid>/<rest>". */
void proc_path(char out[PROC_PATH_MAX], pid_t pid, const char *rest);

/* Reads up to `size` bytes from the start of a file. Returns their number, or a negative errno. */
ssize_t proc_read(const char *path, char *out, size_t size);

/* ---- processes ---- */

struct proc_stat {
    pid_t parent, group, session;
    bool alive;            /* a part of it still runs: not a zombie, or one with threads left */
    bool exiting;          /* its main thread is exiting, or writing its core */
    bool has_memory;       /* alive, not exiting, and not a kernel thread */
    bool environ_known;    /* false in the middle of execve, and if we lack the permission */
    uint64_t environ_size; /* bytes */
    uint64_t start;        /* clock ticks since boot; with the pid, the identity of the process */
};
int proc_stat(pid_t pid, struct proc_stat *out); /* 0 or a negative errno */

/* Returns 1 if the environment that the process was started with contains `text`, 0 if not, and
 * -EAGAIN if the process is in the middle of execve, where the old environment is gone and the new
 * one is not there yet. */
int proc_environ_has(pid_t pid, const char *text);

/* Lists the children of a process, those of all its threads, zombies included. *list is malloc'ed
 * and has *count elements. Uses the heap. Returns 0, or a negative errno (-ENOENT: no such
 * process). */
int proc_children(pid_t pid, pid_t **list, size_t *count);

#endif
