/* One clone and one exec, in two halves, so that many may be on their way at once. */
#ifndef AGENT_SPAWN_H
#define AGENT_SPAWN_H

#include "base/cpu_mask.h"

#include <stdalign.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#define SPAWN_STACK_BYTES 16384

struct spawn_request {
    const char *path;
    char *const *argv, *const *envp;
    int stdio[3];               /* -1 = inherit */
    int cgroup_fd;              /* the directory to start in, or -1 */
    const struct cr_cpu_mask *cpus; /* to run on, or NULL */
    const struct rlimit *files; /* the limit of open files to go back to, or NULL */
};

struct spawned {
    pid_t pid;
    int pidfd; /* close-on-exec; -1 where the kernel has none */
};

/* How far the child came. */
enum spawn_step { SPAWN_CLONE, SPAWN_SESSION, SPAWN_STDIO, SPAWN_CPUS, SPAWN_EXEC };

struct spawn_report {
    int code;             /* 0, or the negative errno of `step` */
    enum spawn_step step; /* SPAWN_CLONE: not one instruction of the child was executed */
};

/* What one child on its way needs; the child may be running on its stack. */
struct spawn_slot {
    alignas(16) char stack[SPAWN_STACK_BYTES];
    struct spawn_request request;
    struct spawn_report report;
    struct spawned child;
    pid_t parent;
    uint32_t on_its_way; /* cleared, and woken, by the kernel: the child has left our memory */
    int report_in;       /* after a fork: the pipe that brings the report, else -1 */
    int report_out;      /* the child's end of it, else -1 */
};

/* Whether children may borrow our memory here: where not, they are forked. */
int spawn_can_borrow(void);

/* First half: the child is on its way. The request's strings must live until the second half, its
 * descriptors need not. Returns 0 and slot->child, or a negative errno and no child; -ENOTSUP: it
 * cannot be started in this cgroup. *borrow is cleared if the kernel turns out not to allow it. */
int spawn_begin(struct spawn_slot *slot, const struct spawn_request *request, int *borrow);

/* Second half: waits until the child has executed the program, or has failed to. Returns 0; or a
 * negative errno, and the child was waited for (its pidfd is still the caller's): *what names the
 * step that failed ("execute", …). -ENOTSUP: try again without the cgroup. */
int spawn_finish(struct spawn_slot *slot, const char **what);

/* Fault points, defined by test programs only. */
struct spawn_test_hooks {
    void (*after_clone)(pid_t pid); /* the child runs, nobody has noted its pid yet */
    int force_fork;                 /* as if clone3 were missing */
    int force_no_pidfd;             /* as if pidfds were missing */
};
extern const struct spawn_test_hooks *spawn_test_hooks __attribute__((weak));
#define SPAWN_TEST_HOOKS (&spawn_test_hooks != NULL ? spawn_test_hooks : NULL)

#endif
