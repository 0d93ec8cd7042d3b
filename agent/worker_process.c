/* One worker: start it, note its death, signal its group.
 *
 * Deaths are read from an epoll of pidfds: the kernel queues a descriptor when it becomes ready, so
 * reading them in turn is reading them in the order of death, however late we come. Noting a death
 * (nursery_collect) and telling it (on_exit) are apart, so that whoever is about to send a signal can
 * first see who is dead already and is no victim of it. */
#include "agent/known_children_internal.h"
#include "agent/nursery_internal.h"
#include "agent/spawn_internal.h"
#include "base/cleanup.h"
#include "base/clock.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define NURSERY_VARIABLE "CRUN_NURSERY="
#define BATCH            64 /* deaths read in one call */

pid_t worker_pid(const struct worker_process *w) { return w->how.pid; }
void *worker_arg(const struct worker_process *w) { return w->arg; }

/* ---- start ---- */

/* The caller's environment with our variable in place of an inherited one. malloc'ed; borrows. */
static char **environment_with(char *const *envp, char *variable) {
    size_t count = 0, to = 0;
    while (envp[count] != NULL) count++;
    char **out = malloc((count + 2) * sizeof *out);
    if (out == NULL) return NULL;
    for (size_t i = 0; i < count; i++)
        if (strncmp(envp[i], NURSERY_VARIABLE, sizeof NURSERY_VARIABLE - 1) != 0)
            out[to++] = envp[i];
    out[to++] = variable;
    out[to] = NULL;
    return out;
}

static int enter_roster(struct nursery *n, pid_t pid) {
    for (int i = 0; i < WARDEN_SESSION_MAX; i++) {
        if (n->roster->session[i] != 0) continue;
        n->roster->session[i] = pid;
        return i;
    }
    return -1; /* the warden has the token too */
}

static const char *remedy(int code) {
    switch (code) {
    case -EACCES: return "; make it executable (chmod +x) and its folders accessible";
    case -ENOEXEC: return "; is it built for this machine, or does a script lack its #! line?";
    case -ENOENT: return "; check the path, and the interpreter that its #! line names";
    case -EAGAIN: return "; raise the limit of processes (ulimit -u, pids.max)";
    case -E2BIG: return "; shorten the arguments or the environment";
    default: return "";
    }
}

static int start(struct nursery *n, struct worker_process *w, const struct worker_spawn *how,
                 char *const *envp, struct cr_error *err) {
    struct spawn_request request = {
        .path = how->path,
        .argv = how->argv,
        .envp = envp,
        .stdio = {how->stdin_fd, how->stdout_fd, how->stderr_fd},
        .cgroup_fd = n->cgroup.fd,
    };
    struct spawned s = {.pidfd = -1};
    const char *what;
    int code = known_children_begin();
    if (code < 0) return cr_fail(err, code, "cannot start '%s': out of memory", how->path);
    code = spawn_process(&request, &s, &what);
    if (code == -ENOTSUP && n->cgroup.fd >= 0) {
        if (TAILQ_EMPTY(&n->living)) cr_close_fd(&n->cgroup.fd); /* no use trying again */
        request.cgroup_fd = -1;
        code = spawn_process(&request, &s, &what);
    }
    known_children_end(code == 0 ? s.pid : 0);
    if (code < 0)
        return cr_fail(err, code, "cannot %s '%s': %s%s", what, how->path, strerror(-code),
                       remedy(code));
    w->how.pid = s.pid;
    w->pidfd = s.pidfd;
    return 0;
}

int worker_spawn(struct nursery *n, const struct worker_spawn *how, void *worker_arg,
                 struct worker_process **out, struct cr_error *err) {
    if (n->state != NURSERY_OPEN)
        return cr_fail(err, -EBUSY, "cannot start '%s': its group is ending", how->path);
    CR_AUTO_FREE char **envp = environment_with(how->envp, n->variable);
    struct worker_process *w = calloc(1, sizeof *w);
    int code = -ENOMEM;
    if (envp == NULL || w == NULL)
        (void) cr_fail(err, code, "cannot start '%s': out of memory", how->path);
    else
        code = start(n, w, how, envp, err);
    if (code < 0) {
        free(w);
        return code;
    }
    w->watched = WATCHED_WORKER;
    w->nursery = n;
    w->arg = worker_arg;
    w->roster_slot = enter_roster(n, w->how.pid);
    TAILQ_INSERT_TAIL(&n->living, w, link);
    /* Dead already? Then the descriptor is ready from the first moment: nothing is lost. */
    if (w->pidfd >= 0 && nursery_watch(n, w->pidfd, EPOLLIN, &w->watched) < 0)
        cr_close_fd(&w->pidfd);
    if (w->pidfd < 0) nursery_schedule_turn(n); /* its SIGCHLD may have come before we knew it */
    *out = w;
    return 0;
}

/* ---- death ---- */

static void describe(struct worker_exit *how, const siginfo_t *info) {
    how->exit_code = info->si_code == CLD_EXITED ? info->si_status : -info->si_status;
    how->core_dumped = info->si_code == CLD_DUMPED;
    how->died_monotonic_ns = cr_monotonic_ns();
    how->died_wall_ns = cr_wall_ns();
}

/* 1 if it was dead: now in nursery.dead. */
static int worker_collect(struct worker_process *w) {
    struct nursery *n = w->nursery;
    siginfo_t info = {0};
    /* The C library's waitid has no room for the usage; the kernel's has. */
    if (syscall(SYS_waitid, P_PID, w->how.pid, &info, WEXITED | WNOHANG, &w->how.usage) < 0 ||
        info.si_pid == 0)
        return 0;
    known_children_forget(w->how.pid);
    if (w->roster_slot >= 0) n->roster->session[w->roster_slot] = 0;
    nursery_unwatch(n, &w->pidfd);
    describe(&w->how, &info);
    w->how.order = ++n->deaths_seen;
    TAILQ_REMOVE(&n->living, w, link);
    TAILQ_INSERT_TAIL(&n->dead, w, link);
    return 1;
}

static void collect_unwatched(struct nursery *n) {
    struct worker_process *w, *next;
    for (w = TAILQ_FIRST(&n->living); w != NULL; w = next) {
        next = TAILQ_NEXT(w, link);
        if (w->pidfd < 0) (void) worker_collect(w);
    }
}

static void handle_ready(struct nursery *n, enum watched *what) {
    switch (*what) {
    case WATCHED_WORKER:
        (void) worker_collect(CR_CONTAINER_OF(what, struct worker_process, watched));
        break;
    case WATCHED_ORPHAN: orphan_died(n, CR_CONTAINER_OF(what, struct orphan, watched)); break;
    case WATCHED_WARDEN: nursery_replace_warden(n); break;
    case WATCHED_CGROUP:
        nursery_unwatch(n, &n->cgroup_events_fd); /* watched anew if it is still populated */
        break;
    }
}

void nursery_collect(struct nursery *n) {
    struct epoll_event ready[BATCH];
    int count;
    do {
        count = epoll_wait(n->epoll_fd, ready, BATCH, 0);
        for (int i = 0; i < count; i++) handle_ready(n, ready[i].data.ptr);
    } while (count == BATCH);
    collect_unwatched(n);
    if (!TAILQ_EMPTY(&n->dead)) nursery_schedule_turn(n);
}

void nursery_deliver_exits(struct nursery *n) {
    struct worker_process *w;
    while ((w = TAILQ_FIRST(&n->dead)) != NULL) {
        TAILQ_REMOVE(&n->dead, w, link);
        n->events.on_exit(n->arg, w, &w->how);
        free(w);
    }
}

/* ---- signals ---- */

void worker_send(struct worker_process *w, int signum) {
    w->how.signal_sent = signum;
    (void) kill(-w->how.pid, signum); /* not waited for yet, so the pid cannot be another's */
}

void worker_signal(struct worker_process *w, int signum) {
    struct nursery *n = w->nursery;
    nursery_collect(n);
    struct worker_process *dead;
    TAILQ_FOREACH(dead, &n->dead, link)
    if (dead == w) return;
    worker_send(w, signum);
}
