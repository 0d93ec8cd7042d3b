/* Descriptors that are closed at the end of a scope; with base/memory.h, which does it for memory.
 *
 *     CR_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
 *     ...
 *     return cr_take_fd(&fd);    // the descriptor leaves the scope: it is not closed
 *
 * For what lives inside one function only: an object that a callback may still use is closed by its
 * owner. */
#ifndef CR_CLEANUP_H
#define CR_CLEANUP_H

#include "base/memory.h"

#include <unistd.h>

/* The variable must be initialised where it is declared; -1 is fine. */
#define CR_AUTO_FD __attribute__((cleanup(cr_close_fd)))

/* Closes *fd unless it is negative, and sets it to -1. */
static inline void cr_close_fd(int *fd) {
    if (*fd >= 0) (void) close(*fd);
    *fd = -1;
}

/* Returns *fd and sets it to -1. */
static inline int cr_take_fd(int *fd) {
    int taken = *fd;
    *fd = -1;
    return taken;
}

#endif
