/* One cgroup v2 below our own, where we are allowed to make one. */
#ifndef AGENT_CGROUP_H
#define AGENT_CGROUP_H

#include <limits.h>
#include <stdbool.h>

struct cgroup {
    int fd; /* its directory; -1: there is no cgroup, and every function below does nothing */
    char path[PATH_MAX]; /* absolute, in our mount namespace; "" if none was ever made */
};

/* Makes the cgroup `name` below the one of this process. It is not an error if that is not
 * permitted, if there is no cgroup v2, if the kernel has no cgroup.kill (Linux before 5.14), or if
 * the environment has CRUN_CGROUP=0: g->fd is then -1. */
void cgroup_open(struct cgroup *g, const char *name);

/* The functions below use system calls only: they may be called after fork. */

/* Sends SIGKILL to every process in the cgroup and below it. */
void cgroup_kill(const struct cgroup *g);

/* Whether a process is in it or below it. */
bool cgroup_populated(const struct cgroup *g);

/* Opens cgroup.events. An epoll reports EPOLLPRI for it when it has changed since the last
 * cgroup_events_populated(). Returns the descriptor, or -1. */
int cgroup_events_open(const struct cgroup *g);
bool cgroup_events_populated(int fd);

/* Replaces an empty cgroup on which cgroup_kill() was used by a new one: some kernels kill every
 * process that starts in the old one. If that fails, g->fd is -1. */
void cgroup_renew(struct cgroup *g);

/* Opens g->path again, in a process whose inherited descriptor may be of a cgroup that was
 * replaced. */
void cgroup_reopen(struct cgroup *g);

/* Removes the cgroup and those that workers made below it. Returns 0, -EBUSY if a process is in it
 * (nothing is removed then), or the error of rmdir(2). */
int cgroup_remove(struct cgroup *g);

#endif
