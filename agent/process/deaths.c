/* Finds out which processes died, in the kernel's order of death.
 *
 * The kernel queues a descriptor in an epoll when it becomes ready, and a pidfd becomes ready when
 * its process dies. So the order of events in the epoll is the order of deaths, however late they
 * are read. Recording deaths (deaths_collect) is separate from reporting them to the owner of the
 * nursery (deaths_deliver), because deaths are recorded before each signal is sent: a worker that
 * was dead already must not count as ended by that signal. */
#include "agent/process/nursery_internal.h"
#include "base/cleanup.h"

#include <stdlib.h>
#include <sys/epoll.h>

#define BATCH 64 /* the most events that one epoll_wait() returns */

/* Checks each worker without a pidfd for its death, because the epoll does not report it. */
static void collect_unwatched(struct nursery *n) {
    struct worker_process *w, *next;
    for (w = TAILQ_FIRST(&n->living); w != NULL; w = next) {
        next = TAILQ_NEXT(w, entry);
        if (w->pidfd < 0) (void) worker_note_death(w);
    }
}

static void handle_ready(struct nursery *n, enum watched *what) {
    switch (*what) {
    case WATCHED_WORKER:
        (void) worker_note_death(CR_CONTAINER_OF(what, struct worker_process, watched));
        break;
    case WATCHED_ORPHAN: orphan_died(n, CR_CONTAINER_OF(what, struct orphan, watched)); break;
    case WATCHED_WARDEN: guard_replace(n); break;
    case WATCHED_CGROUP:
        /* the cgroup has changed: it may be empty now; if it is not, nursery_turn() watches it for
         * the next change */
        nursery_unwatch(n, &n->cgroup_events_fd);
        break;
    }
}

bool deaths_collect(struct nursery *n) {
    struct epoll_event ready[BATCH];
    int count;
    do {
        count = epoll_wait(n->epoll_fd, ready, BATCH, 0);
        for (int i = 0; i < count; i++) handle_ready(n, ready[i].data.ptr);
    } while (count == BATCH);
    collect_unwatched(n);
    return !TAILQ_EMPTY(&n->dead);
}

void deaths_deliver(struct nursery *n) {
    struct worker_process *w;
    while ((w = TAILQ_FIRST(&n->dead)) != NULL) {
        TAILQ_REMOVE(&n->dead, w, entry);
        n->events.on_exit(n->arg, w, &w->how);
        free(w);
    }
}
