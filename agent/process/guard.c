/* Starts the nursery's warden, replaces a warden that has died, and stops the warden when the
 * nursery is closed. */
#include "agent/process/nursery_internal.h"
#include "agent/system/system.h"
#include "base/cleanup.h"
#include "base/log.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

/* after this many deaths of wardens, the nursery goes on without a warden */
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

/* Stops the warden and removes the cgroup. Normally it kills the warden without waiting for its
 * death: guard_wait() waits for it when the nursery's handles are closed. In two cases it releases
 * the warden instead: if the cgroup still has processes that are not children of this process, or
 * if memory was too short to find all processes that the workers left behind. A released warden
 * ends the processes that are left, removes the cgroup and exits. */
void guard_stop(struct nursery *n) {
    nursery_unwatch(n, &n->warden.pidfd);
    if (cgroup_remove(&n->cgroup) < 0 || n->warden_takes_over) {
        known_children_forget(n->warden.pid);
        warden_release(&n->warden);
    }
    warden_kill(&n->warden);
    cr_close_fd(&n->cgroup.fd);
}

void guard_wait(struct nursery *n) {
    pid_t pid = n->warden.pid;
    warden_wait(&n->warden);
    known_children_forget(pid);
}
