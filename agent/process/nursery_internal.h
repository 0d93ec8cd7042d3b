/* Declares the parts of a nursery for the files that implement it. A file calls only files that
 * stand below it in this list:
 *
 *   nursery_open.c   opens and closes a nursery
 *   worker_start.c   starts workers
 *   nursery.c        the state machine; nursery_turn() does all work that is due
 *   stuck.c          describes processes that SIGKILL does not end
 *   deaths.c         reads which processes died, in the kernel's order
 *   guard.c          starts, replaces and stops the warden
 *   orphans.c        finds, signals and reaps processes whose parents, the workers, are dead
 *   worker.c         one worker: registers it, records its death, signals it
 *   watch.c          adds descriptors to the nursery's epoll and removes them
 *
 * and the files with headers of their own: spawn, warden, cgroup, known_children, claim, proc. */
#ifndef AGENT_NURSERY_INTERNAL_H
#define AGENT_NURSERY_INTERNAL_H

#include "agent/process/cgroup.h"
#include "agent/process/nursery.h"
#include "agent/process/spawn.h"
#include "agent/process/warden.h"

#include <sys/queue.h>

#define NURSERY_SLOTS 32 /* the most workers that can be between clone and exec at the same time */

#define NURSERY_MORE_PROCESSES "; raise the limit of processes (ulimit -u, pids.max)"

/* The kind of object to which a descriptor in the nursery's epoll belongs. Each such object has a
 * field of this type, and the epoll's data points to that field. */
enum watched { WATCHED_WORKER, WATCHED_ORPHAN, WATCHED_WARDEN, WATCHED_CGROUP };

struct worker_process {
    enum watched watched;
    struct nursery *nursery;
    int pidfd;       /* -1 on a kernel without pidfds, where SIGCHLD reports the death */
    int roster_slot; /* index of the worker's entry in the warden's roster; -1 if it has none */
    char **envp;     /* environment of the worker; set only while the worker is being started */
    void *arg;
    /* true if the worker was already exiting when it got its first signal from this process, so
     * that the signal did not end it */
    bool exiting_before_signal;
    bool kept;              /* a kept worker: nursery_end() spares it */
    /* while the worker lives, only pid and signal_sent are set; its death sets the other fields */
    struct worker_exit how;
    TAILQ_ENTRY(worker_process) entry; /* links in nursery.living, or after death nursery.dead */
};
TAILQ_HEAD(worker_list, worker_process);

/* An orphan that was found: a process whose parent, a worker, is dead; or a descendant of such a
 * process. */
struct orphan {
    enum watched watched;
    pid_t pid;
    int pidfd; /* pidfd of the process; -1 on a kernel without pidfds */
    int signal_sent;
    LIST_ENTRY(orphan) entry;
};
LIST_HEAD(orphan_list, orphan);

/* A child of this process that belongs to an unknown nursery, because the child is in the middle of
 * execve, where a process has no environment and so no token. */
struct undecided {
    pid_t pid;
    /* start time in clock ticks since boot; pid and start together identify a process */
    uint64_t start;
    int64_t until_ms;
    LIST_ENTRY(undecided) entry;
};
LIST_HEAD(undecided_list, undecided);

/* The states of a nursery, and what ends each state:
 *
 *     OPEN ──nursery_end──► ENDING ──grace over──► KILLING
 *      ▲ │                     │                      │
 *      │ └──nursery_close──►   │       CLOSING        │
 *      └───────── on_empty ◄───┴──────────────────────┘
 *
 * KILLING has no time limit, because nothing is stronger than SIGKILL: a process in an
 * uninterruptible sleep dies when the kernel wakes it. */
#define NURSERY_STATES(X)                                                                          \
    X(OPEN, "open", "workers come and go until nursery_end() or nursery_close()")                  \
    X(ENDING, "ending", "all processes have the signal; limited by the grace")                     \
    X(KILLING, "killing", "all processes get SIGKILL until none is left")                          \
    X(CLOSING, "closing", "limited by libuv's close callbacks")

enum nursery_state {
#define NURSERY_STATE(state, name, limit) NURSERY_##state,
    NURSERY_STATES(NURSERY_STATE)
#undef NURSERY_STATE
};

struct nursery {
    uv_loop_t *loop;
    struct nursery_events events;
    void *arg;
    enum nursery_state state; /* only nursery_enter() writes it */
    int end_signal;           /* the signal of nursery_end(), sent in ENDING */

    int epoll_fd; /* contains the pidfds, which become ready in the kernel's order of death */
    uv_poll_t deaths;
    uv_signal_t sigchld;
    uv_timer_t grace; /* runs in ENDING, until the grace is over */
    uv_timer_t turn;  /* calls nursery_turn() in the loop's next iteration */
    uv_timer_t retry; /* checks undecided children again when it fires */
    uv_timer_t stuck; /* runs in KILLING, until on_stuck is due */
    int64_t killed_ms; /* monotonic time of the first SIGKILL; valid in KILLING */
    unsigned open_handles;
    void (*on_close)(void *arg);

    struct worker_list living; /* workers that were started and are not known to be dead */
    struct worker_list dead;   /* dead workers for which on_exit still has to run */
    struct orphan_list orphans;
    enum nursery_spares spares; /* set by nursery_end_well(), until the nursery is empty */
    /* the sessions of the workers that have died since the nursery was empty: their pids */
    pid_t *past_sessions;
    size_t past_count, past_cap;
    struct undecided_list undecided;
    unsigned retry_ms; /* current interval of `retry` in ms; doubles after each check */
    /* monotonic time at which the first undecided child was seen; 0 = there is none */
    int64_t undecided_since_ms;
    /* memory was too short to find all orphans, so the warden has to kill them */
    bool warden_takes_over;
    uint64_t deaths_seen;

    bool adopts; /* true: this process is a sub-reaper, so orphans become its children */
    char token[WARDEN_TOKEN_MAX];
    char *variable; /* "CRUN_NURSERY=…", for the workers' environments */
    struct cgroup cgroup;
    /* cgroup.kill was used, so the cgroup must be replaced before a worker starts in it */
    bool cgroup_killed;
    /* watched only while the cgroup has processes that this process does not know; else -1 */
    int cgroup_events_fd;
    enum watched watched_cgroup, watched_warden;
    struct spawn_slot *slots; /* NURSERY_SLOTS elements, mapped by the first worker_spawn_all() */
    /* true: children run on the memory of this process until they execute (see spawn.h); false:
     * children are forked */
    bool borrow;
    struct warden warden;
    unsigned warden_deaths;
    struct warden_roster *roster; /* shared with the warden */
};

/* ---- watch.c ---- */

/* Adds `fd` to the epoll for `events` of epoll(7). `what` points to the `watched` field of the
 * object that the descriptor belongs to. Returns 0 or a negative errno. */
int nursery_watch(struct nursery *n, int fd, uint32_t events, enum watched *what);
/* Removes *fd from the epoll, closes it and sets it to -1. Does nothing if it is -1. */
void nursery_unwatch(struct nursery *n, int *fd);

/* ---- worker.c ---- */

/* Adds a child that spawn_begin() has cloned to the list of living workers, to the warden's roster
 * and to the epoll. If w->pidfd is -1 afterwards, the caller must schedule a turn, because the
 * child may have died and its SIGCHLD may have come before it was registered. */
void worker_register(struct worker_process *w, const struct spawned *child);
/* Undoes worker_register() after the child was waited for. */
void worker_unregister(struct worker_process *w);
/* If the worker is dead, waits for it and moves it to the list of dead workers. Never blocks.
 * Returns whether the worker is dead. */
bool worker_note_death(struct worker_process *w);
/* Signals the Unix process group of a worker. The caller must have called deaths_collect() just
 * before, and the worker must still be in the list of living workers. */
void worker_send(struct worker_process *w, int signum);

/* ---- orphans.c ---- */

struct orphans_found {
    size_t alive;
    /* children in execve, or children skipped for lack of memory; check them again soon */
    size_t undecided;
};
/* A fault point, which only test programs define: environ_has replaces proc_environ_has(). */
struct orphans_test_hooks {
    int (*environ_has)(pid_t pid, const char *token);
};
extern const struct orphans_test_hooks *orphans_test_hooks __attribute__((weak));
#define ORPHANS_TEST_HOOKS (&orphans_test_hooks != NULL ? orphans_test_hooks : NULL)

/* Finds the orphans of this nursery, watches them, and sends `signum` to each orphan that has not
 * got this signal yet. With below_living it also signals the descendants of living workers, except
 * those of kept workers. */
struct orphans_found orphans_signal(struct nursery *n, int signum, bool below_living);
/* Returns whether nursery_end_well() leaves the process alone. */
bool orphans_spare(const struct nursery *n, pid_t pid);
void orphan_died(struct nursery *n, struct orphan *o);
void orphans_forget(struct nursery *n);
/* Reaps dead orphans (of any nursery) that waitid(2) reports. waitid reports one dead child and
 * hides those behind it until that child is reaped. Returns false if the child that it reports is
 * not an orphan, so that orphans may be hidden behind it; returns true if no dead child is left. */
bool orphans_reap(void);
/* Reaps dead orphans that waitid does not report, by reading the list of children in /proc. */
void orphans_reap_hidden(void);

/* ---- guard.c ---- */

int guard_start(struct nursery *n);    /* 0 or a negative errno */
void guard_replace(struct nursery *n); /* starts another warden after one has died */
void guard_stop(struct nursery *n);    /* stops the warden and removes the cgroup */
void guard_wait(struct nursery *n);    /* waits until the killed warden is dead */

/* ---- stuck.c ---- */

/* Calls on_stuck for each process that should be dead. */
void stuck_report(struct nursery *n);

/* ---- deaths.c ---- */

/* Records every death so far, in order, without running a callback. Returns whether on_exit is due
 * for any worker. */
bool deaths_collect(struct nursery *n);
/* Runs on_exit for each worker in nursery.dead. */
void deaths_deliver(struct nursery *n);

/* ---- nursery.c ---- */

/* Sets n->state. No other function writes it. */
void nursery_enter(struct nursery *n, enum nursery_state next);
/* Schedules nursery_turn() for the loop's next iteration. */
void nursery_schedule_turn(struct nursery *n);
void nursery_on_deaths(uv_poll_t *poll, int status, int events);
void nursery_on_sigchld(uv_signal_t *handle, int signum);

#endif
