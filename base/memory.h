/* Scope cleanup for memory, and two small macros that most files need. Includes no system header
 * but <stdlib.h>, so that code without I/O can use it; base/cleanup.h adds the same for
 * descriptors.
 *
 *     CR_AUTO_FREE char *path = strdup(p);      // freed when the scope ends
 *
 * Never use it for anything that a callback may still touch. */
#ifndef CR_MEMORY_H
#define CR_MEMORY_H

#include <stddef.h>
#include <stdlib.h>

#define CR_AUTO_FREE __attribute__((cleanup(cr_cleanup_free)))

#define CR_ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

/* The object of `type` whose member `member` is at `ptr`. */
#define CR_CONTAINER_OF(ptr, type, member)                                                         \
    ((type *) (void *) ((char *) (ptr) -offsetof(type, member)))

static inline void cr_cleanup_free(void *p) { free(*(void **) p); }

#endif
