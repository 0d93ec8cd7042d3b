/* Assertions that stay on in release: only for what a bug in this tree can break, never for input. */
#ifndef CR_ASSERT_H
#define CR_ASSERT_H

#include <stdio.h>
#include <stdlib.h>

#define CR_ASSERT(expr)                                                                            \
    do {                                                                                           \
        if (!(expr)) {                                                                             \
            (void) fprintf(stderr, "crun: bug: assertion failed: %s (%s:%d)\n", #expr, __FILE__,   \
                           __LINE__);                                                              \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

#endif
