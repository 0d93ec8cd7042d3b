/* What workers leave behind: children of a dead worker become ours, since we are the sub-reaper, in
 * whatever session they are.
 *
 * An orphan is a child of this process that nobody here started and that lives in another session:
 * every worker got a session of its own, and no descendant of it can come back into ours. With more
 * than one nursery in the process the token in its environment says whose it is. */
#include "agent/process/known_children.h"
#include "agent/process/nursery_internal.h"
#include "agent/process/proc.h"
#include "base/cleanup.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define DOUBT_MS  1000 /* so long we wait until it can be told whose a child is */
#define DEPTH_MAX 64 /* generations below us that are looked for at once; the rest come up later */

static int in_foreign_session(pid_t pid) {
    pid_t session = getsid(pid);
    return session >= 0 && session != getsid(0);
}

/* One that is about to execute a program can be asked in a moment. */
static int has_our_token(const struct nursery *n, pid_t pid) {
    int answer = proc_environ_has(pid, n->token);
    for (int i = 0; answer == -EAGAIN && i < DOUBT_MS; i++) {
        (void) poll(NULL, 0, 1);
        answer = proc_environ_has(pid, n->token);
    }
    return answer > 0;
}

static int is_orphan(const struct nursery *n, pid_t child) {
    if (known_children_has(child) || !in_foreign_session(child)) return 0;
    return known_children_nurseries(0) == 1 || has_our_token(n, child);
}

static int reap(pid_t pid) {
    siginfo_t info = {0};
    return waitid(P_PID, (id_t) pid, &info, WEXITED | WNOHANG) == 0 && info.si_pid == pid;
}

/* ---- while the nursery is open: no zombies pile up ---- */

/* Behind a zombie that is not ours to reap waitid shows no other. */
static void reap_behind(void) {
    pid_t *children = NULL;
    size_t count = 0;
    if (proc_children(getpid(), &children, &count) < 0) return;
    for (size_t i = 0; i < count; i++)
        if (!known_children_has(children[i]) && in_foreign_session(children[i]))
            (void) reap(children[i]);
    free(children);
}

void orphans_reap(struct nursery *n) {
    if (!n->adopts) return;
    for (;;) {
        siginfo_t info = {0};
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid == 0) return;
        if (!known_children_has(info.si_pid) && in_foreign_session(info.si_pid)) {
            (void) reap(info.si_pid);
            continue;
        }
        uint64_t before = n->deaths_seen;
        nursery_collect(n); /* one of ours, that has just died? */
        if (n->deaths_seen == before) break;
    }
    reap_behind();
}

/* ---- while it ends ---- */

static struct orphan *find(struct nursery *n, pid_t pid) {
    struct orphan *o;
    LIST_FOREACH(o, &n->orphans, link)
    if (o->pid == pid) return o;
    return NULL;
}

static void forget(struct nursery *n, struct orphan *o) {
    nursery_unwatch(n, &o->pidfd);
    LIST_REMOVE(o, link);
    free(o);
}

void orphan_died(struct nursery *n, struct orphan *o) {
    (void) reap(o->pid); /* when it is our child; else its parent will */
    forget(n, o);
}

void orphans_forget(struct nursery *n) {
    while (!LIST_EMPTY(&n->orphans)) forget(n, LIST_FIRST(&n->orphans));
}

/* Between reading the pid and opening the pidfd it may have become another process: ask again. */
static struct orphan *watch(struct nursery *n, pid_t pid, pid_t parent) {
    struct orphan *o = calloc(1, sizeof *o);
    struct proc_stat stat;
    if (o == NULL) return NULL;
    *o = (struct orphan){.watched = WATCHED_ORPHAN, .pid = pid};
    o->pidfd = (int) syscall(SYS_pidfd_open, pid, 0);
    if (proc_stat(pid, &stat) < 0 || stat.parent != parent) {
        cr_close_fd(&o->pidfd);
        free(o);
        return NULL;
    }
    if (o->pidfd >= 0) (void) nursery_watch(n, o->pidfd, EPOLLIN, &o->watched);
    LIST_INSERT_HEAD(&n->orphans, o, link);
    return o;
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

static size_t signal_below(struct nursery *n, pid_t parent, int signum, int depth);

/* A child of ours or of another orphan. Returns how many live, it and those below it. */
static size_t signal_one(struct nursery *n, pid_t pid, pid_t parent, int signum, int depth) {
    struct proc_stat stat;
    if (proc_stat(pid, &stat) < 0 || !stat.alive) return 0;
    struct orphan *o = find(n, pid);
    if (o == NULL) o = watch(n, pid, parent);
    if (o == NULL) return 0;
    size_t below = signal_below(n, pid, signum, depth - 1);
    send_signal(o, signum);
    return 1 + below;
}

static size_t signal_below(struct nursery *n, pid_t parent, int signum, int depth) {
    pid_t *children = NULL, self = getpid();
    size_t count = 0, alive = 0;
    if (depth == 0 || proc_children(parent, &children, &count) < 0) return 0;
    for (size_t i = 0; i < count; i++) {
        if (parent == self && !is_orphan(n, children[i])) continue;
        if (parent == self && reap(children[i])) continue;
        alive += signal_one(n, children[i], parent, signum, depth);
    }
    free(children);
    return alive;
}

size_t orphans_signal(struct nursery *n, int signum, int below_living) {
    size_t alive = n->adopts ? signal_below(n, getpid(), signum, DEPTH_MAX) : 0;
    struct worker_process *w;
    if (below_living)
        TAILQ_FOREACH(w, &n->living, link)
            if (!w->kept) alive += signal_below(n, w->how.pid, signum, DEPTH_MAX);
    return alive;
}
