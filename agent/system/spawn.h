/* Starts one process with one clone and one exec. A start has two calls, spawn_begin() and
 * spawn_finish(), so that several processes can be between clone and exec at one time. */
#ifndef AGENT_SPAWN_H
#define AGENT_SPAWN_H

#include "base/process/cpu_mask.h"

#include <stdalign.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#define SPAWN_STACK_BYTES 16384

struct spawn_request {
    const char *path;
    char *const *argv, *const *envp;
    int stdio[3];                   /* the child's descriptors 0, 1 and 2; -1 = the child inherits
                                     * this process's descriptor */
    int cgroup_fd; /* descriptor of the cgroup in which the child starts; -1 = the cgroup of this
                    * process */
    const struct cr_cpu_mask *cpus; /* CPUs that the child may run on; NULL = those of this
                                     * process */
    const struct rlimit *files;     /* the child's limit of open files; NULL = that of this
                                     * process */
};

struct spawned {
    pid_t pid;
    int pidfd; /* has close-on-exec set; -1 on a kernel without pidfds */
};

/* The parts of a start, in their order. A report names the part that the child began last. */
enum spawn_step {
    SPAWN_CLONE,
    SPAWN_SESSION,
    SPAWN_CGROUP,
    SPAWN_STDIO,
    SPAWN_CPUS,
    SPAWN_EXEC
};

struct spawn_report {
    int rc;               /* 0, or the negative errno with which `step` failed */
    /* the part of the start that the child began last; SPAWN_CLONE means that the child executed no
     * instruction */
    enum spawn_step step;
};

/* The state of one start. A slot must not be moved to another address, because the child may run on
 * the stack in it. */
struct spawn_slot {
    alignas(16) char stack[SPAWN_STACK_BYTES];
    struct spawn_request request;
    struct spawn_report report;
    struct spawned child;
    pid_t parent;
    /* 1 while the child runs on the memory of this process. When the child executes the program or
     * dies, the kernel sets uses_our_memory to 0 and wakes the threads that wait for it by
     * futex(2). */
    uint32_t uses_our_memory;
    /* the parent's end of the pipe through which a forked child sends its report; -1 if there is no
     * such pipe */
    int report_in;
    /* the child's end of the pipe through which a forked child reports why it could not start the
     * program; -1 if there is no such pipe */
    int report_out;
};

/* Returns true if this kernel and this processor let a child run on the memory of its parent until
 * it executes its program. If it returns false, children are forked. */
bool spawn_can_borrow(void);

/* First half of a start: clones the child. Returns 0 and sets slot->child; or returns a negative
 * errno, and there is no child. -ENOTSUP means that no child can be started in the cgroup of the
 * request; slot->report.rc is the negative errno that says why.
 *
 * The strings of the request must live until spawn_finish() has returned; its descriptors may be
 * closed when spawn_begin() has returned. *borrow is true if the child may run on the memory of
 * this process until it executes its program. The caller initialises *borrow with
 * spawn_can_borrow() and passes the same variable to all calls; spawn_begin() sets it to false if
 * the kernel refuses clone3. */
int spawn_begin(struct spawn_slot *slot, const struct spawn_request *request, bool *borrow);

/* Second half of a start: waits until the child has executed the program or has failed. Returns 0
 * if it has executed the program. On error it waits for the child's death, sets *what to a verb
 * that names what failed ("execute", …), and returns a negative errno; the caller must still close
 * the pidfd. The error -ENOTSUP means that the caller should start the process once more without
 * the cgroup; slot->report.rc is the negative errno that says why, or 0 if the kernel has killed
 * the child at its start. */
int spawn_finish(struct spawn_slot *slot, const char **what);

/* Fault points: changes of behaviour that only test programs define. */
struct spawn_test_hooks {
    void (*after_clone)(pid_t pid); /* runs after the clone, before spawn_begin() returns */
    int force_fork;                 /* if not 0, spawn_begin() acts as if clone3 were missing */
    int force_no_pidfd;             /* if not 0, spawn_begin() acts as if pidfds were missing */
};
extern const struct spawn_test_hooks *spawn_test_hooks __attribute__((weak));
#define SPAWN_TEST_HOOKS (&spawn_test_hooks != NULL ? spawn_test_hooks : NULL)

#endif
