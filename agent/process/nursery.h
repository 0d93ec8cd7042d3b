/* Worker processes: started so that no exit is lost, watched without polling, ended with everything
 * that they started. Knows nothing of ranks, logs or policy.
 *
 * A nursery holds the processes of one worker group. Nothing in it outlives it, and nothing in it
 * outlives this process, however this process dies:
 *   - each worker leads a session and process group of its own and has the parent-death signal;
 *   - where a cgroup v2 is delegated to us, the group lives in one and is ended by cgroup.kill;
 *   - this process is the sub-reaper of what the workers leave behind;
 *   - a small warden process, started with the nursery, ends all of it should we die first.
 *
 * What the kernel cannot give us: without a delegated cgroup, a process that cleared its environment,
 * made a session of its own and lost its parent is unknown to the warden (we ourselves, while we
 * live, know it as our adopted child). A process in an uninterruptible sleep dies when it wakes.
 *
 * CRUN_CGROUP=0 in the environment keeps a nursery away from cgroups. Each worker finds a token in
 * CRUN_NURSERY (nested ones are joined by ':'), by which a warden knows its processes. */
#ifndef AGENT_NURSERY_H
#define AGENT_NURSERY_H

#include "base/cpu_mask.h"
#include "base/error.h"

#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <uv.h>

struct nursery;
struct worker_process;

struct worker_spawn {
    const char *path; /* executable, already looked up */
    char *const *argv, *const *envp;
    int stdin_fd, stdout_fd,
        stderr_fd; /* -1 = inherit ours; borrowed, the caller closes its copy */
    const struct cr_cpu_mask *cpus; /* to run on, or NULL: ours */
};

/* How a worker ended. */
struct worker_exit {
    pid_t pid;
    int exit_code; /* 0…255, or minus the signal */
    int core_dumped;
    uint64_t order; /* 1, 2, 3 … in the kernel's order of death within the nursery */
    int64_t died_monotonic_ns,
        died_wall_ns;    /* when we saw it: `order` is right even if we were late */
    int signal_sent;     /* last signal that we had sent it before it died, or 0: a victim */
    struct rusage usage; /* of the worker and of the children that it waited for */
};

struct nursery_events {
    /* Once a worker, on the loop thread, in order of death, never from inside a call below. `w` is
     * freed afterwards. The callback may call anything here. */
    void (*on_exit)(void *arg, struct worker_process *w, const struct worker_exit *how);
    /* The last process of the nursery is gone: no worker, no descendant. Once a nursery_end(), after
     * the last on_exit; from then on the nursery may be filled again, or closed. */
    void (*on_empty)(void *arg);
};

/* `events` is copied. The calling thread must live as long as the nursery: the parent-death signal
 * is bound to the thread that starts a worker. Costs one fork (the warden), so open it early, before
 * memory is large; Where main did not call
 * agent_claim_process() (agent.h) it knows no orphans, only its workers' process groups.
 * Returns 0, or a negative errno with a text: -EINVAL when this process ignores SIGCHLD, else what
 * fork and epoll say. */
int nursery_open(uv_loop_t *loop, const struct nursery_events *events, void *arg,
                 struct nursery **out, struct cr_error *err);

/* Starts one worker: in a session of its own, all signals at their default and none blocked, no
 * descriptor above 2 but the three given, everything else inherited. The executable's own failure
 * (ENOENT, EACCES, ENOEXEC…) is reported here, not as an exit status.
 * Returns 0 and the worker, or a negative errno with a text naming path, reason and remedy; -EBUSY
 * between nursery_end() and on_empty. */
int worker_spawn(struct nursery *n, const struct worker_spawn *how, void *worker_arg,
                 struct worker_process **out, struct cr_error *err);

/* The same for many at once, so that one is cloned while the others execute: on several processors
 * much faster than one after another. how, worker_args and out have `count` elements, in the order of
 * starting. On failure *failed is the first that could not be started; those that could run, and are
 * in out (NULL for the others): nursery_end() ends them. */
int worker_spawn_all(struct nursery *n, const struct worker_spawn *how, void *const *worker_args,
                     size_t count, struct worker_process **out, size_t *failed,
                     struct cr_error *err);

pid_t worker_pid(const struct worker_process *w);
void *worker_arg(const struct worker_process *w);

/* 1 if the kernel counts it as dead by now; on_exit then follows. */
int worker_is_dead(struct worker_process *w);

/* To the worker's whole process group. A worker that the kernel already counts as dead is not signalled
 * (and is no victim), even if on_exit has not run yet. */
void worker_signal(struct worker_process *w, int signum);

/* From now on the worker, and what it started and still has below it, survives nursery_end(), whose
 * on_empty then means: nothing but kept workers lives. What it left behind, its parents dead, does not
 * survive. keep 0 takes that back. */
void worker_keep(struct worker_process *w, int keep);

/* Ends everything in the nursery that is not kept: `signum` now to every worker's group and to what dead workers left
 * behind (a stopped process is continued so that it can obey), SIGKILL after grace_ms to all that is
 * left, descendants in other sessions too; then on_empty. grace_ms 0 kills at once. Calling again
 * restarts the grace with the new signal and time. With no process left, on_empty comes on the next
 * turn. */
void nursery_end(struct nursery *n, int signum, int64_t grace_ms);

/* Frees once its handles are closed; on_close may be NULL. The nursery must be empty (on_empty came,
 * no worker is kept) or never have started a worker. */
void nursery_close(struct nursery *n, void (*on_close)(void *arg));

#endif
