/* The warden is a small process that ends all processes of a nursery if this process (the launcher)
 * dies before it has ended them itself. */
#ifndef AGENT_WARDEN_H
#define AGENT_WARDEN_H

#include "agent/system/cgroup.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define WARDEN_TOKEN_MAX   40   /* size in bytes of a buffer for a nursery's token with its NUL */
#define WARDEN_SESSION_MAX 4096 /* the most workers that the roster can hold */

/* What the warden has to know. The roster is in memory that this process shares with the warden, so
 * adding a worker costs no system call and does not wake the warden. */
struct warden_roster {
    /* Time in ms of the monotonic clock at which the warden ends the workers if this process has
     * not set a later time before; CR_FOREVER if there is no such time. The launcher sets it with
     * warden_set_fence(). */
    int64_t fence_ms;
    /* set to true by the warden when it ends workers at the fence, to false by the launcher */
    bool fenced;
    pid_t deputy; /* pid of the warden's deputy, set by the warden; 0 if there is none */
    bool is_over; /* set to true by warden_retire() */
    /* [i]: the pid of a living worker, which is also the number of its Unix session; or 0 if the
     * entry is free */
    pid_t session[WARDEN_SESSION_MAX];
};

struct warden {
    pid_t pid; /* 0 = there is no warden */
    int pidfd; /* becomes readable when the warden has died; -1 on a kernel without pidfds */
    /* the writing end of a pair of sockets; the warden waits at the reading end. When the last copy
     * of the writing end is closed, by this process or because this process dies, the warden ends
     * all processes of the nursery */
    int lifeline;
    /* a copy of the writing end of another pair of sockets; the deputy waits at the reading end,
     * and the warden has the other copy. When both copies are closed, because this process and the
     * warden are dead, the deputy does what the warden would have done. A byte that is written here
     * makes the deputy exit */
    int deputy_line;
};

/* Sets roster->fence_ms. The warden sleeps until the fence that it knows, and reads the fence once
 * more when it wakes up. So this function has to wake the warden only if the new fence is earlier
 * than the old one, or if the old one has passed. */
void warden_set_fence(struct warden *w, struct warden_roster *roster, int64_t fence_ms);

/* Forks a warden for the nursery that has this token, cgroup and roster, and stores the warden in
 * *w. Returns 0 or a negative errno. */
int warden_start(struct warden *w, const char *token, const struct cgroup *cgroup,
                 struct warden_roster *roster);

#define WARDEN_PASSED_MAX 253 /* the most descriptors that one message can carry */

/* Gives the deputy copies of descriptors, at most WARDEN_PASSED_MAX, and makes it close them and
 * exit. If there is no deputy, does nothing. Call this when the nursery has no processes left, and
 * then call warden_kill(). */
void warden_pass_on(const struct warden *w, const int *fds, size_t count);

/* Kills the warden and makes its deputy exit. Call this when the nursery has no processes left, and
 * then call warden_wait(). */
void warden_kill(struct warden *w);

/* Does what warden_kill() does, but lets the warden live until it has started its deputy, and then
 * exit. Without its deputy, nobody would sweep up what launchers before this one have left. After
 * this call w->pid is 0 and nobody waits for the warden; do not call warden_wait(). */
void warden_retire(struct warden *w, struct warden_roster *roster);

/* Returns whether the warden has started its deputy. */
bool warden_has_deputy(const struct warden_roster *roster);

/* Makes the warden end all processes of the nursery that are left, and then exit. After this call
 * w->pid is 0 and nobody waits for the warden; do not call warden_wait(). */
void warden_release(struct warden *w);

/* Makes the deputy of a dead warden exit, and closes *deputy_line. Call this when another warden
 * has been started. */
void warden_dismiss_deputy(int *deputy_line);

/* Waits until the warden is dead, and reaps it. The warden must have been killed, by warden_kill()
 * or from outside. */
void warden_wait(struct warden *w);

/* Fault points: changes of behaviour that only test programs define. */
struct warden_test_hooks {
    void (*before_deputy)(void); /* runs in the warden, before it starts its deputy */
};
extern const struct warden_test_hooks *warden_test_hooks __attribute__((weak));
#define WARDEN_TEST_HOOKS (&warden_test_hooks != NULL ? warden_test_hooks : NULL)

#endif
