/* Starts, watches and ends worker processes, together with every process that they start. This
 * chamber knows nothing of ranks, logs or restarts.
 * A nursery holds the processes of one worker group. No process outlives its nursery, and no
 * nursery outlives this process (the launcher), whatever this process dies of:
 *   - each worker leads a Unix session and a Unix process group of its own, and the kernel kills it
 *     when the thread that started it dies (parent-death signal, PR_SET_PDEATHSIG);
 *   - where a cgroup v2 is delegated to this process, the workers run in a cgroup of their own, and
 *     one write to its cgroup.kill ends all of them;
 *   - this process is the sub-reaper: when a worker dies, the kernel makes the worker's children
 *     children of this process, which can find and end them;
 *   - a small process, the warden, is started with the nursery and ends everything in it if this
 *     process dies first.
 * Limits. Without a delegated cgroup, the warden cannot find a process that has cleared its
 * environment, has made a Unix session of its own and has lost its parent. (While this process
 * lives, it can find such a process, which is its adopted child.) A process in an uninterruptible
 * sleep dies only when it wakes up.
 * Environment. CRUN_CGROUP=0 keeps nurseries from using cgroups. Each worker gets a random token in
 * CRUN_NURSERY, by which the warden recognises the processes of its nursery. If this process was
 * started with CRUN_NURSERY set (a nested crun), its workers get both tokens, joined by ':'. */
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
    const char *path; /* path of the executable; PATH is not searched */
    char *const *argv, *const *envp;
    /* The worker's standard streams; -1 = the worker inherits the stream of this process. The
     * caller may close the descriptors as soon as worker_spawn() has returned. */
    int stdin_fd, stdout_fd, stderr_fd;
    /* CPUs that the worker may run on; NULL = all CPUs that this process may use */
    const struct cr_cpu_mask *cpus;
};

/* How a worker ended, for on_exit. */
struct worker_exit {
    pid_t pid;
    int exit_code; /* 0 to 255, or minus the signal that killed it */
    bool core_dumped;
    uint64_t order; /* number of this death in the kernel's order of deaths in this nursery: 1, 2, 3
                     * … */
    /* time at which this process noticed the death, perhaps late; only `order` is exact */
    int64_t died_monotonic_ns, died_wall_ns;
    int signal_sent;     /* the last signal that this process sent to the worker before it died, or
                          * 0 */
    struct rusage usage; /* resources that the worker and the children it waited for have used */
};

#define NURSERY_STUCK_MS 5000

/* A process that SIGKILL has not ended: it is in the kernel, which does not let it die. */
struct nursery_stuck {
    pid_t pid;
    int64_t since_ms;  /* how long ago it got SIGKILL */
    char name[64];     /* its command, escaped (base/text.h) */
    char state;        /* of /proc/<pid>/stat: 'D' = uninterruptible sleep; '?' = unknown */
    /* the kernel function in which it waits; "" if the kernel does not show it to us */
    char wait_channel[64];
};

struct nursery_events {
    /* Runs once per worker that has ended, on the loop's thread, in order of death. It never runs
     * from inside a function of this header, and may call any of them. `w` is freed when it
     * returns. */
    void (*on_exit)(void *arg, struct worker_process *w, const struct worker_exit *how);
    /* Runs after nursery_end(), when the last process of the nursery is gone, workers as well as
     * processes that they started, and after the last on_exit. It runs once per nursery_end(); if
     * nursery_end() is called again before, it runs only once for both calls. From here on the
     * nursery can take new workers or be closed. */
    void (*on_empty)(void *arg);
    /* Runs for each process that still lives NURSERY_STUCK_MS after SIGKILL, and again after twice,
     * four times … that time. `w` is the worker, or NULL for a process that a worker has started.
     * NULL = nobody wants to know. */
    void (*on_stuck)(void *arg, const struct worker_process *w, const struct nursery_stuck *how);
};

/* Prepares this process to hold workers: makes it the sub-reaper of its descendants, sets SIGCHLD
 * to its default if it was ignored, and raises the limit of open files. agent.h exports this
 * function as agent_claim_process() and describes the effects on the rest of the process. Returns
 * 0, or a negative errno and sets err to a text that says what failed. */
int nursery_claim_process(struct cr_error *err);

/* Opens a nursery and forks its warden. Call it while this process is still small, because a fork
 * takes longer the more memory the process has. Copies `events`. The calling thread must live as
 * long as the nursery, because the kernel sends a worker its parent-death signal when the thread
 * that started it ends. Without nursery_claim_process() the nursery cannot find orphans: it ends
 * only the Unix process groups of its workers, and its cgroup. Returns 0, or a negative errno and
 * sets err to a text: -EINVAL if this process ignores SIGCHLD, -ENOMEM, or the error of fork(2) or
 * epoll_create(2). */
int nursery_open(uv_loop_t *loop, const struct nursery_events *events, void *arg,
                 struct nursery **out, struct cr_error *err);

/* Starts one worker. The worker leads a Unix session of its own, has all signals at their default
 * and none blocked, and has only the three standard streams as descriptors; it inherits everything
 * else. The function worker_arg() returns the parameter `worker_arg` later. Returns 0 and stores
 * the worker in *out, or returns a negative errno and sets err to a text that names path, reason
 * and remedy. -EBUSY: nursery_end() was called and on_empty has not run yet. If the program cannot
 * be executed (ENOENT, EACCES, ENOEXEC …), this function fails and on_exit does not run. */
int worker_spawn(struct nursery *n, const struct worker_spawn *how, void *worker_arg,
                 struct worker_process **out, struct cr_error *err);

/* Starts `count` workers; how, worker_args and out have `count` elements. While one child executes
 * its program, the next children are already cloned: on several processors that is much faster than
 * `count` calls of worker_spawn(). Returns as worker_spawn() does. On error, *failed is the index
 * of the first worker that could not be started. Workers that were started keep running, their
 * elements of `out` are set, and nursery_end() ends them; the other elements are NULL. */
int worker_spawn_all(struct nursery *n, const struct worker_spawn *how, void *const *worker_args,
                     size_t count, struct worker_process **out, size_t *failed,
                     struct cr_error *err);

pid_t worker_pid(const struct worker_process *w);
void *worker_arg(const struct worker_process *w);

/* Returns whether the kernel has recorded the worker's death already, in which case on_exit runs
 * soon. */
bool worker_is_dead(struct worker_process *w);

/* Sends a signal to the worker's Unix process group. Does nothing if the worker is dead already,
 * even if its on_exit has not run yet; worker_exit.signal_sent does not name the signal in that
 * case. */
void worker_signal(struct worker_process *w, int signum);

/* Sets whether nursery_end() spares the worker and its living descendants. While a worker is kept,
 * on_empty means that only kept workers are left. Orphans, descendants whose parents are dead, are
 * not spared. */
void worker_keep(struct worker_process *w, bool keep);

/* Ends all processes of the nursery except kept workers; on_empty reports that they are gone. Sends
 * `signum` at once to every worker's Unix process group and to orphans, followed by SIGCONT,
 * because a stopped process handles no signal. Sends SIGKILL after grace_ms (at once if it is 0) to
 * all that are left, whatever Unix session they are in. A second call replaces the signal and the
 * grace of the first. If there is no process to end, on_empty runs in the loop's next iteration. */
void nursery_end(struct nursery *n, int signum, int64_t grace_ms);

/* The processes that may live on after the workers have ended well. */
enum nursery_spares {
    NURSERY_SPARES_NOTHING,
    /* processes that have left their worker's Unix session, as daemons do (setsid) */
    NURSERY_SPARES_DETACHED,
    NURSERY_SPARES_ALL,
};

/* Call this instead of nursery_end() when all workers have ended well. It does what nursery_end()
 * does, but leaves some processes that the workers have started alone; these leave the cgroup, and
 * nothing ends them any more. */
void nursery_end_well(struct nursery *n, int signum, int64_t grace_ms, enum nursery_spares spares);

/* Closes the nursery and frees it; afterwards on_close runs on the loop, unless it is NULL. The
 * nursery must be empty: either on_empty has run and no worker is kept, or no worker was ever
 * started. */
void nursery_close(struct nursery *n, void (*on_close)(void *arg));

#endif
