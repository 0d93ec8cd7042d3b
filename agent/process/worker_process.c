/* One worker: start it, note its death, signal its group.
 *
 * Deaths are read from an epoll of pidfds: the kernel queues a descriptor when it becomes ready, so
 * reading them in turn is reading them in the order of death, however late we come. Noting a death
 * (nursery_collect) and telling it (on_exit) are apart, so that whoever is about to send a signal can
 * first see who is dead already and is no victim of it. */
#include "agent/process/claim.h"
#include "agent/process/known_children.h"
#include "agent/process/nursery_internal.h"
#include "agent/process/proc.h"
#include "base/cleanup.h"
#include "base/clock.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
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
    case -EAGAIN: return NURSERY_MORE_PROCESSES;
    case -E2BIG: return "; shorten the arguments or the environment";
    default: return "";
    }
}

static int prepare_slots(struct nursery *n) {
    if (n->slots != NULL) return 0;
    void *room = mmap(NULL, NURSERY_SLOTS * sizeof *n->slots, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) return -ENOMEM;
    n->slots = room;
    return 0;
}

/* No use trying it again; but those who are in it are ended by it. */
static void give_up_cgroup(struct nursery *n) {
    if (TAILQ_EMPTY(&n->living)) cr_close_fd(&n->cgroup.fd);
}

/* First half: on its way, and known to everybody who must not lose it. */
static int begin(struct worker_process *w, const struct worker_spawn *how, struct spawn_slot *slot,
                 int cgroup_fd) {
    struct nursery *n = w->nursery;
    struct spawn_request request = {
        .path = how->path,
        .argv = how->argv,
        .envp = w->envp,
        .stdio = {how->stdin_fd, how->stdout_fd, how->stderr_fd},
        .cgroup_fd = cgroup_fd,
        .files = claim_workers_files(),
        .cpus = how->cpus,
    };
    int code = known_children_begin();
    if (code < 0) return code;
    code = spawn_begin(slot, &request, &n->borrow);
    known_children_end(code == 0 ? slot->child.pid : 0);
    if (code == -ENOTSUP && cgroup_fd >= 0) {
        give_up_cgroup(n);
        return begin(w, how, slot, -1);
    }
    if (code < 0) return code;
    w->how.pid = slot->child.pid;
    w->pidfd = slot->child.pidfd;
    w->roster_slot = enter_roster(n, w->how.pid);
    TAILQ_INSERT_TAIL(&n->living, w, link);
    /* Dead already? Then the descriptor is ready from the first moment: nothing is lost. */
    if (w->pidfd >= 0 && nursery_watch(n, w->pidfd, EPOLLIN, &w->watched) < 0)
        cr_close_fd(&w->pidfd);
    if (w->pidfd < 0) nursery_schedule_turn(n); /* its SIGCHLD may have come before we knew it */
    return 0;
}

/* It was waited for: nobody needs to know it any more. */
static void strike_out(struct worker_process *w) {
    struct nursery *n = w->nursery;
    known_children_forget(w->how.pid);
    if (w->roster_slot >= 0) n->roster->session[w->roster_slot] = 0;
    nursery_unwatch(n, &w->pidfd);
    TAILQ_REMOVE(&n->living, w, link);
}

/* Second half. */
static int finish(struct worker_process *w, const struct worker_spawn *how, struct spawn_slot *slot,
                  const char **what) {
    int code = spawn_finish(slot, what);
    if (code < 0) strike_out(w);
    if (code != -ENOTSUP || slot->request.cgroup_fd < 0) return code;
    give_up_cgroup(w->nursery);
    *what = "start";
    code = begin(w, how, slot, -1);
    return code < 0 ? code : finish(w, how, slot, what);
}

static struct worker_process *worker_new(struct nursery *n, const struct worker_spawn *how,
                                         void *arg) {
    struct worker_process *w = calloc(1, sizeof *w);
    if (w == NULL) return NULL;
    *w = (struct worker_process){.watched = WATCHED_WORKER, .nursery = n, .arg = arg, .pidfd = -1};
    w->envp = environment_with(how->envp, n->variable);
    if (w->envp != NULL) return w;
    free(w);
    return NULL;
}

/* A number of starts, of which up to NURSERY_SLOTS are on their way at once. */
struct starts {
    struct nursery *n;
    const struct worker_spawn *how;
    void *const *args;
    struct worker_process **out;
    size_t failed; /* the first that failed, and how */
    int code;
    struct cr_error *err;
};

static void start_failed(struct starts *s, size_t i, int code, const char *what) {
    if (s->out[i] != NULL) free(s->out[i]->envp);
    free(s->out[i]);
    s->out[i] = NULL;
    if (s->code < 0 && i > s->failed) return;
    s->failed = i;
    s->code = cr_fail(s->err, code, "cannot %s '%s': %s%s", what, s->how[i].path, strerror(-code),
                      remedy(code));
}

static void begin_start(struct starts *s, size_t i) {
    struct nursery *n = s->n;
    int code = -ENOMEM;
    s->out[i] = worker_new(n, &s->how[i], s->args[i]);
    if (s->out[i] != NULL)
        code = begin(s->out[i], &s->how[i], &n->slots[i % NURSERY_SLOTS], n->cgroup.fd);
    if (code < 0) start_failed(s, i, code, "start");
}

static void finish_start(struct starts *s, size_t i) {
    const char *what;
    if (s->out[i] == NULL) return;
    int code = finish(s->out[i], &s->how[i], &s->n->slots[i % NURSERY_SLOTS], &what);
    if (code < 0) {
        start_failed(s, i, code, what);
        return;
    }
    free(s->out[i]->envp);
    s->out[i]->envp = NULL;
}

int worker_spawn_all(struct nursery *n, const struct worker_spawn *how, void *const *worker_args,
                     size_t count, struct worker_process **out, size_t *failed,
                     struct cr_error *err) {
    struct starts s = {.n = n, .how = how, .args = worker_args, .out = out, .err = err};
    for (size_t i = 0; i < count; i++) out[i] = NULL;
    *failed = 0;
    if (n->state != NURSERY_OPEN)
        return cr_fail(err, -EBUSY, "cannot start '%s': its group is ending", how->path);
    int code = prepare_slots(n);
    if (code < 0) return cr_fail(err, code, "cannot start '%s': out of memory", how->path);
    size_t begun = 0, finished = 0;
    while (begun < count && s.code == 0) {
        if (begun - finished == NURSERY_SLOTS) finish_start(&s, finished++);
        if (s.code == 0) begin_start(&s, begun++);
    }
    while (finished < begun) finish_start(&s, finished++);
    *failed = s.failed;
    return s.code;
}

int worker_spawn(struct nursery *n, const struct worker_spawn *how, void *worker_arg,
                 struct worker_process **out, struct cr_error *err) {
    size_t failed;
    struct worker_process *w;
    int code = worker_spawn_all(n, how, &worker_arg, 1, &w, &failed, err);
    if (code == 0) *out = w;
    return code;
}

/* ---- death ---- */

static void describe(struct worker_process *w, const siginfo_t *info) {
    struct worker_exit *how = &w->how;
    how->exit_code = info->si_code == CLD_EXITED ? info->si_status : -info->si_status;
    how->core_dumped = info->si_code == CLD_DUMPED;
    if (w->dying_unasked && how->exit_code != -how->signal_sent) how->signal_sent = 0;
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
    strike_out(w);
    describe(w, &info);
    w->how.order = ++n->deaths_seen;
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

/* A process closes its files before its end can be waited for: peers that see that may be dead first.
 * So one that is ending already is no victim of the signal that it gets on top. */
void worker_send(struct worker_process *w, int signum) {
    struct proc_stat stat;
    if (w->how.signal_sent == 0 && proc_stat(w->how.pid, &stat) == 0) w->dying_unasked = stat.dying;
    w->how.signal_sent = signum;
    (void) kill(-w->how.pid, signum); /* not waited for yet, so the pid cannot be another's */
}

void worker_keep(struct worker_process *w, int keep) { w->kept = keep; }

int worker_is_dead(struct worker_process *w) {
    const struct worker_process *dead;
    nursery_collect(w->nursery);
    TAILQ_FOREACH(dead, &w->nursery->dead, link)
    if (dead == w) return 1;
    return 0;
}

void worker_signal(struct worker_process *w, int signum) {
    if (!worker_is_dead(w)) worker_send(w, signum);
}
