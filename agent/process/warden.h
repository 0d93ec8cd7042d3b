/* The process that ends a nursery when we no longer can. */
#ifndef AGENT_WARDEN_H
#define AGENT_WARDEN_H

#include "agent/process/cgroup.h"

#include <sys/types.h>

#define WARDEN_TOKEN_MAX   40   /* bytes, NUL included */
#define WARDEN_SESSION_MAX 4096 /* workers whose session it knows without reading environments */

/* What the warden works from: shared memory, so that noting a worker costs no system call and nobody
 * is woken. session[i] is a living worker's pid, or 0. */
struct warden_roster {
    pid_t session[WARDEN_SESSION_MAX];
};

struct warden {
    pid_t pid;    /* 0: none */
    int pidfd;    /* readable when it died; -1 where the kernel has no pidfds */
    int lifeline; /* our end of its pipe: closed, by us or by our death, it ends everything */
};

/* Forks it. 0 or a negative errno. */
int warden_start(struct warden *w, const char *token, const struct cgroup *cgroup,
                 const struct warden_roster *roster);

/* Nothing is left to guard: the warden dies. To be buried. */
void warden_kill(struct warden *w);

/* It shall end everything that is left, and then itself. */
void warden_release(struct warden *w);

/* Waits for one that was killed, by us or by somebody else. */
void warden_bury(struct warden *w);

#endif
