/* CR_AUTO_FREE: a variable whose memory is freed at the end of its scope. The header also has
 * CR_ARRAY_LEN and CR_CONTAINER_OF, which are used everywhere.
 *
 *     CR_AUTO_FREE char *path = strdup(name);
 *
 * Use CR_AUTO_FREE only for memory that one function allocates and frees. If a callback uses the
 * memory later, keep it in an object whose cleanup function frees it. This header includes no
 * header for I/O, so that pure code can include it; base/cleanup.h has CR_AUTO_FD for
 * descriptors. */
#ifndef CR_MEMORY_H
#define CR_MEMORY_H

#include <stddef.h>
#include <stdlib.h>

/* Marks a pointer whose memory is freed on every way out of the scope. Initialise such a pointer
 * where it is declared; NULL is allowed. */
#define CR_AUTO_FREE __attribute__((cleanup(cr_cleanup_free)))

#define CR_ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

/* Returns the object of `type` whose field `member` is at the address `ptr`. */
#define CR_CONTAINER_OF(ptr, type, member)                                                         \
    ((type *) (void *) ((char *) (ptr) -offsetof(type, member)))

static inline void cr_cleanup_free(void *p) { free(*(void **) p); }

#endif
