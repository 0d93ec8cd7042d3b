/* CR_AUTO_FD: a variable whose file descriptor is closed at the end of its scope. base/memory.h,
 * included here, has CR_AUTO_FREE for memory.
 *
 *     CR_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
 *     ...
 *     return cr_take_fd(&fd);    // the descriptor leaves the scope: it is not closed
 *
 * Use it only for a descriptor that one function opens and closes. A descriptor that a callback
 * may use later belongs to an object, whose own cleanup function closes it. */
#ifndef CR_CLEANUP_H
#define CR_CLEANUP_H

#include "base/memory.h"

#include <unistd.h>

/* Marks a variable whose descriptor is closed on every way out of the scope. So the variable must
 * be initialised where it is declared; -1 means that there is nothing to close. */
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
