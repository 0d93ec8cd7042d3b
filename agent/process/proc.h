/* Reads /proc with system calls only and without the heap, so that it can be used in the warden and
 * between fork and exec. Only proc_children() uses the heap. */
#ifndef AGENT_PROC_H
#define AGENT_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PROC_PATH_MAX 64 /* size of a buffer for "/proc/PID/task/PID/children" and its NUL */

/* ---- listing a folder ---- */

struct proc_dir {
    int fd;
    long at, got; /* offsets in `room`: the next entry to return, and the end of what was read */
    _Alignas(8) char room[2048];
};
int proc_dir_open(struct proc_dir *d, int at_fd, const char *path); /* 0 or a negative errno */
/* returns the next name, which is valid until the next call, or NULL at the end */
const char *proc_dir_next(struct proc_dir *d);
void proc_dir_close(struct proc_dir *d);

/* ---- paths and files of a process ---- */

/* Returns the number if `name` consists of digits only, else -1. */
int proc_parse_pid(const char *name);

/* Writes "/proc/<pid>/<rest>". */
void proc_path(char out[PROC_PATH_MAX], pid_t pid, const char *rest);

/* Reads up to `size` bytes from the start of a file. Returns how many bytes it read, or a negative
 * errno. */
ssize_t proc_read(const char *path, char *out, size_t size);

/* ---- processes ---- */

struct proc_stat {
    pid_t parent, group, session;
    char state; /* of the main thread: 'R', 'S', 'D', 'Z' … (proc(5)) */
    bool alive; /* true while a thread of the process runs; false for a zombie without threads */
    /* the main thread of the process is exiting or is writing the core dump */
    bool exiting;
    bool has_memory;       /* alive, not exiting, and not a kernel thread */
    /* false if the process is in the middle of execve, or if this process may not read its
     * environment */
    bool environ_known;
    uint64_t environ_size; /* bytes of the environment; valid if environ_known */
    /* start time in clock ticks since boot; pid and start together identify a process */
    uint64_t start;
};
int proc_stat(pid_t pid, struct proc_stat *out); /* 0 or a negative errno */

/* Returns 1 if the environment that the process was started with contains `text`, and 0 if not.
 * Returns -EAGAIN if the process is in the middle of execve, where its old environment is gone and
 * its new one is not set yet. */
int proc_environ_has(pid_t pid, const char *text);

/* Lists the children of a process, those of all its threads, zombies included. Stores a malloc'ed
 * array in *list and its length in *count. Returns 0, or a negative errno (-ENOENT: no such
 * process). */
int proc_children(pid_t pid, pid_t **list, size_t *count);

#endif
