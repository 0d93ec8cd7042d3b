/* Starts, watches and ends worker processes, together with every process that they start. This
 * chamber knows nothing of ranks, logs or restarts.
 *
 * A nursery holds the processes of one worker group. No process outlives its nursery, and no
 * nursery outlives this process (the launcher), whatever this process dies of:
 *
 *   - each worker leads a Unix session and a Unix process group of its own, and the kernel kills it
 *     when the thread that started it dies (parent-death signal, PR_SET_PDEATHSIG);
 *   - where a cgroup v2 is delegated to this process, the workers run in a cgroup of their own, and
 *     one write to its cgroup.kill ends all of them;
 *   - this process is the sub-reaper: when a worker dies, the kernel makes the worker's children
 *     children of this process, which can find and end them;
 *   - a small process, the warden, is started with the nursery and ends everything in it if this
 *     process dies first; the warden's deputy does so if both are killed;
 *   - if all three are killed, the next launcher beside this one ends what is left in the cgroup.
 *
 * Limits. Without a delegated cgroup, warden and deputy cannot find a process that has cleared its
 * environment, has made a Unix session of its own and has lost its parent, and the next launcher
 * finds nothing. (While this process lives, it finds such a process among its own children. But if
 * this process is process 1 of a pid namespace, it does not, because it gets the orphans of
 * strangers, too.) A process in an uninterruptible sleep dies only when it wakes up; the owner can
 * leave such a process to the warden (nursery_abandon()) and end.
 *
 * Environment. CRUN_CGROUP=0 keeps nurseries from using cgroups. Each worker gets a random token in
 * CRUN_NURSERY, by which the warden recognises the processes of its nursery. If this process was
 * started with CRUN_NURSERY set (a nested crun), its workers get both tokens, joined by ':'. */
#ifndef AGENT_NURSERY_H
#define AGENT_NURSERY_H

#include "base/error.h"
#include "base/process/cpu_mask.h"

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
    /* the exit status (0 to 255); or, if a signal killed the worker, the negative number of the
     * signal */
    int exit_code;
    bool core_dumped;
    /* the position of this death among the deaths of the nursery's workers: 1 for the first, 2 for
     * the second and so on. The kernel reports the order, so it is exact */
    uint64_t order;
    /* times at which this process noticed the death, in ns of the monotonic clock and of the wall
     * clock; the worker may have died earlier */
    int64_t died_monotonic_ns, died_wall_ns;
    /* the last signal that this process sent to the worker before the worker died; 0 if it sent
     * none, or if the worker was already exiting when it sent the first one */
    int signal_sent;
    /* resources that the worker and the children that it waited for have used (getrusage(2)) */
    struct rusage usage;
};

#define NURSERY_STUCK_MS 2000

/* A process that lives on after it got SIGKILL, because it is in a system call that cannot be
 * interrupted or in a frozen cgroup. */
struct nursery_stuck {
    pid_t pid;
    /* ms since SIGKILL was first sent to the processes of the nursery */
    int64_t since_ms;
    /* the process's name from /proc/<pid>/comm, escaped (base/text/text.h) */
    char name[64];
    /* the state that /proc/<pid>/stat shows; 'D' is an uninterruptible sleep. If the main thread is
     * not in state 'D' but another thread is, `state` and `wait_channel` describe that other
     * thread */
    char state;
    /* the kernel function in which the process waits; "" if the kernel does not show the function
     * to this process */
    char wait_channel[64];
};

struct nursery_events {
    /* Runs once for each worker that has ended, in the order of death, on the loop's thread. Only
     * the loop calls on_exit, never a function of this header; on_exit may call all functions of
     * this header. `w` is freed when on_exit returns. */
    void (*on_exit)(void *arg, struct worker_process *w, const struct worker_exit *how);
    /* Runs after a call of nursery_end(), when all workers and all processes that they started are
     * gone, except kept workers, and on_exit has run for each dead worker. If nursery_end() is
     * called twice before on_empty has run, on_empty runs once for both calls. From the moment at
     * which on_empty runs, new workers may be started; if no worker is kept, the nursery may also
     * be closed. */
    void (*on_empty)(void *arg);
    /* Runs for each process that still lives NURSERY_STUCK_MS after SIGKILL. Runs once more for
     * each process that still lives after twice that time, after four times that time and so on.
     * `w` is the worker; or NULL if the process was started by a worker. on_stuck is NULL if the
     * owner wants no such report. */
    void (*on_stuck)(void *arg, const struct worker_process *w, const struct nursery_stuck *how);
    /* Runs once, if processes other than kept workers still live give_up_ms after SIGKILL. `count`
     * is the number of workers and orphans among them; processes that the nursery knows only
     * because its cgroup is not empty are not counted. The owner may call nursery_abandon(); if it
     * does not, the nursery goes on waiting for the end of the processes. on_unkillable is NULL if
     * the owner never gives up. */
    void (*on_unkillable)(void *arg, unsigned count);
    int64_t give_up_ms;
    /* Runs if this process stood still until its fence (nursery_set_fence()), so that the warden
     * has ended the processes of the nursery. on_fenced runs before on_exit runs for the workers,
     * and may call nursery_end(). It is NULL if the owner sets no fence. */
    void (*on_fenced)(void *arg);
};

/* Prepares this process to start workers: makes it the sub-reaper of its descendants, sets SIGCHLD
 * to its default if it was ignored, and raises the limit of open files. agent.h exports this
 * function as agent_claim_process() and describes the effects on the rest of the process. Returns
 * 0, or a negative errno and sets err to a text that says what failed. */
int nursery_claim_process(struct cr_error *err);

/* Returns whether the process `pid` descends from this process: it is a child, a child of a child,
 * and so on. Orphans of workers are included, because this process is their sub-reaper. */
bool nursery_is_descendant(pid_t pid);

/* Opens a nursery and forks its warden. `events` is copied. Returns 0; or a negative errno, and
 * sets err to a text: -EINVAL if this process ignores SIGCHLD, -ENOMEM, or the error of fork(2) or
 * epoll_create(2).
 *
 * Call nursery_claim_process() before this: without it, the nursery cannot find orphans, and ends
 * only the Unix process groups of its workers, and its cgroup. Call nursery_open() while this
 * process is still small, because a fork takes longer the more memory the process has. The thread
 * that starts workers must live as long as the nursery, because the kernel sends a worker its
 * parent-death signal when that thread ends. */
int nursery_open(uv_loop_t *loop, const struct nursery_events *events, void *arg,
                 struct nursery **out, struct cr_error *err);

/* Starts one worker. The worker leads a Unix session of its own, has all signals at their default
 * and none blocked, and has only the three standard streams as descriptors; it inherits everything
 * else from this process. worker_arg() later returns the value of the parameter `worker_arg`.
 * Returns 0 and stores the worker in *out; or returns a negative errno, and sets err to a text that
 * names path, reason and remedy. The errno is -EBUSY if nursery_end() was called and on_empty has
 * not run yet. If the program cannot be executed (ENOENT, EACCES, ENOEXEC …), worker_spawn() fails
 * and on_exit does not run for this worker. */
int worker_spawn(struct nursery *n, const struct worker_spawn *how, void *worker_arg,
                 struct worker_process **out, struct cr_error *err);

/* Starts `count` workers; how, worker_args and out have `count` elements. While one child executes
 * its program, the next children are already cloned; on several processors this is much faster than
 * `count` calls of worker_spawn(). Returns as worker_spawn() does. On error, *failed is the index
 * of the first worker that could not be started. Workers that were started go on; their elements of
 * `out` are set, and nursery_end() ends them. The other elements of `out` are NULL. */
int worker_spawn_all(struct nursery *n, const struct worker_spawn *how, void *const *worker_args,
                     size_t count, struct worker_process **out, size_t *failed,
                     struct cr_error *err);

pid_t worker_pid(const struct worker_process *w);
void *worker_arg(const struct worker_process *w);

/* Returns the processor time in ms that the worker and its descendants have used so far. */
int64_t worker_cpu_ms(const struct worker_process *w);

/* Returns true if the worker is dead. on_exit may not have run for it yet; in that case it runs
 * soon. */
bool worker_is_dead(struct worker_process *w);

/* Sends a signal to the worker's Unix process group. If the worker is dead, sends nothing, even if
 * on_exit has not run for it yet; worker_exit.signal_sent does not name the signal in that case. */
void worker_signal(struct worker_process *w, int signum);

/* Sets whether the worker is kept. nursery_end() spares kept workers and their living descendants,
 * but not orphans, which are processes whose parents are dead. While a worker is kept, on_empty
 * means that no process is left except kept workers and their descendants. */
void worker_keep(struct worker_process *w, bool keep);

/* Ends all processes of the nursery except kept workers; on_empty runs when they are gone. Sends
 * `signum` at once to every worker's Unix process group and to orphans, and SIGCONT after it,
 * because a stopped process handles no signal. Sends SIGKILL after grace_ms (at once if grace_ms is
 * 0) to all processes that are left, whatever Unix session they are in. If nursery_end() is called
 * once more before on_empty has run, the new signal and grace replace the first ones. If there is
 * no process to end, on_empty runs in the loop's next iteration. */
void nursery_end(struct nursery *n, int signum, int64_t grace_ms);

/* Which processes nursery_end_well() spares: these may live on after the workers have ended
 * well. */
enum nursery_spares {
    NURSERY_SPARES_NOTHING,
    /* processes that have left their worker's Unix session, as daemons do (setsid) */
    NURSERY_SPARES_DETACHED,
    NURSERY_SPARES_ALL,
};

/* Call this instead of nursery_end() when all workers have ended well. It does what nursery_end()
 * does, except that it spares the processes named by `spares`: these leave the cgroup, and nothing
 * ends them any more. */
void nursery_end_well(struct nursery *n, int signum, int64_t grace_ms, enum nursery_spares spares);

/* Sets the fence (ms, monotonic clock): the time at which the warden ends all processes of the
 * nursery, unless this process has set a later fence by then. A process that stands still, because
 * it was stopped or because its cgroup is frozen, sets no later fence. Before the first call the
 * fence is CR_FOREVER, which means that there is none. For workers that the warden has ended,
 * worker_exit.signal_sent is SIGKILL. */
void nursery_set_fence(struct nursery *n, int64_t fence_ms);

/* Call this in on_unkillable. Sends SIGKILL to kept workers, too, and frees the records of all
 * workers: pointers to them become invalid, and on_exit and on_empty do not run for them. After
 * this call, start no worker and call nursery_close(). From nursery_close() on, the warden waits
 * for the end of the processes that are left, and removes the cgroup, also after this process has
 * ended. */
void nursery_abandon(struct nursery *n);

/* Lets another process, the warden's deputy, close at most 253 descriptors, so that this process
 * does not wait if a close takes long. The deputy gets copies, so the caller closes its own
 * descriptors after this call. If there is no deputy, does nothing. Call this only right before
 * nursery_close(). */
void nursery_pass_on(struct nursery *n, const int *fds, size_t count);
/* ---- the fork server: a process that has imported Python modules, and forks workers
 *
 * Importing modules takes most of the time in which a Python worker starts, often several seconds.
 * A fork of a process that has imported the modules has them at once. */

struct fork_server;

/* Starts a fork server with the interpreter `python`, which imports `modules` (NULL-terminated).
 * The server is a kept worker whose worker_arg() is NULL: when it ends, on_exit runs with such a
 * worker, and the owner must call fork_server_gone(). Returns 0; or a negative errno, and sets
 * err. */
int fork_server_open(struct nursery *n, const char *python, char *const *modules,
                     char *const *envp, struct fork_server **out, struct cr_error *err);

/* If the server has imported its modules, starts workers as forks of it: those of the `count`
 * workers that run Python with the server's interpreter. Waits for the forks, at most 2 s. The
 * arguments are those of worker_spawn_all(). Sets out[i] to NULL for each worker that was not
 * started: the caller starts it with worker_spawn(). Returns the number of workers that were
 * started. /proc shows the server's command line for them. */
size_t fork_server_start(struct fork_server *fs, const struct worker_spawn *how,
                         void *const *worker_args, size_t count, struct worker_process **out);

/* Call this when on_exit runs for the server. Returns whether the server had imported its modules;
 * if it had not, a new server would probably fail, too. Call fork_server_close() afterwards. */
bool fork_server_gone(struct fork_server *fs);

/* Makes the next nursery_end() end the server, too. */
void fork_server_release(struct fork_server *fs);

/* Frees the server, and kills its process if it lives. fs may be NULL. */
void fork_server_close(struct fork_server *fs);

/* Closes the nursery and frees it; after that on_close runs on the loop, unless on_close is NULL.
 * Call this only in one of three cases: on_empty has run and no worker is kept; no worker was ever
 * started; nursery_abandon() was called. */
void nursery_close(struct nursery *n, void (*on_close)(void *arg));

#endif
