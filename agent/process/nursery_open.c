/* Opens and closes a nursery. If opening fails half-way, the closing functions release the parts
 * that were opened. */
#include "agent/process/nursery_internal.h"
#include "agent/system/system.h"
#include "base/assert.h"
#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/text/token.h"
#include "base/time/clock.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

/* ---- opening ---- */

static int check_sigchld(struct cr_error *err) {
    struct sigaction now;
    if (sigaction(SIGCHLD, NULL, &now) < 0) return 0;
    if (now.sa_handler != SIG_IGN && (now.sa_flags & SA_NOCLDWAIT) == 0) return 0;
    return cr_fail(err, -EINVAL,
                   "cannot open a nursery: this process ignores SIGCHLD, so exit "
                   "statuses are lost; call agent_claim_process() first");
}

static int make_token(struct nursery *n, struct cr_error *err) {
    int rc = token_draw(n->token, 16);
    if (rc < 0) return cr_fail(err, rc, "cannot open a nursery: no random token");
    const char *outer = getenv("CRUN_NURSERY");
    n->variable = outer != NULL && outer[0] != '\0'
                      ? cr_asprintf("CRUN_NURSERY=%s:%s", outer, n->token)
                      : cr_asprintf("CRUN_NURSERY=%s", n->token);
    if (n->variable != NULL) return 0;
    return cr_fail(err, -ENOMEM, "cannot open a nursery: out of memory");
}

static int map_roster(struct nursery *n, struct cr_error *err) {
    void *roster =
        mmap(NULL, sizeof *n->roster, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (roster == MAP_FAILED) {
        return cr_fail(err, -ENOMEM, "cannot open a nursery: out of memory");
    }
    n->roster = roster;
    n->roster->fence_ms = CR_FOREVER;
    return 0;
}

static int start_warden(struct nursery *n, struct cr_error *err) {
    cgroup_open(&n->cgroup, n->token);
    int rc = guard_start(n);
    if (rc == 0) return 0;
    return cr_fail(err, rc, "cannot start the warden: %s%s", strerror(-rc),
                   rc == -EAGAIN ? NURSERY_MORE_PROCESSES : "");
}

static int open_parts(struct nursery *n, struct cr_error *err) {
    int adopts = 0;
    n->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (n->epoll_fd < 0) return cr_fail_errno(err, "cannot open a nursery: epoll");
    (void) prctl(PR_GET_CHILD_SUBREAPER, &adopts);
    n->adopts = adopts != 0;
    int rc = map_roster(n, err);
    if (rc == 0) rc = make_token(n, err);
    return rc < 0 ? rc : start_warden(n, err);
}

static int start_handles(struct nursery *n) {
    int rc = uv_poll_init(n->loop, &n->deaths, n->epoll_fd);
    if (rc < 0) return rc;
    n->open_handles = 6;
    /* uv_signal_init() cannot fail, because uv_loop_init() has opened the loop's signal pipe */
    (void) uv_signal_init(n->loop, &n->sigchld);
    (void) uv_timer_init(n->loop, &n->grace);
    (void) uv_timer_init(n->loop, &n->turn);
    (void) uv_timer_init(n->loop, &n->retry);
    (void) uv_timer_init(n->loop, &n->stuck);
    n->stuck.data = n;
    n->deaths.data = n->sigchld.data = n->grace.data = n->turn.data = n->retry.data = n;
    rc = uv_poll_start(&n->deaths, UV_READABLE, nursery_on_deaths);
    return rc < 0 ? rc : uv_signal_start(&n->sigchld, nursery_on_sigchld, SIGCHLD);
}

static struct nursery *nursery_new(uv_loop_t *loop, const struct nursery_events *events,
                                   void *arg) {
    struct nursery *n = calloc(1, sizeof *n);
    if (n == NULL) return NULL;
    *n = (struct nursery){
        .loop = loop,
        .events = *events,
        .arg = arg,
        .state = NURSERY_OPEN,
        .epoll_fd = -1,
        .cgroup.fd = -1,
        .cgroup_events_fd = -1,
        .warden = {.pidfd = -1, .lifeline = -1, .deputy_line = -1},
        .watched_cgroup = WATCHED_CGROUP,
        .watched_warden = WATCHED_WARDEN,
        .borrow = spawn_can_borrow(),
    };
    TAILQ_INIT(&n->living);
    TAILQ_INIT(&n->dead);
    LIST_INIT(&n->orphans);
    LIST_INIT(&n->undecided);
    return n;
}

static void nursery_free(struct nursery *n) {
    guard_wait(n);
    cr_close_fd(&n->epoll_fd);
    if (n->roster != NULL) (void) munmap(n->roster, sizeof *n->roster);
    if (n->slots != NULL) (void) munmap(n->slots, NURSERY_SLOTS * sizeof *n->slots);
    free(n->variable);
    free(n->past_sessions);
    free(n);
}

int nursery_open(uv_loop_t *loop, const struct nursery_events *events, void *arg,
                 struct nursery **out, struct cr_error *err) {
    int rc = check_sigchld(err);
    if (rc < 0) return rc;
    struct nursery *n = nursery_new(loop, events, arg);
    if (n == NULL) return cr_fail(err, -ENOMEM, "cannot open a nursery: out of memory");
    rc = open_parts(n, err);
    if (rc < 0) {
        guard_stop(n);
        nursery_free(n);
        return rc;
    }
    (void) known_children_nurseries(+1);
    rc = start_handles(n);
    if (rc < 0) {
        (void) cr_fail(err, rc, "cannot open a nursery: %s", uv_strerror(rc));
        nursery_close(n, NULL);
        return rc;
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

/* The handle `deaths` is closed last: while the killed warden dies, it stays open to report the
 * death, so that guard_wait() does not block and the loop closes other parts of the agent in the
 * meantime. */
void nursery_go_on_closing(struct nursery *n) {
    bool reports = uv_is_active((uv_handle_t *) &n->deaths) != 0;
    if (!reports || !guard_is_dying(n)) uv_close((uv_handle_t *) &n->deaths, on_handle_closed);
}

void nursery_close(struct nursery *n, void (*on_close)(void *arg)) {
    CR_ASSERT(TAILQ_EMPTY(&n->living) && TAILQ_EMPTY(&n->dead) && n->state == NURSERY_OPEN);
    nursery_enter(n, NURSERY_CLOSING);
    n->on_close = on_close;
    guard_stop(n);
    (void) known_children_nurseries(-1);
    if (n->open_handles == 0) { /* nursery_open() failed before any handle was opened */
        nursery_free(n);
        return;
    }
    uv_handle_t *handles[] = {(uv_handle_t *) &n->sigchld, (uv_handle_t *) &n->grace,
                              (uv_handle_t *) &n->turn, (uv_handle_t *) &n->retry,
                              (uv_handle_t *) &n->stuck};
    for (size_t i = 0; i < CR_ARRAY_LEN(handles); i++) uv_close(handles[i], on_handle_closed);
    nursery_go_on_closing(n);
}
