/* Starting one process with one clone and one exec. The start has two halves, so that several
 * processes can be between clone and exec at one time. */
#ifndef AGENT_SPAWN_H
#define AGENT_SPAWN_H

#include "base/cpu_mask.h"

#include <stdalign.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#define SPAWN_STACK_BYTES 16384

struct spawn_request {
    const char *path;
    char *const *argv, *const *envp;
    int stdio[3];                   /* -1 = inherit */
    int cgroup_fd;                  /* directory of the cgroup to start in, or -1 */
    const struct cr_cpu_mask *cpus; /* CPUs that it may run on, or NULL */
    const struct rlimit *files;     /* its limit of open files, or NULL */
};

struct spawned {
    pid_t pid;
    int pidfd; /* close-on-exec; -1 on a kernel without pidfds */
};

/* How far the child came. */
enum spawn_step { SPAWN_CLONE, SPAWN_SESSION, SPAWN_STDIO, SPAWN_CPUS, SPAWN_EXEC };

struct spawn_report {
    int rc;               /* 0, or the negative errno of `step` */
    enum spawn_step step; /* SPAWN_CLONE: the child did not execute a single instruction */
};

/* The state of one start. The child may be running on its stack, so it must not move. */
struct spawn_slot {
    alignas(16) char stack[SPAWN_STACK_BYTES];
    struct spawn_request request;
    struct spawn_report report;
    struct spawned child;
    pid_t parent;
    /* 1 while the child runs on our memory. The kernel clears it, and wakes waiters on it as a
     * futex, when the child executes the program or dies. */
    uint32_t uses_our_memory;
    int report_in;  /* after a fork: our end of the pipe that carries the report, else -1 */
    int report_out; /* the child's end of it, else -1 */
};

/* Whether children may run on our memory here; if not, they are forked. */
bool spawn_can_borrow(void);

/* First half: clones the child. The request's strings must live until the second half, its
 * descriptors need not. Returns 0 and slot->child; or a negative errno, and there is no child.
 * -ENOTSUP: a child cannot be started in this cgroup. *borrow is cleared if the kernel refuses
 * what it needs. */
int spawn_begin(struct spawn_slot *slot, const struct spawn_request *request, bool *borrow);

/* Second half: waits until the child has executed the program, or has failed to. Returns 0; or a
 * negative errno, and *what names the step that failed ("execute", …). The failed child has been
 * waited for; its pidfd stays the caller's. -ENOTSUP: try again without the cgroup. */
int spawn_finish(struct spawn_slot *slot, const char **what);

/* Fault points, defined by test programs only. */
struct spawn_test_hooks {
    void (*after_clone)(pid_t pid); /* runs before the pid is registered */
    int force_fork;                 /* behave as if clone3 were missing */
    int force_no_pidfd;             /* behave as if pidfds were missing */
};
extern const struct spawn_test_hooks *spawn_test_hooks __attribute__((weak));
#define SPAWN_TEST_HOOKS (&spawn_test_hooks != NULL ? spawn_test_hooks : NULL)

#endif
