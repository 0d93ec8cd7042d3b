/* Memory and descriptors that are released at the end of a scope, and two macros that all code needs.
 *
 *     CR_AUTO_FREE char *path = strdup(name);
 *     CR_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
 *     ...
 *     return cr_take_fd(&fd);    // the descriptor leaves the scope: it is not closed
 *
 * For what lives inside one function only. An object that a callback may still use is released by its
 * owner instead. */
#ifndef CR_CLEANUP_H
#define CR_CLEANUP_H

#include <stddef.h>
#include <stdlib.h>

/* The variable must be initialised where it is declared: with NULL, or with -1. */
#define CR_AUTO_FREE __attribute__((cleanup(cr_cleanup_free)))
#define CR_AUTO_FD   __attribute__((cleanup(cr_close_fd)))

#define CR_ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

/* The object of `type` whose member `member` is at `ptr`. */
#define CR_CONTAINER_OF(ptr, type, member)                                                         \
    ((type *) (void *) ((char *) (ptr) -offsetof(type, member)))

static inline void cr_cleanup_free(void *p) { free(*(void **) p); }

/* Closes *fd unless it is negative, and sets it to -1. */
void cr_close_fd(int *fd);

/* Returns *fd and sets it to -1. */
static inline int cr_take_fd(int *fd) {
    int taken = *fd;
    *fd = -1;
    return taken;
}

#endif
