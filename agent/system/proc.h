/* Reads /proc with system calls only and without the heap, so that the warden, and a child between
 * fork and exec, may call these functions. Only proc_children() uses the heap. */
#ifndef AGENT_PROC_H
#define AGENT_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PROC_PATH_MAX 64 /* size in bytes of a buffer for "/proc/PID/task/PID/children" with its
                          * NUL */

/* ---- listing a folder ---- */

struct proc_dir {
    int fd;
    bool is_folder; /* true if the name that proc_dir_next() has returned is that of a folder */
    long at, got; /* offsets in `room`: the next entry to return, and the end of what was read */
    _Alignas(8) char room[2048];
};
/* Opens a folder; a link to a folder is an error. Returns 0 or a negative errno. */
int proc_dir_open(struct proc_dir *d, int at_fd, const char *path);
/* Returns the next name other than "." and "..", which is valid until the next call; or NULL at the
 * end, or on error. */
const char *proc_dir_next(struct proc_dir *d);
void proc_dir_close(struct proc_dir *d);

/* ---- paths and files of a process ---- */

/* Returns the number that `name` spells in decimal digits; or -1 if `name` has other characters or
 * is empty, or if the number is too large. */
int proc_parse_pid(const char *name);

/* Writes "/proc/<pid>/<rest>". */
void proc_path(char out[PROC_PATH_MAX], pid_t pid, const char *rest);

/* Reads up to `size` bytes from the start of a file. Returns the number of bytes read, or a
 * negative errno. */
ssize_t proc_read(const char *path, char *out, size_t size);

/* ---- processes ---- */

struct proc_stat {
    pid_t parent, group, session;
    char state; /* state of the main thread: 'R', 'S', 'D', 'Z' … (proc(5)) */
    bool alive; /* true if a thread of the process lives; false for a zombie without threads */
    /* true if the main thread of the process is exiting, was killed by a signal, or is writing a
     * core dump */
    bool exiting;
    /* true if the process has memory of its own: it is alive, not exiting, and not a kernel
     * thread */
    bool has_memory;
    /* true if environ_size is known; false if the process is in the middle of execve, or if this
     * process lacks the permission to know where the environment lies */
    bool environ_known;
    /* size of the environment in bytes; valid if environ_known */
    uint64_t environ_size;
    /* first address of the command line in the memory of the process, and the address after it; 0
     * if this process lacks the permission to know */
    uint64_t args, args_end;
    /* start time in clock ticks since boot; pid and start together identify a process */
    uint64_t start;
};
int proc_stat(pid_t pid, struct proc_stat *out); /* 0 or a negative errno */

/* Returns 1 if the environment that the process was started with contains `text`. Returns 0 if it
 * does not, if it cannot be read, or if the process is dead. Returns -EAGAIN if the process is in
 * the middle of execve, where the old environment is gone and the new one is not set yet. */
int proc_environ_has(pid_t pid, const char *text);

/* Lists the children of all threads of a process, with zombies. Stores a malloc'ed array of pids in
 * *list and its length in *count. Returns 0; -ENOENT if there is no such process; or another
 * negative errno. */
int proc_children(pid_t pid, pid_t **list, size_t *count);

#endif
