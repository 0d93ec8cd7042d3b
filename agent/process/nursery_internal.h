/* The parts of a nursery, shared by the files that implement it. A file calls only files that stand
 * below it in this list:
 *
 *   nursery_open.c   opens and closes a nursery
 *   worker_start.c   starts workers
 *   nursery.c        the state machine: nursery_turn() does all that a turn of the loop needs
 *   deaths.c         reads which processes died, in the kernel's order
 *   guard.c          keeps a warden beside the nursery
 *   orphans.c        finds, signals and reaps what dead workers left behind
 *   worker.c         one worker: registers it, notes its death, signals it
 *   watch.c          the nursery's epoll
 *
 * and the files with headers of their own: spawn, warden, cgroup, known_children, claim, proc. */
#ifndef AGENT_NURSERY_INTERNAL_H
#define AGENT_NURSERY_INTERNAL_H

#include "agent/process/cgroup.h"
#include "agent/process/nursery.h"
#include "agent/process/spawn.h"
#include "agent/process/warden.h"

#include <sys/queue.h>

#define NURSERY_SLOTS 32 /* workers that may be between clone and exec at one time */

#define NURSERY_MORE_PROCESSES "; raise the limit of processes (ulimit -u, pids.max)"

/* The kind of object behind a descriptor in the nursery's epoll; its address is the epoll's
 * data. */
enum watched { WATCHED_WORKER, WATCHED_ORPHAN, WATCHED_WARDEN, WATCHED_CGROUP };

struct worker_process {
    enum watched watched;
    struct nursery *nursery;
    int pidfd;       /* -1 on a kernel without pidfds: then SIGCHLD reports its death */
    int roster_slot; /* its place in the warden's roster, or -1 */
    char **envp;     /* only while it is being started */
    void *arg;
    /* It was exiting already when we sent it its first signal: that signal did not end it. */
    bool exiting_before_signal;
    bool kept;              /* nursery_end() spares it */
    struct worker_exit how; /* pid and signal_sent from the start, the rest once it is dead */
    TAILQ_ENTRY(worker_process) entry; /* in nursery.living, then in nursery.dead */
};
TAILQ_HEAD(worker_list, worker_process);

/* A process that a dead worker left behind, or a descendant of one. */
struct orphan {
    enum watched watched;
    pid_t pid;
    int pidfd; /* or -1 */
    int signal_sent;
    LIST_ENTRY(orphan) entry;
};
LIST_HEAD(orphan_list, orphan);

/* A child of ours that may be an orphan of this nursery or of another one: it is in the middle of
 * execve, where a process has no environment and so no token. */
struct undecided {
    pid_t pid;
    uint64_t start; /* with the pid, the identity of the process */
    int64_t until_ms;
    LIST_ENTRY(undecided) entry;
};
LIST_HEAD(undecided_list, undecided);

/* The states, and what ends each of them:
 *
 *     OPEN ──nursery_end──► ENDING ──grace over──► KILLING
 *      ▲ │                     │                      │
 *      │ └──nursery_close──►   │       CLOSING        │
 *      └───────── on_empty ◄───┴──────────────────────┘
 *
 * KILLING has no limit: SIGKILL is the last means, and a process in an uninterruptible sleep dies
 * when the kernel wakes it. */
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
    enum nursery_state state; /* written by nursery_enter() alone */
    int end_signal;           /* in ENDING */

    int epoll_fd; /* holds the pidfds, which become ready in the kernel's order of death */
    uv_poll_t deaths;
    uv_signal_t sigchld;
    uv_timer_t grace; /* the limit of ENDING */
    uv_timer_t turn;  /* runs the next turn without an event */
    uv_timer_t retry; /* looks again at undecided children */
    unsigned open_handles;
    void (*on_close)(void *arg);

    struct worker_list living; /* started, and not known to be dead */
    struct worker_list dead;   /* known to be dead, on_exit still to run */
    struct orphan_list orphans;
    struct undecided_list undecided;
    unsigned retry_ms; /* until the next look at them; doubles */
    uint64_t deaths_seen;

    bool adopts; /* this process is a sub-reaper */
    char token[WARDEN_TOKEN_MAX];
    char *variable; /* "CRUN_NURSERY=…", for the workers' environments */
    struct cgroup cgroup;
    bool cgroup_killed;   /* by cgroup.kill: has to be replaced before a worker starts in it */
    int cgroup_events_fd; /* watched only while an unknown process is in the cgroup; else -1 */
    enum watched watched_cgroup, watched_warden;
    struct spawn_slot *slots; /* NURSERY_SLOTS of them, mapped by the first start */
    bool borrow;              /* children may run on our memory until they execute (spawn.h) */
    struct warden warden;
    unsigned warden_deaths;
    struct warden_roster *roster; /* shared with the warden */
};

/* ---- watch.c ---- */

/* Watches `fd` for `events` of epoll(7); *what is the kind of object behind it. Returns 0 or a
 * negative errno. */
int nursery_watch(struct nursery *n, int fd, uint32_t events, enum watched *what);
/* Stops watching and closes *fd, which becomes -1. Does nothing if it is -1. */
void nursery_unwatch(struct nursery *n, int *fd);

/* ---- worker.c ---- */

/* Notes a child that spawn_begin() has made: in the list of the living, the warden's roster, and
 * the epoll. Without a pidfd the caller schedules a turn, because SIGCHLD may have come already. */
void worker_register(struct worker_process *w, const struct spawned *child);
/* Undoes that, once the child was waited for. */
void worker_unregister(struct worker_process *w);
/* Waits for the worker if it is dead, and moves it to the list of the dead. Returns whether it
 * is. */
bool worker_note_death(struct worker_process *w);
/* Signals the process group of a worker that deaths_collect() has just left among the living. */
void worker_send(struct worker_process *w, int signum);

/* ---- orphans.c ---- */

struct orphans_found {
    size_t alive;
    size_t undecided; /* children in execve, or memory was short: look again in a moment */
};
/* A fault point, defined by test programs only: takes the place of proc_environ_has(). */
struct orphans_test_hooks {
    int (*environ_has)(pid_t pid, const char *token);
};
extern const struct orphans_test_hooks *orphans_test_hooks __attribute__((weak));
#define ORPHANS_TEST_HOOKS (&orphans_test_hooks != NULL ? orphans_test_hooks : NULL)

/* Finds what dead workers left behind, watches it, and sends `signum` to each process that did not
 * have it yet. With `below_living` also to what living workers started, kept workers excepted. */
struct orphans_found orphans_signal(struct nursery *n, int signum, bool below_living);
void orphan_died(struct nursery *n, struct orphan *o);
void orphans_forget(struct nursery *n);
/* Reaps dead adopted children, as far as waitid(2) shows them. Returns false if the next dead child
 * that waitid shows is not an orphan: it hides the ones behind it. */
bool orphans_reap(void);
/* Reaps dead adopted children that waitid does not show, by reading /proc. */
void orphans_reap_hidden(void);

/* ---- guard.c ---- */

int guard_start(struct nursery *n);    /* 0 or a negative errno */
void guard_replace(struct nursery *n); /* the warden has died */
void guard_stop(struct nursery *n);    /* and removes the cgroup */
void guard_wait(struct nursery *n);    /* until the stopped warden is gone */

/* ---- deaths.c ---- */

/* Notes every death so far, in order, without running a callback. Returns whether on_exit is due
 * for any worker. */
bool deaths_collect(struct nursery *n);
/* Runs on_exit for each worker in nursery.dead. */
void deaths_deliver(struct nursery *n);

/* ---- nursery.c ---- */

/* The only writer of n->state. */
void nursery_enter(struct nursery *n, enum nursery_state next);
/* Runs a turn in the loop's next iteration. */
void nursery_schedule_turn(struct nursery *n);
void nursery_on_deaths(uv_poll_t *poll, int status, int events);
void nursery_on_sigchld(uv_signal_t *handle, int signum);

#endif
