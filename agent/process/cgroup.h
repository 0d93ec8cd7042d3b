/* One cgroup v2 beneath our own, where we may make one. */
#ifndef AGENT_CGROUP_H
#define AGENT_CGROUP_H

#include <limits.h>

struct cgroup {
    int fd; /* its directory, or -1: there is none, and every call below does nothing */
    char path[PATH_MAX]; /* absolute, in our mount namespace; "" if there never was one */
};

/* Makes the cgroup `name` beneath the one that this process is in. Not being allowed to, having no
 * cgroup v2 or no cgroup.kill (Linux 5.14) is no error: g->fd is then -1. CRUN_CGROUP=0 says no. */
void cgroup_open(struct cgroup *g, const char *name);

/* The rest is safe after fork. */
void cgroup_kill(const struct cgroup *g); /* SIGKILL to every process in it and beneath */
int cgroup_populated(const struct cgroup *g);
/* The same through a descriptor that poll() can wait on: EPOLLPRI when it changed since the last
 * cgroup_events_populated(). Returns the descriptor, or -1. */
int cgroup_events_open(const struct cgroup *g);
int cgroup_events_populated(int fd);
/* A new one in its place, once it is empty. Who was killed by cgroup_kill cannot be followed by
 * others: the kernel kills at birth what is started there. Failing, g->fd is -1. */
void cgroup_renew(struct cgroup *g);
/* For who did not inherit the descriptor: opens g->path, if it was ever made. */
void cgroup_reopen(struct cgroup *g);
/* Removes it with what workers made beneath. 0, or -EBUSY while a process is in it (then all stays
 * as it is), or what rmdir says. */
int cgroup_remove(struct cgroup *g);

#endif
