/* What worker_process.c, nursery.c and orphans.c share. */
#ifndef AGENT_NURSERY_INTERNAL_H
#define AGENT_NURSERY_INTERNAL_H

#include "agent/process/cgroup.h"
#include "agent/process/spawn.h"
#include "agent/process/warden.h"
#include "agent/process/nursery.h"

#include <sys/queue.h>

#define NURSERY_SLOTS 32 /* workers that are started at once */

/* The remedy where a process could not be started for -EAGAIN. */
#define NURSERY_MORE_PROCESSES "; raise the limit of processes (ulimit -u, pids.max)"

/* What a descriptor in the nursery's epoll stands for; the first member of each such object. */
enum watched { WATCHED_WORKER, WATCHED_ORPHAN, WATCHED_WARDEN, WATCHED_CGROUP };

struct worker_process {
    enum watched watched;
    struct nursery *nursery;
    int pidfd;       /* -1 where the kernel has none: SIGCHLD tells instead */
    int roster_slot; /* or -1 */
    char **envp;     /* while it is being started */
    void *arg;
    int dying_unasked;      /* it was on its way out already when our first signal went to it */
    int kept;               /* nursery_end() does not mean it */
    struct worker_exit how; /* pid and signal_sent from the start, the rest once it is dead */
    TAILQ_ENTRY(worker_process) link; /* in nursery.living, then in nursery.dead */
};
TAILQ_HEAD(worker_list, worker_process);

/* A process that a worker left behind, found while the nursery ends. */
struct orphan {
    enum watched watched;
    pid_t pid;
    int pidfd;
    int signal_sent;
    LIST_ENTRY(orphan) link;
};
LIST_HEAD(orphan_list, orphan);

enum nursery_state {
    NURSERY_OPEN,    /* workers may come and go */
    NURSERY_ENDING,  /* all were told to end; the grace runs */
    NURSERY_KILLING, /* SIGKILL to whatever is found */
    NURSERY_CLOSING,
};

struct nursery {
    uv_loop_t *loop;
    struct nursery_events events;
    void *arg;
    enum nursery_state state;
    int end_signal; /* ENDING */

    int epoll_fd; /* pidfds, ready in the kernel's order of death */
    uv_poll_t deaths;
    uv_signal_t sigchld;
    uv_timer_t grace, turn;
    unsigned open_handles;
    void (*on_close)(void *arg);

    struct worker_list living; /* started, and not seen dead */
    struct worker_list dead;   /* seen dead, on_exit still to run */
    struct orphan_list orphans;
    uint64_t deaths_seen;

    int adopts; /* this process is a sub-reaper */
    char token[WARDEN_TOKEN_MAX];
    char *variable; /* "CRUN_NURSERY=…" */
    struct cgroup cgroup;
    int cgroup_killed;    /* and must be renewed before it is used again */
    int cgroup_events_fd; /* watched only while something unknown is in there; else -1 */
    enum watched watched_cgroup, watched_warden;
    struct spawn_slot *slots; /* NURSERY_SLOTS of them, from the first start on */
    int borrow;               /* children may borrow our memory */
    struct warden warden;
    unsigned warden_deaths;
    struct warden_roster *roster;
};

/* worker_process.c */
/* Notes every death so far, in order; runs no callback. */
void nursery_collect(struct nursery *n);
void nursery_deliver_exits(struct nursery *n);
/* To the group of one that nursery_collect has left among the living. */
void worker_send(struct worker_process *w, int signum);

/* nursery.c */
/* on_exit and whatever follows from it, on the loop's next turn. */
void nursery_schedule_turn(struct nursery *n);
int nursery_watch(struct nursery *n, int fd, uint32_t events, enum watched *what);
void nursery_unwatch(struct nursery *n, int *fd); /* closes it too */
void nursery_replace_warden(struct nursery *n);

/* orphans.c */
/* Reaps the dead among our adopted children. */
void orphans_reap(struct nursery *n);
/* Finds what dead workers left behind, watches it, and signals what did not have `signum` yet.
 * `below_living`: what living workers started, too, but for kept ones. Returns how many live. */
size_t orphans_signal(struct nursery *n, int signum, int below_living);
void orphan_died(struct nursery *n, struct orphan *o);
void orphans_forget(struct nursery *n);

#endif
