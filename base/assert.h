/* CR_ASSERT(expr) prints the expression and aborts if it is false, in release builds too. It checks
 * conditions that only a bug in crun itself can break; input from outside is checked by ordinary
 * code that returns errors. The expression must have no side effect. */
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
