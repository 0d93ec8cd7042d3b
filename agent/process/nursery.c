/* The nursery: opens with its warden, tells of deaths, ends in steps.
 *
 *     OPEN ──nursery_end──► ENDING ──grace over──► KILLING
 *       ▲                      │                      │
 *       └──────────── nothing is left: on_empty ◄─────┘            OPEN ──nursery_close──► CLOSING
 *
 * Callbacks of the loop only lead here: nursery_turn is the whole story of a turn. */
#include "agent/process/known_children.h"
#include "agent/process/nursery_internal.h"
#include "agent/process/proc.h"
#include "base/token.h"
#include "base/assert.h"
#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#define WARDENS_MAX 16 /* replaced so often; a nursery whose wardens keep dying goes on without */

/* ---- the epoll within the loop ---- */

int nursery_watch(struct nursery *n, int fd, uint32_t events, enum watched *what) {
    struct epoll_event event = {.events = events, .data.ptr = what};
    return epoll_ctl(n->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

/* Deleted by name: a child between clone and exec holds the file too, so close alone is not enough. */
void nursery_unwatch(struct nursery *n, int *fd) {
    if (*fd < 0) return;
    (void) epoll_ctl(n->epoll_fd, EPOLL_CTL_DEL, *fd, NULL);
    cr_close_fd(fd);
}

/* ---- one turn ---- */

static int has_living(const struct nursery *n, int kept) {
    const struct worker_process *w;
    TAILQ_FOREACH(w, &n->living, link)
    if (w->kept == kept) return 1;
    return 0;
}

static void become_empty(struct nursery *n) {
    n->state = NURSERY_OPEN;
    (void) uv_timer_stop(&n->grace);
    orphans_forget(n);
    if (n->cgroup_killed) cgroup_renew(&n->cgroup);
    n->cgroup_killed = 0;
    n->events.on_empty(n->arg);
}

/* Whoever is to be kept lives in there, too. */
static void kill_cgroup(struct nursery *n) {
    if (has_living(n, 1)) return;
    cgroup_kill(&n->cgroup);
    n->cgroup_killed = 1;
}

/* Whoever is in our cgroup and is no descendant that we know. */
static int strangers_left(struct nursery *n) {
    if (has_living(n, 1)) return 0; /* they cannot be told from those that a kept worker started */
    if (n->cgroup.fd < 0 || !cgroup_populated(&n->cgroup)) return 0;
    nursery_unwatch(n, &n->cgroup_events_fd);
    n->cgroup_events_fd = cgroup_events_open(&n->cgroup);
    if (n->cgroup_events_fd < 0) return 0;
    int watching = nursery_watch(n, n->cgroup_events_fd, EPOLLPRI, &n->watched_cgroup) == 0;
    if (!watching || !cgroup_events_populated(n->cgroup_events_fd)) {
        nursery_unwatch(n, &n->cgroup_events_fd);
        return 0;
    }
    if (n->state == NURSERY_KILLING) kill_cgroup(n);
    return 1;
}

static void nursery_turn(struct nursery *n) {
    if (n->state == NURSERY_CLOSING) return;
    nursery_collect(n);
    (void) uv_timer_stop(&n->turn);
    nursery_deliver_exits(n); /* the callbacks may have ended or closed the nursery */
    if (n->state != NURSERY_ENDING && n->state != NURSERY_KILLING) return;
    if (has_living(n, 0)) return;
    if (orphans_signal(n, n->state == NURSERY_KILLING ? SIGKILL : n->end_signal, 0) > 0) return;
    if (strangers_left(n)) return;
    become_empty(n);
}

static void on_deaths(uv_poll_t *poll, int status, int events) {
    (void) status, (void) events;
    nursery_turn(poll->data);
}

static void on_turn(uv_timer_t *timer) { nursery_turn(timer->data); }

static void on_sigchld(uv_signal_t *handle, int signum) {
    struct nursery *n = handle->data;
    (void) signum;
    if (n->state == NURSERY_CLOSING) return;
    nursery_collect(n); /* our own first: what is left is adopted, or somebody else's */
    orphans_reap(n);
    nursery_turn(n);
}

void nursery_schedule_turn(struct nursery *n) {
    if (n->state != NURSERY_CLOSING) (void) uv_timer_start(&n->turn, on_turn, 0, 0);
}

/* ---- ending ---- */

static void kill_all(struct nursery *n) {
    struct worker_process *w;
    n->state = NURSERY_KILLING;
    nursery_collect(n);
    kill_cgroup(n);
    TAILQ_FOREACH(w, &n->living, link)
        if (!w->kept) worker_send(w, SIGKILL);
    (void) orphans_signal(n, SIGKILL, 1);
}

static void on_grace_over(uv_timer_t *timer) {
    struct nursery *n = timer->data;
    kill_all(n);
    nursery_schedule_turn(n);
}

static void ask_to_end(struct worker_process *w, int signum) {
    worker_send(w, signum);
    (void) kill(-w->how.pid, SIGCONT);
}

static void ask_all_to_end(struct nursery *n, int signum) {
    struct worker_process *w;
    n->state = NURSERY_ENDING;
    n->end_signal = signum;
    nursery_collect(n);
    TAILQ_FOREACH(w, &n->living, link)
        if (!w->kept) ask_to_end(w, signum);
    /* With nobody left the turn that follows does this, and sees whether anything is left at all. */
    if (has_living(n, 0)) (void) orphans_signal(n, signum, 0);
}

void nursery_end(struct nursery *n, int signum, int64_t grace_ms) {
    CR_ASSERT(n->state != NURSERY_CLOSING);
    ask_all_to_end(n, signum);
    if (grace_ms <= 0)
        kill_all(n);
    else
        (void) uv_timer_start(&n->grace, on_grace_over, (uint64_t) grace_ms, 0);
    nursery_schedule_turn(n);
}

/* ---- the warden ---- */

static int start_warden(struct nursery *n) {
    int code = known_children_begin();
    if (code < 0) return code;
    code = warden_start(&n->warden, n->token, &n->cgroup, n->roster);
    known_children_end(code == 0 ? n->warden.pid : 0);
    if (code == 0 && n->warden.pidfd >= 0)
        (void) nursery_watch(n, n->warden.pidfd, EPOLLIN, &n->watched_warden);
    return code;
}

void nursery_replace_warden(struct nursery *n) {
    nursery_unwatch(n, &n->warden.pidfd);
    known_children_forget(n->warden.pid);
    warden_bury(&n->warden);
    int code = ++n->warden_deaths < WARDENS_MAX ? start_warden(n) : -ECHILD;
    cr_debug("the warden died; %s", code == 0 ? "another one watches" : "none watches now");
}

/* It takes the time that the scheduler needs to let it die, so it is waited for only in the end. With
 * processes left in the cgroup (they cannot be ours to wait for) it does the rest itself. */
static void stop_warden(struct nursery *n) {
    nursery_unwatch(n, &n->warden.pidfd);
    if (cgroup_remove(&n->cgroup) < 0) {
        known_children_forget(n->warden.pid);
        warden_release(&n->warden);
    }
    warden_kill(&n->warden);
    cr_close_fd(&n->cgroup.fd);
}

static void bury_warden(struct nursery *n) {
    pid_t pid = n->warden.pid;
    warden_bury(&n->warden);
    known_children_forget(pid);
}

/* ---- opening ---- */

static int check_sigchld(struct cr_error *err) {
    struct sigaction now;
    if (sigaction(SIGCHLD, NULL, &now) < 0) return 0;
    if (now.sa_handler != SIG_IGN && (now.sa_flags & SA_NOCLDWAIT) == 0) return 0;
    return cr_fail(err, -EINVAL,
                   "cannot open a nursery: this process ignores SIGCHLD, so exit "
                   "statuses are lost; call agent_claim_process() first");
}

static int make_token(struct nursery *n) {
    int code = token_draw(n->token, 16);
    if (code < 0) return code;
    const char *outer = getenv("CRUN_NURSERY");
    n->variable = outer != NULL && outer[0] != '\0'
                      ? cr_asprintf("CRUN_NURSERY=%s:%s", outer, n->token)
                      : cr_asprintf("CRUN_NURSERY=%s", n->token);
    return n->variable == NULL ? -ENOMEM : 0;
}

static int open_parts(struct nursery *n, struct cr_error *err) {
    n->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (n->epoll_fd < 0) return cr_fail_errno(err, "cannot open a nursery: epoll");
    n->roster =
        mmap(NULL, sizeof *n->roster, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (n->roster == MAP_FAILED) {
        n->roster = NULL;
        return cr_fail(err, -ENOMEM, "cannot open a nursery: out of memory");
    }
    int adopts = 0;
    (void) prctl(PR_GET_CHILD_SUBREAPER, &adopts);
    n->adopts = adopts;
    int code = make_token(n);
    if (code < 0) return cr_fail(err, code, "cannot open a nursery: no random token");
    char name[64];
    (void) snprintf(name, sizeof name, "crun-%d-%.8s", (int) getpid(), n->token);
    cgroup_open(&n->cgroup, name);
    code = start_warden(n);
    if (code < 0) {
        return cr_fail(err, code, "cannot start the warden: %s%s", strerror(-code),
                       code == -EAGAIN ? NURSERY_MORE_PROCESSES : "");
    }
    return 0;
}

static int start_handles(struct nursery *n) {
    int code = uv_poll_init(n->loop, &n->deaths, n->epoll_fd);
    if (code < 0) return code;
    n->open_handles = 4;
    (void) uv_signal_init(n->loop, &n->sigchld); /* these three cannot fail */
    (void) uv_timer_init(n->loop, &n->grace);
    (void) uv_timer_init(n->loop, &n->turn);
    n->deaths.data = n->sigchld.data = n->grace.data = n->turn.data = n;
    code = uv_poll_start(&n->deaths, UV_READABLE, on_deaths);
    return code < 0 ? code : uv_signal_start(&n->sigchld, on_sigchld, SIGCHLD);
}

static void nursery_free(struct nursery *n) {
    bury_warden(n);
    cr_close_fd(&n->epoll_fd);
    if (n->roster != NULL) (void) munmap(n->roster, sizeof *n->roster);
    if (n->slots != NULL) (void) munmap(n->slots, NURSERY_SLOTS * sizeof *n->slots);
    free(n->variable);
    free(n);
}

int nursery_open(uv_loop_t *loop, const struct nursery_events *events, void *arg,
                 struct nursery **out, struct cr_error *err) {
    int code = check_sigchld(err);
    if (code < 0) return code;
    struct nursery *n = calloc(1, sizeof *n);
    if (n == NULL) return cr_fail(err, -ENOMEM, "cannot open a nursery: out of memory");
    *n = (struct nursery){
        .loop = loop,
        .events = *events,
        .arg = arg,
        .epoll_fd = -1,
        .cgroup.fd = -1,
        .cgroup_events_fd = -1,
        .warden = {.pidfd = -1, .lifeline = -1},
        .watched_cgroup = WATCHED_CGROUP,
        .watched_warden = WATCHED_WARDEN,
        .borrow = spawn_can_borrow(),
    };
    TAILQ_INIT(&n->living);
    TAILQ_INIT(&n->dead);
    LIST_INIT(&n->orphans);
    code = open_parts(n, err);
    if (code < 0) {
        stop_warden(n);
        nursery_free(n);
        return code;
    }
    (void) known_children_nurseries(+1);
    code = start_handles(n);
    if (code < 0) {
        (void) cr_fail(err, code, "cannot open a nursery: %s", uv_strerror(code));
        nursery_close(n, NULL);
        return code;
    }
    *out = n;
    return 0;
}

/* ---- closing ---- */

static void on_handle_closed(uv_handle_t *handle) {
    struct nursery *n = handle->data;
    if (--n->open_handles > 0) return;
    void (*on_close)(void *arg) = n->on_close;
    void *arg = n->arg;
    nursery_free(n);
    if (on_close != NULL) on_close(arg);
}

void nursery_close(struct nursery *n, void (*on_close)(void *arg)) {
    CR_ASSERT(TAILQ_EMPTY(&n->living) && TAILQ_EMPTY(&n->dead) && n->state == NURSERY_OPEN);
    n->state = NURSERY_CLOSING;
    n->on_close = on_close;
    stop_warden(n);
    (void) known_children_nurseries(-1);
    if (n->open_handles == 0) { /* the loop refused the first of them */
        nursery_free(n);
        return;
    }
    uv_handle_t *handles[] = {(uv_handle_t *) &n->deaths, (uv_handle_t *) &n->sigchld,
                              (uv_handle_t *) &n->grace, (uv_handle_t *) &n->turn};
    for (size_t i = 0; i < CR_ARRAY_LEN(handles); i++) uv_close(handles[i], on_handle_closed);
}
