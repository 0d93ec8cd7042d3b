/* Scope cleanup for what lives inside one function: memory and descriptors.
 *
 *     CR_AUTO_FREE char *path = strdup(p);
 *     CR_AUTO_FD int fd = open(...);
 *     return cr_take_fd(&fd);            // ownership leaves the scope
 *
 * Never for anything that a callback may still touch. */
#ifndef CR_CLEANUP_H
#define CR_CLEANUP_H

#include "base/memory.h"

#include <unistd.h>

#define CR_AUTO_FD   __attribute__((cleanup(cr_cleanup_fd)))

static inline void cr_cleanup_fd(int *fd) {
    if (*fd >= 0) (void) close(*fd);
}

static inline int cr_take_fd(int *fd) {
    int taken = *fd;
    *fd = -1;
    return taken;
}

/* Closes and forgets; safe on -1. */
static inline void cr_close_fd(int *fd) {
    if (*fd >= 0) (void) close(*fd);
    *fd = -1;
}

#endif
