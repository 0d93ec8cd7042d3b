/* Assertions, which stay on in release builds. They check what only a bug of this project can
 * break, never input. The expression must have no side effect. */
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
