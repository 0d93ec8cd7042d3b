/* One clone and one exec. */
#ifndef AGENT_SPAWN_INTERNAL_H
#define AGENT_SPAWN_INTERNAL_H

#include <sys/types.h>

struct spawn_request {
    const char *path;
    char *const *argv, *const *envp;
    int stdio[3];  /* -1 = inherit */
    int cgroup_fd; /* the directory to start in, or -1 */
};

struct spawned {
    pid_t pid;
    int pidfd; /* close-on-exec; -1 where the kernel has none */
};

/* Starts the program; returns once the child has executed it, or has failed to.
 * Returns 0, or a negative errno; *what then names the step that failed ("execute", …), and no
 * child is left. -ENOTSUP: it could not be started in the cgroup; try again without. */
int spawn_process(const struct spawn_request *request, struct spawned *out, const char **what);

/* Fault points, defined by test programs only. */
struct spawn_test_hooks {
    void (*after_clone)(pid_t pid); /* the child runs, nobody has noted its pid yet */
    int force_fork;                 /* as if clone3 were missing */
    int force_no_pidfd;             /* as if pidfds were missing */
};
extern const struct spawn_test_hooks *spawn_test_hooks __attribute__((weak));
#define SPAWN_TEST_HOOKS (&spawn_test_hooks != NULL ? spawn_test_hooks : NULL)

#endif
