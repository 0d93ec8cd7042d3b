/* Makes, uses and removes one cgroup v2 below the cgroup of this process, if this process has the
 * permission. */
#ifndef AGENT_CGROUP_H
#define AGENT_CGROUP_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

struct cgroup {
    /* descriptor of the cgroup's folder; -1 if there is no cgroup, or none that can be used */
    int fd;
    char path[PATH_MAX]; /* absolute path as this process sees it; "" if cgroup_open() made no
                          * cgroup */
};

/* Makes a cgroup below the cgroup of this process, opens it in *g and locks its folder. Its name
 * says which process made it, and contains the first 8 characters of `token`. If no cgroup can be
 * made, sets g->fd to -1, and the nursery works without a cgroup. This is the case if the process
 * may not make cgroups, if there is no cgroup v2, if the kernel has no cgroup.kill (Linux before
 * 5.14), or if the environment has CRUN_CGROUP=0. */
void cgroup_open(struct cgroup *g, const char *token);

/* The functions below, except cgroup_release(), make system calls only: they may be called after
 * fork. */

/* Ends all processes in the cgroups that dead launchers have left beside *g, and removes these
 * cgroups. Does not touch the cgroup of a launcher that may be alive, in whatever pid namespace.
 * Waits at most 2 s for the ends of the processes, so call this only in a process that may wait. */
void cgroup_sweep(const struct cgroup *g);

/* Sends SIGKILL to every process in the cgroup and below it. */
void cgroup_kill(const struct cgroup *g);

/* Returns true if a process is in the cgroup or below it; false if none is, or if the state of the
 * cgroup cannot be read. */
bool cgroup_populated(const struct cgroup *g);

/* Returns whether the process is in the cgroup or below it. */
bool cgroup_has(const struct cgroup *g, pid_t pid);

/* Calls `goes` for each process in the cgroup. If `goes` returns true, moves the process to the
 * parent cgroup. */
void cgroup_release(const struct cgroup *g, bool (*goes)(void *arg, pid_t pid), void *arg);

/* Opens cgroup.events, a file that changes when the cgroup gets its first process or loses its last
 * one. Returns the descriptor; or -1 on error, or if there is no cgroup. An epoll reports EPOLLPRI
 * for the descriptor when the file has changed since the last call of cgroup_events_populated(). */
int cgroup_events_open(const struct cgroup *g);
/* Reads cgroup.events through its descriptor `fd`. Returns true if a process is in the cgroup or
 * below it; false if none is, or on error. */
bool cgroup_events_populated(int fd);

/* Call this before a process is started in an empty cgroup on which cgroup_kill() was used: some
 * kernels kill every process that starts in such a cgroup. Removes the cgroup and makes a new one
 * of the same path. Sets g->fd to -1 on error. */
void cgroup_renew(struct cgroup *g);

/* Opens the cgroup at g->path and stores the descriptor in g->fd, or -1 on error. The warden calls
 * this, because the cgroup may have been replaced since the warden was forked. */
void cgroup_reopen(struct cgroup *g);

/* Removes the cgroup and the cgroups that workers made below it. Returns 0 if the cgroup is gone or
 * was never made; -EBUSY if it stays because a process is in it; or another negative errno of
 * rmdir(2). */
int cgroup_remove(struct cgroup *g);

#endif
