/* Worker processes: started so that no exit is lost, watched without polling, ended with everything
 * that they started. Knows nothing of ranks, logs or policy.
 *
 * A nursery is the set of processes of one worker group. Nothing in it outlives it, and nothing in it
 * outlives this process, however this process dies:
 *   - each worker leads a session and process group of its own and has the parent-death signal;
 *   - where a cgroup v2 is delegated to us, the group lives in one and is ended by cgroup.kill;
 *   - this process is the sub-reaper of what the workers leave behind;
 *   - a small warden process, started with the nursery, ends all of it should we die first. */
#ifndef AGENT_WORKER_PROCESS_H
#define AGENT_WORKER_PROCESS_H

#include "base/error.h"

#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <uv.h>

struct nursery;
struct worker_process;

struct worker_spawn {
    const char *path;         /* executable, already looked up */
    char *const *argv, *const *envp;
    int stdin_fd, stdout_fd, stderr_fd; /* -1 = inherit ours; borrowed, the caller closes its copy */
};

/* How a worker ended. */
struct worker_exit {
    pid_t pid;
    int exit_code;            /* 0…255, or minus the signal */
    int core_dumped;
    uint64_t order;           /* 1, 2, 3 … in the kernel's order of death within the nursery */
    int64_t died_monotonic_ns, died_wall_ns;
    int signal_sent;          /* last signal that we had sent it before it died, or 0: a victim */
    struct rusage usage;
};

struct nursery_events {
    /* Once a worker, on the loop thread, never from inside worker_spawn. `w` is freed afterwards. */
    void (*on_exit)(void *arg, struct worker_process *w, const struct worker_exit *how);
    /* The last process of the nursery is gone: no worker, no descendant (as far as the kernel lets us
     * know). Only after nursery_end(). */
    void (*on_empty)(void *arg);
};

int nursery_open(uv_loop_t *loop, const struct nursery_events *events, void *arg,
                 struct nursery **out, struct cr_error *err);

/* Starts one worker. The executable's own failure (ENOENT, EACCES, ENOEXEC…) is reported here, not as
 * an exit status. Returns 0 and the worker, or a negative errno with a text naming path and reason. */
int worker_spawn(struct nursery *n, const struct worker_spawn *how, void *worker_arg,
                 struct worker_process **out, struct cr_error *err);

pid_t worker_pid(const struct worker_process *w);
void *worker_arg(const struct worker_process *w);

/* To the worker's whole process group. */
void worker_signal(struct worker_process *w, int signum);

/* Ends everything in the nursery: `signum` to every worker's group now, SIGKILL to all that is left
 * (descendants in other sessions too) after grace_ms; then on_empty. Calling again restarts the
 * grace with the new signal and time. With no process left, on_empty comes on the next turn. */
void nursery_end(struct nursery *n, int signum, int64_t grace_ms);

/* Frees once its handles are closed. The nursery must be empty (on_empty came) or never have
 * started a worker. */
void nursery_close(struct nursery *n, void (*on_close)(void *arg));

#endif
