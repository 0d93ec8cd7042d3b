/* Finds, signals and reaps orphans: processes that workers started and that live although the
 * worker is dead. This process is a sub-reaper: when an orphan's parent dies, the orphan becomes a
 * child of this process, whatever Unix session it is in.
 *
 * A child of this process is an orphan if it is not in the set of known children and if it is in
 * another Unix session than this process: every worker leads a Unix session of its own, and no
 * descendant of a worker can come back into this process's session. If this process has several
 * nurseries, or is process 1 of a pid namespace and so gets strangers' orphans, the orphan's Unix
 * session, its cgroup or the token in its environment shows to which nursery it belongs. A child in
 * the middle of execve has no environment, so its nursery is undecided. The caller checks undecided
 * children once more some milliseconds later; to wait for the end of an execve here would block the
 * loop. */
#include "agent/process/nursery_internal.h"
#include "agent/system/system.h"
#include "base/cleanup.h"
#include "base/time/clock.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* if a child has no environment for longer than this (in ms), it counts as not belonging to the
 * nursery */
#define UNDECIDED_MS 1000
#define DEPTH_MAX    64   /* the most generations of descendants that one pass signals */

/* ---- finding the nursery to which a process belongs ---- */

static bool is_in_foreign_session(pid_t pid) {
    pid_t session = getsid(pid);
    return session >= 0 && session != getsid(0);
}

static struct undecided *find_undecided(const struct nursery *n, pid_t pid, uint64_t start) {
    struct undecided *u;
    LIST_FOREACH(u, &n->undecided, entry) {
        if (u->pid == pid && u->start == start) return u;
    }
    return NULL;
}

static void forget_undecided(struct undecided *u) {
    LIST_REMOVE(u, entry);
    free(u);
}

/* Returns whether a child without an environment has to be checked once more. Returns false if the
 * child is dead, or if UNDECIDED_MS have passed since its first check. */
static bool remains_undecided(struct nursery *n, pid_t pid) {
    struct proc_stat stat;
    if (proc_stat(pid, &stat) < 0 || !stat.alive) return false;
    struct undecided *u = find_undecided(n, pid, stat.start);
    if (u != NULL) return cr_monotonic_ms() < u->until_ms;
    u = malloc(sizeof *u);
    /* memory is short: the child is checked once more, but the time of the first check is not
     * noted */
    if (u == NULL) return true;
    u->pid = pid;
    u->start = stat.start;
    u->until_ms = cr_monotonic_ms() + UNDECIDED_MS;
    LIST_INSERT_HEAD(&n->undecided, u, entry);
    return true;
}

static int environ_has_token(const struct nursery *n, pid_t pid) {
    const struct orphans_test_hooks *hooks = ORPHANS_TEST_HOOKS;
    if (hooks != NULL && hooks->environ_has != NULL) return hooks->environ_has(pid, n->token);
    return proc_environ_has(pid, n->token);
}

static bool is_past_session(const struct nursery *n, pid_t session) {
    for (size_t i = 0; i < n->past_count; i++) {
        if (n->past_sessions[i] == session) return true;
    }
    return false;
}

/* Returns whether processes that do not descend from this process can become its children. They can
 * if it is process 1 of a pid namespace, which gets all orphans of the namespace, for example those
 * of a kubectl exec. */
static bool adopts_strangers(void) { return getpid() == 1; }

static bool is_in_session_of_worker(const struct nursery *n, pid_t pid) {
    pid_t session = getsid(pid);
    const struct worker_process *w;
    TAILQ_FOREACH(w, &n->living, entry) {
        if (w->how.pid == session) return true;
    }
    return is_past_session(n, session);
}

enum owner { OURS, NOT_OURS, UNDECIDED };

static enum owner owner_of(struct nursery *n, pid_t child) {
    if (known_children_has(child) || !is_in_foreign_session(child)) return NOT_OURS;
    if (child == n->roster->deputy) return NOT_OURS;
    if (known_children_nurseries(0) == 1 && !adopts_strangers()) return OURS;
    if (is_in_session_of_worker(n, child) || cgroup_has(&n->cgroup, child)) return OURS;
    int has = environ_has_token(n, child);
    if (has == -EAGAIN) return remains_undecided(n, child) ? UNDECIDED : NOT_OURS;
    return has > 0 ? OURS : NOT_OURS;
}

/* ---- reaping while the nursery is open, so that no zombies pile up ---- */

static bool reap(pid_t pid) {
    siginfo_t info = {0};
    return waitid(P_PID, (id_t) pid, &info, WEXITED | WNOHANG) == 0 && info.si_pid == pid;
}

bool orphans_reap(void) {
    for (;;) {
        siginfo_t info = {0};
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid == 0) {
            return true;
        }
        if (known_children_has(info.si_pid) || !is_in_foreign_session(info.si_pid)) return false;
        (void) reap(info.si_pid);
    }
}

void orphans_reap_hidden(void) {
    pid_t *children = NULL;
    size_t count = 0;
    if (proc_children(getpid(), &children, &count) < 0) return;
    for (size_t i = 0; i < count; i++) {
        if (known_children_has(children[i]) || !is_in_foreign_session(children[i])) continue;
        (void) reap(children[i]);
    }
    free(children);
}

/* ---- the list of orphans ---- */

static struct orphan *find(struct nursery *n, pid_t pid) {
    struct orphan *o;
    LIST_FOREACH(o, &n->orphans, entry) {
        if (o->pid == pid) return o;
    }
    return NULL;
}

static void forget(struct nursery *n, struct orphan *o) {
    nursery_unwatch(n, &o->pidfd);
    LIST_REMOVE(o, entry);
    free(o);
}

void orphan_died(struct nursery *n, struct orphan *o) {
    /* reap() fails if the orphan is not a child of this process; in that case the orphan's parent
     * reaps it */
    (void) reap(o->pid);
    forget(n, o);
}

void orphans_forget(struct nursery *n) {
    while (!LIST_EMPTY(&n->orphans)) forget(n, LIST_FIRST(&n->orphans));
    while (!LIST_EMPTY(&n->undecided)) forget_undecided(LIST_FIRST(&n->undecided));
}

/* Starts to watch an orphan that was found in the list of children of `parent`. Between that list
 * and pidfd_open() the orphan may die, and the kernel may give its pid to another process. So the
 * function checks after pidfd_open() that the process has this parent. Returns 0 and stores the
 * orphan in *out; or returns -ESRCH if the orphan is gone, or -ENOMEM. */
static int watch(struct nursery *n, pid_t pid, pid_t parent, struct orphan **out) {
    struct proc_stat stat;
    struct orphan *o = calloc(1, sizeof *o);
    if (o == NULL) return -ENOMEM;
    *o = (struct orphan){.watched = WATCHED_ORPHAN, .pid = pid};
    o->pidfd = (int) syscall(SYS_pidfd_open, pid, 0);
    if (proc_stat(pid, &stat) < 0 || stat.parent != parent) {
        cr_close_fd(&o->pidfd);
        free(o);
        return -ESRCH;
    }
    if (o->pidfd >= 0) (void) nursery_watch(n, o->pidfd, EPOLLIN, &o->watched);
    LIST_INSERT_HEAD(&n->orphans, o, entry);
    *out = o;
    return 0;
}

static void send_signal(struct orphan *o, int signum) {
    if (o->signal_sent == signum) return;
    o->signal_sent = signum;
    if (o->pidfd < 0) {
        (void) kill(o->pid, signum);
        return;
    }
    (void) syscall(SYS_pidfd_send_signal, o->pidfd, signum, NULL, 0);
    if (signum != SIGKILL) (void) syscall(SYS_pidfd_send_signal, o->pidfd, SIGCONT, NULL, 0);
}

/* ---- processes that may live on ---- */

/* Returns whether nursery_end_well() spares the process. NURSERY_SPARES_DETACHED spares processes
 * that are in no worker's Unix session. The number of a worker's session is the worker's pid, and
 * the kernel gives that number to no new process while a process is in the session. So the pids of
 * dead workers are enough to recognise their sessions. */
bool orphans_spare(const struct nursery *n, pid_t pid) {
    if (n->spares == NURSERY_SPARES_DETACHED) return !is_past_session(n, getsid(pid));
    return n->spares == NURSERY_SPARES_ALL;
}

/* ---- orphans_signal(): signals all orphans and their descendants ---- */

/* The state of one pass over all orphans. */
struct pass {
    struct nursery *n;
    int signum;
    struct orphans_found found;
};

static void signal_below(struct pass *p, pid_t parent, int depth);

/* Signals the orphan `pid`, which is a child of this process, of a worker or of another orphan.
 * First signals the children of the orphan: if the orphan died before them, they would become
 * children of this process, and only the next pass would find them. */
static void signal_one(struct pass *p, pid_t pid, pid_t parent, int depth) {
    struct proc_stat stat;
    if (proc_stat(pid, &stat) < 0 || !stat.alive || orphans_spare(p->n, pid)) return;
    struct orphan *o = find(p->n, pid);
    int rc = o == NULL ? watch(p->n, pid, parent, &o) : 0;
    if (rc == -ENOMEM) p->found.undecided++;
    if (rc < 0) return;
    signal_below(p, pid, depth - 1);
    send_signal(o, p->signum);
    p->found.alive++;
}

static void signal_if_ours(struct pass *p, pid_t child, int depth) {
    enum owner owner = owner_of(p->n, child);
    if (owner == UNDECIDED) p->found.undecided++;
    if (owner == OURS && !reap(child)) signal_one(p, child, getpid(), depth);
}

static void signal_below(struct pass *p, pid_t parent, int depth) {
    pid_t *children = NULL, self = getpid();
    size_t count = 0;
    if (depth == 0) return;
    int rc = proc_children(parent, &children, &count);
    if (rc == -ENOMEM) p->found.undecided++;
    if (rc < 0) return;
    for (size_t i = 0; i < count; i++) {
        if (parent == self)
            signal_if_ours(p, children[i], depth);
        else
            signal_one(p, children[i], parent, depth);
    }
    free(children);
}

struct orphans_found orphans_signal(struct nursery *n, int signum, bool below_living) {
    struct pass p = {.n = n, .signum = signum};
    struct worker_process *w;
    if (n->adopts) signal_below(&p, getpid(), DEPTH_MAX);
    if (!below_living) return p.found;
    TAILQ_FOREACH(w, &n->living, entry) {
        if (!w->kept) signal_below(&p, w->how.pid, DEPTH_MAX);
    }
    return p.found;
}
