/* Starts the nursery's warden, replaces a warden that has died, and stops the warden when the
 * nursery is closed. */
#include "agent/process/nursery_internal.h"
#include "agent/system/system.h"
#include "base/cleanup.h"
#include "base/log/log.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>

/* when this many wardens have died, the nursery goes on without a warden */
#define WARDENS_MAX 16

int guard_start(struct nursery *n) {
    int rc = known_children_begin();
    if (rc < 0) return rc;
    rc = warden_start(&n->warden, n->token, &n->cgroup, n->roster);
    known_children_end(rc == 0 ? n->warden.pid : 0);
    if (rc == 0 && n->warden.pidfd >= 0) {
        (void) nursery_watch(n, n->warden.pidfd, EPOLLIN, &n->watched_warden);
    }
    return rc;
}

void guard_replace(struct nursery *n) {
    int deputy_line = n->warden.deputy_line;
    nursery_unwatch(n, &n->warden.pidfd);
    guard_wait(n);
    int rc = ++n->warden_deaths < WARDENS_MAX ? guard_start(n) : -ECHILD;
    if (rc == 0) {
        cr_debug("the warden died; started another one");
        warden_dismiss_deputy(&deputy_line);
        return;
    }
    /* the deputy of the dead warden stays: it ends the nursery if this process dies, too */
    n->warden.deputy_line = deputy_line;
    cr_warn("the warden died %u times and is not started again (%s); without it, processes may be "
            "left behind if crun is killed; find out who kills crun-warden", n->warden_deaths,
            strerror(-rc));
}

/* Nobody waits for the warden any more. */
static void leave_to_itself(struct nursery *n) {
    nursery_unwatch(n, &n->warden.pidfd);
    known_children_forget(n->warden.pid);
}

/* Stops the warden and removes the cgroup. Normally kills the warden without waiting for its death.
 * In two cases releases the warden instead: if the cgroup cannot be removed, most often because
 * processes are still in it, or if warden_takes_over is set. A released warden ends the processes
 * that are left, removes the cgroup and exits. After a short job on a busy machine, the warden may
 * not have run yet; then it has something to do before it ends (warden_retire()). */
void guard_stop(struct nursery *n) {
    if (cgroup_remove(&n->cgroup) < 0 || n->warden_takes_over) {
        leave_to_itself(n);
        warden_release(&n->warden);
    } else if (n->warden.pid > 0 && !warden_has_deputy(n->roster)) {
        leave_to_itself(n);
        warden_retire(&n->warden, n->roster);
    }
    warden_kill(&n->warden);
    cr_close_fd(&n->cgroup.fd);
}

void nursery_pass_on(struct nursery *n, const int *fds, size_t count) {
    /* warden_pass_on() makes the deputy exit; but if processes are left for the warden to end, the
     * deputy is still needed in case the warden is killed */
    if (count > 0 && !n->warden_takes_over) warden_pass_on(&n->warden, fds, count);
}

bool guard_is_dying(const struct nursery *n) {
    struct pollfd death = {.fd = n->warden.pidfd, .events = POLLIN};
    return n->warden.pid > 0 && n->warden.pidfd >= 0 && poll(&death, 1, 0) == 0;
}

void guard_wait(struct nursery *n) {
    pid_t pid = n->warden.pid;
    warden_wait(&n->warden);
    known_children_forget(pid);
}
