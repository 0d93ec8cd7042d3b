/* Starting, watching and ending worker processes, with everything that they start themselves.
 * This chamber knows nothing of ranks, logs or restarts.
 *
 * A nursery holds the processes of one worker group. No process outlives its nursery, and no
 * nursery outlives this process, however this process dies:
 *   - each worker leads a session and a process group of its own, and the kernel kills it when the
 *     thread that started it dies (parent-death signal);
 *   - where a cgroup v2 is delegated to us, the workers run in a cgroup of their own, which
 *     cgroup.kill ends in one write;
 *   - this process is the sub-reaper: children of a dead worker become our children;
 *   - a small process, the warden, is started with the nursery and ends everything in it if this
 *     process dies first.
 *
 * Limits. Without a delegated cgroup, the warden cannot find a process that has cleared its
 * environment, made a session of its own and lost its parent. (While this process lives it can: the
 * process is its adopted child.) A process in an uninterruptible sleep dies only when it wakes up.
 *
 * Environment. CRUN_CGROUP=0 keeps nurseries from using cgroups. Each worker gets a random token
 * in CRUN_NURSERY, by which the warden recognises the processes of its nursery; if this process
 * has such a variable itself, the worker gets both tokens, joined by ':'. */
#ifndef AGENT_NURSERY_H
#define AGENT_NURSERY_H

#include "base/cpu_mask.h"
#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <uv.h>

struct nursery;
struct worker_process;

struct worker_spawn {
    const char *path; /* of the executable; PATH is not searched */
    char *const *argv, *const *envp;
    /* The worker's standard streams, -1 = inherit ours. Borrowed: the caller closes its copies. */
    int stdin_fd, stdout_fd, stderr_fd;
    const struct cr_cpu_mask *cpus; /* CPUs that the worker may run on; NULL: ours */
};

/* How a worker ended. */
struct worker_exit {
    pid_t pid;
    int exit_code; /* 0 to 255, or minus the signal that killed it */
    bool core_dumped;
    uint64_t order; /* 1, 2, 3 … within the nursery, in the kernel's order of death */
    int64_t died_monotonic_ns, died_wall_ns; /* when we noticed; may be late, unlike `order` */
    int signal_sent;     /* the last signal that we had sent it before it died, or 0 */
    struct rusage usage; /* of the worker and of the children that it waited for */
};

struct nursery_events {
    /* A worker has ended. Runs once per worker, on the loop thread, in order of death, never from
     * inside a function below. The callback may call any function of this header. `w` is freed when
     * it returns. */
    void (*on_exit)(void *arg, struct worker_process *w, const struct worker_exit *how);
    /* After nursery_end(): the last process of the nursery is gone, workers and what they started.
     * Runs once per nursery_end() that was not followed by another one, after the last on_exit.
     * The nursery can then be filled again, or closed. */
    void (*on_empty)(void *arg);
};

/* Prepares this process to hold workers: it becomes the sub-reaper of its descendants, no longer
 * ignores SIGCHLD, and raises its limit of open files. agent_claim_process() in agent.h is this
 * function and says what that means for the rest of the process. Returns 0, or a negative errno
 * with a text. */
int nursery_claim_process(struct cr_error *err);

/* Opens a nursery, which forks its warden; call it early, while this process is small. Copies
 * `events`. The calling thread must live as long as the nursery, because the parent-death signal is
 * bound to the thread that starts a worker. Without nursery_claim_process() the nursery cannot find
 * orphans: it ends only the process groups of its workers, and its cgroup.
 * Returns 0, or a negative errno with a text: -EINVAL if this process ignores SIGCHLD, -ENOMEM, or
 * the error of fork(2) or epoll_create(2). */
int nursery_open(uv_loop_t *loop, const struct nursery_events *events, void *arg,
                 struct nursery **out, struct cr_error *err);

/* Starts one worker. It leads a session of its own, has all signals at their default and none
 * blocked, the three standard streams, and no other descriptor; everything else it inherits. If
 * the program cannot be executed (ENOENT, EACCES, ENOEXEC …), this function fails; on_exit does
 * not run. `worker_arg` is for worker_arg(). Returns 0 and the worker, or a negative errno with a
 * text that names path, reason and remedy; -EBUSY between nursery_end() and on_empty. */
int worker_spawn(struct nursery *n, const struct worker_spawn *how, void *worker_arg,
                 struct worker_process **out, struct cr_error *err);

/* Starts `count` workers; how, worker_args and out have `count` elements. While one executes its
 * program, the next ones are cloned: on several processors that is much faster than `count` calls
 * of worker_spawn(). On failure *failed is the index of the first worker that could not be
 * started; workers that were started are in `out` and run (the others are NULL): nursery_end()
 * ends them. Returns as worker_spawn() does. */
int worker_spawn_all(struct nursery *n, const struct worker_spawn *how, void *const *worker_args,
                     size_t count, struct worker_process **out, size_t *failed,
                     struct cr_error *err);

pid_t worker_pid(const struct worker_process *w);
void *worker_arg(const struct worker_process *w);

/* Whether the worker is dead in the kernel's books already; then its on_exit runs soon. */
bool worker_is_dead(struct worker_process *w);

/* Sends a signal to the worker's whole process group. Does nothing to a worker that is dead
 * already: worker_exit.signal_sent then does not name the signal, although on_exit has not run
 * yet. */
void worker_signal(struct worker_process *w, int signum);

/* With keep = true nursery_end() spares the worker and its living descendants; on_empty then means
 * that only kept workers are left. Orphans are not spared: descendants whose parents are dead.
 * keep = false takes that back. */
void worker_keep(struct worker_process *w, bool keep);

/* Ends all processes of the nursery except kept workers; on_empty reports that they are gone.
 * Sends `signum` at once to every worker's process group and to orphans, and SIGCONT, so that a
 * stopped process can obey. After grace_ms sends SIGKILL to all that is left, in whatever session;
 * at once if grace_ms is 0. A second call starts again with its own signal and grace. If nothing
 * is left to end, on_empty runs in the loop's next iteration. */
void nursery_end(struct nursery *n, int signum, int64_t grace_ms);

/* Closes the nursery and frees it; on_close (may be NULL) runs on the loop when that is done. The
 * nursery must be empty: on_empty has run and no worker is kept, or no worker was ever started. */
void nursery_close(struct nursery *n, void (*on_close)(void *arg));

#endif
