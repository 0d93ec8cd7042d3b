/* Adds descriptors to the nursery's epoll and removes them. The loop watches the whole epoll
 * through one handle. */
#include "agent/process/nursery_internal.h"
#include "base/cleanup.h"

#include <errno.h>
#include <sys/epoll.h>

int nursery_watch(struct nursery *n, int fd, uint32_t events, enum watched *what) {
    struct epoll_event event = {.events = events, .data.ptr = what};
    return epoll_ctl(n->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

/* EPOLL_CTL_DEL is needed, because close(2) alone does not always remove a descriptor from an
 * epoll: a child between clone and exec may still have a copy of the descriptor. */
void nursery_unwatch(struct nursery *n, int *fd) {
    if (*fd < 0) return;
    (void) epoll_ctl(n->epoll_fd, EPOLL_CTL_DEL, *fd, NULL);
    cr_close_fd(fd);
}
