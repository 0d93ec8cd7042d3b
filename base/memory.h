/* Memory that is freed at the end of a scope, and two macros that all code needs.
 *
 *     CR_AUTO_FREE char *path = strdup(name);
 *
 * For what lives inside one function only: an object that a callback may still use is freed by
 * its owner. Includes nothing but <stdlib.h>, so that code without I/O can use it; base/cleanup.h
 * has the same for descriptors. */
#ifndef CR_MEMORY_H
#define CR_MEMORY_H

#include <stddef.h>
#include <stdlib.h>

/* The variable must be initialised where it is declared; NULL is fine. */
#define CR_AUTO_FREE __attribute__((cleanup(cr_cleanup_free)))

#define CR_ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

/* The object of `type` whose member `member` is at `ptr`. */
#define CR_CONTAINER_OF(ptr, type, member)                                                         \
    ((type *) (void *) ((char *) (ptr) -offsetof(type, member)))

static inline void cr_cleanup_free(void *p) { free(*(void **) p); }

#endif
