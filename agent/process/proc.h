/* Reading /proc without the heap: usable between fork and exec and in the warden. */
#ifndef AGENT_PROC_H
#define AGENT_PROC_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PROC_PATH_MAX 64 /* bytes of "/proc/PID/task/PID/children", NUL included */

/* A folder's names, one after another. */
struct proc_dir {
    int fd;
    long at, got; /* bytes of `room` already handed out, and filled */
    _Alignas(8) char room[2048];
};
int proc_dir_open(struct proc_dir *d, int at_fd, const char *path);
const char *proc_dir_next(struct proc_dir *d); /* NULL at the end; valid until the next call */
void proc_dir_close(struct proc_dir *d);

/* A name of digits alone as a number; -1 for anything else. */
int proc_parse_pid(const char *name);

/* "/proc/<pid>/<rest>". */
void proc_path(char out[PROC_PATH_MAX], pid_t pid, const char *rest);

/* Up to `size` bytes from the start of a file. Returns the bytes read, or a negative errno. */
ssize_t proc_read(const char *path, char *out, size_t size);

struct proc_stat {
    pid_t parent, group, session;
    int alive;             /* something in it still runs: no zombie, or one with threads left */
    int dying;             /* its main thread is exiting already, or writing its core */
    int has_memory;        /* alive, neither dying nor the kernel's own */
    int environ_told;      /* 0 in the middle of execve, and to those who may not know */
    uint64_t environ_size; /* bytes */
    uint64_t start;        /* clock ticks since boot: with the pid, a process's identity */
};
int proc_stat(pid_t pid, struct proc_stat *out); /* 0, or a negative errno */

/* 1 if the environment that the process was started with holds `text`; 0 if not; -EAGAIN if that
 * cannot be told yet, because it is about to execute a program. */
int proc_environ_has(pid_t pid, const char *text);

/* The children of a process, of all its threads. *list is malloc'ed, *count long; zombies included.
 * Not for use after fork. Returns 0, or a negative errno (-ENOENT: no such process). */
int proc_children(pid_t pid, pid_t **list, size_t *count);

#endif
