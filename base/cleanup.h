/* CR_AUTO_FD: a variable whose file descriptor is closed at the end of its scope. This header
 * includes base/memory.h, which has CR_AUTO_FREE for memory.
 *
 *     CR_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
 *     ...
 *     return cr_take_fd(&fd);    // fd is now -1, so the descriptor stays open
 *
 * Use CR_AUTO_FD only for a descriptor that one function opens and closes. If a callback uses the
 * descriptor later, keep it in an object whose cleanup function closes it. */
#ifndef CR_CLEANUP_H
#define CR_CLEANUP_H

#include "base/memory.h"

#include <unistd.h>

/* Marks a variable whose descriptor is closed on every way out of the scope. Initialise such a
 * variable where it is declared; -1 means that there is nothing to close. */
#define CR_AUTO_FD __attribute__((cleanup(cr_close_fd)))

/* Closes *fd unless it is negative, and sets it to -1. */
static inline void cr_close_fd(int *fd) {
    if (*fd >= 0) (void) close(*fd);
    *fd = -1;
}

/* Returns the descriptor and sets *fd to -1, so that the end of the scope does not close it. */
static inline int cr_take_fd(int *fd) {
    int taken = *fd;
    *fd = -1;
    return taken;
}

#endif
