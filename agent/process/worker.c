/* One worker process: registers it after the clone, records its death, and signals its Unix process
 * group. */
#include "agent/process/nursery_internal.h"
#include "agent/system/system.h"
#include "base/cleanup.h"
#include "base/time/clock.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Writes the pid into a free entry of the warden's roster. Returns the entry's index; or -1 if the
 * roster is full. The warden recognises a worker by the roster or by the token in its environment;
 * without an entry, only by the token. */
static int enter_roster(struct nursery *n, pid_t pid) {
    for (int i = 0; i < WARDEN_SESSION_MAX; i++) {
        if (n->roster->session[i] != 0) continue;
        n->roster->session[i] = pid;
        return i;
    }
    return -1;
}

void worker_register(struct worker_process *w, const struct spawned *child) {
    struct nursery *n = w->nursery;
    w->how.pid = child->pid;
    w->pidfd = child->pidfd;
    w->roster_slot = enter_roster(n, w->how.pid);
    TAILQ_INSERT_TAIL(&n->living, w, entry);
    /* If the child is dead already, the epoll reports its pidfd at once, so its death is not
     * missed. */
    if (w->pidfd >= 0 && nursery_watch(n, w->pidfd, EPOLLIN, &w->watched) < 0) {
        cr_close_fd(&w->pidfd);
    }
}

/* Notes the Unix session of a dead worker for orphans_spare(). If memory is short, notes nothing;
 * in that case orphans_spare() takes processes of this session for detached ones and may spare
 * them. */
static void note_session(struct nursery *n, pid_t session) {
    if (n->past_count == n->past_cap) {
        size_t cap = n->past_cap == 0 ? 64 : 2 * n->past_cap;
        pid_t *grown = realloc(n->past_sessions, cap * sizeof(*grown));
        if (grown == NULL) return;
        n->past_sessions = grown;
        n->past_cap = cap;
    }
    n->past_sessions[n->past_count++] = session;
}

void worker_unregister(struct worker_process *w) {
    struct nursery *n = w->nursery;
    note_session(n, w->how.pid);
    known_children_forget(w->how.pid);
    if (w->roster_slot >= 0) n->roster->session[w->roster_slot] = 0;
    nursery_unwatch(n, &w->pidfd);
    TAILQ_REMOVE(&n->living, w, entry);
}

static void record_exit(struct worker_process *w, const siginfo_t *info) {
    struct worker_exit *how = &w->how;
    how->exit_code = info->si_code == CLD_EXITED ? info->si_status : -info->si_status;
    how->core_dumped = info->si_code == CLD_DUMPED;
    if (w->exiting_before_signal && how->exit_code != -how->signal_sent) how->signal_sent = 0;
    /* the warden has killed the worker at the fence: this counts as a signal that crun sent */
    if (w->nursery->roster->fenced && how->exit_code == -SIGKILL) how->signal_sent = SIGKILL;
    how->died_monotonic_ns = cr_monotonic_ns();
    how->died_wall_ns = cr_wall_ns();
    how->order = ++w->nursery->deaths_seen;
}

bool worker_note_death(struct worker_process *w) {
    siginfo_t info = {0};
    /* The raw system call is used because it also returns the resource usage of the worker; the C
     * library's waitid() does not. */
    if (syscall(SYS_waitid, P_PID, w->how.pid, &info, WEXITED | WNOHANG, &w->how.usage) < 0 ||
        info.si_pid == 0) {
        return false;
    }
    worker_unregister(w);
    record_exit(w, &info);
    TAILQ_INSERT_TAIL(&w->nursery->dead, w, entry);
    return true;
}

/* Sends a signal to the worker's Unix process group. Before the first signal it records whether the
 * worker is exiting already, because the signal does not cause the end of an exiting worker.
 * Example: a dying worker A closes its connections some time before it can be waited for. Worker B
 * notices the closed connection and dies first. Because of B's death this process signals A, which
 * was dying before the signal. */
void worker_send(struct worker_process *w, int signum) {
    struct proc_stat stat;
    if (w->how.signal_sent == 0 && proc_stat(w->how.pid, &stat) == 0) {
        w->exiting_before_signal = stat.exiting;
    }
    w->how.signal_sent = signum;
    /* the pid still belongs to the worker, because the worker was not waited for yet */
    (void) kill(-w->how.pid, signum);
}
