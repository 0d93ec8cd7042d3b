/* Declares the parts of a nursery for the files that implement it. A file calls only files that
 * stand below it in this list:
 *
 *   nursery_open.c   opens and closes a nursery
 *   fork_server.c    starts workers that are forks of a process with Python modules
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

#include "agent/process/nursery.h"
#include "agent/system/system.h"

#include <sys/queue.h>

#define NURSERY_SLOTS 32 /* the most workers that can be between clone and exec at the same time */

#define NURSERY_MORE_PROCESSES "; raise the limit of processes (ulimit -u, pids.max)"

/* The kinds of objects to which the descriptors in the nursery's epoll belong. Each such object has
 * a field of this type, and the data of its epoll event points to that field. */
enum watched { WATCHED_WORKER, WATCHED_ORPHAN, WATCHED_WARDEN, WATCHED_CGROUP };

struct worker_process {
    enum watched watched;
    struct nursery *nursery;
    int pidfd;       /* -1 on a kernel without pidfds, where SIGCHLD reports the death */
    int roster_slot; /* index of the worker in the warden's roster; -1 if the roster was full */
    char **envp;     /* environment of the worker; freed and NULL when the worker is started */
    void *arg;
    /* true if the worker was already exiting when this process sent it the first signal, so that
     * the signal did not cause its end */
    bool exiting_before_signal;
    bool kept;              /* true if nursery_end() spares the worker */
    /* how the worker ended; while the worker lives, only pid and signal_sent are set */
    struct worker_exit how;
    /* a link of the list nursery.living while the worker lives, of nursery.dead after its death */
    TAILQ_ENTRY(worker_process) entry;
};
TAILQ_HEAD(worker_list, worker_process);

/* A process that a worker has started and that orphans_signal() has found: an orphan, or a
 * descendant of an orphan or of a living worker. */
struct orphan {
    enum watched watched;
    pid_t pid;
    int pidfd; /* pidfd of the process; -1 on a kernel without pidfds */
    int signal_sent;
    LIST_ENTRY(orphan) entry;
};
LIST_HEAD(orphan_list, orphan);

/* A child of this process whose nursery is not known yet. The child is in the middle of execve,
 * where a process has no environment and so no token. */
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
 * A process in an uninterruptible sleep dies of SIGKILL only when the kernel wakes it, and no other
 * signal does more. So KILLING lasts until no process is left, or until the owner calls
 * nursery_abandon(). */
#define NURSERY_STATES(X)                                                                          \
    X(OPEN, "open", "workers come and go until nursery_end() or nursery_close()")                  \
    X(ENDING, "ending", "all processes have the signal; limited by the grace")                     \
    X(KILLING, "killing", "none but the owner's: give_up_ms, then nursery_abandon()")              \
    X(CLOSING, "closing", "limited by the death of the killed warden")

enum nursery_state {
#define NURSERY_STATE(state, name, limit) NURSERY_##state,
    NURSERY_STATES(NURSERY_STATE)
#undef NURSERY_STATE
};

struct nursery {
    uv_loop_t *loop;
    struct nursery_events events;
    void *arg;
    enum nursery_state state; /* changed by nursery_enter() only */
    int end_signal;           /* the signal of nursery_end(), sent in ENDING */

    /* an epoll of all pidfds, which reports deaths in the order in which they happened */
    int epoll_fd;
    uv_poll_t deaths;
    uv_signal_t sigchld;
    uv_timer_t grace; /* fires when the grace is over; runs in ENDING */
    uv_timer_t turn;  /* calls nursery_turn() in the loop's next iteration */
    uv_timer_t retry; /* fires when undecided children have to be checked once more */
    uv_timer_t stuck; /* fires when on_stuck or on_unkillable is due; runs in KILLING */
    int64_t stuck_report_ms; /* ms from killed_ms to the next report by on_stuck */
    bool unkillable_said;    /* true if on_unkillable has run since killed_ms */
    int64_t killed_ms; /* monotonic time of the first SIGKILL; valid in KILLING */
    unsigned open_handles;
    void (*on_close)(void *arg);

    struct worker_list living; /* workers that were started and are not known to be dead */
    struct worker_list dead;   /* dead workers for which on_exit still has to run */
    struct orphan_list orphans;
    /* the processes that nursery_end_well() spares; NURSERY_SPARES_NOTHING after nursery_end(), and
     * when the nursery has become empty */
    enum nursery_spares spares;
    /* the Unix sessions of the workers that have died since the nursery was last empty; the number
     * of a worker's session is the worker's pid */
    pid_t *past_sessions;
    size_t past_count, past_cap;
    struct undecided_list undecided;
    unsigned retry_ms; /* ms until `retry` fires; doubles with each check of undecided children */
    /* monotonic time at which the first undecided child was seen; 0 = there is none */
    int64_t undecided_since_ms;
    /* true if the warden has to kill what is left when the nursery is closed: memory was too short
     * to find all orphans, or nursery_abandon() was called */
    bool warden_takes_over;
    uint64_t deaths_seen;

    /* true if this process is a sub-reaper: when the parent of an orphan dies, the orphan becomes a
     * child of this process */
    bool adopts;
    char token[WARDEN_TOKEN_MAX];
    char *variable; /* "CRUN_NURSERY=…", for the workers' environments */
    struct cgroup cgroup;
    /* true if cgroup.kill was used: the cgroup must be replaced before another worker starts in
     * it */
    bool cgroup_killed;
    bool cgroup_given_up; /* true if a worker could not be started in the cgroup */
    /* descriptor of the file cgroup.events; it is open, and watched by the epoll, only while the
     * cgroup has processes that this process does not know; else -1 */
    int cgroup_events_fd;
    enum watched watched_cgroup, watched_warden;
    struct spawn_slot *slots; /* NURSERY_SLOTS elements, mapped by the first worker_spawn_all() */
    /* true if a child runs on the memory of this process until it executes its program (spawn.h);
     * false if children are forked */
    bool borrow;
    struct warden warden;
    unsigned warden_deaths;
    struct warden_roster *roster; /* shared with the warden */
    /* true if on_fenced has run since the nursery was last empty */
    bool fenced_reported;
};

/* ---- watch.c ---- */

/* Adds `fd` to the nursery's epoll for the events `events` (epoll(7)). `what` points to the field
 * `watched` of the object that the descriptor belongs to. Returns 0 or a negative errno. */
int nursery_watch(struct nursery *n, int fd, uint32_t events, enum watched *what);
/* Removes *fd from the epoll, closes it and sets it to -1. If *fd is -1, does nothing. */
void nursery_unwatch(struct nursery *n, int *fd);

/* ---- worker.c ---- */

/* Adds a child that spawn_begin() has cloned to the list of living workers, to the warden's roster
 * and to the epoll. If w->pidfd is -1 afterwards, the caller must schedule a turn: the child may be
 * dead, and its SIGCHLD may have come before the child was registered. */
void worker_register(struct worker_process *w, const struct spawned *child);
/* Call this when the worker is dead and was waited for. Undoes worker_register(). */
void worker_unregister(struct worker_process *w);
/* If the worker is dead, reaps it, records how it ended, moves it to the list of dead workers and
 * returns true. Otherwise returns false. Never blocks. */
bool worker_note_death(struct worker_process *w);
/* Sends a signal to the Unix process group of a worker. Call this just after deaths_collect(), and
 * only if the worker is still in the list of living workers. */
void worker_send(struct worker_process *w, int signum);

/* ---- orphans.c ---- */

struct orphans_found {
    size_t alive;
    /* processes of which it is not known whether they are orphans: children in the middle of
     * execve, and processes skipped for lack of memory. The caller must check them soon once
     * more. */
    size_t undecided;
};
/* Fault points, which only test programs define. environ_has() is called in place of
 * proc_environ_has(). */
struct orphans_test_hooks {
    int (*environ_has)(pid_t pid, const char *token);
};
extern const struct orphans_test_hooks *orphans_test_hooks __attribute__((weak));
#define ORPHANS_TEST_HOOKS (&orphans_test_hooks != NULL ? orphans_test_hooks : NULL)

/* Finds the orphans of this nursery, watches them, and sends `signum` to each orphan that has not
 * got `signum` in an earlier call. If below_living is true, does the same with the descendants of
 * living workers that are not kept. Returns how many processes it found. */
struct orphans_found orphans_signal(struct nursery *n, int signum, bool below_living);
/* Returns whether nursery_end_well() spares the process. */
bool orphans_spare(const struct nursery *n, pid_t pid);
void orphan_died(struct nursery *n, struct orphan *o);
void orphans_forget(struct nursery *n);
/* Reaps dead orphans of all nurseries as long as waitid(2) reports them. Returns true if no dead
 * child is left. Returns false if waitid reports a dead child that is no orphan: until that child
 * is reaped, waitid reports no other child, although there may be more dead orphans. */
bool orphans_reap(void);
/* Call this when orphans_reap() has returned false. Reaps the dead orphans that waitid(2) does not
 * report: finds them in the list of children in /proc. */
void orphans_reap_hidden(void);

/* ---- guard.c ---- */

int guard_start(struct nursery *n);    /* starts a warden; returns 0 or a negative errno */
void guard_replace(struct nursery *n); /* call this when the warden has died */
void guard_stop(struct nursery *n);    /* kills the warden and removes the cgroup */
/* Returns true if the warden was killed and still lives, and the nursery's epoll will report its
 * death. */
bool guard_is_dying(const struct nursery *n);
void guard_wait(struct nursery *n); /* waits until the killed warden is dead, and reaps it */

/* ---- stuck.c ---- */

/* Calls on_stuck, unless it is NULL, for each worker and each orphan that still lives since_ms ms
 * after it got SIGKILL, except kept workers. Returns the number of these processes. */
unsigned stuck_report(struct nursery *n, int64_t since_ms);

/* ---- deaths.c ---- */

/* Records the deaths of workers since the last call, in the order of death. Calls no function of
 * nursery_events. Returns true if on_exit has to run for a worker. */
bool deaths_collect(struct nursery *n);
/* Runs on_exit for each worker in nursery.dead. */
void deaths_deliver(struct nursery *n);

/* ---- nursery.c ---- */

/* Sets n->state and logs the change. No other function changes n->state. */
void nursery_enter(struct nursery *n, enum nursery_state next);
/* Schedules nursery_turn() for the loop's next iteration. */
void nursery_schedule_turn(struct nursery *n);
void nursery_on_deaths(uv_poll_t *poll, int status, int events);
void nursery_on_sigchld(uv_signal_t *handle, int signum);

/* ---- nursery_open.c ---- */

/* Call this at each event of the epoll in the state CLOSING. Goes on with closing the nursery if
 * the warden is dead. */
void nursery_go_on_closing(struct nursery *n);

#endif
