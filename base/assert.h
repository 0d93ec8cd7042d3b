/* CR_ASSERT(expr): if the expression is false, the macro prints it and aborts, in release builds,
 * too. Use it for conditions that only a bug in crun can break; return an error for wrong input
 * from outside. The expression must have no side effect. */
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
