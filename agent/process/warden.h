/* The warden: the process that ends a nursery when this process no longer can. */
#ifndef AGENT_WARDEN_H
#define AGENT_WARDEN_H

#include "agent/process/cgroup.h"

#include <sys/types.h>

#define WARDEN_TOKEN_MAX   40   /* bytes, NUL included */
#define WARDEN_SESSION_MAX 4096 /* workers that the roster has room for */

/* The living workers, in memory shared with the warden: to note a worker then costs no system call
 * and wakes no process. session[i] is the pid of a worker, which leads a session, or 0. */
struct warden_roster {
    pid_t session[WARDEN_SESSION_MAX];
};

struct warden {
    pid_t pid;    /* 0: there is none */
    int pidfd;    /* readable when it has died; -1 on a kernel without pidfds */
    int lifeline; /* the writing end of a pipe. The warden acts when the last copy is closed, by us
                   * or by our death */
};

/* Forks a warden. Returns 0 or a negative errno. */
int warden_start(struct warden *w, const char *token, const struct cgroup *cgroup,
                 const struct warden_roster *roster);

/* Kills the warden because no process is left that it would have to end. warden_wait() follows. */
void warden_kill(struct warden *w);

/* Makes the warden end everything that is left, and then exit. It is no longer waited for. */
void warden_release(struct warden *w);

/* Waits for a warden that was killed, by warden_kill() or from outside. */
void warden_wait(struct warden *w);

#endif
