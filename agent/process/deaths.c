/* Which processes died, in the kernel's order of death.
 *
 * The kernel queues a descriptor in an epoll when it becomes ready, and a pidfd becomes ready when
 * its process dies: reading the epoll gives the order of death, however late we read. Noting
 * deaths (deaths_collect) is separate from reporting them (deaths_deliver): before a signal is
 * sent, deaths are collected, so that a worker that was dead already does not count as ended by
 * the signal. */
#include "agent/process/nursery_internal.h"
#include "base/cleanup.h"

#include <stdlib.h>
#include <sys/epoll.h>

#define BATCH 64 /* events read by one epoll_wait() */

/* Workers without a pidfd are not in the epoll: ask for each. */
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
        nursery_unwatch(n, &n->cgroup_events_fd); /* the turn watches again if it is populated */
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
