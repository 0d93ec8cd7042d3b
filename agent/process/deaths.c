/* Finds out which processes died, in the kernel's order of death.
 *
 * A pidfd becomes ready when its process dies, and an epoll reports descriptors in the order in
 * which they became ready. So the order of events in the epoll is the order of deaths, however late
 * the events are read.
 *
 * deaths_collect() records deaths, and deaths_deliver() reports them to the owner of the nursery.
 * Deaths are recorded before each signal is sent, so that a worker that was dead before the signal
 * does not count as ended by it. At that moment no callback may run, so recording and reporting are
 * two functions. */
#include "agent/process/nursery_internal.h"
#include "base/cleanup.h"

#include <stdlib.h>
#include <sys/epoll.h>

#define BATCH 64 /* the most events that one epoll_wait() returns */

/* Checks the workers without a pidfd, whose deaths the epoll does not report. */
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
        /* the cgroup has changed and may be empty now. nursery_turn() checks whether it is empty,
         * and watches it for its next change if it is not */
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
