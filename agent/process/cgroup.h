/* Makes, uses and removes one cgroup v2 below the cgroup of this process, if this process has the
 * permission. */
#ifndef AGENT_CGROUP_H
#define AGENT_CGROUP_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

struct cgroup {
    /* descriptor of its directory; -1 = there is no cgroup, and the functions below do nothing */
    int fd;
    char path[PATH_MAX]; /* absolute path in this process's mount namespace; "" = no cgroup was ever
                          * made */
};

/* Makes the cgroup `name` below the cgroup of this process. Sets g->fd to -1, which is not an
 * error, if that is not permitted, if there is no cgroup v2, if the kernel has no cgroup.kill
 * (Linux before 5.14), or if the environment has CRUN_CGROUP=0. */
void cgroup_open(struct cgroup *g, const char *name);

/* The functions below use system calls only: they may be called after fork. */

/* Sends SIGKILL to every process in the cgroup and below it. */
void cgroup_kill(const struct cgroup *g);

/* Returns whether a process is in the cgroup or below it. */
bool cgroup_populated(const struct cgroup *g);

/* Moves each process for which `goes` returns true from the cgroup to the one above it. */
void cgroup_release(const struct cgroup *g, bool (*goes)(void *arg, pid_t pid), void *arg);

/* Opens the cgroup's file cgroup.events. Returns the descriptor, or -1. After each call of
 * cgroup_events_populated(), an epoll reports EPOLLPRI for the descriptor as soon as the file
 * changes. */
int cgroup_events_open(const struct cgroup *g);
bool cgroup_events_populated(int fd);

/* Replaces an empty cgroup on which cgroup_kill() was used by a new one of the same path, because
 * some kernels kill every process that starts in the old one. Sets g->fd to -1 on error. */
void cgroup_renew(struct cgroup *g);

/* Opens g->path again. The warden uses it, because the cgroup may have been replaced since the
 * warden inherited its descriptor. */
void cgroup_reopen(struct cgroup *g);

/* Removes the cgroup, and the cgroups that workers made below it. Returns 0, -EBUSY if a process is
 * in it (the cgroup stays), or the error of rmdir(2). */
int cgroup_remove(struct cgroup *g);

#endif
